/* The completion script of zsh: a call of _arguments, with a line an option,
 * after the functions for what _arguments has no word for. Start at
 * gpt_opt_complete_zsh(). */
#include "base/options_internal.h"

/* In a pattern of files, (N:r) is nothing where none is, and their names less
 * the last suffix. */
static const char functions[] =
    "#compdef PROG\n"
    "FN_sets() {\n"
    "    local expl\n"
    "    _wanted sets expl 'data set' compadd -f -- ${~PREFIX}*.idx(N:r)\n"
    "    _files -/\n"
    "}\n"
    "FN_config() {\n"
    "    local expl\n"
    "    _wanted presets expl preset compadd -- \\\n"
    "        ${(f)\"$(PROG --complete=presets 2>/dev/null)\"}\n"
    "    _files\n"
    "}\n"
    /* The pattern says that a typed '_' is '-' as well. */
    "_arguments -s -M 'm:{_}={-}'";

/* What would end a text in quotes, or mean something in there. */
static const char left_out[] = "'[]:`\\";

/* Choices are a list in parentheses, which _arguments knows; all else is a
 * function to be called. */
static int add_action(struct gpt_buf *b, const struct gpt_program *program,
                      enum gpt_offer offer, const char *const *choices)
{
    static const char *const actions[] = {
        [GPT_OFFER_NOTHING] = "",
        [GPT_OFFER_CHOICES] = "",
        [GPT_OFFER_CONFIG] = "FN_config",
        [GPT_OFFER_SETS] = "FN_sets",
        [GPT_OFFER_DIRS] = "_files -/",
        [GPT_OFFER_FILES] = "_files",
    };

    if (offer != GPT_OFFER_CHOICES)
        return gpt_opt_add_script(b, program, actions[offer]);
    GPT_TRY(gpt_buf_printf(b, "("));
    GPT_TRY(gpt_opt_add_words(b, choices));
    return gpt_buf_printf(b, ")");
}

/* The group in parentheses keeps the two spellings of one option from being
 * offered after each other. A '=' after the name says that the value may follow
 * one. A list takes all words up to an option. */
static int add_row(struct gpt_buf *b, const struct gpt_program *program,
                   const struct gpt_opt *o)
{
    const char *equals = gpt_opt_takes_value(o) ? "=" : "";
    char buf[128];

    if (o->letter)
        GPT_TRY(gpt_buf_printf(b, " \\\n    '(-%c --%s)'{-%c,--%s%s}'[",
                               o->letter, o->name, o->letter, o->name, equals));
    else
        GPT_TRY(gpt_buf_printf(b, " \\\n    '--%s%s[", o->name, equals));
    GPT_TRY(gpt_opt_add_text(b, o->help, left_out));
    GPT_TRY(gpt_buf_printf(b, "]"));
    if (gpt_opt_takes_value(o)) {
        GPT_TRY(gpt_buf_printf(b, "%s:",
                               o->kind == GPT_OPT_LIST ? ":*-*" : ""));
        GPT_TRY(gpt_opt_add_text(b, gpt_opt_arg(o, buf, sizeof(buf)),
                                 left_out));
        GPT_TRY(gpt_buf_printf(b, ":"));
        GPT_TRY(add_action(b, program, gpt_opt_offer(o), o->choices));
    }
    GPT_TRY(gpt_buf_printf(b, "'"));
    return *gpt_opt_negation(o, buf, sizeof(buf))
               ? gpt_buf_printf(b, " \\\n    '--%s[not --%s]'", buf, o->name)
               : GPT_OK;
}

/* Words that are no options. "(-)" ends the options at the program that is
 * started: what follows is that program's. */
static int add_words(const struct gpt_program *program, struct gpt_buf *b)
{
    if (program->stop_at_positional)
        return gpt_buf_printf(b, " \\\n    '(-):program:_command_names -e'"
                                 " \\\n    '*::argument:_normal'");
    if (program->commands) {
        GPT_TRY(gpt_buf_printf(b, " \\\n    '1:command:("));
        GPT_TRY(gpt_opt_add_words(b, program->commands));
        GPT_TRY(gpt_buf_printf(b, ")'"));
    }
    if (gpt_opt_offer_words(program) == GPT_OFFER_NOTHING)
        return GPT_OK;
    GPT_TRY(gpt_buf_printf(b, " \\\n    '*:word:"));
    GPT_TRY(add_action(b, program, gpt_opt_offer_words(program), NULL));
    return gpt_buf_printf(b, "'");
}

int gpt_opt_complete_zsh(const struct gpt_program *program, struct gpt_buf *b)
{
    GPT_TRY(gpt_opt_add_script(b, program, functions));
    GPT_TRY(gpt_opt_each_row(program, b, add_row));
    GPT_TRY(add_words(program, b));
    return gpt_buf_printf(b, "\n");
}
