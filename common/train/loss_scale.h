/* Loss scaling for activations in fp16: the loss is multiplied by a scale, so
 * that small gradients do not vanish, and gradients are divided by it before
 * they are used. A step whose gradients are not finite is left out. The rules
 * are those of Megatron-LM's core/optimizer/grad_scaler.py. */
#ifndef GPT_TRAIN_LOSS_SCALE_H
#define GPT_TRAIN_LOSS_SCALE_H

#include "base/status.h"

struct gpt_loss_scale_options {
    double initial;     /* 2^32 */
    double min;         /* never below */
    int64_t window;     /* finite steps until the scale is doubled */
    int64_t hysteresis; /* bad steps until it is halved, each time again; filled
                         * up only when the scale is doubled */
    bool constant;      /* initial is kept for ever */
};

/* The state of a run's scale; kept in checkpoints. */
struct gpt_loss_scale {
    struct gpt_loss_scale_options o;
    float scale;
    int64_t good; /* finite steps in a row since the last change */
    int64_t left; /* of the hysteresis; may go below 0 */
};

/* What messages call the options: names that the caller's user knows. */
struct gpt_loss_scale_names {
    const char *constant, *initial; /* of `initial`, when constant and else */
    const char *min, *window, *hysteresis;
};

/* GPT_EUSAGE names the option, its value and the limit. names may be NULL. */
int gpt_loss_scale_check(const struct gpt_loss_scale_options *o,
                         const struct gpt_loss_scale_names *names,
                         struct gpt_err *err) GPT_MUST_USE;

/* As at the start of a run. */
struct gpt_loss_scale gpt_loss_scale_new(
    const struct gpt_loss_scale_options *o);

/* After a step; finite: all of its gradients were. True when they were not and
 * the scale may have been too large: it falls, or will after further such
 * steps. */
bool gpt_loss_scale_update(struct gpt_loss_scale *s, bool finite);

#endif
