/* The report as text; see text.h. All of it is made before a byte is written,
 * so that --follow replaces a picture at once.
 *
 * A chart here is what it is on the page, with the same fields in the same
 * order: curves are numbered by runs, and by fields within a run, and a number
 * is a letter or a colour. Start at gpt_text_report(), at the end. */
#include "cmd/report/text.h"

#include "base/num.h"
#include "base/utf8.h"
#include "cmd/report/plot.h"
#include "cmd/report/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    AXIS = 14,    /* columns that labels take, and a margin */
    NARROWEST = 20, /* of a picture */
    NAME = 24,    /* of a run, in legends */
};

/* ---- results ---- */

/* Longer names keep their ends: paths of runs that are compared mostly begin
 * alike and differ at the end. A character is not cut. */
static const char *tail(const char *name, size_t most)
{
    const size_t n = strlen(name);

    if (n <= most)
        return name;
    name += n - most;
    while ((*name & 0xc0) == 0x80)
        name++;
    return name;
}

/* Words and numbers in lines, and not a table: a run has up to thirteen
 * results, which no terminal has columns for. */
static int add_results(struct gpt_buf *b, const char *name,
                       const struct gpt_results *r, int64_t columns)
{
    char text[32], word[64];
    int64_t used = columns;

    GPT_TRY(gpt_buf_add_shown(b, name, ""));
    for (size_t i = 0; i < gpt_n_result_columns; i++) {
        const struct gpt_result_column *column = &gpt_result_columns[i];
        const double v = gpt_result(r, column);

        if (isnan(v))
            continue;
        const int n = snprintf(word, sizeof(word), "%s %s", column->title,
                               column->text(text, v));
        const bool wrap = used + n + 3 > columns;
        GPT_TRY(gpt_buf_printf(b, "%s%s", wrap ? "\n  " : " | ", word));
        used = wrap ? n + 2 : used + n + 3;
    }
    return gpt_buf_printf(b, "\n");
}

/* ---- curves ---- */

/* The values of a curve as they are drawn: smoothed as on the page, without the
 * pull of the first value. */
struct smoother {
    double weight, mean, sum;
};

/* A gap neither moves the mean nor ends it. */
static double smooth(struct smoother *s, double v)
{
    if (!isfinite(v))
        return (double)NAN;
    s->mean = s->weight * s->mean + (1 - s->weight) * v;
    s->sum = s->weight * s->sum + (1 - s->weight);
    return s->mean / s->sum;
}

/* Bounds of what is drawn: of smooth values, which lie within the others. */
static void widen(double range[2], double v)
{
    if (!isfinite(v))
        return;
    range[0] = fmin(range[0], v);
    range[1] = fmax(range[1], v);
}

/* A field of a run. */
struct curve {
    const struct gpt_metrics *run;
    const struct gpt_series *series;
    const char *field;
};

/* In the order in which curves are numbered. */
static size_t list_curves(const struct gpt_chart *chart,
                          const struct gpt_metrics *runs, size_t n_runs,
                          struct curve *curves)
{
    size_t n = 0;

    for (size_t r = 0; r < n_runs; r++)
        for (size_t f = 0; f < GPT_CHART_FIELDS && chart->fields[f]; f++) {
            const struct gpt_series *s =
                gpt_metrics_find(&runs[r], chart->fields[f]);

            if (s)
                curves[n++] = (struct curve){&runs[r], s, chart->fields[f]};
        }
    return n;
}

/* Smooth values of a constant differ in their last digits: such a chart has one
 * value. A chart without a finite value has an axis around 0. */
static void find_bounds(const struct curve *curves, size_t n,
                        const struct gpt_text_options *o,
                        struct gpt_plot_options *p)
{
    p->x[0] = p->y[0] = (double)INFINITY;
    p->x[1] = p->y[1] = -(double)INFINITY;
    for (size_t k = 0; k < n; k++) {
        struct smoother s = {.weight = o->smoothing};

        for (size_t i = 0; i < curves[k].series->n; i++) {
            const int64_t line = curves[k].series->line[i];
            const double v = smooth(&s, curves[k].series->value[i]);

            widen(p->x, (double)curves[k].run->at[line].iteration);
            widen(p->y, o->log ? log10(v) : v);
        }
    }
    if (p->y[0] > p->y[1])
        p->y[0] = p->y[1] = 0;
    const double size =
        o->log ? 1 : fmax(fabs(p->y[0]), fabs(p->y[1]));
    if (p->y[1] - p->y[0] <= 1e-9 * size)
        p->y[0] = p->y[1];
}

/* What is not finite interrupts a curve, and the pen is lifted between two. */
static void draw_curves(struct gpt_plot *plot, const struct curve *curves,
                        size_t n, const struct gpt_text_options *o)
{
    for (size_t k = 0; k < n; k++) {
        struct smoother s = {.weight = o->smoothing};

        for (size_t i = 0; i < curves[k].series->n; i++) {
            const int64_t line = curves[k].series->line[i];

            gpt_plot_to(plot, (int)k,
                        (double)curves[k].run->at[line].iteration,
                        smooth(&s, curves[k].series->value[i]));
        }
        gpt_plot_to(plot, (int)k, (double)NAN, (double)NAN);
    }
}

/* One curve needs no legend: the title says what it is. */
static int add_legend(struct gpt_buf *b, const struct gpt_chart *chart,
                      const struct curve *curves, size_t n,
                      const struct gpt_plot_options *p)
{
    char sign[24];

    GPT_TRY(gpt_buf_printf(b, "\n%s%s%s%s", chart->title,
                           *chart->unit ? " (" : "", chart->unit,
                           *chart->unit ? ")" : ""));
    for (size_t k = 0; n > 1 && k < n; k++) {
        GPT_TRY(gpt_buf_printf(b, "%s%s ", k ? ", " : ": ",
                               gpt_plot_sign(p, (int)k, sign)));
        GPT_TRY(gpt_buf_add_shown(b, tail(curves[k].run->name, NAME), ""));
        GPT_TRY(gpt_buf_printf(b, " %s", curves[k].field));
    }
    return gpt_buf_printf(b, "\n");
}

/* Without colours braille cannot tell curves apart: letters can. */
static int add_chart(struct gpt_buf *b, const struct gpt_chart *chart,
                     const struct gpt_text_options *o,
                     const struct curve *curves, size_t n,
                     struct gpt_err *err)
{
    struct gpt_plot_options p = {
        .columns = gpt_max_i64(o->columns - AXIS, NARROWEST),
        .lines = o->lines,
        .ascii = o->ascii || (n > 1 && !o->color),
        .color = o->color,
        .log = o->log,
    };
    struct gpt_plot *plot;

    find_bounds(curves, n, o, &p);
    if (add_legend(b, chart, curves, n, &p) != GPT_OK)
        return gpt_no_memory(err, "a report");
    GPT_TRY(gpt_plot_new(&plot, &p, err));
    draw_curves(plot, curves, n, o);
    int status = gpt_plot_text(plot, b);
    gpt_plot_free(plot);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "a report");
}

/* The picture of each chart follows the results of all runs. */
int gpt_text_report(struct gpt_buf *b, const struct gpt_text_options *o,
                    const struct gpt_metrics *runs, size_t n_runs,
                    const struct gpt_charts *charts, struct gpt_err *err)
{
    struct curve *curves = NULL;
    int status = GPT_OK;

    for (size_t i = 0; i < n_runs; i++) {
        struct gpt_results r;

        GPT_TRY(gpt_results_of(&r, &runs[i], err));
        if (add_results(b, runs[i].name, &r, o->columns) != GPT_OK)
            return gpt_no_memory(err, "a report");
    }
    GPT_TRY(gpt_new(&curves, n_runs * GPT_CHART_FIELDS, sizeof(*curves),
                    "curves", err));
    for (size_t i = 0; i < charts->n && status == GPT_OK; i++) {
        const size_t n =
            list_curves(&charts->rows[i], runs, n_runs, curves);

        status = add_chart(b, &charts->rows[i], o, curves, n, err);
    }
    gpt_free(curves);
    return status;
}
