#!/bin/sh
# gpt-train: a run that does not fit into memory is told what to change, and
# what it is told works at the first go.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

make_data

# The options between "with" and "a rank needs" of the advice.
advice() { # file
    sed -n 's/.*\(does not fit\|^hint\).*with \(.*\) a rank needs .*/\2/p' "$1" |
        sed 's/; or with.*//; s/ on [0-9]* ranks.*//'
}
fits() { # file: says nothing of what does not fit
    ! grep -q 'does not fit\|no micro batch' "$1"
}
follow() { # limit options...: plans, does as told, and plans again
    limit=$1
    shift
    gpt-train "$@" --vocab-size 50257 --dry-run --memory-limit "$limit" \
        >plan 2>&1 || return 1
    tail -n 1 plan
    fits plan && { echo 'it fits'; return 1; }
    told=$(advice plan)
    [ -n "$told" ] || return 1
    # shellcheck disable=SC2086 # word lists
    gpt-train "$@" --vocab-size 50257 --dry-run --memory-limit "$limit" \
        $told >followed 2>&1 || { cat followed; return 1; }
    tail -n 1 followed
    fits followed
}
while read -r limit options; do
    # shellcheck disable=SC2086 # word lists
    check "follows the advice for $limit: $options" follow "$limit" $options
done <<END
23GiB --config gpt2-1.5b
23GiB --config gpt2-1.5b --micro-batch-size 64
10GiB --config gpt2-1.5b --micro-batch-size 64
10GiB --config gpt2-1.5b --step-batch-size-schedule 0:64,1M:192 --micro-batch-size 64
6GiB --config gpt2-1.5b --global-batch-size 96 --micro-batch-size 6
3GiB --config gpt2-1.5b --global-batch-size 64 --bf16
2GiB --config gpt2-124m --micro-batch-size 8 --async-save --save none
3GiB --config gpt2-124m --micro-batch-size 64 --recompute-activations
3GiB --config gpt2-345m --world-size 4 --global-batch-size 64
2500MB --config gpt2-345m --world-size 8 --tensor-model-parallel-size 2 --global-batch-size 64 --micro-batch-size 4
2GiB --config gpt2-345m --world-size 8 --use-distributed-optimizer --global-batch-size 64
1GiB --config gpt2-774m --world-size 2 --pipeline-model-parallel-size 2 --global-batch-size 64 --micro-batch-size 8
4GiB --config gpt2-774m --recompute-granularity full --recompute-num-layers 6 --micro-batch-size 4
END
gpt3='--num-layers 96 --hidden-size 12288 --num-attention-heads 96
    --seq-length 2048 --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 16 --global-batch-size 1536
    --sequence-parallel --bf16'
for limit in 30GB 18GB 10GB; do
    # shellcheck disable=SC2086 # word lists
    check "GPT-3 on 1024 ranks of $limit" follow $limit $gpt3 --world-size 1024
done
# shellcheck disable=SC2086 # word lists
check 'GPT-3 on 128 ranks' follow 16GB $gpt3 --world-size 128

expect 0 'the batch of the run stays' gpt-train --config gpt2-1.5b \
    --vocab-size 50257 --dry-run --memory-limit 10GiB --micro-batch-size 64
out_has '--global-batch-size 64'
expect 0 'a micro batch that fits divides every batch of a run' gpt-train \
    --config gpt2-tiny --vocab-size 9 --dry-run --memory-limit 8GB \
    --micro-batch-size 1 --step-batch-size-schedule 0:4 1K:24
out_has 'fits into 7.5 GiB a rank: 4'
expect 0 'one machine has no more memory with more ranks' gpt-train \
    --num-layers 512 --hidden-size 4096 --num-attention-heads 32 \
    --vocab-size 50257 --dry-run --device cpu
out_has 'machines like this one a rank needs'
expect 0 'what fits nowhere' gpt-train --config gpt2-1.5b --vocab-size 50257 \
    --dry-run --memory-limit 10MB
out_has 'nothing fits: with '
out_has 'a shorter --seq-length or a smaller model needs less'
long='--num-layers 4 --hidden-size 512 --num-attention-heads 8
    --seq-length 32768 --vocab-size 1000 --dry-run --memory-limit 2GB'
# shellcheck disable=SC2086 # word lists
expect 0 'bfloat16 is offered where it needs fewer ranks' gpt-train $long
out_has '; or with --bf16 --recompute-granularity full it needs '
# shellcheck disable=SC2086 # word lists
expect 0 'and then fits' gpt-train $long --bf16 --recompute-granularity full
check 'at the first go' fits out

# ---- runs ----
train() { # options...
    gpt-train --num-layers 4 --hidden-size 32 --num-attention-heads 4 \
        --seq-length 32 --micro-batch-size 16 --lr 0.01 --split 1,0,0 \
        --eval-iters 0 --threads 1 --tokenizer-type ByteTokenizer \
        --data-path "$data" --train-iters 2 --device cpu "$@"
}
for limit in 4MB 2500KB 1900KB; do
    expect 5 "a run with $limit" train --memory-limit $limit
    err_has '--memory-limit is'
    check 'ends before it reads data' sh -c '! grep "> an epoch: " err'
    told=$(advice err)
    check 'is told what to do' test -n "$told"
    # shellcheck disable=SC2086 # word lists
    expect 0 "trains with $told" train --memory-limit $limit $told
    # shellcheck disable=SC2086 # word lists
    expect 0 'with the same batch' train $told
    err_has 'global batch size: 16'
    err_has '> an epoch: '
done
tap_done
