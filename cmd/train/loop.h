/* A training run from options to its last checkpoint. */
#ifndef GPT_CMD_TRAIN_LOOP_H
#define GPT_CMD_TRAIN_LOOP_H

#include "cmd/train/options.h"

/* Everything gpt-train does after its options are parsed. Returns GPT_OK also
 * when a signal, --exit-interval or --exit-duration-in-mins ended the run, with
 * the checkpoint on disk. */
int gpt_train(const struct gpt_train_options *options,
              const struct gpt_args *args, struct gpt_err *err) GPT_MUST_USE;

#endif
