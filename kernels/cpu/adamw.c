/* AdamW in one pass over flat buffers. The arithmetic of an element does not
 * depend on how the pass is cut, so any number of threads gives the same. */
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
static int64_t segment_of(const struct gpt_adamw *op, int64_t i)
{
    int64_t lo = 0, hi = op->n_segments;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (op->segments[mid].begin <= i)
            lo = mid;
        else
            hi = mid;
    }
    assert(hi == 0 || op->segments[lo].begin <= i);
    return lo;
}

/* Elements begin .. end - 1, segment by segment. Without segments nothing is
 * decayed. A factor of exactly 1 takes the place of a test in the inner
 * loop. */
static void update_chunk(const struct gpt_adamw *op, struct cpu_adamw_rates r,
                         int64_t begin, int64_t end)
{
    float keep = r.keep;

    while (begin < end) {
        int64_t s = segment_of(op, begin), stop = end;
        bool decay = op->n_segments > 0 && op->segments[s].decay;

        if (s + 1 < op->n_segments && op->segments[s + 1].begin < stop)
            stop = op->segments[s + 1].begin;
        r.keep = decay ? keep : 1;
        update_range(op, &r, begin, stop);
        begin = stop;
    }
}

void cpu_adamw(struct gpt_queue *q, const struct gpt_adamw *op)
{
    bool narrow = op->p_act && op->act == GPT_BF16;

    if (!cpu_ready(q, "adamw", op->p_act && !narrow ? op->act : GPT_F32))
        return;
    /* 64 KiB of each of four arrays: they fit the second cache together, and a
     * chunk is long enough to be worth a task. */
    enum { CHUNK = 1 << 14 };
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
