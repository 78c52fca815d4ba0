/* How a clique is, and how it ends; and queues that wait for one that does not.
 * Start at clique_abort(). */
#include "cuda/clique.cuh"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One flag for the process, never taken back: what hangs does so inside the
 * driver, and freeing memory or closing a stream would hang with it. */
static bool abandoned; /* a stream waits for ever */

bool cuda_abandoned(void)
{
    return __atomic_load_n(&abandoned, __ATOMIC_RELAXED);
}

#if GPT_HAVE_NCCL

static bool used; /* streams may wait for other ranks */

void clique_begun(void)
{
    __atomic_store_n(&used, true, __ATOMIC_RELAXED);
}

void clique_pause(int *round)
{
    /* Most calls are over within microseconds; what lasts longer must not take
     * a processor from the ranks that share the machine. */
    const struct timespec tick = {0, 100 * 1000};

    if ((*round)++ < 200)
        sched_yield();
    else
        nanosleep(&tick, NULL);
}

void clique_explain(const struct gpt_clique *c, ncclResult_t r, char *why, size_t cap)
{
    const char *last = c->comm ? c->lib->GetLastError(c->comm) : "";
    bool more = last && last[0];

    snprintf(why, cap, "NCCL: %s%s%s", c->lib->GetErrorString(r), more ? ": " : "",
             more ? last : "");
    why[strcspn(why, "\n")] = 0; /* one line */
}

/* ---- state ---- */

ncclResult_t clique_progress(const struct gpt_clique *c)
{
    ncclResult_t state = ncclSuccess, r = c->lib->CommGetAsyncError(c->comm, &state);

    return r == ncclSuccess ? state : r;
}

/* Where another thread has the lock, NCCL is at work. */
enum gpt_clique_state clique_state(struct gpt_clique *c, char *why, size_t cap)
{
    cuda_use_device();
    /* Never waits: this is how the watching thread sees that others wait. */
    if (is_aborted(c) || pthread_mutex_trylock(&c->lock) != 0)
        return GPT_CLIQUE_BUSY;
    /* Again under the lock: an abort may have come in between. */
    ncclResult_t r = is_aborted(c) ? ncclInProgress : clique_progress(c);
    if (r != ncclSuccess && r != ncclInProgress)
        clique_explain(c, r, why, cap);
    pthread_mutex_unlock(&c->lock);
    return r == ncclSuccess      ? GPT_CLIQUE_READY
           : r == ncclInProgress ? GPT_CLIQUE_BUSY
                                 : GPT_CLIQUE_FAILED;
}

/* ---- the end ---- */

/* NCCL's abort has been seen to wait for ever; it gets a thread, which may
 * outlive everybody. */
struct ending {
    const struct nccl *lib;
    ncclComm_t comm;
    bool ended; /* the thread's last word */
};

static void *end_comm(void *arg)
{
    struct ending *e = (struct ending *)arg;

    cuda_use_device();
    /* May return after years, or never. Nothing here touches the clique, which
     * may be gone by then. */
    e->lib->CommAbort(e->comm);
    __atomic_store_n(&e->ended, true, __ATOMIC_RELEASE);
    return NULL;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool has_ended(const struct ending *e)
{
    return __atomic_load_n(&e->ended, __ATOMIC_ACQUIRE);
}

/* Waits until the thread has ended the communicator, at most PATIENCE seconds; false when it has
 * not. After one hang the process does not wait for other communicators. */
static bool await_end(struct ending *e, pthread_t thread)
{
    enum { PATIENCE = 5 };
    const double end = now() + (cuda_abandoned() ? 0 : PATIENCE);
    bool ended = has_ended(e);

    for (int round = 0; !ended && now() < end; ended = has_ended(e))
        clique_pause(&round);
    /* The thread writes to *e when the abort returns after all: then *e stays. */
    if (ended) {
        pthread_join(thread, NULL);
        free(e);
    } else {
        pthread_detach(thread);
    }
    return ended;
}

/* Aborts the communicator; false when that hangs. Without memory or a thread it cannot be aborted,
 * which is as if the abort hung. */
static bool abort_comm(const struct gpt_clique *c)
{
    struct ending *e = (struct ending *)calloc(1, sizeof(*e));
    pthread_t thread;

    if (!e)
        return false;
    *e = {c->lib, c->comm, false};
    if (pthread_create(&thread, NULL, end_comm, e) == 0)
        return await_end(e, thread);
    free(e);
    return false;
}

/* The lock is with a thread that is in NCCL; if that does not come out of it,
 * the abort is what brings it out. */
void clique_abort(struct gpt_clique *c)
{
    const double end = now() + 1;
    bool locked = pthread_mutex_trylock(&c->lock) == 0;

    for (int round = 0; !locked && now() < end; clique_pause(&round))
        locked = pthread_mutex_trylock(&c->lock) == 0;
    /* The flag is set before the lock is released: a thread that gets the lock next must not
     * enter NCCL. When several threads call, only the first aborts. */
    bool again = __atomic_exchange_n(&c->aborted, true, __ATOMIC_ACQ_REL);

    if (locked)
        pthread_mutex_unlock(&c->lock);
    if (!again && c->comm && !abort_comm(c))
        __atomic_store_n(&abandoned, true, __ATOMIC_RELAXED);
}

/* The regular end: all members close after their last call has succeeded. When a member does
 * not come, the others wait two seconds for it, and not at all in later groups. */
static void finalize(struct gpt_clique *c)
{
    /* Finalizing waits for all members. After one that did not come, a program
     * that closes many groups would wait two seconds for each. */
    static bool hurry;
    const double end = now() + 2;
    ncclResult_t r = hurry ? ncclInternalError : c->lib->CommFinalize(c->comm);

    for (int round = 0; r == ncclInProgress && now() < end; clique_pause(&round))
        r = clique_progress(c);
    if (r == ncclSuccess) {
        c->lib->CommDestroy(c->comm);
        /* Destroyed: no thread may use the communicator again. */
        c->aborted = true;
        return;
    }
    hurry = true;
    clique_abort(c);
}

void clique_close(struct gpt_clique *c)
{
    if (!c)
        return;
    cuda_use_device();
    if (c->comm && !is_aborted(c))
        finalize(c);
    if (cuda_abandoned())
        return; /* events may still be waited for */
    for (size_t i = 0; i < GPT_COUNT(c->flights); i++) {
        if (c->flights[i].begun)
            cudaEventDestroy(c->flights[i].begun);
        if (c->flights[i].over)
            cudaEventDestroy(c->flights[i].over);
    }
    cudaFree(c->token);
    pthread_mutex_destroy(&c->order);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- queues ---- */

bool cuda_wait(struct gpt_queue *q)
{
    if (!__atomic_load_n(&used, __ATOMIC_RELAXED))
        return cuda_check(q, cudaStreamSynchronize(q->stream));
    /* Polls instead of synchronizing: a collective whose members are gone never
     * ends, and only a thread that is not in the driver can give up. */
    for (int round = 0; !is_over(cudaStreamQuery(q->stream)); clique_pause(&round))
        if (cuda_abandoned()) {
            cuda_fail(q, "NCCL does not end a collective that was aborted");
            return false;
        }
    return cuda_check(q, cudaStreamSynchronize(q->stream)); /* at once, or why not */
}

#else

bool cuda_wait(struct gpt_queue *q)
{
    return cuda_check(q, cudaStreamSynchronize(q->stream));
}

#endif
