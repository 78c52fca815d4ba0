/* What is drawn: a row a chart. A field that no row names gets a chart of its
 * own, so that metrics which are new are seen without a change here. */
#ifndef GPT_CMD_REPORT_CHARTS_H
#define GPT_CMD_REPORT_CHARTS_H

#include "cmd/report/metrics.h"

enum { GPT_CHART_FIELDS = 8 };

struct gpt_chart {
    const char *title;
    const char *unit; /* "" where the title says it */
    /* NULL after the last. In the table '*' stands for a name of a validation
     * set or a task. */
    const char *fields[GPT_CHART_FIELDS];
};

/* Charts that one run at least has values for: the table's rows in order, then
 * fields of their own. Names borrow from the runs. */
struct gpt_charts {
    struct gpt_chart *rows; /* (n) */
    size_t n, cap;
};

int gpt_charts_make(struct gpt_charts *c, const struct gpt_metrics *runs,
                    size_t n_runs, struct gpt_err *err) GPT_MUST_USE;
void gpt_charts_free(struct gpt_charts *c);

/* Numbers that the user gives, from which fields are derived: bits_per_byte and
 * validation_bits_per_byte from losses, mfu from gflops. */
struct gpt_derivation {
    double bytes_per_token; /* 0: not known */
    double peak;            /* TFLOP/s of all ranks together; 0: not known */
};
int gpt_metrics_derive(struct gpt_metrics *h, const struct gpt_derivation *d,
                       struct gpt_err *err) GPT_MUST_USE;

#endif
