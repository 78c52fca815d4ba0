/* Numbers of a run; see results.h. The columns at the end are the one list of
 * them: the page, the text and the JSON print whatever stands there. A number
 * that a run has not is NaN, and each of the three shows that in its way. Start
 * at gpt_results_of(). */
#include "cmd/report/results.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Medians: the first step of a run, and those beside a save, are slow. */
static int median(const struct gpt_metrics *h, const char *name, double *out,
                  struct gpt_err *err)
{
    const struct gpt_series *s = gpt_metrics_find(h, name);
    double *values = NULL;
    size_t n = 0;

    *out = (double)NAN;
    if (!s)
        return GPT_OK;
    GPT_TRY(gpt_new(&values, s->n, sizeof(*values), "a median", err));
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->value[i]))
            values[n++] = s->value[i];
    *out = gpt_median(values, n);
    gpt_free(values);
    return GPT_OK;
}

/* The last finite one: a run that diverged still says where it was. */
static double last(const struct gpt_metrics *h, const char *name)
{
    const struct gpt_series *s = gpt_metrics_find(h, name);

    for (size_t i = s ? s->n : 0; i-- > 0;)
        if (isfinite(s->value[i]))
            return s->value[i];
    return (double)NAN;
}

/* NaN without the field: "0 skipped" would claim what the run does not say. */
static double sum(const struct gpt_metrics *h, const char *name)
{
    const struct gpt_series *s = gpt_metrics_find(h, name);
    double total = s ? 0 : (double)NAN;

    for (size_t i = 0; s && i < s->n; i++)
        total += isfinite(s->value[i]) ? s->value[i] : 0;
    return total;
}

/* A line whose steps were all skipped, or whose loss was no number: the last
 * loss is of a line before it, which a reader must know. Other programs write
 * null in the line of a validation, too. */
static double without(const struct gpt_metrics *h, const char *name)
{
    const struct gpt_series *s = gpt_metrics_find(h, name);
    const struct gpt_series *v = gpt_metrics_find(h, "validation_loss");
    double lines = s ? 0 : (double)NAN;

    for (size_t i = 0, k = 0; s && i < s->n; i++) {
        while (v && k < v->n && v->line[k] < s->line[i])
            k++;
        const bool validation = v && k < v->n && v->line[k] == s->line[i] &&
                                isfinite(v->value[k]);
        lines += !isfinite(s->value[i]) && !validation;
    }
    return lines;
}

/* The field by which a run is judged: its validation loss, or that of the first
 * set with a name, by which gpt-train chooses the best checkpoint, too. */
static const char *validation_of(const struct gpt_metrics *h)
{
    static const char own[] = "validation_loss";

    for (size_t i = 0; !gpt_metrics_find(h, own) && i < h->n_series; i++) {
        const char *name = h->series[i].name, *end = strrchr(name, '_');

        if (strncmp(name, "validation-", 11) == 0 && end &&
            strcmp(end, "_loss") == 0)
            return name;
    }
    return own;
}

/* The first of equal ones, as a checkpoint of it would be kept. */
static void find_best(struct gpt_results *r, const struct gpt_metrics *h)
{
    const struct gpt_series *s = gpt_metrics_find(h, validation_of(h));

    for (size_t i = 0; s && i < s->n; i++)
        if (isfinite(s->value[i]) &&
            (isnan(r->best_validation) || s->value[i] < r->best_validation)) {
            r->best_validation = s->value[i];
            r->best_at = (double)h->at[s->line[i]].iteration;
        }
}

/* Returns the last line of a training step, which samples and loss are taken
 * from: an evaluation may come after it. Returns the last line where there is
 * none of a step. */
static const struct gpt_moment *end_of(const struct gpt_metrics *h)
{
    const struct gpt_series *loss = gpt_metrics_find(h, "lm_loss");

    if (h->n_lines == 0)
        return NULL;
    return &h->at[loss ? (size_t)loss->line[loss->n - 1] : h->n_lines - 1];
}

int gpt_results_of(struct gpt_results *r, const struct gpt_metrics *h,
                   struct gpt_err *err)
{
    const double none = (double)NAN;
    const struct gpt_moment *end = end_of(h);

    *r = (struct gpt_results){
        .iteration = end ? (double)end->iteration : none,
        .samples = end && end->samples > 0 ? end->samples : none,
        .seconds = end && end->ms > 0 ? end->ms / 1e3 : none,
        .loss = last(h, "lm_loss"),
        .best_validation = none,
        .best_at = none,
        .last_validation = last(h, validation_of(h)),
        .test = last(h, "test_loss"),
        .skipped = sum(h, "skipped_iterations"),
        .restarts = fmax((double)h->restarts, last(h, "restarts")),
        .without_loss = without(h, "lm_loss"),
    };
    find_best(r, h);
    GPT_TRY(median(h, "tokens_per_second", &r->tokens_per_second, err));
    GPT_TRY(median(h, "elapsed_ms", &r->step_ms, err));
    return median(h, "mfu", &r->mfu, err);
}

/* ---- columns ---- */

static char *text_whole(char *buf, double v)
{
    snprintf(buf, 32, "%.0f", v);
    return buf;
}

static char *text_loss(char *buf, double v)
{
    snprintf(buf, 32, fabs(v) < 1e9 ? "%.4f" : "%.4g", v);
    return buf;
}

/* A share of 1, as fields hold it, in per cent. */
static char *text_share(char *buf, double v)
{
    snprintf(buf, 32, "%.1f %%", 100 * v);
    return buf;
}

static char *text_ms(char *buf, double v)
{
    snprintf(buf, 32, "%.1f ms", v);
    return buf;
}

#define AT(field) offsetof(struct gpt_results, field)
const struct gpt_result_column gpt_result_columns[] = {
    {"iteration", "iterations", AT(iteration), text_whole},
    {"consumed_samples", "samples", AT(samples), text_whole},
    {"seconds", "time", AT(seconds), gpt_text_duration},
    {"lm_loss", "loss", AT(loss), text_loss},
    {"validation_loss", "validation", AT(last_validation), text_loss},
    {"best_validation_loss", "best", AT(best_validation), text_loss},
    {"best_iteration", "at", AT(best_at), text_whole},
    {"test_loss", "test", AT(test), text_loss},
    {"tokens_per_second", "tokens/s", AT(tokens_per_second), gpt_text_si},
    {"elapsed_ms", "a step", AT(step_ms), text_ms},
    {"mfu", "utilization", AT(mfu), text_share},
    {"skipped_iterations", "skipped", AT(skipped), text_whole},
    {"restarts", "restarts", AT(restarts), text_whole},
    {"lines_without_loss", "without loss", AT(without_loss), text_whole},
};
const size_t gpt_n_result_columns = GPT_COUNT(gpt_result_columns);

/* By its offset: the compiler checks the member's name, and a table of
 * functions would have one for each. */
double gpt_result(const struct gpt_results *r,
                  const struct gpt_result_column *column)
{
    double value;

    memcpy(&value, (const char *)r + column->offset, sizeof(value));
    return value;
}
