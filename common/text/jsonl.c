/* The fields of a line, taken while json_scan.h's cursor passes over it: what
 * is wanted is checked, unescaped and copied in one step. Read from
 * gpt_jsonl_scan() upwards.
 *
 * The whole line is checked, even after all fields are found: a later key of
 * the same name counts, and a line that Python would refuse must not be half
 * used. Strings of a line are in one buffer, reserved once for the longest that
 * they can be, so that views into it stay valid until the next line. */
#include "text/jsonl.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct field {
    const char *key;
    size_t key_len;
    struct gpt_str *strings;
    size_t n, cap;
    bool found;
    const char *wrong; /* "null" and the like where a string belongs */
};

struct gpt_jsonl {
    struct field *fields;
    size_t n_fields;
    struct gpt_buf text;  /* unescaped strings of the line, reserved at once */
    struct gpt_scan scan; /* the cursor in the line */
};

/* Unescapes the string under s's cursor into j->text. That has room for the
 * whole line, and nothing is shorter than what it stands for, so the block
 * never moves while views point into it. */
static int unescape(struct gpt_jsonl *j, struct gpt_scan *s,
                    struct gpt_str *string)
{
    size_t line = (size_t)(j->scan.end - j->scan.begin);

    assert(j->text.len <= line);
    if (gpt_buf_reserve(&j->text, line - j->text.len + GPT_SCAN_SLACK) !=
        GPT_OK)
        return gpt_fail(j->scan.err, GPT_EFAIL,
                        "cannot allocate %zu bytes for a line", line);
    /* set after the reservation, the only moment when the block may move */
    string->data = j->text.data + j->text.len;
    GPT_TRY(gpt_scan_text(s, j->text.data + j->text.len, &string->len));
    j->text.len += string->len;
    return GPT_OK;
}

/* The type of a value by its first character, for messages. */
static const char *type_name(char c)
{
    switch (c) {
    case '{':
        return "an object";
    case '[':
        return "a list";
    case 'n':
        return "null";
    case 't':
    case 'f':
        return "a boolean";
    default:
        return "a number";
    }
}

/* Strings of a line are views into j->text. The list keeps its memory from line
 * to line. */
static int take_string(struct gpt_jsonl *j, struct field *f)
{
    struct gpt_str string;

    GPT_TRY(unescape(j, &j->scan, &string));
    GPT_TRY(gpt_grow(&f->strings, &f->cap, f->n + 1, sizeof(*f->strings),
                     "strings of a line", j->scan.err));
    f->strings[f->n++] = string;
    return GPT_OK;
}

/* Anything but a string is skipped and remembered: a later field of the same
 * name may yet put it right. */
static int take_element(struct gpt_jsonl *j, struct field *f)
{
    struct gpt_scan *s = &j->scan;

    if (gpt_scan_at(s, '"'))
        return take_string(j, f);
    if (s->p < s->end)
        f->wrong = type_name((char)*s->p);
    return gpt_scan_skip(s);
}

/* A list of strings is several texts of one document. */
struct text_list {
    struct gpt_jsonl *j;
    struct field *field;
};

static int take_item(void *context)
{
    const struct text_list *list = context;

    return take_element(list->j, list->field);
}

/* Forgets what an earlier key of the same name has given. */
static int take_value(struct gpt_jsonl *j, struct field *f)
{
    struct text_list list = {j, f};

    f->found = true;
    f->n = 0;
    f->wrong = NULL;
    gpt_scan_space(&j->scan);
    return gpt_scan_at(&j->scan, '[')
               ? gpt_scan_items(&j->scan, '[', "a list", take_item, &list)
               : take_element(j, f);
}

/* The wanted fields are few, so that a row of comparisons is the fastest. */
static struct field *find_field(struct gpt_jsonl *j, struct gpt_str key)
{
    for (size_t i = 0; i < j->n_fields; i++) {
        struct field *f = &j->fields[i];

        if (gpt_str_equal(key, f->key, f->key_len))
            return f;
    }
    return NULL;
}

/* Takes a key and its value: a wanted one is kept, any other is passed over. */
static int take_member(void *context)
{
    struct gpt_jsonl *j = context;
    struct gpt_str key;
    bool escaped;

    GPT_TRY(gpt_scan_key(&j->scan, &key, &escaped));
    if (escaped) { /* rare: a second cursor takes the key's meaning */
        struct gpt_scan again = j->scan;

        again.p = (const uint8_t *)key.data - 1;
        GPT_TRY(unescape(j, &again, &key));
    }
    struct field *f = find_field(j, key);
    return f ? take_value(j, f) : gpt_scan_skip(&j->scan);
}

/* The line must be one object and nothing after it. */
static int scan_object(struct gpt_jsonl *j)
{
    GPT_TRY(gpt_scan_items(&j->scan, '{', "an object", take_member, j));
    return gpt_scan_end(&j->scan, "the end of the line");
}

int gpt_jsonl_open(struct gpt_jsonl **out, const char *const *keys,
                   size_t n_keys, struct gpt_err *err)
{
    struct gpt_jsonl *j;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&j, 1, sizeof(*j), "a JSON scanner", err));
    GPT_TRY_GOTO(status, gpt_new(&j->fields, n_keys, sizeof(*j->fields),
                                 "a JSON scanner", err), fail);
    j->n_fields = n_keys;
    j->scan.blocks = gpt_json_blocks();
    for (size_t i = 0; i < n_keys; i++) {
        j->fields[i].key = keys[i];
        j->fields[i].key_len = strlen(keys[i]);
    }
    *out = j;
    return GPT_OK;
fail:
    gpt_free(j);
    return status;
}

void gpt_jsonl_close(struct gpt_jsonl *j)
{
    if (!j)
        return;
    for (size_t i = 0; i < j->n_fields; i++)
        gpt_free(j->fields[i].strings);
    gpt_free(j->fields);
    gpt_buf_free(&j->text);
    gpt_free(j);
}

/* The names that are there help more than the one that is not. The line was
 * scanned once: nothing can fail here but the end of the list. */
static int no_field(struct gpt_jsonl *j, const char *key, struct gpt_err *err)
{
    struct gpt_scan s = {.begin = j->scan.begin, .p = j->scan.begin,
                         .end = j->scan.end};
    char names[160];
    size_t at = 0;
    struct gpt_str name;
    bool escaped;

    gpt_scan_space(&s);
    s.p++; /* the brace */
    gpt_scan_space(&s);
    while (!gpt_scan_at(&s, '}') &&
           gpt_scan_key(&s, &name, &escaped) == GPT_OK &&
           gpt_scan_skip(&s) == GPT_OK) {
        if (at + name.len + 4 >= sizeof(names))
            break;
        at += (size_t)snprintf(names + at, sizeof(names) - at, "%s'%.*s'",
                               at > 0 ? ", " : "", (int)name.len, name.data);
        if (!gpt_scan_more(&s))
            break;
    }
    if (at == 0)
        return gpt_fail(err, GPT_EDATA, "no field '%s'", key);
    return gpt_fail(err, GPT_EDATA, "no field '%s': it has %s%s", key, names,
                    gpt_scan_at(&s, '}') ? "" : " and others");
}

/* Only `found` is reset for a line: a field that is found begins its list anew,
 * and one that is not found refuses the line. */
int gpt_jsonl_scan(struct gpt_jsonl *j, const char *line, size_t len,
                   struct gpt_err *err)
{
    struct gpt_scan *s = &j->scan;

    s->begin = s->p = (const uint8_t *)line;
    s->end = s->begin + len;
    s->err = err;
    j->text.len = 0;
    for (size_t i = 0; i < j->n_fields; i++)
        j->fields[i].found = false;

    gpt_scan_space(s);
    s->bad = GPT_BAD_BLANK;
    if (s->p == s->end)
        return gpt_fail(err, GPT_EDATA, "blank line");
    /* The mark is no white space for JSON. It is named, because no editor shows
     * it. */
    s->bad = GPT_BAD_SYNTAX;
    if (gpt_utf8_mark(s->p, (size_t)(s->end - s->p)) > 0)
        return gpt_fail(err, GPT_EDATA, "not JSON: byte order mark at byte %zu",
                        gpt_scan_column(s));
    GPT_TRY(scan_object(j));
    /* only a line that is right as a whole is asked for its fields */
    for (size_t i = 0; i < j->n_fields; i++) {
        const struct field *f = &j->fields[i];

        s->bad = f->found ? GPT_BAD_TYPE : GPT_BAD_NO_FIELD;
        if (!f->found)
            return no_field(j, f->key, err);
        if (f->wrong)
            return gpt_fail(err, GPT_EDATA, "field '%s' holds %s, not a string",
                            f->key, f->wrong);
    }
    return GPT_OK;
}

/* One line of a gigabyte must not keep a gigabyte for good. */
void gpt_jsonl_trim(struct gpt_jsonl *j)
{
    gpt_buf_free(&j->text);
}

enum gpt_json_bad gpt_jsonl_bad(const struct gpt_jsonl *j)
{
    return j->scan.bad;
}

size_t gpt_jsonl_strings(const struct gpt_jsonl *j, size_t key,
                         const struct gpt_str **strings)
{
    assert(key < j->n_fields);
    *strings = j->fields[key].strings;
    return j->fields[key].n;
}
