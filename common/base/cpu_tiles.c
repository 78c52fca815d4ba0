/* Whether there are tile registers, and AVX-VNNI: see cpu.h. A file of its own,
 * so that a test can put an emulator into its place (tests/lib/tiles.c). */
#include "base/cpu.h"

#ifdef GPT_HAVE_ISA_avx2vnni

#include <cpuid.h>

/* By the number of the bit, as clang 14 has no name for it. */
bool gpt_cpu_has_vnni(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

#else

bool gpt_cpu_has_vnni(void)
{
    return false;
}

#endif

#ifdef GPT_HAVE_ISA_amx

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tile registers are large: Linux grants them to processes that ask. XCR0 tells
 * whether the kernel keeps them at all. */
bool gpt_cpu_has_tiles(void)
{
    enum { PERMIT = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
    unsigned a, b, c, d, low, high;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        (d >> 22 & 13) != 13) /* AMX-BF16, AMX-TILE, AMX-INT8 */
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> 17 & 3) == 3 &&
           syscall(SYS_arch_prctl, PERMIT, TILE_DATA) == 0;
}

#else

bool gpt_cpu_has_tiles(void)
{
    return false;
}

#endif
