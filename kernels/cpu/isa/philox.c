/* Dropout: W blocks of Philox4x32-10 at a time, equal bit for bit to
 * gpt_rng_uniform() of base/rng.h: element i takes word i % 4 of block i / 4,
 * and is dropped when the word's upper 24 bits are below p * 2^24. */
#include "cpu/isa/simd.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Products 32 x 32 -> 64 of the even lanes; the extension has no word for
 * the instruction and would multiply 64 x 64. */
static inline vq even_products(vu a, uint32_t m)
{
#if defined(__AVX512F__)
    return (vq)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi32((int)m));
#elif defined(__AVX2__)
    return (vq)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi32((int)m));
#elif defined(__SSE2__)
    return (vq)_mm_mul_epu32((__m128i)a, _mm_set1_epi32((int)m));
#else
    return ((vq)a & 0xffffffff) * m;
#endif
}

static inline void wide(vu a, uint32_t m, vu *high, vu *low)
{
    vq even = even_products(a, m);
    vq odd = even_products((vu)((vq)a >> 32), m);
    const vq top = (vq){0} + 0xffffffff00000000;
    *high = (vu)((even >> 32) | (odd & top));
    *low = (vu)((even & ~top) | (odd << 32));
}

/* a0 b0 a1 b1 ...: the lower and the upper half */
static inline void zip(vu a, vu b, vu *low, vu *high)
{
    vu at;
    for (int i = 0; i < W; i++)
        at[i] = (uint32_t)(i / 2 + i % 2 * W);
    *low = __builtin_shuffle(a, b, at);
    *high = __builtin_shuffle(a, b, at + W / 2);
}

/* The words of blocks block .. block + W - 1, in the order of elements. */
static inline void words(const uint32_t key[2], uint64_t block, vu out[4])
{
    vu c0, c1, c2 = {0}, c3 = {0};
    for (int i = 0; i < W; i++) {
        c0[i] = (uint32_t)(block + (uint64_t)i);
        c1[i] = (uint32_t)((block + (uint64_t)i) >> 32);
    }
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        vu h0, l0, h1, l1;
        wide(c0, 0xd2511f53, &h0, &l0);
        wide(c2, 0xcd9e8d57, &h1, &l1);
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    vu a, b, c, d;
    zip(c0, c2, &a, &b);
    zip(c1, c3, &c, &d);
    zip(a, c, &out[0], &out[1]);
    zip(b, d, &out[2], &out[3]);
}

static inline vi dropped(vu word, uint32_t below)
{
    return (vi)(word >> 8) < (int32_t)below;
}

/* Up to 4 W elements, of which the first `skip` belong to what came before. */
static int64_t some(float *y, const float *x, int64_t n,
                    const struct cpu_drop *d, uint64_t block, int64_t skip)
{
    uint32_t word[4 * W];
    vu w[4];
    words(d->key, block, w);
    memcpy(word, w, sizeof word);
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
        i = some(y, x, n, d, index / 4, (int64_t)(index % 4));
    /* 4 W - index % 4 elements are done: from here on blocks are whole */
    for (; i + 4 * W <= n; i += 4 * W) {
        vu w[4];
        words(d->key, (index + (uint64_t)i) / 4, w);
        for (int k = 0; k < 4; k++) {
            vf v = load(x + i + k * W) * all(d->scale);
            store(y + i + k * W, pick(dropped(w[k], d->below), (vf){0}, v));
        }
    }
    if (i < n)
        some(y + i, x + i, n - i, d, (index + (uint64_t)i) / 4, 0);
}
