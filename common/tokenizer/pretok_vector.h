/* What the vector forms of pre-tokenizers share: a window of 64 bytes as bits,
 * one a byte, and how bytes become bits. The lowest bit is the first byte, so
 * that a shift to the left is a step forward in the text. */
#ifndef GPT_TOKENIZER_PRETOK_VECTOR_H
#define GPT_TOKENIZER_PRETOK_VECTOR_H

#include "tokenizer/pretok_rules.h"

enum { GPT_WINDOW = GPT_STRETCH };

/* The n lowest bits. */
static inline uint64_t gpt_low_bits(unsigned n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

/* The place of the lowest bit; bits != 0. */
static inline unsigned gpt_first_bit(uint64_t bits)
{
    return (unsigned)__builtin_ctzll(bits);
}

/* The place of the highest bit; bits != 0. */
static inline unsigned gpt_last_bit(uint64_t bits)
{
    return 63 - (unsigned)__builtin_clzll(bits);
}

/* Ends a stretch that begins where s->at says before its last beginning of a
 * piece, the highest bit of `begins`, where the next one begins; bit 0 is that
 * of the stretch's own beginning. Returns 1, or 0 for a stretch without a
 * piece. */
static inline size_t gpt_end_stretch(struct gpt_stretch *s, uint64_t begins)
{
    const unsigned last = gpt_last_bit(begins);

    s[0].begins = begins & ~((uint64_t)1 << last);
    s[last > 0].at = s->at + last;
    return last > 0;
}

/* gpt_stretch_ends() for the instruction set of its caller. Where one piece
 * begins the one before it ends; a stretch's own beginning is left out. Ends
 * are written by fours, as a loop's end is mispredicted less often then. */
GPT_INLINE size_t gpt_store_ends(const struct gpt_stretch *s, size_t n_s,
                                 size_t *ends)
{
    const uint64_t top = (uint64_t)1 << (GPT_STRETCH - 1);
    size_t *to = ends;

    for (const struct gpt_stretch *stop = s + n_s; s < stop; s++) {
        uint64_t begins = s->begins & (s->begins - 1);
        const size_t n =
            begins ? (size_t)__builtin_popcountll(begins) : 0;

        for (size_t i = 0; i < n; i += 4)
            for (size_t k = i; k < i + 4; k++) {
                to[k] = s->at + gpt_first_bit(begins | top);
                begins &= begins - 1;
            }
        to += n;
        *to++ = s[1].at;
    }
    return (size_t)(to - ends);
}

#if defined(__x86_64__) && defined(__GNUC__)
#define GPT_X86_VECTORS

#include <immintrin.h>

/* AVX2 compares signed bytes only, and only with "greater". A range of bytes is
 * one comparison once its last byte is moved to 0x7F, the top. */
#define GPT_TOP(last) (0x7F - (last))
#define GPT_ABOVE(first, last) (0x7F - ((last) - (first)) - 1)

#define GPT_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#ifndef GPT_AVX512 /* a test defines it and supplies the intrinsics itself */
#define GPT_AVX512                                                             \
    __attribute__((target("avx512f,avx512bw,avx512vl,bmi,bmi2,lzcnt,popcnt")))
#endif

/* The high bits of 64 bytes. */
static inline GPT_AVX2 uint64_t gpt_bits_of(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

static inline GPT_AVX2 __m256i gpt_in_range(__m256i v, char top, char above)
{
    return _mm256_cmpgt_epi8(_mm256_add_epi8(v, _mm256_set1_epi8(top)),
                             _mm256_set1_epi8(above));
}

/* A bit for each byte in the range of GPT_TOP() and GPT_ABOVE(). */
static inline GPT_AVX2 uint64_t gpt_range_bits(__m256i low, __m256i high,
                                               char top, char above)
{
    return gpt_bits_of(gpt_in_range(low, top, above),
                       gpt_in_range(high, top, above));
}

/* A bit for each byte that is c. */
static inline GPT_AVX2 uint64_t gpt_equal_bits(__m256i low, __m256i high,
                                               char c)
{
    __m256i v = _mm256_set1_epi8(c);

    return gpt_bits_of(_mm256_cmpeq_epi8(low, v), _mm256_cmpeq_epi8(high, v));
}

/* A bit for each byte from `first` to `last`. */
static inline GPT_AVX512 uint64_t gpt_range_mask(__m512i v, char first,
                                                 char last)
{
    return _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8(first)),
                                  _mm512_set1_epi8((char)(last - first)));
}

#endif
#endif
