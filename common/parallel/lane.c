/* Lanes; see lane.h.
 *
 * A job's way: gpt_lane_begin() writes it into a ring and records `ready` on
 * the caller's queue. run_job() lets the lane's queue wait for `ready`, makes
 * the call and records `over`; gpt_lane_join() lets the caller's queue wait for
 * `over`. So the two queues wait for each other by events and the data needs no
 * lock.
 *
 * With Gloo a call blocks its thread, so run_job() runs in a thread of the
 * lane; counters under the lock say how far it is. With NCCL a call is only put
 * on a queue, and run_job() runs in the caller's thread at once.
 *
 * Jobs run in the order of their numbers in both cases. That order is part of
 * the contract: the other members of the group make the same calls in the same
 * order, and nothing else would pair them.
 *
 * Start at run_job(). */
#include "parallel/lane.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <omp.h>
#include <pthread.h>

/* A job's place in the ring. It is used again n_ring jobs later. */
struct place {
    struct gpt_collective call;
    float *add_to;
    struct gpt_event *ready; /* the caller's queue: its input is written */
    struct gpt_event *over;  /* the lane's queue: its result is there */
};

struct gpt_lane {
    struct gpt_backend *be;
    struct gpt_comm *comm;
    struct gpt_queue *q;
    struct place *ring;
    int64_t n_ring;
    int64_t begun, joined; /* jobs */
    struct gpt_lane_times times;

    bool threaded;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int64_t pushed, done; /* jobs */
    bool closing;
};

/* ---- jobs ---- */

/* Jobs are counted from 1, so callers keep 0 for "no job". */
static struct place *place_of(struct gpt_lane *l, int64_t job)
{
    assert(job > 0);
    return &l->ring[(job - 1) % l->n_ring];
}

/* The addition is that of a bias gradient of one row. It is on the lane's
 * queue, before `over`: a join waits for the sum that was added, too. */
static void run_job(struct gpt_lane *l, int64_t job)
{
    struct place *p = place_of(l, job);

    l->be->event_wait(l->q, p->ready);
    gpt_comm_call(l->comm, l->q, &p->call);
    if (p->add_to)
        l->be->bias_grad(l->q, p->add_to, p->call.out, 1, p->call.n, GPT_F32);
    l->be->event_record(l->q, p->over);
}

/* The lane's thread. The program's threads compute meanwhile, on all cores but
 * what this thread takes, so its additions stay on one. Only this thread writes
 * `done`, so it may read it without the lock. Jobs that were handed over are
 * made even when the lane closes: the other members wait in the same calls. */
static void *work(void *arg)
{
    struct gpt_lane *l = arg;

    omp_set_num_threads(1);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (l->done == l->pushed && !l->closing)
            pthread_cond_wait(&l->changed, &l->lock);
        if (l->done == l->pushed)
            break;
        pthread_mutex_unlock(&l->lock);
        const double begun = gpt_now();
        run_job(l, l->done + 1);
        pthread_mutex_lock(&l->lock);
        l->times.total += gpt_now() - begun;
        l->done++;
        assert(l->done <= l->pushed);
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void hand_over(struct gpt_lane *l, int64_t job)
{
    pthread_mutex_lock(&l->lock);
    l->pushed = job;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* Waits until the thread has made all jobs up to this one. Without a thread
 * they are on the lane's queue already. */
static void wait_for(struct gpt_lane *l, int64_t job)
{
    if (!l->threaded)
        return;
    const double begun = gpt_now();
    pthread_mutex_lock(&l->lock);
    while (l->done < job)
        pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
    l->times.waited += gpt_now() - begun;
}

int64_t gpt_lane_begin(struct gpt_lane *l, struct gpt_queue *q,
                       const struct gpt_collective *call, float *add_to)
{
    const int64_t number = l->begun + 1;
    struct place *p = place_of(l, number);

    if (number > l->n_ring) /* this place's last job must be over */
        wait_for(l, number - l->n_ring);
    p->call = *call;
    p->add_to = add_to;
    l->be->event_record(q, p->ready);
    l->begun = number; /* the place is whole before the thread may see it */
    if (l->threaded)
        hand_over(l, number);
    else
        run_job(l, number);
    return number;
}

void gpt_lane_join(struct gpt_lane *l, struct gpt_queue *q, int64_t job)
{
    assert(job <= l->begun);
    if (job <= l->joined)
        return;
    l->joined = job;
    /* the event says nothing before it is recorded, which the thread does */
    wait_for(l, job);
    l->be->event_wait(q, place_of(l, job)->over);
}

/* The lane's queue has failures of its own, which the caller's queue does not
 * report. */
int gpt_lane_check(struct gpt_lane *l, struct gpt_err *err)
{
    return l ? l->be->sync(l->q, err) : GPT_OK;
}

struct gpt_lane_times gpt_lane_times(const struct gpt_lane *l)
{
    return l ? l->times : (struct gpt_lane_times){0};
}

double gpt_lane_waited(const struct gpt_lane *l)
{
    return l ? l->times.waited : 0;
}

/* ---- open and close ---- */

static void stop_thread(struct gpt_lane *l)
{
    if (!l->threaded)
        return;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    gpt_thread_join(l->thread);
}

static int open_ring(struct gpt_lane *l, int64_t jobs, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&l->ring, (size_t)jobs, sizeof(*l->ring), "a lane", err));
    l->n_ring = jobs;
    for (int64_t i = 0; i < jobs; i++) {
        GPT_TRY(l->be->event_open(l->be, &l->ring[i].ready, err));
        GPT_TRY(l->be->event_open(l->be, &l->ring[i].over, err));
    }
    return GPT_OK;
}

int gpt_lane_open(struct gpt_lane **lane, struct gpt_backend *be,
                  struct gpt_comm *comm, int64_t jobs, struct gpt_err *err)
{
    struct gpt_lane *l;
    int status;

    *lane = NULL;
    GPT_TRY(gpt_new(&l, 1, sizeof(*l), "a lane", err));
    l->be = be;
    l->comm = comm;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    GPT_TRY_GOTO(status, open_ring(l, jobs, err), fail);
    GPT_TRY_GOTO(status, be->queue_open_beside(be, &l->q, err), fail);
    if (gpt_comm_waits(comm))
        GPT_TRY_GOTO(status,
                     gpt_thread_start(&l->thread, "lane", work, l, err), fail);
    /* `threaded` follows the start: a failed open must not join a thread that
     * was never there. */
    l->threaded = gpt_comm_waits(comm);
    *lane = l;
    return GPT_OK;
fail:
    gpt_lane_close(l);
    return status;
}

void gpt_lane_close(struct gpt_lane *l)
{
    if (!l)
        return;
    /* The thread uses queue, events and ring until it has ended. */
    stop_thread(l);
    if (l->q)
        l->be->queue_close(l->q);
    for (int64_t i = 0; i < l->n_ring; i++) {
        l->be->event_close(l->ring[i].ready);
        l->be->event_close(l->ring[i].over);
    }
    gpt_free(l->ring);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    gpt_free(l);
}
