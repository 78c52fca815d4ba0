/* Classes of characters as bits: ASCII from a table that the compiler fills in,
 * the others from the classes of unicode.h. Start at gpt_ch_wide(). */
#include "tokenizer/pretok_chars.h"

#include "base/utf8.h"

#define LOWER(c) ((c) >= 'a' && (c) <= 'z')
#define UPPER(c) ((c) >= 'A' && (c) <= 'Z')
#define BITS(c)                                                                \
    ((c) == '\r' || (c) == '\n'                    ? GPT_CH_SPACE | GPT_CH_CRLF\
     : (c) == ' ' || ((c) >= '\t' && (c) <= '\r')  ? GPT_CH_SPACE              \
     : (c) >= '0' && (c) <= '9'                    ? GPT_CH_N                  \
     : LOWER(c)                                    ? GPT_CH_L | GPT_CH_TAIL    \
     : UPPER(c)                                    ? GPT_CH_L | GPT_CH_HEAD    \
     : (c) > ' ' && (c) < 127                      ? GPT_CH_PS                 \
                                                   : 0)
#define ROW(c)                                                                 \
    BITS(c), BITS((c) + 1), BITS((c) + 2), BITS((c) + 3), BITS((c) + 4),       \
        BITS((c) + 5), BITS((c) + 6), BITS((c) + 7)

const uint8_t gpt_ch_ascii[128] = {
    ROW(0x00), ROW(0x08), ROW(0x10), ROW(0x18), ROW(0x20), ROW(0x28),
    ROW(0x30), ROW(0x38), ROW(0x40), ROW(0x48), ROW(0x50), ROW(0x58),
    ROW(0x60), ROW(0x68), ROW(0x70), ROW(0x78),
};

/* The patterns overlap where Unicode's categories do not: a mark and a letter
 * without case may stand in the upper-case part of a word and in the lower-case
 * part, so these have both bits. */
unsigned gpt_ch_wide(const uint8_t *p, size_t len, size_t *n)
{
    static const uint8_t bits[] = {
        [GPT_UC_OTHER] = 0,
        [GPT_UC_M] = GPT_CH_M | GPT_CH_HEAD | GPT_CH_TAIL,
        [GPT_UC_P] = GPT_CH_PS,
        [GPT_UC_S] = GPT_CH_PS,
        [GPT_UC_N] = GPT_CH_N,
        [GPT_UC_SPACE] = GPT_CH_SPACE,
        [GPT_UC_LO] = GPT_CH_L | GPT_CH_HEAD | GPT_CH_TAIL,
        [GPT_UC_LL] = GPT_CH_L | GPT_CH_TAIL,
        [GPT_UC_LU] = GPT_CH_L | GPT_CH_HEAD,
        [GPT_UC_LT] = GPT_CH_L | GPT_CH_HEAD,
    };
    uint32_t cp;
    int bytes = gpt_utf8_decode(p, len, &cp);

    *n = bytes ? (size_t)bytes : 1;
    return bytes ? bits[gpt_unicode_class(cp)] : 0;
}
