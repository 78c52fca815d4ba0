/* The smallest parts of expressions: constants, names, what is in brackets; see
 * jinja_internal.h. Start at jinja_parse_primary(). */
#include "text/jinja_internal.h"

#include "base/num.h"

#include <string.h>

/* ---- what is in brackets ---- */

/* Expressions up to a closing bracket; a comma may be the last. */
static int parse_list(struct jinja_parser *p, const char *close,
                      struct jinja_node **kids)
{
    while (!jinja_is(p, close)) {
        struct jinja_node *kid;

        GPT_TRY(jinja_parse_expression(p, true, &kid));
        jinja_node_append(kids, kid);
        if (!jinja_accept(p, ","))
            break;
    }
    return jinja_expect(p, close);
}

/* Keys are expressions: a name without quotes is a variable, unlike in
 * JavaScript. */
static int parse_dict(struct jinja_parser *p, struct jinja_node **kids)
{
    while (!jinja_is(p, "}")) {
        struct jinja_node *kid;

        GPT_TRY(jinja_parse_expression(p, true, &kid));
        jinja_node_append(kids, kid);
        GPT_TRY(jinja_expect(p, ":"));
        GPT_TRY(jinja_parse_expression(p, true, &kid));
        jinja_node_append(kids, kid);
        if (!jinja_accept(p, ","))
            break;
    }
    return jinja_expect(p, "}");
}

/* Behind "(": positions first, then names. */
int jinja_parse_arguments(struct jinja_parser *p, struct jinja_node **kids)
{
    bool named = false, spread = false;

    while (!jinja_is(p, ")")) {
        const struct jinja_token *word = p->at;
        struct jinja_node *kid;

        if (jinja_is(p, "**"))
            return jinja_syntax_error(p, "'**' before an argument is not "
                                         "supported");
        /* A name and '=' cannot begin an expression, so that two tokens are
         * enough to know. */
        if (word->type == JINJA_NAME && word[1].type == JINJA_OPERATOR &&
            gpt_str_equal(word[1].s, "=", 1)) {
            GPT_TRY(jinja_node_new(p, JINJA_N_KEYWORD, &kid));
            kid->name = word->s;
            p->at += 2;
            GPT_TRY(jinja_parse_expression(p, true, &kid->a));
            named = true;
        } else if (!spread && jinja_accept(p, "*")) {
            GPT_TRY(jinja_node_new(p, JINJA_N_SPREAD, &kid));
            GPT_TRY(jinja_parse_expression(p, true, &kid->a));
            spread = true;
        } else if (named || spread) {
            return jinja_syntax_error(p, "an argument without a name follows "
                                         "one with a name or with '*'");
        } else {
            GPT_TRY(jinja_parse_expression(p, true, &kid));
        }
        jinja_node_append(kids, kid);
        if (!jinja_accept(p, ","))
            break;
    }
    return jinja_expect(p, ")");
}

/* ---- values ---- */

/* The value is computed when the template is read, and used by every
 * rendering. */
static int make_const(struct jinja_parser *p, struct jinja_value v,
                      struct jinja_node **node)
{
    GPT_TRY(jinja_node_new(p, JINJA_N_CONST, node));
    (*node)->value = v;
    return GPT_OK;
}

/* Strings side by side are one. */
static int parse_string(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_value v = {.kind = JINJA_STRING};
    size_t n = 0, parts = 0;

    /* The length of all parts first, as the arena cannot grow a block. */
    while (p->at[parts].type == JINJA_LITERAL)
        n += p->at[parts++].s.len;
    char *text = gpt_arena_alloc(p->arena, n + 1, 1);
    if (!text)
        return gpt_no_memory(p->err, "a template");
    v.s = (struct gpt_str){text, n};
    GPT_TRY(make_const(p, v, node));
    for (; parts > 0; parts--, p->at++) {
        memcpy(text, p->at->s.data, p->at->s.len);
        text += p->at->s.len;
    }
    return GPT_OK;
}

/* Python's integers have no end; here they have 64 bits. */
int jinja_parse_number(struct jinja_parser *p, struct jinja_node **node)
{
    const bool whole = p->at->type == JINJA_WHOLE;
    struct jinja_value v = {.kind = whole ? JINJA_INT : JINJA_REAL};
    char text[64];
    size_t n = 0;

    for (size_t i = 0; i < p->at->s.len && n < sizeof(text) - 1; i++)
        if (p->at->s.data[i] != '_')
            text[n++] = p->at->s.data[i];
    /* Digits without their underscores. */
    text[n] = '\0';
    if (n == sizeof(text) - 1 || (whole && !gpt_parse_int(text, &v.i)) ||
        (!whole && !gpt_parse_real(text, &v.x)))
        return jinja_syntax_error(p, "the number %.*s is too large",
                                  gpt_str_shown(p->at->s.len), p->at->s.data);
    GPT_TRY(make_const(p, v, node));
    p->at++;
    return GPT_OK;
}

/* In a macro the next name may be what it is called with beside its parameters,
 * unless a parameter has that name, where the caller alone needs a value. The
 * caller is known in a macro that is in no other one. */
static int check_of_call(struct jinja_parser *p)
{
    const struct jinja_node *own = p->parameters;
    const bool caller = jinja_is(p, "caller");

    if (!caller && !jinja_is(p, "varargs") && !jinja_is(p, "kwargs"))
        return GPT_OK;
    while (own && !gpt_str_equal(own->name, p->at->s.data, p->at->s.len))
        own = own->next;
    if (own && (!caller || own->a))
        return GPT_OK;
    if (own || !caller || !p->macro || p->macros > 1)
        return jinja_syntax_error(p, "'%.*s' in a macro is not supported",
                                  gpt_str_shown(p->at->s.len), p->at->s.data);
    p->macro->calls_back = true;
    return GPT_OK;
}

/* Jinja has the constants in two spellings. They are words and no variables:
 * a template cannot set them. */
static int parse_name(struct jinja_parser *p, struct jinja_node **node)
{
    static const struct {
        const char *words[2];
        struct jinja_value value;
    } constants[] = {
        {{"true", "True"}, {.kind = JINJA_BOOL, .i = 1}},
        {{"false", "False"}, {.kind = JINJA_BOOL, .i = 0}},
        {{"none", "None"}, {.kind = JINJA_NONE, .i = 0}},
    };

    for (size_t i = 0; i < GPT_COUNT(constants); i++)
        if (jinja_accept(p, constants[i].words[0]) ||
            jinja_accept(p, constants[i].words[1])) {
            /* The node gets the line of the word, which was already taken. */
            p->at--;
            GPT_TRY(make_const(p, constants[i].value, node));
            p->at++;
            return GPT_OK;
        }
    GPT_TRY(jinja_node_new(p, JINJA_N_NAME, node));
    if (p->macros)
        GPT_TRY(check_of_call(p));
    return jinja_expect_name(p, &(*node)->name);
}

/* In parentheses: nothing, one expression, or a tuple. */
static int parse_group(struct jinja_parser *p, struct jinja_node **node)
{
    if (jinja_is(p, ")"))
        GPT_TRY(jinja_node_new(p, JINJA_N_TUPLE, node));
    else
        GPT_TRY(jinja_parse_tuple(p, true, node));
    return jinja_expect(p, ")");
}

/* What begins an expression decides what it is. A bracket opens a list, a
 * brace a dict, a parenthesis a group or a tuple. */
int jinja_parse_primary(struct jinja_parser *p, struct jinja_node **node)
{
    switch (p->at->type) {
    case JINJA_NAME:
        return parse_name(p, node);
    case JINJA_LITERAL:
        return parse_string(p, node);
    case JINJA_WHOLE:
    case JINJA_FRACTION:
        return jinja_parse_number(p, node);
    default:
        break;
    }
    if (jinja_accept(p, "("))
        return parse_group(p, node);
    GPT_TRY(jinja_node_new(p, JINJA_N_LIST, node));
    if (jinja_accept(p, "["))
        return parse_list(p, "]", &(*node)->kids);
    (*node)->kind = JINJA_N_DICT;
    if (jinja_accept(p, "{"))
        return parse_dict(p, &(*node)->kids);
    return jinja_syntax_error(p, "an expression is missing");
}
