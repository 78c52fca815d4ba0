/* From options to a plan; see plan.h. Read gpt_train_plan() at the end: it is
 * the order in which later parts read what earlier ones have filled. The model
 * is in plan_model.c, the part about ranks in plan_ranks.c, that about data in
 * plan_data.c. */
#include "cmd/train/plan.h"

#include "base/log.h"
#include "base/num.h"

/* What messages of the library call the values of options. */
static const struct gpt_loss_scale_names scale_names = {
    .constant = "--loss-scale",
    .initial = "--initial-loss-scale",
    .min = "--min-loss-scale",
    .window = "--loss-scale-window",
    .hysteresis = "--hysteresis",
};
static const struct gpt_rampup_names rampup_names = {
    .global_batch = "--global-batch-size",
    .rampup = "--rampup-batch-size",
    .steps = "--step-batch-size-schedule",
};

/* --train-iters 0 asks for the losses of a model that was trained already. */
static int plan_evaluation(struct gpt_train_plan *p,
                           const struct gpt_train_options *o,
                           const struct gpt_args *args, struct gpt_err *err)
{
    const bool dry = gpt_train_is_dry(o);
    const bool no_length =
        o->epochs == 0 && o->train_iters == 0 && o->train_samples == 0;

    p->evaluates = ((gpt_option_given(args, "train-iters") ||
                     gpt_option_given(args, "train-samples")) &&
                    no_length && !dry) || (o->eval_only && !dry);
    if (!p->evaluates || o->load)
        return GPT_OK;
    if (o->eval_only)
        return gpt_fail(err, GPT_EUSAGE, "--eval-only needs --load");
    gpt_fail(err, GPT_EUSAGE, "a length of 0 steps trains nothing");
    return gpt_hint(err, "with --load DIR --train-iters 0 evaluates the model "
                         "in DIR; else --train-iters must be above 0");
}

/* ---- precision ---- */

/* The type of weights and activations, and the loss scale. Statistics, losses,
 * gradients and the optimizer are float in any case. */
static int plan_precision(struct gpt_train_plan *p,
                          const struct gpt_train_options *o,
                          const struct gpt_args *args, struct gpt_err *err)
{
    struct gpt_loss_scale_options *scale = &p->replica.loss_scale;

    if (o->bf16 && o->fp16)
        return gpt_fail(err, GPT_EUSAGE,
                        "--bf16 and --fp16 exclude each other");
    if (o->tf32 && (o->bf16 || o->fp16))
        return gpt_fail(err, GPT_EUSAGE,
                        "--tf32 and --%s exclude each other: TF32 is for "
                        "products of float", o->bf16 ? "bf16" : "fp16");
    p->replica.exec.act = o->bf16 ? GPT_BF16 : o->fp16 ? GPT_F16 : GPT_F32;
    /* how a scale would adapt is said by scripts of either type: effects.c */
    if (!o->fp16 && gpt_option_given(args, "loss-scale"))
        return gpt_fail(err, GPT_EUSAGE, "--loss-scale needs --fp16");
    /* half precision alone needs a scale: small gradients would be zero. A
     * constant one is given by --loss-scale, else the scale adapts */
    if (!o->fp16)
        return GPT_OK;
    *scale = (struct gpt_loss_scale_options){
        .initial = o->loss_scale > 0 ? o->loss_scale : o->initial_loss_scale,
        .min = o->min_loss_scale,
        .window = o->loss_scale_window,
        .hysteresis = o->hysteresis,
        .constant = o->loss_scale > 0,
    };
    return gpt_loss_scale_check(scale, &scale_names, err);
}

/* ---- batches and length ---- */

/* The nearest batches that would do: the next larger one, or a micro batch that
 * divides this one. */
static void hint_batch(const struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    const int64_t batch = p->rampup.global_batch;
    const int64_t ranks = p->micro_samples / o->micro_batch_size;
    int64_t micro = o->micro_batch_size;

    while (micro > 1 && batch % (micro * ranks) != 0)
        micro--;
    if (batch % (micro * ranks) == 0)
        gpt_hint(err, "--global-batch-size %lld, or --micro-batch-size %lld",
                 (long long)gpt_round_up(batch, p->micro_samples),
                 (long long)micro);
    else
        gpt_hint(err, "--global-batch-size %lld",
                 (long long)gpt_round_up(batch, p->micro_samples));
}

/* Megatron's three numbers. */
static int read_rampup(struct gpt_rampup *r, const struct gpt_train_options *o,
                       struct gpt_err *err)
{
    int64_t *fields[] = {&r->start, &r->increment, &r->samples};

    if (o->rampup.n == 0)
        return GPT_OK;
    if (o->rampup.n != 3)
        return gpt_fail(err, GPT_EUSAGE,
                        "--rampup-batch-size takes START "
                        "INCREMENT SAMPLES, got %lld values",
                        (long long)o->rampup.n);
    for (int i = 0; i < 3; i++) {
        if (!gpt_parse_int(o->rampup.items[i], fields[i]) ||
            *fields[i] < 1 || *fields[i] > (int64_t)1 << 50)
            return gpt_fail(err, GPT_EUSAGE,
                            "--rampup-batch-size '%s' is "
                            "not a count",
                            o->rampup.items[i]);
    }
    return GPT_OK;
}

/* Megatron's words of tokens and sizes, which leave no size to be given. */
static int read_batch_steps(struct gpt_rampup *r,
                            const struct gpt_train_options *o,
                            struct gpt_err *err)
{
    if (o->batch_steps.n == 0)
        return GPT_OK;
    if (o->global_batch_size > 0 || o->rampup.n > 0) {
        const char *other = o->rampup.n > 0 ? rampup_names.rampup
                                            : rampup_names.global_batch;

        gpt_fail(err, GPT_EUSAGE, "%s and %s exclude each other",
                 rampup_names.steps, other);
        return gpt_hint(err, "leave %s out: the schedule has every size",
                        other);
    }
    for (int64_t i = 0; i < o->batch_steps.n; i++)
        GPT_TRY(gpt_batch_steps_add(r, o->batch_steps.items[i], o->seq_length,
                                    rampup_names.steps, err));
    return gpt_batch_steps_sort(r, rampup_names.steps, err);
}

void gpt_train_set_batch(struct gpt_train_options *o, int64_t batch)
{
    o->global_batch_size = o->batch_steps.n > 0 ? 0 : batch;
}

/* Which number of samples that many steps of growing batches are. */
static int refuse_iters(const struct gpt_rampup *r, int64_t iters,
                        struct gpt_err *err)
{
    enum { MOST = 100000000 }; /* steps that are counted one by one */
    int64_t samples = 0;

    gpt_fail(err, GPT_EUSAGE, "%s needs --train-samples, not --train-iters",
             r->n_steps > 0 ? rampup_names.steps : rampup_names.rampup);
    if (iters > MOST)
        return GPT_EUSAGE;
    for (int64_t i = 0; i < iters; i++)
        samples += gpt_rampup_global_batch(r, samples);
    return gpt_hint(err, "%lld steps are --train-samples %lld",
                    (long long)iters, (long long)samples);
}

/* Global batch sizes: every one of them is a whole number of microbatches on
 * every data parallel rank. Sizes that change make sense with samples only, as
 * their iterations are not known beforehand. */
static int plan_rampup(struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    struct gpt_rampup *r = &p->rampup;

    r->global_batch =
        o->global_batch_size ? o->global_batch_size : p->micro_samples;
    GPT_TRY(read_rampup(r, o, err));
    GPT_TRY(read_batch_steps(r, o, err));
    const int status =
        gpt_rampup_check(r, p->micro_samples, &rampup_names, err);
    if (status == GPT_EUSAGE && r->n_steps == 0 &&
        r->global_batch % p->micro_samples != 0)
        hint_batch(p, o, err);
    return status == GPT_OK && o->train_iters > 0 &&
                   (o->rampup.n > 0 || o->batch_steps.n > 0)
               ? refuse_iters(r, o->train_iters, err)
               : status;
}

/* A batch of another size than before makes other steps of the same samples:
 * --train-samples and --epochs mean samples, --train-iters means steps. */
int gpt_train_plan_rest(struct gpt_train_plan *p, int64_t iteration,
                        int64_t consumed, struct gpt_err *err)
{
    if (p->length_samples > 0) {
        p->train_samples = consumed;
        p->train_iters = iteration + gpt_rampup_count(&p->rampup,
                                                      p->length_samples,
                                                      &p->train_samples);
    } else if (p->train_iters > iteration) {
        p->train_samples =
            consumed + (p->train_iters - iteration) * p->rampup.global_batch;
    }
    return p->train_iters > iteration ? gpt_train_plan_refit(p, err) : GPT_OK;
}

int64_t gpt_train_plan_samples(const struct gpt_train_plan *p,
                               int64_t iteration, const char *what)
{
    int64_t n;

    if (!gpt_mul(iteration, p->rampup.global_batch, &n) || n >= GPT_JSON_EXACT)
        return 0;
    gpt_log_line(" %s: its run counted no samples: %lld steps are taken for "
                 "%lld", what, (long long)iteration, (long long)n);
    return n;
}

/* Length in steps and in samples, whichever was given: schedules count samples,
 * the loop counts steps. */
static int plan_length(struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    GPT_TRY(plan_rampup(p, o, err));
    if (o->train_iters > 0 && o->train_samples > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--train-iters and --train-samples "
                        "exclude each other");
    if (o->train_iters > 0) {
        p->train_iters = o->train_iters;
        if (!gpt_mul(o->train_iters, p->rampup.global_batch, &p->train_samples))
            return gpt_fail(err, GPT_EUSAGE,
                            "--train-iters %lld x "
                            "--global-batch-size %lld is too large",
                            (long long)o->train_iters,
                            (long long)p->rampup.global_batch);
    } else {
        p->train_samples = 0;
        p->length_samples = o->train_samples;
        p->train_iters = gpt_rampup_count(&p->rampup, o->train_samples,
                                          &p->train_samples);
        if (o->train_samples > 0 && p->train_iters == 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "--train-samples %lld is below "
                            "one batch of %lld",
                            (long long)o->train_samples,
                            (long long)gpt_rampup_global_batch(&p->rampup, 0));
    }
    if (p->train_iters == 0 && !gpt_train_is_dry(o) && !p->evaluates)
        return gpt_fail(err, GPT_EUSAGE,
                        "give the length of the run: --train-iters, "
                        "--train-samples or --epochs");
    return GPT_OK;
}

/* Both of Megatron's ways of asking for CUDA graphs. */
static bool wants_graph(const struct gpt_train_options *o)
{
    return o->enable_graph ||
           gpt_train_choice(gpt_train_graphs, o->graph_impl) != GPT_GRAPH_NONE;
}

/* The option table has checked the names: a choice is its place in its list.
 * What the chosen optimizer does not read stays in the options all the same;
 * the communicators are known when the ranks are connected. */
static struct gpt_optimizer_options
optimizer_options(const struct gpt_train_options *o)
{
    const int kind = gpt_train_choice(gpt_optimizer_names, o->optimizer);
    const int scale = gpt_train_choice(gpt_muon_scales, o->muon_scale);
    const int coefficients =
        gpt_train_choice(gpt_muon_coefficient_types, o->muon_coefficients);

    return (struct gpt_optimizer_options){
        .kind = (enum gpt_optimizer_kind)kind,
        .beta1 = o->adam_beta1,
        .beta2 = o->adam_beta2,
        .eps = o->adam_eps,
        .coupled = !o->decoupled_decay,
        .momentum = kind == GPT_SGD ? o->sgd_momentum : o->muon_momentum,
        .clip_grad = o->clip_grad,
        .bias_rate = o->moe_bias_rate,
        .muon =
            {
                .nesterov = o->muon_nesterov,
                .split_qkv = !o->muon_whole_qkv,
                .blockwise =
                    gpt_train_choice(gpt_train_muon_modes, o->muon_tp_mode) ==
                    GPT_MUON_BLOCKWISE,
                .scale = (enum gpt_muon_scale)scale,
                .coefficients = (enum gpt_muon_coefficients)coefficients,
                .steps = o->muon_steps,
                .extra_scale = o->muon_extra_scale,
            },
    };
}

/* Weights of one's own are already those of a mean, and a plug-in's loss is a
 * function of the cross-entropy alone. */
static int check_losses(const struct gpt_train_options *o, struct gpt_err *err)
{
    /* whether a plug-in has weights is known when it is opened */
    const bool own = o->token_loss_weights || o->loss_plugin;
    const char *name = o->loss_plugin ? "loss-plugin" : "token-loss-weights";

    if (own && o->per_token_loss)
        return gpt_fail(err, GPT_EUSAGE,
                        "--calculate-per-token-loss and --%s exclude each "
                        "other: both decide what a token counts",
                        name);
    /* losses of routers count as the tokens' do, whose weights may then be
     * below 0 */
    if (own && (o->model.moe_aux_loss_coeff > 0 ||
                o->model.moe_z_loss_coeff > 0))
        return gpt_fail(err, GPT_EUSAGE,
                        "--%s needs --moe-aux-loss-coeff 0 and "
                        "--moe-z-loss-coeff 0",
                        name);
    /* both change the cross-entropy itself, which a plug-in is promised */
    if (o->loss_plugin && (o->label_smoothing > 0 || o->z_loss > 0))
        return gpt_fail(err, GPT_EUSAGE,
                        "--loss-plugin and --%s exclude each other",
                        o->z_loss > 0 ? "z-loss" : "label-smoothing");
    /* the host computes in the middle of a pass, and a recording has no host */
    if (o->loss_plugin && wants_graph(o))
        return gpt_fail(err, GPT_EUSAGE,
                        "--loss-plugin waits within a pass, which CUDA graphs "
                        "cannot");
    if (o->loss_plugin_args && !o->loss_plugin)
        return gpt_fail(err, GPT_EUSAGE,
                        "--loss-plugin-args needs --loss-plugin");
    return GPT_OK;
}

int gpt_train_plan(struct gpt_train_plan *p, const struct gpt_train_options *o,
                   const struct gpt_args *args, const struct gpt_topology *t,
                   struct gpt_err *err)
{
    *p = (struct gpt_train_plan){
        .options = o,
        .topology = *t,
        .micro_samples = o->micro_batch_size * t->size[GPT_DP],
        .replica =
            {
                .exec =
                    {
                        .micro_batch = o->micro_batch_size,
                        .seq_length = o->seq_length,
                        .documents = o->reset_attention_mask,
                        .record = wants_graph(o),
                        .label_smoothing = (float)o->label_smoothing,
                        .z_loss = (float)o->z_loss,
                        .seed = (uint64_t)o->seed,
                    },
                .optimizer = optimizer_options(o),
                .per_token_loss = o->per_token_loss,
                .noise_scale = o->log_noise_scale,
                .planned = true, /* the world of a run comes later */
            },
        .masks =
            {
                .eod_mask_loss = o->eod_mask_loss,
                .reset_position_ids = o->reset_position_ids,
                .reset_attention_mask = o->reset_attention_mask,
                .has_pad = o->pad_token >= 0,
                .pad = (int32_t)o->pad_token,
            },
    };
    /* the model decides what ranks may cut, batches how many there are */
    GPT_TRY(plan_evaluation(p, o, args, err));
    GPT_TRY(plan_precision(p, o, args, err));
    GPT_TRY(gpt_train_plan_model(p, o, args, err));
    GPT_TRY(plan_length(p, o, err));
    GPT_TRY(gpt_train_plan_ranks(p, o, args, err));
    GPT_TRY(gpt_train_plan_schedule(p, o, args, err));
    /* options of checkpoints that mean nothing alone, or contradict */
    if (o->finetune && !o->load)
        return gpt_fail(err, GPT_EUSAGE, "--finetune needs --load");
    if (o->override_scheduler && o->use_checkpoint_scheduler)
        return gpt_fail(err, GPT_EUSAGE,
                        "--override-opt-param-scheduler and "
                        "--use-checkpoint-opt-param-scheduler exclude each "
                        "other");
    GPT_TRY(check_losses(o, err));
    return gpt_train_plan_data(p, o, args, err);
}

int gpt_train_plan_of(struct gpt_train_plan *plan,
                      const struct gpt_train_options *o,
                      const struct gpt_args *args, int64_t ranks)
{
    struct gpt_world_options world;
    struct gpt_topology topology;

    GPT_TRY(gpt_train_world_options(&world, o, NULL));
    GPT_TRY(gpt_topology_init(&topology, ranks, 0, world.size, world.chunks,
                              NULL));
    return gpt_train_plan(plan, o, args, &topology, NULL);
}
