/* Products with few rows: each row of w is read once, in order, at the speed
 * of memory, and meets all rows of x, which stay in the first cache. */
#include "cpu/isa/simd.h"

/* M rows of x against one row of w; U vectors of sums for each. */
static inline __attribute__((always_inline)) void
dots_of(float *y, int64_t ldy, const float *x, int64_t ldx, const float *w,
        int64_t k, bool add, int M, int U)
{
    vf acc[4][4] = {{{0}}};
    int64_t l = 0;
    for (; l + U * W <= k; l += U * W)
        for (int u = 0; u < U; u++) {
            vf wu = load(w + l + u * W);
            for (int i = 0; i < M; i++)
                acc[i][u] += wu * load(x + i * ldx + l + u * W);
        }
    for (; l + W <= k; l += W)
        for (int i = 0; i < M; i++)
            acc[i][0] += load(w + l) * load(x + i * ldx + l);
    if (l < k) {
        vf wu = load_part(w + l, k - l, 0);
        for (int i = 0; i < M; i++)
            acc[i][0] += wu * load_part(x + i * ldx + l, k - l, 0);
    }
    for (int i = 0; i < M; i++) {
        vf sum = U == 4 ? (acc[i][0] + acc[i][1]) + (acc[i][2] + acc[i][3])
                        : acc[i][0] + acc[i][1];
        float dot = lanes_sum(sum);
        y[i * ldy] = add ? y[i * ldy] + dot : dot;
    }
}

void ISA(dots)(float *y, int64_t ldy, const float *x, int64_t ldx,
               const float *w, int64_t ldw, int64_t m, int64_t n, int64_t k,
               bool add)
{
    for (int64_t j = 0; j < n; j++, w += ldw, y++)
        switch (m) {
        case 1:
            dots_of(y, ldy, x, ldx, w, k, add, 1, 4);
            break;
        case 2:
            dots_of(y, ldy, x, ldx, w, k, add, 2, 4);
            break;
        case 3:
            dots_of(y, ldy, x, ldx, w, k, add, 3, 2);
            break;
        default:
            dots_of(y, ldy, x, ldx, w, k, add, 4, 2);
        }
}

/* Columns in strips that stay in registers over all rows. */
void ISA(combine)(float *y, const float *a, const float *x, int64_t ldx,
                  int64_t n, int64_t k)
{
    int64_t j = 0;
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
