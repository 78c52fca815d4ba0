#!/bin/sh
# Checkpoints of Trainer of transformers and of accelerate: weights of Hugging
# Face with the state of an optimizer beside them, of tests/golden/make_trainer.py.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/named_runs.sh"

golden=$top/tests/golden/trainer
for name in trainer/checkpoint-3 experts/checkpoint-3 accelerate; do
    rm -rf native
    expect 0 "$name" into "$golden/$name" native --verify
    check 'with its optimizer' [ -f \
        native/iter_0000003/optimizer_exp_avg_sq_tp00_pp00.safetensors ]
    trains_on "$golden/$name" "$golden/${name%%/*}/losses.txt"
done
if [ -x "$BUILD/gpt-train" ]; then
    rm -rf on
    expect 3 'its schedule is not read' train --save on \
        --load "$golden/trainer/checkpoint-3"
    err_has 'says nothing of its run'
fi
expect 0 'inspect' gpt-reshape inspect "$golden/trainer/checkpoint-3"
out_has 'iteration                3'
out_has '0.exp_avg_sq'
out_has 'optimizer.pt'
err_has 'its run had learning rate 0.01, betas 0.9 and 0.999, epsilon 1e-08, we'

# ---- which number is which tensor ----
vocabulary=61
bytes=15104 # of all elements
same() { # what directory
    rm -rf same.one
    expect 0 "$1" into "$2" same.one --make-vocab-size-divisible-by $vocabulary
    for kind in model optimizer_exp_avg; do
        tail -c $bytes "same.one/iter_000000$3/${kind}_tp00_pp00.safetensors" \
            >$kind
    done
    check 'there are some' [ -s optimizer_exp_avg ]
    check 'first moments are those of their parameters' \
        cmp model optimizer_exp_avg
}
same 'one group' "$golden/numbers" 3
err_has "weights of 7 tensors, first 'model.layers.0.input_layernorm.weight', decay"

copied() { # directory
    rm -rf changed
    cp -r "$golden/$1" changed
    chmod -R u+w changed
}
changed() { # expression: the optimizer's file of numbers, changed in place
    copied numbers
    LC_ALL=C perl -0777 -pi -e "$1" changed/optimizer.pt
    check 'which is another file' sh -c '! cmp -s "$1" changed/optimizer.pt' \
        sh "$golden/numbers/optimizer.pt"
}
two_groups() { # the numbers of each, in Perl: an expression for changed
    printf 's/K\\x00K\\x01K\\x02.*?K\\x0feua/join("", map {"K".chr} %s)' "$1"
    printf '."eua}X\\6\\0\\0\\0params](".join("", map {"K".chr} %s)."esa"/se' \
        "$2"
}
left_out() { # what expression message
    changed "$2"
    expect 0 "$1" into changed left -f
    err_has "changed: its optimizer state is left out: $3"
    check 'weights alone are there' sh -c '! ls left/*/optimizer*'
}
echo '{"global_step": 7}' >state
copied numbers
cp state changed/trainer_state.json
touch changed/rng_state_0.pth changed/training_args.bin changed/sampler.bin
same "Trainer's count of steps" changed 7
err_has 'left out: rng_state_0.pth, sampler.bin, training_args.bin'
for names in names gathered; do
    copied numbers
    rm changed/optimizer.pt
    cp "$golden/numbers/$names"/* changed
    [ ! -f changed/pytorch_model_fsdp.bin ] || rm changed/model.safetensors
    same "names in place of numbers, $names" changed 3
done
changed "$(two_groups 0,1,3,5,7,9,10,11,14,15 2,4,6,8,12,13)"
same 'Trainer of transformers 4.52, where the last norm decays' changed 3
left_out 'groups of no program' "$(two_groups 0..14 15)" \
    'its groups have 15 and 1 parameters, and no known rule divides those of'
left_out 'two numbers in turn' 's/K\x00K\x01K\x02/K\x01K\x00K\x02/' \
    "'model.embed_tokens.weight' is 61 x 16, and '1.exp_avg' is 16 x 16"
left_out 'another optimizer' 's/exp_avg_sq/exp_avg_sx/g' \
    'it is not that of Adam, but has exp_avg'
left_out "PyTorch's RAdam" 's/amsgrad/amsgrae/' \
    "it is that of RAdam, whose groups have no 'amsgrad'"
left_out 'its SparseAdam' 's/weight_decay/weight_decoy/g' \
    "it is that of SparseAdam, whose groups have no 'weight_decay'"
left_out 'LAMB' 's/X\x08\0\0\0maximize/X\x0e\0\0\0grad_averaging/' \
    "it is that of LAMB, whose groups have 'grad_averaging'"
left_out 'no correction of bias' \
    's/X\x08\0\0\0maximize/X\x0f\0\0\0bias_correction/' \
    'it is of Adam without the correction of bias'
changed 's/maximize/mistaken/'
same "settings of one's own" changed 3
err_has 'groups of its optimizer have mistaken, which Adam'
left_out 'steps that differ' \
    's/\x01\0{7}\0\0\x40\x40/\x01\0\0\0\0\0\0\0\0\0\x80\x40/' \
    'its parameters have different counts of steps'
left_out 'a parameter fewer' 's/(K\x00K\x01K\x02.*?)K\x0fe/$1e/s' \
    'it has 15 parameters, the model has 16'

# ---- classes whose order was another ----
vocabulary=11
bytes=7392
same 'Falcon with blocks that follow each other' "$golden/falcon" 3
err_has 'moments of norms are taken in the order of transformers 5.24.0, which'
older() { # version, or a line's beginning that is none
    copied falcon
    cp "$golden/falcon/before/optimizer.pt" changed
    sed "s/\"transformers_version\": \"[^\"]*\"/$1/" \
        "$golden/falcon/config.json" >changed/config.json
}
for version in 4.31.0 4.40.2 4.41.0; do
    older "\"transformers_version\": \"$version\""
    echo '{"global_step": 3}' >changed/trainer_state.json
    if [ $version != 4.41.0 ]; then
        same "of transformers $version" changed 3
        check 'which is sure' sh -c '! grep -q "order of transformers" err'
        continue
    fi
    expect 0 'of another order than its version' into changed other -f \
        --make-vocab-size-divisible-by $vocabulary
    tail -c $bytes other/*/optimizer_exp_avg_tp00_pp00.safetensors >moments
    check 'the moments of norms have changed places' \
        sh -c '! cmp -s model moments'
done
for said in '"transformers_version": "4.41.0.dev0"' '"_name_or_path": ""'; do
    older "$said"
    expect 0 "$said" into changed left -f --make-vocab-size-divisible-by 11
    err_has 'its optimizer state is left out: transformers 4.41 changed the or'
    check 'weights alone are there' sh -c '! ls left/*/optimizer*'
done

copied trainer/checkpoint-3
head -c 20000 "$golden/trainer/checkpoint-3/optimizer.pt" >changed/optimizer.pt
expect 3 'an optimizer that is cut' into changed x
err_has 'changed/optimizer.pt'
err_has 'without optimizer.pt in its directory the weights alone are read'
expect 0 'of which weights alone are used' gpt-reshape convert changed hf --to hf
err_has 'left out: optimizer.pt, scheduler.pt'
tap_done
