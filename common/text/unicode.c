/* The part of unicode.h that is too long to be inline. */
#include "text/unicode.h"

#include <string.h>

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
