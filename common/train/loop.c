/* The run: setup in run_open(), steps in run_steps(), everything released in
 * run_close(). Order of what happens after a step is Megatron's: log,
 * evaluate, signals, save, time and step limits. */
#include "train/loop.h"

#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/progress.h"
#include "base/signals.h"
#include "parallel/launch.h"
#include "train/feed.h"
#include "train/lock.h"
#include "train/plan.h"
#include "train/report.h"
#include "train/state.h"
#include "train/step.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct run {
    const struct gpt_train_options *o;
    struct gpt_train_plan plan;
    struct gpt_train_state state;
    struct gpt_backend *be;
    struct gpt_replica *replica;
    struct gpt_corpus *corpus;
    struct gpt_feed *feed;
    struct gpt_report *report;
    struct gpt_state_context context;
    struct gpt_buf option_text;
    char metrics[4096];
    int lock;
    double started;
    int64_t bad_steps; /* in a row whose loss was not finite */
    int64_t saved;     /* iteration of the newest checkpoint of this run */
};

/* ---- setup ---- */

static void print_model(const struct run *r, const struct gpt_memory *memory)
{
    const struct gpt_config *c = &r->plan.replica.config;
    char text[256];

    r->be->describe(r->be, text, sizeof text);
    gpt_log_line(" > device: %s", text);
    gpt_log_line(" > padded vocab (size: %lld) with %lld dummy tokens "
                 "(new size: %lld)",
                 (long long)c->vocab_size, (long long)r->plan.vocab_dummies,
                 (long long)c->padded_vocab_size);
    gpt_log_line(" > number of parameters on (tensor, pipeline) model parallel "
                 "rank (0, 0): %lld",
                 (long long)r->replica->flat.count);
    gpt_log_line("> learning rate decay style: %s", r->o->lr_decay_style);
    gpt_log_line(" > micro batch size: %lld, global batch size: %lld, "
                 "steps: %lld, samples: %lld",
                 (long long)r->o->micro_batch_size,
                 (long long)r->plan.rampup.global_batch,
                 (long long)r->plan.train_iters,
                 (long long)r->plan.train_samples);
    gpt_log_line(" > memory:");
    gpt_memory_print(memory);
}

static struct gpt_feed_options feed_options(const struct run *r)
{
    return (struct gpt_feed_options){
        .corpus = r->corpus,
        .masks = r->plan.masks,
        .micro_batch = r->o->micro_batch_size,
        .seq_length = r->o->seq_length,
        .max_micro_batches =
            r->plan.rampup.global_batch / r->o->micro_batch_size,
    };
}

/* The directory for checkpoints is ours, and holds no other run's. */
static int open_save(struct run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    bool same = o->load && gpt_path_same(o->load, o->save);

    GPT_TRY(gpt_lock_open(&r->lock, o->save, err));
    if (gpt_state_exists(o->save) && (!same || o->finetune) &&
        !o->common.force) {
        gpt_fail(err, GPT_EEXIST, "%s: holds checkpoints of another run",
                 o->save);
        return gpt_hint(err,
                        "continue it with --load %s, or replace it with "
                        "--force",
                        o->save);
    }
    return GPT_OK;
}

/* Weights: loaded, or initial. */
static int fill_replica(struct run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;

    if (!o->load)
        return gpt_replica_init(r->replica, err);
    if (o->save && strcmp(o->load, o->save) == 0 &&
        !gpt_state_exists(o->load)) {
        gpt_log_line(" no checkpoint in %s yet: starting from random weights",
                     o->load);
        return gpt_replica_init(r->replica, err);
    }
    return gpt_state_load(r->replica, &r->state, &r->context, &r->plan.schedule,
                          err);
}

static int open_report(struct run *r, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    struct gpt_report_options options = {
        .train_iters = r->plan.train_iters,
        .log_interval = o->log_interval,
        .flops_per_token =
            gpt_config_flops_per_token(&r->plan.replica.config, o->seq_length),
        .seq_length = o->seq_length,
        .log_throughput = o->log_throughput,
        .metrics = o->metrics,
        .iteration = r->state.iteration,
        .progress = o->common.progress,
    };
    if (!o->metrics && o->save) {
        GPT_TRY(gpt_path_join(r->metrics, sizeof r->metrics, o->save,
                              "metrics.jsonl", err));
        options.metrics = r->metrics;
    }
    return gpt_report_open(&r->report, &options, err);
}

/* Memory of the host is promised freely and fails when it is touched, so it is
 * compared with what there is. */
static int check_memory(const struct run *r, const struct gpt_memory *memory,
                        struct gpt_err *err)
{
    double has =
        (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double needs = 0;
    char a[32], b[32];

    for (int kind = 0; kind < GPT_N_MEMORY_KINDS; kind++)
        needs += (double)memory->bytes[kind];
    if (!r->be->host_memory || has <= 0 || needs <= has)
        return GPT_OK;
    gpt_fail(err, GPT_EDEVICE,
             "the run needs %s of memory, this machine has "
             "%s",
             gpt_text_bytes(a, needs), gpt_text_bytes(b, has));
    return gpt_hint(err, "the table above says what for; activations shrink "
                         "with --micro-batch-size and --seq-length");
}

/* Training is one process so far: several would each train the same model. */
static int check_alone(struct gpt_err *err)
{
    struct gpt_launch launch;

    GPT_TRY(gpt_launch_detect(&launch, err));
    if (launch.world_size == 1)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "started as one of %lld ranks (%s), but training runs in "
                    "one process", (long long)launch.world_size,
                    launch.launcher);
}

static int run_open(struct run *r, const struct gpt_args *args,
                    struct gpt_err *err)
{
    struct gpt_feed_options feed;
    struct gpt_memory memory;

    GPT_TRY(check_alone(err));
    GPT_TRY(gpt_train_plan(&r->plan, r->o, args, err));
    GPT_TRY(gpt_backend_open(&r->be, r->o->device, err));
    GPT_TRY(gpt_replica_new(&r->replica, r->be, &r->plan.replica, err));
    GPT_TRY(gpt_replica_memory(r->replica, &memory, err));
    feed = feed_options(r);
    memory.bytes[GPT_MEM_BATCHES] = gpt_feed_memory(&feed);
    print_model(r, &memory);
    if (r->plan.corpus.n_data_path > 0 ||
        r->plan.corpus.n_split_path[GPT_TRAIN] > 0) {
        GPT_TRY(gpt_corpus_open(&r->corpus, &r->plan.corpus, err));
        r->context.corpus_digest = gpt_corpus_digest(r->corpus);
    }
    if (r->o->dry_run)
        return GPT_OK;
    GPT_TRY(check_memory(r, &memory, err));
    if (r->o->save)
        GPT_TRY(open_save(r, err));
    GPT_TRY(gpt_replica_open(r->replica, err));
    r->context.options = r->o;
    r->context.plan = &r->plan;
    GPT_TRY(gpt_options_print(args->program, r->o, args, &r->option_text));
    r->context.option_text = r->option_text.data;
    GPT_TRY(fill_replica(r, err));
    r->saved = r->state.iteration;
    feed = feed_options(r);
    GPT_TRY(gpt_feed_open(&r->feed, &feed, err));
    return open_report(r, err);
}

static void run_close(struct run *r)
{
    gpt_feed_close(r->feed);
    gpt_corpus_close(r->corpus);
    gpt_replica_close(r->replica);
    gpt_buf_free(&r->option_text);
    gpt_lock_close(r->lock);
}

/* ---- evaluation and saving ---- */

/* Mean loss over eval_iters full batches of a split from sample `first` on. */
static int mean_loss(struct run *r, enum gpt_split split, int64_t first,
                     double *loss, struct gpt_err *err)
{
    int64_t batch = r->plan.rampup.global_batch, rows = 0;
    int64_t n = batch / r->o->micro_batch_size;

    *loss = 0;
    for (int64_t i = 0; i < r->o->eval_iters; i++) {
        GPT_TRY(gpt_feed_read(r->feed, split, first + i * batch, n, err));
        if (i + 1 < r->o->eval_iters)
            gpt_feed_ahead(r->feed, split, first + (i + 1) * batch, n);
        GPT_TRY(gpt_step_eval(r->replica, r->feed, n, loss, &rows, err));
    }
    *loss /= (double)(rows > 0 ? rows : 1);
    return GPT_OK;
}

static int evaluate(struct run *r, bool end, struct gpt_err *err)
{
    double loss;

    if (r->o->eval_iters == 0 || r->plan.corpus.n_samples[GPT_VALID] == 0)
        return GPT_OK;
    gpt_report_pause(r->report);
    GPT_TRY(mean_loss(r, GPT_VALID, r->state.consumed_valid, &loss, err));
    r->state.consumed_valid += r->o->eval_iters * r->plan.rampup.global_batch;
    GPT_TRY(gpt_report_eval(r->report, "validation", r->state.iteration, end,
                            loss, err));
    if (end && r->plan.corpus.n_samples[GPT_TEST] > 0) {
        GPT_TRY(mean_loss(r, GPT_TEST, 0, &loss, err));
        GPT_TRY(gpt_report_eval(r->report, "test", r->state.iteration, end,
                                loss, err));
    }
    gpt_report_resume(r->report);
    return GPT_OK;
}

static int save(struct run *r, struct gpt_err *err)
{
    if (!r->o->save || r->saved == r->state.iteration)
        return GPT_OK;
    gpt_report_pause(r->report);
    GPT_TRY(gpt_state_save(r->replica, &r->state, &r->context, err));
    r->saved = r->state.iteration;
    gpt_log_line(" saved checkpoint at iteration %lld to %s",
                 (long long)r->state.iteration, r->o->save);
    gpt_report_resume(r->report);
    return GPT_OK;
}

/* ---- steps ---- */

/* A loss that is not a number: skip the step, or give up. */
static int judge(struct run *r, const struct gpt_step *step,
                 struct gpt_err *err)
{
    if (!step->skipped) {
        r->bad_steps = 0;
        return GPT_OK;
    }
    if (++r->bad_steps <= r->o->max_nan_iterations)
        return GPT_OK;
    gpt_fail(err, GPT_EDIVERGED,
             "iteration %lld: loss %g, gradient norm %g: not finite, %lld in "
             "a row; nothing was updated or saved",
             (long long)r->state.iteration, step->loss, step->grad_norm,
             (long long)r->bad_steps);
    if (r->saved > 0)
        return gpt_hint(err,
                        "the checkpoint of iteration %lld is intact; "
                        "try a lower --lr from there",
                        (long long)r->saved);
    return gpt_hint(err, "try a lower --lr, or more warm-up");
}

static int one_step(struct run *r, struct gpt_err *err)
{
    int64_t first = r->state.consumed_train, micro = r->o->micro_batch_size;
    int64_t batch = gpt_rampup_global_batch(&r->plan.rampup, first);
    int64_t next = gpt_rampup_global_batch(&r->plan.rampup, first + batch);
    struct gpt_step step = {
        .first_sample = first,
        .micro_batches = batch / micro,
        .lr = gpt_schedule_lr(&r->plan.schedule, first),
        .weight_decay = gpt_schedule_weight_decay(&r->plan.schedule, first),
    };

    GPT_TRY(gpt_feed_read(r->feed, GPT_TRAIN, first, batch / micro, err));
    if (r->state.iteration + 1 < r->plan.train_iters)
        gpt_feed_ahead(r->feed, GPT_TRAIN, first + batch, next / micro);
    GPT_TRY(gpt_step_train(r->replica, r->feed, &step, err));
    r->state.iteration++;
    r->state.consumed_train += batch;
    const struct gpt_report_step report = {
        .iteration = r->state.iteration,
        .consumed_samples = r->state.consumed_train,
        .batch = batch,
        .next_lr = gpt_schedule_lr(&r->plan.schedule, first + batch),
        .step = &step,
    };
    GPT_TRY(gpt_report_step(r->report, &report, err));
    return judge(r, &step, err);
}

/* Is `n` an interval, and has it come round? */
static bool due(int64_t iteration, int64_t n)
{
    return n > 0 && iteration % n == 0;
}

/* After a step: true when the run is to end now. */
static int after_step(struct run *r, bool *stop, struct gpt_err *err)
{
    const struct gpt_train_options *o = r->o;
    int64_t i = r->state.iteration;
    double minutes = (gpt_now() - r->started) / 60;
    int signal;

    *stop = true;
    if (due(i, o->eval_interval) && i < r->plan.train_iters)
        GPT_TRY(evaluate(r, false, err));
    signal = gpt_signals_stop();
    if (signal) {
        GPT_TRY(save(r, err));
        gpt_log_line("exiting program after receiving %s.",
                     gpt_signal_name(signal));
        return GPT_OK;
    }
    *stop = i < r->plan.train_iters; /* the end is in run_steps() */
    if (!*stop)
        return GPT_OK;
    if (gpt_signals_take_save() || due(i, o->save_interval))
        GPT_TRY(save(r, err));
    if (o->exit_duration_mins > 0 && minutes > o->exit_duration_mins) {
        GPT_TRY(save(r, err));
        gpt_log_line("exiting program after %.1f minutes", minutes);
        return GPT_OK;
    }
    if (due(i, o->exit_interval)) {
        GPT_TRY(save(r, err));
        gpt_log_line("exiting program at iteration %lld", (long long)i);
        return GPT_OK;
    }
    *stop = false;
    return GPT_OK;
}

static int run_steps(struct run *r, struct gpt_err *err)
{
    bool stop = false;

    if (r->state.iteration >= r->plan.train_iters) {
        gpt_log_line(" nothing to do: iteration %lld of %lld",
                     (long long)r->state.iteration,
                     (long long)r->plan.train_iters);
        return GPT_OK;
    }
    while (!stop && r->state.iteration < r->plan.train_iters) {
        GPT_TRY(one_step(r, err));
        GPT_TRY(after_step(r, &stop, err));
    }
    if (stop)
        return GPT_OK;
    GPT_TRY(save(r, err)); /* evaluation takes time, and changes nothing */
    return evaluate(r, true, err);
}

int gpt_train(const struct gpt_train_options *options,
              const struct gpt_args *args, struct gpt_err *err)
{
    struct run r = {.o = options, .lock = -1, .started = gpt_now()};
    int status = run_open(&r, args, err);

    if (status == GPT_OK && !options->dry_run)
        status = run_steps(&r, err);
    int closed = gpt_report_close(r.report, status == GPT_OK ? err : NULL);
    run_close(&r);
    return status == GPT_OK ? closed : status;
}
