/* Instruction sets: see cpu.h. What is asked for here is what the Makefile
 * compiles kernels/cpu/isa/ with. */
#include "base/cpu.h"

#include <stdlib.h>
#include <string.h>

#ifdef GPT_HAVE_ISA_amx
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

static bool has_avx512vnni(void)
{
#ifdef GPT_HAVE_ISA_avx512vnni
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

/* Every processor with AVX512-BF16 has AVX512-VNNI. */
static bool has_avx512bf16(void)
{
#ifdef GPT_HAVE_ISA_avx512bf16
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/* Tile registers are large: Linux grants them to processes that ask. XCR0 tells
 * whether the kernel keeps them at all. */
static bool has_amx(void)
{
#ifdef GPT_HAVE_ISA_amx
    enum { PERMIT = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
    unsigned a, b, c, d, low, high;

    if (!has_avx512bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        (d >> 22 & 13) != 13) /* AMX-BF16, AMX-TILE, AMX-INT8 */
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> 17 & 3) == 3 &&
           syscall(SYS_arch_prctl, PERMIT, TILE_DATA) == 0;
#else
    return false;
#endif
}

bool gpt_cpu_has(const char *isa)
{
    if (strcmp(isa, "amx") == 0)
        return has_amx();
    if (strcmp(isa, "avx512bf16") == 0)
        return has_avx512bf16();
    if (strcmp(isa, "avx512vnni") == 0)
        return has_avx512vnni();
    if (strcmp(isa, "avx512") == 0)
        return has_avx512();
    if (strcmp(isa, "avx2") == 0)
        return has_avx2();
    return strcmp(isa, "base") == 0;
}

/* A set that the environment names and the processor lacks is no choice here:
 * the CPU backend refuses it. */
const char *gpt_cpu_isa(void)
{
    const char *named = getenv("GPT_CPU_ISA");
    const bool base = named && strcmp(named, "base") == 0;
    const bool avx2 = named && strcmp(named, "avx2") == 0;

    if (!base && !avx2 && has_avx512())
        return "avx512";
    return !base && has_avx2() ? "avx2" : "base";
}
