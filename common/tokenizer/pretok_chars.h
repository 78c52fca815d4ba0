/* What the patterns of pre-tokenizers ask of a character: the classes that it
 * is in, as bits. */
#ifndef GPT_TOKENIZER_PRETOK_CHARS_H
#define GPT_TOKENIZER_PRETOK_CHARS_H

#include "text/unicode.h"

enum {
    GPT_CH_L = 1 << 0,     /* \p{L} */
    GPT_CH_M = 1 << 1,     /* \p{M} */
    GPT_CH_N = 1 << 2,     /* \p{N} */
    GPT_CH_PS = 1 << 3,    /* [\p{P}\p{S}] */
    GPT_CH_SPACE = 1 << 4, /* \s */
    GPT_CH_CRLF = 1 << 5,  /* [\r\n], which are \s, too */
    GPT_CH_HEAD = 1 << 6,  /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
    GPT_CH_TAIL = 1 << 7,  /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
};

/* The classes of ASCII characters. */
extern const uint8_t gpt_ch_ascii[128];

unsigned gpt_ch_wide(const uint8_t *p, size_t len, size_t *n);

/* Bits and length of the character at p[0..len), len > 0. A byte that is not
 * UTF-8 is a character of no class. */
static inline unsigned gpt_ch_at(const uint8_t *p, size_t len, size_t *n)
{
    if (p[0] >= 128)
        return gpt_ch_wide(p, len, n);
    *n = 1;
    return gpt_ch_ascii[p[0]];
}

#endif
