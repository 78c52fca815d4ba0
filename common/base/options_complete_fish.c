/* The completion script of fish: a command `complete` for each option. Start at
 * gpt_opt_complete_fish(). */
#include "base/options_internal.h"

/* What would end a text in quotes, or mean something in there: fish has escapes
 * for both, but a help text can do without these characters. */
static const char left_out[] = "'\\";

/* -x says that a value is no file name, -r that it may be one; -a has more that
 * is offered, where "(...)" is run. In a loop over a pattern that nothing
 * matches fish does nothing. */
static int add_action(struct gpt_buf *b, const struct gpt_program *program,
                      enum gpt_offer offer, const char *const *choices)
{
    static const char *const actions[] = {
        [GPT_OFFER_NOTHING] = " -x",
        [GPT_OFFER_CHOICES] = " -x -a '",
        [GPT_OFFER_CONFIG] = " -r -a '(PROG --complete=presets 2>/dev/null)'",
        [GPT_OFFER_SETS] =
            " -x -a '(for f in (commandline -ct)*.idx; string replace -r "
            "\"[.]idx\\$\" \"\" -- $f; end; "
            "__fish_complete_directories (commandline -ct))'",
        [GPT_OFFER_DIRS] =
            " -x -a '(__fish_complete_directories (commandline -ct))'",
        [GPT_OFFER_FILES] = " -r -F",
    };

    GPT_TRY(gpt_opt_add_script(b, program, actions[offer]));
    if (offer != GPT_OFFER_CHOICES)
        return GPT_OK;
    GPT_TRY(gpt_opt_add_words(b, choices));
    return gpt_buf_printf(b, "'");
}

static int add_row(struct gpt_buf *b, const struct gpt_program *program,
                   const struct gpt_opt *o)
{
    char negation[100];

    GPT_TRY(gpt_buf_printf(b, "complete -c %s -l %s", program->name, o->name));
    if (o->letter)
        GPT_TRY(gpt_buf_printf(b, " -s %c", o->letter));
    if (gpt_opt_takes_value(o))
        GPT_TRY(add_action(b, program, gpt_opt_offer(o), o->choices));
    GPT_TRY(gpt_buf_printf(b, " -d '"));
    GPT_TRY(gpt_opt_add_text(b, o->help, left_out));
    GPT_TRY(gpt_buf_printf(b, "'\n"));
    return *gpt_opt_negation(o, negation, sizeof(negation))
               ? gpt_buf_printf(b, "complete -c %s -l %s -d 'not --%s'\n",
                                program->name, negation, o->name)
               : GPT_OK;
}

/* Words that are no options: -f keeps fish from offering files everywhere. */
static int add_words(const struct gpt_program *program, struct gpt_buf *b)
{
    if (program->stop_at_positional)
        return gpt_opt_add_script(b, program,
                                  "complete -c PROG -x -a "
                                  "'(__fish_complete_subcommand)'\n");
    GPT_TRY(gpt_opt_add_script(b, program, "complete -c PROG -f\n"));
    if (program->commands) {
        GPT_TRY(gpt_opt_add_script(b, program,
                                   "complete -c PROG -n __fish_use_subcommand "
                                   "-a '"));
        GPT_TRY(gpt_opt_add_words(b, program->commands));
        GPT_TRY(gpt_buf_printf(b, "'\n"));
    }
    if (gpt_opt_offer_words(program) == GPT_OFFER_NOTHING)
        return GPT_OK;
    GPT_TRY(gpt_opt_add_script(b, program, "complete -c PROG"));
    if (program->commands)
        GPT_TRY(gpt_buf_printf(b, " -n 'not __fish_use_subcommand'"));
    GPT_TRY(add_action(b, program, gpt_opt_offer_words(program), NULL));
    return gpt_buf_printf(b, "\n");
}

int gpt_opt_complete_fish(const struct gpt_program *program, struct gpt_buf *b)
{
    GPT_TRY(gpt_opt_each_row(program, b, add_row));
    return add_words(program, b);
}
