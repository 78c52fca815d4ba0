/* Matrix products with their epilogues. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

#ifdef GPT_HAVE_DNNL
#include <dnnl.h>
#endif

struct job {
    int64_t m, n, k, lda, ldb, ldc;
    bool ta, tb;
    const float *a, *b;
    float *c, beta;
};

/* One block of c, in the calling thread. */
static bool block_product(const struct job *j)
{
    if (j->k == 0) { /* an empty sum; oneDNN has no such case */
        for (int64_t i = 0; i < j->m && j->beta == 0; i++)
            memset(j->c + i * j->ldc, 0, (size_t)j->n * sizeof *j->c);
        return true;
    }
#ifdef GPT_HAVE_DNNL
    return dnnl_sgemm(j->ta ? 'T' : 'N', j->tb ? 'T' : 'N', j->m, j->n, j->k,
                      1, j->a, j->lda, j->b, j->ldb, j->beta, j->c,
                      j->ldc) == dnnl_success;
#else
    for (int64_t i = 0; i < j->m; i++)
        for (int64_t l = 0; l < j->n; l++) {
            float sum = 0, *c = j->c + i * j->ldc + l;
            for (int64_t k = 0; k < j->k; k++)
                sum += j->a[j->ta ? k * j->lda + i : i * j->lda + k] *
                       j->b[j->tb ? l * j->ldb + k : k * j->ldb + l];
            *c = j->beta == 0 ? sum : sum + *c;
        }
    return true;
#endif
}

/* oneDNN cuts long sums over its threads, so results would depend on their
 * number. c is cut here instead, by its shape alone; inside a parallel region
 * oneDNN uses the calling thread only. */
static void product(struct gpt_queue *q, const struct job *j)
{
    int64_t bm = j->m < 256 ? j->m : 256, bn = j->n < 384 ? j->n : 384;
    int64_t rows = (j->m + bm - 1) / bm, cols = (j->n + bn - 1) / bn;
    bool good = true;
#pragma omp parallel for schedule(dynamic) reduction(&& : good)
    for (int64_t i = 0; i < rows * cols; i++) {
        struct job part = *j;
        int64_t m0 = i % rows * bm, n0 = i / rows * bn;
        part.m = j->m - m0 < bm ? j->m - m0 : bm;
        part.n = j->n - n0 < bn ? j->n - n0 : bn;
        part.a += j->ta ? m0 : m0 * j->lda;
        part.b += j->tb ? n0 * j->ldb : n0;
        part.c += m0 * j->ldc + n0;
        good = block_product(&part) && good;
    }
    if (!good)
        cpu_fail(q, "matmul: oneDNN refused %lld x %lld x %lld",
                 (long long)j->m, (long long)j->n, (long long)j->k);
}

static float gelu(float x)
{
    float u = 0.79788456f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1 + tanhf(u));
}

static float gelu_slope(float x)
{
    float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
    float du = 0.79788456f * (1 + 3 * 0.044715f * x * x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * du;
}

static void epilogue(const struct gpt_matmul *op, int64_t ldc)
{
    const float *bias = op->bias;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < op->m; i++) {
        float *c = (float *)op->c + i * ldc;
        float *aux = op->aux ? (float *)op->aux + i * op->n : NULL;
        for (int64_t j = 0; j < op->n; j++)
            if (op->epilogue == GPT_EPI_BIAS) {
                c[j] += bias[j];
            } else if (op->epilogue == GPT_EPI_BIAS_GELU) {
                aux[j] = c[j] + bias[j];
                c[j] = gelu(aux[j]);
            } else {
                c[j] *= gelu_slope(aux[j]);
            }
    }
}

void cpu_matmul(struct gpt_queue *q, const struct gpt_matmul *op)
{
    if (!cpu_ready(q, "matmul", op->act) || !cpu_ready(q, "matmul", op->c_type))
        return;
    struct job j = {
        .m = op->m,
        .n = op->n,
        .k = op->k,
        .ta = op->ta,
        .tb = op->tb,
        .lda = op->lda  ? op->lda
               : op->ta ? op->m
                        : op->k,
        .ldb = op->ldb  ? op->ldb
               : op->tb ? op->k
                        : op->n,
        .ldc = op->ldc ? op->ldc : op->n,
        .a = op->a,
        .b = op->b,
        .c = op->c,
        .beta = op->beta,
    };
    if (j.m == 0 || j.n == 0)
        return;
    product(q, &j);
    if (op->epilogue != GPT_EPI_NONE)
        epilogue(op, j.ldc);
}
