/* The progress line. gpt_progress_set() is called from hot loops: it looks at
 * the clock and does the rest only when a line is due. */
#include "base/progress.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/terminal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define START_DELAY 1.0   /* seconds before anything is shown */
#define REDRAW_EVERY 0.2  /* on a terminal */
#define LINE_EVERY 60.0   /* elsewhere */
#define LINE_ALWAYS 1.0   /* elsewhere, with mode "always" */
#define ETA_AFTER 10.0    /* an earlier guess would jump about */
#define RATE_MEMORY 15.0  /* seconds over which the rate is averaged */

struct gpt_progress {
    char what[32], unit[16];
    char note[128];
    int64_t total, done;
    bool drawn; /* on a terminal, as opposed to plain lines */
    bool started, shown;
    double interval, next; /* when the next line is due */
    double started_at;
    double rate, rate_time; /* units a second, and when that was last */
    int64_t rate_done;
};

struct gpt_progress *gpt_progress_open(const char *mode, const char *what,
                                       const char *unit, int64_t total)
{
    bool always = mode && strcmp(mode, "always") == 0;
    bool terminal = gpt_terminal_obeys(STDERR_FILENO) && !gpt_log_is_json();
    bool background = isatty(STDERR_FILENO) && !gpt_terminal_foreground();

    /* NULL is a progress that shows nothing, so that callers need no test. */
    if ((mode && strcmp(mode, "never") == 0) || !gpt_log_wants(GPT_LOG_INFO))
        return NULL;
    if (background && !gpt_log_is_json() && !always)
        return NULL;
    struct gpt_progress *p = gpt_alloc(1, sizeof(*p));
    if (!p)
        return NULL;
    snprintf(p->what, sizeof(p->what), "%s", what);
    snprintf(p->unit, sizeof(p->unit), "%s", unit);
    p->total = total;
    p->drawn = terminal;
    p->interval = terminal ? REDRAW_EVERY : always ? LINE_ALWAYS : LINE_EVERY;
    /* Short work shows nothing at all: a line that flashes up tells nothing. */
    p->next = gpt_now() + (terminal || always ? START_DELAY : LINE_EVERY);
    return p;
}

/* Averages over the last RATE_MEMORY seconds, over all time before that. */
static void update_rate(struct gpt_progress *p, double now)
{
    double dt = now - p->rate_time;

    if (dt <= 0)
        return;
    /* An exponential average whose weight is the share of the window that dt
     * covers; in the beginning the window is the time so far, which gives the
     * plain mean. */
    double current = (double)(p->done - p->rate_done) / dt;
    double age = now - p->started_at;
    double weight = dt / (age < RATE_MEMORY ? age : RATE_MEMORY);
    p->rate += (weight < 1 ? weight : 1) * (current - p->rate);
    p->rate_time = now;
    p->rate_done = p->done;
}

/* "2460/20000 step", "1.2 GiB/3.4 GiB" and the rate in the same unit. Bytes
 * read best in binary units, and counts of steps or documents as whole
 * numbers. */
static int format_amounts(const struct gpt_progress *p, char *buf, size_t cap)
{
    char a[32], b[32], r[32];

    if (strcmp(p->unit, "B") == 0) {
        gpt_text_bytes(a, (double)p->done);
        gpt_text_bytes(b, (double)p->total);
        gpt_text_bytes(r, p->rate);
        return p->total > 0 ? snprintf(buf, cap, "%s/%s  %s/s", a, b, r)
                            : snprintf(buf, cap, "%s  %s/s", a, r);
    }
    gpt_text_si(r, p->rate);
    const char *gap = r[0] && strchr(r, ' ') ? "" : " ";
    if (p->total > 0)
        return snprintf(buf, cap, "%s %lld/%lld  %s%s%s/s", p->unit,
                        (long long)p->done, (long long)p->total, r, gap,
                        p->unit);
    return snprintf(buf, cap, "%s %lld  %s%s%s/s", p->unit, (long long)p->done,
                    r, gap, p->unit);
}

/* The estimate of the end waits for ETA_AFTER: first steps are slow, and a
 * number that falls from days to minutes is believed once only. */
static void format(const struct gpt_progress *p, double now, char *buf,
                   size_t cap)
{
    char amounts[128], eta[32] = "", percent[16] = "", text[32];
    double age = now - p->started_at;

    format_amounts(p, amounts, sizeof(amounts));
    if (p->total > 0)
        snprintf(percent, sizeof(percent), " %5.1f%%",
                 100 * (double)p->done / (double)p->total);
    if (p->total > p->done && age >= ETA_AFTER && p->rate > 0)
        snprintf(eta, sizeof(eta), "  ETA %s",
                 gpt_text_duration(text,
                                   (double)(p->total - p->done) / p->rate));
    snprintf(buf, cap, "%s%s %s%s%s%s", p->what, percent, amounts,
             p->note[0] ? "  " : "", p->note, eta);
}

/* The foreground is asked for at every line: a program may be put into the
 * background, and brought back, while it runs. */
static void show(struct gpt_progress *p, double now)
{
    char line[512];

    format(p, now, line, sizeof(line));
    p->shown = true;
    if (!p->drawn)
        gpt_log_line("%s", line);
    else if (gpt_terminal_foreground())
        gpt_terminal_draw(line);
}

void gpt_progress_set(struct gpt_progress *p, int64_t done, const char *note)
{
    if (!p)
        return;
    double now = gpt_now();
    p->done = done;
    if (!p->started) { /* a resumed run starts at done > 0 */
        p->started = true;
        p->started_at = p->rate_time = now;
        p->rate_done = done;
    }
    if (now < p->next)
        return;
    assert(p->interval > 0);
    p->next = now + p->interval;
    snprintf(p->note, sizeof(p->note), "%s", note ? note : "");
    update_rate(p, now);
    show(p, now);
}

void gpt_progress_close(struct gpt_progress *p)
{
    if (!p)
        return;
    if (p->shown) { /* the last line stays, and tells the whole */
        double now = gpt_now();

        update_rate(p, now);
        show(p, now);
        gpt_terminal_keep();
    }
    gpt_free(p);
}
