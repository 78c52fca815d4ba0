/* Instruction sets: see cpu.h. The flags asked for here are those that the
 * Makefile compiles kernels/cpu/isa/ with. */
#include "base/cpu.h"

const char *gpt_cpu_isa(void)
{
#ifdef GPT_HAVE_ISA_avx512
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
        return "avx512";
#endif
#ifdef GPT_HAVE_ISA_avx2
    /* Every processor with AVX2 and FMA has F16C. */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "avx2";
#endif
    return "base";
}
