/* The search for a layout; see layouts.h. Start at gpt_layouts_find().
 *
 * A bound of each layout's time costs little: what the last stage computes.
 * Layouts are looked at in the order of these bounds, first for memory, then
 * for time, until the next bound is above the times that were found. What is
 * left out then cannot be among the best. */
#include "cmd/train/layouts.h"

#include "base/memory.h"
#include "base/num.h"
#include "cmd/train/estimate.h"

#include <stdlib.h>

enum {
    MOST_MICRO = 64,   /* samples of a microbatch */
    MOST_CHUNKS = 16,  /* virtual stages */
    RECOMPUTE_NONE = 0,
    RECOMPUTE_SELECTIVE,
    RECOMPUTE_FULL,
};

struct candidate {
    int64_t part[GPT_N_PARTS];
    double floor; /* seconds */
};

struct candidates {
    struct candidate *list;
    size_t n, cap;
};

/* ---- plans ---- */

/* The options that a choice stands for. Older names of the same choices are
 * switched off: they would contradict. */
static void set_parts(struct gpt_train_options *o, const int64_t *part,
                      int64_t ranks)
{
    o->tp_size = part[GPT_PART_TENSOR];
    o->pp_size = part[GPT_PART_PIPELINE];
    o->stages.layers_per_chunk = 0;
    o->stages.chunks =
        part[GPT_PART_CHUNKS] > 1 ? part[GPT_PART_CHUNKS] : 0;
    o->micro_batch_size = part[GPT_PART_MICRO];
    o->sharding = gpt_train_shardings[part[GPT_PART_SHARDING]];
    o->distributed_optimizer = false;
    o->overlap_gather = part[GPT_PART_SHARDING] != GPT_ZERO_OFF;
    o->recompute_activations = false;
    o->recompute_granularity =
        part[GPT_PART_RECOMPUTE] == RECOMPUTE_FULL
            ? gpt_train_granularities[GPT_GRANULARITY_FULL]
        : part[GPT_PART_RECOMPUTE] == RECOMPUTE_SELECTIVE
            ? gpt_train_granularities[GPT_GRANULARITY_SELECTIVE]
            : NULL;
    o->sequence_parallel = part[GPT_PART_SEQUENCE] == 1;
    o->world_size = ranks;
    o->dry_run = true; /* data and rate are not there yet */
}

int gpt_layout_plan(const struct gpt_layout_search *s, const int64_t *part,
                    struct gpt_train_options *options,
                    struct gpt_train_plan *plan)
{
    *options = *s->base;
    gpt_train_set_batch(options, s->batch);
    set_parts(options, part, s->ranks);
    return gpt_train_plan_of(plan, options, s->args, s->ranks);
}

/* ---- every layout ---- */

/* True when the part is free, or given as this. */
static bool admits(const struct gpt_layout_search *s, enum gpt_layout_part part,
                   int64_t value)
{
    return s->part[part] < 0 || s->part[part] == value;
}

/* Adds the layout, unless a rule of plans forbids it. */
static int add_candidate(const struct gpt_layout_search *s,
                         const int64_t *part, struct candidates *c,
                         struct gpt_err *err)
{
    struct gpt_train_options options;
    struct gpt_train_plan plan;
    struct candidate *new;

    if (gpt_layout_plan(s, part, &options, &plan) != GPT_OK)
        return GPT_OK;
    GPT_TRY(gpt_grow(&c->list, &c->cap, c->n + 1, sizeof(*c->list), "layouts",
                     err));
    new = &c->list[c->n++];
    *new = (struct candidate){.floor = gpt_layout_floor(&plan, s->hardware)};
    for (int i = 0; i < GPT_N_PARTS; i++)
        new->part[i] = part[i];
    return GPT_OK;
}

/* The loops below go from the cut of the model inwards, and leave out early
 * what cannot be: most products of the numbers are no layouts.
 *
 * All ways to share and to recompute, of a cut of the model and a micro
 * batch. A single data parallel rank has nothing to share. */
static int add_kinds(const struct gpt_layout_search *s, int64_t *part,
                     int64_t replicas, struct candidates *c,
                     struct gpt_err *err)
{
    for (int64_t z = 0; gpt_train_shardings[z]; z++) {
        if (!admits(s, GPT_PART_SHARDING, z) ||
            (replicas == 1 && z != GPT_ZERO_OFF &&
             s->part[GPT_PART_SHARDING] < 0))
            continue;
        part[GPT_PART_SHARDING] = z;
        for (int64_t r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
            part[GPT_PART_RECOMPUTE] = r;
            if (admits(s, GPT_PART_RECOMPUTE, r))
                GPT_TRY(add_candidate(s, part, c, err));
        }
    }
    return GPT_OK;
}

/* All micro batches of a cut. */
static int add_micros(const struct gpt_layout_search *s, int64_t *part,
                      struct candidates *c, struct gpt_err *err)
{
    const int64_t replicas =
        s->ranks / (part[GPT_PART_TENSOR] * part[GPT_PART_PIPELINE]);
    const int64_t samples = s->batch / replicas;
    const int64_t most = gpt_min_i64(samples, MOST_MICRO);
    const int64_t given = s->part[GPT_PART_MICRO];

    if (s->batch % replicas != 0)
        return GPT_OK;
    part[GPT_PART_SEQUENCE] = s->part[GPT_PART_SEQUENCE] >= 0
                                  ? s->part[GPT_PART_SEQUENCE]
                                  : part[GPT_PART_TENSOR] > 1;
    for (int64_t b = gpt_max_i64(given, 1); b <= gpt_max_i64(given, most);
         b++) {
        part[GPT_PART_MICRO] = b;
        if (samples % b == 0 && admits(s, GPT_PART_MICRO, b))
            GPT_TRY(add_kinds(s, part, replicas, c, err));
    }
    return GPT_OK;
}

/* Virtual stages need a pipeline, and each of them a layer at least. */
static int add_chunks(const struct gpt_layout_search *s, int64_t *part,
                      struct candidates *c, struct gpt_err *err)
{
    const int64_t stages = part[GPT_PART_PIPELINE];
    const int64_t layers = s->base->model.num_layers / stages;

    for (int64_t v = 1; v <= gpt_min_i64(layers, MOST_CHUNKS); v++) {
        if (layers % v != 0 || (v > 1 && stages == 1) ||
            !admits(s, GPT_PART_CHUNKS, v))
            continue;
        part[GPT_PART_CHUNKS] = v;
        GPT_TRY(add_micros(s, part, c, err));
    }
    return GPT_OK;
}

/* Tensor parallel ranks exchange within every layer: over the links between
 * machines that takes longer than any other cut, so that it is only done where
 * it was asked for. */
static int add_all(const struct gpt_layout_search *s, struct candidates *c,
                   struct gpt_err *err)
{
    const int64_t layers = s->base->model.num_layers;
    int64_t part[GPT_N_PARTS] = {0};

    for (int64_t tp = 1; tp <= s->ranks; tp++) {
        if (s->ranks % tp != 0 || !admits(s, GPT_PART_TENSOR, tp) ||
            (tp > s->hardware->per_node && s->part[GPT_PART_TENSOR] < 0))
            continue;
        for (int64_t pp = 1; pp <= gpt_min_i64(s->ranks / tp, layers); pp++) {
            if (s->ranks % (tp * pp) != 0 || layers % pp != 0 ||
                !admits(s, GPT_PART_PIPELINE, pp))
                continue;
            part[GPT_PART_TENSOR] = tp;
            part[GPT_PART_PIPELINE] = pp;
            GPT_TRY(add_chunks(s, part, c, err));
        }
    }
    return GPT_OK;
}

/* Equal bounds in the order of their parts, so that the advice does not depend
 * on the library's sort. */
static int by_floor(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->floor < y->floor || x->floor > y->floor)
        return x->floor < y->floor ? -1 : 1;
    for (int i = 0; i < GPT_N_PARTS; i++)
        if (x->part[i] != y->part[i])
            return x->part[i] < y->part[i] ? -1 : 1;
    return 0;
}

/* ---- memory ---- */

/* Stages are even: the first has the most microbatches in flight, and the last
 * has the logits. No stage between them needs more than both. */
static int measure_memory(const struct gpt_layout_search *s,
                          const struct gpt_train_plan *plan, double *most,
                          int64_t *parameters, struct gpt_err *err)
{
    const int64_t ends[] = {0, plan->topology.size[GPT_PP] - 1};

    *most = 0;
    *parameters = 0;
    for (size_t i = 0; i < GPT_COUNT(ends); i++) {
        struct gpt_memory memory;
        int64_t n;

        GPT_TRY(gpt_estimate_memory(plan, s->be, ends[i], &memory, &n, err));
        const double bytes = gpt_memory_device(&memory, s->be);
        *most = bytes > *most ? bytes : *most;
        *parameters = gpt_max_i64(*parameters, n);
    }
    return GPT_OK;
}

/* True when `big`, of the same cut, cannot need less than `small`. */
static bool needs_as_much(const struct candidate *big,
                          const struct candidate *small)
{
    for (int i = GPT_PART_TENSOR; i <= GPT_PART_CHUNKS; i++)
        if (big->part[i] != small->part[i])
            return false;
    return big->part[GPT_PART_SEQUENCE] <= small->part[GPT_PART_SEQUENCE] &&
           big->part[GPT_PART_MICRO] >= small->part[GPT_PART_MICRO] &&
           big->part[GPT_PART_SHARDING] <= small->part[GPT_PART_SHARDING] &&
           big->part[GPT_PART_RECOMPUTE] <= small->part[GPT_PART_RECOMPUTE];
}

/* ---- the search ---- */

/* What was too large; and the choices so far, the fastest first. */
struct found {
    struct candidates failed;
    struct gpt_layout_choice *best;
    size_t cap, n;
    struct gpt_layout_choice *least;
};

/* True where a layout that needs no more was too large. Most layouts of a large
 * model end here, without a prediction. */
static bool is_hopeless(const struct found *f, const struct candidate *c)
{
    for (size_t i = 0; i < f->failed.n; i++)
        if (needs_as_much(c, &f->failed.list[i]))
            return true;
    return false;
}

/* Where nothing fits the message has the least need of all that fail. */
static int note_failed(struct found *f, const struct candidate *c,
                       const struct gpt_layout_choice *choice,
                       struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&f->failed.list, &f->failed.cap, f->failed.n + 1,
                     sizeof(*f->failed.list), "layouts", err));
    f->failed.list[f->failed.n++] = *c;
    if (choice->memory < f->least->memory)
        *f->least = *choice;
    return GPT_OK;
}

/* A layout whose memory is known. */
struct weighed {
    struct gpt_train_options options;
    struct gpt_train_plan plan; /* refers to the options */
    struct gpt_layout_choice choice;
    int64_t parameters;
    bool fits;
};

/* What does not fit is noted. */
static int weigh(const struct gpt_layout_search *s, const struct candidate *c,
                 struct found *f, struct weighed *w, struct gpt_err *err)
{
    w->fits = false;
    if (gpt_layout_plan(s, c->part, &w->options, &w->plan) != GPT_OK)
        return GPT_OK;
    w->choice = (struct gpt_layout_choice){.memory = 0};
    for (int i = 0; i < GPT_N_PARTS; i++)
        w->choice.part[i] = c->part[i];
    GPT_TRY(measure_memory(s, &w->plan, &w->choice.memory, &w->parameters,
                           err));
    w->fits = w->choice.memory <= s->hardware->memory;
    return w->fits ? GPT_OK : note_failed(f, c, &w->choice, err);
}

/* Keeps the list sorted: what is slower than a full list goes. */
static void note_choice(struct found *f, const struct gpt_layout_choice *choice)
{
    size_t at = f->n < f->cap ? f->n++ : f->cap;

    while (at > 0 && f->best[at - 1].time.step > choice->time.step) {
        if (at < f->cap)
            f->best[at] = f->best[at - 1];
        at--;
    }
    if (at < f->cap)
        f->best[at] = *choice;
}

/* Memory comes before time: it costs less, and decides more. A failure of
 * either ends the search, because a plan that was made can be predicted. */
static int try_candidate(const struct gpt_layout_search *s,
                         const struct candidate *c, struct found *f,
                         struct gpt_err *err)
{
    struct weighed w;

    if (is_hopeless(f, c))
        return GPT_OK;
    GPT_TRY(weigh(s, c, f, &w, err));
    if (!w.fits)
        return GPT_OK;
    GPT_TRY(gpt_layout_time(&w.plan, s->hardware, w.parameters, &w.choice.time,
                            err));
    note_choice(f, &w.choice);
    return GPT_OK;
}

/* Tries the layout of each cut that takes the least memory first: where that is
 * too large, so are all others of its cut. */
static int try_frugal(const struct gpt_layout_search *s,
                      const struct candidates *c, struct found *f,
                      struct gpt_err *err)
{
    for (size_t i = 0; i < c->n; i++) {
        struct weighed w;
        bool frugal = true;

        for (size_t k = 0; k < c->n && frugal; k++)
            frugal = k == i || !needs_as_much(&c->list[i], &c->list[k]);
        if (frugal)
            GPT_TRY(weigh(s, &c->list[i], f, &w, err));
    }
    return GPT_OK;
}

int gpt_layouts_find(const struct gpt_layout_search *s,
                     struct gpt_layout_choice *best, size_t cap, size_t *n,
                     struct gpt_layout_choice *least, struct gpt_err *err)
{
    struct found f = {.best = best, .cap = cap, .least = least};
    struct candidates c = {.n = 0};
    int status;

    *n = 0;
    *least = (struct gpt_layout_choice){.memory = 1e300};
    GPT_TRY_GOTO(status, add_all(s, &c, err), out);
    if (c.n == 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "no layout of this model over %lld ranks has %lld samples a "
                 "step", (long long)s->ranks, (long long)s->batch);
        status = gpt_hint(err, "--global-batch-size must be a multiple of the "
                               "data parallel ranks, and layers and heads of "
                               "what shares them");
        goto out;
    }
    qsort(c.list, c.n, sizeof(*c.list), by_floor);
    GPT_TRY_GOTO(status, try_frugal(s, &c, &f, err), out);
    /* The bound of a layout is never above its time, and bounds only grow from
     * here: no later layout can enter a full list. */
    for (size_t i = 0; i < c.n; i++) {
        if (f.n == cap && c.list[i].floor > best[cap - 1].time.step)
            break;
        GPT_TRY_GOTO(status, try_candidate(s, &c.list[i], &f, err), out);
    }
    *n = f.n;
out:
    gpt_free(f.failed.list);
    gpt_free(c.list);
    return status;
}
