#!/bin/sh
# Kernels and text pass their tests on the older processors that this one can
# play: with fewer instructions for the library's own loops (GPT_CPU_ISA) and
# for oneDNN (ONEDNN_MAX_CPU_ISA, which it reads itself, with products by
# oneDNN). GPT_TEST_ISAS=all: models and trainings, too; `make isas`.
. "$(dirname "$0")/../lib/tap.sh"

# A test that cannot have what the environment asks for says so and stops.
passes() { # NAME=value name command...
    passes_setting=$1
    passes_name=$2
    shift 2
    case $passes_setting in
        ONEDNN*) passes_matmul=GPT_CPU_MATMUL=dnnl ;;
        *) passes_matmul=GPT_TEST_AS_IS=1 ;;
    esac
    (cd "$top" && env "$passes_setting" "$passes_matmul" GPT_TEST_AS_IS=1 \
        BUILD="$passes_build" "$@") >"$scratch/log" 2>&1
    passes_status=$?
    if grep -q 'this processor or build has no' "$scratch/log"; then
        skip "$passes_setting: this processor or build has it not"
        return
    fi
    check "$passes_setting $passes_name" eval \
        "grep -A 2 -E '^not ok|^Bail' '$scratch/log'; test $passes_status = 0"
}

# Every kernel on each set of the library's own loops, what oneDNN multiplies on
# each set of its own; the machine's best set is what the unit tests use.
products='kernels_bf16 kernels_matmul kernels_attn'
own="$products kernels_dtype kernels_isa kernels_loss kernels_norm kernels_quant
    kernels_variants model decode jsonl bpe_encoder"
# What tile registers make different: vector loops are those of AVX-512. And
# AVX-VNNI, which is emulated as they are: products of generation, a part of the
# test, since each of these instructions takes a signal.
tiled="$products decode kernels_isa kernels_pairs kernels_quant model"
vex=kernels_quant
if [ "${GPT_TEST_ISAS:-}" = all ]; then
    own="$own model_chunks model_parallel model_recompute generate step"
    products=$own
fi
for setting in GPT_CPU_ISA=base GPT_CPU_ISA=avx2 GPT_CPU_ISA=avx2vnni \
    GPT_CPU_ISA=avx512 GPT_CPU_ISA=avx512vnni GPT_CPU_ISA=avx512bf16 GPT_CPU_ISA=amx \
    ONEDNN_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX512_CORE \
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16; do
    passes_build=$BUILD
    unset GPT_TEST_SHORT
    case $setting in
    GPT_CPU_ISA=amx)
        passes_build=$BUILD/tiles
        tests=$tiled
        ;;
    GPT_CPU_ISA=avx2vnni)
        passes_build=$BUILD/tiles
        tests=$vex
        GPT_TEST_SHORT=1
        export GPT_TEST_SHORT
        ;;
    GPT_CPU_ISA=*) tests=$own ;;
    *) tests=$products ;;
    esac
    for name in $tests; do
        passes "$setting" "$name" "$passes_build/tests/unit/test_$name.t"
    done
    [ "${GPT_TEST_ISAS:-}" = all ] || continue
    for name in t47-weights t57-precision; do
        passes "$setting" "${name%%-*}" sh "tests/cli/$name.sh"
    done
done
tap_done
