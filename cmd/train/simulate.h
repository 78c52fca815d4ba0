/* --simulate: the plan's pipeline schedule played with given times. */
#ifndef GPT_CMD_TRAIN_SIMULATE_H
#define GPT_CMD_TRAIN_SIMULATE_H

#include "base/memory.h"
#include "cmd/train/plan.h"

struct gpt_simulate_options {
    /* Seconds: of one chunk; of one sum of a microbatch's activations over
     * tensor parallel ranks; of gathering a chunk's weights. */
    double forward, backward, transfer, sum, weights;
    const char *svg;                    /* file for a picture, or NULL */
    bool force;                         /* it may exist */
};

/* "1:2:0.1:0.01:0.5": all of them in this order, forward and backward at least.
 * GPT_EUSAGE. */
int gpt_simulate_parse(struct gpt_simulate_options *o, const char *text,
                       struct gpt_err *err) GPT_MUST_USE;

/* Appends the timeline to *out as text, one line a stage, and what it says:
 * length of the step, bubble, and of sums and weights what is waited for and
 * what is hidden. GPT_EUSAGE when it is too long to be drawn, or there is no
 * rank to sum or gather with. */
int gpt_simulate(const struct gpt_train_plan *plan,
                 const struct gpt_simulate_options *o, struct gpt_buf *out,
                 struct gpt_err *err) GPT_MUST_USE;

#endif
