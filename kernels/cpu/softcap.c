/* Capped logits: in place, with the derivative left for backward, which
 * multiplies by it; the product with one number; and numbers that are cut off
 * at a limit. Attention caps its own scores, tile by tile (attn.h). */
#include "cpu/cpu.h"

/* Elements of a task: a few pages, and a whole number of vectors, so that the
 * cut changes no result. */
enum { BLOCK = 4096 };

void cpu_softcap(struct gpt_queue *q, void *x, void *slope, int64_t n, float c,
                 enum gpt_dtype act)
{
    float *y = x, *d = slope;

    if (!cpu_ready(q, "softcap", act))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n))
    for (int64_t i = 0; i < n; i += BLOCK)
        cpu_isa->softcap(y + i, d ? d + i : NULL,
                         n - i < BLOCK ? n - i : BLOCK, 1 / c, c);
}

void cpu_times(struct gpt_queue *q, void *x, const void *y, int64_t n,
               enum gpt_dtype act)
{
    float *to = x;
    const float *by = y;

    if (!cpu_ready(q, "times", act))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n / 4))
    for (int64_t i = 0; i < n; i += BLOCK)
        cpu_isa->times(to + i, by + i, n - i < BLOCK ? n - i : BLOCK);
}

void cpu_scale(struct gpt_queue *q, void *x, int64_t n, float factor,
               enum gpt_dtype act)
{
    float *to = x;

    if (!cpu_ready(q, "scale", act))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n / 4))
    for (int64_t i = 0; i < n; i += BLOCK)
        cpu_isa->scale(to + i, n - i < BLOCK ? n - i : BLOCK, factor);
}

/* Written so that NaN stays one in both directions: a broken step must show. */
void cpu_clip(struct gpt_queue *q, void *x, int64_t n, float limit,
              enum gpt_dtype act)
{
    float *y = x;

    if (!cpu_ready(q, "clip", act))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n / 4))
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] > limit ? limit : y[i] < -limit ? -limit : y[i];
}

void cpu_clip_bwd(struct gpt_queue *q, void *d, const void *x, int64_t n,
                  float limit, enum gpt_dtype act)
{
    const float *y = x;
    float *to = d;

    if (!cpu_ready(q, "clip_bwd", act))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n / 4))
    for (int64_t i = 0; i < n; i++)
        to[i] = y[i] >= limit || y[i] <= -limit ? 0 : to[i];
}
