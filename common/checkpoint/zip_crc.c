/* CRC-32 of zip archives. Eight tables take eight bytes at a time (Sarwate's
 * method, sliced by Kounavis and Berry, 2005): a checkpoint's writer computes
 * it over every byte, beside a disk of gigabytes a second. */
#include "checkpoint/zip.h"

#include "base/hash.h"
#include "base/num.h"

#include <pthread.h>

static uint32_t tables[8][256];

/* Table k continues a byte by k zero bytes. */
static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;

        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? GPT_CRC32_POLYNOMIAL : 0);
        tables[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            tables[k][i] =
                tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xff];
}

/* The register is inverted before and after, as the format has it, so that
 * running sums can be continued. */
uint32_t gpt_crc32(uint32_t crc, const void *data, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *p = data;

    pthread_once(&once, make_tables);
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        const uint32_t a = gpt_get_u32(p) ^ crc, b = gpt_get_u32(p + 4);

        crc = tables[7][a & 0xff] ^ tables[6][a >> 8 & 0xff] ^
              tables[5][a >> 16 & 0xff] ^ tables[4][a >> 24] ^
              tables[3][b & 0xff] ^ tables[2][b >> 8 & 0xff] ^
              tables[1][b >> 16 & 0xff] ^ tables[0][b >> 24];
    }
    for (; n; n--)
        crc = tables[0][(crc ^ *p++) & 0xff] ^ crc >> 8;
    return ~crc;
}
