/* Unicode: classes of characters (version 16.0, as in tiktoken and the current
 * Hugging Face tokenizers). The tables are generated. */
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

/* \w of regular expressions: a letter, a mark, a digit or a letter-like number,
 * a connector such as '_'. Source: UTS #18, annex C. */
bool gpt_unicode_is_word(uint32_t cp);

/* True when one of n ranges, first and last in order, has the code point. */
bool gpt_unicode_in(const uint32_t (*ranges)[2], size_t n, uint32_t cp);

#endif
