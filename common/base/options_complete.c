/* Completion scripts for bash, zsh and fish, and the plain list of options
 * that tests compare documents with. */
#include "base/options_internal.h"

#include <stdio.h>
#include <string.h>

/* Calls add for every row that users see, the builtin ones last. */
typedef int add_row_fn(struct gpt_buf *b, const struct gpt_program *program,
                       const struct gpt_opt *o);

/* Hidden options are for old scripts; completion is for typing. */
static int each_row(const struct gpt_program *program, struct gpt_buf *b,
                    add_row_fn *add)
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

static bool offers_files(const struct gpt_opt *o)
{
    return o->flags & GPT_OPT_FILE;
}

static bool offers_dirs(const struct gpt_opt *o)
{
    return o->flags & GPT_OPT_DIR;
}

static int add_choices(struct gpt_buf *b, const struct gpt_opt *o)
{
    for (size_t i = 0; o->choices[i]; i++)
        GPT_TRY(gpt_buf_printf(b, "%s%s", i > 0 ? " " : "", o->choices[i]));
    return GPT_OK;
}

/* Text inside quotes, less what would end it or mean something in there. */
static int add_text(struct gpt_buf *b, const char *text, const char *unwanted)
{
    for (; text && *text; text++) {
        char c = *text == '\n' ? ' ' : *text;

        if (!strchr(unwanted, c))
            GPT_TRY(gpt_buf_add(b, &c, 1));
    }
    return GPT_OK;
}

/* ---- plain ---- */

/* Read by tests/cli/t90-docs.sh, which compares the table with the manual
 * page. */
static int plain_row(struct gpt_buf *b, const struct gpt_program *program,
                     const struct gpt_opt *o)
{
    (void)program;
    return gpt_buf_printf(b, "--%s\n", o->name);
}

/* ---- bash ---- */

static int bash_word(struct gpt_buf *b, const struct gpt_program *program,
                     const struct gpt_opt *o)
{
    (void)program;
    return gpt_buf_printf(b, " --%s", o->name);
}

/* What may follow an option; nothing for those without a value. */
static int bash_case(struct gpt_buf *b, const struct gpt_program *program,
                     const struct gpt_opt *o)
{
    (void)program;
    if (!gpt_opt_takes_value(o))
        return GPT_OK;
    GPT_TRY(gpt_buf_printf(b, "    --%s", o->name));
    if (o->letter)
        GPT_TRY(gpt_buf_printf(b, "|-%c", o->letter));
    GPT_TRY(gpt_buf_printf(b, ") COMPREPLY=("));
    if (o->kind == GPT_OPT_CHOICE) {
        GPT_TRY(gpt_buf_printf(b, "$(compgen -W '"));
        GPT_TRY(add_choices(b, o));
        GPT_TRY(gpt_buf_printf(b, "' -- \"$cur\")"));
    } else if (offers_files(o) || offers_dirs(o)) {
        GPT_TRY(gpt_buf_printf(b, "$(compgen -%c -- \"$cur\")",
                               offers_dirs(o) ? 'd' : 'f'));
    }
    return gpt_buf_printf(b, "); return ;;\n");
}

/* The word before the cursor decides: after an option that takes a value its
 * choices or files are offered, else names of options, else files. */
static int bash(const struct gpt_program *program, struct gpt_buf *b,
                const char *function)
{
    GPT_TRY(gpt_buf_printf(b,
                           "# bash completion for %s\n"
                           "%s() {\n"
                           "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
                           "    local prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                           "    case $prev in\n",
                           program->name, function));
    GPT_TRY(each_row(program, b, bash_case));
    GPT_TRY(gpt_buf_printf(b, "    esac\n"
                              "    case $cur in\n"
                              "    -*) COMPREPLY=($(compgen -W '"));
    GPT_TRY(each_row(program, b, bash_word));
    return gpt_buf_printf(b,
                          "' -- \"$cur\")) ;;\n"
                          "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
                          "    esac\n"
                          "}\n"
                          "complete -o filenames -F %s %s\n",
                          function, program->name);
}

/* ---- zsh ---- */

/* The group in parentheses keeps the two spellings of one option from being
 * offered after each other. */
static int zsh_row(struct gpt_buf *b, const struct gpt_program *program,
                   const struct gpt_opt *o)
{
    char choices[128];
    const char *unwanted = "'[]:`\\";

    (void)program;
    if (o->letter)
        GPT_TRY(gpt_buf_printf(b, " \\\n    '(-%c --%s)'{-%c,--%s}'[",
                               o->letter, o->name, o->letter, o->name));
    else
        GPT_TRY(gpt_buf_printf(b, " \\\n    '--%s[", o->name));
    GPT_TRY(add_text(b, o->help, unwanted));
    GPT_TRY(gpt_buf_printf(b, "]"));
    if (gpt_opt_takes_value(o)) {
        GPT_TRY(gpt_buf_printf(b, ":"));
        GPT_TRY(add_text(b, gpt_opt_arg(o, choices, sizeof(choices)),
                         unwanted));
        GPT_TRY(gpt_buf_printf(b, ":"));
    }
    if (o->kind == GPT_OPT_CHOICE) {
        GPT_TRY(gpt_buf_printf(b, "("));
        GPT_TRY(add_choices(b, o));
        GPT_TRY(gpt_buf_printf(b, ")"));
    } else if (offers_dirs(o)) {
        GPT_TRY(gpt_buf_printf(b, "_files -/"));
    } else if (offers_files(o)) {
        GPT_TRY(gpt_buf_printf(b, "_files"));
    }
    return gpt_buf_printf(b, "'");
}

static int zsh(const struct gpt_program *program, struct gpt_buf *b,
               const char *function)
{
    (void)function;
    GPT_TRY(gpt_buf_printf(b, "#compdef %s\n_arguments -s", program->name));
    GPT_TRY(each_row(program, b, zsh_row));
    return gpt_buf_printf(b, " \\\n    '*:file:_files'\n");
}

/* ---- fish ---- */

/* -x says that the value is no file name, -r that it may be one. */
static int fish_row(struct gpt_buf *b, const struct gpt_program *program,
                    const struct gpt_opt *o)
{
    GPT_TRY(gpt_buf_printf(b, "complete -c %s -l %s", program->name, o->name));
    if (o->letter)
        GPT_TRY(gpt_buf_printf(b, " -s %c", o->letter));
    if (gpt_opt_takes_value(o))
        GPT_TRY(gpt_buf_printf(b, " -%s",
                               offers_files(o) || offers_dirs(o) ? "r" : "x"));
    if (o->kind == GPT_OPT_CHOICE) {
        GPT_TRY(gpt_buf_printf(b, " -a '"));
        GPT_TRY(add_choices(b, o));
        GPT_TRY(gpt_buf_printf(b, "'"));
    }
    GPT_TRY(gpt_buf_printf(b, " -d '"));
    GPT_TRY(add_text(b, o->help, "'\\"));
    return gpt_buf_printf(b, "'\n");
}

/* "_gpt_train" for "gpt-train". */
static void function_name(const char *name, char *buf, size_t cap)
{
    snprintf(buf, cap, "_%s", name);
    for (char *c = buf; *c; c++)
        if (*c == '-')
            *c = '_';
}

int gpt_opt_complete(const struct gpt_program *program, const char *shell,
                     struct gpt_buf *b, struct gpt_err *err)
{
    char function[64];
    int status = GPT_EUSAGE;

    function_name(program->name, function, sizeof(function));
    if (strcmp(shell, "options") == 0)
        status = each_row(program, b, plain_row);
    else if (strcmp(shell, "bash") == 0)
        status = bash(program, b, function);
    else if (strcmp(shell, "zsh") == 0)
        status = zsh(program, b, function);
    else if (strcmp(shell, "fish") == 0)
        status = each_row(program, b, fish_row);
    else
        return gpt_fail(err, GPT_EUSAGE,
                        "--complete: '%s' is not one of bash, zsh, fish, "
                        "options",
                        shell);
    return status == GPT_OK ? GPT_OK
                            : gpt_fail(err, status, "out of memory for text");
}
