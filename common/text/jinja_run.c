/* Statements of a rendering; see jinja_internal.h. Start at gpt_jinja_render()
 * and run_statement(). Names are looked for from the innermost scope outwards;
 * a loop's body has a scope for each element, so that what it sets is gone
 * with it. */
#include "text/jinja_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct jinja_variable {
    struct gpt_str name;
    struct jinja_value value;
    struct jinja_variable *next;
};

struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_variable *variables;
};

/* ---- limits ---- */

/* The line is that of the expression that was begun last, which may be in a
 * macro. */
int jinja_fail(struct jinja_run *r, const char *fmt, ...)
{
    char text[600];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return gpt_fail(r->err, GPT_EDATA, "line %d: %s", r->line, text);
}

/* Steps are a limit of time that does not depend on the machine: the same
 * template and messages always end in the same way. */
int jinja_spend(struct jinja_run *r, size_t n)
{
    r->steps += (int64_t)n;
    return r->steps <= GPT_JINJA_STEPS
               ? GPT_OK
               : jinja_fail(r, "more than %d steps", GPT_JINJA_STEPS);
}

/* Levels are a limit of the stack, and count as steps, too. */
int jinja_descend(struct jinja_run *r)
{
    if (++r->depth > GPT_JINJA_DEPTH)
        return jinja_fail(r, "more than %d levels", GPT_JINJA_DEPTH);
    return jinja_spend(r, 1);
}

/* What is given up stays in the arena until the end: the limit is on all that
 * a rendering makes. */
int jinja_new(struct jinja_run *r, void *out_pointer, size_t n, size_t size)
{
    void *p = NULL;

    /* The first comparison keeps the product from overflowing: sizes are
     * those of small structs. */
    if (n <= GPT_JINJA_BYTES && r->arena.used + n * size <= GPT_JINJA_BYTES)
        p = gpt_arena_alloc(&r->arena, n, size);
    else
        return jinja_fail(r, "more than %d bytes of memory", GPT_JINJA_BYTES);
    if (!p)
        return gpt_no_memory(r->err, "a template");
    memcpy(out_pointer, &p, sizeof(p));
    return GPT_OK;
}

/* Long texts cost steps by their length, so that copying them again and
 * again ends as well. */
int jinja_write(struct jinja_run *r, struct gpt_buf *b, const void *bytes,
                size_t n)
{
    GPT_TRY(jinja_spend(r, n / 64));
    if (b->len + n > GPT_JINJA_OUTPUT)
        return jinja_fail(r, "more than %d bytes of text", GPT_JINJA_OUTPUT);
    return gpt_buf_add(b, bytes, n) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(r->err, "a template");
}

/* ---- scopes ---- */

/* Scopes are never freed before the end: a macro keeps the one in which it
 * was defined. */
static int open_scope(struct jinja_run *r, struct jinja_scope *parent)
{
    struct jinja_scope *scope = NULL;

    GPT_TRY(jinja_new(r, &scope, 1, sizeof(*scope)));
    scope->parent = parent;
    r->scope = scope;
    return GPT_OK;
}

/* Functions are found last: a template may have a variable called 'range'. */
int jinja_lookup(struct jinja_run *r, struct gpt_str name,
                 struct jinja_value *v)
{
    const struct jinja_variable *x = NULL;
    size_t n = 0;

    for (const struct jinja_scope *s = r->scope; s && !x; s = s->parent)
        for (x = s->variables;
             x && !gpt_str_equal(x->name, name.data, name.len); x = x->next)
            n++;
    const struct jinja_function *f = x ? NULL : jinja_find_builtin(name);
    *v = x ? x->value : jinja_undefined(name);
    if (f) {
        v->kind = JINJA_BUILTIN;
        v->function = f;
    }
    return jinja_spend(r, n / 8); /* as jinja_dict_find() */
}

/* In the innermost scope, also where an outer one has the name: Jinja's
 * loops cannot change what is around them, but by a namespace. */
static int define(struct jinja_run *r, struct gpt_str name,
                  struct jinja_value value)
{
    struct jinja_variable *v = r->scope->variables;
    size_t n = 0;

    for (; v && !gpt_str_equal(v->name, name.data, name.len); v = v->next)
        n++;
    GPT_TRY(jinja_spend(r, n / 8)); /* as jinja_dict_find() */
    if (!v) {
        GPT_TRY(jinja_new(r, &v, 1, sizeof(*v)));
        v->name = name;
        v->next = r->scope->variables;
        r->scope->variables = v;
    }
    v->value = value;
    return GPT_OK;
}

/* A member can be set of a namespace alone, which is how a loop's body gives
 * something to what follows the loop. */
static int assign(struct jinja_run *r, const struct jinja_node *target,
                  struct jinja_value value)
{
    const struct jinja_list *items;
    size_t i = 0;

    if (target->kind == JINJA_N_NAME)
        return define(r, target->name, value);
    if (target->kind == JINJA_N_ATTR) {
        const struct jinja_value key = {.kind = JINJA_STRING,
                                        .s = target->name};
        struct jinja_value of;

        GPT_TRY(jinja_lookup(r, target->a->name, &of));
        /* A dict of a message is not the template's to change, and neither
         * is one of its own: Jinja's sandbox allows it for namespaces alone. */
        if (of.kind != JINJA_SPACE)
            return jinja_fail(r, "'%.*s' is no namespace",
                              gpt_str_shown(target->a->name.len),
                              target->a->name.data);
        return jinja_dict_set(r, of.dict, key, value);
    }
    GPT_TRY(jinja_iterate(r, value, &items));
    for (const struct jinja_node *kid = target->kids; kid; kid = kid->next) {
        if (i == items->n)
            return jinja_fail(r, "not enough values for the names");
        GPT_TRY(assign(r, kid, items->items[i++]));
    }
    return i == items->n ? GPT_OK
                         : jinja_fail(r, "too many values for the names");
}

/* ---- statements ---- */

static int run_list(struct jinja_run *r, const struct jinja_node *node);

/* The condition runs in a scope of its own, in which the loop's names have the
 * item: what it sets there is gone afterwards. */
int jinja_loop_reach(struct jinja_run *r, struct jinja_loop *l, size_t n)
{
    struct jinja_scope *inner = r->scope;
    struct jinja_value v;

    while (l->kept && l->kept->n < n && l->rest->n > 0) {
        const struct jinja_value item = *l->rest->items;

        *l->rest = (struct jinja_list){l->rest->items + 1, l->rest->n - 1, 0};
        v = jinja_bool(true);
        if (l->node->c) {
            GPT_TRY(open_scope(r, l->scope));
            GPT_TRY(assign(r, l->node->b, item));
            GPT_TRY(jinja_evaluate(r, l->node->c, &v));
        }
        if (jinja_truth(v))
            GPT_TRY(jinja_list_add(r, l->kept, item));
    }
    r->scope = inner;
    return GPT_OK;
}

/* What a condition refuses is not in the list, and items of a generator come
 * one at a time: both are kept in a list that grows as the loop goes on. */
static int open_loop(struct jinja_run *r, const struct jinja_node *node,
                     struct jinja_loop **loop)
{
    struct jinja_value whole;
    struct jinja_loop *l;

    GPT_TRY(jinja_evaluate(r, node->a, &whole));
    GPT_TRY(jinja_new(r, &l, 1, sizeof(*l)));
    *l = (struct jinja_loop){
        .rest = &l->own,
        .node = node,
        .scope = r->scope,
        /* How many loops are around, which templates may ask for. */
        .depth = ++r->loops,
    };
    if (whole.kind == JINJA_LAZY) {
        l->rest = whole.list;
    } else {
        GPT_TRY(jinja_iterate(r, whole, &l->items));
        l->own = *l->items;
    }
    if (node->c || whole.kind == JINJA_LAZY) {
        GPT_TRY(jinja_list_new(r, &l->kept));
        l->items = l->kept;
    }
    *loop = l;
    return GPT_OK;
}

/* The list is computed before the loop's own names exist. The variable
 * 'loop' is one value, whose index moves on, and stays at the last turn: a
 * namespace may hold it longer than the loop. */
static int run_for(struct jinja_run *r, const struct jinja_node *node)
{
    static const struct gpt_str name = {"loop", 4};
    struct jinja_scope *outer = r->scope;
    struct jinja_value v = {.kind = JINJA_LOOP};
    struct jinja_loop *l;
    bool ended = false;

    GPT_TRY(open_loop(r, node, &l));
    v.loop = l;
    /* A scope for each turn: what the body sets is not there in the next
     * one. */
    for (size_t turn = 0; r->flow != JINJA_BREAKS; turn++) {
        r->flow = JINJA_GO;
        GPT_TRY(jinja_loop_reach(r, l, turn + 1));
        if (turn >= l->items->n)
            break;
        l->index = turn;
        GPT_TRY(open_scope(r, outer));
        GPT_TRY(define(r, name, v));
        GPT_TRY(assign(r, node->b, l->items->items[turn]));
        GPT_TRY(run_list(r, node->kids));
        ended = ended || r->flow == JINJA_GO;
        r->scope = outer;
    }
    r->flow = JINJA_GO;
    r->loops--;
    r->scope = outer;
    /* Jinja's 'else' is for a loop of which no turn came to its end: there were
     * no elements, or each turn was left by 'break' or 'continue'. */
    return ended ? GPT_OK : run_list(r, node->d);
}

/* What a body writes, as a value. */
static int capture(struct jinja_run *r, const struct jinja_node *body,
                   struct jinja_value *v)
{
    struct gpt_buf own = {0}, *out = r->out;

    r->out = &own;
    int status = run_list(r, body);
    r->out = out;
    return jinja_take_buffer(r, &own, status, v);
}

/* The text of a block has a scope of its own. */
static int run_set(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_scope *outer = r->scope;
    struct jinja_value v;

    if (node->kind == JINJA_N_SET) {
        GPT_TRY(jinja_evaluate(r, node->a, &v));
    } else {
        GPT_TRY(open_scope(r, outer));
        GPT_TRY(capture(r, node->kids, &v));
        r->scope = outer;
    }
    return assign(r, node->b, v);
}

/* A macro sees what is around its definition, and not what is around its
 * call. */
int jinja_macro(struct jinja_run *r, const struct jinja_node *node,
                struct jinja_value *v)
{
    struct jinja_macro *macro = NULL;

    GPT_TRY(jinja_new(r, &macro, 1, sizeof(*macro)));
    *macro = (struct jinja_macro){node, r->scope};
    *v = (struct jinja_value){.kind = JINJA_MACRO, .macro = macro};
    return GPT_OK;
}

static int run_macro(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_value v;

    GPT_TRY(jinja_macro(r, node, &v));
    return define(r, node->name, v);
}

/* Values are those of outside: all are computed before the first is set. */
static int run_with(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_scope *outer = r->scope, *inner;

    GPT_TRY(open_scope(r, outer));
    inner = r->scope;
    /* One value must not see the name of the one before. */
    for (const struct jinja_node *set = node->a; set; set = set->next) {
        struct jinja_value v;

        r->scope = outer;
        GPT_TRY(jinja_evaluate(r, set->a, &v));
        r->scope = inner;
        GPT_TRY(assign(r, set->b, v));
    }
    GPT_TRY(run_list(r, node->kids));
    r->scope = outer;
    return GPT_OK;
}

/* A condition makes no scope: what is set in it stays. */
static int run_if(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_value v;

    GPT_TRY(jinja_evaluate(r, node->a, &v));
    return run_list(r, jinja_truth(v) ? node->kids : node->b);
}

/* What is undefined prints as nothing, and none as 'None'. */
static int run_output(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_value v;

    GPT_TRY(jinja_evaluate(r, node->a, &v));
    return jinja_add_text(r, r->out, v);
}

/* One case a kind of statement; those that leave a loop only say so, and the
 * lists around them end. */
static int run_statement(struct jinja_run *r, const struct jinja_node *node)
{
    r->line = node->line;
    switch (node->kind) {
    case JINJA_N_TEXT:
        return jinja_write(r, r->out, node->name.data, node->name.len);
    case JINJA_N_OUTPUT:
        return run_output(r, node);
    case JINJA_N_IF:
        return run_if(r, node);
    case JINJA_N_FOR:
        return run_for(r, node);
    case JINJA_N_SET:
    case JINJA_N_SET_BLOCK:
        return run_set(r, node);
    case JINJA_N_MACRO:
        return run_macro(r, node);
    case JINJA_N_WITH:
        return run_with(r, node);
    case JINJA_N_BREAK:
        r->flow = JINJA_BREAKS;
        return GPT_OK;
    default:
        r->flow = JINJA_CONTINUES;
        return GPT_OK;
    }
}

/* A list ends early when a loop is to be left. */
static int run_list(struct jinja_run *r, const struct jinja_node *node)
{
    for (; node && r->flow == JINJA_GO; node = node->next) {
        GPT_TRY(jinja_descend(r));
        GPT_TRY(run_statement(r, node));
        r->depth--;
    }
    return GPT_OK;
}

/* ---- macros ---- */

/* The block of a call, where the macro looks at it. */
static int bind_caller(struct jinja_run *r, const struct jinja_macro *macro,
                       const struct jinja_dict *named, size_t *used)
{
    const struct jinja_value key = jinja_literal("caller");
    struct jinja_value *found;

    if (!macro->node->calls_back)
        return GPT_OK;
    GPT_TRY(jinja_dict_find(r, named, key, &found));
    *used += found != NULL;
    return define(r, key.s, found ? *found : jinja_undefined(key.s));
}

/* A parameter that is not given has its own value, which may use the ones
 * before, or is undefined. */
static int bind_parameters(struct jinja_run *r,
                           const struct jinja_macro *macro,
                           const struct jinja_list *args,
                           const struct jinja_dict *named)
{
    size_t i = 0, used = 0;

    for (const struct jinja_node *p = macro->node->a; p; p = p->next, i++) {
        const struct jinja_value key = {.kind = JINJA_STRING, .s = p->name};
        struct jinja_value v = jinja_undefined(p->name), *found = NULL;

        GPT_TRY(jinja_dict_find(r, named, key, &found));
        used += found != NULL;
        /* Once by its place and once by its name. */
        if (found && i < args->n)
            return jinja_fail(r, "the argument '%.*s' is given twice",
                              gpt_str_shown(p->name.len), p->name.data);
        if (found)
            v = *found;
        else if (i < args->n)
            v = args->items[i];
        else if (p->a)
            GPT_TRY(jinja_evaluate(r, p->a, &v));
        GPT_TRY(define(r, p->name, v));
    }
    GPT_TRY(bind_caller(r, macro, named, &used));
    if (args->n > i || used < named->keys.n)
        return jinja_fail(r, "the macro '%.*s' has no such argument",
                          gpt_str_shown(macro->node->name.len),
                          macro->node->name.data);
    return GPT_OK;
}

/* What the macro writes is its value. A loop around the call is none that
 * the macro could leave. */
int jinja_call_macro(struct jinja_run *r, const struct jinja_macro *macro,
                     const struct jinja_list *args,
                     const struct jinja_dict *named, struct jinja_value *v)
{
    struct jinja_scope *outer = r->scope;
    const int loops = r->loops;

    /* A macro may call itself, which the limit of levels ends. */
    GPT_TRY(open_scope(r, macro->scope));
    GPT_TRY(bind_parameters(r, macro, args, named));
    r->loops = 0;
    GPT_TRY(capture(r, macro->node->kids, v));
    r->loops = loops;
    r->scope = outer;
    return GPT_OK;
}

/* ---- the whole ---- */

/* Each member of the object is a variable. */
static int define_all(struct jinja_run *r, const cJSON *variables)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, variables)
    {
        struct jinja_value v;

        GPT_TRY(jinja_from_json(r, item, &v));
        GPT_TRY(define(r, jinja_literal(item->string).s, v));
    }
    return GPT_OK;
}

/* The template is shared by renderings, and is only read; all that changes
 * is in the run. */
int gpt_jinja_render(const struct gpt_jinja *t,
                     const struct gpt_jinja_input *input, struct gpt_buf *out,
                     struct gpt_err *err)
{
    struct jinja_run r = {.out = out, .err = err, .now = input->now};
    int status;

    GPT_TRY_GOTO(status, open_scope(&r, NULL), out);
    GPT_TRY_GOTO(status, define_all(&r, input->more), out);
    GPT_TRY_GOTO(status, define_all(&r, input->variables), out);
    /* what the template sets is not what it was given */
    GPT_TRY_GOTO(status, open_scope(&r, r.scope), out);
    status = run_list(&r, t->body);
out:
    gpt_arena_free(&r.arena);
    return status;
}
