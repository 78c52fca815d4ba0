/* Packed elements of few bits, which are only read; see packing.h. The blocks
 * are those of ggml, whose products are computed in the same order, so that
 * each float has the same bits. Rows of gpt_packings[] name the functions. */
#include "checkpoint/packing_internal.h"

#include <string.h>

enum { BLOCK = 32, SUPER = 256 };

/* ---- two and three bits ---- */

/* Two bits of element i of 256. In each half of the block, four elements that
 * are 32 apart share a byte. */
static int two_bits(const uint8_t *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
}

/* A block is 16 bytes, each a scale and a minimum of 16 elements; q; f16 d,
 * m. */
void gpt_unpack_q2_k(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b + 80), m = gpt_packing_half(b + 82);

    for (int i = 0; i < SUPER; i++) {
        const float scale = d * (float)(b[i / 16] & 15);
        const float least = m * (float)(b[i / 16] >> 4);

        to[i] = scale * (float)two_bits(b + 16, i) - least;
    }
}

/* Scale k of sixteen: four bits are in eight bytes, of which a byte has those
 * of k and k + 8, two more in four bytes of four scales. */
static int scale_of(const uint8_t *s, int k)
{
    const int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;

    return (low | (s[8 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
}

/* A block is 32 bytes of third bits, of which one that is not set takes 4 away;
 * q; 12 bytes of scales; f16 d. */
void gpt_unpack_q3_k(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b + 108);

    for (int i = 0; i < SUPER; i++) {
        const int third = b[i % 32] >> (i / 32) & 1;
        const float scale = d * (float)scale_of(b + 96, i / 16);

        to[i] = scale * (float)(two_bits(b + 32, i) - (third ? 0 : 4));
    }
}

/* ---- three values ---- */

/* A digit of three values is the top of a byte times 3, after the byte was
 * multiplied by 3 as often as there are digits before it. */
static float digit(const uint8_t *q, int before)
{
    uint8_t v = *q;

    while (before-- > 0)
        v = (uint8_t)(v * 3);
    return (float)(v * 3 >> 8) - 1;
}

/* A block is 48 bytes of five digits, 4 of four; f16 d. Digits of one byte are
 * as far apart as its group has bytes: 32, 16, then 4. */
void gpt_unpack_tq1_0(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b + 52);

    for (int i = 0; i < SUPER; i++)
        to[i] = d * (i < 160   ? digit(b + i % 32, i / 32)
                     : i < 240 ? digit(b + 32 + i % 16, (i - 160) / 16)
                               : digit(b + 48 + i % 4, (i - 240) / 4));
}

/* A block is q; f16 d. */
void gpt_unpack_tq2_0(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b + 64);

    for (int i = 0; i < SUPER; i++)
        to[i] = d * (float)(two_bits(b, i) - 1);
}

/* ---- four bits that name a value ---- */

/* Element i and element i + 16 share a byte. */
static void look_up(float *to, float d, const uint8_t *q, const int8_t *values)
{
    for (int i = 0; i < BLOCK; i++)
        to[i] = d * (float)values[i < 16 ? q[i] & 15 : q[i - 16] >> 4];
}

static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

/* A block is f16 d; q. */
void gpt_unpack_iq4_nl(float *to, const uint8_t *b)
{
    look_up(to, gpt_packing_half(b), b + 2, uneven);
}

/* A block is f16 d; u16 of the two high bits of eight scales; 4 bytes of their
 * low ones; q. */
void gpt_unpack_iq4_xs(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b);
    const int high = gpt_get_u16(b + 2);

    for (int j = 0; j < 8; j++) {
        const int low = b[4 + j / 2] >> 4 * (j % 2) & 15;
        const int scale = (low | (high >> 2 * j & 3) << 4) - 32;

        look_up(to + j * BLOCK, d * (float)scale, b + 8 + j * 16, uneven);
    }
}

/* Twice the values of E2M1: Open Compute Project, Microscaling Formats 1.0. */
static const int8_t e2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                0, -1, -2, -3, -4, -6, -8, -12};

/* A block is an exponent, E8M0; q. The scale is half of the exponent's power
 * of two, which makes up for the doubled values; the two smallest are
 * subnormal. */
void gpt_unpack_mxfp4(float *to, const uint8_t *b)
{
    const uint32_t bits =
        b[0] < 2 ? (uint32_t)0x00200000 << b[0] : (uint32_t)(b[0] - 1) << 23;
    float d;

    memcpy(&d, &bits, sizeof(d));
    look_up(to, d, b + 1, e2m1);
}
