/* The cursor of json_scan.h. Every step keeps it at or before `end`: no byte is
 * read before gpt_scan_at() or a comparison with s->end says that it is there.
 * Start at gpt_scan_skip() for the grammar, at take_string() for the speed.
 *
 * Nearly all bytes of a corpus are inside strings, and nearly all of these are
 * plain: they stand for themselves. So a string is taken in runs of plain
 * bytes, 32 at a time where there are vectors, copied and checked in the same
 * step (or all of it in blocks, json_blocks.h). Between runs comes one thing
 * that is not plain: an escape, characters beyond ASCII, the closing quote, or
 * an error. UTF-8 is checked on the way, because a second pass over a terabyte
 * would be one too many. */
#include "text/json_scan.h"

#include "base/utf8.h"
#include "text/json_blocks.h"

#include <assert.h>
#include <string.h>

size_t gpt_scan_column(const struct gpt_scan *s)
{
    return (size_t)(s->p - s->begin) + 1;
}

/* The kind follows from the byte that is there: a NUL or another control
 * character comes from a damaged file and is named as such, whatever was
 * expected. */
int gpt_scan_unexpected(struct gpt_scan *s, const char *want)
{
    if (s->p == s->end) {
        s->bad = GPT_BAD_TRUNCATED;
        return gpt_fail(s->err, GPT_EDATA,
                        "truncated: ends at byte %zu, before %s",
                        gpt_scan_column(s) - 1, want);
    }
    uint8_t c = *s->p;
    if (c == 0) {
        s->bad = GPT_BAD_NUL;
        return gpt_fail(s->err, GPT_EDATA, "NUL byte at byte %zu",
                        gpt_scan_column(s));
    }
    if (c < 0x20) {
        s->bad = GPT_BAD_CONTROL;
        return gpt_fail(s->err, GPT_EDATA,
                        "raw control character 0x%02x at byte %zu", c,
                        gpt_scan_column(s));
    }
    s->bad = GPT_BAD_SYNTAX;
    if (c >= 0x7F)
        return gpt_fail(s->err, GPT_EDATA,
                        "not JSON: 0x%02x at byte %zu, where %s was expected",
                        c, gpt_scan_column(s), want);
    return gpt_fail(s->err, GPT_EDATA,
                    "not JSON: '%c' at byte %zu, where %s was expected", c,
                    gpt_scan_column(s), want);
}

void gpt_scan_space(struct gpt_scan *s)
{
    while (s->p < s->end &&
           (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n'))
        s->p++;
}

int gpt_scan_expect(struct gpt_scan *s, char c, const char *want)
{
    gpt_scan_space(s);
    if (!gpt_scan_at(s, c))
        return gpt_scan_unexpected(s, want);
    s->p++;
    return GPT_OK;
}

bool gpt_scan_more(struct gpt_scan *s)
{
    gpt_scan_space(s);
    if (!gpt_scan_at(s, ','))
        return false;
    s->p++;
    gpt_scan_space(s);
    return true;
}

/* ---- strings ---- */

/* True for a byte that stands for itself: not '"', not '\\', not below 0x20 and
 * not above 0x7F. */
static inline bool is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

#ifdef __SSE2__
#include <emmintrin.h>

enum { STEP = 32 };

/* Sets 0x80 in each byte of v that is not plain. Bytes beyond ASCII have that
 * bit, so v itself is one of the terms. */
static inline __m128i not_plain(__m128i v)
{
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1F)), v);
    __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"'));
    __m128i back = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));

    return _mm_or_si128(_mm_or_si128(v, control), _mm_or_si128(quote, back));
}

/* Copies p[0..STEP) to out, unless that is NULL, and returns a bit for each
 * byte that is not plain. What is copied beyond the first of these is
 * overwritten. */
static inline unsigned copy_step(const uint8_t *p, char *out)
{
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + 16));

    if (out) {
        _mm_storeu_si128((__m128i *)(void *)out, a);
        _mm_storeu_si128((__m128i *)(void *)(out + 16), b);
    }
    return (unsigned)_mm_movemask_epi8(not_plain(a)) |
           (unsigned)_mm_movemask_epi8(not_plain(b)) << 16;
}
#else
enum { STEP = 1 };

static inline unsigned copy_step(const uint8_t *p, char *out)
{
    if (out)
        *out = (char)*p;
    return !is_plain(*p);
}
#endif

/* Copies the plain bytes that p[0..n) begins with to out, which is NULL or has
 * room for STEP bytes more; returns their number. */
static inline size_t plain_run(const uint8_t *p, size_t n, char *out)
{
    size_t i = 0;

    for (; n - i >= STEP; i += STEP) {
        unsigned others = copy_step(p + i, out ? out + i : NULL);

        if (others)
            return i + (unsigned)__builtin_ctz(others);
    }
    for (; i < n && is_plain(p[i]); i++)
        if (out)
            out[i] = (char)p[i];
    return i;
}

/* The escape \uXXXX at p, already checked; *used is its length. A high
 * surrogate takes the low one after it along; half a pair is U+FFFD. */
static uint32_t code_point(const uint8_t *p, const uint8_t *end, size_t *used)
{
    assert(end - p >= 6);
    uint32_t high = (uint32_t)gpt_json_hex4(p + 2);

    *used = 6;
    if (high - 0xD800 >= 0x800)
        return high;
    if (high < 0xDC00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u') {
        /* what is no hexadecimal becomes a number that is no half */
        uint32_t low = (uint32_t)gpt_json_hex4(p + 8);

        if (low - 0xDC00 < 0x400) {
            *used = 12;
            return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return 0xFFFD;
}

/* Takes the escapes in a row under the cursor that are not those of a letter.
 * The cursor moves past them; *out, if there is one, past what they stand for.
 * That is never longer: six bytes of \uXXXX make three at most, twelve make
 * four. */
static int take_escapes(struct gpt_scan *s, char **out)
{
    const uint8_t *begin = s->p;

    while (s->end - s->p >= 6 && s->p[0] == '\\' && s->p[1] == 'u' &&
           gpt_json_hex4(s->p + 2) >= 0) {
        size_t used;
        uint32_t cp = code_point(s->p, s->end, &used);

        if (*out)
            *out += gpt_utf8_encode(cp, *out);
        s->p += used;
    }
    if (s->p > begin)
        return GPT_OK;
    if (s->end - s->p < 2 || (s->p[1] == 'u' && s->end - s->p < 6)) {
        s->p = s->end; /* the text is truncated, and that is at its end */
        return gpt_scan_unexpected(s, "the end of an escape");
    }
    s->bad = GPT_BAD_SYNTAX;
    return gpt_fail(s->err, GPT_EDATA, "not JSON: bad escape at byte %zu",
                    gpt_scan_column(s));
}

/* Takes characters of three bytes under the cursor, as most of Chinese and
 * Japanese are: one load and one mask check the pattern of all three. It stops
 * at lead bytes E0 and ED, after which not every second byte is right: overlong
 * forms and surrogates are left to gpt_utf8_decode(). */
static void take_threes(struct gpt_scan *s, char **out)
{
    const uint8_t *p = s->p;
    char *to = *out;

    /* b holds the three bytes and the one after them, lowest first */
    for (uint32_t b; s->end - p >= (ptrdiff_t)sizeof(b); p += 3) {
        memcpy(&b, p, sizeof(b));
        if ((b & 0xC0C0F0) != 0x8080E0 || (b & 15) == 0 || (b & 15) == 13)
            break;
        if (to) {
            memcpy(to, &b, sizeof(b)); /* the fourth is overwritten */
            to += 3;
        }
    }
    s->p = p;
    *out = to;
}

/* Takes all characters beyond ASCII that are in a row under the cursor. */
static int take_wide(struct gpt_scan *s, char **out)
{
    take_threes(s, out);
    while (s->p < s->end && *s->p >= 0x80) {
        uint32_t cp;
        int n = gpt_utf8_decode(s->p, (size_t)(s->end - s->p), &cp);

        if (n == 0) {
            s->bad = GPT_BAD_UTF8;
            return gpt_fail(s->err, GPT_EDATA,
                            "invalid UTF-8: 0x%02x at byte %zu", *s->p,
                            gpt_scan_column(s));
        }
        if (*out) {
            memcpy(*out, s->p, (size_t)n);
            *out += n;
        }
        s->p += n;
    }
    return GPT_OK;
}

/* Takes what is neither plain nor a letter's escape nor the end of a string. */
static int take_other(struct gpt_scan *s, char **out, bool *escaped)
{
    if (*s->p >= 0x80)
        return take_wide(s, out);
    if (*s->p != '\\')
        return gpt_scan_unexpected(s, "a character");
    *escaped = true;
    return take_escapes(s, out);
}

/* Passes over the string under the cursor, and writes its meaning to out unless
 * that is NULL; *len is its length. The letters' escapes are handled in this
 * loop, because \n and \" are frequent; everything rarer is a call. */
static inline int take_string(struct gpt_scan *s, char *out, bool *escaped,
                              size_t *len)
{
    const uint8_t *p = s->p + 1, *end = s->end;
    char *begin = out;

    assert(gpt_scan_at(s, '"'));
    *escaped = false;
    for (;;) {
        size_t n = plain_run(p, (size_t)(end - p), out);

        p += n;
        out = out ? out + n : NULL;
        if (end - p >= 2 && *p == '\\' && gpt_json_escapes[p[1]]) {
            *escaped = true;
            if (out)
                *out++ = gpt_json_escapes[p[1]];
            p += 2;
            continue;
        }
        s->p = p;
        if (p == end)
            return gpt_scan_unexpected(s, "the end of a string");
        if (*p == '"')
            break;
        char *to = out;
        GPT_TRY(take_other(s, &to, escaped));
        out = to;
        p = s->p;
    }
    s->p++; /* the closing quote */
    *len = (size_t)(out - begin);
    return GPT_OK;
}

/* Takes a string whose opening quote is under the cursor: its raw inside,
 * checked, and whether that holds escapes. */
static int scan_string(struct gpt_scan *s, struct gpt_str *raw, bool *escaped)
{
    size_t none;

    raw->data = (const char *)s->p + 1;
    GPT_TRY(take_string(s, NULL, escaped, &none));
    raw->len = (size_t)((const char *)s->p - 1 - raw->data);
    return GPT_OK;
}

/* The same in blocks, but for a first step: many strings of lists end in it. */
static int take_text(struct gpt_scan *s, char *out, size_t *len)
{
    char *begin = out;
    bool escaped;

    s->p++;
    if (s->end - s->p >= STEP) {
        size_t n = plain_run(s->p, STEP, out);

        s->p += n;
        out += n;
    }
    while (!gpt_scan_at(s, '"')) {
        s->p = s->blocks(s->p, s->end, &out);
        if (s->p == s->end)
            return gpt_scan_unexpected(s, "the end of a string");
        if (*s->p != '"')
            GPT_TRY(take_other(s, &out, &escaped));
    }
    s->p++; /* the closing quote */
    *len = (size_t)(out - begin);
    return GPT_OK;
}

int gpt_scan_text(struct gpt_scan *s, char *out, size_t *len)
{
    bool escaped;

    return s->blocks ? take_text(s, out, len)
                     : take_string(s, out, &escaped, len);
}

/* ---- other values ---- */

/* Passes over a word; the cursor stops at the first byte that differs, which is
 * the one that is reported. */
static int scan_word(struct gpt_scan *s, const char *word)
{
    for (; *word; word++, s->p++)
        if (!gpt_scan_at(s, *word))
            return gpt_scan_unexpected(s, "a value");
    return GPT_OK;
}

static int scan_digits(struct gpt_scan *s)
{
    if (s->p == s->end || *s->p < '0' || *s->p > '9')
        return gpt_scan_unexpected(s, "a digit");
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return GPT_OK;
}

/* As RFC 8259 has it: no leading zeros, no plus, digits on both sides of the
 * point. */
static int scan_number(struct gpt_scan *s)
{
    if (gpt_scan_at(s, '-'))
        s->p++;
    if (gpt_scan_at(s, 'I'))
        return scan_word(s, "Infinity");
    if (gpt_scan_at(s, '0'))
        s->p++;
    else
        GPT_TRY(scan_digits(s));
    if (gpt_scan_at(s, '.')) {
        s->p++;
        GPT_TRY(scan_digits(s));
    }
    if (gpt_scan_at(s, 'e') || gpt_scan_at(s, 'E')) {
        s->p++;
        if (gpt_scan_at(s, '+') || gpt_scan_at(s, '-'))
            s->p++;
        GPT_TRY(scan_digits(s));
    }
    return GPT_OK;
}

int gpt_scan_key(struct gpt_scan *s, struct gpt_str *raw, bool *escaped)
{
    gpt_scan_space(s);
    if (!gpt_scan_at(s, '"'))
        return gpt_scan_unexpected(s, "a key");
    GPT_TRY(scan_string(s, raw, escaped));
    return gpt_scan_expect(s, ':', "':'");
}

/* Enters the container under the cursor: a bit of the stack says which kind. */
static int open_container(struct gpt_scan *s, bool object)
{
    if (s->depth == GPT_JSON_MAX_DEPTH) {
        s->bad = GPT_BAD_SYNTAX;
        return gpt_fail(s->err, GPT_EDATA,
                        "not JSON: deeper than %d levels at byte %zu",
                        GPT_JSON_MAX_DEPTH, gpt_scan_column(s));
    }
    /* the bit may be left over from a container that has ended: write it anew
     */
    uint64_t bit = (uint64_t)1 << s->depth % 64;
    uint64_t *word = &s->stack[s->depth++ / 64];
    *word = object ? *word | bit : *word & ~bit;
    s->p++;
    return GPT_OK;
}

static bool in_object(const struct gpt_scan *s)
{
    assert(s->depth > 0 && s->depth <= GPT_JSON_MAX_DEPTH);
    return s->stack[(s->depth - 1) / 64] >> (s->depth - 1) % 64 & 1;
}

/* Passes over a number, a word or a string. NaN and Infinity are Python's. */
static int skip_scalar(struct gpt_scan *s)
{
    struct gpt_str raw;
    bool escaped;

    switch (s->p < s->end ? *s->p : 0) {
    case '"':
        return scan_string(s, &raw, &escaped);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case 'N':
        return scan_word(s, "NaN");
    case 'I':
        return scan_word(s, "Infinity");
    case '-':
        return scan_number(s);
    default:
        if (s->p < s->end && *s->p >= '0' && *s->p <= '9')
            return scan_number(s);
        return gpt_scan_unexpected(s, "a value");
    }
}

/* After a value: leaves the containers that end here, and stops before the
 * next value, or at depth 0. */
static int skip_to_next(struct gpt_scan *s)
{
    struct gpt_str raw;
    bool escaped;

    while (s->depth) {
        gpt_scan_space(s);
        bool object = in_object(s);
        if (gpt_scan_at(s, object ? '}' : ']')) {
            s->p++;
            s->depth--;
        } else if (gpt_scan_at(s, ',')) {
            s->p++;
            return object ? gpt_scan_key(s, &raw, &escaped) : GPT_OK;
        } else {
            return gpt_scan_unexpected(s, object ? "',' or '}'" : "',' or ']'");
        }
    }
    return GPT_OK;
}

/* The stack of bits takes the place of recursion, so that a line of a million
 * '[' is an error and not a crash. */
int gpt_scan_skip(struct gpt_scan *s)
{
    struct gpt_str raw;
    bool escaped;

    s->depth = 0;
    do { /* once a value, with the cursor before it */
        gpt_scan_space(s);
        bool object = gpt_scan_at(s, '{');
        if (!object && !gpt_scan_at(s, '[')) {
            GPT_TRY(skip_scalar(s));
            GPT_TRY(skip_to_next(s));
            continue;
        }
        GPT_TRY(open_container(s, object));
        gpt_scan_space(s);
        if (gpt_scan_at(s, object ? '}' : ']'))
            GPT_TRY(skip_to_next(s));
        else if (object)
            GPT_TRY(gpt_scan_key(s, &raw, &escaped));
    } while (s->depth);
    return GPT_OK;
}

int gpt_scan_items(struct gpt_scan *s, char open, const char *want,
                   gpt_scan_item *item, void *context)
{
    const char close = open == '{' ? '}' : ']';

    GPT_TRY(gpt_scan_expect(s, open, want));
    gpt_scan_space(s);
    if (!gpt_scan_at(s, close))
        do
            GPT_TRY(item(context));
        while (gpt_scan_more(s));
    return gpt_scan_expect(s, close,
                           close == '}' ? "',' or '}'" : "',' or ']'");
}

int gpt_scan_end(struct gpt_scan *s, const char *want)
{
    gpt_scan_space(s);
    return s->p == s->end ? GPT_OK : gpt_scan_unexpected(s, want);
}
