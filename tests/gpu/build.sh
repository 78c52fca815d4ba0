#!/bin/sh
# usage: build.sh TARGET...; makes targets of the Makefile in $BUILD on a
# machine that may have only make, gcc, nvcc, sh and cJSON. Optional libraries
# are used if they are installed. The build is for the GPU of this machine, or
# for GPT_GPU_ARCHS (such as 90); with GPT_TEST_DEVICE=cuda-emu it is for no GPU
# and does not need nvcc.
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

# Files that were built for another device or without a library are built again.
touch "$BUILD/config.mk"
mv "$BUILD/config.mk" "$BUILD/config.old"
build "$BUILD/config.mk"
cmp -s "$BUILD/config.mk" "$BUILD/config.old" ||
    find "$BUILD" -type f \( -name '*.[ot]' -o -name '*.so' -o -name 'gpt-*' \
        -o -name libgpt.a -o -name 'bench_*' \) -exec rm {} +
build "$@"
