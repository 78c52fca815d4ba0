/* Schedules in checkpoints: written, read, and compared on resume. */
#ifndef GPT_CMD_TRAIN_LR_SCHEDULE_JSON_H
#define GPT_CMD_TRAIN_LR_SCHEDULE_JSON_H

#include "base/json.h"
#include "train/lr_schedule.h"

cJSON *gpt_lr_schedule_to_json(const struct gpt_lr_schedule *s);

/* From the field "schedule" of a checkpoint's state; `what` names it.
 * GPT_EDATA for a missing or impossible value. */
int gpt_lr_schedule_from_json(struct gpt_lr_schedule *s, const cJSON *state,
                              const char *what,
                              struct gpt_err *err) GPT_MUST_USE;

/* GPT_EUSAGE names the first option by which two schedules differ, with both
 * values; what has no effect in either is not compared. */
int gpt_lr_schedule_compare(const struct gpt_lr_schedule *here,
                            const struct gpt_lr_schedule *there,
                            const char *what, struct gpt_err *err) GPT_MUST_USE;

#endif
