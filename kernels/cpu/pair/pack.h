/* Packing for products of pairs, by AVX-512: see pair.h. What must be
 * transposed is gathered 16 bytes at a time, four stored rows into the lanes of
 * a vector, by loads that merge; transposing within lanes is then half the
 * shuffles of transposing whole vectors. Start at pack_band(). */
#ifndef GPT_KERNELS_CPU_PAIR_PACK_H
#define GPT_KERNELS_CPU_PAIR_PACK_H

#include "cpu/pair/pair.h"

#include <immintrin.h>
#include <string.h>

#ifdef __AVX512F__ /* as in the files that use it */

enum { TILE = PAIR_VALUES / 2 };

static inline __m128i eight(const uint16_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* 8 values of each of four rows, `apart` values between the rows. */
static inline __m512i gather_lanes(const uint16_t *from, int64_t apart)
{
    __m512i r = _mm512_castsi128_si512(eight(from));

    r = _mm512_mask_broadcast_i32x4(r, 0x00f0, eight(from + apart));
    r = _mm512_mask_broadcast_i32x4(r, 0x0f00, eight(from + 2 * apart));
    return _mm512_mask_broadcast_i32x4(r, 0xf000, eight(from + 3 * apart));
}

/* A tile of a from 16 rows along k: rows as they are. */
static inline void copy_rows(uint16_t *to, const uint16_t *from, int64_t ld)
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + 32 * i, _mm512_loadu_si512(from + i * ld));
}

/* A tile of b from 16 rows along k: pairs are transposed. */
static inline void transpose_pairs(uint16_t *to, const uint16_t *from,
                                   int64_t ld)
{
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++, from += 8, to += 128) {
        __m512i r0 = gather_lanes(from, 4 * ld);
        __m512i r1 = gather_lanes(from + ld, 4 * ld);
        __m512i r2 = gather_lanes(from + 2 * ld, 4 * ld);
        __m512i r3 = gather_lanes(from + 3 * ld, 4 * ld);
        __m512i low01 = _mm512_unpacklo_epi32(r0, r1);
        __m512i high01 = _mm512_unpackhi_epi32(r0, r1);
        __m512i low23 = _mm512_unpacklo_epi32(r2, r3);
        __m512i high23 = _mm512_unpackhi_epi32(r2, r3);

        _mm512_store_si512(to, _mm512_unpacklo_epi64(low01, low23));
        _mm512_store_si512(to + 32, _mm512_unpackhi_epi64(low01, low23));
        _mm512_store_si512(to + 64, _mm512_unpacklo_epi64(high01, high23));
        _mm512_store_si512(to + 96, _mm512_unpackhi_epi64(high01, high23));
    }
}

/* Two vectors of what is in the even places of both, and in the odd. */
static inline void zip32(__m512i out[2], __m512i x, __m512i y)
{
    out[0] = _mm512_unpacklo_epi32(x, y);
    out[1] = _mm512_unpackhi_epi32(x, y);
}

/* A tile of a from 32 rows across k, 16 values each: values are transposed. */
static inline void transpose_values(uint16_t *to, const uint16_t *from,
                                    int64_t ld)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++, from += 8, to += 256) {
        __m512i low[4], high[4], top[4], bottom[4];

#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i x = gather_lanes(from + 2 * i * ld, 8 * ld);
            __m512i y = gather_lanes(from + (2 * i + 1) * ld, 8 * ld);

            low[i] = _mm512_unpacklo_epi16(x, y);
            high[i] = _mm512_unpackhi_epi16(x, y);
        }
        zip32(top, low[0], low[1]);
        zip32(top + 2, high[0], high[1]);
        zip32(bottom, low[2], low[3]);
        zip32(bottom + 2, high[2], high[3]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            _mm512_store_si512(to + 64 * i,
                               _mm512_unpacklo_epi64(top[i], bottom[i]));
            _mm512_store_si512(to + 64 * i + 32,
                               _mm512_unpackhi_epi64(top[i], bottom[i]));
        }
    }
}

/* Both tiles of a chunk of b from 32 rows across k: two rows are interleaved.
 * Words of the left tile come into the lower halves of lanes first. */
static inline void interleave_rows(uint16_t *to, const uint16_t *from,
                                   int64_t ld)
{
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);

#pragma GCC unroll 4
    for (int p = 0; p < 16; p++, from += 2 * ld) {
        __m512i x = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(from));
        __m512i y =
            _mm512_permutexvar_epi64(order, _mm512_loadu_si512(from + ld));

        _mm512_store_si512(to + 32 * p, _mm512_unpacklo_epi16(x, y));
        _mm512_store_si512(to + TILE + 32 * p, _mm512_unpackhi_epi16(x, y));
    }
}

/* A whole chunk from 32 x 32 stored values. */
static inline __attribute__((always_inline)) void
pack_chunk(uint16_t *to, const uint16_t *from, int64_t ld, bool along_k,
           bool for_a)
{
    if (along_k && for_a) {
        copy_rows(to, from, ld);
        copy_rows(to + TILE, from + 16 * ld, ld);
    } else if (along_k) {
        transpose_pairs(to, from, ld);
        transpose_pairs(to + TILE, from + 16 * ld, ld);
    } else if (for_a) {
        transpose_values(to, from, ld);
        transpose_values(to + TILE, from + 16, ld);
    } else
        interleave_rows(to, from, ld);
}

static inline __attribute__((always_inline)) void
pack_chunks(const struct cpu_pair_band *b, bool along_k, bool for_a)
{
    for (int64_t j = 0, i = 0; j < b->columns; j += 32, i++) {
        int64_t columns = b->columns - j < 32 ? b->columns - j : 32;
        uint16_t part[PAIR_VALUES];

        if (b->rows >= 32 && columns == 32) {
            pack_chunk(b->to + i * b->step, b->from + j, b->ld, along_k, for_a);
            continue;
        }
        /* an edge: what is there, among zeros */
        memset(part, 0, sizeof(part));
        for (int64_t r = 0; r < b->rows && r < 32; r++)
            memcpy(part + 32 * r, b->from + r * b->ld + j,
                   (size_t)columns * sizeof(*part));
        pack_chunk(b->to + i * b->step, part, 32, along_k, for_a);
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
