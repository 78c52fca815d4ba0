/* Rows of LayerNorm and RMSNorm. */
#include "cpu/isa/simd.h"

#include <math.h>

/* Computes mean and inverse deviation in two passes over a row that is in the
 * first cache: the deviation is taken from the mean itself, so that nothing
 * cancels. Where mean is NULL, the root mean square takes its place. */
void ISA(moments)(const float *x, int64_t n, float eps, float *mean,
                  float *rstd)
{
    float m = 0;

    if (mean) {
        vf sum = {0};

        for (int64_t j = 0; j < n; j += W)
            sum += any_load(x, j, n);
        m = *mean = lanes_sum(sum) / (float)n;
    }
    vf square = {0};
    int64_t j = 0;
    for (; j + W <= n; j += W) {
        vf d = load(x + j) - all(m);

        square += d * d;
    }
    if (j < n) {
        /* Lanes past the end hold the mean: their deviation is zero. */
        vf d = load_part(x + j, n - j, m) - all(m);

        square += d * d;
    }
    /* Divided by n, not n - 1: the variance of the row itself. */
    *rstd = 1 / sqrtf(lanes_sum(square) / (float)n + eps);
}

void ISA(norm_row)(float *y, const float *x, const float *w, const float *b,
                   int64_t n, float mean, float rstd)
{
    for (int64_t j = 0; j < n; j += W) {
        vf v = (any_load(x, j, n) - all(mean)) * all(rstd) * any_load(w, j, n);

        any_store(y, b ? v + any_load(b, j, n) : v, j, n);
    }
}

/* With g = dy w and xhat = (x - mean) rstd:
 * dr += (g - mean(g) - xhat mean(g xhat)) rstd; no mean(g) for RMSNorm. */
void ISA(norm_grad_row)(float *dr, const float *dy, const float *x,
                        const float *w, float *dw, float *db, int64_t n,
                        float mean, float rstd, bool centred)
{
    vf sum = {0}, dot = {0};

    for (int64_t j = 0; j < n; j += W) {
        vf xhat = (any_load(x, j, n) - all(mean)) * all(rstd);
        vf d = any_load(dy, j, n), g = d * any_load(w, j, n);

        /* dw and db of a block of rows stay in the cache; they are added to in
         * the order of rows. */
        sum += g;
        dot += g * xhat;
        any_store(dw, any_load(dw, j, n) + d * xhat, j, n);
        if (db)
            any_store(db, any_load(db, j, n) + d, j, n);
    }
    /* The mean depends on every element, hence mean(g); RMSNorm has none. */
    vf a = all(centred ? lanes_sum(sum) / (float)n : 0);
    vf b = all(lanes_sum(dot) / (float)n);
    for (int64_t j = 0; j < n; j += W) {
        vf xhat = (any_load(x, j, n) - all(mean)) * all(rstd);
        /* xhat and g again: computing them is faster than storing a row. */
        vf g = any_load(dy, j, n) * any_load(w, j, n);
        vf d = (g - a - xhat * b) * all(rstd);

        any_store(dr, any_load(dr, j, n) + d, j, n);
    }
}

void ISA(add)(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        y[j] = a[j] + b[j];
}
