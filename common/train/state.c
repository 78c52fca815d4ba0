/* Checkpoints of a run; see state.h. Read gpt_state_save() and
 * gpt_state_load() at the end. */
#include "train/state.h"

#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "checkpoint/native.h"
#include "train/schedule_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNT ((int64_t)1 << 53)

/* ---- saving ---- */

/* Slices of one flat buffer, named PREFIX + name; returns how many. */
static int64_t describe(const struct gpt_replica *r, const float *data,
                        const char *prefix, struct gpt_arena *arena,
                        struct gpt_tensor_slice *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];
        struct gpt_tensor_slice *t = &out[n];
        if (s->copy)
            continue;
        *t = (struct gpt_tensor_slice){
            .name = gpt_arena_printf(arena, "%s%s", prefix, s->param->name),
            .dtype = GPT_F32,
            .ndim = s->param->ndim,
            .data = data + s->offset,
        };
        for (int d = 0; d < s->param->ndim; d++) {
            t->global[d] = s->param->shape[d];
            t->begin[d] = s->begin[d];
            t->shape[d] = s->shape[d];
        }
        if (!t->name)
            return -1;
        n++;
    }
    return n;
}

/* A flat buffer that the host can read: itself, or a copy in *staged. */
static int host_view(struct gpt_replica *r, const float *device, float **staged,
                     const float **view, struct gpt_err *err)
{
    *staged = NULL;
    *view = device;
    if (r->be->host_memory)
        return r->be->sync(r->q, err);
    GPT_TRY(gpt_new(staged, (size_t)r->flat.elements, sizeof **staged,
                    "a checkpoint's copy of the device's memory", err));
    r->be->copy_out(r->q, *staged, device,
                    (size_t)r->flat.elements * sizeof **staged);
    *view = *staged;
    return r->be->sync(r->q, err);
}

static int write_file(struct gpt_replica *r, struct gpt_checkpoint_writer *w,
                      const char *what, const char *prefix, const float *device,
                      struct gpt_err *err)
{
    struct gpt_arena arena = {.chunks = NULL};
    struct gpt_tensor_slice *slices = NULL;
    float *staged = NULL;
    const float *data;
    char name[64];
    int64_t n;
    int status;

    GPT_TRY_GOTO(status, host_view(r, device, &staged, &data, err), out);
    GPT_TRY_GOTO(status,
                 gpt_new(&slices, (size_t)r->flat.n, sizeof *slices,
                         "a checkpoint", err),
                 out);
    n = describe(r, data, prefix, &arena, slices);
    if (n < 0) {
        status = gpt_fail(err, GPT_EFAIL, "out of memory for a checkpoint");
        goto out;
    }
    snprintf(name, sizeof name, "%s_tp%02d_pp%02d.safetensors", what,
             (int)r->o.layout.tp_rank, (int)r->o.layout.pp_rank);
    status = gpt_checkpoint_write(w, name, slices, n, err);
out:
    gpt_free(slices);
    gpt_free(staged);
    gpt_arena_free(&arena);
    return status;
}

static const char *const moment_names[2] = {"exp_avg", "exp_avg_sq"};

static int write_files(struct gpt_replica *r, struct gpt_checkpoint_writer *w,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    const float *moments[2] = {r->optimizer->exp_avg, r->optimizer->exp_avg_sq};

    GPT_TRY(write_file(r, w, "model", "", r->params, err));
    for (int i = 0; i < 2 && !o->no_save_optim; i++) {
        char what[32], prefix[32];
        snprintf(what, sizeof what, "optimizer_%s", moment_names[i]);
        snprintf(prefix, sizeof prefix, "optimizer.%s.", moment_names[i]);
        GPT_TRY(write_file(r, w, what, prefix, moments[i], err));
    }
    if (o->vocab_file)
        GPT_TRY(gpt_checkpoint_attach(w, "vocab.json", o->vocab_file, err));
    if (o->merge_file)
        GPT_TRY(gpt_checkpoint_attach(w, "merges.txt", o->merge_file, err));
    return GPT_OK;
}

static cJSON *state_to_json(const struct gpt_replica *r,
                            const struct gpt_train_state *state,
                            const struct gpt_state_context *c)
{
    char digest[24];
    bool bytes = strcmp(c->options->tokenizer_type, "ByteTokenizer") == 0;
    cJSON *json = cJSON_CreateObject();

    snprintf(digest, sizeof digest, "%016" PRIx64, c->corpus_digest);
    cJSON_AddNumberToObject(json, "iteration", (double)state->iteration);
    cJSON_AddNumberToObject(json, "consumed_train_samples",
                            (double)state->consumed_train);
    cJSON_AddNumberToObject(json, "consumed_valid_samples",
                            (double)state->consumed_valid);
    cJSON_AddNumberToObject(json, "optimizer_step", (double)r->optimizer->step);
    cJSON_AddNumberToObject(json, "seed", (double)r->o.seed);
    cJSON_AddNumberToObject(json, "seq_length", (double)r->o.seq_length);
    cJSON_AddStringToObject(json, "corpus_digest", digest);
    if (bytes || c->options->vocab_file)
        cJSON_AddStringToObject(json, "tokenizer_type",
                                c->options->tokenizer_type);
    cJSON_AddItemToObject(json, "schedule",
                          gpt_schedule_to_json(&c->plan->schedule));
    cJSON_AddStringToObject(json, "options", c->option_text);
    return json;
}

int gpt_state_save(struct gpt_replica *r, const struct gpt_train_state *state,
                   const struct gpt_state_context *c, struct gpt_err *err)
{
    const struct gpt_layout *layout = &r->o.layout;
    struct gpt_checkpoint_writer *w;
    cJSON *json;
    int status;

    /* FORCE: a damaged newer checkpoint may be in the way; that a run does not
     * write over another one's is checked when it starts. */
    GPT_TRY(gpt_checkpoint_create(&w, c->options->save, state->iteration,
                                  GPT_OUT_FORCE, err));
    status = write_files(r, w, c->options, err);
    if (status != GPT_OK) {
        gpt_checkpoint_abort(w);
        return status;
    }
    json = state_to_json(r, state, c);
    status = gpt_checkpoint_commit(w, &r->o.config, layout->tp_size,
                                   layout->pp_size, json, err);
    cJSON_Delete(json);
    GPT_TRY(status);
    return gpt_checkpoint_prune(c->options->save, c->options->keep_checkpoints,
                                err);
}

bool gpt_state_exists(const char *dir)
{
    char path[4096];
    return gpt_path_join(path, sizeof path, dir,
                         "latest_checkpointed_iteration.txt", NULL) == GPT_OK &&
           gpt_path_exists(path);
}

/* ---- loading ---- */

static int read_slice(struct gpt_replica *r, struct gpt_checkpoint *ck,
                      const struct gpt_slice *s, const char *prefix,
                      float *device, float *host, struct gpt_err *err)
{
    char name[GPT_PARAM_NAME + 32];
    struct gpt_tensor_slice info, want = {
                                      .name = name,
                                      .dtype = GPT_F32,
                                      .ndim = s->param->ndim,
                                  };
    int64_t count = 1;

    snprintf(name, sizeof name, "%s%s", prefix, s->param->name);
    for (int d = 0; d < s->param->ndim; d++) {
        want.begin[d] = s->begin[d];
        want.shape[d] = s->shape[d];
    }
    /* dummy rows may be more or fewer: those missing keep their values */
    if (s->param->vocab_rows && gpt_checkpoint_has(ck, name, &info))
        want.shape[0] = gpt_max_i64(
            0, gpt_min_i64(want.shape[0], info.global[0] - want.begin[0]));
    for (int d = 0; d < s->param->ndim; d++)
        count *= want.shape[d];
    if (count == 0)
        return GPT_OK;
    GPT_TRY(gpt_checkpoint_read(ck, &want, host, err));
    r->be->copy_in(r->q, device + s->offset, host,
                   (size_t)count * sizeof *host);
    return r->be->sync(r->q, err);
}

static int read_flat(struct gpt_replica *r, struct gpt_checkpoint *ck,
                     const char *prefix, float *device, struct gpt_err *err)
{
    int64_t largest = 0;
    float *host = NULL;
    int status = GPT_OK;

    for (int64_t i = 0; i < r->flat.n; i++)
        largest = gpt_max_i64(largest, r->flat.slices[i].count);
    GPT_TRY(gpt_new(&host, (size_t)largest, sizeof *host, "loading", err));
    for (int64_t i = 0; i < r->flat.n && status == GPT_OK; i++)
        status =
            read_slice(r, ck, &r->flat.slices[i], prefix, device, host, err);
    gpt_free(host);
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
    GPT_TRY(gpt_json_int(json, "consumed_valid_samples", 0, MAX_COUNT,
                         &state->consumed_valid, what, err));
    GPT_TRY(gpt_json_int(json, "seed", 0, MAX_COUNT, &seed, what, err));
    GPT_TRY(gpt_json_string(json, "corpus_digest", &digest, what, err));
    if (seed != (int64_t)r->o.seed)
        gpt_warn("%s: its run had --seed %lld, this one %lld: dropout and "
                 "data order change",
                 what, (long long)seed, (long long)r->o.seed);
    snprintf(here, sizeof here, "%016" PRIx64, c->corpus_digest);
    if (strcmp(here, digest) != 0)
        gpt_warn("%s: its run had other data, or other data options "
                 "(digest %s, now %s): samples may repeat or be left out",
                 what, digest, here);
    return GPT_OK;
}

static int read_optimizer(struct gpt_replica *r, struct gpt_checkpoint *ck,
                          const cJSON *json, const char *what,
                          struct gpt_err *err)
{
    char first[GPT_PARAM_NAME + 32];

    snprintf(first, sizeof first, "optimizer.exp_avg.%s",
             r->flat.slices[0].param->name);
    if (!gpt_checkpoint_has(ck, first, NULL)) {
        gpt_fail(err, GPT_EDATA, "%s: holds no optimizer state", what);
        return gpt_hint(err, "--no-load-optim starts with an empty one");
    }
    GPT_TRY(gpt_json_int(json, "optimizer_step", 0, MAX_COUNT,
                         &r->optimizer->step, what, err));
    GPT_TRY(read_flat(r, ck, "optimizer.exp_avg.", r->optimizer->exp_avg, err));
    return read_flat(r, ck, "optimizer.exp_avg_sq.", r->optimizer->exp_avg_sq,
                     err);
}

static int load_open(struct gpt_replica *r, struct gpt_checkpoint *ck,
                     struct gpt_train_state *state,
                     const struct gpt_state_context *c,
                     struct gpt_schedule *schedule, struct gpt_err *err)
{
    const struct gpt_train_options *o = c->options;
    const char *what = gpt_checkpoint_dir(ck);
    const cJSON *json = gpt_checkpoint_state(ck);
    struct gpt_schedule there;

    GPT_TRY(check_model(r, ck, err));
    if (r->o.config.padded_vocab_size !=
        gpt_checkpoint_config(ck)->padded_vocab_size)
        GPT_TRY(gpt_replica_init(r, err));
    GPT_TRY(read_flat(r, ck, "", r->params, err));
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
        GPT_TRY(gpt_schedule_from_json(&there, json, what, err));
        if (o->use_checkpoint_scheduler)
            *schedule = there;
        else
            GPT_TRY(gpt_schedule_compare(schedule, &there, what, err));
    }
    if (o->no_load_optim)
        return GPT_OK;
    return read_optimizer(r, ck, json, what, err);
}

int gpt_state_load(struct gpt_replica *r, struct gpt_train_state *state,
                   const struct gpt_state_context *c,
                   struct gpt_schedule *schedule, struct gpt_err *err)
{
    struct gpt_checkpoint *ck;
    int status;

    GPT_TRY(gpt_checkpoint_open(&ck, c->options->load, -1, true, err));
    status = load_open(r, ck, state, c, schedule, err);
    if (status == GPT_OK)
        gpt_log_line(" loaded checkpoint %s at iteration %lld",
                     gpt_checkpoint_dir(ck), (long long)state->iteration);
    gpt_checkpoint_close(ck);
    return status;
}
