/* Products of many rows by the tile registers of AMX: see many.h. Start at
 * multiply_panel(): 32 rows of inputs meet 32 columns at a time in four tiles
 * of sums, which stay in registers over all of k.
 *
 * TDPBF16PS takes subnormal numbers for zero: what is lost of an input is below
 * 2^-126. */
#include "base/num.h"
#include "cpu/many/many.h"
#include "cpu/pair/pack.h"
#include "cpu/pair/rows.h"
#include "cpu/pair/tiles.h"

#include <immintrin.h>

enum { TILE_BYTES = MANY_TILES / 2 };

/* ---- inputs ---- */

/* Bytes of 16 whole numbers. The first one has the sign; the others count up
 * from it, without a sign. */
static inline void put_digits(char *to, int64_t apart, __m512i x)
{
    const __m128i digits[] = {_mm512_cvtepi32_epi8(_mm512_srai_epi32(x, 16)),
                              _mm512_cvtepi32_epi8(_mm512_srai_epi32(x, 8)),
                              _mm512_cvtepi32_epi8(x)};

    for (int64_t part = 0; part < 3; part++)
        _mm_store_si128((__m128i *)(void *)(to + part * apart), digits[part]);
}

/* A chunk of a row, of which n floats are left; its parts lie `apart`. */
static inline void put_bytes(char *to, int64_t apart, const float *x, int64_t n,
                             float unit)
{
    /* units are powers of two: only what comes after three digits is rounded */
    const __m512 factor = _mm512_set1_ps(65536 / unit);

    for (int64_t l = 0; l < MANY_CHUNK; l += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(lanes_of(n - l), x + l);

        put_digits(to + l, apart,
                   _mm512_cvtps_epi32(_mm512_mul_ps(v, factor)));
    }
}

/* Both parts of 32 floats, of which there are n. What the first part leaves of
 * a float is exact; the second part rounds that to its 8 bits. */
static inline void put_parts(char *to, const float *x, int64_t n)
{
    const __m512 a = _mm512_maskz_loadu_ps(lanes_of(n), x);
    const __m512 b = _mm512_maskz_loadu_ps(lanes_of(n - 16), x + 16);
    const __m512i high = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    const __m512 rest_a =
        _mm512_sub_ps(a, wide(_mm512_castsi512_si256(high)));
    const __m512 rest_b =
        _mm512_sub_ps(b, wide(_mm512_extracti64x4_epi64(high, 1)));

    _mm512_store_si512(to, high);
    _mm512_store_si512(to + MANY_TILES,
                       (__m512i)_mm512_cvtne2ps_pbh(rest_b, rest_a));
}

static void measure_row(const struct cpu_many_inputs *in, int64_t row)
{
    in->units[row] = unit_of(in->x + row * in->ldx, in->k);
}

/* Rows of tiles are 64 bytes of one row of inputs: a row is written from chunk
 * to chunk, in the order in which its floats are read. A panel at the end of
 * the matrix has rows of zeros: they cost what others do, and their sums go
 * nowhere. */
static void pack_inputs(const struct cpu_many_inputs *in, int64_t panel,
                        int64_t begin, int64_t end)
{
    const int64_t first = panel * MANY_SIDE;
    const int64_t part = cpu_many_chunks(in) * MANY_TILES;
    char *to = in->packed + panel * cpu_many_panel(in);

    for (int64_t r = 0; r < MANY_SIDE; r++, to += MANY_CHUNK) {
        const bool there = first + r < in->m;
        const float *x = in->x + (there ? first + r : 0) * in->ldx;
        const float unit = there && in->bytes ? in->units[first + r] : 1;
        const int64_t k = there ? in->k : 0;

        for (int64_t c = begin; c < end; c++)
            if (in->bytes)
                put_bytes(to + c * MANY_TILES, part, x + 64 * c, k - 64 * c,
                          unit);
            else
                put_parts(to + 2 * c * MANY_TILES, x + 32 * c, k - 32 * c);
    }
}

/* ---- weights ---- */

/* Rows of bytes are packed like rows of half as many numbers of bf16: four
 * bytes stay together in either case. */
static void pack_weights(const struct cpu_many_block *b)
{
    const struct cpu_many_inputs *in = b->in;
    const int64_t row = in->bytes ? in->k / 2 : in->k;
    const int64_t at = b->begin * PAIR_CHUNK, most = b->chunks * PAIR_CHUNK;

    for (int64_t j = 0; j < b->columns; j += MANY_SIDE) {
        const char *from = b->values + 2 * ((b->first + j) * row + at);
        const struct cpu_pair_band band = {
            .from = (const uint16_t *)(const void *)from,
            .ld = row,
            .rows = b->columns - j < MANY_SIDE ? b->columns - j : MANY_SIDE,
            .columns = row - at < most ? row - at : most,
            .to = (uint16_t *)(void *)(b->packed +
                                       j / MANY_SIDE * b->chunks * MANY_TILES),
            .step = PAIR_VALUES,
            .along_k = true,
            .for_a = false};

        pack_band(&band);
    }
}

/* ---- sums ---- */

/* What a panel of inputs needs beside its tiles: weights that are packed next,
 * the inputs after these, and where the results go. */
struct beside {
    struct cpu_many_ahead *weights, inputs, y;
};

/* A few lines at a time, to the second cache: a burst would hold up the loads
 * of tiles, and lines that come to the first cache early would drive tiles out.
 */
static inline void fetch(struct cpu_many_ahead *a)
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

static inline void fetch_all(struct beside *to)
{
    fetch(to->weights);
    fetch(&to->inputs);
    fetch(&to->y);
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

/* Two tiles of inputs times two of weights. */
#define MULTIPLY_BYTES(dot, a, w)                                             \
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

#define SUM_BYTES(dot)                                                        \
    do {                                                                      \
        begin_sums();                                                         \
        for (int64_t c = 0; c < b->chunks; c++) {                             \
            MULTIPLY_BYTES(dot, a + c * MANY_TILES, w + c * MANY_TILES);      \
            fetch_all(to);                                                    \
        }                                                                     \
        store_sums(sums);                                                     \
        a += cpu_many_chunks(b->in) * MANY_TILES;                             \
        sums += MANY_SIDE * MANY_SIDE;                                        \
    } while (0)

/* The sums of each part by themselves: they have 32 bits, and registers hold
 * those of one part. The weights stay in the first cache for the next part. */
static void sum_bytes(const struct cpu_many_block *b, const char *a,
                      const char *w, float *sums, struct beside *to)
{
    SUM_BYTES(TILE_DOT_BYTES);
    SUM_BYTES(TILE_DOT_DIGITS);
    SUM_BYTES(TILE_DOT_DIGITS);
}

/* ---- results ---- */

/* Where 32 x 32 sums go. */
struct place {
    const struct cpu_many_block *b;
    float *y;
    int64_t ldy, row, rows, column, columns;
    bool add;
};

/* Sixteen sums of the parts of a row of inputs, the smallest first. */
static inline __m512 joined(const float *sums, float unit)
{
    const __m512 base = _mm512_set1_ps(1 / 256.0F);
    const int32_t *whole = (const int32_t *)(const void *)sums;
    __m512 v = _mm512_setzero_ps();

    for (int part = 2; part >= 0; part--)
        v = _mm512_fmadd_ps(
            v, part == 2 ? _mm512_setzero_ps() : base,
            _mm512_cvtepi32_ps(_mm512_load_si512(
                whole + part * MANY_SIDE * MANY_SIDE)));
    return _mm512_mul_ps(v, _mm512_set1_ps(unit));
}

/* The edges of the matrix: rows that are not there are left out, and columns by
 * the mask of lanes. The unit of bytes is a power of two: only the scale's
 * product is rounded. */
static inline void put_sixteen(const struct place *p, const float *sums,
                               int64_t at)
{
    const __mmask16 lanes = lanes_of(p->columns - at);
    const bool bytes = p->b->in->bytes;
    __m512 scale = _mm512_set1_ps(1), old = _mm512_setzero_ps(), v;

    if (lanes == 0)
        return;
    if (bytes)
        scale = wide(_mm256_maskz_loadu_epi16(
            lanes, p->b->scales + p->b->first + p->column + at));
    for (int64_t r = 0; r < p->rows; r++) {
        float *y = p->y + r * p->ldy + p->column + at;

        if (bytes)
            v = joined(sums + r * MANY_SIDE + at,
                       p->b->in->units[p->row + r]);
        else
            v = _mm512_load_ps(sums + r * MANY_SIDE + at);
        if (p->add)
            old = _mm512_maskz_loadu_ps(lanes, y);
        _mm512_mask_storeu_ps(y, lanes, times(v, scale, p->add, old));
    }
}

/* The block's chunks of a panel of inputs. */
static const char *inputs_at(const struct cpu_many_block *b, int64_t panel)
{
    return b->in->packed + panel * cpu_many_panel(b->in) +
           b->begin * (b->in->bytes ? 1 : 2) * MANY_TILES;
}

static struct beside beside_of(struct cpu_many_block *b, int64_t panel)
{
    const struct cpu_many_inputs *in = b->in;
    const int64_t chunk = (in->bytes ? 1 : 2) * MANY_TILES;
    const int64_t turns =
        gpt_ceil_div(b->columns, MANY_SIDE) * cpu_many_turns(b);
    struct beside to = {.weights = &b->next};

    if ((panel + 1) * MANY_SIDE < in->m)
        to.inputs = cpu_many_ahead_of(
            inputs_at(b, panel + 1), cpu_many_chunks(in) * MANY_TILES,
            b->chunks * chunk, in->bytes ? 3 : 1, turns);
    return to;
}

/* Sums of a group of chunks are added to those of groups before as floats, in
 * ascending order, at y. */
static void multiply_panel(struct cpu_many_block *b, int64_t panel, float *y,
                           int64_t ldy, bool add)
{
    _Alignas(64) float sums[3 * MANY_SIDE * MANY_SIDE];
    const struct cpu_many_inputs *in = b->in;
    const char *a = inputs_at(b, panel), *w = b->packed;
    struct beside to = beside_of(b, panel);
    struct place p = {.b = b, .y = y, .ldy = ldy, .add = add};

    p.row = panel * MANY_SIDE;
    p.rows = in->m - p.row < MANY_SIDE ? in->m - p.row : MANY_SIDE;
    for (; p.column < b->columns; p.column += MANY_SIDE) {
        p.columns = b->columns - p.column;
        to.y = cpu_many_ahead_of(y + p.column, 4 * ldy, 4 * MANY_SIDE, p.rows,
                                 cpu_many_turns(b));
        if (in->bytes)
            sum_bytes(b, a, w, sums, &to);
        else
            sum_bf16(b, a, w, sums, &to);
        put_sixteen(&p, sums, 0);
        put_sixteen(&p, sums, 16);
        w += b->chunks * MANY_TILES;
    }
}

const struct cpu_many cpu_many_amx = {measure_row, pack_inputs, pack_weights,
                                      multiply_panel};
