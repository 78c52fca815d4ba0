/* Causal self-attention, forward: heads and runs of queries are cut over the
 * threads; attn_head.c does the work. */
#include "cpu/attn.h"

#include <omp.h>

void cpu_attn_view(const struct gpt_attn *op, int64_t b, int64_t h,
                   struct attn_head *head)
{
    int64_t per = op->h / op->g, d = op->d, t = op->t;
    int64_t ld = op->g * (per + 2) * d;
    const float *group =
        (const float *)op->qkv + b * t * ld + h / per * (per + 2) * d;
    int64_t sample = cpu_sample0(&op->dropout) + b;
    /* The dropout counter counts heads of the whole model and samples of the
     * whole batch, so that masks do not depend on the layout of ranks. */
    int64_t all_heads = sample * op->h_global + op->head0;

    *head = (struct attn_head){
        .d = d,
        .nq = t,
        .ldq = ld,
        .ldk = ld,
        .ldv = ld,
        .ldo = op->h * d,
        .q = group + h % per * d,
        .k = group + per * d,
        .v = group + (per + 1) * d,
        .out = (float *)op->out + (b * t * op->h + h) * d,
        .lse = op->lse + (b * op->h + h) * t,
        .start = op->doc_start ? op->doc_start + b * t : NULL,
        .scale = op->scale,
        .slope = attn_slope(op->alibi, op->head0 + h, op->h_global, op->scale),
        .window = op->window,
        .cap = op->softcap,
        .drop_at = (uint64_t)((all_heads + h) * t * t),
        .drop_row = t,
    };
}

/* Queries of one task: enough of them to pay for packing the keys again. */
enum { RUN = 4 * ATTN_BQ };

void cpu_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    if (!cpu_ready(q, "attn_fwd", op->act))
        return;
    /* Every thread has a place for the longest task, whichever it gets. */
    size_t each = cpu_attn_work(op->t, op->d);
    float *work = cpu_work(q, each * (size_t)omp_get_max_threads());
    if (!work)
        return;
    struct cpu_drop drop = {0};
    if (op->dropout.p > 0)
        drop = cpu_drop_of(&op->dropout);
    int64_t runs = gpt_ceil_div(op->t, RUN), heads = op->b * op->h;
    /* The causal mask leaves half of the T x T scores. */
    int64_t pairs = op->b * op->h * op->t * op->t / 2;
    /* A task's result depends on its own queries only, so the order in which a
     * dynamic schedule hands out tasks cannot be seen in the result. */
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(pairs * (op->d / 8 + 1)))
    for (int64_t i = 0; i < heads * runs; i++) {
        struct attn_head h;
        /* long runs of keys first: the last tasks are short */
        int64_t head = i % heads, from = (runs - 1 - i / heads) * RUN;

        cpu_attn_view(op, head / op->h, head % op->h, &h);
        h.q0 = from;
        /* The run sees the keys before it, too: q0 says how many they are. */
        h.nq = op->t - from < RUN ? op->t - from : RUN;
        h.q += from * h.ldq;
        h.out += from * h.ldo;
        h.lse += from;
        h.start = h.start ? h.start + from : NULL;
        h.drop = op->dropout.p > 0 ? &drop : NULL;
        h.drop_at += (uint64_t)(from * h.drop_row);
        cpu_attn_head(&h, work + (size_t)omp_get_thread_num() * each);
    }
}
