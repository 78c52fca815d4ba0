/* The calls of a communicator, and its beginning and end. A call is described
 * once (struct gpt_collective) and made by the group's carrier: comm_host.c or
 * comm_device.c. Start at gpt_comm_call().
 *
 * Calls return nothing. A failure sticks to the communicator instead, because
 * most calls are made where no status could go (in hooks of backward, on a
 * lane's thread, on a device's queue), and gpt_comm_check() asks for it where a
 * step can still be given up: before anything was updated. */
#include "parallel/comm_internal.h"

#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

const char *gpt_collective_name(enum gpt_collective_kind kind)
{
    static const char *const names[] = {
        [GPT_ALL_REDUCE] = "all-reduce",
        [GPT_REDUCE_SCATTER] = "reduce-scatter",
        [GPT_ALL_GATHER] = "all-gather",
        [GPT_BROADCAST] = "broadcast",
        [GPT_EXCHANGE] = "exchange",
        [GPT_BARRIER] = "barrier",
    };

    return names[kind];
}

/* ---- calls ---- */

/* A call after a failure is not made, as its members may be gone. A group of
 * one has no carrier; its result is a copy. */
void gpt_comm_call(struct gpt_comm *c, struct gpt_queue *q,
                   const struct gpt_collective *call)
{
    c->calls++; /* also of calls that are not made: members count alike */
    if (gpt_comm_failed(c))
        return;
    if (c->carrier)
        c->carrier->run(c, q, call);
    else if (call->out != call->in)
        c->be->copy(q, call->out, call->in,
                    (size_t)call->n * gpt_dtype_bytes(call->type));
}

void gpt_comm_all_reduce(struct gpt_comm *c, struct gpt_queue *q, void *buf,
                         int64_t n, enum gpt_dtype type, enum gpt_reduce op)
{
    gpt_comm_call(
        c, q,
        &(struct gpt_collective){.kind = GPT_ALL_REDUCE,
                                 .in = buf,
                                 .out = buf,
                                 .n = n,
                                 .type = type,
                                 .op = op});
}

void gpt_comm_all_gather(struct gpt_comm *c, struct gpt_queue *q, void *out,
                         const void *in, int64_t n, enum gpt_dtype type)
{
    gpt_comm_call(
        c, q,
        &(struct gpt_collective){.kind = GPT_ALL_GATHER,
                                 .in = in,
                                 .out = out,
                                 .n = n,
                                 .type = type});
}

void gpt_comm_exchange(struct gpt_comm *c, struct gpt_queue *q,
                       const struct gpt_transfer *list, int64_t n)
{
    gpt_comm_call(
        c, q,
        &(struct gpt_collective){
            .kind = GPT_EXCHANGE, .list = list, .n_list = n});
}

/* ---- open and close ---- */

/* The watcher starts after the connecting, which has a timeout of its own. */
static int start_carrier(struct gpt_comm *c, enum gpt_carrier carrier,
                         double timeout, struct gpt_err *err)
{
    c->carrier =
        carrier == GPT_NCCL ? &gpt_comm_through_device : &gpt_comm_through_host;
    GPT_TRY(c->carrier->open(c, timeout, err));
    return gpt_comm_watch_start(c, err);
}

int gpt_comm_open(struct gpt_comm **out, const struct gpt_comm_options *o,
                  struct gpt_err *err)
{
    struct gpt_comm *c;
    int status;

    *out = NULL;
    assert(o->index >= 0 && o->index < o->n && o->ranks[o->index] >= 0);
    GPT_TRY(gpt_new(&c, 1, sizeof(*c), "a group of ranks", err));
    *c = (struct gpt_comm){.store = o->store,
                           .be = o->be,
                           .size = o->n,
                           .index = o->index,
                           .timeout = o->timeout};
    snprintf(c->name, sizeof(c->name), "%s", o->name);
    pthread_mutex_init(&c->lock, NULL);
    gpt_thread_cond_init(&c->wake);
    GPT_TRY_GOTO(status,
                 gpt_new(&c->ranks, (size_t)o->n, sizeof(*c->ranks),
                         "a group of ranks", err),
                 fail);
    memcpy(c->ranks, o->ranks, (size_t)o->n * sizeof(*o->ranks));
    if (o->n > 1)
        GPT_TRY_GOTO(status, start_carrier(c, o->carrier, o->timeout, err),
                     fail);
    *out = c;
    return GPT_OK;
fail:
    gpt_comm_close(c);
    return status;
}

void gpt_comm_close(struct gpt_comm *c)
{
    if (!c)
        return;
    /* The watcher polls and aborts through the carrier, so it ends first. */
    gpt_comm_watch_stop(c);
    if (c->carrier)
        c->carrier->close(c);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    gpt_free(c->ranks);
    gpt_free(c);
}

int64_t gpt_comm_size(const struct gpt_comm *c)
{
    return c->size;
}

int64_t gpt_comm_rank(const struct gpt_comm *c)
{
    return c->index;
}

bool gpt_comm_waits(const struct gpt_comm *c)
{
    return c->carrier == &gpt_comm_through_host;
}

/* The watcher reads the timeout under the same lock, from its own thread. */
void gpt_comm_set_timeout(struct gpt_comm *c, double timeout)
{
    pthread_mutex_lock(&c->lock);
    c->timeout = timeout;
    pthread_mutex_unlock(&c->lock);
}

/* Takes no lock: the thread that sets the timeout is the one that reads it. */
double gpt_comm_timeout(const struct gpt_comm *c)
{
    return c->timeout;
}

void gpt_comm_counters(const struct gpt_comm *c, int64_t *bytes, double *waited)
{
    *bytes = c->bytes;
    *waited = c->waited;
}
