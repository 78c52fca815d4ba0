/* gpt-dataset: looks at data sets, checks them, and makes new ones of them.
 * Each command is a file of this folder (command.h says what one is); here they
 * are listed, and the one that the command line names is run. Start at
 * `commands` and run_program(). */
#include "base/io.h"
#include "base/memory.h"
#include "base/options.h"
#include "cmd/dataset/command.h"
#include "cmd/dataset/option_table.h"
#include "tokenizer/tokenizer_options.h"

#include <string.h>

/* In the order of --help: looking at sets first, then making new ones. */
static const struct gpt_dataset_command *const commands[] = {
    &gpt_dataset_info,   &gpt_dataset_stat,  &gpt_dataset_cat,
    &gpt_dataset_verify, &gpt_dataset_merge, &gpt_dataset_slice,
    &gpt_dataset_head,   &gpt_dataset_repair, &gpt_dataset_convert,
    &gpt_dataset_index,
};

static struct gpt_dataset_table table; /* filled once, by main() */

static int find_command(const struct gpt_dataset_command **command,
                        const char *name, struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(commands); i++) {
        *command = commands[i];
        if (strcmp(name, commands[i]->name) == 0)
            return GPT_OK;
    }
    return gpt_fail_command(name, table.names, "try 'gpt-dataset --help'", err);
}

/* No option is taken and then ignored. */
static int check_options(const struct gpt_dataset_command *command,
                         const struct gpt_args *args, struct gpt_err *err)
{
    for (size_t i = 0; i < table.n_own; i++) {
        const char *name = table.rows[i].name; /* NULL of a heading */

        if (name && gpt_option_given(args, name) &&
            !gpt_dataset_takes(command, name))
            return gpt_fail(err, GPT_EUSAGE, "%s takes no --%s", command->name,
                            name);
    }
    return GPT_OK;
}

/* A set may be named by its index, as patterns of a shell do. */
static int strip_suffixes(struct gpt_arena *arena, const char **names, int n,
                          struct gpt_err *err)
{
    for (int i = 0; i < n; i++) {
        size_t len = strlen(names[i]);

        if (len <= 4 || strcmp(names[i] + len - 4, ".idx") != 0)
            continue;
        names[i] = gpt_arena_printf(arena, "%.*s", (int)(len - 4), names[i]);
        if (!names[i])
            return gpt_no_memory(err, "names");
    }
    return GPT_OK;
}

/* Standard output is committed after a failure, too: what a command printed
 * before it failed is of use. The failure of the command is the one
 * reported. */
static int run_command(const struct gpt_dataset_command *command,
                       struct gpt_dataset_options o, const char **sets, int n,
                       struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    struct gpt_err late;

    int status;

    GPT_TRY(gpt_out_open(&o.out, "-", 0, 0, err));
    GPT_TRY_GOTO(status, strip_suffixes(&arena, sets, n, err), out);
    GPT_TRY_GOTO(status, gpt_dataset_protect(sets, n, err), out);
    status = command->run(&o, sets, n, err);
out:;
    int written = gpt_out_commit(o.out, &late);
    if (status == GPT_OK && written != GPT_OK) {
        *err = late;
        status = written;
    }
    gpt_arena_free(&arena);
    return status;
}

/* A number with '-' is a word, as values of other options begin so; habits of
 * head(1) and tail(1) would have it the name of a set. */
static int check_sets(const struct gpt_dataset_command *command,
                      const char *const *sets, int n, struct gpt_err *err)
{
    for (int i = 0; i < n; i++) {
        const char *digits = sets[i] + 1;

        if (sets[i][0] != '-' || !*digits ||
            digits[strspn(digits, "0123456789")] != '\0')
            continue;
        gpt_fail(err, GPT_EUSAGE, "'%s' names no data set", sets[i]);
        if (gpt_dataset_takes(command, "count"))
            return gpt_hint(err, "write -n %s for so many documents", digits);
        if (gpt_dataset_takes(command, "tail"))
            return gpt_hint(err, "write --documents :%s for the first, or "
                            "--tail %s for the last ones", digits, digits);
        return gpt_hint(err, "./%s is a data set that is called so", sets[i]);
    }
    return GPT_OK;
}

static int run_program(const void *options, const struct gpt_args *args,
                       struct gpt_err *err)
{
    const struct gpt_dataset_options *o = options;
    const struct gpt_dataset_command *command;
    int n = args->n_positional - 1;

    if (n < 0) {
        gpt_fail(err, GPT_EUSAGE, "the command is missing");
        return gpt_option_given(args, "input")
                   ? gpt_hint(err, "it is the first word: gpt-dataset merge "
                                   "--input DIR joins the sets of a directory")
                   : gpt_hint(err, "try 'gpt-dataset --help'");
    }
    GPT_TRY(find_command(&command, args->positional[0], err));
    GPT_TRY(check_options(command, args, err));
    GPT_TRY(check_sets(command, args->positional + 1, n, err));
    if (n < command->min_sets || n > command->max_sets)
        return gpt_fail(err, GPT_EUSAGE, "%s needs %s PREFIX", command->name,
                        command->max_sets == 1 ? "one" : "at least one");
    return run_command(command, *o, args->positional + 1, n, err);
}

int main(int argc, char **argv)
{
    gpt_dataset_fill_table(&table, commands, GPT_COUNT(commands));
    const struct gpt_program program = {
        .name = "gpt-dataset",
        .purpose = "Look at, check and rearrange data sets of tokens.",
        .usage = table.usage,
        .examples = table.examples,
        .options = table.rows,
        .n_options = table.n_rows,
        .options_bytes = sizeof(struct gpt_dataset_options),
        .max_positional = -1,
        .positional = "COMMAND PREFIX...",
        .commands = table.names,
        .words = GPT_OPT_SET,
        .version = gpt_tokenizer_version,
        .run = run_program,
    };

    return gpt_main(&program, argc, argv);
}
