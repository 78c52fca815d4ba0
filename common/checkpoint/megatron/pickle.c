/* The pickles of a classic Megatron checkpoint that is written: everything but
 * the elements of tensors. Start at gpt_megatron_put_model().
 *
 * Keys are those of Megatron-LM's save_checkpoint(): `optimizer` as the state
 * dict of an FP32Optimizer, of a Float16OptimizerWithFloat16Params, or of a
 * DistributedOptimizer, whose tensors are in a file of their own. */
#include "checkpoint/megatron/write.h"

#include "base/log.h"
#include "checkpoint/run_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_DECAYED = 1 }; /* a group */

/* ---- trees ---- */

/* The tensor of cut i in block b: storages are numbered block by block. */
static int put_cut(struct gpt_pickle_out *o,
                   const struct gpt_megatron_output *p,
                   const struct gpt_megatron_rank_plan *r, int b, int64_t i,
                   struct gpt_err *err)
{
    const struct gpt_megatron_cut *c = &r->cuts[i];
    const enum gpt_dtype dtype = gpt_megatron_cut_dtype(p, &p->blocks[b], c);

    if (gpt_pickle_put_tensor(o, b * r->n + i, dtype, c->ndim, c->shape))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "tensor '%s': type %s", c->path,
                    gpt_dtype_name(dtype));
}

/* Cuts [i, end), whose paths agree in their first `skip` bytes, as a dict of
 * what follows there. Paths with a key in common are neighbours, since cuts are
 * in the order of the model. Paths have four keys at most. */
static int put_tree(struct gpt_pickle_out *o,
                    const struct gpt_megatron_output *p,
                    const struct gpt_megatron_rank_plan *r, int64_t i,
                    int64_t end, size_t skip, struct gpt_err *err)
{
    gpt_pickle_put_dict(o);
    while (i < end) {
        const char *path = r->cuts[i].path;
        const size_t n = strcspn(path + skip, "/");
        char text[GPT_MEGATRON_PATH];
        int64_t next = i + 1;

        snprintf(text, sizeof(text), "%.*s", (int)n, path + skip);
        gpt_pickle_put_string(o, text);
        /* a dict of its own: all the neighbours that share this key */
        if (path[skip + n] == '/') {
            while (next < end &&
                   strncmp(r->cuts[next].path, path, skip + n + 1) == 0)
                next++;
            GPT_TRY(put_tree(o, p, r, i, next, skip + n + 1, err));
        } else {
            GPT_TRY(put_cut(o, p, r, 0, i, err));
        }
        i = next;
    }
    gpt_pickle_end_dict(o);
    return GPT_OK;
}

/* "model", or "model0", "model1", ... of an interleaved stage. */
static int put_chunks(struct gpt_pickle_out *o,
                      const struct gpt_megatron_output *p,
                      const struct gpt_megatron_rank_plan *r,
                      struct gpt_err *err)
{
    char key[32] = "model";

    for (int64_t v = 0; v < p->chunks; v++) {
        if (p->chunks > 1)
            snprintf(key, sizeof(key), "model%lld", (long long)v);
        gpt_pickle_put_string(o, key);
        GPT_TRY(put_tree(o, p, r, r->first[v], r->first[v + 1], 0, err));
    }
    return GPT_OK;
}

/* ---- the optimizer ---- */

/* A number of the source's state, or of one of its members. */
static double state_real(const cJSON *json, const char *key, double absent)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

    return cJSON_IsNumber(item) ? item->valuedouble : absent;
}

/* A number among the options of the source's run, which it keeps as the lines
 * of a file of options. */
static double option_real(const struct gpt_source *s, const char *name,
                          double absent)
{
    const cJSON *options =
        cJSON_GetObjectItemCaseSensitive(s->state, "options");
    const char *at = cJSON_IsString(options) ? options->valuestring : NULL;
    const size_t n = strlen(name);

    /* line by line, "NAME = VALUE", with any spaces */
    while (at && *at) {
        at += strspn(at, " \t\n");
        if (strncmp(at, name, n) == 0) {
            const char *value = at + n + strspn(at + n, " \t=");
            char *end;
            const double number = strtod(value, &end);

            if (value > at + n && end > value)
                return number;
        }
        at = strchr(at, '\n');
    }
    return absent;
}

/* One group of parameters: Adam's numbers, which a run that loads the file
 * takes from here, and which parameters it has. Learning rate and weight decay
 * are set by the schedule at every step. */
static void put_group(struct gpt_pickle_out *o, const struct gpt_target *t,
                      const struct gpt_megatron_rank_plan *r, int64_t group)
{
    const struct gpt_megatron_output *p = t->data;
    const cJSON *state = t->source->state;
    const cJSON *schedule =
        cJSON_GetObjectItemCaseSensitive(state, GPT_RUN_SCHEDULE);

    gpt_pickle_put_dict(o);
    /* how Megatron-LM finds the group that is the same in its own optimizer */
    gpt_pickle_put_key_real(o, "wd_mult", group == NOT_DECAYED ? 0.0 : 1.0);
    gpt_pickle_put_key_real(o, "lr_mult", 1.0);
    gpt_pickle_put_key_bool(o, "is_expert_parallel",
                            group == GPT_MEGATRON_GROUPS - 1);
    gpt_pickle_put_key_bool(o, "is_decoupled_lr", false);
    gpt_pickle_put_key_bool(o, "default_config", true);
    gpt_pickle_put_key_real(o, "max_lr", state_real(schedule, "max_lr", 0));
    gpt_pickle_put_key_real(o, "min_lr", state_real(schedule, "min_lr", 0));
    gpt_pickle_put_key_real(o, "lr", state_real(schedule, "max_lr", 0));
    gpt_pickle_put_key_bool(o, "bias_correction", true);
    gpt_pickle_put_string(o, "betas");
    gpt_pickle_put_tuple(o);
    gpt_pickle_put_real(o, option_real(t->source, "adam-beta1", 0.9));
    gpt_pickle_put_real(o, option_real(t->source, "adam-beta2", 0.999));
    gpt_pickle_end_tuple(o);
    gpt_pickle_put_key_real(o, "eps",
                            option_real(t->source, "adam-eps", 1e-8));
    gpt_pickle_put_key_real(
        o, "weight_decay",
        group == NOT_DECAYED ? 0.0 : state_real(schedule, "start_wd", 0));
    /* where Adam of Transformer Engine and Apex has it; PyTorch's own has it
     * with each parameter */
    gpt_pickle_put_key_int(
        o, "step", (int64_t)state_real(state, GPT_RUN_OPTIMIZER_STEP, 0));
    if (p->optimizer == GPT_MEGATRON_PLAIN) {
        gpt_pickle_put_string(o, "params");
        gpt_pickle_put_list(o);
        for (int64_t i = 0; i < r->n; i++)
            if (r->cuts[i].group == group)
                gpt_pickle_put_int(o, r->cuts[i].number);
        gpt_pickle_end_list(o);
    }
    gpt_pickle_end_dict(o);
}

/* A rank without parameters of a group has the group all the same. */
static void put_groups(struct gpt_pickle_out *o, const struct gpt_target *t,
                       const struct gpt_megatron_rank_plan *r, int chain)
{
    int64_t begin, end;

    gpt_megatron_chain(chain, &begin, &end);
    gpt_pickle_put_string(o, "param_groups");
    gpt_pickle_put_list(o);
    for (int64_t g = begin; g < end; g++)
        put_group(o, t, r, g);
    gpt_pickle_end_list(o);
}

/* Moments by the number of a parameter. */
static int put_moments(struct gpt_pickle_out *o,
                       const struct gpt_megatron_output *p,
                       const struct gpt_megatron_rank_plan *r, int chain,
                       struct gpt_err *err)
{
    int64_t begin, end;

    gpt_megatron_chain(chain, &begin, &end);
    gpt_pickle_put_string(o, "state");
    gpt_pickle_put_dict(o);
    for (int64_t g = begin; g < end; g++)
        for (int64_t i = 0; i < r->n; i++) {
            if (r->cuts[i].group != g)
                continue;
            /* fp32 weights are in a list of their own */
            gpt_pickle_put_int(o, r->cuts[i].number);
            gpt_pickle_put_dict(o);
            for (int b = 1; b < p->n_blocks; b++) {
                if (p->blocks[b].kind == GPT_KIND_PARAMETERS)
                    continue;
                gpt_pickle_put_string(o, p->blocks[b].key);
                GPT_TRY(put_cut(o, p, r, b, i, err));
            }
            gpt_pickle_end_dict(o);
        }
    gpt_pickle_end_dict(o);
    return GPT_OK;
}

/* Weights in fp32, in the order of the groups. */
static int put_masters(struct gpt_pickle_out *o,
                       const struct gpt_megatron_output *p,
                       const struct gpt_megatron_rank_plan *r, int chain,
                       struct gpt_err *err)
{
    int64_t begin, end;

    gpt_megatron_chain(chain, &begin, &end);
    gpt_pickle_put_string(o, "fp32_from_fp16_params");
    gpt_pickle_put_list(o);
    for (int64_t g = begin; g < end; g++) {
        gpt_pickle_put_list(o);
        for (int64_t i = 0; i < r->n; i++)
            if (r->cuts[i].group == g)
                GPT_TRY(put_cut(o, p, r, 1, i, err));
        gpt_pickle_end_list(o);
    }
    gpt_pickle_end_list(o);
    return GPT_OK;
}

bool gpt_megatron_scale(const struct gpt_target *t, float *scale)
{
    const struct gpt_megatron_output *p = t->data;
    const cJSON *there =
        cJSON_GetObjectItemCaseSensitive(t->source->state, GPT_RUN_LOSS_SCALE);
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(there, GPT_RUN_SCALE);

    if (p->optimizer == GPT_MEGATRON_NONE || p->dtype != GPT_F16 ||
        !cJSON_IsNumber(value))
        return false;
    *scale = (float)value->valuedouble;
    return true;
}

/* The scale is a tensor, after all others of the file. */
static void put_scaler(struct gpt_pickle_out *o, const struct gpt_target *t,
                       const struct gpt_megatron_rank_plan *r)
{
    const struct gpt_megatron_output *p = t->data;
    const cJSON *there =
        cJSON_GetObjectItemCaseSensitive(t->source->state, GPT_RUN_LOSS_SCALE);
    const int64_t one = 1;
    float scale;

    if (!gpt_megatron_scale(t, &scale))
        return;
    /* Megatron-LM's names of the same three numbers */
    gpt_pickle_put_string(o, "grad_scaler");
    gpt_pickle_put_dict(o);
    gpt_pickle_put_string(o, "scale");
    (void)gpt_pickle_put_tensor(o, p->n_blocks * r->n, GPT_F32, 1, &one);
    gpt_pickle_put_key_int(o, "growth_tracker",
                           (int64_t)state_real(there, GPT_RUN_SCALE_GOOD, 0));
    gpt_pickle_put_key_int(o, "hysteresis_tracker",
                           (int64_t)state_real(there, GPT_RUN_SCALE_LEFT, 1));
    gpt_pickle_end_dict(o);
}

/* An optimizer of fp32 weights is PyTorch's own dict; the others wrap it. */
static int put_chain(struct gpt_pickle_out *o, const struct gpt_target *t,
                     const struct gpt_megatron_rank_plan *r, int chain,
                     struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    const bool plain = p->optimizer == GPT_MEGATRON_PLAIN;
    const bool wrapped = !plain || p->dtype != GPT_F32;

    gpt_pickle_put_dict(o);
    if (wrapped) {
        gpt_pickle_put_string(o, "optimizer");
        gpt_pickle_put_dict(o);
    }
    /* a distributed optimizer has these in its own file */
    if (plain)
        GPT_TRY(put_moments(o, p, r, chain, err));
    put_groups(o, t, r, chain);
    if (wrapped) {
        gpt_pickle_end_dict(o);
        put_scaler(o, t, r);
        if (plain)
            GPT_TRY(put_masters(o, p, r, chain, err));
    }
    gpt_pickle_end_dict(o);
    return GPT_OK;
}

/* Optimizers in a chain are a list. */
static int put_optimizer(struct gpt_pickle_out *o, const struct gpt_target *t,
                         const struct gpt_megatron_rank_plan *r,
                         struct gpt_err *err)
{
    const int n = gpt_megatron_chains(t);

    gpt_pickle_put_string(o, "optimizer");
    if (n > 1)
        gpt_pickle_put_list(o);
    for (int chain = 0; chain < n; chain++)
        GPT_TRY(put_chain(o, t, r, chain, err));
    if (n > 1)
        gpt_pickle_end_list(o);
    return GPT_OK;
}

/* ---- the run ---- */

/* Megatron-LM reads the fields that it knows; those of the others say here what
 * they are, for the way back. */
static void put_schedule(struct gpt_pickle_out *o, const struct gpt_source *s)
{
    const cJSON *schedule =
        cJSON_GetObjectItemCaseSensitive(s->state, GPT_RUN_SCHEDULE);

    gpt_pickle_put_string(o, "opt_param_scheduler");
    gpt_pickle_put_dict(o);
    /* the place in the schedule; steps are samples in all of its fields */
    gpt_pickle_put_key_int(
        o, "num_steps",
        (int64_t)state_real(s->state, GPT_RUN_SCHEDULED_SAMPLES,
                            state_real(s->state, GPT_RUN_TRAIN_SAMPLES, 0)));
    for (const struct gpt_megatron_field *f = gpt_megatron_schedule; f->there;
         f++) {
        const double value = state_real(schedule, f->here, 0);

        /* counts of samples are integers there; other numbers are not */
        if (value == (double)(int64_t)value && strstr(f->there, "steps"))
            gpt_pickle_put_key_int(o, f->there, (int64_t)value);
        else
            gpt_pickle_put_key_real(o, f->there, value);
    }
    for (const struct gpt_megatron_word *w = gpt_megatron_schedule_words;
         w->there; w++) {
        const cJSON *word = cJSON_GetObjectItemCaseSensitive(schedule, w->here);

        gpt_pickle_put_key_string(o, w->there,
                                  cJSON_IsString(word) ? word->valuestring
                                                       : w->absent);
    }
    gpt_pickle_end_dict(o);
}

/* All that a native run has beside tensors goes along as it is, so that the way
 * back ends where it began. */
static int put_run(struct gpt_pickle_out *o, const struct gpt_target *t,
                   const struct gpt_megatron_rank_plan *r, struct gpt_err *err)
{
    char *text;

    /* after the weights, as what a reader of weights alone does not need */
    GPT_TRY(put_optimizer(o, t, r, err));
    put_schedule(o, t->source);
    text = gpt_json_print(t->source->state, false);
    if (!text)
        return gpt_no_memory(err, "the state of a run");
    gpt_pickle_put_key_string(o, GPT_MEGATRON_RUN, text);
    cJSON_free(text);
    return GPT_OK;
}

/* Megatron-LM tells groups of parameters apart by is_decoupled_lr, too. */
void gpt_megatron_report_run(const struct gpt_target *t)
{
    const cJSON *schedule =
        cJSON_GetObjectItemCaseSensitive(t->source->state, GPT_RUN_SCHEDULE);

    if (state_real(schedule, "decoupled_lr", 0) > 0)
        gpt_warn("%s: has no groups of parameters with a decoupled learning "
                 "rate: Megatron-LM will train all of them at the common one",
                 t->path);
    gpt_info("%s: has no state of random number generators, as random numbers "
             "here follow from the seed: Megatron-LM resumes with its "
             "option no-load-rng",
             t->path);
}

/* Arguments are a Namespace, because Megatron-LM reads attributes; it is the
 * one class in the file that torch's restricted unpickler must be told to
 * allow. */
int gpt_megatron_put_model(struct gpt_pickle_out *o, const struct gpt_target *t,
                           int64_t rank, struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    const struct gpt_megatron_rank_plan *r = &p->ranks[rank];

    gpt_pickle_begin(o);
    gpt_pickle_put_dict(o);
    gpt_megatron_put_args(
        o, t, rank,
        r->n ? gpt_megatron_cut_dtype(p, &p->blocks[0], &r->cuts[0]) : GPT_F32);
    /* the version of the order in the fused matrix; the last one there is */
    gpt_pickle_put_key_real(o, "checkpoint_version", 3.0);
    gpt_pickle_put_key_int(o, "iteration", t->source->iteration);
    gpt_pickle_put_key_int(o, "num_floating_point_operations_so_far", 0);
    GPT_TRY(put_chunks(o, p, r, err));
    if (p->optimizer != GPT_MEGATRON_NONE)
        GPT_TRY(put_run(o, t, r, err));
    gpt_pickle_end_dict(o);
    return gpt_pickle_end(o, err);
}

/* A pair of types as the key of a buffer: parameters', gradients'. */
static void put_types(struct gpt_pickle_out *o, enum gpt_dtype dtype)
{
    gpt_pickle_put_tuple(o);
    gpt_pickle_put_global(o, "torch",
                          dtype == GPT_BF16  ? "bfloat16"
                          : dtype == GPT_F16 ? "float16"
                                             : "float32");
    gpt_pickle_put_global(o, "torch", "float32");
    gpt_pickle_end_tuple(o);
}

/* The dict of an optimizer: one buffer a chunk. *storage: of the first. */
static void put_buffers(struct gpt_pickle_out *o,
                        const struct gpt_megatron_output *p,
                        const struct gpt_megatron_rank_plan *r, int chain,
                        int64_t *storage)
{
    gpt_pickle_put_dict(o);
    gpt_pickle_put_key_bool(o, "buckets_coalesced", true);
    for (int64_t v = 0; v < p->chunks; v++) {
        if (r->elements[chain][v] == 0)
            continue;
        gpt_pickle_put_int(o, v);
        gpt_pickle_put_dict(o);
        put_types(o, p->dtype);
        gpt_pickle_put_dict(o);
        for (int k = 0; k < p->n_shards; k++) {
            gpt_pickle_put_string(o, p->shards[k].key);
            (void)gpt_pickle_put_tensor(o, (*storage)++, GPT_F32, 1,
                                        &r->elements[chain][v]);
        }
        gpt_pickle_put_key_int(o, "numel_unpadded", r->elements[chain][v]);
        gpt_pickle_end_dict(o);
        gpt_pickle_end_dict(o);
    }
    gpt_pickle_end_dict(o);
}

/* distrib_optim.pt since 2024. Of a chain each rank of experts has those of its
 * own, and one of them what all of them have. */
int gpt_megatron_put_shards(struct gpt_pickle_out *o,
                            const struct gpt_target *t, int64_t rank,
                            struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    const struct gpt_megatron_rank_plan *r = &p->ranks[rank];
    const int chains = gpt_megatron_chains(t);
    int64_t storage = 0;

    gpt_pickle_begin(o);
    if (chains > 1)
        gpt_pickle_put_list(o);
    for (int chain = 0; chain < chains; chain++)
        if (chain == 0 && !r->gives)
            gpt_pickle_put_none(o);
        else
            put_buffers(o, p, r, chain, &storage);
    if (chains > 1)
        gpt_pickle_end_list(o);
    return gpt_pickle_end(o, err);
}
