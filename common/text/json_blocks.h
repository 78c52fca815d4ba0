/* The inside of a JSON string, 64 bytes at a time: checked, unescaped and
 * copied without a branch on what the text is. */
#ifndef GPT_TEXT_JSON_BLOCKS_H
#define GPT_TEXT_JSON_BLOCKS_H

#include <stdint.h>

enum { GPT_JSON_BLOCK = 64 };

/* Takes the characters from p on, and writes what they mean to *out, which
 * moves past it and has room for a block more than it needs. Returns where it
 * stopped, `end` at most: at the closing quote, or at what is left to the
 * caller: a control character, an escape that is wrong or breaks off, a
 * character beyond ASCII that may be wrong. */
typedef const uint8_t *gpt_json_blocks_fn(const uint8_t *p, const uint8_t *end,
                                          char **out);

/* The form for this processor, or NULL. */
gpt_json_blocks_fn *gpt_json_blocks(void);

/* What a letter after a backslash stands for; 0: nothing by itself. */
extern const char gpt_json_escapes[256];
extern const int8_t gpt_json_digits[256]; /* a digit's value and 1; or 0 */

/* The number of four hexadecimal digits; negative: they are none. */
static inline int gpt_json_hex4(const uint8_t *p)
{
    const int a = gpt_json_digits[p[0]] - 1, b = gpt_json_digits[p[1]] - 1;
    const int c = gpt_json_digits[p[2]] - 1, d = gpt_json_digits[p[3]] - 1;

    return a * 4096 | b * 256 | c * 16 | d;
}

#endif
