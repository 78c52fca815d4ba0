/* Waits for other processes; see wait.h. A wait that is not reported looks like
 * a program that hangs: the user cannot know whether a node is missing, a name
 * is wrong, or a file system is slow. */
#include "parallel/wait.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* Seconds. */
static const double silent = 5, between_reports = 60, between_checks = 0.25,
                    after_signal = 2;

struct gpt_wait gpt_wait_begin(double limit)
{
    const double now = gpt_now();

    return (struct gpt_wait){.begun = now,
                             .limit = limit,
                             .pause = 0.001,
                             .report_at = now + silent,
                             .check_at = now + between_checks};
}

double gpt_wait_left(const struct gpt_wait *w)
{
    return fmax(w->begun + w->limit - gpt_now(), 0);
}

bool gpt_wait_is_over(const struct gpt_wait *w)
{
    return gpt_now() >= w->begun + w->limit;
}

void gpt_wait_heed_signal(struct gpt_wait *w)
{
    if (w->stopping || !gpt_signals_stop())
        return;
    w->stopping = true;
    w->limit = fmin(w->limit, gpt_now() - w->begun + after_signal);
}

void gpt_wait_pause(struct gpt_wait *w)
{
    const struct timespec t = {0, (long)(w->pause * 1e9)};

    nanosleep(&t, NULL);
    w->pause = fmin(w->pause * 2, 0.05);
}

bool gpt_wait_is_check_due(struct gpt_wait *w)
{
    const double now = gpt_now();

    if (now < w->check_at)
        return false;
    w->check_at = now + between_checks;
    return true;
}

bool gpt_wait_is_long(const struct gpt_wait *w)
{
    return gpt_now() >= w->report_at;
}

void gpt_wait_report(struct gpt_wait *w, const char *fmt, ...)
{
    char what[500];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    if (isfinite(w->limit))
        gpt_info("waiting for %s: %.0f s so far, at most %g s", what,
                 gpt_now() - w->begun, w->limit);
    else
        gpt_info("waiting for %s: %.0f s so far", what, gpt_now() - w->begun);
    w->report_at = gpt_now() + between_reports;
}
