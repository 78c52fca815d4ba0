/* Products with weights of floats in panels (quant.h), for generation. Start at
 * cpu_multiply_panels(). Few rows are packed in groups of a tile's rows, and a
 * thread reads one stretch of panels from its beginning to its end, each of
 * which meets all groups: the speed is that of memory. Many rows are left to
 * tiles.c, which takes such panels as they lie. Both cut sums at the same
 * places, so that an element has the same bits with either. */
#include "cpu/product.h"
#include "cpu/quant.h"

#include "base/num.h"

#include <omp.h>

/* Inputs of up to so many floats stay in the second cache while panels pass. */
enum { FEW_INPUTS = 1 << 17 };

/* Packs a part of k of each group of rows: parts follow each other by k, then
 * by rows. The end of the loop is a barrier: all is packed then. */
static void pack_rows(const struct cpu_product *p, float *to)
{
    const int64_t mr = cpu_isa->mr, groups = gpt_ceil_div(p->m, mr);
    const int64_t parts = gpt_ceil_div(p->k, CPU_KC);

#pragma omp for schedule(static)
    for (int64_t i = 0; i < groups * parts; i++) {
        const int64_t m0 = i % groups * mr, k0 = i / groups * CPU_KC;
        const int64_t m = gpt_min_i64(p->m - m0, mr);
        const int64_t k = gpt_min_i64(p->k - k0, CPU_KC);

        cpu_isa->pack_rows(to + k0 * p->m + m0 * k,
                           (const float *)p->a + m0 * p->lda + k0, p->lda, m,
                           k);
    }
}

/* Multiplies columns k0 .. k0 + k - 1 of all rows with what the panel `block`
 * has of them at b. Rows after the first ones find it in a cache. */
static void multiply_part(const struct cpu_product *block, const float *a,
                          const float *b, int64_t k0, int64_t k)
{
    const int64_t mr = cpu_isa->mr;
    struct cpu_panel t = {.n = block->n,
                          .k = k,
                          .b = b,
                          .ldc = block->ldc,
                          .add = k0 > 0 || block->beta != 0,
                          .asks = true};

    for (int64_t i = 0; i < block->m; i += mr) {
        t.m = gpt_min_i64(block->m - i, mr);
        t.a = a + k0 * block->m + i * k;
        t.c = block->c + i * block->ldc;
        cpu_isa->panel(&t);
        t.asks = false;
    }
}

/* Multiplies panels first .. end - 1, in the order of memory. */
static void multiply_panels(const struct cpu_product *p,
                            const struct gpt_quant *w, const float *a,
                            int64_t first, int64_t end)
{
    const int64_t nr = cpu_isa->nr;
    const float *b = (const float *)w->values + first * nr * p->k;

    for (int64_t i = first; i < end; i++) {
        const struct cpu_product block =
            cpu_block_of(p, 0, i * nr, p->m, nr, NULL);
        int64_t k0 = 0;

        do { /* once where k is 0 */
            const int64_t k = gpt_min_i64(p->k - k0, CPU_KC);

            multiply_part(&block, a, b, k0, k);
            b += k * nr;
            k0 += k;
        } while (k0 < p->k);
        cpu_finish_block(&block);
    }
}

static void multiply_few(struct gpt_queue *q, const struct cpu_product *p,
                         const struct gpt_quant *w)
{
    const int64_t panels = gpt_ceil_div(p->n, cpu_isa->nr);
    float *packed = NULL;

    /* a single row looks the same packed */
    if (p->m > 1 && !(packed = cpu_work(q, (size_t)(p->m * p->k))))
        return;
#pragma omp parallel if (cpu_product_worth_threads(p))
    {
        const int64_t n = omp_get_num_threads(), i = omp_get_thread_num();

        if (packed)
            pack_rows(p, packed);
        multiply_panels(p, w, packed ? packed : p->a, cpu_cut(panels, n, i),
                        cpu_cut(panels, n, i + 1));
    }
}

void cpu_multiply_panels(struct gpt_queue *q, const struct cpu_product *p,
                         const struct gpt_quant *w)
{
    if (p->m == 0 || p->n == 0)
        return;
    if (p->m <= cpu_isa->mr || p->m * p->k <= FEW_INPUTS)
        multiply_few(q, p, w);
    else
        cpu_multiply_tiles(q, p, w);
}
