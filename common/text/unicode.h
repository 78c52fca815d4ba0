/* Unicode: classes of characters (version 16.0, as in tiktoken and the current
 * Hugging Face tokenizers) and UTF-8. The tables are generated. */
#ifndef GPT_TEXT_UNICODE_H
#define GPT_TEXT_UNICODE_H

#include "base/status.h"

#define GPT_UNICODE_VERSION "16.0"

/* General categories as tokenizers group them; White_Space comes first, so
 * that U+00A0 is a space and not Zs. Letters are the classes >= GPT_UC_LO. */
enum gpt_unicode_class {
    GPT_UC_OTHER, /* Cc Cf Cn Co Cs Zl Zp, what is in no class below */
    GPT_UC_M,     /* Mn Mc Me */
    GPT_UC_P,     /* Pc Pd Ps Pe Pi Pf Po */
    GPT_UC_S,     /* Sm Sc Sk So */
    GPT_UC_N,     /* Nd Nl No */
    GPT_UC_SPACE, /* White_Space: 25 code points */
    GPT_UC_LO,    /* Lo Lm */
    GPT_UC_LL,
    GPT_UC_LU,
    GPT_UC_LT,
};

extern const uint32_t gpt_unicode_limit;   /* class 0 from here on */
extern const uint8_t gpt_unicode_index[];  /* code point / 128 -> group */
extern const uint64_t gpt_unicode_class16[]; /* 8 words of 16 a group */

static inline enum gpt_unicode_class gpt_unicode_class(uint32_t cp)
{
    if (cp >= gpt_unicode_limit)
        return GPT_UC_OTHER;
    uint32_t group = gpt_unicode_index[cp >> 7];
    uint64_t word = gpt_unicode_class16[group * 8 + ((cp & 127) >> 4)];
    return (enum gpt_unicode_class)(word >> 4 * (cp & 15) & 15);
}

/* What Python's strings take for white space: White_Space, and the separators
 * of files, groups, records and units. */
static inline bool gpt_unicode_is_blank(uint32_t cp)
{
    return gpt_unicode_class(cp) == GPT_UC_SPACE || (cp >= 0x1C && cp <= 0x1F);
}

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

/* \w of regular expressions: a letter, a mark, a digit or a letter-like number,
 * a connector such as '_'. Source: UTS #18, annex C. */
bool gpt_unicode_is_word(uint32_t cp);

/* True when one of n ranges, first and last in order, has the code point. */
bool gpt_unicode_in(const uint32_t (*ranges)[2], size_t n, uint32_t cp);

/* Bytes of p[0..len) before the first that is not UTF-8; len when all is. */
size_t gpt_utf8_valid(const char *p, size_t len);

#endif
