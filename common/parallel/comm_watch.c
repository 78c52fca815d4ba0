/* Failures of a communicator, and the thread that watches its calls.
 *
 * Every rank watches its own calls; no rank watches another. A call that is
 * over within a second costs nothing but a flag under a lock. Of a longer one
 * the watcher posts to the store that this rank has arrived in it, and then
 * reads two things four times a second: whether a rank has posted a failure,
 * and, after the timeout, which members have not posted their arrival.
 *
 * After a rank dies: a report of it gets into the store, by the rank itself, by
 * its launcher, or by the store's server, whose connection to it has closed.
 * Every rank that waits, for whatever and in whatever group, sees the report
 * within a quarter of a second, fails its communicator with it and aborts the
 * call. So all ranks end with one reason, also those that share no group with
 * the dead rank and would wait for others that wait for it.
 *
 * Aborting from this thread is safe: what an abort touches has a lock of its
 * own (gloo.cc, the device's library), a communicator is marked as failed
 * before it is aborted, and calls look at the mark before they begin. While the
 * watcher works on a call (`watching`), gpt_comm_watch(c, NULL, 0) does not
 * return, so the call cannot end and its memory be reused under the watcher.
 *
 * Start at watch(). */
#include "parallel/comm_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TICK_MS = 250 };
static const double late = 1; /* seconds after which an arrival is posted */
const double gpt_comm_reason = 1.5;

/* ---- failures ---- */

/* The first failure stays: what fails later is mostly its consequence. The
 * store is written without the lock, since it may be slow to answer and the
 * thread that makes calls takes the lock for each. */
void gpt_comm_fail(struct gpt_comm *c, bool post, const char *fmt, ...)
{
    struct gpt_err ignored = {0}, failure;
    char text[700];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pthread_mutex_lock(&c->lock);
    bool first = !c->failed;
    c->failed = true;
    if (first)
        gpt_fail(&c->why, GPT_EFAIL, "%s", text);
    failure = c->why;
    pthread_mutex_unlock(&c->lock);
    if (!first || !post || !c->store)
        return;
    gpt_fail_on_rank(&failure, c->ranks[c->index]);
    (void)gpt_store_post_failure(c->store, &failure, &ignored);
}

/* The watcher ends the call, as it does when it finds a failure itself. */
void gpt_comm_give_up(struct gpt_comm *c, int64_t rank, const char *text)
{
    gpt_comm_fail(c, false, "rank %lld: %s", (long long)rank, text);
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

bool gpt_comm_failed(struct gpt_comm *c)
{
    pthread_mutex_lock(&c->lock);
    bool failed = c->failed;
    pthread_mutex_unlock(&c->lock);
    return failed;
}

int gpt_comm_check(struct gpt_comm *c, struct gpt_err *err)
{
    int status = GPT_OK;

    pthread_mutex_lock(&c->lock);
    if (c->failed) {
        status = c->why.status;
        if (err)
            *err = c->why;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Fails the communicator when a rank has failed: another one, or this one in
 * another group. True when it did. The failure is not posted again, since it
 * came from the store. */
static bool take_over_failure(struct gpt_comm *c, const char *what,
                              int64_t number)
{
    struct gpt_err failure = {.rank = -1};

    if (gpt_store_failed(c->store, &failure)) {
        char whose[40] = "the launcher";

        if (failure.rank >= 0)
            snprintf(whose, sizeof(whose), "rank %lld",
                     (long long)failure.rank);
        gpt_comm_fail(c, false, "%s %lld of group '%s': %s: %s", what,
                      (long long)number, c->name, whose, failure.text);
        return true;
    }
    if (failure.rank != c->ranks[c->index])
        return false;
    gpt_comm_fail(c, false, "%s", failure.text);
    return true;
}

bool gpt_comm_other_failed(struct gpt_comm *c, const char *what, int64_t number,
                           double seconds)
{
    const double end = gpt_now() + seconds;
    const struct timespec tick = {0, 50 * 1000 * 1000};

    while (!take_over_failure(c, what, number)) {
        if (gpt_now() >= end)
            return false;
        nanosleep(&tick, NULL);
    }
    return true;
}

/* ---- arrivals ---- */

static void arrival_key(const struct gpt_comm *c, int64_t member, char *key,
                        size_t cap)
{
    snprintf(key, cap, "comm/%s/%lld", c->name, (long long)c->ranks[member]);
}

/* The number at a key of the store; 0 when it has none. */
static int64_t read_number(struct gpt_comm *c, const char *key)
{
    struct gpt_err ignored = {0};
    void *value;
    size_t len;

    if (gpt_store_get(c->store, key, 0, &value, &len, &ignored) != GPT_OK)
        return 0;
    int64_t number = strtoll(value, NULL, 10);
    gpt_free(value);
    return number;
}

/* Arrivals are numbers of calls, not flags: a key is written again by the next
 * call that takes long, and the store does not grow. */
static void post_arrival(struct gpt_comm *c, int64_t number)
{
    struct gpt_err ignored = {0};
    char key[128], text[32];

    arrival_key(c, c->index, key, sizeof(key));
    snprintf(text, sizeof(text), "%lld", (long long)number);
    (void)!gpt_store_set(c->store, key, text, strlen(text), &ignored);
    gpt_store_count_wait(c->store, 1);
}

/* A member in a later call has been in this one, so a larger number counts. */
static bool has_arrived(struct gpt_comm *c, int64_t member, int64_t number)
{
    char key[128];

    arrival_key(c, member, key, sizeof(key));
    return read_number(c, key) >= number;
}

/* Writes the world ranks of members that have not arrived in this call. open:
 * only those that the call still waits for. idle: only those that do not wait
 * in another call either. Returns the length. */
static size_t name_absent(struct gpt_comm *c, int64_t number, bool open,
                          bool idle, char *names, size_t cap)
{
    size_t at = 0;

    names[0] = '\0';
    for (int64_t m = 0; m < c->size && at + 32 < cap; m++)
        if (m != c->index && (!open || c->carrier->waits_for(c, m)) &&
            !has_arrived(c, m, number) &&
            !(idle && gpt_store_waits(c->store, c->ranks[m])))
            at += (size_t)snprintf(names + at, cap - at, "%s%lld",
                                   at ? ", " : "", (long long)c->ranks[m]);
    return at;
}

void gpt_comm_name_idle(struct gpt_comm *c, struct gpt_err *err)
{
    char names[200] = "";
    size_t at = 0;

    if (err->status != GPT_EIO) /* a failed rank is named already */
        return;
    for (int64_t m = 0; m < c->size && at + 24 < sizeof(names); m++)
        if (m != c->index && !gpt_store_waits(c->store, c->ranks[m]))
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%lld",
                                   at ? ", " : "", (long long)c->ranks[m]);
    if (at > 0)
        gpt_context(err, "no connection to rank%s %s",
                    strchr(names, ',') ? "s" : "", names);
}

/* ---- the watching thread ---- */

/* The call that is waited in, as the lock showed it. */
struct view {
    const char *what;
    int64_t number;
    double since, timeout;
};

/* Fails the call after its timeout. When all that it waits for wait themselves,
 * the ranks at the end of that chain know the culprit and will post it: this
 * rank leaves them a moment. over: seconds since the timeout. */
static bool fail_if_late(struct gpt_comm *c, const struct view *v, double over)
{
    char names[400];

    if (name_absent(c, v->number, true, true, names, sizeof(names)) == 0 &&
        name_absent(c, v->number, false, true, names, sizeof(names)) == 0) {
        if (over < gpt_comm_reason)
            return false;
        if (name_absent(c, v->number, false, false, names, sizeof(names)) == 0)
            snprintf(names, sizeof(names), "unknown");
    }
    gpt_comm_fail(c, true,
                  "%s %lld of group '%s': not arrived after %g s: rank%s %s",
                  v->what, (long long)v->number, c->name, v->timeout,
                  strchr(names, ',') ? "s" : "", names);
    return true;
}

static void check_call(struct gpt_comm *c, const struct view *v)
{
    const double over = gpt_now() - v->since - v->timeout;

    if (gpt_comm_failed(c) || take_over_failure(c, v->what, v->number) ||
        (over >= 0 && fail_if_late(c, v, over)))
        c->carrier->abort(c);
}

/* Waits for a tick, or until the end of the thread is asked for. The lock is
 * held, and free meanwhile. */
static void wait_for_tick(struct gpt_comm *c)
{
    const struct timespec at = gpt_thread_after(TICK_MS / 1e3);

    pthread_cond_timedwait(&c->wake, &c->lock, &at);
}

static void *watch(void *arg)
{
    struct gpt_comm *c = arg;

    pthread_mutex_lock(&c->lock);
    for (;;) {
        wait_for_tick(c);
        if (c->closing)
            break;
        if (c->carrier->poll) {
            pthread_mutex_unlock(&c->lock);
            c->carrier->poll(c);
            pthread_mutex_lock(&c->lock);
        }
        const struct view v = {c->what, c->number, c->since, c->timeout};
        const bool early =
            gpt_now() - v.since < (late < v.timeout ? late : v.timeout);
        if (!c->waiting || (c->failed ? c->aborted : early))
            continue;
        bool post = !c->posted && !c->failed;
        c->aborted = c->failed;
        c->posted = c->posted || post;
        c->watching = true; /* holds the call, see gpt_comm_watch() */
        pthread_mutex_unlock(&c->lock);
        if (post)
            post_arrival(c, v.number);
        check_call(c, &v);
        pthread_mutex_lock(&c->lock);
        c->watching = false;
        pthread_cond_broadcast(&c->wake);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Begins the watch of a call, or (what NULL) ends it. The wait for `watching`
 * keeps the order "arrived, then no longer waiting" in the store, too. */
void gpt_comm_watch(struct gpt_comm *c, const char *what, int64_t number)
{
    pthread_mutex_lock(&c->lock);
    while (!what && c->watching)
        pthread_cond_wait(&c->wake, &c->lock);
    const bool over = c->posted && !c->failed;
    c->waiting = what != NULL;
    c->what = what;
    c->number = number;
    c->since = gpt_now();
    c->posted = false;
    assert(!what || number > 0);
    pthread_mutex_unlock(&c->lock);
    if (over)
        gpt_store_count_wait(c->store, -1);
}

int gpt_comm_watch_start(struct gpt_comm *c, struct gpt_err *err)
{
    GPT_TRY(gpt_thread_start(&c->watcher, "watch", watch, c, err));
    c->started = true;
    return GPT_OK;
}

void gpt_comm_watch_stop(struct gpt_comm *c)
{
    if (!c->started)
        return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    gpt_thread_join(c->watcher);
}
