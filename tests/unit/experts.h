/* For the tests of a feed-forward of experts: tokens that a router has given
 * their experts. Start at new_layer(). */
#ifndef GPT_TESTS_EXPERTS_H
#define GPT_TESTS_EXPERTS_H

#include "tests/unit/rows.h"

/* ---- a router ---- */

struct layer {
    struct gpt_router op;
    float *out; /* what route() writes: weights, then the lists */
    int64_t words;
    float *logits;
    void *bias;
    enum gpt_dtype act;
};

__attribute__((unused)) static struct gpt_expert_rows
rows_of(const struct layer *l, int64_t first, int64_t count)
{
    return (struct gpt_expert_rows){
        .n = l->op.n, .k = l->op.k, .first = first, .count = count,
        .act = l->act, .begin = l->op.begin,
        .source = l->op.source, .place = l->op.place, .weight = l->op.weight};
}

static void run_route(void *ctx)
{
    struct layer *l = ctx;

    spoil(l->out, l->words);
    be->route(q, &l->op);
}

static int32_t *ints(float *x)
{
    return (int32_t *)(void *)x;
}

static struct layer new_layer(int64_t n, int64_t e, int64_t k,
                              enum gpt_dtype act)
{
    struct layer l = {.act = act, .words = 4 * n * k + e + 1};

    l.out = poisoned(l.words);
    l.logits = rnd_floats(n * e, 3);
    l.op = (struct gpt_router){
        .n = n, .e = e, .k = k, .scaling = 1, .act = act, .logits = l.logits,
        .weight = l.out, .expert = ints(l.out + n * k),
        .source = ints(l.out + 2 * n * k), .place = ints(l.out + 3 * n * k),
        .begin = ints(l.out + 4 * n * k)};
    return l;
}

static void free_layer(struct layer *l)
{
    free(l->out), free(l->logits), free(l->bias);
}

/* Rows of the experts here. */
__attribute__((unused)) static int64_t here(const struct gpt_expert_rows *r)
{
    return r->begin[r->first + r->count] - r->begin[r->first];
}

/* Takes some tokens from some experts, so that they have none. */
static void leave_out(struct layer *l)
{
    const int64_t e = l->op.e, k = l->op.k;

    for (int64_t i = 0; i < l->op.n * e; i++)
        if (e > k && i % e % 3 == 1 && i % e < e - k)
            l->logits[i] -= 40;
}

/* Shapes (N, E, K) of all kinds. */
static const int64_t experts_shapes[][3] = {
    {1, 1, 1}, {7, 2, 2}, {1, 8, 2}, {33, 8, 3}, {100, 5, 1},
    {40, 64, 6}, {5, 130, 64}, {0, 4, 2}};

#endif
