/* Products of many rows with weights in fewer bits, by tiles (many/). Start at
 * cpu_multiply_many(): inputs are packed once, by all threads; then a thread
 * takes a block of weights, packs it into its second cache, and multiplies all
 * inputs with it, while the block that it takes next comes from memory. */
#include "cpu/many/many.h"
#include "cpu/pair/pair.h"
#include "cpu/product.h"

#include <omp.h>

/* Bytes of a packed block of weights: about half of a second cache. */
enum { BLOCK = 9 << 17 };
/* Items a thread: cores of one machine differ in speed from moment to moment.
 * Panels of a block below which reading the inputs costs more than that. */
enum { TURNS = 4, SMALL = 6 };

/* How a product is cut: an item is a block of columns, for a range of rows. */
struct plan {
    const struct cpu_product *p;
    const struct gpt_quant *w;
    struct cpu_many_inputs in;
    int64_t row_panels, column_panels;
    int64_t block, blocks; /* column panels, and how many blocks */
    int64_t range, ranges; /* the same of row panels */
    int64_t each;          /* bytes of a thread's block */
    char *mem;             /* a block for each thread */
    int64_t next;          /* item that nobody has taken */
};

static int64_t parts_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

bool cpu_can_many(const struct cpu_product *p, const struct gpt_quant *w)
{
    /* pairs of bytes are packed together */
    const bool fits =
        w->type == GPT_BF16 ||
        (!w->group && p->k % 2 == 0 && p->k <= MANY_MOST_BYTES);

    return cpu_many && fits && p->m > 0 && p->n > 0 && p->k > 0;
}

/* Where a product has fewer columns than threads can share, they share rows,
 * too. */
static void plan_items(struct plan *l, int64_t threads)
{
    const int64_t panel = cpu_many_chunks(&l->in) * MANY_TILES;
    const int64_t most = BLOCK / panel > 1 ? BLOCK / panel : 1;
    int64_t block = parts_of(l->column_panels, TURNS * threads);

    block = block < SMALL ? SMALL : block;
    block = block < most ? block : most;
    l->block = parts_of(l->column_panels, parts_of(l->column_panels, block));
    l->blocks = parts_of(l->column_panels, l->block);
    l->ranges = l->blocks < threads ? parts_of(threads, l->blocks) : 1;
    l->range = parts_of(l->row_panels, l->ranges);
    l->ranges = parts_of(l->row_panels, l->range);
    l->each = l->block * panel;
}

/* The columns of item i. */
static struct cpu_many_block block_of(const struct plan *l, int64_t i,
                                      char *packed)
{
    const int64_t first = i % l->blocks * l->block * MANY_SIDE;
    const int64_t left = l->p->n - first, most = l->block * MANY_SIDE;

    return (struct cpu_many_block){.in = &l->in,
                                   .values = l->w->values,
                                   .scales = l->w->scales,
                                   .first = first,
                                   .columns = left < most ? left : most,
                                   .packed = packed};
}

/* The rows of item `next` come while this one is multiplied: a few lines with
 * every chunk, evenly. */
static void announce(const struct plan *l, struct cpu_many_block *b,
                     int64_t next)
{
    const int64_t row = l->p->k * (l->in.bytes ? 1 : 2);
    const int64_t turns = l->range * parts_of(b->columns, MANY_SIDE) *
                          cpu_many_chunks(&l->in);

    if (next >= l->blocks * l->ranges)
        return;
    const struct cpu_many_block to = block_of(l, next, NULL);
    b->ahead = to.values + to.first * row;
    b->lines = parts_of(to.columns * row, 64);
    b->step = parts_of(b->lines, turns);
}

static void multiply_item(const struct plan *l, int64_t i, int64_t next,
                          char *packed)
{
    const int64_t begin = i / l->blocks * l->range;
    struct cpu_many_block b = block_of(l, i, packed);
    int64_t end = begin + l->range;

    end = end < l->row_panels ? end : l->row_panels;
    announce(l, &b, next);
    cpu_many->pack_weights(&b);
    for (int64_t panel = begin; panel < end; panel++) {
        const struct cpu_product part =
            cpu_block_of(l->p, panel * MANY_SIDE, b.first, MANY_SIDE,
                         b.columns, NULL);

        cpu_many->multiply(&b, panel, part.c, part.ldc, part.beta != 0);
        cpu_finish_block(&part);
    }
}

/* Items in turn, one ahead: the next one is known while this one is worked on.
 */
static int64_t take_item(struct plan *l)
{
    int64_t i;

#pragma omp atomic capture
    i = l->next++;
    return i;
}

static void multiply_items(struct plan *l, char *packed)
{
    int64_t i = take_item(l);

    cpu_pairs->begin();
    while (i < l->blocks * l->ranges) {
        const int64_t next = take_item(l);

        multiply_item(l, i, next, packed);
        i = next;
    }
    cpu_pairs->end();
}

void cpu_multiply_many(struct gpt_queue *q, const struct cpu_product *p,
                       const struct gpt_quant *w)
{
    const int64_t threads = omp_get_max_threads();
    struct plan l = {.p = p,
                     .w = w,
                     .in = {.x = p->a,
                            .ldx = p->lda,
                            .m = p->m,
                            .k = p->k,
                            .bytes = w->type == GPT_I8},
                     .row_panels = parts_of(p->m, MANY_SIDE),
                     .column_panels = parts_of(p->n, MANY_SIDE)};

    plan_items(&l, threads);
    const int64_t inputs = l.row_panels * cpu_many_panel(&l.in);
    float *mem = cpu_work(q, (size_t)(inputs + threads * l.each) /
                                     sizeof(*mem) + (size_t)p->m);

    if (!mem)
        return;
    l.in.packed = (char *)(void *)mem;
    l.mem = l.in.packed + inputs;
    l.in.units = (float *)(void *)(l.mem + threads * l.each);
#pragma omp parallel if (cpu_product_worth_threads(p))
    {
        /* the end of the loop is a barrier: all is packed */
#pragma omp for schedule(static)
        for (int64_t i = 0; i < l.row_panels; i++)
            cpu_many->pack_inputs(&l.in, i);
        multiply_items(&l, l.mem + omp_get_thread_num() * l.each);
    }
}
