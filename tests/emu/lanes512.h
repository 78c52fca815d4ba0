/* The AVX-512 intrinsics that the pre-tokenizers use, byte by byte, so that
 * their source runs on any processor. Include it before that source. Each
 * function has the name of the intrinsic that it replaces; the semantics are
 * those of Intel's Intrinsics Guide. */
#ifndef GPT_EMU_LANES512_H
#define GPT_EMU_LANES512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

struct lanes512 {
    uint8_t byte[64];
};

static inline struct lanes512 lanes_loadu(const void *p)
{
    struct lanes512 v;

    memcpy(v.byte, p, sizeof(v.byte));
    return v;
}

static inline struct lanes512 lanes_set1(char c)
{
    struct lanes512 v;

    memset(v.byte, c, sizeof(v.byte));
    return v;
}

#define LANES_OPERATION(name, operation)                                       \
    static inline struct lanes512 lanes_##name(struct lanes512 a,              \
                                               struct lanes512 b)              \
    {                                                                          \
        for (int i = 0; i < 64; i++)                                           \
            a.byte[i] = (uint8_t)(a.byte[i] operation b.byte[i]);              \
        return a;                                                              \
    }
LANES_OPERATION(or, |)
LANES_OPERATION(sub, -)

#define LANES_COMPARISON(name, comparison)                                     \
    static inline uint64_t lanes_##name(struct lanes512 a, struct lanes512 b)  \
    {                                                                          \
        uint64_t bits = 0;                                                     \
        for (int i = 0; i < 64; i++)                                           \
            bits |= (uint64_t)(a.byte[i] comparison b.byte[i]) << i;           \
        return bits;                                                           \
    }
LANES_COMPARISON(cmple_epu, <=)
LANES_COMPARISON(cmpeq, ==)

static inline uint64_t lanes_movepi(struct lanes512 v)
{
    uint64_t bits = 0;

    for (int i = 0; i < 64; i++)
        bits |= (uint64_t)(v.byte[i] >> 7) << i;
    return bits;
}

#define GPT_AVX512 /* not what the compiler may use */
#define __m512i struct lanes512
#define _mm512_loadu_si512 lanes_loadu
#define _mm512_set1_epi8 lanes_set1
#define _mm512_or_si512 lanes_or
#define _mm512_sub_epi8 lanes_sub
#undef _mm512_cmple_epu8_mask /* macros of clang */
#undef _mm512_cmpeq_epi8_mask
#define _mm512_cmple_epu8_mask lanes_cmple_epu
#define _mm512_cmpeq_epi8_mask lanes_cmpeq
#define _mm512_movepi8_mask lanes_movepi

#endif
