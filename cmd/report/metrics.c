/* Columns of metrics; see metrics.h.
 *
 * Lines are not all alike: validations have other fields than steps, ranks add
 * waits, and later versions of gpt-train add more. Each field is therefore a
 * list of (line, value), which costs nothing for the lines that lack it, and
 * nothing here knows the names of fields but those of the axes.
 *
 * Positions on the axes are a table of their own, a row a line, because several
 * fields share them. A line that says nothing of an axis, as a validation, is
 * where the line before it was. */
#include "cmd/report/metrics.h"

#include <math.h>
#include <string.h>

/* Runs have some twenty fields, so that a search from the first is fast. */
const struct gpt_series *gpt_metrics_find(const struct gpt_metrics *h,
                                          const char *name)
{
    for (size_t i = 0; i < h->n_series; i++)
        if (strcmp(h->series[i].name, name) == 0)
            return &h->series[i];
    return NULL;
}

/* ---- lines ---- */

/* A log may hold a run twice from its last checkpoint on, as every start
 * appends to it: iterations then go back. metrics.jsonl has no such place,
 * since gpt-train cuts it before it resumes. */
int gpt_metrics_line(struct gpt_metrics *h, int64_t iteration,
                     struct gpt_err *err)
{
    struct gpt_moment at = {.iteration = iteration};

    GPT_TRY(gpt_grow(&h->at, &h->at_cap, h->n_lines + 1, sizeof(*h->at),
                     "lines of metrics", err));
    if (h->n_lines > 0) {
        at = h->at[h->n_lines - 1];
        h->restarts += iteration < at.iteration;
        at.iteration = iteration;
    }
    h->at[h->n_lines++] = at;
    return GPT_OK;
}

/* Names come from parsers whose text is freed: the columns keep their own. */
static int add_series(struct gpt_metrics *h, const char *name,
                      struct gpt_series **made, struct gpt_err *err)
{
    const char *copy = gpt_arena_strdup(&h->arena, name);

    if (!copy)
        return gpt_no_memory(err, "names of metrics");
    GPT_TRY(gpt_grow(&h->series, &h->series_cap, h->n_series + 1,
                     sizeof(*h->series), "fields of metrics", err));
    *made = &h->series[h->n_series++];
    **made = (struct gpt_series){.name = copy};
    return GPT_OK;
}

/* The list of series may move when it grows, so that `found` is used only for
 * its place. */
int gpt_metrics_add(struct gpt_metrics *h, const char *name, double value,
                    struct gpt_err *err)
{
    const struct gpt_series *found = gpt_metrics_find(h, name);
    struct gpt_series *s = NULL;

    if (found)
        s = &h->series[found - h->series];
    else
        GPT_TRY(add_series(h, name, &s, err));
    /* twice in a line: the last one counts, as in most readers of JSON */
    if (s->n > 0 && s->line[s->n - 1] == (int64_t)h->n_lines - 1)
        s->n--;
    GPT_TRY(gpt_grow(&s->line, &s->line_cap, s->n + 1, sizeof(*s->line),
                     "a field of metrics", err));
    GPT_TRY(gpt_grow(&s->value, &s->value_cap, s->n + 1, sizeof(*s->value),
                     "a field of metrics", err));
    s->line[s->n] = (int64_t)h->n_lines - 1;
    s->value[s->n++] = value;
    return GPT_OK;
}

double gpt_metrics_now(const struct gpt_metrics *h, const char *name)
{
    const struct gpt_series *s = gpt_metrics_find(h, name);

    return s && s->line[s->n - 1] == (int64_t)h->n_lines - 1
               ? s->value[s->n - 1]
               : (double)NAN;
}

/* elapsed_ms is the mean of the steps since the log line before; validations
 * between them do not count. The first line covers all steps so far where the
 * run says that it was not resumed. Else it counts as one step: how many it
 * covers is not in it. */
void gpt_metrics_place(struct gpt_metrics *h)
{
    struct gpt_moment *at = &h->at[h->n_lines - 1];
    const struct gpt_series *times = gpt_metrics_find(h, "elapsed_ms");
    const double samples = gpt_metrics_now(h, "consumed_samples");
    const double ms = gpt_metrics_now(h, "elapsed_ms");

    if (isfinite(samples))
        at->samples = samples;
    if (!isfinite(ms))
        return;
    int64_t steps = gpt_metrics_now(h, "restarts") == 0 ? at->iteration : 1;
    if (times->n > 1)
        steps = at->iteration - h->at[times->line[times->n - 2]].iteration;
    at->ms += steps > 0 ? ms * (double)steps : 0;
}

void gpt_metrics_free(struct gpt_metrics *h)
{
    for (size_t i = 0; i < h->n_series; i++) {
        gpt_free(h->series[i].line);
        gpt_free(h->series[i].value);
    }
    gpt_free(h->series);
    gpt_free(h->at);
    gpt_arena_free(&h->arena);
    *h = (struct gpt_metrics){.name = NULL};
}
