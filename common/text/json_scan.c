/* The cursor of json_scan.h. Every step keeps it at or before `end`;
 * gpt_scan_at() and s->end are asked before each byte that is looked at. */
#include "text/json_scan.h"

#include "text/unicode.h"

#include <string.h>

size_t gpt_scan_column(const struct gpt_scan *s)
{
    return (size_t)(s->p - s->begin) + 1;
}

int gpt_scan_unexpected(struct gpt_scan *s, const char *want)
{
    if (s->p == s->end) {
        s->bad = GPT_BAD_TRUNCATED;
        return gpt_fail(s->err, GPT_EDATA,
                        "truncated: the line ends at byte %zu, before %s",
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

/* Nonzero when a byte of w is '"', '\\', below 0x20 or above 0x7F. */
static uint64_t special_bytes(uint64_t w)
{
    const uint64_t ones = 0x0101010101010101u, high = ones << 7;
    uint64_t quote = w ^ ones * '"', back = w ^ ones * '\\';
    return ((w - ones * 0x20) | (quote - ones) | (back - ones) | w) & high;
}

static void skip_plain(struct gpt_scan *s)
{
    uint64_t w;
    for (; s->end - s->p >= 8; s->p += 8) {
        memcpy(&w, s->p, 8);
        if (special_bytes(w))
            break;
    }
    while (s->p < s->end && *s->p >= 0x20 && *s->p < 0x80 && *s->p != '"' &&
           *s->p != '\\')
        s->p++;
}

int gpt_scan_hex4(const uint8_t *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i] | 32;
        int digit = p[i] >= '0' && p[i] <= '9' ? p[i] - '0'
                    : c >= 'a' && c <= 'f'     ? c - 'a' + 10
                                               : -1;
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

static int skip_escape(struct gpt_scan *s)
{
    ptrdiff_t left = s->end - s->p;
    if (left < 2 || (s->p[1] == 'u' && left < 6)) {
        s->p = s->end;
        return gpt_scan_unexpected(s, "the end of an escape");
    }
    if (s->p[1] == 'u' && gpt_scan_hex4(s->p + 2) >= 0) {
        s->p += 6;
        return GPT_OK;
    }
    if (s->p[1] != 'u' && s->p[1] && strchr("\"\\/bfnrt", s->p[1])) {
        s->p += 2;
        return GPT_OK;
    }
    s->bad = GPT_BAD_SYNTAX;
    return gpt_fail(s->err, GPT_EDATA, "not JSON: bad escape at byte %zu",
                    gpt_scan_column(s));
}

int gpt_scan_string(struct gpt_scan *s, struct gpt_slice *raw,
                       bool *escaped)
{
    const uint8_t *start = ++s->p;
    *escaped = false;
    for (;;) {
        skip_plain(s);
        if (s->p == s->end)
            return gpt_scan_unexpected(s, "the end of a string");
        if (*s->p == '"') {
            raw->data = (const char *)start;
            raw->len = (size_t)(s->p++ - start);
            return GPT_OK;
        }
        if (*s->p == '\\') {
            *escaped = true;
            GPT_TRY(skip_escape(s));
        } else if (*s->p < 0x80) {
            return gpt_scan_unexpected(s, "a character");
        } else {
            uint32_t cp;
            int n = gpt_utf8_decode(s->p, (size_t)(s->end - s->p), &cp);
            if (n == 0) {
                s->bad = GPT_BAD_UTF8;
                return gpt_fail(s->err, GPT_EDATA,
                                "invalid UTF-8: 0x%02x at byte %zu", *s->p,
                                gpt_scan_column(s));
            }
            s->p += n;
        }
    }
}

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

int gpt_scan_key(struct gpt_scan *s, struct gpt_slice *raw, bool *escaped)
{
    gpt_scan_space(s);
    if (!gpt_scan_at(s, '"'))
        return gpt_scan_unexpected(s, "a key");
    GPT_TRY(gpt_scan_string(s, raw, escaped));
    return gpt_scan_expect(s, ':', "':'");
}

static int push(struct gpt_scan *s, bool object)
{
    if (s->depth == GPT_JSONL_MAX_DEPTH) {
        s->bad = GPT_BAD_SYNTAX;
        return gpt_fail(s->err, GPT_EDATA,
                        "not JSON: deeper than %d levels at byte %zu",
                        GPT_JSONL_MAX_DEPTH, gpt_scan_column(s));
    }
    uint64_t bit = (uint64_t)1 << s->depth % 64;
    uint64_t *word = &s->stack[s->depth++ / 64];
    *word = object ? *word | bit : *word & ~bit;
    s->p++;
    return GPT_OK;
}

static bool in_object(const struct gpt_scan *s)
{
    return s->stack[(s->depth - 1) / 64] >> (s->depth - 1) % 64 & 1;
}

/* A number, a word or a string. */
static int skip_scalar(struct gpt_scan *s)
{
    struct gpt_slice raw;
    bool escaped;
    switch (s->p < s->end ? *s->p : 0) {
    case '"':
        return gpt_scan_string(s, &raw, &escaped);
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
    struct gpt_slice raw;
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

int gpt_scan_skip(struct gpt_scan *s)
{
    struct gpt_slice raw;
    bool escaped;
    s->depth = 0;
    do {
        gpt_scan_space(s);
        bool object = gpt_scan_at(s, '{');
        if (!object && !gpt_scan_at(s, '[')) {
            GPT_TRY(skip_scalar(s));
            GPT_TRY(skip_to_next(s));
            continue;
        }
        GPT_TRY(push(s, object));
        gpt_scan_space(s);
        if (gpt_scan_at(s, object ? '}' : ']'))
            GPT_TRY(skip_to_next(s));
        else if (object)
            GPT_TRY(gpt_scan_key(s, &raw, &escaped));
    } while (s->depth);
    return GPT_OK;
}

