/* Values of a rendering; see jinja_internal.h. They behave as Python's do, as
 * far as templates see them: true counts as 1, a missing member is undefined,
 * and an undefined value is empty, but no member of it is. */
#include "text/jinja_internal.h"

#include "base/utf8.h"
#include "text/unicode.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Knows its name, for the message of what is done with it. */
struct jinja_value jinja_undefined(struct gpt_str what)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .s = what};
}

/* Holds 0 or 1 where an integer has its value: arithmetic takes both. */
struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .i = b};
}

/* 64 bits, where Python has as many as it needs; operators look for overflow
 * before they make one. */
struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.kind = JINJA_INT, .i = i};
}

/* The string outlives the rendering: it is of the program, or of the input. */
struct jinja_value jinja_literal(const char *s)
{
    return (struct jinja_value){.kind = JINJA_STRING, .s = {s, strlen(s)}};
}

/* One byte more than the text, so that no block is empty. */
int jinja_string(struct jinja_run *r, const char *s, size_t n,
                 struct jinja_value *v)
{
    char *copy;

    GPT_TRY(jinja_new(r, &copy, n + 1, 1));
    if (n)
        memcpy(copy, s, n);
    *v = (struct jinja_value){.kind = JINJA_STRING, .s = {copy, n}};
    return GPT_OK;
}

/* In the order of the kinds. */
const char *jinja_kind_name(enum jinja_kind kind)
{
    static const char *const names[] = {
        "nothing", "Undefined", "NoneType", "bool", "int", "float", "str",
        "list", "tuple", "range", "view of a dict", "generator", "dict",
        "Namespace", "loop", "macro", "function", "method"};

    return names[kind];
}

/* ---- lists and dicts ---- */

/* Empty; the first element allocates. */
int jinja_list_new(struct jinja_run *r, struct jinja_list **list)
{
    return jinja_new(r, list, 1, sizeof(**list));
}

/* Only for lists that are being made. The old array stays in the arena,
 * which costs at most as much again. */
int jinja_list_add(struct jinja_run *r, struct jinja_list *list,
                   struct jinja_value v)
{
    /* Twice as much each time: a list of n elements costs n steps, and not n
     * squared. */
    if (list->n == list->cap) {
        const size_t cap = list->cap ? 2 * list->cap : 4;
        struct jinja_value *items;

        GPT_TRY(jinja_new(r, &items, cap, sizeof(*items)));
        if (list->n)
            memcpy(items, list->items, list->n * sizeof(*items));
        list->items = items;
        list->cap = cap;
    }
    GPT_TRY(jinja_spend(r, 1));
    list->items[list->n++] = v;
    return GPT_OK;
}

/* A tuple has the same contents, and another kind. */
struct jinja_value jinja_list_value(struct jinja_list *list)
{
    return (struct jinja_value){.kind = JINJA_LIST, .list = list};
}

/* For items of a dict. */
int jinja_pair(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
               struct jinja_value *v)
{
    struct jinja_list *list;

    GPT_TRY(jinja_list_new(r, &list));
    GPT_TRY(jinja_list_add(r, list, a));
    GPT_TRY(jinja_list_add(r, list, b));
    *v = jinja_list_value(list);
    v->kind = JINJA_TUPLE;
    return GPT_OK;
}

/* A dict, or a namespace. */
int jinja_dict_new(struct jinja_run *r, enum jinja_kind kind,
                   struct jinja_value *v)
{
    struct jinja_dict *dict;

    GPT_TRY(jinja_new(r, &dict, 1, sizeof(*dict)));
    *v = (struct jinja_value){.kind = kind, .dict = dict};
    return GPT_OK;
}

/* A search from the first: what templates and messages hold has few members,
 * and the steps are counted. */
int jinja_dict_find(struct jinja_run *r, const struct jinja_dict *d,
                    struct jinja_value key, struct jinja_value **found)
{
    *found = NULL;
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT)
        return jinja_fail(r, "%s cannot be a key", jinja_kind_name(key.kind));
    /* A search in many keys costs steps, so that a hostile message with
     * thousands of them ends, too. */
    GPT_TRY(jinja_spend(r, d->keys.n / 8));
    for (size_t i = 0; i < d->keys.n; i++) {
        bool equal = false;

        GPT_TRY(jinja_equal(r, d->keys.items[i], key, &equal));
        if (equal) {
            *found = &d->values.items[i];
            return GPT_OK;
        }
    }
    return GPT_OK;
}

/* A key that is there keeps its place. */
int jinja_dict_set(struct jinja_run *r, struct jinja_dict *d,
                   struct jinja_value key, struct jinja_value v)
{
    struct jinja_value *found;

    GPT_TRY(jinja_dict_find(r, d, key, &found));
    if (found) {
        *found = v;
        return GPT_OK;
    }
    GPT_TRY(jinja_list_add(r, &d->keys, key));
    return jinja_list_add(r, &d->values, v);
}

/* A number is an integer or a float by its text, as in Python; without its text
 * (gpt_json_keep_numbers()) what is whole is an integer. */
static int number_from_json(struct jinja_run *r, const cJSON *item,
                            struct jinja_value *v)
{
    const char *text = item->valuestring;
    const double x = item->valuedouble;

    *v = (struct jinja_value){.kind = JINJA_REAL, .x = x};
    if (text && text[strcspn(text, ".eE")] == '\0') {
        errno = 0;
        *v = jinja_int(strtoll(text, NULL, 10));
        if (errno == ERANGE)
            return gpt_fail(r->err, GPT_EDATA, "the number %.40s of more than "
                            "64 bits is not supported", text);
    } else if (!text && x == floor(x) && fabs(x) < 9e15) {
        *v = jinja_int((int64_t)x);
    }
    return GPT_OK;
}

/* Strings are borrowed: the tree outlives the rendering. */
int jinja_from_json(struct jinja_run *r, const cJSON *item,
                    struct jinja_value *v)
{
    const cJSON *kid;
    struct jinja_value value;

    *v = (struct jinja_value){.kind = JINJA_NONE};
    if (cJSON_IsBool(item))
        *v = jinja_bool(cJSON_IsTrue(item));
    else if (cJSON_IsNumber(item))
        return number_from_json(r, item, v);
    else if (cJSON_IsString(item))
        *v = jinja_literal(item->valuestring);
    if (!cJSON_IsArray(item) && !cJSON_IsObject(item))
        return GPT_OK;
    GPT_TRY(jinja_descend(r));
    /* The reader of JSON has a limit of depth of its own; this one holds for
     * trees that were built. */
    if (cJSON_IsArray(item)) {
        struct jinja_list *list;

        GPT_TRY(jinja_list_new(r, &list));
        *v = jinja_list_value(list);
    } else {
        GPT_TRY(jinja_dict_new(r, JINJA_DICT, v));
    }
    cJSON_ArrayForEach(kid, item)
    {
        GPT_TRY(jinja_from_json(r, kid, &value));
        if (v->kind == JINJA_LIST) {
            GPT_TRY(jinja_list_add(r, v->list, value));
            continue;
        }
        /* the reader of JSON has refused keys that come twice */
        GPT_TRY(jinja_list_add(r, &v->dict->keys, jinja_literal(kid->string)));
        GPT_TRY(jinja_list_add(r, &v->dict->values, value));
    }
    r->depth--;
    return GPT_OK;
}

/* ---- truth, equality, order ---- */

/* Nothing, zero and what is empty are false, as in Python; functions and
 * loops are true. */
bool jinja_truth(struct jinja_value v)
{
    if (jinja_has_list(v))
        return v.list->n > 0;
    switch (v.kind) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
    case JINJA_INT:
        return v.i != 0;
    case JINJA_REAL:
        return v.x != 0;
    case JINJA_STRING:
        return v.s.len > 0;
    case JINJA_DICT:
        return v.dict->keys.n > 0;
    default:
        return true;
    }
}

/* Python counts with true and false. */
bool jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_REAL;
}

/* Integers past 2^53 lose digits, as in Python's floats. */
double jinja_number(struct jinja_value v)
{
    return v.kind == JINJA_REAL ? v.x : (double)v.i;
}

/* A list and a tuple are never equal; the kinds were compared before. */
static int equal_lists(struct jinja_run *r, const struct jinja_list *a,
                       const struct jinja_list *b, bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++)
        GPT_TRY(jinja_equal(r, a->items[i], b->items[i], equal));
    return GPT_OK;
}

/* The order of keys does not count. */
static int equal_dicts(struct jinja_run *r, const struct jinja_dict *a,
                       const struct jinja_dict *b, bool *equal)
{
    *equal = a->keys.n == b->keys.n;
    for (size_t i = 0; i < a->keys.n && *equal; i++) {
        struct jinja_value *found;

        GPT_TRY(jinja_dict_find(r, b, a->keys.items[i], &found));
        *equal = found != NULL;
        if (found)
            GPT_TRY(jinja_equal(r, a->values.items[i], *found, equal));
    }
    return GPT_OK;
}

/* Values of different kinds are different, but for numbers. Functions and
 * loops are equal to themselves alone. */
int jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                bool *equal)
{
    int status = GPT_OK;

    if (jinja_is_number(a) && jinja_is_number(b)) {
        *equal = a.kind != JINJA_REAL && b.kind != JINJA_REAL
                     ? a.i == b.i
                     : jinja_number(a) == jinja_number(b);
        return GPT_OK;
    }
    /* A text is never equal to a number, and a list never to a tuple. */
    *equal = false;
    if (a.kind != b.kind)
        return GPT_OK;
    if (a.kind == JINJA_STRING) {
        *equal = gpt_str_equal(a.s, b.s.data, b.s.len);
        return jinja_spend(r, a.s.len / 256);
    }
    GPT_TRY(jinja_descend(r));
    if (a.kind == JINJA_UNDEFINED || a.kind == JINJA_NONE)
        *equal = true;
    else if (a.kind == JINJA_VIEW) /* sets in Python, or never equal */
        status = jinja_fail(r, "'==' of views of dicts is not supported");
    else if (jinja_has_list(a))
        status = equal_lists(r, a.list, b.list, equal);
    else if (a.kind == JINJA_DICT)
        status = equal_dicts(r, a.dict, b.dict, equal);
    else
        *equal = a.dict == b.dict;
    r->depth--;
    return status;
}

/* Bytes of UTF-8 have the order of the code points, which is Python's. */
int jinja_order(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                int *order)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        const double x = jinja_number(a), y = jinja_number(b);

        *order = (x > y) - (x < y);
        return GPT_OK;
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        const size_t n = a.s.len < b.s.len ? a.s.len : b.s.len;
        const int c = n ? memcmp(a.s.data, b.s.data, n) : 0;

        *order = c ? c : (a.s.len > b.s.len) - (a.s.len < b.s.len);
        return jinja_spend(r, n / 64);
    }
    return jinja_fail(r, "'<' between %s and %s", jinja_kind_name(a.kind),
                      jinja_kind_name(b.kind));
}

/* Parts of a text, keys of a dict, elements of a list. What is undefined
 * holds nothing. */
int jinja_contains(struct jinja_run *r, struct jinja_value whole,
                   struct jinja_value part, bool *found)
{
    const struct jinja_list *items;

    *found = false;
    if (whole.kind == JINJA_STRING) {
        if (part.kind != JINJA_STRING)
            return jinja_fail(r, "'in' looks for %s in a string",
                              jinja_kind_name(part.kind));
        GPT_TRY(jinja_spend(r, whole.s.len / 64));
        *found = part.s.len == 0 || memmem(whole.s.data, whole.s.len,
                                           part.s.data, part.s.len) != NULL;
        return GPT_OK;
    }
    if (whole.kind == JINJA_DICT) {
        struct jinja_value *value;

        GPT_TRY(jinja_dict_find(r, whole.dict, part, &value));
        *found = value != NULL;
        return GPT_OK;
    }
    size_t i = 0;
    GPT_TRY(jinja_iterate(r, whole, &items));
    GPT_TRY(jinja_spend(r, items->n / 8)); /* as jinja_dict_find() */
    for (; i < items->n && !*found; i++)
        GPT_TRY(jinja_equal(r, items->items[i], part, found));
    jinja_give_back(whole, items, i);
    return GPT_OK;
}

/* ---- characters ---- */

/* Also for bytes that are no UTF-8, which a message may have: each is then a
 * character of its own, and no reader stops. */
size_t jinja_char(const char *p, const char *end)
{
    uint32_t code;
    const int n = gpt_utf8_decode((const uint8_t *)p, (size_t)(end - p), &code);

    return n > 0 ? (size_t)n : 1;
}

/* White space of Unicode, and the four separators of ASCII. */
bool jinja_is_space(const char *p, size_t n)
{
    uint32_t code = 0;

    if (n == 1 && (unsigned char)*p >= 0x80)
        return false;
    gpt_utf8_decode((const uint8_t *)p, n, &code);
    return gpt_unicode_is_blank(code);
}

/* What is not ASCII has more bytes than characters. */
static size_t count_chars(struct gpt_str s)
{
    size_t n = 0;

    for (const char *p = s.data, *end = p + s.len; p < end;
         p += jinja_char(p, end))
        n++;
    return n;
}

/* What is undefined has the length 0, but numbers have none. */
int jinja_length(struct jinja_run *r, struct jinja_value v, size_t *n)
{
    *n = jinja_has_list(v) ? v.list->n : 0;
    if (jinja_has_list(v))
        return GPT_OK;
    switch (v.kind) {
    case JINJA_UNDEFINED:
        return GPT_OK;
    case JINJA_STRING:
        *n = count_chars(v.s);
        return jinja_spend(r, *n / 64);
    case JINJA_DICT:
        *n = v.dict->keys.n;
        return GPT_OK;
    default:
        return jinja_fail(r, "%s has no length", jinja_kind_name(v.kind));
    }
}

/* Views of the text, without a copy. */
static int list_chars(struct jinja_run *r, struct gpt_str s,
                      const struct jinja_list **items)
{
    struct jinja_list *list;
    size_t n;

    GPT_TRY(jinja_list_new(r, &list));
    for (const char *p = s.data, *end = p + s.len; p < end; p += n) {
        n = jinja_char(p, end);
        GPT_TRY(jinja_list_add(r, list, (struct jinja_value){
            .kind = JINJA_STRING, .s = {p, n}}));
    }
    *items = list;
    return GPT_OK;
}

/* A second loop over a generator finds nothing. */
static int take_all(struct jinja_run *r, struct jinja_list *lazy,
                    const struct jinja_list **items)
{
    struct jinja_list *all;

    GPT_TRY(jinja_list_new(r, &all));
    *all = *lazy;
    lazy->n = 0;
    *items = all;
    return GPT_OK;
}

/* Other values keep their elements anyway. */
void jinja_give_back(struct jinja_value v, const struct jinja_list *items,
                     size_t n)
{
    if (v.kind == JINJA_LAZY && n < items->n)
        *v.list = (struct jinja_list){items->items + n, items->n - n, 0};
}

/* The list may be the value's own; the caller only reads it. */
int jinja_iterate(struct jinja_run *r, struct jinja_value v,
                  const struct jinja_list **items)
{
    static const struct jinja_list none;

    *items = jinja_has_list(v) ? v.list : &none;
    if (jinja_has_list(v))
        return GPT_OK;
    switch (v.kind) {
    case JINJA_UNDEFINED:
        return GPT_OK;
    case JINJA_STRING:
        return list_chars(r, v.s, items);
    case JINJA_LAZY:
        return take_all(r, v.list, items);
    case JINJA_DICT:
        *items = &v.dict->keys;
        return GPT_OK;
    default:
        return jinja_fail(r, "%s is no list", jinja_kind_name(v.kind));
    }
}
