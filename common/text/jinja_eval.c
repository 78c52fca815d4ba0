/* Expressions of a rendering; see jinja_internal.h. Start at
 * jinja_evaluate(). */
#include "text/jinja_internal.h"

/* ---- calls and comparisons ---- */

/* Equality is known for all values, order for numbers and for texts, and
 * 'in' for what has elements. */
static int compare(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                   struct jinja_value b, bool *holds)
{
    int order;

    if (op == JINJA_IN || op == JINJA_NOT_IN) {
        GPT_TRY(jinja_contains(r, b, a, holds));
        *holds ^= op == JINJA_NOT_IN;
        return GPT_OK;
    }
    if (op == JINJA_EQ || op == JINJA_NE) {
        GPT_TRY(jinja_equal(r, a, b, holds));
        *holds ^= op == JINJA_NE;
        return GPT_OK;
    }
    GPT_TRY(jinja_order(r, a, b, &order));
    *holds = op == JINJA_LT   ? order < 0
             : op == JINJA_LE ? order <= 0
             : op == JINJA_GT ? order > 0
                              : order >= 0;
    return GPT_OK;
}

static int add_elements(struct jinja_run *r, const struct jinja_node *node,
                        struct jinja_list *args)
{
    const struct jinja_list *items;
    struct jinja_value v;

    GPT_TRY(jinja_evaluate(r, node, &v));
    GPT_TRY(jinja_iterate(r, v, &items));
    GPT_TRY(jinja_spend(r, items->n));
    for (size_t i = 0; i < items->n; i++)
        GPT_TRY(jinja_list_add(r, args, items->items[i]));
    return GPT_OK;
}

/* Arguments of a call: those by position, and those by name. */
static int evaluate_arguments(struct jinja_run *r, const struct jinja_node *kid,
                              struct jinja_list **args,
                              struct jinja_value *named)
{
    struct jinja_value v;

    GPT_TRY(jinja_list_new(r, args));
    GPT_TRY(jinja_dict_new(r, JINJA_DICT, named));
    for (; kid; kid = kid->next) {
        const struct jinja_value key = {.kind = JINJA_STRING, .s = kid->name};

        if (kid->kind == JINJA_N_KEYWORD) {
            GPT_TRY(jinja_evaluate(r, kid->a, &v));
            GPT_TRY(jinja_dict_set(r, named->dict, key, v));
        } else if (kid->kind == JINJA_N_SPREAD) {
            GPT_TRY(add_elements(r, kid->a, *args));
        } else {
            GPT_TRY(jinja_evaluate(r, kid, &v));
            GPT_TRY(jinja_list_add(r, *args, v));
        }
    }
    return GPT_OK;
}

/* Names of arguments are those of Python. */
static int bind_arguments(struct jinja_run *r, const struct jinja_function *f,
                          const struct jinja_list *args,
                          const struct jinja_dict *named,
                          struct jinja_value *bound)
{
    size_t used = 0, most = 0;

    while (most < JINJA_ARGS && f->args[most])
        most++;
    for (size_t i = 0; i < most; i++) {
        struct jinja_value *found = NULL;

        GPT_TRY(jinja_dict_find(r, named, jinja_literal(f->args[i]), &found));
        used += found != NULL;
        if (i < args->n)
            bound[i] = args->items[i];
        else if (found)
            bound[i] = *found;
    }
    /* An argument that this program does not know would change the text in a
     * way that the template asks for: it is not dropped. */
    if (args->n > most || used < named->keys.n)
        return jinja_fail(r, "'%s' has an argument that is not supported",
                          f->name);
    return GPT_OK;
}

/* A row of a table has named arguments, which are bound here, or takes all
 * of them as they are. */
int jinja_call(struct jinja_run *r, const struct jinja_function *f,
               struct jinja_value self, const struct jinja_list *args,
               const struct jinja_dict *named, struct jinja_value *v)
{
    struct jinja_value bound[JINJA_ARGS] = {{.kind = JINJA_ABSENT, .i = 0}};

    if (f->call_any)
        return f->call_any(r, self, args, named, v);
    GPT_TRY(bind_arguments(r, f, args, named, bound));
    return f->call(r, self, bound, v);
}

/* A call of a filter or of a test. */
static int call_function(struct jinja_run *r, const struct jinja_node *node,
                         struct jinja_value *v)
{
    struct jinja_value self, named;
    struct jinja_list *args;

    /* The value comes before the arguments, and a message about the call has
     * the line of the call again. */
    GPT_TRY(jinja_evaluate(r, node->a, &self));
    GPT_TRY(evaluate_arguments(r, node->kids, &args, &named));
    r->line = node->line;
    return jinja_call(r, node->function, self, args, named.dict, v);
}

/* The function is computed before its arguments, as Python does it: where
 * both fail, the message is about the same one. */
static int call_value(struct jinja_run *r, const struct jinja_node *node,
                      struct jinja_value *v)
{
    struct jinja_value f, named;
    struct jinja_list *args;

    GPT_TRY(jinja_evaluate(r, node->a, &f));
    GPT_TRY(evaluate_arguments(r, node->kids, &args, &named));
    r->line = node->line;
    switch (f.kind) {
    case JINJA_MACRO:
        return jinja_call_macro(r, f.macro, args, named.dict, v);
    case JINJA_BUILTIN:
        return jinja_call(r, f.function, f, args, named.dict, v);
    case JINJA_METHOD:
        return jinja_call(r, f.method->function, f.method->self, args,
                          named.dict, v);
    /* A macro that is misspelt, or a function that transformers does not
     * give to templates. */
    case JINJA_UNDEFINED:
        return jinja_fail(r, "'%.*s' is undefined", gpt_str_shown(f.s.len),
                          f.s.data);
    default:
        return jinja_fail(r, "%s cannot be called", jinja_kind_name(f.kind));
    }
}

/* ---- kinds of expressions ---- */

/* Each evaluation makes a new list, also of constants. Lists are never
 * changed, so that a constant could be shared, but templates have few of
 * them. */
static int evaluate_list(struct jinja_run *r, const struct jinja_node *node,
                         struct jinja_value *v)
{
    struct jinja_list *list;
    struct jinja_value item;

    GPT_TRY(jinja_list_new(r, &list));
    for (const struct jinja_node *kid = node->kids; kid; kid = kid->next) {
        GPT_TRY(jinja_evaluate(r, kid, &item));
        GPT_TRY(jinja_list_add(r, list, item));
    }
    *v = jinja_list_value(list);
    if (node->kind == JINJA_N_TUPLE)
        v->kind = JINJA_TUPLE;
    return GPT_OK;
}

/* Where a key comes twice, the last value counts, at the place of the
 * first. */
static int evaluate_dict(struct jinja_run *r, const struct jinja_node *node,
                         struct jinja_value *v)
{
    struct jinja_value key, value;

    GPT_TRY(jinja_dict_new(r, JINJA_DICT, v));
    for (const struct jinja_node *kid = node->kids; kid;
         kid = kid->next->next) {
        GPT_TRY(jinja_evaluate(r, kid, &key));
        GPT_TRY(jinja_evaluate(r, kid->next, &value));
        GPT_TRY(jinja_dict_set(r, v->dict, key, value));
    }
    return GPT_OK;
}

/* A limit that is left out and one that is none are the same to Python. */
static int evaluate_slice(struct jinja_run *r, const struct jinja_node *node,
                          struct jinja_value *v)
{
    struct jinja_value of, limits[3];
    int i = 0;

    GPT_TRY(jinja_evaluate(r, node->a, &of));
    for (const struct jinja_node *kid = node->kids; kid; kid = kid->next) {
        /* None, until there is a value. */
        limits[i] = (struct jinja_value){.kind = JINJA_NONE};
        if (kid->kind != JINJA_N_ABSENT)
            GPT_TRY(jinja_evaluate(r, kid, &limits[i]));
        i++;
    }
    r->line = node->line;
    return jinja_slice(r, of, limits, v);
}

/* A chain ends at the first comparison that does not hold; what is behind it
 * is not computed, and may be undefined. */
static int evaluate_comparison(struct jinja_run *r,
                               const struct jinja_node *node,
                               struct jinja_value *v)
{
    struct jinja_value left, right;
    bool holds = true;

    GPT_TRY(jinja_evaluate(r, node->a, &left));
    /* The right side of one comparison is the left side of the next one, and
     * is computed once. */
    for (const struct jinja_node *k = node->kids; k && holds; k = k->next) {
        GPT_TRY(jinja_evaluate(r, k->a, &right));
        GPT_TRY(compare(r, k->op, left, right, &holds));
        left = right;
    }
    *v = jinja_bool(holds);
    return GPT_OK;
}

/* The value is that of the first kid that decides, else that of the last. */
static int evaluate_logic(struct jinja_run *r, const struct jinja_node *node,
                          struct jinja_value *v)
{
    for (const struct jinja_node *kid = node->kids; kid; kid = kid->next) {
        GPT_TRY(jinja_evaluate(r, kid, v));
        if (jinja_truth(*v) == (node->kind == JINJA_N_OR))
            break;
    }
    return GPT_OK;
}

/* Only the branch that counts is computed. Without an else the value is
 * undefined, which prints as nothing. */
static int evaluate_if_else(struct jinja_run *r, const struct jinja_node *node,
                            struct jinja_value *v)
{
    GPT_TRY(jinja_evaluate(r, node->a, v));
    if (jinja_truth(*v))
        return jinja_evaluate(r, node->b, v);
    *v = jinja_undefined(jinja_literal("if without else").s);
    return node->c ? jinja_evaluate(r, node->c, v) : GPT_OK;
}

/* A sign is an addition to 0, which has the checks of types and of overflow
 * already; of floats to -0.0, so that zeros get their sign. */
static int evaluate_sign(struct jinja_run *r, const struct jinja_node *node,
                         struct jinja_value *v)
{
    struct jinja_value a, zero = jinja_int(0);

    GPT_TRY(jinja_evaluate(r, node->a, &a));
    if (!jinja_is_number(a))
        return jinja_type_error(r, "-", zero, a);
    if (a.kind == JINJA_REAL)
        zero = (struct jinja_value){.kind = JINJA_REAL, .x = -0.0};
    return jinja_compute(
        r, node->kind == JINJA_N_NEGATE ? JINJA_SUBTRACT : JINJA_ADD, zero, a,
        v);
}

/* The left side is computed before the right one. */
static int evaluate_two(struct jinja_run *r, const struct jinja_node *node,
                        struct jinja_value *v)
{
    struct jinja_value a, b;

    GPT_TRY(jinja_evaluate(r, node->a, &a));
    GPT_TRY(jinja_evaluate(r, node->b, &b));
    r->line = node->line;
    return node->kind == JINJA_N_ITEM ? jinja_item(r, a, b, v)
                                      : jinja_compute(r, node->op, a, b, v);
}

/* One case a kind of expression. Those with a few lines are here, the others
 * are above. */
static int evaluate_node(struct jinja_run *r, const struct jinja_node *node,
                         struct jinja_value *v)
{
    struct jinja_value a;

    switch (node->kind) {
    case JINJA_N_CONST:
        *v = node->value;
        return GPT_OK;
    case JINJA_N_NAME:
        return jinja_lookup(r, node->name, v);
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
        return evaluate_list(r, node, v);
    case JINJA_N_DICT:
        return evaluate_dict(r, node, v);
    case JINJA_N_ATTR:
        GPT_TRY(jinja_evaluate(r, node->a, &a));
        r->line = node->line;
        return jinja_attribute(r, a, node->name, v);
    case JINJA_N_SLICE:
        return evaluate_slice(r, node, v);
    case JINJA_N_MACRO:
        return jinja_macro(r, node, v);
    case JINJA_N_CALL:
        return call_value(r, node, v);
    case JINJA_N_FILTER:
    case JINJA_N_TEST:
        return call_function(r, node, v);
    case JINJA_N_NOT:
        GPT_TRY(jinja_evaluate(r, node->a, &a));
        *v = jinja_bool(!jinja_truth(a));
        return GPT_OK;
    case JINJA_N_NEGATE:
    case JINJA_N_PLUS:
        return evaluate_sign(r, node, v);
    case JINJA_N_AND:
    case JINJA_N_OR:
        return evaluate_logic(r, node, v);
    case JINJA_N_COMPARE:
        return evaluate_comparison(r, node, v);
    case JINJA_N_IF_ELSE:
        return evaluate_if_else(r, node, v);
    default:
        return evaluate_two(r, node, v);
    }
}

/* Every expression counts as a step, and as a level while it is computed:
 * recursion of C follows that of the template, and must end before the stack
 * does. */
int jinja_evaluate(struct jinja_run *r, const struct jinja_node *node,
                   struct jinja_value *v)
{
    r->line = node->line;
    GPT_TRY(jinja_descend(r));
    GPT_TRY(evaluate_node(r, node, v));
    r->depth--;
    return GPT_OK;
}
