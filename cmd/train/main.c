/* gpt-train: pretrains a GPT on indexed data sets. The option table is in
 * cmd/train/options.c, the run starts at gpt_train() in cmd/train/loop.c.
 * Between them is the plan, cmd/train/plan.c: everything that follows from the
 * options. This file has only what gpt_main() shows and calls. */
#include "backend.h"
#include "base/memory.h"
#include "cmd/train/foreign.h"
#include "cmd/train/layouts.h"
#include "cmd/train/loop.h"
#include "cmd/train/options.h"
#include "cmd/train/settle.h"
#include "parallel/launch_env.h"
#include "tokenizer/tokenizer_options.h"

/* The family of the tokenizer is settled here, once, as checkpoints keep the
 * options. */
static int train(const void *options, const struct gpt_args *args,
                 struct gpt_err *err)
{
    struct gpt_train_options o = *(const struct gpt_train_options *)options;

    GPT_TRY(gpt_tokenizer_settle(&o.tokenizer,
                                 gpt_option_given(args, "tokenizer-type"),
                                 o.tokenizer.type, err));
    /* the one command that there is: no other word comes here */
    return args->n_positional > 0 ? gpt_train_layouts(&o, args, err)
                                  : gpt_train(&o, args, err);
}

static int settle(void *options, struct gpt_args *args,
                  struct gpt_arena *arena, struct gpt_buf *changes,
                  struct gpt_err *err)
{
    return gpt_train_settle(options, args, arena, changes, err);
}

int main(int argc, char **argv)
{
    static const char *const usage[] = {
        "--data-path PREFIX --vocab-file FILE --train-iters N --lr X "
        "[--save DIR] [OPTION]...",
        "--config PRESET --vocab-size N --dry-run [OPTION]...",
        "advise --config PRESET --gpus N [--memory SIZE] [OPTION]...",
        NULL,
    };
    static const char *const commands[] = {"advise", NULL};
    static const char *const examples[] = {
        "gpt-train --config gpt2-124m --data-path my-gpt2_text_document "
        "--vocab-file vocab.json --merge-file merges.txt "
        "--global-batch-size 64 --train-iters 10000 --lr 6e-4 "
        "--save ckpt --load ckpt --save-interval 500",
        "gpt-launch --standalone --nproc-per-node 4 gpt-train --config "
        "run.conf --tensor-model-parallel-size 2 "
        "--pipeline-model-parallel-size 2",
        "gpt-train --config gpt2-1.5b --vocab-size 50257 --dry-run",
        "gpt-train advise --config llama3-8b --gpus 64 --hardware a100",
        NULL,
    };
    const struct gpt_program program = {
        .name = "gpt-train",
        .purpose = "Pretrain a GPT on indexed data sets.",
        .usage = usage,
        .examples = examples,
        .options = gpt_train_option_table,
        .n_options = gpt_train_n_options,
        .foreign = gpt_train_foreign,
        .n_foreign = gpt_train_n_foreign,
        .hints = gpt_train_hints,
        .n_hints = gpt_train_n_hints,
        /* Ranks are started with one command line: what there is to say of it
         * is said once a node, as nodes may differ. Where ranks differ, they
         * fail, and that is printed. */
        .quiet = gpt_launch_env_local_rank() > 0,
        .instead = "--data-path names the data, --config a file of options or "
                   "a preset",
        .options_bytes = sizeof(struct gpt_train_options),
        .computes = true,
        .max_positional = 1,
        .positional = "advise",
        .commands = commands,
        .version = gpt_backend_version,
        .settle = settle,
        .run = train,
    };

    return gpt_main(&program, argc, argv);
}
