/* Statements of a template; see jinja_internal.h. Start at
 * gpt_jinja_compile(): tokens, then a list of statements up to the end, in
 * which each tag is a row of a table. */
#include "text/jinja_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* All messages about a template begin with its line. */
int jinja_syntax_error(const struct jinja_parser *p, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return gpt_fail(p->err, GPT_EDATA, "line %d: %s", p->at->line, text);
}

/* The line of a node is that of the token at which it begins. */
int jinja_node_new(struct jinja_parser *p, enum jinja_node_kind kind,
                   struct jinja_node **node)
{
    struct jinja_node *n = gpt_arena_alloc(p->arena, 1, sizeof(*n));

    if (!n)
        return gpt_no_memory(p->err, "a template");
    n->kind = kind;
    n->line = p->at->line;
    *node = n;
    return GPT_OK;
}

/* The first node of a list knows the last one: a list may be as long as a
 * template. */
void jinja_node_append(struct jinja_node **list, struct jinja_node *node)
{
    if (*list)
        (*list)->last->next = node;
    else
        *list = node;
    (*list)->last = node;
}

/* Strings and texts never are: a template may print the word 'endif'. */
bool jinja_is(const struct jinja_parser *p, const char *word)
{
    return (p->at->type == JINJA_NAME || p->at->type == JINJA_OPERATOR) &&
           gpt_str_equal(p->at->s, word, strlen(word));
}

/* The last token is EOF, which is no word, so that the reader cannot pass
 * the end. */
bool jinja_accept(struct jinja_parser *p, const char *word)
{
    const bool found = jinja_is(p, word);

    p->at += found;
    return found;
}

/* The message shows what is there instead: mostly the tag of another
 * statement. */
int jinja_expect(struct jinja_parser *p, const char *word)
{
    if (jinja_accept(p, word))
        return GPT_OK;
    return jinja_syntax_error(p, "'%s' is expected, not '%.*s'", word,
                              gpt_str_shown(p->at->s.len), p->at->s.data);
}

/* Words of the language are names here, as in Jinja: a member of a message
 * may be called 'if'. */
int jinja_expect_name(struct jinja_parser *p, struct gpt_str *name)
{
    if (p->at->type != JINJA_NAME)
        return jinja_syntax_error(p, "a name is expected, not '%.*s'",
                                  gpt_str_shown(p->at->s.len), p->at->s.data);
    *name = p->at++->s;
    return GPT_OK;
}

/* The parser calls itself for what is nested. Templates of published models
 * have less than 20 levels. */
int jinja_enter(struct jinja_parser *p)
{
    enum { MOST = 200 };

    return ++p->depth <= MOST
               ? GPT_OK
               : jinja_syntax_error(p, "more than %d levels", MOST);
}

/* What is left in a tag was not understood, and is refused rather than
 * ignored. */
static int expect_end(struct jinja_parser *p)
{
    if (p->at->type != JINJA_END)
        return jinja_syntax_error(p, "the end of the tag is expected, not "
                                  "'%.*s'", gpt_str_shown(p->at->s.len),
                                  p->at->s.data);
    p->at++;
    return GPT_OK;
}

/* ---- targets ---- */

/* A name, or a member of a namespace. */
static int parse_one_target(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *of;

    GPT_TRY(jinja_node_new(p, JINJA_N_NAME, node));
    GPT_TRY(jinja_expect_name(p, &(*node)->name));
    if (!jinja_accept(p, "."))
        return GPT_OK;
    of = *node;
    GPT_TRY(jinja_node_new(p, JINJA_N_ATTR, node));
    (*node)->a = of;
    return jinja_expect_name(p, &(*node)->name);
}

/* A name, a member of a namespace, or names with commas between them: these
 * take the elements of a list apart. */
static int parse_target(struct jinja_parser *p, struct jinja_node **node)
{
    const bool group = jinja_accept(p, "(");
    struct jinja_node *first;

    GPT_TRY(parse_one_target(p, node));
    if (jinja_is(p, ",")) {
        first = *node;
        GPT_TRY(jinja_node_new(p, JINJA_N_TUPLE, node));
        jinja_node_append(&(*node)->kids, first);
        while (jinja_accept(p, ",")) {
            GPT_TRY(parse_one_target(p, &first));
            jinja_node_append(&(*node)->kids, first);
        }
    }
    return group ? jinja_expect(p, ")") : GPT_OK;
}

/* ---- tags ---- */

static int parse_body(struct jinja_parser *p, const char *const *ends,
                      struct jinja_node **list);

/* Behind the name of a tag that ends a body. */
static int parse_block(struct jinja_parser *p, const char *end,
                       struct jinja_node **list)
{
    const char *const ends[] = {end, NULL};

    GPT_TRY(parse_body(p, ends, list));
    GPT_TRY(jinja_expect(p, end));
    return expect_end(p);
}

/* Each 'elif' is a statement in the 'else' of the one before, and ends with
 * the same 'endif'. */
static int parse_if(struct jinja_parser *p, struct jinja_node **node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};

    GPT_TRY(jinja_node_new(p, JINJA_N_IF, node));
    GPT_TRY(jinja_parse_tuple(p, false, &(*node)->a));
    GPT_TRY(expect_end(p));
    GPT_TRY(parse_body(p, ends, &(*node)->kids));
    if (jinja_accept(p, "elif")) {
        GPT_TRY(jinja_enter(p));
        GPT_TRY(parse_if(p, &(*node)->b));
        p->depth--;
        return GPT_OK;
    }
    if (jinja_accept(p, "else")) {
        GPT_TRY(expect_end(p));
        return parse_block(p, "endif", &(*node)->b);
    }
    GPT_TRY(jinja_expect(p, "endif"));
    return expect_end(p);
}

/* The condition behind 'if' chooses elements before the loop begins, so that
 * its length and its last turn are those of what is left. */
static int parse_for(struct jinja_parser *p, struct jinja_node **node)
{
    static const char *const ends[] = {"else", "endfor", NULL};

    GPT_TRY(jinja_node_new(p, JINJA_N_FOR, node));
    GPT_TRY(parse_target(p, &(*node)->b));
    GPT_TRY(jinja_expect(p, "in"));
    GPT_TRY(jinja_parse_tuple(p, false, &(*node)->a));
    if (jinja_accept(p, "if"))
        GPT_TRY(jinja_parse_expression(p, true, &(*node)->c));
    if (jinja_is(p, "recursive"))
        return jinja_syntax_error(p, "'recursive' is not supported");
    GPT_TRY(expect_end(p));
    /* Only the body may leave the loop; its 'else' is outside. */
    p->loops++;
    GPT_TRY(parse_body(p, ends, &(*node)->kids));
    p->loops--;
    if (jinja_accept(p, "else")) {
        GPT_TRY(expect_end(p));
        return parse_block(p, "endfor", &(*node)->d);
    }
    GPT_TRY(jinja_expect(p, "endfor"));
    return expect_end(p);
}

/* Without '=' the text up to 'endset' is the value. */
static int parse_set(struct jinja_parser *p, struct jinja_node **node)
{
    GPT_TRY(jinja_node_new(p, JINJA_N_SET, node));
    GPT_TRY(parse_target(p, &(*node)->b));
    if (jinja_accept(p, "=")) {
        GPT_TRY(jinja_parse_tuple(p, true, &(*node)->a));
        return expect_end(p);
    }
    if (jinja_is(p, "|"))
        return jinja_syntax_error(p, "a filter of 'set' is not supported");
    (*node)->kind = JINJA_N_SET_BLOCK;
    GPT_TRY(expect_end(p));
    return parse_block(p, "endset", &(*node)->kids);
}

/* Names, each with a value for when it is not given. */
static int parse_parameters(struct jinja_parser *p, struct jinja_node **list)
{
    struct jinja_node *parameter = NULL;

    GPT_TRY(jinja_expect(p, "("));
    while (!jinja_is(p, ")")) {
        const bool after_value = parameter && parameter->a;

        GPT_TRY(jinja_node_new(p, JINJA_N_NAME, &parameter));
        GPT_TRY(jinja_expect_name(p, &parameter->name));
        /* Computed at each call, in the macro's own scope. */
        if (jinja_accept(p, "="))
            GPT_TRY(jinja_parse_expression(p, true, &parameter->a));
        else if (after_value)
            return jinja_syntax_error(p, "'%.*s' needs a value, as the "
                                      "parameter before it has one",
                                      gpt_str_shown(parameter->name.len),
                                      parameter->name.data);
        jinja_node_append(list, parameter);
        if (!jinja_accept(p, ","))
            break;
    }
    return jinja_expect(p, ")");
}

/* The body of a macro, or of the block of a call. A loop around it is not one
 * that it may leave: it runs somewhere else. */
static int parse_macro_body(struct jinja_parser *p, struct jinja_node *node,
                            const char *end, struct jinja_node *macro)
{
    const int loops = p->loops;
    const struct jinja_node *parameters = p->parameters;
    struct jinja_node *around = p->macro;

    p->loops = 0;
    p->macros++;
    p->parameters = node->a;
    p->macro = macro;
    GPT_TRY(parse_block(p, end, &node->kids));
    p->macro = around;
    p->parameters = parameters;
    p->macros--;
    p->loops = loops;
    return GPT_OK;
}

static int parse_macro(struct jinja_parser *p, struct jinja_node **node)
{
    GPT_TRY(jinja_node_new(p, JINJA_N_MACRO, node));
    GPT_TRY(jinja_expect_name(p, &(*node)->name));
    GPT_TRY(parse_parameters(p, &(*node)->a));
    GPT_TRY(expect_end(p));
    return parse_macro_body(p, *node, "endmacro", *node);
}

/* A call with one argument more, by the name of caller: a macro that has the
 * block as its body. */
static int parse_call(struct jinja_parser *p, struct jinja_node **node)
{
    static const struct gpt_str name = {"caller", 6};
    struct jinja_node *block = NULL, *call = NULL, *caller = NULL;

    GPT_TRY(jinja_node_new(p, JINJA_N_OUTPUT, node));
    GPT_TRY(jinja_node_new(p, JINJA_N_MACRO, &block));
    GPT_TRY(jinja_node_new(p, JINJA_N_KEYWORD, &caller));
    block->name = caller->name = name;
    caller->a = block;
    if (jinja_is(p, "("))
        GPT_TRY(parse_parameters(p, &block->a));
    GPT_TRY(jinja_parse_expression(p, true, &call));
    if (call->kind != JINJA_N_CALL)
        return jinja_syntax_error(p, "'call' is followed by no call of a "
                                     "macro");
    (*node)->a = call;
    GPT_TRY(expect_end(p));
    GPT_TRY(parse_macro_body(p, block, "endcall", NULL));
    jinja_node_append(&call->kids, caller);
    return GPT_OK;
}

/* Names that hold up to 'endwith' only. */
static int parse_with(struct jinja_parser *p, struct jinja_node **node)
{
    GPT_TRY(jinja_node_new(p, JINJA_N_WITH, node));
    while (p->at->type == JINJA_NAME) {
        struct jinja_node *set = NULL;

        GPT_TRY(jinja_node_new(p, JINJA_N_SET, &set));
        GPT_TRY(parse_one_target(p, &set->b));
        GPT_TRY(jinja_expect(p, "="));
        GPT_TRY(jinja_parse_expression(p, true, &set->a));
        jinja_node_append(&(*node)->a, set);
        if (!jinja_accept(p, ","))
            break;
    }
    GPT_TRY(expect_end(p));
    return parse_block(p, "endwith", &(*node)->kids);
}

/* {% generation %} marks what the assistant says, for training. Here its text
 * is written as it is, in a scope of its own. */
static int parse_generation(struct jinja_parser *p, struct jinja_node **node)
{
    GPT_TRY(jinja_node_new(p, JINJA_N_WITH, node));
    GPT_TRY(expect_end(p));
    return parse_block(p, "endgeneration", &(*node)->kids);
}

/* Whether there is a loop around is known now; a rendering need not look. */
static int parse_leave(struct jinja_parser *p, struct jinja_node **node)
{
    const bool breaks = gpt_str_equal(p->at[-1].s, "break", 5);

    if (p->loops == 0)
        return jinja_syntax_error(p, "'%s' is outside of a loop",
                                  breaks ? "break" : "continue");
    GPT_TRY(jinja_node_new(p, breaks ? JINJA_N_BREAK : JINJA_N_CONTINUE, node));
    return expect_end(p);
}

/* Tags that Jinja has for other purposes, as including files, are not in the
 * table, and are refused by name. */
static int parse_tag(struct jinja_parser *p, struct jinja_node **node)
{
    static const struct {
        const char *name;
        int (*parse)(struct jinja_parser *p, struct jinja_node **node);
    } tags[] = {
        {"if", parse_if},         {"for", parse_for},
        {"set", parse_set},       {"macro", parse_macro},
        {"with", parse_with},     {"generation", parse_generation},
        {"break", parse_leave},   {"continue", parse_leave},
        {"call", parse_call},
    };

    for (size_t i = 0; i < GPT_COUNT(tags); i++)
        if (jinja_accept(p, tags[i].name))
            return tags[i].parse(p, node);
    return jinja_syntax_error(p, "the tag '%.*s' is not supported here",
                              gpt_str_shown(p->at->s.len), p->at->s.data);
}

/* Statements up to one of the tags `ends`, whose name is the next token then,
 * or up to the end of the template. */
static int parse_body(struct jinja_parser *p, const char *const *ends,
                      struct jinja_node **list)
{
    GPT_TRY(jinja_enter(p));
    for (; p->at->type != JINJA_EOF; list = &(*list)->next) {
        if (p->at->type == JINJA_TEXT) {
            GPT_TRY(jinja_node_new(p, JINJA_N_TEXT, list));
            (*list)->name = p->at++->s;
        } else if (p->at->type == JINJA_OUTPUT) {
            GPT_TRY(jinja_node_new(p, JINJA_N_OUTPUT, list));
            p->at++;
            GPT_TRY(jinja_parse_tuple(p, true, &(*list)->a));
            GPT_TRY(expect_end(p));
        } else {
            p->at++;
            /* The tag that ends the body is left to the caller, which knows
             * what may follow it. */
            for (const char *const *end = ends; *end; end++)
                if (jinja_is(p, *end)) {
                    p->depth--;
                    return GPT_OK;
                }
            GPT_TRY(parse_tag(p, list));
        }
    }
    p->depth--;
    return *ends ? jinja_syntax_error(p, "the template ends before '%s'",
                                      *ends)
                 : GPT_OK;
}

/* ---- the whole ---- */

/* All memory is in the template's arena: a failure half-way leaves nothing
 * behind. */
int gpt_jinja_compile(struct gpt_jinja **out, const char *text, size_t len,
                      struct gpt_err *err)
{
    static const char *const none[] = {NULL};
    struct gpt_jinja *t;
    int status;

    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "a template", err));
    struct jinja_parser p = {.arena = &t->arena, .err = err};
    GPT_TRY_GOTO(status, jinja_lex(&t->tokens, text, len, &t->arena, err),
                 fail);
    p.at = t->tokens;
    GPT_TRY_GOTO(status, parse_body(&p, none, &t->body), fail);
    *out = t;
    return GPT_OK;
fail:
    gpt_jinja_free(t);
    return status;
}

bool gpt_jinja_mentions(const struct gpt_jinja *t, const char *word)
{
    const struct jinja_token *at = t->tokens;

    while (at->type != JINJA_EOF &&
           ((at->type != JINJA_NAME && at->type != JINJA_LITERAL) ||
            !gpt_str_equal(at->s, word, strlen(word))))
        at++;
    return at->type != JINJA_EOF;
}

/* Renderings have ended: they borrow what is here. */
void gpt_jinja_free(struct gpt_jinja *t)
{
    if (!t)
        return;
    gpt_arena_free(&t->arena);
    gpt_free(t);
}
