/* The layout of a microbatch in memory; see microbatch.h. Parts are aligned, so
 * that device kernels may read each as vectors. */
#include "model/microbatch.h"

#include "base/memory.h"
#include "base/num.h"

static int64_t part_bytes(int64_t rows)
{
    return gpt_round_up(rows * (int64_t)sizeof(int32_t), GPT_ALIGN);
}

/* The first GPT_ALIGN bytes hold sample0, then come the five parts. */
int64_t gpt_microbatch_bytes(int64_t rows)
{
    return GPT_ALIGN + 5 * part_bytes(rows);
}

/* The address of part i of a block. */
static void *part_at(char *base, int64_t rows, int64_t i)
{
    return base ? base + GPT_ALIGN + i * part_bytes(rows) : NULL;
}

void gpt_microbatch_lay_out(struct gpt_microbatch_block *b, void *base,
                            int64_t rows)
{
    b->sample0 = base;
    b->input = part_at(base, rows, 0);
    b->target = part_at(base, rows, 1);
    b->position = part_at(base, rows, 2);
    b->doc_start = part_at(base, rows, 3);
    b->weight = part_at(base, rows, 4);
}
