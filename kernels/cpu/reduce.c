/* Sums: of squares, of elements, of columns; and the bias of columns. Flat
 * sums are cut into fixed blocks whose results are added in order. */
#include "cpu/cpu.h"

enum { BLOCK = 1 << 14 };

static double block_sum(const float *x, int64_t n, bool squares)
{
    double lanes[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) {
            double v = (double)x[i + k];
            lanes[k] += squares ? v * v : v;
        }
    double tail = 0;
    for (; i < n; i++)
        tail += squares ? (double)x[i] * (double)x[i] : (double)x[i];
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
           ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7])) + tail;
}

static void flat_sum(struct gpt_queue *q, double *out, const float *x,
                     int64_t n, bool squares)
{
    int64_t blocks = (n + BLOCK - 1) / BLOCK;
    double *part = (double *)(void *)cpu_work(q, (size_t)(2 * blocks + 2));
    if (!part)
        return;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        int64_t at = b * BLOCK, left = n - at;
        part[b] = block_sum(x + at, left < BLOCK ? left : BLOCK, squares);
    }
    *out = 0;
    for (int64_t b = 0; b < blocks; b++)
        *out += part[b];
}

void cpu_sumsq(struct gpt_queue *q, double *out, const float *x, int64_t n)
{
    if (cpu_ready(q, "sumsq", GPT_F32))
        flat_sum(q, out, x, n, true);
}

void cpu_sum(struct gpt_queue *q, double *out, const float *x, int64_t n)
{
    if (cpu_ready(q, "sum", GPT_F32))
        flat_sum(q, out, x, n, false);
}

void cpu_bias_add(struct gpt_queue *q, void *x, const void *bias, int64_t m,
                  int64_t n, enum gpt_dtype act)
{
    if (!cpu_ready(q, "bias_add", act))
        return;
    const float *b = bias;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < m; i++) {
        float *row = (float *)x + i * n;
        for (int64_t j = 0; j < n; j++)
            row[j] += b[j];
    }
}

/* Threads own columns; rows are added in four interleaved runs. */
void cpu_bias_grad(struct gpt_queue *q, float *dbias, const void *dy, int64_t m,
                   int64_t n, enum gpt_dtype act)
{
    if (!cpu_ready(q, "bias_grad", act))
        return;
    enum { COLUMNS = 128 };
    const float *x = dy;
#pragma omp parallel for schedule(static)
    for (int64_t c0 = 0; c0 < n; c0 += COLUMNS) {
        int64_t w = n - c0 < COLUMNS ? n - c0 : COLUMNS;
        float sum[COLUMNS] = {0};
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < w; j++)
                sum[j] += x[i * n + c0 + j];
        for (int64_t j = 0; j < w; j++)
            dbias[c0 + j] += sum[j];
    }
}
