/* What a run that resumes does otherwise than the run of its checkpoint. */
#ifndef GPT_CMD_TRAIN_CHANGES_H
#define GPT_CMD_TRAIN_CHANGES_H

#include "checkpoint/source.h"
#include "cmd/train/plan.h"

/* Logs, in a line, which options that change what is learnt from the samples
 * have other values in `now`, as --print-config shows them, than in the run of
 * the checkpoint: "adam-beta2 0.98 -> 0.9, clip-grad 1 -> none". The batch is
 * the plan's, and options that have no effect in the plan are left out. Options
 * of the learning rate and of the weight decay count where the plan's options
 * override the checkpoint's schedule: elsewhere the schedules were compared. */
int gpt_train_report_changes(const struct gpt_source *source, const char *now,
                             const struct gpt_train_plan *plan,
                             struct gpt_err *err) GPT_MUST_USE;

#endif
