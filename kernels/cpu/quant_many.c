/* Products of many rows with weights in fewer bits, by cpu_many (many/). Start
 * at cpu_multiply_many(): inputs are packed once, by all threads; then a thread
 * takes a block of weights, packs it into its second cache, and multiplies all
 * inputs with it, while the block that it takes next comes from memory. */
#include "base/num.h"
#include "cpu/many/many.h"
#include "cpu/pair/pair.h"
#include "cpu/product.h"

#include <assert.h>
#include <omp.h>

/* TURNS is how many items each thread has at least: cores of one machine differ
 * in speed from moment to moment. With fewer than SMALL panels in a block,
 * reading the inputs would cost more than such a difference. */
enum { TURNS = 4, SMALL = 6 };

/* How a product is cut: an item is a block of columns, for a range of rows. */
struct plan {
    const struct cpu_product *p;
    const struct gpt_quant *w;
    const struct cpu_many_road *road;
    struct cpu_many_inputs in;
    int64_t row_panels, column_panels;
    int64_t block, blocks; /* column panels, and how many blocks */
    int64_t range, ranges; /* the same of row panels */
    int64_t group;         /* chunks of k at a time */
    int64_t next;          /* item that is not taken yet */
};

/* The road of this form, or NULL. */
static const struct cpu_many_road *road_of(const struct gpt_quant *w)
{
    return cpu_many ? cpu_many->road[cpu_form_of(w)] : NULL;
}

bool cpu_can_many(const struct cpu_product *p, const struct gpt_quant *w)
{
    if (!road_of(w) || p->m == 0 || p->n == 0 || p->k == 0)
        return false;
    /* pairs of bytes are packed together, but for panels' */
    return w->arranged || w->type == GPT_BF16 || p->k % 2 == 0;
}

/* Where a product has fewer columns than threads can share, they share rows,
 * too. */
static void plan_items(struct plan *l, int64_t threads)
{
    const int64_t chunks = cpu_many_chunks(&l->in), most = l->road->most;
    int64_t block = gpt_ceil_div(l->column_panels, TURNS * threads);

    assert(l->road->group * MANY_CHUNK <= MANY_MOST_BYTES);
    block = block < SMALL ? SMALL : block < most ? block : most;
    l->blocks = gpt_ceil_div(l->column_panels, block);
    l->block = gpt_ceil_div(l->column_panels, l->blocks);
    l->blocks = gpt_ceil_div(l->column_panels, l->block);
    l->ranges = l->blocks < threads ? gpt_ceil_div(threads, l->blocks) : 1;
    l->range = gpt_ceil_div(l->row_panels, l->ranges);
    l->ranges = gpt_ceil_div(l->row_panels, l->range);
    l->group = gpt_ceil_div(chunks, gpt_ceil_div(chunks, l->road->group));
}

/* Bytes of a thread's block. */
static int64_t block_bytes(const struct plan *l)
{
    return l->block * l->group * cpu_many_packed(&l->in);
}

/* The columns of item i, and its chunks from `begin` on. */
static struct cpu_many_block block_of(const struct plan *l, int64_t i,
                                      int64_t begin)
{
    const int64_t first = i % l->blocks * l->block * MANY_SIDE;
    const int64_t left = l->p->n - first, most = l->block * MANY_SIDE;
    const int64_t chunks = cpu_many_chunks(&l->in) - begin;

    return (struct cpu_many_block){
        .in = &l->in,
        .w = l->w,
        .first = first,
        .columns = left < most ? left : most,
        .begin = begin,
        .chunks = chunks < l->group ? chunks : l->group};
}

/* Lets the weights of `next` be fetched while those of `b` are multiplied: a
 * few lines with every chunk, evenly. */
static void announce(const struct plan *l, struct cpu_many_block *b,
                     const struct cpu_many_block *next)
{
    const int64_t row = l->p->k * (l->in.bytes ? 1 : 2);
    const int64_t at = next->begin * MANY_CHUNK;
    const int64_t width = next->chunks * MANY_CHUNK;
    const int64_t panels = l->range * gpt_ceil_div(b->columns, MANY_SIDE);
    const char *values = l->w->values;

    if (l->w->arranged) {
        const int64_t bytes = cpu_panel_bytes(l->w, l->p->k);
        const int64_t from = cpu_many_panel_at(l->w, next->begin);
        const int64_t to = cpu_many_panel_at(l->w, next->begin + next->chunks);

        b->next = cpu_many_ahead_of(
            values + next->first / CPU_PANEL * bytes + from, bytes,
            gpt_min_i64(to, bytes) - from,
            gpt_ceil_div(next->columns, CPU_PANEL),
            panels * cpu_many_turns(b));
        return;
    }
    b->next = cpu_many_ahead_of(values + next->first * row + at, row,
                                width < row - at ? width : row - at,
                                next->columns, panels * cpu_many_turns(b));
}

/* Multiplies all rows of an item with one group of chunks. */
static void multiply_group(const struct plan *l, struct cpu_many_block *b,
                           int64_t range)
{
    const bool first = b->begin == 0;
    const bool last = b->begin + b->chunks == cpu_many_chunks(&l->in);
    const int64_t begin = range * l->range, rest = l->row_panels - begin;
    const int64_t end = begin + (rest < l->range ? rest : l->range);

    l->road->pack_weights(b);
    for (int64_t panel = begin; panel < end; panel++) {
        const struct cpu_product part = cpu_block_of(
            l->p, panel * MANY_SIDE, b->first, MANY_SIDE, b->columns, NULL);

        l->road->multiply(b, panel, part.c, part.ldc,
                          !first || part.beta != 0);
        if (last)
            cpu_finish_block(&part);
    }
}

/* Multiplies item i. The item after it begins with block `next`; NULL where
 * there is none. */
static void multiply_item(const struct plan *l, int64_t i,
                          const struct cpu_many_block *next, char *packed)
{
    const int64_t chunks = cpu_many_chunks(&l->in);

    for (int64_t begin = 0; begin < chunks; begin += l->group) {
        struct cpu_many_block b = block_of(l, i, begin);
        const struct cpu_many_block more = block_of(l, i, begin + b.chunks);

        b.packed = packed;
        if (more.chunks > 0)
            announce(l, &b, &more);
        else if (next)
            announce(l, &b, next);
        multiply_group(l, &b, i / l->blocks);
    }
}

/* Packs inputs by panels; where there are more threads than panels, by parts of
 * panels. The loops end with barriers: all is measured, and then all is
 * packed. */
static void pack_panels(const struct plan *l, int64_t threads)
{
    const int64_t chunks = cpu_many_chunks(&l->in);
    const int64_t parts =
        gpt_min_i64(gpt_ceil_div(threads, l->row_panels), chunks);

#pragma omp for schedule(static)
    for (int64_t i = 0; i < (l->road->measure ? l->in.m : 0); i++)
        l->road->measure(&l->in, i);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->row_panels * parts; i++)
        l->road->pack_inputs(&l->in, i / parts,
                             cpu_cut(chunks, parts, i % parts),
                             cpu_cut(chunks, parts, i % parts + 1));
}

/* Takes items in turn; a thread knows its next one while it works on one. */
static void multiply_items(struct plan *l, char *packed)
{
    int64_t i = cpu_take(&l->next);

    if (cpu_pairs)
        cpu_pairs->begin();
    while (i < l->blocks * l->ranges) {
        const int64_t next = cpu_take(&l->next);
        const struct cpu_many_block then = block_of(l, next, 0);

        multiply_item(l, i, next < l->blocks * l->ranges ? &then : NULL,
                      packed);
        i = next;
    }
    if (cpu_pairs)
        cpu_pairs->end();
}

void cpu_multiply_many(struct gpt_queue *q, const struct cpu_product *p,
                       const struct gpt_quant *w)
{
    const int64_t threads = omp_get_max_threads();
    struct plan l = {.p = p,
                     .w = w,
                     .road = road_of(w),
                     .in = {.x = p->a,
                            .ldx = p->lda,
                            .m = p->m,
                            .k = p->k,
                            .bytes = w->type == GPT_I8,
                            .groups = w->group != 0,
                            .parts = road_of(w)->parts},
                     .row_panels = gpt_ceil_div(p->m, MANY_SIDE),
                     .column_panels = gpt_ceil_div(p->n, MANY_SIDE)};

    plan_items(&l, threads);
    const int64_t inputs = l.row_panels * cpu_many_panel(&l.in);
    const int64_t each = block_bytes(&l), bytes = inputs + threads * each;
    float *mem = cpu_work(q, (size_t)bytes / sizeof(*mem) + (size_t)p->m);

    if (!mem)
        return;
    l.in.packed = (char *)(void *)mem;
    l.in.units = mem + bytes / (int64_t)sizeof(*mem);
#pragma omp parallel if (cpu_product_worth_threads(p))
    {
        pack_panels(&l, threads);
        multiply_items(&l, l.in.packed + inputs +
                               omp_get_thread_num() * each);
    }
}
