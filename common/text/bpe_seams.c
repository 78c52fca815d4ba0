/* The tables of bpe_seams.h. The spans are a set of hashes without the keys:
 * what is in it by chance is not cut, which costs time and changes nothing.
 * Start at gpt_seams_open(). */
#include "text/bpe_seams.h"

#include "base/memory.h"

enum { LEAST_BITS = 15, MOST_BITS = 21, BITS_A_TOKEN = 8 };

/* What a token holds around a place in it: up to three bytes on either side, as
 * the end of one number and the beginning of the other. */
struct span {
    uint32_t left, right;
    unsigned n_left, n_right;
};

/* False when these are not parts of two characters of three bytes. */
static bool span_at(const uint8_t *token, size_t len, size_t at,
                    struct span *span)
{
    uint8_t p[6] = {0xE0, 0x80, 0x80, 0xE0, 0x80, 0x80};
    span->n_left = at < 3 ? (unsigned)at : 3;
    span->n_right = len - at < 3 ? (unsigned)(len - at) : 3;
    for (unsigned i = 0; i < span->n_left + span->n_right; i++)
        p[3 - span->n_left + i] = token[at - span->n_left + i];
    span->left = gpt_seams_char(p) & 0xFFFFFFu >> (24 - 8 * span->n_left);
    span->right = gpt_seams_char(p + 3) & ~(0xFFFFFFu >> 8 * span->n_right);
    return gpt_seams_wide(p) && gpt_seams_wide(p + 3);
}

static uint64_t *span_word(const struct gpt_seams *s, uint32_t left,
                           uint32_t right, uint64_t *bit)
{
    uint64_t at = gpt_seams_hash(left, right) >> s->shift;
    *bit = (uint64_t)1 << at % 64;
    return &s->spans[at / 64];
}

/* One byte of a character is remembered as any two. */
static void add_span(struct gpt_seams *s, const struct span *span)
{
    const uint32_t n_left = span->n_left == 1 ? 0x40 : 1;
    const uint32_t n_right = span->n_right == 1 ? 0x40 : 1;
    for (uint32_t i = 0; i < n_left * n_right; i++) {
        uint64_t bit, *word = span_word(
            s, span->left | (n_left > 1 ? (0x80 | i % 0x40) << 8 : 0),
            span->right | (n_right > 1 ? (0x80 | i / n_left) << 8 : 0), &bit);
        *word |= bit;
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

/* Whether a piece may be cut before its byte i. */
static bool seam_at(const struct gpt_seams *s, const uint8_t *p, size_t len,
                    size_t i)
{
    if (i >= 3 && len - i >= 3 && gpt_seams_wide(p + i) &&
        gpt_seams_wide(p + i - 3))
        return gpt_seams_between(s, p + i);
    return !gpt_seams_joined(s, p[i - 1], p[i]);
}

uint64_t gpt_seams_of(const struct gpt_seams *s, const char *piece, size_t len)
{
    const uint8_t *p = (const uint8_t *)piece;
    uint64_t cuts = 0;
    size_t n = len - 1 < 64 ? len - 1 : 64;
    for (size_t i = 0; i < n; i++)
        cuts |= (uint64_t)seam_at(s, p, len, i + 1) << i;
    return cuts;
}
