/* Pre-tokenizers that are several patterns one after the other: the first one
 * isolates what it matches, the next sees only what lies between. A text that
 * ends for it is therefore a text that ends where an isolated character
 * begins. */
#include "tokenizer/pretok_rules.h"

#include <assert.h>

/* ---- StarCoder: \p{N}, then GPT-2's pattern ---- */

/* White space before a number ends its text: a blank does not go with the
 * number, and no space stays behind for it. */
size_t gpt_pretok_starcoder(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t n, m;
    unsigned first = gpt_ch_at(p, len, &n);

    assert(len > 0);
    if (first & GPT_CH_N)
        return n;
    size_t piece = gpt_pretok_gpt2(text, len);
    if (!(first & GPT_CH_SPACE) || n == len)
        return piece;
    unsigned second = gpt_ch_at(p + n, len - n, &m);
    if (second & GPT_CH_N)
        return n;
    if (!(second & GPT_CH_SPACE) || piece == len)
        return piece;
    size_t end = piece;
    if (gpt_ch_at(p + end, len - end, &m) & GPT_CH_SPACE)
        end += m;
    return end < len && gpt_ch_at(p + end, len - end, &m) & GPT_CH_N ? end
                                                                     : piece;
}

/* ---- DeepSeek-V3 ---- */

/* The third pattern sees numbers, runs of Chinese or Japanese characters, and
 * what lies between, each as a text of its own. */
struct inner {
    const uint8_t *p;
    size_t len;
    bool cjk; /* a text of such characters, or one without */
};

enum { OUTSIDE = 1 << 8 }; /* a bit beyond those of pretok_chars.h */

/* [一-龥぀-ゟ゠-ヿ], three bytes each: U+4E00-9FA5, U+3040-30FF */
bool gpt_deepseek_cjk(const uint8_t *p, size_t n)
{
    if (n != 3)
        return false;
    uint32_t cp = (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 |
                  (p[2] & 0x3F);
    return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF);
}

/* The classes of the character at position i; OUTSIDE alone where the text
 * ends. */
static unsigned inner_at(const struct inner *t, size_t i, size_t *n)
{
    if (i == t->len)
        return OUTSIDE;
    unsigned c = gpt_ch_at(t->p + i, t->len - i, n);
    if (c & GPT_CH_N || gpt_deepseek_cjk(t->p + i, *n) != t->cjk)
        return OUTSIDE;
    return c;
}

static size_t skip_inner(const struct inner *t, size_t i, unsigned classes)
{
    size_t n;

    while (inner_at(t, i, &n) & classes)
        i += n;
    return i;
}

static bool letter_at(const struct inner *t, size_t i)
{
    return i < t->len && (t->p[i] | 32) >= 'a' && (t->p[i] | 32) <= 'z';
}

/* Matches \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_spaces(const struct inner *t, size_t start)
{
    size_t i = start, last = start, after_line_end = 0, n;
    unsigned c;

    while ((c = inner_at(t, i, &n)) & GPT_CH_SPACE) {
        last = i;
        i += n;
        if (c & GPT_CH_CRLF)
            after_line_end = i;
    }
    if (after_line_end)
        return after_line_end;
    return c & OUTSIDE || last == start ? i : last;
}

/* Where the match of the third pattern at position i ends, 0 for none:
 *   [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+
 *   [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
 *    ?[\p{P}\p{S}]+[\r\n]*
 *   spaces */
static size_t match_third(const struct inner *t, size_t i)
{
    const unsigned word = GPT_CH_L | GPT_CH_M;
    size_t n, m;
    unsigned first = inner_at(t, i, &n);
    unsigned second = inner_at(t, i + n, &m);

    if (t->p[i] < 128 && first & GPT_CH_PS && letter_at(t, i + 1)) {
        for (i += 2; letter_at(t, i); i++)
            ;
        return i;
    }
    if (first & word ||
        (!(first & (GPT_CH_CRLF | GPT_CH_PS)) && second & word))
        return skip_inner(t, i + n, word);
    if (first & GPT_CH_PS || (t->p[i] == ' ' && second & GPT_CH_PS))
        return skip_inner(t, skip_inner(t, i + n, GPT_CH_PS), GPT_CH_CRLF);
    return first & GPT_CH_SPACE ? match_spaces(t, i) : 0;
}

/* What matches nothing is a piece, up to where something matches. */
size_t gpt_pretok_deepseek3(const char *text, size_t len)
{
    struct inner t = {.p = (const uint8_t *)text, .len = len};
    size_t n, end;

    if (gpt_ch_at(t.p, len, &n) & GPT_CH_N) {
        size_t i = n;

        for (int k = 1; k < 3 && i < len &&
                        gpt_ch_at(t.p + i, len - i, &n) & GPT_CH_N; k++)
            i += n;
        return i;
    }
    t.cjk = gpt_deepseek_cjk(t.p, n);
    end = match_third(&t, 0);
    if (end)
        return end;
    do {
        end += n;
    } while (!(inner_at(&t, end, &n) & OUTSIDE) && !match_third(&t, end));
    return end;
}
