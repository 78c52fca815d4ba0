/* Log lines, progress and metrics of a run; see report.h. The words and widths
 * of a line are those that scripts made for Megatron-LM parse: they are an
 * interface. Start at gpt_report_step(). */
#include "cmd/train/report.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/progress.h"
#include "cmd/train/best.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct gpt_report {
    struct gpt_report_options o;
    struct gpt_sinks *sinks;
    struct gpt_progress *progress;
    double mark, spent; /* running clock; seconds of training before it */
    struct gpt_report_step last; /* its .step is last_step */
    struct gpt_step last_step;
    /* since the last line */
    int64_t steps, advanced, skipped, overflows, samples;
    double loss;
    struct gpt_router_losses routers; /* sums */
    struct gpt_step_waits waits;
    double forward, backward, optimizer; /* seconds of steps */
    double noise_small, noise_big, batches; /* sums; batches: of their sizes */
    /* since the start of this process */
    struct {
        int64_t steps, samples;
        double seconds;      /* of training, up to the last line */
        double loss;         /* of the last step that was not skipped */
        double valid, test;  /* the last losses; NaN: none */
        int64_t valid_at;    /* -1: nowhere */
        struct gpt_best best;
    } whole;
};

double gpt_report_number(double x)
{
    return isnan(x) ? fabs(x) : x;
}

/* ---- a run ---- */

int gpt_report_open(struct gpt_report **report,
                    const struct gpt_report_options *options,
                    struct gpt_err *err)
{
    struct gpt_report *r = NULL;
    /* Where each step has a log line already, a progress line in a file tells
     * nothing more. */
    bool progress = isatty(STDERR_FILENO) || options->log_interval > 1 ||
                    strcmp(options->progress, "always") == 0;
    int status;

    *report = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "the report", err));
    r->o = *options;
    r->whole.loss = r->whole.valid = r->whole.test = (double)NAN;
    r->whole.valid_at = -1;
    GPT_TRY_GOTO(status, gpt_sinks_open(&r->sinks, &options->sinks, err), fail);
    if (progress)
        r->progress = gpt_progress_open(options->progress, "train", "step",
                                        options->train_iters);
    gpt_progress_set(r->progress, options->iteration, NULL);
    r->mark = gpt_now();
    *report = r;
    return GPT_OK;
fail:
    gpt_free(r);
    return status;
}

int gpt_report_close(struct gpt_report *r, struct gpt_err *err)
{
    if (!r)
        return GPT_OK;
    gpt_progress_close(r->progress);
    const int status = gpt_sinks_close(r->sinks, err);

    gpt_free(r);
    return status;
}

/* The two keep a clock of training alone. A failure between them ends the run,
 * so that a pause without a resume is never seen. */
void gpt_report_pause(struct gpt_report *r)
{
    r->spent += gpt_now() - r->mark;
}

void gpt_report_resume(struct gpt_report *r)
{
    r->mark = gpt_now();
}

/* Means over the steps since the last line. */
struct summary {
    double ms, loss, tokens_per_second, gflops;
    struct gpt_router_losses routers;
};

static struct summary summarise(const struct gpt_report *r)
{
    /* Tokens are those of all ranks. The seconds are rank 0's, which is as long
     * in a step as the others. */
    double seconds = r->spent > 0 ? r->spent : 1e-9;
    double tokens = (double)(r->samples * r->o.seq_length);
    const double advanced = (double)(r->advanced ? r->advanced : 1);

    return (struct summary){
        .ms = 1e3 * r->spent / (double)r->steps,
        .loss = r->loss / advanced,
        .routers = {r->routers.balance / advanced, r->routers.size / advanced},
        .tokens_per_second = tokens / seconds,
        .gflops = tokens * r->o.flops_per_token / seconds / 1e9,
    };
}

/* Over all steps of the line: of one step alone the two norms say next to
 * nothing. Steps of different batch sizes count as those of the mean size. */
static double noise_scale(const struct gpt_report *r)
{
    if (r->advanced == 0)
        return (double)NAN;
    return gpt_noise_scale(r->noise_small, r->noise_big,
                           (double)r->o.micro_batch,
                           r->batches / (double)r->advanced);
}

/* A step that was skipped because the loss scale is still too large counts as
 * skipped alone; any other skipped step counts as a nan iteration, too. */
static void print_line(const struct gpt_report *r,
                       const struct gpt_report_step *s,
                       const struct summary *sum)
{
    char loss[48] = "", throughput[64] = "", noise[64] = "", rate[64] = "";
    char balance[48] = "", size[48] = "";

    /* Steps that were skipped have no loss to average. */
    if (r->advanced > 0)
        snprintf(loss, sizeof(loss), " lm loss: %.6E |", sum->loss);
    if (r->advanced > 0 && r->o.router_balance)
        snprintf(balance, sizeof(balance), " load_balancing_loss: %.6E |",
                 sum->routers.balance);
    if (r->advanced > 0 && r->o.router_size)
        snprintf(size, sizeof(size), " z_loss: %.6E |", sum->routers.size);
    if (r->o.log_throughput)
        snprintf(throughput, sizeof(throughput),
                 r->o.gpu ? " throughput per GPU (TFLOP/s/GPU): %.1f |"
                          : " throughput per rank (TFLOP/s): %.3f |",
                 sum->gflops / 1e3 / (double)r->o.ranks);
    /* where Megatron-LM has it */
    if (r->o.decoupled_lr)
        snprintf(rate, sizeof(rate), " decoupled learning rate: %.3E |",
                 s->next.decoupled_lr);
    /* at the end: scripts find the fields before it where they were */
    if (r->o.log_noise_scale)
        snprintf(noise, sizeof(noise), " gradient noise scale: %.1f |",
                 gpt_report_number(noise_scale(r)));
    gpt_log_line(" iteration %8lld/%8lld | consumed samples: %12lld |"
                 " elapsed time per iteration (ms): %.1f |%s"
                 " learning rate: %.3E |%s global batch size: %5lld |%s%s%s"
                 " loss scale: %.1f | grad norm: %.3f |"
                 " number of skipped iterations: %3lld |"
                 " number of nan iterations: %3lld |%s",
                 (long long)s->iteration, (long long)r->o.train_iters,
                 (long long)s->consumed_samples, sum->ms, throughput,
                 s->next.lr, rate, (long long)s->batch, loss, balance, size,
                 s->step->loss_scale,
                 gpt_report_number(s->step->grad_norm), (long long)r->skipped,
                 (long long)(r->skipped - r->overflows), noise);
}

/* Means over the steps of the line and, but for the update, over ranks. */
static void print_times(const struct gpt_report *r)
{
    const double ms = 1e3 / (double)r->steps;

    if (r->o.log_times && !r->o.gpu)
        gpt_log_line(" times of a step (ms): forward: %.3f | backward: %.3f | "
                     "optimizer: %.3f |",
                     ms * r->forward, ms * r->backward, ms * r->optimizer);
}

/* The numbers of a line, as gpt-train(1) lists them. */
struct line {
    struct gpt_metric metrics[40];
    size_t n;
};

/* Names and decimals are an interface: scripts read them. */
static void add(struct line *l, const char *name, double value, int decimals)
{
    assert(l->n < GPT_COUNT(l->metrics));
    l->metrics[l->n++] = (struct gpt_metric){name, value, decimals};
}

/* The means of a step's waits, in ms; nothing where there is one rank. */
static void add_waits(struct line *l, const struct gpt_report *r)
{
    const double ms = 1e3 / (double)r->steps;

    if (r->o.ranks <= 1)
        return;
    add(l, "pipeline_wait_ms", ms * r->waits.pipeline, 3);
    add(l, "reduce_wait_ms", ms * r->waits.gradients, 3);
    add(l, "tensor_wait_ms", ms * r->waits.tensor, 3);
    add(l, "gather_wait_ms", ms * r->waits.weights, 3);
}

/* Where the device computes while the host goes on, the host's times are not
 * those of the device, and are left out. */
static void add_times(struct line *l, const struct gpt_report *r)
{
    const double ms = 1e3 / (double)r->steps;

    if (r->o.gpu)
        return;
    add(l, "forward_ms", ms * r->forward, 3);
    add(l, "backward_ms", ms * r->backward, 3);
    add(l, "optimizer_ms", ms * r->optimizer, 3);
}

/* Adds the memory of rank 0: what its process holds, and what its device has
 * given out. On a GPU other processes may hold a part of the latter. */
static void add_memory(struct line *l, const struct gpt_report *r)
{
    int64_t available, total;

    add(l, "host_memory_bytes", gpt_memory_resident(), 0);
    if (r->o.gpu) {
        r->o.be->memory(r->o.be, &available, &total);
        add(l, "device_memory_bytes", (double)(total - available), 0);
    }
    add(l, "predicted_memory_bytes", r->o.predicted_memory, 0);
}

/* What is beside the numbers of Megatron-LM. Fields come and go with the run,
 * never within it, so that curves have no gaps. */
static void add_rest(struct line *l, const struct gpt_report *r,
                     const struct gpt_report_step *s,
                     const struct summary *sum)
{
    add(l, "samples_per_second",
        sum->tokens_per_second / (double)r->o.seq_length, 3);
    if (r->o.peak > 0)
        add(l, "mfu", 1e9 * sum->gflops / (r->o.peak * (double)r->o.ranks),
            5);
    add_times(l, r);
    add_memory(l, r);
    add(l, "restarts", (double)r->o.restarts, 0);
    if (s->data_stage > 0)
        add(l, "data_stage", (double)s->data_stage, 0);
}

/* The sinks decide what becomes of a number that is not finite. */
static int write_line(const struct gpt_report *r,
                      const struct gpt_report_step *s,
                      const struct summary *sum, struct gpt_err *err)
{
    struct line l = {.n = 0};

    add(&l, "consumed_samples", (double)s->consumed_samples, 0);
    add(&l, "lm_loss", r->advanced ? sum->loss : (double)NAN, -1);
    if (r->o.router_balance)
        add(&l, "load_balancing_loss",
            r->advanced ? sum->routers.balance : (double)NAN, -1);
    if (r->o.router_size)
        add(&l, "z_loss", r->advanced ? sum->routers.size : (double)NAN, -1);
    add(&l, "learning_rate", s->next.lr, -1);
    if (r->o.decoupled_lr)
        add(&l, "decoupled_learning_rate", s->next.decoupled_lr, -1);
    add(&l, "grad_norm", s->step->grad_norm, -1);
    add(&l, "loss_scale", s->step->loss_scale, -1);
    add(&l, "global_batch_size", (double)s->batch, 0);
    add(&l, "elapsed_ms", sum->ms, 3);
    add(&l, "tokens_per_second", sum->tokens_per_second, 1);
    add(&l, "gflops", sum->gflops, 2);
    add(&l, "skipped_iterations", (double)r->skipped, 0);
    if (r->o.log_noise_scale)
        add(&l, "gradient_noise_scale", noise_scale(r), -1);
    add_waits(&l, r);
    add_rest(&l, r, s, sum);
    return gpt_sinks_write(r->sinks, s->iteration, l.metrics, l.n, err);
}

/* The clock stops while the lines are written, as a slow terminal or disk is no
 * part of training. Nothing is left over then, so that a run may end after any
 * step. */
int gpt_report_last_steps(struct gpt_report *r, struct gpt_err *err)
{
    if (r->steps == 0)
        return GPT_OK;
    gpt_report_pause(r);
    const struct summary sum = summarise(r);
    print_line(r, &r->last, &sum);
    print_times(r);
    gpt_stragglers_report(r->o.stragglers);
    const int status = write_line(r, &r->last, &sum, err);
    r->steps = r->advanced = r->skipped = r->overflows = r->samples = 0;
    r->whole.seconds += r->spent;
    r->routers = (struct gpt_router_losses){0};
    r->spent = r->loss = r->noise_small = r->noise_big = r->batches = 0;
    r->waits = (struct gpt_step_waits){0};
    r->forward = r->backward = r->optimizer = 0;
    gpt_report_resume(r);
    return status;
}

/* A line is written at multiples of the interval, and not that number of steps
 * after the last one: the lines of a resumed run fall on the same iterations.
 */
int gpt_report_step(struct gpt_report *r, const struct gpt_report_step *s,
                    struct gpt_err *err)
{
    char note[32];

    r->steps++;
    r->samples += s->batch;
    r->whole.steps++;
    r->whole.samples += s->batch;
    r->waits.pipeline += s->step->waits.pipeline;
    r->waits.gradients += s->step->waits.gradients;
    r->waits.tensor += s->step->waits.tensor;
    r->waits.weights += s->step->waits.weights;
    r->forward += s->step->forward;
    r->backward += s->step->backward;
    r->optimizer += s->step->times.optimizer;
    gpt_stragglers_add(r->o.stragglers, &s->step->ranks);
    if (s->step->skipped) {
        r->skipped++;
        r->overflows += s->step->overflow;
    } else {
        r->advanced++;
        r->loss += s->step->loss;
        r->routers.balance += s->step->routers.balance;
        r->routers.size += s->step->routers.size;
        r->noise_small += s->step->noise_small;
        r->noise_big += s->step->noise_big;
        r->batches += (double)s->batch;
        r->whole.loss = s->step->loss;
    }
    snprintf(note, sizeof(note), "loss %.4f", s->step->loss);
    gpt_progress_set(r->progress, s->iteration, note);
    r->last = *s;
    r->last_step = *s->step;
    r->last.step = &r->last_step;
    return s->iteration % r->o.log_interval == 0 ? gpt_report_last_steps(r, err)
                                                 : GPT_OK;
}

double gpt_report_perplexity(double loss)
{
    return isnan(loss) ? loss : exp(fmin(20, loss));
}

/* Where in the run: "iteration 100" or "the end of training". */
static const char *place_of(char text[64], int64_t iteration, bool end)
{
    snprintf(text, 64, "iteration %lld", (long long)iteration);
    return end ? "the end of training" : text;
}

/* A line between two of dashes, as Megatron-LM prints evaluations. */
static void print_framed(const char *text)
{
    static const char dashes[] =
        "----------------------------------------------------------------"
        "----------------------------------------------------------------"
        "----------------------------------------------------------------";
    const int n = (int)strlen(text);

    gpt_log_line("%.*s", n, dashes);
    gpt_log_line("%s", text);
    gpt_log_line("%.*s", n, dashes);
}

/* The summary at the end has the first set's loss: that of the run. */
static void keep_loss(struct gpt_report *r, const struct gpt_report_eval *e)
{
    if (strcmp(e->what, "test") == 0) {
        r->whole.test = e->loss;
        return;
    }
    if (r->whole.valid_at == e->iteration)
        return;
    r->whole.valid = e->loss;
    r->whole.valid_at = e->iteration;
    gpt_best_take(&r->whole.best, e->iteration, e->loss, 0);
}

/* The line is Megatron-LM's up to the perplexity, which scripts parse; bits a
 * byte follow. Fields are named after the set, as the line is. */
int gpt_report_eval(struct gpt_report *r, const struct gpt_report_eval *e,
                    struct gpt_err *err)
{
    const double ppl = gpt_report_perplexity(e->loss);
    char text[320], at[64], bits[64] = "", names[3][200];

    keep_loss(r, e);
    if (isfinite(e->bits_per_byte))
        snprintf(bits, sizeof(bits), "bits per byte: %.6E | ",
                 e->bits_per_byte);
    snprintf(text, sizeof(text),
             " %s loss at %s | lm loss value: %.6E | lm loss PPL: %.6E | %s",
             e->what, place_of(at, e->iteration, e->end),
             gpt_report_number(e->loss), gpt_report_number(ppl), bits);
    print_framed(text);
    snprintf(names[0], sizeof(names[0]), "%s_loss", e->what);
    snprintf(names[1], sizeof(names[1]), "%s_ppl", e->what);
    snprintf(names[2], sizeof(names[2]), "%s_bits_per_byte", e->what);
    const struct gpt_metric metrics[] = {{names[0], e->loss, -1},
                                         {names[1], ppl, -1},
                                         {names[2], e->bits_per_byte, -1}};

    return gpt_sinks_write(r->sinks, e->iteration, metrics,
                           isfinite(e->bits_per_byte) ? 3 : 2, err);
}

/* Names of figures are those of the language model evaluation harness. */
int gpt_report_score(struct gpt_report *r, const struct gpt_report_score *s,
                     struct gpt_err *err)
{
    const bool choices = isfinite(s->normalized);
    char text[320], at[64], normalized[64] = "", names[3][200];

    if (choices)
        snprintf(normalized, sizeof(normalized), "acc_norm: %.6f | ",
                 s->normalized);
    snprintf(text, sizeof(text), " %s at %s | acc: %.6f | %sppl: %.6E | ",
             s->what, place_of(at, s->iteration, s->end), s->accuracy,
             normalized, s->perplexity);
    print_framed(text);
    snprintf(names[0], sizeof(names[0]), "%s_acc", s->what);
    snprintf(names[1], sizeof(names[1]), "%s_ppl", s->what);
    snprintf(names[2], sizeof(names[2]), "%s_acc_norm", s->what);
    const struct gpt_metric metrics[] = {{names[0], s->accuracy, -1},
                                         {names[1], s->perplexity, -1},
                                         {names[2], s->normalized, -1}};

    return gpt_sinks_write(r->sinks, s->iteration, metrics, choices ? 3 : 2,
                           err);
}

/* Prompt and text are JSON strings in the log, so that a sample is one line of
 * it whatever it holds. */
static void print_sample(const struct gpt_report_sample *s)
{
    cJSON *prompt = cJSON_CreateString(s->prompt);
    cJSON *text = cJSON_CreateString(s->text);
    char *a = gpt_json_print(prompt, false), *b = gpt_json_print(text, false);

    if (a && b)
        gpt_log_line(" sample %lld at iteration %lld | %s -> %s |",
                     (long long)s->number, (long long)s->iteration, a, b);
    cJSON_free(a);
    cJSON_free(b);
    cJSON_Delete(prompt);
    cJSON_Delete(text);
}

/* A line of the file has all that the log and TensorBoard show, and how the
 * text ended. */
int gpt_report_sample(struct gpt_report *r, const struct gpt_report_sample *s,
                      struct gpt_err *err)
{
    cJSON *line = cJSON_CreateObject();

    print_sample(s);
    cJSON_AddNumberToObject(line, "iteration", (double)s->iteration);
    cJSON_AddNumberToObject(line, "number", (double)s->number);
    cJSON_AddStringToObject(line, "prompt", s->prompt);
    cJSON_AddStringToObject(line, "text", s->text);
    cJSON_AddNumberToObject(line, "tokens", (double)s->tokens);
    cJSON_AddStringToObject(line, "finish", s->finish);
    char *json = gpt_json_print(line, false);
    struct gpt_buf text = {0};
    char tag[32];

    snprintf(tag, sizeof(tag), "sample %lld", (long long)s->number);
    int status = gpt_buf_printf(&text, "%s%s", s->prompt, s->text);
    status = json && status == GPT_OK
                 ? gpt_sinks_sample(r->sinks, s->iteration, json, tag,
                                    text.data, err)
                 : gpt_no_memory(err, "a sample");
    gpt_buf_free(&text);
    cJSON_free(json);
    cJSON_Delete(line);
    return status;
}

/* Hours, minutes and seconds; fractions of a second where there is no more. */
static void describe_time(char *text, size_t cap, double seconds)
{
    const long long s = (long long)seconds;

    if (s < 60)
        snprintf(text, cap, s < 10 ? "%.2f s" : "%.1f s", seconds);
    else
        snprintf(text, cap, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60,
                 s % 60);
}

/* How well the machine was used: the utilization, and memory beside its
 * prediction. */
static void summarise_machine(const struct gpt_report *r, double tokens,
                              double seconds)
{
    char peak[32], held[32], predicted[32];

    if (r->o.peak > 0 && seconds > 0)
        gpt_log_line(" utilization (MFU): %.1f %% of %sFLOP/s a rank, %s",
                     100 * tokens * r->o.flops_per_token / seconds /
                         (r->o.peak * (double)r->o.ranks),
                     gpt_text_si(peak, r->o.peak), r->o.peak_is);
    gpt_log_line(" memory of rank 0: %s of the host at most; %s were "
                 "predicted%s",
                 gpt_text_bytes(held, gpt_memory_peak()),
                 gpt_text_bytes(predicted, r->o.predicted_memory),
                 r->o.gpu ? " for the device" : "");
}

/* A run that was resumed may have had a lower loss before. */
static void summarise_best(const struct gpt_report *r, int64_t from)
{
    char since[48] = "";

    if (from > 0)
        snprintf(since, sizeof(since), " since iteration %lld",
                 (long long)from);
    gpt_log_line(" best validation loss%s: %.6E, at iteration %lld", since,
                 r->whole.best.loss, (long long)r->whole.best.iteration);
}

/* The last step's loss: lines have the means of their steps. */
void gpt_report_summary(const struct gpt_report *r, int64_t iteration)
{
    /* The clock runs: evaluation and saving have ended. */
    const double seconds = r->whole.seconds + r->spent + gpt_now() - r->mark;
    const double tokens = (double)(r->whole.samples * r->o.seq_length);
    char time[32];

    if (r->whole.steps > 0) {
        describe_time(time, sizeof(time), seconds);
        gpt_log_line(" trained iterations %lld to %lld: %.0f tokens in %s, "
                     "%.0f tokens/s",
                     (long long)(iteration - r->whole.steps + 1),
                     (long long)iteration, tokens, time,
                     tokens / (seconds > 0 ? seconds : 1e-9));
        if (isfinite(r->whole.loss))
            gpt_log_line(" last lm loss: %.6E", r->whole.loss);
    }
    if (isfinite(r->whole.valid))
        gpt_log_line(" last validation loss: %.6E, at iteration %lld",
                     r->whole.valid, (long long)r->whole.valid_at);
    if (r->whole.best.iteration > 0 &&
        r->whole.best.iteration != r->whole.valid_at)
        summarise_best(r, iteration - r->whole.steps);
    if (isfinite(r->whole.test))
        gpt_log_line(" test loss: %.6E", r->whole.test);
    if (r->whole.steps > 0)
        summarise_machine(r, tokens, seconds);
    if (r->o.sinks.metrics)
        gpt_log_line(" metrics are in %s", r->o.sinks.metrics);
    if (r->o.sinks.tensorboard)
        gpt_log_line(" event files are in %s", r->o.sinks.tensorboard);
}
