/* What changes while training goes on: learning rate and weight decay, as pure
 * functions of the samples consumed so far. The rules are those of
 * Megatron-LM's optimizer_param_scheduler.py, and two of DeepSpeed's
 * lr_schedules.py. Everything counts samples; iterations become samples by the
 * global batch size. */
#ifndef GPT_TRAIN_LR_SCHEDULE_H
#define GPT_TRAIN_LR_SCHEDULE_H

#include "base/status.h"

enum gpt_lr_style {
    GPT_LR_CONSTANT,
    GPT_LR_LINEAR,
    GPT_LR_COSINE,
    GPT_LR_INVERSE_SQUARE_ROOT, /* "inverse-square-root" */
    GPT_LR_WSD, /* "WSD": warm up, stay, decay in the last wsd_decay_samples */
    /* DeepSpeed's: from init_lr to max_lr, with the logarithm of the step or
     * linearly, then stay, or fall linearly to init_lr. A step has the rate
     * that follows from the number of the step before it. */
    GPT_LR_WARMUP,       /* "WarmupLR" */
    GPT_LR_WARMUP_DECAY, /* "WarmupDecayLR" */
};

enum gpt_lr_warmup { GPT_LR_WARMUP_LOG, GPT_LR_WARMUP_LINEAR };

enum gpt_wsd_style {
    GPT_WSD_EXPONENTIAL, /* 2 * 0.5^q - 1 */
    GPT_WSD_LINEAR,
    GPT_WSD_COSINE,
    GPT_WSD_MINUS_SQRT,  /* "minus_sqrt": 1 - sqrt(q) */
};

enum gpt_wd_style { GPT_WD_CONSTANT, GPT_WD_LINEAR, GPT_WD_COSINE };

struct gpt_lr_schedule {
    enum gpt_lr_style style;
    double max_lr, min_lr;
    /* The same of word embedding and output layer, where these are decoupled;
     * decoupled_lr 0: they are not. */
    double decoupled_lr, decoupled_min_lr;
    double init_lr;         /* where the warm-up starts */
    double warmup_samples;  /* 0 = none; a fraction of a decay is no count */
    int64_t decay_samples;  /* when min_lr is reached, warm-up included */
    int64_t wsd_decay_samples;
    enum gpt_wsd_style wsd_style;
    enum gpt_lr_warmup warmup; /* of DeepSpeed's two */
    int64_t step_samples;      /* of a step: they count steps */
    double start_wd, end_wd;
    int64_t wd_incr_samples; /* when end_wd is reached */
    enum gpt_wd_style wd_style;
};

/* Names of styles in the order of their enums, then NULL. */
extern const char *const gpt_lr_styles[];
extern const char *const gpt_lr_warmups[];
extern const char *const gpt_wsd_styles[];
extern const char *const gpt_wd_styles[];

/* True for DeepSpeed's two. */
bool gpt_lr_counts_steps(enum gpt_lr_style style);

/* Styles by the names of Megatron's options; false when unknown. */
bool gpt_lr_style_parse(const char *name, enum gpt_lr_style *style);
bool gpt_wsd_style_parse(const char *name, enum gpt_wsd_style *style);
bool gpt_lr_warmup_parse(const char *name, enum gpt_lr_warmup *style);
bool gpt_wd_style_parse(const char *name, enum gpt_wd_style *style);

/* What messages call the fields: names that the caller's user knows. */
struct gpt_lr_schedule_names {
    const char *max_lr, *min_lr, *init_lr, *start_wd, *end_wd, *wd_style;
    const char *decoupled_lr, *decoupled_min_lr;
};

/* GPT_EUSAGE names the field, its value and the limit; names may be NULL. A
 * schedule that passes is defined for every number of samples >= 0. */
int gpt_lr_schedule_check(const struct gpt_lr_schedule *s,
                          const struct gpt_lr_schedule_names *names,
                          struct gpt_err *err) GPT_MUST_USE;

/* Used by the step that starts after `samples`: the first step has 0. */
double gpt_lr_schedule_value(const struct gpt_lr_schedule *s, int64_t samples);
double gpt_lr_schedule_weight_decay(const struct gpt_lr_schedule *s,
                                    int64_t samples);

/* All that an update takes of a schedule. */
struct gpt_rates {
    double lr, weight_decay;
    bool decoupled;      /* word embedding and output layer have ... */
    double decoupled_lr; /* ... this rate in place of lr; else it is 0 */
};
struct gpt_rates gpt_lr_schedule_rates(const struct gpt_lr_schedule *s,
                                       int64_t samples);

#endif
