/* The position of a run, and loading it; see state.h. Read gpt_state_load() at
 * the end; saving is in saver.c. A checkpoint is a source of any format. One
 * that holds weights only, with no state or converted from another format,
 * begins a run and cannot resume one. */
#include "cmd/train/state.h"

#include "base/log.h"
#include "checkpoint/load.h"
#include "checkpoint/run_state.h"
#include "cmd/train/changes.h"
#include "cmd/train/load_checks.h"
#include "tokenizer/tokenizer_options.h"
#include "cmd/train/lr_schedule_json.h"
#include "cmd/train/vocabulary.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- saving ---- */

/* JSON has integers up to GPT_JSON_EXACT. The digest has 64 bits, so it is a
 * string. A loss scale has its counters along: a resumed run grows or halves it
 * at the same step as one that was not stopped. */
cJSON *gpt_state_to_json(const struct gpt_replica *r,
                         const struct gpt_train_state *state,
                         const struct gpt_state_context *c)
{
    char digest[24], sets[24];
    struct gpt_tokenizer_options tokenizer = c->options->tokenizer;
    cJSON *json = cJSON_CreateObject();

    snprintf(digest, sizeof(digest), "%016" PRIx64, c->corpus_digest);
    snprintf(sets, sizeof(sets), "%016" PRIx64, c->corpus_sets_digest);
    cJSON_AddNumberToObject(json, GPT_RUN_ITERATION, (double)state->iteration);
    cJSON_AddNumberToObject(json, GPT_RUN_TRAIN_SAMPLES,
                            (double)state->consumed_train);
    cJSON_AddNumberToObject(json, GPT_RUN_SCHEDULED_SAMPLES,
                            (double)state->scheduled);
    cJSON_AddNumberToObject(json, GPT_RUN_VALID_SAMPLES,
                            (double)state->consumed_valid);
    cJSON_AddNumberToObject(json, "restarts", (double)state->restarts);
    cJSON_AddStringToObject(json, GPT_RUN_OPTIMIZER,
                            gpt_optimizer_names[r->o.optimizer.kind]);
    cJSON_AddNumberToObject(json, GPT_RUN_OPTIMIZER_STEP,
                            (double)*gpt_optimizer_updates(r->optimizer));
    cJSON_AddStringToObject(json, GPT_RUN_PRECISION,
                            gpt_dtype_name(r->o.exec.act));
    cJSON_AddNumberToObject(json, GPT_RUN_SEED, (double)r->o.exec.seed);
    cJSON_AddNumberToObject(json, GPT_RUN_SEQ_LENGTH,
                            (double)r->o.exec.seq_length);
    cJSON_AddNumberToObject(json, "global_batch_size",
                            (double)c->plan->rampup.global_batch);
    cJSON_AddStringToObject(json, GPT_RUN_CORPUS_DIGEST, digest);
    cJSON_AddStringToObject(json, "corpus_sets_digest", sets);
    if (r->o.loss_scale.initial > 0)
        gpt_run_state_put_scale(json, r->scale.scale, r->scale.good,
                                r->scale.left);
    if (state->best.iteration > 0 || state->best.waited > 0)
        gpt_json_add(json, "best", gpt_best_to_json(&state->best));
    tokenizer.vocab_size = c->options->vocab_size;
    if (gpt_tokenizer_named(&tokenizer))
        gpt_json_add(json, GPT_RUN_TOKENIZER,
                     gpt_tokenizer_to_json(&tokenizer));
    gpt_json_add(json, GPT_RUN_SCHEDULE,
                 gpt_lr_schedule_to_json(&c->plan->schedule));
    if (state->has_tokens)
        gpt_run_state_put_tokens(json, state->bos_token_id, state->eos_token_id,
                                 &state->ends);
    gpt_run_state_put_family(json, state->family);
    cJSON_AddStringToObject(json, "options", c->option_text);
    return json;
}

/* Names of keys differ between saving and loading, as a save in the background
 * may be under way when another agreement begins. */
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

/* Moments are always kept for this rank's shards alone; parameters are when
 * weights have another type. */
bool gpt_state_compact(const struct gpt_replica *r, enum gpt_kind kind)
{
    return kind != GPT_KIND_PARAMETERS || gpt_replica_compact(r);
}

/* ---- loading ---- */

/* Every rank reads what its own buffer of this kind holds, copies of tied
 * tables and values of other data parallel ranks as well: reading is not shared
 * out as writing is, since any rank can read any slice. */
static int read_kind(struct gpt_replica *r, const struct gpt_source *source,
                     enum gpt_kind kind, float *buffer, struct gpt_err *err)
{
    const struct gpt_load load = {
        .source = source,
        .be = r->be,
        .q = r->q,
        .buffer = buffer,
        .dtype = GPT_F32,
    };
    struct gpt_ownership boxes;

    int status;
    GPT_TRY(gpt_ownership_build(&boxes, &r->flat, gpt_state_compact(r, kind),
                                NULL, err));
    GPT_TRY_GOTO(
        status,
        gpt_optimizer_select(&r->o.optimizer, &r->flat, kind, &boxes, err),
        out);
    status = gpt_load_boxes(&load, kind, &boxes, err);
out:
    gpt_ownership_free(&boxes);
    return status;
}

/* Checkpoints of old programs have no scheduled samples; then all that were
 * consumed count. */
static int read_position(const struct gpt_replica *r,
                         struct gpt_train_state *state, const cJSON *json,
                         const char *what, struct gpt_err *err)
{
    const char *digest;
    int64_t seed;

    GPT_TRY(gpt_json_int(json, GPT_RUN_ITERATION, 0, GPT_JSON_EXACT,
                         &state->iteration, what, err));
    GPT_TRY(gpt_json_int(json, GPT_RUN_TRAIN_SAMPLES, 0, GPT_JSON_EXACT,
                         &state->consumed_train, what, err));
    GPT_TRY(gpt_json_int_or(json, GPT_RUN_SCHEDULED_SAMPLES,
                            state->consumed_train, 0, state->consumed_train,
                            &state->scheduled, what, err));
    GPT_TRY(gpt_json_int(json, GPT_RUN_VALID_SAMPLES, 0, GPT_JSON_EXACT,
                         &state->consumed_valid, what, err));
    GPT_TRY(gpt_best_from_json(&state->best, json, what, err));
    GPT_TRY(gpt_json_int_or(json, "restarts", 0, 0, GPT_JSON_EXACT - 1,
                            &state->restarts, what, err));
    state->restarts++; /* old programs did not count them */
    GPT_TRY(
        gpt_json_int(json, GPT_RUN_SEED, 0, GPT_JSON_EXACT, &seed, what, err));
    GPT_TRY(gpt_json_string(json, GPT_RUN_CORPUS_DIGEST, &digest, what, err));
    if (seed != (int64_t)r->o.exec.seed)
        gpt_warn("%s: its run had --seed %lld, this one %lld: dropout and "
                 "data order change",
                 what, (long long)seed, (long long)r->o.exec.seed);
    state->corpus_digest = strtoull(digest, NULL, 16);
    /* Old programs did not save it. What it is then equals no digest, and the
     * more general warning is given, as before. */
    const cJSON *sets =
        cJSON_GetObjectItemCaseSensitive(json, "corpus_sets_digest");
    state->corpus_sets_digest =
        cJSON_IsString(sets) ? strtoull(sets->valuestring, NULL, 16) : 0;
    return gpt_json_int_or(json, GPT_RUN_SEQ_LENGTH, r->o.exec.seq_length, 1,
                           GPT_JSON_EXACT, &state->seq_length, what, err);
}

/* A position in other data is a warning and not an error: continuing on new
 * data is a common wish. */
void gpt_state_compare_data(const struct gpt_train_state *state,
                            const struct gpt_state_context *c)
{
    const char *what = c->options->load;

    if (state->seq_length == 0 || state->corpus_digest == c->corpus_digest)
        return;
    if (state->seq_length != c->options->seq_length)
        gpt_warn("%s: its run had --seq-length %lld, this one %lld: the data "
                 "are cut into other samples, of which %lld count as read; "
                 "text may repeat or be left out",
                 what, (long long)state->seq_length,
                 (long long)c->options->seq_length,
                 (long long)state->consumed_train);
    /* Longer or shorter by whole epochs: the data are the same, but all
     * epochs of a run are shuffled together. */
    else if (state->corpus_sets_digest == c->corpus_sets_digest)
        gpt_warn("%s: its run had another length, and this one reads its data "
                 "in another number of epochs: their order is another one, of "
                 "which %lld samples count as read; text may repeat or be left "
                 "out",
                 what, (long long)state->consumed_train);
    else
        gpt_warn("%s: its run had other data, or other data options "
                 "(digest %016" PRIx64 ", now %016" PRIx64
                 "): samples may repeat or be left out",
                 what, state->corpus_digest, c->corpus_digest);
}

/* Another type is no error, as many runs begin in one and end in another; but
 * the losses before and after it do not compare to the last digits. Checkpoints
 * of old programs do not tell the type. */
static void report_precision(const struct gpt_replica *r, const cJSON *json,
                             const char *what)
{
    const char *here = gpt_dtype_name(r->o.exec.act);
    const cJSON *there =
        cJSON_GetObjectItemCaseSensitive(json, GPT_RUN_PRECISION);

    if (cJSON_IsString(there) && strcmp(there->valuestring, here) != 0)
        gpt_warn("%s: its run computed in %s, this one computes in %s; weights "
                 "and moments are loaded in F32",
                 what, there->valuestring, here);
}

/* A run that had no loss scale, or a constant one, starts with a new one. The
 * least scale may be a larger one than before. */
static int read_scale(struct gpt_loss_scale *s, const cJSON *json,
                      const char *what, struct gpt_err *err)
{
    const cJSON *scale =
        cJSON_GetObjectItemCaseSensitive(json, GPT_RUN_LOSS_SCALE);
    double value;

    if (!scale || s->o.initial <= 0 || s->o.constant)
        return GPT_OK;
    GPT_TRY(gpt_json_real_or(scale, GPT_RUN_SCALE, s->o.initial, &value, what,
                             err));
    if (!(value > 0) || value > 0x1p126)
        return gpt_fail(err, GPT_EDATA,
                        "%s: loss scale %g is not above 0 and at most 2^126",
                        what, value);
    GPT_TRY(gpt_json_int(scale, GPT_RUN_SCALE_GOOD, 0, GPT_JSON_EXACT, &s->good,
                         what, err));
    GPT_TRY(gpt_json_int(scale, GPT_RUN_SCALE_LEFT, -GPT_JSON_EXACT,
                         GPT_JSON_EXACT, &s->left, what, err));
    s->scale = (float)fmax(value, s->o.min);
    return GPT_OK;
}

/* Fails when the checkpoint has the states of another optimizer: moments are no
 * momentum, and a rule that began with the other's would make a wrong step.
 * Old programs knew one, and did not name it. */
static int check_optimizer(const struct gpt_replica *r, const cJSON *json,
                           const char *what, struct gpt_err *err)
{
    const cJSON *field =
        cJSON_GetObjectItemCaseSensitive(json, GPT_RUN_OPTIMIZER);
    const char *here = gpt_optimizer_names[r->o.optimizer.kind];
    const char *there = cJSON_IsString(field) ? field->valuestring
                                              : gpt_optimizer_names[GPT_ADAM];

    if (strcmp(here, there) == 0)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "%s: its run had --optimizer %s, this one has %s",
             what, there, here);
    return gpt_hint(err, "--no-load-optim takes the weights and starts with "
                         "an empty state");
}

/* The first state of a parameter tells whether the checkpoint has optimizer
 * state at all. One that has only some of it fails later, at the first state
 * that it lacks. */
static bool holds_state(const struct gpt_replica *r,
                        const struct gpt_source *source)
{
    bool kept = false;

    for (int k = GPT_KIND_PARAMETERS + 1; k < GPT_N_KINDS; k++)
        for (int64_t i = 0; i < r->flat.n; i++) {
            const struct gpt_param *p = r->flat.slices[i].param;
            char name[GPT_PARAM_NAME + 32];

            if (!gpt_optimizer_keeps(&r->o.optimizer, (enum gpt_kind)k, p))
                continue;
            kept = true;
            snprintf(name, sizeof(name), "%s%s",
                     gpt_kind_prefix((enum gpt_kind)k), p->name);
            if (gpt_source_find(source, name))
                return true;
            break;
        }
    return !kept; /* without momentum there is nothing to hold */
}

/* The kinds are those that the optimizer keeps: whatever it is, its states are
 * loaded in the order in which they were saved. */
static int read_optimizer(struct gpt_replica *r,
                          const struct gpt_source *source, struct gpt_err *err)
{
    GPT_TRY(check_optimizer(r, source->state, source->dir, err));
    if (!holds_state(r, source)) {
        gpt_fail(err, GPT_EDATA, "%s: holds no optimizer state", source->dir);
        return gpt_hint(err, "--no-load-optim starts with an empty one");
    }
    GPT_TRY(gpt_json_int(source->state, GPT_RUN_OPTIMIZER_STEP, 0,
                         GPT_JSON_EXACT, gpt_optimizer_updates(r->optimizer),
                         source->dir, err));
    GPT_TRY(read_scale(&r->scale, source->state, source->dir, err));
    for (int k = GPT_KIND_PARAMETERS + 1; k < GPT_N_KINDS; k++)
        if (gpt_optimizer_has(&r->o.optimizer, (enum gpt_kind)k, &r->flat))
            GPT_TRY(read_kind(
                r, source, (enum gpt_kind)k,
                gpt_optimizer_buffer(r->optimizer, (enum gpt_kind)k), err));
    return GPT_OK;
}

/* A run that is made longer or shorter has another schedule without a word
 * about schedules: that is what its user asks for, and is reported with the
 * rate before and after it. */
static void report_length(const struct gpt_lr_schedule *here,
                          const struct gpt_lr_schedule *there,
                          const struct gpt_train_state *state,
                          const char *what)
{
    if (gpt_lr_schedule_compare(here, there, what, NULL) == GPT_OK)
        return;
    gpt_log_line(" the run has another length than in %s: the learning rate "
                 "decays over %lld samples, not %lld",
                 what, (long long)here->decay_samples,
                 (long long)there->decay_samples);
    gpt_log_line("   the next step has %.6g, with "
                 "--use-checkpoint-opt-param-scheduler it has %.6g",
                 gpt_lr_schedule_value(here, state->scheduled),
                 gpt_lr_schedule_value(there, state->scheduled));
}

/* A schedule that differs from the checkpoint's by more than its length is an
 * error unless an option says which one counts: a learning rate that jumps
 * shows only in the loss, much later. */
static int settle_schedule(const struct gpt_source *source,
                           const struct gpt_train_state *state,
                           const struct gpt_state_context *c,
                           struct gpt_train_plan *plan, struct gpt_err *err)
{
    struct gpt_lr_schedule there;

    if (c->options->override_scheduler)
        return GPT_OK;
    if (!cJSON_GetObjectItemCaseSensitive(source->state, GPT_RUN_SCHEDULE)) {
        gpt_fail(err, GPT_EDATA, "%s: says nothing of its run's schedule",
                 source->dir);
        return gpt_hint(err, "--override-opt-param-scheduler takes the "
                             "schedule from the options");
    }
    GPT_TRY(gpt_lr_schedule_from_json(&there, source->state, source->dir, err));
    if (c->options->use_checkpoint_scheduler) {
        plan->schedule = there;
        return GPT_OK;
    }
    const struct gpt_lr_schedule expected =
        gpt_train_schedule_for(plan, &there);
    GPT_TRY(gpt_lr_schedule_compare(&expected, &there, source->dir, err));
    report_length(&plan->schedule, &there, state, source->dir);
    return GPT_OK;
}

static int read_run(struct gpt_replica *r, const struct gpt_source *source,
                    struct gpt_train_state *state,
                    const struct gpt_state_context *c,
                    struct gpt_train_plan *plan, struct gpt_err *err)
{
    GPT_TRY(read_position(r, state, source->state, source->dir, err));
    if (state->iteration > 0 && state->consumed_train == 0)
        state->consumed_train = state->scheduled =
            gpt_train_plan_samples(plan, state->iteration, source->dir);
    GPT_TRY(gpt_train_plan_rest(plan, state->iteration, state->consumed_train,
                                err));
    report_precision(r, source->state, source->dir);
    GPT_TRY(settle_schedule(source, state, c, plan, err));
    GPT_TRY(gpt_train_report_changes(source, c->option_text, plan, err));
    return c->options->no_load_optim ? GPT_OK : read_optimizer(r, source, err);
}

/* The options of gpt_source_open() for this run. */
static struct gpt_source_options source_options(const struct gpt_replica *r,
                                                const struct gpt_train_plan *p)
{
    return (struct gpt_source_options){
        .iteration = -1,
        .verify = true,
        .optimizer = !gpt_train_needs_weights_alone(p),
        .divisible_by = p->options->make_vocab_size_divisible_by,
        .tp_size = r->o.layout.size[GPT_TP],
    };
}

int gpt_state_check(const struct gpt_replica *r,
                    const struct gpt_train_plan *plan, struct gpt_err *err)
{
    struct gpt_source_options options = source_options(r, plan);
    struct gpt_source source;

    options.verify_later = true; /* by the run itself, which reads weights */
    GPT_TRY(gpt_source_open(&source, plan->options->load, &options, err));
    const int status = gpt_train_check_source(r, &source, plan, err);
    gpt_source_close(&source);
    return status;
}

/* Reads this rank's part. Every rank reads the state for itself, and all resume
 * at one place. What does not fit is reported before weights are read, which
 * may take minutes. */
static int read_source(struct gpt_replica *r, const struct gpt_source *source,
                       struct gpt_train_state *state,
                       const struct gpt_state_context *c,
                       struct gpt_train_plan *plan, struct gpt_err *err)
{
    const bool finetune = gpt_train_needs_weights_alone(c->plan);

    gpt_train_take_tokens(state, source, c->options, c->plan->masks.eod);
    GPT_TRY(gpt_train_check_source(r, source, c->plan, err));
    if (c->plan->evaluates)
        state->iteration = source->iteration;
    /* Dummy rows that the checkpoint lacks keep their initial values. Weights
     * are made of them in load_together(): another rank may have failed. */
    if (r->o.config.padded_vocab_size != source->config.padded_vocab_size)
        GPT_TRY(gpt_replica_init_values(r, err));
    GPT_TRY(read_kind(r, source, GPT_KIND_PARAMETERS, r->params, err));
    return finetune ? GPT_OK : read_run(r, source, state, c, plan, err);
}

/* Weights are gathered and cast anew when all ranks have read theirs. A rank
 * that failed has told the others in the agreement, so none enters a collective
 * alone. */
static int load_together(struct gpt_replica *r, struct gpt_train_state *state,
                         const struct gpt_state_context *c,
                         struct gpt_train_plan *plan,
                         struct gpt_agreement *all, struct gpt_err *err)
{
    struct gpt_source_options options = source_options(r, plan);
    struct gpt_source source;
    int status;

    options.peers = all;

    GPT_TRY(gpt_source_open(&source, c->options->load, &options, err));
    status = read_source(r, &source, state, c, plan, err);
    GPT_TRY_GOTO(status, gpt_agreement_settle(all, status, "", NULL, err), out);
    GPT_TRY_GOTO(status, gpt_replica_refresh(r, err), out);
    gpt_log_line(" loaded checkpoint %s at iteration %lld", source.dir,
                 (long long)state->iteration);
out:
    gpt_source_close(&source);
    return status;
}

/* Ranks agree through the store while they load: files may be slow, and a rank
 * that reads for minutes is alive, while one that fails must be named by the
 * others. */
int gpt_state_load(struct gpt_replica *r, struct gpt_train_state *state,
                   const struct gpt_state_context *c,
                   struct gpt_train_plan *plan, struct gpt_err *err)
{
    struct gpt_agreement peers, *all = NULL;

    if (gpt_state_peers(&peers, r->o.world, "load"))
        all = &peers;
    GPT_TRY(gpt_agreement_begin(all, err));
    int status = load_together(r, state, c, plan, all, err);
    gpt_agreement_end(all);
    return status;
}
