/* --per-split-data-args-path: Megatron-LM's file of data sets for each
 * purpose. */
#ifndef GPT_CMD_TRAIN_SPLIT_PATHS_H
#define GPT_CMD_TRAIN_SPLIT_PATHS_H

#include "base/memory.h"
#include "cmd/train/options.h"

/* Fills the lists of the three options that the file stands for; nothing
 * without it. GPT_EUSAGE when one of them is given, too; GPT_EDATA for another
 * file. Words live in `arena`. */
int gpt_train_read_split_paths(struct gpt_train_options *o,
                               struct gpt_arena *arena,
                               struct gpt_err *err) GPT_MUST_USE;

#endif
