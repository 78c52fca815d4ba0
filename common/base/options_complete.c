/* Answers to --complete: what a shell offers after each option, decided here
 * once for all shells, and lists of it that are read by programs. The scripts
 * of the shells are in options_complete_bash.c, options_complete_zsh.c
 * and options_complete_fish.c. Start at
 * gpt_opt_complete(). */
#include "base/options_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- what is offered ---- */

/* Hidden options are for old scripts; completion is for typing. */
int gpt_opt_each_row(const struct gpt_program *program, struct gpt_buf *b,
                     gpt_opt_add_row_fn *add)
{
    for (size_t i = 0; i < program->n_options; i++) {
        const struct gpt_opt *o = &program->options[i];

        if (o->kind != GPT_OPT_GROUP && !(o->flags & GPT_OPT_HIDDEN))
            GPT_TRY(add(b, program, o));
    }
    for (size_t i = 0; i < GPT_COUNT(gpt_builtin_options); i++)
        GPT_TRY(add(b, program, &gpt_builtin_options[i]));
    return GPT_OK;
}

static enum gpt_offer offer_of_flags(unsigned flags)
{
    if (flags & GPT_OPT_SET)
        return GPT_OFFER_SETS;
    if (flags & GPT_OPT_DIR)
        return GPT_OFFER_DIRS;
    return flags & GPT_OPT_FILE ? GPT_OFFER_FILES : GPT_OFFER_NOTHING;
}

/* Presets belong to the one option whose value is looked up among them; the
 * parser knows it by its name, too. */
enum gpt_offer gpt_opt_offer(const struct gpt_opt *o)
{
    if (!gpt_opt_takes_value(o))
        return GPT_OFFER_NOTHING;
    if (o->choices)
        return GPT_OFFER_CHOICES;
    return strcmp(o->name, "config") == 0 ? GPT_OFFER_CONFIG
                                          : offer_of_flags(o->flags);
}

enum gpt_offer gpt_opt_offer_words(const struct gpt_program *program)
{
    return offer_of_flags(program->words);
}

static bool is_builtin(const struct gpt_opt *o)
{
    return o >= gpt_builtin_options &&
           o < gpt_builtin_options + GPT_COUNT(gpt_builtin_options);
}

const char *gpt_opt_negation(const struct gpt_opt *o, char *buf, size_t cap)
{
    bool negative = strncmp(o->name, "no-", 3) == 0;

    buf[0] = '\0';
    if (!gpt_opt_takes_value(o) && !is_builtin(o))
        snprintf(buf, cap, "%s%s", negative ? "" : "no-",
                 negative ? o->name + 3 : o->name);
    return buf;
}

int gpt_opt_add_text(struct gpt_buf *b, const char *text, const char *left_out)
{
    for (; text && *text; text++) {
        char c = *text == '\n' ? ' ' : *text;

        if (!strchr(left_out, c))
            GPT_TRY(gpt_buf_add(b, &c, 1));
    }
    return GPT_OK;
}

int gpt_opt_add_words(struct gpt_buf *b, const char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        GPT_TRY(gpt_buf_printf(b, "%s%s", i > 0 ? " " : "", words[i]));
    return GPT_OK;
}

/* "_gpt_train" for "gpt-train": '-' is in no name of a function. */
static int add_function_name(struct gpt_buf *b, const char *name)
{
    GPT_TRY(gpt_buf_add(b, "_", 1));
    for (; *name; name++)
        GPT_TRY(gpt_buf_add(b, *name == '-' ? "_" : name, 1));
    return GPT_OK;
}

int gpt_opt_add_script(struct gpt_buf *b, const struct gpt_program *program,
                       const char *text)
{
    while (*text) {
        if (strncmp(text, "FN", 2) == 0) {
            GPT_TRY(add_function_name(b, program->name));
            text += 2;
        } else if (strncmp(text, "PROG", 4) == 0) {
            GPT_TRY(gpt_buf_printf(b, "%s", program->name));
            text += 4;
        } else {
            GPT_TRY(gpt_buf_add(b, text++, 1));
        }
    }
    return GPT_OK;
}

/* ---- lists ---- */

/* Read by tests/cli/t90-docs.sh, which compares the table with the manual
 * page. */
static int list_name(struct gpt_buf *b, const struct gpt_program *program,
                     const struct gpt_opt *o)
{
    (void)program;
    return gpt_buf_printf(b, "--%s\n", o->name);
}

static const char *const offers[] = {
    [GPT_OFFER_NOTHING] = "nothing", [GPT_OFFER_CHOICES] = "choices",
    [GPT_OFFER_CONFIG] = "config",   [GPT_OFFER_SETS] = "sets",
    [GPT_OFFER_DIRS] = "dirs",       [GPT_OFFER_FILES] = "files",
};

/* Fields end with a tab: name, letter, kind, what is offered, choices, the
 * other form of a flag, aliases, default. '-' is an empty one. */
static int list_row(struct gpt_buf *b, const struct gpt_program *program,
                    const struct gpt_opt *o)
{
    const char *kind = o->kind == GPT_OPT_LIST ? "list" : "value";
    char negation[100];

    (void)program;
    GPT_TRY(gpt_buf_printf(b, "--%s\t%c\t%s\t%s\t", o->name,
                           o->letter ? o->letter : '-',
                           gpt_opt_takes_value(o) ? kind : "flag",
                           offers[gpt_opt_offer(o)]));
    GPT_TRY(o->choices ? gpt_opt_add_words(b, o->choices)
                       : gpt_buf_add(b, "-", 1));
    gpt_opt_negation(o, negation, sizeof(negation));
    return gpt_buf_printf(b, "\t%s%s\t%s\t%s\n", negation[0] ? "--" : "-",
                          negation, o->alias ? o->alias : "-",
                          o->def && o->def[0] ? o->def : "-");
}

/* What tests hold the scripts and the manual pages against: all rows, then the
 * words that are no options. */
static int list_table(const struct gpt_program *program, struct gpt_buf *b)
{
    GPT_TRY(gpt_opt_each_row(program, b, list_row));
    for (size_t i = 0; program->commands && program->commands[i]; i++)
        GPT_TRY(gpt_buf_printf(b, "command\t%s\n", program->commands[i]));
    if (program->stop_at_positional)
        return gpt_buf_printf(b, "program\n");
    return gpt_buf_printf(b, "words\t%s\n",
                          offers[gpt_opt_offer_words(program)]);
}

/* Fields as above: name, whose name it is, what becomes of it, and why. */
static int list_foreign_rows(const struct gpt_foreign_option *rows, size_t n,
                             const char *refused, struct gpt_buf *b)
{
    for (size_t i = 0; i < n; i++) {
        const struct gpt_foreign_option *f = &rows[i];

        GPT_TRY(gpt_buf_printf(b, "--%s\t%s\t%s\t%s\n", f->name, f->source,
                               f->means  ? "means"
                               : f->skip ? "skipped"
                                         : refused,
                               f->means ? f->means : f->answer));
    }
    return GPT_OK;
}

static int list_foreign(const struct gpt_program *program, struct gpt_buf *b)
{
    GPT_TRY(list_foreign_rows(program->foreign, program->n_foreign, "refused",
                              b));
    return list_foreign_rows(program->hints, program->n_hints, "hinted", b);
}

static int list_options(const struct gpt_program *program, struct gpt_buf *b)
{
    return gpt_opt_each_row(program, b, list_name);
}

/* ---- all ---- */

int gpt_opt_complete(const struct gpt_program *program, const char *what,
                     struct gpt_buf *b, struct gpt_err *err)
{
    static const struct {
        const char *name;
        int (*write)(const struct gpt_program *program, struct gpt_buf *b);
    } answers[] = {
        {"bash", gpt_opt_complete_bash},  {"zsh", gpt_opt_complete_zsh},
        {"fish", gpt_opt_complete_fish},  {"options", list_options},
        {"presets", gpt_opt_list_presets}, {"table", list_table},
        {"foreign", list_foreign},
    };

    for (size_t i = 0; i < GPT_COUNT(answers); i++) {
        if (strcmp(what, answers[i].name) != 0)
            continue;
        return answers[i].write(program, b) == GPT_OK
                   ? GPT_OK
                   : gpt_no_memory(err, "text");
    }
    return gpt_fail(err, GPT_EUSAGE,
                    "--complete: '%s' is not one of bash, zsh, fish, options, "
                    "presets, table, foreign",
                    what);
}
