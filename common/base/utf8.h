/* UTF-8: reading and writing characters (RFC 3629; Unicode 16, table 3-7). */
#ifndef GPT_BASE_UTF8_H
#define GPT_BASE_UTF8_H

#include "base/status.h"

/* Reads one character of p[0..len), len > 0: its code point and length 1..4.
 * 0 when the bytes are not the shortest UTF-8 form of a scalar value (RFC
 * 3629): a stray or missing continuation byte, an overlong form, a surrogate,
 * or beyond U+10FFFF. */
static inline int gpt_utf8_decode(const uint8_t *p, size_t len, uint32_t *cp)
{
    uint8_t b = p[0];

    if (b < 0x80) {
        *cp = b;
        return 1;
    }
    if (b >= 0xC2 && b <= 0xDF) {
        if (len < 2 || (p[1] & 0xC0) != 0x80)
            return 0;
        *cp = (uint32_t)(b & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if ((b & 0xF0) == 0xE0) {
        if (len < 3 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80)
            return 0;
        *cp = (uint32_t)(b & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 |
              (p[2] & 0x3F);
        return *cp >= 0x800 && *cp - 0xD800 >= 0x800 ? 3 : 0;
    }
    if (b >= 0xF0 && b <= 0xF4) {
        if (len < 4 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 ||
            (p[3] & 0xC0) != 0x80)
            return 0;
        *cp = (uint32_t)(b & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 |
              (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
        return *cp - 0x10000 < 0x100000 ? 4 : 0;
    }
    return 0;
}

/* Writes a scalar value as UTF-8, 1..4 bytes; returns their number. */
static inline int gpt_utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* Bytes of the well-formed sequence that p (n bytes left) begins with: 1 to 4;
 * 0 when it is malformed or cut short, or n is 0. */
size_t gpt_utf8_length(const void *p, size_t n);

/* Bytes of p[0..len) before the first that is not UTF-8; len when all is. */
size_t gpt_utf8_valid(const char *p, size_t len);

/* Characters in p (n bytes): bytes that do not continue one. */
size_t gpt_utf8_count(const void *p, size_t n);

/* Bytes of the byte order mark that p (n bytes left) begins with: 3, or 0. */
size_t gpt_utf8_mark(const void *p, size_t n);

/* Bytes of the character that p (n bytes left) begins with if it ends a line in
 * Unicode, as Python's splitlines() and some readers of events take it: U+0085,
 * U+2028 or U+2029; else 0. *code is then its number. Where a value is on a
 * line of its own these are escaped. */
size_t gpt_utf8_line_end(const void *p, size_t n, unsigned *code);

/* Appends text to b as a terminal may show it. Names of files and words of data
 * come from outside and may hold escape sequences, which a terminal would obey:
 * control characters but those in `keep`, and bytes that are no UTF-8, become
 * \xHH. GPT_EFAIL when out of memory. */
struct gpt_buf;
int gpt_buf_add_shown(struct gpt_buf *b, const char *text, const char *keep)
    GPT_MUST_USE;

#endif
