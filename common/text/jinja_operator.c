/* Operators that take two values; see jinja_internal.h. Start at
 * jinja_compute(). The rules are Python's: which kinds go together, what a
 * division gives, and that true counts as 1. */
#include "text/jinja_internal.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

/* A value that is undefined is the usual cause of a wrong type, so the
 * message names it first. Without it the message has both types, by their
 * names in Python, which users of templates know. */
int jinja_type_error(struct jinja_run *r, const char *op, struct jinja_value a,
                     struct jinja_value b)
{
    for (int i = 0; i < 2; i++) {
        const struct jinja_value v = i ? b : a;

        if (v.kind == JINJA_UNDEFINED)
            return jinja_fail(r, "'%.*s' is undefined",
                              gpt_str_shown(v.s.len), v.s.data);
    }
    return jinja_fail(r, "'%s' between %s and %s", op,
                      jinja_kind_name(a.kind), jinja_kind_name(b.kind));
}

/* For HTML, as Jinja's Markup has it. */
static int add_escaped(struct jinja_run *r, struct gpt_buf *b, struct gpt_str s)
{
    static const char signs[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;",
                                        "&#34;"};

    for (size_t i = 0; i < s.len; i++) {
        const char *sign = memchr(signs, s.data[i], sizeof(signs) - 1);
        const char *name = sign ? names[sign - signs] : s.data + i;

        GPT_TRY(jinja_write(r, b, name, sign ? strlen(name) : 1));
    }
    return GPT_OK;
}

int jinja_add_beside(struct jinja_run *r, struct gpt_buf *b, bool safe,
                     struct jinja_value v)
{
    return safe && !v.safe ? add_escaped(r, b, v.s)
                           : jinja_write(r, b, v.s.data, v.s.len);
}

/* The joined string is safe when one of the two is. */
static int join_strings(struct jinja_run *r, struct jinja_value a,
                        struct jinja_value b, struct jinja_value *v)
{
    struct gpt_buf buf = {0};
    int status = jinja_add_beside(r, &buf, b.safe, a);

    if (status == GPT_OK)
        status = jinja_add_beside(r, &buf, a.safe, b);
    GPT_TRY(jinja_take_buffer(r, &buf, status, v));
    v->safe = a.safe || b.safe;
    return GPT_OK;
}

/* Strings or lists, one after the other. */
static int join_two(struct jinja_run *r, struct jinja_value a,
                    struct jinja_value b, struct jinja_value *v)
{
    struct jinja_list *list;

    if (a.kind != b.kind ||
        (a.kind != JINJA_STRING && a.kind != JINJA_LIST &&
         a.kind != JINJA_TUPLE))
        return jinja_type_error(r, "+", a, b);
    if (a.kind == JINJA_STRING)
        return join_strings(r, a, b, v);
    GPT_TRY(jinja_list_new(r, &list));
    /* A new list: templates add to a list by making a longer one, since they
     * cannot change it. */
    for (size_t i = 0; i < a.list->n + b.list->n; i++)
        GPT_TRY(jinja_list_add(r, list, i < a.list->n
                                            ? a.list->items[i]
                                            : b.list->items[i - a.list->n]));
    *v = jinja_list_value(list);
    v->kind = a.kind;
    return GPT_OK;
}

/* A string or a list several times. */
static int repeat(struct jinja_run *r, struct jinja_value a,
                  struct jinja_value times, struct jinja_value *v)
{
    struct jinja_value next;

    if (times.kind != JINJA_INT && times.kind != JINJA_BOOL)
        return jinja_type_error(r, "*", a, times);
    if (a.kind == JINJA_STRING) {
        GPT_TRY(jinja_string(r, "", 0, v));
        v->safe = a.safe;
    } else {
        struct jinja_list *list;

        GPT_TRY(jinja_list_new(r, &list));
        *v = jinja_list_value(list);
        v->kind = a.kind;
    }
    /* A negative number gives nothing. Each turn costs a step, so that a
     * huge number ends at the limit. */
    for (int64_t i = 0; i < times.i; i++) {
        GPT_TRY(jinja_spend(r, 1));
        GPT_TRY(join_two(r, *v, a, &next));
        *v = next;
    }
    return GPT_OK;
}

/* As Python has them: rounded downwards, with the divisor's sign. */
static int divide_whole(struct jinja_run *r, enum jinja_op op, int64_t a,
                        int64_t b, int64_t *x)
{
    if (b == 0)
        return jinja_fail(r, "a division by zero");
    if (b == -1) { /* the one that may overflow */
        *x = op == JINJA_MODULO ? 0 : (int64_t)(0 - (uint64_t)a);
        return GPT_OK;
    }
    /* C rounds towards 0, Python downwards: they differ where the signs do
     * and there is a rest. */
    const int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
    *x = op == JINJA_MODULO ? rest + down * b : a / b - down;
    return GPT_OK;
}

/* Integers of Python have no end. Here they have 64 bits, and a result with
 * more is refused: a template that counts messages never has one, and a
 * wrong number would be worse than a message. */
static int compute_whole(struct jinja_run *r, enum jinja_op op, int64_t a,
                         int64_t b, struct jinja_value *v)
{
    bool fits = true;

    *v = jinja_int(1);
    switch (op) {
    case JINJA_ADD:
        fits = gpt_add(a, b, &v->i);
        break;
    case JINJA_SUBTRACT:
        fits = !__builtin_sub_overflow(a, b, &v->i);
        break;
    case JINJA_MULTIPLY:
        fits = gpt_mul(a, b, &v->i);
        break;
    /* By repeated multiplication: the first overflow ends it, and 0 and 1
     * end it at the limit of steps. */
    case JINJA_POWER:
        for (; fits && b > 0; b--) {
            GPT_TRY(jinja_spend(r, 1));
            fits = gpt_mul(v->i, a, &v->i);
        }
        break;
    default:
        return divide_whole(r, op, a, b, &v->i);
    }
    return fits ? GPT_OK : jinja_fail(r, "a number has more than 64 bits");
}

/* A division always gives a float, also of two integers. The rest of a
 * division has the sign of the divisor, as Python's has; fmod() has that of
 * the dividend. */
static int compute_real(struct jinja_run *r, enum jinja_op op, double a,
                        double b, struct jinja_value *v)
{
    /* Python raises an error where C's floats become infinite. */
    const bool divides = op == JINJA_DIVIDE || op == JINJA_FLOOR_DIVIDE ||
                         op == JINJA_MODULO;

    *v = (struct jinja_value){.kind = JINJA_REAL};
    if (divides && b == 0)
        return jinja_fail(r, "a division by zero");
    v->x = op == JINJA_ADD            ? a + b
           : op == JINJA_SUBTRACT     ? a - b
           : op == JINJA_MULTIPLY     ? a * b
           : op == JINJA_DIVIDE       ? a / b
           : op == JINJA_FLOOR_DIVIDE ? floor(a / b)
           : op == JINJA_POWER        ? pow(a, b)
                                      : a - floor(a / b) * b;
    return GPT_OK;
}

/* The operator '~' makes texts of both sides. The operator '+' does not, so
 * that templates use this one for numbers and for what may be missing. */
static int concat(struct jinja_run *r, struct jinja_value a,
                  struct jinja_value b, struct jinja_value *v)
{
    struct gpt_buf buf = {0};
    int status = jinja_add_text(r, &buf, a);

    if (status == GPT_OK)
        status = jinja_add_text(r, &buf, b);
    return jinja_take_buffer(r, &buf, status, v);
}

/* Kinds that may be multiplied by a number. */
static bool repeats(struct jinja_value v)
{
    return v.kind == JINJA_STRING || v.kind == JINJA_LIST ||
           v.kind == JINJA_TUPLE;
}

/* The order of the cases is that of Python's operators: text and lists
 * repeat before anything is a number, and two integers stay integers but for
 * '/' and for powers below 0. */
int jinja_compute(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                  struct jinja_value b, struct jinja_value *v)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};

    if (op == JINJA_CONCAT)
        return concat(r, a, b, v);
    if (op == JINJA_MULTIPLY && repeats(a))
        return repeat(r, a, b, v);
    if (op == JINJA_MULTIPLY && repeats(b))
        return repeat(r, b, a, v);
    if (op == JINJA_MODULO && a.kind == JINJA_STRING)
        return jinja_fail(r, "'%%' of a string is not supported");
    if (!jinja_is_number(a) || !jinja_is_number(b))
        return op == JINJA_ADD ? join_two(r, a, b, v)
                               : jinja_type_error(r, names[op], a, b);
    /* Two integers have an integer as a result, but for a quotient and for a
     * power below 0. */
    if (a.kind != JINJA_REAL && b.kind != JINJA_REAL && op != JINJA_DIVIDE &&
        !(op == JINJA_POWER && b.i < 0))
        return compute_whole(r, op, a.i, b.i, v);
    return compute_real(r, op, jinja_number(a), jinja_number(b), v);
}
