/* UTF-8: see utf8.h. */
#include "base/utf8.h"

#include "base/memory.h"

#include <string.h>

size_t gpt_utf8_length(const void *p, size_t n)
{
    uint32_t code;

    return n ? (size_t)gpt_utf8_decode(p, n, &code) : 0;
}

/* Eight bytes of ASCII at a time; a character beyond it is decoded alone, by
 * the one function that knows what UTF-8 is, so that there is no second notion
 * of it. Each character is whole before the next begins: no state is carried.
 */
size_t gpt_utf8_valid(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t i = 0;

    while (i < len) {
        uint64_t word;

        while (len - i >= sizeof(word)) {
            memcpy(&word, p + i, sizeof(word));
            if (word & 0x8080808080808080u)
                break;
            i += sizeof(word);
        }
        if (i == len)
            break;
        uint32_t cp;
        int n = gpt_utf8_decode(p + i, len - i, &cp);
        if (n == 0)
            return i;
        i += (size_t)n;
    }
    return len;
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
