/* Sums of squares and of columns, and the bias of columns. A sum of squares is
 * cut into fixed blocks, whose results are added in order. */
#include "base/num.h"
#include "cpu/cpu.h"

/* 64 KiB of floats. This is a constant: were it n / threads, sums would depend
 * on the number of threads. */
enum { BLOCK = 1 << 14 };

/* Sums floats in double: a gradient norm of 10^9 elements has then 29 bits to
 * spare, and the order of blocks is fixed besides. */
void cpu_sumsq(struct gpt_queue *q, double *out, const float *x, int64_t n)
{
    if (!cpu_ready(q, "sumsq", GPT_F32))
        return;
    int64_t blocks = gpt_ceil_div(n, BLOCK);
    /* Two floats make a double; the memory is aligned for both. */
    double *part = (double *)(void *)cpu_work(q, (size_t)(2 * blocks + 2));

    if (!part)
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n))
    for (int64_t b = 0; b < blocks; b++) {
        int64_t at = b * BLOCK, left = n - at;

        part[b] =
            cpu_isa->sum_squares(x + at, left < BLOCK ? left : BLOCK);
    }
    /* One thread adds the blocks, in order. */
    *out = 0;
    for (int64_t b = 0; b < blocks; b++)
        *out += part[b];
}

void cpu_bias_add(struct gpt_queue *q, void *x, const void *bias, int64_t m,
                  int64_t n, enum gpt_dtype act)
{
    if (!cpu_ready(q, "bias_add", act))
        return;
    const float *b = bias;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(m * n))
    for (int64_t i = 0; i < m; i++) {
        float *row = (float *)x + i * n;

        cpu_isa->add(row, row, b, n);
    }
}

/* Sums rows. Threads own columns, and rows are added in their order; rows of
 * bf16 are widened in the first cache. */
void cpu_bias_grad(struct gpt_queue *q, float *dbias, const void *dy, int64_t m,
                   int64_t n, enum gpt_dtype act)
{
    bool narrow = act == GPT_BF16;

    if (!cpu_ready_narrow(q, "bias_grad", act))
        return;
    enum { COLUMNS = 256 };
#pragma omp parallel for schedule(static) if (cpu_worth_threads(m * n))
    for (int64_t c0 = 0; c0 < n; c0 += COLUMNS) {
        int64_t w = n - c0 < COLUMNS ? n - c0 : COLUMNS;
        float sum[COLUMNS] = {0}, wide[COLUMNS];

        for (int64_t i = 0; i < m; i++) {
            const float *x = (const float *)dy + i * n + c0;

            if (narrow) {
                cpu_isa->widen(wide, (const uint16_t *)dy + i * n + c0, w);
                x = wide;
            }
            cpu_isa->add(sum, sum, x, w);
        }
        /* The sum over rows is added to dbias at once, at the end: adding each
         * row to dbias would round a large total a thousand times. */
        cpu_isa->add(dbias + c0, dbias + c0, sum, w);
    }
}
