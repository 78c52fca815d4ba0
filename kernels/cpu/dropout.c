/* Dropout by counter: the mask is a pure function of the element's index. */
#include "cpu/cpu.h"

uint64_t cpu_drop_index(const struct gpt_dropout *d, int64_t row, int64_t c)
{
    int64_t sample = d->sample0 + row / d->t_local;
    int64_t t = d->t0 + row % d->t_local;
    return (uint64_t)((sample * d->t_global + t) * c);
}

void cpu_drop_row(float *y, const float *x, int64_t n, struct gpt_rng rng,
                  uint64_t index, float p)
{
    float scale = 1 / (1 - p);
    for (int64_t i = 0; i < n; i++) {
        bool drop = gpt_rng_uniform(rng, index + (uint64_t)i) < p;
        y[i] = drop ? 0 : x[i] * scale;
    }
}

void cpu_dropout(struct gpt_queue *q, void *y, const void *x, int64_t n,
                 int64_t c, enum gpt_dtype act, const struct gpt_dropout *d)
{
    if (!cpu_ready(q, "dropout", act))
        return;
    float *out = y;
    const float *in = x;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        if (d->p > 0)
            cpu_drop_row(out + i * c, in + i * c, c, d->rng,
                         cpu_drop_index(d, i, c), d->p);
        else
            for (int64_t j = 0; j < c; j++)
                out[i * c + j] = in[i * c + j];
}
