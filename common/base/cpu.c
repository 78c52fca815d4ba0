/* Instruction sets: see cpu.h. What is asked for here is what the Makefile
 * compiles kernels/cpu/isa/ with. */
#include "base/cpu.h"

#include <stdlib.h>
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

static bool has_avx2vnni(void)
{
#ifdef GPT_HAVE_ISA_avx2vnni
    return has_avx2() && gpt_cpu_has_vnni();
#else
    return false;
#endif
}

/* True for all four parts that the flags in the Makefile let the compiler use:
 * some processors have F alone. */
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

static bool has_amx(void)
{
    return has_avx512bf16() && gpt_cpu_has_tiles();
}

static bool has_base(void)
{
    return true;
}

/* All sets, the best one last. `loops` is the set whose vector loops a set
 * uses; a set that names another one has products of its own alone. */
static const struct {
    const char *name, *loops;
    bool (*is_there)(void);
} sets[] = {
    {"base", "base", has_base},
    {"avx2", "avx2", has_avx2},
    {"avx2vnni", "avx2", has_avx2vnni},
    {"avx512", "avx512", has_avx512},
    {"avx512vnni", "avx512", has_avx512vnni},
    {"avx512bf16", "avx512", has_avx512bf16},
    {"amx", "avx512", has_amx},
};
enum { N_SETS = GPT_COUNT(sets), AVX512 = 3 };

/* The row of a name; N_SETS where there is none. */
static size_t find(const char *isa)
{
    size_t i = 0;

    while (i < N_SETS && strcmp(isa, sets[i].name) != 0)
        i++;
    return i;
}

bool gpt_cpu_has(const char *isa)
{
    const size_t i = find(isa);

    return i < N_SETS && sets[i].is_there();
}

/* An empty variable counts as unset: scripts empty a variable where they cannot
 * unset it. GPT_THREADS and GPT_CONFIG are read so, too. */
const char *gpt_cpu_named(void)
{
    const char *named = getenv("GPT_CPU_ISA");

    return named && *named ? named : NULL;
}

/* A name that is not known is a mistake of the user's; one that is known and
 * not there is a limit of the machine: two different statuses. */
int gpt_cpu_check(const char *isa, struct gpt_err *err)
{
    const size_t i = isa ? find(isa) : 0;

    if (i == N_SETS)
        return gpt_fail(err, GPT_EUSAGE,
                        "GPT_CPU_ISA: '%s' is not base, avx2, avx2vnni, "
                        "avx512, avx512vnni, avx512bf16 or amx", isa);
    return sets[i].is_there()
               ? GPT_OK
               : gpt_fail(err, GPT_EDEVICE,
                          "GPT_CPU_ISA: this processor or build has no %s",
                          isa);
}

/* The best row up to `most`, and up to the environment's. A name that is no set
 * limits nothing here: gpt_cpu_check() refuses it. */
static size_t best(size_t most)
{
    const char *named = gpt_cpu_named();
    size_t i = named ? find(named) : most;

    if (i > most)
        i = most;
    while (!sets[i].is_there())
        i--;
    return i;
}

const char *gpt_cpu_best(void)
{
    return sets[best(N_SETS - 1)].name;
}

const char *gpt_cpu_isa(void)
{
    return sets[best(AVX512)].loops;
}

int gpt_cpu_loops(void)
{
    static const char *const loops[] = {"base", "avx2", "avx512"};
    int i = GPT_COUNT(loops) - 1;

    while (i > 0 && strcmp(gpt_cpu_isa(), loops[i]) != 0)
        i--;
    return i;
}
