/* The time of a step in a layout that is not run: products, attention and
 * memory traffic of a layer on given hardware, sums and transfers over its
 * links, and the pipeline's schedule, which is played. For gpt-train advise. */
#ifndef GPT_CMD_TRAIN_LAYOUT_TIME_H
#define GPT_CMD_TRAIN_LAYOUT_TIME_H

#include "cmd/train/hardware.h"
#include "cmd/train/plan.h"

/* Seconds of a step, and of what parts. */
struct gpt_layout_time {
    double step;
    double computing; /* of the last stage, sums that are waited for included */
    double idle;      /* the pipeline's bubble and transfers */
    double reducing;  /* gradients that no backward hides */
    double updating;  /* the optimizer, and weights that no forward hides */
};

/* `parameters`: of the rank that has most of them. */
int gpt_layout_time(const struct gpt_train_plan *plan,
                    const struct gpt_hardware *h, int64_t parameters,
                    struct gpt_layout_time *t,
                    struct gpt_err *err) GPT_MUST_USE;

/* A bound that gpt_layout_time() is never below, and that plays nothing. */
double gpt_layout_floor(const struct gpt_train_plan *plan,
                        const struct gpt_hardware *h);

#endif
