/* Kinds of memory, one row each; see memory_kinds.h. */
#include "model/memory_kinds.h"

#include <assert.h>

/* A kind is the host's when it is allocated with host_alloc() or malloc(), and
 * not by the device's alloc(). */
static const struct {
    const char *name;
    bool host; /* not the device's, whatever the device */
} kinds[GPT_N_MEMORY_KINDS] = {
    [GPT_MEM_PARAMETERS] = {"parameters", false},
    [GPT_MEM_GRADIENTS] = {"gradients", false},
    [GPT_MEM_OPTIMIZER] = {"optimizer state", false},
    [GPT_MEM_ACTIVATIONS] = {"activations", false},
    [GPT_MEM_LOGITS] = {"logits", false},
    [GPT_MEM_WORKSPACE] = {"workspace", false},
    [GPT_MEM_INPUTS] = {"inputs", false},
    [GPT_MEM_SAMPLES] = {"sample index", true},
    [GPT_MEM_BATCHES] = {"batches", true},
    [GPT_MEM_EXCHANGE] = {"exchange", true},
    [GPT_MEM_SAVING] = {"saving", true},
};

const char *gpt_memory_kind_name(enum gpt_memory_kind kind)
{
    assert(kind >= 0 && kind < GPT_N_MEMORY_KINDS);
    return kinds[kind].name;
}

/* Sums all kinds, or those of the device. One loop serves both sums, so that a
 * new kind cannot be forgotten in one of them. */
static double sum_kinds(const struct gpt_memory *memory, bool with_host)
{
    double sum = 0;

    for (int i = 0; i < GPT_N_MEMORY_KINDS; i++)
        if (with_host || !kinds[i].host)
            sum += (double)memory->bytes[i];
    return sum;
}

double gpt_memory_total(const struct gpt_memory *memory)
{
    return sum_kinds(memory, true);
}

double gpt_memory_device(const struct gpt_memory *memory,
                         const struct gpt_backend *be)
{
    /* a CPU's memory is the host's: everything counts against the same limit */
    return sum_kinds(memory, be->host_memory);
}
