/* The run that a Megatron checkpoint is of, beside its tensors: schedule, loss
 * scale, seed and precision, as gpt-checkpoint(5) has them. Start at
 * gpt_megatron_add_run().
 *
 * A run that these programs wrote in Megatron's format has its own words along
 * (GPT_MEGATRON_RUN), which then count; Megatron-LM drops them when it
 * saves. */
#include "checkpoint/megatron/megatron.h"
#include "checkpoint/run_state.h"

#include <stdio.h>

/* ---- the schedule ---- */

/* Fields of Megatron-LM's scheduler, which counts samples. */
const struct gpt_megatron_field gpt_megatron_schedule[] = {
    {"max_lr", "max_lr"},
    {"min_lr", "min_lr"},
    {"init_lr", "init_lr"},
    {"lr_warmup_steps", "warmup_samples"},
    {"lr_decay_steps", "decay_samples"},
    {"wsd_decay_steps", "wsd_decay_samples"},
    {"start_wd", "start_wd"},
    {"end_wd", "end_wd"},
    {"wd_incr_steps", "wd_incr_samples"},
    {NULL, NULL},
};

const struct gpt_megatron_word gpt_megatron_schedule_words[] = {
    {"lr_decay_style", "lr_decay_style", "linear"},
    {"lr_wsd_decay_style", "lr_wsd_decay_style", "exponential"},
    {"wd_incr_style", "weight_decay_incr_style", "constant"},
    {NULL, NULL, NULL},
};

/* A word of the scheduler; what runs had before there was a choice when it is
 * not there. Unknown words are found by the program that resumes. */
static void add_word(cJSON *json, const struct gpt_pickle_value *there,
                     const struct gpt_megatron_word *word)
{
    const struct gpt_pickle_value *v = gpt_pickle_find(there, word->there);
    char text[64];

    snprintf(text, sizeof(text), "%s", word->absent);
    if (v && v->kind == GPT_PICKLE_STRING)
        snprintf(text, sizeof(text), "%.*s", (int)v->n, v->text);
    cJSON_AddStringToObject(json, word->here, text);
}

/* A run of these programs that was converted to Megatron-LM's format has its
 * own state in the file, which is taken as it is. A file that Megatron-LM has
 * written since lacks it. */
static int add_own_run(struct gpt_megatron *m, bool *found, struct gpt_err *err)
{
    const struct gpt_pickle_value *v =
        gpt_pickle_find(m->ranks[0].torch.root, GPT_MEGATRON_RUN);
    int64_t iteration;
    cJSON *json;

    *found = false;
    if (!v || v->kind != GPT_PICKLE_STRING)
        return GPT_OK;
    GPT_TRY(gpt_json_parse(&json, v->text, v->n, m->dir, err));
    int status = gpt_json_int(json, GPT_RUN_ITERATION, 0, GPT_JSON_EXACT,
                              &iteration, m->dir, err);
    if (status == GPT_OK && iteration != m->iteration)
        status = gpt_fail(err, GPT_EDATA,
                          "%s: is of iteration %lld, its '%s' of %lld", m->dir,
                          (long long)m->iteration, GPT_MEGATRON_RUN,
                          (long long)iteration);
    if (status != GPT_OK) {
        cJSON_Delete(json);
        return status;
    }
    cJSON_Delete(m->state);
    m->state = json;
    *found = true;
    return GPT_OK;
}

/* The type that the run computed in, in the words of gpt-checkpoint(5). */
static void add_precision(struct gpt_megatron *m)
{
    const struct gpt_pickle_value *args =
        gpt_pickle_find(m->ranks[0].torch.root, "args");
    const enum gpt_dtype dtype = gpt_megatron_flag(args, "bf16", false)
                                     ? GPT_BF16
                                 : gpt_megatron_flag(args, "fp16", false)
                                     ? GPT_F16
                                     : GPT_F32;

    cJSON_AddStringToObject(m->state, GPT_RUN_PRECISION, gpt_dtype_name(dtype));
}

/* The scale is a tensor of one number. A constant one is none of the run. */
static int add_loss_scale(struct gpt_megatron *m, struct gpt_err *err)
{
    const struct gpt_megatron_rank *r = &m->ranks[0];
    const struct gpt_pickle_value *there = gpt_pickle_find(
        gpt_megatron_optimizer(r->torch.root), "grad_scaler");
    const struct gpt_pickle_value *v = gpt_pickle_find(there, "scale");
    struct gpt_torch_tensor t;
    int64_t good = 0, left = 1;
    float scale;

    /* a run in bf16 or fp32 has none, or None */
    if (!v || !gpt_torch_is_tensor(v) ||
        !gpt_pickle_int(gpt_pickle_find(there, "growth_tracker"), &good))
        return GPT_OK;
    GPT_TRY(gpt_torch_tensor(&r->torch, "scale", v, &t, err));
    if (t.dtype != GPT_F32 || t.end - t.begin != sizeof(scale))
        return GPT_OK;
    GPT_TRY(gpt_in_read(r->torch.in, &scale, t.begin, sizeof(scale), err));
    (void)gpt_pickle_int(gpt_pickle_find(there, "hysteresis_tracker"), &left);
    if (!(scale > 0) || scale > 0x1p126F || good < 0 ||
        good >= GPT_JSON_EXACT || left <= -GPT_JSON_EXACT ||
        left >= GPT_JSON_EXACT)
        return GPT_OK;
    gpt_run_state_put_scale(m->state, scale, good, left);
    return GPT_OK;
}

/* Keys of the file that are read, of all years. States of random numbers have
 * no meaning here, where these follow from the seed, and so have those of
 * machinery that looks for faults. */
static const char *const known_keys[] = {
    "args", "checkpoint_version", "iteration", "total_iters", "model*",
    "optimizer", "opt_param_scheduler", "lr_scheduler",
    "num_floating_point_operations_so_far", "content_metadata",
    GPT_MEGATRON_RUN, NULL};

/* What gpt-train compares with its own options before it resumes. Only a run
 * with optimizer state and a schedule can be resumed; without one of them the
 * state says that the checkpoint was converted. The corpus is unknown, and
 * gpt-train warns of that. */
int gpt_megatron_add_run(struct gpt_megatron *m, struct gpt_err *err)
{
    const struct gpt_pickle_value *root = m->ranks[0].torch.root;
    const struct gpt_pickle_value *there =
        gpt_pickle_find(root, "opt_param_scheduler");
    int64_t seed = GPT_RUN_SEED_UNKNOWN, scheduled = -1;
    cJSON *schedule;
    bool found;

    m->left_out = gpt_pickle_others(root, known_keys, &m->arena);
    /* Weights whose moments are lost are no run: the moments of a new one would
     * begin at zero, at the learning rate of the old. */
    if (!there) /* its name until 2022 */
        there = gpt_pickle_find(root, "lr_scheduler");
    if (!m->has_optimizer || !gpt_pickle_mapping(there))
        return GPT_OK;
    GPT_TRY(add_own_run(m, &found, err));
    if (found)
        return GPT_OK;
    cJSON_DeleteItemFromObjectCaseSensitive(m->state, GPT_RUN_CONVERTED);
    (void)gpt_pickle_int(gpt_pickle_find(gpt_pickle_find(root, "args"), "seed"),
                         &seed);
    if (gpt_pickle_int(gpt_pickle_find(there, "num_steps"), &scheduled) &&
        scheduled >= 0 && scheduled < GPT_JSON_EXACT)
        cJSON_AddNumberToObject(m->state, GPT_RUN_SCHEDULED_SAMPLES,
                                (double)scheduled);
    gpt_run_state_put_run(m->state, m->step, seed, "Megatron-LM");
    schedule = cJSON_AddObjectToObject(m->state, GPT_RUN_SCHEDULE);
    for (const struct gpt_megatron_word *w = gpt_megatron_schedule_words;
         w->there; w++)
        add_word(schedule, there, w);
    for (const struct gpt_megatron_field *f = gpt_megatron_schedule; f->there;
         f++) {
        double value = 0;

        (void)gpt_pickle_real(gpt_pickle_find(there, f->there), &value);
        cJSON_AddNumberToObject(schedule, f->here, value);
    }
    add_precision(m);
    return add_loss_scale(m, err);
}
