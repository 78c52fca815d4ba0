#!/bin/sh
# Checkpoints of DeepSpeed: stages 1 to 3 of ZeRO, and universal ones, with the
# losses of tests/golden/make_deepspeed.py after training is resumed.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden/deepspeed
into() { # from to option...
    from=$1 to=$2
    shift 2
    gpt-reshape --load-path "$from" --save-path "$to" "$@"
}
echo '1234567890,.-+/(' | awk '{ for (i = 0; i < 20; i++) t = t $0
    print "{\"text\": \"" t "\"}" }' >x.jsonl
gpt-preprocess --input x.jsonl --output-prefix x -q \
    --tokenizer-type ByteTokenizer
train() {
    gpt-train --data-path x_text_document --use-checkpoint-args \
        --train-iters 23 --global-batch-size 2 --micro-batch-size 2 \
        --seq-length 16 --split 100,0,0 --lr 1e-2 --weight-decay 0.01 \
        --lr-decay-style constant --log-interval 1 \
        --make-vocab-size-divisible-by 64 "$@"
}
for name in "$golden"/*; do
    stage=$(basename "$name")
    rm -rf native on
    expect 0 "$stage" into "$name" native --make-vocab-size-divisible-by 64 \
        --verify
    check 'with its optimizer' [ -f \
        native/iter_0000003/optimizer_exp_avg_sq_tp00_pp00.safetensors ]
    [ -x "$BUILD/gpt-train" ] || continue
    expect 0 'is trained on' train --load "$name" --save on \
        --override-opt_param-scheduler
    sed -n 's/.*"lm_loss":\([0-9.e+-]*\).*/\1/p' on/metrics.jsonl |
        awk '{ print NR + 3, $1 }' >got
    awk 'NR > 3 { print NR, $1 }' "$name/losses.txt" >want
    check 'with the losses of PyTorch' awk '
        NR == FNR { want[$1] = $2; next }
        { d = want[$1] - $2
          if (!($1 in want) || d > 1e-4 || d < -1e-4) bad = 1; n++ }
        END { exit bad || n != 20 }' want got
done
expect 0 'the directory of a step' into "$golden/zero1/global_step3" step
expect 0 'inspect' gpt-reshape inspect "$golden/zero2"
out_has 'zero2: deepspeed'
out_has 'model.layers.1.mlp.gate_proj.weight'
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
    err_has 'override-opt_param-scheduler'
fi

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
