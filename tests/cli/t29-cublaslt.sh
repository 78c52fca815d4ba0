#!/bin/sh
# The emulated cuBLASLt has the numbers and sizes of NVIDIA's header, where that
# is installed: a product that is described to the one is described to the other.
. "$(dirname "$0")/../lib/tap.sh"

compiler=${CXX:-g++}
include=${CUDA_INCLUDE:-/usr/local/cuda/include}
header=$top/kernels/emu/include/cublasLt.h
[ -e "$include/cublasLt.h" ] || {
    skip 'there is no cublasLt.h of NVIDIA'
    tap_done
}
command -v "$compiler" >/dev/null || {
    skip "there is no $compiler"
    tap_done
}

# Every number of the emulated header as an assertion about the real one.
{
    echo '#include <cublasLt.h>'
    grep -o 'CU[A-Z]*_[A-Z0-9_]* = [0-9]*' "$header" |
        while read -r name _ value; do
            echo "static_assert((int)$name == $value, \"$name\");"
        done
    echo 'static_assert(sizeof(cublasLtMatmulAlgo_t) == 64, "an algorithm");'
    # What attributes are given has the type of an enumeration.
    for t in cublasOperation_t cublasLtEpilogue_t cudaDataType_t; do
        echo "static_assert(sizeof($t) == 4, \"$t\");"
    done
} >numbers.cc
check 'the header was read' \
    sh -c '[ "$(grep -c static_assert numbers.cc)" -ge 32 ]'
expect 0 "NVIDIA's header has the same numbers" \
    "$compiler" -std=c++17 -fsyntax-only -I"$include" numbers.cc

# The functions' arguments have the same types.
cat >calls.cc <<'END'
#include <cublasLt.h>
#include <type_traits>
#define SAME(f, ...)                                                           \
    static_assert(std::is_same<decltype(&f), __VA_ARGS__>::value, #f)
typedef cublasStatus_t S;
SAME(cublasLtMatmulDescSetAttribute,
     S (*)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *,
           size_t));
SAME(cublasLtMatrixLayoutCreate,
     S (*)(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t,
           int64_t));
SAME(cublasLtMatmulPreferenceSetAttribute,
     S (*)(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
           const void *, size_t));
SAME(cublasLtMatmulAlgoGetHeuristic,
     S (*)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
           cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
           cublasLtMatmulHeuristicResult_t *, int *));
SAME(cublasLtMatmul,
     S (*)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
           cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t,
           const void *, const void *, cublasLtMatrixLayout_t, void *,
           cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,
           cudaStream_t));
END
expect 0 'and functions with the same arguments' \
    "$compiler" -std=c++17 -fsyntax-only -I"$include" calls.cc
tap_done
