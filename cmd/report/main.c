/* gpt-report: shows what training runs have written about themselves, as a page
 * of curves, as text in a terminal, or as tables.
 *
 * Runs are read whole into columns (metrics.h), numbers that the user's options
 * add become further columns, and charts.h says what is drawn together. One of
 * the writers then gets them: page.c, text.c or tables.c. None of them knows
 * where a run came from. Here are the options, and which writer is taken: start
 * at run_program(), at the end. */
#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "base/options.h"
#include "base/signals.h"
#include "cmd/report/charts.h"
#include "cmd/report/page.h"
#include "cmd/report/read_run.h"
#include "cmd/report/tables.h"
#include "cmd/report/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

struct options {
    struct gpt_common_options common;
    bool text, csv, json, follow, ascii, log;
    const char *output, *title, *timeline, *plan;
    double smoothing, bytes_per_token, peak, interval;
    int64_t points, width, height;
};

static const char default_page[] = "report.html";

#define AT(field) .offset = offsetof(struct options, field)
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Kind of report: a page, unless one of"},
    {.kind = GPT_OPT_FLAG, .name = "text", AT(text), .one_of = "kind",
     .help = "results and curves as text"},
    {.kind = GPT_OPT_FLAG, .name = "follow", AT(follow), .one_of = "kind",
     .help = "the same, drawn again while the runs go on"},
    {.kind = GPT_OPT_FLAG, .name = "csv", AT(csv), .one_of = "kind",
     .help = "every value, a row a line of metrics"},
    {.kind = GPT_OPT_FLAG, .name = "json", AT(json), .one_of = "kind",
     .help = "results, one object a run"},
    {.kind = GPT_OPT_STRING, .letter = 'o', .name = "output", .arg = "FILE",
     AT(output), .flags = GPT_OPT_FILE,
     .help = "write FILE; default report.html for a page, standard output "
             "(\"-\") for others"},
    {.kind = GPT_OPT_GROUP, .help = "Curves"},
    {.kind = GPT_OPT_REAL, .name = "smoothing", .arg = "X", AT(smoothing),
     .def = "0", .min = 0, .max = 0.999,
     .help = "exponential mean: weight of the points before, 0 to 0.999"},
    {.kind = GPT_OPT_FLAG, .name = "log", AT(log),
     .help = "logarithmic axis of values"},
    {.kind = GPT_OPT_REAL, .name = "bytes-per-token", .arg = "X",
     AT(bytes_per_token), .def = "0", .min = 0, .max = 1e6,
     .help = "mean length of a token in the data: adds bits a byte; 0 = not "
             "known"},
    {.kind = GPT_OPT_REAL, .name = "peak-tflops", .arg = "X", AT(peak),
     .def = "0", .min = 0, .max = 1e12,
     .help = "TFLOP/s that all ranks together could do: adds the utilization "
             "(MFU); 0 = not known"},
    {.kind = GPT_OPT_GROUP, .help = "Page"},
    {.kind = GPT_OPT_STRING, .name = "title", .arg = "TEXT", AT(title),
     .help = "of the page, else the names of the runs"},
    {.kind = GPT_OPT_INT, .name = "points", .arg = "N", AT(points),
     .def = "2000", .min = 4, .max = 1e6,
     .help = "of a curve at most; longer ones keep their extremes"},
    {.kind = GPT_OPT_STRING, .name = "timeline", .arg = "FILE", AT(timeline),
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .help = "picture that gpt-train --simulate-svg wrote"},
    {.kind = GPT_OPT_STRING, .name = "plan", .arg = "FILE", AT(plan),
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .help = "plan that gpt-train --dry-run printed"},
    {.kind = GPT_OPT_GROUP, .help = "Text"},
    {.kind = GPT_OPT_INT, .name = "width", .arg = "COLUMNS", AT(width),
     .def = "0", .min = 0, .max = 1000,
     .help = "of the text, 0 = of the terminal"},
    {.kind = GPT_OPT_INT, .name = "height", .arg = "LINES", AT(height),
     .def = "9", .min = 2, .max = 200, .help = "of each curve"},
    {.kind = GPT_OPT_FLAG, .name = "ascii", AT(ascii),
     .help = "draw with letters"},
    {.kind = GPT_OPT_REAL, .name = "interval", .arg = "SECONDS", AT(interval),
     .def = "2", .min = 0.1, .max = 86400, .help = "between drawings of "
     "--follow"},
    GPT_COMMON_OPTIONS(struct options, common),
};

struct report {
    struct gpt_metrics *runs; /* (n) */
    size_t n;
    struct gpt_charts charts;
};

/* ---- runs ---- */

/* Charts borrow the names of fields from the runs, and go with them. */
static void free_report(struct report *r)
{
    for (size_t i = 0; i < r->n; i++)
        gpt_metrics_free(&r->runs[i]);
    gpt_free(r->runs);
    gpt_charts_free(&r->charts);
    *r = (struct report){.n = 0};
}

/* Which metrics exist says the file: a run that has written none is shown with
 * empty results. */
static int read_runs(struct report *r, const struct options *o,
                     const struct gpt_args *args, struct gpt_err *err)
{
    const struct gpt_derivation d = {o->bytes_per_token, o->peak};
    const size_t n = (size_t)args->n_positional;

    *r = (struct report){.n = 0};
    GPT_TRY(gpt_new(&r->runs, n, sizeof(*r->runs), "runs", err));
    while (r->n < n) {
        struct gpt_metrics *h = &r->runs[r->n];

        GPT_TRY(gpt_metrics_read(h, args->positional[r->n], err));
        r->n++;
        GPT_TRY(gpt_metrics_derive(h, &d, err));
        if (h->n_lines > 0)
            continue;
        h->warning = gpt_arena_printf(&h->arena, "%s: no metrics yet", h->path);
        if (!h->warning)
            return gpt_no_memory(err, "a warning");
    }
    return gpt_charts_make(&r->charts, r->runs, r->n, err);
}

/* With `said`, (n), a run's warning only where it is not the one in there,
 * which it replaces. */
static int warn(const struct report *r, char **said, struct gpt_err *err)
{
    for (size_t i = 0; i < r->n; i++) {
        const char *text = r->runs[i].warning;

        if (!text || (said && said[i] && strcmp(said[i], text) == 0))
            continue;
        gpt_warn("%s", text);
        if (!said)
            continue;
        free(said[i]);
        said[i] = strdup(text);
        if (!said[i])
            return gpt_no_memory(err, "a warning");
    }
    return GPT_OK;
}

/* ---- writers ---- */

/* Both are small files that other programs wrote. */
static int read_optional(char **text, const char *path, struct gpt_err *err)
{
    size_t len;

    *text = NULL;
    return path ? gpt_read_file(path, GPT_FILE_LIMIT, text, &len, err) : GPT_OK;
}

/* The schedule and the plan are of any run, or of none: they are shown as they
 * are, below the curves. */
static int write_page(const struct report *r, const struct options *o,
                      struct gpt_out *out, struct gpt_err *err)
{
    char *timeline = NULL, *plan = NULL;
    int status = read_optional(&timeline, o->timeline, err);

    if (status == GPT_OK)
        status = read_optional(&plan, o->plan, err);
    if (status == GPT_OK) {
        const struct gpt_page page = {
            .title = o->title,
            .runs = r->runs,
            .n_runs = r->n,
            .charts = &r->charts,
            .points = (size_t)o->points,
            .smoothing = o->smoothing,
            .log = o->log,
            .timeline = timeline,
            .plan = plan,
        };

        status = gpt_page_write(&page, out, err);
    }
    gpt_free(plan);
    gpt_free(timeline);
    return status;
}

/* Where the text goes, or -1: a file has no colours, and no width of a
 * terminal. */
static int descriptor_of(const struct options *o)
{
    return !o->output || strcmp(o->output, "-") == 0 ? STDOUT_FILENO : -1;
}

/* A terminal knows its width better than the environment, which is that of the
 * shell's start. */
static int64_t width_of(const struct options *o)
{
    const int known = gpt_terminal_columns(descriptor_of(o));
    int64_t columns;
    const char *said = getenv("COLUMNS");

    if (o->width > 0)
        return o->width;
    if (known > 0)
        return known;
    return said && gpt_parse_int(said, &columns) && columns > 0 ? columns : 80;
}

static int make_text(const struct report *r, const struct options *o,
                     struct gpt_buf *b, struct gpt_err *err)
{
    const struct gpt_text_options text = {
        .columns = width_of(o),
        .lines = o->height,
        .ascii = o->ascii,
        .color = gpt_wants_color(o->common.color, descriptor_of(o)),
        .log = o->log,
        .smoothing = o->smoothing,
    };

    return gpt_text_report(b, &text, r->runs, r->n, &r->charts, err);
}

static int write_text(const struct report *r, const struct options *o,
                      struct gpt_out *out, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status = make_text(r, o, &b, err);

    if (status == GPT_OK)
        status = gpt_out_write(out, b.data, b.len, err);
    gpt_buf_free(&b);
    return status;
}

static int write_csv(const struct report *r, const struct options *o,
                     struct gpt_out *out, struct gpt_err *err)
{
    (void)o;
    return gpt_csv_write(out, r->runs, r->n, err);
}

static int write_json(const struct report *r, const struct options *o,
                      struct gpt_out *out, struct gpt_err *err)
{
    (void)o;
    return gpt_results_json(out, r->runs, r->n, err);
}

/* The kinds of report, by the option that asks for them; the page has none. */
typedef int writer(const struct report *r, const struct options *o,
                   struct gpt_out *out, struct gpt_err *err);

/* check_options() has seen to it that one is asked for at most. */
static writer *choose_writer(const struct options *o)
{
    return o->text ? write_text : o->csv ? write_csv
           : o->json ? write_json : write_page;
}

/* Runs are read before the output is opened: a run that cannot be read leaves
 * no trace. */
static int write_report(const struct options *o, const struct gpt_args *args,
                        struct gpt_err *err)
{
    writer *const write = choose_writer(o);
    const char *path = o->output ? o->output
                       : write == write_page ? default_page : "-";
    struct gpt_out *out;
    struct report r;
    int status;

    GPT_TRY_GOTO(status, read_runs(&r, o, args, err), out);
    GPT_TRY_GOTO(status, warn(&r, NULL, err), out);
    GPT_TRY_GOTO(status,
                 gpt_out_open(&out, path, o->common.force ? GPT_OUT_FORCE : 0,
                              0, err),
                 out);
    status = write(&r, o, out, err);
    if (status == GPT_OK)
        status = gpt_out_commit(out, err);
    else
        gpt_out_abort(out);
    if (status == GPT_OK && strcmp(path, "-") != 0)
        gpt_info("the report is %s", path);
out:
    free_report(&r);
    return status;
}

/* ---- following ---- */

static void wait_for(double seconds)
{
    const struct timespec time = {
        (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&time, NULL); /* a signal ends it sooner */
}

/* The picture is made before the screen is cleared, and written at once: it
 * does not flicker. What a screen that is cleared has said is said again. */
static int draw_once(const struct options *o, const struct gpt_args *args,
                     char **said, struct gpt_err *err)
{
    static const char clear[] = "\033[H\033[2J\033[3J";
    const bool clears = gpt_terminal_obeys(descriptor_of(o));
    struct gpt_buf b = {0};
    struct report r;
    int status;

    GPT_TRY_GOTO(status, read_runs(&r, o, args, err), out);
    if (clears && gpt_buf_add(&b, clear, strlen(clear)) != GPT_OK) {
        status = gpt_no_memory(err, "a report");
        goto out;
    }
    GPT_TRY_GOTO(status, make_text(&r, o, &b, err), out);
    GPT_TRY_GOTO(status, gpt_write_file("-", 0, b.data, b.len, err), out);
    status = warn(&r, clears ? NULL : said, err);
out:
    gpt_buf_free(&b);
    free_report(&r);
    return status;
}

/* Files are read anew each time: they are small beside what a run computes
 * between two lines, and may have been cut by a resume. */
static int follow(const struct options *o, const struct gpt_args *args,
                  struct gpt_err *err)
{
    const size_t n = (size_t)args->n_positional;
    char **said; /* the last warning of each run */

    GPT_TRY(gpt_new(&said, n, sizeof(*said), "warnings", err));
    int status = GPT_OK;
    while (status == GPT_OK && !gpt_signals_stop()) {
        status = draw_once(o, args, said, err);
        if (status == GPT_OK)
            wait_for(o->interval);
    }
    for (size_t i = 0; i < n; i++)
        free(said[i]);
    gpt_free(said);
    return status;
}

/* ---- the program ---- */

/* Options that not every kind of report obeys, and the kinds that do. */
enum { PAGE = 1, TEXT = 2, FOLLOW = 4, CSV = 8, JSON = 16 };
static const struct {
    const char *option, *where;
    unsigned kinds;
} limited[] = {
    {"timeline", "only a page has it", PAGE},
    {"plan", "only a page has it", PAGE},
    {"title", "only a page has it", PAGE},
    {"points", "only a page has it", PAGE},
    {"width", "it is for --text and --follow", TEXT | FOLLOW},
    {"height", "it is for --text and --follow", TEXT | FOLLOW},
    {"ascii", "it is for --text and --follow", TEXT | FOLLOW},
    {"interval", "it is for --follow", FOLLOW},
    {"smoothing", "--csv and --json have values as they are",
     PAGE | TEXT | FOLLOW},
    {"log", "--csv and --json have no axis", PAGE | TEXT | FOLLOW},
    {"bytes-per-token", "--json has no bits a byte",
     PAGE | TEXT | FOLLOW | CSV},
};

/* A page where the name of the output says another kind: an option was
 * forgotten. Where a kind is asked for, any name will do. */
static int check_name(const struct options *o, struct gpt_err *err)
{
    static const char *const endings[][2] = {
        {".csv", "--csv"}, {".json", "--json"}, {".jsonl", "--json"},
        {".txt", "--text"},
    };
    const char *dot = o->output ? strrchr(o->output, '.') : NULL;

    for (size_t i = 0; dot && i < GPT_COUNT(endings); i++) {
        if (strcasecmp(dot, endings[i][0]) != 0)
            continue;
        gpt_fail(err, GPT_EUSAGE, "--output: %s would be a page of HTML",
                 o->output);
        return gpt_hint(err, "add %s, or give a page a name that ends with "
                        ".html", endings[i][1]);
    }
    return GPT_OK;
}

static int check_kind(const struct options *o, const struct gpt_args *args,
                      struct gpt_err *err)
{
    const unsigned kind = o->follow ? FOLLOW
                          : o->text ? TEXT
                          : o->csv  ? CSV
                          : o->json ? JSON
                                    : PAGE;

    if (kind == PAGE)
        GPT_TRY(check_name(o, err));
    for (size_t i = 0; i < GPT_COUNT(limited); i++)
        if (!(limited[i].kinds & kind) &&
            gpt_option_given(args, limited[i].option))
            return gpt_fail(err, GPT_EUSAGE, "--%s has no effect here: %s",
                            limited[i].option, limited[i].where);
    return GPT_OK;
}

/* What would have no effect is refused. */
static int check_options(const struct options *o, const struct gpt_args *args,
                         struct gpt_err *err)
{
    if (args->n_positional == 0) {
        gpt_fail(err, GPT_EUSAGE, "no run is named");
        return gpt_hint(err, "gpt-report DIR shows the run that gpt-train "
                        "--save DIR made");
    }
    for (int i = 0; i < args->n_positional; i++) {
        if (strcmp(args->positional[i], "-") != 0)
            continue;
        GPT_TRY(gpt_claim_stdin("the list of runs", err));
        if (o->follow)
            return gpt_fail(err, GPT_EUSAGE, "--follow reads the runs again "
                            "and again, and standard input can be read once");
    }
    if (o->text + o->csv + o->json + o->follow > 1) {
        gpt_fail(err, GPT_EUSAGE, "--text, --follow, --csv and --json exclude "
                 "each other");
        return gpt_hint(err, "give one of them");
    }
    if (o->follow && o->output)
        return gpt_fail(err, GPT_EUSAGE, "--follow draws on the terminal: "
                        "--output has no effect with it");
    return check_kind(o, args, err);
}

/* Every kind of report is one look at the runs but --follow, which is many. */
static int run_program(const void *options, const struct gpt_args *args,
                       struct gpt_err *err)
{
    const struct options *o = options;

    GPT_TRY(check_options(o, args, err));
    return o->follow ? follow(o, args, err) : write_report(o, args, err);
}

int main(int argc, char **argv)
{
    static const char *const usage[] = {
        "RUN... [--output FILE] [OPTION]...",
        "RUN... --text|--follow|--csv|--json [OPTION]...",
        NULL,
    };
    static const char *const examples[] = {
        "gpt-report ckpt",
        "gpt-report small=ckpt-a large=ckpt-b --output compare.html",
        "gpt-report ckpt --follow",
        NULL,
    };
    static const struct gpt_program program = {
        .name = "gpt-report",
        .purpose = "Show the losses, speeds and results of training runs.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .options_bytes = sizeof(struct options),
        .max_positional = -1,
        .positional = "RUN",
        .words = GPT_OPT_FILE,
        .run = run_program,
    };

    return gpt_main(&program, argc, argv);
}
