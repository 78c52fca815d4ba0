/* Tests, "x is defined", and functions, "range(3)"; see jinja_internal.h. Start
 * at tests[] and builtins[], a row each. */
#include "text/jinja_internal.h"

#include "base/num.h"

#include <string.h>
#include <time.h>

#define FUNCTION(name)                                                         \
    static int name(struct jinja_run *r, struct jinja_value self,              \
                    const struct jinja_value *args, struct jinja_value *v)

/* A search from the first: tables are short, and names are looked for when a
 * template is read. */
const struct jinja_function *jinja_find_in(const struct jinja_function *table,
                                           size_t n, struct gpt_str name)
{
    for (size_t i = 0; i < n; i++)
        if (gpt_str_equal(name, table[i].name, strlen(table[i].name)))
            return &table[i];
    return NULL;
}

/* ---- tests ---- */

#define TEST_OF(name, condition)                                               \
    FUNCTION(name)                                                             \
    {                                                                          \
        (void)r;                                                               \
        (void)args;                                                            \
        *v = jinja_bool(condition);                                            \
        return GPT_OK;                                                         \
    }

/* What has a length and elements in Python, which is true of what is
 * undefined, too. */
static bool is_sequence(struct jinja_value v)
{
    return v.kind == JINJA_STRING || v.kind == JINJA_DICT ||
           v.kind == JINJA_UNDEFINED ||
           (jinja_has_list(v) && v.kind != JINJA_VIEW);
}

TEST_OF(test_defined, self.kind != JINJA_UNDEFINED)
TEST_OF(test_undefined, self.kind == JINJA_UNDEFINED)
TEST_OF(test_none, self.kind == JINJA_NONE)
TEST_OF(test_string, self.kind == JINJA_STRING)
TEST_OF(test_mapping, self.kind == JINJA_DICT)
TEST_OF(test_sequence, is_sequence(self))
TEST_OF(test_iterable, is_sequence(self) || self.kind == JINJA_LOOP ||
                           self.kind == JINJA_VIEW || self.kind == JINJA_LAZY)
TEST_OF(test_number, jinja_is_number(self))
TEST_OF(test_integer, self.kind == JINJA_INT)
TEST_OF(test_float, self.kind == JINJA_REAL)
TEST_OF(test_boolean, self.kind == JINJA_BOOL)
TEST_OF(test_true, self.kind == JINJA_BOOL && self.i)
TEST_OF(test_false, self.kind == JINJA_BOOL && !self.i)
TEST_OF(test_callable, self.kind >= JINJA_MACRO)

/* Whole numbers modulo another. */
static int test_remainder(struct jinja_run *r, struct jinja_value self,
                          struct jinja_value by, int64_t rest,
                          struct jinja_value *v)
{
    GPT_TRY(jinja_compute(r, JINJA_MODULO, self, by, v));
    *v = jinja_bool(jinja_number(*v) == (double)rest);
    return GPT_OK;
}

/* Whole numbers modulo 2. */
FUNCTION(test_odd)
{
    (void)args;
    return test_remainder(r, self, jinja_int(2), 1, v);
}

/* The same. */
FUNCTION(test_even)
{
    (void)args;
    return test_remainder(r, self, jinja_int(2), 0, v);
}

/* A divisor of 0 is an error, as in Python. */
FUNCTION(test_divisible)
{
    return test_remainder(r, self, args[0], 0, v);
}

/* The operator 'in' as a test, for filters that take one. */
FUNCTION(test_in)
{
    bool found;

    GPT_TRY(jinja_contains(r, args[0], self, &found));
    *v = jinja_bool(found);
    return GPT_OK;
}

/* The same for '=='. */
FUNCTION(test_equal)
{
    bool equal;

    GPT_TRY(jinja_equal(r, self, args[0], &equal));
    *v = jinja_bool(equal);
    return GPT_OK;
}

/* And for '!='. */
FUNCTION(test_unequal)
{
    GPT_TRY(test_equal(r, self, args, v));
    v->i = !v->i;
    return GPT_OK;
}

/* The four orders differ in direction, and in whether equal values count. */
static int test_order(struct jinja_run *r, struct jinja_value a,
                      struct jinja_value b, bool below, bool or_equal,
                      struct jinja_value *v)
{
    int order;

    GPT_TRY(jinja_order(r, a, b, &order));
    *v = jinja_bool((below ? order < 0 : order > 0) ||
                    (or_equal && order == 0));
    return GPT_OK;
}

FUNCTION(test_lt) { return test_order(r, self, args[0], true, false, v); }
FUNCTION(test_le) { return test_order(r, self, args[0], true, true, v); }
FUNCTION(test_gt) { return test_order(r, self, args[0], false, false, v); }
FUNCTION(test_ge) { return test_order(r, self, args[0], false, true, v); }

static const struct jinja_function tests[] = {
    {"!=", test_unequal, {"other"}, NULL},
    {"<", test_lt, {"other"}, NULL},
    {"<=", test_le, {"other"}, NULL},
    {"==", test_equal, {"other"}, NULL},
    {">", test_gt, {"other"}, NULL},
    {">=", test_ge, {"other"}, NULL},
    {"boolean", test_boolean, {NULL}, NULL},
    {"callable", test_callable, {NULL}, NULL},
    {"defined", test_defined, {NULL}, NULL},
    {"divisibleby", test_divisible, {"num"}, NULL},
    {"eq", test_equal, {"other"}, NULL},
    {"equalto", test_equal, {"other"}, NULL},
    {"even", test_even, {NULL}, NULL},
    {"false", test_false, {NULL}, NULL},
    {"float", test_float, {NULL}, NULL},
    {"ge", test_ge, {"other"}, NULL},
    {"greaterthan", test_gt, {"other"}, NULL},
    {"gt", test_gt, {"other"}, NULL},
    {"in", test_in, {"seq"}, NULL},
    {"integer", test_integer, {NULL}, NULL},
    {"iterable", test_iterable, {NULL}, NULL},
    {"le", test_le, {"other"}, NULL},
    {"lessthan", test_lt, {"other"}, NULL},
    {"lt", test_lt, {"other"}, NULL},
    {"mapping", test_mapping, {NULL}, NULL},
    {"ne", test_unequal, {"other"}, NULL},
    {"none", test_none, {NULL}, NULL},
    {"number", test_number, {NULL}, NULL},
    {"odd", test_odd, {NULL}, NULL},
    {"sequence", test_sequence, {NULL}, NULL},
    {"string", test_string, {NULL}, NULL},
    {"true", test_true, {NULL}, NULL},
    {"undefined", test_undefined, {NULL}, NULL},
};

/* Also for the filters that take the name of a test, which may be an
 * operator. */
const struct jinja_function *jinja_find_test(struct gpt_str name)
{
    return jinja_find_in(tests, GPT_COUNT(tests), name);
}

/* ---- functions ---- */

/* Templates refuse conversations with which the model was not trained, as
 * two messages of one role in a row. */
FUNCTION(call_raise)
{
    struct gpt_str s;

    (void)self;
    (void)v;
    GPT_TRY(jinja_text(r, args[0], &s));
    return jinja_fail(r, "the template says: %.*s", gpt_str_shown(s.len),
                      s.data);
}

/* The format is the template's, which is what strftime_now() is for. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static size_t format_time(char *text, size_t cap, const char *format,
                          const struct tm *tm)
{
    return strftime(text, cap, format, tm);
}
#pragma GCC diagnostic pop

/* Python's time there knows no zone: %z and %Z are empty. False for its
 * microseconds, which the C library does not have. */
static bool copy_format(char *to, struct gpt_str from)
{
    for (size_t i = 0; i < from.len; i++) {
        const char next = i + 1 < from.len ? from.data[i + 1] : '\0';

        if (from.data[i] == '%' && next == 'f')
            return false;
        if (from.data[i] == '%' && (next == 'z' || next == 'Z')) {
            i++;
            continue;
        }
        *to++ = from.data[i];
        if (from.data[i] == '%' && next)
            *to++ = from.data[++i];
    }
    *to = '\0';
    return true;
}

/* The time is the caller's, if it has one, so that tests and repeated texts
 * do not depend on the day. */
FUNCTION(call_now)
{
    const time_t now = r->now ? r->now : time(NULL);
    char text[512], format[128];
    struct tm tm;

    (void)self;
    if (args[0].kind != JINJA_STRING || args[0].s.len >= sizeof(format))
        return jinja_fail(r, "strftime_now wants a short format");
    if (!copy_format(format, args[0].s))
        return jinja_fail(r, "strftime_now: '%%f' is not supported");
    localtime_r(&now, &tm);
    const size_t n = format_time(text, sizeof(text), format, &tm);
    return jinja_string(r, text, n, v);
}

/* At most as many numbers as Jinja's sandbox allows. */
FUNCTION(call_range)
{
    enum { MOST = 100000 };
    const bool alone = args[1].kind == JINJA_ABSENT;
    const int64_t from = alone ? 0 : args[0].i, to = args[alone ? 0 : 1].i;
    const int64_t step = args[2].kind == JINJA_ABSENT ? 1 : args[2].i;
    struct jinja_list *list;

    (void)self;
    /* One, two or three integers, as in Python; a float is refused there,
     * too. */
    for (int i = 0; i < 3; i++)
        if (args[i].kind != JINJA_INT && (i == 0 || args[i].kind !=
                                                        JINJA_ABSENT))
            return jinja_fail(r, "range wants integers");
    if (step == 0)
        return jinja_fail(r, "range cannot have a step of 0");
    GPT_TRY(jinja_list_new(r, &list));
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (list->n == MOST)
            return jinja_fail(r, "a range of more than %d numbers", MOST);
        GPT_TRY(jinja_list_add(r, list, jinja_int(i)));
        if (!gpt_add(i, step, &i))
            break;
    }
    *v = jinja_list_value(list);
    v->kind = JINJA_RANGE;
    return GPT_OK;
}

/* From members by name, and from another dict. The names that come later count
 * more. */
static int make_dict(struct jinja_run *r, enum jinja_kind kind,
                     const struct jinja_list *args,
                     const struct jinja_dict *named, struct jinja_value *v)
{
    GPT_TRY(jinja_dict_new(r, kind, v));
    if (args->n > 1 || (args->n == 1 && args->items[0].kind != JINJA_DICT))
        return jinja_fail(r, "%s() takes members by name, or a dict",
                          jinja_kind_name(kind));
    for (size_t k = 0; k <= args->n; k++) {
        const struct jinja_dict *d = k < args->n ? args->items[k].dict : named;

        for (size_t i = 0; i < d->keys.n; i++)
            GPT_TRY(jinja_dict_set(r, v->dict, d->keys.items[i],
                                   d->values.items[i]));
    }
    return GPT_OK;
}

/* A dict of names. */
static int call_dict(struct jinja_run *r, struct jinja_value self,
                     const struct jinja_list *args,
                     const struct jinja_dict *named, struct jinja_value *v)
{
    (void)self;
    return make_dict(r, JINJA_DICT, args, named, v);
}

/* Its members can be set from inside of loops. */
static int call_namespace(struct jinja_run *r, struct jinja_value self,
                          const struct jinja_list *args,
                          const struct jinja_dict *named,
                          struct jinja_value *v)
{
    (void)self;
    return make_dict(r, JINJA_SPACE, args, named, v);
}

/* Functions of Jinja that are not here. */
static int refuse_call(struct jinja_run *r, struct jinja_value self,
                       const struct jinja_list *args,
                       const struct jinja_dict *named, struct jinja_value *v)
{
    (void)args;
    (void)named;
    (void)v;
    return jinja_fail(r, "the function '%s' is not supported",
                      self.function->name);
}

static const struct jinja_function builtins[] = {
    {"cycler", NULL, {NULL}, refuse_call},
    {"dict", NULL, {NULL}, call_dict},
    {"joiner", NULL, {NULL}, refuse_call},
    {"lipsum", NULL, {NULL}, refuse_call},
    {"namespace", NULL, {NULL}, call_namespace},
    {"raise_exception", call_raise, {"message"}, NULL},
    {"range", call_range, {"start", "stop", "step"}, NULL},
    {"strftime_now", call_now, {"format"}, NULL},
};

/* Names that are no variables. */
const struct jinja_function *jinja_find_builtin(struct gpt_str name)
{
    return jinja_find_in(builtins, GPT_COUNT(builtins), name);
}
