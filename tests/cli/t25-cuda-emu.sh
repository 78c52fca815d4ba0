#!/bin/sh
# Devices: GPUs that are missing; training (with dropout) and generation on
# emulated GPUs, whose results are close to those of the CPU. `make check-gpu`
# sets GPT_TEST_DEVICE=cuda to use real GPUs.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

# ---- --device ----
make_data

train_command() {
    echo gpt-train --num-layers 2 --hidden-size 16 --num-attention-heads 2 \
        --seq-length 16 --micro-batch-size 2 --global-batch-size 4 --lr 0.01 \
        --log-interval 1 --make-vocab-size-divisible-by 2 --threads 1 \
        --tokenizer-type ByteTokenizer --data-path data_text_document \
        --train-iters 20 --eval-iters 0 --split 100,0,0
}
train() { # options...
    # shellcheck disable=SC2046 # options without blanks
    $(train_command) "$@"
}
expect 5 'an unknown device' train --device tpu
err_has "device 'tpu': not known"
expect 5 'a number that is none' train --device cuda:x
expect 0 'programs say which GPU they know' gpt-train --version
out_has 'GPU: '
# With this GPT_PLUGIN_DIR no GPU is found, on any machine.
GPT_PLUGIN_DIR=$scratch
export GPT_PLUGIN_DIR
expect 5 'cuda without a GPU' train --device cuda
err_has 'libgpt-cuda.so'
expect 0 'auto without a GPU' train --device auto --train-iters 1
err_has 'running on the CPU (cuda: '
expect 0 'what was built and found, without a GPU' gpt-train --version
out_has 'GPU: not built (cuda: '
unset GPT_PLUGIN_DIR
# A program and the plugin start on machines without libraries for GPUs.
for file in gpt-train gpt-generate libgpt-cuda.so; do
    [ -e "$BUILD/$file" ] || continue
    expect 0 "$file needs libraries" ldd "$BUILD/$file"
    check 'but none of GPUs' \
        sh -c '! grep -E "lib(cuda|cudart|cublas|cublasLt|nccl)\." out'
done

# ---- GPUs, emulated or not ----
device=${GPT_TEST_DEVICE:-cuda-emu}
if [ ! -e "$BUILD/libgpt-$device.so" ]; then
    skip "there is no libgpt-$device.so: this build had no compiler for it"
    tap_done
fi

# Prints the losses of a log, one on each line.
losses() { # file
    sed -n 's/.* lm loss: \([^ ]*\) .*/\1/p' "$1"
}
# True when logs $3 and $4 have 20 losses each, with relative differences of at
# most $2.
within() { # limit log log
    losses "$2" >got
    losses "$3" | paste got - | awk -v most="$1" '
        { d = $1 - $2; d = (d < 0 ? -d : d) / $2; bad += !(d <= most); n++
          worst = d > worst ? d : worst }
        END { print n " losses, the worst is off by " worst + 0
              exit !(n == 20 && !bad) }'
}
follows() { # description limit log log
    check "$1" within "$2" "$3" "$4" && sed 's/^/# /' "$scratch/check.log"
}

expect 0 'trains on the CPU' train --device cpu --save cpu
cp err cpu.log
expect 0 'trains on a GPU' train --device "$device" --save gpu
cp err gpu.log
err_has 'attention runs many times below the speed of device'
follows 'all 20 losses are those of the CPU' 2e-5 gpu.log cpu.log
check 'and fall' awk 'NR == 1 { first = $1 } END { exit !($1 < first / 1.5) }' got
GPT_CUDA_EMU_ORDER=reverse
export GPT_CUDA_EMU_ORDER
expect 0 'again, emulated threads backwards' \
    train --device "$device" --exit-interval 6
losses err >back.losses
losses gpu.log | head -6 >gpu.losses
check 'to the same digits' cmp back.losses gpu.losses
unset GPT_CUDA_EMU_ORDER
if [ "$device" = cuda-emu ]; then
    # shellcheck disable=SC2046 # options without blanks
    expect 0 'an empty GPT_PLUGIN_DIR counts as unset' env GPT_PLUGIN_DIR= \
        $(train_command) --device cuda-emu --train-iters 1
    for wrong in ORDER=revers ORDER=random:x STREAMS=later GEMM=plane \
        NCCL=fail=x NCCL=silence ARCH=9O DEVICES=-1 MEMORY=1G; do
        expect 2 "the emulation refuses $wrong" \
            env "GPT_CUDA_EMU_$wrong" gpt-train --device cuda-emu --mock-data \
            --num-layers 1 --hidden-size 16 --num-attention-heads 1 \
            --seq-length 8 --train-iters 1 --lr 1 --threads 1 \
            --tokenizer-type ByteTokenizer
        err_has "cannot read GPT_CUDA_EMU_${wrong%%=*}='${wrong#*=}'"
    done
fi

# ---- positions ----
for type in rope alibi; do
    expect 0 "$type on the CPU" train --device cpu --save $type \
        --position-embedding-type $type
    cp err $type.log
    expect 0 "$type on a GPU" train --device "$device" \
        --position-embedding-type $type
    cp err got.log
    follows 'follows the CPU' 2e-5 got.log $type.log
    for d in cpu "$device"; do
        gpt-generate --load $type --greedy --prompt 'the cat' --tokens 8 \
            --device "$d" >"$d.text"
    done
    check 'and generates the same' cmp cpu.text "$device.text"
done

# ---- architectures ----
while read -r name options; do
    # shellcheck disable=SC2086 # options are words
    {
        expect 0 "$name on the CPU" train --device cpu --save "$name" $options
        cp err "$name.log"
        expect 0 "$name on a GPU" train --device "$device" $options
        cp err got.log
    }
    follows 'follows the CPU' 2e-5 got.log "$name.log"
    for d in cpu "$device"; do
        gpt-generate --load "$name" --greedy --prompt 'the cat' --tokens 8 \
            --device "$d" >"$d.text"
    done
    check 'and generates the same' cmp cpu.text "$device.text"
done <<'END'
llama --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --add-qkv-bias --qk-layernorm
experts --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 24 --moe-shared-expert-intermediate-size 8 --moe-shared-expert-gate --moe-aux-loss-coeff 0.02
neox --position-embedding-type rope --rotary-percent 0.5 --rotary-interleaved --activation-function gelu_exact --parallel-residual
END

# ---- precisions and ranks ----
expect 0 'bf16' train --device "$device" --bf16
cp err gpu-bf16.log
check 'whose attention is not slow' sh -c '! grep "attention runs" err'
follows 'follows float' 5e-3 gpu-bf16.log cpu.log
expect 0 'fp16, which the CPU does not have' \
    train --device "$device" --fp16 --loss-scale 1024
cp err gpu-fp16.log
follows 'follows float' 2e-3 gpu-fp16.log cpu.log
expect 0 'fp16 with a loss scale that overflows' \
    train --device "$device" --fp16 --initial-loss-scale 16777216 \
    --loss-scale-window 5
check 'overflows are skipped, halve the scale, and good steps double it' \
    awk '{ scale = skipped = ""
           for (i = 1; i < NF; i++) {
               if ($i == "scale:") scale = $(i + 1)
               if ($i == "skipped") skipped = $(i + 2)
           }
           if (scale == "") next
           n++; gone += skipped
           low = low == "" || scale < low ? scale : low
           last = scale }
         END { exit !(n == 20 && gone > 2 && gone < 10 && last > low) }' err
expect 6 'a loss scale that cannot fall, and gradients that are too large' \
    train --device "$device" --fp16 --loss-scale 1e9
err_has 'the loss scale of 1e+09 may be too large for the gradients'
err_has 'try a lower --loss-scale'
expect 6 'the same at the least loss scale' train --device "$device" --fp16 \
    --min-loss-scale 4294967296
err_has 'try a lower --min-loss-scale'
ranks() { # options...
    # shellcheck disable=SC2046 # options without blanks
    gpt-launch --standalone --nproc-per-node 4 $(train_command) "$@" \
        --tensor-model-parallel-size 2
}
late() ( # command...
    GPT_CUDA_EMU_STREAMS=late
    export GPT_CUDA_EMU_STREAMS
    "$@"
)
if gpt-train --version | grep -q " Gloo"; then
    expect 0 'four ranks' ranks --pipeline-model-parallel-size 2 \
        --device "$device"
    cp err ranks.log
    follows 'TP 2 PP 2 follows the CPU' 2e-5 ranks.log cpu.log
    expect 0 'four ranks in bf16' ranks --pipeline-model-parallel-size 2 \
        --device "$device" --bf16
    cp err ranks.log
    follows 'and follows float' 5e-3 ranks.log cpu.log
    expect 0 'four ranks whose queues work as late as they may' \
        late ranks --device "$device" --sequence-parallel \
        --use-distributed-optimizer --overlap-param-gather
    cp err ranks.log
    follows 'TP 2 SP DP 2 ZeRO-1 follows the CPU' 2e-5 ranks.log cpu.log
else
    skip 'this build has no Gloo'
fi

if [ "$device" = cuda ] && command -v compute-sanitizer >/dev/null; then
    # shellcheck disable=SC2046 # options without blanks
    expect 0 'a training under compute-sanitizer' \
        compute-sanitizer --tool memcheck --error-exitcode 9 \
        --report-api-errors no $(train_command) --device cuda --bf16 \
        --train-iters 3
fi

# ---- recorded passes, TF32 ----
expect 0 'CUDA graphs' train --device "$device" --enable-cuda-graph
err_has 'CUDA graphs: of forward and of backward'
losses err >graph.losses
losses gpu.log >gpu.losses
check 'give the same losses' cmp graph.losses gpu.losses
if gpt-train --version | grep -q " Gloo"; then
    # shellcheck disable=SC2046 # options without blanks
    expect 0 'CUDA graphs in a pipeline' \
        gpt-launch --standalone --nproc-per-node 2 $(train_command) \
        --device "$device" --pipeline-model-parallel-size 2 --enable-cuda-graph
    cp err graph-ranks.log
    follows 'give the same losses' 2e-5 graph-ranks.log cpu.log
else
    skip 'this build has no Gloo'
fi
expect 0 'the CPU has no graphs' \
    train --device cpu --cuda-graph-impl local --exit-interval 1
err_has 'CUDA graphs are off: device cpu has none'
expect 0 'TF32' train --device "$device" --tf32
err_has 'float products in TF32'
check 'is fast in attention, too' sh -c '! grep "attention runs" err'
check 'which floats are not' \
    grep -q 'attention runs .* in float where TF32 is allowed' gpu.log
cp err tf32.log
losses err >tf32.losses
check 'gives other losses' sh -c 'cmp -s gpu.losses tf32.losses; [ $? = 1 ]'
follows 'which are near' 1e-3 tf32.log cpu.log
expect 2 'TF32 on the CPU' train --device cpu --tf32
err_has 'tf32: device cpu has none'
expect 2 'TF32 of bf16' train --tf32 --bf16
err_has 'TF32 is for products of float'

# ---- out of memory ----
# does_not_fit DESCRIPTION BYTES HINT; activations and logits need most of it
does_not_fit() {
    GPT_CUDA_EMU_MEMORY=$2
    export GPT_CUDA_EMU_MEMORY
    expect 5 "$1" train --device cuda-emu --micro-batch-size 4
    unset GPT_CUDA_EMU_MEMORY
    err_has "out of memory: the run needs"
    err_has "$2 of $2 are free"
    err_has "hint: $3"
}
if [ "$device" = cuda-emu ]; then
    does_not_fit 'a little too large' 400000 \
        'with --recompute-granularity full a rank needs'
    does_not_fit 'larger' 350000 'with --micro-batch-size 2 a rank needs'
    does_not_fit 'far too large' 210000 "with --tensor-model-parallel-size 2 \
--micro-batch-size 2 on 2 ranks with a GPU like this each a rank needs"
    does_not_fit 'hopeless' 10000 'nothing fits: with --'
fi

# With NCCL every rank needs a GPU of its own.
gpus=0
[ "$device" != cuda ] || gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
if [ "$gpus" -ge 2 ]; then
    n=$((gpus < 4 ? 2 : 4))
    # shellcheck disable=SC2046 # options without blanks
    expect 0 "$n ranks by NCCL" gpt-launch --standalone --nproc-per-node $n \
        $(train_command) --device cuda --tensor-model-parallel-size 2 \
        --distributed-backend nccl
    cp err ranks.log
    follows 'follow the CPU' 2e-5 ranks.log cpu.log
fi

# ---- texts ----
printf '{"prompt": "%s"}\n' 'the cat ' 'a dog sees ' the >prompts
texts() { # checkpoint device options...
    load=$1 on=$2
    shift 2
    gpt-generate --load "$load" --device "$on" --jsonl --prompt-file prompts \
        --tokens 12 "$@"
}
same_text() { # description checkpoint options...
    what=$1 model=$2
    shift 2
    expect 0 "$what, on the CPU" texts "$model" cpu "$@"
    cp out cpu.text
    expect 0 "$what, on a GPU" texts "$model" "$device" "$@"
    check 'is the same' cmp out cpu.text
}
same_text 'the most probable text' cpu --greedy
same_text 'that of the model which a GPU trained' gpu --greedy
same_text 'a text by chance' cpu --seed 7 --num-samples 3 --temperature 1.2 \
    --top-k 100 --top-p 0.97
cp cpu.text all.text
expect 0 'one text after the other' texts cpu "$device" --seed 7 \
    --num-samples 3 --temperature 1.2 --top-k 100 --top-p 0.97 --batch-size 1
check 'is the same, too' cmp out all.text
expect 0 'past the end of the document' texts gpu "$device" --ignore-eod \
    --tokens 1000 --greedy
out_has '"finish":"positions"'
expect 5 'keys and values in bf16' texts gpu "$device" --greedy -v \
    --kv-cache-dtype bf16
err_has "device $device has keys and values of F32 alone"
check 'are refused before weights are read' \
    sh -c 'grep -q " of weights, " err; [ $? = 1 ]'
expect 0 'those of floats' texts gpu "$device" --greedy -v
err_has ' of weights, '
GPT_PLUGIN_DIR=$scratch
export GPT_PLUGIN_DIR
expect 0 'auto without a GPU' texts cpu auto --greedy
err_has 'running on the CPU (cuda: '
expect 5 'cuda without a GPU' texts cpu cuda --greedy

tap_done
