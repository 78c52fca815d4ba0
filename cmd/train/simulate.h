/* --simulate: plays the plan's pipeline schedule with given times. */
#ifndef GPT_CMD_TRAIN_SIMULATE_H
#define GPT_CMD_TRAIN_SIMULATE_H

#include "base/memory.h"
#include "cmd/train/plan.h"

struct gpt_simulate_options {
    /* Seconds: a chunk's forward and backward; a transfer between stages; one
     * sum of a microbatch's activations over tensor parallel ranks; gathering a
     * chunk's weights. */
    double forward, backward, transfer, sum, weights;
    double end_forward, end_backward; /* of the last stage: logits and loss */
    const char *svg; /* file for a picture, or NULL */
    bool force;      /* that file may be written over */
};

/* Parses "1:2:0.1:0.01:0.5": the times in this order, at least forward and
 * backward. GPT_EUSAGE when the text is anything else. */
int gpt_simulate_parse(struct gpt_simulate_options *o, const char *text,
                       struct gpt_err *err) GPT_MUST_USE;

/* Appends the timeline to *text, one line a stage, then its figures: the
 * length of the step, the bubble, and how long sums and weights are waited for
 * or hidden. GPT_EUSAGE when it is too long to be drawn, or when there is no
 * rank to sum or gather with. */
int gpt_simulate(const struct gpt_train_plan *plan,
                 const struct gpt_simulate_options *o, struct gpt_buf *text,
                 struct gpt_err *err) GPT_MUST_USE;

/* The length of the step, as gpt_simulate() prints it, without its timeline. Of
 * very many microbatches the first are played, and the rest takes as long as
 * they do: every further one adds the same time. */
int gpt_simulate_step(const struct gpt_train_plan *plan,
                      const struct gpt_simulate_options *o, double *seconds,
                      struct gpt_err *err) GPT_MUST_USE;

/* Seconds that the last stage computes: no step is shorter. */
double gpt_simulate_floor(const struct gpt_train_plan *plan,
                          const struct gpt_simulate_options *o);

#endif
