/* --use-checkpoint-args: the options that describe the model and its tokenizer,
 * taken from the checkpoint that is loaded. */
#ifndef GPT_CMD_TRAIN_CHECKPOINT_ARGS_H
#define GPT_CMD_TRAIN_CHECKPOINT_ARGS_H

#include "checkpoint/source.h"
#include "cmd/train/options.h"

/* Takes from *source what it says of the model, the length of its samples and
 * the tokenizer, and writes it into *o. An option of the command line that says
 * otherwise is GPT_EUSAGE, which names it and both values; one of a file or a
 * preset gives way. `args` is replaced by a copy in which no option that was
 * taken is given. b gets "--name value ..." for the log. The source and `arena`
 * outlive *o. */
int gpt_train_take_args(struct gpt_train_options *o, struct gpt_args *args,
                        const struct gpt_source *source,
                        struct gpt_arena *arena, struct gpt_buf *b,
                        struct gpt_err *err) GPT_MUST_USE;

#endif
