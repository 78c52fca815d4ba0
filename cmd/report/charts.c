/* The table of charts; see charts.h. Start at `known`: its order is the order
 * on the page, what people look at first on top. Fields that are compared are
 * in one row, so that they share an axis: training and validation loss, the
 * kinds of waits. Fields of other units never do. */
#include "cmd/report/charts.h"

#include <math.h>
#include <string.h>

static const struct gpt_chart known[] = {
    {"Loss", "nats a token",
     {"lm_loss", "validation_loss", "validation-*_loss", "test_loss"}},
    {"Losses of routers", "without their coefficients",
     {"load_balancing_loss", "z_loss"}},
    {"Bits a byte", "",
     {"bits_per_byte", "validation_bits_per_byte",
      "validation-*_bits_per_byte", "test_bits_per_byte"}},
    {"Perplexity", "",
     {"validation_ppl", "validation-*_ppl", "test_ppl"}},
    {"Accuracy of tasks", "", {"score-*_acc", "score-*_acc_norm"}},
    {"Perplexity of tasks", "of a continuation", {"score-*_ppl"}},
    {"Learning rate", "", {"learning_rate", "decoupled_learning_rate"}},
    {"Gradient norm", "before clipping", {"grad_norm"}},
    {"Loss scale", "", {"loss_scale"}},
    {"Throughput", "tokens/s", {"tokens_per_second"}},
    {"Utilization", "of the peak", {"mfu"}},
    {"Samples", "a second", {"samples_per_second"}},
    {"Time of a step", "ms", {"elapsed_ms"}},
    {"Parts of a step", "ms", {"forward_ms", "backward_ms", "optimizer_ms"}},
    {"Computing", "GFLOP/s", {"gflops"}},
    {"Waits of a step", "ms",
     {"pipeline_wait_ms", "reduce_wait_ms", "tensor_wait_ms",
      "gather_wait_ms"}},
    {"Memory", "bytes, of rank 0",
     {"host_memory_bytes", "device_memory_bytes", "predicted_memory_bytes"}},
    {"Global batch size", "samples", {"global_batch_size"}},
    {"Skipped iterations", "since the line before",
     {"skipped_iterations", "nan_iterations"}},
    {"Data stage", "", {"data_stage"}},
};

/* No curves: an axis, and what is marked on all of them. */
static const char *const no_curves[] = {"consumed_samples", "restarts"};

/* One run that has a field is enough for a chart; the others are then missing
 * in it, which is seen. */
static int add_chart(struct gpt_charts *c, const struct gpt_chart *chart,
                     struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&c->rows, &c->cap, c->n + 1, sizeof(*c->rows), "charts",
                     err));
    c->rows[c->n++] = *chart;
    return GPT_OK;
}

/* True when a field is one of a row's: '*' stands for a name of any length. */
static bool matches(const char *pattern, const char *field)
{
    const char *star = strchr(pattern, '*');

    if (!star)
        return strcmp(pattern, field) == 0;
    const size_t before = (size_t)(star - pattern), after = strlen(star + 1);
    const size_t n = strlen(field);

    return n > before + after && strncmp(pattern, field, before) == 0 &&
           strcmp(star + 1, field + n - after) == 0;
}

/* Rows end at the first field that is not there. */
static bool has_field(const struct gpt_chart *chart, const char *field)
{
    for (size_t i = 0; i < GPT_CHART_FIELDS && chart->fields[i]; i++)
        if (strcmp(chart->fields[i], field) == 0)
            return true;
    return false;
}

/* Adds the fields of all runs that match, in the order in which runs name them.
 * More than a chart can tell apart get charts of their own, below. */
static void add_matches(struct gpt_chart *chart, size_t *n, const char *pattern,
                        const struct gpt_metrics *runs, size_t n_runs)
{
    for (size_t r = 0; r < n_runs; r++)
        for (size_t k = 0; k < runs[r].n_series; k++) {
            const char *field = runs[r].series[k].name;

            if (*n < GPT_CHART_FIELDS && matches(pattern, field) &&
                !has_field(chart, field))
                chart->fields[(*n)++] = field;
        }
}

/* A known chart keeps the fields that a run has. */
static int add_known(struct gpt_charts *c, const struct gpt_chart *row,
                     const struct gpt_metrics *runs, size_t n_runs,
                     struct gpt_err *err)
{
    struct gpt_chart chart = *row;
    size_t n = 0;

    memset(chart.fields, 0, sizeof(chart.fields));
    for (size_t i = 0; i < GPT_CHART_FIELDS && row->fields[i]; i++)
        add_matches(&chart, &n, row->fields[i], runs, n_runs);
    return n > 0 ? add_chart(c, &chart, err) : GPT_OK;
}

/* Own charts count as well: a second run with the same field adds none. */
static bool is_drawn(const struct gpt_charts *c, const char *field)
{
    for (size_t i = 0; i < c->n; i++)
        if (has_field(&c->rows[i], field))
            return true;
    /* neither has a curve of its own: it would only rise */
    for (size_t i = 0; i < GPT_COUNT(no_curves); i++)
        if (strcmp(field, no_curves[i]) == 0)
            return true;
    return false;
}

/* Known charts first, then fields of their own in the order in which runs name
 * them. */
int gpt_charts_make(struct gpt_charts *c, const struct gpt_metrics *runs,
                    size_t n_runs, struct gpt_err *err)
{
    *c = (struct gpt_charts){.n = 0};
    for (size_t i = 0; i < GPT_COUNT(known); i++)
        GPT_TRY(add_known(c, &known[i], runs, n_runs, err));
    for (size_t i = 0; i < n_runs; i++)
        for (size_t k = 0; k < runs[i].n_series; k++) {
            const char *field = runs[i].series[k].name;
            const struct gpt_chart own = {
                .title = field, .unit = "", .fields = {field}};

            if (!is_drawn(c, field))
                GPT_TRY(add_chart(c, &own, err));
        }
    return GPT_OK;
}

void gpt_charts_free(struct gpt_charts *c)
{
    gpt_free(c->rows);
    *c = (struct gpt_charts){.n = 0};
}

/* ---- fields that are computed ---- */

/* A field that is a multiple of another. The series grow meanwhile, so that
 * the source is found by its place. */
static int add_multiple(struct gpt_metrics *h, const char *from,
                        const char *to, double factor, struct gpt_err *err)
{
    const struct gpt_series *source = gpt_metrics_find(h, from);

    if (!source || gpt_metrics_find(h, to))
        return GPT_OK;
    const size_t at = (size_t)(source - h->series), lines = h->n_lines;
    const size_t n = source->n;
    int status = GPT_OK;

    for (size_t i = 0; i < n && status == GPT_OK; i++) {
        const double value = h->series[at].value[i];

        h->n_lines = (size_t)h->series[at].line[i] + 1;
        status = gpt_metrics_add(h, to, value * factor, err);
    }
    h->n_lines = lines;
    return status;
}

/* A peak that the user gives replaces the one that the run knew: both fields
 * are in the same lines. */
static void replace_utilization(struct gpt_metrics *h, double factor)
{
    const struct gpt_series *source = gpt_metrics_find(h, "gflops");
    const struct gpt_series *found = gpt_metrics_find(h, "mfu");

    if (!source || !found || source->n != found->n)
        return;
    /* found is constant: the run's own copy of it is written */
    for (size_t i = 0; i < source->n; i++)
        h->series[found - h->series].value[i] = source->value[i] * factor;
}

/* 1e-3: gflops are a thousandth of the peak's TFLOP/s. */
int gpt_metrics_derive(struct gpt_metrics *h, const struct gpt_derivation *d,
                       struct gpt_err *err)
{
    if (d->bytes_per_token > 0) {
        const double bits = 1 / (log(2) * d->bytes_per_token);

        GPT_TRY(add_multiple(h, "lm_loss", "bits_per_byte", bits, err));
        GPT_TRY(add_multiple(h, "validation_loss", "validation_bits_per_byte",
                             bits, err));
    }
    /* a run that knew no peak gets the field as a new one */
    if (d->peak > 0) {
        replace_utilization(h, 1e-3 / d->peak);
        GPT_TRY(add_multiple(h, "gflops", "mfu", 1e-3 / d->peak, err));
    }
    return GPT_OK;
}
