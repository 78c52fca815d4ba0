/* gpt-generate: text from a checkpoint. Start at run_generate(): the model is
 * opened, and a front end does the work. Options are options.c, generating is
 * common/generate/, the model is model/decode.h, and the checkpoint is a source
 * of any format (checkpoint/source.h). */
#include "backend.h"
#include "cmd/generate/contradictions.h"
#include "cmd/generate/filter.h"
#include "cmd/generate/foreign.h"
#include "cmd/generate/interactive.h"
#include "cmd/generate/perplexity.h"
#include "cmd/generate/score_lines.h"
#include "cmd/generate/serve.h"
#include "parallel/launch_env.h"

/* A front end is an option that asks for it, and what it does; without any the
 * program is a filter. Two kinds of work in one command are a mistake: one of
 * them would be left undone. */
struct front_end {
    const char *option;
    bool wanted;
    int (*run)(struct gpt_loaded *m, struct gpt_err *err);
};

static int find_front_end(const struct gpt_generate_options *o,
                          struct front_end *found, struct gpt_err *err)
{
    const struct front_end front_ends[] = {
        {"interactive", o->interactive, gpt_interact},
        {"serve", o->serve != NULL, gpt_serve},
        {"score", o->score, gpt_score_lines},
        {"perplexity", o->perplexity != NULL, gpt_measure_perplexity},
    };

    *found = (struct front_end){"prompt", false, gpt_filter_prompts};
    for (size_t i = 0; i < GPT_COUNT(front_ends); i++) {
        if (!front_ends[i].wanted)
            continue;
        if (found->wanted)
            return gpt_fail(err, GPT_EUSAGE, "--%s and --%s: choose one",
                            found->option, front_ends[i].option);
        *found = front_ends[i];
    }
    return GPT_OK;
}

/* Everything is freed whatever happened: a signal and a failure leave no thread
 * and no device memory. */
static int run_generate(const void *options, const struct gpt_args *args,
                        struct gpt_err *err)
{
    struct gpt_loaded model = {.o = options};
    struct front_end front_end;
    int status;

    /* Before the checkpoint is opened: a mistake in the command costs
     * nothing. */
    GPT_TRY(gpt_contradictions_check(options, args, err));
    GPT_TRY(find_front_end(options, &front_end, err));
    GPT_TRY_GOTO(status, gpt_loaded_open(&model, err), out);
    if (gpt_job_first(&model.job))
        GPT_TRY_GOTO(status, gpt_contradictions_report(options, args, err),
                     out);
    status = gpt_job_first(&model.job) ? front_end.run(&model, err)
                                           : gpt_loaded_follow(&model, err);
out:
    return gpt_loaded_close(&model, status, err);
}

static const char *const usage[] = {
    "--load DIR --prompt TEXT [--tokens N] [--temperature X] [--top-k N] "
    "[--top-p P] [--seed N]",
    "--load DIR --jsonl < prompts.jsonl > texts.jsonl",
    "--load DIR --interactive",
    "--load DIR --serve HOST:PORT",
    "--load DIR --score < pairs.jsonl > scores.jsonl",
    "--load DIR --perplexity CONVENTION < text",
    NULL,
};
static const char *const examples[] = {
    "gpt-generate --load ckpt --prompt 'Once upon a time' --top-k 40",
    "gpt-generate --load ckpt --prompt '' --num-samples 3 --tokens 200",
    "echo 'Dear Sir,' | gpt-generate --load ckpt --greedy --echo",
    NULL,
};

int main(int argc, char **argv)
{
    const struct gpt_program program = {
        .name = "gpt-generate",
        .purpose = "Continue texts with a trained model.",
        .usage = usage,
        .examples = examples,
        .options = gpt_generate_options,
        .n_options = gpt_generate_n_options,
        .foreign = gpt_generate_foreign,
        .n_foreign = gpt_generate_n_foreign,
        .hints = gpt_generate_hints,
        .n_hints = gpt_generate_n_hints,
        .quiet = gpt_launch_env_local_rank() > 0,
        .instead = "--load names the checkpoint, --prompt the text",
        .options_bytes = sizeof(struct gpt_generate_options),
        .computes = true,
        .version = gpt_backend_version,
        .run = run_generate,
    };

    return gpt_main(&program, argc, argv);
}
