#!/bin/sh
# gpt-train --bf16: its losses are close to those of a run in float; it resumes
# bit for bit, and from and to float; types that cannot be computed are refused.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

make_data
train() { # options...
    gpt-train --num-layers 2 --hidden-size 32 --num-attention-heads 4 \
        --seq-length 16 --micro-batch-size 2 --global-batch-size 4 --lr 0.005 \
        --split 90,10,0 --eval-iters 1 --log-interval 1 \
        --tokenizer-type ByteTokenizer --data-path data_text_document \
        --device cpu --threads 1 --train-iters 20 "$@"
}
losses() {
    sed -n 's/.*"lm_loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"
}
# True when the losses of two runs, line by line, differ by at most a share.
near() { # directory directory share
    losses "$1" >a
    losses "$2" >b
    paste a b | awk -v s="$3" '{ d = $1 / $2 - 1; if (d < 0) d = -d
        if (d > worst) worst = d } END { print NR " losses, worst " worst
        exit !(NR == 20 && worst <= s) }'
}

expect 0 'a run in float' train --save float
expect 0 'a run in bf16' train --save narrow --bf16
check 'follows it within 1 %' near float narrow 0.01
check 'is not the same' sh -c '! cmp -s a b'
memory() { # kind, options...
    kind=$1
    shift
    train --dry-run "$@" 2>&1 | sed -n "s/^   $kind  *\([0-9]*\) bytes.*/\1/p"
}
check 'has half the memory for weights' \
    test $(($(memory parameters --bf16) * 2)) = "$(memory parameters)"

expect 0 'the first half of it' train --save half --bf16 --exit-interval 10
expect 0 'and the second' train --save half --load half --bf16
for f in model optimizer_exp_avg optimizer_exp_avg_sq; do
    check "end in the same $f" \
        cmp half/iter_0000020/${f}_tp00_pp00.safetensors \
        narrow/iter_0000020/${f}_tp00_pp00.safetensors
done
cp -r half/iter_0000010 ten
expect 0 'a run in bf16 resumes in float' train --save mixed --load ten
expect 0 'parameters in checkpoints are exact' gpt-reshape inspect narrow
out_has 'F32'

expect 2 'the CPU has no fp16' train --fp16
err_has 'does not compute in F16'
err_has '--bf16'
tap_done
