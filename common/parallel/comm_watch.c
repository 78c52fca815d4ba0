/* Failures of a communicator, and the thread beside it that watches a call that
 * takes long: it tells the store that this rank has arrived, looks for failures
 * of others, and gives up after the timeout, naming who has not arrived. Start
 * at watch(). */
#include "parallel/comm_internal.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 250 };
static const double late = 1; /* a call that takes longer is reported */
const double gpt_comm_reason = 1.5;

/* ---- failures ---- */

void gpt_comm_fail(struct gpt_comm *c, bool post, const char *fmt, ...)
{
    struct gpt_err ignored = {0};
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
    pthread_mutex_unlock(&c->lock);
    if (first && post && c->store)
        (void)gpt_store_post_failure(c->store, c->ranks[c->index], text,
                                     &ignored);
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

/* Has a rank failed: another one, or this one in another group? */
static bool somebody_failed(struct gpt_comm *c, const char *what,
                            int64_t number)
{
    const int64_t self = c->ranks[c->index];
    int64_t rank = -2;
    char text[512];

    if (gpt_store_failed(c->store, &rank, text, sizeof(text))) {
        gpt_comm_fail(c, false, "%s %lld of group '%s': rank %lld: %s", what,
                      (long long)number, c->name, (long long)rank, text);
        return true;
    }
    if (rank != self)
        return false;
    gpt_comm_fail(c, false, "%s", text);
    return true;
}

bool gpt_comm_other_failed(struct gpt_comm *c, const char *what, int64_t number,
                           double seconds)
{
    const double end = gpt_now() + seconds;
    const struct timespec tick = {0, 50 * 1000 * 1000};

    while (!somebody_failed(c, what, number)) {
        if (gpt_now() >= end)
            return false;
        nanosleep(&tick, NULL);
    }
    return true;
}

/* ---- who has arrived ---- */

static void arrival_key(const struct gpt_comm *c, int64_t member, char *key,
                        size_t cap)
{
    snprintf(key, cap, "comm/%s/%lld", c->name, (long long)c->ranks[member]);
}

/* In how many calls, of any group, a rank has waited for long, and still does:
 * who waits is not who is waited for. */
static void count_wait(struct gpt_comm *c, int64_t change)
{
    struct gpt_err ignored = {0};
    int64_t now;
    char key[64];

    snprintf(key, sizeof(key), "waits/%lld", (long long)c->ranks[c->index]);
    (void)!gpt_store_add(c->store, key, change, &now, &ignored);
}

/* A number in the store; 0 when it is not there. */
static int64_t stored(struct gpt_comm *c, const char *key)
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

static bool waits(struct gpt_comm *c, int64_t member)
{
    char key[64];

    snprintf(key, sizeof(key), "waits/%lld", (long long)c->ranks[member]);
    return stored(c, key) > 0;
}

static void post_arrival(struct gpt_comm *c, int64_t number)
{
    struct gpt_err ignored = {0};
    char key[128], text[32];

    arrival_key(c, c->index, key, sizeof(key));
    snprintf(text, sizeof(text), "%lld", (long long)number);
    (void)!gpt_store_set(c->store, key, text, strlen(text), &ignored);
    count_wait(c, 1);
}

static bool has_arrived(struct gpt_comm *c, int64_t member, int64_t number)
{
    char key[128];

    arrival_key(c, member, key, sizeof(key));
    return stored(c, key) >= number;
}

/* World ranks that do not wait in this call; with `open`, only those that it
 * waits for; with `idle`, only those that wait in no other call either. */
static size_t name_absent(struct gpt_comm *c, int64_t number, bool open,
                          bool idle, char *names, size_t cap)
{
    size_t at = 0;

    names[0] = '\0';
    for (int64_t m = 0; m < c->size && at + 32 < cap; m++)
        if (m != c->index && (!open || c->carrier->waits_for(c, m)) &&
            !has_arrived(c, m, number) && !(idle && waits(c, m)))
            at += (size_t)snprintf(names + at, cap - at, "%s%lld",
                                   at ? ", " : "", (long long)c->ranks[m]);
    return at;
}

/* ---- the watching thread ---- */

struct view { /* of the call that is waited in */
    const char *what;
    int64_t number;
    double since, timeout;
};

/* When all that this call waits for wait themselves, they will say for whom:
 * false, for a while (`over`: of the timeout). */
static bool give_up(struct gpt_comm *c, const struct view *v, double over)
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

static void look(struct gpt_comm *c, const struct view *v)
{
    const double over = gpt_now() - v->since - v->timeout;

    if (somebody_failed(c, v->what, v->number) ||
        (over >= 0 && give_up(c, v, over)))
        c->carrier->abort(c);
}

/* Waits for a while, or until somebody wakes it; with the lock. */
static void doze(struct gpt_comm *c)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += LOOK_MS * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&c->wake, &c->lock, &at);
}

static void *watch(void *arg)
{
    struct gpt_comm *c = arg;

    pthread_mutex_lock(&c->lock);
    for (;;) {
        doze(c);
        if (c->closing)
            break;
        if (c->carrier->poll) {
            pthread_mutex_unlock(&c->lock);
            c->carrier->poll(c);
            pthread_mutex_lock(&c->lock);
        }
        const struct view v = {c->what, c->number, c->since, c->timeout};
        if (!c->waiting || c->failed ||
            gpt_now() - v.since < (late < v.timeout ? late : v.timeout))
            continue;
        bool post = !c->posted;
        c->posted = true;
        c->watching = true; /* the call does not return meanwhile */
        pthread_mutex_unlock(&c->lock);
        if (post)
            post_arrival(c, v.number);
        look(c, &v);
        pthread_mutex_lock(&c->lock);
        c->watching = false;
        pthread_cond_broadcast(&c->wake);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

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
    pthread_mutex_unlock(&c->lock);
    if (over)
        count_wait(c, -1);
}

int gpt_comm_watch_start(struct gpt_comm *c, struct gpt_err *err)
{
    GPT_TRY(gpt_thread_start(&c->watcher, "comm watch", watch, c, err));
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
