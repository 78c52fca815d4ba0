#!/bin/sh
# Rehearses make bench-gpu on an emulated GPU: it measures every kernel, with a
# small error, and a training. The times mean nothing.
. "$(dirname "$0")/../lib/tap.sh"

if [ ! -e "$BUILD/libgpt-cuda-emu.so" ]; then
    skip 'there is no libgpt-cuda-emu.so: this build had no C++ compiler'
    tap_done
fi
bench() { # section
    (cd "$top" && BUILD=$BUILD GPT_TEST_DEVICE=cuda-emu GPT_BENCH_BUILT=1 \
        GPT_BENCH_PYTHON=false GPT_BENCH_STEPS=2 GPT_BENCH=$1 \
        sh tests/gpu/bench.sh)
}
# True when the last output has at least $1 rows, and no error is above that of
# bf16.
rows() { # least
    awk -F'\t' -v least="$1" '
        NF == 6 && $1 !~ /^name/ { n++; bad += $6 != "-" && !($6 < 1e-2) }
        END { print n " rows, " bad + 0 " with a large error"
              exit !(n >= least && !bad) }' "$scratch/out"
}
expect 0 'products' bench products
check 'of every kind' rows 36
expect 0 'passes' bench passes
check 'of every kind' rows 21
expect 0 'experts' bench experts
check 'of every kind' rows 9
expect 0 'attention' env GPT_TEST_DEVICE=cuda-emu \
    "$BUILD/tests/gpu/bench_attention" 2,70,2,64,0.1
check 'forward and backward' rows 3
expect 0 'a training' bench train-124m
check 'its rate and its spread' rows 2
expect 2 'an unknown section' bench flights
expect 1 'a GPU that is not there' env GPT_TEST_DEVICE=cuda \
    GPT_PLUGIN_DIR="$scratch" "$BUILD/tests/gpu/bench_passes"
err_has 'bench-gpu: cuda: '
tap_done
