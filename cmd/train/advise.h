/* Finds options with which a run fits that needs too much memory. */
#ifndef GPT_CMD_TRAIN_ADVISE_H
#define GPT_CMD_TRAIN_ADVISE_H

#include "cmd/train/plan.h"

/* Tries in this order: recomputing what is cheap, recomputing layers, a smaller
 * micro batch, sharing the optimizer's state, these together, more tensor
 * parallel ranks, more pipeline stages. Writes a sentence for gpt_hint() about
 * the first with which every rank needs at most `limit` bytes of the device.
 * args: those that gpt_train_plan() had. */
void gpt_advise(const struct gpt_train_plan *plan, const struct gpt_args *args,
                struct gpt_backend *be, double limit, char *text, size_t cap);

#endif
