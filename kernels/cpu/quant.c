/* Products with weights in fewer bits (struct gpt_quant), for generation. Start
 * at cpu_multiply_quant(). With few rows weights are read once, as they are;
 * with many they are widened, a strip at a time, for the products of floats.
 * Where the processor multiplies pairs of bf16, and weights are bf16, inputs
 * become sums of two numbers of bf16 instead: 16 bits of 24. */
#include "cpu/product.h"

#include <assert.h>
#include <omp.h>

enum { GROUP = 32 };
enum { PART = 512 }; /* floats that are converted in the first cache */

static int64_t groups_of(const struct gpt_quant *w, int64_t k)
{
    return w->group ? (k + GROUP - 1) / GROUP : 1;
}

static const uint16_t *scales_of(const struct gpt_quant *w, int64_t row,
                                 int64_t k)
{
    return w->scales + row * groups_of(w, k);
}

void cpu_quant_row(float *to, const struct gpt_quant *w, int64_t row,
                   int64_t at, int64_t n, int64_t k)
{
    if (w->type == GPT_BF16) {
        cpu_isa->widen(to, (const uint16_t *)w->values + row * k + at, n);
        return;
    }
    const int8_t *values = (const int8_t *)w->values + row * k + at;
    const uint16_t *scales = scales_of(w, row, k);

    for (int64_t l = 0, end; l < n; l = end) {
        int64_t group = w->group ? (at + l) / GROUP : 0;
        float scale = gpt_bf16_to_f32(scales[group]);

        end = w->group ? (group + 1) * GROUP - at : n;
        end = end < n ? end : n;
        for (int64_t i = l; i < end; i++)
            to[i] = (float)values[i] * scale;
    }
}

/* ---- few rows ---- */

enum { STRIP = 16 }; /* rows of weights */

/* A thread has whole strips; a strip's rows are read once for all rows of a,
 * and in the order of memory. */
static void multiply_few(const struct cpu_product *p, const struct gpt_quant *w,
                         int64_t n0)
{
    struct cpu_product part = cpu_block_of(p, 0, n0, p->m, STRIP, NULL);
    bool add = part.beta != 0;

    if (w->type == GPT_BF16)
        cpu_isa->dots_bf16(part.c, part.ldc, part.a, part.lda,
                           (const uint16_t *)w->values + n0 * p->k, part.m,
                           part.n, p->k, add);
    else
        cpu_isa->dots_int8(part.c, part.ldc, part.a, part.lda,
                           (const int8_t *)w->values + n0 * p->k,
                           scales_of(w, n0, p->k),
                           w->group ? groups_of(w, p->k) : 0, part.m, part.n,
                           p->k, add);
    cpu_finish_block(&part);
}

/* ---- many rows ---- */

/* Rows of weights at a time: their floats stay in the third cache, and are
 * written and read again there. Products of this width are as fast as wider
 * ones. */
enum { WIDE = 4 * CPU_BN };

/* The part of p whose columns are n0.. of c, at most WIDE; b is not set. */
static struct cpu_product columns_of(const struct cpu_product *p, int64_t n0)
{
    struct cpu_product part = *p;

    part.n = p->n - n0 < WIDE ? p->n - n0 : WIDE;
    part.c += n0;
    part.bias = p->bias ? (const float *)p->bias + n0 : NULL;
    part.aux = p->aux ? (float *)p->aux + n0 : NULL;
    return part;
}

static void multiply_widened(struct gpt_queue *q, const struct cpu_product *p,
                             const struct gpt_quant *w)
{
    int64_t most = p->n < WIDE ? p->n : WIDE;
    float *room = cpu_wide(q, (size_t)(most * p->k));

    for (int64_t n0 = 0; room && n0 < p->n; n0 += WIDE) {
        struct cpu_product part = columns_of(p, n0);

#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < part.n; i++)
            cpu_quant_row(room + i * p->k, w, n0 + i, 0, p->k, p->k);
        part.b = room;
        cpu_multiply_floats(q, &part);
    }
}

/* a = high + low + at most 2^-17 of itself. */
static void split_part(uint16_t *high, uint16_t *low, const float *a, int64_t n)
{
    float rest[PART];

    cpu_isa->narrow(high, a, n);
    cpu_isa->widen(rest, high, n);
    for (int64_t l = 0; l < n; l++)
        rest[l] = a[l] - rest[l];
    cpu_isa->narrow(low, rest, n);
}

static void split_rows(uint16_t *high, uint16_t *low,
                       const struct cpu_product *p)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < p->m; i++) {
        const float *a = (const float *)p->a + i * p->lda;
        int64_t at = i * p->k;

        for (int64_t l = 0; l < p->k; l += PART)
            split_part(high + at + l, low + at + l, a + l,
                       p->k - l < PART ? p->k - l : PART);
    }
}

/* Two products of bf16 in place of one of floats: half of their rate, which is
 * still several times that of floats. */
static void multiply_split(struct gpt_queue *q, const struct cpu_product *p,
                           const struct gpt_quant *w)
{
    struct cpu_product part = *p;
    uint16_t *high = (uint16_t *)(void *)cpu_wide(q, (size_t)(p->m * p->k));

    if (!high)
        return;
    split_rows(high, high + p->m * p->k, p);
    part.narrow = true;
    part.epilogue = GPT_EPI_NONE;
    part.lda = p->k;
    part.b = w->values;
    part.a = high + p->m * p->k; /* the small terms first */
    cpu_multiply_pairs(q, &part);
    part.a = high;
    part.beta = 1;
    cpu_multiply_pairs(q, &part);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t n0 = 0; n0 < p->n; n0 += CPU_BN) {
            struct cpu_product row = cpu_block_of(p, i, n0, 1, CPU_BN, NULL);

            cpu_finish_block(&row);
        }
}

void cpu_multiply_quant(struct gpt_queue *q, const struct cpu_product *p,
                        const struct gpt_quant *w)
{
    assert(p->tb && !p->ta && !p->narrow && !p->c16);
    if (!cpu_has_few_rows(p)) {
        if (cpu_pairs && w->type == GPT_BF16 && p->k > 0)
            multiply_split(q, p, w);
        else
            multiply_widened(q, p, w);
        return;
    }
#pragma omp parallel for schedule(static) if (cpu_product_worth_threads(p))
    for (int64_t n0 = 0; n0 < p->n; n0 += STRIP)
        multiply_few(p, w, n0);
}
