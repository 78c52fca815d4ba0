/* Runs gpt_preprocess() and prints how it goes, and what came of it. */
#ifndef GPT_CMD_PREPROCESS_REPORT_H
#define GPT_CMD_PREPROCESS_REPORT_H

#include "cmd/preprocess/command.h"
#include "cmd/preprocess/plan.h"

/* Uses up what plan->options has begun. Messages go to base/log.h; returns the
 * status of gpt_preprocess(). */
int gpt_preprocess_and_report(struct gpt_preprocess_plan *plan,
                              const struct gpt_preprocess_command *command,
                              struct gpt_err *err) GPT_MUST_USE;

#endif
