/* Whether a run can begin with a checkpoint, before anything large is read. */
#ifndef GPT_CMD_TRAIN_LOAD_CHECKS_H
#define GPT_CMD_TRAIN_LOAD_CHECKS_H

#include "checkpoint/source.h"
#include "cmd/train/plan.h"
#include "train/replica.h"

/* False where the optimizer and the position of a run are read, too. */
bool gpt_train_needs_weights_alone(const struct gpt_train_plan *plan);
/* Compares model and vocabulary with those of the options, and needs a run
 * where one is to be resumed: GPT_EUSAGE names what differs. */
int gpt_train_check_source(const struct gpt_replica *replica,
                           const struct gpt_source *source,
                           const struct gpt_train_plan *plan,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
