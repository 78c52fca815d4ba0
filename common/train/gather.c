/* Gathering weights; see gather.h. Start at gpt_gatherer_begin().
 *
 * Buckets are gathered in the order of the forward pass, so that with overlap
 * the first layer's weights are there first. All buckets are put on the lane at
 * once: bucket b is job first + b, and waiting for it needs no table.
 *
 * The gather is in place: this rank's shard is already where it belongs in the
 * flat buffer, and no element is written by two ranks. */
#include "train/gather.h"

#include "base/memory.h"

#include <assert.h>

struct gpt_gatherer {
    struct gpt_gatherer_options o;
    struct gpt_lane *lane;
    int64_t first; /* job of the first bucket, or 0; the others follow */
    struct gpt_lane_times before; /* the lane's, when that was begun */
};

/* Without shards every rank updates all weights itself, and there is no
 * gatherer: NULL is valid everywhere here. */
int gpt_gatherer_open(struct gpt_gatherer **out, struct gpt_backend *be,
                      const struct gpt_gatherer_options *options,
                      struct gpt_err *err)
{
    struct gpt_gatherer *g;

    *out = NULL;
    if (options->flat->shards == 1)
        return GPT_OK;
    assert(gpt_comm_size(options->comm) == options->flat->shards &&
           gpt_comm_rank(options->comm) == options->flat->shard);
    GPT_TRY(gpt_new(&g, 1, sizeof(*g), "the gathering of weights", err));
    g->o = *options;
    int status = gpt_lane_open(&g->lane, be, options->comm,
                               options->flat->n_buckets, err);
    if (status != GPT_OK) {
        gpt_gatherer_close(g);
        return status;
    }
    *out = g;
    return GPT_OK;
}

void gpt_gatherer_close(struct gpt_gatherer *g)
{
    if (!g)
        return;
    gpt_lane_close(g->lane);
    gpt_free(g);
}

/* Weights travel in the type of activations, so that a gather in half precision
 * moves half of the bytes of the gradients' sums. */
struct gpt_collective gpt_gatherer_call(const struct gpt_flat *flat,
                                        int64_t bucket, enum gpt_dtype act)
{
    int64_t begin, end;

    gpt_bucket_shard(flat, bucket, flat->shard, &begin, &end);
    return (struct gpt_collective){
        .kind = GPT_ALL_GATHER,
        .n = end - begin,
        .type = act,
    };
}

static int64_t begin_bucket(struct gpt_gatherer *g, int64_t bucket)
{
    const struct gpt_flat *flat = g->o.flat;
    const int64_t type = (int64_t)gpt_dtype_bytes(g->o.act);
    char *begin = (char *)g->o.weights + flat->buckets[bucket].begin * type;
    struct gpt_collective call = gpt_gatherer_call(flat, bucket, g->o.act);

    call.out = begin;
    call.in = begin + flat->shard * call.n * type;
    return gpt_lane_begin(g->lane, g->o.q, &call, NULL);
}

/* Each bucket's job waits on the device for the update that was put on the
 * queue before, so the host need not. */
void gpt_gatherer_begin(struct gpt_gatherer *g)
{
    if (!g)
        return;
    gpt_gatherer_wait(g); /* the ring of the lane holds one gather */
    g->before = gpt_lane_times(g->lane);
    g->first = begin_bucket(g, 0);
    for (int64_t b = 1; b < g->o.flat->n_buckets; b++) {
        const int64_t job = begin_bucket(g, b);

        assert(job == g->first + b);
        (void)job;
    }
    if (!g->o.overlap)
        gpt_gatherer_wait(g);
}

/* The forward pass is about to read a bucket's weights. A join of job j covers
 * all jobs before it, so later microbatches find nothing to wait for. */
static void wait_for_bucket(void *context, int64_t bucket)
{
    struct gpt_gatherer *g = context;

    if (g->first > 0)
        gpt_lane_join(g->lane, g->o.q, g->first + bucket);
}

struct gpt_weight_hook gpt_gatherer_hook(struct gpt_gatherer *g)
{
    return (struct gpt_weight_hook){
        .context = g,
        .before = g && g->o.overlap ? wait_for_bucket : NULL,
    };
}

/* A join of the last bucket's job covers all others. */
void gpt_gatherer_wait(struct gpt_gatherer *g)
{
    if (g)
        wait_for_bucket(g, g->o.flat->n_buckets - 1);
}

struct gpt_lane *gpt_gatherer_lane(const struct gpt_gatherer *g)
{
    return g ? g->lane : NULL;
}

struct gpt_lane_times gpt_gatherer_times(const struct gpt_gatherer *g)
{
    struct gpt_lane_times t = {0};

    if (!g)
        return t;
    t = gpt_lane_times(g->lane);
    t.total -= g->before.total;
    t.waited -= g->before.waited;
    return t;
}
