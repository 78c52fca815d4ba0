/* A wait for other processes: pauses that grow, a limit, and after 5 seconds a
 * message that says what is waited for. The loop around it decides when the
 * wait is over. Start at gpt_wait_begin(). */
#ifndef GPT_PARALLEL_WAIT_H
#define GPT_PARALLEL_WAIT_H

#include "base/status.h"

struct gpt_wait {
    double begun, limit; /* limit: seconds; INFINITY: none */
    /* private */
    double pause, report_at, check_at;
    bool stopping;
};

struct gpt_wait gpt_wait_begin(double limit);
/* Seconds until the limit, at least 0. */
double gpt_wait_left(const struct gpt_wait *w);
bool gpt_wait_is_over(const struct gpt_wait *w);
/* Leaves the wait two more seconds when a signal has asked to stop. It does not
 * end at once: a launcher that has seen a rank fail sends a signal to the
 * others, and one that reaches the store can still name that rank. */
void gpt_wait_heed_signal(struct gpt_wait *w);
/* Sleeps: 1 ms at first, so that a wait for ranks that arrive together is
 * quick, and 50 ms at most, so that a store that a thousand ranks ask is not
 * kept busy. Returns early on a signal. */
void gpt_wait_pause(struct gpt_wait *w);
/* True four times a second, the first time after a quarter: when it is time to
 * ask whether the others still come, which costs a question to the store. */
bool gpt_wait_is_check_due(struct gpt_wait *w);
/* True when it is time to report the wait: after 5 s, and every minute. */
bool gpt_wait_is_long(const struct gpt_wait *w);
/* Reports "waiting for WHAT: 5 s so far, at most 600 s". */
void gpt_wait_report(struct gpt_wait *w, const char *fmt, ...)
    GPT_PRINTF(2, 3);

#endif
