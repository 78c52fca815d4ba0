/* Passes over flat buffers, bound by memory: AdamW and sums. */
#include "cpu/isa/simd.h"

void ISA(adamw)(float *restrict p, float *restrict m, float *restrict v,
                const float *restrict g, int64_t n,
                const struct cpu_adamw_rates *r)
{
    const struct cpu_adamw_rates k = *r;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * k.grad_scale;
        float mi = k.b1 * m[i] + k.one_b1 * gi;
        float vt = k.b2 * v[i] + k.one_b2 * (gi * gi);
        m[i] = mi;
        v[i] = vt;
        float size = sqrtf(vt * k.inv_bias2) + k.eps;
        p[i] = p[i] * k.keep - k.step_size * (mi / size);
    }
}

/* Eight double sums, whatever the instruction set. */
typedef double vd8 __attribute__((vector_size(64)));
typedef float vf8 __attribute__((vector_size(32)));
typedef float vf8_any __attribute__((vector_size(32), aligned(4), may_alias));

/* By pointer: such vectors have no place in a call's registers everywhere. */
static inline void eight(vd8 *to, const float *x, int64_t n)
{
    float lanes[8] = {0};
    if (n < 8) {
        for (int64_t i = 0; i < n; i++)
            lanes[i] = x[i];
        x = lanes;
    }
    *to = __builtin_convertvector((vf8) * (const vf8_any *)x, vd8);
}

static inline double eight_sum(const vd8 *s)
{
    double x[8];
    memcpy(x, s, sizeof x);
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

double ISA(sum_squares)(const float *x, int64_t n)
{
    vd8 sum = {0}, v;
    for (int64_t i = 0; i < n; i += 8) {
        eight(&v, x + i, n - i);
        sum += v * v;
    }
    return eight_sum(&sum);
}

double ISA(sum_plain)(const float *x, int64_t n)
{
    vd8 sum = {0}, v;
    for (int64_t i = 0; i < n; i += 8) {
        eight(&v, x + i, n - i);
        sum += v;
    }
    return eight_sum(&sum);
}
