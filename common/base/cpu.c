/* Instruction sets: see cpu.h. What is asked for here is what the Makefile
 * compiles kernels/cpu/isa/ with. */
#include "base/cpu.h"

#include <string.h>

/* Every processor with AVX2 and FMA has F16C. */
static bool has_avx2(void)
{
#ifdef GPT_HAVE_ISA_avx2
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

/* All four parts that the flags in the Makefile let the compiler use: some
 * processors have F alone. */
static bool has_avx512(void)
{
#ifdef GPT_HAVE_ISA_avx512
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

bool gpt_cpu_has(const char *isa)
{
    if (strcmp(isa, "avx512") == 0)
        return has_avx512();
    if (strcmp(isa, "avx2") == 0)
        return has_avx2();
    return strcmp(isa, "base") == 0;
}

const char *gpt_cpu_isa(void)
{
    return has_avx512() ? "avx512" : has_avx2() ? "avx2" : "base";
}
