/* Sums of gradients over ranks, and the memory in which gradients are.
 *
 * Three sums happen in one step, in this order:
 *
 * 1. over stages: the word table has a copy on the first and one on the last
 *    stage; both copies become their sum (sum_tied);
 * 2. over data parallel ranks, bucket by bucket on a lane, beginning while
 *    backward still runs (begin_sum);
 * 3. over tensor parallel ranks, for parameters of which each of them has seen
 *    a part of the rows only (sum_pieces).
 *
 * 1 comes before 2 for the bucket of the word table, so this bucket waits for
 * the end of backward. 3 comes after 2 and reads this rank's shards: the sums
 * are over disjoint sets of ranks, so their order does not change what is
 * summed, and a shard is 1/DP of the bytes.
 *
 * Data parallel ranks begin their sums in the same order without a word to each
 * other: which bucket is complete next follows from the schedule and the
 * layers, and they have the same of both. A communicator pairs its n-th call
 * with the others' n-th, so a different order anywhere would add gradients of
 * different layers. Within a call the communicator adds in the order of ranks,
 * so all ranks get the same bits.
 *
 * Start at begin_sum(), then the hooks that say when; lay_out() says where. */
#include "train/reduce.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <string.h>

/* How many buffers layers share under ZeRO-2: backward fills one of them while
 * the lane sums the other. */
enum { TURNS = 2 };

/* This rank's part of a gradient that tensor parallel ranks hold in parts. */
struct piece {
    float *at;
    int64_t n;
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

    struct gpt_lane *lane; /* NULL where this rank is alone in the group */
    bool last;             /* the backward that runs is its chunk's last */
    bool *begun;           /* by bucket: its sum was begun in this step */
    int64_t last_job;
    int64_t buffer_job[TURNS];    /* the job that last read each buffer */
    struct gpt_lane_times before; /* the lane's, when the step began */
};

/* ---- where gradients are ---- */

static int64_t bucket_elements(const struct gpt_flat *flat, int64_t bucket)
{
    return flat->buckets[bucket].end - flat->buckets[bucket].begin;
}

bool gpt_reducer_overwrites(const struct gpt_reducer_options *o)
{
    return o->zero == GPT_ZERO_2 && o->flat->shards > 1;
}

/* True for layers under ZeRO-2: their whole gradients exist only from backward
 * to the sum, in a buffer that layers use in turn. */
static bool takes_turns(const struct gpt_reducer_options *o, int64_t bucket)
{
    return gpt_reducer_overwrites(o) && o->flat->buckets[bucket].layer >= 0;
}

/* Neighbouring layers never share a buffer, since buckets are numbered in the
 * order of the layers: backward of one runs beside the sum of the other. */
static int64_t turn_of(int64_t bucket)
{
    return bucket % TURNS;
}

/* Lays everything out, in elements from `base`; with base NULL it only computes
 * the size. Pointers go to r, which may be NULL, too: prediction and allocation
 * share this code, so they cannot differ. */
static int64_t lay_out(const struct gpt_reducer_options *o,
                       struct gpt_reducer *r, float *base)
{
    const struct gpt_flat *flat = o->flat;
    int64_t at = 0, largest = 0, turns;

    for (int64_t b = 0; b < flat->n_buckets; b++) {
        if (takes_turns(o, b)) {
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

        assert(shard * flat->shards == bucket_elements(flat, b));
        if (takes_turns(o, b)) {
            if (r) {
                r->buckets[b] = base + turns + turn_of(b) * largest;
                r->shards[b] = base + at;
            }
            at += shard;
        } else if (r) { /* the shard's place within the bucket */
            r->shards[b] = r->buckets[b] + flat->shard * shard;
        }
    }
    return at;
}

/* The part of a slice that is in this rank's shard. */
static struct piece piece_of(const struct gpt_flat *flat,
                             const struct gpt_slice *s, float *const *shards)
{
    const struct gpt_shard_part part = gpt_slice_shard(flat, s);

    return (struct piece){
        .at = shards ? shards[s->bucket] + part.at : NULL,
        .n = part.end - part.begin,
    };
}

/* Elements of all pieces, which are listed in r unless it is NULL. Tensor
 * parallel ranks with the same shard list the same pieces: what is not split
 * has the same place in all of their flat buffers. */
static int64_t list_pieces(const struct gpt_reducer_options *o,
                           struct gpt_reducer *r)
{
    int64_t total = 0;

    for (int64_t i = 0; i < o->flat->n; i++) {
        const struct gpt_slice *s = &o->flat->slices[i];
        struct piece p = piece_of(o->flat, s, r ? r->shards : NULL);

        if (!gpt_flat_is_partial(o->flat, s, o->sequence_parallel) ||
            p.n == 0)
            continue;
        if (r)
            r->pieces[r->n_pieces++] = p;
        total += p.n;
    }
    return total;
}

int64_t gpt_reducer_pieces(const struct gpt_reducer_options *o)
{
    return list_pieces(o, NULL);
}

int64_t gpt_reducer_memory(const struct gpt_reducer_options *o)
{
    return (lay_out(o, NULL, NULL) + gpt_reducer_pieces(o)) *
           (int64_t)sizeof(float);
}

/* ---- a bucket ---- */

/* What this rank keeps of the sum is counted: a shard, or all of it where there
 * is one shard. */
struct gpt_collective gpt_reducer_call(const struct gpt_flat *flat,
                                       int64_t bucket)
{
    return (struct gpt_collective){
        .kind = flat->shards == 1 ? GPT_ALL_REDUCE : GPT_REDUCE_SCATTER,
        .n = bucket_elements(flat, bucket) / flat->shards,
        .type = GPT_F32,
    };
}

/* Begins the sum of a bucket: whole, or this rank's shard of it. Under ZeRO-2 a
 * layer is summed after every microbatch. The first sum of a step is written to
 * the shard; later ones go to the shard's place in the shared buffer, which is
 * no longer read, and the lane adds them to the shard. */
static int64_t begin_sum(struct gpt_reducer *r, int64_t b)
{
    const int64_t shards = r->o.flat->shards;
    const bool more = shards > 1 && r->begun[b];
    float *bucket = r->buckets[b];
    struct gpt_collective sum = gpt_reducer_call(r->o.flat, b);
    float *place = bucket + r->o.flat->shard * sum.n;

    sum.in = bucket;
    sum.out = shards == 1 ? bucket : more ? place : r->shards[b];
    /* a second sum of what is whole would count other ranks twice */
    assert(!r->begun[b] || takes_turns(&r->o, b));
    return gpt_lane_begin(r->lane, r->o.q, &sum, more ? r->shards[b] : NULL);
}

static void release_bucket(struct gpt_reducer *r, int64_t bucket)
{
    const int64_t job = begin_sum(r, bucket);

    assert(job > r->last_job);
    r->begun[bucket] = true;
    if (takes_turns(&r->o, bucket))
        r->buffer_job[turn_of(bucket)] = job;
    r->last_job = job;
}

/* ---- hooks ---- */

/* Backward is about to overwrite a shared buffer: the sum that still reads it
 * must be over. */
static void wait_for_buffer(void *context, int64_t bucket)
{
    struct gpt_reducer *r = context;

    assert(bucket >= 0 && bucket < r->o.flat->n_buckets);
    if (takes_turns(&r->o, bucket))
        gpt_lane_join(r->lane, r->o.q, r->buffer_job[turn_of(bucket)]);
}

/* Backward has written the last of a bucket for this microbatch. Layers with
 * shared buffers are summed now, whatever microbatch it is; others when no
 * further microbatch adds to them. The tied word table is not complete before
 * its other copy is (gpt_reducer_finish). */
static void sum_if_complete(void *context, int64_t bucket)
{
    struct gpt_reducer *r = context;
    const bool tied = r->tied && r->tied->bucket == bucket;

    assert(bucket >= 0 && bucket < r->o.flat->n_buckets);
    if (takes_turns(&r->o, bucket) || (r->last && !tied))
        release_bucket(r, bucket);
}

struct gpt_gradient_hooks gpt_reducer_hooks(struct gpt_reducer *r)
{
    if (!r->lane)
        return (struct gpt_gradient_hooks){.context = NULL};
    return (struct gpt_gradient_hooks){
        .context = r, .before = wait_for_buffer, .after = sum_if_complete};
}

/* ---- a step ---- */

void gpt_reducer_begin(struct gpt_reducer *r)
{
    memset(r->begun, 0, (size_t)r->o.flat->n_buckets * sizeof(*r->begun));
    r->before = gpt_lane_times(r->lane);
}

void gpt_reducer_begin_backward(struct gpt_reducer *r, bool last)
{
    r->last = last;
}

/* Each stage has the gradient of its own use of the table, as input or as
 * output layer. The table has one gradient, the sum of both, and both copies
 * must get it: they are updated apart and have to stay equal. */
static void sum_tied(struct gpt_reducer *r)
{
    const struct gpt_slice *s = r->tied;
    const struct gpt_bucket *bucket = &r->o.flat->buckets[s->bucket];

    assert(!r->begun[s->bucket]);
    gpt_comm_all_reduce(r->o.world->comm[GPT_GROUP_EMBEDDING], r->o.q,
                        r->buckets[s->bucket] + s->offset - bucket->begin,
                        s->count, GPT_F32, GPT_SUM);
}

/* Sums many short vectors: they are packed for one call, as each call costs a
 * round trip. */
static void sum_pieces(struct gpt_reducer *r)
{
    float *at = r->packed;

    for (int64_t i = 0; i < r->n_pieces; i++) {
        const struct piece *p = &r->pieces[i];

        r->be->copy(r->o.q, at, p->at, (size_t)p->n * sizeof(*at));
        at += p->n;
    }
    gpt_comm_all_reduce(r->o.world->comm[GPT_GROUP_TP], r->o.q, r->packed,
                        r->n_packed, GPT_F32, GPT_SUM);
    at = r->packed;
    for (int64_t i = 0; i < r->n_pieces; i++) {
        const struct piece *p = &r->pieces[i];

        r->be->copy(r->o.q, p->at, at, (size_t)p->n * sizeof(*at));
        at += p->n;
    }
}

/* Buckets that backward has not released are summed now (that of the tied word
 * table), in the order of their numbers, which all ranks of the group share. */
int gpt_reducer_finish(struct gpt_reducer *r, struct gpt_err *err)
{
    if (r->tied)
        sum_tied(r);
    if (r->lane) {
        for (int64_t b = 0; b < r->o.flat->n_buckets; b++)
            if (!r->begun[b])
                release_bucket(r, b);
        gpt_lane_join(r->lane, r->o.q, r->last_job);
    }
    if (r->n_pieces > 0)
        sum_pieces(r);
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

struct gpt_lane *gpt_reducer_lane(const struct gpt_reducer *r)
{
    return r->lane;
}

void gpt_reducer_times(const struct gpt_reducer *r, double *exposed,
                       double *total)
{
    const struct gpt_lane_times t = gpt_lane_times(r->lane);

    *exposed = t.waited - r->before.waited;
    *total = t.total - r->before.total;
}

double gpt_reducer_waited(const struct gpt_reducer *r)
{
    return gpt_lane_waited(r->lane) - r->before.waited;
}

/* ---- open and close ---- */

static const struct gpt_slice *find_tied(const struct gpt_flat *flat)
{
    for (int64_t i = 0; i < flat->n; i++)
        if (flat->slices[i].param->tied)
            return &flat->slices[i];
    return NULL;
}

static int allocate(struct gpt_reducer *r, struct gpt_err *err)
{
    static const char what[] = "the reduction of gradients";
    const size_t n = (size_t)r->o.flat->n_buckets;
    const size_t slices = (size_t)r->o.flat->n;
    void *memory;

    GPT_TRY(gpt_new(&r->buckets, n, sizeof(*r->buckets), what, err));
    GPT_TRY(gpt_new(&r->shards, n, sizeof(*r->shards), what, err));
    GPT_TRY(gpt_new(&r->begun, n, sizeof(*r->begun), what, err));
    GPT_TRY(gpt_new(&r->pieces, slices, sizeof(*r->pieces), what, err));
    GPT_TRY(r->be->alloc(r->be, (size_t)gpt_reducer_memory(&r->o),
                         gpt_memory_kind_name(GPT_MEM_GRADIENTS), &memory,
                         err));
    r->memory = memory;
    r->packed = r->memory;
    r->packed += lay_out(&r->o, r, r->memory);
    r->n_packed = list_pieces(&r->o, r);
    return GPT_OK;
}

int gpt_reducer_open(struct gpt_reducer **out, struct gpt_backend *be,
                     const struct gpt_reducer_options *options,
                     struct gpt_err *err)
{
    const struct gpt_world *world = options->world;
    struct gpt_comm *sums = world ? world->reduce : NULL;
    struct gpt_reducer *r;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "the reduction of gradients", err));
    r->be = be;
    r->o = *options;
    GPT_TRY_GOTO(status, allocate(r, err), fail);
    if (world && world->comm[GPT_GROUP_EMBEDDING])
        r->tied = find_tied(options->flat);
    /* shards are cut by places in the group that sums them */
    assert(!sums || options->flat->shards == 1 ||
           (gpt_comm_size(sums) == options->flat->shards &&
            gpt_comm_rank(sums) == options->flat->shard));
    if (sums)
        GPT_TRY_GOTO(status,
                     gpt_lane_open(&r->lane, be, sums,
                                   options->flat->n_buckets, err),
                     fail);
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
    gpt_lane_close(r->lane);
    if (r->memory)
        r->be->free(r->be, r->memory);
    gpt_free(r->pieces);
    gpt_free(r->begun);
    gpt_free(r->shards);
    gpt_free(r->buckets);
    gpt_free(r);
}
