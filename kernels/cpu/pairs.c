/* Products of bf16 by instructions that multiply pairs of it (pair/). Start at
 * cpu_multiply_pairs().
 *
 * A thread takes a block of one operand, packs it, and keeps it in the second
 * cache, while panels of the other operand pass through the first. The block is
 * of b; of a where a is stored transposed, since such panels are costly to pack
 * and then are packed once. Panels are packed as they come, or where a panel
 * meets many blocks, before, by all threads.
 *
 * Sums over k are cut into groups whose length follows from k alone, and groups
 * are added in ascending order. Everything else that is cut (blocks, ranges)
 * does not touch the order of any sum, so that it may depend on the number of
 * threads. */
#include "cpu/pair/pair.h"
#include "cpu/product.h"

#include <assert.h>
#include <omp.h>

/* The longest group, in chunks of k. A block has at most BLOCK chunks, 1.1
 * MiB. */
enum { GROUP = 64, BLOCK = 576 };
enum { READY = 1 << 22 }; /* floats: what is packed before */
/* Bytes. What is larger has left the caches when it is read, and is stored past
 * them: then its lines need not be read before. */
enum { PAST = 4 << 20 };
/* Floats between rows of sums beyond their width, or rows would fall into the
 * same few sets of a cache. */
enum { GAP = 16 };

/* How a product is cut. `pass` is the operand of which blocks are, `still` the
 * one whose panels come one after the other. */
struct plan {
    const struct cpu_product *p;
    bool still_a, plain;      /* plain: c is floats, and the sums themselves */
    int64_t still_n, pass_n;  /* rows or columns of c */
    int64_t block, blocks;    /* rows or columns of pass, and how many */
    int64_t range, ranges;    /* the same of still */
    int64_t group, groups;    /* chunks of k */
    bool kept;                /* sums of a group wait for the next one */
    int64_t ld_sums;
    int64_t each;             /* floats of work memory a thread */
    uint16_t *ready;          /* all of still, packed for a group, or NULL */
};

/* A thread's place in it: item's beginning, a group, and memory. */
struct place {
    const struct plan *w;
    int64_t pass0, pass_n, still0, still_n;
    int64_t g, k0, k, chunks;
    uint16_t *block, *panel;
    float *sums;
};

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t panels_of(int64_t n)
{
    return (n + PAIR_PANEL - 1) / PAIR_PANEL;
}

/* ---- packing ---- */

/* An operand in memory. */
struct stored {
    const uint16_t *mem;
    int64_t ld;
    bool along_k, is_a;
};

static struct stored stored_of(const struct plan *w, bool a)
{
    const struct cpu_product *p = w->p;

    if (a)
        return (struct stored){p->a, p->lda, !p->ta, true};
    return (struct stored){p->b, p->ldb, p->tb, false};
}

/* Element (row or column i of c, l) of it. */
static const uint16_t *stored_at(const struct stored *s, int64_t i, int64_t l)
{
    return s->mem + (s->along_k ? i * s->ld + l : l * s->ld + i);
}

/* Panels of rows first.., n of them, k values from k0 on. Chunk c of panel i
 * goes to `to` + i * next + c * PAIR_VALUES. */
struct packing {
    struct stored from;
    int64_t first, n, k0, k;
    uint16_t *to;
    int64_t next;
};

static void pack_panel(const struct packing *o, int64_t i)
{
    int64_t at = i * PAIR_PANEL;
    const struct cpu_pair_band band = {
        .from = stored_at(&o->from, o->first + at, o->k0),
        .ld = o->from.ld,
        .rows = least(o->n - at, PAIR_PANEL),
        .columns = o->k,
        .to = o->to + i * o->next,
        .step = PAIR_VALUES,
        .along_k = true,
        .for_a = o->from.is_a};

    cpu_pairs->pack(&band);
}

/* Chunk c of all panels: 32 stored rows across k, read from end to end. */
static void pack_across(const struct packing *o, int64_t c)
{
    int64_t at = c * PAIR_CHUNK;
    const struct cpu_pair_band band = {
        .from = stored_at(&o->from, o->first, o->k0 + at),
        .ld = o->from.ld,
        .rows = least(o->k - at, PAIR_CHUNK),
        .columns = o->n,
        .to = o->to + c * PAIR_VALUES,
        .step = o->next,
        .along_k = false,
        .for_a = o->from.is_a};

    cpu_pairs->pack(&band);
}

static int64_t bands_of(const struct packing *o)
{
    return o->from.along_k ? panels_of(o->n) : panels_of(o->k);
}

static void pack_band(const struct packing *o, int64_t i)
{
    if (o->from.along_k)
        pack_panel(o, i);
    else
        pack_across(o, i);
}

static void pack_all(const struct packing *o)
{
    for (int64_t i = 0; i < bands_of(o); i++)
        pack_band(o, i);
}

static void pack_block(const struct place *t)
{
    pack_all(&(struct packing){stored_of(t->w, !t->w->still_a), t->pass0,
                               t->pass_n, t->k0, t->k, t->block,
                               t->chunks * PAIR_VALUES});
}

/* The panel of still at row or column `at`. */
static const uint16_t *packed_panel(const struct place *t, int64_t at)
{
    const struct plan *w = t->w;

    if (w->ready)
        return w->ready + at / PAIR_PANEL * t->chunks * PAIR_VALUES;
    pack_all(&(struct packing){stored_of(w, w->still_a), at,
                               least(w->still_n - at, PAIR_PANEL), t->k0, t->k,
                               t->panel, t->chunks * PAIR_VALUES});
    return t->panel;
}

static void pack_ready(const struct plan *w, int64_t g)
{
    int64_t k0 = g * w->group * PAIR_CHUNK;
    int64_t k = least(w->p->k - k0, w->group * PAIR_CHUNK);
    const struct packing o = {stored_of(w, w->still_a), 0, w->still_n, k0, k,
                              w->ready, panels_of(k) * PAIR_VALUES};

    /* A thread writes whole chunks of its own. */
#pragma omp parallel for schedule(static) if (cpu_worth_threads(w->still_n *   \
                                                                k / 16))
    for (int64_t i = 0; i < bands_of(&o); i++)
        pack_band(&o, i);
}

/* ---- sweeps ---- */

/* Part of c: rows or columns of still from s on, of pass from p on. */
struct area {
    int64_t m0, n0, m, n;
};

static struct area area_of(const struct plan *w, int64_t s, int64_t s_n,
                           int64_t p, int64_t p_n)
{
    return w->still_a ? (struct area){s, p, s_n, p_n}
                      : (struct area){p, s, p_n, s_n};
}

/* Floats are two lines a row. */
static void announce_floats(const float *c, int64_t ld, int64_t next,
                            struct cpu_pair_sweep *s)
{
    for (int i = 0; i < 2; i++)
        s->beside[i] = (struct cpu_pair_ahead){(const char *)(c + 16 * i),
                                               ld * 4, next * 4};
}

static void announce_narrow(const uint16_t *x, int64_t ld, int64_t next,
                            struct cpu_pair_ahead *to)
{
    *to = (struct cpu_pair_ahead){(const char *)x, ld * 2, next * 2};
}

/* What is read where an area's sums go: c, and what an epilogue takes. */
static void announce(const struct plan *w, const struct cpu_pair_finish *f,
                     struct cpu_pair_sweep *s)
{
    int64_t next_c = PAIR_PANEL * (w->still_a ? 1 : f->ldc);

    if (f->add && f->c32)
        announce_floats(f->c32, f->ldc, next_c, s);
    else if (f->add)
        announce_narrow(f->c16, f->ldc, next_c, &s->beside[0]);
    if (f->epilogue == GPT_EPI_DGELU && !(f->add && f->c32))
        announce_narrow(f->aux, f->ld_aux,
                        PAIR_PANEL * (w->still_a ? 1 : f->ld_aux),
                        &s->beside[f->add]);
}

/* The panel after this one: rows that are to be packed, or lines that are. */
static void announce_panel(const struct place *t, int64_t at,
                           struct cpu_pair_sweep *s)
{
    const struct plan *w = t->w;
    const struct stored from = stored_of(w, w->still_a);
    int64_t rows = PAIR_PANEL / panels_of(t->pass_n) + 1, ld = from.ld * 2;
    const uint16_t *next = stored_at(&from, at + PAIR_PANEL, t->k0);

    if (w->ready) {
        /* as many lines as rows would have */
        ld = t->chunks * PAIR_VALUES * 2 / PAIR_PANEL;
        next = w->ready + (at / PAIR_PANEL + 1) * t->chunks * PAIR_VALUES;
    } else if (!from.along_k)
        return;
    if (at + 2 * PAIR_PANEL > w->still_n)
        return;
    s->read_rows = (int)rows;
    s->read = (struct cpu_pair_ahead){(const char *)next, ld, rows * ld};
}

/* What becomes of an area's sums. Where c itself is the sums, a group's are
 * added to those of groups before. */
static struct cpu_pair_finish finish_of(const struct place *t,
                                        const struct area *a)
{
    const struct plan *w = t->w;
    const struct cpu_product *p = w->p;
    int64_t ldc = p->c16 ? p->ld16 : p->ldc, at = a->m0 * ldc + a->n0;
    int64_t wide = p->c16 ? 2 : 4;
    bool add = p->beta != 0 || (w->plain && t->g > 0);
    bool once = p->beta == 0 && (!w->plain || w->groups == 1);

    return (struct cpu_pair_finish){
        .m = a->m,
        .n = a->n,
        .add = add,
        .past = once && p->m * p->n * wide > PAST,
        .past_aux = p->m * p->n * 2 > PAST,
        .epilogue = p->epilogue,
        .bias = p->bias ? (const uint16_t *)p->bias + a->n0 : NULL,
        .aux = p->aux ? (uint16_t *)p->aux + a->m0 * p->ld_aux + a->n0 : NULL,
        .ld_aux = p->ld_aux,
        .c16 = p->c16 ? p->c16 + at : NULL,
        .c32 = p->c16 ? NULL : p->c + at,
        .ldc = ldc};
}

/* The still panel at `at`, packed, with all of the block. */
static void multiply_panel(const struct place *t, int64_t at,
                           const uint16_t *panel)
{
    const struct plan *w = t->w;
    const struct area a =
        area_of(w, at, least(w->still_n - at, PAIR_PANEL), t->pass0, t->pass_n);
    const struct cpu_pair_finish f = finish_of(t, &a);
    struct cpu_pair_sweep s = {
        .still = panel,
        .pass = t->block,
        .panels = panels_of(t->pass_n),
        .chunks = t->chunks,
        .step = t->chunks * PAIR_VALUES,
        .still_a = w->still_a,
        .odd = t->pass0 / PAIR_PANEL & 1,
        .one_order = w->p->sums == GPT_SUMS_MANY};

    if (w->kept) {
        int64_t row = at - t->still0;

        s.c = t->sums + (w->still_a ? row * w->ld_sums : row);
        s.ldc = w->ld_sums;
        s.next_c = PAIR_PANEL * (w->still_a ? 1 : s.ldc);
        s.add = t->g > 0;
        announce_floats(s.c, s.ldc, s.next_c, &s);
    } else
        announce(w, &f, &s);
    if (w->plain || t->g == w->groups - 1)
        s.finish = &f;
    announce_panel(t, at, &s);
    cpu_pairs->multiply(&s);
}

static void multiply_item(struct place *t, int64_t from, int64_t to)
{
    const struct plan *w = t->w;

    for (t->g = from; t->g < to; t->g++) {
        t->k0 = t->g * w->group * PAIR_CHUNK;
        t->k = least(w->p->k - t->k0, w->group * PAIR_CHUNK);
        t->chunks = panels_of(t->k);
        pack_block(t);
        for (int64_t at = t->still0; at < t->still0 + t->still_n;
             at += PAIR_PANEL)
            multiply_panel(t, at, packed_panel(t, at));
    }
}

/* Groups from `from` to `to` of all items, by all threads. */
static void multiply_items(const struct plan *w, float *work, int64_t from,
                           int64_t to)
{
    int64_t block = up(w->block, PAIR_PANEL) * w->group * PAIR_CHUNK;
    int64_t panel = PAIR_PANEL * w->group * PAIR_CHUNK;

    /* Neighbours share panels of still, which come from the third cache. */
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < w->blocks * w->ranges; i++) {
        float *mine = work + omp_get_thread_num() * w->each;
        struct place t = {.w = w,
                          .pass0 = i % w->blocks * w->block,
                          .still0 = i / w->blocks * w->range,
                          .block = (uint16_t *)(void *)mine};

        t.panel = t.block + block;
        t.sums = mine + (block + panel) / 2;
        t.pass_n = least(w->pass_n - t.pass0, w->block);
        t.still_n = least(w->still_n - t.still0, w->range);
        cpu_pairs->begin();
        multiply_item(&t, from, to);
        cpu_pairs->end();
    }
}

/* ---- the whole ---- */

/* Almost equal pieces of n, multiples of a panel: about `count` of them. */
static int64_t cut(int64_t n, int64_t count, int64_t *pieces)
{
    int64_t piece = up((n + count - 1) / count, PAIR_PANEL);

    *pieces = (n + piece - 1) / piece;
    return piece;
}

/* Blocks are as large as the cache takes, but a thread has one; while they are
 * of a useful size, packing them twice is saved by cutting the other operand
 * last. */
static void plan_items(struct plan *w, int64_t threads)
{
    enum { SMALL = 3 * PAIR_PANEL, LONG = 1024 };
    int64_t most = BLOCK / w->group * PAIR_PANEL;
    int64_t count = (w->pass_n + most - 1) / most;

    if (count < 8 * threads) {
        count = up(count, threads);
        while (count > 1 && w->pass_n / count < SMALL)
            count--;
    }
    w->block = cut(w->pass_n, count, &w->blocks);
    count = w->blocks < threads ? (threads + w->blocks - 1) / w->blocks : 1;
    /* sums of all groups are a thread's own memory */
    if (w->kept && w->still_n / count > LONG)
        count = (w->still_n + LONG - 1) / LONG;
    w->range = cut(w->still_n, count, &w->ranges);
}

/* Floats of sums that a thread keeps where a later group adds to them: those of
 * its whole item. */
static int64_t plan_sums(struct plan *w)
{
    int64_t pass = up(w->block, PAIR_PANEL), still = up(w->range, PAIR_PANEL);

    if (!w->kept)
        return 0;
    w->ld_sums = (w->still_a ? pass : still) + GAP;
    return (w->still_a ? still : pass) * w->ld_sums;
}

void cpu_multiply_pairs(struct gpt_queue *q, const struct cpu_product *product)
{
    struct cpu_product p = *product;
    int64_t threads = omp_get_max_threads(), chunks = panels_of(p.k);
    struct plan w = {.p = &p,
                     .still_a = !p.ta,
                     .groups = (chunks + GROUP - 1) / GROUP};

    assert(p.narrow && p.k > 0 && CPU_BN % PAIR_PANEL == 0);
    if (p.m == 0 || p.n == 0)
        return;
    w.plain = !p.c16 && p.epilogue == GPT_EPI_NONE;
    w.kept = w.groups > 1 && !w.plain;
    w.still_n = w.still_a ? p.m : p.n;
    w.pass_n = w.still_a ? p.n : p.m;
    w.group = (chunks + w.groups - 1) / w.groups;
    plan_items(&w, threads);
    int64_t sums = plan_sums(&w);
    int64_t pack = up(w.still_n, PAIR_PANEL) * w.group * PAIR_CHUNK / 2;
    bool ready =
        !w.still_a && w.blocks > 2 && !w.kept && pack <= READY;
    w.each = (up(w.block, PAIR_PANEL) + PAIR_PANEL) * w.group * PAIR_CHUNK / 2 +
             up(sums, GAP);
    float *work =
        cpu_work(q, (size_t)(w.each * threads + (ready ? pack : 0)));

    if (!work)
        return;
    if (!ready) {
        multiply_items(&w, work, 0, w.groups);
        return;
    }
    w.ready = (uint16_t *)(void *)(work + w.each * threads);
    for (int64_t g = 0; g < w.groups; g++) {
        pack_ready(&w, g);
        multiply_items(&w, work, g, g + 1);
    }
}
