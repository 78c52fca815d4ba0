/* Options that were given and have no effect beside the others: none is ignored
 * in silence. */
#ifndef GPT_CMD_TRAIN_EFFECTS_H
#define GPT_CMD_TRAIN_EFFECTS_H

#include "cmd/train/plan.h"

/* Refuses (GPT_EUSAGE) an option that asks for what another one rules out, and
 * appends the others that have no effect to b, each with the reason, for one
 * warning. After the plan is made. */
int gpt_train_effects(const struct gpt_train_plan *plan,
                      const struct gpt_args *args, struct gpt_buf *b,
                      struct gpt_err *err) GPT_MUST_USE;

/* False when the plan leaves the option, given or not, without effect. */
bool gpt_train_has_effect(const struct gpt_train_plan *plan,
                          const char *option);

#endif
