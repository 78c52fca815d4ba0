/* What the files of this folder share: packing of bytes and of weights, and
 * what becomes of sums. Start at pack_panel(). */
#ifndef GPT_KERNELS_CPU_MANY_PANEL_H
#define GPT_KERNELS_CPU_MANY_PANEL_H

#include "base/num.h"
#include "cpu/many/many.h"
#include "cpu/pair/pack.h"
#include "cpu/pair/rows.h"

#include <immintrin.h>

#ifdef __AVX512F__ /* as in the files that use it */

/* ---- inputs ---- */

/* Bytes of 16 whole numbers. The first one has the sign, if any; the others
 * count up from it, without a sign. */
static inline void put_digits(char *to, int64_t apart, __m512i x, int64_t parts)
{
    for (int64_t part = parts - 1; part >= 0; part--) {
        _mm_store_si128((__m128i *)(void *)(to + part * apart),
                        _mm512_cvtepi32_epi8(x));
        x = _mm512_srai_epi32(x, 8);
    }
}

/* A chunk of a row, of which n floats are left; its parts lie `apart`. `plus`
 * is added to first parts. */
static inline void put_bytes(char *to, int64_t apart, const float *x, int64_t n,
                             float unit, int plus, int64_t parts)
{
    /* the units of digits are powers of two: only what comes after three digits
     * is rounded */
    const float last = parts == 1 ? unit : unit / 65536;

    for (int64_t l = 0; l < MANY_CHUNK; l += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(lanes_of(n - l), x + l);

        put_digits(to + l, apart,
                   _mm512_add_epi32(
                       bytes_of(v, last),
                       _mm512_set1_epi32(parts == 1 ? plus : plus * 65536)),
                   parts);
    }
}

static inline void measure_row(const struct cpu_many_inputs *in, int64_t row)
{
    in->units[row] = unit_of(in->x + row * in->ldx, in->k);
}

/* The same for rows that are rounded to bytes. */
static inline void measure_bytes(const struct cpu_many_inputs *in, int64_t row)
{
    in->units[row] = byte_unit_of(in->x + row * in->ldx, in->k);
}

/* Rows of tiles are 64 bytes of one row of inputs: a row is written from chunk
 * to chunk, in the order in which its floats are read. A panel at the end of
 * the matrix has rows of zeros. put() stores chunk c of a row x, of which there
 * are k floats, and whose chunks begin at `to`. */
static inline __attribute__((always_inline)) void
pack_panel(const struct cpu_many_inputs *in, int64_t panel, int64_t begin,
           int64_t end,
           void (*put)(const struct cpu_many_inputs *in, char *to,
                       const float *x, int64_t k, int64_t c, float unit))
{
    const int64_t first = panel * MANY_SIDE;
    char *to = in->packed + panel * cpu_many_panel(in);

    for (int64_t r = 0; r < MANY_SIDE; r++, to += MANY_CHUNK) {
        const bool there = first + r < in->m;
        const float *x = in->x + (there ? first + r : 0) * in->ldx;
        const bool measured = there && in->bytes && !in->groups;
        const float unit = measured ? in->units[first + r] : 1;

        for (int64_t c = begin; c < end; c++)
            put(in, to, x, there ? in->k : 0, c, unit);
    }
}

/* ---- weights ---- */

/* Step l of the chunk whose steps are at `from`, in a panel of the matrix that
 * ends at `end`: the first half of its rows, and the second. */
static inline void copy_step(char *to, const char *from, const char *end,
                             int64_t l)
{
    __m512i left = _mm512_setzero_si512(), right = left;

    if (from + (l + 1) * CPU_STEP <= end) {
        left = _mm512_loadu_si512(from + l * CPU_STEP);
        right = _mm512_loadu_si512(from + l * CPU_STEP + CPU_STEP / 2);
    }
    _mm512_store_si512(to + 64 * l, left);
    _mm512_store_si512(to + MANY_TILES / 2 + 64 * l, right);
}

/* Chunks of panels have the order of tiles, but for their halves. */
static inline void copy_panels(const struct cpu_many_block *b)
{
    const int64_t bytes = cpu_panel_bytes(b->w, b->in->k);
    const char *panel =
        (const char *)b->w->values + b->first / CPU_PANEL * bytes;
    char *to = b->packed;

    for (int64_t j = 0; j < b->columns; j += MANY_SIDE, panel += bytes)
        for (int64_t c = 0; c < b->chunks; c++, to += cpu_many_packed(b->in)) {
            const char *from = panel + cpu_many_panel_at(b->w, b->begin + c);

            for (int64_t l = 0; l < 16; l++)
                copy_step(to, from + (b->w->group ? l / 8 * 2 * CPU_PANEL : 0),
                          panel + bytes, l);
        }
}

/* Rows of bytes are packed like rows of half as many numbers of bf16: four
 * bytes stay together in either case. */
static inline void pack_weights(const struct cpu_many_block *b)
{
    const struct cpu_many_inputs *in = b->in;
    const int64_t row = in->bytes ? in->k / 2 : in->k;
    const int64_t at = b->begin * PAIR_CHUNK, most = b->chunks * PAIR_CHUNK;
    const char *values = b->w->values;

    if (b->w->arranged) {
        copy_panels(b);
        return;
    }
    for (int64_t j = 0; j < b->columns; j += MANY_SIDE) {
        const char *from = values + 2 * ((b->first + j) * row + at);
        const struct cpu_pair_band band = {
            .from = (const uint16_t *)(const void *)from,
            .ld = row,
            .rows = b->columns - j < MANY_SIDE ? b->columns - j : MANY_SIDE,
            .columns = row - at < most ? row - at : most,
            .to = (uint16_t *)(void *)(b->packed + j / MANY_SIDE * b->chunks *
                                                       cpu_many_packed(in)),
            .step = cpu_many_packed(in) / 2,
            .along_k = true,
            .for_a = false};

        pack_band(&band);
    }
}

/* ---- results ---- */

/* Sums of `rows` rows of inputs with the 32 columns of a panel, as they lie in
 * registers. */
static inline __attribute__((always_inline)) void
store_floats(float *to, __m512 (*sums)[2], const int rows)
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        _mm512_store_ps(to + i * MANY_SIDE, sums[i][0]);
        _mm512_store_ps(to + i * MANY_SIDE + 16, sums[i][1]);
    }
}

/* Where 32 x 32 sums go. */
struct place {
    const struct cpu_many_block *b;
    float *y;
    int64_t ldy, row, rows, column, columns;
    bool add;
};

/* Where the results of a panel of inputs go, the first columns. */
static inline struct place
place_of(const struct cpu_many_block *b, int64_t panel, float *y, int64_t ldy,
         bool add)
{
    const int64_t row = panel * MANY_SIDE;

    return (struct place){.b = b,
                          .y = y,
                          .ldy = ldy,
                          .row = row,
                          .rows = gpt_min_i64(b->in->m - row, MANY_SIDE),
                          .add = add};
}

/* Sixteen sums of the parts of a row of inputs, the smallest first. */
static inline __m512 joined(const float *sums, float unit, int64_t parts)
{
    const __m512 base = _mm512_set1_ps(1 / 256.0F);
    const int32_t *whole = (const int32_t *)(const void *)sums;
    __m512 v = _mm512_setzero_ps();

    for (int64_t part = parts - 1; part >= 0; part--)
        v = _mm512_fmadd_ps(
            v, part == parts - 1 ? _mm512_setzero_ps() : base,
            _mm512_cvtepi32_ps(_mm512_load_si512(
                whole + part * MANY_SIDE * MANY_SIDE)));
    return _mm512_mul_ps(v, _mm512_set1_ps(unit));
}

/* The edges of the matrix: rows that are not there are left out, and columns by
 * the mask of lanes. The unit of digits is a power of two: only the scale's
 * product is rounded. */
static inline void put_sixteen(const struct place *p, const float *sums,
                               int64_t at)
{
    const __mmask16 lanes = lanes_of(p->columns - at);
    const struct cpu_many_inputs *in = p->b->in;
    const bool bytes = in->bytes && !in->groups;
    __m512 scale = _mm512_set1_ps(1), old = _mm512_setzero_ps(), v;

    if (lanes == 0)
        return;
    if (bytes)
        scale = wide(_mm256_maskz_loadu_epi16(
            lanes, p->b->w->scales + p->b->first + p->column + at));
    for (int64_t r = 0; r < p->rows; r++) {
        float *y = p->y + r * p->ldy + p->column + at;

        if (bytes)
            v = joined(sums + r * MANY_SIDE + at, in->units[p->row + r],
                       in->parts);
        else
            v = _mm512_load_ps(sums + r * MANY_SIDE + at);
        if (p->add)
            old = _mm512_maskz_loadu_ps(lanes, y);
        _mm512_mask_storeu_ps(y, lanes, times(v, scale, p->add, old));
    }
}

/* The block's chunks of a panel of inputs. */
static inline const char *inputs_at(const struct cpu_many_block *b,
                                    int64_t panel)
{
    return b->in->packed + panel * cpu_many_panel(b->in) +
           b->begin * (b->in->bytes ? 1 : b->in->parts) * MANY_TILES;
}

#endif
#endif
