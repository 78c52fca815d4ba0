/* What the files of the template interpreter share; see jinja.h.
 *
 *     jinja_lex.c     text to tokens, with the rules for white space
 *     jinja_parse.c   tokens to statements; jinja_expression.c: expressions;
 *                     jinja_primary.c: their smallest parts
 *     jinja_run.c     statements; jinja_eval.c: expressions; jinja_operator.c
 *     jinja_value.c   values; jinja_member.c: what is in them
 *     jinja_text.c    values as text and as JSON
 *     jinja_filter.c  filters; jinja_sequence.c: those of lists
 *     jinja_test.c    tests, and functions
 *     jinja_method.c  methods of strings, dicts and loops
 *     jinja_string.c  text to text, for filters and methods
 *
 * Everything lives in an arena: that of the template, or that of one
 * rendering. */
#ifndef GPT_TEXT_JINJA_INTERNAL_H
#define GPT_TEXT_JINJA_INTERNAL_H

#include "text/jinja.h"
#include "text/str.h"

/* ---- values ---- */

enum jinja_kind {
    JINJA_ABSENT,    /* an argument that was not given */
    JINJA_UNDEFINED, /* s: what is undefined, for messages */
    JINJA_NONE,
    JINJA_BOOL, /* i */
    JINJA_INT,
    JINJA_REAL,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_RANGE, /* list: its numbers */
    JINJA_VIEW,  /* list: keys, values or items of a dict */
    JINJA_LAZY, /* list: what is left of a generator */
    JINJA_DICT,
    JINJA_SPACE, /* namespace(): a dict whose members can be set */
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_BUILTIN, /* function: a row of a table */
    JINJA_METHOD,
};

struct jinja_value {
    enum jinja_kind kind;
    bool safe; /* of a string: '|safe' made it */
    union {
        int64_t i;
        double x;
        struct gpt_str s;
        struct jinja_list *list;
        struct jinja_dict *dict;
        struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jinja_function *function;
        const struct jinja_bound *method;
    };
};

/* Elements of a list or a tuple; a list never changes once it is a value, but
 * that of a generator has only what was not yet taken. */
struct jinja_list {
    struct jinja_value *items; /* (n) */
    size_t n, cap;
};

/* Python prints and compares a range and a view otherwise than a list of the
 * same elements. */
static inline bool jinja_has_list(struct jinja_value v)
{
    return v.kind >= JINJA_LIST && v.kind <= JINJA_VIEW;
}

/* In the order in which keys came. */
struct jinja_dict {
    struct jinja_list keys, values;
};

struct jinja_loop {
    /* what was not yet looked at: `own`, or what a generator has left, which
     * others may take from as well */
    struct jinja_list *rest, own;
    /* those that were taken and the loop's condition let through; the whole
     * list where there is no condition and no generator */
    const struct jinja_list *items;
    struct jinja_list *kept; /* items, or NULL for the whole list */
    const struct jinja_node *node;
    struct jinja_scope *scope; /* around the loop */
    size_t index;              /* from 0 */
    int depth;    /* from 1 */
    struct jinja_value changed; /* what changed() saw last */
};

struct jinja_scope;
struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* in which it was defined */
};

/* A method of a value. */
struct jinja_bound {
    const struct jinja_function *function;
    struct jinja_value self;
};

/* ---- templates ---- */

enum jinja_token_type {
    JINJA_TEXT,
    JINJA_OUTPUT, /* the beginning of {{ }} */
    JINJA_TAG,    /* of {% %} */
    JINJA_END,    /* of either */
    JINJA_NAME,
    JINJA_LITERAL, /* a string, decoded */
    JINJA_WHOLE,   /* a number as it stands */
    JINJA_FRACTION,
    JINJA_OPERATOR,
    JINJA_EOF,
};

struct jinja_token {
    enum jinja_token_type type;
    struct gpt_str s;
    int line;
};

enum jinja_node_kind {
    /* expressions */
    JINJA_N_CONST,
    JINJA_N_NAME,
    JINJA_N_LIST,  /* kids */
    JINJA_N_TUPLE, /* kids */
    JINJA_N_DICT,  /* kids: key, value, key, value ... */
    JINJA_N_ATTR,  /* a.name */
    JINJA_N_ITEM,  /* a[b] */
    JINJA_N_SLICE, /* a[kids], three of them, of which each may be ABSENT */
    JINJA_N_ABSENT,
    JINJA_N_CALL,    /* a(kids) */
    JINJA_N_KEYWORD, /* name=a, among the kids of a call */
    JINJA_N_SPREAD,  /* *a, among the kids of a call */
    JINJA_N_FILTER,  /* a|function(kids) */
    JINJA_N_TEST,    /* a is function(kids) */
    JINJA_N_NOT,
    JINJA_N_NEGATE,
    JINJA_N_PLUS,    /* +a */
    JINJA_N_BINARY,  /* a op b */
    JINJA_N_AND,
    JINJA_N_OR,
    JINJA_N_COMPARE, /* a, then kids with an op each */
    JINJA_N_IF_ELSE, /* b if a else c; c may be NULL */
    /* statements */
    JINJA_N_TEXT,   /* name: the text */
    JINJA_N_OUTPUT, /* a */
    JINJA_N_IF,     /* a, kids, else b: a list of statements */
    JINJA_N_FOR,    /* target b in a, if c: kids, else d */
    JINJA_N_SET,    /* target b = a */
    JINJA_N_SET_BLOCK, /* target b, kids */
    JINJA_N_MACRO,     /* name, parameters a, kids; as an expression the block
                        * of a call */
    JINJA_N_WITH,      /* a: a list of SET, kids */
    JINJA_N_BREAK,
    JINJA_N_CONTINUE,
};

enum jinja_op {
    JINJA_ADD,
    JINJA_SUBTRACT,
    JINJA_MULTIPLY,
    JINJA_DIVIDE,
    JINJA_FLOOR_DIVIDE,
    JINJA_MODULO,
    JINJA_POWER,
    JINJA_CONCAT,
    JINJA_EQ,
    JINJA_NE,
    JINJA_LT,
    JINJA_LE,
    JINJA_GT,
    JINJA_GE,
    JINJA_IN,
    JINJA_NOT_IN,
};

struct jinja_node {
    enum jinja_node_kind kind;
    enum jinja_op op;
    int line;
    bool calls_back; /* of a macro: it looks at 'caller' */
    struct gpt_str name;
    struct jinja_value value; /* of a constant */
    const struct jinja_function *function;
    struct jinja_node *a, *b, *c, *d;
    struct jinja_node *kids, *next; /* the first kid; the next one of a list */
    struct jinja_node *last; /* of the list that begins here */
};

struct gpt_jinja {
    struct gpt_arena arena;
    const struct jinja_token *tokens;
    struct jinja_node *body;
};

/* What a template is read with. */
struct jinja_parser {
    struct gpt_arena *arena;
    struct gpt_err *err;
    const struct jinja_token *at; /* the next token; the last one is EOF */
    int depth, loops; /* of nesting; loops: those that break may leave */
    int macros;       /* that are around, and blocks of calls */
    struct jinja_node *macro; /* the innermost of them; NULL: a block */
    const struct jinja_node *parameters; /* of the innermost macro */
};

/* *tokens is in the arena. */
int jinja_lex(const struct jinja_token **tokens, const char *text, size_t len,
              struct gpt_arena *arena, struct gpt_err *err) GPT_MUST_USE;

int jinja_syntax_error(const struct jinja_parser *p, const char *fmt, ...)
    GPT_PRINTF(2, 3);
int jinja_node_new(struct jinja_parser *p, enum jinja_node_kind kind,
                   struct jinja_node **node) GPT_MUST_USE;
/* Adds to the end of a list. */
void jinja_node_append(struct jinja_node **list, struct jinja_node *node);
/* True when the next token is this operator or this word. */
bool jinja_is(const struct jinja_parser *p, const char *word);
/* Takes the next token if it is this. */
bool jinja_accept(struct jinja_parser *p, const char *word);
int jinja_expect(struct jinja_parser *p, const char *word) GPT_MUST_USE;
int jinja_expect_name(struct jinja_parser *p, struct gpt_str *name)
    GPT_MUST_USE;
/* Counts one more level of nesting; the caller lowers p->depth when the level
 * is over. GPT_EDATA beyond the limit. */
int jinja_enter(struct jinja_parser *p) GPT_MUST_USE;

/* One expression; with_if: it may end with "if a else b". */
int jinja_parse_expression(struct jinja_parser *p, bool with_if,
                           struct jinja_node **node) GPT_MUST_USE;
/* A constant, a name, or what is in brackets (jinja_primary.c). */
int jinja_parse_primary(struct jinja_parser *p, struct jinja_node **node)
    GPT_MUST_USE;
int jinja_parse_number(struct jinja_parser *p, struct jinja_node **node)
    GPT_MUST_USE;
/* Parses arguments; their "(" was taken before. */
int jinja_parse_arguments(struct jinja_parser *p, struct jinja_node **kids)
    GPT_MUST_USE;
/* Several with commas between them are a tuple. */
int jinja_parse_tuple(struct jinja_parser *p, bool with_if,
                      struct jinja_node **node) GPT_MUST_USE;

/* ---- a rendering ---- */

struct jinja_run {
    struct gpt_arena arena;
    struct gpt_buf *out;
    struct gpt_err *err;
    time_t now;
    int64_t steps;
    int line, depth, loops;
    enum { JINJA_GO, JINJA_BREAKS, JINJA_CONTINUES } flow;
    struct jinja_scope *scope;
};

/* Fails with the line of the statement in work. */
int jinja_fail(struct jinja_run *r, const char *fmt, ...) GPT_PRINTF(2, 3);
/* Counts n steps. */
int jinja_spend(struct jinja_run *r, size_t n) GPT_MUST_USE;
/* One level deeper; at its end r->depth-- where it succeeded. */
int jinja_descend(struct jinja_run *r) GPT_MUST_USE;
int jinja_new(struct jinja_run *r, void *out_pointer, size_t n, size_t size)
    GPT_MUST_USE;
/* To the output, or to the text that a block becomes. */
int jinja_write(struct jinja_run *r, struct gpt_buf *b, const void *bytes,
                size_t n) GPT_MUST_USE;

int jinja_evaluate(struct jinja_run *r, const struct jinja_node *node,
                   struct jinja_value *v) GPT_MUST_USE;
/* A macro as a value, which sees the names that are known now. */
int jinja_macro(struct jinja_run *r, const struct jinja_node *node,
                struct jinja_value *v) GPT_MUST_USE;
int jinja_call_macro(struct jinja_run *r, const struct jinja_macro *macro,
                     const struct jinja_list *args,
                     const struct jinja_dict *named,
                     struct jinja_value *v) GPT_MUST_USE;
int jinja_lookup(struct jinja_run *r, struct gpt_str name,
                 struct jinja_value *v) GPT_MUST_USE;

/* Looks for items until there are n of them, or no more. A condition is
 * computed when an element is wanted: it sees what earlier turns have done. */
int jinja_loop_reach(struct jinja_run *r, struct jinja_loop *l,
                     size_t n) GPT_MUST_USE;

/* Filters, tests, methods and functions: rows of tables. */
enum { JINJA_ARGS = 4 };
struct jinja_function {
    const char *name;
    /* args (JINJA_ARGS): ABSENT where none was given */
    int (*call)(struct jinja_run *r, struct jinja_value self,
                const struct jinja_value *args, struct jinja_value *v);
    const char *args[JINJA_ARGS];
    /* in place of call, for those that take any arguments */
    int (*call_any)(struct jinja_run *r, struct jinja_value self,
                    const struct jinja_list *args,
                    const struct jinja_dict *named, struct jinja_value *v);
};
const struct jinja_function *jinja_find_in(const struct jinja_function *table,
                                           size_t n, struct gpt_str name);
const struct jinja_function *jinja_find_filter(struct gpt_str name);
const struct jinja_function *jinja_find_test(struct gpt_str name);
const struct jinja_function *jinja_find_builtin(struct gpt_str name);
/* A method of a kind of values; *known: there is one in Python, but not here */
const struct jinja_function *jinja_find_method(enum jinja_kind kind,
                                               struct gpt_str name,
                                               bool *known);
int jinja_call(struct jinja_run *r, const struct jinja_function *f,
               struct jinja_value self, const struct jinja_list *args,
               const struct jinja_dict *named, struct jinja_value *v)
    GPT_MUST_USE;
extern const struct jinja_function jinja_sequence_filters[]; /* ends in NULL */

/* ---- values (jinja_value.c, jinja_text.c) ---- */

struct jinja_value jinja_undefined(struct gpt_str what);
struct jinja_value jinja_bool(bool b);
struct jinja_value jinja_int(int64_t i);
struct jinja_value jinja_literal(const char *s); /* borrowed */
/* A copy in the arena. */
int jinja_string(struct jinja_run *r, const char *s, size_t n,
                 struct jinja_value *v) GPT_MUST_USE;
int jinja_from_json(struct jinja_run *r, const cJSON *item,
                    struct jinja_value *v) GPT_MUST_USE;
/* "str", "int": Python's names */
const char *jinja_kind_name(enum jinja_kind kind);

bool jinja_truth(struct jinja_value v);
bool jinja_is_number(struct jinja_value v); /* true and false are, too */
double jinja_number(struct jinja_value v);
int jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                bool *equal) GPT_MUST_USE;
/* *order: below 0, 0, above 0. Fails for what has no order. */
int jinja_order(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                int *order) GPT_MUST_USE;
int jinja_contains(struct jinja_run *r, struct jinja_value whole,
                   struct jinja_value part, bool *found) GPT_MUST_USE;
/* Characters of a string, elements of a list. */
int jinja_length(struct jinja_run *r, struct jinja_value v, size_t *n)
    GPT_MUST_USE;

int jinja_list_new(struct jinja_run *r, struct jinja_list **list) GPT_MUST_USE;
int jinja_list_add(struct jinja_run *r, struct jinja_list *list,
                   struct jinja_value v) GPT_MUST_USE;
struct jinja_value jinja_list_value(struct jinja_list *list);
int jinja_pair(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
               struct jinja_value *v) GPT_MUST_USE; /* a tuple */
int jinja_dict_new(struct jinja_run *r, enum jinja_kind kind,
                   struct jinja_value *v) GPT_MUST_USE;
int jinja_dict_set(struct jinja_run *r, struct jinja_dict *d,
                   struct jinja_value key, struct jinja_value v) GPT_MUST_USE;
/* *found: NULL when there is none. */
int jinja_dict_find(struct jinja_run *r, const struct jinja_dict *d,
                    struct jinja_value key, struct jinja_value **found)
    GPT_MUST_USE;
/* What a loop over v takes one after the other. Of a generator it is all that
 * is left; after a use of the first n elements the others are given back. */
int jinja_iterate(struct jinja_run *r, struct jinja_value v,
                  const struct jinja_list **items) GPT_MUST_USE;
void jinja_give_back(struct jinja_value v, const struct jinja_list *items,
                     size_t n);
int jinja_attribute(struct jinja_run *r, struct jinja_value v,
                    struct gpt_str name, struct jinja_value *out) GPT_MUST_USE;
int jinja_item(struct jinja_run *r, struct jinja_value v,
               struct jinja_value key, struct jinja_value *out) GPT_MUST_USE;
int jinja_slice(struct jinja_run *r, struct jinja_value v,
                const struct jinja_value *limits,
                struct jinja_value *out) GPT_MUST_USE; /* start, end, step */
/* Fails with the names of two kinds that an operator does not take. */
int jinja_type_error(struct jinja_run *r, const char *op, struct jinja_value a,
                     struct jinja_value b);
int jinja_compute(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                  struct jinja_value b, struct jinja_value *v) GPT_MUST_USE;

/* Bytes of the character at p, which is before end; 1 where it is none. */
size_t jinja_char(const char *p, const char *end);
bool jinja_is_space(const char *p, size_t n); /* as Python has it */

/* Python's str(). */
int jinja_add_text(struct jinja_run *r, struct gpt_buf *b,
                   struct jinja_value v) GPT_MUST_USE;
/* The bytes of str(v); of a string they are its own. */
int jinja_text(struct jinja_run *r, struct jinja_value v,
               struct gpt_str *s) GPT_MUST_USE;
/* Frees the buffer, whose bytes become a string unless status is a failure. */
int jinja_take_buffer(struct jinja_run *r, struct gpt_buf *b, int status,
                      struct jinja_value *v) GPT_MUST_USE;

/* json.dumps() of Python. */
struct jinja_json_style {
    bool ascii, sort;
    struct gpt_str indent; /* data NULL: one line */
    struct gpt_str comma, colon;
};
int jinja_add_json(struct jinja_run *r, struct gpt_buf *b,
                   struct jinja_value v, const struct jinja_json_style *style)
    GPT_MUST_USE;

/* ---- text to text (jinja_string.c): what is made of a safe text is safe,
 * but for what jinja_replace() makes ---- */

/* Where `part` is in s from byte `at` on, or SIZE_MAX. */
size_t jinja_find_part(struct gpt_str s, size_t at, struct gpt_str part);
int jinja_strip(struct jinja_run *r, struct jinja_value text,
                struct jinja_value chars, bool left, bool right,
                struct jinja_value *v) GPT_MUST_USE;
int jinja_replace(struct jinja_run *r, struct gpt_str s,
                  const struct jinja_value *args, /* old, new, count */
                  struct jinja_value *v) GPT_MUST_USE;
/* A method of strings that takes any arguments. */
int jinja_format(struct jinja_run *r, struct jinja_value self,
                 const struct jinja_list *args, const struct jinja_dict *named,
                 struct jinja_value *v) GPT_MUST_USE;
enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_CAPITALIZE, JINJA_TITLE,
                  JINJA_WORDS };
/* TITLE is the method's, WORDS the filter's. */
int jinja_change_case(struct jinja_run *r, struct jinja_value of,
                      enum jinja_case how, struct jinja_value *v) GPT_MUST_USE;
/* Adds a string; beside one that is safe it is escaped for HTML, unless it is
 * safe itself. */
int jinja_add_beside(struct jinja_run *r, struct gpt_buf *b, bool safe,
                     struct jinja_value v) GPT_MUST_USE;

#endif
