/* Portable matrix products, by the tiles of isa/gemm.c: blocks of any product,
 * and all of a product of many rows with weights. What is not float is widened
 * in the cache, on its way into the panels. */
#include "cpu/many/many.h"
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

/* mc rows of c from m0 on += panels of a times panels of b. Lines of `ahead`
 * come meanwhile. */
static void tiles(const struct cpu_product *p, int64_t m0, int64_t mc,
                  int64_t kc, const float *pa, const float *pb, bool add,
                  struct cpu_many_ahead *ahead)
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

            cpu_many_fetch(ahead);
            cpu_isa->tile(&t);
        }
}

void cpu_tiles(const struct cpu_product *p, float *work)
{
    float *pb = work + PACK_A, *room = pb + PACK_B;
    struct cpu_many_ahead nothing = {0};

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
            tiles(p, m0, mc, kc, pa, pb, k0 > 0 || p->beta != 0, &nothing);
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
               work ? work + omp_get_thread_num() * each : NULL);
    }
}

/* ---- many rows, with weights ---- */

/* Weights are rows of b along k. A thread takes some of them, columns of c, for
 * all rows: each weight is read and packed once. What a thread packs next comes
 * into the second cache beside its tiles. */
enum { COLUMNS = 128, TURNS = 4 }; /* a thread takes at most, and how often */
enum { ROWS = 2 * MC };      /* of a that stay in the second cache */
enum { PACKED_A = 1 << 22 }; /* floats */

struct sweep {
    const struct cpu_product *p;
    const struct gpt_quant *w; /* NULL: floats, at p->b */
    int64_t columns, items;
    int64_t next; /* item that no thread has taken */
};

/* Part of the weights: rows n0.. of them, columns k0... */
struct part {
    int64_t n0, n, k0, k;
};

/* That of item i which begins at k0. */
static struct part part_of(const struct sweep *s, int64_t i, int64_t k0)
{
    const int64_t n0 = i * s->columns;

    return (struct part){.n0 = n0,
                         .n = gpt_min_i64(s->p->n - n0, s->columns),
                         .k0 = k0,
                         .k = gpt_min_i64(s->p->k - k0, KC)};
}

/* Reading it takes so many lines with each of the tiles of `now`. */
static struct cpu_many_ahead ahead_of(const struct sweep *s,
                                      const struct part *part,
                                      const struct part *now)
{
    const int64_t tiles_now = gpt_ceil_div(s->p->m, cpu_isa->mr) *
                              gpt_ceil_div(now->n, cpu_isa->nr);
    const int64_t ld = s->w ? s->p->k : s->p->ldb;
    const int64_t value = !s->w ? 4 : s->w->type == GPT_BF16 ? 2 : 1;
    const char *mem = s->w ? s->w->values : s->p->b;

    return cpu_many_ahead_of(mem + (part->n0 * ld + part->k0) * value,
                             ld * value, part->k * value, part->n, tiles_now);
}

/* As floats in `room`, which has a panel, where they are in fewer bits. */
static void pack_weights(const struct sweep *s, const struct part *part,
                         float *to, float *room)
{
    const int64_t nr = cpu_isa->nr;

    for (int64_t j = 0; j < part->n; j += nr, to += nr * part->k) {
        const int64_t n = gpt_min_i64(part->n - j, nr), n0 = part->n0 + j;
        const float *from = room;

        for (int64_t i = 0; i < n && s->w; i++)
            cpu_quant_row(room + i * part->k, s->w, n0 + i, part->k0, part->k,
                          s->p->k);
        if (!s->w)
            from = (const float *)s->p->b + n0 * s->p->ldb + part->k0;
        cpu_isa->pack_b(to, from, 1, s->w ? part->k : s->p->ldb, part->k, n);
    }
}

static void multiply_part(const struct sweep *s, const struct part *part,
                          struct cpu_many_ahead *ahead, const float *weights)
{
    const struct cpu_product c =
        cpu_block_of(s->p, 0, part->n0, s->p->m, part->n, NULL);
    const float *a = c.packed + part->k0 * c.m_pad;

    for (int64_t m0 = 0; m0 < c.m; m0 += ROWS)
        tiles(&c, m0, gpt_min_i64(c.m - m0, ROWS), part->k, a + m0 * part->k,
              weights, part->k0 > 0 || c.beta != 0, ahead);
    if (part->k0 + part->k == c.k)
        cpu_finish_block(&c);
}

/* Items in turn; the next one is known while a thread works on one. */
static void multiply_items(struct sweep *s, float *weights)
{
    float *room = weights + s->columns * KC;

    for (int64_t i = cpu_take(&s->next), next; i < s->items; i = next) {
        int64_t k0 = 0;

        next = cpu_take(&s->next);
        do { /* once where k is 0 */
            const struct part part = part_of(s, i, k0);
            const bool last = k0 + part.k == s->p->k;
            const struct part then =
                last ? part_of(s, next, 0) : part_of(s, i, k0 + part.k);
            struct cpu_many_ahead ahead = {0};

            if (!last || next < s->items)
                ahead = ahead_of(s, &then, &part);
            pack_weights(s, &part, weights, room);
            multiply_part(s, &part, &ahead, weights);
        } while ((k0 += KC) < s->p->k);
    }
}

static void sweep_rows(struct gpt_queue *q, struct cpu_product *p,
                       const struct gpt_quant *w)
{
    const int64_t nr = cpu_isa->nr, threads = omp_get_max_threads();
    const int64_t panels = gpt_ceil_div(p->n, nr);
    const int64_t share = gpt_ceil_div(panels, TURNS * threads);
    struct sweep s = {.p = p,
                      .w = w,
                      .columns = nr * gpt_min_i64(share, COLUMNS / nr)};
    const int64_t each = (s.columns + nr) * KC;

    p->m_pad = gpt_round_up(p->m, cpu_isa->mr);
    s.items = gpt_ceil_div(p->n, s.columns);
    float *work = cpu_work(q, (size_t)(p->m_pad * p->k + threads * each));
    if (!work)
        return;
    cpu_tiles_pack_a(p, work, NULL, 0);
#pragma omp parallel if (cpu_product_worth_threads(p))
    multiply_items(&s, work + p->m_pad * p->k + omp_get_thread_num() * each);
}

void cpu_multiply_weights(struct gpt_queue *q, const struct cpu_product *whole,
                          const struct gpt_quant *w)
{
    const int64_t most = PACKED_A / ((whole->k + 1) * ROWS) * ROWS;
    const int64_t rows = most > ROWS ? most : ROWS;

    for (int64_t m0 = 0; m0 < whole->m && whole->n > 0; m0 += rows) {
        struct cpu_product p = *whole;

        p.m = gpt_min_i64(whole->m - m0, rows);
        p.a = (const float *)p.a + m0 * p.lda;
        p.c += m0 * p.ldc;
        if (p.aux)
            p.aux = (float *)p.aux + m0 * p.ld_aux;
        sweep_rows(q, &p, w);
    }
}
