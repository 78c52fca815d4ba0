/* The part of a plan about learning rate and weight decay: counts of steps and
 * of samples become one schedule in samples. Start at
 * gpt_train_plan_schedule(). */
#include "cmd/train/plan.h"

#include "base/num.h"

#include <stdlib.h>

/* What messages of the library call the values of options. */
static const struct gpt_lr_schedule_names lr_names = {
    .max_lr = "--lr",
    .min_lr = "--min-lr",
    .init_lr = "--lr-warmup-init",
    .decoupled_lr = "--decoupled-lr",
    .decoupled_min_lr = "--decoupled-min-lr",
    .start_wd = "--start-weight-decay",
    .end_wd = "--end-weight-decay",
    .wd_style = "--weight-decay-incr-style",
};

/* The value of a pair --NAME-iters, --NAME-samples in samples; 0 when neither
 * is given. A run counts in one unit: that of its length. */
static int in_samples(const struct gpt_train_plan *p,
                      const struct gpt_train_options *o, const char *name,
                      int64_t iters, int64_t samples, int64_t *out,
                      struct gpt_err *err)
{
    *out = samples;
    if (iters > 0 && o->train_samples > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--train-samples goes with "
                        "--%s-samples, not --%s-iters",
                        name, name);
    if (samples > 0 && o->train_iters > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--train-iters goes with "
                        "--%s-iters, not --%s-samples",
                        name, name);
    if (iters > 0 && !gpt_mul(iters, p->rampup.global_batch, out))
        return gpt_fail(err, GPT_EUSAGE, "--%s-iters %lld is too large", name,
                        (long long)iters);
    return GPT_OK;
}

/* Megatron's defaults reach to the end of the run: those of the decay of the
 * rate, and of weight decay always. A share for warm-up is one of the decay,
 * and no whole number there. */
static void reach_end(struct gpt_train_plan *p)
{
    const struct gpt_train_options *o = p->options;
    struct gpt_lr_schedule *s = &p->schedule;

    s->wd_incr_samples =
        o->train_samples > 0 ? o->train_samples : p->train_samples;
    if (o->lr_decay_iters == 0 && o->lr_decay_samples == 0)
        s->decay_samples = s->wd_incr_samples;
    if (o->lr_warmup_fraction > 0)
        s->warmup_samples = o->lr_warmup_fraction * (double)s->decay_samples;
}

/* The library's rules name samples alone: which options make them is added. */
static int check_schedule(const struct gpt_train_plan *p, struct gpt_err *err)
{
    const struct gpt_lr_schedule *s = &p->schedule;
    const int status = gpt_lr_schedule_check(s, &lr_names, err);

    if (status == GPT_OK)
        return GPT_OK;
    if (s->warmup_samples >= (double)s->decay_samples)
        gpt_hint(err, "a shorter warm-up (--lr-warmup-iters, -samples or "
                      "-fraction), or a longer run; a step has %lld samples",
                 (long long)p->rampup.global_batch);
    else if (s->style == GPT_LR_WSD &&
             (s->wsd_decay_samples == 0 ||
              s->wsd_decay_samples > s->decay_samples))
        gpt_hint(err, "--lr-wsd-decay-%s gives the length of the last part of "
                      "--lr-decay-style WSD",
                 p->options->train_samples > 0 ? "samples" : "iters");
    return status;
}

/* Megatron's options for the learning rate. */
static int plan_learning_rate(struct gpt_train_plan *p,
                              const struct gpt_train_options *o,
                              const struct gpt_args *args, struct gpt_err *err)
{
    struct gpt_lr_schedule *s = &p->schedule;
    int64_t warmup;

    /* A rate of 0 that was typed is meant: it shows what a run would do. */
    if (!gpt_option_given(args, "lr") && p->train_iters > 0 &&
        !gpt_train_is_dry(o))
        return gpt_fail(err, GPT_EUSAGE, "give the learning rate: --lr");
    s->max_lr = o->lr;
    s->min_lr = o->min_lr;
    s->decoupled_lr = o->decoupled_lr;
    if (o->decoupled_lr > 0)
        s->decoupled_min_lr =
            o->decoupled_min_lr >= 0 ? o->decoupled_min_lr : o->min_lr;
    s->init_lr = o->lr_warmup_init;
    /* the option table has checked the names */
    (void)gpt_lr_style_parse(o->lr_decay_style, &s->style);
    (void)gpt_wsd_style_parse(o->lr_wsd_decay_style, &s->wsd_style);
    /* the steps that DeepSpeed's schedules count are those of a full batch */
    if (o->lr_warmup_style)
        (void)gpt_lr_warmup_parse(o->lr_warmup_style, &s->warmup);
    s->step_samples = p->rampup.global_batch;
    GPT_TRY(in_samples(p, o, "lr-decay", o->lr_decay_iters,
                       o->lr_decay_samples, &s->decay_samples, err));
    GPT_TRY(in_samples(p, o, "lr-warmup", o->lr_warmup_iters,
                       o->lr_warmup_samples, &warmup, err));
    s->warmup_samples = (double)warmup;
    GPT_TRY(in_samples(p, o, "lr-wsd-decay", o->lr_wsd_decay_iters,
                       o->lr_wsd_decay_samples, &s->wsd_decay_samples, err));
    if (o->lr_warmup_fraction > 0 && s->warmup_samples > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--lr-warmup-fraction excludes --lr-warmup-iters and "
                        "--lr-warmup-samples");
    return GPT_OK;
}

/* Constant, or from a start to an end over the run: then both must be given, as
 * --weight-decay is neither. */
static int plan_weight_decay(struct gpt_train_plan *p,
                             const struct gpt_train_options *o,
                             const struct gpt_args *args, struct gpt_err *err)
{
    struct gpt_lr_schedule *s = &p->schedule;
    bool start = gpt_option_given(args, "start-weight-decay");
    bool end = gpt_option_given(args, "end-weight-decay");

    (void)gpt_wd_style_parse(o->weight_decay_incr_style, &s->wd_style);
    if (s->wd_style == GPT_WD_CONSTANT) {
        if (start || end)
            return gpt_fail(err, GPT_EUSAGE,
                            "--start-weight-decay and "
                            "--end-weight-decay need "
                            "--weight-decay-incr-style linear or cosine");
        s->start_wd = s->end_wd = o->weight_decay;
        return GPT_OK;
    }
    if (!start || !end)
        return gpt_fail(err, GPT_EUSAGE,
                        "--weight-decay-incr-style %s needs "
                        "--start-weight-decay and --end-weight-decay",
                        o->weight_decay_incr_style);
    s->start_wd = o->start_weight_decay;
    s->end_wd = o->end_weight_decay;
    return GPT_OK;
}

int gpt_train_plan_schedule(struct gpt_train_plan *p,
                            const struct gpt_train_options *o,
                            const struct gpt_args *args, struct gpt_err *err)
{
    GPT_TRY(plan_learning_rate(p, o, args, err));
    GPT_TRY(plan_weight_decay(p, o, args, err));
    reach_end(p);
    return p->train_iters > 0 ? check_schedule(p, err) : GPT_OK;
}

/* A decay that ended with the first length would leave the steps after it with
 * the least rate, or cut the decay off. The checkpoint's schedule stays as it
 * was, where that is asked for. */
int gpt_train_plan_refit(struct gpt_train_plan *p, struct gpt_err *err)
{
    reach_end(p);
    return p->options->use_checkpoint_scheduler ? GPT_OK
                                                : check_schedule(p, err);
}

/* Weight decay changes over the whole run in every schedule, so that its field
 * is the length of the checkpoint's run. The default of the decay of the rate
 * is that length, too, but for a last part of a batch. */
struct gpt_lr_schedule
gpt_train_schedule_for(const struct gpt_train_plan *p,
                       const struct gpt_lr_schedule *there)
{
    const struct gpt_train_options *o = p->options;
    const int64_t batch =
        gpt_max_i64(p->rampup.global_batch, there->step_samples);
    struct gpt_lr_schedule s = p->schedule;

    s.wd_incr_samples = there->wd_incr_samples;
    if (o->lr_decay_iters == 0 && o->lr_decay_samples == 0)
        s.decay_samples =
            llabs(there->decay_samples - there->wd_incr_samples) < batch
                ? there->decay_samples
                : there->wd_incr_samples;
    if (o->lr_warmup_fraction > 0)
        s.warmup_samples = o->lr_warmup_fraction * (double)s.decay_samples;
    return s;
}
