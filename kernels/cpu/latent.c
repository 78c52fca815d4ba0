/* Queries, keys and values of latent attention, between the forms of its
 * products and that of attention; see struct gpt_latent for the order of
 * things. All of it is copies, but for the gradient of the keys' shared part.
 * Start at cpu_latent_join(). */
#include "cpu/cpu.h"

#include <omp.h>
#include <string.h>

/* Bytes of a head's parts, and of its query or key. */
struct widths {
    size_t nope, turned, value, d;
};

static struct widths widths_of(const struct gpt_latent *op)
{
    const size_t each = gpt_dtype_bytes(op->act);

    return (struct widths){(size_t)op->nope * each, (size_t)op->turned * each,
                           (size_t)op->value * each,
                           (size_t)(op->nope + op->turned) * each};
}

/* About how long rows take, in nanoseconds. */
static int64_t time_of(const struct gpt_latent *op)
{
    return op->n * op->h * (op->nope + op->turned);
}

/* Head `row` of all tokens' heads. */
static void join_head(const struct gpt_latent *op, int64_t row)
{
    const struct widths w = widths_of(op);
    const size_t at = (size_t)row;
    const char *q = (const char *)op->q + at * w.d;
    const char *k = (const char *)op->k + at / (size_t)op->h * w.turned;
    const char *kv = (const char *)op->kv + at * (w.nope + w.value);
    char *to = (char *)op->qkv + at * 3 * w.d;

    memcpy(to, q + w.nope, w.turned);
    memcpy(to + w.turned, q, w.nope);
    to += w.d;
    memcpy(to, k, w.turned);
    to += w.turned; /* what follows is in the order of kv */
    memcpy(to, kv, w.nope + w.value);
    memset(to + w.nope + w.value, 0, w.d - w.value);
}

void cpu_latent_join(struct gpt_queue *q, const struct gpt_latent *op)
{
    if (!cpu_ready_narrow(q, "latent_join", op->act))
        return;
    /* heads, not tokens: one token has enough for several threads */
#pragma omp parallel for schedule(static) if (cpu_worth_threads(time_of(op)))
    for (int64_t row = 0; row < op->n * op->h; row++)
        join_head(op, row);
}

static void split_head(const struct gpt_latent *op,
                       const struct gpt_latent_grad *grad, int64_t row)
{
    const struct widths w = widths_of(op);
    const size_t at = (size_t)row;
    const char *from = (const char *)grad->dqkv + at * 3 * w.d;
    char *dq = (char *)grad->dq + at * w.d;
    char *dkv = (char *)grad->dkv + at * (w.nope + w.value);

    memcpy(dq, from + w.turned, w.nope);
    memcpy(dq + w.nope, from, w.turned);
    memcpy(dkv, from + w.d + w.turned, w.nope + w.value);
}

/* Adds up what a token's heads give to their shared part. room: floats, twice
 * as many as turn. */
static void sum_keys(const struct gpt_latent *op,
                     const struct gpt_latent_grad *grad, int64_t n, float *room)
{
    const struct widths w = widths_of(op);
    const char *from = (const char *)grad->dqkv +
                       (size_t)(n * op->h) * 3 * w.d + w.d;
    const float one = 1;
    float *sum = room, *wide = room + op->turned;

    memset(sum, 0, (size_t)op->turned * sizeof(*sum));
    for (int64_t h = 0; h < op->h; h++, from += 3 * w.d) {
        const void *row = from;

        if (op->act == GPT_BF16) {
            cpu_isa->widen(wide, row, op->turned);
            row = wide;
        }
        cpu_isa->combine(sum, &one, row, op->turned, op->turned, 1);
    }
    cpu_convert((char *)grad->dk + (size_t)n * w.turned, op->act, sum, GPT_F32,
                op->turned);
}

void cpu_latent_split(struct gpt_queue *q, const struct gpt_latent *op,
                      const struct gpt_latent_grad *grad)
{
    const int64_t each = 2 * op->turned;
    float *room;

    if (!cpu_ready_narrow(q, "latent_split", op->act) ||
        !(room = cpu_work(q, (size_t)(each * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(time_of(op)))
    for (int64_t n = 0; n < op->n; n++) {
        for (int64_t h = 0; h < op->h; h++)
            split_head(op, grad, n * op->h + h);
        sum_keys(op, grad, n, room + omp_get_thread_num() * each);
    }
}

void cpu_fit_columns(struct gpt_queue *q, void *y, int64_t to, const void *x,
                     int64_t from, int64_t n, enum gpt_dtype act)
{
    const size_t each = gpt_dtype_bytes(act);
    const size_t both = (size_t)(to < from ? to : from) * each;

    if (!cpu_ready_narrow(q, "fit_columns", act))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n * to / 4))
    for (int64_t i = 0; i < n; i++) {
        char *row = (char *)y + (size_t)(i * to) * each;

        memcpy(row, (const char *)x + (size_t)(i * from) * each, both);
        memset(row + both, 0, (size_t)to * each - both);
    }
}
