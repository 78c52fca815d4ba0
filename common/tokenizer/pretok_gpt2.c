/* GPT-2's pre-tokenizer as a small machine in place of a regex engine. The
 * pattern's alternatives, in its order, come down to this:
 *   - 's 't 'm 'd 're 've 'll at the start of a piece, lower case only;
 *   - a run of letters, or of numbers, or of anything that is neither nor
 *     white space, each with one U+0020 before it if there is one;
 *   - white space: a run that ends the text is one piece; of a run before
 *     something else the last character stays behind, to go with what follows
 *     if it is U+0020 and to stand alone otherwise.
 * Start at gpt_pretok_gpt2(). */
#include "tokenizer/pretok_gpt2.h"

#include "base/utf8.h"
#include "text/unicode.h"

#include <assert.h>

/* The kind of each byte, computed by the compiler: GPT_PIECE_WIDE marks what is
 * not a character by itself. */
#define ROW(f, base)                                                           \
    f(base), f((base) + 1), f((base) + 2), f((base) + 3), f((base) + 4),       \
        f((base) + 5), f((base) + 6), f((base) + 7), f((base) + 8),            \
        f((base) + 9), f((base) + 10), f((base) + 11), f((base) + 12),         \
        f((base) + 13), f((base) + 14), f((base) + 15)
#define KIND(b)                                                                \
    ((b) >= 0x80                                    ? GPT_PIECE_WIDE           \
     : ((b) >= '0' && (b) <= '9')                   ? GPT_PIECE_NUMBER         \
     : ((b) == ' ' || ((b) >= '\t' && (b) <= '\r')) ? GPT_PIECE_SPACE          \
     : (((b) | 32) >= 'a' && ((b) | 32) <= 'z')     ? GPT_PIECE_LETTER         \
                                                    : GPT_PIECE_OTHER)
static const uint8_t byte_kind[256] = {
    ROW(KIND, 0x00), ROW(KIND, 0x10), ROW(KIND, 0x20), ROW(KIND, 0x30),
    ROW(KIND, 0x40), ROW(KIND, 0x50), ROW(KIND, 0x60), ROW(KIND, 0x70),
    ROW(KIND, 0x80), ROW(KIND, 0x90), ROW(KIND, 0xA0), ROW(KIND, 0xB0),
    ROW(KIND, 0xC0), ROW(KIND, 0xD0), ROW(KIND, 0xE0), ROW(KIND, 0xF0),
};

enum gpt_piece_kind gpt_piece_wide_kind(const uint8_t *p, size_t len, size_t *n)
{
    uint32_t cp;
    int bytes = gpt_utf8_decode(p, len, &cp);

    *n = bytes ? (size_t)bytes : 1;
    if (bytes == 0) /* Python's regex never sees bytes that are not UTF-8 */
        return GPT_PIECE_OTHER;
    enum gpt_unicode_class c = gpt_unicode_class(cp);
    return c >= GPT_UC_LO      ? GPT_PIECE_LETTER
           : c == GPT_UC_N     ? GPT_PIECE_NUMBER
           : c == GPT_UC_SPACE ? GPT_PIECE_SPACE
                               : GPT_PIECE_OTHER;
}

enum gpt_piece_kind gpt_piece_kind(const uint8_t *p, size_t len, size_t *n)
{
    *n = 1;
    enum gpt_piece_kind k = (enum gpt_piece_kind)byte_kind[p[0]];
    return k == GPT_PIECE_WIDE ? gpt_piece_wide_kind(p, len, n) : k;
}

/* The first position at or after i that is not of the given kind. ASCII takes
 * one look into the table for each byte; only a byte beyond it costs a
 * decoding. */
static size_t run_end(const uint8_t *p, size_t i, size_t len,
                      enum gpt_piece_kind kind)
{
    for (;;) {
        while (i < len && byte_kind[p[i]] == kind)
            i++;
        size_t n;
        if (i == len || byte_kind[p[i]] != GPT_PIECE_WIDE ||
            gpt_piece_wide_kind(p + i, len - i, &n) != kind)
            return i;
        i += n;
    }
}

size_t gpt_piece_contraction(const uint8_t *p, size_t len)
{
    if (len < 2 || p[0] != '\'')
        return 0;
    switch (p[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return len > 2 && p[2] == 'e' ? 3 : 0;
    case 'l':
        return len > 2 && p[2] == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

/* A run of two or more spaces, of which first_n bytes are the first one. This
 * is \s+(?!\S): the run gives its last character back unless the text ends. */
static size_t space_run(const uint8_t *p, size_t first_n, size_t len)
{
    size_t i = first_n, last = 0, n;

    while (i < len && gpt_piece_kind(p + i, len - i, &n) == GPT_PIECE_SPACE) {
        last = i;
        i += n;
    }
    return i == len ? len : last;
}

size_t gpt_pretok_gpt2(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t n = gpt_piece_contraction(p, len);

    assert(len > 0);
    if (n)
        return n;
    enum gpt_piece_kind kind = gpt_piece_kind(p, len, &n);
    if (kind != GPT_PIECE_SPACE)
        return run_end(p, n, len, kind);
    if (n == len)
        return n;
    size_t m;
    enum gpt_piece_kind next = gpt_piece_kind(p + n, len - n, &m);
    if (next == GPT_PIECE_SPACE)
        return space_run(p, n, len);
    /* One space before something else: only U+0020 goes with what follows. */
    return p[0] == ' ' ? run_end(p, n + m, len, next) : n;
}
