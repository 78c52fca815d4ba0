/* Products of many rows of floats (prompts) with weights in fewer bits, at the
 * speed of the instructions that multiply them. One file of this folder an
 * instruction set, reached through cpu_many; quant_many.c cuts products into
 * what it multiplies, and panel.h is what they share. Nothing in here knows of
 * threads.
 *
 * Weights are factors as they are stored. Inputs become parts, which such
 * factors are multiplied with:
 *   bf16   (AMX alone) a float is the sum of two numbers of bf16, which hold 16
 *          of its 24 bits. Products are exact, and sums are those of floats.
 *   int8   a float is three bytes, the digits of a fixed point of its row: off
 *          by up to 2^-22 of the row's largest. Sums of products of bytes are
 *          exact in a block, and rounded when they become floats.
 * Inputs that are rounded to the form of the weights (struct gpt_quant) are one
 * part: a number of bf16, or a byte, with a unit for a row or for 32 of it. By
 * AVX2 such a byte has 16 bits, the room of two parts; weights are packed as
 * bytes and widened in registers, where four rows of inputs meet them. Inputs
 * as they are stay floats there (tiles.c).
 * An element's sum is made in the order of k alone: its bits depend on its row
 * of inputs and its row of weights, and on nothing beside them.
 *
 * Packed memory. A panel is 32 rows of inputs, or 32 rows of weights, which are
 * columns of the product. A chunk is 64 bytes of k of a panel: two tiles. All
 * parts of a chunk of bf16 inputs lie side by side, the first part first; of
 * bytes, all chunks of a part. Where groups of 32 have units and scales,
 * floats, a panel of inputs ends with 32 units for each group; a chunk of
 * weights, with 32 scales for each of its two groups, and as many whole numbers
 * from which their sums begin. */
#ifndef GPT_KERNELS_CPU_MANY_H
#define GPT_KERNELS_CPU_MANY_H

#include "base/num.h"
#include "cpu/quant.h"

enum { MANY_SIDE = 32, MANY_CHUNK = 64, MANY_TILES = 2048 };
/* Groups of a chunk: with bytes, a scale belongs to so many. */
enum { MANY_GROUPS = MANY_CHUNK / CPU_GROUP };
/* Bytes of the floats of a chunk's groups. */
enum { MANY_FLOATS = 4 * MANY_GROUPS * MANY_SIDE };
/* Bytes of k of the longest block: its sums of bytes have 32 bits. */
enum { MANY_MOST_BYTES = 1 << 16 };

/* Rows of inputs (m, k), ldx floats apart. */
struct cpu_many_inputs {
    const float *x;
    int64_t ldx, m, k;
    bool bytes;    /* weights are bytes, else bf16 */
    bool groups;   /* bytes with a unit and a scale for 32 */
    int64_t parts; /* of an input */
    char *packed;  /* cpu_many_panel() bytes for each 32 rows */
    float *units;  /* (m) with bytes: what the fixed points count */
};

/* Chunks of a row; and bytes of a packed panel of inputs. */
static inline int64_t cpu_many_chunks(const struct cpu_many_inputs *in)
{
    const int64_t bytes = in->bytes ? in->k : 2 * in->k;

    return gpt_ceil_div(bytes, MANY_CHUNK);
}

static inline int64_t cpu_many_panel(const struct cpu_many_inputs *in)
{
    return cpu_many_chunks(in) *
           (in->parts * MANY_TILES + (in->groups ? MANY_FLOATS : 0));
}

/* Bytes of a chunk of a packed panel of weights: a multiple of 64, so that
 * vectors of tiles are loaded from whole lines. */
static inline int64_t cpu_many_packed(const struct cpu_many_inputs *in)
{
    return MANY_TILES + (in->groups ? 2 * MANY_FLOATS : 0);
}

/* Memory that is about to be read: rows, ld bytes apart, of which `width` bytes
 * each. Lines of it are fetched while tiles are multiplied, `step` a chunk. */
struct cpu_many_ahead {
    const char *mem;
    int64_t ld, width, rows, at, step;
};

static inline struct cpu_many_ahead
cpu_many_ahead_of(const void *mem, int64_t ld, int64_t width, int64_t rows,
                  int64_t turns)
{
    return (struct cpu_many_ahead){
        .mem = mem,
        .ld = ld,
        .width = width,
        .rows = rows,
        .step = gpt_ceil_div(gpt_ceil_div(width, 64) * rows, turns)};
}

/* A few lines at a time, to the second cache: a burst would hold up the loads
 * of tiles, and lines that come to the first cache early would drive tiles out.
 */
static inline void cpu_many_fetch(struct cpu_many_ahead *a)
{
    for (int64_t n = a->step; n > 0 && a->rows > 0; n--) {
        __builtin_prefetch(a->mem + a->at, 0, 2);
        a->at += 64;
        if (a->at < a->width)
            continue;
        a->at = 0;
        a->mem += a->ld;
        a->rows--;
    }
}

/* Chunks begin.. of k of panels of weights side by side: `columns` columns of
 * the product from `first` on. */
struct cpu_many_block {
    const struct cpu_many_inputs *in;
    const struct gpt_quant *w; /* the matrix, in rows or in panels (quant.h) */
    int64_t first, columns, begin, chunks;
    char *packed;           /* cpu_many_packed() bytes for each chunk */
    struct cpu_many_ahead next; /* weights that are packed after these */
};

/* Where chunk c begins in a panel of the matrix. */
static inline int64_t cpu_many_panel_at(const struct gpt_quant *w, int64_t c)
{
    return c * (w->group ? MANY_GROUPS * CPU_GROUP_BYTES : MANY_TILES);
}

/* Chunks of tiles that a panel of inputs takes with one of weights. */
static inline int64_t cpu_many_turns(const struct cpu_many_block *b)
{
    return (b->in->bytes ? b->in->parts : 1) * b->chunks;
}

struct cpu_many_road {
    int64_t parts; /* of an input */
    /* A packed block of weights has at most so many panels, of so many chunks:
     * a second cache holds it with a panel of inputs, and their results. */
    int64_t most, group;
    /* Finds a row's unit; before it is packed. NULL: nothing to do. */
    void (*measure)(const struct cpu_many_inputs *in, int64_t row);
    /* chunks begin..end of 32 rows of inputs from row 32 * panel on */
    void (*pack_inputs)(const struct cpu_many_inputs *in, int64_t panel,
                        int64_t begin, int64_t end);
    void (*pack_weights)(const struct cpu_many_block *block);
    /* Those inputs times a packed block, over its chunks: y (rows, columns),
     * ldy floats apart; add: y += instead of y =. Between begin() and end() of
     * the same set's cpu_pairs, if it has one. */
    void (*multiply)(struct cpu_many_block *block, int64_t panel, float *y,
                     int64_t ldy, bool add);
};

extern const struct cpu_many_road cpu_many_digits, cpu_many_bytes,
    cpu_many_grouped; /* AVX512-VNNI */

/* The road of each form; NULL: see quant.c. */
struct cpu_many {
    const struct cpu_many_road *road[CPU_FORMS];
};

extern const struct cpu_many cpu_many_amx, cpu_many_avx2, cpu_many_avx2vnni,
    cpu_many_avx512bf16, cpu_many_avx512vnni;
extern const struct cpu_many *cpu_many; /* or NULL: there is none */

#endif
