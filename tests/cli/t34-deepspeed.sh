#!/bin/sh
# Checkpoints of DeepSpeed: stages 0 to 3 of ZeRO, and universal ones, with the
# losses of tests/golden/make_deepspeed.py after training is resumed.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/named_runs.sh"

golden=$top/tests/golden/deepspeed
for name in "$golden"/*; do
    stage=$(basename "$name")
    rm -rf native
    expect 0 "$stage" into "$name" native --make-vocab-size-divisible-by 64 \
        --verify
    check 'with its optimizer' [ -f \
        native/iter_0000003/optimizer_exp_avg_sq_tp00_pp00.safetensors ]
    trains_on "$name" "$name/losses.txt"
done
expect 0 'the directory of a step' into "$golden/zero1/global_step3" step
expect 0 'inspect' gpt-reshape inspect "$golden/zero2"
out_has 'zero2: deepspeed'
out_has 'model.layers.1.mlp.gate_proj.weight'
# Names of a model that torch.compile() had wrapped.
cp -r "$golden/universal" wrapped
for f in wrapped/global_step3/zero/*.weight wrapped/global_step3/zero/*.bias; do
    mv "$f" "${f%/*}/_orig_mod.${f##*/}"
done
expect 0 'words of a wrapper before names' into wrapped unwrapped
expect 0 'and without them' into "$golden/universal" bare
check 'the same model and state, too' gpt-reshape verify unwrapped bare
# The names that files of the optimizer have where the run is of bf16.
cp -r "$golden/zero2" bf16
for f in bf16/global_step3/zero_*; do
    mv "$f" "${f%/*}/bf16_${f##*/}"
done
expect 0 'a run of bf16' into bf16 named
expect 0 'as it is called otherwise' into "$golden/zero2" plain
check 'the same model and state' gpt-reshape verify named plain
check 'of the kind that config.json names' grep -q '"model_type":.*"llama"' \
    plain/iter_*/manifest.json
check 'with the token that ends a text' grep -q '"eos_token_id":.*63' \
    plain/iter_*/manifest.json
expect 2 'is not written' into "$golden/zero1" x --to deepspeed
if [ -x "$BUILD/gpt-train" ]; then
    expect 3 'a schedule is asked for' train --load "$golden/zero1" --save x
    err_has 'override-opt-param-scheduler'
fi

# ---- without ZeRO ----
for name in stage0:1e-4 stage0_bf16:1e-2 stage0_fused:1e-2; do
    whole=${golden}_whole/${name%:*}
    rm -rf native
    expect 0 "${name%:*}" into "$whole" native --verify \
        --make-vocab-size-divisible-by 64
    check 'with its optimizer, in fp32' sh -c \
        'grep -l F32 native/iter_0000003/*.safetensors | grep -c . | grep -qx 3'
    # of two roundings, where it computed in bf16
    trains_on "$whole" "$whole/losses.txt" "${name#*:}"
done
expect 0 'weights as they were computed with' into "$whole" hf --to hf
check 'are of bf16' grep -q 'dtype.*bfloat16' hf/config.json
expect 0 'inspect of it' gpt-reshape inspect "$whole"
out_has 'mp_rank_00_model_states.pt'
cp -r "$whole" other
sed -i 's/exp_avg_sq/max_avg_sq/' other/global_step3/*.pt
expect 0 'an optimizer that is none of Adam' into other stateless
err_has 'its optimizer state and its weights in fp32 are left out: it is not'
err_has 'is not that of Adam, but has exp_avg, max_avg_sq'
cp -r "$golden/zero2" one_moment
# the first record of an archive is the pickle, whose checksum is in both lists
perl -MCompress::Zlib=crc32 -0777 -i -pe '
    my ($crc, $n) = /PK\x01\x02.{12}(.{4})(.{4})/s or die;
    my $at = 30 + unpack("v", substr($_, 26)) + unpack("v", substr($_, 28));
    s/exp_avg_sq/max_avg_sq/g;
    my $now = pack("V", crc32(substr($_, $at, unpack("V", $n))));
    s/\Q$crc\E/$now/g' one_moment/global_step3/*optim_states.pt
expect 0 'and one of partitions' into one_moment momentless
err_has 'its optimizer state is left out: it is not that of Adam, but has exp_avg'
# the count of one group, a number of fp32
cp -r "$whole" unlike
perl -0777 -i -pe 's/\x01\0{7}\0{2}\x80\x40/\x01\0\0\0\0\0\0\0\0\0\x40\x40/' \
    unlike/global_step3/*.pt
expect 0 'steps that differ' into unlike countless
err_has 'its parameters have different counts of steps'
check 'leave all weights as they were computed with' gpt-reshape verify \
    stateless countless
# and where ZeRO cuts: of a group, of a rank, of a parameter
cp -r "$golden/zero1" group
cp -r "$golden/zero3" rank
cp -r "$golden/universal" parameter
count='\0\0\x80\x40'
perl -0777 -i -pe "s/(data\/3FB.{1,99}?Z)\0\0\x40\x40/\$1$count/s or die" \
    group/global_step3/*optim_states.pt
perl -0777 -i -pe "s/(data\/0FB.{1,99}?Z)\0\0\x40\x40/\$1$count/s or die" \
    rank/global_step3/*_rank_1_*optim_states.pt \
    parameter/global_step3/zero/transformer.ln_f.bias/step.pt
for part in group rank parameter; do
    expect 0 "another count of a $part" into $part $part-weights
    err_has 'left out: its parameters have different counts of steps'
    check 'leaves its weights alone' [ ! -e \
        $part-weights/iter_0000003/optimizer_exp_avg_tp00_pp00.safetensors ]
done
cp -r "$whole" buried
sed -i 's/fp32_groups_flat/fp32_groups_gone/; s/param_groups/param_buried/' \
    buried/global_step3/*.pt
expect 0 'an optimizer of another form' into buried formless
err_has 'its optimizer state is left out: it is of a kind that is not read'

# ---- a file a layer, of GPT-NeoX ----
layers=${golden}_layers
cp -r "$layers" stages
cp stages/global_step3/mp_rank_00_model_states.pt \
    stages/global_step3/mp_rank_01_model_states.pt
expect 0 'stages of a pipeline' into stages piped --verify
err_has 'its optimizer state is left out, as that of a pipeline is not read'
check 'are the model that was saved' gpt-reshape verify piped "$layers/weights"
refused_layers() { # what message command...: on a copy
    what=$1 message=$2
    shift 2
    rm -rf layered
    cp -r "$layers" layered
    (cd layered/global_step3 && "$@")
    expect 3 "$what" gpt-reshape inspect layered
    err_has "$message"
}
refused_layers 'a layer that is missing' \
    'has layer_02 and layer_04, and none between them' \
    rm layer_03-model_00-model_states.pt
refused_layers 'the last one' "no tensor 'gpt_neox.layers.2.input_layernorm" \
    rm layer_04-model_00-model_states.pt
refused_layers 'tensor parallel ranks' 'layers of several tensor parallel ranks' \
    cp layer_00-model_00-model_states.pt layer_00-model_01-model_states.pt
refused_layers 'other heads' 'its run had 2 attention heads, config.json says 1' \
    sed -i 's/"num_attention_heads": 2/"num_attention_heads": 1/' ../config.json

# ---- parameters that were not trained ----
for stage in stage1 stage3; do
    frozen=${golden}_frozen/$stage
    rm -rf native
    expect 0 "frozen parameters, $stage" into "$frozen" native --verify
    err_has '3 of its parameters were frozen and have no optimizer state'
    check 'are those of the model' gpt-reshape verify native "$frozen/weights"
done
cp -r "$frozen" parts
rm parts/global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt
expect 3 'parts of them are gone' into parts x
err_has 'missing, though it has a part of each parameter that was frozen'

# ---- damaged ----
damage() { # stage
    rm -rf bad
    cp -r "$golden/$1" bad
    ranks=bad/global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt
}
damage zero1
rm $ranks
expect 3 'a rank is gone' into bad x
err_has 'has optimizer states of 1 ranks, its run had 2'
damage zero3
cp bad/global_step3/zero_pp_rank_0_mp_rank_00_model_states.pt $ranks
expect 3 'a file of another kind' into bad x
err_has 'no partitions of ZeRO'
damage zero2
: >$ranks
expect 3 'an empty file' into bad x
err_has 'byte 0: 0 bytes'
damage zero2
sed -i 's/"hidden_size": 16/"hidden_size": 32/' bad/config.json
expect 3 'another model' into bad x
err_has 'config.json says'
damage zero1
printf '../../etc' >bad/latest
expect 3 'a tag that leaves the directory' into bad x
damage zero1
cp bad/global_step3/mp_rank_00_model_states.pt \
    bad/global_step3/mp_rank_01_model_states.pt
expect 3 'tensor parallel ranks' into bad x
err_has 'has several tensor parallel ranks'
tap_done
