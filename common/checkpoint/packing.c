/* Packed elements; see packing.h. Start at gpt_packings[].
 *
 * The first five kinds, of 32 elements, are read and written; the others, which
 * most files of hubs have, are only read: choosing their scales is a search
 * that differs from version to version. */
#include "checkpoint/packing_internal.h"

#include "checkpoint/scaled.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 32, SUPER = 256 };

/* What a scale loses by fp16 is lost in packing, too: elements are divided by
 * the scale before it is rounded. */
static void put_half(uint8_t *p, float x)
{
    gpt_put_u16(p, gpt_f32_to_f16(x));
}

/* The element of the largest magnitude, with its sign; of several the first.
 * NaN compares false and is passed over: a block of them gets a scale of 0. */
static float extreme(const float *x)
{
    float most = 0, at = 0;

    for (int i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            at = x[i];
        }
    return at;
}

/* Finds the least and the largest element in the order of the elements, and
 * only by comparing: the smallest of zeros of both signs is the first. */
static void range(const float *x, float *lo, float *hi)
{
    *lo = *hi = x[0];
    for (int i = 1; i < BLOCK; i++) {
        *lo = x[i] < *lo ? x[i] : *lo;
        *hi = x[i] > *hi ? x[i] : *hi;
    }
}

/* Cuts v to the whole number below, as the reference's conversion to small
 * integers does, and keeps it in range. A NaN, which no range holds, becomes
 * 0. */
static uint8_t clip(double v, int most)
{
    return !(v > 0) ? 0 : v >= most ? (uint8_t)most : (uint8_t)v;
}

/* ---- 32 elements ---- */

/* A block is f16 d; i8 q[32]. An element is d q. */
static void unpack_q8_0(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b);

    for (int i = 0; i < BLOCK; i++)
        to[i] = d * (float)(int8_t)b[2 + i];
}

/* Elements are multiplied by the inverse, as the reference has it: a quotient
 * would round some elements to the other side. Halves go away from zero. */
static void pack_q8_0(uint8_t *b, const float *x)
{
    const float d = fabsf(extreme(x)) / 127;
    const float inverse = d > 0 ? 1 / d : 0;

    put_half(b, d);
    for (int i = 0; i < BLOCK; i++) {
        const float q = roundf(x[i] * inverse);

        b[2 + i] = isfinite(q) ? (uint8_t)(int8_t)q : 0;
    }
}

/* Element i and element i + 16 share a byte; `high` has a fifth bit of each, or
 * is NULL. */
static void unpack_nibbles(uint8_t *v, const uint8_t *q, const uint8_t *high)
{
    const uint32_t fifth = high ? gpt_get_u32(high) : 0;

    for (int i = 0; i < BLOCK; i++)
        v[i] = (uint8_t)((i < 16 ? q[i] & 15 : q[i - 16] >> 4) |
                         (fifth >> i & 1) << 4);
}

static void pack_nibbles(uint8_t *q, uint8_t *high, const uint8_t *v)
{
    uint32_t fifth = 0;

    for (int i = 0; i < BLOCK; i++)
        fifth |= (uint32_t)(v[i] >> 4) << i;
    for (int i = 0; i < 16; i++)
        q[i] = (uint8_t)((v[i] & 15) | (v[i + 16] & 15) << 4);
    if (high)
        gpt_put_u32(high, fifth);
}

/* The subtraction is of whole numbers, so that an element is a product and
 * exact. */
static void unpack_signed(float *to, const uint8_t *b, const uint8_t *q,
                          const uint8_t *high, int middle)
{
    const float d = gpt_packing_half(b);
    uint8_t v[BLOCK];

    unpack_nibbles(v, q, high);
    for (int i = 0; i < BLOCK; i++)
        to[i] = (float)(v[i] - middle) * d;
}

/* Product and sum are rounded each, as in the reference without fused
 * instructions. */
static void unpack_unsigned(float *to, const uint8_t *b, const uint8_t *q,
                            const uint8_t *high)
{
    const float d = gpt_packing_half(b), m = gpt_packing_half(b + 2);
    uint8_t v[BLOCK];

    unpack_nibbles(v, q, high);
    for (int i = 0; i < BLOCK; i++)
        to[i] = (float)v[i] * d + m;
}

/* The scale makes the extreme the smallest number, whose range is larger by
 * one. Of four bits, product and sum are rounded once, as the reference has
 * it where it is compiled to a fused instruction; of five bits, each. */
static void pack_signed(uint8_t *q, uint8_t *high, uint8_t *scale,
                        const float *x, int middle)
{
    const float d = extreme(x) / (float)-middle;
    const float inverse = d > 0 || d < 0 ? 1 / d : 0;
    uint8_t v[BLOCK];

    put_half(scale, d);
    for (int i = 0; i < BLOCK; i++) {
        const double once = (double)x[i] * (double)inverse + middle + 0.5;
        const float each = x[i] * inverse + ((float)middle + 0.5f);

        v[i] = clip(high ? (double)each : once, 2 * middle - 1);
    }
    pack_nibbles(q, high, v);
}

/* A block is f16 d; q. An element is d (q - 8). */
static void unpack_q4_0(float *to, const uint8_t *b)
{
    unpack_signed(to, b, b + 2, NULL, 8);
}

static void pack_q4_0(uint8_t *b, const float *x)
{
    pack_signed(b + 2, NULL, b, x, 8);
}

/* A block is f16 d, m; q. An element is d q + m. */
static void unpack_q4_1(float *to, const uint8_t *b)
{
    unpack_unsigned(to, b, b + 4, NULL);
}

/* The least element is kept as an offset, so no sign is needed; a block of
 * one value has a scale of 0. */
static void pack_unsigned(uint8_t *q, uint8_t *high, uint8_t *scale,
                          const float *x, int most)
{
    float lo, hi;
    uint8_t v[BLOCK];

    range(x, &lo, &hi);
    const float d = (hi - lo) / (float)most;
    const float inverse = d > 0 ? 1 / d : 0;
    put_half(scale, d);
    put_half(scale + 2, lo);
    for (int i = 0; i < BLOCK; i++)
        v[i] = clip((double)((x[i] - lo) * inverse + 0.5f), most);
    pack_nibbles(q, high, v);
}

/* A block is f16 d, m; q. The largest element is the largest number but for
 * rounding. */
static void pack_q4_1(uint8_t *b, const float *x)
{
    pack_unsigned(b + 4, NULL, b, x, 15);
}

/* The fifth bits are a word of their own between scale and numbers. */
static void unpack_q5_0(float *to, const uint8_t *b)
{
    unpack_signed(to, b, b + 6, b + 2, 16);
}

/* A block is f16 d; u32 of fifth bits; q. */
static void pack_q5_0(uint8_t *b, const float *x)
{
    pack_signed(b + 6, b + 2, b, x, 16);
}

/* A block is as pack_q5_1() makes it. */
static void unpack_q5_1(float *to, const uint8_t *b)
{
    unpack_unsigned(to, b, b + 8, b + 4);
}

/* A block is f16 d, m; u32 of fifth bits; q. */
static void pack_q5_1(uint8_t *b, const float *x)
{
    pack_unsigned(b + 8, b + 4, b, x, 31);
}

/* ---- 256 elements ---- */

/* Scale and minimum of part j of eight, six bits each in twelve bytes: the
 * first four parts have theirs whole, the others in two places. */
static void part_scale(const uint8_t *s, int j, float *scale, float *least)
{
    if (j < 4) {
        *scale = (float)(s[j] & 63);
        *least = (float)(s[j + 4] & 63);
        return;
    }
    *scale = (float)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    *least = (float)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
}

/* A block is f16 d, m; 12 bytes of scales; fifth bits (q5_K only); q, two parts
 * in 32 bytes. */
static void unpack_k(float *to, const uint8_t *b, const uint8_t *high,
                     const uint8_t *q)
{
    const float d = gpt_packing_half(b), m = gpt_packing_half(b + 2);
    float scale, least;

    for (int j = 0; j < 8; j++) {
        part_scale(b + 4, j, &scale, &least);
        for (int i = 0; i < 32; i++) {
            const uint8_t byte = q[j / 2 * 32 + i];
            uint32_t v = j % 2 ? byte >> 4 : byte & 15U;

            if (high)
                v |= (uint32_t)(high[i] >> j & 1) << 4;
            to[j * 32 + i] = d * scale * (float)v - m * least;
        }
    }
}

/* In a block of q4_K the numbers follow the scales. */
static void unpack_q4_k(float *to, const uint8_t *b)
{
    unpack_k(to, b, NULL, b + 16);
}

/* 32 bytes of fifth bits are between scales and numbers: bit j of byte i is
 * that of element i of part j. */
static void unpack_q5_k(float *to, const uint8_t *b)
{
    unpack_k(to, b, b + 16, b + 48);
}

/* A block is 128 bytes of low nibbles, 64 of two high bits, 16 scales, f16 d.
 * Each half of the block has four parts of 32, whose high bits share a byte. */
static void unpack_q6_k(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b + 208);

    for (int i = 0; i < SUPER; i++) {
        const int h = i / 128, part = i % 128 / 32, k = i % 32;
        const uint8_t low = b[h * 64 + part % 2 * 32 + k];
        const int nibble = part < 2 ? low & 15 : low >> 4;
        const int bits = b[128 + h * 32 + k] >> 2 * part & 3;
        const int8_t scale = (int8_t)b[192 + i / 16];

        to[i] = d * (float)scale * (float)((nibble | bits << 4) - 32);
    }
}

/* ---- the table ---- */

const struct gpt_packing gpt_packings[] = {
    {"q8_0", 8, 7, BLOCK, 34, unpack_q8_0, pack_q8_0, NULL},
    {"q4_0", 2, 2, BLOCK, 18, unpack_q4_0, pack_q4_0, NULL},
    {"q4_1", 3, 3, BLOCK, 20, unpack_q4_1, pack_q4_1, NULL},
    {"q5_0", 6, 8, BLOCK, 22, unpack_q5_0, pack_q5_0, NULL},
    {"q5_1", 7, 9, BLOCK, 24, unpack_q5_1, pack_q5_1, NULL},
    {"q4_K", 12, 15, SUPER, 144, unpack_q4_k, NULL, NULL},
    {"q5_K", 13, 17, SUPER, 176, unpack_q5_k, NULL, NULL},
    {"q6_K", 14, 18, SUPER, 210, unpack_q6_k, NULL, NULL},
    {"q2_K", 10, 10, SUPER, 84, gpt_unpack_q2_k, NULL, NULL},
    {"q3_K", 11, 12, SUPER, 110, gpt_unpack_q3_k, NULL, NULL},
    {"iq4_nl", 20, 25, BLOCK, 18, gpt_unpack_iq4_nl, NULL, NULL},
    {"iq4_xs", 23, 30, SUPER, 136, gpt_unpack_iq4_xs, NULL, NULL},
    {"tq1_0", 34, 36, SUPER, 54, gpt_unpack_tq1_0, NULL, NULL},
    {"tq2_0", 35, 37, SUPER, 66, gpt_unpack_tq2_0, NULL, NULL},
    {"mxfp4", 39, 38, BLOCK, 17, gpt_unpack_mxfp4, NULL, NULL},
    {"iq1_s", 19, 24, SUPER, 50, gpt_unpack_iq1_s, NULL, NULL},
    {"iq1_m", 29, 31, SUPER, 56, gpt_unpack_iq1_m, NULL, NULL},
    {"iq2_xxs", 16, 19, SUPER, 66, gpt_unpack_iq2_xxs, NULL, NULL},
    {"iq2_xs", 17, 20, SUPER, 74, gpt_unpack_iq2_xs, NULL, NULL},
    {"iq2_s", 22, 28, SUPER, 82, gpt_unpack_iq2_s, NULL, NULL},
    {"iq3_xxs", 18, 23, SUPER, 98, gpt_unpack_iq3_xxs, NULL, NULL},
    {"iq3_s", 21, 26, SUPER, 110, gpt_unpack_iq3_s, NULL, NULL},
    {0},
};

const struct gpt_packing *gpt_packing_of_type(uint32_t ggml_type)
{
    for (const struct gpt_packing *p = gpt_packings; p->name; p++)
        if (p->ggml_type == ggml_type)
            return p;
    return NULL;
}

const struct gpt_packing *gpt_packing_named(const char *name)
{
    for (const struct gpt_packing *p = gpt_packings; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

/* ---- stretches ---- */

/* Floats [at, *end) of the stretch, which must have them. */
static int check_stretch(const struct gpt_packed *p, const struct gpt_in *in,
                         int64_t at, int64_t n, int64_t *end,
                         struct gpt_err *err)
{
    if (at >= 0 && gpt_add(at, n, end) && *end <= p->elements)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "'%s': %lld floats wanted at element %lld of %lld",
                    gpt_in_path(in), (long long)n, (long long)at,
                    (long long)p->elements);
}

/* Blocks that hold the wanted floats are read through a buffer that takes some
 * of them at once. */
int gpt_packed_read(const struct gpt_packed *p, struct gpt_in *in, void *dst,
                    int64_t offset, size_t bytes, struct gpt_err *err)
{
    enum { HELD = 16 };
    const struct gpt_packing *k = p->packing;
    uint8_t blocks[HELD * GPT_PACKED_BYTES];
    float x[GPT_PACKING_MOST];
    int64_t at = offset / 4, end = 0;
    uint8_t *to = dst;

    assert(offset % 4 == 0 && bytes % 4 == 0);
    GPT_TRY(check_stretch(p, in, at, (int64_t)(bytes / 4), &end, err));
    if (p->scaled)
        return gpt_scaled_read(p->scaled, dst, at, end - at, err);
    while (at < end) {
        const int64_t first = at / k->elements;
        const int64_t n = gpt_min_i64(
            HELD, gpt_ceil_div(end, k->elements) - first);

        GPT_TRY(gpt_in_read(in, blocks, p->begin + first * k->bytes,
                            (size_t)(n * k->bytes), err));
        for (int64_t i = 0; i < n; i++) {
            const int64_t skip = at - (first + i) * k->elements;
            const int64_t count = gpt_min_i64(k->elements - skip, end - at);

            k->unpack(x, blocks + i * k->bytes);
            memcpy(to, x + skip, (size_t)count * sizeof(*x));
            to += (size_t)count * sizeof(*x);
            at += count;
        }
    }
    return GPT_OK;
}

/* What lines have in common is computed once where they are of several stored
 * tensors. */
int gpt_packed_read_lines(const struct gpt_packed *p, struct gpt_in *in,
                          void *dst, int64_t offset, int64_t pitch,
                          int64_t lines, size_t bytes, struct gpt_err *err)
{
    const int64_t n = (int64_t)(bytes / 4), at = offset / 4;
    int64_t end;

    if (p->scaled && pitch > 0 && lines > 0) {
        GPT_TRY(check_stretch(p, in, at, (lines - 1) * (pitch / 4) + n, &end,
                              err));
        return gpt_scaled_read_lines(p->scaled, dst, at, pitch / 4, lines, n,
                                     err);
    }
    for (int64_t i = 0; i < lines; i++)
        GPT_TRY(gpt_packed_read(p, in, (uint8_t *)dst + i * (int64_t)bytes,
                                offset + i * pitch, bytes, err));
    return GPT_OK;
}

/* Rounds x to what a reader will see of a matrix that is written: for comparing
 * it with its source. */
void gpt_packing_round(const struct gpt_packing *p, float *x, int64_t n)
{
    uint8_t block[GPT_PACKED_BYTES];

    assert(p->pack && n % p->elements == 0);
    for (int64_t i = 0; i < n; i += p->elements) {
        p->pack(block, x + i);
        p->unpack(x + i, block);
    }
}
