/* Lanes; see lane.h. Start at run(): what becomes of a job, in a thread of the
 * lane or in the caller's. */
#include "parallel/lane.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/thread.h"

#include <omp.h>
#include <pthread.h>

/* A job's place in the ring. */
struct place {
    struct gpt_collective call;
    float *add_to;
    struct gpt_event *ready; /* its queue has come to it */
    struct gpt_event *over;  /* and the lane is past it */
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

static struct place *place_of(struct gpt_lane *l, int64_t job)
{
    return &l->ring[(job - 1) % l->n_ring];
}

static void run(struct gpt_lane *l, int64_t job)
{
    struct place *p = place_of(l, job);

    l->be->event_wait(l->q, p->ready);
    gpt_comm_call(l->comm, l->q, &p->call);
    if (p->add_to)
        l->be->bias_grad(l->q, p->add_to, p->call.out, 1, p->call.n, GPT_F32);
    l->be->event_record(l->q, p->over);
}

/* Beside this thread the others compute: sums of its own get one core. */
static void *run_all(void *arg)
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
        run(l, l->done + 1);
        pthread_mutex_lock(&l->lock);
        l->times.total += gpt_now() - begun;
        l->done++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void push(struct gpt_lane *l, int64_t job)
{
    pthread_mutex_lock(&l->lock);
    l->pushed = job;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* Until the thread has done so many; without one they are on the queue. */
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

    if (number > l->n_ring)
        wait_for(l, number - l->n_ring);
    p->call = *call;
    p->add_to = add_to;
    l->be->event_record(q, p->ready);
    l->begun = number;
    if (l->threaded)
        push(l, number);
    else
        run(l, number);
    return number;
}

void gpt_lane_join(struct gpt_lane *l, struct gpt_queue *q, int64_t job)
{
    if (job <= l->joined)
        return;
    l->joined = job;
    wait_for(l, job);
    l->be->event_wait(q, place_of(l, job)->over);
}

int gpt_lane_check(struct gpt_lane *l, struct gpt_err *err)
{
    return l ? l->be->sync(l->q, err) : GPT_OK;
}

struct gpt_lane_times gpt_lane_times(const struct gpt_lane *l)
{
    return l ? l->times : (struct gpt_lane_times){0};
}

/* ---- open and close ---- */

static int start_thread(struct gpt_lane *l, struct gpt_err *err)
{
    GPT_TRY(gpt_thread_start(&l->thread, "lane", run_all, l, err));
    l->threaded = true;
    return GPT_OK;
}

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
        GPT_TRY_GOTO(status, start_thread(l, err), fail);
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
