/* Collectives by the device's own library (NCCL). A call is put on the queue
 * and the host does not wait for it; the watching thread asks every tick which
 * call the queue has come to, and whether the library has found something
 * wrong. Start at put_call(), then poll_queue().
 *
 * Every group makes a communicator of its own, from an id of its first member,
 * instead of being split from that of all ranks: a split is a collective of the
 * whole world, a group's beginning one of its members, of which most groups
 * have few however many ranks there are; and groups that share nothing can be
 * aborted one by one. */
#include "parallel/comm_internal.h"
#include "parallel/wait.h"

#include "base/clock.h"
#include "base/memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_PEERS = 8 }; /* that are remembered of an exchange */

/* A call on the queue, for messages: when it hangs, the description that the
 * caller gave is long gone. */
struct flight {
    enum gpt_collective_kind kind;
    int64_t peer[MOST_PEERS];
    int n_peers; /* of an exchange */
};

struct gpt_comm_device {
    const struct gpt_collectives *lib;
    struct gpt_clique *clique;
    pthread_mutex_t lock; /* of what follows; the watcher reads it */
    int64_t last;         /* number of the call made last */
    struct flight flights[GPT_CLIQUE_CALLS]; /* by number */
};

static struct flight *flight_of(struct gpt_comm_device *d, int64_t number)
{
    return &d->flights[number % GPT_CLIQUE_CALLS];
}

/* ---- calls ---- */

/* The description is whole before the call is on the queue, so the watcher
 * never finds a running call that it cannot name. */
static void remember(struct gpt_comm *c, const struct gpt_collective *call)
{
    struct gpt_comm_device *d = c->device;

    assert(c->calls > d->last);
    pthread_mutex_lock(&d->lock);
    struct flight *f = flight_of(d, c->calls);
    d->last = c->calls;
    *f = (struct flight){.kind = call->kind};
    for (int64_t i = 0; i < call->n_list && f->n_peers < MOST_PEERS; i++)
        f->peer[f->n_peers++] = call->list[i].peer;
    pthread_mutex_unlock(&d->lock);
}

/* Bytes that a ring sends, which is the least of all algorithms: NCCL does not
 * say which one it takes. */
static int64_t count_bytes(const struct gpt_comm *c,
                           const struct gpt_collective *call)
{
    const int64_t others = c->size - 1;
    const int64_t bytes = call->n * (int64_t)gpt_dtype_bytes(call->type);
    int64_t sum = 0;

    switch (call->kind) {
    case GPT_ALL_REDUCE:
        return 2 * bytes * others / c->size;
    case GPT_REDUCE_SCATTER:
    case GPT_ALL_GATHER:
        return bytes * others;
    case GPT_BROADCAST:
        return c->index == call->root ? bytes : 0;
    case GPT_EXCHANGE:
        for (int64_t i = 0; i < call->n_list; i++)
            sum += call->list[i].send ? call->list[i].bytes : 0;
        return sum;
    case GPT_BARRIER:
        break;
    }
    return 0;
}

/* All members leave out the same calls: n is the same for all of them, and an
 * exchange without transfers concerns no other member. */
static bool is_nothing(const struct gpt_collective *call)
{
    return call->kind == GPT_EXCHANGE ? call->n_list == 0
                                      : call->kind != GPT_BARRIER &&
                                            call->n == 0;
}

/* Something is wrong with call `number`. The rank that caused it may report why
 * within a moment. Then the clique is aborted: kernels of calls that are on the
 * queue would spin for ever, and with them every later sync of the device. */
static void fail_call(struct gpt_comm *c, const char *what, int64_t number,
                      const char *why)
{
    if (!gpt_comm_failed(c) &&
        !gpt_comm_other_failed(c, what, number, gpt_comm_reason))
        gpt_comm_fail(c, true, "%s %lld of group '%s': %s", what,
                      (long long)number, c->name, why);
    c->device->lib->abort(c->device->clique);
}

static void put_call(struct gpt_comm *c, struct gpt_queue *q,
                     const struct gpt_collective *call)
{
    const struct gpt_comm_device *d = c->device;
    struct gpt_err err = {0};
    const double begun = gpt_now();

    if (is_nothing(call))
        return;
    remember(c, call);
    c->bytes += count_bytes(c, call);
    if (d->lib->put(d->clique, q, call, c->calls, &err) != GPT_OK)
        fail_call(c, gpt_collective_name(call->kind), c->calls, err.text);
    c->waited += gpt_now() - begun;
}

/* ---- watching ---- */

/* The name of call *number; 0 becomes the number of the last one. */
static const char *name_of(struct gpt_comm *c, int64_t *number)
{
    struct gpt_comm_device *d = c->device;

    pthread_mutex_lock(&d->lock);
    if (*number == 0)
        *number = d->last;
    enum gpt_collective_kind kind = flight_of(d, *number)->kind;
    pthread_mutex_unlock(&d->lock);
    return gpt_collective_name(kind);
}

/* Tells the watcher which call "waits": the one that the queue has come to. A
 * call that waits for earlier work of its own queue is not late. This runs in
 * the watching thread before it looks at the call, while `watching` is false;
 * so the end of a watch cannot wait for this thread itself. */
static void poll_queue(struct gpt_comm *c)
{
    const struct gpt_comm_device *d = c->device;
    char why[400];

    if (gpt_comm_failed(c))
        return;
    int64_t number = d->lib->running(d->clique);
    const char *what = number ? name_of(c, &number) : NULL;
    if (d->lib->state(d->clique, why, sizeof(why)) == GPT_CLIQUE_FAILED)
        fail_call(c, name_of(c, &number), number, why);
    else if (number != c->number) /* this thread alone sets it */
        gpt_comm_watch(c, what, number);
}

/* An exchange waits for its peers only, every other call for all members. */
static bool waits_for(struct gpt_comm *c, int64_t member)
{
    struct gpt_comm_device *d = c->device;

    pthread_mutex_lock(&d->lock);
    const struct flight *f = flight_of(d, c->number);
    bool waits = f->kind != GPT_EXCHANGE;
    for (int i = 0; i < f->n_peers && !waits; i++)
        waits = f->peer[i] == member;
    pthread_mutex_unlock(&d->lock);
    return waits;
}

static void end_calls(struct gpt_comm *c)
{
    c->device->lib->abort(c->device->clique);
}

/* ---- open and close ---- */

/* Fails when waiting is in vain: a rank has failed, a signal asks to stop, or
 * the time is over. */
static int check_wait(struct gpt_comm *c, double end, const char *what,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_store_check_wait(c->store, err));
    return gpt_now() > end ? gpt_fail(err, GPT_EIO, "%s", what) : GPT_OK;
}

/* The id of the group, made by its first member. The others ask for the id in
 * short requests: between two of them they see the failure of a rank that will
 * never come, or the end of the time. */
static int share_id(struct gpt_comm *c, char *id, double end,
                    struct gpt_err *err)
{
    char key[96];
    void *value;
    size_t len;

    snprintf(key, sizeof(key), "nccl/%s", c->name);
    if (c->index == 0) {
        GPT_TRY(c->device->lib->make_id(id, err));
        return gpt_store_set(c->store, key, id, GPT_CLIQUE_ID, err);
    }
    while (gpt_store_get(c->store, key, 0.5, &value, &len, err) != GPT_OK)
        GPT_TRY(check_wait(c, end, "its first member has not arrived", err));
    bool whole = len == GPT_CLIQUE_ID;
    if (whole)
        memcpy(id, value, GPT_CLIQUE_ID);
    gpt_free(value);
    return whole ? GPT_OK
                 : gpt_fail(err, GPT_EIO, "its id has %zu bytes, not %d", len,
                            (int)GPT_CLIQUE_ID);
}

/* Waits until all members are connected. Opening does not block, so that a
 * member that never comes ends in a message and not in a hang. */
static int wait_until_connected(struct gpt_comm *c, double end,
                                struct gpt_err *err)
{
    const struct gpt_comm_device *d = c->device;
    const struct timespec tick = {0, 2 * 1000 * 1000};
    struct gpt_wait wait = gpt_wait_begin(end - gpt_now());
    enum gpt_clique_state state;
    char why[400];

    while ((state = d->lib->state(d->clique, why, sizeof(why))) ==
           GPT_CLIQUE_BUSY) {
        nanosleep(&tick, NULL);
        if (gpt_wait_is_check_due(&wait))
            GPT_TRY(check_wait(c, end, "not all members have arrived", err));
    }
    return state == GPT_CLIQUE_READY ? GPT_OK
                                   : gpt_fail(err, GPT_EIO, "%s", why);
}

static int connect_clique(struct gpt_comm *c, double timeout,
                          struct gpt_err *err)
{
    const double end = gpt_now() + timeout;
    struct gpt_comm_device *d = c->device;
    char id[GPT_CLIQUE_ID] = {0};

    /* as in every other long wait: see gpt_store_count_wait() */
    gpt_store_count_wait(c->store, 1);
    GPT_TRY(share_id(c, id, end, err));
    GPT_TRY(d->lib->open(&d->clique, id, c->name, c->size, c->index, err));
    int status = wait_until_connected(c, end, err);
    /* A clique that is half open is aborted, because members that have
     * connected wait in it for this one. */
    if (status != GPT_OK)
        d->lib->abort(d->clique);
    else
        gpt_store_count_wait(c->store, -1);
    return status;
}

static int open_device(struct gpt_comm *c, double timeout, struct gpt_err *err)
{
    GPT_TRY(
        gpt_new(&c->device, 1, sizeof(*c->device), "a group of ranks", err));
    c->device->lib = c->be->collectives;
    pthread_mutex_init(&c->device->lock, NULL);
    if (connect_clique(c, timeout, err) != GPT_OK)
        return gpt_context(err, "cannot connect group '%s'", c->name);
    return GPT_OK;
}

static void close_device(struct gpt_comm *c)
{
    struct gpt_comm_device *d = c->device;

    if (!d)
        return;
    d->lib->close(d->clique);
    pthread_mutex_destroy(&d->lock);
    gpt_free(d);
}

const struct gpt_comm_carrier gpt_comm_through_device = {
    .open = open_device,
    .close = close_device,
    .run = put_call,
    .abort = end_calls,
    .waits_for = waits_for,
    .poll = poll_queue,
};
