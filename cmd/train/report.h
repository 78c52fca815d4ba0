/* The report of a run: Megatron's log lines on stderr, and metrics, which go to
 * sinks.h. */
#ifndef GPT_CMD_TRAIN_REPORT_H
#define GPT_CMD_TRAIN_REPORT_H

#include "base/status.h"
#include "cmd/train/sinks.h"
#include "cmd/train/stragglers.h"
#include "train/step.h"

struct gpt_report_options {
    int64_t train_iters, log_interval;
    double flops_per_token;
    int64_t seq_length;
    int64_t ranks; /* throughput is logged a rank */
    bool decoupled_lr; /* there is one to log */
    bool router_balance, router_size; /* so are losses of routers */
    bool log_throughput, log_noise_scale, log_times;
    int64_t micro_batch; /* samples of the noise scale's microbatch */
    bool gpu; /* what a rank computes with */
    struct gpt_backend *be;  /* whose memory is measured */
    double predicted_memory; /* bytes of this rank, of the device */
    double peak;             /* FLOP/s of a rank, 0: not known */
    const char *peak_is;     /* that peak, in words; outlives the report */
    int64_t restarts;        /* times that the run was resumed before this */
    struct gpt_stragglers *stragglers; /* outlives the report; NULL: none */
    struct gpt_sink_options sinks; /* of metrics */
    int64_t iteration;    /* that the run continues from */
    const char *progress; /* --progress */
};

struct gpt_report;

/* Opens what the log's numbers go to, and the progress line. Closing fails
 * where the last numbers could not be written; NULL is fine. */
int gpt_report_open(struct gpt_report **report,
                    const struct gpt_report_options *options,
                    struct gpt_err *err) GPT_MUST_USE;
int gpt_report_close(struct gpt_report *report, struct gpt_err *err);

struct gpt_report_step {
    int64_t iteration; /* just finished */
    int64_t consumed_samples, batch;
    struct gpt_rates next; /* of the next step, as Megatron logs them */
    int64_t data_stage; /* of the step's first sample, from 1 on; 0: none */
    const struct gpt_step *step;
};
/* To be called after every step: prints and writes at multiples of the log
 * interval. The step is copied. */
int gpt_report_step(struct gpt_report *report, const struct gpt_report_step *s,
                    struct gpt_err *err) GPT_MUST_USE;
/* Prints and writes the steps since the last line, if there are any: the run
 * makes no more. */
int gpt_report_last_steps(struct gpt_report *report, struct gpt_err *err)
    GPT_MUST_USE;

/* The caller stops the clock of training around the next three:
 * gpt_report_pause(). */

struct gpt_report_eval {
    const char *what; /* "validation", "validation-NAME" or "test" */
    int64_t iteration;
    bool end; /* of training: said in the place of the iteration */
    double loss, bits_per_byte; /* NaN: not known */
};
int gpt_report_eval(struct gpt_report *report, const struct gpt_report_eval *e,
                    struct gpt_err *err) GPT_MUST_USE;
/* exp(loss), of at most 20, as in Megatron-LM: an untrained model would print
 * an infinity. */
double gpt_report_perplexity(double loss);

struct gpt_report_score {
    const char *what; /* "score-NAME" */
    int64_t iteration;
    bool end;
    double accuracy, normalized, perplexity; /* normalized: NaN: none */
};
int gpt_report_score(struct gpt_report *report,
                     const struct gpt_report_score *s,
                     struct gpt_err *err) GPT_MUST_USE;

struct gpt_report_sample {
    int64_t iteration, number; /* number: of the prompt, from 1 */
    const char *prompt, *text; /* UTF-8 */
    int64_t tokens;
    const char *finish;
};
int gpt_report_sample(struct gpt_report *report,
                      const struct gpt_report_sample *s,
                      struct gpt_err *err) GPT_MUST_USE;

/* Reports the end of the run: steps made here, tokens, time, the last losses,
 * and where metrics are; nothing where no step was made and nothing was
 * evaluated. */
void gpt_report_summary(const struct gpt_report *report, int64_t iteration);

/* Returns x, a NaN without the sign that some NaNs have: "nan" is what scripts
 * and people look for. */
double gpt_report_number(double x);

/* Leaves time that was not training (evaluation, saving) out of the log. */
void gpt_report_pause(struct gpt_report *report);
void gpt_report_resume(struct gpt_report *report);

#endif
