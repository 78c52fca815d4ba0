/* Dropout by counter: the mask is a pure function of the element's index. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Counts over the whole sequence and batch, not over this block: the element
 * has the same number on whichever rank and in whichever micro-batch it is
 * computed. */
uint64_t cpu_drop_index(const struct gpt_dropout *d, int64_t row, int64_t c)
{
    int64_t sample = cpu_sample0(d) + row / d->t_local;
    int64_t t = d->t0 + row % d->t_local;

    return (uint64_t)((sample * d->t_global + t) * c);
}

struct cpu_drop cpu_drop_of(const struct gpt_dropout *d)
{
    /* gpt_rng_uniform() makes u * 2^-24 of the upper 24 bits of a word.
     * Comparing integers instead of floats saves a conversion and cannot round.
     * u * 2^-24 < p, for an integer u */
    return (struct cpu_drop){.key = {d->rng.key[0], d->rng.key[1]},
                             .below = (uint32_t)ceil((double)d->p * 0x1p24),
                             .scale = 1 / (1 - d->p)};
}

void cpu_dropout(struct gpt_queue *q, void *y, const void *x, int64_t n,
                 int64_t c, enum gpt_dtype act, const struct gpt_dropout *d)
{
    if (!cpu_ready(q, "dropout", act))
        return;
    struct cpu_drop drop = {0};
    if (d->p > 0)
        drop = cpu_drop_of(d);
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n * c))
    for (int64_t i = 0; i < n; i++) {
        float *out = (float *)y + i * c;
        const float *in = (const float *)x + i * c;

        if (d->p > 0)
            cpu_isa->drop(out, in, c, &drop, cpu_drop_index(d, i, c));
        else
            /* y may be x */
            memmove(out, in, (size_t)c * sizeof(*out));
    }
}
