/* UTF-8: see utf8.h. */
#include "base/utf8.h"

#include "base/memory.h"

#include <string.h>

size_t gpt_utf8_length(const void *p, size_t n)
{
    static const struct {
        unsigned char last; /* of the leading bytes that this row is for */
        unsigned char low, high; /* of the second byte */
        unsigned char length;
    } rows[] = {
        {0x7f, 0, 0, 1},       {0xc1, 0, 0, 0},       {0xdf, 0x80, 0xbf, 2},
        {0xe0, 0xa0, 0xbf, 3}, {0xec, 0x80, 0xbf, 3}, {0xed, 0x80, 0x9f, 3},
        {0xef, 0x80, 0xbf, 3}, {0xf0, 0x90, 0xbf, 4}, {0xf3, 0x80, 0xbf, 4},
        {0xf4, 0x80, 0x8f, 4}, {0xff, 0, 0, 0},
    };
    const unsigned char *s = p;
    size_t i = 0;

    if (n == 0)
        return 0;
    /* The first row whose leading bytes reach this one; the table ends at 0xff.
     * Second bytes are limited so that overlong forms, surrogates and code
     * points above 10FFFF are malformed. */
    while (s[0] > rows[i].last)
        i++;
    size_t length = rows[i].length;
    if (length > n)
        return 0;
    if (length > 1 && (s[1] < rows[i].low || s[1] > rows[i].high))
        return 0;
    for (size_t k = 2; k < length; k++)
        if ((s[k] & 0xc0) != 0x80)
            return 0;
    return length;
}

size_t gpt_utf8_count(const void *p, size_t n)
{
    const unsigned char *s = p;
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += (s[i] & 0xC0) != 0x80;
    return count;
}

size_t gpt_utf8_mark(const void *p, size_t n)
{
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t len = sizeof(mark) - 1;

    return n >= len && memcmp(p, mark, len) == 0 ? len : 0;
}

size_t gpt_utf8_line_end(const void *p, size_t n, unsigned *code)
{
    const unsigned char *s = p;

    if (n >= 2 && s[0] == 0xC2 && s[1] == 0x85) {
        *code = 0x85;
        return 2;
    }
    if (n < 3 || s[0] != 0xE2 || s[1] != 0x80 || (s[2] | 1) != 0xA9)
        return 0;
    *code = 0x2000U | (s[2] & 0x3F);
    return 3;
}

/* C0 and C1 controls and DEL; anything else is shown as it is. */
static bool is_control(const unsigned char *s)
{
    return s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0);
}

int gpt_buf_add_shown(struct gpt_buf *b, const char *text, const char *keep)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s) {
        size_t n = gpt_utf8_length(s, strnlen((const char *)s, 4));

        if (n > 0 && (!is_control(s) || (n == 1 && strchr(keep, *s)))) {
            GPT_TRY(gpt_buf_add(b, s, n));
            s += n;
        } else {
            GPT_TRY(gpt_buf_printf(b, "\\x%02x", *s++));
            for (; n > 1; n--)
                GPT_TRY(gpt_buf_printf(b, "\\x%02x", *s++));
        }
    }
    return GPT_OK;
}
