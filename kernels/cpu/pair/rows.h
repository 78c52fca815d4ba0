/* What products by tiles and of bytes need, by AVX-512: reading ends of rows of
 * floats, the unit in which bytes count them, and sums of products of bytes.
 * Start at unit_of(). */
#ifndef GPT_KERNELS_CPU_PAIR_ROWS_H
#define GPT_KERNELS_CPU_PAIR_ROWS_H

#include "cpu/quant.h"

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __AVX512F__ /* as in the files that use it */

/* The first n of 16 lanes; n may be below 0 or past 16. */
static inline __mmask16 lanes_of(int64_t n)
{
    return n >= 16 ? 0xffff : n > 0 ? (__mmask16)((1U << n) - 1) : 0;
}

/* 16 values of bf16 as floats. */
static inline __m512 wide(__m256i x)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* The largest |element|, or NaN where one is infinite, or no number. */
static inline float largest_of(const float *x, int64_t k)
{
    /* a maximum passes over NaN, so that what is no number is looked for
     * beside it */
    __m512 top = _mm512_setzero_ps();
    __mmask16 wrong = 0;

    for (int64_t l = 0; l < k; l += 16) {
        const __m512 v = _mm512_abs_ps(
            _mm512_maskz_loadu_ps(lanes_of(k - l), x + l));

        top = _mm512_max_ps(top, v);
        wrong |= _mm512_cmp_ps_mask(v, _mm512_set1_ps(INFINITY), _CMP_NLT_UQ);
    }
    return wrong ? NAN : _mm512_reduce_max_ps(top);
}

/* The least power of two by which no element is past 127. A row with numbers
 * that are infinite, or none, has no unit, and its results are no numbers. */
static inline float unit_of(const float *x, int64_t k)
{
    const float largest = largest_of(x, k);
    int power;

    if (isnan(largest))
        return NAN;
    if (frexpf(largest, &power) > 127 / 128.0F)
        power++;
    /* the inverse of the unit is a number, too */
    return ldexpf(1, power < -100 ? -107 : power - 7);
}

/* The unit of inputs that are rounded to bytes: cpu_byte_unit() of their
 * largest. */
static inline float byte_unit_of(const float *x, int64_t k)
{
    return cpu_byte_unit(largest_of(x, k));
}

/* Sixteen inputs in such units, to nearest even. */
static inline __m512i bytes_of(__m512 x, float unit)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(1 / unit)));
}

/* sums += products of bytes of a, without a sign, and of b, with one, four to a
 * sum: by AVX512-VNNI. In these words, since GCC 12 copies sums of its own
 * intrinsic function to other registers and to memory. */
static inline __attribute__((always_inline)) __m512i
add_products(__m512i sums, __m512i a, __m512i b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
    return sums;
}

/* v times a factor, or y + that. The product that is added is not rounded,
 * which is said here: a compiler that may choose could do so in one copy of the
 * code alone, and bits would depend on a column's place. */
static inline __m512 times(__m512 v, __m512 factor, bool add, __m512 y)
{
    return add ? _mm512_fmadd_ps(v, factor, y) : _mm512_mul_ps(v, factor);
}

#endif
#endif
