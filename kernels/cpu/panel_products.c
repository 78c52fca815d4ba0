/* Products with weights of floats in panels (quant.h), for generation. Start at
 * cpu_multiply_panels(). Few rows are packed in groups of at most a tile's, and
 * a thread reads one stretch of panels from its beginning to its end, each of
 * which meets all groups: the speed is that of memory. Many rows are left to
 * tiles.c, which takes such panels as they lie. Both cut sums at the same
 * places, so that an element has the same bits with either. */
#include "cpu/product.h"
#include "cpu/quant.h"

#include "base/num.h"

#include <omp.h>

/* Inputs of up to so many floats stay in the second cache while panels pass. */
enum { FEW_INPUTS = 1 << 17 };

/* Rows of a group: groups have the same number of them, or the last one less.
 */
static int64_t side_of(int64_t m)
{
    return gpt_ceil_div(m, gpt_ceil_div(m, cpu_isa->mr));
}

/* Packs a part of k of each group of rows: parts follow each other by k, then
 * by rows. Of these pieces, share number `share` of `shares`. */
static void pack_rows(const struct cpu_product *p, float *to, int64_t share,
                      int64_t shares)
{
    const int64_t side = side_of(p->m), groups = gpt_ceil_div(p->m, side);
    const int64_t n = groups * gpt_ceil_div(p->k, CPU_KC);

    for (int64_t i = cpu_cut(n, shares, share);
         i < cpu_cut(n, shares, share + 1); i++) {
        const int64_t m0 = i % groups * side, k0 = i / groups * CPU_KC;
        const int64_t m = gpt_min_i64(p->m - m0, side);
        const int64_t k = gpt_min_i64(p->k - k0, CPU_KC);

        cpu_isa->pack_rows(to + k0 * p->m + m0 * k,
                           (const float *)p->a + m0 * p->lda + k0, p->lda, m,
                           k);
    }
}

/* How far ahead memory is asked for by a single group of rows, past the end of
 * the panel, too. */
enum { AHEAD = (8 << 10) / sizeof(float) };

/* Multiplies columns k0 .. k0 + k - 1 of all rows with what the panel `block`
 * has of them at b. Groups of rows after the first find it in a cache. Two of
 * several ask for half each of as much memory behind it. */
static void multiply_part(const struct cpu_product *block, const float *a,
                          const float *b, int64_t k0, int64_t k)
{
    const int64_t side = side_of(block->m), all = cpu_isa->nr * k;
    const bool several = side < block->m;
    struct cpu_panel t = {.n = block->n,
                          .k = k,
                          .b = b,
                          .ldc = block->ldc,
                          .add = k0 > 0 || block->beta != 0,
                          .next = b + (several ? all : AHEAD),
                          .lines = several ? 1 : 2};

    for (int64_t i = 0; i < block->m; i += side) {
        t.m = gpt_min_i64(block->m - i, side);
        t.a = a + k0 * block->m + i * k;
        t.c = block->c + i * block->ldc;
        cpu_isa->panel(&t);
        t.next += all / 2;
        if (i > 0)
            t.lines = 0;
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

/* A part of the rows is packed by the threads that multiply it. */
static void multiply_few(struct gpt_queue *q, const struct cpu_product *p,
                         const struct gpt_quant *w)
{
    const struct cpu_sharing s = cpu_share_few(p, true);
    const int64_t panels = gpt_ceil_div(p->n, cpu_isa->nr);
    const int64_t all = s.parts * s.shares;
    float *packed = NULL;

    /* a single row looks the same packed */
    if (p->m > 1 && !(packed = cpu_work(q, (size_t)(p->m * p->k))))
        return;
#pragma omp parallel if (all > 1)
    {
        /* the end of the loop is a barrier: all is packed */
#pragma omp for schedule(static)
        for (int64_t i = 0; i < (packed ? all : 0); i++) {
            const struct cpu_product part =
                cpu_rows_of(p, s.parts, i / s.shares);

            pack_rows(&part, packed + part.m0 * p->k, i % s.shares, s.shares);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < all; i++) {
            const struct cpu_product part =
                cpu_rows_of(p, s.parts, i / s.shares);
            const int64_t share = i % s.shares;

            multiply_panels(&part, w,
                            packed ? packed + part.m0 * p->k : part.a,
                            cpu_cut(panels, s.shares, share),
                            cpu_cut(panels, s.shares, share + 1));
        }
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
