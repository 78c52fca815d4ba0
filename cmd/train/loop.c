/* The steps of a run; run.c has what comes before and after them. After a step
 * the order is Megatron's: log, evaluate, signals, save, limits of time and
 * steps.
 *
 * Every decision here that exchanges something with other ranks (to save, to
 * evaluate, to stop) follows from the iteration's number or from the step's
 * sums over all ranks, never from what one rank knows: a rank that decided
 * alone would wait for the others. Start at run_steps(). */
#include "cmd/train/loop.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "cmd/train/run.h"
#include "train/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- saving ---- */

/* Reports a checkpoint once, when it is on disk. */
static void note_saved(struct gpt_run *r)
{
    int64_t saved = gpt_saver_saved(r->saver);

    if (saved <= r->saved)
        return;
    r->saved = saved;
    gpt_log_line(" saved checkpoint at iteration %lld to %s",
                 (long long)saved, r->o->save);
}

/* The end of training may fall on the save interval: one checkpoint of an
 * iteration is enough. `saving` is set when a save begins, as one in the
 * background is not on disk yet. */
static int save(struct gpt_run *r, struct gpt_err *err)
{
    if (!r->saver || r->saving == r->state.iteration)
        return GPT_OK;
    gpt_report_pause(r->report);
    GPT_TRY(gpt_saver_save(r->saver, &r->state, err));
    r->saving = r->state.iteration;
    note_saved(r);
    gpt_report_resume(r->report);
    return GPT_OK;
}

/* Takes over the result of a save in the background, if it has ended; with
 * `wait` after it has ended. */
static int check_save(struct gpt_run *r, bool wait, struct gpt_err *err)
{
    if (!r->saver)
        return GPT_OK;
    GPT_TRY(wait ? gpt_saver_wait(r->saver, err)
                 : gpt_saver_check(r->saver, err));
    note_saved(r);
    return GPT_OK;
}

/* What a resumed run makes again, in the hint of the error that ended the run:
 * every rank prints it, also when the first one is gone. Steps that diverged
 * are no loss. */
static void tell_lost(const struct gpt_run *r, int status, struct gpt_err *err)
{
    const long long first = r->saved + 1, last = r->state.iteration;
    char steps[64], why[64] = "there is no checkpoint";

    if (status == GPT_OK || status == GPT_EDIVERGED || !err || last < first)
        return;
    if (first == last)
        snprintf(steps, sizeof(steps), "step %lld is", last);
    else
        snprintf(steps, sizeof(steps), "steps %lld to %lld are", first, last);
    if (r->saved > 0)
        snprintf(why, sizeof(why), "the last checkpoint is of iteration %lld",
                 (long long)r->saved);
    gpt_hint(err, "%s lost: %s%s%s", steps, why, err->hint[0] ? "; " : "",
             err->hint);
}

/* After the other ranks know that the run ends: a save in the background may
 * wait for them. It may end well yet; its failure is not what ended the
 * run. */
static void end_saving(struct gpt_run *r, int status, struct gpt_err *err)
{
    struct gpt_err second = {0};

    if (!r->saver)
        return;
    if (check_save(r, true, &second) != GPT_OK)
        gpt_warn("the save of iteration %lld failed: %s", (long long)r->saving,
                 second.text);
    tell_lost(r, status, err);
}

/* ---- data ---- */

/* A sample that cannot be read ends the run, but not what was trained: a single
 * rank saves it. Other ranks wait in the step, and a save that they do not join
 * cannot be made. */
static int rescue_steps(struct gpt_run *r, int status, struct gpt_err *err)
{
    struct gpt_err second = {0};

    if (status == GPT_EDATA && err && !err->hint[0])
        gpt_hint(err, "gpt-dataset verify finds damage; where an id is too "
                      "large, info shows which tokenizer the data are from");
    if (r->saver && r->plan.topology.world_size == 1 &&
        save(r, &second) != GPT_OK)
        gpt_warn("the steps before the error were not saved: %s", second.text);
    return status;
}

static int read_batch(struct gpt_run *r, int64_t first, int64_t n,
                      struct gpt_err *err)
{
    const int status = gpt_feed_read(r->feed, GPT_TRAIN, first, n, err);

    return status == GPT_OK ? GPT_OK : rescue_steps(r, status, err);
}

/* ---- evaluation ---- */

/* What is due, or everything at the end. A checkpoint of the lowest loss is
 * saved at once, with that loss in its state. *stop when the loss has not
 * fallen for long enough: every rank has the same losses, and stops. */
static int evaluate(struct gpt_run *r, bool end, bool *stop,
                    struct gpt_err *err)
{
    const struct gpt_best *best = &r->state.best;
    bool validated;
    int status =
        gpt_evaluator_run(r->evaluator, &r->state, end, &validated, err);

    if (status == GPT_EDATA)
        return rescue_steps(r, status, err);
    GPT_TRY(status);
    if (!validated || r->plan.evaluates)
        return GPT_OK;
    if (r->o->save_best && best->iteration == r->state.iteration)
        GPT_TRY(save(r, err));
    *stop = r->o->patience > 0 && best->waited >= r->o->patience;
    return GPT_OK;
}

/* True when the final checkpoint has to know how the last validation went. */
static bool compares_losses(const struct gpt_run *r)
{
    return r->o->save_best || r->o->patience > 0;
}

/* The words are the same for a run that stops and for one that is started again
 * after it. */
static void log_early_stop(const struct gpt_run *r)
{
    const struct gpt_best *best = &r->state.best;

    gpt_log_line("stopped early at iteration %lld: the validation loss has not "
                 "fallen for %lld validations; the lowest is %.6E, of "
                 "iteration %lld",
                 (long long)r->state.iteration, (long long)best->waited,
                 best->loss, (long long)best->iteration);
}

/* ---- steps ---- */

/* Where the loss is a number and its scale falls no further, it is gradients
 * times that scale that were too large. */
static int hint_lower(const struct gpt_run *r, const struct gpt_step *step,
                      struct gpt_err *err)
{
    const bool scaled = step->loss_scale > 1 && isfinite(step->loss);
    const char *scale =
        r->o->loss_scale > 0 ? "--loss-scale" : "--min-loss-scale";

    if (r->saved > 0)
        return gpt_hint(err,
                        "the checkpoint of iteration %lld is intact; "
                        "try a lower %s from there",
                        (long long)r->saved, scaled ? scale : "--lr");
    if (scaled)
        return gpt_hint(err,
                        "the loss scale of %g may be too large for the "
                        "gradients: try a lower %s",
                        step->loss_scale, scale);
    return gpt_hint(err, "try a lower --lr, or more warm-up");
}

/* A loss that is not a number: skip the step, or give up. That a loss scale is
 * still too large is no reason. Loss and norm are sums over all ranks, so that
 * all ranks count the same and give up after the same step. */
static int check_loss(struct gpt_run *r, const struct gpt_step *step,
                      struct gpt_err *err)
{
    if (!step->skipped)
        r->bad_steps = 0;
    if (!step->skipped || step->overflow)
        return GPT_OK;
    if (++r->bad_steps <= r->o->max_nan_iterations)
        return GPT_OK;
    /* The steps that led here are what will be looked at. */
    GPT_TRY(gpt_report_last_steps(r->report, err));
    gpt_fail(err, GPT_EDIVERGED,
             "iteration %lld: loss %g, gradient norm %g: not finite, %lld in "
             "a row; nothing was updated or saved",
             (long long)r->state.iteration, gpt_report_number(step->loss),
             gpt_report_number(step->grad_norm), (long long)r->bad_steps);
    return hint_lower(r, step, err);
}

/* A signal to any rank counts, the time limit is rank 0's. Clocks of ranks
 * differ, and any rank that asks stops all of them: one clock is enough. */
static void ask_to_stop(void *context, struct gpt_step *step)
{
    const struct gpt_run *r = context;
    const double minutes = (gpt_now() - r->started) / 60;
    const double limit = r->o->exit_duration_mins;

    step->signal = gpt_signals_stop();
    step->stop = step->signal ||
                 (limit > 0 && minutes > limit && r->plan.topology.rank == 0);
    step->save = gpt_signals_take_save();
}

/* Says which data a step reads that are others than those of the step before:
 * at a stage's first sample, and where a run begins or is resumed. */
static void log_stage(const struct gpt_run *r, int64_t first, int64_t batch)
{
    const struct gpt_data_stages *s = &r->stages;

    for (int64_t i = 0; i < s->n; i++) {
        const struct gpt_data_stage *stage = &s->stage[i];
        const bool begins =
            stage->first >= first && stage->first < first + batch;
        const bool goes_on =
            r->steps == 0 && i == gpt_data_stages_at(s, first);
        char text[512] = "";

        if (!begins && !goes_on)
            continue;
        for (int64_t k = 0; k < stage->n; k++) {
            const size_t n = strlen(text);

            snprintf(text + n, sizeof(text) - n, " %s", stage->words[k]);
        }
        gpt_log_line(" data stage %lld of %lld %s at sample %lld:%s",
                     (long long)i + 1, (long long)s->n,
                     begins ? "begins" : "goes on",
                     (long long)(begins ? stage->first : first), text);
    }
}

/* Masks may leave nothing of the data, and a run that learns nothing looks like
 * one that has learned all. */
static void warn_masked(const struct gpt_run *r)
{
    if (r->plan.topology.rank == 0)
        gpt_warn("no token of the first step counts a loss: "
                 "--document-samples, --eod-mask-loss and --pad-token-id say "
                 "which do not");
}

/* A step that is skipped consumes its samples, so that the same batch does not
 * fail again; it does not move the schedule. Megatron-LM counts both in this
 * way. Rate, decay and batch size are functions of these counts alone, so that
 * a resumed run has the same ones. */
static int one_step(struct gpt_run *r, struct gpt_step *step,
                    struct gpt_err *err)
{
    int64_t first = r->state.consumed_train, micro = gpt_run_samples(r);
    int64_t batch = gpt_rampup_global_batch(&r->plan.rampup, first);
    int64_t next = gpt_rampup_global_batch(&r->plan.rampup, first + batch);

    *step = (struct gpt_step){
        .micro_batches = batch / micro,
        .rates = gpt_lr_schedule_rates(&r->plan.schedule, r->state.scheduled),
        .ask = ask_to_stop,
        .context = r,
    };

    log_stage(r, first, batch);
    GPT_TRY(read_batch(r, first, batch / micro, err));
    /* The thread of the feed reads the next batch while the device computes
     * this one. The size of that batch follows from the samples alone. */
    if (r->state.iteration + 1 < r->plan.train_iters)
        gpt_feed_ahead(r->feed, GPT_TRAIN, first + batch, next / micro);
    GPT_TRY(gpt_step_train(r->replica, r->feed, step, err));
    if (r->steps == 0 && step->loss == 0 && step->grad_norm == 0)
        warn_masked(r);
    /* Later steps neither allocate nor load, so that a rank that is lost is
     * noticed sooner. */
    if (++r->steps == 1)
        gpt_world_shorten_timeout(r->world);
    r->state.iteration++;
    r->state.consumed_train += batch;
    r->state.scheduled += step->skipped ? 0 : batch;
    const struct gpt_report_step report = {
        .iteration = r->state.iteration,
        .consumed_samples = r->state.consumed_train,
        .batch = batch,
        .next = gpt_lr_schedule_rates(&r->plan.schedule, r->state.scheduled),
        .step = step,
        .data_stage =
            r->stages.n > 0 ? gpt_data_stages_at(&r->stages, first) + 1 : 0,
    };
    GPT_TRY(gpt_report_step(r->report, &report, err));
    return check_loss(r, step, err);
}

/* True when `n` is an interval (0 is none) and the iteration is a multiple of
 * it. */
static bool due(int64_t iteration, int64_t n)
{
    return n > 0 && iteration % n == 0;
}

/* A signal to any rank stops the run, and each rank ends as if it had received
 * that itself: the ranks of another machine are not over with status 0 while
 * the run is not. */
static void log_stop(const struct gpt_run *r, const struct gpt_step *step)
{
    if (gpt_signals_stop())
        gpt_log_line("exiting program after receiving %s.",
                     gpt_signal_name(gpt_signals_stop()));
    else if (step->signal)
        gpt_log_line("exiting program after another rank received %s.",
                     gpt_signal_name(step->signal));
    else
        gpt_log_line("exiting program after %.1f minutes",
                     (gpt_now() - r->started) / 60);
    if (step->signal)
        gpt_signals_adopt(step->signal);
}

/* After a step: *stop when the run is to end now. Every condition is the same
 * on all ranks: it follows from the iteration, or was summed in the step.
 * Saving and evaluating are collective, and a rank that came alone would
 * wait. */
static int after_step(struct gpt_run *r, const struct gpt_step *step,
                      bool *stop, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    const int64_t i = r->state.iteration;
    const bool end = i >= r->plan.train_iters; /* see run_steps() */

    bool early = false;

    GPT_TRY(check_save(r, false, err));
    /* Before an evaluation, a save or a reason to stop says something: a reader
     * of the log finds lines in the order of the steps. Only that a run stops
     * early is known after its evaluation alone. */
    if (end || step->stop || due(i, o->exit_interval))
        GPT_TRY(gpt_report_last_steps(r->report, err));
    if (!end)
        GPT_TRY(evaluate(r, false, &early, err));
    if (early)
        GPT_TRY(gpt_report_last_steps(r->report, err));
    *stop = step->stop;
    /* A run that is stopped saves whatever its interval is, and makes no final
     * evaluation. */
    if (step->stop) {
        GPT_TRY(save(r, err));
        log_stop(r, step);
        return GPT_OK;
    }
    if (end)
        return GPT_OK;
    *stop = due(i, o->exit_interval) || early;
    if (step->save || *stop || due(i, o->save_interval))
        GPT_TRY(save(r, err));
    if (early)
        log_early_stop(r);
    else if (*stop)
        gpt_log_line("exiting program at iteration %lld", (long long)i);
    return GPT_OK;
}

/* The last lines: what was done, and where the result is, or that there is
 * none. */
static void log_end(const struct gpt_run *r)
{
    gpt_report_summary(r->report, r->state.iteration);
    if (r->plan.evaluates)
        return;
    if (r->o->save)
        gpt_log_line(" the checkpoint of iteration %lld is in %s",
                     (long long)r->state.iteration, r->o->save);
    else
        gpt_warn("the trained weights were not kept: there was no --save DIR");
}

/* The product of a run that only evaluates. */
static int print_table(const struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_buf text = {0};
    int status = GPT_OK;

    if (r->plan.topology.rank == 0)
        status = gpt_evaluator_table(r->evaluator, &text) == GPT_OK
                     ? gpt_write_file("-", 0, text.data, text.len, err)
                     : gpt_no_memory(err, "a table");
    gpt_buf_free(&text);
    return status;
}

/* --eval-only, --train-iters 0: the losses and scores of the model that was
 * loaded. */
static int evaluate_only(struct gpt_run *r, struct gpt_err *err)
{
    bool stop;

    GPT_TRY(evaluate(r, true, &stop, err));
    log_end(r);
    return print_table(r, err);
}

static int run_steps(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_step step;
    bool stop = false;

    if (r->plan.evaluates)
        return evaluate_only(r, err);
    if (r->state.iteration >= r->plan.train_iters) {
        gpt_log_line(" nothing to do: iteration %lld of %lld; a larger %s "
                     "continues the run, and --eval-only evaluates it",
                     (long long)r->state.iteration,
                     (long long)r->plan.train_iters,
                     r->o->epochs > 0          ? "--epochs"
                     : r->o->train_samples > 0 ? "--train-samples"
                                               : "--train-iters");
        return GPT_OK;
    }
    if (r->o->patience > 0 && r->state.best.waited >= r->o->patience) {
        log_early_stop(r);
        gpt_log_line(" nothing to do: a larger --early-stopping-patience "
                     "continues the run");
        return GPT_OK;
    }
    if (!r->o->save)
        gpt_warn("nothing of this run will be kept: there is no --save DIR");
    while (!stop && r->state.iteration < r->plan.train_iters) {
        GPT_TRY(one_step(r, &step, err));
        GPT_TRY(after_step(r, &step, &stop, err));
    }
    /* A failure of an update is noticed when the next step waits for the queue;
     * the last update has no next step. */
    GPT_TRY(r->be->sync(r->replica->q, err)); /* of the last update */
    /* Evaluation takes time, and changes nothing but which checkpoint is the
     * best. */
    if (stop || !compares_losses(r))
        GPT_TRY(save(r, err));
    if (!stop)
        GPT_TRY(evaluate(r, true, &stop, err));
    GPT_TRY(save(r, err));
    GPT_TRY(check_save(r, true, err));
    log_end(r);
    return GPT_OK;
}

/* The end comes after every failure, too: the other ranks learn why this one
 * ends. */
int gpt_train(const struct gpt_train_options *options,
              const struct gpt_args *args, struct gpt_err *err)
{
    struct gpt_run r = {.lock = -1, .started = gpt_now()};
    int status = gpt_run_open(&r, options, args, err);

    if (status == GPT_OK && !options->dry_run && !options->simulate)
        status = run_steps(&r, err);
    if (status == GPT_EUSAGE && err && !err->hint[0])
        gpt_hint(err, "try 'gpt-train --help', or read gpt-train(1)");
    status = gpt_run_end(&r, status, err);
    end_saving(&r, status, err);
    gpt_run_close(&r);
    return status;
}
