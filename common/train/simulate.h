/* --simulate: the plan's pipeline schedule played with given times. */
#ifndef GPT_TRAIN_SIMULATE_H
#define GPT_TRAIN_SIMULATE_H

#include "base/memory.h"
#include "train/plan.h"

struct gpt_simulate_options {
    double forward, backward, transfer; /* seconds of one chunk */
    const char *svg;                    /* file for a picture, or NULL */
    bool force;                         /* it may exist */
};

/* "1:2:0.1": forward, backward and, if given, transfer. GPT_EUSAGE. */
int gpt_simulate_parse(struct gpt_simulate_options *o, const char *text,
                       struct gpt_err *err) GPT_MUST_USE;

/* Appends the timeline to *out as text, one line a stage, and what it says:
 * length of the step, bubble. GPT_EUSAGE when it is too long to be drawn. */
int gpt_simulate(const struct gpt_train_plan *plan,
                 const struct gpt_simulate_options *o, struct gpt_buf *out,
                 struct gpt_err *err) GPT_MUST_USE;

#endif
