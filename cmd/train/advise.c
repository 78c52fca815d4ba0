/* Advice for runs that do not fit; see advise.h. Every candidate changes a copy
 * of the run's plan, and the memory of that plan is predicted: advice that is
 * given has been checked. Start at gpt_advise(). */
#include "cmd/train/advise.h"

#include "base/num.h"
#include "cmd/train/estimate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What is changed; tp, pp: times as many ranks, 0 = unchanged. */
struct candidate {
    enum gpt_recompute recompute; /* NONE: unchanged */
    bool micro_batch;             /* the largest that fits */
    bool shard;
    int64_t tp, pp;
};

/* In the order of what they cost: first those that take time only, then those
 * that take ranks. */
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

/* A changed plan, and the options that lead to it. */
struct trial {
    struct gpt_train_options options;
    struct gpt_train_plan plan;
    char text[256];
};

__attribute__((format(printf, 2, 3))) static void
add_text(struct trial *t, const char *fmt, ...)
{
    const size_t n = strlen(t->text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(t->text + n, sizeof(t->text) - n, fmt, args);
    va_end(args);
}

/* More tensor parallel ranks or stages: from the ranks that there are, where
 * data parallel ones can be used for it; else with more ranks. False when the
 * model cannot be cut like this. */
static bool change_layout(struct trial *t, const struct candidate *c,
                          const struct gpt_args *args)
{
    /* the plan is made anew from options: a layout decides too much of it */
    const int64_t tp = gpt_max_i64(c->tp, 1), pp = gpt_max_i64(c->pp, 1);
    struct gpt_topology *now = &t->plan.topology, then;
    int64_t world = now->world_size;

    const int64_t size[GPT_N_DIMS] = {[GPT_TP] = now->size[GPT_TP] * tp,
                                      [GPT_PP] = now->size[GPT_PP] * pp};

    t->options.tp_size = size[GPT_TP];
    t->options.pp_size = size[GPT_PP];
    /* Data parallel ranks turn into tensor parallel ranks or stages where their
     * number divides; otherwise the world grows by the whole factor. */
    if (now->size[GPT_DP] % (tp * pp) != 0)
        world *= tp * pp;
    if (gpt_topology_init(&then, world, 0, size, now->chunks, NULL) != GPT_OK)
        return false;
    if (c->tp > 0)
        add_text(t, " --tensor-model-parallel-size %lld",
                 (long long)t->options.tp_size);
    if (c->pp > 0)
        add_text(t, " --pipeline-model-parallel-size %lld",
                 (long long)t->options.pp_size);
    if (world > now->world_size)
        add_text(t, " on %lld ranks", (long long)world);
    return gpt_train_plan(&t->plan, &t->options, args, &then, NULL) == GPT_OK;
}

static void recompute_more(struct trial *t, enum gpt_recompute what)
{
    struct gpt_execution *o = &t->plan.replica.exec;

    /* block stays: the user has chosen how many layers it covers */
    if (what <= o->recompute || o->recompute == GPT_RECOMPUTE_BLOCK)
        return;
    o->recompute = what;
    /* A group of one layer is the option's default, so that the advice needs no
     * second option. */
    o->recompute_layers = 1;
    add_text(t, " --recompute-granularity %s",
             gpt_train_granularities[what == GPT_RECOMPUTE_SELECTIVE
                                         ? GPT_GRANULARITY_SELECTIVE
                                         : GPT_GRANULARITY_FULL]);
}

/* A single data parallel rank would keep all of Adam's moments, so that
 * sharding is no change there. */
static void shard_optimizer(struct trial *t)
{
    if (t->plan.topology.size[GPT_DP] == 1 ||
        t->plan.replica.zero != GPT_ZERO_OFF)
        return;
    t->plan.replica.zero = GPT_ZERO_1;
    add_text(t, " --use-distributed-optimizer");
}

/* The global batch stays: a smaller micro batch means more of them. */
static void shrink_micro_batch(struct trial *t, struct gpt_backend *be,
                               double limit)
{
    struct gpt_replica_options *o = &t->plan.replica;
    int64_t b;

    if (gpt_estimate_fit(&t->plan, be, limit, &b, NULL) != GPT_OK || b == 0 ||
        b >= o->exec.micro_batch)
        return;
    /* The product is the number of a rank's samples in a step, which b
     * divides. */
    o->micro_batches = o->micro_batches * o->exec.micro_batch / b;
    o->exec.micro_batch = b;
    add_text(t, " --micro-batch-size %lld", (long long)b);
}

/* Makes the change, and returns the bytes that a rank then needs; 0 when it is
 * no change, or not possible. */
static double try_candidate(struct trial *t, const struct candidate *c,
                            const struct gpt_args *args, struct gpt_backend *be,
                            double limit)
{
    double most;

    /* The layout comes first: it makes the plan anew, and would undo the other
     * changes. The micro batch comes last, since what fits depends on all of
     * them. */
    if ((c->tp > 0 || c->pp > 0) && !change_layout(t, c, args))
        return 0;
    recompute_more(t, c->recompute);
    if (c->shard)
        shard_optimizer(t);
    if (c->micro_batch)
        shrink_micro_batch(t, be, limit);
    if (!t->text[0] ||
        gpt_estimate_largest(&t->plan, be, &most, NULL) != GPT_OK)
        return 0;
    return most;
}

/* The first candidate that fits is the cheapest one, by the order of the
 * table. */
void gpt_advise(const struct gpt_train_plan *plan, const struct gpt_args *args,
                struct gpt_backend *be, double limit, char *text, size_t cap)
{
    char bytes[32];

    for (size_t i = 0; i < GPT_COUNT(candidates); i++) {
        struct trial t = {.options = *plan->options, .plan = *plan};

        /* a candidate has other ranks than those that are connected */
        t.plan.replica.world = NULL;
        const double most = try_candidate(&t, &candidates[i], args, be, limit);
        if (most == 0 || most > limit)
            continue;
        snprintf(text, cap, "with%s a rank needs %s", t.text,
                 gpt_text_bytes(bytes, most));
        return;
    }
    snprintf(text, cap, "nothing that was tried makes it fit: recomputation, "
             "micro batches of one sample, up to 64 times as many ranks");
}
