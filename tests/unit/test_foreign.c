/* Tables of foreign option names (base/options.h): each row is either
 * translated into options that the program has, skipped, or refused with what
 * to do, and none hides an option of the program's own. */
#include "base/memory.h"
#include "base/options.h"
#include "cmd/train/foreign.h"
#include "cmd/train/options.h"
#include "tests/lib/tap.h"

#include <stdlib.h>

/* One of these is a value for every option that a name is translated into. */
static const char *const values[] = {"1", "0.5", "linear", "uniform", "true",
                                     "single", "True", "fp32",
                                     "core_attn", "SIGTERM", "0", "0.0",
                                     "rope", "vanilla", "aux_loss",
                                     NULL};

static int parse(const struct gpt_program *p, char **argv, int argc,
                 struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    struct gpt_args args;
    void *options = calloc(1, p->options_bytes);

    *err = (struct gpt_err){0};
    int status = options ? gpt_options_parse(p, argc, argv, options, &args,
                                             &arena, err)
                         : GPT_EFAIL;
    gpt_arena_free(&arena);
    free(options);
    return status;
}

/* The status of `--name`, or of `--name VALUE` for the value that suits it. */
static int parse_name(const struct gpt_program *p, const char *name, bool flag,
                      struct gpt_err *err)
{
    char word[100], value[20], program[] = "gpt-test";
    char *argv[] = {program, word, value, NULL};
    int status = GPT_EFAIL;

    snprintf(word, sizeof(word), "--%s", name);
    for (int i = 0; values[i]; i++) {
        snprintf(value, sizeof(value), "%s", values[i]);
        status = parse(p, argv, flag ? 2 : 3, err);
        if (flag || status == GPT_OK)
            break;
    }
    return status;
}

static void test_row(const struct gpt_program *p,
                     const struct gpt_foreign_option *f)
{
    struct gpt_program alone = *p;
    struct gpt_err err;
    int status = parse_name(p, f->name, f->flag, &err);

    if (f->means || f->skip)
        ok(status != GPT_EUSAGE, "--%s is taken: %s", f->name, err.text);
    else
        ok(status == GPT_EUSAGE && strcmp(err.hint, f->answer) == 0,
           "--%s is answered: %s", f->name, err.hint);
    ok(!(f->means && f->answer) && (f->means || f->answer) && f->source,
       "--%s has one outcome", f->name);
    alone.foreign = NULL;
    alone.n_foreign = alone.n_hints = 0;
    ok(parse_name(&alone, f->name, f->flag, &err) == GPT_EUSAGE &&
           strstr(err.text, "unknown option"),
       "--%s is no option of the program's own", f->name);
    size_t rows = 0;
    for (size_t i = 0; i < p->n_foreign; i++)
        rows += strcmp(p->foreign[i].name, f->name) == 0;
    for (size_t i = 0; i < p->n_hints; i++)
        rows += strcmp(p->hints[i].name, f->name) == 0;
    if (rows != 1)
        ok(false, "--%s has one row", f->name);
}

int main(void)
{
    const struct gpt_program train = {
        .name = "gpt-train",
        .options = gpt_train_option_table,
        .n_options = gpt_train_n_options,
        .options_bytes = sizeof(struct gpt_train_options),
        .foreign = gpt_train_foreign,
        .n_foreign = gpt_train_n_foreign,
        .hints = gpt_train_hints,
        .n_hints = gpt_train_n_hints,
    };
    struct gpt_err err;

    for (size_t i = 0; i < train.n_foreign; i++)
        test_row(&train, &train.foreign[i]);
    for (size_t i = 0; i < train.n_hints; i++) {
        ok(!train.hints[i].means && !train.hints[i].skip,
           "--%s is answered alone", train.hints[i].name);
        test_row(&train, &train.hints[i]);
    }
    for (size_t i = 0; i < train.n_foreign; i++)
        if (train.foreign[i].only) {
            char word[100], program[] = "gpt-test", other[] = "2";
            char *argv[] = {program, word, other, NULL};

            snprintf(word, sizeof(word), "--%s", train.foreign[i].name);
            ok(parse(&train, argv, 3, &err) == GPT_EUSAGE &&
                   strstr(err.hint, train.foreign[i].answer),
               "%s 2 is refused", word);
        }
    char test[] = "gpt-test", offset[] = "--glu-linear-offset", zero[] = "0";
    char *argv[] = {test, offset, zero, NULL};
    ok(parse(&train, argv, 3, &err) == GPT_OK,
       "a number may be written in another way");
    ok(parse_name(&train, "MoE_Input_Jitter_Eps", false, &err) == GPT_EUSAGE &&
           strstr(err.hint, "--num-experts"),
       "a name of a family has its answer: %s", err.hint);
    ok(parse_name(&train, "moe", false, &err) == GPT_EUSAGE &&
           !strstr(err.hint, "--num-experts"),
       "what is shorter than the family is not of it: %s", err.hint);
    ok(parse_name(&train, "DDP_IMPL", false, &err) == GPT_OK,
       "'_' is '-', and case does not matter");
    return tap_done();
}
