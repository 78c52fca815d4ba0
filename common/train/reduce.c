/* Reducing gradients; see reduce.h. First what happens to a bucket (push), then
 * the hooks that say when; memory is in reduce_memory.c. */
#include "train/reduce_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

/* ---- a bucket ---- */

/* Its sum, whole or this rank's shard of it. Further microbatches of a step
 * are added to the shard, from its place in the bucket. */
static int64_t begin_sum(struct gpt_reducer *r, int64_t b)
{
    const int64_t shards = r->o.flat->shards;
    const int64_t part = gpt_bucket_elements(r->o.flat, b) / shards;
    const bool more = shards > 1 && r->gone[b];
    float *bucket = r->buckets[b];
    float *place = bucket + r->o.flat->shard * part;
    const struct gpt_collective sum = {
        .kind = shards == 1 ? GPT_ALL_REDUCE : GPT_REDUCE_SCATTER,
        .in = bucket,
        .out = shards == 1 ? bucket : more ? place : r->shards[b],
        .n = part,
        .type = GPT_F32,
    };

    return gpt_lane_begin(r->lane, r->o.q, &sum, more ? r->shards[b] : NULL);
}

static void push(struct gpt_reducer *r, int64_t bucket)
{
    const int64_t job = begin_sum(r, bucket);

    r->gone[bucket] = true;
    if (gpt_reducer_in_turns(&r->o, bucket))
        r->user[bucket % GPT_REDUCER_TURNS] = job;
    r->pushed = job;
}

/* ---- hooks ---- */

/* Not before what was in this buffer has been summed. */
static void before(void *context, int64_t bucket)
{
    struct gpt_reducer *r = context;

    if (gpt_reducer_in_turns(&r->o, bucket))
        gpt_lane_join(r->lane, r->o.q, r->user[bucket % GPT_REDUCER_TURNS]);
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
    if (!r->lane)
        return (struct gpt_gradient_hooks){.context = NULL};
    return (struct gpt_gradient_hooks){
        .context = r, .before = before, .after = after};
}

/* ---- a step ---- */

void gpt_reducer_begin(struct gpt_reducer *r)
{
    memset(r->gone, 0, (size_t)r->o.flat->n_buckets * sizeof(*r->gone));
    r->before = gpt_lane_times(r->lane);
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

        r->be->copy(r->o.q, at, p->at, (size_t)p->n * sizeof(*at));
        at += p->n;
    }
    gpt_comm_all_reduce(r->o.world->comm[GPT_GROUP_TP], r->o.q, r->packed,
                        r->n_packed, GPT_F32, GPT_SUM);
    at = r->packed;
    for (int64_t i = 0; i < r->n_pieces; i++) {
        const struct gpt_reducer_piece *p = &r->pieces[i];

        r->be->copy(r->o.q, p->at, at, (size_t)p->n * sizeof(*at));
        at += p->n;
    }
}

int gpt_reducer_finish(struct gpt_reducer *r, struct gpt_err *err)
{
    if (r->tied)
        sum_tied(r);
    if (r->lane) {
        for (int64_t b = 0; b < r->o.flat->n_buckets; b++)
            if (!r->gone[b])
                push(r, b);
        gpt_lane_join(r->lane, r->o.q, r->pushed);
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

/* ---- open and close ---- */

static const struct gpt_slice *find_tied(const struct gpt_flat *flat)
{
    for (int64_t i = 0; i < flat->n; i++)
        if (flat->slices[i].param->tied)
            return &flat->slices[i];
    return NULL;
}

/* The communicator of the buckets' sums; NULL where this rank is alone. A lane
 * has one communicator, and jobs of one lane are numbered in one order: buckets
 * of several groups would want a lane a group. */
static struct gpt_comm *find_comm(const struct gpt_reducer_options *o)
{
    const struct gpt_flat *flat = o->flat;
    const enum gpt_group group =
        flat->n_buckets > 0 ? flat->buckets[0].group : GPT_GROUP_DP;

    for (int64_t b = 0; b < flat->n_buckets; b++)
        assert(flat->buckets[b].group == group);
    return o->world ? o->world->reduce[group] : NULL;
}

int gpt_reducer_open(struct gpt_reducer **out, struct gpt_backend *be,
                     const struct gpt_reducer_options *options,
                     struct gpt_err *err)
{
    const struct gpt_world *world = options->world;
    struct gpt_comm *sums = find_comm(options);
    struct gpt_reducer *r;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "the reduction of gradients", err));
    r->be = be;
    r->o = *options;
    GPT_TRY_GOTO(status, gpt_reducer_allocate(r, err), fail);
    if (world && world->comm[GPT_GROUP_EMBEDDING])
        r->tied = find_tied(options->flat);
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
    gpt_free(r->gone);
    gpt_free(r->shards);
    gpt_free(r->buckets);
    gpt_free(r);
}
