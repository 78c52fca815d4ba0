/* The alphabet of bytelevel.h, by arithmetic: the bytes that are moved up are
 * in three ranges, 00-20, 7F-A0 and AD, and get the letters from U+0100 on in
 * their order. Start at gpt_byte_letter(). */
#include "tokenizer/bytelevel.h"

#include "base/utf8.h"

#include <assert.h>

enum { FIRST_MOVED = 0x100, N_MOVED = 68 };

uint32_t gpt_byte_letter(uint8_t byte)
{
    if (byte <= 0x20)
        return FIRST_MOVED + byte;
    if (byte >= 0x7F && byte <= 0xA0)
        return FIRST_MOVED + 0x21u + byte - 0x7F;
    return byte == 0xAD ? FIRST_MOVED + N_MOVED - 1 : byte;
}

int gpt_letter_byte(uint32_t cp)
{
    if (cp < FIRST_MOVED)
        return gpt_byte_letter((uint8_t)cp) == cp ? (int)cp : -1;
    uint32_t n = cp - FIRST_MOVED;
    if (n >= N_MOVED)
        return -1;
    if (n == N_MOVED - 1) /* the third range is this byte alone */
        return 0xAD;
    return (int)(n <= 0x20 ? n : n - 0x21 + 0x7F);
}

/* The first ranks are bytes that are their own letters, in three ranges; the
 * bytes that are moved follow. */
uint8_t gpt_byte_of_rank(int rank)
{
    int kept[] = {0x21, 0x7E, 0xA1, 0xAC, 0xAE, 0xFF};

    assert(rank >= 0 && rank < 256);
    for (int i = 0; i < 6; i += 2) {
        int n = kept[i + 1] - kept[i] + 1;

        if (rank < n)
            return (uint8_t)(kept[i] + rank);
        rank -= n;
    }
    return (uint8_t)gpt_letter_byte((uint32_t)(FIRST_MOVED + rank));
}

/* A letter below U+0080 takes one byte, any other letter two:
 * GPT_BYTELEVEL_MAX. */
size_t gpt_bytelevel_encode(const char *bytes, size_t len, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += (size_t)gpt_utf8_encode(gpt_byte_letter((uint8_t)bytes[i]),
                                     out + n);
    return n;
}

/* A text with any other character is not made of byte letters: it is a special
 * token's name. */
bool gpt_bytelevel_decode(const char *text, size_t len, char *out,
                          size_t *out_len)
{
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int used = gpt_utf8_decode((const uint8_t *)text + i, len - i, &cp);
        int byte = used ? gpt_letter_byte(cp) : -1;

        if (byte < 0)
            return false;
        out[n++] = (char)byte;
        i += (size_t)used;
    }
    *out_len = n;
    return true;
}
