/* What products of bytes need by AVX2: floats eight at a time, the unit in
 * which bytes count them, and sums of products of whole numbers. Where a file
 * is compiled for AVX-VNNI (-mavxvnni), VPDPBUSD makes these sums from bytes,
 * four products a sum; else they are of numbers of 16 bits, by VPMADDWD, two
 * products a sum: VPMADDUBSW, which takes bytes, wants a factor without a sign,
 * and making it so takes longer than 16 bits do. Start at byte_unit_of() and
 * add_products(). */
#ifndef GPT_KERNELS_CPU_PAIR_EIGHTS_H
#define GPT_KERNELS_CPU_PAIR_EIGHTS_H

#include "cpu/quant.h"

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX2__ /* as in the files that use it */

/* The names of roads, which both sets have. */
#ifdef __AVXVNNI__
#define OF_SET(name) name##_avx2vnni
#else
#define OF_SET(name) name##_avx2
#endif

/* An input of a product, and what is added to the other factor, which VPDPBUSD
 * takes without a sign, or to inputs. */
#ifdef __AVXVNNI__
typedef int8_t input;
enum { PLUS = 128 };
#else
typedef int16_t input;
enum { PLUS = 0 };
#endif

/* ---- floats ---- */

/* The first n of 8 lanes; n may be below 0 or past 8. */
static inline __m256i first_lanes(int64_t n)
{
    const int32_t most = n > 8 ? 8 : n < 0 ? 0 : (int32_t)n;

    return _mm256_cmpgt_epi32(_mm256_set1_epi32(most),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n of eight floats; the others are 0. */
static inline __m256 eight_of(const float *x, int64_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x)
                  : _mm256_maskload_ps(x, first_lanes(n));
}

static inline void put_eight(float *y, int64_t n, __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, first_lanes(n), v);
}

/* The first n of eight scales of bf16; the others are 0. */
static inline __m128i scales_of(const uint16_t *from, int64_t n)
{
    uint16_t eight[8] = {0};

    if (n < 8) {
        memcpy(eight, from, n > 0 ? (size_t)n * sizeof(*from) : 0);
        from = eight;
    }
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* Eight values of bf16 as floats. */
static inline __m256 wide(__m128i x)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* Eight floats rounded to bf16, to nearest even; NaN stays. */
static inline __m256 as_bf16(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(
        bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i upper =
        _mm256_and_si256(sum, _mm256_set1_epi32((int32_t)0xffff0000));

    return _mm256_blendv_ps(_mm256_castsi256_ps(upper), x,
                            _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* The largest |element|, or NaN where one is infinite, or no number. */
static inline float largest_of(const float *x, int64_t k)
{
    /* a maximum passes over NaN, so that what is no number is looked for
     * beside it */
    const __m256 sign = _mm256_set1_ps(-0.0F);
    __m256 top = _mm256_setzero_ps(), wrong = top;
    float lanes[8];

    for (int64_t l = 0; l < k; l += 8) {
        const __m256 v = _mm256_andnot_ps(sign, eight_of(x + l, k - l));

        top = _mm256_max_ps(top, v);
        wrong = _mm256_or_ps(
            wrong, _mm256_cmp_ps(v, _mm256_set1_ps(INFINITY), _CMP_NLT_UQ));
    }
    if (_mm256_movemask_ps(wrong))
        return NAN;
    _mm256_storeu_ps(lanes, top);
    for (int i = 1; i < 8; i++)
        lanes[0] = fmaxf(lanes[0], lanes[i]);
    return lanes[0];
}

/* The unit of inputs that are rounded to bytes: cpu_byte_unit() of their
 * largest. */
static inline float byte_unit_of(const float *x, int64_t k)
{
    return cpu_byte_unit(largest_of(x, k));
}

/* Eight inputs in such units, to nearest even. */
static inline __m256i in_units(__m256 x, float unit)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(1 / unit)));
}

/* Eight whole numbers as inputs. */
static inline void put_inputs(input *to, __m256i v)
{
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v),
                                          _mm256_extracti128_si256(v, 1));

#ifdef __AVXVNNI__
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packs_epi16(words, words));
#else
    _mm_storeu_si128((__m128i *)(void *)to, words);
#endif
}

/* v times a factor, or y + that. The product that is added is not rounded,
 * which is said here: see rows.h. */
static inline __m256 times(__m256 v, __m256 factor, bool add, __m256 y)
{
    return add ? _mm256_fmadd_ps(v, factor, y) : _mm256_mul_ps(v, factor);
}

/* ---- whole numbers ---- */

static inline __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

/* sums += products of a and b: of bytes, a without a sign, four to a sum, or of
 * numbers of 16 bits, two to a sum. In these words, since GCC 12 copies sums of
 * intrinsic functions to other registers and to memory. */
static inline __attribute__((always_inline)) __m256i
add_products(__m256i sums, __m256i a, __m256i b)
{
#ifdef __AVXVNNI__
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(a), "x"(b));
#else
    __asm__("vpaddd %1, %0, %0" : "+x"(sums) : "x"(_mm256_madd_epi16(a, b)));
#endif
    return sums;
}

/* Sums over lanes are made in three steps, each of two vectors at a time:
 * VPHADDD, which seems to be made for it, takes longer than what is in here.
 * First those two steps after which the sums over each half of four vectors lie
 * side by side. */
static inline __m256i sum_twos(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b),
                            _mm256_unpackhi_epi32(a, b));
}

static inline __m256i sum_fours(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b),
                            _mm256_unpackhi_epi64(a, b));
}

/* Those of a and then those of b, in eight lanes. */
static inline __m256i sum_halves(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

/* ---- reading ahead ---- */

/* Memory that comes to the second cache beside products, in its order, `lines`
 * lines at a time. */
struct ahead {
    const char *at, *end;
    int64_t lines;
};

static inline void fetch(struct ahead *a)
{
    for (int64_t n = a->lines; n > 0 && a->at < a->end; n--, a->at += 64)
        __builtin_prefetch(a->at, 0, 2);
}

#endif
#endif
