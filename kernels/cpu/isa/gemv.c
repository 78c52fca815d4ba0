/* Products with few rows: each row of w is read once, in order, at the speed
 * of memory, and meets all rows of x, which stay in the first cache. */
#include "cpu/isa/simd.h"

/* M rows of x against R rows of w; w is read from the cache once for all M, x
 * once for all R. Each result has one vector of sums, so that it does not
 * depend on M and R: a text is generated the same, to the bit, whatever is
 * generated beside it. The rows AHEAD of w are asked for: streams side by side
 * are more than the processor foresees. */
enum { AHEAD = 4 };

static inline __attribute__((always_inline)) void
dots_of(float *y, int64_t ldy, const float *x, int64_t ldx, const float *w,
        int64_t ldw, int64_t k, bool add, const int M, const int R)
{
    /* Eight sums at most live in registers; the compiler sees M and R as
     * constants and drops the rest of the array. */
    vf acc[4][4] = {{{0}}}; /* [row of x][row of w] */
    int64_t l = 0;

    for (; l + 2 * W <= k; l += 2 * W)
#pragma GCC unroll 2
        for (int u = 0; u < 2; u++)
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                vf wr = load(w + r * ldw + l + u * W);

                if (u == 0)
                    __builtin_prefetch(w + (r + AHEAD) * ldw + l);
#pragma GCC unroll 4
                for (int i = 0; i < M; i++)
                    acc[i][r] += wr * load(x + i * ldx + l + u * W);
            }
    for (; l < k; l += W) {
        /* The last part of a row: lanes past the end add zero times zero. */
        int64_t n = k - l < W ? k - l : W;
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            vf wr = load_part(w + r * ldw + l, n, 0);
#pragma GCC unroll 4
            for (int i = 0; i < M; i++)
                acc[i][r] += wr * load_part(x + i * ldx + l, n, 0);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            float dot = lanes_sum(acc[i][r]), *out = y + i * ldy + r;

            *out = add ? *out + dot : dot;
        }
}

void ISA(dots)(float *y, int64_t ldy, const float *x, int64_t ldx,
               const float *w, int64_t ldw, int64_t m, int64_t n, int64_t k,
               bool add)
{
    int64_t j = 0;

    /* One row of x: four rows of w side by side keep as many streams of memory
     * open as the prefetcher follows. More rows of x: two of w, or sums would
     * not fit the registers. */
    for (; m == 1 && j + 4 <= n; j += 4)
        dots_of(y + j, ldy, x, ldx, w + j * ldw, ldw, k, add, 1, 4);
    for (; j + 2 <= n; j += 2)
        for (int64_t i = 0; i < m; i += 4) {
            const float *xi = x + i * ldx, *wj = w + j * ldw;
            float *to = y + i * ldy + j;

            if (m - i >= 4)
                dots_of(to, ldy, xi, ldx, wj, ldw, k, add, 4, 2);
            else if (m - i == 3)
                dots_of(to, ldy, xi, ldx, wj, ldw, k, add, 3, 2);
            else if (m - i == 2)
                dots_of(to, ldy, xi, ldx, wj, ldw, k, add, 2, 2);
            else
                dots_of(to, ldy, xi, ldx, wj, ldw, k, add, 1, 2);
        }
    for (; j < n; j++)
        for (int64_t i = 0; i < m; i++)
            dots_of(y + i * ldy + j, ldy, x + i * ldx, ldx, w + j * ldw, ldw, k,
                    add, 1, 1);
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
