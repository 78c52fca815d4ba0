/* Dropout: W blocks of Philox4x32-10 at a time, equal bit for bit to
 * gpt_rng_uniform() of base/rng.h: element i takes word i % 4 of block i / 4,
 * and is dropped when the word's upper 24 bits are below p * 2^24. */
#include "cpu/isa/simd.h"

#if defined(__SSE2__)
#include <immintrin.h>

#include <string.h>
#endif

/* A block is held in 64-bit lanes, its four words in the lower halves of four
 * vectors. What is left in the upper halves does no harm: products read lower
 * halves only, and xor keeps the halves apart. */
enum { Q = W / 2 }; /* blocks in a vector */

/* The extension has no word for this instruction and would multiply 64 x 64. */
static inline vq multiply_words(vq a, uint32_t m)
{
#if defined(__AVX512F__)
    return (vq)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi32((int)m));
#elif defined(__AVX2__)
    return (vq)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi32((int)m));
#elif defined(__SSE2__)
    return (vq)_mm_mul_epu32((__m128i)a, _mm_set1_epi32((int)m));
#else
    return (a & 0xffffffff) * m;
#endif
}

/* Interleaves 64-bit lanes, a0 b0 a1 b1 ...: `low` gets the lower half of them,
 * `high` the upper. */
static inline void zip_halves(vq a, vq b, vu *low, vu *high)
{
#if defined(__AVX512F__)
    *low = (vu)GPT_LANES(vq, a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    *high = (vu)GPT_LANES(vq, a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX2__)
    *low = (vu)GPT_LANES(vq, a, b, 0, 4, 1, 5);
    *high = (vu)GPT_LANES(vq, a, b, 2, 6, 3, 7);
#else
    *low = (vu)GPT_LANES(vq, a, b, 0, 2);
    *high = (vu)GPT_LANES(vq, a, b, 1, 3);
#endif
}

/* The words of 2 Q = W blocks from `block` on, in the order of elements. Two
 * chains run side by side, as each step of one waits for the step before. */
static inline void philox_words(const uint32_t key[2], uint64_t block,
                                vu out[4])
{
    const vq low = (vq){0} + 0xffffffff;
    vq c0[2], c1[2], c2[2] = {{0}}, c3[2] = {{0}};
    vq count = {0};

    for (int i = 0; i < Q; i++)
        count[i] = (uint64_t)i;
    for (int h = 0; h < 2; h++) {
        c0[h] = count + (block + (uint64_t)(h * Q));
        c1[h] = c0[h] >> 32;
    }
    uint64_t k0 = key[0], k1 = key[1];
    /* Philox4x32-10 (Salmon et al. 2011): two multiplications a round, whose
     * halves change places; the key grows by a constant. */
    for (int round = 0; round < 10; round++) {
        for (int h = 0; h < 2; h++) {
            vq p0 = multiply_words(c0[h], 0xd2511f53),
               p1 = multiply_words(c2[h], 0xcd9e8d57);

            c0[h] = (p1 >> 32) ^ c1[h] ^ k0;
            c1[h] = p1;
            c2[h] = (p0 >> 32) ^ c3[h] ^ k1;
            c3[h] = p0;
        }
        k0 = (uint32_t)(k0 + 0x9e3779b9);
        k1 = (uint32_t)(k1 + 0xbb67ae85);
    }
    for (int h = 0; h < 2; h++)
        zip_halves((c0[h] & low) | (c1[h] << 32), (c2[h] & low) | (c3[h] << 32),
                   &out[2 * h], &out[2 * h + 1]);
}

static inline vi dropped(vu word, uint32_t below)
{
    return (vi)(word >> 8) < (int32_t)below;
}

/* Drops some of up to 4 W elements, of which the first `skip` belong to what
 * came before. */
static int64_t drop_some(float *y, const float *x, int64_t n,
                         const struct cpu_drop *d, uint64_t block, int64_t skip)
{
    /* By way of memory: the few elements at an edge need no speed. */
    uint32_t word[4 * W];
    vu w[4];

    philox_words(d->key, block, w);
    memcpy(word, w, sizeof(word));
    int64_t count = 4 * W - skip < n ? 4 * W - skip : n;
    for (int64_t i = 0; i < count; i++)
        y[i] = word[skip + i] >> 8 < d->below ? 0 : x[i] * d->scale;
    return count;
}

void ISA(drop)(float *y, const float *x, int64_t n, const struct cpu_drop *d,
               uint64_t index)
{
    int64_t i = 0;

    if (index % 4)
        i = drop_some(y, x, n, d, index / 4, (int64_t)(index % 4));
    /* 4 W - index % 4 elements are done: from here on blocks are whole */
    for (; i + 4 * W <= n; i += 4 * W) {
        vu w[4];

        philox_words(d->key, (index + (uint64_t)i) / 4, w);
        for (int k = 0; k < 4; k++) {
            vf v = load(x + i + k * W) * all(d->scale);

            store(y + i + k * W, pick(dropped(w[k], d->below), (vf){0}, v));
        }
    }
    if (i < n)
        drop_some(y + i, x + i, n - i, d, (index + (uint64_t)i) / 4, 0);
}
