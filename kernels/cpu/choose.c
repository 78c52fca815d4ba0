/* Which instruction set and which matrix product are used: the best that the
 * processor has and the build knows, or what the environment forces. */
#include "cpu/few/few.h"
#include "cpu/many/many.h"
#include "cpu/pair/pair.h"
#include "cpu/product.h"

#include "base/cpu.h"

#include <assert.h>
#include <string.h>

extern const struct cpu_isa cpu_table_base, cpu_table_avx2, cpu_table_avx512;

const struct cpu_isa *cpu_isa = &cpu_table_base;
const struct cpu_pairs *cpu_pairs;
const struct cpu_few *cpu_few;
const struct cpu_many *cpu_many;
bool cpu_use_dnnl, cpu_use_dnnl_bf16, cpu_float_panels;

/* The instruction sets of this build, best first; gpt_cpu_has() knows the same
 * ones. The sets of products of narrow numbers take their vector loops from the
 * set below them: AVX-VNNI from AVX2, since processors that have it lack
 * AVX-512, the others from AVX-512. AVX2 multiplies bytes as bytes for rounded
 * inputs alone. Weights of floats lie in panels where that was measured to be
 * faster. */
struct set {
    const char *name;
    const struct cpu_isa *table;
    const struct cpu_pairs *pairs;
    const struct cpu_few *few;
    const struct cpu_many *many;
    bool float_panels;
};
static const struct set sets[] = {
#ifdef GPT_HAVE_ISA_amx
    {"amx", &cpu_table_avx512, &cpu_pairs_amx, &cpu_few_amx, &cpu_many_amx,
     false},
#endif
#ifdef GPT_HAVE_ISA_avx512bf16
    {"avx512bf16", &cpu_table_avx512, &cpu_pairs_avx512bf16,
     &cpu_few_avx512bf16, &cpu_many_avx512bf16, true},
#endif
#ifdef GPT_HAVE_ISA_avx512vnni
    {"avx512vnni", &cpu_table_avx512, NULL, &cpu_few_avx512vnni,
     &cpu_many_avx512vnni, true},
#endif
#ifdef GPT_HAVE_ISA_avx512
    {"avx512", &cpu_table_avx512, NULL, &cpu_few_avx512, NULL, true},
#endif
#ifdef GPT_HAVE_ISA_avx2vnni
    {"avx2vnni", &cpu_table_avx2, NULL, &cpu_few_avx2vnni, &cpu_many_avx2vnni,
     true},
#endif
#ifdef GPT_HAVE_ISA_avx2
    {"avx2", &cpu_table_avx2, NULL, &cpu_few_avx2, &cpu_many_avx2, true},
#endif
    {"base", &cpu_table_base, NULL, NULL, NULL, false},
};

/* An emulator or a hypervisor may announce instructions that it does not carry
 * out rightly; a small product is tried before bf16 is trusted to them. Sums of
 * small whole numbers are exact, whatever their order. */
static bool multiplies(const struct cpu_pairs *pairs)
{
    enum { N = PAIR_PANEL, K = 2 * PAIR_CHUNK };
    _Alignas(64) uint16_t a[N * K], b[N * K];
    _Alignas(64) float c[N * N];
    uint16_t stored[N * K];
    struct cpu_pair_band band = {.from = stored, .ld = K, .rows = N,
                                 .columns = K, .to = a, .step = PAIR_VALUES,
                                 .along_k = true, .for_a = true};
    const struct cpu_pair_sweep sweep = {.still = a, .pass = b, .panels = 1,
                                         .chunks = K / PAIR_CHUNK,
                                         .still_a = true, .c = c, .ldc = N};

    for (int i = 0; i < N * K; i++)
        stored[i] = gpt_f32_to_bf16((float)(i % 13 - 6));
    pairs->pack(&band);
    band.to = b;
    band.for_a = false;
    pairs->pack(&band);
    pairs->begin();
    pairs->multiply(&sweep);
    pairs->end();
    for (int i = 0; i < N * N; i++) {
        int sum = 0;

        for (int l = 0; l < K; l++)
            sum += ((i / N * K + l) % 13 - 6) * ((i % N * K + l) % 13 - 6);
        if (c[i] != (float)sum)
            return false;
    }
    return true;
}

/* VDPBF16PS has half the rate of fused multiplications on Intel's processors,
 * and twice theirs on AMD's. Choosing by measurement would let bits depend on
 * the machine's load. */
static bool worth_choosing(const struct set *s)
{
#ifdef GPT_HAVE_ISA_avx512bf16
    return s->pairs != &cpu_pairs_avx512bf16 || __builtin_cpu_is("amd");
#else
    (void)s;
    return true;
#endif
}

static const struct set *find_set(const char *isa)
{
    for (size_t i = 0; i < GPT_COUNT(sets); i++) {
        const struct set *s = &sets[i];

        if ((isa ? strcmp(isa, s->name) == 0 : worth_choosing(s)) &&
            gpt_cpu_has(s->name) && (!s->pairs || multiplies(s->pairs)))
            return s;
    }
    return NULL;
}

/* Products that are tiles of ours though the build has oneDNN. By AVX2 they are
 * as fast, and never slow. Processors other than x86 have oneDNN's reference
 * code, which allocates memory in every product. */
static bool prefers_tiles(const struct set *s)
{
#ifdef __x86_64__
    return strcmp(s->table->name, "avx2") == 0;
#else
    (void)s;
    return true;
#endif
}

int cpu_choose(const char *isa, const char *matmul, struct gpt_err *err)
{
    GPT_TRY(gpt_cpu_check(isa, err));
    matmul = matmul && *matmul ? matmul : NULL;
    const struct set *found = find_set(isa);
    if (!found)
        return gpt_fail(err, GPT_EDEVICE,
                        "GPT_CPU_ISA: %s multiplies wrongly on this processor",
                        isa);
    bool dnnl = false;
#ifdef GPT_HAVE_DNNL
    dnnl = true;
#endif
    if (matmul && strcmp(matmul, "portable") != 0 &&
        strcmp(matmul, "dnnl") != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "GPT_CPU_MATMUL: '%s' is not dnnl or portable", matmul);
    if (matmul && strcmp(matmul, "dnnl") == 0 && !dnnl)
        return gpt_fail(err, GPT_EDEVICE,
                        "GPT_CPU_MATMUL: this build has no oneDNN");
    if (matmul ? strcmp(matmul, "portable") == 0 : prefers_tiles(found))
        dnnl = false;
    if (dnnl && !cpu_library_prepare())
        return gpt_fail(err, GPT_EDEVICE,
                        "cpu: out of memory: the code of oneDNN needs 64 MiB "
                        "of address space (ulimit -v)");
    /* Nothing is changed before everything is known to be right: tests call
     * this with wrong names and go on. */
    assert(found->table->mr <= CPU_MR_MAX && found->table->nr <= CPU_NR_MAX);
    cpu_isa = found->table;
    cpu_pairs = dnnl && matmul ? NULL : found->pairs;
    cpu_few = dnnl && matmul ? NULL : found->few;
    cpu_many = dnnl && matmul ? NULL : found->many;
    cpu_float_panels = found->float_panels;
    cpu_use_dnnl = dnnl;
    /* An instruction set that was forced applies to bf16, too: oneDNN would
     * take the best that it finds itself. */
    bool portable = matmul && strcmp(matmul, "portable") == 0;
    cpu_use_dnnl_bf16 =
        !isa && !cpu_pairs && !portable && cpu_library_bf16();
    return GPT_OK;
}
