/* Reducing gradients; see reduce.h. Memory comes first, then the thread and
 * what it does to a bucket (reduce_bucket), then the hooks that feed it. */
#include "train/reduce.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/progress.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { TURNS = 2 };

/* Of a gradient that tensor parallel ranks hold in parts. */
struct piece {
    float *at;
    int64_t n;
};

/* A bucket to be summed; first: of the step. */
struct job {
    int64_t bucket;
    bool first;
};

struct gpt_reducer {
    struct gpt_reducer_options o;
    struct gpt_backend *be;
    void *memory;
    float **buckets, **shards; /* by bucket */
    struct piece *pieces;
    int64_t n_pieces, n_packed;
    float *packed;                /* all pieces, for one sum */
    const struct gpt_slice *tied; /* the word table, if another stage has it */

    /* Data parallel only. */
    struct gpt_comm *comm;
    pthread_t thread;
    bool started;
    struct gpt_queue *q; /* the thread's own */
    bool last;
    bool *gone; /* by bucket: pushed in this step */
    double exposed;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool closing;
    struct job *jobs; /* a ring, with room for every bucket */
    int64_t pushed, done;
    int64_t user[TURNS]; /* number of the job that last used each buffer */
    double total;
    int status;
    struct gpt_err why;
};

/* ---- memory ---- */

static bool in_turns(const struct gpt_reducer_options *o, int64_t bucket)
{
    return gpt_reducer_fresh(o) && o->flat->buckets[bucket].layer >= 0;
}

static int64_t bucket_elements(const struct gpt_flat *flat, int64_t bucket)
{
    return flat->buckets[bucket].end - flat->buckets[bucket].begin;
}

bool gpt_reducer_fresh(const struct gpt_reducer_options *o)
{
    return o->zero == GPT_ZERO_2 && o->flat->shards > 1;
}

/* Where everything is, in elements from `base`; with NULL, how much it is.
 * Pointers go to r, which may be NULL, too. */
static int64_t lay_out(const struct gpt_reducer_options *o,
                       struct gpt_reducer *r, float *base)
{
    const struct gpt_flat *flat = o->flat;
    int64_t at = 0, largest = 0, turns;

    for (int64_t b = 0; b < flat->n_buckets; b++) {
        if (in_turns(o, b)) {
            largest = gpt_max_i64(largest, bucket_elements(flat, b));
            continue;
        }
        if (r)
            r->buckets[b] = base + at;
        at += bucket_elements(flat, b);
    }
    turns = at;
    at += TURNS * largest;
    for (int64_t b = 0; b < flat->n_buckets; b++) {
        const int64_t shard = bucket_elements(flat, b) / flat->shards;
        if (in_turns(o, b)) {
            if (r) {
                r->buckets[b] = base + turns + b % TURNS * largest;
                r->shards[b] = base + at;
            }
            at += shard;
        } else if (r) {
            r->shards[b] = r->buckets[b] + flat->shard * shard;
        }
    }
    return at;
}

/* The part of a slice that is in this rank's shard. */
static struct piece piece_of(const struct gpt_flat *flat,
                             const struct gpt_slice *s, float *const *shards)
{
    int64_t begin, end;

    gpt_bucket_shard(flat, s->bucket, flat->shard, &begin, &end);
    const int64_t from = gpt_max_i64(begin, s->offset);
    const int64_t to = gpt_min_i64(end, s->offset + s->count);
    return (struct piece){
        .at = shards && from < to ? shards[s->bucket] + from - begin : NULL,
        .n = gpt_max_i64(to - from, 0),
    };
}

/* Elements of all pieces, which are listed in r unless it is NULL. */
static int64_t list_pieces(const struct gpt_reducer_options *o,
                           struct gpt_reducer *r)
{
    int64_t total = 0;

    for (int64_t i = 0; o->sequence_parallel && i < o->flat->n; i++) {
        const struct gpt_slice *s = &o->flat->slices[i];
        struct piece p = piece_of(o->flat, s, r ? r->shards : NULL);
        if (!s->param->sequence_sum || p.n == 0)
            continue;
        if (r)
            r->pieces[r->n_pieces++] = p;
        total += p.n;
    }
    return total;
}

int64_t gpt_reducer_memory(const struct gpt_reducer_options *o)
{
    return (lay_out(o, NULL, NULL) + list_pieces(o, NULL)) *
           (int64_t)sizeof(float);
}

static int allocate(struct gpt_reducer *r, struct gpt_err *err)
{
    static const char what[] = "the reduction of gradients";
    const size_t n = (size_t)r->o.flat->n_buckets;
    const size_t slices = (size_t)r->o.flat->n;
    void *memory;

    GPT_TRY(gpt_new(&r->buckets, n, sizeof *r->buckets, what, err));
    GPT_TRY(gpt_new(&r->shards, n, sizeof *r->shards, what, err));
    GPT_TRY(gpt_new(&r->jobs, n, sizeof *r->jobs, what, err));
    GPT_TRY(gpt_new(&r->gone, n, sizeof *r->gone, what, err));
    GPT_TRY(gpt_new(&r->pieces, slices, sizeof *r->pieces, what, err));
    GPT_TRY(r->be->alloc(r->be, (size_t)gpt_reducer_memory(&r->o),
                         gpt_memory_kind_name(GPT_MEM_GRADIENTS), &memory,
                         err));
    r->memory = memory;
    r->packed = r->memory;
    r->packed += lay_out(&r->o, r, r->memory);
    r->n_packed = list_pieces(&r->o, r);
    return GPT_OK;
}

/* ---- the thread ---- */

static void reduce_bucket(struct gpt_reducer *r, struct job job)
{
    const int64_t b = job.bucket, n = bucket_elements(r->o.flat, b);
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
        const struct job job = r->jobs[r->done % r->o.flat->n_buckets];
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
        (struct job){bucket, !r->gone[bucket]};
    r->gone[bucket] = true;
    if (in_turns(&r->o, bucket))
        r->user[bucket % TURNS] = r->pushed;
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

    if (in_turns(&r->o, bucket))
        wait_for(r, r->user[bucket % TURNS]);
}

static void after(void *context, int64_t bucket)
{
    struct gpt_reducer *r = context;

    const bool tied = r->tied && r->tied->bucket == bucket;

    if (in_turns(&r->o, bucket) || (r->last && !tied))
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
        const struct piece *p = &r->pieces[i];
        r->be->copy(r->o.q, at, p->at, (size_t)p->n * sizeof *at);
        at += p->n;
    }
    gpt_comm_all_reduce(r->o.world->comm[GPT_GROUP_TP], r->o.q, r->packed,
                        r->n_packed, GPT_F32, GPT_SUM);
    at = r->packed;
    for (int64_t i = 0; i < r->n_pieces; i++) {
        const struct piece *p = &r->pieces[i];
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
    GPT_TRY_GOTO(status, allocate(r, err), fail);
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
