/* SHA-256, FIPS 180-4: what names a file's content for others, sha256sum(1)
 * included. With the instructions for it where the processor has them: files of
 * tokenizers are megabytes that every run digests. */
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 64 }; /* bytes */

/* The first 32 bits of the fractions of the cube roots of the first primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* Rotates to the right. */
static uint32_t rotate(uint32_t v, int n)
{
    return v >> n | v << (32 - n);
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

/* The rounds as the standard writes them, with v[0] to v[7] for a to h; speed
 * is the business of the other form. */
static void add_block(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64], v[8];

    for (int i = 0; i < 16; i++)
        w[i] = big_endian(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof(v));
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                     ((e & v[5]) ^ (~e & v[6])) + constants[i] + w[i];
        uint32_t u = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                     ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

        memmove(v + 1, v, 7 * sizeof(*v));
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

typedef void add_blocks_fn(uint32_t h[8], const uint8_t *p, size_t n);

static void add_blocks(uint32_t h[8], const uint8_t *p, size_t n)
{
    for (; n > 0; n--, p += BLOCK)
        add_block(h, p);
}

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

/* The state is kept as the instructions want it, the words a b e f and c d g h
 * from the highest down; w[i % 4] are the words 4 i to 4 i + 3. */
__attribute__((target("sha,sse4.1"))) static void
add_blocks_by_instruction(uint32_t h[8], const uint8_t *p, size_t n)
{
    /* Words of the message are big-endian. */
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_set_epi32((int)h[0], (int)h[1], (int)h[4], (int)h[5]);
    __m128i cdgh = _mm_set_epi32((int)h[2], (int)h[3], (int)h[6], (int)h[7]);

    for (; n > 0; n--, p += BLOCK) {
        /* The state before the block is added to the one after it, as the
         * standard has it. */
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];

        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(const void *)p + i), swap);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i *now = &w[i % 4], before = w[(i + 3) % 4];

            if (i >= 4)
                *now = _mm_sha256msg2_epu32(
                    _mm_add_epi32(
                        _mm_sha256msg1_epu32(*now, w[(i + 1) % 4]),
                        _mm_alignr_epi8(before, w[(i + 2) % 4], 4)),
                    before);
            __m128i sum = _mm_add_epi32(
                *now, _mm_loadu_si128(
                          (const __m128i *)(const void *)constants + i));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_srli_si128(sum, 8));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    h[0] = (uint32_t)_mm_extract_epi32(abef, 3);
    h[1] = (uint32_t)_mm_extract_epi32(abef, 2);
    h[2] = (uint32_t)_mm_extract_epi32(cdgh, 3);
    h[3] = (uint32_t)_mm_extract_epi32(cdgh, 2);
    h[4] = (uint32_t)_mm_extract_epi32(abef, 1);
    h[5] = (uint32_t)_mm_extract_epi32(abef, 0);
    h[6] = (uint32_t)_mm_extract_epi32(cdgh, 1);
    h[7] = (uint32_t)_mm_extract_epi32(cdgh, 0);
}

/* Leaf 7, EBX bit 29, in Intel's manual: not every compiler knows its name. */
static bool has_sha(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1 &&
           __builtin_cpu_supports("sse4.1");
}

static add_blocks_fn *best(void)
{
    return has_sha() ? add_blocks_by_instruction : add_blocks;
}
#else
static add_blocks_fn *best(void)
{
    return add_blocks;
}
#endif

/* The tail takes the rest, a 1 bit, zeros, and the length in bits: one block,
 * or two where the length does not fit. */
static void digest(char hex[65], const void *p, size_t n, add_blocks_fn *add)
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *data = p;
    uint8_t tail[2 * BLOCK] = {0};
    size_t rest = n % BLOCK;

    add(h, data, n / BLOCK);
    if (rest)
        memcpy(tail, data + n - rest, rest);
    tail[rest] = 0x80;
    size_t len = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;
    for (size_t i = 0; i < 8; i++) /* bits, big-endian, at the very end */
        tail[len - 1 - i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
    add(h, tail, len / BLOCK);
    for (int i = 0; i < 8; i++)
        snprintf(hex + 8 * i, 9, "%08x", h[i]);
}

void gpt_sha256(char hex[65], const void *p, size_t n)
{
    digest(hex, p, n, best());
}

void gpt_sha256_portable(char hex[65], const void *p, size_t n)
{
    digest(hex, p, n, add_blocks);
}
