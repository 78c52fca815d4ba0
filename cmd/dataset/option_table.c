/* Makes one option table out of the commands' rows. A row belongs to the
 * heading above it; rows of one name are one option, whose commands are its
 * takers. Where all options of a heading have the same takers the heading names
 * them, elsewhere each help text does ("slice, cat: documents A to B"). So
 * neither the table nor a check of options repeats by hand which command takes
 * what. Start at gpt_dataset_fill_table(). */
#include "cmd/dataset/option_table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_HELPS = 2 };

/* An option while its takers are collected; takers are bits, one a command. */
struct option {
    const struct gpt_opt *row; /* the first command's */
    const char *heading;
    unsigned takers;
    struct {
        const char *text;
        unsigned takers;
    } help[MAX_HELPS]; /* what it means to whom; the texts may differ */
    int n_helps;
};

struct collection {
    const struct gpt_dataset_command *const *commands;
    size_t n_commands;
    struct option options[GPT_DATASET_MAX_ROWS];
    size_t n_options;
    const char *headings[GPT_DATASET_MAX_ROWS]; /* as they first occur */
    size_t n_headings;
};

/* ---- collect ---- */

static void add_heading(struct collection *c, const char *heading)
{
    for (size_t i = 0; i < c->n_headings; i++)
        if (strcmp(c->headings[i], heading) == 0)
            return;
    assert(c->n_headings < GPT_DATASET_MAX_ROWS);
    c->headings[c->n_headings++] = heading;
}

/* The search is linear: there are forty rows, once a start. */
static struct option *find_option(struct collection *c,
                                  const struct gpt_opt *row,
                                  const char *heading)
{
    for (size_t i = 0; i < c->n_options; i++)
        if (strcmp(c->options[i].row->name, row->name) == 0)
            return &c->options[i];
    assert(c->n_options < GPT_DATASET_MAX_ROWS);
    c->options[c->n_options] = (struct option){.row = row, .heading = heading};
    return &c->options[c->n_options++];
}

/* All rows of an option are the same but for their help, as only the first one
 * is parsed by. */
static void add_row(struct collection *c, const struct gpt_opt *row,
                    const char *heading, unsigned taker)
{
    struct option *o = find_option(c, row, heading);
    int k = 0;

    assert(o->row->offset == row->offset && o->row->kind == row->kind);
    assert(o->heading == heading || strcmp(o->heading, heading) == 0);
    while (k < o->n_helps && strcmp(o->help[k].text, row->help) != 0)
        k++;
    assert(k < MAX_HELPS);
    if (k == o->n_helps) {
        o->help[k].text = row->help;
        o->n_helps++;
    }
    o->help[k].takers |= taker;
    o->takers |= taker;
}

/* Takers are bits: an unsigned has room for twice as many commands. */
static void collect_rows(struct collection *c)
{
    for (size_t i = 0; i < c->n_commands; i++) {
        const struct gpt_dataset_command *command = c->commands[i];
        const char *heading = NULL;

        for (size_t k = 0; k < command->n_options; k++) {
            const struct gpt_opt *row = &command->options[k];

            if (row->kind == GPT_OPT_GROUP) {
                heading = row->help;
                add_heading(c, heading);
            } else {
                assert(heading); /* every row is below one */
                add_row(c, row, heading, 1U << i);
            }
        }
    }
}

/* ---- put together ---- */

__attribute__((format(printf, 2, 3)))
static void append_text(struct gpt_dataset_table *t, const char *fmt, ...)
{
    va_list args;
    size_t room = sizeof(t->texts) - t->n_texts;

    va_start(args, fmt);
    int n = vsnprintf(t->texts + t->n_texts, room, fmt, args);
    va_end(args);
    assert(n >= 0 && (size_t)n < room);
    t->n_texts += (size_t)n;
}

/* "merge, slice" */
static void append_names(struct gpt_dataset_table *t,
                         const struct collection *c, unsigned takers)
{
    const char *comma = "";

    for (size_t i = 0; i < c->n_commands; i++) {
        if (!(takers & 1U << i))
            continue;
        append_text(t, "%s%s", comma, c->commands[i]->name);
        comma = ", ";
    }
}

/* Ends the text that begins at `start` of t->texts. */
static const char *end_text(struct gpt_dataset_table *t, size_t start)
{
    t->n_texts++; /* the NUL that vsnprintf() wrote */
    return t->texts + start;
}

static void put_row(struct gpt_dataset_table *t, const struct gpt_opt *row,
                    const char *help)
{
    assert(t->n_rows < GPT_DATASET_MAX_ROWS);
    t->rows[t->n_rows] = *row;
    t->rows[t->n_rows++].help = help;
}

static void put_option(struct gpt_dataset_table *t, const struct collection *c,
                       const struct option *o, bool named_above)
{
    size_t start = t->n_texts;

    if (named_above && o->n_helps == 1) {
        put_row(t, o->row, o->help[0].text);
        return;
    }
    for (int k = 0; k < o->n_helps; k++) {
        append_text(t, "%s", k ? "; " : "");
        append_names(t, c, o->help[k].takers);
        append_text(t, ": %s", o->help[k].text);
    }
    put_row(t, o->row, end_text(t, start));
}

/* The takers of all options below a heading, or 0 when they differ. */
static unsigned common_takers(const struct collection *c, const char *heading)
{
    unsigned takers = 0;

    for (size_t i = 0; i < c->n_options; i++) {
        if (strcmp(c->options[i].heading, heading) != 0)
            continue;
        if (takers && c->options[i].takers != takers)
            return 0;
        takers = c->options[i].takers;
    }
    return takers;
}

static void put_heading(struct gpt_dataset_table *t,
                        const struct collection *c, const char *heading)
{
    static const struct gpt_opt group = {.kind = GPT_OPT_GROUP};
    unsigned takers = common_takers(c, heading);
    size_t start = t->n_texts;

    append_text(t, "%s", heading);
    if (takers) {
        append_text(t, " (");
        append_names(t, c, takers);
        append_text(t, ")");
    }
    put_row(t, &group, end_text(t, start));
    for (size_t i = 0; i < c->n_options; i++)
        if (strcmp(c->options[i].heading, heading) == 0)
            put_option(t, c, &c->options[i], takers != 0);
}

/* ---- all ---- */

void gpt_dataset_fill_table(struct gpt_dataset_table *t,
                            const struct gpt_dataset_command *const *commands,
                            size_t n)
{
    static const struct gpt_opt every_program[] = {
        GPT_COMMON_OPTIONS(struct gpt_dataset_options, common)};
    struct collection c = {.commands = commands, .n_commands = n};
    size_t n_examples = 0;

    assert(n <= GPT_DATASET_MAX_COMMANDS);
    collect_rows(&c);
    for (size_t i = 0; i < c.n_headings; i++)
        put_heading(t, &c, c.headings[i]);
    /* What follows is in every program, and every command takes it. */
    t->n_own = t->n_rows;
    for (size_t i = 0; i < GPT_COUNT(every_program); i++)
        put_row(t, &every_program[i], every_program[i].help);
    for (size_t i = 0; i < n; i++) {
        t->names[i] = commands[i]->name;
        t->usage[i] = commands[i]->usage;
        if (commands[i]->example)
            t->examples[n_examples++] = commands[i]->example;
    }
}

bool gpt_dataset_takes(const struct gpt_dataset_command *command,
                       const char *option)
{
    for (size_t i = 0; i < command->n_options; i++) {
        const char *name = command->options[i].name;

        if (name && strcmp(name, option) == 0)
            return true;
    }
    return false;
}
