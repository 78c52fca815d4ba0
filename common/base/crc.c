/* Checksums by tables, and their joining; see crc.h and hash.h. Eight tables
 * take eight bytes at a time (Sarwate's method, sliced by Kounavis and Berry,
 * 2005): eight independent look-ups instead of a chain of eight. */
#include "base/crc.h"

#include "base/hash.h"
#include "base/num.h"

void gpt_crc_make_tables(struct gpt_crc_tables *t, uint32_t polynomial)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t r = b;

        for (int i = 0; i < 8; i++)
            r = r >> 1 ^ (r & 1 ? polynomial : 0);
        t->at[0][b] = r;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            t->at[k][b] =
                t->at[k - 1][b] >> 8 ^ t->at[0][t->at[k - 1][b] & 0xff];
}

uint32_t gpt_crc_run(const struct gpt_crc_tables *t, uint32_t r,
                     const void *data, size_t n)
{
    const uint8_t *p = data;

    for (; n >= 8; n -= 8, p += 8) {
        const uint32_t a = gpt_get_u32(p) ^ r, b = gpt_get_u32(p + 4);

        r = t->at[7][a & 0xff] ^ t->at[6][a >> 8 & 0xff] ^
            t->at[5][a >> 16 & 0xff] ^ t->at[4][a >> 24] ^
            t->at[3][b & 0xff] ^ t->at[2][b >> 8 & 0xff] ^
            t->at[1][b >> 16 & 0xff] ^ t->at[0][b >> 24];
    }
    for (; n > 0; n--)
        r = t->at[0][(r ^ *p++) & 0xff] ^ r >> 8;
    return r;
}

/* Computes a * b modulo the polynomial. Bit 31 is the coefficient of x^0. */
static uint32_t multiply(uint32_t polynomial, uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = UINT32_C(1) << 31; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b >> 1 ^ (b & 1 ? polynomial : 0);
    }
    return product;
}

/* A checksum moved past n zero bytes is multiplied by x^(8 n), which is made of
 * the squares x^8, x^16, x^32, ... What the register is inverted with, before
 * and after, cancels out. */
uint32_t gpt_crc_join(uint32_t polynomial, uint32_t a, uint32_t b, int64_t n)
{
    uint32_t power = UINT32_C(1) << 31, square = UINT32_C(1) << 23;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            power = multiply(polynomial, square, power);
        square = multiply(polynomial, square, square);
    }
    return multiply(polynomial, power, a) ^ b;
}
