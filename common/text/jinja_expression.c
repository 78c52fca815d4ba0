/* Expressions of a template; see jinja_internal.h. Start at
 * jinja_parse_expression(): one function a level of precedence, from the
 * loosest at the end of the file to what follows a value, as Jinja has them.
 * Where Jinja differs from Python, Jinja counts. */
#include "text/jinja_internal.h"


/* ---- what follows a value ---- */

/* One of the three parts of a slice, or nothing. */
static int parse_limit(struct jinja_parser *p, struct jinja_node **node)
{
    if (jinja_is(p, ":") || jinja_is(p, "]"))
        return jinja_node_new(p, JINJA_N_ABSENT, node);
    return jinja_parse_expression(p, true, node);
}

/* Behind "[": an item, or a slice. */
static int parse_subscript(struct jinja_parser *p, struct jinja_node *of,
                           struct jinja_node **node)
{
    struct jinja_node *part;
    int parts = 1;

    GPT_TRY(jinja_node_new(p, JINJA_N_ITEM, node));
    (*node)->a = of;
    GPT_TRY(parse_limit(p, &part));
    /* One expression and nothing else is an index; everything else has
     * colons. */
    if (part->kind != JINJA_N_ABSENT && jinja_accept(p, "]")) {
        (*node)->b = part;
        return GPT_OK;
    }
    (*node)->kind = JINJA_N_SLICE;
    jinja_node_append(&(*node)->kids, part);
    if (!jinja_is(p, ":"))
        return jinja_syntax_error(p, "one index is expected in brackets");
    for (; parts < 3; parts++) {
        if (jinja_accept(p, ":"))
            GPT_TRY(parse_limit(p, &part));
        else
            GPT_TRY(jinja_node_new(p, JINJA_N_ABSENT, &part));
        jinja_node_append(&(*node)->kids, part);
    }
    return jinja_expect(p, "]");
}

/* A number behind a point is an element, as in other template languages:
 * 'x.0' is 'x[0]'. */
static int parse_dot(struct jinja_parser *p, struct jinja_node *of,
                     struct jinja_node **node)
{
    GPT_TRY(jinja_node_new(p, JINJA_N_ATTR, node));
    (*node)->a = of;
    if (p->at->type != JINJA_WHOLE)
        return jinja_expect_name(p, &(*node)->name);
    (*node)->kind = JINJA_N_ITEM;
    return jinja_parse_number(p, &(*node)->b);
}

/* Arguments behind any value: what is called may be a macro, a function or a
 * method, and is known only when the template runs. */
static int parse_call(struct jinja_parser *p, struct jinja_node *of,
                      struct jinja_node **node)
{
    GPT_TRY(jinja_node_new(p, JINJA_N_CALL, node));
    (*node)->a = of;
    return jinja_parse_arguments(p, &(*node)->kids);
}

/* Points, brackets and calls follow each other in any order and number. */
static int parse_postfix(struct jinja_parser *p, struct jinja_node **node)
{
    for (;;) {
        if (jinja_accept(p, "."))
            GPT_TRY(parse_dot(p, *node, node));
        else if (jinja_accept(p, "["))
            GPT_TRY(parse_subscript(p, *node, node));
        else if (jinja_accept(p, "("))
            GPT_TRY(parse_call(p, *node, node));
        else
            return GPT_OK;
    }
}

/* ---- filters and tests ---- */

/* The filter is found now, so that a template with one that is not supported
 * is refused before the first message is rendered. */
static int parse_filter(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *of = *node;

    GPT_TRY(jinja_node_new(p, JINJA_N_FILTER, node));
    (*node)->a = of;
    GPT_TRY(jinja_expect_name(p, &(*node)->name));
    (*node)->function = jinja_find_filter((*node)->name);
    if (!(*node)->function)
        return jinja_syntax_error(p, "the filter '%.*s' is not supported",
                                  gpt_str_shown((*node)->name.len),
                                  (*node)->name.data);
    return jinja_accept(p, "(") ? jinja_parse_arguments(p, &(*node)->kids)
                                : GPT_OK;
}

/* A test may have one argument without parentheses: "x is in y". */
static bool argument_follows(const struct jinja_parser *p)
{
    static const char *const words[] = {"else", "or", "and", "if"};

    if (p->at->type == JINJA_NAME) {
        for (size_t i = 0; i < GPT_COUNT(words); i++)
            if (jinja_is(p, words[i]))
                return false;
        return true;
    }
    return p->at->type == JINJA_LITERAL || p->at->type == JINJA_WHOLE ||
           p->at->type == JINJA_FRACTION || jinja_is(p, "[") ||
           jinja_is(p, "{");
}

/* 'is not' is a test and then a negation. Arguments are in parentheses, or
 * one stands behind the name without them. */
static int parse_test(struct jinja_parser *p, struct jinja_node **node)
{
    const bool negated = jinja_accept(p, "not");
    struct jinja_node *of = *node, *test, *argument;

    GPT_TRY(jinja_node_new(p, JINJA_N_TEST, &test));
    test->a = of;
    GPT_TRY(jinja_expect_name(p, &test->name));
    test->function = jinja_find_test(test->name);
    if (!test->function)
        return jinja_syntax_error(p, "the test '%.*s' is not supported",
                                  gpt_str_shown(test->name.len),
                                  test->name.data);
    if (jinja_accept(p, "(")) {
        GPT_TRY(jinja_parse_arguments(p, &test->kids));
    } else if (argument_follows(p)) {
        /* Jinja refuses this, too: it would read as a test of the argument. */
        if (jinja_is(p, "is"))
            return jinja_syntax_error(p, "a test cannot test a test");
        GPT_TRY(jinja_parse_primary(p, &argument));
        GPT_TRY(parse_postfix(p, &argument));
        jinja_node_append(&test->kids, argument);
    }
    *node = test;
    if (!negated)
        return GPT_OK;
    GPT_TRY(jinja_node_new(p, JINJA_N_NOT, node));
    (*node)->a = test;
    return GPT_OK;
}

/* Filters and tests bind tighter than any operator that takes two values: 'a
 * + b|trim' trims b alone. */
static int parse_filters(struct jinja_parser *p, struct jinja_node **node)
{
    for (;;) {
        if (jinja_accept(p, "|"))
            GPT_TRY(parse_filter(p, node));
        else if (jinja_accept(p, "is"))
            GPT_TRY(parse_test(p, node));
        else if (jinja_accept(p, "("))
            GPT_TRY(parse_call(p, *node, node));
        else
            return GPT_OK;
    }
}

/* ---- operators ---- */

/* A sign takes a value without its filters: '-x|abs' is the filter of '-x'. */
static int parse_unary(struct jinja_parser *p, bool with_filter,
                       struct jinja_node **node)
{
    const bool minus = jinja_is(p, "-");

    GPT_TRY(jinja_enter(p));
    if (minus || jinja_is(p, "+")) {
        GPT_TRY(jinja_node_new(p, minus ? JINJA_N_NEGATE : JINJA_N_PLUS, node));
        p->at++;
        GPT_TRY(parse_unary(p, false, &(*node)->a));
    } else {
        GPT_TRY(jinja_parse_primary(p, node));
    }
    GPT_TRY(parse_postfix(p, node));
    if (with_filter)
        GPT_TRY(parse_filters(p, node));
    p->depth--;
    return GPT_OK;
}

/* The operators that take two, from the loosest, which are of levels; each
 * level begins from the left. */
static const struct {
    int level;
    const char *word;
    enum jinja_op op;
} operators[] = {
    {0, "+", JINJA_ADD},          {0, "-", JINJA_SUBTRACT},
    {1, "~", JINJA_CONCAT},       {2, "*", JINJA_MULTIPLY},
    {2, "/", JINJA_DIVIDE},       {2, "//", JINJA_FLOOR_DIVIDE},
    {2, "%", JINJA_MODULO},       {3, "**", JINJA_POWER},
};
enum { LEVELS = 4 };

/* Operators of one level are taken from the left, powers, too: '2 ** 3 ** 2'
 * is 64 in Jinja, and not 512 as in Python. */
static int parse_level(struct jinja_parser *p, int level,
                       struct jinja_node **node)
{
    if (level == LEVELS)
        return parse_unary(p, true, node);
    GPT_TRY(parse_level(p, level + 1, node));
    for (size_t i = 0; i < GPT_COUNT(operators);) {
        struct jinja_node *left = *node;

        if (operators[i].level != level || !jinja_is(p, operators[i].word)) {
            i++;
            continue;
        }
        GPT_TRY(jinja_node_new(p, JINJA_N_BINARY, node));
        p->at++;
        (*node)->op = operators[i].op;
        (*node)->a = left;
        GPT_TRY(parse_level(p, level + 1, &(*node)->b));
        /* The same level again: what follows may be another operator of it. */
        i = 0;
    }
    return GPT_OK;
}

/* True when the next token compares; it is taken. */
static bool accept_comparison(struct jinja_parser *p, enum jinja_op *op)
{
    static const struct {
        const char *word;
        enum jinja_op op;
    } words[] = {
        {"==", JINJA_EQ}, {"!=", JINJA_NE}, {"<", JINJA_LT}, {"<=", JINJA_LE},
        {">", JINJA_GT},  {">=", JINJA_GE}, {"in", JINJA_IN},
    };

    for (size_t i = 0; i < GPT_COUNT(words); i++) {
        *op = words[i].op;
        if (jinja_accept(p, words[i].word))
            return true;
    }
    /* Two words that are one operator. A 'not' alone cannot stand here. */
    *op = JINJA_NOT_IN;
    if (!jinja_is(p, "not") || p->at[1].type != JINJA_NAME ||
        !gpt_str_equal(p->at[1].s, "in", 2))
        return false;
    p->at += 2;
    return true;
}

/* a < b < c is one comparison of three. */
static int parse_comparison(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *first, *kid;
    enum jinja_op op;

    GPT_TRY(parse_level(p, 0, node));
    if (!accept_comparison(p, &op))
        return GPT_OK;
    first = *node;
    GPT_TRY(jinja_node_new(p, JINJA_N_COMPARE, node));
    (*node)->a = first;
    do {
        struct jinja_node *right;

        GPT_TRY(jinja_node_new(p, JINJA_N_COMPARE, &kid));
        GPT_TRY(parse_level(p, 0, &right));
        kid->op = op;
        kid->a = right;
        jinja_node_append(&(*node)->kids, kid);
    } while (accept_comparison(p, &op));
    return GPT_OK;
}

/* Negation is looser than comparison: 'not a == b' is 'not (a == b)'. */
static int parse_not(struct jinja_parser *p, struct jinja_node **node)
{
    if (!jinja_is(p, "not"))
        return parse_comparison(p, node);
    GPT_TRY(jinja_enter(p));
    GPT_TRY(jinja_node_new(p, JINJA_N_NOT, node));
    p->at++;
    GPT_TRY(parse_not(p, &(*node)->a));
    p->depth--;
    return GPT_OK;
}

/* and, or: any number of kids, of which the first that decides is the value. */
static int parse_logic(struct jinja_parser *p, bool any,
                       struct jinja_node **node)
{
    struct jinja_node *kid;

    GPT_TRY(any ? parse_logic(p, false, node) : parse_not(p, node));
    if (!jinja_is(p, any ? "or" : "and"))
        return GPT_OK;
    kid = *node;
    GPT_TRY(jinja_node_new(p, any ? JINJA_N_OR : JINJA_N_AND, node));
    jinja_node_append(&(*node)->kids, kid);
    while (jinja_accept(p, any ? "or" : "and")) {
        GPT_TRY(any ? parse_logic(p, false, &kid) : parse_not(p, &kid));
        jinja_node_append(&(*node)->kids, kid);
    }
    return GPT_OK;
}

/* The loosest operator is 'if'. Where a tag has an 'if' of its own, as that
 * of a loop, the caller says so. */
int jinja_parse_expression(struct jinja_parser *p, bool with_if,
                           struct jinja_node **node)
{
    GPT_TRY(jinja_enter(p));
    GPT_TRY(parse_logic(p, true, node));
    while (with_if && jinja_is(p, "if")) {
        struct jinja_node *value = *node;

        GPT_TRY(jinja_node_new(p, JINJA_N_IF_ELSE, node));
        p->at++;
        (*node)->b = value;
        GPT_TRY(parse_logic(p, true, &(*node)->a));
        if (jinja_accept(p, "else"))
            GPT_TRY(jinja_parse_expression(p, true, &(*node)->c));
    }
    p->depth--;
    return GPT_OK;
}

/* A comma behind the last element is allowed, and makes a tuple of one
 * element. */
int jinja_parse_tuple(struct jinja_parser *p, bool with_if,
                      struct jinja_node **node)
{
    struct jinja_node *first;

    GPT_TRY(jinja_parse_expression(p, with_if, node));
    if (!jinja_is(p, ","))
        return GPT_OK;
    first = *node;
    GPT_TRY(jinja_node_new(p, JINJA_N_TUPLE, node));
    jinja_node_append(&(*node)->kids, first);
    while (jinja_accept(p, ",")) {
        if (p->at->type == JINJA_END || jinja_is(p, ")"))
            break;
        GPT_TRY(jinja_parse_expression(p, with_if, &first));
        jinja_node_append(&(*node)->kids, first);
    }
    return GPT_OK;
}
