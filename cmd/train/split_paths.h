/* --data-args-path and --per-split-data-args-path: Megatron-LM's files of data
 * sets, for all purposes and for each. */
#ifndef GPT_CMD_TRAIN_SPLIT_PATHS_H
#define GPT_CMD_TRAIN_SPLIT_PATHS_H

#include "base/memory.h"
#include "cmd/train/options.h"

/* Fills the lists of the options that the files stand for; nothing without
 * them. GPT_EUSAGE when one of these is given, too; GPT_EDATA for another file.
 * Words live in `arena`. */
int gpt_train_read_data_files(struct gpt_train_options *o,
                              struct gpt_arena *arena,
                              struct gpt_err *err) GPT_MUST_USE;
/* The one of the two files that is given, or NULL. */
static inline const char *gpt_train_data_file(const struct gpt_train_options *o)
{
    return o->data_args_path ? o->data_args_path : o->per_split_paths;
}

#endif
