/* See base64.h. */
#include "text/base64.h"

#include <stdint.h>

/* -1 for any other character, also for '=': padding is cut off before. */
static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool gpt_base64_decode(const char *text, size_t len, char *out, size_t *n)
{
    uint32_t bits = 0;

    *n = 0;
    if (len == 0 || len % 4)
        return false;
    /* the last group of four may be two or three digits */
    size_t digits = len - (text[len - 1] == '=') -
                    (text[len - 1] == '=' && text[len - 2] == '=');
    for (size_t i = 0; i < digits; i++) {
        int d = base64_digit(text[i]);

        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        /* The first digit of four gives no whole byte; each later one completes
         * a byte. */
        if (i % 4)
            out[(*n)++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    return true;
}
