/* Filters of lists; see jinja_internal.h. Start at jinja_sequence_filters[]. */
#include "text/jinja_internal.h"

#include <string.h>

#define FILTER(name)                                                           \
    static int name(struct jinja_run *r, struct jinja_value self,              \
                    const struct jinja_value *args, struct jinja_value *v)

/* A member of a member, by a name with points or by a number. */
static int follow_path(struct jinja_run *r, struct jinja_value v,
                       struct jinja_value path, struct jinja_value *out)
{
    *out = v;
    if (path.kind == JINJA_INT)
        return jinja_item(r, v, path, out);
    if (path.kind != JINJA_STRING)
        return jinja_fail(r, "the name of an attribute is %s, not str",
                          jinja_kind_name(path.kind));
    for (const char *p = path.s.data, *end = p + path.s.len; p <= end;) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        const size_t n = (size_t)((dot ? dot : end) - p);
        const struct jinja_value key = {.kind = JINJA_STRING, .s = {p, n}};

        /* A member that is missing is undefined, and a member of that is an
         * error. */
        GPT_TRY(jinja_item(r, *out, key, out));
        p += n + 1;
    }
    return GPT_OK;
}

/* A list of its own of what v holds. */
static int copy_list(struct jinja_run *r, struct jinja_value v,
                     struct jinja_list **list)
{
    const struct jinja_list *items;

    GPT_TRY(jinja_iterate(r, v, &items));
    GPT_TRY(jinja_list_new(r, list));
    for (size_t i = 0; i < items->n; i++)
        GPT_TRY(jinja_list_add(r, *list, items->items[i]));
    return GPT_OK;
}

/* What Jinja computes element by element as it is asked for. */
static struct jinja_value lazy_value(struct jinja_list *list)
{
    return (struct jinja_value){.kind = JINJA_LAZY, .list = list};
}

/* Characters of a text, keys of a dict. */
FILTER(filter_list)
{
    struct jinja_list *list;

    (void)args;
    GPT_TRY(copy_list(r, self, &list));
    *v = jinja_list_value(list);
    return GPT_OK;
}

/* An empty list has an undefined first element, which is no error. */
static int pick(struct jinja_run *r, struct jinja_value self, bool last,
                struct jinja_value *v)
{
    const struct jinja_list *items;

    if (last && self.kind == JINJA_LAZY)
        return jinja_fail(r, "'last' of a generator is not supported");
    GPT_TRY(jinja_iterate(r, self, &items));
    *v = jinja_undefined(jinja_literal("an element").s);
    if (items->n > 0)
        *v = items->items[last ? items->n - 1 : 0];
    /* Python turns a text round by its index, which keeps it safe. */
    v->safe |= last && self.kind == JINJA_STRING && self.safe;
    jinja_give_back(self, items, 1);
    return GPT_OK;
}

/* The first element. */
FILTER(filter_first)
{
    (void)args;
    return pick(r, self, false, v);
}

/* The last element; templates look so at the last message. */
FILTER(filter_last)
{
    (void)args;
    return pick(r, self, true, v);
}

/* Elements that are no texts are made some. An attribute is taken of each
 * first. */
FILTER(filter_join)
{
    const struct jinja_list *items;
    struct gpt_buf b = {0};
    struct jinja_value item;
    int status = GPT_OK;

    GPT_TRY(jinja_iterate(r, self, &items));
    for (size_t i = 0; i < items->n && status == GPT_OK; i++) {
        item = items->items[i];
        if (args[1].kind != JINJA_ABSENT)
            status = follow_path(r, items->items[i], args[1], &item);
        if (status == GPT_OK && i > 0)
            status = jinja_add_text(r, &b, args[0]);
        if (status == GPT_OK)
            status = jinja_add_text(r, &b, item);
    }
    return jinja_take_buffer(r, &b, status, v);
}

/* A string is turned round by characters. */
FILTER(filter_reverse)
{
    struct jinja_value limits[3] = {{.kind = JINJA_NONE, .i = 0},
                                    {.kind = JINJA_NONE, .i = 0},
                                    jinja_int(-1)};
    struct jinja_list *list;

    (void)args;
    const bool lazy = self.kind != JINJA_STRING && self.kind != JINJA_LAZY;
    if (self.kind != JINJA_STRING) {
        GPT_TRY(copy_list(r, self, &list));
        self = jinja_list_value(list);
    }
    GPT_TRY(jinja_slice(r, self, limits, v));
    if (lazy)
        *v = lazy_value(v->list);
    return GPT_OK;
}

/* What is undefined has no items; everything else must be a dict. */
FILTER(filter_items)
{
    bool known;

    (void)args;
    *v = self;
    if (self.kind == JINJA_UNDEFINED)
        GPT_TRY(filter_list(r, self, args, v));
    else if (self.kind == JINJA_DICT)
        GPT_TRY(jinja_find_method(JINJA_DICT, jinja_literal("items").s, &known)
                    ->call(r, self, args, v));
    else
        return jinja_fail(r, "'items' wants dict, not %s",
                          jinja_kind_name(self.kind));
    *v = lazy_value(v->list);
    return GPT_OK;
}

/* ---- order ---- */

/* By what elements are compared: strings without their case. */
static int sort_key(struct jinja_run *r, struct jinja_value v,
                    struct jinja_value path, bool as_it_is,
                    struct jinja_value *key)
{
    *key = v;
    if (path.kind != JINJA_ABSENT && path.kind != JINJA_NONE)
        GPT_TRY(follow_path(r, v, path, key));
    return key->kind == JINJA_STRING && !as_it_is
               ? jinja_change_case(r, *key, JINJA_LOWER, key)
               : GPT_OK;
}

/* Equal elements keep their order. */
static int sort_list(struct jinja_run *r, struct jinja_list *list,
                     struct jinja_value path, bool as_it_is, bool reverse)
{
    struct jinja_value *keys, key;

    GPT_TRY(jinja_new(r, &keys, list->n + 1, sizeof(*keys)));
    for (size_t i = 0; i < list->n; i++) {
        const struct jinja_value item = list->items[i];
        size_t j = i;

        GPT_TRY(sort_key(r, item, path, as_it_is, &key));
        for (; j > 0; j--) {
            int order;

            GPT_TRY(jinja_spend(r, 1));
            GPT_TRY(jinja_order(r, keys[j - 1], key, &order));
            /* Elements that are equal are not moved past each other, in both
             * directions. */
            if (reverse ? order >= 0 : order <= 0)
                break;
            keys[j] = keys[j - 1];
            list->items[j] = list->items[j - 1];
        }
        keys[j] = key;
        list->items[j] = item;
    }
    return GPT_OK;
}

/* Makes a new list: the one that it sorts stays as it is. */
FILTER(filter_sort)
{
    struct jinja_list *list;

    GPT_TRY(copy_list(r, self, &list));
    GPT_TRY(sort_list(r, list, args[2], jinja_truth(args[1]),
                      jinja_truth(args[0])));
    *v = jinja_list_value(list);
    return GPT_OK;
}

/* Pairs by their keys, or by their values. */
FILTER(filter_dictsort)
{
    const bool by_value = args[1].kind == JINJA_STRING &&
                          gpt_str_equal(args[1].s, "value", 5);
    struct jinja_list *list;

    GPT_TRY(filter_items(r, self, args, v));
    GPT_TRY(copy_list(r, *v, &list));
    GPT_TRY(sort_list(r, list, jinja_int(by_value), jinja_truth(args[0]),
                      jinja_truth(args[2])));
    *v = jinja_list_value(list);
    return GPT_OK;
}

/* The least or the greatest; of several the first. */
static int extreme(struct jinja_run *r, struct jinja_value self,
                   const struct jinja_value *args, bool greatest,
                   struct jinja_value *v)
{
    const struct jinja_list *items;
    struct jinja_value best = {0}, key;

    GPT_TRY(jinja_iterate(r, self, &items));
    *v = jinja_undefined(jinja_literal("an element").s);
    for (size_t i = 0; i < items->n; i++) {
        int order = -1;

        GPT_TRY(sort_key(r, items->items[i], args[1], jinja_truth(args[0]),
                         &key));
        if (i > 0)
            GPT_TRY(jinja_order(r, greatest ? best : key,
                                greatest ? key : best, &order));
        /* Only what is really less replaces the best one. */
        if (order < 0) {
            best = key;
            *v = items->items[i];
        }
    }
    return GPT_OK;
}

/* The first of several that are equal. */
FILTER(filter_min) { return extreme(r, self, args, false, v); }

/* The same from above. */
FILTER(filter_max) { return extreme(r, self, args, true, v); }

/* The start is 0, so that texts cannot be summed, as in Python. */
FILTER(filter_sum)
{
    const struct jinja_list *items;
    struct jinja_value item;

    *v = args[1].kind == JINJA_ABSENT ? jinja_int(0) : args[1];
    GPT_TRY(jinja_iterate(r, self, &items));
    for (size_t i = 0; i < items->n; i++) {
        item = items->items[i];
        if (args[0].kind != JINJA_ABSENT && args[0].kind != JINJA_NONE)
            GPT_TRY(follow_path(r, items->items[i], args[0], &item));
        GPT_TRY(jinja_compute(r, JINJA_ADD, *v, item, v));
    }
    return GPT_OK;
}

/* The first of equal elements stays; texts are equal whatever their case,
 * unless it counts. */
FILTER(filter_unique)
{
    const struct jinja_list *items;
    struct jinja_list *list, *keys;
    struct jinja_value key;
    bool found;

    GPT_TRY(jinja_iterate(r, self, &items));
    GPT_TRY(jinja_list_new(r, &list));
    GPT_TRY(jinja_list_new(r, &keys));
    for (size_t i = 0; i < items->n; i++) {
        GPT_TRY(sort_key(r, items->items[i], args[1], jinja_truth(args[0]),
                         &key));
        GPT_TRY(jinja_contains(r, jinja_list_value(keys), key, &found));
        if (found)
            continue;
        GPT_TRY(jinja_list_add(r, keys, key));
        GPT_TRY(jinja_list_add(r, list, items->items[i]));
    }
    *v = lazy_value(list);
    return GPT_OK;
}

/* ---- filters and tests by name ---- */

/* What Jinja takes for no elements at all here: everything that is false. */
static int iterate_any(struct jinja_run *r, struct jinja_value v,
                       const struct jinja_list **items)
{
    return jinja_iterate(r, jinja_truth(v)
                                ? v
                                : jinja_undefined(jinja_literal("a list").s),
                         items);
}

/* The arguments from the n-th on. */
static struct jinja_list rest_of(const struct jinja_list *args, size_t n)
{
    n = n < args->n ? n : args->n;
    return (struct jinja_list){args->items ? args->items + n : NULL,
                               args->n - n, 0};
}

/* An attribute of each element, or what a filter makes of it. The filter is
 * named by a string, which may be computed: it is looked for now. */
static int filter_map(struct jinja_run *r, struct jinja_value self,
                      const struct jinja_list *args,
                      const struct jinja_dict *named, struct jinja_value *v)
{
    const struct jinja_function *f = NULL;
    const struct jinja_list *items, rest = rest_of(args, 1);
    struct jinja_value *path = NULL, *other = NULL, item;
    struct jinja_list *list;

    GPT_TRY(jinja_dict_find(r, named, jinja_literal("attribute"), &path));
    GPT_TRY(jinja_dict_find(r, named, jinja_literal("default"), &other));
    if (!path) {
        if (args->n > 0 && args->items[0].kind == JINJA_STRING)
            f = jinja_find_filter(args->items[0].s);
        if (!f)
            return jinja_fail(r, "'map' by a filter that is not supported");
    }
    GPT_TRY(iterate_any(r, self, &items));
    GPT_TRY(jinja_list_new(r, &list));
    for (size_t i = 0; i < items->n; i++) {
        if (path)
            GPT_TRY(follow_path(r, items->items[i], *path, &item));
        else
            GPT_TRY(jinja_call(r, f, items->items[i], &rest, named, &item));
        /* The default of an attribute that an element does not have. */
        if (path && other && item.kind == JINJA_UNDEFINED)
            item = *other;
        GPT_TRY(jinja_list_add(r, list, item));
    }
    *v = lazy_value(list);
    return GPT_OK;
}

/* Elements of which, or of whose attribute, a test is true, or is not. Without
 * a test it is their truth. */
static int select_by(struct jinja_run *r, struct jinja_value self,
                     const struct jinja_list *args,
                     const struct jinja_dict *named, bool by_attribute,
                     bool wanted, struct jinja_value *v)
{
    const size_t at = by_attribute;
    const struct jinja_list *items, rest = rest_of(args, at + 1);
    const struct jinja_function *f = NULL;
    struct jinja_value item, holds;
    struct jinja_list *list;

    if (by_attribute && args->n == 0)
        return jinja_fail(r, "the name of an attribute is missing");
    /* Behind the name of an attribute comes that of a test. */
    if (args->n > at) {
        if (args->items[at].kind == JINJA_STRING)
            f = jinja_find_test(args->items[at].s);
        if (!f)
            return jinja_fail(r, "a test by name that is not supported");
    }
    GPT_TRY(iterate_any(r, self, &items));
    GPT_TRY(jinja_list_new(r, &list));
    for (size_t i = 0; i < items->n; i++) {
        item = items->items[i];
        if (by_attribute)
            GPT_TRY(follow_path(r, items->items[i], args->items[0], &item));
        holds = item;
        if (f)
            GPT_TRY(jinja_call(r, f, item, &rest, named, &holds));
        if (jinja_truth(holds) == wanted)
            GPT_TRY(jinja_list_add(r, list, items->items[i]));
    }
    *v = lazy_value(list);
    return GPT_OK;
}

#define SELECT(name, by_attribute, wanted)                                     \
    static int name(struct jinja_run *r, struct jinja_value self,              \
                    const struct jinja_list *args,                             \
                    const struct jinja_dict *named, struct jinja_value *v)     \
    {                                                                          \
        return select_by(r, self, args, named, by_attribute, wanted, v);       \
    }
SELECT(filter_select, false, true)
SELECT(filter_reject, false, false)
SELECT(filter_selectattr, true, true)
SELECT(filter_rejectattr, true, false)

const struct jinja_function jinja_sequence_filters[] = {
    {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}, NULL},
    {"first", filter_first, {NULL}, NULL},
    {"items", filter_items, {NULL}, NULL},
    {"join", filter_join, {"d", "attribute"}, NULL},
    {"last", filter_last, {NULL}, NULL},
    {"list", filter_list, {NULL}, NULL},
    {"map", NULL, {NULL}, filter_map},
    {"max", filter_max, {"case_sensitive", "attribute"}, NULL},
    {"min", filter_min, {"case_sensitive", "attribute"}, NULL},
    {"reject", NULL, {NULL}, filter_reject},
    {"rejectattr", NULL, {NULL}, filter_rejectattr},
    {"reverse", filter_reverse, {NULL}, NULL},
    {"select", NULL, {NULL}, filter_select},
    {"selectattr", NULL, {NULL}, filter_selectattr},
    {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}, NULL},
    {"sum", filter_sum, {"attribute", "start"}, NULL},
    {"unique", filter_unique, {"case_sensitive", "attribute"}, NULL},
    {NULL, NULL, {NULL}, NULL},
};
