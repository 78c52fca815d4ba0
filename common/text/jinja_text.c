/* Values as text, and as JSON; see jinja_internal.h. Both are Python's, down to
 * quotes, escapes and digits. */
#include "text/jinja_internal.h"

#include "base/json_string.h"
#include "base/utf8.h"
#include "text/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For functions that build a text piece by piece: the buffer is freed on
 * both ways, so that none of them needs a label for that. */
int jinja_take_buffer(struct jinja_run *r, struct gpt_buf *b, int status,
                      struct jinja_value *v)
{
    if (status == GPT_OK)
        status = jinja_string(r, b->data, b->len, v);
    gpt_buf_free(b);
    return status;
}

/* Words of this file. */
static int add(struct jinja_run *r, struct gpt_buf *b, const char *s)
{
    return jinja_write(r, b, s, strlen(s));
}

/* ---- numbers ---- */

/* The fewest digits that are this number again: a sign, a digit, a point, more
 * digits and an exponent. */
static void find_digits(double x, char *text, size_t cap)
{
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, cap, "%.*e", digits, x);
        if (strtod(text, NULL) == x)
            return;
    }
}

/* Python writes an exponent below 1e-4 and from 1e16 on. */
static int add_real(struct jinja_run *r, struct gpt_buf *b, double x, bool json)
{
    char text[64], plain[400];

    if (isnan(x))
        return add(r, b, json ? "NaN" : "nan");
    if (isinf(x))
        return add(r, b, json ? (x < 0 ? "-Infinity" : "Infinity")
                              : (x < 0 ? "-inf" : "inf"));
    /* The digits decide, and not the value: they are what Python prints. */
    find_digits(x, text, sizeof(text));
    char *e = strchr(text, 'e');
    const int exponent = (int)strtol(e + 1, NULL, 10);
    /* The exponent has two digits at least, as in C. */
    if (exponent < -4 || exponent >= 16) {
        *e = '\0';
        snprintf(plain, sizeof(plain), "%se%c%02d", text,
                 exponent < 0 ? '-' : '+', abs(exponent));
        return add(r, b, plain);
    }
    const int digits = (int)(e - text) - (text[0] == '-') - 1;
    /* As many digits behind the point as are left, and one at least. */
    const int fraction = digits - 1 - exponent + (digits == 0);
    snprintf(plain, sizeof(plain), "%.*f", fraction > 1 ? fraction : 1, x);
    return add(r, b, plain);
}

/* Digits without separators, whatever the locale. */
static int add_whole(struct jinja_run *r, struct gpt_buf *b, int64_t i)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)i);
    return add(r, b, text);
}

/* ---- repr() ---- */

/* What Python's repr() writes as it is: no control characters, no blanks but
 * one. Private and unassigned characters are escaped. */
static bool is_printable(uint32_t code)
{
    const enum gpt_unicode_class class = gpt_unicode_class(code);

    return code == ' ' || (class != GPT_UC_OTHER && class != GPT_UC_SPACE);
}

/* The shortest of the three escapes that has room for the character. */
static int add_quoted_char(struct jinja_run *r, struct gpt_buf *b,
                           const char *p, size_t n, char quote)
{
    static const char names[] = "nrt", bytes[] = "\n\r\t";
    const char *simple = strchr(bytes, *p);
    char text[16];
    uint32_t code;

    if (*p == quote || *p == '\\')
        snprintf(text, sizeof(text), "\\%c", *p);
    else if (*p && simple)
        snprintf(text, sizeof(text), "\\%c", names[simple - bytes]);
    else if (gpt_utf8_decode((const uint8_t *)p, n, &code) == 0 ||
             is_printable(code))
        return jinja_write(r, b, p, n);
    else
        snprintf(text, sizeof(text), code < 0x100     ? "\\x%02x"
                                     : code < 0x10000 ? "\\u%04x"
                                                      : "\\U%08x", code);
    return add(r, b, text);
}

/* Double quotes only where the text has single ones and no double ones. */
static int add_quoted(struct jinja_run *r, struct gpt_buf *b, struct gpt_str s)
{
    const char quote =
        memchr(s.data, '\'', s.len) && !memchr(s.data, '"', s.len) ? '"' : '\'';
    size_t n;

    GPT_TRY(jinja_write(r, b, &quote, 1));
    for (const char *p = s.data, *end = p + s.len; p < end; p += n) {
        n = jinja_char(p, end);
        GPT_TRY(add_quoted_char(r, b, p, n, quote));
    }
    return jinja_write(r, b, &quote, 1);
}

static int add_repr(struct jinja_run *r, struct gpt_buf *b,
                    struct jinja_value v);

/* A tuple of one element keeps its comma. */
static int add_list_repr(struct jinja_run *r, struct gpt_buf *b,
                         struct jinja_value v)
{
    const bool tuple = v.kind == JINJA_TUPLE;

    GPT_TRY(add(r, b, tuple ? "(" : "["));
    for (size_t i = 0; i < v.list->n; i++) {
        if (i > 0)
            GPT_TRY(add(r, b, ", "));
        GPT_TRY(add_repr(r, b, v.list->items[i]));
    }
    if (tuple && v.list->n == 1)
        GPT_TRY(add(r, b, ","));
    return add(r, b, tuple ? ")" : "]");
}

/* In the order of the keys, as Python's dicts have it. */
static int add_dict_repr(struct jinja_run *r, struct gpt_buf *b,
                         const struct jinja_dict *d)
{
    GPT_TRY(add(r, b, "{"));
    for (size_t i = 0; i < d->keys.n; i++) {
        if (i > 0)
            GPT_TRY(add(r, b, ", "));
        GPT_TRY(add_repr(r, b, d->keys.items[i]));
        GPT_TRY(add(r, b, ": "));
        GPT_TRY(add_repr(r, b, d->values.items[i]));
    }
    return add(r, b, "}");
}

/* A safe string has a class of its own in Python. */
static int add_markup(struct jinja_run *r, struct gpt_buf *b, struct gpt_str s)
{
    GPT_TRY(add(r, b, "Markup("));
    GPT_TRY(add_quoted(r, b, s));
    return add(r, b, ")");
}

/* Python's repr(). Lists may hold lists many levels deep, which a template can
 * build in a loop: levels are counted here as well. */
static int add_repr(struct jinja_run *r, struct gpt_buf *b,
                    struct jinja_value v)
{
    int status;

    GPT_TRY(jinja_descend(r));
    if (v.kind == JINJA_STRING && v.safe)
        status = add_markup(r, b, v.s);
    else if (v.kind == JINJA_STRING)
        status = add_quoted(r, b, v.s);
    else if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE)
        status = add_list_repr(r, b, v);
    else if (v.kind == JINJA_DICT)
        status = add_dict_repr(r, b, v.dict);
    else if (v.kind == JINJA_UNDEFINED)
        status = add(r, b, "Undefined");
    else
        status = jinja_add_text(r, b, v);
    r->depth--;
    return status;
}

/* ---- str() ---- */

/* Texts as they are, everything else as Python prints it. Macros and methods
 * have no text that would be of use. */
int jinja_add_text(struct jinja_run *r, struct gpt_buf *b,
                   struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
        return GPT_OK;
    case JINJA_NONE:
        return add(r, b, "None");
    case JINJA_BOOL:
        return add(r, b, v.i ? "True" : "False");
    case JINJA_INT:
        return add_whole(r, b, v.i);
    case JINJA_REAL:
        return add_real(r, b, v.x, false);
    case JINJA_STRING:
        return jinja_write(r, b, v.s.data, v.s.len);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        return add_repr(r, b, v);
    case JINJA_RANGE:
    case JINJA_VIEW:
        return jinja_fail(r, "a %s is no text: put '|list' behind it",
                          jinja_kind_name(v.kind));
    case JINJA_LAZY:
        return jinja_fail(r, "a generator is no text: put '|list' behind the "
                             "filter that makes it");
    default:
        return jinja_fail(r, "a %s is no text", jinja_kind_name(v.kind));
    }
}

/* A string is not copied. */
int jinja_text(struct jinja_run *r, struct jinja_value v, struct gpt_str *s)
{
    struct gpt_buf b = {0};

    if (v.kind != JINJA_STRING) {
        const int status = jinja_add_text(r, &b, v);

        GPT_TRY(jinja_take_buffer(r, &b, status, &v));
    }
    *s = v.s;
    return GPT_OK;
}

/* ---- JSON ---- */

static int add_json_code(struct jinja_run *r, struct gpt_buf *b, uint32_t code)
{
    char escape[GPT_JSON_ESCAPE];

    gpt_json_escape_code(code, escape);
    return add(r, b, escape);
}

/* Escapes of json.dumps(): slashes stay, and DEL is no control character. */
static int add_json_string(struct jinja_run *r, struct gpt_buf *b,
                           struct gpt_str s, bool ascii)
{
    static const char names[] = "\"\\nrtbf", bytes[] = "\"\\\n\r\t\b\f";
    size_t n;

    GPT_TRY(add(r, b, "\""));
    for (const char *p = s.data, *end = p + s.len; p < end; p += n) {
        /* A NUL would be found at the end of the list of bytes. */
        const char *simple = *p ? strchr(bytes, *p) : NULL;
        uint32_t code = 0;

        n = jinja_char(p, end);
        gpt_utf8_decode((const uint8_t *)p, n, &code);
        if (simple) {
            const char escape[3] = {'\\', names[simple - bytes], '\0'};

            GPT_TRY(add(r, b, escape));
        } else if (code < 0x20 || (ascii && code >= 0x7F && code != 0x7F)) {
            GPT_TRY(add_json_code(r, b, code));
        } else {
            GPT_TRY(jinja_write(r, b, p, n));
        }
    }
    return add(r, b, "\"");
}

static int add_json(struct jinja_run *r, struct gpt_buf *b,
                    struct jinja_value v, const struct jinja_json_style *style,
                    int level);

/* A new line and the indent of its level, where there is one. */
static int add_break(struct jinja_run *r, struct gpt_buf *b,
                     const struct jinja_json_style *style, int level)
{
    if (!style->indent.data)
        return GPT_OK;
    GPT_TRY(add(r, b, "\n"));
    for (int i = 0; i < level; i++)
        GPT_TRY(jinja_write(r, b, style->indent.data, style->indent.len));
    return GPT_OK;
}

/* Keys are strings in JSON; Python makes them of numbers and words. */
static int add_json_key(struct jinja_run *r, struct gpt_buf *b,
                        struct jinja_value key,
                        const struct jinja_json_style *style)
{
    if (key.kind == JINJA_STRING)
        return add_json_string(r, b, key.s, style->ascii);
    if (!jinja_is_number(key) && key.kind != JINJA_NONE)
        return jinja_fail(r, "tojson: %s cannot be a key",
                          jinja_kind_name(key.kind));
    GPT_TRY(add(r, b, "\""));
    GPT_TRY(add_json(r, b, key, style, 0));
    return add(r, b, "\"");
}

/* The places of d's members, in the order of their keys. */
static int sort_members(struct jinja_run *r, const struct jinja_dict *d,
                        size_t *at)
{
    for (size_t i = 0; i < d->keys.n; i++) {
        size_t j = i;

        for (; j > 0; j--) {
            int order;

            GPT_TRY(jinja_spend(r, 1));
            GPT_TRY(jinja_order(r, d->keys.items[at[j - 1]], d->keys.items[i],
                                &order));
            if (order <= 0)
                break;
            at[j] = at[j - 1];
        }
        at[j] = i;
    }
    return GPT_OK;
}

/* Members are in the order of the dict, or sorted by a list of places, which
 * leaves the dict alone. */
static int add_json_dict(struct jinja_run *r, struct gpt_buf *b,
                         const struct jinja_dict *d,
                         const struct jinja_json_style *style, int level)
{
    size_t *at;

    if (d->keys.n == 0)
        return add(r, b, "{}");
    GPT_TRY(jinja_new(r, &at, d->keys.n, sizeof(*at)));
    /* Without sorting the places are those of the dict. */
    for (size_t i = 0; i < d->keys.n; i++)
        at[i] = i;
    if (style->sort)
        GPT_TRY(sort_members(r, d, at));
    GPT_TRY(add(r, b, "{"));
    for (size_t i = 0; i < d->keys.n; i++) {
        if (i > 0)
            GPT_TRY(jinja_write(r, b, style->comma.data, style->comma.len));
        GPT_TRY(add_break(r, b, style, level + 1));
        GPT_TRY(add_json_key(r, b, d->keys.items[at[i]], style));
        GPT_TRY(jinja_write(r, b, style->colon.data, style->colon.len));
        GPT_TRY(add_json(r, b, d->values.items[at[i]], style, level + 1));
    }
    GPT_TRY(add_break(r, b, style, level));
    return add(r, b, "}");
}

/* An empty list is never broken into lines. */
static int add_json_list(struct jinja_run *r, struct gpt_buf *b,
                         const struct jinja_list *list,
                         const struct jinja_json_style *style, int level)
{
    if (list->n == 0)
        return add(r, b, "[]");
    GPT_TRY(add(r, b, "["));
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0)
            GPT_TRY(jinja_write(r, b, style->comma.data, style->comma.len));
        GPT_TRY(add_break(r, b, style, level + 1));
        GPT_TRY(add_json(r, b, list->items[i], style, level + 1));
    }
    GPT_TRY(add_break(r, b, style, level));
    return add(r, b, "]");
}

/* What is undefined is no JSON: the template forgot to ask whether it is
 * there, and Python refuses it, too. */
static int add_json(struct jinja_run *r, struct gpt_buf *b,
                    struct jinja_value v, const struct jinja_json_style *style,
                    int level)
{
    int status;

    GPT_TRY(jinja_descend(r));
    switch (v.kind) {
    case JINJA_NONE:
        status = add(r, b, "null");
        break;
    case JINJA_BOOL:
        status = add(r, b, v.i ? "true" : "false");
        break;
    case JINJA_INT:
        status = add_whole(r, b, v.i);
        break;
    case JINJA_REAL:
        status = add_real(r, b, v.x, true);
        break;
    case JINJA_STRING:
        status = add_json_string(r, b, v.s, style->ascii);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        status = add_json_list(r, b, v.list, style, level);
        break;
    case JINJA_DICT:
        status = add_json_dict(r, b, v.dict, style, level);
        break;
    default:
        status = jinja_fail(r, "tojson: %s is no JSON",
                            jinja_kind_name(v.kind));
    }
    r->depth--;
    return status;
}

/* The first level is that of the value itself. */
int jinja_add_json(struct jinja_run *r, struct gpt_buf *b,
                   struct jinja_value v, const struct jinja_json_style *style)
{
    return add_json(r, b, v, style, 0);
}
