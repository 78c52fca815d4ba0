/* Scanning the header of safetensors: a scanner for exactly this shape of JSON,
 * an object of objects, without a tree and without recursion. Start at
 * scan_header().
 *
 * A general parser would build a tree many times as large as the header,
 * recurse as deep as a hostile file says, and round integers above 2^53, which
 * offsets may be. This scanner keeps the names, refuses every other shape, and
 * reports the byte at which a header is wrong. */
#include "checkpoint/safetensors/internal.h"

#include "base/num.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TENSORS = 1000000 };

/* A place in the header. The text between p and end has not been looked at;
 * everything before p was accepted. Functions that fail leave p at the byte
 * that is wrong. */
struct scan {
    const char *base, *p, *end;
    const char *what;
    struct gpt_arena *arena;
    struct gpt_err *err;
};

/* Messages count bytes of the file, in which eight bytes of length precede the
 * header. */
static long long offset_of(const struct scan *s, const char *p)
{
    return 8 + (long long)(p - s->base);
}

#define BAD(s, at, ...) bad_at((s), (at), __VA_ARGS__)

static int GPT_PRINTF(3, 4)
bad_at(const struct scan *s, const char *at, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return gpt_fail(s->err, GPT_EDATA, "%s: byte %lld: %s", s->what,
                    offset_of(s, at), text);
}

/* The four characters that JSON calls white space, and no other. */
static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' ||
                             *s->p == '\t'))
        s->p++;
}

/* The next character that is not white space, '\0' at the end. A NUL in the
 * text looks like the end here; scan_header() tells the two apart by comparing
 * p with end. */
static char peek_char(struct scan *s)
{
    skip_space(s);
    return s->p < s->end ? *s->p : '\0';
}

static int expect_char(struct scan *s, char c)
{
    if (peek_char(s) != c)
        return BAD(s, s->p, "expected '%c' in the header", c);
    s->p++;
    return GPT_OK;
}

/* After a member: *again is true when a comma says that another one follows. A
 * comma before the closing bracket then fails in the next member, as JSON has
 * no trailing commas. */
static int scan_comma(struct scan *s, char close, bool *again)
{
    char c = peek_char(s);

    if (c != ',' && c != close)
        return BAD(s, s->p, "expected ',' or '%c' in the header", close);
    s->p++;
    *again = c == ',';
    return GPT_OK;
}

static int hex4(struct scan *s, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        char c = s->p < s->end ? *s->p : '\0';
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return BAD(s, s->p, "bad \\u escape");
        *code = *code << 4 | (uint32_t)digit;
    }
    return GPT_OK;
}

/* Reads one escape; s->p is after the backslash. Writes at most as many bytes
 * as it reads: six characters become at most three bytes of UTF-8, a pair of
 * twelve becomes four. */
static int unescape(struct scan *s, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = s->p < s->end ? *s->p++ : '\0';
    const char *at = c ? strchr(from, c) : NULL;
    uint32_t code, low;

    if (at) {
        out[(*n)++] = to[at - from];
        return GPT_OK;
    }
    if (c != 'u')
        return BAD(s, s->p, "bad escape in a string");
    GPT_TRY(hex4(s, &code));
    if (code >= 0xd800 && code < 0xdc00) {
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
            return BAD(s, s->p, "half a surrogate pair");
        s->p += 2;
        GPT_TRY(hex4(s, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return BAD(s, s->p, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code == 0 || (code >= 0xdc00 && code < 0xe000)) {
        return BAD(s, s->p, "\\u%04x in a string", (unsigned)code);
    }
    *n += (size_t)gpt_utf8_encode(code, out + *n);
    return GPT_OK;
}

/* A string, unescaped into the arena. Its text is at most as long as its
 * source, so the closing quote is found first. */
static int scan_string(struct scan *s, const char **out)
{
    GPT_TRY(expect_char(s, '"'));
    const char *q = s->p;
    while (q < s->end && *q != '"') {
        if ((unsigned char)*q < 0x20)
            return BAD(s, q, "control byte in a string");
        q += *q == '\\' && q + 1 < s->end ? 2 : 1;
    }
    if (q >= s->end)
        return BAD(s, s->p, "string without end");
    char *text = gpt_arena_alloc(s->arena, (size_t)(q - s->p) + 1, 1);
    if (!text)
        return gpt_no_memory(s->err, s->what);
    size_t n = 0;
    while (s->p < q) {
        if (*s->p != '\\') {
            text[n++] = *s->p++;
            continue;
        }
        s->p++;
        GPT_TRY(unescape(s, text, &n));
    }
    s->p = q + 1;
    *out = text;
    return GPT_OK;
}

/* Reads a JSON integer >= 0: digits only, no sign, fraction or exponent. In
 * JSON these would be allowed, but no writer of the format produces them, and
 * two spellings of one number would make two headers equal that are not. */
static int scan_uint(struct scan *s, int64_t *out)
{
    char c = peek_char(s);
    const char *start = s->p;
    int64_t v = 0;

    if (c < '0' || c > '9')
        return BAD(s, s->p, "expected an integer >= 0");
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
        if (!gpt_mul(v, 10, &v) || !gpt_add(v, *s->p - '0', &v))
            return BAD(s, start, "integer larger than 2^63 - 1");
    if (*start == '0' && s->p - start > 1)
        return BAD(s, start, "integer with a leading zero");
    *out = v;
    return GPT_OK;
}

/* Numbers go into the caller's array as they come, up to its capacity: the
 * length of a list costs no memory. */
static int scan_list(struct scan *s, int64_t *list, int cap, int *n,
                     const char *field)
{
    bool again;

    *n = 0;
    GPT_TRY(expect_char(s, '['));
    if (peek_char(s) == ']') {
        s->p++;
        return GPT_OK;
    }
    do {
        if (*n == cap)
            return BAD(s, s->p, "%s has more than %d numbers", field, cap);
        GPT_TRY(scan_uint(s, &list[(*n)++]));
        GPT_TRY(scan_comma(s, ']', &again));
    } while (again);
    return GPT_OK;
}

/* Types of the format that gpt_dtype does not know are refused by name. */
static int scan_dtype(struct scan *s, enum gpt_dtype *dtype)
{
    const char *text, *at = s->p;

    GPT_TRY(scan_string(s, &text));
    for (int i = 0; i < GPT_N_DTYPES; i++)
        if (strcmp(text, gpt_dtype_name((enum gpt_dtype)i)) == 0) {
            *dtype = (enum gpt_dtype)i;
            return GPT_OK;
        }
    return BAD(s, at, "dtype '%.20s' is not supported", text);
}

/* Reads {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, in any
 * order. A field that comes twice is refused, since readers differ in which of
 * the two they take. */
static int scan_tensor(struct scan *s, struct gpt_safetensor *t)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    unsigned seen = 0;
    int64_t span[2];
    int n_span = 0;
    bool again;
    const char *start = s->p;

    GPT_TRY(expect_char(s, '{'));
    do {
        const char *key;
        unsigned k = 0;

        GPT_TRY(scan_string(s, &key));
        GPT_TRY(expect_char(s, ':'));
        while (k < 3 && strcmp(key, fields[k]) != 0)
            k++;
        if (k == 3 || (seen & 1u << k))
            return BAD(s, s->p, "tensor '%.99s' has %s field '%.40s'", t->name,
                       k == 3 ? "an unknown" : "twice the", key);
        seen |= 1u << k;
        if (k == 0)
            GPT_TRY(scan_dtype(s, &t->dtype));
        else if (k == 1)
            GPT_TRY(scan_list(s, t->shape, GPT_SAFETENSORS_DIMS, &t->ndim,
                              "shape"));
        else
            GPT_TRY(scan_list(s, span, 2, &n_span, "data_offsets"));
        GPT_TRY(scan_comma(s, '}', &again));
    } while (again);
    if (seen != 7 || n_span != 2)
        return BAD(s, start, "tensor '%.99s' lacks dtype, shape or offsets",
                   t->name);
    t->begin = span[0];
    t->end = span[1];
    return GPT_OK;
}

/* An object of strings; anything else is no metadata of this format. */
static int scan_notes(struct scan *s, struct gpt_safetensors *st)
{
    size_t cap = 0;
    bool again;

    GPT_TRY(expect_char(s, '{'));
    if (peek_char(s) == '}') {
        s->p++;
        return GPT_OK;
    }
    do {
        GPT_TRY(gpt_grow(&st->notes, &cap, (size_t)st->n_notes + 1,
                         sizeof(*st->notes), "safetensors metadata", s->err));
        struct gpt_safetensors_note *note = &st->notes[st->n_notes];
        GPT_TRY(scan_string(s, &note->key));
        GPT_TRY(expect_char(s, ':'));
        GPT_TRY(scan_string(s, &note->value));
        st->n_notes++;
        GPT_TRY(scan_comma(s, '}', &again));
    } while (again);
    return GPT_OK;
}

static int scan_header(struct scan *s, struct gpt_safetensors *st)
{
    size_t cap = 0;
    bool again, noted = false;

    GPT_TRY(expect_char(s, '{'));
    if (peek_char(s) == '}') {
        s->p++;
    } else {
        do {
            const char *name, *at = s->p;

            GPT_TRY(scan_string(s, &name));
            GPT_TRY(expect_char(s, ':'));
            if (strcmp(name, "__metadata__") == 0) {
                if (noted)
                    return BAD(s, at, "__metadata__ appears twice");
                noted = true;
                GPT_TRY(scan_notes(s, st));
            } else {
                if (strlen(name) > GPT_SAFETENSORS_NAME ||
                    st->n == MAX_TENSORS)
                    return BAD(s, at, "%s", st->n == MAX_TENSORS
                                                ? "more than 1000000 tensors"
                                                : "name longer than 512");
                GPT_TRY(gpt_grow(&st->tensors, &cap, (size_t)st->n + 1,
                                 sizeof(*st->tensors), "tensors", s->err));
                st->tensors[st->n] = (struct gpt_safetensor){.name = name};
                GPT_TRY(scan_tensor(s, &st->tensors[st->n]));
                st->n++;
            }
            GPT_TRY(scan_comma(s, '}', &again));
        } while (again);
    }
    if (peek_char(s) != '\0' || s->p != s->end)
        return BAD(s, s->p, "text after the header's object");
    return GPT_OK;
}

/* The first byte that is not UTF-8 (RFC 3629), or NULL. */
static const char *not_utf8(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + len;

    while (p < end) {
        uint32_t c = *p, min = c < 0xe0 ? 0x80 : c < 0xf0 ? 0x800 : 0x10000;
        int more_bytes = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;

        if ((c >= 0x80 && c < 0xc2) || c > 0xf4 || end - p <= more_bytes)
            return (const char *)p;
        c &= more_bytes ? 0x3fu >> more_bytes : 0x7fu;
        for (int i = 1; i <= more_bytes; i++) {
            if ((p[i] & 0xc0) != 0x80)
                return (const char *)p;
            c = c << 6 | (p[i] & 0x3f);
        }
        if (more_bytes &&
            (c < min || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)))
            return (const char *)p;
        p += more_bytes + 1;
    }
    return NULL;
}

/* UTF-8 is checked once for the whole header, so that the scanner may copy
 * bytes without looking at them. */
int gpt_safetensors_scan(struct gpt_safetensors *st, const char *text,
                         size_t len, const char *what, struct gpt_err *err)
{
    struct scan s = {text, text, text + len, what, &st->arena, err};
    const char *bad = not_utf8(text, len);

    return bad ? BAD(&s, bad, "the header is not UTF-8") : scan_header(&s, st);
}
