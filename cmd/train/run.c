/* From options to a run that is ready for its first step, and its end. Start at
 * gpt_run_open(): run_parts.h has the parts that it calls. */
#include "cmd/train/run_parts.h"

#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/lock.h"
#include "checkpoint/source.h"
#include "cmd/train/checkpoint_args.h"
#include "cmd/train/effects.h"
#include "cmd/train/estimate.h"
#include "cmd/train/settle.h"
#include "cmd/train/simulate.h"
#include "cmd/train/split_paths.h"

#include <inttypes.h>
#include <stdio.h>

int64_t gpt_run_samples(const struct gpt_run *r)
{
    return r->plan.micro_samples;
}

/* A first start with --load of an empty --save has no checkpoint: the model is
 * the one of the options then. */
static int take_checkpoint_args(struct gpt_run *r, struct gpt_buf *b,
                                struct gpt_err *err)
{
    const struct gpt_train_options *o = &r->own_options;
    const struct gpt_source_options newest = {.iteration = -1};
    bool exists;

    if (!o->use_checkpoint_args)
        return GPT_OK;
    if (!o->load)
        return gpt_fail(err, GPT_EUSAGE, "--use-checkpoint-args needs --load");
    GPT_TRY(gpt_source_exists(&exists, o->load, err));
    if (!exists && gpt_run_resumes_own(o))
        return GPT_OK;
    GPT_TRY(gpt_source_open(&r->peeked, o->load, &newest, err));
    return gpt_train_take_args(&r->own_options, &r->args, &r->peeked, &r->arena,
                               b, err);
}

/* Compares lines over all ranks, and frees them. `status`: how they were made.
 * A rank without any compares as well, or the others would wait for it. */
static int compare_lines(struct gpt_run *r, const char *what,
                         struct gpt_buf *lines, int status, struct gpt_err *err)
{
    status = status == GPT_OK
                 ? gpt_world_agree(r->world, what,
                                   lines->data ? lines->data : "none\n", err)
                 : gpt_no_memory(err, what);
    gpt_buf_free(lines);
    return status;
}

/* Ranks whose options differ would train a model that no command describes. The
 * comparison comes before memory is allocated and files are touched. Options
 * that concern one rank alone are left out, as are the paths of data, of rules
 * of the loss, of sets, tasks and prompts, which may lie elsewhere on another
 * machine: digests compare what was found there. */
static int compare_ranks(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_buf options = {0}, loss = {0}, read = {0};
    char data[256] = "none\n";

    int status = gpt_options_lines(&r->args, r->o, GPT_LINES_SHARED,
                                   &options);
    GPT_TRY(compare_lines(r, "options", &options, status, err));
    status = gpt_loss_digest(r->loss, &loss);
    GPT_TRY(compare_lines(r, "loss", &loss, status, err));
    status = gpt_evaluator_digest(r->evaluator, &read);
    GPT_TRY(compare_lines(r, "evaluation", &read, status, err));
    if (r->corpus)
        snprintf(data, sizeof(data),
                 "digest = %016" PRIx64 "\nvocabulary size = %lld\n"
                 "end of document = %d\nvalidation samples = %lld\n"
                 "test samples = %lld\n",
                 r->context.corpus_digest,
                 (long long)r->plan.replica.config.vocab_size,
                 r->plan.masks.eod,
                 (long long)gpt_corpus_size(r->corpus, GPT_VALID),
                 (long long)gpt_corpus_size(r->corpus, GPT_TEST));
    return gpt_world_agree(r->world, "data set", data, err);
}

/* Loaded, or initial; where they come from is the same for all. The comparison
 * at the end finds ranks that have read different checkpoints, from directories
 * that are not shared or not in step. */
static int fill_replica(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    char text[96];
    bool exists;

    if (!o->load)
        return gpt_replica_init(r->replica, err);
    GPT_TRY(gpt_source_exists(&exists, o->load, err));
    /* loading and beginning anew are collective, and not the same: a rank that
     * took the other one would be waited for */
    snprintf(text, sizeof(text), "there is one = %s\n", exists ? "yes" : "no");
    GPT_TRY(gpt_world_agree(r->world, "checkpoint to load", text, err));
    GPT_TRY(gpt_run_has_to_load(o, &exists, err));
    if (!exists) {
        gpt_log_line(" no checkpoint in %s yet: starting from random weights",
                     o->load);
        GPT_TRY(gpt_replica_init(r->replica, err));
    } else {
        GPT_TRY(gpt_state_load(r->replica, &r->state, &r->context, &r->plan,
                               err));
    }
    snprintf(text, sizeof(text), "iteration = %lld\nsamples = %lld\n",
             (long long)r->state.iteration, (long long)r->state.consumed_train);
    return gpt_world_agree(r->world, "checkpoint", text, err);
}

/* The saver comes after the weights are there: what the checkpoint says of this
 * run's iterations decides which of --save it may delete. */
static int open_replica(struct gpt_run *r, const struct gpt_memory *memory,
                        struct gpt_err *err)
{
    const int64_t planned = r->plan.train_iters;

    GPT_TRY(gpt_run_allocate(r, memory, err));
    r->context.options = r->o;
    r->context.plan = &r->plan;
    if (gpt_options_print(r->args.program, r->o, &r->args, &r->option_text))
        return gpt_no_memory(err, "the options that checkpoints keep");
    r->context.option_text = r->option_text.data;
    GPT_TRY(fill_replica(r, err));
    GPT_TRY(gpt_run_fit_rest(r, planned, err));
    r->saving = r->saved = r->state.iteration;
    r->context.own_until = gpt_run_own_iterations(r);
    if (gpt_run_is_first(r) && r->o->save && !r->plan.evaluates) {
        gpt_saver_mark_best(r->o, r->state.best.iteration);
        if (!r->replaces)
            gpt_saver_prune(r->o, r->state.iteration);
    }
    return r->o->save && !r->plan.evaluates
               ? gpt_saver_open(&r->saver, r->replica, &r->context, err)
               : GPT_OK;
}

/* Before anything is allocated: a plug-in's loss takes memory of the stage, and
 * what is wrong with a file is better said at once. */
static int open_loss(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_loss_options options = {
        .token_weights = r->o->token_loss_weights,
        .plugin = r->o->loss_plugin,
        .plugin_args = r->o->loss_plugin_args,
        .vocab_size = r->plan.replica.config.vocab_size,
    };

    /* the library knows no options: what they are is added here */
    const int status = gpt_loss_open(&r->loss, &options, err);
    if (status == GPT_EUSAGE && err && !err->hint[0])
        gpt_hint(err, "gpt_loss.h says what --loss-plugin takes, and "
                      "share/examples has two");
    GPT_TRY(status);
    /* from here on predictions of memory count what the stage needs for it */
    r->plan.replica.exec.token_loss = gpt_loss_of_tokens(r->loss);
    if (gpt_loss_name(r->loss) && gpt_run_is_first(r))
        gpt_log_line(" > loss: %s", gpt_loss_name(r->loss));
    return GPT_OK;
}

/* One warning, however many options it is about. */
static int report_effects(const struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_buf idle = {0};
    const int status = gpt_train_effects(&r->plan, &r->args, &idle, err);

    if (status == GPT_OK && idle.len > 0 && gpt_run_is_first(r))
        gpt_warn("without effect here: %s", idle.data);
    gpt_buf_free(&idle);
    return status;
}

/* A simulation needs the plan alone: no device is opened, no data are read. */
static int simulate(const struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_simulate_options options = {
        .svg = r->o->simulate_svg,
        .force = r->o->common.force,
    };
    struct gpt_buf text = {0};

    if (!gpt_run_is_first(r))
        return GPT_OK;
    GPT_TRY(gpt_simulate_parse(&options, r->o->simulate, err));
    int status = gpt_simulate(&r->plan, &options, &text, err);
    if (status == GPT_OK)
        status = gpt_write_file("-", 0, text.data, text.len, err);
    gpt_buf_free(&text);
    return status;
}

/* What the options of files and of a checkpoint changed is shown when it is
 * known which rank speaks. */
static int open_options(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_buf settled = {0}, taken = {0};
    int status;

    GPT_TRY_GOTO(status,
                 gpt_train_settle(&r->own_options, &r->args, &r->arena,
                                  &settled, err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_train_read_data_files(&r->own_options, &r->arena, err),
                 out);
    GPT_TRY_GOTO(status, take_checkpoint_args(r, &taken, err), out);
    if (r->o->eval_only) /* whatever the length of the training was */
        r->own_options.train_iters = r->own_options.train_samples =
            r->own_options.epochs = 0;
    GPT_TRY_GOTO(status, gpt_run_open_world(r, err), out);
    if (settled.len > 0)
        gpt_log_line(" > of configuration files: %s", settled.data);
    if (taken.len > 0)
        gpt_log_line(" > options taken from %s:%s", r->peeked.dir, taken.data);
out:
    gpt_buf_free(&settled);
    gpt_buf_free(&taken);
    return status;
}

int gpt_run_open(struct gpt_run *r, const struct gpt_train_options *options,
                 const struct gpt_args *given, struct gpt_err *err)
{
    struct gpt_memory memory;

    r->own_options = *options;
    r->o = &r->own_options;
    r->args = *given;
    /* A training outlives the reader of its messages; a plan has no other
     * use. */
    if (!r->o->dry_run && !r->o->simulate)
        gpt_signals_ignore_pipes();
    /* The order is from cheap to dear. What options can break is checked before
     * the device is opened, and the device before data are read; memory is
     * allocated when all ranks agree, and the report is opened last, as it cuts
     * off lines of the metrics that will be written again. */
    GPT_TRY(open_options(r, err));
    GPT_TRY(gpt_run_share_cores(r, err));
    GPT_TRY(gpt_run_plan(r, err));
    GPT_TRY(gpt_run_read_stages(r, err));
    GPT_TRY(open_loss(r, err));
    GPT_TRY(report_effects(r, err));
    gpt_run_report_threads(r);
    if (r->o->simulate)
        return simulate(r, err);
    GPT_TRY(gpt_run_check_report(r, err));
    GPT_TRY(gpt_run_open_device(r, err));
    GPT_TRY(gpt_replica_new(&r->replica, r->be, &r->plan.replica, err));
    GPT_TRY(gpt_estimate_rank(&r->plan, r->replica, &memory, err));
    GPT_TRY(gpt_run_print_model(r, &memory, err));
    /* indices of samples are built with the corpus, and are part of it */
    if (!r->o->dry_run)
        GPT_TRY(gpt_run_check_memory(r, &memory, err));
    GPT_TRY(gpt_run_open_corpus(r, err));
    GPT_TRY(gpt_evaluator_read(&r->evaluator, &r->plan, gpt_run_is_first(r),
                               err));
    /* The data are open now: what their indices take is known, where before it
     * followed from the options alone, and memory is checked again. */
    if (r->corpus)
        memory.bytes[GPT_MEM_SAMPLES] = gpt_corpus_memory(r->corpus);
    memory.bytes[GPT_MEM_SAMPLES] += gpt_evaluator_sets_memory(r->evaluator);
    r->predicted = gpt_memory_device(&memory, r->be);
    GPT_TRY(compare_ranks(r, err));
    if (gpt_run_is_first(r) && !r->plan.evaluates)
        GPT_TRY(gpt_saver_check_room(&r->plan.replica, r->o, err));
    if (r->o->dry_run) {
        GPT_TRY(gpt_run_look_at_places(r, err));
        return gpt_run_is_first(r) ? gpt_run_print_plan(r, err) : GPT_OK;
    }
    GPT_TRY(gpt_run_check_memory(r, &memory, err));
    GPT_TRY(gpt_run_open_save(r, err));
    GPT_TRY(gpt_world_connect(r->world, r->be, err));
    GPT_TRY(open_replica(r, &memory, err));
    GPT_TRY(gpt_run_open_feed(r, err));
    GPT_TRY(gpt_run_open_report(r, err));
    return gpt_evaluator_open(
        r->evaluator,
        &(struct gpt_evaluator_run){r->replica, r->feed, r->corpus, r->report},
        err);
}

int gpt_run_end(struct gpt_run *r, int status, struct gpt_err *err)
{
    int closed = gpt_report_close(r->report, status == GPT_OK ? err : NULL);

    gpt_stragglers_close(r->stragglers);
    if (status == GPT_OK)
        status = closed;
    return gpt_world_end(r->world, status, err);
}

/* The lock is released last, since a save may be under way until the saver is
 * closed. */
void gpt_run_close(struct gpt_run *r)
{
    gpt_saver_close(r->saver);
    gpt_feed_close(r->feed); /* it may read a corpus of the evaluator */
    gpt_evaluator_close(r->evaluator);
    gpt_corpus_close(r->corpus);
    gpt_data_stages_free(&r->stages);
    gpt_arena_free(&r->data_names);
    gpt_replica_close(r->replica);
    gpt_loss_close(r->loss);
    gpt_world_close(r->world);
    gpt_buf_free(&r->option_text);
    gpt_source_close(&r->peeked);
    gpt_arena_free(&r->arena);
    gpt_lock_close(r->lock);
}
