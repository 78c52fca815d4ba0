/* Filters of one value; see jinja_internal.h. Start at filters[], a row each.
 * Those of lists are jinja_sequence.c. What a filter does with values for which
 * it was not meant is what Jinja does: most make a text of them first. */
#include "text/jinja_internal.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION(name)                                                         \
    static int name(struct jinja_run *r, struct jinja_value self,              \
                    const struct jinja_value *args, struct jinja_value *v)

/* ---- filters of one value ---- */

/* A string stays what it is; a list becomes Python's way to write it. */
FUNCTION(filter_string)
{
    (void)args;
    *v = (struct jinja_value){
        .kind = JINJA_STRING,
        .safe = self.kind == JINJA_STRING && self.safe};
    return jinja_text(r, self, &v->s);
}

/* A value that is no text is made one first, so that a number can be
 * trimmed. */
FUNCTION(filter_trim)
{
    GPT_TRY(filter_string(r, self, args, &self));
    return jinja_strip(r, self, args[0], true, true, v);
}

/* The same for all filters of case. */
static int change_case(struct jinja_run *r, struct jinja_value self,
                       enum jinja_case how, struct jinja_value *v)
{
    GPT_TRY(filter_string(r, self, NULL, &self));
    return jinja_change_case(r, self, how, v);
}

/* 'a' to 'A'. */
FUNCTION(filter_upper)
{
    (void)args;
    return change_case(r, self, JINJA_UPPER, v);
}

/* 'A' to 'a'. */
FUNCTION(filter_lower)
{
    (void)args;
    return change_case(r, self, JINJA_LOWER, v);
}

/* The first character in upper case, all others in lower case. */
FUNCTION(filter_capitalize)
{
    (void)args;
    return change_case(r, self, JINJA_CAPITALIZE, v);
}

/* The filter and the method of this name find words in different ways, and the
 * filter joins them to a text that is not safe. */
FUNCTION(filter_title)
{
    (void)args;
    GPT_TRY(change_case(r, self, JINJA_WORDS, v));
    v->safe = false;
    return GPT_OK;
}

/* Jinja replaces in the text of any value, and takes a safe one as any. */
FUNCTION(filter_replace)
{
    struct gpt_str s;

    GPT_TRY(jinja_text(r, self, &s));
    return jinja_replace(r, s, args, v);
}

/* Nothing of it is escaped, but what '+' joins to it is. */
FUNCTION(filter_safe)
{
    GPT_TRY(filter_string(r, self, args, v));
    v->safe = true;
    return GPT_OK;
}

/* With a second argument that is true, what is false counts as missing:
 * templates use that for empty system messages. */
FUNCTION(filter_default)
{
    (void)r;
    *v = self;
    if (self.kind == JINJA_UNDEFINED ||
        (jinja_truth(args[1]) && !jinja_truth(self)))
        *v = args[0].kind == JINJA_ABSENT ? jinja_literal("") : args[0];
    return GPT_OK;
}

/* The one integer whose opposite has more than 64 bits is refused. */
FUNCTION(filter_abs)
{
    (void)args;
    *v = self;
    if (!jinja_is_number(self) || (self.kind != JINJA_REAL &&
                                   self.i == INT64_MIN))
        return jinja_fail(r, "'abs' of %s", jinja_kind_name(self.kind));
    if (self.kind == JINJA_REAL)
        v->x = fabs(self.x);
    else
        *v = jinja_int(self.i < 0 ? -self.i : self.i);
    return GPT_OK;
}

/* A number at the start of which, and at the end, blanks may stand. */
static bool read_text(struct gpt_str s, double *x)
{
    char text[64];

    while (s.len > 0 && jinja_is_space(s.data, 1)) {
        s.data++;
        s.len--;
    }
    while (s.len > 0 && jinja_is_space(s.data + s.len - 1, 1))
        s.len--;
    if (s.len == 0 || s.len >= sizeof(text))
        return false;
    memcpy(text, s.data, s.len);
    text[s.len] = '\0';
    return strspn(text, "+-.eE0123456789") == s.len &&
           gpt_parse_real(text + (text[0] == '+'), x);
}

/* What is no number gives the default, 0, and no error: Jinja has it so. */
FUNCTION(filter_int)
{
    double x = 0;

    (void)r;
    *v = args[0].kind == JINJA_ABSENT ? jinja_int(0) : args[0];
    if (self.kind == JINJA_BOOL || self.kind == JINJA_INT)
        *v = jinja_int(self.i);
    else if (self.kind == JINJA_REAL ? (x = self.x, isfinite(x))
                                     : self.kind == JINJA_STRING &&
                                           read_text(self.s, &x))
        *v = jinja_int(fabs(x) < 9e18 ? (int64_t)x : 0);
    return GPT_OK;
}

/* The same for numbers with a point. */
FUNCTION(filter_float)
{
    double x = 0;

    (void)r;
    *v = args[0];
    if (args[0].kind == JINJA_ABSENT)
        *v = (struct jinja_value){.kind = JINJA_REAL};
    if (jinja_is_number(self))
        *v = (struct jinja_value){.kind = JINJA_REAL, .x = jinja_number(self)};
    else if (self.kind == JINJA_STRING && read_text(self.s, &x))
        *v = (struct jinja_value){.kind = JINJA_REAL, .x = x};
    return GPT_OK;
}

/* The nearest decimal, of two the even one. */
FUNCTION(filter_round)
{
    const int64_t places = args[0].kind == JINJA_INT ? args[0].i : 0;
    char text[400];

    /* Rounding up or down, and to tens, is not what templates do. */
    if (!jinja_is_number(self) || args[1].kind != JINJA_ABSENT || places < 0 ||
        places > 30)
        return jinja_fail(r, "'round' of %s in this way is not supported",
                          jinja_kind_name(self.kind));
    *v = self.kind == JINJA_REAL ? self : jinja_int(self.i);
    if (self.kind == JINJA_REAL) {
        snprintf(text, sizeof(text), "%.*f", (int)places, self.x);
        v->x = strtod(text, NULL);
    }
    return GPT_OK;
}

/* Lines but the first get blanks before them, unless they are empty. */
FUNCTION(filter_indent)
{
    const int64_t width = args[0].kind == JINJA_INT ? args[0].i : 4;
    const struct gpt_str s = self.s;
    struct gpt_buf b = {0};
    int status = GPT_OK;
    bool first = true;

    if (self.kind != JINJA_STRING)
        return jinja_fail(r, "'indent' of %s is not supported",
                          jinja_kind_name(self.kind));
    if (width < 0 || width > 1000 || args[0].kind == JINJA_STRING)
        return jinja_fail(r, "'indent' takes a width of 0 to 1000");
    for (const char *p = s.data, *end = p + s.len; p <= end;) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const size_t n = (size_t)((newline ? newline : end) - p);

        if (!first && status == GPT_OK)
            status = jinja_write(r, &b, "\n", 1);
        /* Lines that are empty stay so, unless the third argument says
         * otherwise; the first line has an argument of its own. */
        if (first ? jinja_truth(args[1]) : n > 0 || jinja_truth(args[2]))
            for (int64_t i = 0; i < width && status == GPT_OK; i++)
                status = jinja_write(r, &b, " ", 1);
        if (status == GPT_OK)
            status = jinja_write(r, &b, p, n);
        first = false;
        p += n + 1;
    }
    GPT_TRY(jinja_take_buffer(r, &b, status, v));
    v->safe = self.safe;
    return GPT_OK;
}

/* The width of an indent as blanks, or its text. */
static int read_indent(struct jinja_run *r, struct jinja_value v,
                       struct gpt_str *indent)
{
    static const char blanks[] = "                ";

    if (v.kind == JINJA_ABSENT || v.kind == JINJA_NONE)
        return GPT_OK;
    *indent = v.s;
    if (v.kind == JINJA_STRING)
        return GPT_OK;
    if (v.kind != JINJA_INT || v.i < 0 || v.i > (int64_t)sizeof(blanks) - 1)
        return jinja_fail(r, "tojson: an indent of 0 to 16 is supported");
    *indent = (struct gpt_str){blanks, (size_t)v.i};
    return GPT_OK;
}

/* transformers replaces Jinja's own filter, which escapes for HTML: a
 * template for a model wants the text as it is. Separators follow from the
 * indent as in json.dumps(). */
FUNCTION(filter_tojson)
{
    struct jinja_json_style style = {
        .ascii = jinja_truth(args[0]),
        .sort = jinja_truth(args[3]),
        .comma = {", ", 2},
        .colon = {": ", 2},
    };
    struct gpt_buf b = {0};

    GPT_TRY(read_indent(r, args[1], &style.indent));
    if (style.indent.data)
        style.comma.len = 1;
    /* Separators are a pair of strings, between members and behind a key. */
    if (args[2].kind == JINJA_LIST || args[2].kind == JINJA_TUPLE) {
        const struct jinja_list *pair = args[2].list;

        if (pair->n != 2 || pair->items[0].kind != JINJA_STRING ||
            pair->items[1].kind != JINJA_STRING)
            return jinja_fail(r, "tojson: separators are two strings");
        style.comma = pair->items[0].s;
        style.colon = pair->items[1].s;
    }
    const int status = jinja_add_json(r, &b, self, &style);
    return jinja_take_buffer(r, &b, status, v);
}

/* Like a point behind the value, with a name that is computed. */
FUNCTION(filter_attr)
{
    if (args[0].kind != JINJA_STRING)
        return jinja_fail(r, "'attr' wants a name");
    return jinja_attribute(r, self, args[0].s, v);
}

/* A text is counted in characters and not in bytes: templates compare lengths
 * of messages. */
FUNCTION(filter_length)
{
    size_t n = 0;

    (void)args;
    GPT_TRY(jinja_length(r, self, &n));
    *v = jinja_int((int64_t)n);
    return GPT_OK;
}

static const struct jinja_function filters[] = {
    {"abs", filter_abs, {NULL}, NULL},
    {"attr", filter_attr, {"name"}, NULL},
    {"capitalize", filter_capitalize, {NULL}, NULL},
    {"count", filter_length, {NULL}, NULL},
    {"d", filter_default, {"default_value", "boolean"}, NULL},
    {"default", filter_default, {"default_value", "boolean"}, NULL},
    {"float", filter_float, {"default"}, NULL},
    {"indent", filter_indent, {"width", "first", "blank"}, NULL},
    {"int", filter_int, {"default"}, NULL},
    {"length", filter_length, {NULL}, NULL},
    {"lower", filter_lower, {NULL}, NULL},
    {"replace", filter_replace, {"old", "new", "count"}, NULL},
    {"round", filter_round, {"precision", "method"}, NULL},
    {"safe", filter_safe, {NULL}, NULL},
    {"string", filter_string, {NULL}, NULL},
    {"title", filter_title, {NULL}, NULL},
    {"tojson", filter_tojson,
     {"ensure_ascii", "indent", "separators", "sort_keys"}, NULL},
    {"trim", filter_trim, {"chars"}, NULL},
    {"upper", filter_upper, {NULL}, NULL},
};

/* A search by name in two tables, when a template is read, or for a filter
 * that 'map' names. */
const struct jinja_function *jinja_find_filter(struct gpt_str name)
{
    size_t n = 0;

    while (jinja_sequence_filters[n].name)
        n++;
    const struct jinja_function *f =
        jinja_find_in(filters, GPT_COUNT(filters), name);
    return f ? f : jinja_find_in(jinja_sequence_filters, n, name);
}
