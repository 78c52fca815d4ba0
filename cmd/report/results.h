/* The numbers that a run comes to. */
#ifndef GPT_CMD_REPORT_RESULTS_H
#define GPT_CMD_REPORT_RESULTS_H

#include "cmd/report/metrics.h"

/* What a run lacks is NaN, as a validation loss. */
struct gpt_results {
    double iteration, samples, seconds; /* at the end */
    double loss;                        /* of the last log line that has one */
    double best_validation, best_at;    /* at which iteration */
    double last_validation, test;
    double tokens_per_second, step_ms;  /* medians over log lines */
    double mfu;                         /* a median, too */
    double skipped, restarts;
    double without_loss; /* lines of steps whose loss is no number */
};

int gpt_results_of(struct gpt_results *r, const struct gpt_metrics *h,
                   struct gpt_err *err) GPT_MUST_USE;

/* A column a number: for tables, whatever they are written in. */
struct gpt_result_column {
    const char *key;   /* of JSON: "best_validation_loss" */
    const char *title; /* of a table: "best validation" */
    size_t offset;     /* of a double in struct gpt_results */
    char *(*text)(char *buf, double value); /* for people; 32 bytes */
};

double gpt_result(const struct gpt_results *r,
                  const struct gpt_result_column *column);
extern const struct gpt_result_column gpt_result_columns[];
extern const size_t gpt_n_result_columns;

#endif
