/* Hashes of tables in memory and of names. Checkpoints keep values of both, so
 * that no function here may ever change its values. */
#include "base/hash.h"

#include "base/num.h"

/* Folds the 128-bit product: every bit of both factors counts. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 p = (unsigned __int128)a * b;

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

uint64_t gpt_hash64(const void *p, size_t n, uint64_t seed)
{
    const uint8_t *b = p;
    uint64_t h = seed ^ fold(n ^ 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9);

    for (; n >= 8; n -= 8, b += 8)
        h = fold(h ^ gpt_get_u64(b), 0x94d049bb133111eb);
    uint64_t tail = 0;
    if (n >= 4) /* the two words may overlap: n is in the seed */
        tail = gpt_get_u32(b) | (uint64_t)gpt_get_u32(b + n - 4) << 32;
    else if (n)
        tail = b[0] | (uint64_t)b[n / 2] << 8 | (uint64_t)b[n - 1] << 16;
    return fold(h ^ tail ^ 0xd6e8feb86659fd93, 0xa0761d6478bd642f);
}

/* FNV-1a is slow and simple. Its values are part of the meaning of checkpoints,
 * too (gpt_rng_open()). */
uint64_t gpt_fnv1a(const char *s)
{
    uint64_t h = 0xcbf29ce484222325;

    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 0x100000001b3;
    return h;
}
