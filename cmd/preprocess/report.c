/* What gpt-preprocess prints: a progress line, or a line every N documents, and
 * at the end counts, rates and bad lines. All of it is messages, on standard
 * error: the product of the program is files. Rates are of lines as they are in
 * JSON, decompressed, so that they can be compared for any compression. */
#include "cmd/preprocess/report.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/progress.h"
#include "text/inputs.h"

#include <stdio.h>

/* What the progress line needs while gpt_preprocess() runs. */
struct reporter {
    struct gpt_progress *progress;
    int64_t log_interval, next_log; /* in documents */
    double start;
    const char *prefix; /* of the data sets */
};

/* No rate in the first moment, when no time has passed. */
static double rate_since_start(double amount, const struct reporter *r)
{
    double seconds = gpt_now() - r->start;

    return seconds > 0 ? amount / seconds : 0;
}

/* gpt_preprocess_options.report; on the thread that writes. */
static void report_progress(void *user, const struct gpt_preprocess_stats *s)
{
    struct reporter *r = user;
    char note[48];

    snprintf(note, sizeof(note), "%lld document%s", (long long)s->documents,
             gpt_plural(s->documents));
    gpt_progress_set(r->progress, s->input_bytes, note);
    if (r->log_interval == 0 || s->documents < r->next_log)
        return;
    /* Megatron-LM's line, which scripts look for. */
    gpt_log_line("Processed %lld documents (%.1f docs/s, %.2f MB/s).",
                 (long long)s->documents,
                 rate_since_start((double)s->documents, r),
                 rate_since_start((double)s->line_bytes, r) / 1e6);
    /* Chunks bring hundreds of documents at once: the next line is due at the
     * next multiple, not one interval later. */
    r->next_log = (s->documents / r->log_interval + 1) * r->log_interval;
}

static void print_summary(const struct gpt_preprocess_stats *s,
                          const struct reporter *r)
{
    char time[32];

    if (s->documents == 0)
        gpt_warn("the input holds no documents: the data sets '%s_*' are "
                 "empty, and cannot be trained on", r->prefix);
    gpt_info("%lld document%s, %lld token%s, %.2f bytes of text a token",
             (long long)s->documents, gpt_plural(s->documents),
             (long long)s->tokens, gpt_plural(s->tokens),
             s->tokens ? (double)s->text_bytes / (double)s->tokens : 0.0);
    gpt_info("%.1f MB of text in %s, %.1f MB/s of JSON lines",
             (double)s->text_bytes / 1e6,
             gpt_text_duration(time, gpt_now() - r->start),
             rate_since_start((double)s->line_bytes, r) / 1e6);
}

/* "blank line 3, not JSON 1"; without memory the line ends early. */
static void add_kinds(struct gpt_buf *b, const struct gpt_bad_report *bad)
{
    const char *comma = "";

    for (int k = 0; k < GPT_BAD_KINDS; k++) {
        if (!bad->of_kind[k])
            continue;
        gpt_buf_printf(b, "%s%s %lld", comma, gpt_bad_word(k),
                       (long long)bad->of_kind[k]);
        comma = ", ";
    }
}

/* The first bad lines are named one by one, all are counted by kind. */
static void report_bad_lines(const struct gpt_bad_report *bad, bool done,
                             const struct gpt_preprocess_options *po)
{
    struct gpt_buf b = {0};

    if (bad->n == 0)
        return;
    for (int64_t i = 0; i < bad->n_named; i++)
        gpt_warn("%s", bad->named[i].text);
    if (bad->n > bad->n_named)
        gpt_warn("... and %lld more, which --verbose names",
                 (long long)(bad->n - bad->n_named));
    gpt_buf_printf(&b, "%lld bad line%s ", (long long)bad->n,
                   gpt_plural(bad->n));
    /* After a failure neither the limit nor the file of bad lines matters. */
    if (!done)
        gpt_buf_printf(&b, "before the failure");
    else if (po->max_bad >= 0)
        gpt_buf_printf(&b, "skipped, limit %lld", (long long)po->max_bad);
    else
        gpt_buf_printf(&b, "skipped, no limit");
    if (done && po->quarantine)
        gpt_buf_printf(&b, ", kept in '%s'", po->quarantine);
    gpt_buf_printf(&b, ": ");
    add_kinds(&b, bad);
    if (b.data)
        gpt_warn("%s", b.data);
    gpt_buf_free(&b);
}

int gpt_preprocess_and_report(struct gpt_preprocess_plan *plan,
                              const struct gpt_preprocess_command *c,
                              struct gpt_err *err)
{
    struct gpt_preprocess_options *o = &plan->options;
    struct reporter r = {.prefix = o->output_prefix,
                         .log_interval = c->log_interval,
                         .next_log = c->log_interval,
                         .start = plan->start};
    struct gpt_preprocess_stats stats;

    r.progress = gpt_progress_open(c->common.quiet ? "never"
                                                   : c->common.progress,
                                   "preprocess", "B",
                                   gpt_inputs_bytes(o->inputs, o->n_inputs));
    o->report = report_progress;
    o->user = &r; /* cppcheck-suppress autoVariables ; until it returns */
    int status = gpt_preprocess(o, &stats, err);
    gpt_progress_close(r.progress);
    if (status == GPT_OK)
        print_summary(&stats, &r);
    report_bad_lines(&stats.bad, status == GPT_OK, o);
    if (status != GPT_OK && stats.kept)
        gpt_warn("what was done is kept: the same command resumes after "
                 "document %lld, --no-resume starts over",
                 (long long)stats.documents);
    return status;
}
