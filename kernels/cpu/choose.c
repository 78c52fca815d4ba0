/* Which instruction set and which matrix product are used: the best that the
 * processor has and the build knows, or what the environment forces. */
#include "cpu/product.h"

#include "base/cpu.h"

#include <assert.h>
#include <string.h>

extern const struct cpu_isa cpu_table_base, cpu_table_avx2, cpu_table_avx512;

const struct cpu_isa *cpu_isa = &cpu_table_base;
bool cpu_use_dnnl, cpu_use_dnnl_bf16;

/* Best first. */
static const struct {
    const char *name;
    const struct cpu_isa *table;
} sets[] = {
#ifdef GPT_HAVE_ISA_avx512
    {"avx512", &cpu_table_avx512},
#else
    {"avx512", NULL},
#endif
#ifdef GPT_HAVE_ISA_avx2
    {"avx2", &cpu_table_avx2},
#else
    {"avx2", NULL},
#endif
    {"base", &cpu_table_base},
};

int cpu_choose(const char *isa, const char *matmul, struct gpt_err *err)
{
    /* A name that is not known is a mistake of the user's; one that is known
     * and not there is a limit of the machine: two different statuses. */
    const struct cpu_isa *found = NULL;
    bool known = !isa;

    for (size_t i = 0; i < GPT_COUNT(sets) && !found; i++) {
        bool wanted = !isa || strcmp(isa, sets[i].name) == 0;

        known |= wanted;
        if (wanted && gpt_cpu_has(sets[i].name))
            found = sets[i].table;
    }
    if (!known)
        return gpt_fail(err, GPT_EUSAGE,
                        "GPT_CPU_ISA: '%s' is not base, avx2 or avx512", isa);
    if (!found)
        return gpt_fail(err, GPT_EDEVICE,
                        "GPT_CPU_ISA: this processor or build has no %s", isa);
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
    if (!matmul && strcmp(found->name, "avx2") == 0)
        dnnl = false; /* our tiles are as fast there, and never slow */
    else if (matmul && strcmp(matmul, "portable") == 0)
        dnnl = false;
    /* Nothing is changed before everything is known to be right: tests call
     * this with wrong names and go on. */
    assert(found->mr <= CPU_MR_MAX && found->nr <= CPU_NR_MAX);
    cpu_isa = found;
    cpu_use_dnnl = dnnl;
    /* An instruction set that was forced applies to bf16, too: oneDNN would
     * take the best that it finds itself. */
    cpu_use_dnnl_bf16 = !isa && !(matmul && strcmp(matmul, "portable") == 0) &&
                        cpu_library_bf16();
    return GPT_OK;
}
