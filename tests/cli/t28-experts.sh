#!/bin/sh
# Models with experts: in any layout the losses of one rank, those of routers
# among them; the same bits after a stop; texts with the same bytes for any
# batch, layout and number of threads; weights of fewer bits. What a layer
# computes is compared with PyTorch in test_model, and with transformers in
# tests/parity/experts.sh.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

needs_gloo
make_data

run() { # ranks options...
    ranks=$1
    shift
    # shellcheck disable=SC2086 # a word list
    timeout 120 gpt-launch --standalone --nproc-per-node "$ranks" gpt-train \
        $tiny --num-layers 4 --global-batch-size 4 --train-iters 6 -q \
        --swiglu --disable-bias-linear --position-embedding-type rope \
        --normalization RMSNorm --untie-embeddings-and-output-weights "$@"
}
tp='--tensor-model-parallel-size 2'
pp='--pipeline-model-parallel-size 2'
zero='--data-parallel-sharding-strategy'
experts='--num-experts 4 --moe-ffn-hidden-size 12 --moe-layer-freq [0,1,1,1]
--moe-shared-expert-intermediate-size 8 --moe-shared-expert-gate
--moe-aux-loss-coeff 0.05 --moe-z-loss-coeff 0.01'

# ---- layouts ----
routers() { # metrics.jsonl metrics.jsonl
    paste "$1" "$2" | awk '{
        n = split($0, part, /"(load_balancing_loss|z_loss)":/)
        if (n != 5) exit 1
        for (i = 2; i < 4; i++) {
            d = part[i] - part[i + 2]
            if (d > 1e-4 || d < -1e-4 || part[i] + 0 <= 0) exit 1
        }
    }'
}
same() { # name ranks options...
    name=$1
    shift
    rm -f some.jsonl
    # shellcheck disable=SC2086 # word lists
    expect 0 "$name" run "$@" --metrics some.jsonl
    check 'the losses of one rank' compare_metrics one.jsonl some.jsonl 6
    check 'and those of its routers' routers one.jsonl some.jsonl
}
# shellcheck disable=SC2086 # word lists
{
    expect 0 'one rank' run 1 $experts --metrics one.jsonl
    same 'TP2, sequence parallel' 2 $experts $tp --sequence-parallel
    same 'TP2 PP2' 4 $experts $tp $pp
    same 'PP2 DP2, ZeRO-1' 4 $experts $pp $zero optim
    same 'TP2 DP2, ZeRO-2, layers computed again' 4 $experts $tp $zero \
        optim_grads --recompute-granularity full --recompute-method uniform \
        --recompute-num-layers 2
    same 'one rank, what is cheap computed again' 1 $experts \
        --recompute-granularity selective
    rm -f one.jsonl
    expect 0 'muon, one rank' run 1 $experts --optimizer muon \
        --metrics one.jsonl
    same 'muon, TP2' 2 $experts --optimizer muon $tp
    same 'muon, DP2, ZeRO-2' 2 $experts --optimizer muon $zero optim_grads
}

# ---- biases of routers ----
biased='--moe-router-score-function sigmoid --moe-router-expert-bias
--moe-router-topk-scaling-factor 2.5'
moved='--moe-router-bias-update-rate 0.05'
# shellcheck disable=SC2086 # word lists
{
    rm -f one.jsonl
    expect 0 'biases, one rank' run 1 $experts $biased --metrics one.jsonl
    cp one.jsonl slow.jsonl
    rm -f one.jsonl
    expect 0 'which move faster' run 1 $experts $biased $moved \
        --metrics one.jsonl
    check 'another training' sh -c '! cmp -s one.jsonl slow.jsonl'
    same 'TP2, sequence parallel' 2 $experts $biased $moved $tp \
        --sequence-parallel
    same 'TP2 PP2' 4 $experts $biased $moved $tp $pp
    same 'PP2 DP2, ZeRO-1' 4 $experts $biased $moved $pp $zero optim
    same 'TP2 DP2, ZeRO-2, layers computed again' 4 $experts $biased $moved \
        $tp $zero optim_grads --recompute-granularity full \
        --recompute-method uniform --recompute-num-layers 2
}
# Weights of zero choose the first expert whose bias is the largest, for all
# tokens: it falls and the other one rises, and the next step is the other way
# about. No gradient is left, so that the norm is that of the counts, if any.
biases() { # checkpoint
    perl -e 'for (sort glob "$ARGV[0]/iter_*/model_*.safetensors") {
        open F, "<", $_; binmode F; local $/; $_ = <F>;
        my $at = 8 + unpack "Q<", $_;
        print join " ", map({0 + sprintf "%.4f", $_}
            unpack "f<*", substr($_, $at + $1, $2 - $1)), ""
            while /expert_bias"[^}]*"data_offsets": *\[(\d+), *(\d+)\]/g
    }' "$1"
}
alike() { # steps biases what ranks options...
    steps=$1
    want=$2
    name=$3
    shift 3
    rm -rf alike alike.jsonl
    # shellcheck disable=SC2086 # word lists
    expect 0 "$name" run "$@" --num-experts 2 --moe-router-topk 1 \
        --moe-layer-freq '[0,1,1,1]' $biased --init-method-std 0 --save alike \
        --train-iters "$steps" --no-save-optim --metrics alike.jsonl
    check "biases are $want" [ "$(biases alike)" = "$want$want$want" ]
    check 'there is no gradient' sh -c \
        '! grep "\"grad_norm\":" alike.jsonl | grep -qv "\"grad_norm\":0[,}]"'
}
quarter='--moe-router-bias-update-rate 0.25'
# shellcheck disable=SC2086 # word lists
{
    alike 1 '-0.25 0.25 ' 'a step' 1 $quarter
    alike 2 '0 0 ' 'two steps' 1 $quarter
    alike 3 '-0.25 0.25 ' 'three steps, TP2' 2 $quarter $tp --sequence-parallel
    alike 3 '-0.25 0.25 ' 'PP2 DP2' 4 $quarter $pp
    alike 3 '-0.25 0.25 ' 'DP3, ZeRO-1, bf16' 3 $quarter $zero optim --bf16 \
        --global-batch-size 6
    alike 3 '-0.25 0.25 ' 'TP2 DP2, ZeRO-2' 4 $quarter $tp $zero optim_grads
    alike 3 '-0.25 0.25 ' 'layers computed again' 1 $quarter \
        --recompute-granularity full --recompute-method uniform
    alike 3 '-0.25 0.25 ' 'descent' 1 $quarter --optimizer sgd
    alike 3 '-0.25 0.25 ' 'muon, ZeRO-2' 2 $quarter --optimizer muon $zero \
        optim_grads
    alike 1 '-0.25 0.25 ' 'kernels of GPUs' 1 $quarter --device cuda-emu
    alike 1 '-0.001 0.001 ' 'the default' 1
    alike 1 '0 0 ' 'a rate of 0' 1 --moe-router-bias-update-rate 0
}

# ---- what a step says ----
# shellcheck disable=SC2086 # word lists
expect 0 'with a log' gpt-train $tiny --num-layers 1 --global-batch-size 4 \
    --train-iters 1 --disable-bias-linear --num-experts 3 \
    --moe-aux-loss-coeff 0.1
err_has ' | load_balancing_loss: '
check 'without the other' sh -c '! grep -q " z_loss: " err'

# ---- checkpoints ----
# shellcheck disable=SC2086 # word lists
{
    expect 0 'saved at 3' run 2 $experts $tp --save three --exit-interval 3
    expect 0 'and resumed' run 2 $experts $tp --load three --save resumed
    expect 0 'without stopping' run 2 $experts $tp --save whole
}
check 'the same bits as without stopping' \
    test "$(tensors_of whole/iter_0000006)" = "$(tensors_of resumed/iter_0000006)"
# shellcheck disable=SC2086 # word lists
{
    rm -rf three resumed
    expect 0 'biases saved at 3' run 2 $experts $biased $moved $zero optim \
        --save three --exit-interval 3
    expect 0 'and resumed' run 2 $experts $biased $moved $zero optim \
        --load three --save resumed
    expect 0 'without stopping' run 2 $experts $biased $moved $zero optim \
        --save biased
    expect 0 'and resumed at TP2' run 2 $experts $biased $moved $tp \
        --load three --save elsewhere
}
check 'the same bits as without stopping' test \
    "$(tensors_of biased/iter_0000006)" = "$(tensors_of resumed/iter_0000006)"
check 'and the same biases elsewhere' \
    [ "$(biases biased)" = "$(biases elsewhere)" ]
expect 0 'to TP2' gpt-reshape convert biased there \
    --target-tensor-model-parallel-size 2
expect 0 'and back' gpt-reshape convert there back \
    --target-tensor-model-parallel-size 1
expect 0 'the same bits' gpt-reshape verify biased back
# shellcheck disable=SC2086 # word lists
expect 0 'which go on' run 1 $experts $biased $moved --load back --train-iters 7
check 'which are not 0' sh -c 'case $1 in *0.05*) ;; *) false ;; esac' sh \
    "$(biases biased)"
expect 0 'TP1 PP4' gpt-reshape convert whole four \
    --target-tensor-model-parallel-size 1 \
    --target-pipeline-model-parallel-size 4
expect 0 'and back to TP4' gpt-reshape convert four again \
    --target-tensor-model-parallel-size 4 \
    --target-pipeline-model-parallel-size 1
expect 0 'the same bits' gpt-reshape verify whole again

# ---- options of a checkpoint ----
# A number of a checkpoint is the last of so many layers, and one of the option
# the first; a list may begin with layers that another option names, too.
one() { # options...
    # shellcheck disable=SC2086 # a word list
    gpt-train $tiny --num-layers 4 --global-batch-size 4 --train-iters 1 -q \
        --disable-bias-linear "$@"
}
for layers in '[0,1,0,1]' 2 '[0,1,1,1]' 1; do
    expect 0 "layers $layers" one --num-experts 4 --ffn-hidden-size 20 \
        --moe-ffn-hidden-size 12 --moe-layer-freq "$layers" --save "of-$layers"
    expect 0 'taken from a checkpoint' one --use-checkpoint-args \
        --load "of-$layers" --finetune
    expect 0 'and compared with the options' one --use-checkpoint-args \
        --ffn-hidden-size 20 --moe-layer-freq "$layers" \
        --load "of-$layers" --finetune
done
err_has '--ffn-hidden-size (all layers have experts, of --moe-ffn-hidden-size)'
expect 2 'other layers' one --use-checkpoint-args --moe-layer-freq '[1,1,0,1]' \
    --load 'of-[0,1,0,1]' --finetune

# ---- products of eight bits ----
# a width that no layer has is not looked at
# shellcheck disable=SC2086 # word lists
expect 0 'products of eight bits beside experts of 8 elements a rank' \
    gpt-train $tiny --hidden-size 64 --micro-batch-size 2 --dry-run \
    --train-iters 1 --disable-bias-linear --num-experts 4 \
    --moe-ffn-hidden-size 16 --bf16 --fp8-format hybrid \
    --num-layers 4 --world-size 2 $tp

# ---- texts ----
awk 'BEGIN {
    text = "the cat sees a red dog"
    for (i = 1; i <= 9; i++)
        printf "{\"prompt\": \"%s\"}\n", substr(text, i, i % 4 + 1)
}' >prompts.jsonl
draw='--load whole --jsonl --prompt-file prompts.jsonl --tokens 4 --seed 4
--logprobs 2 --return-logits -q'
# shellcheck disable=SC2086 # word lists
{
    expect 0 'one by one' gpt-generate $draw --batch-size 1
    cp out want
    for other in '--batch-size 4' '--batch-size 9 --threads 2'; do
        expect 0 "$other" gpt-generate $draw $other
        check 'the same bytes' cmp want out
    done
    for other in "2 $tp" "2 $pp" "4 $tp $pp"; do
        ranks=${other%% *}
        expect 0 "over ranks: $other" timeout 200 gpt-launch -q --standalone \
            --stdio --nproc-per-node "$ranks" gpt-generate $draw ${other#* }
        check 'the same bytes' cmp want out
    done
}
loss() { # weights
    gpt-generate --load whole --perplexity training --weights "$1" -q \
        <corpus.jsonl | sed 's/.*"loss":\([0-9.]*\).*/\1/'
}
fp32=$(loss fp32)
for form in bf16 int8 int8-32; do
    check "$form weights: the loss of fp32 within 0.5 %" awk "BEGIN {
        d = $(loss $form) / $fp32 - 1; exit !($fp32 > 1 && d * d < 25e-6) }"
done

# ---- refusals ----
refused() { # what options...
    what=$1
    shift
    # shellcheck disable=SC2086 # word lists
    expect 2 "$what" gpt-train $tiny --dry-run "$@"
    err_has "$what"
}
while read -r option value; do
    # shellcheck disable=SC2086 # a word list
    expect 2 "$option $value" gpt-train $tiny --dry-run --num-experts 4 \
        --disable-bias-linear "$option=$value"
    err_has "$option"
done <<'END'
--num-experts 4097
--moe-router-topk 65
--moe-ffn-hidden-size wide
--moe-layer-freq [2]
--moe-dense-layers -1
--moe-shared-expert-intermediate-size 1.5
--moe-shared-expert-gate maybe
--moe-router-score-function tanh
--moe-router-num-groups two
--moe-router-group-topk 4097
--moe-router-pre-softmax 2
--moe-router-expert-bias 0.5
--moe-router-bias-update-rate -0.001
--moe-router-topk-scaling-factor -1
--moe-aux-loss-coeff nan
--moe-z-loss-coeff -0.1
END
refused 'num_experts needs no_linear_bias or no_mlp_bias' --num-experts 4
refused 'options of experts need num_experts' --moe-router-pre-softmax
refused '--token-loss-weights needs --moe-aux-loss-coeff 0' --num-experts 2 \
    --disable-bias-linear --moe-aux-loss-coeff 0.1 --token-loss-weights weights
refused 'at most 2147483647 pairs' --num-experts 16 --disable-bias-linear \
    --moe-router-topk 16 --micro-batch-size 16777216 \
    --global-batch-size 16777216
refused 'moe_router_topk is above num_experts' --num-experts 2 \
    --moe-router-topk 3 --disable-bias-linear
refused 'moe_router_num_groups and moe_router_group_topk need each other' \
    --num-experts 4 --disable-bias-linear --moe-router-num-groups 2
refused 'num_experts is no multiple of moe_router_num_groups' --num-experts 4 \
    --disable-bias-linear --moe-router-num-groups 3 --moe-router-group-topk 2
refused 'leaves fewer than two experts in a group' --num-experts 4 \
    --disable-bias-linear --moe-router-num-groups 4 --moe-router-group-topk 2 \
    --moe-router-score-function sigmoid
refused 'moe_router_group_topk is above moe_router_num_groups' --num-experts 4 \
    --disable-bias-linear --moe-router-num-groups 1 --moe-router-group-topk 3
refused 'moe_router_group_topk is above moe_router_num_groups' --num-experts 4 \
    --disable-bias-linear --moe-router-num-groups 2 --moe-router-group-topk 3
refused 'moe_router_topk is above the experts of moe_router_group_topk' \
    --num-experts 8 --disable-bias-linear --moe-router-num-groups 4 \
    --moe-router-group-topk 1 --moe-router-topk 3
refused 'no layer has experts' --num-experts 2 --disable-bias-linear \
    --moe-dense-layers 12
refused 'no layer has experts' --num-experts 2 --disable-bias-linear \
    --num-layers 2 --moe-layer-freq '[0,0]'
refused 'moe_shared_expert_gate needs moe_shared_expert_intermediate_size' \
    --num-experts 2 --disable-bias-linear --moe-shared-expert-gate
refused '--num-experts 3 is not a multiple of --tensor-model-parallel-size' \
    --num-experts 3 --disable-bias-linear $tp --world-size 2
tap_done
