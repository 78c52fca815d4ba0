/* XXH64, by its specification (xxhash_spec.md, version 0.1.1): a digest of
 * corpora that costs less than reading them. Not for security. */
#include "base/hash.h"

#include "base/num.h"

#include <string.h>

#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)
#define P4 UINT64_C(0x85EBCA77C2B2AE63)
#define P5 UINT64_C(0x27D4EB2F165667C5)

enum { STRIPE = 32 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are loaded");

static inline uint64_t load(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static uint64_t rotate(uint64_t v, int n)
{
    return v << n | v >> (64 - n);
}

static uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * P2, 31) * P1;
}

/* The lanes are kept without their starting values, so that zero starts. */
static const uint64_t starts[4] = {P1 + P2, P2, 0, -P1};

/* Four lanes without a common dependency: as many products as the processor
 * keeps in flight. */
static void add_stripes(struct gpt_xxh64 *h, const uint8_t *p, size_t n)
{
    uint64_t v[4];

    for (int i = 0; i < 4; i++)
        v[i] = h->lanes[i] + starts[i];
    for (; n > 0; n--, p += STRIPE) {
        v[0] = mix(v[0], load(p));
        v[1] = mix(v[1], load(p + 8));
        v[2] = mix(v[2], load(p + 16));
        v[3] = mix(v[3], load(p + 24));
    }
    for (int i = 0; i < 4; i++)
        h->lanes[i] = v[i] - starts[i];
}

void gpt_xxh64_add(struct gpt_xxh64 *h, const void *p, size_t n)
{
    const uint8_t *data = p;
    /* A stripe may be spread over several calls: the rest waits in the
     * struct. */
    size_t had = h->n % STRIPE, room = STRIPE - had;

    if (n == 0)
        return;
    h->n += n;
    if (had > 0) {
        size_t some = n < room ? n : room;

        memcpy(h->rest + had, data, some);
        data += some;
        n -= some;
        if (some < room)
            return;
        add_stripes(h, h->rest, 1);
    }
    add_stripes(h, data, n / STRIPE);
    memcpy(h->rest, data + n / STRIPE * STRIPE, n % STRIPE);
}

/* Only messages of a whole stripe have used the lanes; shorter ones start from
 * P5. */
static uint64_t join_lanes(const struct gpt_xxh64 *h)
{
    static const int turns[4] = {1, 7, 12, 18};
    uint64_t v[4], all = 0;

    for (int i = 0; i < 4; i++) {
        v[i] = h->lanes[i] + starts[i];
        all += rotate(v[i], turns[i]);
    }
    for (int i = 0; i < 4; i++)
        all = (all ^ mix(0, v[i])) * P1 + P4;
    return all;
}

uint64_t gpt_xxh64_end(const struct gpt_xxh64 *h)
{
    const uint8_t *p = h->rest;
    /* Not added to the lanes: the struct stays as it is, so that a digest can
     * be taken in the middle. */
    size_t n = h->n % STRIPE;
    uint64_t v = (h->n >= STRIPE ? join_lanes(h) : P5) + h->n;

    for (; n >= 8; n -= 8, p += 8)
        v = rotate(v ^ mix(0, load(p)), 27) * P1 + P4;
    if (n >= 4) {
        v = rotate(v ^ gpt_get_u32(p) * P1, 23) * P2 + P3;
        n -= 4;
        p += 4;
    }
    for (; n > 0; n--, p++)
        v = rotate(v ^ *p * P5, 11) * P1;
    v = (v ^ v >> 33) * P2;
    v = (v ^ v >> 29) * P3;
    return v ^ v >> 32;
}
