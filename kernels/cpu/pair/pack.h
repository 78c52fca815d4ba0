/* Packing for products of pairs, by AVX-512: see pair.h. A stored matrix gives
 * 16 vectors of 16 pairs, either rows of pairs along k or, interleaved from two
 * stored rows, pairs of 16 columns; a transposition turns the one into the
 * other. Start at pack_band(). */
#ifndef GPT_KERNELS_CPU_PAIR_PACK_H
#define GPT_KERNELS_CPU_PAIR_PACK_H

#include "cpu/pair/pair.h"

#include <immintrin.h>

#ifdef __AVX512F__ /* as in the files that use it */

/* 16 x 16 words of 32 bits. Four rounds; a round exchanges blocks of twice the
 * size of the one before. */
static inline void transpose_words(__m512i r[16])
{
    __m512i t[16];

#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

/* What a chunk reads: rows and columns that are there, of 32 each. */
struct chunk {
    const uint16_t *from;
    int64_t ld, rows, columns;
};

static inline __mmask32 first_lanes(int64_t n)
{
    return n >= 32 ? 0xffffffffU : n <= 0 ? 0 : (1U << n) - 1;
}

/* Stored row i, as 16 pairs along it. */
static inline __m512i row_pairs(const struct chunk *c, int64_t i, bool whole)
{
    if (whole)
        return _mm512_loadu_si512(c->from + i * c->ld);
    if (i >= c->rows)
        return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(first_lanes(c->columns),
                                    c->from + i * c->ld);
}

/* Half a stored row, 16 values from column j on, each as a word. */
static inline __m512i half_row(const struct chunk *c, int64_t i, int64_t j,
                               bool whole)
{
    __mmask16 lanes = (__mmask16)first_lanes(c->columns - j);

    if (whole)
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(
            (const __m256i *)(const void *)(c->from + i * c->ld + j)));
    if (i >= c->rows || lanes == 0)
        return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(lanes, c->from + i * c->ld + j));
}

/* Tile `half` of a chunk; whole: all of it is there. */
static inline __attribute__((always_inline)) void
pack_tile(uint16_t *to, const struct chunk *c, int half, bool along_k,
          bool for_a, bool whole)
{
    __m512i r[16];

#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        if (along_k)
            r[i] = row_pairs(c, 16 * half + i, whole);
        else
            r[i] = _mm512_or_si512(
                half_row(c, 2 * i, 16 * half, whole),
                _mm512_slli_epi32(half_row(c, 2 * i + 1, 16 * half, whole),
                                  16));
    }
    /* Tiles of a have rows of pairs, tiles of b columns of them. */
    if (along_k != for_a)
        transpose_words(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + 32 * i, r[i]);
}

static inline __attribute__((always_inline)) void
pack_chunks(const struct cpu_pair_band *b, bool along_k, bool for_a)
{
    for (int64_t j = 0, i = 0; j < b->columns; j += 32, i++) {
        struct chunk c = {b->from + j, b->ld, b->rows, b->columns - j};
        uint16_t *to = b->to + i * b->step;

        for (int half = 0; half < 2; half++, to += PAIR_VALUES / 2) {
            if (c.rows >= 32 && c.columns >= 32)
                pack_tile(to, &c, half, along_k, for_a, true);
            else
                pack_tile(to, &c, half, along_k, for_a, false);
        }
    }
}

static inline void pack_band(const struct cpu_pair_band *b)
{
    if (b->along_k && b->for_a)
        pack_chunks(b, true, true);
    else if (b->along_k)
        pack_chunks(b, true, false);
    else if (b->for_a)
        pack_chunks(b, false, true);
    else
        pack_chunks(b, false, false);
}

#endif
#endif
