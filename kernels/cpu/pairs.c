/* Products of bf16 by instructions that multiply pairs of it (pair/): operands
 * are packed once, by all threads, into chunks; then blocks of c are a thread's
 * each. Start at cpu_multiply_pairs().
 *
 * Sums over k are cut into parts whose length follows from k alone, and parts
 * are added in ascending order. Everything else that is cut (strips, blocks)
 * does not touch the order of any sum, so that block sizes may depend on the
 * number of threads. */
#include "cpu/pair/pair.h"
#include "cpu/product.h"

#include <assert.h>
#include <omp.h>

/* A part of a panel of a, 32 x 512, and the one of b that passes by fill the
 * first cache. */
enum { PART = 512, STRIP = 8 * CPU_BN, GROUP = 8 };

/* A strip of c at row m0, column n0, and a group of parts of k from k0 on, with
 * what is packed for them. */
struct strip {
    const struct cpu_product *whole;
    int64_t m0, m, n0, n, k0, k;
    int64_t part; /* chunks of a whole part */
    uint16_t *a, *b;
    int64_t bm;  /* rows of a block */
    float *sums; /* (m, n) of the strip, both padded, or a block a thread */
    int64_t ld_sums; /* 0: a block a thread */
    bool first, last; /* group of k */
};

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Chunks of the part that begins at chunk `from`. */
static int64_t part_chunks(const struct strip *s, int64_t from)
{
    return least(up(s->k, PAIR_CHUNK) / PAIR_CHUNK - from, s->part);
}

/* Where the part that begins at chunk `from` is in an operand of `panels`
 * panels: parts before it are whole. */
static int64_t part_at(int64_t from, int64_t panels)
{
    return from * panels * PAIR_VALUES;
}

/* ---- packing ---- */

/* An operand's rows of c's side, `rows` from row0 on. */
struct side {
    const uint16_t *mem;
    uint16_t *to;
    int64_t ld, row0, rows, panels;
    bool along_k, for_a;
};

/* Panel i, whose stored rows run along k. */
static void pack_panel(const struct strip *s, const struct side *o, int64_t i)
{
    int64_t chunks = up(s->k, PAIR_CHUNK) / PAIR_CHUNK;
    struct cpu_pair_band band = {
        .from = o->mem + (o->row0 + i * PAIR_PANEL) * o->ld + s->k0,
        .ld = o->ld,
        .rows = least(o->rows - i * PAIR_PANEL, PAIR_PANEL),
        .step = PAIR_VALUES,
        .along_k = true,
        .for_a = o->for_a};

    for (int64_t c = 0; c < chunks; c += s->part) {
        int64_t n = part_chunks(s, c);

        band.columns = least(s->k - c * PAIR_CHUNK, n * PAIR_CHUNK);
        band.to = o->to + part_at(c, o->panels) + i * n * PAIR_VALUES;
        cpu_pairs->pack(&band);
        band.from += n * PAIR_CHUNK;
    }
}

/* Chunk c of all panels: 32 stored rows across k, read from end to end. */
static void pack_across(const struct strip *s, const struct side *o, int64_t c)
{
    int64_t from = c / s->part * s->part, n = part_chunks(s, from);
    struct cpu_pair_band band = {
        .from = o->mem + (s->k0 + c * PAIR_CHUNK) * o->ld + o->row0,
        .ld = o->ld,
        .rows = least(s->k - c * PAIR_CHUNK, PAIR_CHUNK),
        .columns = o->rows,
        .to = o->to + part_at(from, o->panels) + (c - from) * PAIR_VALUES,
        .step = n * PAIR_VALUES,
        .along_k = false,
        .for_a = o->for_a};

    cpu_pairs->pack(&band);
}

static void pack_side(const struct strip *s, const struct side *o)
{
    int64_t bands = o->along_k ? o->panels : up(s->k, PAIR_CHUNK) / PAIR_CHUNK;

    /* A thread writes whole chunks of its own. */
#pragma omp parallel for schedule(static) if (cpu_worth_threads(o->rows *      \
                                                                s->k / 4))
    for (int64_t i = 0; i < bands; i++) {
        if (o->along_k)
            pack_panel(s, o, i);
        else
            pack_across(s, o, i);
    }
}

static void pack_a(const struct strip *s)
{
    struct side o = {s->whole->a, s->a, s->whole->lda, s->m0, s->m,
                     up(s->m, PAIR_PANEL) / PAIR_PANEL, !s->whole->ta, true};

    pack_side(s, &o);
}

static void pack_b(const struct strip *s)
{
    struct side o = {s->whole->b, s->b, s->whole->ldb, s->n0, s->n,
                     up(s->n, PAIR_PANEL) / PAIR_PANEL, s->whole->tb, false};

    pack_side(s, &o);
}

/* ---- blocks ---- */

/* The block at row i, column j of the strip. */
static void multiply_block(const struct strip *s, int64_t i, int64_t j,
                           float *room)
{
    int64_t chunks = up(s->k, PAIR_CHUNK) / PAIR_CHUNK;
    int64_t m_panels = up(s->m, PAIR_PANEL) / PAIR_PANEL;
    int64_t n_panels = up(s->n, PAIR_PANEL) / PAIR_PANEL;
    struct cpu_pair_block b = {.m = up(least(s->m - i, s->bm), PAIR_PANEL),
                               .n = up(least(s->n - j, CPU_BN), PAIR_PANEL),
                               .c = room,
                               .ldc = CPU_BN,
                               .add = !s->first};

    if (s->ld_sums) {
        b.c = s->sums + i * s->ld_sums + j;
        b.ldc = s->ld_sums;
    }
    for (int64_t c = 0; c < chunks; c += s->part) {
        b.chunks = part_chunks(s, c);
        b.a_step = b.b_step = b.chunks * PAIR_VALUES;
        b.a = s->a + part_at(c, m_panels) + i / PAIR_PANEL * b.a_step;
        b.b = s->b + part_at(c, n_panels) + j / PAIR_PANEL * b.b_step;
        cpu_pairs->multiply(&b);
        b.add = true;
    }
    if (!s->last)
        return;
    struct cpu_product done =
        cpu_block_of(s->whole, s->m0 + i, s->n0 + j, least(s->m - i, s->bm),
                     least(s->n - j, CPU_BN), b.c);

    done.ldc = b.ldc;
    cpu_finish_block(&done);
}

static void multiply_strip(const struct strip *s)
{
    int64_t rows = (s->m + s->bm - 1) / s->bm;
    int64_t columns = (s->n + CPU_BN - 1) / CPU_BN;

    /* Neighbours in i share columns of b, which stay in the second cache. */
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < rows * columns; i++)
        multiply_block(s, i % rows * s->bm, i / rows * CPU_BN,
                       s->sums + omp_get_thread_num() * s->bm * CPU_BN);
}

/* ---- the whole ---- */

/* Rows of a block: at most CPU_BN, so that its sums and what is packed for a
 * part of it fill half of the second cache; fewer when threads would wait. */
static int64_t block_rows(int64_t m, int64_t n, int64_t threads)
{
    int64_t bm = CPU_BN, columns = (n + CPU_BN - 1) / CPU_BN;

    while (bm > 3 * PAIR_PANEL &&
           (m + bm - 1) / bm * columns < 2 * threads)
        bm /= 2;
    return bm;
}

/* Carves work memory, all multiples of a cache line. False after a failure. */
static bool carve(struct gpt_queue *q, struct strip *s)
{
    const struct cpu_product *p = s->whole;
    int64_t m = up(least(p->m, STRIP), CPU_BN);
    int64_t n = up(least(p->n, STRIP), CPU_BN);
    int64_t k = up(least(p->k, s->part * PAIR_CHUNK * GROUP), PAIR_CHUNK);
    bool grouped = p->k > k;
    int64_t blocks = s->bm * CPU_BN * omp_get_max_threads();
    int64_t sums = grouped ? m * (n + 16) : blocks;
    float *work = cpu_work(q, (size_t)(sums + (m + n) * k / 2));

    if (!work)
        return false;
    s->sums = work;
    /* 16 more, or rows would fall into the same few sets of a cache */
    s->ld_sums = grouped ? n + 16 : 0;
    s->a = (uint16_t *)(void *)(work + sums);
    s->b = s->a + m * k;
    return true;
}

/* All groups of k for a strip. What is packed already stays. */
static void multiply_groups(struct strip *s, bool new_a, bool new_b)
{
    int64_t group = s->part * PAIR_CHUNK * GROUP, all = s->whole->k;

    for (s->k0 = 0; s->k0 < all; s->k0 += group) {
        s->k = least(all - s->k0, group);
        s->first = s->k0 == 0;
        s->last = s->k0 + s->k == all;
        if (new_a || all > group)
            pack_a(s);
        if (new_b || all > group)
            pack_b(s);
        multiply_strip(s);
    }
}

void cpu_multiply_pairs(struct gpt_queue *q, const struct cpu_product *product)
{
    struct cpu_product p = *product;
    int64_t parts = (p.k + PART - 1) / PART;
    struct strip s = {
        .whole = &p,
        .part = (up(p.k, PAIR_CHUNK) / PAIR_CHUNK + parts - 1) / parts,
        .bm = block_rows(p.m, p.n, omp_get_max_threads()),
    };

    assert(p.narrow && p.k > 0 && CPU_BN % PAIR_PANEL == 0);
    p.late = true;
    p.c32 = p.c16 ? NULL : p.c;
    p.ld32 = p.ldc;
    if (p.m == 0 || p.n == 0 || !carve(q, &s))
        return;
    /* Strips keep what is packed within a few megabytes, however wide the
     * vocabulary is. */
    for (s.m0 = 0; s.m0 < p.m; s.m0 += STRIP)
        for (s.n0 = 0; s.n0 < p.n; s.n0 += STRIP) {
            s.m = least(p.m - s.m0, STRIP);
            s.n = least(p.n - s.n0, STRIP);
            multiply_groups(&s, s.n0 == 0, s.m0 == 0 || p.n > STRIP);
        }
}
