/* Products of a few rows of floats (the next tokens of several texts) with
 * weights in fewer bits, at the speed at which memory gives the weights. One
 * file of this folder an instruction set, reached through cpu_few; quant.c cuts
 * products into what it multiplies. Nothing in here knows of threads.
 *
 * Weights are factors as they lie in memory, so that each is read once and none
 * is packed or widened, in panels (quant.h) or in rows: `panels` of a road says
 * which. Inputs become parts that such factors are multiplied with:
 *   bf16   (AMX) a float is the sum of three numbers of bf16, which hold its 24
 *          bits. Products are exact, and sums are those of floats.
 *   int8   a float is the digits of a fixed point of those that share a scale,
 *          its row or 32 of it: four of 7 bits (AMX, rows alone) or three of 8,
 *          off by up to 2^-27 or 2^-22 of their largest. Sums of products of
 *          bytes are exact, and rounded when they become floats.
 * By AVX2 and AVX-512 values of bf16 become floats in registers, which meet
 * inputs as they are; by AVX2 bytes with a scale for 32, too.
 * Inputs that are rounded to the form of the weights (struct gpt_quant) are one
 * part: a number of bf16, which is a float where no instruction multiplies it,
 * or a byte. By AVX2 such a byte has 16 bits, since its instructions multiply
 * bytes with a sign only after these are widened; inputs as they are stay
 * floats beside bytes with a scale a row there (gemv.c).
 * No row of inputs has a part in another one's sums, so that an element's bits
 * depend on its row of inputs and its row of weights alone.
 *
 * Packed inputs of AMX. Rows are cut into groups of at most FEW_TEXTS, or
 * FEW_BYTES where weights are bytes. A row's parts are a column each. Those of
 * a group are at most 48 columns, first parts first: three tiles a chunk, which
 * is 64 bytes of a row of weights. Row p of a tile has 4 bytes of each column.
 */
#ifndef GPT_KERNELS_CPU_FEW_H
#define GPT_KERNELS_CPU_FEW_H

#include "base/num.h"
#include "cpu/quant.h"

/* More texts of a group read the weights from the cache less often; a row of
 * bytes has four parts, and 16 of them more columns than registers hold. */
enum { FEW_ROWS = CPU_PANEL, FEW_TEXTS = 16, FEW_BYTES = 8 };
enum { FEW_CHUNK = 64, FEW_TILES = 3072 };
/* The longest row of bytes: its sums have 32 bits. */
enum { FEW_MOST_BYTES = 1 << 17 };

/* Rows of inputs (m, k), ldx floats apart. */
struct cpu_few_inputs {
    const float *x;
    int64_t ldx, m, k;
    bool bytes;   /* weights are bytes, else bf16 */
    char *packed; /* room: that of the road */
    float *units; /* (m) for AMX, with bytes: what the fixed points count */
};

/* Chunks of a row of weights; and groups of rows of inputs (see above). */
static inline int64_t cpu_few_chunks(const struct cpu_few_inputs *in)
{
    const int64_t bytes = in->bytes ? in->k : 2 * in->k;

    return gpt_ceil_div(bytes, FEW_CHUNK);
}

static inline int64_t cpu_few_groups(const struct cpu_few_inputs *in)
{
    const int64_t most = in->bytes ? FEW_BYTES : FEW_TEXTS;

    return gpt_ceil_div(in->m, most);
}

/* Rows of weights from `row` on, at most FEW_ROWS, times all inputs: y (m,
 * rows), rows ldy floats apart. */
struct cpu_few_strip {
    const struct cpu_few_inputs *in;
    const char *values;     /* of row 0; rows are tight, or panels */
    const uint16_t *scales; /* with bytes: of row 0, of bf16 */
    int64_t row, rows;
    bool first, last; /* of those that the thread multiplies in turn */
    float *y;
    int64_t ldy;
    bool add; /* y += instead of y = */
};

struct cpu_few_road {
    bool panels; /* wants weights in panels, else in rows */
    /* bytes of packed inputs, a multiple of 64 */
    int64_t (*room)(const struct cpu_few_inputs *in);
    /* finds the units; first of all. NULL: nothing to do */
    void (*measure)(const struct cpu_few_inputs *in);
    /* inputs are packed in so many parts, in any order */
    int64_t (*parts)(const struct cpu_few_inputs *in);
    void (*pack)(const struct cpu_few_inputs *in, int64_t i);
    /* between begin() and end() of the same set's cpu_pairs, if it has one */
    void (*multiply)(const struct cpu_few_strip *strip);
};

/* `parts` of roads that pack rows one by one: there are m pieces of work. */
static inline int64_t cpu_few_rows_of(const struct cpu_few_inputs *in)
{
    return in->m;
}

extern const struct cpu_few_road cpu_few_tiles, /* AMX: inputs as they are */
    cpu_few_floats, cpu_few_digits,             /* AVX-512: the same */
    cpu_few_grouped_digits,
    cpu_few_bytes, cpu_few_grouped, cpu_few_bf16, /* rounded inputs */
    cpu_few_rounded_floats;
extern const struct cpu_few_road cpu_few_bytes_avx2, cpu_few_bytes_avx2vnni;

/* The road of each form; NULL: see gemv.c. */
struct cpu_few {
    const struct cpu_few_road *road[CPU_FORMS];
    /* for rounded inputs, bytes 0, 2, ... of panels have their upper bit
     * turned */
    bool turned;
};

extern const struct cpu_few cpu_few_amx, cpu_few_avx2, cpu_few_avx2vnni,
    cpu_few_avx512, cpu_few_avx512bf16, cpu_few_avx512vnni;
extern const struct cpu_few *cpu_few; /* or NULL: there is none */

/* The bits by which byte `at` of a row differs in panels. */
static inline char cpu_panel_turn(const struct gpt_quant *w, int64_t at)
{
    const bool turned =
        cpu_few->turned && w->round_inputs && w->type == GPT_I8;

    return (char)(turned && at % 2 == 0 ? -128 : 0);
}

#endif
