#!/bin/sh
# Devices: GPUs that are not there, and training, with dropout, and generation
# on emulated ones, which follow the CPU.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

# ---- what --device says ----
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
expect 5 'a device that nobody knows' train --device tpu
err_has "device 'tpu': not known"
expect 5 'a number that is none' train --device cuda:x
expect 0 'programs say which GPU they know' gpt-train --version
out_has 'GPU: '
# GPT_PLUGIN_DIR makes this machine one without a GPU, whatever it has.
GPT_PLUGIN_DIR=$scratch
export GPT_PLUGIN_DIR
expect 5 'cuda without a GPU' train --device cuda
err_has 'libgpt-cuda.so'
expect 0 'auto without a GPU' train --device auto --train-iters 1
err_has 'running on the CPU (cuda: '
unset GPT_PLUGIN_DIR

# ---- emulated GPUs ----
if [ ! -e "$BUILD/libgpt-cuda-emu.so" ]; then
    skip 'there is no libgpt-cuda-emu.so: this build had no C++ compiler'
    tap_done
fi

# Losses of a log, one a line.
losses() { # file
    sed -n 's/.* lm loss: \([^ ]*\) .*/\1/p' "$1"
}
# Every loss of $2 within $1 of that of $3, relatively; and there are $4.
follows() {
    losses "$2" >got
    losses "$3" | paste got - | awk -v most="$1" -v want="$4" '
        { d = $1 - $2; d = d < 0 ? -d : d; bad += !(d <= most * $2); n++ }
        END { exit !(n == want && !bad) }'
}

expect 0 'trains on the CPU' train --device cpu --save cpu
cp err cpu.log
expect 0 'trains on an emulated GPU' train --device cuda-emu --save emu
cp err emu.log
check 'all 20 losses are those of the CPU' follows 2e-5 emu.log cpu.log 20
check 'and fall' awk 'NR == 1 { first = $1 } END { exit !($1 < first / 1.5) }' got
GPT_CUDA_EMU_ORDER=reverse
export GPT_CUDA_EMU_ORDER
expect 0 'backwards' train --device cuda-emu --exit-interval 6
losses err >back.losses
losses emu.log | head -6 >emu.losses
check 'to the same digits' cmp back.losses emu.losses
unset GPT_CUDA_EMU_ORDER

# ---- precisions and ranks ----
expect 0 'bf16' train --device cuda-emu --bf16
cp err emu-bf16.log
check 'follows float' follows 5e-3 emu-bf16.log cpu.log 20
expect 0 'fp16, which the CPU does not have' \
    train --device cuda-emu --fp16 --loss-scale 1024
cp err emu-fp16.log
check 'follows float' follows 2e-3 emu-fp16.log cpu.log 20
expect 0 'fp16 with a loss scale that overflows' \
    train --device cuda-emu --fp16 --initial-loss-scale 16777216 \
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
ranks() { # options...
    # shellcheck disable=SC2046 # options without blanks
    gpt-launch --standalone --nproc-per-node 4 $(train_command) "$@" \
        --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
}
if gpt-train --version | grep -q " Gloo"; then
    expect 0 'four ranks' ranks --device cuda-emu
    cp err emu-ranks.log
    check 'TP 2 PP 2 follows the CPU' follows 2e-5 emu-ranks.log cpu.log 20
    expect 0 'four ranks in bf16' ranks --device cuda-emu --bf16
    cp err emu-ranks.log
    check 'and follows float' follows 5e-3 emu-ranks.log cpu.log 20
else
    skip 'this build has no Gloo'
fi

prompt() { # device checkpoint
    gpt-generate --load "$2" --device "$1" --prompt 'the cat ' --greedy \
        --tokens 12
}
expect 0 'generates on the CPU' prompt cpu cpu
cp out cpu.text
expect 0 'generates on an emulated GPU' prompt cuda-emu cpu
check 'the same text' cmp out cpu.text

tap_done
