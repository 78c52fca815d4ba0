/* Reducing gradients; see reduce.h. First the thread and what it does to a
 * bucket (reduce_bucket), then the hooks that feed it; memory is in
 * reduce_memory.c. */
#include "train/reduce_internal.h"

#include "base/memory.h"
#include "base/progress.h"

#include <omp.h>
#include <signal.h>
#include <string.h>

/* ---- the thread ---- */

static void reduce_bucket(struct gpt_reducer *r, struct gpt_reducer_job job)
{
    const int64_t b = job.bucket, n = gpt_bucket_elements(r->o.flat, b);
    const int64_t part = n / r->o.flat->shards;
    float *bucket = r->buckets[b], *shard = r->shards[b];

    if (r->o.flat->shards == 1) {
        gpt_comm_all_reduce(r->comm, r->q, bucket, n, GPT_F32, GPT_SUM);
        return;
    }
    if (job.first) {
        gpt_comm_reduce_scatter(r->comm, r->q, shard, bucket, part, GPT_F32);
        return;
    }
    float *sum = bucket + r->o.flat->shard * part;
    gpt_comm_reduce_scatter(r->comm, r->q, sum, bucket, part, GPT_F32);
    r->be->bias_grad(r->q, shard, sum, 1, part, GPT_F32); /* shard += sum */
}

/* The first failure is kept. */
static void note(struct gpt_reducer *r, int status, const struct gpt_err *err)
{
    if (status == GPT_OK || r->status != GPT_OK)
        return;
    r->status = status;
    r->why = *err;
}

/* Next to this thread a backward computes: sums of its own get one core. */
static void *reduce_buckets(void *arg)
{
    struct gpt_reducer *r = arg;
    struct gpt_err err = {0};

    omp_set_num_threads(1);
    int status = r->be->queue_open(r->be, &r->q, &err);
    pthread_mutex_lock(&r->lock);
    note(r, status, &err);
    for (;;) {
        while (r->done == r->pushed && !r->closing)
            pthread_cond_wait(&r->changed, &r->lock);
        if (r->done == r->pushed)
            break;
        const struct gpt_reducer_job job =
            r->jobs[r->done % r->o.flat->n_buckets];
        pthread_mutex_unlock(&r->lock);
        const double begun = gpt_now();
        if (r->q) {
            reduce_bucket(r, job);
            status = r->be->sync(r->q, &err);
        }
        pthread_mutex_lock(&r->lock);
        r->total += gpt_now() - begun;
        note(r, status, &err);
        r->done++;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    if (r->q)
        r->be->queue_close(r->q);
    return NULL;
}

/* A bucket is complete once backward's queue has come here; on the CPU it has.
 * (An event of that queue, waited for by the thread's own, would let the host
 * go on.) */
static void push(struct gpt_reducer *r, int64_t bucket)
{
    struct gpt_err err = {0};
    int status = r->be->sync(r->o.q, &err);

    pthread_mutex_lock(&r->lock);
    note(r, status, &err);
    r->jobs[r->pushed++ % r->o.flat->n_buckets] =
        (struct gpt_reducer_job){bucket, !r->gone[bucket]};
    r->gone[bucket] = true;
    if (gpt_reducer_in_turns(&r->o, bucket))
        r->user[bucket % GPT_REDUCER_TURNS] = r->pushed;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* Waits until so many jobs are done. */
static void wait_for(struct gpt_reducer *r, int64_t jobs)
{
    const double begun = gpt_now();

    pthread_mutex_lock(&r->lock);
    while (r->done < jobs)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    r->exposed += gpt_now() - begun;
}

/* Signals are left to the program. */
static int start_thread(struct gpt_reducer *r, struct gpt_err *err)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int status = pthread_create(&r->thread, NULL, reduce_buckets, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    r->started = status == 0;
    if (r->started)
        return GPT_OK;
    return gpt_fail(err, GPT_EFAIL, "cannot start a thread: %s",
                    strerror(status));
}

static void stop_thread(struct gpt_reducer *r)
{
    if (!r->started)
        return;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
}

/* ---- hooks ---- */

/* Not before what was in this buffer has been summed. */
static void before(void *context, int64_t bucket)
{
    struct gpt_reducer *r = context;

    if (gpt_reducer_in_turns(&r->o, bucket))
        wait_for(r, r->user[bucket % GPT_REDUCER_TURNS]);
}

static void after(void *context, int64_t bucket)
{
    struct gpt_reducer *r = context;
    const bool tied = r->tied && r->tied->bucket == bucket;

    if (gpt_reducer_in_turns(&r->o, bucket) || (r->last && !tied))
        push(r, bucket);
}

struct gpt_gradient_hooks gpt_reducer_hooks(struct gpt_reducer *r)
{
    if (!r->comm)
        return (struct gpt_gradient_hooks){.context = NULL};
    return (struct gpt_gradient_hooks){
        .context = r, .before = before, .after = after};
}

/* ---- a step ---- */

void gpt_reducer_begin(struct gpt_reducer *r)
{
    memset(r->gone, 0, (size_t)r->o.flat->n_buckets * sizeof *r->gone);
    r->exposed = r->total = 0; /* the thread has nothing to do now */
}

void gpt_reducer_last(struct gpt_reducer *r, bool last)
{
    r->last = last;
}

/* Both copies become the sum; its bucket may go only then. */
static void sum_tied(struct gpt_reducer *r)
{
    const struct gpt_slice *s = r->tied;
    const struct gpt_bucket *bucket = &r->o.flat->buckets[s->bucket];

    gpt_comm_all_reduce(r->o.world->comm[GPT_GROUP_EMBEDDING], r->o.q,
                        r->buckets[s->bucket] + s->offset - bucket->begin,
                        s->count, GPT_F32, GPT_SUM);
}

static void sum_pieces(struct gpt_reducer *r)
{
    float *at = r->packed;

    for (int64_t i = 0; i < r->n_pieces; i++) {
        const struct gpt_reducer_piece *p = &r->pieces[i];
        r->be->copy(r->o.q, at, p->at, (size_t)p->n * sizeof *at);
        at += p->n;
    }
    gpt_comm_all_reduce(r->o.world->comm[GPT_GROUP_TP], r->o.q, r->packed,
                        r->n_packed, GPT_F32, GPT_SUM);
    at = r->packed;
    for (int64_t i = 0; i < r->n_pieces; i++) {
        const struct gpt_reducer_piece *p = &r->pieces[i];
        r->be->copy(r->o.q, p->at, at, (size_t)p->n * sizeof *at);
        at += p->n;
    }
}

int gpt_reducer_finish(struct gpt_reducer *r, struct gpt_err *err)
{
    if (r->tied)
        sum_tied(r);
    if (r->comm) {
        for (int64_t b = 0; b < r->o.flat->n_buckets; b++)
            if (!r->gone[b])
                push(r, b);
        wait_for(r, r->pushed);
    }
    if (r->n_pieces > 0)
        sum_pieces(r);
    if (r->status != GPT_OK) {
        *err = r->why;
        return r->status;
    }
    return r->o.world ? gpt_world_check(r->o.world, err) : GPT_OK;
}

float *const *gpt_reducer_buckets(const struct gpt_reducer *r)
{
    return r->buckets;
}

float *const *gpt_reducer_shards(const struct gpt_reducer *r)
{
    return r->shards;
}

void gpt_reducer_times(const struct gpt_reducer *r, double *exposed,
                       double *total)
{
    *exposed = r->exposed;
    *total = r->total;
}

/* ---- open and close ---- */

static const struct gpt_slice *find_tied(const struct gpt_flat *flat)
{
    for (int64_t i = 0; i < flat->n; i++)
        if (flat->slices[i].param->tied)
            return &flat->slices[i];
    return NULL;
}

int gpt_reducer_open(struct gpt_reducer **out, struct gpt_backend *be,
                     const struct gpt_reducer_options *options,
                     struct gpt_err *err)
{
    const struct gpt_world *world = options->world;
    struct gpt_reducer *r;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof *r, "the reduction of gradients", err));
    r->be = be;
    r->o = *options;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    GPT_TRY_GOTO(status, gpt_reducer_allocate(r, err), fail);
    if (world && world->comm[GPT_GROUP_EMBEDDING])
        r->tied = find_tied(options->flat);
    if (world && world->reduce) {
        r->comm = world->reduce;
        GPT_TRY_GOTO(status, start_thread(r, err), fail);
    }
    *out = r;
    return GPT_OK;
fail:
    gpt_reducer_close(r);
    return status;
}

void gpt_reducer_close(struct gpt_reducer *r)
{
    if (!r)
        return;
    stop_thread(r);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    if (r->memory)
        r->be->free(r->be, r->memory);
    gpt_free(r->pieces);
    gpt_free(r->gone);
    gpt_free(r->jobs);
    gpt_free(r->shards);
    gpt_free(r->buckets);
    gpt_free(r);
}
