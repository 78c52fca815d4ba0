#!/bin/sh
# Prints make variables for what this machine offers: FEATURES (-D flags),
# FEATURE_LIBS, CXX_SRC, ISAS, PAIRS, FEW, FUSE, NVCC, CUDA_LIB, GPU_ARCHS,
# HAVE_CXX.
# Reads CC, CXX, CUDA_ARCHS, and DNNL, LZMA, ZLIB, ZSTD, GLOO, MICROHTTPD and
# CUDA (auto, 0 or 1) from the environment; what is asked for with 1 and missing
# is an error.
set -eu

has_header() {
    printf '#include <%s>\nint main(void){return 0;}\n' "$1" |
        $CC -x c -fsyntax-only - 2>/dev/null
}

accepts() {
    printf 'int main(void){return 0;}\n' |
        $CC -x c "$@" -c -o /dev/null - 2>/dev/null
}

command -v "${CC%% *}" >/dev/null 2>&1 || {
    echo "probe: no C compiler '$CC'; try 'make deps'" >&2
    exit 1
}
has_header cjson/cJSON.h || {
    echo "probe: cJSON is missing (Debian: libcjson-dev); try 'make deps'" >&2
    exit 1
}

features=
libs=
optional() { # setting macro header library Debian-package
    case $1 in
        0) return ;;
    esac
    if has_header "$3"; then
        features="$features -D$2=1"
        libs="$libs $4"
    elif [ "$1" = 1 ]; then
        echo "probe: <$3> is missing (Debian: $5)" >&2
        exit 1
    fi
}
optional "$DNNL" GPT_HAVE_DNNL dnnl.h -ldnnl libdnnl-dev
optional "$LZMA" GPT_HAVE_LZMA lzma.h -llzma liblzma-dev
optional "$ZLIB" GPT_HAVE_ZLIB zlib.h -lz zlib1g-dev
optional "$ZSTD" GPT_HAVE_ZSTD zstd.h -lzstd libzstd-dev

optional "${MICROHTTPD:-auto}" GPT_HAVE_MICROHTTPD microhttpd.h -lmicrohttpd \
    libmicrohttpd-dev

# Gloo is C++ and needs a compiler for it, too.
cxx_src=
has_gloo() {
    command -v "${CXX%% *}" >/dev/null 2>&1 &&
        printf '#include <gloo/rendezvous/context.h>\n' |
        $CXX -std=c++17 -x c++ -fsyntax-only - 2>/dev/null
}
if [ "$GLOO" != 0 ] && has_gloo; then
    features="$features -DGPT_HAVE_GLOO=1"
    libs="$libs -lgloo -lstdc++"
    cxx_src=common/parallel/gloo.cc
elif [ "$GLOO" = 1 ]; then
    echo "probe: Gloo or g++ is missing (Debian: libgloo-dev g++)" >&2
    exit 1
fi

# GCC 14 fuses no sums of 256 bits that a loop carries on, unless it is told to:
# whether it fuses would then depend on how many rows a loop has, and the bits of
# a text on the texts beside it.
fuse=
accepts --param=avoid-fma-max-bits=0 -Werror &&
    fuse=--param=avoid-fma-max-bits=0
isas=
pairs=
few=
case $($CC -dumpmachine) in
    x86_64*)
        accepts -mavx2 -mfma -mf16c && isas="$isas avx2"
        accepts -mavx2 -mavxvnni && few=avx2vnni
        accepts -mavx512f -mavx512bw -mavx512vl -mavx512dq &&
            isas="$isas avx512"
        # Products of narrow numbers, which are a file each
        # (kernels/cpu/pair/, few/ and many/).
        case $isas in
            *avx512*)
                accepts -mavx512f -mavx512vnni && few="$few avx512vnni"
                accepts -mavx512f -mavx512vnni -mavx512bf16 &&
                    pairs=avx512bf16
                accepts -mavx512f -mamx-tile -mamx-bf16 &&
                    pairs="$pairs amx" few="$few amx"
                ;;
        esac
        ;;
esac

# CUDA: the compiler, and which of CUDA_ARCHS it knows. CXX: emulated kernels.
nvcc=
if [ "$CUDA" != 0 ]; then
    for n in nvcc /usr/local/cuda/bin/nvcc; do
        [ -n "$nvcc" ] || nvcc=$(command -v "$n") || nvcc=
    done
    [ -n "$nvcc" ] || [ "$CUDA" != 1 ] || {
        echo "probe: nvcc is missing, but CUDA=1" >&2
        exit 1
    }
fi
known=
[ -z "$nvcc" ] || known=$($nvcc --list-gpu-code 2>/dev/null) || nvcc=
# Its folder: nvcc on PATH may be a link or a script.
cuda_lib=
[ -z "$nvcc" ] || cuda_lib=$(echo | $nvcc --dryrun -x cu -c -o /dev/null - 2>&1 |
    sed -n 's/^#$ TOP=//p')/lib64
# Numbers of eight bits on 8.9 and sums of four floats in memory on 9.0 came with
# PTX 8.1: an older nvcc knows these GPUs and not all that kernels ask of them.
release=$([ -z "$nvcc" ] || $nvcc --version |
    sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 * 100 + \2/p')
archs=
for a in $CUDA_ARCHS; do
    case " $(echo $known) " in
        *" sm_$a "*) ;;
        *) continue ;;
    esac
    case $a in
        89 | 90)
            [ $((${release:-0})) -ge 1201 ] || {
                echo "probe: no kernels for sm_$a: they need nvcc 12.1" >&2
                continue
            }
            ;;
    esac
    archs="$archs $a"
done
has_cxx=
printf 'int main(){return 0;}\n' | $CXX -std=c++17 -x c++ -fsyntax-only - \
    2>/dev/null && has_cxx=1

echo "# made by share/build/probe.sh"
echo "FEATURES =$features"
echo "FEATURE_LIBS =$libs"
echo "CXX_SRC = $cxx_src"
echo "ISAS =$isas"
echo "PAIRS = $pairs"
echo "FEW = $few"
echo "FUSE = $fuse"
echo "NVCC = $nvcc"
echo "CUDA_LIB = $cuda_lib"
echo "GPU_ARCHS =$archs"
echo "HAVE_CXX = $has_cxx"
