/* The rate of a pair of rotary positions after scaling: one formula for the CPU
 * and for GPUs; see struct gpt_rope_scaling in backend.h. */
#ifndef GPT_KERNELS_ROPE_SCALING_H
#define GPT_KERNELS_ROPE_SCALING_H

#include "backend.h"

#ifdef __CUDACC__
#define GPT_BOTH_SIDES __host__ __device__
#else
#define GPT_BOTH_SIDES
#endif

/* In double, like the rate that comes in: the caller rounds once. */
GPT_BOTH_SIDES static inline double gpt_rope_scaled(
    const struct gpt_rope_scaling *s, double rate, int64_t i)
{
    if (s->factor == 0)
        return rate;
    if (s->n_divisors > 0)
        return rate / (double)s->divisors[i];
    double x = s->by_rate == 0 ? (double)i : rate * s->by_rate;
    double kept = (x - s->from) / (s->to - s->from);

    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return rate * (kept + (1 - kept) / s->factor);
}

#endif
