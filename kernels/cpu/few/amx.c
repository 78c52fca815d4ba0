/* Products of few rows by the tile registers of AMX: see few.h. Start at
 * multiply_strip(). 32 rows of weights meet up to 48 columns in six tiles of
 * sums; a chunk of weights takes longer to come from memory than all that is
 * done with it, so that the time of a product is that of reading its weights.
 *
 * TDPBF16PS takes subnormal numbers for zero: what is lost of an input is below
 * 2^-126. */
#include "base/num.h"
#include "cpu/few/few.h"
#include "cpu/pair/pack.h"
#include "cpu/pair/rows.h"
#include "cpu/pair/tiles.h"

#include <immintrin.h>
#include <string.h>

enum { SIDE = 16, TILE_BYTES = FEW_TILES / 3 };

static inline int64_t parts_of(const struct cpu_few_inputs *in)
{
    return in->bytes ? 4 : 3;
}

/* The first text of group g. Texts are spread almost equally over groups. */
static inline int64_t group_begin(const struct cpu_few_inputs *in, int64_t g)
{
    return in->m * g / cpu_few_groups(in);
}

/* ---- inputs ---- */

static void measure_inputs(const struct cpu_few_inputs *in)
{
    for (int64_t i = 0; i < in->m && in->bytes; i++)
        in->units[i] = unit_of(in->x + i * in->ldx, in->k);
}

/* Digit number `part` of 16 floats: each digit is what those before it leave,
 * times 128. All of it is exact. */
static inline __m128i digits_of(__m512 x, float unit, int64_t part)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    const __m512 base = _mm512_set1_ps(128);

    /* units are powers of two: their inverse is exact, too */
    x = _mm512_mul_ps(x, _mm512_set1_ps(1 / unit));
    for (; part > 0; part--)
        x = _mm512_mul_ps(_mm512_sub_ps(x, _mm512_roundscale_ps(x, NEAREST)),
                          base);
    return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x));
}

/* Writes 64 bytes of a column: the digits of 64 floats, or of the n that there
 * are. */
static void put_digit(char *to, const float *x, int64_t n, float unit,
                      int64_t part)
{
    for (int64_t l = 0; l < FEW_CHUNK; l += 16)
        _mm_store_si128(
            (__m128i *)(void *)(to + l),
            digits_of(_mm512_maskz_loadu_ps(lanes_of(n - l), x + l), unit,
                      part));
}

/* The upper half of a float's bits: its value without the last 16. Three such
 * parts of eight bits each hold all 24 bits of a float. */
static inline __m512 upper(__m512 x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(
        _mm512_castps_si512(x), _mm512_set1_epi32((int32_t)0xffff0000)));
}

/* Writes 64 bytes of a column: part number `part`, in bf16, of 32 floats, or of
 * the n that there are. */
static void put_part(char *to, const float *x, int64_t n, int64_t part)
{
    const __m512i odd = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29,
        27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512 a = _mm512_maskz_loadu_ps(lanes_of(n), x);
    __m512 b = _mm512_maskz_loadu_ps(lanes_of(n - 16), x + 16);

    for (; part > 0; part--) {
        a = _mm512_sub_ps(a, upper(a));
        b = _mm512_sub_ps(b, upper(b));
    }
    _mm512_store_si512(to, _mm512_permutex2var_epi16(_mm512_castps_si512(a),
                                                     odd,
                                                     _mm512_castps_si512(b)));
}

static int64_t packed_bytes(const struct cpu_few_inputs *in)
{
    return cpu_few_groups(in) * cpu_few_chunks(in) * FEW_TILES;
}

/* How many chunks all groups have. Chunks of a group lie side by side. */
static int64_t count_chunks(const struct cpu_few_inputs *in)
{
    return cpu_few_groups(in) * cpu_few_chunks(in);
}

/* Puts the columns of chunk i side by side, and turns them into tiles. */
static void pack_chunk_of(const struct cpu_few_inputs *in, int64_t i)
{
    const int64_t chunks = cpu_few_chunks(in), g = i / chunks;
    const int64_t at = i % chunks * (in->bytes ? FEW_CHUNK : FEW_CHUNK / 2);
    const int64_t first = group_begin(in, g);
    const int64_t m = group_begin(in, g + 1) - first, n = in->k - at;
    _Alignas(64) char columns[3 * SIDE * FEW_CHUNK];
    uint16_t *from = (void *)columns;
    uint16_t *to = (void *)(in->packed + i * FEW_TILES);

    memset(columns, 0, sizeof(columns));
    for (int64_t part = 0; part < parts_of(in); part++)
        for (int64_t t = 0; t < m; t++) {
            char *column = columns + (part * m + t) * FEW_CHUNK;
            const float *x = in->x + (first + t) * in->ldx + at;

            if (in->bytes)
                put_digit(column, x, n, in->units[first + t], part);
            else
                put_part(column, x, n, part);
        }
    for (int64_t j = 0; j < parts_of(in) * m; j += SIDE, to += TILE)
        transpose_pairs(to, from + j * FEW_CHUNK / 2, FEW_CHUNK / 2);
}

/* ---- weights ---- */

static int64_t row_bytes(const struct cpu_few_inputs *in)
{
    return in->bytes ? in->k : 2 * in->k;
}

/* A chunk of 32 rows where it is, or at an edge of the matrix a copy among
 * zeros; *stride is bytes from one row to the next. */
static inline const char *chunk_of(const struct cpu_few_strip *s, int64_t c,
                                   char *edge, int64_t *stride)
{
    const int64_t ld = row_bytes(s->in), at = c * FEW_CHUNK;
    const int64_t n = ld - at < FEW_CHUNK ? ld - at : FEW_CHUNK;
    const char *from = s->values + s->row * ld + at;

    if (s->rows == FEW_ROWS && n == FEW_CHUNK) {
        *stride = ld;
        return from;
    }
    *stride = FEW_CHUNK;
    memset(edge, 0, FEW_ROWS * FEW_CHUNK);
    for (int64_t r = 0; r < s->rows; r++)
        memcpy(edge + r * FEW_CHUNK, from + r * ld, (size_t)n);
    return edge;
}

/* ---- reading ahead ---- */

/* While a strip is multiplied, the next one comes into the second cache: in
 * four stretches side by side, since the processor foresees those, and a few
 * lines at a time between loads of tiles, which more would hold up. Tiles touch
 * 32 rows at a time, which memory gives at half its speed. */
struct ahead {
    const char *from;
    int64_t apart;     /* bytes between stretches */
    int64_t line, end; /* of all four */
    int64_t step;      /* lines at a time */
};

static struct ahead ahead_of(const struct cpu_few_strip *s, int64_t row)
{
    const int64_t ld = row_bytes(s->in), apart = FEW_ROWS / 4 * ld;
    const int64_t lines = 4 * ((apart + 63) / 64);
    const int64_t turns = 3 * cpu_few_groups(s->in) * cpu_few_chunks(s->in);

    return (struct ahead){.from = s->values + row * ld,
                          .apart = apart,
                          .end = lines,
                          .step = gpt_ceil_div(lines, turns)};
}

static inline void fetch(struct ahead *a, int64_t n)
{
    for (; n > 0 && a->line < a->end; n--, a->line++)
        __builtin_prefetch(a->from + a->line % 4 * a->apart +
                               a->line / 4 * 64, 0, 2);
}

/* ---- sums ---- */

/* What a chunk of weights adds to 32 x 16, 32 x 32 or 32 x 48 sums. Six of the
 * registers are sums, so that of the operands two are there at a time: the
 * columns are met forwards by the first 16 rows and backwards by the others,
 * and the last column tile serves both. */
#define MULTIPLY(dot, at, stride, b, tiles, next)                             \
    do {                                                                      \
        TILE_LOAD(6, at, stride);                                             \
        fetch(next, (next)->step);                                            \
        TILE_LOAD(7, b, tight);                                               \
        dot(0, 6, 7);                                                         \
        if ((tiles) > 1) {                                                    \
            TILE_LOAD(7, (b) + TILE_BYTES, tight);                            \
            dot(1, 6, 7);                                                     \
        }                                                                     \
        if ((tiles) > 2) {                                                    \
            TILE_LOAD(7, (b) + 2 * TILE_BYTES, tight);                        \
            dot(2, 6, 7);                                                     \
        }                                                                     \
        fetch(next, (next)->step);                                            \
        TILE_LOAD(6, (at) + SIDE * (stride), stride);                         \
        if ((tiles) > 2) {                                                    \
            dot(5, 6, 7);                                                     \
            TILE_LOAD(7, (b) + TILE_BYTES, tight);                            \
        }                                                                     \
        fetch(next, (next)->step);                                            \
        if ((tiles) > 1) {                                                    \
            dot(4, 6, 7);                                                     \
            TILE_LOAD(7, b, tight);                                           \
        }                                                                     \
        dot(3, 6, 7);                                                         \
    } while (0)

/* Multiplies a strip of weights with group g of the inputs. */
static inline __attribute__((always_inline)) void
multiply_group(const struct cpu_few_strip *s, int64_t g, int tiles, bool bytes,
               struct ahead *next)
{
    const int64_t chunks = cpu_few_chunks(s->in);
    const char *b = s->in->packed + g * chunks * FEW_TILES;
    _Alignas(64) char edge[FEW_ROWS * FEW_CHUNK];
    int64_t stride;

    /* sums stay in registers from the first chunk to the last: no order of
     * additions depends on what else is computed */
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_ZERO(4);
    TILE_ZERO(5);
    for (int64_t c = 0; c < chunks; c++, b += FEW_TILES) {
        const char *at = chunk_of(s, c, edge, &stride);

        if (bytes)
            MULTIPLY(TILE_DOT_BYTES, at, stride, b, tiles, next);
        else
            MULTIPLY(TILE_DOT, at, stride, b, tiles, next);
    }
}

enum { LD_SUMS = 64 }; /* a load of 16 columns may begin at any of 48 */

static void store_sums(void *sums, int tiles)
{
    const int64_t stride = 4 * LD_SUMS;
    char *to = sums, *below = to + SIDE * stride;

    TILE_STORE(0, to, stride);
    TILE_STORE(3, below, stride);
    if (tiles > 1) {
        TILE_STORE(1, to + 4 * SIDE, stride);
        TILE_STORE(4, below + 4 * SIDE, stride);
    }
    if (tiles > 2) {
        TILE_STORE(2, to + 8 * SIDE, stride);
        TILE_STORE(5, below + 8 * SIDE, stride);
    }
}

/* Joins the sums of all parts of up to 16 texts into one, the smallest
 * first. */
static inline __m512 joined(const void *row, int64_t m, __mmask16 texts,
                            bool bytes)
{
    const float *floats = row;
    const int32_t *whole = row;
    __m512 v = _mm512_setzero_ps();

    for (int64_t part = bytes ? 3 : 2; part >= 0; part--)
        if (bytes)
            v = _mm512_add_ps(
                _mm512_mul_ps(v, _mm512_set1_ps(1 / 128.0F)),
                _mm512_cvtepi32_ps(
                    _mm512_maskz_loadu_epi32(texts, whole + part * m)));
        else
            v = _mm512_add_ps(
                v, _mm512_maskz_loadu_ps(texts, floats + part * m));
    return v;
}

/* Writes sixteen results of a text from row `at` of the strip on. */
static void put_results(const struct cpu_few_strip *s, const float *sums,
                        int64_t at, int64_t text)
{
    const __mmask16 lanes = lanes_of(s->rows - at);
    const __m512i rows = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32(LD_SUMS));
    float *y = s->y + text * s->ldy + at;
    __m512 v = _mm512_i32gather_ps(rows, sums, 4);

    __m512 scale = _mm512_set1_ps(1), old = _mm512_setzero_ps();

    /* floats are multiplied by one, and stay what they are */
    if (s->in->bytes) {
        /* the unit is a power of two: only the scale's product is rounded */
        v = _mm512_mul_ps(v, _mm512_set1_ps(s->in->units[text]));
        scale = wide(
            _mm256_maskz_loadu_epi16(lanes, s->scales + s->row + at));
    }
    if (s->add)
        old = _mm512_maskz_loadu_ps(lanes, y);
    v = times(v, scale, s->add, old);
    _mm512_mask_storeu_ps(y, lanes, v);
}

static void put_group(const struct cpu_few_strip *s, float *sums, int64_t first,
                      int64_t m)
{
    const __mmask16 texts = lanes_of(m);

    for (int64_t r = 0; r < s->rows; r++) {
        float *row = sums + r * LD_SUMS;

        _mm512_mask_storeu_ps(row, texts, joined(row, m, texts, s->in->bytes));
    }
    for (int64_t t = 0; t < m; t++)
        for (int64_t at = 0; at < s->rows; at += SIDE)
            put_results(s, sums + at * LD_SUMS + t, at, first + t);
}

static void multiply_strip(const struct cpu_few_strip *s)
{
    _Alignas(64) float sums[FEW_ROWS * LD_SUMS];

    struct ahead own = ahead_of(s, s->row);
    struct ahead next = ahead_of(s, s->row + FEW_ROWS);

    if (s->first)
        fetch(&own, own.end);
    if (s->last)
        next.end = 0;
    for (int64_t g = 0; g < cpu_few_groups(s->in); g++) {
        const int64_t first = group_begin(s->in, g);
        const int64_t m = group_begin(s->in, g + 1) - first;
        const int tiles = (int)gpt_ceil_div(parts_of(s->in) * m, SIDE);

        if (s->in->bytes && tiles > 1)
            multiply_group(s, g, 2, true, &next);
        else if (s->in->bytes)
            multiply_group(s, g, 1, true, &next);
        else if (tiles > 2)
            multiply_group(s, g, 3, false, &next);
        else if (tiles > 1)
            multiply_group(s, g, 2, false, &next);
        else
            multiply_group(s, g, 1, false, &next);
        store_sums(sums, tiles);
        put_group(s, sums, first, m);
    }
}

const struct cpu_few_road cpu_few_tiles = {.room = packed_bytes,
                                           .measure = measure_inputs,
                                           .parts = count_chunks,
                                           .pack = pack_chunk_of,
                                           .multiply = multiply_strip};

/* Rounded inputs are multiplied by vectors, which keep up with memory: tiles
 * would gain nothing. */
const struct cpu_few cpu_few_amx = {
    .road = {[CPU_BF16] = &cpu_few_tiles,
             [CPU_BYTES] = &cpu_few_tiles,
             [CPU_ROUNDED + CPU_BF16] = &cpu_few_bf16,
             [CPU_ROUNDED + CPU_BYTES] = &cpu_few_bytes,
             [CPU_ROUNDED + CPU_GROUPS] = &cpu_few_grouped}};
