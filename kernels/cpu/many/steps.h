/* How avx2.c packs bytes: inputs in steps of four for four rows, weights in
 * steps of four for eight columns. Start at pack_inputs() and pack_weights().
 *
 * Packed memory is not that of many.h. A panel of inputs is eight rows of
 * blocks: four rows of the matrix, whose chunks follow each other; a chunk is
 * 16 steps, and a step four inputs of each row, side by side. A panel of
 * weights is four rows of blocks: eight columns, whose chunks follow each
 * other; a step is four weights of each column. Where groups have scales, these
 * follow the chunks of their eight columns: eight floats a group, and after all
 * of them, eight whole numbers a group from which its sums begin. Units follow
 * the panel of inputs as in many.h. */
#ifndef GPT_KERNELS_CPU_MANY_STEPS_H
#define GPT_KERNELS_CPU_MANY_STEPS_H

#include "cpu/many/many.h"
#include "cpu/pair/eights.h"

#include <string.h>

#ifdef __AVX2__ /* as in the file that uses it */

/* Rows and columns of a block, weights of a row in a step, and steps. Inputs of
 * four rows lie side by side because loads of one value for all lanes are slow
 * where they come from lines of the same bank of the first cache. */
enum { ROWS = 4, EIGHT = 8, FOUR = 4 };
enum { STEPS = MANY_CHUNK / FOUR, GROUP_STEPS = CPU_GROUP / FOUR };
/* Values of a chunk of a block of inputs, bytes of one of weights. */
enum { VALUES = ROWS * MANY_CHUNK, BYTES = EIGHT * MANY_CHUNK };
/* Bytes of an input: it has the room of so many parts. */
enum { PARTS = sizeof(input) };

/* ---- inputs ---- */

/* In many.h an input is a byte: one of 16 bits has the room of two parts. */
static inline input *block_of_row(const struct cpu_many_inputs *in, char *panel,
                                  int64_t row)
{
    return (input *)(void *)panel +
           row / ROWS * cpu_many_chunks(in) * VALUES + row % ROWS * FOUR;
}

/* Units of a panel: 32 for each group. They lie behind all values, whose number
 * of bytes many.h counts by parts. */
static inline float *units_of(const struct cpu_many_inputs *in, char *panel)
{
    return (float *)(void *)(panel +
                             cpu_many_chunks(in) * PARTS * MANY_TILES);
}

/* n values, a multiple of 8, of which `there` are inputs, to steps at `to`.
 * Bytes lose their sign: turning the upper bit adds PLUS. */
static inline void put_steps(input *to, int64_t n, const float *x,
                             int64_t there, float unit)
{
    enum { STEP = ROWS * FOUR };
    input values[EIGHT];

    for (int64_t l = 0; l < n; l += EIGHT, to += 2 * STEP) {
        put_inputs(values, in_units(eight_of(x + l, there - l), unit));
        for (int i = 0; i < EIGHT; i++)
            values[i] ^= -PLUS;
        memcpy(to, values, FOUR * sizeof(input));
        memcpy(to + STEP, values + FOUR, FOUR * sizeof(input));
    }
}

/* Chunk c of row `row` of a panel, which is x, of k floats. Each group has a
 * unit of its own; groups that are not there are zero, with a unit that is a
 * number. */
static inline void put_groups(const struct cpu_many_inputs *in, char *panel,
                              int64_t row, const float *x, int64_t k,
                              int64_t c)
{
    input *to = block_of_row(in, panel, row) + c * VALUES;
    float *units = units_of(in, panel) + row;

    for (int64_t g = c * MANY_GROUPS; g < (c + 1) * MANY_GROUPS; g++) {
        const int64_t at = g * CPU_GROUP, left = k > at ? k - at : 0;
        const int64_t n = gpt_min_i64(left, CPU_GROUP);
        const float *from = x + (n > 0 ? at : 0);
        const float unit = byte_unit_of(from, n);

        units[g * MANY_SIDE] = unit;
        put_steps(to, CPU_GROUP, from, n, unit);
        to += ROWS * CPU_GROUP;
    }
}

/* Chunks begin..end of 32 rows, one row after the other, as their floats lie in
 * memory. Rows that are not there are zero. */
static inline void pack_inputs(const struct cpu_many_inputs *in, int64_t panel,
                               int64_t begin, int64_t end)
{
    char *to = in->packed + panel * cpu_many_panel(in);

    for (int64_t r = 0; r < MANY_SIDE; r++) {
        const int64_t row = panel * MANY_SIDE + r;
        const bool there = row < in->m;
        const float *x = in->x + (there ? row : 0) * in->ldx;
        const int64_t k = there ? in->k : 0;

        for (int64_t c = begin; c < end; c++)
            if (in->groups)
                put_groups(in, to, r, x, k, c);
            else
                put_steps(block_of_row(in, to, r) + c * VALUES, MANY_CHUNK,
                          x + c * MANY_CHUNK, k - c * MANY_CHUNK,
                          there ? in->units[row] : 1);
    }
}

static inline void measure_row(const struct cpu_many_inputs *in, int64_t row)
{
    in->units[row] = byte_unit_of(in->x + row * in->ldx, in->k);
}

/* ---- weights ---- */

/* Four bytes of each of eight rows, ld bytes apart, as eight steps of those. */
static inline void transpose(char *to, const char *from, int64_t ld)
{
    __m256i a[EIGHT], b[EIGHT];

#pragma GCC unroll 4
    for (int i = 0; i < EIGHT; i += 2) {
        const __m256i x = load(from + i * ld), y = load(from + (i + 1) * ld);

        a[i] = _mm256_unpacklo_epi32(x, y);
        a[i + 1] = _mm256_unpackhi_epi32(x, y);
    }
    /* b[i]: steps i and i + 4 of rows 0 to 3; b[i + 4]: of rows 4 to 7 */
#pragma GCC unroll 2
    for (int i = 0; i < EIGHT; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = _mm256_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm256_store_si256((__m256i *)(void *)(to + 32 * i),
                           _mm256_permute2x128_si256(b[i], b[i + 4], 0x20));
        _mm256_store_si256((__m256i *)(void *)(to + 32 * (i + 4)),
                           _mm256_permute2x128_si256(b[i], b[i + 4], 0x31));
    }
}

/* Bytes of a block of eight columns, all chunks with what follows them. */
static inline int64_t block_bytes(const struct cpu_many_block *b)
{
    return b->chunks * cpu_many_packed(b->in) * EIGHT / MANY_SIDE;
}

static inline float *scales_at(const struct cpu_many_block *b, char *w)
{
    return (float *)(void *)(w + b->chunks * BYTES);
}

static inline int32_t *begins_at(const struct cpu_many_block *b, char *w)
{
    return (int32_t *)(void *)(scales_at(b, w) +
                               b->chunks * MANY_GROUPS * EIGHT);
}

/* Chunks of eight columns of a matrix in panels (quant.h), whose bytes 0, 2,
 * ... have their upper bit turned back where it was turned (few/few.h). Panels
 * that end have no more groups. */
static inline void copy_chunks(const struct cpu_many_block *b, char *to,
                               int64_t first)
{
    const __m256i turned = _mm256_set1_epi16(PLUS == 0 ? 128 : 0);
    const int64_t column = b->first + first;
    const int64_t at = b->begin * MANY_GROUPS;
    const int64_t groups = gpt_min_i64(
        b->chunks * MANY_GROUPS, gpt_ceil_div(b->in->k, CPU_GROUP) - at);
    const char *from = (const char *)b->w->values + at * CPU_GROUP_BYTES +
                       cpu_panel_at(b->w, column, 0, b->in->k);

    for (int64_t g = 0; g < groups; g++, from += CPU_GROUP_BYTES)
#pragma GCC unroll 8
        for (int l = 0; l < GROUP_STEPS; l++, to += EIGHT * FOUR)
            _mm256_store_si256(
                (__m256i *)(void *)to,
                _mm256_xor_si256(load(from + l * CPU_STEP), turned));
    memset(to, 0, (size_t)((b->chunks * MANY_GROUPS - groups) * BYTES /
                           MANY_GROUPS));
}

/* Chunks of the eight columns from `first` of the block on. What is not there
 * is zero. */
static inline void pack_chunks(const struct cpu_many_block *b, char *to,
                               int64_t first)
{
    const int64_t k = b->in->k, columns = b->columns - first;
    const char *from = (const char *)b->w->values + (b->first + first) * k +
                       b->begin * MANY_CHUNK;
    _Alignas(32) char edge[EIGHT][MANY_CHUNK];

    if (b->w->arranged) {
        copy_chunks(b, to, first);
        return;
    }
    for (int64_t c = 0; c < b->chunks; c++, from += MANY_CHUNK, to += BYTES) {
        const int64_t left = k - (b->begin + c) * MANY_CHUNK;
        const bool whole = left >= MANY_CHUNK && columns >= EIGHT;
        const char *rows = whole ? from : edge[0];
        const int64_t ld = whole ? k : MANY_CHUNK;

        if (!whole) {
            memset(edge, 0, sizeof(edge));
            for (int64_t j = 0; j < EIGHT && j < columns; j++)
                memcpy(edge[j], from + j * k,
                       (size_t)gpt_min_i64(left, MANY_CHUNK));
        }
        transpose(to, rows, ld);
        transpose(to + BYTES / 2, rows + MANY_CHUNK / 2, ld);
    }
}

/* Sums of PLUS times the weights of so many steps, for eight columns. */
static inline __m256i sum_plus(const char *w, int64_t steps)
{
    __m256i sum = _mm256_setzero_si256();

    if (PLUS != 0)
        for (int64_t l = 0; l < steps; l++)
            sum = add_products(sum, _mm256_set1_epi8((char)PLUS),
                               load(w + 32 * l));
    return sum;
}

/* The scales of group g of eight columns from `column` on, of which n are
 * there. In panels they lie side by side, in rows a row apart. */
static inline __m256 scales_of_group(const struct cpu_many_block *b,
                                     int64_t column, int64_t n, int64_t g)
{
    const int64_t k = b->in->k, groups = gpt_ceil_div(k, CPU_GROUP);
    uint16_t eight[EIGHT] = {0};

    if (g >= groups)
        return _mm256_setzero_ps();
    if (b->w->arranged)
        memcpy(eight, (const char *)b->w->values +
                          cpu_panel_scale_at(b->w, column, g, k),
               sizeof(eight));
    else
        for (int64_t j = 0; j < EIGHT && j < n; j++)
            eight[j] = b->w->scales[(column + j) * groups + g];
    return wide(_mm_loadu_si128((const void *)eight));
}

/* Scales, and what takes off PLUS, of the columns at w, packed, whose first one
 * is `first` of the block. */
static inline void put_scales(const struct cpu_many_block *b, char *w,
                              int64_t first)
{
    for (int64_t g = 0; g < b->chunks * MANY_GROUPS; g++) {
        _mm256_store_ps(scales_at(b, w) + g * EIGHT,
                        scales_of_group(b, b->first + first,
                                        b->columns - first,
                                        b->begin * MANY_GROUPS + g));
        _mm256_store_si256(
            (__m256i *)(void *)(begins_at(b, w) + g * EIGHT),
            _mm256_sub_epi32(_mm256_setzero_si256(),
                             sum_plus(w + g * BYTES / 2, GROUP_STEPS)));
    }
}

/* All chunks of a block of weights, eight columns after eight: what rows of
 * inputs then read is one stretch of memory. */
static inline void pack_weights(const struct cpu_many_block *b)
{
    char *to = b->packed;

    for (int64_t j = 0; j < b->columns; j += EIGHT, to += block_bytes(b)) {
        pack_chunks(b, to, j);
        if (b->in->groups)
            put_scales(b, to, j);
    }
}

#endif
#endif
