#!/bin/sh
# Options for layouts: the parameters of every rank, and layouts that do not
# fit.
. "$(dirname "$0")/../lib/tap.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE 2>/dev/null

dry() { # ranks options...
    n=$1
    shift
    gpt-launch --standalone --nproc-per-node "$n" gpt-train --dry-run "$@"
}

# ---- parameters; the figures follow from Megatron's rules ----
parameters() { # tp pp preset: of tensor parallel rank 0 of all stages
    dry $(($1 * $2)) --config "$3" --vocab-size 50257 \
        --tensor-model-parallel-size "$1" --pipeline-model-parallel-size "$2" \
        2>&1 | sed -n 's/.*rank (0, [0-9]*): //p' | tr '\n' ' '
}
while read -r preset tp pp want; do
    check "$preset, TP $tp, PP $pp: $want" \
        test "$(parameters "$tp" "$pp" "$preset")" = "$want "
done <<'END'
gpt2-124m 2 1 62708736
gpt2-124m 1 2 81947136 81162240
gpt2-124m 2 2 41429760 40644864
gpt2-124m 4 1 31825152
gpt2-124m 2 4 30791040 10638720 10638720 30006144
gpt2-345m 2 1 178100224
gpt2-345m 1 2 203714560 202668032
gpt2-345m 2 2 102483968 101437440
gpt2-345m 4 1 89714688
gpt2-345m 2 4 64676864 37807104 37807104 63630336
gpt2-774m 2 1 387921920
gpt2-774m 1 2 419893760 418585600
gpt2-774m 2 2 210753280 209445120
gpt2-774m 4 1 194837760
gpt2-774m 2 4 122170240 88583040 88583040 120862080
gpt2-1.5b 1 2 819904000 818268800
END

# ---- uneven and interleaved stages together hold the same parameters ----
small="--num-layers 8 --hidden-size 16 --num-attention-heads 4 --seq-length 8
--vocab-size 100 --make-vocab-size-divisible-by 1"
total() { # ranks options...
    # shellcheck disable=SC2086 # a word list
    dry "$@" $small 2>&1 | awk '/number of parameters/ { n += $NF } END {
        print n }'
}
even=$(total 2 --pipeline-model-parallel-size 2)
check 'uneven stages' test "$(total 2 --pipeline-model-parallel-size 2 \
    --decoder-first-pipeline-num-layers 3 \
    --decoder-last-pipeline-num-layers 5)" = "$even"
check 'virtual stages' test "$(total 2 --pipeline-model-parallel-size 2 \
    --num-layers-per-virtual-pipeline-stage 2 --global-batch-size 2)" = "$even"

# ---- layouts that do not fit, and the messages about them ----
refused() { # ranks options says
    # shellcheck disable=SC2086 # word lists
    expect 2 "refused: $2" dry "$1" $small $2 && err_has "$3"
}
tp=--tensor-model-parallel-size
pp=--pipeline-model-parallel-size
refused 3 "$tp 2" "3 ranks are not a multiple of $tp 2 x $pp 1"
refused 2 "$tp 2 --num-attention-heads 1" \
    "--num-attention-heads 1 is not a multiple of $tp 2"
refused 2 "$tp 2 --num-query-groups 1" \
    "--num-query-groups 1 is not a multiple of $tp 2"
refused 2 "$tp 2 --ffn-hidden-size 63" \
    "--ffn-hidden-size 63 is not a multiple of $tp 2"
refused 2 "$tp 2 --sequence-parallel --seq-length 7" \
    "--micro-batch-size 1 x --seq-length 7 is not a multiple of $tp 2"
refused 3 "$pp 3" '--num-layers 8 is not a multiple of --pipeline-model-parallel-size 3'
refused 2 "$pp 2 --decoder-first-pipeline-num-layers 8" \
    '0 of 8 layers do not divide over 1 pipeline stages'
refused 2 "$pp 2 --num-layers-per-virtual-pipeline-stage 3" \
    "--num-layers 8 is not a multiple of $pp 2 x"
refused 2 "$pp 2 --num-layers-per-virtual-pipeline-stage 2 \
--num-virtual-stages-per-pipeline-rank 2" 'exclude each other'
refused 2 "$pp 2 --num-layers-per-virtual-pipeline-stage 2 \
--decoder-first-pipeline-num-layers 2" 'is for even stages'
refused 2 "$pp 2 --num-virtual-stages-per-pipeline-rank 2 \
--global-batch-size 3" "must be a multiple of $pp 2, so --global-batch-size 3"
refused 1 "--num-virtual-stages-per-pipeline-rank 2" "need $pp of at least 2"
refused 2 '--global-batch-size 3 --micro-batch-size 1' \
    '--global-batch-size is 3, must be a multiple of'
refused 1 '--use-distributed-optimizer --data-parallel-sharding-strategy
no_shard' 'excludes --data-parallel-sharding-strategy no_shard'
refused 1 --no-overlap-grad-reduce 'always summed while backward goes on'
refused 2 --overlap-param-gather 'needs --use-distributed-optimizer'
refused 1 '--recompute-activations --recompute-granularity full' \
    'means --recompute-granularity selective'
refused 1 '--recompute-method block' 'needs --recompute-granularity full'
refused 1 '--recompute-num-layers 2 --recompute-granularity selective' \
    'needs --recompute-granularity full'
refused 1 '--checkpoint-num-layers 1' 'or leave --recompute-num-layers out'
refused 1 '--recompute-method block --recompute-granularity selective' \
    'without it no layer is recomputed whole'
refused 1 '--recompute-num-layers 9 --recompute-granularity full' \
    'is above the 8 layers of a stage'
refused 2 "$pp 2 --decoder-last-pipeline-num-layers 2 \
--recompute-granularity full --recompute-num-layers 7" \
    'is above the 6 layers of a stage'
expect 0 'a stage with fewer layers recomputes all of its' dry 2 $small \
    $pp 2 --decoder-last-pipeline-num-layers 2 \
    --recompute-granularity full --recompute-num-layers 3

# ---- ranks that are not there need as much as those that are ----
# Sums over ranks are a few hundred bytes, those over texts more.
echo 'the cat' >prompts
memory() { # command...
    # shellcheck disable=SC2086 # a word list
    "$@" $small --vocab-size 257 --dry-run --tokenizer-type ByteTokenizer \
        --device cpu --sample-prompts prompts $tp 2 2>&1 |
        sed -n 's/^\[rank 0\]//; s/^[ >]*//; /^memory of rank 0/,/^total/p'
}
memory gpt-launch --standalone --nproc-per-node 4 gpt-train >present
memory gpt-train --world-size 4 >absent
check 'the memory of ranks is predicted' grep -q '^total' present
check 'and so it is for ranks that are only planned' diff present absent

expect 0 'sequence parallelism alone is switched off, as in Megatron' \
    dry 1 --config gpt2-124m --vocab-size 50257 --sequence-parallel
out_has 'sequence parallelism is off: it needs'
tap_done
