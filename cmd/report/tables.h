/* A report for other programs: CSV of every value, JSON of the results. */
#ifndef GPT_CMD_REPORT_TABLES_H
#define GPT_CMD_REPORT_TABLES_H

#include "base/io.h"
#include "cmd/report/metrics.h"

/* run,iteration,samples,seconds and a column for each field that a run has; a
 * row a line of metrics. What is missing or not finite is empty. */
int gpt_csv_write(struct gpt_out *out, const struct gpt_metrics *runs,
                  size_t n_runs, struct gpt_err *err) GPT_MUST_USE;

/* One object a run and line: name, file, and the results; what a run lacks is
 * null. */
int gpt_results_json(struct gpt_out *out, const struct gpt_metrics *runs,
                     size_t n_runs, struct gpt_err *err) GPT_MUST_USE;

#endif
