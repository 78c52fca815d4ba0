#!/bin/sh
# In any layout the loss and the norm of the gradient of every step are those of
# a single rank, also with dropout. By default a few layouts run for 10 steps;
# with GPT_LAYOUTS=all every layout of up to 8 ranks runs for 50 steps (20
# minutes on two cores).
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

needs_gloo

steps=10
[ "${GPT_LAYOUTS:-}" = all ] && steps=50
make_data

# Interleaving over four stages needs eight layers, and a multiple of four
# microbatches on each data parallel rank.
train() { # ranks layers batch metrics options...
    ranks=$1
    layers=$2
    batch=$3
    metrics=$4
    shift 4
    # shellcheck disable=SC2086 # a word list
    timeout 300 gpt-launch --standalone --nproc-per-node "$ranks" gpt-train \
        $tiny --num-layers "$layers" --global-batch-size "$batch" \
        --train-iters $steps --metrics "$metrics" -q "$@"
}
expect 0 'one rank, 4 layers' train 1 4 4 one-4.jsonl
expect 0 'one rank, 8 layers' train 1 8 8 one-8.jsonl

options() { # tp pp dp sp v recompute sharding
    echo "--tensor-model-parallel-size $1 --pipeline-model-parallel-size $2"
    [ "$4" = - ] || echo --sequence-parallel
    [ "$5" = 1 ] || echo "--num-virtual-stages-per-pipeline-rank $5"
    [ "$6" = - ] || echo "--recompute-granularity $6"
    [ "$7" = - ] || echo "--data-parallel-sharding-strategy $7"
}

layout() { # tp pp dp sp v recompute sharding
    size=4
    [ $(($2 * $5)) -gt 4 ] && size=8
    rm -f some.jsonl
    # shellcheck disable=SC2046 # a word list
    train $(($1 * $2 * $3)) $size $size some.jsonl $(options "$@") \
        >log 2>&1 || {
        tail -n 3 log
        return 1
    }
    compare_metrics one-$size.jsonl some.jsonl $steps
}

row() { # tp pp dp sp v recompute sharding
    found=$(layout "$@")
    tap_result $? "$(printf '%2s %2s %2s  %-2s %2s  %-9s  %-11s  %s' "$@" \
        "$found")"
}

all_layouts() {
    for tp in 1 2 4; do for pp in 1 2 4; do for dp in 1 2; do
        [ $((tp * pp * dp)) -le 8 ] || continue
        sps=- vs=1 shardings=-
        [ $tp = 1 ] || sps='- sp'
        [ $pp = 1 ] || vs='1 2'
        [ $dp = 1 ] || shardings='- optim optim_grads'
        for sp in $sps; do for v in $vs; do
            for recompute in - selective full; do for sharding in $shardings
            do
                echo $tp $pp $dp $sp $v $recompute $sharding
            done; done
        done; done
    done; done; done
}

some_layouts() {
    cat <<END
1 1 2 - 1 - -
1 2 1 - 1 full -
1 4 1 - 2 - -
2 1 1 - 1 selective -
2 1 2 sp 1 - optim
1 2 2 - 2 selective optim_grads
2 2 2 sp 2 full optim
END
}

echo '# largest relative difference to one rank, all steps'
echo '# TP PP DP  SP  V  recompute  sharding     loss     norm'
if [ $steps = 50 ]; then all_layouts; else some_layouts; fi >layouts
while read -r line; do
    # shellcheck disable=SC2086 # a word list
    row $line
done <layouts

# Communication that overlaps computing changes no bit.
bits() { # metrics.jsonl
    sed 's/.*"lm_loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/' "$1"
}
same_bits() { # options...
    rm -f waits.jsonl beside.jsonl
    train 4 4 4 waits.jsonl --tensor-model-parallel-size 2 "$@" \
        --no-async-tensor-model-parallel-allreduce >log 2>&1 &&
        train 4 4 4 beside.jsonl --tensor-model-parallel-size 2 "$@" \
            --overlap-param-gather >>log 2>&1 || {
        tail -n 3 log
        return 1
    }
    bits waits.jsonl >waits
    bits beside.jsonl >beside
    [ "$(wc -l <waits)" = $steps ] && cmp waits beside
}
check 'the same bits with overlap: TP 2 DP 2 ZeRO-1' \
    same_bits --use-distributed-optimizer
check 'the same bits with overlap: TP 2 SP DP 2 ZeRO-2' \
    same_bits --sequence-parallel --data-parallel-sharding-strategy optim_grads
tap_done
