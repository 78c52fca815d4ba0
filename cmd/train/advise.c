/* Advice for runs that do not fit; see advise.h. Every candidate is a plan like
 * the run's own, whose memory is predicted. Start at gpt_advise(). */
#include "cmd/train/advise.h"

#include "base/num.h"
#include "cmd/train/estimate.h"

#include <stdio.h>
#include <string.h>

/* What is changed; tp, pp: times as many, 0 = as it is. */
struct candidate {
    enum gpt_recompute recompute; /* NONE: as it is */
    bool micro_batch;             /* the largest that fits */
    bool shard;
    int64_t tp, pp;
};

static const struct candidate candidates[] = {
    {.recompute = GPT_RECOMPUTE_SELECTIVE},
    {.recompute = GPT_RECOMPUTE_UNIFORM},
    {.micro_batch = true},
    {.shard = true},
    {.recompute = GPT_RECOMPUTE_UNIFORM, .micro_batch = true},
    {.recompute = GPT_RECOMPUTE_UNIFORM, .micro_batch = true, .shard = true},
    {.tp = 2},
    {.tp = 4},
    {.tp = 8},
    {.pp = 2},
    {.pp = 4},
    {.pp = 8},
    {.recompute = GPT_RECOMPUTE_UNIFORM, .micro_batch = true, .tp = 2},
    {.recompute = GPT_RECOMPUTE_UNIFORM, .micro_batch = true, .tp = 8},
    {.recompute = GPT_RECOMPUTE_UNIFORM, .micro_batch = true, .tp = 8, .pp = 8},
};

/* A plan in the making, and the options that lead to it. */
struct trial {
    struct gpt_train_options options;
    struct gpt_train_plan plan;
    char text[256];
};

__attribute__((format(printf, 2, 3))) static void
say(struct trial *t, const char *fmt, ...)
{
    const size_t n = strlen(t->text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(t->text + n, sizeof(t->text) - n, fmt, args);
    va_end(args);
}

/* With the ranks that there are, where data parallel ones can be taken for it;
 * else with more. False when the model cannot be cut so. */
static bool spread(struct trial *t, const struct candidate *c,
                   const struct gpt_args *args)
{
    const int64_t tp = gpt_max_i64(c->tp, 1), pp = gpt_max_i64(c->pp, 1);
    struct gpt_topology *now = &t->plan.topology, then;
    int64_t world = now->world_size;

    const int64_t size[GPT_N_DIMS] = {[GPT_TP] = now->size[GPT_TP] * tp,
                                      [GPT_PP] = now->size[GPT_PP] * pp};

    t->options.tp_size = size[GPT_TP];
    t->options.pp_size = size[GPT_PP];
    if (now->size[GPT_DP] % (tp * pp) != 0)
        world *= tp * pp;
    if (gpt_topology_init(&then, world, 0, size, now->chunks, NULL) != GPT_OK)
        return false;
    if (c->tp > 0)
        say(t, " --tensor-model-parallel-size %lld",
            (long long)t->options.tp_size);
    if (c->pp > 0)
        say(t, " --pipeline-model-parallel-size %lld",
            (long long)t->options.pp_size);
    if (world > now->world_size)
        say(t, " on %lld ranks", (long long)world);
    return gpt_train_plan(&t->plan, &t->options, args, &then, NULL) == GPT_OK;
}

static void recompute(struct trial *t, enum gpt_recompute what)
{
    struct gpt_replica_options *o = &t->plan.replica;

    if (what <= o->recompute || o->recompute == GPT_RECOMPUTE_BLOCK)
        return;
    o->recompute = what;
    o->recompute_layers = 1;
    say(t, " --recompute-granularity %s",
        what == GPT_RECOMPUTE_SELECTIVE ? "selective" : "full");
}

static void shard(struct trial *t)
{
    if (t->plan.topology.size[GPT_DP] == 1 ||
        t->plan.replica.zero != GPT_ZERO_OFF)
        return;
    t->plan.replica.zero = GPT_ZERO_1;
    say(t, " --use-distributed-optimizer");
}

static void shrink(struct trial *t, struct gpt_backend *be, double limit)
{
    struct gpt_replica_options *o = &t->plan.replica;
    int64_t b;

    if (gpt_estimate_fit(&t->plan, be, limit, &b, NULL) != GPT_OK || b == 0 ||
        b >= o->micro_batch)
        return;
    o->micro_batches = o->micro_batches * o->micro_batch / b;
    o->micro_batch = b;
    say(t, " --micro-batch-size %lld", (long long)b);
}

/* Bytes that a rank needs then; 0 when it is no change, or not possible. */
static double needs(struct trial *t, const struct candidate *c,
                    const struct gpt_args *args, struct gpt_backend *be,
                    double limit)
{
    double most;

    if ((c->tp > 0 || c->pp > 0) && !spread(t, c, args))
        return 0;
    recompute(t, c->recompute);
    if (c->shard)
        shard(t);
    if (c->micro_batch)
        shrink(t, be, limit);
    if (!t->text[0] ||
        gpt_estimate_largest(&t->plan, be, &most, NULL) != GPT_OK)
        return 0;
    return most;
}

void gpt_advise(const struct gpt_train_plan *plan, const struct gpt_args *args,
                struct gpt_backend *be, double limit, char *text, size_t cap)
{
    char bytes[32];

    for (size_t i = 0; i < GPT_COUNT(candidates); i++) {
        struct trial t = {.options = *plan->options, .plan = *plan};

        t.plan.replica.world = NULL;
        const double most = needs(&t, &candidates[i], args, be, limit);
        if (most == 0 || most > limit)
            continue;
        snprintf(text, cap, "with%s a rank needs %s", t.text,
                 gpt_text_bytes(bytes, most));
        return;
    }
    snprintf(text, cap, "nothing that was tried makes it fit: recomputation, "
             "micro batches of one sample, up to 64 times as many ranks");
}
