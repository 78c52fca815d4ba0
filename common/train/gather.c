/* Gathering weights; see gather.h. */
#include "train/gather.h"

#include "base/memory.h"

struct gpt_gatherer {
    struct gpt_gatherer_options o;
    struct gpt_lane *lane;
    int64_t first; /* job of the first bucket, or 0; the others follow */
    struct gpt_lane_times before; /* the lane's, when that was begun */
};

int gpt_gatherer_open(struct gpt_gatherer **out, struct gpt_backend *be,
                      const struct gpt_gatherer_options *options,
                      struct gpt_err *err)
{
    struct gpt_gatherer *g;

    *out = NULL;
    if (options->flat->shards == 1)
        return GPT_OK;
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

static int64_t begin_bucket(struct gpt_gatherer *g, int64_t bucket)
{
    const struct gpt_flat *flat = g->o.flat;
    const int64_t type = (int64_t)gpt_dtype_bytes(g->o.act);
    char *weights = g->o.weights;
    int64_t begin, end;

    gpt_bucket_shard(flat, bucket, flat->shard, &begin, &end);
    const struct gpt_collective call = {
        .kind = GPT_ALL_GATHER,
        .out = weights + flat->buckets[bucket].begin * type,
        .in = weights + begin * type,
        .n = end - begin,
        .type = g->o.act,
    };
    return gpt_lane_begin(g->lane, g->o.q, &call, NULL);
}

void gpt_gatherer_begin(struct gpt_gatherer *g)
{
    if (!g)
        return;
    gpt_gatherer_wait(g);
    g->before = gpt_lane_times(g->lane);
    g->first = begin_bucket(g, 0);
    for (int64_t b = 1; b < g->o.flat->n_buckets; b++)
        (void)begin_bucket(g, b);
    if (!g->o.overlap)
        gpt_gatherer_wait(g);
}

static void before(void *context, int64_t bucket)
{
    struct gpt_gatherer *g = context;

    if (g->first > 0)
        gpt_lane_join(g->lane, g->o.q, g->first + bucket);
}

struct gpt_weight_hook gpt_gatherer_hook(struct gpt_gatherer *g)
{
    return (struct gpt_weight_hook){
        .context = g,
        .before = g && g->o.overlap ? before : NULL,
    };
}

void gpt_gatherer_wait(struct gpt_gatherer *g)
{
    if (g)
        before(g, g->o.flat->n_buckets - 1);
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
