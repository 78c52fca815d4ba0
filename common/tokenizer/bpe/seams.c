/* The tables of seams.h. Start at gpt_seams_open().
 *
 * What may merge across a place: only two tokens whose bytes side by side are a
 * token. So a place may be cut when no token of the vocabulary holds the bytes
 * on both sides of it, whatever the text is. Two bytes are enough to ask for:
 * 65536 bits, `joined`. But in Chinese nearly every pair of bytes that meet
 * between characters (an end 80-BF, a lead byte E4-E9) is in some token. There
 * up to three bytes on each side are asked for, as `spans`: what a token holds
 * of the character before the place and of the one after it. To know that no
 * token holds both it is enough to look at these two characters, for a token
 * that reaches further holds their inner bytes all the same.
 *
 * The spans are a set of hashes without the keys. What is in it by chance is
 * not cut, which costs time and changes nothing: whether a place is cut never
 * changes an id, so every answer may err to the side of "joined". */
#include "tokenizer/bpe/seams.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

enum { LEAST_BITS = 15, MOST_BITS = 21, BITS_A_TOKEN = 8 };

/* What a token holds around a place inside it that is before a character of
 * three bytes: of the character to the left its last bytes, in the low bits of
 * a number, of the one to the right its first bytes, in the high bits of
 * another, up to three bytes each. Where a token holds only one byte of a
 * character that byte is entered with every second byte that may stand beside
 * it, so that a look needs to ask for two bytes and three, but never for one.
 */
struct span {
    uint32_t left, right;
    bool any_left, any_right;
};

/* Fills in *span for token[at]; false when the bytes there are no part of such
 * characters, or of one and ASCII. The bytes that the token lacks are taken
 * from a made-up character, so that one test serves all lengths. */
static bool span_at(const uint8_t *token, size_t len, size_t at,
                    struct span *span)
{
    assert(at > 0 && at < len);
    uint8_t p[6] = {0xE0, 0x80, 0x80, 0xE0, 0x80, 0x80};
    const bool ascii = token[at - 1] < 0x80;
    const size_t left = ascii ? 0 : at < 3 ? at : 3;
    const size_t right = len - at < 3 ? len - at : 3;

    memcpy(p + 3 - left, token + at - left, left + right);
    span->left = ascii ? token[at - 1]
                       : gpt_seams_char(p) & 0xFFFFFF >> (24 - 8 * left);
    span->right = gpt_seams_char(p + 3) & ~(0xFFFFFFu >> 8 * right);
    span->any_left = left == 1;
    span->any_right = right == 1;
    return gpt_seams_wide(p) && gpt_seams_wide(p + 3);
}

static void add_bit(struct gpt_seams *s, uint32_t left, uint32_t right)
{
    uint64_t at = gpt_seams_hash(left, right) >> s->shift;

    s->spans[at / 64] |= (uint64_t)1 << at % 64;
}

/* Enters a span, and each side of it by itself with GPT_SEAMS_ANY: these answer
 * whether a character can be joined to anything at all. */
static void add_span(struct gpt_seams *s, const struct span *span)
{
    const uint32_t n_left = span->any_left ? 0x40 : 1;
    const uint32_t n_right = span->any_right ? 0x40 : 1;

    for (uint32_t i = 0; i < n_left * n_right; i++) {
        uint32_t left = span->any_left ? (0x80 | i % 0x40) << 8 : 0;
        uint32_t right = span->any_right ? (0x80 | i / n_left) << 8 : 0;

        add_bit(s, span->left | left, span->right | right);
        add_bit(s, span->left | left, GPT_SEAMS_ANY);
        add_bit(s, GPT_SEAMS_ANY, span->right | right);
    }
}

static void add_token(struct gpt_seams *s, const uint8_t *token, size_t len)
{
    struct span span;
    bool word = false;

    for (size_t i = 1; i < len; i++) {
        unsigned pair = (unsigned)token[i - 1] << 8 | token[i];

        s->joined[pair / 64] |= (uint64_t)1 << pair % 64;
        if (token[i] < 0xE0 || !span_at(token, len, i, &span))
            continue;
        add_span(s, &span);
        word = true;
    }
    s->n_words += word;
}

int gpt_seams_open(struct gpt_seams *s, const struct gpt_vocab *v,
                   struct gpt_err *err)
{
    unsigned log = LEAST_BITS;

    /* eight bits a token keep what is in the set by chance rare */
    while (log < MOST_BITS && (int64_t)1 << log < v->n * BITS_A_TOKEN)
        log++;
    s->shift = 64 - log;
    GPT_TRY(gpt_new(&s->spans, (size_t)1 << (log - 6), sizeof(*s->spans),
                    "merges", err));
    for (int64_t id = 0; id < v->n; id++)
        add_token(s, (const uint8_t *)v->tokens[id].data, v->tokens[id].len);
    return GPT_OK;
}

void gpt_seams_close(struct gpt_seams *s)
{
    gpt_free(s->spans);
    s->spans = NULL;
}

/* ---- tokens that are no part of a piece ---- */

/* Some vocabularies hold tokens that a piece is only as a whole, and that
 * merging does not make. If a cut left exactly such a token as a part, that
 * part would be looked up and found, and the ids would be wrong. So no cut is
 * made where such a token could begin or end: before its first character and
 * after its last. */

/* Bits of fixed_byte and fixed_wide. */
enum { BEFORE = 1, AFTER = 2 };

/* A character of three bytes is entered as a span without the other side. Where
 * the token holds a part of a character, all that is known is that it has three
 * bytes, so that fixed_wide forbids cuts at all of these. */
void gpt_seams_fix(struct gpt_seams *s, struct gpt_str token)
{
    const uint8_t *p = (const uint8_t *)token.data, *end = p + token.len;

    assert(token.len > 0);
    s->fixed = true;
    if (token.len >= 3 && gpt_seams_wide(p)) {
        add_bit(s, 0, gpt_seams_char(p));
    } else {
        s->fixed_byte[p[0]] |= BEFORE;
        s->fixed_wide |= p[0] >= 0xE0 ? BEFORE : 0;
    }
    if (token.len >= 3 && gpt_seams_wide(end - 3)) {
        add_bit(s, gpt_seams_char(end - 3), 0);
    } else {
        s->fixed_byte[end[-1]] |= AFTER;
        s->fixed_wide |= token.len < 3 && end[-1] >= 0x80 ? AFTER : 0;
    }
}

/* True when a fixed token may end or begin at p. */
static bool is_fixed(const struct gpt_seams *s, const uint8_t *p,
                     bool wide_left, bool wide_right)
{
    return (wide_left ? s->fixed_wide & AFTER ||
                            gpt_seams_span(s, gpt_seams_char(p - 3), 0)
                      : s->fixed_byte[p[-1]] & AFTER) ||
           (wide_right ? s->fixed_wide & BEFORE ||
                             gpt_seams_span(s, 0, gpt_seams_char(p))
                       : s->fixed_byte[p[0]] & BEFORE);
}

/* ---- where a piece may be cut ---- */

/* The spans are asked only between whole characters of three bytes, or after
 * ASCII; any other place is settled by the two bytes that meet. */
bool gpt_seams_cut(const struct gpt_seams *s, const char *text, size_t len,
                   size_t at)
{
    assert(at > 0 && at < len);
    const uint8_t *p = (const uint8_t *)text + at;
    bool left = at >= 3 && gpt_seams_wide(p - 3);
    bool right = len - at >= 3 && gpt_seams_wide(p);

    if (s->fixed && is_fixed(s, p, left, right))
        return false;
    if (right && (left || p[-1] < 0x80))
        return gpt_seams_before(s, p);
    return !gpt_seams_joined(s, p[-1], p[0]);
}

uint64_t gpt_seams_of(const struct gpt_seams *s, const char *piece, size_t len)
{
    const uint8_t *p = (const uint8_t *)piece;
    uint64_t apart = 0, wide = 0;

    assert(len > 0);
    size_t n = len - 1 < 64 ? len - 1 : 64;

    for (size_t i = 0; i < n; i++) {
        apart |= (uint64_t)!gpt_seams_joined(s, p[i], p[i + 1]) << i;
        wide |= (uint64_t)((p[i + 1] & 0xF0) == 0xE0) << i;
    }
    /* what the two bytes that meet do not settle */
    uint64_t cuts = s->fixed ? 0 : apart;
    uint64_t left = s->fixed ? apart | wide : wide & ~apart;
    for (; left; left &= left - 1) {
        size_t i = (size_t)__builtin_ctzll(left);

        cuts |= (uint64_t)gpt_seams_cut(s, piece, len, i + 1) << i;
    }
    return cuts;
}
