/* What a command line of gpt-preprocess asks for: which inputs, which outputs,
 * which tokenizer, as the options of gpt_preprocess(). */
#ifndef GPT_CMD_PREPROCESS_PLAN_H
#define GPT_CMD_PREPROCESS_PLAN_H

#include "base/memory.h"
#include "cmd/preprocess/command.h"
#include "cmd/preprocess/preprocess.h"
#include "data/provenance.h"

struct gpt_preprocess_plan {
    double start;                          /* of the program, for rates */
    struct gpt_preprocess_options options; /* points to all below */
    struct gpt_arena arena;                /* of names */
    int64_t shard, n_shards;
    struct gpt_tokenizer_id tokenizer_id;
    struct gpt_tokenizer_file files[GPT_TOKENIZER_FILES]; /* their paths */
    struct gpt_buf command_lines; /* as those of a configuration file */
    struct gpt_tokenizer *tokenizer;
    enum gpt_dtype dtype; /* the one asked for */
};

/* Fills the plan but for the tokenizer. GPT_EUSAGE names an option; GPT_EIO an
 * input that is not there. Close it in any case; the plan must not move. */
int gpt_preprocess_plan_open(struct gpt_preprocess_plan *plan,
                             const struct gpt_preprocess_command *command,
                             struct gpt_err *err) GPT_MUST_USE;
void gpt_preprocess_plan_close(struct gpt_preprocess_plan *plan);

/* Loads the tokenizer, and describes it and the command for the provenance. */
int gpt_preprocess_plan_tokenizer(struct gpt_preprocess_plan *plan,
                                  const struct gpt_preprocess_command *command,
                                  const struct gpt_args *args,
                                  struct gpt_err *err) GPT_MUST_USE;

#endif
