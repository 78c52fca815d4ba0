/* What the vector forms of pre-tokenizers share: a window of 64 bytes as bits,
 * one a byte, and how bytes become bits. */
#ifndef GPT_TOKENIZER_PRETOK_VECTOR_H
#define GPT_TOKENIZER_PRETOK_VECTOR_H

#include "base/status.h"

/* So that each instruction set gets a loop of its own. */
#define INLINE static inline __attribute__((always_inline))

enum { WINDOW = 64 };

static inline uint64_t low_bits(unsigned n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

static inline unsigned first_bit(uint64_t bits)
{
    return (unsigned)__builtin_ctzll(bits);
}

/* The places of all bits but the first, which is that of p[0], as ends. */
INLINE size_t store_ends(uint64_t begins, size_t base, size_t *ends)
{
    size_t n = 0;

    for (begins &= begins - 1; begins; begins &= begins - 1)
        ends[n++] = base + first_bit(begins);
    return n;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define GPT_X86_VECTORS

#include <immintrin.h>

/* A range of signed bytes is one comparison once it is moved to the top. */
#define TOP(last) (0x7F - (last))
#define ABOVE(first, last) (0x7F - ((last) - (first)) - 1)

#define AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#ifndef AVX512 /* else by a test, which runs the rest on any processor */
#define AVX512                                                                 \
    __attribute__((target("avx512f,avx512bw,avx512vl,bmi,bmi2,lzcnt,popcnt")))
#endif

static inline AVX2 uint64_t bits_of(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

static inline AVX2 __m256i in_range(__m256i v, char top, char above)
{
    return _mm256_cmpgt_epi8(_mm256_add_epi8(v, _mm256_set1_epi8(top)),
                             _mm256_set1_epi8(above));
}

static inline AVX2 uint64_t range_bits(__m256i low, __m256i high, char top,
                                       char above)
{
    return bits_of(in_range(low, top, above), in_range(high, top, above));
}

static inline AVX2 uint64_t equal_bits(__m256i low, __m256i high, char c)
{
    __m256i v = _mm256_set1_epi8(c);

    return bits_of(_mm256_cmpeq_epi8(low, v), _mm256_cmpeq_epi8(high, v));
}

static inline AVX512 uint64_t range_mask(__m512i v, char first, char last)
{
    return _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8(first)),
                                  _mm512_set1_epi8((char)(last - first)));
}

#endif
#endif
