/* Passes over flat buffers, bound by memory: AdamW, sums, and rows that are
 * added up. */
#include "cpu/isa/simd.h"
#include "cpu/quant.h"

#include <math.h>
#include <string.h>

void ISA(adamw)(float *restrict p, float *restrict m, float *restrict v,
                const float *restrict g, int64_t n,
                const struct cpu_adamw_rates *r)
{
    /* A copy: stores to p, m and v might change *r, as far as the compiler
     * knows, and it would load the rates again for every element. */
    const struct cpu_adamw_rates k = *r;

    for (int64_t i = 0; i < n; i++) {
        /* Without coupled decay the sum is the product, to the bit. */
        float gi = g[i] * k.grad_scale + k.couple * p[i];
        float mi = k.b1 * m[i] + k.one_b1 * gi;
        float vt = k.b2 * v[i] + k.one_b2 * (gi * gi);

        m[i] = mi;
        v[i] = vt;
        /* eps outside the root, as in the paper: inside, it would be another
         * optimizer where gradients are tiny. */
        float size = sqrtf(vt * k.inv_bias2) + k.eps;
        p[i] = p[i] * k.keep - k.step_size * (mi / size);
    }
}

void ISA(widen)(float *y, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;

        memcpy(&y[i], &bits, sizeof(bits));
    }
}

/* To nearest even; a NaN stays one. */
void ISA(narrow)(uint16_t *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;

        memcpy(&u, &x[i], sizeof(u));
        /* Half a unit less one bit, and one bit more when the last bit kept is
         * odd: halves go to the even neighbour. Past the largest finite number
         * the carry makes infinity. */
        uint32_t even = (u + 0x7fff + (u >> 16 & 1)) >> 16;
        /* A NaN whose upper half is all zeros would become infinity. */
        uint32_t quiet = u >> 16 | 0x40;
        y[i] = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : even);
    }
}

/* Sixteen double sums, whatever the instruction set; loops over them become
 * vectors. */
enum { LANES = 16 };

/* Halves onto each other: the same tree of additions for every instruction
 * set, since LANES is no property of one. */
static double lanes_total(double x[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

double ISA(sum_squares)(const float *x, int64_t n)
{
    double sum[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double v = (double)x[i + k];

            sum[k] += v * v;
        }
    for (; i < n; i++)
        sum[i % LANES] += (double)x[i] * (double)x[i];
    return lanes_total(sum);
}

double ISA(sum_plain)(const float *x, int64_t n)
{
    double sum[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)x[i + k];
    for (; i < n; i++)
        sum[i % LANES] += (double)x[i];
    return lanes_total(sum);
}

void ISA(split)(uint16_t *high, uint16_t *low, const float *x, int64_t n)
{
    enum { PART = 256 };
    float rest[PART];

    for (int64_t l = 0; l < n; l += PART) {
        int64_t part = n - l < PART ? n - l : PART;

        ISA(narrow)(high + l, x + l, part);
        ISA(widen)(rest, high + l, part);
        for (int64_t i = 0; i < part; i++)
            rest[i] = x[l + i] - rest[i];
        ISA(narrow)(low + l, rest, part);
    }
}

void ISA(round_bytes)(float *y, const float *x, int64_t n)
{
    vf top = {0}, wrong = {0};

    for (int64_t j = 0; j < n; j += W) {
        const vf v = any_load(x, j, n);

        top = larger(pick(v < (vf){0}, -v, v), top);
        wrong += v * all(0); /* 0, or NaN */
    }
    const float unit = cpu_byte_unit(lanes_max(top)) + lanes_sum(wrong);
    const float inv = 1 / unit;
    for (int64_t j = 0; j < n; j++)
        y[j] = rintf(x[j] * inv) * unit;
}

/* Columns in strips that stay in registers over all rows. */
void ISA(combine)(float *y, const float *a, const float *x, int64_t ldx,
                  int64_t n, int64_t k)
{
    int64_t j = 0;

    /* y is written once, not once for each of the k rows. */
    for (; j + 4 * W <= n; j += 4 * W) {
        vf s0 = load(y + j), s1 = load(y + j + W);
        vf s2 = load(y + j + 2 * W), s3 = load(y + j + 3 * W);
        const float *row = x + j;

        for (int64_t i = 0; i < k; i++, row += ldx) {
            vf ai = all(a[i]);

            s0 += ai * load(row);
            s1 += ai * load(row + W);
            s2 += ai * load(row + 2 * W);
            s3 += ai * load(row + 3 * W);
        }
        store(y + j, s0);
        store(y + j + W, s1);
        store(y + j + 2 * W, s2);
        store(y + j + 3 * W, s3);
    }
    for (; j + W <= n; j += W) {
        vf s = load(y + j);

        for (int64_t i = 0; i < k; i++)
            s += all(a[i]) * load(x + i * ldx + j);
        store(y + j, s);
    }
    for (; j < n; j++)
        for (int64_t i = 0; i < k; i++)
            y[j] += a[i] * x[i * ldx + j];
}
