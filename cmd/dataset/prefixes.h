/* The data sets of a directory. */
#ifndef GPT_CMD_DATASET_PREFIXES_H
#define GPT_CMD_DATASET_PREFIXES_H

#include "base/memory.h"

/* Appends "dir/NAME" of every NAME.idx in `dir` to the list, in the order of
 * the names' bytes; strings and list live in `arena`. GPT_EDATA when there is
 * none. */
int gpt_prefixes_in(const char *dir, struct gpt_arena *arena,
                    const char *const **prefixes, int64_t *n,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
