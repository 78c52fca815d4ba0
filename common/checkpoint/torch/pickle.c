/* The pickle machine: a stack, marks in it, a memo. Start at
 * gpt_pickle_parse(); each opcode is a row of `ops`, with what it does to the
 * stack.
 *
 * Python's machine calls what the opcodes say. This one pushes a node that says
 * what would have been called, so no list of allowed names is needed, and no
 * file can make it do anything but allocate nodes. Those are counted: every
 * opcode makes at most one, so memory is bounded by the file and by
 * GPT_PICKLE_VALUES. Nothing recurses here; depth is the concern of the
 * functions that walk the tree. */
#include "checkpoint/torch/pickle.h"

#include "base/num.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    BLOCK = 256, /* nodes allocated together */
    NAMES = 512, /* most globals */
};

struct machine {
    struct gpt_pickle *p;
    const uint8_t *data;
    size_t len, pos, op; /* op: where the present opcode is */
    const char *name;    /* of the present opcode */
    struct gpt_pickle_value **stack, **memo, *block;
    size_t depth, cap_stack, n_memo, cap_memo, n_block;
    size_t *marks, n_marks, cap_marks;
    int64_t n_items; /* of all containers */
    const char *what;
    int64_t offset;
    struct gpt_err *err;
};

#define BAD(m, ...) (fail_at((m), __VA_ARGS__), GPT_EDATA)

/* Messages give the opcode's name and place: the same that pickletools.dis()
 * prints, so that a user can compare. */
static void GPT_PRINTF(2, 3)
    fail_at(const struct machine *m, const char *fmt, ...)
{
    char text[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    gpt_fail(m->err, GPT_EDATA, "%s: byte %lld: %s: %s", m->what,
             (long long)(m->offset + (int64_t)m->op), m->name, text);
    gpt_hint(m->err, "the file is damaged or was made to harm: fetch it again "
                     "from a place that you trust");
}

/* ---- input ---- */

/* Takes n bytes of the pickle, or fails where it ends before them: `cut` tells
 * a reader of a stream that more bytes could help. The length is compared as 64
 * bits, because it may come from the file as such. */
static int take_bytes(struct machine *m, uint64_t n, const uint8_t **out)
{
    if (n > m->len - m->pos) {
        m->p->cut = true;
        return BAD(m, "the pickle ends here, %llu bytes before its end",
                   (unsigned long long)(n - (m->len - m->pos)));
    }
    *out = m->data + m->pos;
    m->pos += (size_t)n;
    return GPT_OK;
}

/* Takes an unsigned little-endian number of 1, 2, 4 or 8 bytes. */
static int take_number(struct machine *m, int bytes, uint64_t *out)
{
    const uint8_t *p;

    GPT_TRY(take_bytes(m, (uint64_t)bytes, &p));
    *out = 0;
    for (int i = bytes; i-- > 0;)
        *out = *out << 8 | p[i];
    return GPT_OK;
}

/* Takes a line without its end: arguments of protocol 0, and names. */
static int take_line(struct machine *m, const char **text, size_t *n)
{
    const uint8_t *start = m->data + m->pos;
    const uint8_t *end = memchr(start, '\n', m->len - m->pos);

    if (!end) {
        m->p->cut = true; /* a stream may have more */
        return BAD(m, "the pickle ends here, inside a line");
    }
    *text = (const char *)start;
    *n = (size_t)(end - start);
    m->pos += *n + 1;
    return GPT_OK;
}

/* ---- nodes, the stack, the memo ---- */

/* Nodes come in blocks, since an arena aligns each piece to a cache line. The
 * count is checked here alone: every node passes through. */
static int new_value(struct machine *m, enum gpt_pickle_kind kind,
                     struct gpt_pickle_value **out)
{
    *out = NULL;
    if (m->p->n_values == GPT_PICKLE_VALUES)
        return BAD(m, "more than %d values", GPT_PICKLE_VALUES);
    if (m->n_block == 0) {
        m->block = gpt_arena_alloc(&m->p->arena, BLOCK, sizeof(*m->block));
        if (!m->block)
            return gpt_no_memory(m->err, "values of a pickle");
        m->n_block = BLOCK;
    }
    *out = m->block++;
    m->n_block--;
    m->p->n_values++;
    (*out)->kind = (uint8_t)kind;
    (*out)->at = (uint32_t)m->op;
    return GPT_OK;
}

/* The stack grows by one an opcode at most, so it needs no limit of its own
 * beside that of opcodes. */
static int push_value(struct machine *m, struct gpt_pickle_value *v)
{
    GPT_TRY(gpt_grow(&m->stack, &m->cap_stack, m->depth + 1, sizeof(*m->stack),
                     "the stack of a pickle", m->err));
    m->stack[m->depth++] = v;
    return GPT_OK;
}

static int push_new(struct machine *m, enum gpt_pickle_kind kind,
                    struct gpt_pickle_value **out)
{
    GPT_TRY(new_value(m, kind, out));
    return push_value(m, *out);
}

/* Where the values above the newest mark begin; without a mark the bottom. No
 * opcode but those that take a mark may reach below it. */
static size_t floor_of(const struct machine *m)
{
    return m->n_marks ? m->marks[m->n_marks - 1] : 0;
}

/* Python's machine would fail with an IndexError here, or take a mark for a
 * value; both are damage. */
static int pop_value(struct machine *m, struct gpt_pickle_value **out)
{
    if (m->depth == floor_of(m))
        return BAD(m, "the stack is empty");
    *out = m->stack[--m->depth];
    return GPT_OK;
}

static int top_value(struct machine *m, struct gpt_pickle_value **out)
{
    if (m->depth == floor_of(m))
        return BAD(m, "the stack is empty");
    *out = m->stack[m->depth - 1];
    return GPT_OK;
}

/* Takes the newest mark away. Its values stay in the stack's memory, at
 * *values, until the next push. */
static int pop_mark(struct machine *m, struct gpt_pickle_value ***values,
                    size_t *n)
{
    if (!m->n_marks)
        return BAD(m, "no mark");
    size_t at = m->marks[--m->n_marks];
    *n = m->depth - at;
    *values = *n ? m->stack + at : NULL;
    m->depth = at; /* the pointers above stay valid until a push */
    return GPT_OK;
}

/* Appends to a container. Its array doubles inside the arena; the old one is
 * lost there, which costs as much again at most. */
static int add_items(struct machine *m, struct gpt_pickle_value *to,
                     struct gpt_pickle_value **values, size_t n)
{
    if (n == 0)
        return GPT_OK;
    m->n_items += (int64_t)n;
    if (m->n_items > 2 * (int64_t)GPT_PICKLE_VALUES)
        return BAD(m, "more than %d items", 2 * GPT_PICKLE_VALUES);
    /* sums of 32-bit counts, both below the limit on items: no overflow */
    if (to->n + n > to->cap) {
        size_t cap =
            to->n + n > 2 * (size_t)to->cap ? to->n + n : 2 * (size_t)to->cap;
        struct gpt_pickle_value **items =
            gpt_arena_alloc(&m->p->arena, cap, sizeof(*items));

        if (!items)
            return gpt_no_memory(m->err, "items of a pickle");
        if (to->n)
            memcpy(items, to->items, to->n * sizeof(*items));
        to->items = items;
        to->cap = (uint32_t)cap;
    }
    memcpy(to->items + to->n, values, n * sizeof(*values));
    to->n += (uint32_t)n;
    return GPT_OK;
}

/* Writers number the memo from 0 without gaps. An index beyond the bytes read
 * so far is no writer's, and would only cost memory. */
static int put_memo(struct machine *m, uint64_t index)
{
    struct gpt_pickle_value *v;

    GPT_TRY(top_value(m, &v));
    if (index > m->pos || index >= GPT_PICKLE_VALUES)
        return BAD(m, "memo index %llu", (unsigned long long)index);
    /* gaps are NULL, which get_memo() reports; honest memos have none */
    GPT_TRY(gpt_grow(&m->memo, &m->cap_memo, (size_t)index + 1,
                     sizeof(*m->memo), "the memo of a pickle", m->err));
    for (; m->n_memo <= index; m->n_memo++)
        m->memo[m->n_memo] = NULL;
    m->memo[index] = v;
    return GPT_OK;
}

/* Pushes the same node again, and no copy: this is how shared values and
 * circles come into the tree. */
static int get_memo(struct machine *m, uint64_t index)
{
    if (index >= m->n_memo || !m->memo[index])
        return BAD(m, "memo index %llu was never set",
                   (unsigned long long)index);
    return push_value(m, m->memo[index]);
}

/* ---- opcodes ---- */

/* Extension codes and buffers outside the stream have their meaning in the
 * program that wrote them, which is not here. */
static int op_refuse(struct machine *m, int arg)
{
    (void)arg;
    return BAD(m, "an opcode that no checkpoint has");
}

/* Marks are positions in the stack and not values in it, so that no opcode can
 * take one for a value. */
static int op_mark(struct machine *m, int arg)
{
    (void)arg;
    GPT_TRY(gpt_grow(&m->marks, &m->cap_marks, m->n_marks + 1,
                     sizeof(*m->marks), "marks of a pickle", m->err));
    m->marks[m->n_marks++] = m->depth;
    return GPT_OK;
}

/* POP takes a mark when that is on top, as in Python. */
static int op_pop(struct machine *m, int arg)
{
    struct gpt_pickle_value *v, **values;
    size_t n;

    if (arg == '1' || (m->n_marks && m->depth == floor_of(m)))
        return pop_mark(m, &values, &n);
    return pop_value(m, &v);
}

/* No writer uses this opcode; it is here for completeness. */
static int op_dup(struct machine *m, int arg)
{
    struct gpt_pickle_value *v;

    (void)arg;
    GPT_TRY(top_value(m, &v));
    return push_value(m, v);
}

/* Every None is a node of its own, since a node holds the offset for
 * messages. */
static int op_none(struct machine *m, int arg)
{
    struct gpt_pickle_value *v;

    (void)arg;
    return push_new(m, GPT_PICKLE_NONE, &v);
}

static int push_int(struct machine *m, enum gpt_pickle_kind kind, int64_t i)
{
    struct gpt_pickle_value *v;

    GPT_TRY(push_new(m, kind, &v));
    v->i = i;
    return GPT_OK;
}

/* arg is the value. */
static int op_bool(struct machine *m, int arg)
{
    return push_int(m, GPT_PICKLE_BOOL, arg);
}

/* arg is the number of bytes; only a number of four bytes has a sign. */
static int op_int(struct machine *m, int arg)
{
    uint64_t u;

    GPT_TRY(take_number(m, arg, &u));
    return push_int(m, GPT_PICKLE_INT,
                    arg == 4 ? (int64_t)(int32_t)(uint32_t)u : (int64_t)u);
}

/* Text stays where it is in the pickle: a node has its place and length.
 * Lengths fit, as a pickle has at most GPT_PICKLE_BYTES. */
static int push_text(struct machine *m, enum gpt_pickle_kind kind,
                     const void *text, size_t n)
{
    struct gpt_pickle_value *v;

    GPT_TRY(push_new(m, kind, &v));
    v->text = text;
    v->n = (uint32_t)n;
    return GPT_OK;
}

/* Reads a little-endian number in two's complement of any length. arg is how
 * many bytes the length field has. */
static int op_long(struct machine *m, int arg)
{
    const uint8_t *p;
    uint64_t n, u;

    GPT_TRY(take_number(m, arg, &n));
    GPT_TRY(take_bytes(m, n, &p));
    if (n > 8)
        return push_text(m, GPT_PICKLE_LONG, p, (size_t)n);
    /* the sign is that of the last byte; no bytes at all are 0 */
    u = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)n; i-- > 0;)
        u = u << 8 | p[i];
    return push_int(m, GPT_PICKLE_INT, (int64_t)u);
}

/* Reads eight bytes, big-endian: no other number of a pickle is. */
static int op_float(struct machine *m, int arg)
{
    struct gpt_pickle_value *v;
    const uint8_t *p;
    uint64_t u = 0;

    (void)arg;
    GPT_TRY(take_bytes(m, 8, &p));
    for (int i = 0; i < 8; i++)
        u = u << 8 | p[i];
    GPT_TRY(push_new(m, GPT_PICKLE_FLOAT, &v));
    memcpy(&v->f, &u, sizeof(u));
    return GPT_OK;
}

/* Reads numbers of protocol 0. "I00" and "I01" are bools, "L" has an L after
 * the digits. */
static int op_text_number(struct machine *m, int arg)
{
    struct gpt_pickle_value *v;
    const char *line;
    char text[400];
    size_t n;
    int64_t i;
    double f;

    GPT_TRY(take_line(m, &line, &n));
    if (n >= sizeof(text))
        return BAD(m, "a number of %zu characters", n);
    memcpy(text, line, n);
    text[n] = '\0';
    if (n && arg == 'L' && text[n - 1] == 'L')
        text[--n] = '\0';
    if (arg == 'I' && (strcmp(text, "00") == 0 || strcmp(text, "01") == 0))
        return push_int(m, GPT_PICKLE_BOOL, text[1] - '0');
    if (arg == 'F') {
        if (!gpt_parse_real(text, &f))
            return BAD(m, "'%.40s' is no finite number", text);
        GPT_TRY(push_new(m, GPT_PICKLE_FLOAT, &v));
        v->f = f;
        return GPT_OK;
    }
    const size_t sign = *text == '-';
    if (n == sign || strspn(text + sign, "0123456789") != n - sign)
        return BAD(m, "'%.40s' is no number", text);
    if (gpt_parse_int(text, &i))
        return push_int(m, GPT_PICKLE_INT, i);
    return BAD(m, "a number of more than 64 bits");
}

/* True for UTF-8 without NUL, which would end the string early where it is
 * printed. */
static bool is_utf8(const uint8_t *p, size_t n)
{
    if (n && memchr(p, 0, n))
        return false;
    while (n) {
        size_t k = gpt_utf8_length(p, n);

        if (k == 0)
            return false;
        p += k;
        n -= k;
    }
    return true;
}

/* Strings that are no UTF-8 (Python has them for names of files) become bytes,
 * so that every string node is text. */
static int push_string(struct machine *m, const uint8_t *p, size_t n)
{
    return push_text(m, is_utf8(p, n) ? GPT_PICKLE_STRING : GPT_PICKLE_BLOB, p,
                     n);
}

/* arg is how many bytes the length field has. take_bytes() finds lengths past
 * the end of the pickle before anything is allocated. */
static int op_string(struct machine *m, int arg)
{
    const uint8_t *p;
    uint64_t n;

    GPT_TRY(take_number(m, arg, &n));
    GPT_TRY(take_bytes(m, n, &p));
    return push_string(m, p, (size_t)n);
}

/* Reads bytes of protocol 3 and later. Before, bytes are a call of
 * _codecs.encode(). */
static int op_bytes(struct machine *m, int arg)
{
    const uint8_t *p;
    uint64_t n;

    GPT_TRY(take_number(m, arg, &n));
    GPT_TRY(take_bytes(m, n, &p));
    return push_text(m, GPT_PICKLE_BLOB, p, (size_t)n);
}

/* Reads text of protocol 0: 'V' is raw UTF-8 with \u escapes, 'S' a quoted
 * literal. Escapes stay as they are written: names of tensors have none. */
static int op_text_string(struct machine *m, int arg)
{
    const char *line;
    size_t n;

    GPT_TRY(take_line(m, &line, &n));
    if (arg == 'V')
        return push_string(m, (const uint8_t *)line, n);
    if (n < 2 || (line[0] != '\'' && line[0] != '"') || line[n - 1] != line[0])
        return BAD(m, "a string without quotes");
    return push_string(m, (const uint8_t *)line + 1, n - 2);
}

/* Pops all above the mark into a new container. */
static int collect(struct machine *m, enum gpt_pickle_kind kind)
{
    struct gpt_pickle_value **values, *v;
    size_t n;

    GPT_TRY(pop_mark(m, &values, &n));
    if (kind == GPT_PICKLE_DICT && n % 2)
        return BAD(m, "a key without a value");
    GPT_TRY(new_value(m, kind, &v));
    v->paired = kind == GPT_PICKLE_DICT;
    GPT_TRY(add_items(m, v, values, n));
    return push_value(m, v);
}

/* arg is the kind of the container. */
static int op_collect(struct machine *m, int arg)
{
    return collect(m, (enum gpt_pickle_kind)arg);
}

/* `paired` is set from the start, so that an empty dict has keys, none of
 * them. */
static int op_empty(struct machine *m, int arg)
{
    struct gpt_pickle_value *v;

    GPT_TRY(push_new(m, (enum gpt_pickle_kind)arg, &v));
    v->paired = arg == GPT_PICKLE_DICT;
    return GPT_OK;
}

/* arg is the number of items. */
static int op_tuple(struct machine *m, int arg)
{
    struct gpt_pickle_value *v;

    if (m->depth - floor_of(m) < (size_t)arg)
        return BAD(m, "the stack has fewer than %d values", arg);
    m->depth -= (size_t)arg;
    GPT_TRY(new_value(m, GPT_PICKLE_TUPLE, &v));
    GPT_TRY(add_items(m, v, m->stack + m->depth, (size_t)arg));
    return push_value(m, v);
}

/* Adds to the container below. Objects take items, too: OrderedDict is one.
 * One object takes either items or pairs. */
static int add_to_top(struct machine *m, struct gpt_pickle_value **values,
                      size_t n, bool paired)
{
    struct gpt_pickle_value *to;

    GPT_TRY(top_value(m, &to));
    bool fits = to->kind == GPT_PICKLE_OBJECT
                    ? to->n == 0 || to->paired == paired
                    : to->kind == (paired ? GPT_PICKLE_DICT : GPT_PICKLE_LIST);
    if (to->kind == GPT_PICKLE_SET && !paired)
        fits = true;
    if (!fits)
        return BAD(m, "the value below takes no %s", paired ? "keys" : "items");
    if (paired && n % 2)
        return BAD(m, "a key without a value");
    to->paired = paired;
    return add_items(m, to, values, n);
}

/* SETITEM has the key below the value; APPEND has one value. */
static int op_add_one(struct machine *m, int arg)
{
    struct gpt_pickle_value *pair[2];
    const size_t n = arg == 's' ? 2 : 1;

    for (size_t i = n; i-- > 0;)
        GPT_TRY(pop_value(m, &pair[i]));
    return add_to_top(m, pair, n, n == 2);
}

/* Python writes containers in batches of a thousand, so one container may get
 * several of these. */
static int op_add_many(struct machine *m, int arg)
{
    struct gpt_pickle_value **values;
    size_t n;

    GPT_TRY(pop_mark(m, &values, &n));
    return add_to_top(m, values, n, arg == 'u');
}

/* Names are listed once. The list is short in honest files, and bounded in
 * others. */
static int push_global(struct machine *m, const char *module, size_t n_module,
                       const char *name, size_t n_name)
{
    struct gpt_pickle *p = m->p;
    struct gpt_pickle_value *v;
    char *text;

    if (n_module + n_name > 1024 ||
        !is_utf8((const uint8_t *)module, n_module) ||
        !is_utf8((const uint8_t *)name, n_name))
        return BAD(m, "a name of %zu bytes, or no UTF-8", n_module + n_name);
    for (int64_t i = p->n_globals; i-- > 0;) {
        const struct gpt_pickle_value *g = p->globals[i];

        if (g->n == n_module + 1 + n_name &&
            memcmp(g->text, module, n_module) == 0 &&
            memcmp(g->text + n_module + 1, name, n_name) == 0) {
            GPT_TRY(new_value(m, GPT_PICKLE_GLOBAL, &v));
            v->text = g->text;
            v->n = g->n;
            return push_value(m, v);
        }
    }
    /* beyond any honest file, and it keeps the search above short */
    if (p->n_globals == NAMES)
        return BAD(m, "more than %d names", NAMES);
    text = gpt_arena_printf(&p->arena, "%.*s.%.*s", (int)n_module, module,
                            (int)n_name, name);
    if (!text)
        return gpt_no_memory(m->err, "names of a pickle");
    GPT_TRY(gpt_grow(&p->globals, &p->cap_globals, (size_t)p->n_globals + 1,
                     sizeof(*p->globals), "names of a pickle", m->err));
    GPT_TRY(push_new(m, GPT_PICKLE_GLOBAL, &v));
    v->text = text;
    v->n = (uint32_t)strlen(text);
    p->globals[p->n_globals++] = v;
    return GPT_OK;
}

/* Reads two lines, module and name, as up to protocol 3. */
static int op_global(struct machine *m, int arg)
{
    const char *module, *name;
    size_t n_module, n_name;

    (void)arg;
    GPT_TRY(take_line(m, &module, &n_module));
    GPT_TRY(take_line(m, &name, &n_name));
    return push_global(m, module, n_module, name, n_name);
}

/* From protocol 4 on, module and name are strings on the stack. */
static int op_stack_global(struct machine *m, int arg)
{
    struct gpt_pickle_value *module, *name;

    (void)arg;
    GPT_TRY(pop_value(m, &name));
    GPT_TRY(pop_value(m, &module));
    if (module->kind != GPT_PICKLE_STRING || name->kind != GPT_PICKLE_STRING)
        return BAD(m, "a name that is no string");
    return push_global(m, module->text, module->n, name->text, name->n);
}

/* The callee may be any value: getattr() of something is a call, too, and stays
 * one. */
static int push_object(struct machine *m, struct gpt_pickle_value *callee,
                       struct gpt_pickle_value *args)
{
    struct gpt_pickle_value *v;

    GPT_TRY(push_new(m, GPT_PICKLE_OBJECT, &v));
    v->callee = callee;
    v->args = args;
    return GPT_OK;
}

/* REDUCE and NEWOBJ are alike: a name and arguments. arg 3 is NEWOBJ_EX, whose
 * keywords are stored as the state: no checkpoint has both. */
static int op_call(struct machine *m, int arg)
{
    struct gpt_pickle_value *args, *callee, *keywords = NULL;

    if (arg == 3)
        GPT_TRY(pop_value(m, &keywords));
    GPT_TRY(pop_value(m, &args));
    GPT_TRY(pop_value(m, &callee));
    if (args->kind != GPT_PICKLE_TUPLE)
        return BAD(m, "arguments that are no tuple");
    GPT_TRY(push_object(m, callee, args));
    m->stack[m->depth - 1]->state = keywords;
    return GPT_OK;
}

/* Makes an instance of protocol 0: a mark, then the arguments; 'o' has the
 * class first, 'i' names it. */
static int op_instance(struct machine *m, int arg)
{
    struct gpt_pickle_value *callee, *args, **values;
    size_t n;

    if (arg == 'i') {
        GPT_TRY(op_global(m, arg));
        GPT_TRY(pop_value(m, &callee));
        GPT_TRY(collect(m, GPT_PICKLE_TUPLE));
        GPT_TRY(pop_value(m, &args));
        return push_object(m, callee, args);
    }
    GPT_TRY(pop_mark(m, &values, &n));
    if (n == 0)
        return BAD(m, "no class");
    callee = values[0];
    GPT_TRY(new_value(m, GPT_PICKLE_TUPLE, &args));
    GPT_TRY(add_items(m, args, values + 1, n - 1));
    return push_object(m, callee, args);
}

/* The state is what __setstate__() would get, or the attributes. Shared objects
 * are built once, so a second state is no writer's. */
static int op_build(struct machine *m, int arg)
{
    struct gpt_pickle_value *state, *to;

    (void)arg;
    GPT_TRY(pop_value(m, &state));
    GPT_TRY(top_value(m, &to));
    if (to->kind != GPT_PICKLE_OBJECT)
        return BAD(m, "the value below takes no state");
    if (to->state)
        return BAD(m, "a second state for one object");
    to->state = state;
    return GPT_OK;
}

/* Ids are kept in a list, because a reader must know all storages before it can
 * place the first one. */
static int op_persistent(struct machine *m, int arg)
{
    struct gpt_pickle *p = m->p;
    struct gpt_pickle_value *id, *v;

    if (arg == 'P')
        GPT_TRY(op_text_string(m, 'V'));
    GPT_TRY(pop_value(m, &id));
    GPT_TRY(push_new(m, GPT_PICKLE_PERSISTENT, &v));
    v->args = id;
    GPT_TRY(gpt_grow(&p->persistent, &p->cap_persistent,
                     (size_t)p->n_persistent + 1, sizeof(*p->persistent),
                     "names of storages", m->err));
    p->persistent[p->n_persistent++] = v;
    return GPT_OK;
}

/* Reads an index of the memo. arg is how many bytes it has; 0 means the next
 * index, -1 digits on a line. */
static int take_index(struct machine *m, int arg, uint64_t *index)
{
    const char *line;
    size_t n;

    if (arg > 0)
        return take_number(m, arg, index);
    *index = m->n_memo;
    if (arg == 0)
        return GPT_OK;
    GPT_TRY(take_line(m, &line, &n));
    if (n == 0 || n > 9)
        return BAD(m, "a bad memo index");
    *index = 0;
    for (size_t i = 0; i < n; i++) {
        if (line[i] < '0' || line[i] > '9')
            return BAD(m, "a bad memo index");
        *index = *index * 10 + (uint64_t)(line[i] - '0');
    }
    return GPT_OK;
}

/* Serves PUT and MEMOIZE, which leave the stack as it is. Indices are read as
 * for GET. */
static int op_put(struct machine *m, int arg)
{
    uint64_t index;

    GPT_TRY(take_index(m, arg, &index));
    return put_memo(m, index);
}

/* Serves GET, which pushes a value, by an index of one, four or any number of
 * bytes. */
static int op_get(struct machine *m, int arg)
{
    uint64_t index;

    GPT_TRY(take_index(m, arg, &index));
    return get_memo(m, index);
}

/* Opcodes of all protocols are known, whatever number is said here. */
static int op_proto(struct machine *m, int arg)
{
    uint64_t version;

    (void)arg;
    GPT_TRY(take_number(m, 1, &version));
    if (version > 5)
        return BAD(m, "protocol %d, known are 0 to 5", (int)version);
    return GPT_OK;
}

/* A frame is a hint for readers of streams. Its length must be in the data, as
 * Python has it. */
static int op_frame(struct machine *m, int arg)
{
    const uint8_t *p;
    uint64_t n;

    (void)arg;
    GPT_TRY(take_number(m, 8, &n));
    size_t at = m->pos;
    GPT_TRY(take_bytes(m, n, &p));
    m->pos = at;
    return GPT_OK;
}

static const struct {
    const char *name;
    int (*act)(struct machine *m, int arg);
    int arg;
} ops[256] = {
    ['('] = {"MARK", op_mark, 0},
    ['0'] = {"POP", op_pop, '0'},
    ['1'] = {"POP_MARK", op_pop, '1'},
    ['2'] = {"DUP", op_dup, 0},
    ['N'] = {"NONE", op_none, 0},
    [0x88] = {"NEWTRUE", op_bool, 1},
    [0x89] = {"NEWFALSE", op_bool, 0},
    ['J'] = {"BININT", op_int, 4},
    ['K'] = {"BININT1", op_int, 1},
    ['M'] = {"BININT2", op_int, 2},
    [0x8a] = {"LONG1", op_long, 1},
    [0x8b] = {"LONG4", op_long, 4},
    ['G'] = {"BINFLOAT", op_float, 0},
    ['I'] = {"INT", op_text_number, 'I'},
    ['L'] = {"LONG", op_text_number, 'L'},
    ['F'] = {"FLOAT", op_text_number, 'F'},
    ['T'] = {"BINSTRING", op_string, 4},
    ['U'] = {"SHORT_BINSTRING", op_string, 1},
    ['X'] = {"BINUNICODE", op_string, 4},
    [0x8c] = {"SHORT_BINUNICODE", op_string, 1},
    [0x8d] = {"BINUNICODE8", op_string, 8},
    ['S'] = {"STRING", op_text_string, 'S'},
    ['V'] = {"UNICODE", op_text_string, 'V'},
    ['B'] = {"BINBYTES", op_bytes, 4},
    ['C'] = {"SHORT_BINBYTES", op_bytes, 1},
    [0x8e] = {"BINBYTES8", op_bytes, 8},
    [0x96] = {"BYTEARRAY8", op_bytes, 8},
    [0x97] = {"NEXT_BUFFER", op_refuse, 0},
    [0x98] = {"READONLY_BUFFER", op_refuse, 0},
    [0x82] = {"EXT1", op_refuse, 0},
    [0x83] = {"EXT2", op_refuse, 0},
    [0x84] = {"EXT4", op_refuse, 0},
    [']'] = {"EMPTY_LIST", op_empty, GPT_PICKLE_LIST},
    [')'] = {"EMPTY_TUPLE", op_empty, GPT_PICKLE_TUPLE},
    ['}'] = {"EMPTY_DICT", op_empty, GPT_PICKLE_DICT},
    [0x8f] = {"EMPTY_SET", op_empty, GPT_PICKLE_SET},
    ['l'] = {"LIST", op_collect, GPT_PICKLE_LIST},
    ['t'] = {"TUPLE", op_collect, GPT_PICKLE_TUPLE},
    ['d'] = {"DICT", op_collect, GPT_PICKLE_DICT},
    [0x91] = {"FROZENSET", op_collect, GPT_PICKLE_SET},
    [0x85] = {"TUPLE1", op_tuple, 1},
    [0x86] = {"TUPLE2", op_tuple, 2},
    [0x87] = {"TUPLE3", op_tuple, 3},
    ['a'] = {"APPEND", op_add_one, 'a'},
    ['s'] = {"SETITEM", op_add_one, 's'},
    ['e'] = {"APPENDS", op_add_many, 'e'},
    ['u'] = {"SETITEMS", op_add_many, 'u'},
    [0x90] = {"ADDITEMS", op_add_many, 0x90},
    ['c'] = {"GLOBAL", op_global, 0},
    [0x93] = {"STACK_GLOBAL", op_stack_global, 0},
    ['R'] = {"REDUCE", op_call, 0},
    [0x81] = {"NEWOBJ", op_call, 0},
    [0x92] = {"NEWOBJ_EX", op_call, 3},
    ['i'] = {"INST", op_instance, 'i'},
    ['o'] = {"OBJ", op_instance, 'o'},
    ['b'] = {"BUILD", op_build, 0},
    ['P'] = {"PERSID", op_persistent, 'P'},
    ['Q'] = {"BINPERSID", op_persistent, 'Q'},
    ['g'] = {"GET", op_get, -1},
    ['h'] = {"BINGET", op_get, 1},
    ['j'] = {"LONG_BINGET", op_get, 4},
    ['p'] = {"PUT", op_put, -1},
    ['q'] = {"BINPUT", op_put, 1},
    ['r'] = {"LONG_BINPUT", op_put, 4},
    [0x94] = {"MEMOIZE", op_put, 0},
    [0x80] = {"PROTO", op_proto, 0},
    [0x95] = {"FRAME", op_frame, 0},
};

/* STOP has no row: it ends the loop. */
static int execute(struct machine *m)
{
    for (int64_t n = 0;; n++) {
        const uint8_t *p;

        m->op = m->pos;
        m->name = "opcode";
        if (n == GPT_PICKLE_OPCODES)
            return BAD(m, "more than %d opcodes", GPT_PICKLE_OPCODES);
        GPT_TRY(take_bytes(m, 1, &p));
        if (*p == '.')
            break;
        if (!ops[*p].act)
            return BAD(m, "0x%02x is none of a pickle", *p);
        m->name = ops[*p].name;
        GPT_TRY(ops[*p].act(m, ops[*p].arg));
    }
    m->name = "STOP";
    if (m->n_marks || m->depth != 1)
        return BAD(m, "%zu values on the stack, expected 1", m->depth);
    m->p->root = m->stack[0];
    m->p->bytes = m->pos;
    return GPT_OK;
}

/* Offsets of values are kept in 32 bits, so the length is cut to what a pickle
 * may have. */
int gpt_pickle_parse(struct gpt_pickle *p, const void *data, size_t len,
                     const char *what, int64_t offset, struct gpt_err *err)
{
    struct machine m = {
        .p = p,
        .data = data,
        .len = len < GPT_PICKLE_BYTES ? len : GPT_PICKLE_BYTES,
        .what = what,
        .offset = offset,
        .err = err,
    };

    *p = (struct gpt_pickle){0};
    int status = execute(&m);
    gpt_free(m.stack);
    gpt_free(m.memo);
    gpt_free(m.marks);
    if (status != GPT_OK) {
        const bool cut = p->cut;

        gpt_pickle_free(p);
        p->cut = cut;
    }
    return status;
}

void gpt_pickle_free(struct gpt_pickle *p)
{
    gpt_free(p->globals);
    gpt_free(p->persistent);
    gpt_arena_free(&p->arena);
    *p = (struct gpt_pickle){0};
}
