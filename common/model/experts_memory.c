/* Where the tables of a layer's experts are in a block of memory: stages and
 * the decoder lay them out alike. See experts.h. */
#include "model/experts.h"

#include "base/memory.h"
#include "base/num.h"

/* The next so many elements of four bytes; NULL without memory. */
static void *take(char *base, int64_t *at, int64_t elements)
{
    const int64_t from = *at;

    *at += gpt_round_up(elements * 4, GPT_ALIGN);
    return base ? base + from : NULL;
}

/* Sizes are far below what overflows: pairs are numbered by int32, and experts
 * are some thousand. */
int64_t gpt_experts_lay_out(struct gpt_expert_acts *a,
                            const struct gpt_config *c, int64_t n, void *base)
{
    const int64_t pairs = n * c->moe_router_topk;
    int64_t at = 0;

    a->logits = take(base, &at, n * c->num_experts);
    a->weight = take(base, &at, pairs);
    a->expert = take(base, &at, pairs);
    a->begin = take(base, &at, c->num_experts + 1);
    a->source = take(base, &at, pairs);
    a->place = take(base, &at, pairs);
    a->gate = c->moe_shared_expert_gate ? take(base, &at, n) : NULL;
    return at;
}
