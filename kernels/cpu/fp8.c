/* Products of factors that are rounded to eight bits, as a reference for GPUs:
 * slower than those of bf16, since a processor has no such factors. Values of
 * eight bits are exact in bf16. So both factors are rounded into scratch, their
 * product is that of bf16 in float, and the scales, old c and the epilogue come
 * after it. Start at cpu_multiply_fp8(). */
#include "base/num.h"
#include "cpu/product.h"
#include "fp8.h"

#include <assert.h>
#include <omp.h>

/* Finds the largest magnitude. Values are compared as integers, among which a
 * NaN is the largest, so that it does not matter which thread finds it. */
void cpu_amax(struct gpt_queue *q, float *amax, const void *x, int64_t n)
{
    const uint16_t *bits = x;
    uint32_t most = gpt_fp8_bits_of(*amax) & 0x7fffffff;

    if (q->err.status != GPT_OK)
        return;
#pragma omp parallel for simd schedule(static) reduction(max : most) if (      \
        cpu_worth_threads(n / 8))
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)(bits[i] & 0x7fff) << 16;

        most = u > most ? u : most;
    }
    *amax = gpt_fp8_float_of(most);
}

/* Scratch holds both factors in bf16, and the sums. */
size_t cpu_fp8_scratch(int64_t m, int64_t n, int64_t k)
{
    return (size_t)(m + n) * (size_t)k * sizeof(uint16_t) +
           (size_t)m * (size_t)n * sizeof(float);
}

/* Rounds rows x columns values, rows ld apart, to what eight bits hold, and
 * writes them to `to` as bf16 without room between rows. */
static void round_factor(uint16_t *to, const uint16_t *from, int64_t rows,
                         int64_t columns, int64_t ld, float scale,
                         enum gpt_fp8 type)
{
#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(rows * columns))
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const float x = gpt_bf16_to_f32(from[i * ld + j]) * scale;

            to[i * columns + j] =
                gpt_f32_to_bf16(gpt_fp8_value(gpt_fp8_of(x, type), type));
        }
}

/* Writes c = by * sums + old c, then the epilogue, block by block. */
static void finish(struct gpt_queue *q, const struct cpu_product *p,
                   const float *sums, float by)
{
    const int64_t rows = gpt_ceil_div(p->m, CPU_BM);
    const int64_t columns = gpt_ceil_div(p->n, CPU_BN);
    const int64_t each = CPU_BM * CPU_BN;
    float *rooms = cpu_work(q, (size_t)(each * omp_get_max_threads()));

    if (!rooms)
        return;
#pragma omp parallel for schedule(static) if (cpu_product_worth_threads(p))
    for (int64_t b = 0; b < rows * columns; b++) {
        const int64_t m0 = b / columns * CPU_BM, n0 = b % columns * CPU_BN;
        const struct cpu_product part =
            cpu_block_of(p, m0, n0, CPU_BM, CPU_BN,
                         rooms + omp_get_thread_num() * each);

        for (int64_t i = 0; i < part.m; i++)
            for (int64_t j = 0; j < part.n; j++) {
                float *c = &part.c[i * part.ldc + j];
                const float sum = by * sums[(m0 + i) * p->n + n0 + j];

                *c = p->beta != 0 ? *c + sum : sum;
            }
        cpu_finish_block(&part);
    }
}

void cpu_multiply_fp8(struct gpt_queue *q, const struct cpu_product *p,
                      const struct gpt_fp8_factors *fp8)
{
    const float scale_a = gpt_fp8_scale(*fp8->amax_a, fp8->a);
    const float scale_b = gpt_fp8_scale(*fp8->amax_b, fp8->b);
    uint16_t *a = fp8->scratch, *b = a + p->m * p->k;
    float *sums = (float *)(void *)(b + p->n * p->k);
    const struct gpt_matmul rounded = {
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .ta = p->ta,
        .tb = p->tb,
        .a = a,
        .b = b,
        .c = sums,
        .act = GPT_BF16,
        .c_type = GPT_F32,
    };

    assert(fp8->b != GPT_FP8_NONE);
    if (!p->narrow || p->m % 16 || p->n % 16 || p->k % 16 ||
        (fp8->a == GPT_E5M2 && fp8->b == GPT_E5M2)) {
        cpu_fail(q, "matmul: no product of eight bits of this type or size");
        return;
    }
    round_factor(a, p->a, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda,
                 scale_a, fp8->a);
    round_factor(b, p->b, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb,
                 scale_b, fp8->b);
    cpu_matmul(q, &rounded);
    finish(q, p, sums, 1 / scale_a * (1 / scale_b));
}
