/* The page: one HTML file that needs no other. */
#ifndef GPT_CMD_REPORT_PAGE_H
#define GPT_CMD_REPORT_PAGE_H

#include "base/io.h"
#include "cmd/report/charts.h"

struct gpt_page {
    const char *title; /* NULL: the names of the runs */
    const struct gpt_metrics *runs;
    size_t n_runs;
    const struct gpt_charts *charts;
    size_t points;    /* of a curve, at most */
    double smoothing; /* at the start, 0 to 1 */
    bool log;         /* values are on a logarithmic axis at the start */
    const char *timeline; /* text of an SVG picture, or NULL */
    const char *plan;     /* plain text, or NULL */
};

int gpt_page_write(const struct gpt_page *p, struct gpt_out *out,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
