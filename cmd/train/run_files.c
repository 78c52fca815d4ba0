/* The files of a run: the directory of its checkpoints, which must be its own,
 * and the report. */
#include "cmd/train/run_parts.h"

#include "base/log.h"
#include "checkpoint/format.h"
#include "checkpoint/lock.h"
#include "cmd/train/hardware.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The directory for checkpoints is ours, and holds no other run's. */
static int refuse_others(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    const bool same = gpt_run_resumes_own(o);
    bool exists;

    GPT_TRY(gpt_source_exists(&exists, o->save, err));
    if (exists && (!same || o->finetune) && !o->common.force) {
        gpt_fail(err, GPT_EEXIST, "%s: holds checkpoints of another run",
                 o->save);
        return gpt_hint(err,
                        "continue it with --load %s%s, or replace it with "
                        "--force",
                        o->save, o->finetune ? " and without --finetune" : "");
    }
    r->replaces = exists && !same;
    return GPT_OK;
}

/* The lock comes first: a directory that is looked at without it may get its
 * first checkpoint at that moment. */
static int lock_save(struct gpt_run *r, struct gpt_err *err)
{
    GPT_TRY(gpt_format_check_place(&gpt_format_native, r->o->save, err));
    GPT_TRY(gpt_lock_open(&r->lock, r->o->save, err));
    return refuse_others(r, err);
}

/* A command that resumes its own run begins it where there is no checkpoint
 * yet; any other has to load what its --load names. */
int gpt_run_has_to_load(const struct gpt_train_options *o, bool *load,
                        struct gpt_err *err)
{
    if (*load || !gpt_run_resumes_own(o)) {
        *load = true;
        return GPT_OK;
    }
    return o->finetune ? gpt_fail(err, GPT_EIO,
                                  "%s holds no checkpoint, and --finetune "
                                  "begins from one", o->load)
                       : GPT_OK;
}

/* Nothing is locked or made, and no weights are read. */
int gpt_run_look_at_places(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    bool load;

    if (!gpt_run_is_first(r))
        return GPT_OK;
    if (o->save && !r->plan.evaluates) {
        GPT_TRY(gpt_format_check_place(&gpt_format_native, o->save, err));
        GPT_TRY(refuse_others(r, err));
    }
    if (!o->load)
        return GPT_OK;
    GPT_TRY(gpt_source_exists(&load, o->load, err));
    GPT_TRY(gpt_run_has_to_load(o, &load, err));
    return load ? gpt_state_check(r->replica, &r->plan, err) : GPT_OK;
}

/* Returns the last iteration in --save that belongs to this run; -1 where none
 * does. A run that is resumed from an iteration in --save owns those up to it.
 * A run that finetunes from there needs the model that it began with, and keeps
 * all. */
int64_t gpt_run_own_iterations(const struct gpt_run *r)
{
    const struct gpt_train_options *o = r->o;
    char parent[GPT_PATH_BYTES];

    if (!r->replaces)
        return INT64_MAX;
    if (!o->load || !gpt_path_is_dir(o->load)) {
        const char *load = o->load ? o->load : ""; /* a file lies in it */

        snprintf(parent, sizeof(parent), "%.*s",
                 (int)(gpt_path_name(load) - load), load);
    } else if (gpt_path_join(parent, sizeof(parent), o->load, "..", NULL) !=
               GPT_OK) {
        return -1;
    }
    if (!parent[0] || !gpt_path_same(parent, o->save))
        return -1;
    return o->finetune ? INT64_MAX : r->state.iteration;
}

/* Rank 0 decides for all. The others wait until the directory is there and is
 * known to be this run's; its failure reaches them through the store. */
int gpt_run_open_save(struct gpt_run *r, struct gpt_err *err)
{
    if (!r->o->save || r->plan.evaluates)
        return GPT_OK;
    if (gpt_run_is_first(r))
        GPT_TRY(lock_save(r, err));
    return gpt_world_wait(r->world, "save directory", err);
}

/* FLOP/s that a rank could do; 0 where that is not known. Measuring a CPU takes
 * some milliseconds, of the rank that reports alone: the others wait for it in
 * their first step anyway. */
static double find_peak(struct gpt_run *r)
{
    snprintf(r->peak_is, sizeof(r->peak_is), "as --device-peak-tflops says");
    if (r->o->device_peak > 0)
        return 1e12 * r->o->device_peak;
    return gpt_run_is_first(r) && !r->plan.evaluates
               ? gpt_device_peak(r->be, r->plan.replica.exec.act, r->peak_is,
                                 sizeof(r->peak_is))
               : 0;
}

/* A run that has made no step, and whose command is not one that resumes: lines
 * in the file of its --metrics are another run's. A launcher that starts ranks
 * again says so: then they are this run's. */
static bool begins_anew(const struct gpt_run *r)
{
    const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT");

    if (restarts && strcmp(restarts, "0") != 0)
        return false;
    return r->state.iteration == 0 && !r->plan.evaluates &&
           (r->o->finetune || !gpt_run_resumes_own(r->o));
}

/* A run that cannot report ends before weights and data are read. */
int gpt_run_check_report(const struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_sink_options sinks = {.metrics = r->o->metrics,
                                           .tensorboard =
                                               r->o->tensorboard_dir};

    return gpt_run_is_first(r) ? gpt_sinks_check(&sinks, r->o->save, err)
                               : GPT_OK;
}

int gpt_run_open_report(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;

    if (o->timing_level > 0 && !r->be->host_memory)
        gpt_log_line(" > the times of forward and backward are not logged: a "
                     "GPU computes while the host goes on");
    /* a GPU computes while the host goes on: its times are not known here */
    if (gpt_run_is_first(r) && !r->plan.evaluates && r->be->host_memory)
        GPT_TRY(gpt_stragglers_open(&r->stragglers, r->world, err));
    struct gpt_report_options options = {
        .train_iters = r->plan.train_iters,
        .log_interval = o->log_interval,
        .router_balance = r->plan.replica.config.moe_aux_loss_coeff > 0,
        .router_size = r->plan.replica.config.moe_z_loss_coeff > 0,
        .flops_per_token =
            gpt_flops_per_token(&r->plan.replica.config, o->seq_length),
        .seq_length = o->seq_length,
        .ranks = r->plan.topology.world_size,
        .decoupled_lr = r->plan.schedule.decoupled_lr > 0,
        .log_throughput = o->log_throughput,
        .log_times = o->timing_level > 0,
        /* one microbatch is the batch: there is nothing to compare */
        .log_noise_scale = o->log_noise_scale &&
                           r->plan.rampup.global_batch > o->micro_batch_size,
        .micro_batch = o->micro_batch_size,
        .gpu = !r->be->host_memory,
        .be = r->be,
        .predicted_memory = r->predicted,
        .peak = find_peak(r),
        .peak_is = r->peak_is,
        .restarts = r->state.restarts,
        .stragglers = r->stragglers,
        .sinks = {.metrics = o->metrics,
                  .tensorboard = o->tensorboard_dir,
                  .command = o->log_metrics_command,
                  .iteration = r->plan.evaluates ? INT64_MAX
                                                 : r->state.iteration,
                  .keep = begins_anew(r) && !o->common.force},
        .iteration = r->state.iteration,
        .progress = o->common.progress,
    };

    /* One rank writes: the losses in the report are sums over all ranks. */
    if (!gpt_run_is_first(r)) {
        options.sinks = (struct gpt_sink_options){.metrics = NULL};
        options.progress = "never";
    } else if (!o->metrics && o->save && !r->plan.evaluates) {
        GPT_TRY(gpt_path_join(r->metrics, sizeof(r->metrics), o->save,
                              "metrics.jsonl", err));
        options.sinks.metrics = r->metrics;
        /* gpt_run_open_save() has found it to be ours */
        options.sinks.keep = false;
    }
    if (gpt_run_is_first(r) && o->sample_prompts && o->save &&
        !r->plan.evaluates) {
        GPT_TRY(gpt_path_join(r->samples, sizeof(r->samples), o->save,
                              "samples.jsonl", err));
        options.sinks.samples = r->samples;
    }
    return gpt_report_open(&r->report, &options, err);
}
