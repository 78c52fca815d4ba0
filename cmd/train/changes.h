/* What a run that resumes does otherwise than the run of its checkpoint. */
#ifndef GPT_CMD_TRAIN_CHANGES_H
#define GPT_CMD_TRAIN_CHANGES_H

#include "base/memory.h"

/* Appends options that change what is learnt from the samples and have other
 * values in `now` than in `then`, both as --print-config shows them: "adam-beta2
 * 0.98 -> 0.9, clip-grad 1 -> none". Nothing when none has, or when `then` is
 * NULL. Options of the learning rate and of the weight decay count when
 * `schedule`. */
int gpt_train_changes(struct gpt_buf *changes, const char *then,
                      const char *now, bool schedule) GPT_MUST_USE;

#endif
