/* Products of bf16 by instructions that multiply pairs of it (pair/). Start at
 * cpu_multiply_pairs().
 *
 * A thread takes a block of one operand, packs it, and keeps it in the second
 * cache, while panels of the other operand pass through the first. Panels are
 * packed as they come, or where a panel meets many blocks, before, by all
 * threads. Threads take panels one by one, and a thread without a block joins
 * another's: cores are not equally fast, and change their speed.
 *
 * Sums over k are cut into groups whose length follows from k alone, and groups
 * are added in ascending order. Everything else (blocks, areas, which thread
 * takes a panel) does not touch the order of any sum, so that it may depend on
 * the number of threads. */
#include "base/num.h"
#include "cpu/pack.h"
#include "cpu/product.h"

#include <assert.h>
#include <omp.h>

/* The longest group, in chunks of k. A block has at most BLOCK chunks, 1.1
 * MiB. */
enum { GROUP = 64, BLOCK = 576 };
enum { READY = 1 << 22 }; /* floats: what is packed before */
/* Bytes. A result larger than this has left the caches when it is read, and is
 * stored past them: then its lines need not be read before. */
enum { PAST = 4 << 20 };
/* Floats between rows of sums beyond their width, or rows would fall into the
 * same few sets of a cache. */
enum { GAP = 16 };

/* How a product is cut. `pass` is the operand that is cut into blocks, `still`
 * the one whose panels come one after the other. */
struct plan {
    const struct cpu_product *p;
    bool still_a, plain;      /* plain: c is floats, and the sums themselves */
    int64_t still_n, pass_n;  /* rows or columns of c */
    int64_t block, blocks;    /* rows or columns of pass, and how many */
    int64_t group, groups;    /* chunks of k */
    bool kept;                /* sums of a group wait for the next one */
    int64_t span, wide;       /* of an area: still, and blocks */
    int64_t ld_sums;
    int64_t each;             /* floats of work memory a thread */
    uint16_t *ready;          /* all of still, packed for a group, or NULL */
    float *sums;              /* of an area, where kept */
    int64_t *taken;           /* (blocks): panels of still, by some thread */
};

/* The products of one group for an area of c: blocks from `block0` on, and
 * still from `still0`. */
struct area {
    const struct plan *w;
    int64_t block0, blocks, still0, still_n;
    int64_t g, k0, k, chunks;
    int64_t begun; /* blocks that a thread has taken */
};

/* What a thread works on in an area: a block, and memory. */
struct place {
    const struct plan *w;
    struct area *area;
    int64_t at, pass0, pass_n; /* at: the block's place in the area */
    uint16_t *block, *panel;
};

/* ---- packing ---- */

static struct cpu_stored stored_of(const struct plan *w, bool a)
{
    const struct cpu_product *p = w->p;

    if (a)
        return (struct cpu_stored){p->a, p->lda, !p->ta, true};
    return (struct cpu_stored){p->b, p->ldb, p->tb, false};
}

static void pack_block(const struct place *t)
{
    const struct area *r = t->area;

    cpu_pack_all(&(struct cpu_packing){
        stored_of(t->w, !t->w->still_a), t->pass0, t->pass_n, r->k0, r->k,
        t->block, r->chunks * PAIR_VALUES});
}

static uint16_t *ready_panel(const struct area *r, int64_t at)
{
    return r->w->ready + at / PAIR_PANEL * r->chunks * PAIR_VALUES;
}

/* Returns the panel of still at row or column `at`, packed. */
static const uint16_t *packed_panel(const struct place *t, int64_t at)
{
    const struct plan *w = t->w;
    const struct area *r = t->area;

    if (w->ready)
        return ready_panel(r, at);
    cpu_pack_all(&(struct cpu_packing){
        stored_of(w, w->still_a), at, gpt_min_i64(w->still_n - at, PAIR_PANEL),
        r->k0, r->k, t->panel, r->chunks * PAIR_VALUES});
    return t->panel;
}

static void pack_ready(const struct area *r)
{
    const struct plan *w = r->w;
    const struct cpu_packing o = {
        stored_of(w, w->still_a), 0, w->still_n, r->k0, r->k, w->ready,
        r->chunks * PAIR_VALUES};

#pragma omp parallel for schedule(static) if (cpu_worth_threads(w->still_n *   \
                                                                r->k / 16))
    for (int64_t i = 0; i < cpu_pack_bands(&o); i++)
        cpu_pack_band(&o, i);
}

/* ---- sweeps ---- */

/* A part of c: rows or columns of still from s on, of pass from p on. */
struct part {
    int64_t m0, n0, m, n;
};

static struct part part_of(const struct plan *w, int64_t s, int64_t s_n,
                           int64_t p, int64_t p_n)
{
    return w->still_a ? (struct part){s, p, s_n, p_n}
                      : (struct part){p, s, p_n, s_n};
}

/* Asks for floats of c, two lines a row. */
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

/* Asks for what is read where a part's sums go: c, and what an epilogue
 * takes. */
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

/* Asks for the panel after this one: rows that are to be packed, or packed
 * lines. */
static void announce_panel(const struct place *t, int64_t next,
                           struct cpu_pair_sweep *s)
{
    enum { LINE = 64 };
    const struct plan *w = t->w;
    const struct area *r = t->area;
    const struct cpu_stored from = stored_of(w, w->still_a);
    int64_t rows = PAIR_PANEL / cpu_panels_of(t->pass_n) + 1, ld = from.ld * 2;
    const void *mem = cpu_stored_at(&from, next, r->k0);

    s->read_rows = rows;
    s->read_step = LINE;
    if (w->ready) {
        /* as many lines as rows would have */
        ld = r->chunks * LINE;
        mem = ready_panel(r, next);
    } else if (!from.along_k)
        s->read_step = rows * ld;
    s->read = (struct cpu_pair_ahead){
        mem, ld, from.along_k || w->ready ? rows * ld : r->chunks * rows * ld};
}

/* Says what becomes of a part's sums. Where c itself is the sums, a group's are
 * added to those of groups before. */
static struct cpu_pair_finish finish_of(const struct place *t,
                                        const struct part *a)
{
    const struct plan *w = t->w;
    const struct cpu_product *p = w->p;
    int64_t ldc = p->c16 ? p->ld16 : p->ldc, at = a->m0 * ldc + a->n0;
    int64_t wide = p->c16 ? 2 : 4;
    bool add = p->beta != 0 || (w->plain && t->area->g > 0);
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

/* The sums of a part that wait for the next group. */
static float *kept_sums(const struct place *t, const struct part *a)
{
    const struct plan *w = t->w;
    int64_t m0 = t->area->block0 * w->block, n0 = t->area->still0;

    if (w->still_a)
        return w->sums + (a->m0 - n0) * w->ld_sums + a->n0 - m0;
    return w->sums + (a->m0 - m0) * w->ld_sums + a->n0 - n0;
}

/* Multiplies the still panel at `at` with all of the block. next is the panel
 * that this thread takes then, or -1. */
static void multiply_panel(const struct place *t, int64_t at, int64_t next)
{
    const struct plan *w = t->w;
    const struct area *r = t->area;
    const struct part a = part_of(
        w, at, gpt_min_i64(w->still_n - at, PAIR_PANEL), t->pass0, t->pass_n);
    const struct cpu_pair_finish f = finish_of(t, &a);
    struct cpu_pair_sweep s = {
        .still = packed_panel(t, at),
        .pass = t->block,
        .panels = cpu_panels_of(t->pass_n),
        .chunks = r->chunks,
        .step = r->chunks * PAIR_VALUES,
        .still_a = w->still_a,
        .odd = t->pass0 / PAIR_PANEL & 1,
        .one_order = w->p->sums == GPT_SUMS_MANY};

    if (w->kept) {
        s.c = kept_sums(t, &a);
        s.ldc = w->ld_sums;
        s.next_c = PAIR_PANEL * (w->still_a ? 1 : s.ldc);
        s.add = r->g > 0;
        announce_floats(s.c, s.ldc, s.next_c, &s);
    } else
        announce(w, &f, &s);
    if (w->plain || r->g == w->groups - 1)
        s.finish = &f;
    if (next >= 0)
        announce_panel(t, next, &s);
    cpu_pairs->multiply(&s);
}

/* ---- threads ---- */

/* How many panels of still no thread has taken yet for block i of an area. */
static int64_t panels_left(const struct area *r, int64_t i)
{
    return cpu_panels_of(r->still_n) -
           __atomic_load_n(&r->w->taken[i], __ATOMIC_RELAXED);
}

/* Takes the next row or column of still for this thread; -1 when none is
 * left. */
static int64_t take_panel(const struct area *r, int64_t i)
{
    int64_t at = __atomic_fetch_add(&r->w->taken[i], 1, __ATOMIC_RELAXED);

    return at < cpu_panels_of(r->still_n) ? r->still0 + at * PAIR_PANEL : -1;
}

/* Takes a block that no thread has begun, or else the one with most work, if
 * that is worth packing the block once more: about as much time as three panels
 * take. -1 where there is none. */
static int64_t take_block(struct area *r)
{
    enum { WORTH = 8 };
    int64_t best = __atomic_fetch_add(&r->begun, 1, __ATOMIC_RELAXED);

    if (best < r->blocks)
        return best;
    best = 0;
    for (int64_t i = 1; i < r->blocks; i++)
        if (panels_left(r, i) > panels_left(r, best))
            best = i;
    return panels_left(r, best) >= WORTH ? best : -1;
}

static void multiply_block(struct place *t)
{
    const struct area *r = t->area;
    int64_t at = take_panel(r, t->at);

    if (at < 0)
        return;
    t->pass0 = (r->block0 + t->at) * t->w->block;
    t->pass_n = gpt_min_i64(t->w->pass_n - t->pass0, t->w->block);
    pack_block(t);
    while (at >= 0) {
        int64_t next = take_panel(r, t->at);

        multiply_panel(t, at, next);
        at = next;
    }
}

static void multiply_area(struct area *r, float *work)
{
    const struct plan *w = r->w;
    int64_t panel = PAIR_PANEL * w->group * PAIR_CHUNK;

    for (int64_t i = 0; i < r->blocks; i++)
        w->taken[i] = 0;
#pragma omp parallel
    {
        struct place t = {.w = w, .area = r};

        t.panel = (uint16_t *)(void *)(work + omp_get_thread_num() * w->each);
        t.block = t.panel + panel;
        cpu_pairs->begin();
        while ((t.at = take_block(r)) >= 0)
            multiply_block(&t);
        cpu_pairs->end();
    }
}

/* Multiplies all groups of an area. */
static void multiply_groups(const struct plan *w, const struct area *where,
                            float *work)
{
    for (int64_t g = 0; g < w->groups; g++) {
        struct area r = *where;

        r.g = g;
        r.k0 = g * w->group * PAIR_CHUNK;
        r.k = gpt_min_i64(w->p->k - r.k0, w->group * PAIR_CHUNK);
        r.chunks = cpu_panels_of(r.k);
        if (w->ready)
            pack_ready(&r);
        multiply_area(&r, work);
    }
}

/* ---- the whole ---- */

/* The size of almost equal pieces of n that are multiples of a panel. Makes
 * about `count` of them, and sets *pieces to their number. */
static int64_t cut(int64_t n, int64_t count, int64_t *pieces)
{
    int64_t piece = gpt_round_up(gpt_ceil_div(n, count), PAIR_PANEL);

    *pieces = gpt_ceil_div(n, piece);
    return piece;
}

/* Blocks are as large as the cache takes; there are several a thread, or few
 * enough for all threads to share each. */
static void plan_blocks(struct plan *w, int64_t threads)
{
    enum { SMALL = 3 * PAIR_PANEL, FEW = 8 };
    int64_t most = BLOCK / w->group * PAIR_PANEL;
    int64_t count = gpt_ceil_div(w->pass_n, most);

    if (count < FEW * threads &&
        (count > 1 || cpu_panels_of(w->still_n) < FEW * threads)) {
        count = gpt_round_up(count, threads);
        while (count > 1 && w->pass_n / count < SMALL)
            count--;
    }
    w->block = cut(w->pass_n, count, &w->blocks);
}

/* Plans areas, and returns how many floats of sums one has. An area is all of
 * c, or where sums are kept, what a block of each thread has with some of the
 * other operand, so that sums take little memory. */
static int64_t plan_area(struct plan *w, int64_t threads)
{
    enum { LONG = 1024 };
    int64_t pass, still;

    w->wide = w->blocks;
    w->span = w->still_n;
    if (!w->kept)
        return 0;
    w->wide = gpt_min_i64(w->blocks, threads);
    w->span = gpt_min_i64(w->span, LONG * (threads / w->wide));
    pass = gpt_round_up(w->wide * w->block, PAIR_PANEL);
    still = gpt_round_up(w->span, PAIR_PANEL);
    w->ld_sums = (w->still_a ? pass : still) + GAP;
    return (w->still_a ? still : pass) * w->ld_sums;
}

static void multiply_all(const struct plan *w, float *work)
{
    for (int64_t s = 0; s < w->still_n; s += w->span)
        for (int64_t b = 0; b < w->blocks; b += w->wide) {
            const struct area where = {
                .w = w,
                .block0 = b,
                .blocks = gpt_min_i64(w->blocks - b, w->wide),
                .still0 = s,
                .still_n = gpt_min_i64(w->still_n - s, w->span)};

            multiply_groups(w, &where, work);
        }
}

/* True when blocks are of a. Blocks are of b otherwise. A transposed a is
 * costly to pack; and where few rows meet a larger b, blocks of a let no thread
 * pack what another has packed, and there are many panels to be taken. */
static bool blocks_of_a(const struct cpu_product *p, int64_t group)
{
    return p->ta || (p->m < p->n && cpu_panels_of(p->m) * group <= BLOCK);
}

void cpu_multiply_pairs(struct gpt_queue *q, const struct cpu_product *product)
{
    struct cpu_product p = *product;
    int64_t threads = omp_get_max_threads(), chunks = cpu_panels_of(p.k);
    struct plan w = {.p = &p, .groups = gpt_ceil_div(chunks, GROUP)};

    assert(p.narrow && p.k > 0 && CPU_BN % PAIR_PANEL == 0);
    if (p.m == 0 || p.n == 0)
        return;
    w.plain = !p.c16 && p.epilogue == GPT_EPI_NONE;
    w.kept = w.groups > 1 && !w.plain;
    w.group = gpt_ceil_div(chunks, w.groups);
    w.still_a = !blocks_of_a(&p, w.group);
    w.still_n = w.still_a ? p.m : p.n;
    w.pass_n = w.still_a ? p.n : p.m;
    plan_blocks(&w, threads);
    int64_t sums = plan_area(&w, threads);
    int64_t pack =
        gpt_round_up(w.still_n, PAIR_PANEL) * w.group * PAIR_CHUNK / 2;
    bool ready = p.ta && w.blocks > 2 && !w.kept && pack <= READY;
    w.each = (gpt_round_up(w.block, PAIR_PANEL) + PAIR_PANEL) * w.group *
             PAIR_CHUNK / 2;
    float *work = cpu_work(q, (size_t)(w.each * threads + sums +
                                       2 * w.blocks + (ready ? pack : 0)));

    if (!work)
        return;
    w.sums = work + w.each * threads;
    w.ready = ready ? (uint16_t *)(void *)(w.sums + sums) : NULL;
    w.taken = (int64_t *)(void *)(w.sums + sums + (ready ? pack : 0));
    multiply_all(&w, work);
}
