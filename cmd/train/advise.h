/* Which option would make a run fit that does not. */
#ifndef GPT_CMD_TRAIN_ADVISE_H
#define GPT_CMD_TRAIN_ADVISE_H

#include "cmd/train/plan.h"

/* The first of: recomputing what is cheap, recomputing layers, a smaller micro
 * batch, sharing the optimizer's state, these together, more tensor parallel
 * ranks, more pipeline stages, with which every rank needs at most `limit`
 * bytes of the device; as a sentence for gpt_hint(), with what a rank needs
 * then. args: as gpt_train_plan() had it. */
void gpt_advise(const struct gpt_train_plan *plan, const struct gpt_args *args,
                struct gpt_backend *be, double limit, char *text, size_t cap);

#endif
