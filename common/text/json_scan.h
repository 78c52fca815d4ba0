/* A cursor over one JSON text in memory, for readers of texts so large that a
 * tree of them (base/json.h) would cost too much: strings are taken where they
 * are, and values that are not wanted are checked and passed over. No
 * recursion, no allocation. Start at gpt_scan_skip(). */
#ifndef GPT_TEXT_JSON_SCAN_H
#define GPT_TEXT_JSON_SCAN_H

#include "base/status.h"
#include "text/json_blocks.h"
#include "text/str.h"

enum { GPT_JSON_MAX_DEPTH = 1024 }; /* of arrays and objects */

/* Why a JSON text is refused; the word begins the message, or is in it. The
 * scanner finds the kinds from SYNTAX to NUL, and jsonl.h, which wants fields,
 * the others. */
#define GPT_JSON_BAD_LIST(X)                                                   \
    X(GPT_BAD_BLANK, "blank line")                                             \
    X(GPT_BAD_SYNTAX, "not JSON")                                              \
    X(GPT_BAD_TRUNCATED, "truncated")                                          \
    X(GPT_BAD_UTF8, "invalid UTF-8")                                           \
    X(GPT_BAD_CONTROL, "raw control character")                                \
    X(GPT_BAD_NUL, "NUL byte")                                                 \
    X(GPT_BAD_NO_FIELD, "no field")                                            \
    X(GPT_BAD_TYPE, "not a string")

enum gpt_json_bad {
#define X(name, word) name,
    GPT_JSON_BAD_LIST(X)
#undef X
    GPT_JSON_BADS
};

struct gpt_scan {
    const uint8_t *begin, *p, *end; /* begin <= p <= end */
    struct gpt_err *err;
    enum gpt_json_bad bad; /* the kind of a failure */
    uint64_t stack[GPT_JSON_MAX_DEPTH / 64]; /* a bit a level: 1 = object */
    size_t depth;
    gpt_json_blocks_fn *blocks; /* for gpt_scan_text(); NULL: without */
};

/* Over all of a text; NULL is an empty one. */
static inline struct gpt_scan gpt_scan_of(struct gpt_str text,
                                          struct gpt_err *err)
{
    const uint8_t *p = (const uint8_t *)(text.data ? text.data : "");

    return (struct gpt_scan){.begin = p, .p = p, .end = p + text.len,
                             .err = err, .blocks = gpt_json_blocks()};
}

static inline bool gpt_scan_at(const struct gpt_scan *s, char c)
{
    return s->p < s->end && *s->p == (uint8_t)c;
}

/* The place of the byte under the cursor, counted from 1. */
size_t gpt_scan_column(const struct gpt_scan *s);
/* Reports the byte under the cursor, or the end, where `want` should be.
 * Returns GPT_EDATA. */
int gpt_scan_unexpected(struct gpt_scan *s, const char *want);

void gpt_scan_space(struct gpt_scan *s);
/* Passes over white space and c. */
int gpt_scan_expect(struct gpt_scan *s, char c, const char *want)
    GPT_MUST_USE;
/* Passes over white space, a comma and white space; false when no comma
 * follows. */
bool gpt_scan_more(struct gpt_scan *s);
/* Takes a string whose opening quote is under the cursor and writes its
 * meaning to out, which has room for what is left of the text and
 * GPT_SCAN_SLACK bytes; *len is its length. */
enum { GPT_SCAN_SLACK = 64 };
int gpt_scan_text(struct gpt_scan *s, char *out, size_t *len) GPT_MUST_USE;
/* Takes a key and its colon. */
int gpt_scan_key(struct gpt_scan *s, struct gpt_str *raw, bool *escaped)
    GPT_MUST_USE;
/* Passes over any value, which is checked. */
int gpt_scan_skip(struct gpt_scan *s) GPT_MUST_USE;
/* Passes over white space and a list or an object, which begins with `open`,
 * '[' or '{', and is `want` in a message. item() takes each of its values, or
 * each key and value: the cursor is on it, and then after it. */
typedef int gpt_scan_item(void *context);
int gpt_scan_items(struct gpt_scan *s, char open, const char *want,
                   gpt_scan_item *item, void *context) GPT_MUST_USE;
/* Passes over white space, after which the text ends. */
int gpt_scan_end(struct gpt_scan *s, const char *want) GPT_MUST_USE;

#endif
