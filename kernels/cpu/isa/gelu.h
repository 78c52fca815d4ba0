/* GELU in its tanh form goes through the logistic function: with
 * u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 + exp(-2u)),
 * 0.5 x (1 + tanh u) = x s, and its slope is s + 2 x s (1 - s) u'. */
#ifndef GPT_KERNELS_CPU_GELU_H
#define GPT_KERNELS_CPU_GELU_H

#include "cpu/isa/simd.h"

static const float root = 0.797884561f, cubic = 0.044715f;

/* Held above e^-80: smaller values add nothing, and subnormal numbers would
 * come out of their products, which processors are slow with. */
static inline vf logistic_of(vf x, vf square)
{
    vf v = all(-2 * root) * x * (all(cubic) * square + all(1));

    v = pick(v > all(80), all(80), v);
    return inverse(vexp(v) + all(1));
}

static inline vf gelu_of(vf x)
{
    return x * logistic_of(x, x * x);
}

/* s is used twice, in the value and in its derivative s (1 - s): one exp. */
static inline vf slope(vf x)
{
    vf square = x * x, s = logistic_of(x, square);
    vf du = all(root) * (all(3 * cubic) * square + all(1));

    return s + all(2) * x * s * (all(1) - s) * du;
}

#endif
