/* Portable blocks of matrix products, by the tiles of isa/gemm.c. bf16 is
 * widened in the cache, on its way into the panels. */
#include "cpu/product.h"

#include <omp.h>

/* Sums are cut every KC: a panel of b, KC rows of a tile's columns, stays in
 * the first cache while the packed part of a, MC x KC, stays in the second. */
enum { KC = 256, MC = 144 };
enum {
    PACK_A = (MC + CPU_MR_MAX) * KC,
    PACK_B = (CPU_BN + CPU_NR_MAX) * KC,
    WIDENED = CPU_BN * KC, /* what is packed next, of a or of b */
};

const float *cpu_floats(const struct cpu_product *p, const void *mem,
                        int64_t at, int64_t rows, int64_t cols, int64_t *ld,
                        float *room)
{
    if (!p->narrow)
        return (const float *)mem + at;
    for (int64_t i = 0; i < rows; i++)
        cpu_isa->widen(room + i * cols, (const uint16_t *)mem + at + i * *ld,
                       cols);
    *ld = cols;
    return room;
}

int64_t cpu_tiles_work(const struct cpu_product *whole)
{
    return PACK_A + PACK_B + (whole->narrow ? WIDENED : 0);
}

/* Rows m0.. of a, columns k0..: mc x kc of them as panels. A panel holds mr
 * rows so that a step over k reads one run of memory, whatever the strides of
 * the matrix: from here on transposed operands are as others. */
static void pack_a(const struct cpu_product *p, float *to, int64_t m0,
                   int64_t mc, int64_t k0, int64_t kc, float *room)
{
    int64_t ld = p->lda;

    if (p->ta) {
        const float *a = cpu_floats(p, p->a, k0 * ld + m0, kc, mc, &ld, room);

        cpu_isa->pack_a(to, a, 1, ld, mc, kc);
    } else {
        const float *a = cpu_floats(p, p->a, m0 * ld + k0, mc, kc, &ld, room);

        cpu_isa->pack_a(to, a, ld, 1, mc, kc);
    }
}

/* kc rows of b from k0 on, all columns. */
static void pack_b(const struct cpu_product *p, float *to, int64_t k0,
                   int64_t kc, float *room)
{
    int64_t ld = p->ldb;

    if (p->tb) {
        const float *b = cpu_floats(p, p->b, k0, p->n, kc, &ld, room);

        cpu_isa->pack_b(to, b, 1, ld, kc, p->n);
    } else {
        const float *b = cpu_floats(p, p->b, k0 * ld, kc, p->n, &ld, room);

        cpu_isa->pack_b(to, b, ld, 1, kc, p->n);
    }
}

/* mc rows of c from m0 on += panels of a times panels of b. */
static void tiles(const struct cpu_product *p, int64_t m0, int64_t mc,
                  int64_t kc, const float *pa, const float *pb, bool add)
{
    int64_t mr = cpu_isa->mr, nr = cpu_isa->nr;

    /* The panel of b goes outside: it stays in the first cache while the panels
     * of a, in the second, pass by. */
    for (int64_t n0 = 0; n0 < p->n; n0 += nr)
        for (int64_t i = 0; i < mc; i += mr) {
            struct cpu_tile t = {.m = mc - i < mr ? mc - i : mr,
                                 .n = p->n - n0 < nr ? p->n - n0 : nr,
                                 .k = kc,
                                 .a = pa + i * kc,
                                 .a_row = 1,
                                 .a_col = mr,
                                 .b = pb + n0 * kc,
                                 .c = p->c + (m0 + i) * p->ldc + n0,
                                 .ldc = p->ldc,
                                 .add = add};

            cpu_isa->tile(&t);
        }
}

void cpu_tiles(const struct cpu_product *p, float *work)
{
    float *pb = work + PACK_A, *room = pb + PACK_B;

    /* Sums are cut at multiples of KC, a constant, and parts are added to c in
     * ascending order: the parentheses of every element are fixed. */
    for (int64_t k0 = 0; k0 < p->k; k0 += KC) {
        int64_t kc = p->k - k0 < KC ? p->k - k0 : KC;

        pack_b(p, pb, k0, kc, room);
        for (int64_t m0 = 0; m0 < p->m; m0 += MC) {
            int64_t mc = p->m - m0 < MC ? p->m - m0 : MC;
            const float *pa = work;

            /* Parts of `packed` follow each other by k0, then by m0: a part
             * for every thread to read, none to pack. */
            if (p->packed)
                pa = p->packed + k0 * p->m_pad + (p->m0 + m0) * kc;
            else
                pack_a(p, work, m0, mc, k0, kc, room);
            tiles(p, m0, mc, kc, pa, pb, k0 > 0 || p->beta != 0);
        }
    }
}

void cpu_tiles_pack_a(struct cpu_product *p, float *to, float *work,
                      int64_t each)
{
    /* Workers write to places of their own; the end of the loop is a barrier,
     * before anybody reads. */
    p->packed = to;
    int64_t rows = (p->m + MC - 1) / MC, parts = (p->k + KC - 1) / KC;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(p->m * p->k))
    for (int64_t i = 0; i < rows * parts; i++) {
        int64_t m0 = i % rows * MC, k0 = i / rows * KC;
        int64_t mc = p->m - m0 < MC ? p->m - m0 : MC;
        int64_t kc = p->k - k0 < KC ? p->k - k0 : KC;

        pack_a(p, to + k0 * p->m_pad + m0 * kc, m0, mc, k0, kc,
               work + omp_get_thread_num() * each);
    }
}
