/* Writing of the page; see page.h.
 *
 * The page is share/report/page.html, in which {{words}} stand for what is
 * written here: a row of `slots` each. Its looks and its behaviour are the
 * files beside it. This file gives them numbers, as JSON in a script element
 * that is not run:
 *
 *   {"smoothing": 0, "log": false,
 *    "runs": [{"name": "a", "axes": {"iteration": [...], "samples": [...],
 *              "seconds": [...]},
 *              "series": {"lm_loss": {"x": [iterations], "y": [values]}}}],
 *    "charts": [{"title": "Loss", "unit": "nats a token",
 *                "fields": ["lm_loss", "validation_loss"]}]}
 *
 * Points have their iteration alone; where that is on the other axes follows
 * from `axes`, between whose points the page interpolates. That is exact but
 * where the batch size or the speed changes within a stretch.
 *
 * All text comes from files and command lines of others: it passes
 * write_html() or write_string(), and the page's policy forbids to load
 * anything. Start at gpt_page_write(), at the end. */
#include "cmd/report/page.h"

#include "base/asset.h"
#include "base/utf8.h"
#include "cmd/report/results.h"
#include "cmd/report/thin.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <time.h>

GPT_ASSET(report_html, "share/report/page.html")
GPT_ASSET(report_css, "share/report/page.css")
GPT_ASSET(report_js, "share/report/page.js")

enum { AXIS_POINTS = 400 }; /* of each run, between which pages interpolate */

/* ---- text in HTML ---- */

/* One character of text, whose bytes are *n. A byte of a name that is no UTF-8
 * becomes U+FFFD: the page says that it is UTF-8. */
static const char *next_character(const char *text, size_t *n)
{
    *n = gpt_utf8_length(text, strnlen(text, 4));
    if (*n > 0)
        return text;
    *n = 1;
    return "\xef\xbf\xbd";
}

/* As numbers of characters: they need no table of names. */
static int write_html(struct gpt_out *out, const char *text,
                      struct gpt_err *err)
{
    for (size_t n; *text; text += n) {
        const char *c = next_character(text, &n);

        if (strchr("&<>\"'", *c))
            GPT_TRY(gpt_out_printf(out, err, "&#%d;", *c));
        else
            GPT_TRY(gpt_out_write(out, c, c == text ? n : strlen(c), err));
    }
    return GPT_OK;
}

/* A string of JSON inside a script element, which "</script" would end. */
static int write_string(struct gpt_out *out, const char *text,
                        struct gpt_err *err)
{
    GPT_TRY(gpt_out_write(out, "\"", 1, err));
    for (size_t n; *text; text += n) {
        const char *c = next_character(text, &n);

        if ((unsigned char)*c < ' ' || strchr("\"\\<>&", *c))
            GPT_TRY(gpt_out_printf(out, err, "\\u%04x", (unsigned char)*c));
        else
            GPT_TRY(gpt_out_write(out, c, c == text ? n : strlen(c), err));
    }
    return gpt_out_write(out, "\"", 1, err);
}

/* Seven digits are more than a screen shows, and a third shorter than all. */
static int write_number(struct gpt_out *out, double v, struct gpt_err *err)
{
    return isfinite(v) ? gpt_out_printf(out, err, "%.7g", v)
                       : gpt_out_printf(out, err, "null");
}

/* ---- the table of results ---- */

static int write_heads(struct gpt_out *out, struct gpt_err *err)
{
    GPT_TRY(gpt_out_printf(out, err,
                           "<table><thead><tr><th scope=\"col\">run</th>"));
    for (size_t i = 0; i < gpt_n_result_columns; i++)
        GPT_TRY(gpt_out_printf(out, err, "<th scope=\"col\">%s</th>",
                               gpt_result_columns[i].title));
    return gpt_out_printf(out, err, "</tr></thead><tbody>\n");
}

/* A table in the page itself, so that it is there without a script. */
static int write_result(const struct gpt_metrics *h, struct gpt_out *out,
                        struct gpt_err *err)
{
    struct gpt_results r;
    char text[32];

    GPT_TRY(gpt_results_of(&r, h, err));
    GPT_TRY(gpt_out_printf(out, err, "<tr><th scope=\"row\">"));
    GPT_TRY(write_html(out, h->name, err));
    GPT_TRY(gpt_out_printf(out, err, "</th>"));
    for (size_t i = 0; i < gpt_n_result_columns; i++) {
        const double v = gpt_result(&r, &gpt_result_columns[i]);

        GPT_TRY(gpt_out_printf(out, err, "<td>%s</td>",
                               isnan(v) ? "-"
                                        : gpt_result_columns[i].text(text, v)));
    }
    return gpt_out_printf(out, err, "</tr>\n");
}

static int write_results(const struct gpt_page *p, struct gpt_out *out,
                         struct gpt_err *err)
{
    GPT_TRY(write_heads(out, err));
    for (size_t i = 0; i < p->n_runs; i++)
        GPT_TRY(write_result(&p->runs[i], out, err));
    return gpt_out_printf(out, err, "</tbody></table>\n");
}

/* ---- data of the curves ---- */

static double axis_iteration(const struct gpt_moment *at)
{
    return (double)at->iteration;
}

static double axis_samples(const struct gpt_moment *at)
{
    return at->samples;
}

static double axis_seconds(const struct gpt_moment *at)
{
    return at->ms / 1e3;
}

/* One column of the axes, thinned evenly, the last line included. */
static int write_axis(const struct gpt_metrics *h,
                      double (*axis)(const struct gpt_moment *at),
                      struct gpt_out *out, struct gpt_err *err)
{
    const size_t n = h->n_lines, m = n < AXIS_POINTS ? n : AXIS_POINTS;

    for (size_t i = 0; i < m; i++) {
        const size_t line = m > 1 ? i * (n - 1) / (m - 1) : 0;

        GPT_TRY(gpt_out_printf(out, err, i ? "," : "["));
        GPT_TRY(gpt_out_printf(out, err, "%.12g", axis(&h->at[line])));
    }
    return gpt_out_printf(out, err, m ? "]" : "[]");
}

static int write_axes(const struct gpt_metrics *h, struct gpt_out *out,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_out_printf(out, err, "\"axes\":{\"iteration\":"));
    GPT_TRY(write_axis(h, axis_iteration, out, err));
    GPT_TRY(gpt_out_printf(out, err, ",\"samples\":"));
    GPT_TRY(write_axis(h, axis_samples, out, err));
    GPT_TRY(gpt_out_printf(out, err, ",\"seconds\":"));
    GPT_TRY(write_axis(h, axis_seconds, out, err));
    return gpt_out_printf(out, err, "}");
}

/* The thinned points of a series: iterations, then values. Two lists are half
 * as long as a list of pairs. */
static int write_points(const struct gpt_metrics *h,
                        const struct gpt_series *s, const size_t *index,
                        size_t n, struct gpt_out *out, struct gpt_err *err)
{
    GPT_TRY(write_string(out, s->name, err));
    GPT_TRY(gpt_out_printf(out, err, ":{\"x\":["));
    for (size_t i = 0; i < n; i++)
        GPT_TRY(gpt_out_printf(out, err, "%s%lld", i ? "," : "",
                               (long long)h->at[s->line[index[i]]].iteration));
    GPT_TRY(gpt_out_printf(out, err, "],\"y\":["));
    for (size_t i = 0; i < n; i++) {
        GPT_TRY(gpt_out_printf(out, err, "%s", i ? "," : ""));
        GPT_TRY(write_number(out, s->value[index[i]], err));
    }
    return gpt_out_printf(out, err, "]}");
}

/* Every series, also one that no chart draws: index[] has room for the points
 * of one. */
static int write_run(const struct gpt_page *p, const struct gpt_metrics *h,
                     size_t *index, struct gpt_out *out, struct gpt_err *err)
{
    GPT_TRY(gpt_out_printf(out, err, "{\"name\":"));
    GPT_TRY(write_string(out, h->name, err));
    GPT_TRY(gpt_out_printf(out, err, ","));
    GPT_TRY(write_axes(h, out, err));
    GPT_TRY(gpt_out_printf(out, err, ",\"series\":{"));
    for (size_t i = 0; i < h->n_series; i++) {
        const struct gpt_series *s = &h->series[i];

        GPT_TRY(gpt_out_printf(out, err, "%s", i ? "," : ""));
        GPT_TRY(write_points(h, s, index, gpt_thin(s, p->points, index), out,
                             err));
    }
    return gpt_out_printf(out, err, "}}");
}

static int write_chart(const struct gpt_chart *chart, struct gpt_out *out,
                       struct gpt_err *err)
{
    GPT_TRY(gpt_out_printf(out, err, "{\"title\":"));
    GPT_TRY(write_string(out, chart->title, err));
    GPT_TRY(gpt_out_printf(out, err, ",\"unit\":"));
    GPT_TRY(write_string(out, chart->unit, err));
    GPT_TRY(gpt_out_printf(out, err, ",\"fields\":["));
    for (size_t i = 0; i < GPT_CHART_FIELDS && chart->fields[i]; i++) {
        GPT_TRY(gpt_out_printf(out, err, "%s", i ? "," : ""));
        GPT_TRY(write_string(out, chart->fields[i], err));
    }
    return gpt_out_printf(out, err, "]}");
}

/* The order of charts is that of the table in charts.c. */
static int write_data(const struct gpt_page *p, struct gpt_out *out,
                      struct gpt_err *err)
{
    size_t *index = NULL;
    int status;

    GPT_TRY(gpt_new(&index, p->points, sizeof(*index), "points of curves",
                    err));
    GPT_TRY_GOTO(status,
                 gpt_out_printf(out, err,
                                "{\"smoothing\":%.9g,\"log\":%s,\"runs\":[",
                                p->smoothing, p->log ? "true" : "false"),
                 out);
    for (size_t i = 0; i < p->n_runs; i++) {
        GPT_TRY_GOTO(status, gpt_out_printf(out, err, "%s", i ? "," : ""), out);
        GPT_TRY_GOTO(status, write_run(p, &p->runs[i], index, out, err), out);
    }
    GPT_TRY_GOTO(status, gpt_out_printf(out, err, "],\"charts\":["), out);
    for (size_t i = 0; i < p->charts->n; i++) {
        GPT_TRY_GOTO(status, gpt_out_printf(out, err, "%s", i ? "," : ""), out);
        GPT_TRY_GOTO(status, write_chart(&p->charts->rows[i], out, err), out);
    }
    status = gpt_out_printf(out, err, "]}");
out:
    gpt_free(index);
    return status;
}

/* ---- other slots ---- */

static int write_title(const struct gpt_page *p, struct gpt_out *out,
                       struct gpt_err *err)
{
    if (p->title)
        return write_html(out, p->title, err);
    for (size_t i = 0; i < p->n_runs; i++) {
        GPT_TRY(gpt_out_printf(out, err, "%s", i ? ", " : ""));
        GPT_TRY(write_html(out, p->runs[i].name, err));
    }
    return GPT_OK;
}

/* In UTC, as reports are compared between machines. */
static int write_made(const struct gpt_page *p, struct gpt_out *out,
                      struct gpt_err *err)
{
    const time_t now = time(NULL);
    struct tm parts;
    char text[64];

    (void)p;
    gmtime_r(&now, &parts);
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
    return gpt_out_printf(out, err, "Written by gpt-report %s on %s.",
                          GPT_VERSION, text);
}

static int write_asset(struct gpt_asset asset, struct gpt_out *out,
                       struct gpt_err *err)
{
    return gpt_out_write(out, asset.data, asset.len, err);
}

static int write_style(const struct gpt_page *p, struct gpt_out *out,
                       struct gpt_err *err)
{
    (void)p;
    return write_asset(gpt_asset_report_css(), out, err);
}

static int write_script(const struct gpt_page *p, struct gpt_out *out,
                        struct gpt_err *err)
{
    (void)p;
    return write_asset(gpt_asset_report_js(), out, err);
}

/* As an image: what a picture holds beside shapes, as scripts, does not run. */
static int write_timeline(const struct gpt_page *p, struct gpt_out *out,
                          struct gpt_err *err)
{
    if (!p->timeline)
        return GPT_OK;
    GPT_TRY(gpt_out_printf(out, err,
                           "<section class=\"timeline\">\n<h2>Schedule</h2>\n"
                           "<img alt=\"Computing and waiting of each stage of "
                           "the pipeline over time\" "
                           "src=\"data:image/svg+xml,"));
    for (const char *c = p->timeline; *c; c++)
        GPT_TRY(gpt_out_printf(out, err, isalnum((unsigned char)*c) ? "%c"
                                                                    : "%%%02X",
                               (unsigned char)*c));
    return gpt_out_printf(out, err, "\">\n</section>\n");
}

/* As gpt-train printed it: its columns are aligned. */
static int write_plan(const struct gpt_page *p, struct gpt_out *out,
                      struct gpt_err *err)
{
    if (!p->plan)
        return GPT_OK;
    GPT_TRY(gpt_out_printf(out, err,
                           "<section>\n<h2>Plan</h2>\n<pre>"));
    GPT_TRY(write_html(out, p->plan, err));
    return gpt_out_printf(out, err, "</pre>\n</section>\n");
}

static const struct {
    const char *word;
    int (*write)(const struct gpt_page *p, struct gpt_out *out,
                 struct gpt_err *err);
} slots[] = {
    {"title", write_title},       {"style", write_style},
    {"made", write_made},         {"results", write_results},
    {"timeline", write_timeline}, {"plan", write_plan},
    {"data", write_data},         {"script", write_script},
};

/* A word without a row is a mistake in page.html, which every test of a page
 * finds. */
static int write_slot(const struct gpt_page *p, const char *word, size_t len,
                      struct gpt_out *out, struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(slots); i++)
        if (strlen(slots[i].word) == len &&
            memcmp(slots[i].word, word, len) == 0)
            return slots[i].write(p, out, err);
    return gpt_fail(err, GPT_EFAIL, "page.html: no slot '%.*s'", (int)len,
                    word);
}

/* Copies page.html and fills its slots. Braces of CSS and JavaScript are not
 * looked at: those files come in as slots. */
int gpt_page_write(const struct gpt_page *p, struct gpt_out *out,
                   struct gpt_err *err)
{
    const struct gpt_asset html = gpt_asset_report_html();
    const char *at = html.data, *const end = html.data + html.len;

    for (;;) {
        const char *open = memmem(at, (size_t)(end - at), "{{", 2);
        const char *close =
            open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;

        if (!close)
            return gpt_out_write(out, at, (size_t)(end - at), err);
        GPT_TRY(gpt_out_write(out, at, (size_t)(open - at), err));
        GPT_TRY(write_slot(p, open + 2, (size_t)(close - open) - 2, out, err));
        at = close + 2;
    }
}
