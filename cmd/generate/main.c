/* gpt-generate: text from a checkpoint. Start at run_generate(): the model is
 * opened, and a front end does the work. Options are options.c, generating is
 * common/generate/, the model is model/decode.h, and the checkpoint is a source
 * of any format (checkpoint/source.h). */
#include "backend.h"
#include "cmd/generate/contradictions.h"
#include "cmd/generate/filter.h"
#include "cmd/generate/foreign.h"

/* Everything is freed whatever happened: a signal and a failure leave no thread
 * and no device memory. */
static int run_generate(const void *options, const struct gpt_args *args,
                        struct gpt_err *err)
{
    struct gpt_loaded model = {.o = options};
    int status;

    GPT_TRY(gpt_contradictions_check(options, args, err));
    GPT_TRY_GOTO(status, gpt_loaded_open(&model, err), out);
    status = gpt_filter_prompts(&model, err);
out:
    gpt_loaded_close(&model);
    return status;
}

static const char *const usage[] = {
    "--load DIR --prompt TEXT [--tokens N] [--temperature X] [--top-k N] "
    "[--top-p P] [--seed N]",
    "--load DIR --jsonl < prompts.jsonl > texts.jsonl",
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
        .options_bytes = sizeof(struct gpt_generate_options),
        .version = gpt_backend_version,
        .run = run_generate,
    };

    return gpt_main(&program, argc, argv);
}
