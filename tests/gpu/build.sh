#!/bin/sh
# usage: build.sh TARGET...; makes targets of the Makefile in $BUILD on a machine
# that may have only make, gcc, nvcc, sh and cJSON: for the GPU that is there
# alone. Optional libraries are used where they are. GPT_GPU_ARCHS (say 90) are built for instead of this machine's; with
# GPT_TEST_DEVICE=cuda-emu nothing is, and nvcc not needed.
set -eu
. tests/gpu/env.sh
compiler=${CC:-gcc}
libraries=${LDFLAGS:-}
mkdir -p "$BUILD"

printf '#include <cjson/cJSON.h>\n' |
    $compiler -fsyntax-only -x c - 2>/dev/null || {
    echo "cJSON is not installed: tests/gpu/carry.sh brings it along" >&2
    exit 1
}

archs=${GPT_GPU_ARCHS:-}
[ -n "$archs" ] || archs=$(nvidia-smi --query-gpu=compute_cap \
    --format=csv,noheader 2>/dev/null | tr -d . | sort -u | tr '\n' ' ') || :
cuda=1
[ "$GPT_TEST_DEVICE" != cuda-emu ] || cuda=0

build() { # targets...
    make -s -j"$(getconf _NPROCESSORS_ONLN)" BUILD="$BUILD" CC="$compiler" \
        CXX="${CXX:-g++}" LDFLAGS="$libraries" CUDA=$cuda \
        CUDA_ARCHS="${archs:-80 90 100 120}" "$@"
}

# What was built for another device or without a library is built again.
touch "$BUILD/config.mk"
mv "$BUILD/config.mk" "$BUILD/config.old"
build "$BUILD/config.mk"
cmp -s "$BUILD/config.mk" "$BUILD/config.old" ||
    find "$BUILD" -type f \( -name '*.[ot]' -o -name '*.so' -o -name 'gpt-*' \
        -o -name libgpt.a -o -name 'bench_*' \) -exec rm {} +
build "$@"
