#!/bin/sh
# gpt-train advise: the table, the command line that it gives, what does not
# fit. tests/unit/test_layout_search.c compares it with every layout there is.
. "$(dirname "$0")/../lib/tap.sh"

advise() { # options...
    gpt-train advise --config gpt2-1.5b --vocab-size 50257 "$@"
}
expect 0 'a table' advise --gpus 64 --memory 80G
out_has '64 ranks of h100, 8 on a machine, with 74.5 GiB each; 512 samples of'
out_has 'TP  PP  V    DP sharing     micro recompute SP  step s tokens/s'
check 'ten layouts, the fastest first' awk '
    /^ *[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+ / {
        n++
        if ($1 * $2 * $4 != 64 || $9 < last) { print; bad = 1 }
        last = $9
    }
    END { exit bad || n != 10 }' out
check 'it keeps to 80 columns but for the command' awk '
    !/gpt-train/ && NR > 1 && length() > 80 { print; bad = 1 }
    END { exit bad }' out

# The command is one that gpt-train takes, and needs what was said.
expect 0 'as JSON' advise --gpus 64 --memory 80G --json --top 1
tr -d '\t\n' <out >advice.json
field() { sed "s/.*\"$1\":[\" ]*\([^,\"}]*\).*/\1/" advice.json; }
command=$(sed 's/.*"command":[ ]*"\([^"]*\)".*/\1/' advice.json)
check 'with a command' sh -c "case '$command' in
    'gpt-train --config gpt2-1.5b --vocab-size 50257 --bf16 '*) ;;
    *) exit 1 ;; esac"
expect 0 'which is planned' sh -c "$command --dry-run --world-size 64 -q"
check 'and needs that memory, nearly' awk -v said="$(field memory_bytes)" '
    /^   total / { got = $2 }
    END { print got, said; exit !(got > 0.9 * said && got < 1.1 * said) }' out
check 'parts add up to the step' awk -v s="$(field step_s)" \
    -v a="$(field computing_s)" -v b="$(field idle_s)" \
    -v c="$(field reducing_s)" -v d="$(field updating_s)" 'BEGIN {
        x = a + b + c + d; exit !(x > 0.999 * s && x < 1.001 * s) }'

# ---- what is given ----
expect 0 'a part of the layout' advise --gpus 16 --top 3 \
    --tensor-model-parallel-size 4 --num-attention-heads 20 \
    --pipeline-model-parallel-size 2 --global-batch-size 64 --hardware a100
check 'is kept' awk '/^ *[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+ / { n++
    if ($1 != 4 || $2 != 2 || $4 != 2) exit 1 } END { exit n != 3 }' out
step() { # options...
    advise --gpus 16 --global-batch-size 64 --top 1 --json "$@" 2>err |
        tr -d '\t\n' >advice.json
    field step_s
}
slow=$(step --inter-node-bandwidth 1 --tensor-model-parallel-size 1)
fast=$(step --inter-node-bandwidth 100 --tensor-model-parallel-size 1)
check 'slower links make longer steps' \
    awk -v a="$slow" -v b="$fast" 'BEGIN { exit !(a > b && b > 0) }'
half=$(step --device-peak-tflops 400)
whole=$(step --device-peak-tflops 800)
check 'so do slower devices' \
    awk -v a="$half" -v b="$whole" 'BEGIN { exit !(a > b && b > 0) }'
expect 0 'a schedule of batches' advise --gpus 16 --top 1 --json \
    --train-samples 9000 --step-batch-size-schedule 0:32 1M:64,2M:48
tr -d '\t\n' <out >advice.json
check 'has its largest' test "$(field global_batch | tr -d ' ')" = 64
command=$(sed 's/.*"command":[ ]*"\([^"]*\)".*/\1/' advice.json)
expect 0 'and is planned' sh -c "$command --dry-run --world-size 16 -q"
expect 0 'this machine' gpt-train advise --config gpt2-tiny --vocab-size 4096 \
    --gpus 2 --hardware cpu --global-batch-size 8 --top 2
out_has '2 ranks of cpu'

# Only Hopper's attention keeps sums of dQ: 4 bytes for each of 8 x 1024 x 768,
# where the others' workspace is 3 MB.
bytes_of() { # hardware
    gpt-train advise --config gpt2-124m --vocab-size 50257 --gpus 1 --top 1 \
        --micro-batch-size 8 --global-batch-size 8 --json --hardware "$1" \
        2>err | tr -d '\t\n' >advice.json
    field memory_bytes
}
check 'memory is that of the kernels of a GPU that is not here' \
    test $(($(bytes_of h100) - $(bytes_of a100))) -gt 20000000

# A dry run for such a GPU: the same memory, with no device or another one.
total_on() { # hardware options...
    name=$1
    shift
    gpt-train --config gpt2-124m --vocab-size 50257 --bf16 --dry-run -q \
        --micro-batch-size 8 --global-batch-size 8 --hardware "$name" "$@" |
        awk '/^   batches .* bytes/ { host = $2 }
            /^   total .* bytes/ { printf "%.0f", $2 - host }'
}
for name in h100 a100; do
    check "a dry run plans for $name as the advice does" \
        test "$(total_on $name)" = "$(bytes_of $name)"
done
check 'whatever the device is' \
    test "$(total_on a100 --device cuda:7)" = "$(bytes_of a100)"
check 'and the limit of memory' \
    test "$(total_on a100 --memory-limit 100MB)" = "$(bytes_of a100)"
expect 5 'without the name' gpt-train --config gpt2-124m --vocab-size 50257 \
    --dry-run --device cuda:1023
err_has '--hardware NAME plans for a GPU that is not here'
expect 5 'a device that is none' gpt-train --config gpt2-124m \
    --vocab-size 50257 --dry-run --device tpu
err_has 'devices are auto, cpu, cuda and cuda:N; --hardware NAME'
expect 0 'through what its ranks exchange' gpt-train --config gpt2-124m \
    --vocab-size 50257 --dry-run --hardware h200 --world-size 8
out_has 'h200, of which none is opened'
out_has 'through NCCL'
out_has 'of its 139.8 GiB a run gets 139.2 GiB'
out_has 'fits into 139.2 GiB a rank'
expect 0 'in eight bits' gpt-train --config gpt2-124m --vocab-size 50257 \
    --dry-run --hardware h100 --bf16 --fp8-format hybrid
expect 2 'which an A100 has no products of' gpt-train --config gpt2-124m \
    --vocab-size 50257 --dry-run --hardware a100 --bf16 --fp8-format hybrid
err_has '--fp8-format: device '

# What a GPU would say of attention, a plan says, too.
slow='attention runs many times below the speed of device'
plan() { # options...
    gpt-train --config gpt2-124m --vocab-size 50257 --dry-run "$@"
}
expect 0 'floats' plan --hardware h100
err_has "$slow h100: tensor cores compute it in bf16 and fp16"
expect 0 'with TF32' plan --hardware h100 --tf32
check 'are fast' sh -c "! grep '$slow' err"
expect 0 'heads of 384 elements' advise --gpus 2 --memory 40G --top 1 \
    --num-attention-heads 4 --hidden-size 1536 --global-batch-size 8
err_has "$slow h100: tensor cores take heads of"

# Two tables of the embedding want twice the memory of one: of 65536 rows sums of
# 2 x 768 floats for each 32, what is sorted, and counts.
work_of() { # position embedding
    plan --hardware a100 --bf16 --micro-batch-size 64 \
        --position-embedding-type "$1" | awk '/^   workspace / { print $2 }'
}
check 'the work space of positions is that of models that learn them' \
    test $(($(work_of learned_absolute) - $(work_of none))) = \
    $((65536 / 32 * 2 * 768 * 4 + (4 * 65536 + 1024 * 32) * 4))

# ---- what does not fit ----
expect 5 'too little memory' advise --gpus 2 --memory 8G
err_has 'nothing fits into 7.5 GiB a rank: the least that 2 ranks need is'
err_has 'hint: on '
command=$(sed -n 's/^hint: on [0-9]* ranks \(.*\) needs .*/\1/p' err)
ranks=$(sed -n 's/^hint: on \([0-9]*\) ranks.*/\1/p' err)
check 'the nearest is on more ranks' test "${ranks:-0}" -gt 2
expect 0 'and fits' sh -c \
    "$command --dry-run --world-size $ranks --memory-limit 8G -q \
        --distributed-backend nccl"
check 'without further advice' sh -c "! grep 'does not fit' out"
expect 5 'a part that does not fit' advise --gpus 8 --memory 24G \
    --micro-batch-size 64 --recompute-granularity selective \
    --global-batch-size 512
err_has 'on 8 ranks gpt-train'

# ---- mistakes ----
expect 2 'no ranks' advise
err_has 'advise needs --gpus'
expect 2 'another word' gpt-train advice --gpus 8
err_has "unexpected argument 'advice'"
err_has "did you mean 'advise'?"
expect 2 'no vocabulary' gpt-train advise --config gpt2-124m --gpus 8
err_has 'the vocabulary size is not known'
expect 2 'a batch that cannot be' advise --gpus 64 --global-batch-size 7
err_has '7 samples a step'
expect 0 'without effect in runs' gpt-train --config gpt2-124m --dry-run \
    --vocab-size 50257 --hardware a100 --top 3
err_has 'it is for gpt-train advise'
tap_done
