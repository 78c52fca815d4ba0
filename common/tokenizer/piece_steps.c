/* See piece_steps.h. Start at gpt_piece_steps_run(). */
#include "tokenizer/piece_steps.h"

#include <string.h>

/* A text on its way through the steps. */
struct run {
    const struct gpt_piece_steps *steps;
    struct gpt_buf *buffers;
    gpt_piece_fn *fn;
    void *data;
    struct gpt_err *err;
};

static int run_from(const struct run *r, size_t step, struct gpt_str text,
                    size_t readable, size_t first);

/* ---- splitting ---- */

/* A text in parts that match and parts between them. */
struct parts {
    const struct gpt_piece_step *step;
    struct gpt_str text;
    size_t done;       /* parts before it were given out */
    size_t begin, end; /* of the next match */
    bool found;
};

static void find_next(struct parts *p)
{
    p->found = gpt_needle_find(&p->step->pattern, p->text.data, p->text.len,
                               p->done, &p->begin, &p->end);
}

/* The next part; false at the end of the text. */
static bool next_part(struct parts *p, size_t *begin, size_t *end,
                      bool *separates)
{
    if (p->done == p->text.len)
        return false;
    *begin = p->done;
    *separates = p->found && p->begin == p->done;
    *end = *separates ? p->end : p->found ? p->begin : p->text.len;
    p->done = *end;
    if (*separates)
        find_next(p);
    *separates = *separates != p->step->invert;
    return true;
}

/* True where two parts beside each other are one piece. */
static bool is_joined(enum gpt_separated split, bool before, bool after)
{
    switch (split) {
    case GPT_SPLIT_PREVIOUS:
        return !before && after;
    case GPT_SPLIT_NEXT:
        return before && !after;
    case GPT_SPLIT_CONTIGUOUS:
        return before == after;
    default:
        return false;
    }
}

/* Gives a piece to the steps after `step`. */
static int give_piece(const struct run *r, size_t step, struct gpt_str text,
                      size_t readable, size_t begin, size_t end, size_t first)
{
    const struct gpt_str piece = {text.data + begin, end - begin};

    return begin == end ? GPT_OK
                        : run_from(r, step + 1, piece, readable - begin,
                                   begin < first ? first - begin : 0);
}

static int run_split(const struct run *r, size_t step, struct gpt_str text,
                     size_t readable, size_t first)
{
    struct parts p = {.step = &r->steps->steps[step], .text = text};
    const enum gpt_separated split = p.step->split;
    size_t piece = 0, begin, end;
    bool separates, last = false;

    find_next(&p);
    while (next_part(&p, &begin, &end, &separates)) {
        if (begin > 0 && !is_joined(split, last, separates)) {
            GPT_TRY(give_piece(r, step, text, readable, piece, begin, first));
            piece = begin;
        }
        if (separates && split == GPT_SPLIT_REMOVED)
            piece = end;
        last = separates;
    }
    return give_piece(r, step, text, readable, piece, text.len, first);
}

/* ---- spaces ---- */

/* True for a text that gets a space before it: it begins with none. */
static bool gets_space(const struct gpt_piece_step *step, struct gpt_str text,
                       size_t first)
{
    const struct gpt_str space = step->space;
    const bool spaced =
        text.data[0] == ' ' || (text.len >= space.len &&
                                memcmp(text.data, space.data, space.len) == 0);

    return !spaced && (step->prepend == GPT_PREPEND_ALWAYS ||
                       (step->prepend == GPT_PREPEND_FIRST && first));
}

/* Bytes that are of a document's first character when text has its spaces: a
 * space that is put before it is of that character, too. */
static size_t first_spaced(const struct gpt_piece_step *step,
                           struct gpt_str text, size_t first)
{
    size_t n = first && gets_space(step, text, first) ? step->space.len : 0;

    for (size_t i = 0; i < first; i++)
        n += text.data[i] == ' ' ? step->space.len : 1;
    return n;
}

/* Fails only when memory is out. */
static int write_spaces(struct gpt_buf *out, const struct gpt_piece_step *step,
                        struct gpt_str text, size_t first)
{
    const struct gpt_str space = step->space;
    const char *p = text.data, *end = p + text.len, *next;

    out->len = 0;
    if (gets_space(step, text, first))
        GPT_TRY(gpt_buf_add(out, space.data, space.len));
    for (; p < end; p = next + 1) {
        next = memchr(p, ' ', (size_t)(end - p));
        if (!next)
            return gpt_buf_add(out, p, (size_t)(end - p));
        GPT_TRY(gpt_buf_add(out, p, (size_t)(next - p)));
        GPT_TRY(gpt_buf_add(out, space.data, space.len));
    }
    return GPT_OK;
}

static int run_metaspace(const struct run *r, size_t step, struct gpt_str text,
                         size_t first)
{
    const struct gpt_piece_step *s = &r->steps->steps[step];
    struct gpt_buf *out = &r->buffers[step];

    if (write_spaces(out, s, text, first) != GPT_OK)
        return gpt_no_memory(r->err, "a text");
    const struct gpt_str spaced = {out->data, out->len};
    first = first_spaced(s, text, first < text.len ? first : text.len);
    return s->splits ? run_split(r, step, spaced, spaced.len, first)
                     : run_from(r, step + 1, spaced, spaced.len, first);
}

/* ---- the list ---- */

/* Recursion is as deep as the list is long. */
static int run_from(const struct run *r, size_t step, struct gpt_str text,
                    size_t readable, size_t first)
{
    if (step == r->steps->n)
        return r->fn(r->data, text, readable, r->err);
    return r->steps->steps[step].metaspace
               ? run_metaspace(r, step, text, first)
               : run_split(r, step, text, readable, first);
}

int gpt_piece_steps_run(const struct gpt_piece_steps *steps,
                        struct gpt_buf buffers[GPT_PIECE_STEPS],
                        struct gpt_str text, size_t first, gpt_piece_fn *fn,
                        void *data, struct gpt_err *err)
{
    const struct run r = {steps, buffers, fn, data, err};

    return text.len ? run_from(&r, 0, text, text.len, first) : GPT_OK;
}
