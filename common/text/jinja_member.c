/* What is in a value: attributes, elements, slices; see jinja_internal.h. Jinja
 * looks for "x.name" among methods first and members then, for "x['name']" the
 * other way round, and what is not there is undefined. */
#include "text/jinja_internal.h"

#include "base/num.h"

#include <string.h>

/* What a loop knows of itself. Some of it needs a look at elements to come:
 * the last number of a row says how far. To look takes them from a generator,
 * so that no member looks further than Jinja does: what a loop leaves of a
 * generator is there for the next loop. */
static int loop_member(struct jinja_run *r, struct jinja_loop *l,
                       struct gpt_str name, bool *found, struct jinja_value *v)
{
    enum { NEXT = 2, ALL = -1 };
    static const struct {
        const char *name;
        int ahead;
    } rows[] = {
        {"index", 0},  {"index0", 0}, {"revindex", ALL}, {"revindex0", ALL},
        {"first", 0},  {"last", NEXT}, {"length", ALL},  {"depth", 0},
        {"depth0", 0}, {"previtem", 0}, {"nextitem", NEXT},
    };
    size_t k = 0;

    while (k < GPT_COUNT(rows) &&
           !gpt_str_equal(name, rows[k].name, strlen(rows[k].name)))
        k++;
    *found = k < GPT_COUNT(rows);
    if (!*found)
        return GPT_OK;
    GPT_TRY(jinja_loop_reach(r, l, rows[k].ahead == ALL
                                       ? SIZE_MAX
                                       : l->index + (size_t)rows[k].ahead));
    const int64_t i = (int64_t)l->index, n = (int64_t)l->items->n;
    const struct jinja_value *items = l->items->items;
    const struct jinja_value values[GPT_COUNT(rows)] = {
        jinja_int(i + 1),
        jinja_int(i),
        jinja_int(n - i),
        jinja_int(n - i - 1),
        jinja_bool(i == 0),
        jinja_bool(i == n - 1),
        jinja_int(n),
        jinja_int(l->depth),
        jinja_int(l->depth - 1),
        i > 0 ? items[i - 1] : jinja_undefined(name),
        i + 1 < n ? items[i + 1] : jinja_undefined(name),
    };
    *v = values[k];
    return GPT_OK;
}

/* A method of v, if there is one of that name. A name that Python knows and
 * this file does not is refused: to be undefined would be another meaning. */
static int find_method(struct jinja_run *r, struct jinja_value v,
                       struct gpt_str name, bool *found,
                       struct jinja_value *out)
{
    bool known = false;
    const struct jinja_function *f = jinja_find_method(v.kind, name, &known);
    struct jinja_bound *bound;

    *found = f != NULL;
    if (!f)
        return known ? jinja_fail(r, "the method '%.*s' of %s is not "
                                  "supported", gpt_str_shown(name.len),
                                  name.data, jinja_kind_name(v.kind))
                     : GPT_OK;
    GPT_TRY(jinja_new(r, &bound, 1, sizeof(*bound)));
    *bound = (struct jinja_bound){f, v};
    *out = (struct jinja_value){.kind = JINJA_METHOD, .method = bound};
    return GPT_OK;
}

/* A member of what is undefined is an error, though what is undefined may be
 * printed: a misspelt name is found where it is used. */
static int fail_undefined(struct jinja_run *r, struct jinja_value v)
{
    return jinja_fail(r, "'%.*s' is undefined", gpt_str_shown(v.s.len),
                      v.s.data);
}

/* A macro's name; what else Jinja tells of it is refused. */
static int macro_member(struct jinja_run *r, const struct jinja_macro *macro,
                        struct gpt_str name, struct jinja_value *out)
{
    if (!gpt_str_equal(name, "name", 4))
        return jinja_fail(r, "'%.*s' of a macro is not supported",
                          gpt_str_shown(name.len), name.data);
    *out = (struct jinja_value){.kind = JINJA_STRING, .s = macro->node->name};
    return GPT_OK;
}

/* Methods come before members, as in Python. A dict of a message may have a
 * member 'items', which templates then reach by brackets. */
int jinja_attribute(struct jinja_run *r, struct jinja_value v,
                    struct gpt_str name, struct jinja_value *out)
{
    const struct jinja_value key = {.kind = JINJA_STRING, .s = name};
    struct jinja_value *value = NULL;
    bool found = false;

    if (v.kind == JINJA_UNDEFINED)
        /* The next member of a chain of names that is missing at its
         * beginning. */
        return fail_undefined(r, v);
    *out = jinja_undefined(name);
    if (v.kind == JINJA_LOOP)
        GPT_TRY(loop_member(r, v.loop, name, &found, out));
    if (found)
        return GPT_OK;
    if (v.kind == JINJA_MACRO)
        return macro_member(r, v.macro, name, out);
    GPT_TRY(find_method(r, v, name, &found, out));
    if (found || (v.kind != JINJA_DICT && v.kind != JINJA_SPACE))
        return GPT_OK;
    GPT_TRY(jinja_dict_find(r, v.dict, key, &value));
    if (value)
        *out = *value;
    return GPT_OK;
}

/* One character, or element, counted from the end where it is below 0. */
static int find_index(struct jinja_run *r, struct jinja_value v, int64_t at,
                      struct jinja_value *out)
{
    const struct jinja_list *items;

    GPT_TRY(jinja_iterate(r, v, &items));
    if (at < 0)
        at += (int64_t)items->n;
    if (at >= 0 && at < (int64_t)items->n) {
        *out = items->items[at];
        out->safe |= v.kind == JINJA_STRING && v.safe;
    }
    return GPT_OK;
}

/* A key that is missing gives an undefined value and no error, and so does
 * an index past the end: templates look at the message behind the last one. */
int jinja_item(struct jinja_run *r, struct jinja_value v,
               struct jinja_value key, struct jinja_value *out)
{
    struct jinja_value *value = NULL;

    if (v.kind == JINJA_UNDEFINED)
        return fail_undefined(r, v);
    *out = jinja_undefined(key.kind == JINJA_STRING
                               ? key.s
                               : jinja_literal("an element").s);
    /* What cannot be a key is no member, and no error of Jinja: a type of JSON
     * schema, which may be a list, is looked up so. */
    if (v.kind == JINJA_DICT && key.kind != JINJA_LIST &&
        key.kind != JINJA_DICT) {
        GPT_TRY(jinja_dict_find(r, v.dict, key, &value));
        if (value) {
            *out = *value;
            return GPT_OK;
        }
    }
    if (key.kind == JINJA_STRING)
        return jinja_attribute(r, v, key.s, out);
    if ((key.kind == JINJA_INT || key.kind == JINJA_BOOL) &&
        ((jinja_has_list(v) && v.kind != JINJA_VIEW) ||
         v.kind == JINJA_STRING))
        return find_index(r, v, key.i, out);
    return GPT_OK;
}

/* Where a slice begins or ends, as Python has it. */
static int64_t clamp_limit(struct jinja_value limit, int64_t n, int64_t none,
                           int64_t step)
{
    if (limit.kind == JINJA_NONE)
        return none;
    /* Limits are clamped to what is there, in the way that depends on the
     * direction. */
    const int64_t at = limit.i < 0 ? gpt_max_i64(limit.i, -n) + n
                       : limit.i > n ? n
                                     : limit.i;
    if (step < 0)
        return limit.i < -n ? -1 : gpt_min_i64(at, n - 1);
    return at;
}

/* Limits past both ends are no error. A slice of a text counts characters;
 * negative steps walk backwards. */
int jinja_slice(struct jinja_run *r, struct jinja_value v,
                const struct jinja_value *limits, struct jinja_value *out)
{
    const int64_t step = limits[2].kind == JINJA_NONE ? 1 : limits[2].i;
    const struct jinja_list *items;
    struct jinja_list *list;
    struct gpt_buf text = {0};
    int status = GPT_OK;

    for (int i = 0; i < 3; i++)
        if (limits[i].kind != JINJA_NONE && limits[i].kind != JINJA_INT)
            return jinja_fail(r, "a limit of a slice is %s, not int",
                              jinja_kind_name(limits[i].kind));
    if (v.kind == JINJA_UNDEFINED)
        return fail_undefined(r, v);
    if (step == 0 || v.kind == JINJA_VIEW ||
        (!jinja_has_list(v) && v.kind != JINJA_STRING))
        return jinja_fail(r, "%s has no such slice", jinja_kind_name(v.kind));
    GPT_TRY(jinja_iterate(r, v, &items));
    GPT_TRY(jinja_list_new(r, &list));
    const int64_t n = (int64_t)items->n;
    const int64_t end = clamp_limit(limits[1], n, step > 0 ? n : -1, step);
    int64_t at = clamp_limit(limits[0], n, step > 0 ? 0 : n - 1, step);
    for (; step > 0 ? at < end : at > end; at += step) {
        GPT_TRY(jinja_list_add(r, list, items->items[at]));
        /* One element at most is taken by such a step, and adding the step
         * again could overflow. */
        if (step > n || step < -n)
            break;
    }
    *out = jinja_list_value(list);
    out->kind = v.kind;
    if (v.kind != JINJA_STRING)
        return GPT_OK;
    for (size_t i = 0; i < list->n && status == GPT_OK; i++)
        status = jinja_write(r, &text, list->items[i].s.data,
                             list->items[i].s.len);
    GPT_TRY(jinja_take_buffer(r, &text, status, out));
    out->safe = v.safe;
    return GPT_OK;
}
