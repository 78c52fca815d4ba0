/* What a later source of options says replaces what an earlier one says, also
 * where the two are different options: a preset never contradicts what was
 * typed. */
#ifndef GPT_CMD_TRAIN_SETTLE_H
#define GPT_CMD_TRAIN_SETTLE_H

#include "base/memory.h"
#include "cmd/train/options.h"

/* Changes *o where an option of a file or a preset contradicts an option of a
 * later source: the older one follows the newer, or gets its default, and
 * counts as not given from then on. `args` is replaced by a copy that says so.
 * b gets the changes, for the log. The copy lives in `arena`. Where the
 * launcher's environment is wrong there is one rank: opening the world says
 * why. GPT_EFAIL when out of memory. */
int gpt_train_settle(struct gpt_train_options *o, struct gpt_args *args,
                     struct gpt_arena *arena, struct gpt_buf *b,
                     struct gpt_err *err) GPT_MUST_USE;

/* The row of the option table with this name; never a name that is not in the
 * table. */
size_t gpt_train_row(const char *name);
/* False when the table has no option of that name. */
bool gpt_train_find_row(const char *name, size_t *row);

/* Gives row `row` its default again. */
void gpt_train_unset(struct gpt_train_options *o, size_t row);

#endif
