#!/bin/sh
# gpt-train --bf16: its losses are close to those of a run in float; it resumes
# bit for bit, and from and to float; types that cannot be computed are refused.
# --fp8-format: losses are close to those of bf16, on one rank and on several,
# on the CPU and on an emulated GPU; what cannot be is refused.
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
        exit !(NR == '"${steps:-20}"' && worst <= s) }'
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

# ---- factors of eight bits ----
steps=10
eight() { # ranks, options...
    ranks=$1
    shift
    # a rate at which a step does not make a small difference a large one
    set -- --bf16 --num-layers 4 --hidden-size 64 --train-iters 10 --lr 0.001 \
        "$@"
    if [ "$ranks" = 1 ]; then
        train "$@"
    else
        gpt-launch --standalone --nproc-per-node "$ranks" gpt-train \
            --seq-length 16 --micro-batch-size 2 --global-batch-size 4 \
            --num-attention-heads 4 --split 90,10,0 --eval-iters 1 \
            --log-interval 1 --tokenizer-type ByteTokenizer \
            --data-path data_text_document --device cpu --threads 1 "$@"
    fi
}
hybrid='--fp8-format hybrid'
expect 0 'bf16' eight 1 --save wide
# shellcheck disable=SC2086 # a word list
{
    expect 0 'hybrid' eight 1 $hybrid --save eight
    err_has 'factors of eight bits: hybrid, scaled by tensor, in layers 2 to 3 of 4'
    check 'follows bf16 within 2 %' near eight wide 0.02
    check 'is not the same' sh -c '! cmp -s a b'
    expect 0 'e4m3 in all layers' eight 1 --fp8-format e4m3 \
        --no-first-last-layers-bf16 --save all
    err_has 'in layers 1 to 4 of 4'
    check 'follows bf16 within 3 %' near all wide 0.03
    expect 0 'recomputed, hybrid' eight 1 $hybrid --save again \
        --recompute-granularity full
    check 'rounds the same again' near again eight 0
    expect 0 'the first half' eight 1 $hybrid --save start --exit-interval 5
    expect 0 'and the second' eight 1 $hybrid --save start --load start
    check 'end in the same weights' \
        cmp start/iter_0000010/model_tp00_pp00.safetensors \
        eight/iter_0000010/model_tp00_pp00.safetensors
    if gpt-train --version | grep -q ' Gloo'; then
        for layout in '--tensor-model-parallel-size 2' \
            '--tensor-model-parallel-size 2 --sequence-parallel' \
            '--pipeline-model-parallel-size 2'; do
            expect 0 "hybrid, $layout" eight 2 $hybrid $layout --save two \
                --force
            check 'follows one rank within 0.3 %' near two eight 0.003
        done
    fi
    if [ -e "$BUILD/libgpt-cuda-emu.so" ]; then
        GPT_CUDA_EMU_ARCH=89
        export GPT_CUDA_EMU_ARCH
        expect 0 'hybrid on an emulated GPU' eight 1 $hybrid --save gpu \
            --device cuda-emu
        check 'follows the CPU within 0.3 %' near gpu eight 0.003
        GPT_CUDA_EMU_GEMM=absent
        export GPT_CUDA_EMU_GEMM
        expect 0 'also without cuBLASLt' eight 1 $hybrid --save gpu --force \
            --device cuda-emu
        err_has 'plain matrix products, slow'
        check 'follows the CPU within 0.3 %' near gpu eight 0.003
        unset GPT_CUDA_EMU_GEMM
        GPT_CUDA_EMU_ARCH=80
        expect 2 'not on 8.0' eight 1 $hybrid --device cuda-emu
        err_has '--fp8-format: device cuda-emu has no products of eight bits'
        err_has '8.9'
        expect 0 'but planned for other GPUs' eight 1 $hybrid \
            --device cuda-emu --world-size 2 --dry-run
    fi
    expect 2 'eight bits of float' train $hybrid
    err_has '--fp8-format needs --bf16'
    expect 2 'no multiple of 16' eight 1 $hybrid --micro-batch-size 1 \
        --seq-length 24
    err_has '--fp8-format: products of eight bits need multiples of 16, and a rank has 24 tokens in a micro batch'
    expect 2 'a width of a rank' eight 2 $hybrid --hidden-size 48 \
        --tensor-model-parallel-size 2 --dry-run
    err_has 'a rank has 72 columns of queries, keys and values'
    expect 2 'no layer is left' eight 1 $hybrid --num-layers-at-end-in-bf16 3
    err_has 'of 4 layers, 1 first and 3 last ones in bf16 leave none'
    expect 2 'no format' eight 1 --fp8-format e5m2
    err_has "--fp8-format: 'e5m2' is not one of e4m3, hybrid"
    expect 2 'fewer layers than none' eight 1 $hybrid \
        --num-layers-at-start-in-bf16 -1
    err_has '--num-layers-at-start-in-bf16: -1 is out of range'
    expect 2 'a number of layers' eight 1 $hybrid \
        --num-layers-at-end-in-bf16 x
    err_has "--num-layers-at-end-in-bf16: 'x' is not an integer"
    expect 2 'delayed scaling' eight 1 $hybrid --fp8-recipe delayed
    err_has 'tensorwise'
    expect 2 'and its options' eight 1 $hybrid --fp8-amax-history-len 1024
    err_has 'there is no delayed scaling'
    expect 2 'times that nobody knows' gpt-train advise --world-size 8 \
        --num-layers 2 --hidden-size 64 --num-attention-heads 4 $hybrid
    err_has 'no times of products of eight bits'
}
expect 0 'without effect' train --num-layers-at-end-in-bf16 2 --dry-run
err_has 'that takes --fp8-format'
tap_done
