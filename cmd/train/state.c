/* Where a run stood, and loading it; see state.h. Read gpt_state_load() at the
 * end; saving is in saver.c. */
#include "cmd/train/state.h"

#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "checkpoint/native.h"
#include "tokenizer/tokenizer_options.h"
#include "cmd/train/lr_schedule_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNT ((int64_t)1 << 53)

/* ---- saving ---- */

static cJSON *scale_to_json(const struct gpt_loss_scale *s)
{
    cJSON *json = cJSON_CreateObject();

    cJSON_AddNumberToObject(json, "scale", (double)s->scale);
    cJSON_AddNumberToObject(json, "good", (double)s->good);
    cJSON_AddNumberToObject(json, "left", (double)s->left);
    return json;
}

cJSON *gpt_state_to_json(const struct gpt_replica *r,
                         const struct gpt_train_state *state,
                         const struct gpt_state_context *c)
{
    char digest[24];
    struct gpt_tokenizer_options tokenizer = c->options->tokenizer;
    cJSON *json = cJSON_CreateObject();

    snprintf(digest, sizeof(digest), "%016" PRIx64, c->corpus_digest);
    cJSON_AddNumberToObject(json, "iteration", (double)state->iteration);
    cJSON_AddNumberToObject(json, "consumed_train_samples",
                            (double)state->consumed_train);
    cJSON_AddNumberToObject(json, "scheduled_train_samples",
                            (double)state->scheduled);
    cJSON_AddNumberToObject(json, "consumed_valid_samples",
                            (double)state->consumed_valid);
    cJSON_AddNumberToObject(json, "optimizer_step", (double)r->optimizer->step);
    cJSON_AddNumberToObject(json, "seed", (double)r->o.seed);
    cJSON_AddNumberToObject(json, "seq_length", (double)r->o.seq_length);
    cJSON_AddStringToObject(json, "corpus_digest", digest);
    if (r->o.loss_scale.initial > 0)
        cJSON_AddItemToObject(json, "loss_scale", scale_to_json(&r->scale));
    tokenizer.vocab_size = c->options->vocab_size;
    if (gpt_tokenizer_named(&tokenizer))
        cJSON_AddItemToObject(json, "tokenizer",
                              gpt_tokenizer_to_json(&tokenizer));
    cJSON_AddItemToObject(json, "schedule",
                          gpt_lr_schedule_to_json(&c->plan->schedule));
    cJSON_AddStringToObject(json, "options", c->option_text);
    return json;
}

bool gpt_state_peers(struct gpt_agreement *peers, const struct gpt_world *w,
                     const char *name)
{
    if (!w || w->topology.world_size == 1)
        return false;
    *peers = (struct gpt_agreement){
        .store = w->store,
        .name = name,
        .rank = w->topology.rank,
        .size = w->topology.world_size,
        .timeout = w->timeout,
    };
    return true;
}

bool gpt_state_compact(const struct gpt_replica *r, enum gpt_kind kind)
{
    return kind != GPT_KIND_PARAMETERS || gpt_replica_compact(r);
}

bool gpt_state_exists(const char *dir)
{
    char path[GPT_PATH_BYTES];

    return gpt_path_join(path, sizeof(path), dir,
                         "latest_checkpointed_iteration.txt", NULL) == GPT_OK &&
           gpt_path_exists(path);
}

/* ---- loading ---- */

static int read_part(struct gpt_replica *r, struct gpt_checkpoint *ck,
                     const struct gpt_owned_box *p, const char *prefix,
                     float *device, float *host, struct gpt_err *err)
{
    const struct gpt_param *param = p->slice->param;
    char name[GPT_PARAM_NAME + 32];
    struct gpt_tensor_slice info, want = {
                                      .name = name,
                                      .dtype = GPT_F32,
                                      .ndim = param->ndim,
                                  };
    int64_t count = 1;

    snprintf(name, sizeof(name), "%s%s", prefix, param->name);
    for (int d = 0; d < param->ndim; d++) {
        want.begin[d] = p->begin[d];
        want.shape[d] = p->shape[d];
    }
    /* dummy rows may be more or fewer: those missing keep their values */
    if (param->vocab_rows && gpt_checkpoint_has(ck, name, &info))
        want.shape[0] = gpt_max_i64(
            0, gpt_min_i64(want.shape[0], info.global[0] - want.begin[0]));
    for (int d = 0; d < param->ndim; d++)
        count *= want.shape[d];
    if (count == 0)
        return GPT_OK;
    GPT_TRY(gpt_checkpoint_read(ck, &want, host, err));
    r->be->copy_in(r->q, device + p->at, host, (size_t)count * sizeof(*host));
    return r->be->sync(r->q, err);
}

static int read_kind(struct gpt_replica *r, struct gpt_checkpoint *ck,
                     enum gpt_kind kind, float *device, struct gpt_err *err)
{
    struct gpt_ownership parts;
    int64_t largest = 0;
    float *host = NULL;

    GPT_TRY(gpt_ownership_build(&parts, &r->flat, gpt_state_compact(r, kind),
                                NULL, err));
    for (size_t i = 0; i < parts.n; i++)
        largest = gpt_max_i64(largest, parts.items[i].count);
    int status =
        gpt_new(&host, (size_t)largest, sizeof(*host), "loading", err);
    for (size_t i = 0; i < parts.n && status == GPT_OK; i++)
        status = read_part(r, ck, &parts.items[i], gpt_kind_prefix(kind),
                           device, host, err);
    gpt_free(host);
    gpt_ownership_free(&parts);
    return status;
}

static int check_model(const struct gpt_replica *r,
                       const struct gpt_checkpoint *ck, struct gpt_err *err)
{
    const struct gpt_config *there = gpt_checkpoint_config(ck);
    const char *field = gpt_config_difference(&r->o.config, there);
    char *here_text, *there_text;

    if (!field)
        return GPT_OK;
    cJSON *a = gpt_config_to_json(&r->o.config), *b = gpt_config_to_json(there);
    here_text =
        cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(a, field));
    there_text =
        cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(b, field));
    gpt_fail(err, GPT_EUSAGE, "%s: its model has %s %s, the options say %s",
             gpt_checkpoint_dir(ck), field, there_text ? there_text : "?",
             here_text ? here_text : "?");
    cJSON_free(here_text);
    cJSON_free(there_text);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return GPT_EUSAGE;
}

static int read_position(struct gpt_replica *r, struct gpt_train_state *state,
                         const struct gpt_state_context *c, const cJSON *json,
                         const char *what, struct gpt_err *err)
{
    const char *digest;
    char here[24];
    int64_t seed;

    GPT_TRY(gpt_json_int(json, "iteration", 0, MAX_COUNT, &state->iteration,
                         what, err));
    GPT_TRY(gpt_json_int(json, "consumed_train_samples", 0, MAX_COUNT,
                         &state->consumed_train, what, err));
    GPT_TRY(gpt_json_int_or(json, "scheduled_train_samples",
                            state->consumed_train, 0, state->consumed_train,
                            &state->scheduled, what, err));
    GPT_TRY(gpt_json_int(json, "consumed_valid_samples", 0, MAX_COUNT,
                         &state->consumed_valid, what, err));
    GPT_TRY(gpt_json_int(json, "seed", 0, MAX_COUNT, &seed, what, err));
    GPT_TRY(gpt_json_string(json, "corpus_digest", &digest, what, err));
    if (seed != (int64_t)r->o.seed)
        gpt_warn("%s: its run had --seed %lld, this one %lld: dropout and "
                 "data order change",
                 what, (long long)seed, (long long)r->o.seed);
    snprintf(here, sizeof(here), "%016" PRIx64, c->corpus_digest);
    if (strcmp(here, digest) != 0)
        gpt_warn("%s: its run had other data, or other data options "
                 "(digest %s, now %s): samples may repeat or be left out",
                 what, digest, here);
    return GPT_OK;
}

/* A run that had no loss scale, or a constant one, starts with a new one. */
static int read_scale(struct gpt_loss_scale *s, const cJSON *json,
                      const char *what, struct gpt_err *err)
{
    const cJSON *scale = cJSON_GetObjectItemCaseSensitive(json, "loss_scale");
    double value;

    if (!scale || s->o.initial <= 0 || s->o.constant)
        return GPT_OK;
    GPT_TRY(gpt_json_real_or(scale, "scale", s->o.initial, &value, what, err));
    if (!(value >= s->o.min) || value > 0x1p126)
        return gpt_fail(err, GPT_EDATA,
                        "%s: loss scale %g is not in %g..2^126", what, value,
                        s->o.min);
    GPT_TRY(gpt_json_int(scale, "good", 0, MAX_COUNT, &s->good, what, err));
    GPT_TRY(gpt_json_int(scale, "left", -MAX_COUNT, MAX_COUNT, &s->left, what,
                         err));
    s->scale = (float)value;
    return GPT_OK;
}

static int read_optimizer(struct gpt_replica *r, struct gpt_checkpoint *ck,
                          const cJSON *json, const char *what,
                          struct gpt_err *err)
{
    char first[GPT_PARAM_NAME + 32];

    snprintf(first, sizeof(first), "optimizer.exp_avg.%s",
             r->flat.slices[0].param->name);
    if (!gpt_checkpoint_has(ck, first, NULL)) {
        gpt_fail(err, GPT_EDATA, "%s: holds no optimizer state", what);
        return gpt_hint(err, "--no-load-optim starts with an empty one");
    }
    GPT_TRY(gpt_json_int(json, "optimizer_step", 0, MAX_COUNT,
                         &r->optimizer->step, what, err));
    GPT_TRY(read_scale(&r->scale, json, what, err));
    GPT_TRY(read_kind(r, ck, GPT_KIND_EXP_AVG, r->optimizer->exp_avg, err));
    return read_kind(r, ck, GPT_KIND_EXP_AVG_SQ, r->optimizer->exp_avg_sq,
                     err);
}

static int load_open(struct gpt_replica *r, struct gpt_checkpoint *ck,
                     struct gpt_train_state *state,
                     const struct gpt_state_context *c,
                     struct gpt_lr_schedule *schedule, struct gpt_err *err)
{
    const struct gpt_train_options *o = c->options;
    const char *what = gpt_checkpoint_dir(ck);
    const cJSON *json = gpt_checkpoint_state(ck);
    struct gpt_lr_schedule there;

    GPT_TRY(check_model(r, ck, err));
    if (r->o.config.padded_vocab_size !=
        gpt_checkpoint_config(ck)->padded_vocab_size)
        GPT_TRY(gpt_replica_init(r, err));
    GPT_TRY(read_kind(r, ck, GPT_KIND_PARAMETERS, r->params, err));
    if (o->finetune)
        return GPT_OK;
    if (cJSON_GetObjectItemCaseSensitive(json, "converted_from")) {
        gpt_fail(err, GPT_EUSAGE,
                 "%s: converted from another format: it holds weights, and no "
                 "run to go on with", what);
        return gpt_hint(err, "--finetune starts a run from these weights");
    }
    GPT_TRY(read_position(r, state, c, json, what, err));
    if (!o->override_scheduler) {
        GPT_TRY(gpt_lr_schedule_from_json(&there, json, what, err));
        if (o->use_checkpoint_scheduler)
            *schedule = there;
        else
            GPT_TRY(gpt_lr_schedule_compare(schedule, &there, what, err));
    }
    if (o->no_load_optim)
        return GPT_OK;
    return read_optimizer(r, ck, json, what, err);
}

static int load_all(struct gpt_replica *r, struct gpt_train_state *state,
                    const struct gpt_state_context *c,
                    struct gpt_lr_schedule *schedule, struct gpt_agreement *all,
                    struct gpt_err *err)
{
    struct gpt_checkpoint *ck;

    GPT_TRY(gpt_checkpoint_open_all(&ck, c->options->load, -1, true, all, err));
    int status = load_open(r, ck, state, c, schedule, err);
    status = gpt_agreement_meet(all, status, "", NULL, err);
    if (status == GPT_OK)
        status = gpt_replica_refresh(r, err);
    if (status == GPT_OK)
        gpt_log_line(" loaded checkpoint %s at iteration %lld",
                     gpt_checkpoint_dir(ck), (long long)state->iteration);
    gpt_checkpoint_close(ck);
    return status;
}

int gpt_state_load(struct gpt_replica *r, struct gpt_train_state *state,
                   const struct gpt_state_context *c,
                   struct gpt_lr_schedule *schedule, struct gpt_err *err)
{
    struct gpt_agreement peers, *all = NULL;

    if (gpt_state_peers(&peers, r->o.world, "load"))
        all = &peers;
    GPT_TRY(gpt_agreement_begin(all, err));
    int status = load_all(r, state, c, schedule, all, err);
    gpt_agreement_end(all);
    return status;
}
