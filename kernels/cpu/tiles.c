/* Products of floats by the tiles of isa/gemm.c. c is cut into items, and an
 * item is one thread's: it packs a part of b, KC rows of the item's columns,
 * into its second cache, and multiplies with it rows of a, which it packs a
 * group at a time, or which all threads packed before. What is packed next
 * comes from memory meanwhile. What is not float is widened on its way into
 * the panels. Weights that lie in panels (quant.h) are multiplied as they lie.
 * Start at cpu_multiply_tiles(). */
#include "cpu/many/many.h"
#include "cpu/product.h"

#include <omp.h>

/* Sums are cut at multiples of KC, a constant, and parts are added to c in
 * ascending order: the parentheses of every element are fixed. A panel of a, KC
 * columns of a tile's rows, stays in the second cache with the part of b that
 * passes by it. */
enum { KC = CPU_KC };
/* How many rows of a are packed together: where rows of memory are columns of
 * a, a panel is less than a line of each, so that several are packed at
 * once. */
enum { GROUP = 72 };
/* A thread takes at least so many items: cores of one machine differ in speed
 * from moment to moment. */
enum { TURNS = 4 };
/* An item has at most COLUMNS columns and at least LEAST_ROWS rows, since every
 * item packs columns of b for itself. Where all of a is packed before, it has
 * at least FEW_COLUMNS columns. All of a is packed before when it has at most
 * PACKED_A floats, or PACKED_WEIGHTS where weights would become floats in
 * several items. */
enum { COLUMNS = CPU_BN, LEAST_ROWS = 256 };
enum { FEW_COLUMNS = 192, PACKED_A = 1 << 20, PACKED_WEIGHTS = 1 << 22 };
/* What an item packs next comes from memory while it multiplies its last rows:
 * if it came sooner it would not stay in the second cache. */
enum { LAST_ROWS = 72 };

/* How many columns an item has whose panels are weights as they lie in memory,
 * where they may be a multiple of a cache's ways apart. */
enum { LAID_COLUMNS = 192 };

struct sweep {
    const struct cpu_product *p;
    const struct gpt_quant *w; /* NULL: b is p->b */
    bool laid;                 /* w is floats in panels */
    int64_t rows, columns;     /* of an item */
    int64_t across, items;     /* items that share columns, and all */
    int64_t next;              /* item that no thread has taken */
    int64_t group;             /* rows of a that are packed together */
};

/* A thread's work memory. */
struct room {
    float *a, *b, *wide, *sums;
};

/* A part of the sums of an item, which is `block`: columns k0 .. k0 + k - 1 of
 * a, and columns of c from n0 on. */
struct part {
    struct cpu_product block;
    int64_t n0, k0, k;
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

/* ---- packing ---- */

/* Packs mc rows of a from m0 on, kc columns from k0 on, as panels. A panel
 * holds mr rows so that a step over k reads one run of memory, whatever the
 * strides of the matrix: from here on transposed operands are as others. */
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

static void pack_b(const struct part *part, float *to, float *room)
{
    const struct cpu_product *p = &part->block;
    int64_t ld = p->ldb, k0 = part->k0;

    if (p->tb) {
        const float *b = cpu_floats(p, p->b, k0, p->n, part->k, &ld, room);

        cpu_isa->pack_b(to, b, 1, ld, part->k, p->n);
    } else {
        const float *b = cpu_floats(p, p->b, k0 * ld, part->k, p->n, &ld, room);

        cpu_isa->pack_b(to, b, ld, 1, part->k, p->n);
    }
}

/* Widens columns of a panel of weights, from column `column` on, as those of
 * one tile. Panels whose bits are turned have byte roads, and do not come to
 * tiles. */
static void widen_columns(const struct part *part, const struct gpt_quant *w,
                          float *to, int64_t column)
{
    const int64_t all = part->block.k;
    const char *values = w->values;

    if (w->type == GPT_BF16)
        cpu_isa->widen_panel(
            to, values + cpu_panel_at(w, column, 2 * part->k0, all), part->k);
    else
        cpu_isa->widen_groups(to,
                              values + cpu_panel_at(w, column / CPU_PANEL *
                                                           CPU_PANEL,
                                                    part->k0, all),
                              column % CPU_PANEL, part->k);
}

/* Turns weights in fewer bits into floats, a panel at a time. Weights that lie
 * in panels, whose rows are columns of tiles, are widened as they are read.
 * Bytes with a scale a row have roads of their own where they lie so. */
static void pack_weights(const struct part *part, const struct gpt_quant *w,
                         float *to, float *room)
{
    const int64_t nr = cpu_isa->nr, k = part->k;

    for (int64_t j = 0; j < part->block.n; j += nr, to += nr * k) {
        const int64_t n = gpt_min_i64(part->block.n - j, nr);

        if (w->arranged && (w->type == GPT_BF16 || w->group)) {
            widen_columns(part, w, to, part->n0 + j);
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            cpu_quant_row(room + i * k, w, part->n0 + j + i, part->k0, k,
                          part->block.k);
        cpu_isa->pack_b(to, room, 1, k, k, n);
    }
}

/* The panels of float weights that lie in memory as tiles read them. */
static const float *laid_at(const struct sweep *s, const struct part *part)
{
    return (const float *)s->w->values + part->n0 * s->p->k +
           part->k0 * cpu_isa->nr;
}

/* The panels of the part: packed, or where they lie. */
static const float *panels_of(const struct sweep *s, const struct part *part,
                              const struct room *room)
{
    if (s->laid)
        return laid_at(s, part);
    if (s->w)
        pack_weights(part, s->w, room->b, room->wide);
    else
        pack_b(part, room->b, room->wide);
    return room->b;
}

/* Packs all of a for all items. Parts of `packed` follow each other by k0, then
 * by m0. Threads write to places of their own; the end of the loop is a
 * barrier, before any of it is read. */
static void pack_whole_a(struct cpu_product *p, float *to, float *work,
                         int64_t each)
{
    const int64_t rows = gpt_ceil_div(p->m, GROUP);
    const int64_t parts = gpt_ceil_div(p->k, KC);

    p->packed = to;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(p->m * p->k))
    for (int64_t i = 0; i < rows * parts; i++) {
        const int64_t m0 = i % rows * GROUP, k0 = i / rows * KC;
        const int64_t mc = gpt_min_i64(p->m - m0, GROUP);
        const int64_t kc = gpt_min_i64(p->k - k0, KC);

        pack_a(p, to + k0 * p->m_pad + m0 * kc, m0, mc, k0, kc,
               work + omp_get_thread_num() * each);
    }
}

/* ---- what comes next ---- */

/* How often tiles ask for lines while m rows meet a part. It is not 0, even if
 * an empty part asks for none. */
static int64_t turns_of(const struct part *part, int64_t m)
{
    return gpt_ceil_div(m, cpu_isa->mr) *
           gpt_ceil_div(part->block.n, cpu_isa->nr) *
           gpt_ceil_div(part->k + 1, CPU_TILE_STEP);
}

/* Says which rows of b, or of weights, of a part are fetched ahead. */
static struct cpu_many_ahead ahead_b(const struct sweep *s,
                                     const struct part *part, int64_t turns)
{
    const struct cpu_product *p = &part->block;
    const struct gpt_quant *w = s->w;
    const int64_t value = w ? (w->type == GPT_BF16 ? 2 : 1) : p->narrow ? 2 : 4;
    const int64_t ld = (w ? p->k : p->ldb) * value;
    const int64_t nr = cpu_isa->nr;

    if (s->laid)
        return cpu_many_ahead_of(laid_at(s, part), nr * p->k * 4,
                                 nr * part->k * 4, gpt_ceil_div(p->n, nr),
                                 turns);
    if (w && w->arranged) {
        const int64_t n0 = part->n0 / CPU_PANEL * CPU_PANEL;
        const int64_t from = cpu_panel_at(w, n0, part->k0 * value, p->k);
        const int64_t to =
            cpu_panel_at(w, n0, (part->k0 + part->k) * value, p->k);

        return cpu_many_ahead_of((const char *)w->values + from,
                                 cpu_panel_bytes(w, p->k), to - from,
                                 gpt_ceil_div(p->n, CPU_PANEL), turns);
    }
    if (w)
        return cpu_many_ahead_of((const char *)w->values + part->n0 * ld +
                                     part->k0 * value,
                                 ld, part->k * value, p->n, turns);
    if (p->tb)
        return cpu_many_ahead_of((const char *)p->b + part->k0 * value, ld,
                                 part->k * value, p->n, turns);
    return cpu_many_ahead_of((const char *)p->b + part->k0 * ld, ld,
                             p->n * value, part->k, turns);
}

/* Says which m rows of a from m0 on are fetched ahead, packed where all of a is
 * packed. */
static struct cpu_many_ahead ahead_a(const struct part *part, int64_t m0,
                                     int64_t m, int64_t turns)
{
    const struct cpu_product *p = &part->block;
    const int64_t value = p->narrow ? 2 : 4, ld = p->lda * value;

    if (p->packed)
        return cpu_many_ahead_of(p->packed + part->k0 * p->m_pad +
                                     (p->m0 + m0) * part->k,
                                 0, m * part->k * 4, 1, turns);
    if (p->ta)
        return cpu_many_ahead_of((const char *)p->a + part->k0 * ld +
                                     m0 * value,
                                 ld, m * value, part->k, turns);
    return cpu_many_ahead_of((const char *)p->a + m0 * ld + part->k0 * value,
                             ld, part->k * value, m, turns);
}

/* ---- multiplication ---- */

/* Adds m rows of panels of a, from m0 on, times panels of b to c. */
static void multiply_group(const struct sweep *s, const struct part *part,
                           int64_t m0, int64_t m, const float *a,
                           const float *b, struct cpu_many_ahead *ahead)
{
    const struct cpu_product *p = &part->block;
    const int64_t mr = cpu_isa->mr;
    struct cpu_tile t = {.k = part->k,
                         .a_row = 1,
                         .a_col = mr,
                         .ldc = p->ldc,
                         .add = part->k0 > 0 || p->beta != 0,
                         .panel = s->laid ? cpu_isa->nr * p->k : 0,
                         .packed = true,
                         .ahead = ahead};

    t.b = b;
    t.n = p->n;
    for (int64_t i = 0; i < m; i += mr) {
        t.m = gpt_min_i64(m - i, mr);
        t.a = a + i * part->k;
        t.c = p->c + (m0 + i) * p->ldc;
        cpu_isa->tile(&t);
    }
}

/* Applies the epilogue to m rows while they are in the cache. */
static void finish_rows(const struct cpu_product *p, int64_t m0, int64_t m)
{
    struct cpu_product rows = *p;

    rows.m = m;
    rows.c += m0 * p->ldc;
    if (p->c16)
        rows.c16 += m0 * p->ld16;
    if (p->aux)
        rows.aux = (char *)p->aux + m0 * p->ld_aux * (p->narrow ? 2 : 4);
    cpu_finish_block(&rows);
}

/* Multiplies a part. `then` is what the thread multiplies next, or NULL. */
static void multiply_part(const struct sweep *s, const struct part *part,
                          const struct part *then, const float *b,
                          const struct room *room)
{
    const struct cpu_product *p = &part->block;
    struct cpu_many_ahead ahead[2] = {{0}};
    const int64_t last = p->m > LAST_ROWS ? p->m - LAST_ROWS : 0;

    for (int64_t m0 = 0; m0 < p->m; m0 += s->group) {
        const int64_t m = gpt_min_i64(p->m - m0, s->group), on = m0 + m;
        const int64_t turns = turns_of(part, m);
        const float *a = room->a;

        if (p->packed)
            a = p->packed + part->k0 * p->m_pad + (p->m0 + m0) * part->k;
        else
            pack_a(p, room->a, m0, m, part->k0, part->k, room->wide);
        if (on < p->m)
            ahead[0] = ahead_a(part, on, gpt_min_i64(p->m - on, s->group),
                               turns);
        else if (then)
            ahead[0] = ahead_a(then, 0, gpt_min_i64(then->block.m, s->group),
                               turns);
        if (then && on > last && ahead[1].step == 0)
            ahead[1] = ahead_b(s, then, turns_of(part, p->m - m0));
        multiply_group(s, part, m0, m, a, b, ahead);
        if (part->k0 + part->k == p->k)
            finish_rows(p, m0, m);
    }
}

/* The part of item i that begins at k0. */
static struct part part_of(const struct sweep *s, int64_t i, int64_t k0,
                           float *sums)
{
    const int64_t n0 = i / s->across * s->columns;

    return (struct part){
        .block = cpu_block_of(s->p, i % s->across * s->rows, n0, s->rows,
                              s->columns, sums),
        .n0 = n0,
        .k0 = k0,
        .k = gpt_min_i64(s->p->k - k0, KC)};
}

/* Finds the part after `part`: of its item, or the beginning of item `next`.
 * False where that is not known. */
static bool part_after(const struct sweep *s, const struct part *part,
                       int64_t next, struct part *then)
{
    const int64_t k0 = part->k0 + part->k;

    *then = *part;
    then->k0 = k0;
    then->k = gpt_min_i64(s->p->k - k0, KC);
    if (k0 < s->p->k)
        return true;
    /* sums of what is stored as bf16 begin in memory that is in use */
    if (next >= s->items || s->p->c16)
        return false;
    *then = part_of(s, next, 0, NULL);
    return true;
}

/* Takes items in turn; a thread knows its next one while it works on one. */
static void multiply_items(struct sweep *s, const struct room *room)
{
    for (int64_t i = cpu_take(&s->next), next; i < s->items; i = next) {
        struct part part, then = part_of(s, i, 0, room->sums);

        next = cpu_take(&s->next);
        do { /* once where k is 0 */
            part = then;
            const bool known = part_after(s, &part, next, &then);

            multiply_part(s, &part, known ? &then : NULL,
                          panels_of(s, &part, room), room);
        } while (part.k0 + part.k < s->p->k);
    }
}

/* ---- items ---- */

/* How many of the panels one item has, so that there are at least `wanted`
 * items. */
static int64_t share(int64_t panels, int64_t wanted, int64_t least,
                     int64_t most)
{
    int64_t each = gpt_ceil_div(panels, wanted);

    each = each < least ? least : each;
    each = each > most ? most : each;
    return gpt_ceil_div(panels, gpt_ceil_div(panels, each));
}

/* Cuts c into items. Results do not depend on how it is cut. */
static void cut_items(struct sweep *s, int64_t threads)
{
    const struct cpu_product *p = s->p;
    const int64_t mr = cpu_isa->mr, nr = cpu_isa->nr;
    const int64_t panels = gpt_ceil_div(p->n, nr), wanted = TURNS * threads;
    int64_t ranges = 1, rows = gpt_ceil_div(p->m, mr);

    s->columns = nr * share(panels, p->packed ? wanted : 1, FEW_COLUMNS / nr,
                            (s->laid ? LAID_COLUMNS : COLUMNS) / nr);
    const int64_t count = gpt_ceil_div(p->n, s->columns);
    if (count < wanted)
        ranges = gpt_ceil_div(p->packed ? threads : wanted, count);
    /* as many items for each thread */
    while (ranges > 1 && ranges * count % threads != 0)
        ranges++;
    rows = share(rows, ranges, LEAST_ROWS / mr, p->c16 ? CPU_BM / mr : rows);
    s->rows = rows * mr;
    s->across = gpt_ceil_div(p->m, s->rows);
    s->items = s->across * count;
}

void cpu_multiply_tiles(struct gpt_queue *q, const struct cpu_product *all,
                        const struct gpt_quant *w)
{
    const int64_t nr = cpu_isa->nr, mr = cpu_isa->mr;
    const int64_t threads = omp_get_max_threads();
    const bool whole = !all->ta && all->n > COLUMNS &&
                       all->m * all->k <= (w ? PACKED_WEIGHTS : PACKED_A);
    struct cpu_product p = *all;
    struct sweep s = {.p = &p, .w = w, .laid = w && w->type == GPT_F32,
                      .group = all->ta || whole ? GROUP : mr};

    if (p.m == 0 || p.n == 0)
        return;
    p.packed = whole ? p.a : NULL; /* until there is memory */
    p.m_pad = gpt_round_up(p.m, mr);
    cut_items(&s, threads);
    const int64_t a = (GROUP + mr) * KC, b = (s.columns + nr) * KC;
    const int64_t wide = p.narrow ? gpt_max_i64(s.columns, GROUP) * KC
                         : w      ? nr * KC
                                  : 0;
    const int64_t each = a + b + wide + (p.c16 ? s.rows * s.columns : 0);
    const int64_t packed = whole ? p.m_pad * p.k : 0;
    float *work = cpu_work(q, (size_t)(packed + threads * each));
    if (!work)
        return;
    if (whole)
        pack_whole_a(&p, work, work + packed + a + b, each);
#pragma omp parallel if (cpu_product_worth_threads(&p))
    {
        float *mine = work + packed + omp_get_thread_num() * each;
        const struct room room = {mine, mine + a, mine + a + b,
                                  mine + a + b + wide};

        multiply_items(&s, &room);
    }
}
