/* The order of all sources of options: defaults, configuration files,
 * environment, command line; the later wins. Start at gpt_opt_read_all(). */
#include "base/log.h"
#include "base/options_internal.h"

#include <stdlib.h>
#include <string.h>

/* What reads the messages of a run reads those about its options, too: from
 * here on they have the form that is known so far. */
static void follow_log_format(struct gpt_parse *p)
{
    const struct gpt_opt *o = gpt_opt_find(p->program, "log-format", 10, NULL);

    if (!o)
        return;
    const char *const *set = gpt_opt_field(p->options, o);
    const char *format = p->log_format ? p->log_format : *set;
    gpt_log_as_json(format && strcmp(format, "json") == 0);
}

/* GPT_THREADS is for launchers, which set it for programs whose command line
 * they do not write. A command line that says otherwise wins. */
static int read_environment(struct gpt_parse *p)
{
    const char *threads = getenv("GPT_THREADS");
    const struct gpt_opt *o = gpt_opt_find(p->program, "threads", 7, NULL);

    if (!threads || !*threads || !o)
        return GPT_OK;
    p->from = GPT_FROM_ENVIRONMENT;
    p->current++;
    return gpt_opt_set(p, o, threads, "GPT_THREADS");
}

/* Only the origin tells whether a value was given: a value equal to the default
 * was, too. */
static int check_required(struct gpt_parse *p)
{
    for (size_t i = 0; i < p->program->n_options; i++) {
        const struct gpt_opt *o = &p->program->options[i];

        if (!(o->flags & GPT_OPT_REQUIRED) || p->origin[i] != GPT_FROM_DEFAULT)
            continue;
        gpt_fail(p->err, GPT_EUSAGE, "option --%s is required", o->name);
        gpt_hint(p->err, "try '%s --help'", p->program->name);
        return GPT_EUSAGE;
    }
    return GPT_OK;
}

/* --print-config shows an incomplete configuration, too. */
static bool only_prints(struct gpt_parse *p)
{
    const struct gpt_opt *o = gpt_opt_find(p->program, "print-config", 12,
                                           NULL);

    return o && *(bool *)gpt_opt_field(p->options, o);
}

/* Each file is a source of its own. That of the environment is for all programs
 * of a session, so that the command line's files come after it. Standard input
 * is not read for the form of a message alone: it may never end. */
static int read_configs(struct gpt_parse *p, bool mistaken)
{
    const char *config = getenv("GPT_CONFIG");

    if (config && *config && !(mistaken && strcmp(config, "-") == 0)) {
        int status = gpt_opt_read_config(p, config, "GPT_CONFIG");

        if (status == GPT_EIO) /* a name that no command line shows */
            gpt_hint(p->err, "the environment variable GPT_CONFIG names it");
        GPT_TRY(status);
    }
    for (size_t i = 0; i < p->n_configs; i++)
        if (!(mistaken && strcmp(p->configs[i], "-") == 0))
            GPT_TRY(gpt_opt_read_config(p, p->configs[i], "--config"));
    return GPT_OK;
}

int gpt_opt_read_all(struct gpt_parse *p, int argc, char *const *argv)
{
    struct gpt_err *err = p->err;

    /* Every source overwrites what earlier ones set, so the order of these
     * calls is the precedence that gpt(7) documents. */
    GPT_TRY(gpt_opt_set_defaults(p));
    const int mistake = gpt_opt_look(p, argc, argv);
    if (p->answer != GPT_ANSWER_NONE)
        return GPT_OK;
    follow_log_format(p);
    /* After a mistake, files are read for the form of its message alone. */
    if (mistake != GPT_OK)
        p->err = NULL;
    const int status = read_configs(p, mistake != GPT_OK);
    p->err = err;
    follow_log_format(p);
    GPT_TRY(mistake);
    GPT_TRY(status);
    GPT_TRY(read_environment(p));
    GPT_TRY(gpt_opt_read_command(p, argc, argv));
    if (p->answer == GPT_ANSWER_NONE)
        GPT_TRY(gpt_opt_judge_kept(p));
    return only_prints(p) ? GPT_OK : check_required(p);
}
