/* What a run has written about itself, as columns: every field of
 * metrics.jsonl, or the numbers of a training log. This folder turns them into
 * a page, a picture in a terminal, or tables; start at main.c. */
#ifndef GPT_CMD_REPORT_METRICS_H
#define GPT_CMD_REPORT_METRICS_H

#include "base/list.h"
#include "base/memory.h"

/* One field: its values in the order of the lines that have it. */
struct gpt_series {
    const char *name; /* "lm_loss" */
    int64_t *line;    /* (n) of struct gpt_metrics, ascending */
    double *value;    /* (n) NaN: the run wrote null */
    size_t n, line_cap, value_cap;
};

/* Where a line is on each axis. */
struct gpt_moment {
    int64_t iteration;
    double samples; /* consumed up to there; 0 until a line has them */
    double ms;      /* of training, up to there */
};

struct gpt_metrics {
    const char *name; /* for legends */
    const char *path; /* of the file that was read */
    struct gpt_moment *at; /* (n_lines) */
    size_t n_lines, at_cap;
    struct gpt_series *series; /* (n_series), in the order of appearance */
    size_t n_series, series_cap;
    int64_t restarts; /* times that iterations went back, as in a log */
    const char *warning; /* of what the file lacks; NULL: of nothing */
    struct gpt_arena arena; /* names, the warning */
};

/* {0} is fine. */
void gpt_metrics_free(struct gpt_metrics *h);

/* NULL when the run has no such field. */
const struct gpt_series *gpt_metrics_find(const struct gpt_metrics *h,
                                          const char *name);

/* ---- for readers of lines ---- */

/* Begins a line; `samples` and `ms` are those of the line before. */
int gpt_metrics_line(struct gpt_metrics *h, int64_t iteration,
                     struct gpt_err *err) GPT_MUST_USE;
/* A number of the last line. */
int gpt_metrics_add(struct gpt_metrics *h, const char *name, double value,
                    struct gpt_err *err) GPT_MUST_USE;
/* The value that the last line has of a field, or NaN. */
double gpt_metrics_now(const struct gpt_metrics *h, const char *name);
/* After the numbers of a line: sets where it is on the axes. */
void gpt_metrics_place(struct gpt_metrics *h);

#endif
