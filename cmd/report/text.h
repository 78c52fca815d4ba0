/* A report as text: a table of results and curves in characters. */
#ifndef GPT_CMD_REPORT_TEXT_H
#define GPT_CMD_REPORT_TEXT_H

#include "cmd/report/charts.h"

struct gpt_text_options {
    int64_t columns, lines; /* of the whole width; of each curve's picture */
    bool ascii, color, log;
    double smoothing; /* 0 to 1: weight of the mean before a point */
};

int gpt_text_report(struct gpt_buf *b, const struct gpt_text_options *o,
                    const struct gpt_metrics *runs, size_t n_runs,
                    const struct gpt_charts *charts, struct gpt_err *err)
    GPT_MUST_USE;

#endif
