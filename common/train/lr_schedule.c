/* Learning rate and weight decay by samples. Formulas are written
 * in the order of operations of the original, so that values are equal, not
 * only near. Start at gpt_lr_schedule_value(). */
#include "train/lr_schedule.h"

#include "base/num.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *const gpt_lr_styles[] = {
    [GPT_LR_CONSTANT] = "constant",
    [GPT_LR_LINEAR] = "linear",
    [GPT_LR_COSINE] = "cosine",
    [GPT_LR_INVERSE_SQUARE_ROOT] = "inverse-square-root",
    [GPT_LR_WSD] = "WSD",
    [GPT_LR_WARMUP] = "WarmupLR",
    [GPT_LR_WARMUP_DECAY] = "WarmupDecayLR",
    NULL,
};
const char *const gpt_lr_warmups[] = {
    [GPT_LR_WARMUP_LOG] = "log",
    [GPT_LR_WARMUP_LINEAR] = "linear",
    NULL,
};

const char *const gpt_wsd_styles[] = {
    [GPT_WSD_EXPONENTIAL] = "exponential",
    [GPT_WSD_LINEAR] = "linear",
    [GPT_WSD_COSINE] = "cosine",
    [GPT_WSD_MINUS_SQRT] = "minus_sqrt",
    NULL,
};
const char *const gpt_wd_styles[] = {
    [GPT_WD_CONSTANT] = "constant",
    [GPT_WD_LINEAR] = "linear",
    [GPT_WD_COSINE] = "cosine",
    NULL,
};

/* The index of a name, which is a value of the list's enum, or -1. */
static int find_name(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

bool gpt_lr_style_parse(const char *name, enum gpt_lr_style *style)
{
    const int i = find_name(gpt_lr_styles, name);

    if (i >= 0)
        *style = (enum gpt_lr_style)i;
    return i >= 0;
}

bool gpt_lr_warmup_parse(const char *name, enum gpt_lr_warmup *style)
{
    const int i = find_name(gpt_lr_warmups, name);

    if (i >= 0)
        *style = (enum gpt_lr_warmup)i;
    return i >= 0;
}

bool gpt_wsd_style_parse(const char *name, enum gpt_wsd_style *style)
{
    const int i = find_name(gpt_wsd_styles, name);

    if (i >= 0)
        *style = (enum gpt_wsd_style)i;
    return i >= 0;
}

bool gpt_wd_style_parse(const char *name, enum gpt_wd_style *style)
{
    const int i = find_name(gpt_wd_styles, name);

    if (i >= 0)
        *style = (enum gpt_wd_style)i;
    return i >= 0;
}

bool gpt_lr_counts_steps(enum gpt_lr_style style)
{
    return style == GPT_LR_WARMUP || style == GPT_LR_WARMUP_DECAY;
}

/* The names of the fields for callers whose users know no other ones. */
static const struct gpt_lr_schedule_names plain_names = {
    .max_lr = "the learning rate",
    .min_lr = "the least learning rate",
    .init_lr = "the first learning rate of the warm-up",
    .start_wd = "the first weight decay",
    .end_wd = "the last weight decay",
    .wd_style = "the growth of the weight decay",
    .decoupled_lr = "the decoupled learning rate",
    .decoupled_min_lr = "the least decoupled learning rate",
};

/* Comparisons are written so that a NaN fails them. */
static int check_wd(const struct gpt_lr_schedule *s,
                    const struct gpt_lr_schedule_names *of,
                    struct gpt_err *err)
{
    if (!(s->start_wd >= 0) || !(s->end_wd >= s->start_wd))
        return gpt_fail(err, GPT_EUSAGE,
                        "weight decay goes from %g to %g, must be >= 0 and"
                        " not fall", s->start_wd, s->end_wd);
    if (s->wd_style == GPT_WD_CONSTANT && s->start_wd != s->end_wd)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s is constant, but %s %g differs from %s %g",
                        of->wd_style, of->start_wd, s->start_wd, of->end_wd,
                        s->end_wd);
    if (s->wd_style != GPT_WD_CONSTANT && s->wd_incr_samples <= 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "weight decay grows over %" PRId64
                        " samples, must be > 0", s->wd_incr_samples);
    return GPT_OK;
}

/* The schedule of decoupled parameters: the same as the common one but for its
 * ends. */
static struct gpt_lr_schedule decoupled(const struct gpt_lr_schedule *s)
{
    struct gpt_lr_schedule d = *s;

    d.max_lr = s->decoupled_lr;
    d.min_lr = s->decoupled_min_lr;
    d.decoupled_lr = d.decoupled_min_lr = 0;
    return d;
}

static int check_decoupled(const struct gpt_lr_schedule *s,
                           const struct gpt_lr_schedule_names *of,
                           struct gpt_err *err)
{
    const struct gpt_lr_schedule d = decoupled(s);
    struct gpt_lr_schedule_names names = *of;

    names.max_lr = of->decoupled_lr;
    names.min_lr = of->decoupled_min_lr;
    return gpt_lr_schedule_check(&d, &names, err);
}

int gpt_lr_schedule_check(const struct gpt_lr_schedule *s,
                          const struct gpt_lr_schedule_names *names,
                          struct gpt_err *err)
{
    const struct gpt_lr_schedule_names *of = names ? names : &plain_names;

    if (!(s->min_lr >= 0) || !(s->max_lr >= s->min_lr))
        return gpt_fail(err, GPT_EUSAGE,
                        "%s is %g, must be >= 0 and at most %s %g",
                        of->min_lr, s->min_lr, of->max_lr, s->max_lr);
    if (!(s->init_lr <= s->max_lr) || !(s->init_lr >= 0))
        return gpt_fail(err, GPT_EUSAGE,
                        "%s is %g, must be >= 0 and at most %s %g",
                        of->init_lr, s->init_lr, of->max_lr, s->max_lr);
    if (s->decay_samples <= 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "the learning rate decays over %" PRId64
                        " samples, must be > 0", s->decay_samples);
    /* The warm-up must end before the decay: decay_coefficient() divides by the
     * distance. */
    if (!(s->warmup_samples >= 0) ||
        !(s->warmup_samples < (double)s->decay_samples))
        return gpt_fail(err, GPT_EUSAGE,
                        "the learning rate warms up over %.9g"
                        " samples, must be less than the %" PRId64
                        " of its decay", s->warmup_samples, s->decay_samples);
    if (s->style == GPT_LR_WSD &&
        (s->wsd_decay_samples <= 0 || s->wsd_decay_samples > s->decay_samples))
        return gpt_fail(err, GPT_EUSAGE,
                        "the WSD tail has %" PRId64
                        " samples, must be > 0 and at most the %" PRId64
                        " of the decay", s->wsd_decay_samples,
                        s->decay_samples);
    if (gpt_lr_counts_steps(s->style) && s->step_samples <= 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "the learning rate counts steps of %" PRId64
                        " samples, must be > 0", s->step_samples);
    GPT_TRY(check_wd(s, of, err));
    return s->decoupled_lr > 0 ? check_decoupled(s, of, err) : GPT_OK;
}

/* WSD: 1 before the tail, in which q runs from 0 to 1. The caller handles
 * samples after the end, so q is at most 1. The exponential form, 2 * 0.5^q -
 * 1, reaches 0 at q = 1 like the others. */
static double wsd_coefficient(const struct gpt_lr_schedule *s, int64_t samples)
{
    int64_t into = samples - (s->decay_samples - s->wsd_decay_samples);

    if (into <= 0)
        return 1.0;
    double q = (double)into / (double)s->wsd_decay_samples;
    switch (s->wsd_style) {
    case GPT_WSD_LINEAR:
        return 1.0 - q;
    case GPT_WSD_COSINE:
        return 0.5 * (cos(M_PI * q) + 1.0);
    case GPT_WSD_EXPONENTIAL:
        return 2.0 * pow(0.5, q) - 1.0;
    case GPT_WSD_MINUS_SQRT:
        return 1.0 - sqrt(q);
    }
    return 0.0;
}

/* The share of max_lr - min_lr that is left, between warm-up and end. r is 0 at
 * the end of the warm-up and 1 at the end of the decay. WSD has no use for r:
 * its tail counts from the end. */
static double decay_coefficient(const struct gpt_lr_schedule *s,
                                int64_t samples)
{
    double r = ((double)samples - s->warmup_samples) /
               ((double)s->decay_samples - s->warmup_samples);

    if (s->style == GPT_LR_LINEAR)
        return 1.0 - r;
    if (s->style == GPT_LR_COSINE)
        return 0.5 * (cos(M_PI * r) + 1.0);
    return wsd_coefficient(s, samples);
}

/* DeepSpeed's schedulers: `last` is the number of the step before, from 0 on,
 * and a warm-up takes two steps at least, as its logarithm is a divisor. The
 * share of max_lr - init_lr; in the order of operations of the original. */
static double step_coefficient(const struct gpt_lr_schedule *s, int64_t samples)
{
    const double step = (double)s->step_samples;
    const double last = floor((double)samples / step) - 1;
    const double warmup = fmax(2, s->warmup_samples / step);
    const double all = (double)s->decay_samples / step;

    if (last < 0)
        return 0;
    if (last < warmup)
        return s->warmup == GPT_LR_WARMUP_LOG
                   ? 1.0 / log(warmup) * log(last + 1)
                   : last / warmup;
    if (s->style == GPT_LR_WARMUP)
        return 1;
    return fmax(0, (all - last) / fmax(1, all - warmup));
}

/* A value depends on `samples` alone, never on the value before it. A training
 * that resumes therefore has the rates of one that was never stopped, and all
 * ranks compute the same ones. */
double gpt_lr_schedule_value(const struct gpt_lr_schedule *s, int64_t samples)
{
    if (gpt_lr_counts_steps(s->style))
        return s->init_lr +
               (s->max_lr - s->init_lr) * step_coefficient(s, samples);
    if (s->warmup_samples > 0 && (double)samples <= s->warmup_samples)
        return s->init_lr + (s->max_lr - s->init_lr) * (double)samples /
                                s->warmup_samples;
    if (s->style == GPT_LR_CONSTANT)
        return s->max_lr;
    /* before the inverse square root, which would otherwise go on falling */
    if (samples > s->decay_samples)
        return s->min_lr;
    if (s->style == GPT_LR_INVERSE_SQUARE_ROOT) {
        /* Without a warm-up the curve is that of a warm-up of one sample: one
         * of none would make it zero, and no samples would divide by zero. */
        double warmup = fmax(s->warmup_samples, 1);
        double n = (double)gpt_max_i64(samples, 1);

        return fmax(s->min_lr, s->max_lr * sqrt(warmup) / sqrt(n));
    }
    /* min + c * (max - min), not a blend of two products: rounds as the
     * original */
    return s->min_lr +
           decay_coefficient(s, samples) * (s->max_lr - s->min_lr);
}

/* The cosine rises here, as its argument runs from pi to 0. */
double gpt_lr_schedule_weight_decay(const struct gpt_lr_schedule *s,
                                    int64_t samples)
{
    if (s->wd_style == GPT_WD_CONSTANT || samples > s->wd_incr_samples)
        return s->end_wd;
    double r = (double)samples / (double)s->wd_incr_samples;
    if (s->wd_style == GPT_WD_COSINE)
        r = 0.5 * (cos(M_PI * (1 - r)) + 1.0);
    return s->start_wd + r * (s->end_wd - s->start_wd);
}

struct gpt_rates gpt_lr_schedule_rates(const struct gpt_lr_schedule *s,
                                       int64_t samples)
{
    const struct gpt_lr_schedule d = decoupled(s);
    const bool apart = s->decoupled_lr > 0;

    return (struct gpt_rates){
        .lr = gpt_lr_schedule_value(s, samples),
        .weight_decay = gpt_lr_schedule_weight_decay(s, samples),
        .decoupled = apart,
        .decoupled_lr = apart ? gpt_lr_schedule_value(&d, samples) : 0,
    };
}
