/* AdamW and gradient descent in one pass over flat buffers. The arithmetic of
 * an element does not depend on how the pass is cut, so any number of threads
 * gives the same. */
#include "cpu/cpu.h"

#include <assert.h>
#include <math.h>

/* The copy in p_act is made while the new parameters are in the cache, so that
 * they cross the memory bus once. In float, p_act may be p itself. */
static void update_range(const struct gpt_adamw *op,
                         const struct cpu_adamw_rates *r, int64_t begin,
                         int64_t end)
{
    cpu_isa->adamw(op->p + begin, op->m + begin, op->v + begin, op->g + begin,
                   end - begin, r);
    if (op->p_act && op->p_act != op->p)
        cpu_convert((char *)op->p_act +
                        (size_t)begin * gpt_dtype_bytes(op->act),
                    op->act, op->p + begin, GPT_F32, end - begin);
}

/* The segment that holds element i: the last one beginning at or before it. */
static int64_t segment_of(const struct gpt_decay_segment *segments, int64_t n,
                          int64_t i)
{
    int64_t lo = 0, hi = n;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (segments[mid].begin <= i)
            lo = mid;
        else
            hi = mid;
    }
    assert(hi == 0 || segments[lo].begin <= i);
    return lo;
}

/* Cuts [begin, end) at the end of the segment that it begins in, and sets
 * *decay to that segment's. Without segments nothing is decayed. */
static int64_t cut_segment(const struct gpt_decay_segment *segments, int64_t n,
                           int64_t begin, int64_t end, bool *decay)
{
    const int64_t s = segment_of(segments, n, begin);

    *decay = n > 0 && segments[s].decay;
    return s + 1 < n && segments[s + 1].begin < end ? segments[s + 1].begin
                                                    : end;
}

/* Updates elements begin .. end - 1, segment by segment. Factors of exactly 1
 * and 0 take the place of tests in the inner loop. */
static void update_chunk(const struct gpt_adamw *op, struct cpu_adamw_rates r,
                         int64_t begin, int64_t end)
{
    const float keep = op->coupled ? 1 : r.keep;
    const float couple = op->coupled ? (float)op->weight_decay : 0;

    while (begin < end) {
        bool decay;
        const int64_t stop =
            cut_segment(op->segments, op->n_segments, begin, end, &decay);

        r.keep = decay ? keep : 1;
        r.couple = decay ? couple : 0;
        update_range(op, &r, begin, stop);
        begin = stop;
    }
}

/* 64 KiB of each of four arrays: they fit the second cache together, and a
 * chunk is long enough to be worth a task. */
enum { CHUNK = 1 << 14 };

void cpu_adamw(struct gpt_queue *q, const struct gpt_adamw *op)
{
    bool narrow = op->p_act && op->act == GPT_BF16;

    if (!cpu_ready(q, "adamw", op->p_act && !narrow ? op->act : GPT_F32))
        return;
    /* The factors are computed in double once: 1 - beta2^t of float would have
     * lost its leading digits in the first steps, when beta2^t is near 1. */
    double t = (double)op->step;
    struct cpu_adamw_rates r = {
        .b1 = (float)op->beta1,
        .b2 = (float)op->beta2,
        .one_b1 = (float)(1 - op->beta1),
        .one_b2 = (float)(1 - op->beta2),
        .step_size = (float)(op->lr / (1 - pow(op->beta1, t))),
        .inv_bias2 = (float)(1 / (1 - pow(op->beta2, t))),
        .eps = (float)op->eps,
        .grad_scale = (float)op->grad_scale,
        .keep = (float)(1 - op->lr * op->weight_decay),
    };
#pragma omp parallel for schedule(static) if (cpu_worth_threads(2 * op->n))
    for (int64_t at = 0; at < op->n; at += CHUNK)
        update_chunk(op, r, at, op->n - at < CHUNK ? op->n : at + CHUNK);
}

/* ---- gradient descent, and mixtures ---- */

static void descend_range(const struct gpt_sgd *op, int64_t begin, int64_t end,
                          float decay)
{
    const float lr = (float)op->lr, momentum = (float)op->momentum;
    const float scale = (float)op->grad_scale;

    for (int64_t i = begin; i < end; i++) {
        float step = op->g[i] * scale + decay * op->p[i];

        if (op->m)
            step = op->m[i] = momentum * op->m[i] + step;
        op->p[i] -= lr * step;
    }
    if (op->p_act && op->p_act != op->p)
        gpt_convert((char *)op->p_act +
                        (size_t)begin * gpt_dtype_bytes(op->act),
                    op->act, op->p + begin, GPT_F32, (size_t)(end - begin));
}

static void descend_chunk(const struct gpt_sgd *op, int64_t begin, int64_t end)
{
    while (begin < end) {
        bool decay;
        const int64_t stop =
            cut_segment(op->segments, op->n_segments, begin, end, &decay);

        descend_range(op, begin, stop, decay ? (float)op->weight_decay : 0);
        begin = stop;
    }
}

void cpu_sgd(struct gpt_queue *q, const struct gpt_sgd *op)
{
    bool narrow = op->p_act && op->act == GPT_BF16;

    if (!cpu_ready(q, "sgd", op->p_act && !narrow ? op->act : GPT_F32))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(2 * op->n))
    for (int64_t at = 0; at < op->n; at += CHUNK)
        descend_chunk(op, at, op->n - at < CHUNK ? op->n : at + CHUNK);
}

void cpu_mix(struct gpt_queue *q, const struct gpt_mix *op)
{
    const float *x = op->x, *y = op->y;
    double a = op->a;

    if (!cpu_ready(q, "mix", GPT_F32))
        return;
    /* the division is made in double once, not in float for every element */
    if (op->squares)
        a /= fmax(sqrt(*op->squares), op->least);
    const float fx = (float)a, fy = (float)op->b;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n))
    for (int64_t i = 0; i < op->n; i++)
        op->out[i] = y ? fx * x[i] + fy * y[i] : fx * x[i];
}
