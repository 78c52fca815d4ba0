#!/bin/sh
# SGD and Muon: in any layout the losses of one rank; checkpoints hold what an
# optimizer keeps, load in any layout, and are refused by another optimizer.
# What updates compute is compared with PyTorch in test_optimizers.
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
        $tiny --num-layers 2 --global-batch-size 4 --train-iters 6 -q "$@"
}
tp='--tensor-model-parallel-size 2'
pp='--pipeline-model-parallel-size 2'
zero='--data-parallel-sharding-strategy'
muon='--optimizer muon --muon-use-nesterov --num-query-groups 2 --swiglu
--weight-decay 0.1 --log-gradient-noise-scale'

# ---- layouts ----
# The noise scale is a ratio of differences: fewer digits of it are left.
noise() { # metrics.jsonl metrics.jsonl
    paste "$1" "$2" | awk '{
        n = split($0, part, "\"gradient_noise_scale\":")
        a = part[2] + 0; b = part[3] + 0; d = a > b ? a - b : b - a
        if (n != 3 || a == 0 || d > 1e-3 * (a < 0 ? -a : a)) exit 1
    }'
}
same() { # name ranks options...
    name=$1
    shift
    rm -f some.jsonl
    # shellcheck disable=SC2086 # word lists
    expect 0 "$name" run "$@" --metrics some.jsonl
    check 'the losses of one rank' compare_metrics one.jsonl some.jsonl 6
}
# shellcheck disable=SC2086 # word lists
{
    expect 0 'muon, one rank' run 1 $muon --metrics one.jsonl
    check 'the noise scale is in the metrics' \
        grep -q '"gradient_noise_scale":-\?[0-9]' one.jsonl
    same 'muon, TP2' 2 $muon $tp --muon-tp-mode distributed
    check 'and its noise scale' noise one.jsonl some.jsonl
    same 'muon, PP2 DP2, ZeRO-1' 4 $muon $pp $zero optim
    check 'and its noise scale' noise one.jsonl some.jsonl
    same 'muon, TP2 PP2 DP2, ZeRO-2, sequence parallel' 8 $muon $tp $pp \
        $zero optim_grads --sequence-parallel --overlap-param-gather
    check 'and its noise scale' noise one.jsonl some.jsonl
    same 'muon, DP2, one replica each' 2 $muon
    expect 0 'muon, bf16, one rank' run 1 $muon --bf16 --metrics bf16.jsonl
    rm -f one.jsonl
    expect 0 'sgd, one rank' run 1 --optimizer sgd --metrics one.jsonl
    same 'sgd, TP2 DP2, ZeRO-1' 4 --optimizer sgd $tp $zero optim
    rm -f one.jsonl
    expect 0 'adam with coupled decay, one rank' run 1 --weight-decay 0.5 \
        --no-decoupled-weight-decay --metrics one.jsonl
    same 'the same, PP2 DP2, ZeRO-1' 4 --weight-decay 0.5 \
        --no-decoupled-weight-decay $pp $zero optim
}
rm -f one.jsonl some.jsonl
# shellcheck disable=SC2086 # word lists
{
    expect 0 'muon, one rank again' run 1 $muon --metrics one.jsonl
    expect 0 'muon, TP2, blockwise' run 2 $muon $tp --muon-tp-mode blockwise \
        --metrics some.jsonl
}
blockwise_differs() {
    ! compare_metrics one.jsonl some.jsonl 6 >/dev/null
}
check 'blockwise is another update than of whole matrices' blockwise_differs

rm -f one.jsonl some.jsonl
decoupled='--untie-embeddings-and-output-weights --decoupled-lr 0.01
--decoupled-min-lr 0.001 --lr-decay-style cosine'
# shellcheck disable=SC2086 # word lists
{
    expect 0 'a rate of the ends of the model' run 1 $decoupled \
        --metrics one.jsonl
    same 'TP2 PP2 DP2, ZeRO-1' 8 $decoupled $tp $pp $zero optim
    expect 0 'saved at 3' run 2 $decoupled $zero optim --save ends \
        --exit-interval 3
    expect 0 'resumed there' run 2 $decoupled $zero optim --load ends \
        --save ends-two
    expect 0 'without stopping' run 2 $decoupled $zero optim --save ends-one
    expect 2 'another rate' run 2 $decoupled $zero optim --load ends \
        --decoupled-lr 0.02
    err_has '--decoupled-lr: decoupled_lr is 0.02 here and 0.01 in'
    expect 0 "the checkpoint's" run 2 \
        --untie-embeddings-and-output-weights $zero optim --load ends \
        --use-checkpoint-opt-param-scheduler --save ends-three
}
expect 0 'to Megatron-LM' gpt-reshape --load-path ends --save-path ends-there \
    --to megatron
err_has 'has no groups of parameters with a decoupled learning rate'
for run in two three; do
    check 'the same bits' test "$(tensors_of ends-one/iter_0000006)" = \
        "$(tensors_of ends-$run/iter_0000006)"
done
ends() { sed 's/.*"decoupled_learning_rate":\([^,]*\),.*/\1/' one.jsonl; }
check 'its schedule' test "$(ends | sed -n '3p;6p' | tr '\n' ' ')" = '0.0055 0.001 '
check 'another than of the rest' grep -q '"learning_rate":0.0015,' one.jsonl

# A GPU, emulated, in single precision: the kernels of the updates.
if [ -f "$BUILD/libgpt-cuda-emu.so" ]; then
    for optimizer in muon 'sgd --weight-decay 0.1' \
        'adam --no-decoupled-weight-decay --weight-decay 0.5'; do
        rm -f one.jsonl some.jsonl
        # shellcheck disable=SC2086 # word lists
        {
            expect 0 "$optimizer" run 1 --optimizer $optimizer \
                --metrics one.jsonl
            expect 0 "$optimizer, emulated GPU" run 1 --optimizer $optimizer \
                --device cuda-emu --metrics some.jsonl
        }
        check 'the losses of a CPU' compare_metrics one.jsonl some.jsonl 6
    done
fi

# ---- checkpoints ----
# shellcheck disable=SC2086 # word lists
{
    expect 0 'muon, TP2 DP2, ZeRO-1, saved at 3' run 4 $muon $tp $zero optim \
        --save three --exit-interval 3
    expect 0 'and resumed there' run 4 $muon $tp $zero optim --load three \
        --save resumed
    expect 0 'without stopping' run 4 $muon $tp $zero optim --save whole
}
check 'the same bits as without stopping' \
    test "$(tensors_of whole/iter_0000006)" = "$(tensors_of resumed/iter_0000006)"
check 'momentum and moments are in files of their own' \
    test -f three/iter_0000003/optimizer_momentum_buffer_tp00_pp00_dp01.safetensors \
    -a -f three/iter_0000003/optimizer_exp_avg_sq_tp00_pp00_dp00.safetensors
expect 0 'inspect' gpt-reshape inspect three
out_has 'optimizer.momentum_buffer.decoder.layers.1.mlp.linear_fc2.weight'
check 'a matrix of a layer has no moments' sh -c \
    '! grep -q optimizer.exp_avg.decoder.layers.1.mlp.linear_fc2.weight out'
rm -f one.jsonl some.jsonl
# shellcheck disable=SC2086 # word lists
{
    expect 0 'one rank, steps 4 to 6' run 1 $muon --load three \
        --metrics one.jsonl
    expect 0 'PP2, steps 4 to 6' run 2 $muon $pp --load three \
        --metrics some.jsonl
}
check 'the losses of one rank' compare_metrics one.jsonl some.jsonl 3
expect 0 'reshaped to PP2' gpt-reshape --load-path three --save-path cut \
    --target-pipeline-model-parallel-size 2
rm -f some.jsonl
# shellcheck disable=SC2086 # word lists
expect 0 'and resumed' run 2 $muon $pp --load cut --metrics some.jsonl
check 'the losses of one rank' compare_metrics one.jsonl some.jsonl 3

# ---- refusals and warnings ----
# shellcheck disable=SC2086 # word lists
alone() {
    gpt-train $tiny --num-layers 2 --global-batch-size 4 --train-iters 6 \
        --num-query-groups 2 --swiglu "$@"
}
expect 2 'another optimizer' alone --weight-decay 0.1 --load three
err_has 'its run had --optimizer muon, this one has adam'
err_has '--no-load-optim'
expect 0 'without its state' alone --weight-decay 0.1 --load three --no-load-optim -q
expect 0 'without momentum there is no state to save' \
    alone --optimizer sgd --sgd-momentum 0 --save plain --exit-interval 2 -q
check 'only the model is saved' sh -c '! ls plain/iter_0000002/optimizer*'
expect 0 'and none to load' \
    alone --optimizer sgd --sgd-momentum 0 --load plain -q
expect 2 'an optimizer that nobody knows' alone --optimizer lion
expect 0 'options of another optimizer' \
    alone --optimizer sgd --muon-momentum 0.5 --adam-beta2 0.9 --dry-run
err_has '--adam-beta2 (--optimizer is sgd)'
err_has '--muon-momentum (--optimizer is not muon)'
expect 0 'a rate of nothing' alone --decoupled-min-lr 0.001 --dry-run
err_has '--decoupled-min-lr (there is no --decoupled-lr)'
expect 2 'a lowest rate above the highest' alone --decoupled-lr 0.001 \
    --decoupled-min-lr 0.002
err_has '--decoupled-min-lr is 0.002, must be >= 0 and at most --decoupled-lr'
expect 0 'the log has it' alone --decoupled-lr 0.01 --train-iters 1
err_has '| learning rate: 0.000E+00 | decoupled learning rate: 0.000E+00 |'
expect 0 'a step of one microbatch has no noise scale' \
    alone --micro-batch-size 4 --log-gradient-noise-scale --dry-run
err_has '--log-gradient-noise-scale (a step has one microbatch'

# ---- schedules of DeepSpeed's ----
rm -f one.jsonl
expect 0 'WarmupDecayLR' alone --lr-decay-style WarmupDecayLR \
    --lr-warmup-iters 3 --metrics one.jsonl -q
rates() { sed 's/.*"learning_rate":\([^,]*\),.*/\1/' one.jsonl | tr '\n' ' '; }
# The rate of the next step: log(1)/log(3), log(2)/log(3), 1, 1, 2/3, 1/3.
check 'its rates' test "$(rates)" = \
    '0 0.00189278926 0.003 0.003 0.002 0.001 '
expect 0 'saved' alone --lr-decay-style WarmupLR --lr-warmup-iters 3 \
    --lr-warmup-style linear --save warm --exit-interval 2 -q
expect 0 'resumed' alone --lr-decay-style WarmupLR --lr-warmup-iters 3 \
    --lr-warmup-style linear --load warm -q
expect 2 'another warm-up' alone --lr-decay-style WarmupLR \
    --lr-warmup-iters 3 --load warm
err_has '--lr-warmup-style is not the one in'
expect 0 'a floor that is not used' alone --lr-decay-style WarmupLR \
    --min-lr 0.001 --lr-warmup-iters 3 --dry-run
err_has '--min-lr (this --lr-decay-style falls to --lr-warmup-init)'
tap_done
