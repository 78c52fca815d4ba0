/* Packed elements that are named by codes, which are only read; see packing.h.
 * A code is a row of a table that searches over weights of models have chosen:
 * eight elements of two bits, or four of four bits, each of which names one of
 * a few values. Scales are whole numbers or halves of them, and values small
 * ones, so that all products are exact but for those that overflow.
 *
 * Parts of a block are of 32 elements. Rows of gpt_packings[] name the
 * functions. */
#include "checkpoint/packing_internal.h"

enum { PARTS = 8, PART = 32 };

/* The values that two bits or four name. */
static const float uneven[4] = {8, 25, 43};
static const float stepped[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const float odd[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/* Eight elements; bit i of `signs` is that of element i. */
static void put_eight(float *to, float d, uint16_t row, unsigned signs)
{
    for (int i = 0; i < 8; i++)
        to[i] = (signs >> i & 1 ? -d : d) * uneven[row >> 2 * i & 3];
}

/* Eight elements of two rows. */
static void put_fours(float *to, float d, const float *values, uint16_t first,
                      uint16_t second, unsigned signs)
{
    for (int i = 0; i < 8; i++) {
        const uint16_t row = i < 4 ? first : second;

        to[i] = (signs >> i & 1 ? -d : d) * values[row >> i % 4 * 4 & 7];
    }
}

/* Signs are stored without the eighth: of eight elements an even number is
 * negative. */
static unsigned even_signs(uint32_t seven)
{
    unsigned signs = seven & 127, odd_ones = signs;

    odd_ones ^= odd_ones >> 4;
    odd_ones ^= odd_ones >> 2;
    odd_ones ^= odd_ones >> 1;
    return signs | (odd_ones & 1) << 7;
}

static unsigned nibble(const uint8_t *p, int i)
{
    return p[i / 2] >> 4 * (i % 2) & 15U;
}

/* ---- two bits ---- */

/* A block is f16 d; of each part four codes of a byte, and u32 of four times
 * seven signs and a scale of four bits. */
void gpt_unpack_iq2_xxs(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b);

    for (int i = 0; i < PARTS * 4; i++) {
        const uint8_t *part = b + 2 + i / 4 * 8;
        const uint32_t word = gpt_get_u32(part + 4);
        const float scale = d * ((float)(word >> 28) + 0.5f) * 0.25f;

        put_eight(to + i * 8, scale, gpt_iq2_xxs_codes[part[i % 4]],
                  even_signs(word >> 7 * (i % 4)));
    }
}

/* A block is f16 d; 32 u16, each a code of nine bits and seven signs; 8 bytes,
 * each the scales of twice 16 elements. */
void gpt_unpack_iq2_xs(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b);

    for (int i = 0; i < PARTS * 4; i++) {
        const unsigned word = gpt_get_u16(b + 2 + i * 2);
        const float scale = (float)nibble(b + 66, i / 2) + 0.5f;

        put_eight(to + i * 8, d * scale * 0.25f, gpt_iq2_xs_codes[word & 511],
                  even_signs(word >> 9));
    }
}

/* A block is f16 d; 32 bytes of codes; 32 of signs; 8 bytes, each two high bits
 * of four codes; scales as in iq2_xs. */
void gpt_unpack_iq2_s(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b);

    for (int i = 0; i < PARTS * 4; i++) {
        const unsigned high = b[66 + i / 4] >> 2 * (i % 4) & 3U;
        const float scale = (float)nibble(b + 74, i / 2) + 0.5f;

        put_eight(to + i * 8, d * scale * 0.25f,
                  gpt_iq2_s_codes[b[2 + i] | high << 8], b[34 + i]);
    }
}

/* ---- three bits ---- */

/* A block is f16 d; 64 codes of a byte; of each part u32 as in iq2_xxs. */
void gpt_unpack_iq3_xxs(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b);

    for (int i = 0; i < PARTS * 4; i++) {
        const uint32_t word = gpt_get_u32(b + 66 + i / 4 * 4);
        const uint8_t *codes = b + 2 + i * 2;

        put_fours(to + i * 8, d * ((float)(word >> 28) + 0.5f) * 0.5f, stepped,
                  gpt_iq3_xxs_codes[codes[0]], gpt_iq3_xxs_codes[codes[1]],
                  even_signs(word >> 7 * (i % 4)));
    }
}

/* A block is f16 d; 64 bytes of codes; 8 of their ninth bits; 32 of signs; 4
 * bytes, each the scales of two parts. */
void gpt_unpack_iq3_s(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b);

    for (int i = 0; i < PARTS * 4; i++) {
        const unsigned ninths = b[66 + i / 4] >> 2 * (i % 4);
        const uint8_t *codes = b + 2 + i * 2;

        put_fours(to + i * 8, d * (float)(1 + 2 * nibble(b + 106, i / 4)), odd,
                  gpt_iq3_s_codes[codes[0] | (ninths & 1) << 8],
                  gpt_iq3_s_codes[codes[1] | (ninths & 2) << 7], b[74 + i]);
    }
}

/* ---- less than two bits ---- */

/* Elements are -1, 0 and 1, to all of which an eighth is added, or taken
 * away. */
static void put_shifted(float *to, float d, uint16_t row, bool away)
{
    for (int i = 0; i < 8; i++)
        to[i] = d * ((float)(row >> 2 * i & 3) - (away ? 1.125f : 0.875f));
}

/* A block is f16 d; 32 bytes of codes; of each part u16: three high bits of
 * four codes, a scale, and whether the eighth is taken away. */
void gpt_unpack_iq1_s(float *to, const uint8_t *b)
{
    const float d = gpt_packing_half(b);

    for (int i = 0; i < PARTS * 4; i++) {
        const unsigned word = gpt_get_u16(b + 34 + i / 4 * 2);
        const unsigned high = word >> 3 * (i % 4) & 7;
        const float scale = (float)(2 * (word >> 12 & 7) + 1);

        put_shifted(to + i * 8, d * scale,
                    gpt_iq1_s_codes[b[2 + i] | high << 8], word >> 15);
    }
}

/* A block is 32 bytes of codes; 16, each twice three high bits and whether the
 * eighth is taken away; 4 u16, each four scales of 16 elements. Their highest
 * four bits, together, are f16 d. */
void gpt_unpack_iq1_m(float *to, const uint8_t *b)
{
    unsigned half = 0;

    for (int i = 0; i < 4; i++)
        half |= (unsigned)(b[49 + i * 2] >> 4) << 4 * i;
    const float d = gpt_f16_to_f32((uint16_t)half);
    for (int i = 0; i < PARTS * 4; i++) {
        const unsigned high = nibble(b + 32, i);
        const unsigned word = gpt_get_u16(b + 48 + i / 8 * 2);
        const float scale = (float)(2 * (word >> 3 * (i / 2 % 4) & 7) + 1);

        put_shifted(to + i * 8, d * scale,
                    gpt_iq1_s_codes[b[i] | (high & 7) << 8], high & 8);
    }
}
