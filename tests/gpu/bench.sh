#!/bin/sh
# make bench-gpu: measures kernels and whole training steps on the GPU of this
# machine, and in the same run floors and peers. It needs make, gcc, nvcc, sh
# and cJSON (carry.sh copies that). Peers are PyTorch, if python3 has it, and
# llm.c, if LLMC names it.
#
#   GPT_BENCH         the sections to run, each a few minutes at most: products
#                     passes attention experts train-124m train-345m train-774m
#                     train-1.5b; by default all
#   GPT_BENCH_PYTHON  the Python that has PyTorch (python3)
#   GPT_BENCH_PEAK    the GPU's dense bf16 TFLOP/s, for MFU, if not known here
#   GPT_BENCH_STEPS   steps measured, after five to warm up (20)
#   GPT_BENCH_OPTIONS more options of gpt-train
#   LLMC              folder of llm.c; LLMC_OPTIONS: more options for it
#   GPT_BENCH_BUILT   1: use BUILD without building it
#   GPT_TEST_DEVICE   cuda-emu: rehearse this script without a GPU
set -eu
. tests/gpu/env.sh
GPT_DATADIR=$PWD/share
export GPT_DATADIR
python=${GPT_BENCH_PYTHON:-python3}
sections=${GPT_BENCH:-products passes attention experts train-124m train-345m
    train-774m train-1.5b}
steps=${GPT_BENCH_STEPS:-20}
tiny=
[ "$GPT_TEST_DEVICE" != cuda-emu ] || tiny=1
work=$BUILD/bench
mkdir -p "$work"

if [ "${GPT_BENCH_BUILT:-0}" = 0 ]; then
    benches=
    for b in products passes attention experts; do
        benches="$benches $BUILD/tests/gpu/bench_$b"
    done
    # shellcheck disable=SC2086 # a word list
    sh tests/gpu/build.sh "$BUILD/gpt-train" "$BUILD/gpt-preprocess" \
        "$BUILD/libgpt-$GPT_TEST_DEVICE.so" $benches
fi
device=$("$BUILD/gpt-train" --version | sed -n \
    's/^GPU: .*; cuda:[0-9]*: \([^,]*\),.*/\1/p')
torch=
if "$python" -c 'import torch' 2>/dev/null; then
    torch=$("$python" -c 'import torch; print(torch.__version__)')
fi
echo "# ${device:-$GPT_TEST_DEVICE}; PyTorch ${torch:-is not there}"

row() { # name figure unit floor error
    awk -v name="$1" -v x="$2" -v unit="$3" -v floor="$4" -v e="$5" 'BEGIN {
        printf "%-34s\t%10.4g\t%-7s\t%10.4g\t%5.2f\t%s\n", name, x, unit,
            floor, (floor > 0 ? x / floor : 0), e }'
}

# ---- attention ----

# Joins our rows and those of PyTorch's backends by the names of the shapes.
attention_peers() { # ours
    shapes="16,1024,12,64,0 16,1024,25,64,0 16,1024,12,64,0.1 4,4096,12,64,0
        16,1024,16,128,0 4,4096,16,128,0 2,8192,16,128,0 8,2048,16,80,0
        8,2048,16,96,0"
    [ -z "$tiny" ] || shapes=2,33,2,64,0
    # shellcheck disable=SC2086 # a word list
    timeout 200 "$python" -W ignore tests/gpu/peers.py attention $shapes \
        >"$work/attention.peers" 2>"$work/attention.log" ||
        echo "# PyTorch: attention was not finished"
    sed -n 's/^peers: /# PyTorch: /p' "$work/attention.log" | sort -u
    sed 's/ *\t */\t/g' "$1" | awk -F'\t' '
        NR == FNR { ours[$1] = $2; next }
        $1 in ours {
            printf "%-34s\t%10.4g\t%-7s\t%10.4g\t%5.2f\t-\n",
                $1 " : " $2, ours[$1], "TFLOP/s", $3, ours[$1] / $3
            if ($3 > best[$1])
                best[$1] = $3
        }
        END { for (n in best)
                  if (ours[n] / best[n] < worst || worst == "") {
                      worst = ours[n] / best[n]; at = n }
              if (worst != "")
                  printf "# the least of ours / the best of PyTorch: %.2f, %s\n",
                      worst, at }' - "$work/attention.peers"
}

# ---- training ----

# Prints the dense bf16 peak of the vendor's datasheet, TFLOP/s; 0: not known.
peak() {
    case ${GPT_BENCH_PEAK:-$device} in
    [0-9]*) echo "$GPT_BENCH_PEAK" ;;
    *"H100 PCIe"*) echo 756 ;;
    *"H100 NVL"* | *"H200 NVL"*) echo 835 ;;
    *H100* | *H200*) echo 989 ;;
    *B200*) echo 2250 ;;
    *A100*) echo 312 ;;
    *L40S*) echo 362 ;;
    *) echo 0 ;;
    esac
}

# Writes 262144 random tokens as a data set and, with a header, for llm.c.
data=$work/random_text_document
make_data() {
    [ ! -f "$data.idx" ] || return 0
    awk 'BEGIN {
        x = 7
        for (i = 0; i < 64; i++) {
            printf "{\"text\": \""
            for (j = 0; j < 4096; j++) {
                x = (x * 16807) % 2147483647
                printf "%s%d", j ? " " : "", x % 50257
            }
            print "\"}"
        }
    }' >"$work/random.jsonl"
    "$BUILD/gpt-preprocess" --input "$work/random.jsonl" --quiet \
        --output-prefix "$work/random" --tokenizer-type NullTokenizer \
        --vocab-size 50257
    { # magic, version and number of tokens in 256 numbers of 4 bytes
        printf '\210\330\064\001\001\000\000\000\000\000\004\000'
        head -c 1012 /dev/zero
        cat "$data.bin"
    } >"$work/random.llmc"
}

# Prints median and spread (standard deviation by median) of numbers, which are
# ms, one on each line.
steady() {
    sort -n | awk '{ x[NR] = $1 }
        END { m = (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2
              for (i = 1; i <= NR; i++) s += (x[i] - m) ^ 2
              if (NR) print m, sqrt(s / NR) / m }'
}

# Writes median ms and spread of gpt-train to $work/ours.
train_ours() { # model batch options...
    model=$1 batch=$2
    shift 2
    rm -f "$work/metrics.jsonl"
    # shellcheck disable=SC2086 # a word list
    "$BUILD/gpt-train" --config "gpt2-$model" --tokenizer-type NullTokenizer \
        --vocab-size 50257 --data-path "$data" --split 100,0,0 \
        --micro-batch-size "$batch" --global-batch-size "$batch" --eval-iters 0 \
        --train-iters $((steps + 5)) --lr 1e-4 --lr-decay-style constant \
        --hidden-dropout 0 --attention-dropout 0 --bf16 --log-interval 1 \
        --metrics "$work/metrics.jsonl" --device "$GPT_TEST_DEVICE" $small \
        ${GPT_BENCH_OPTIONS:-} "$@" >"$work/train.log" 2>&1 || {
        tail -n 5 "$work/train.log"
        return 1
    }
    sed -n 's/.*"elapsed_ms":\([0-9.]*\).*/\1/p' "$work/metrics.jsonl" |
        tail -n "$steps" | steady >"$work/ours"
}

field() { # name: of the first step
    sed -n "1s/.*\"$1\":\\([0-9.]*\\).*/\\1/p" "$work/metrics.jsonl"
}

# Prints tokens/s of PyTorch, with half the batch if memory is too small.
train_torch() { # layers width heads batch
    for b in "$4" $(($4 / 2)); do
        timeout 300 "$python" -W ignore tests/gpu/peers.py train "$1" "$2" \
            "$3" "$b" "$tokens" "$steps" >"$work/torch" \
            2>"$work/torch.log" && return
        echo "# PyTorch, batch $b: $(tail -n 1 "$work/torch.log")"
    done
    return 1
}

# Prints the median ms of llm.c.
train_llmc() { # layers batch
    [ -x "$LLMC/train_gpt2cu" ] || make -C "$LLMC" train_gpt2cu \
        >"$work/llmc.build" 2>&1 || {
        echo "# llm.c: does not build, see $work/llmc.build"
        return 1
    }
    # shellcheck disable=SC2086 # a word list
    timeout 200 "$LLMC/train_gpt2cu" -i "$work/random.llmc" \
        -j "$work/random.llmc" -e "d$1" -b "$2" -t 1024 -x $((steps + 5)) \
        -v 1000000 -m 1 -s 0 -r 0 -c 0.1 ${LLMC_OPTIONS:-} \
        >"$work/llmc.log" 2>&1 || {
        echo "# llm.c: $(tail -n 1 "$work/llmc.log")"
        return 1
    }
    awk -F'|' '/^step/ { for (i = 1; i <= NF; i++)
        if ($i ~ / ms *$/) print $i + 0 }' "$work/llmc.log" |
        tail -n "$steps" | steady >"$work/llmc"
}

rate() { # batch: tokens/s of a step of $ms
    awk -v n=$(($1 * tokens)) -v ms="$ms" 'BEGIN { print 1e3 * n / ms }'
}

train() { # model layers width heads batch
    tokens=1024 small=
    if [ -n "$tiny" ]; then
        tokens=16 small="--num-layers 1 --hidden-size 16 --seq-length 16
            --num-attention-heads 2 --max-position-embeddings 16"
        set -- "$1" 1 16 2 2
    fi
    make_data
    train_ours "$1" "$5" || return 0
    read -r ms spread <"$work/ours"
    ours=$(rate "$5")
    tera=$(awk -v rate="$ours" -v f="$(field gflops)" \
        -v t="$(field tokens_per_second)" 'BEGIN { print rate * f / t / 1e3 }')
    loss=$(awk -v x="$(field lm_loss)" 'BEGIN { want = log(50257)
        printf "%.1e", (x > want ? x - want : want - x) / want }')
    row "GPT-2 $1, against the peak" "$tera" TFLOP/s "$(peak)" "$loss"
    row "GPT-2 $1, spread, at most 1 %" \
        "$(awk -v s="$spread" 'BEGIN { print 100 * s }')" % 1 -
    if train_ours "$1" "$5" --enable-cuda-graph; then
        read -r ms spread <"$work/ours"
        row "GPT-2 $1, CUDA graphs or not" "$(rate "$5")" tok/s "$ours" -
    fi
    if [ -n "$torch" ] && train_torch "$2" "$3" "$4" "$5"; then
        row "GPT-2 $1, against PyTorch" "$ours" tok/s \
            "$(cut -f 1 "$work/torch")" -
        row "GPT-2 $1, PyTorch's spread" \
            "$(awk '{ print 100 * $2 }' "$work/torch")" % 1 -
    fi
    if [ -n "${LLMC:-}" ] && train_llmc "$2" "$5"; then
        read -r ms spread <"$work/llmc"
        row "GPT-2 $1, against llm.c" "$ours" tok/s "$(rate "$5")" -
    fi
}

for s in $sections; do
    echo "== $s"
    case $s in
    products | passes | experts) "$BUILD/tests/gpu/bench_$s" ;;
    attention)
        "$BUILD/tests/gpu/bench_attention" | tee "$work/attention.ours"
        [ -z "$torch" ] || attention_peers "$work/attention.ours"
        "$BUILD/gpt-train" --version | grep -q 'sm_90' || continue
        echo "== $s, without what only Hopper has"
        GPT_CUDA_FLASH=mma "$BUILD/tests/gpu/bench_attention"
        ;;
    train-124m) train 124m 12 768 12 64 ;;
    train-345m) train 345m 24 1024 16 32 ;;
    train-774m) train 774m 36 1280 20 16 ;;
    train-1.5b) train 1.5b 48 1600 25 16 ;;
    *)
        echo "bench-gpu: no section '$s'" >&2
        exit 2
        ;;
    esac
done
