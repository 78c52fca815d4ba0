/* Regular expressions of adapter_config.json. peft gives them to Python's re,
 * whose time may grow without bound; here an expression becomes a program of
 * which all positions are followed at once, so that a path costs its length
 * times that of the program (Thompson 1968). Start at gpt_pattern_open(). */
#include "checkpoint/adapter/adapter.h"

#include "base/memory.h"

#include <string.h>

enum {
    MOST_STEPS = 4096,
    MOST_ATOMS = 8 * MOST_STEPS, /* that are read, repeated ones each time */
    MOST_TEXT = 1024,
    MOST_DEPTH = 100,
    WORDS = 4
};

enum op {
    OP_SET,   /* takes a character */
    OP_FORK,  /* goes on at `a` and at `b`, */
    OP_JUMP,  /* at `a`: both counted from here */
    OP_BEGIN, /* at the beginning alone, */
    OP_END,   /* or at the end */
    OP_MATCH,
};

struct step {
    enum op op;
    int a, b;
    uint64_t set[WORDS]; /* of bytes */
};

struct gpt_pattern {
    const char *what;
    struct step *steps;
    size_t cap;
    int n;
};

/* While it is made: the text from `at` on is to be read, `depth` groups and
 * alternatives are open, and `atoms` were read. */
struct maker {
    struct gpt_pattern *p;
    const char *text, *at;
    int depth, atoms;
    struct gpt_err *err;
};

/* ---- making ---- */

/* What Python takes and this does not, and what Python does not take. */
static int refuse(struct maker *m, const char *why)
{
    gpt_fail(m->err, GPT_EDATA, "%s: pattern '%.200s', character %lld: %s",
             m->p->what, m->text, (long long)(m->at - m->text), why);
    return gpt_hint(m->err, "write the modules' names in its place");
}

/* Every repetition is written out, so a short text may ask for a long
 * program. */
static int emit(struct maker *m, enum op op, int a, int b)
{
    if (m->p->n == MOST_STEPS)
        return refuse(m, "it is too long, repetitions written out");
    GPT_TRY(gpt_grow(&m->p->steps, &m->p->cap, (size_t)m->p->n + 1,
                     sizeof(*m->p->steps), "a pattern", m->err));
    m->p->steps[m->p->n++] = (struct step){.op = op, .a = a, .b = b};
    return GPT_OK;
}

/* Puts a step in front of those from `start` on; their jumps stay right. */
static int insert(struct maker *m, int start, enum op op, int a, int b)
{
    GPT_TRY(emit(m, op, a, b));
    struct step *s = m->p->steps;
    const struct step last = s[m->p->n - 1];
    memmove(s + start + 1, s + start,
            (size_t)(m->p->n - 1 - start) * sizeof(*s));
    s[start] = last;
    return GPT_OK;
}

/* Paths are compared byte by byte: names of modules are ASCII. */
static void add_byte(uint64_t *set, unsigned char c)
{
    set[c / 64] |= (uint64_t)1 << c % 64;
}

static void add_range(uint64_t *set, int from, int to)
{
    for (int c = from; c <= to; c++)
        add_byte(set, (unsigned char)c);
}

/* "[^...]", and classes in capitals. */
static void invert(uint64_t *set)
{
    for (int i = 0; i < WORDS; i++)
        set[i] = ~set[i];
}

/* What follows a backslash: a class, or a character that stands for itself. */
static int read_escape(struct maker *m, uint64_t *set)
{
    const char c = *m->at;
    uint64_t own[WORDS] = {0};

    if (strchr("dD", c) && c)
        add_range(own, '0', '9');
    else if (strchr("wW", c) && c) {
        add_range(own, '0', '9');
        add_range(own, 'A', 'Z');
        add_range(own, 'a', 'z');
        add_byte(own, '_');
    } else if (strchr("sS", c) && c) {
        add_range(own, '\t', '\r');
        add_byte(own, ' ');
    } else if (!c || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
               (c >= 'a' && c <= 'z'))
        return refuse(m, "this escape is not supported");
    else
        add_byte(own, (unsigned char)c);
    if (strchr("DWS", c))
        invert(own);
    for (int i = 0; i < WORDS; i++)
        set[i] |= own[i];
    m->at++;
    return GPT_OK;
}

/* True where "-" and a character behind it make a range of what is before. */
static bool begins_range(const char *at)
{
    return at[0] == '-' && at[1] && at[1] != ']';
}

/* One character of a class, a range of two, or an escape, which is no end of a
 * range. */
static int read_item(struct maker *m, uint64_t *set)
{
    const unsigned char from = (unsigned char)*m->at++;
    unsigned char to = from;

    if (from == '\\') {
        GPT_TRY(read_escape(m, set));
        return begins_range(m->at)
                   ? refuse(m, "this range is not supported")
                   : GPT_OK;
    }
    if (begins_range(m->at)) {
        to = (unsigned char)m->at[1];
        if (to == '\\' || to < from)
            return refuse(m, "this range is not supported");
        m->at += 2;
    }
    add_range(set, from, to);
    return GPT_OK;
}

/* After "[". A bracket that comes first stands for itself. */
static int read_class(struct maker *m)
{
    uint64_t set[WORDS] = {0};
    const bool inverted = *m->at == '^';
    const char *first;

    m->at += inverted;
    for (first = m->at; *m->at != ']' || m->at == first;) {
        if (!*m->at)
            return refuse(m, "a class has no end");
        GPT_TRY(read_item(m, set));
    }
    m->at++;
    if (inverted)
        invert(set);
    GPT_TRY(emit(m, OP_SET, 0, 0));
    memcpy(m->p->steps[m->p->n - 1].set, set, sizeof(set));
    return GPT_OK;
}

/* A number of digits at *at; -1 without one. It grows no further when it is
 * more than any program has steps. */
static long read_digits(const char **at)
{
    long n = -1;

    for (; **at >= '0' && **at <= '9'; ++*at)
        if (n <= MOST_STEPS)
            n = (n < 0 ? 0 : n) * 10 + **at - '0';
    return n;
}

/* {m}, {m,}, {,n}, {m,n} or {,}; *most is -1 without an end. Anything else in
 * braces stands for itself. */
static bool read_counts(const char **at, long *least, long *most)
{
    const char *p = *at + 1;

    if (**at != '{' || *p == '}')
        return false;
    *least = *most = read_digits(&p);
    if (*p == ',') {
        p++;
        *most = read_digits(&p);
        *least = *least < 0 ? 0 : *least;
    }
    if (*p != '}')
        return false;
    *at = p + 1;
    return true;
}

/* True where a repetition begins. */
static bool repeats(const char *at)
{
    long least, most;

    return (*at && strchr("*+?", *at)) || read_counts(&at, &least, &most);
}

static int read_alternatives(struct maker *m);

/* After "(". */
static int read_group(struct maker *m)
{
    if (m->at[0] == '?' && m->at[1] != ':')
        return refuse(m, "this group is not supported");
    m->at += m->at[0] == '?' ? 2 : 0;
    GPT_TRY(read_alternatives(m));
    if (*m->at != ')')
        return refuse(m, "a group has no end");
    m->at++;
    return GPT_OK;
}

/* What a repetition repeats: a character, a class or a group. Anchors are steps
 * of their own, which take no character. A group in repeated groups is read
 * again for each of them, even when it leaves no step. */
static int read_atom(struct maker *m)
{
    const char c = *m->at;
    uint64_t set[WORDS] = {0};

    if (++m->atoms > MOST_ATOMS)
        return refuse(m, "it is too long, repetitions written out");
    if (repeats(m->at))
        return refuse(m, "there is nothing to repeat");
    m->at++;
    if (c == '(')
        return read_group(m);
    if (c == '[')
        return read_class(m);
    if (c == '^' || c == '$')
        return emit(m, c == '^' ? OP_BEGIN : OP_END, 0, 0);
    if (c == '\\')
        GPT_TRY(read_escape(m, set));
    else if (c == '.') {
        add_byte(set, '\n');
        invert(set);
    } else
        add_byte(set, (unsigned char)c);
    GPT_TRY(emit(m, OP_SET, 0, 0));
    memcpy(m->p->steps[m->p->n - 1].set, set, sizeof(set));
    return GPT_OK;
}

/* The atom from `start` on, any number of times: a fork before it, which can
 * leave, and a jump behind it back to the fork. */
static int repeat_any(struct maker *m, int start)
{
    GPT_TRY(insert(m, start, OP_FORK, 1, m->p->n - start + 2));
    return emit(m, OP_JUMP, start - m->p->n, 0);
}

/* The atom from `text` on, whose steps are removed first, as often as asked. */
static int repeat(struct maker *m, const char *text, int start, long least,
                  long most)
{
    const char *after = m->at;

    if (least > MOST_STEPS || most > MOST_STEPS || (most >= 0 && most < least))
        return refuse(m, "these counts are not supported");
    m->p->n = start;
    for (long i = 0; i < least || i < most || (most < 0 && i == least); i++) {
        const int begin = m->p->n;

        m->at = text;
        GPT_TRY(read_atom(m));
        if (i >= least && most < 0)
            GPT_TRY(repeat_any(m, begin));
        else if (i >= least)
            GPT_TRY(insert(m, begin, OP_FORK, 1, m->p->n - begin + 1));
    }
    m->at = after;
    return GPT_OK;
}

/* An atom and what repeats it. */
static int read_piece(struct maker *m)
{
    const int start = m->p->n;
    const char *text = m->at;
    long least, most;

    GPT_TRY(read_atom(m));
    if ((*text == '^' || *text == '$') && repeats(m->at))
        return refuse(m, "there is nothing to repeat");
    if (*m->at == '*') {
        m->at++;
        GPT_TRY(repeat_any(m, start));
    } else if (*m->at == '+') {
        m->at++;
        GPT_TRY(emit(m, OP_FORK, start - m->p->n, 1));
    } else if (*m->at == '?') {
        m->at++;
        GPT_TRY(insert(m, start, OP_FORK, 1, m->p->n - start + 1));
    } else if (read_counts(&m->at, &least, &most)) {
        GPT_TRY(repeat(m, text, start, least, most));
    } else
        return GPT_OK;
    m->at += *m->at == '?'; /* the fewest: the same texts match */
    return repeats(m->at) ? refuse(m, "a repetition is repeated") : GPT_OK;
}

/* Alternatives of a group, or of all: the first goes on behind the others by a
 * jump, whose length is known at the end. Depth counts groups and
 * alternatives, so that a hostile text does not use up the stack. */
static int read_alternatives(struct maker *m)
{
    const int start = m->p->n;

    if (++m->depth > MOST_DEPTH)
        return refuse(m, "too many groups or alternatives");
    while (*m->at && *m->at != '|' && *m->at != ')')
        GPT_TRY(read_piece(m));
    if (*m->at == '|') {
        m->at++;
        GPT_TRY(insert(m, start, OP_FORK, 1, m->p->n - start + 2));
        const int jump = m->p->n;
        GPT_TRY(emit(m, OP_JUMP, 0, 0));
        GPT_TRY(read_alternatives(m));
        m->p->steps[jump].a = m->p->n - jump;
    }
    m->depth--;
    return GPT_OK;
}

int gpt_pattern_open(struct gpt_pattern **p, const char *text, const char *what,
                     struct gpt_err *err)
{
    struct maker m = {.text = text, .at = text, .err = err};
    int status;

    *p = NULL;
    if (strlen(text) >= MOST_TEXT)
        return gpt_fail(err, GPT_EDATA,
                        "%s: a pattern of %zu characters, limit %d", what,
                        strlen(text), MOST_TEXT - 1);
    GPT_TRY(gpt_new(&m.p, 1, sizeof(*m.p), "a pattern", err));
    m.p->what = what;
    GPT_TRY_GOTO(status, read_alternatives(&m), fail);
    GPT_TRY_GOTO(status,
                 *m.at ? refuse(&m, "a group has no beginning")
                       : emit(&m, OP_MATCH, 0, 0),
                 fail);
    *p = m.p;
    return GPT_OK;
fail:
    gpt_pattern_close(m.p);
    return status;
}

void gpt_pattern_close(struct gpt_pattern *p)
{
    if (p)
        gpt_free(p->steps);
    gpt_free(p);
}

/* ---- matching ---- */

/* Steps at which a path may stand, after some of its characters. */
struct places {
    /* in the order in which they were added, and whether a step was */
    int list[MOST_STEPS], n;
    bool there[MOST_STEPS];
};

/* Adds a step and all that follow it without a character. Each is added once,
 * so the stack holds at most two for each. */
static void add_place(struct places *to, const struct gpt_pattern *p, int step,
                      bool begins, bool ends, int *stack)
{
    int n = 0;

    stack[n++] = step;
    while (n > 0) {
        const int i = stack[--n];
        const struct step *s = &p->steps[i];

        if (to->there[i])
            continue;
        to->there[i] = true;
        to->list[to->n++] = i;
        if (s->op == OP_FORK || s->op == OP_JUMP)
            stack[n++] = i + s->a;
        if (s->op == OP_FORK)
            stack[n++] = i + s->b;
        if ((s->op == OP_BEGIN && begins) || (s->op == OP_END && ends))
            stack[n++] = i + 1;
    }
}

/* Only sets take a character; all else was followed before. */
static bool takes(const struct step *s, unsigned char c)
{
    return s->op == OP_SET && (s->set[c / 64] >> c % 64 & 1);
}

/* Both lists and the stack. */
struct walk {
    struct places places[2];
    int stack[2 * MOST_STEPS + 2];
};

/* A path may begin to match at its beginning and behind each dot, so the first
 * step is added there again. At the end it matches when it stands at the last
 * step. Each character costs at most the steps of the program, once. */
int gpt_pattern_ends(bool *matches, const struct gpt_pattern *p,
                     const char *path, int64_t *budget, struct gpt_err *err)
{
    struct walk *w;

    *matches = false;
    GPT_TRY(gpt_new(&w, 1, sizeof(*w), "a pattern", err));
    struct places *now = &w->places[0], *next = &w->places[1];
    for (const char *c = path;; c++) {
        if (c == path || c[-1] == '.')
            add_place(now, p, 0, c == path, !*c, w->stack);
        *budget -= now->n + 1;
        if (!*c || *budget < 0)
            break;
        memset(next->there, 0, (size_t)p->n * sizeof(*next->there));
        next->n = 0;
        for (int i = 0; i < now->n; i++)
            if (takes(&p->steps[now->list[i]], (unsigned char)*c))
                add_place(next, p, now->list[i] + 1, false, !c[1], w->stack);
        struct places *other = now;
        now = next;
        next = other;
    }
    *matches = now->there[p->n - 1];
    gpt_free(w);
    return *budget >= 0 ? GPT_OK
                        : gpt_fail(err, GPT_EDATA,
                                   "%s: its patterns take too many steps for "
                                   "the modules that there are",
                                   p->what);
}
