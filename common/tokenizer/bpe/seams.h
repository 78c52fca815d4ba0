/* Where a piece of text may be cut and the parts merged apart: between bytes
 * that no token of the vocabulary holds in a row, for then no merge can cross.
 * Between characters of three bytes, of which most of Chinese and Japanese are
 * made, the characters decide and not the two bytes that meet. Start at
 * gpt_seams_of(). */
#ifndef GPT_TOKENIZER_BPE_SEAMS_H
#define GPT_TOKENIZER_BPE_SEAMS_H

#include "tokenizer/vocab.h"

struct gpt_seams {
    uint64_t joined[65536 / 64]; /* a token holds these two bytes in a row */
    uint64_t *spans; /* a bit for each hash of what some token holds of two
                      * characters of three bytes in a row */
    unsigned shift;  /* a hash's high bits are its place */
    int64_t n_words; /* tokens that hold some of two such characters */
    bool fixed;      /* some tokens must not become parts: a piece is not cut
                      * before and after these bytes, nor beside a character
                      * that is in `spans` alone */
    uint8_t fixed_byte[256], fixed_wide;
};

enum { GPT_SEAMS_ANY = 1 }; /* in place of a character of a span */

/* From all tokens of a vocabulary, which is not needed afterwards. */
int gpt_seams_open(struct gpt_seams *s, const struct gpt_vocab *v,
                   struct gpt_err *err) GPT_MUST_USE;
void gpt_seams_close(struct gpt_seams *s);

/* Keeps a token from becoming a part of a longer piece: for tokens that only a
 * whole piece may be. Their inside is never cut, as the token itself holds the
 * bytes there in a row. */
void gpt_seams_fix(struct gpt_seams *s, struct gpt_str token);

/* Where piece[0..len) may be cut within its first 64 bytes: bit i is set if it
 * may be cut after byte i, i + 1 < len. */
uint64_t gpt_seams_of(const struct gpt_seams *s, const char *piece,
                      size_t len);

/* The same between text[at - 1] and text[at], 0 < at < len. */
bool gpt_seams_cut(const struct gpt_seams *s, const char *text, size_t len,
                   size_t at);

static inline bool gpt_seams_joined(const struct gpt_seams *s, uint8_t left,
                                    uint8_t right)
{
    unsigned pair = (unsigned)left << 8 | right;

    return s->joined[pair / 64] >> pair % 64 & 1;
}

/* The first three bytes are a lead byte and two of those that follow one. */
static inline bool gpt_seams_wide(const uint8_t *p)
{
    return (p[0] & 0xF0) == 0xE0 && (p[1] & 0xC0) == 0x80 &&
           (p[2] & 0xC0) == 0x80;
}

/* A character of three bytes as one number. */
static inline uint32_t gpt_seams_char(const uint8_t *p)
{
    return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static inline uint64_t gpt_seams_hash(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << 24 | right) * 0x9E3779B97F4A7C15u;
}

/* 0 or 1, as callers take several together without a branch. */
static inline uint64_t gpt_seams_span(const struct gpt_seams *s, uint32_t left,
                                      uint32_t right)
{
    uint64_t bit = gpt_seams_hash(left, right) >> s->shift;

    return s->spans[bit / 64] >> bit % 64 & 1;
}

/* True when some token holds the end of this character and the beginning of any
 * other of three bytes; for the second function, the beginning of this one and
 * the end of any other. */
static inline bool gpt_seams_left(const struct gpt_seams *s, uint32_t left)
{
    return gpt_seams_span(s, left, GPT_SEAMS_ANY) |
           gpt_seams_span(s, left & 0xFFFF, GPT_SEAMS_ANY);
}

static inline bool gpt_seams_right(const struct gpt_seams *s, uint32_t right)
{
    return gpt_seams_span(s, GPT_SEAMS_ANY, right) |
           gpt_seams_span(s, GPT_SEAMS_ANY, right & 0xFFFF00);
}

/* True when a text may be cut before the character of three bytes at p: no
 * token holds the end of the character before it, which has three bytes or is
 * ASCII, and its beginning. A token may hold two or three bytes of either; one
 * that holds a single byte is entered as if it held two. Not for vocabularies
 * with fixed tokens. */
static inline bool gpt_seams_before(const struct gpt_seams *s,
                                    const uint8_t *p)
{
    if (!gpt_seams_joined(s, p[-1], p[0]))
        return true;
    uint32_t right = gpt_seams_char(p), begin = right & 0xFFFF00;
    if (p[-1] < 0x80)
        return !(gpt_seams_span(s, p[-1], right) |
                 gpt_seams_span(s, p[-1], begin));
    uint32_t left = gpt_seams_char(p - 3), end = left & 0xFFFF;
    return !(gpt_seams_span(s, left, right) | gpt_seams_span(s, left, begin) |
             gpt_seams_span(s, end, right) | gpt_seams_span(s, end, begin));
}

#endif
