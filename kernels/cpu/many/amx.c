/* Products of many rows by the tile registers of AMX: see many.h. Start at
 * multiply_panel(): 32 rows of inputs meet 32 columns at a time in four tiles
 * of sums, which stay in registers over all of k.
 *
 * TDPBF16PS takes subnormal numbers for zero: what is lost of an input is below
 * 2^-126. */
#include "cpu/many/panel.h"
#include "cpu/pair/tiles.h"

#include <immintrin.h>

enum { TILE_BYTES = MANY_TILES / 2 };

/* ---- inputs ---- */

/* Writes both parts of 32 floats, of which n are there, or the first part
 * alone. What the first part leaves of a float is exact; the second part rounds
 * that to its 8 bits. */
static inline void put_parts(char *to, const float *x, int64_t n, int64_t parts)
{
    const __m512 a = _mm512_maskz_loadu_ps(lanes_of(n), x);
    const __m512 b = _mm512_maskz_loadu_ps(lanes_of(n - 16), x + 16);
    const __m512i high = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    const __m512 rest_a =
        _mm512_sub_ps(a, wide(_mm512_castsi512_si256(high)));
    const __m512 rest_b =
        _mm512_sub_ps(b, wide(_mm512_extracti64x4_epi64(high, 1)));

    _mm512_store_si512(to, high);
    if (parts == 1)
        return;
    _mm512_store_si512(to + MANY_TILES,
                       (__m512i)_mm512_cvtne2ps_pbh(rest_b, rest_a));
}

static void put_chunk(const struct cpu_many_inputs *in, char *to,
                      const float *x, int64_t k, int64_t c, float unit)
{
    if (in->bytes)
        put_bytes(to + c * MANY_TILES, cpu_many_chunks(in) * MANY_TILES,
                  x + 64 * c, k - 64 * c, unit, 0, in->parts);
    else
        put_parts(to + in->parts * c * MANY_TILES, x + 32 * c, k - 32 * c,
                  in->parts);
}

static void pack_inputs(const struct cpu_many_inputs *in, int64_t panel,
                        int64_t begin, int64_t end)
{
    pack_panel(in, panel, begin, end, put_chunk);
}

/* ---- sums ---- */

/* What a panel of inputs needs beside its tiles: the weights that are packed
 * next, the inputs after these, and where the results go. */
struct beside {
    struct cpu_many_ahead *weights, inputs, y;
};

static inline void fetch_all(struct beside *to)
{
    cpu_many_fetch(to->weights);
    cpu_many_fetch(&to->inputs);
    cpu_many_fetch(&to->y);
}

static inline void begin_sums(void)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
}

/* Tiles 0 and 1 are the upper 16 rows, left and right; 2 and 3 the lower. */
static inline void store_sums(void *to)
{
    const int64_t stride = 4 * MANY_SIDE;
    char *at = to;

    TILE_STORE(0, at, stride);
    TILE_STORE(1, at + stride / 2, stride);
    TILE_STORE(2, at + 16 * stride, stride);
    TILE_STORE(3, at + 16 * stride + stride / 2, stride);
}

/* The order of loads. A core is in one of two states (tests/bench/RESULTS.md).
 * In the slower one a product takes three to five times as long where fresh
 * tiles of both operands come into four registers, and two to three times as
 * long where two or three registers hold operands and one of them changes
 * between two products. In the faster one the additional loads cost nothing.
 * Sapphire Rapids, ns a product: 7.4 in the faster state; in the slower one 30
 * and 21 with bf16, 37 and 22 with bytes. */

/* The small part of a chunk is added before the large one. */
static void sum_bf16(const struct cpu_many_block *b, const char *a,
                     const char *w, float *sums, struct beside *to)
{
    begin_sums();
    for (int64_t c = 0; c < b->chunks; c++) {
        const char *low = a + MANY_TILES;

        TILE_LOAD(4, low, tight);
        TILE_LOAD(5, low + TILE_BYTES, tight);
        TILE_LOAD(6, w, tight);
        TILE_DOT(0, 4, 6);
        TILE_DOT(2, 5, 6);
        TILE_LOAD(6, w + TILE_BYTES, tight);
        TILE_DOT(1, 4, 6);
        TILE_DOT(3, 5, 6);
        TILE_LOAD(4, a, tight);
        TILE_LOAD(5, a + TILE_BYTES, tight);
        TILE_DOT(1, 4, 6);
        TILE_DOT(3, 5, 6);
        TILE_LOAD(6, w, tight);
        TILE_DOT(0, 4, 6);
        TILE_DOT(2, 5, 6);
        a += 2 * MANY_TILES;
        w += MANY_TILES;
        fetch_all(to);
    }
    store_sums(sums);
}

/* Multiplies two tiles of one part of the inputs with two of weights. */
#define MULTIPLY_PART(dot, a, w)                                              \
    do {                                                                      \
        TILE_LOAD(4, a, tight);                                               \
        TILE_LOAD(6, w, tight);                                               \
        dot(0, 4, 6);                                                         \
        TILE_LOAD(4, (a) + TILE_BYTES, tight);                                \
        dot(2, 4, 6);                                                         \
        TILE_LOAD(6, (w) + TILE_BYTES, tight);                                \
        dot(3, 4, 6);                                                         \
        TILE_LOAD(4, a, tight);                                               \
        dot(1, 4, 6);                                                         \
    } while (0)

#define SUM_PART(dot)                                                         \
    do {                                                                      \
        begin_sums();                                                         \
        for (int64_t c = 0; c < b->chunks; c++) {                             \
            MULTIPLY_PART(dot, a + c * MANY_TILES, w + c * MANY_TILES);       \
            fetch_all(to);                                                    \
        }                                                                     \
        store_sums(sums);                                                     \
        a += cpu_many_chunks(b->in) * MANY_TILES;                             \
        sums += MANY_SIDE * MANY_SIDE;                                        \
    } while (0)

/* Computes sums of inputs that are rounded to bf16, which have one part. */
static void sum_rounded(const struct cpu_many_block *b, const char *a,
                        const char *w, float *sums, struct beside *to)
{
    SUM_PART(TILE_DOT);
}

/* Computes the sums of each part by themselves: they have 32 bits, and
 * registers hold those of one part. The weights stay in the first cache for the
 * next part. */
static void sum_bytes(const struct cpu_many_block *b, const char *a,
                      const char *w, float *sums, struct beside *to)
{
    SUM_PART(TILE_DOT_BYTES);
    if (b->in->parts == 1)
        return;
    SUM_PART(TILE_DOT_DIGITS);
    SUM_PART(TILE_DOT_DIGITS);
}

/* ---- panels ---- */

static struct beside beside_of(struct cpu_many_block *b, int64_t panel)
{
    const struct cpu_many_inputs *in = b->in;
    const int64_t chunk = (in->bytes ? 1 : in->parts) * MANY_TILES;
    const int64_t turns =
        gpt_ceil_div(b->columns, MANY_SIDE) * cpu_many_turns(b);
    struct beside to = {.weights = &b->next};

    if ((panel + 1) * MANY_SIDE < in->m)
        to.inputs = cpu_many_ahead_of(
            inputs_at(b, panel + 1), cpu_many_chunks(in) * MANY_TILES,
            b->chunks * chunk, in->bytes ? in->parts : 1, turns);
    return to;
}

/* Adds the sums of a group of chunks to those of the groups before as floats,
 * in ascending order, at y. */
static void multiply_panel(struct cpu_many_block *b, int64_t panel, float *y,
                           int64_t ldy, bool add)
{
    _Alignas(64) float sums[3 * MANY_SIDE * MANY_SIDE];
    const struct cpu_many_inputs *in = b->in;
    const char *a = inputs_at(b, panel), *w = b->packed;
    struct beside to = beside_of(b, panel);
    struct place p = place_of(b, panel, y, ldy, add);

    for (; p.column < b->columns; p.column += MANY_SIDE) {
        p.columns = b->columns - p.column;
        to.y = cpu_many_ahead_of(y + p.column, 4 * ldy, 4 * MANY_SIDE, p.rows,
                                 cpu_many_turns(b));
        if (in->bytes)
            sum_bytes(b, a, w, sums, &to);
        else if (in->parts == 1)
            sum_rounded(b, a, w, sums, &to);
        else
            sum_bf16(b, a, w, sums, &to);
        put_sixteen(&p, sums, 0);
        put_sixteen(&p, sums, 16);
        w += b->chunks * MANY_TILES;
    }
}

#define ROAD(n_parts, finds)                                                  \
    {                                                                         \
        .parts = (n_parts), .most = 12, .group = 48, .measure = (finds),      \
        .pack_inputs = pack_inputs, .pack_weights = pack_weights,             \
        .multiply = multiply_panel                                            \
    }
static const struct cpu_many_road bf16 = ROAD(2, NULL);
static const struct cpu_many_road bytes = ROAD(3, measure_row);
static const struct cpu_many_road rounded_bf16 = ROAD(1, NULL);
static const struct cpu_many_road rounded_bytes = ROAD(1, measure_bytes);

const struct cpu_many cpu_many_amx = {
    {[CPU_BF16] = &bf16,
     [CPU_BYTES] = &bytes,
     [CPU_ROUNDED + CPU_BF16] = &rounded_bf16,
     [CPU_ROUNDED + CPU_BYTES] = &rounded_bytes,
     [CPU_ROUNDED + CPU_GROUPS] = &cpu_many_grouped}};
