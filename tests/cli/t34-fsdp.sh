#!/bin/sh
# Checkpoints of torch.distributed.checkpoint as FSDP's programs save them, with
# weights and losses of tests/golden/make_fsdp.py.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/named_runs.sh"

golden=$top/tests/golden/fsdp
for name in titan/step-3 accelerate/checkpoint-3 plain; do
    run=$golden/${name%%/*}
    rm -rf native hf
    expect 0 "$name" into "$golden/$name" native --verify \
        --make-vocab-size-divisible-by 64
    check 'is the model that was saved' gpt-reshape verify native "$run/weights"
    expect 0 'to Hugging Face' into "$golden/$name" hf --to hf
    check 'is that model, too' gpt-reshape verify hf "$run/weights"
    [ "$name" != plain ] || continue
    check 'with its optimizer' [ -f \
        native/iter_0000003/optimizer_exp_avg_sq_tp00_pp00.safetensors ]
    trains_on "$golden/$name" "$run/losses.txt"
done
# Steps are counted there and no samples, of which a schedule is a function: half
# of a decay over six steps, and the rate after one more.
if [ -x "$BUILD/gpt-train" ]; then
    rm -rf on
    expect 0 'a schedule goes on' train --load "$golden/titan/step-3" \
        --save on --override-opt_param-scheduler --train-iters 6 \
        --lr-decay-style linear
    err_has 'counted no samples: 3 steps are taken for 6'
    check 'where it was' sh -c \
        'head -n 1 on/metrics.jsonl | grep -q "\"learning_rate\":0.00333"'
fi
# Trainer's directory: what is beside is counted by, or named.
cp -r "$golden/accelerate" trainer
echo '{"global_step": 7, "log_history": []}' >trainer/checkpoint-3/trainer_state.json
touch trainer/checkpoint-3/scheduler.pt trainer/checkpoint-3/rng_state_0.pth
expect 0 "Trainer's checkpoint" into trainer/checkpoint-3 trained
err_has 'left out: scheduler.pt, rng_state_0.pth'
check 'at the step that it counts' [ -d trained/iter_0000007 ]
expect 0 'inspect of it' gpt-reshape inspect trainer/checkpoint-3
out_has 'pytorch_model_fsdp_0/__0_0.distcp'
rm trainer/config.json
expect 3 'without config.json' gpt-reshape inspect trainer/checkpoint-3
err_has 'copy config.json of the model'
check 'names of torchtitan are the same run' sh -c 'gpt-reshape verify \
    "$1/titan/step-3" "$1/titan_names/step-3" 2>&1 | tee names' sh "$golden"
check 'with its optimizer' grep -q 'bit for bit: 3[0-9] tensors' names
copied() {
    rm -rf copied
    cp -r "$golden/titan_names" copied
}
copied
sed -i 's/[.]wo/.wx/g' copied/step-3/.metadata copied/step-3/*.distcp
expect 3 'and one that is missing' gpt-reshape inspect copied/step-3
err_has "no tensor 'layers.0.attention.wo.weight'"
expect 0 'weights alone' into "$golden/plain" none
err_has 'weights alone are read: there are no moments of Adam'
err_has 'left out: train_state'
expect 0 'the state of a run' into "$golden/titan/step-3" titan
err_has 'left out: train_state, lr_scheduler'
expect 0 'the directory of weights' \
    into "$golden/accelerate/checkpoint-3/pytorch_model_fsdp_0" weights
expect 0 'is the whole' into "$golden/accelerate/checkpoint-3" both
check 'with the state beside it' gpt-reshape verify weights both
cp -r "$golden/accelerate" older
mv older/checkpoint-3/pytorch_model_fsdp_0 older/checkpoint-3/pytorch_model_0
expect 0 'the name that older versions have for it' into older/checkpoint-3 old
check 'with the state beside it, too' gpt-reshape verify old both
expect 0 'inspect of that' gpt-reshape inspect older/checkpoint-3
out_has 'pytorch_model_0/__0_0.distcp'
expect 0 'a plan' into "$golden/titan/step-3" x --dry-run
expect 0 'inspect' gpt-reshape inspect "$golden/titan/step-3"
out_has 'titan/step-3: torch.distributed.checkpoint'
out_has 'app.optim.state.model.norm.weight.exp_avg_sq'
expect 3 'a type that is not read' into "$golden/eight_bits" x
err_has "'model.embed_tokens.weight' is of type torch.float8_e4m3fn"
expect 2 'is not written' into "$golden/plain" x --to dcp
cp -r "$golden/accelerate/checkpoint-3" bare
rm -r bare/optimizer_0
mkdir steps
cp -r "$golden/titan/step-3" "$golden/titan/config.json" steps
expect 3 'the directory of steps' into steps x
err_has "'steps/step-3' is a checkpoint"
expect 3 'no configuration' into bare/pytorch_model_fsdp_0 x
err_has 'copy config.json of the model'
cp "$golden/accelerate/config.json" bare
expect 0 'no directory of the optimizer' into bare alone
err_has 'weights alone are read'

# ---- damaged ----
damage() {
    rm -rf bad
    cp -r "$golden/titan" bad
    part=bad/step-3/__1_0.distcp
}
# Replaces a text in .metadata by one of its length.
edit() { # from to
    LC_ALL=C sed "s/$1/$2/" bad/step-3/.metadata >new
    check "$1 was there" sh -c '! cmp -s new bad/step-3/.metadata'
    mv new bad/step-3/.metadata
}
damage
rm $part
expect 3 'a file is gone' into bad/step-3 x
err_has '__1_0.distcp: missing, though .metadata names it'
damage
head -c 50000 "$golden/titan/step-3/__1_0.distcp" >$part
expect 3 'a file is cut' into bad/step-3 x
err_has '__1_0.distcp'
damage
: >$part
expect 3 'an empty file' into bad/step-3 x
err_has '__1_0.distcp'
damage
cp bad/step-3/__0_0.distcp $part
expect 3 'the file of another rank' into bad/step-3 x
err_has '__1_0.distcp'
damage
head -c 20000 "$golden/titan/step-3/.metadata" >bad/step-3/.metadata
expect 3 'a cut .metadata' into bad/step-3 x
err_has '.metadata'
damage
edit __1_0.distcp __0_0.distcp
expect 3 'parts of another file' into bad/step-3 x
err_has '__0_0.distcp'
damage
edit __1_0.distcp ..%1_0.distcp
expect 3 'a name that is not there' into bad/step-3 x
damage
edit model.norm.weight model.xxxx.weight
expect 3 'a tensor of another name' into bad/step-3 x
damage
sed -i 's/"hidden_size": 16/"hidden_size": 32/' bad/config.json
expect 3 'another model' into bad/step-3 x
err_has 'config.json says'
damage
sed -i 's/"num_hidden_layers": 1/"num_hidden_layers": 2/' bad/config.json
expect 3 'a layer that is not there' into bad/step-3 x
err_has "no tensor 'app.model.model.layers.1."
tap_done
