/* Counter-based random numbers. Philox4x32-10: ten rounds of two 32 x 32 -> 64
 * bit products, each half xored with the key, which is bumped by constants
 * (the golden ratio and sqrt(3) - 1) every round; Salmon et al., SC'11. */
#include "base/rng.h"

#include "base/hash.h"

#include <math.h>

void gpt_philox(const uint32_t counter[4], const uint32_t key[2],
                uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1];
    uint32_t c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        /* Multipliers of the paper; low halves move on, high halves are mixed
         * with the other pair. */
        uint64_t p0 = (uint64_t)0xd2511f53 * c0;
        uint64_t p1 = (uint64_t)0xcd9e8d57 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The finaliser of splitmix64 (Steele, Lea and Flood, 2014): a bijection in
 * which every input bit reaches every output bit. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* Streams with neighbouring seeds or similar names share nothing: both are
 * mixed before they meet. */
struct gpt_rng gpt_rng_open(uint64_t seed, const char *name)
{
    uint64_t k = mix(mix(seed + 0x9e3779b97f4a7c15) ^ gpt_fnv1a(name));

    return (struct gpt_rng){{(uint32_t)k, (uint32_t)(k >> 32)}};
}

/* The last counter word keeps the blocks of the two kinds of draws apart. */
enum { DRAW_WORDS, DRAW_NORMALS };

static void block(struct gpt_rng r, uint64_t index, uint32_t kind,
                  uint32_t out[4])
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, kind};

    gpt_philox(counter, r.key, out);
}

uint32_t gpt_rng_u32(struct gpt_rng r, uint64_t index)
{
    uint32_t w[4];

    block(r, index / 4, DRAW_WORDS, w);
    return w[index % 4];
}

/* 24 bits are all that a float in [0, 1) holds evenly; more would round up to
 * 1. */
float gpt_rng_uniform(struct gpt_rng r, uint64_t index)
{
    return (float)(gpt_rng_u32(r, index) >> 8) * 0x1p-24f;
}

/* Both normals of one block, at indices 2 * pair and 2 * pair + 1. */
static void normal_pair(struct gpt_rng r, uint64_t pair, float out[2])
{
    uint32_t w[4];

    block(r, pair, DRAW_NORMALS, w);
    /* 53 bits each, as many as a double holds: the tail reaches 8.5 standard
     * deviations. */
    uint64_t a = ((uint64_t)w[0] << 32 | w[1]) >> 11;
    uint64_t b = ((uint64_t)w[2] << 32 | w[3]) >> 11;
    double radius = sqrt(-2 * log((double)(a + 1) * 0x1p-53)); /* (0, 1] */
    double angle = 2 * M_PI * ((double)b * 0x1p-53);
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

float gpt_rng_normal(struct gpt_rng r, uint64_t index)
{
    float pair[2];

    normal_pair(r, index / 2, pair);
    return pair[index % 2];
}

void gpt_rng_normals(struct gpt_rng r, uint64_t first, int64_t n, float *dst)
{
    float pair[2];

    for (int64_t i = 0; i < n; i++) {
        uint64_t index = first + (uint64_t)i;

        /* The stream may begin in the middle of a pair. */
        if (i == 0 || index % 2 == 0)
            normal_pair(r, index / 2, pair);
        dst[i] = pair[index % 2];
    }
}
