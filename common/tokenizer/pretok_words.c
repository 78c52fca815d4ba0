/* The pre-tokenizers of the families after GPT-2 as one machine with switches,
 * in place of a regex engine. The alternatives of their patterns, in order:
 *   contraction    (?i:'s|'t|'re|'ve|'m|'ll|'d)       first, or after a word
 *   word           [^\r\n\p{L}\p{N}]?\p{L}+           or by the case of letters
 *   number         \p{N}{1,3}                         or one digit, or \p{N}+
 *   symbols         ?[^\s\p{L}\p{N}]+[\r\n]*          or [\r\n/]*
 *   line ends      \s*[\r\n]+
 *   spaces         \s+(?!\S)|\s+
 * Each function here is one alternative: how many bytes it takes at p, or 0.
 * Start at cut_word(); a family is a struct gpt_word_rules. This is the
 * specification of pretok_words_simd.c. */
#include "tokenizer/pretok_rules.h"

/* What the one character before a word may not be. */
enum { NOT_PREFIX = GPT_CH_L | GPT_CH_N | GPT_CH_CRLF };

/* First position at or after i of a character in none of the classes. */
static size_t skip(const uint8_t *p, size_t i, size_t len, unsigned classes)
{
    size_t n;

    while (i < len && gpt_ch_at(p + i, len - i, &n) & classes)
        i += n;
    return i;
}

/* ---- contractions ---- */

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? c | 32 : c;
}

/* The long s, U+017F, is an s when case is ignored. */
size_t gpt_word_contraction(const uint8_t *p, size_t len)
{
    if (len < 2 || p[0] != '\'')
        return 0;
    uint8_t a = lower(p[1]), b = len > 2 ? lower(p[2]) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') ||
        (a == 'l' && b == 'l') || (p[1] == 0xC5 && b == 0xBF))
        return 3;
    return 0;
}

/* ---- words ---- */

/* [^\r\n\p{L}\p{N}]?W+, W the characters of rules.word */
GPT_INLINE size_t plain_word(const uint8_t *p, size_t len, unsigned first,
                             size_t first_n, unsigned word)
{
    size_t n;

    if (!(first & NOT_PREFIX) && first_n < len &&
        gpt_ch_at(p + first_n, len - first_n, &n) & word)
        return skip(p, first_n + n, len, word);
    return first & word ? skip(p, first_n, len, word) : 0;
}

/* HEAD*TAIL+ from position i, or 0. The classes overlap: where nothing that is
 * only TAIL follows the run of HEADs, the word ends with the last of them that
 * is TAIL, too. */
static size_t head_tail(const uint8_t *p, size_t i, size_t len)
{
    size_t end = 0, n;

    while (i < len) {
        unsigned c = gpt_ch_at(p + i, len - i, &n);

        if (!(c & GPT_CH_HEAD))
            return c & GPT_CH_TAIL ? skip(p, i + n, len, GPT_CH_TAIL) : end;
        i += n;
        if (c & GPT_CH_TAIL)
            end = i;
    }
    return end;
}

/* X?HEAD*TAIL+ or else X?HEAD+TAIL*, X = [^\r\n\p{L}\p{N}]; each first with and
 * then without X. A mark can be X as well as HEAD. */
static size_t case_word(const uint8_t *p, size_t len, unsigned first,
                        size_t first_n)
{
    bool prefix = !(first & NOT_PREFIX);
    size_t end = prefix ? head_tail(p, first_n, len) : 0;

    if (!end && first & (GPT_CH_HEAD | GPT_CH_TAIL))
        end = head_tail(p, 0, len);
    if (end)
        return end;
    end = prefix ? skip(p, first_n, len, GPT_CH_HEAD) : first_n;
    if (prefix && end > first_n)
        return end;
    return first & GPT_CH_HEAD ? skip(p, first_n, len, GPT_CH_HEAD) : 0;
}

GPT_INLINE size_t word(const uint8_t *p, size_t len, unsigned first,
                       size_t first_n, const struct gpt_word_rules *r)
{
    if (!r->by_case)
        return plain_word(p, len, first, first_n, r->word);
    size_t n = case_word(p, len, first, first_n);
    if (n && r->contraction_after)
        n += gpt_word_contraction(p + n, len - n);
    return n;
}

/* ---- the rest ---- */

GPT_INLINE size_t number(const uint8_t *p, size_t len, size_t first_n,
                         unsigned digits)
{
    size_t i = first_n, n;

    for (unsigned k = 1; k != digits && i < len &&
                         gpt_ch_at(p + i, len - i, &n) & GPT_CH_N;
         k++)
        i += n;
    return i;
}

/* Symbols from position i on, and the line ends after them. */
GPT_INLINE size_t symbols(const uint8_t *p, size_t i, size_t len,
                          const struct gpt_word_rules *r)
{
    const unsigned stop = GPT_CH_SPACE | GPT_CH_N | GPT_CH_L | r->word;
    size_t n;

    while (i < len && !(gpt_ch_at(p + i, len - i, &n) & stop))
        i += n;
    while (i < len && (p[i] == '\r' || p[i] == '\n' ||
                       (r->slash && p[i] == '/')))
        i++;
    return i;
}

/* A run of white space of which first_n bytes are the first character. */
GPT_INLINE size_t spaces(const uint8_t *p, size_t len, unsigned first,
                         size_t first_n, const struct gpt_word_rules *r)
{
    size_t i = first_n, last = 0, n;
    size_t after_line_end = first & GPT_CH_CRLF ? i : 0;

    while (i < len) {
        unsigned c = gpt_ch_at(p + i, len - i, &n);

        if (!(c & GPT_CH_SPACE))
            break;
        last = i;
        i += n;
        if (c & GPT_CH_CRLF)
            after_line_end = i;
    }
    if (after_line_end && !(r->end_first && i == len))
        return after_line_end;
    return i == len || last == 0 ? i : last;
}

/* The alternatives in the order of the pattern; the first that takes anything
 * is the piece. A text always begins with some piece, because the last
 * alternatives together match any character. */
GPT_INLINE size_t cut_word(const char *text, size_t len,
                           const struct gpt_word_rules *r)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t n, m;

    if (r->contraction_first && (n = gpt_word_contraction(p, len)) > 0)
        return n;
    unsigned first = gpt_ch_at(p, len, &n);
    if ((m = word(p, len, first, n, r)) > 0)
        return m;
    if (first & GPT_CH_N)
        return number(p, len, n, r->digits);
    if (!(first & GPT_CH_SPACE))
        return symbols(p, 0, len, r);
    if (p[0] == ' ' && len > 1) {
        unsigned next = gpt_ch_at(p + 1, len - 1, &m);

        if (!(next & (GPT_CH_SPACE | GPT_CH_N | GPT_CH_L | r->word)))
            return symbols(p, 1, len, r);
    }
    return spaces(p, len, first, n, r);
}

/* ---- the families ---- */

#define FAMILY(family)                                                         \
    size_t gpt_pretok_##family(const char *text, size_t len)                   \
    {                                                                          \
        return cut_word(text, len, &gpt_rules_##family);                       \
    }
GPT_WORD_FAMILIES(FAMILY)
