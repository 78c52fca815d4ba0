/* Advice for runs that do not fit; see advise.h. Every trial changes a copy of
 * the run's options and makes its plan anew, and the memory of that plan is
 * predicted as --dry-run does: advice that is given has been checked, and its
 * text is the difference of the options. Start at gpt_advise(). */
#include "cmd/train/advise.h"

#include "base/num.h"
#include "cmd/train/estimate.h"
#include "cmd/train/settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
    double work; /* done so far, see MOST_WORK */
    const struct gpt_train_plan *plan;
    const struct gpt_args *args;
    const struct gpt_advice_options *o;
    struct gpt_train_options base; /* the run's, but for what is not planned */
};

/* A cut of the model: a and b times as many tensor parallel ranks and stages,
 * on f times as many ranks. */
struct cut {
    int64_t a, b, f;
};

/* A changed plan. */
struct trial {
    struct gpt_train_options options;
    struct gpt_train_plan plan;
    double most; /* bytes of the rank that needs most */
};

/* ---- measures ---- */

/* Only towards more: an option that the user chose to save memory stays. The
 * older name of the selective kind would contradict the new value. */
static bool recompute(struct gpt_train_options *o, enum gpt_train_granularity g)
{
    const int now =
        o->recompute_activations
            ? GPT_GRANULARITY_SELECTIVE
            : gpt_train_choice(gpt_train_granularities,
                               o->recompute_granularity);

    if (now == (int)g || now == GPT_GRANULARITY_FULL)
        return false;
    o->recompute_activations = false;
    o->recompute_granularity = gpt_train_granularities[g];
    return true;
}

static bool recompute_selectively(struct gpt_train_options *o)
{
    return recompute(o, GPT_GRANULARITY_SELECTIVE);
}

/* Groups of one layer need least, and are what the defaults are. Blocks stay:
 * the user has chosen how many layers they cover. */
static bool recompute_layers(struct gpt_train_options *o)
{
    if (recompute(o, GPT_GRANULARITY_FULL))
        return true;
    if (o->recompute_layers == 1 ||
        gpt_train_choice(gpt_train_methods, o->recompute_method) !=
            GPT_METHOD_UNIFORM)
        return false;
    o->recompute_layers = 1;
    return true;
}

/* By the newer of the two options, which an older one beside it does not
 * contradict. */
static bool share(struct gpt_train_options *o, enum gpt_zero zero)
{
    const int now = gpt_train_choice(gpt_train_shardings, o->sharding);

    if (now >= (int)zero || (zero == GPT_ZERO_1 && o->distributed_optimizer))
        return false;
    o->sharding = gpt_train_shardings[zero];
    return true;
}

static bool share_optimizer(struct gpt_train_options *o)
{
    return share(o, GPT_ZERO_1);
}

static bool share_gradients(struct gpt_train_options *o)
{
    return share(o, GPT_ZERO_2);
}

/* The tensor parallel ranks then keep a part of the residual stream each. */
static bool share_sequence(struct gpt_train_options *o)
{
    if (o->sequence_parallel || o->tp_size == 1)
        return false;
    o->sequence_parallel = true;
    return true;
}

/* Without the copy that a save in the background needs, steps wait for it. */
static bool save_in_step(struct gpt_train_options *o)
{
    if (!o->async_save)
        return false;
    o->async_save = false;
    return true;
}

/* Makes room for the largest micro batch that fits, which depends on all other
 * measures: see try_measures(). */
static bool shrink_micro_batch(struct gpt_train_options *o)
{
    return o->micro_batch_size > 1;
}

/* What each measure costs, in no unit. Sets of measures are tried in the order
 * of their sums, so that the costs say which of two is preferred: recomputing
 * what is cheap before whole layers. None of them changes a loss but by
 * rounding. `apply` returns false where it is no change. */
static const struct measure {
    int cost;
    bool (*apply)(struct gpt_train_options *o);
    bool replicas; /* needs more than one copy of the model */
    bool shrink;   /* the micro batch is chosen after the other measures */
} measures[] = {
    {.cost = 1, .apply = recompute_selectively},
    {.cost = 1, .apply = share_sequence},
    {.cost = 2, .apply = save_in_step},
    {.cost = 4, .apply = recompute_layers},
    {.cost = 5, .apply = shrink_micro_batch, .shrink = true},
    {.cost = 5, .apply = share_optimizer, .replicas = true},
    {.cost = 7, .apply = share_gradients, .replicas = true},
};

enum {
    MEASURES = GPT_COUNT(measures),
    SETS = 1 << MEASURES,
    MOST_FACTOR = 1024, /* times as many ranks */
    MOST_WORK = 1000000, /* layers predicted: some seconds */
};

static int cost_of(unsigned set)
{
    int cost = 0;

    for (size_t i = 0; i < MEASURES; i++)
        cost += set >> i & 1 ? measures[i].cost : 0;
    return cost;
}

/* Equal costs in the order of the table, so that advice does not depend on the
 * library's sort. */
static int by_cost(const void *a, const void *b)
{
    const unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

    if (cost_of(x) != cost_of(y))
        return cost_of(x) < cost_of(y) ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* ---- trials ---- */

/* Ranks of the whole job after the cut. */
static int64_t ranks_of(const struct search *s, const struct cut *c)
{
    return s->plan->topology.world_size * c->f;
}

/* The plan of the trial's options on the ranks of the cut. Whether documents
 * part attention is settled by what the run has opened. */
static int plan_trial(const struct search *s, const struct cut *c,
                      struct trial *t)
{
    GPT_TRY(gpt_train_plan_of(&t->plan, &t->options, s->args,
                              ranks_of(s, c)));
    t->plan.replica.exec.documents = s->plan->replica.exec.documents;
    return GPT_OK;
}

/* --world-size is an option of plans alone: what starts the ranks of a run says
 * how many there are. */
static void cut_model(const struct search *s, const struct cut *c,
                      struct trial *t)
{
    t->options = s->base;
    t->options.tp_size *= c->a;
    t->options.pp_size *= c->b;
    if (!s->o->starts && c->f > 1)
        t->options.world_size = ranks_of(s, c);
}

/* A failure of the prediction is no candidate, and reports nothing.
 *
 * The bytes that the trial needs with the largest micro batch that fits, or
 * with its own where that need not change. */
static bool predict(struct search *s, const struct cut *c, bool shrink,
                    struct trial *t)
{
    int64_t fits;

    if (plan_trial(s, c, t) != GPT_OK)
        return false;
    /* Every stage is predicted, from the parameters of the whole model. */
    s->work += (double)t->options.model.num_layers * (double)t->options.pp_size;
    if (shrink) {
        if (gpt_estimate_fit(&t->plan, s->o->be, s->o->limit, &fits, NULL) !=
                GPT_OK ||
            fits >= t->options.micro_batch_size)
            return false;
        t->options.micro_batch_size = gpt_max_i64(fits, 1);
        if (plan_trial(s, c, t) != GPT_OK)
            return false;
    }
    return gpt_estimate_largest(&t->plan, s->o->be, &t->most, NULL) == GPT_OK;
}

/* Applies measure i where it is a change here: a single data parallel rank has
 * nothing to share. */
static bool apply(const struct search *s, const struct cut *c, size_t i,
                  struct gpt_train_options *o)
{
    const struct measure *m = &measures[i];
    const int64_t replicas =
        ranks_of(s, c) / (s->plan->topology.size[GPT_TP] * c->a *
                          s->plan->topology.size[GPT_PP] * c->b);

    return !(m->replicas && replicas == 1) && m->apply(o);
}

/* True when a set of measures is a change in each of its members and leads to a
 * plan, whose need is then in t->most. */
static bool try_measures(struct search *s, const struct cut *c,
                         unsigned set, struct trial *t)
{
    bool shrink = false;

    cut_model(s, c, t);
    for (size_t i = 0; i < MEASURES; i++) {
        if (!(set >> i & 1))
            continue;
        if (!apply(s, c, i, &t->options))
            return false;
        shrink = shrink || measures[i].shrink;
    }
    return predict(s, c, shrink, t);
}

/* All measures that are possible: if the cut does not fit then, no set of them
 * does. A measure that a rule of the plan forbids is undone. */
static bool try_all(struct search *s, const struct cut *c,
                    struct trial *t)
{
    cut_model(s, c, t);
    t->options.micro_batch_size = 1;
    if (plan_trial(s, c, t) != GPT_OK)
        return false;
    for (size_t i = 0; i < MEASURES; i++) {
        const struct gpt_train_options before = t->options;

        if (apply(s, c, i, &t->options) && plan_trial(s, c, t) != GPT_OK)
            t->options = before;
    }
    return predict(s, c, false, t);
}

/* The cheapest set with which the cut fits; `best` keeps the least need of all
 * cuts that do not. */
static bool try_cut(struct search *s, const struct cut *c,
                    const unsigned *sets, struct trial *t, struct trial *best)
{
    if (s->work > MOST_WORK || !try_all(s, c, t))
        return false;
    if (t->most > s->o->limit) {
        if (t->most < best->most)
            *best = *t;
        return false;
    }
    for (size_t i = 0; i < SETS; i++)
        if (try_measures(s, c, sets[i], t) && t->most <= s->o->limit)
            return true;
    return false;
}

/* ---- the search ---- */

/* 1 to 8, then eight numbers for each doubling at most. */
static int64_t next_factor(int64_t f)
{
    int64_t step = 1;

    while (f >= 8 * step)
        step *= 2;
    return f + step;
}

/* Cuts of the model over f times as many ranks, the coarsest first. GPUs of one
 * machine exchange fast, so that they share layers where they can; between
 * machines stages exchange less. */
static bool try_factor(struct search *s, int64_t f, const unsigned *sets,
                       struct cut *c, struct trial *t, struct trial *best)
{
    const int64_t replicas = s->plan->topology.size[GPT_DP] * f;
    const int64_t tp = s->plan->topology.size[GPT_TP];
    const int64_t near =
        s->o->more == GPT_MORE_MACHINES ? s->o->local_ranks : 8;

    for (int64_t k = 1; k <= replicas; k++) {
        if (replicas % k != 0)
            continue;
        for (int64_t far = 0; far <= 1; far++)
            for (int64_t a = k; a >= 1; a--) {
                if (k % a != 0 || (tp * a > near) != (bool)far)
                    continue;
                *c = (struct cut){a, k / a, f};
                if (try_cut(s, c, sets, t, best))
                    return true;
            }
    }
    return false;
}

/* ---- the sentence ---- */

/* Options that a trial may change, in the order in which they are named. */
static const char *const changed[] = {
    "bf16",
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "sequence-parallel",
    "data-parallel-sharding-strategy",
    "recompute-activations",
    "recompute-granularity",
    "recompute-num-layers",
    "async-save",
    "micro-batch-size",
    "global-batch-size",
    "world-size",
};

/* The batch is named where its default would be another one. */
static bool needs_no_name(const struct trial *t, const char *name)
{
    return strcmp(name, "global-batch-size") == 0 &&
           t->options.global_batch_size == t->plan.micro_samples;
}

/* The option as it would be typed; nothing where it is the run's. */
static void add_difference(const struct search *s, const struct trial *t,
                           const char *name, char *text, size_t cap)
{
    const struct gpt_opt *opt = &gpt_train_option_table[gpt_train_row(name)];
    const void *was = (const char *)s->plan->options + opt->offset;
    const void *is = (const char *)&t->options + opt->offset;
    const size_t n = strlen(text);

    if (needs_no_name(t, name))
        return;
    if (opt->kind == GPT_OPT_FLAG && *(const bool *)was != *(const bool *)is)
        snprintf(text + n, cap - n, " --%s%s", *(const bool *)is ? "" : "no-",
                 name);
    else if (opt->kind == GPT_OPT_INT &&
             *(const int64_t *)was != *(const int64_t *)is)
        snprintf(text + n, cap - n, " --%s %lld", name,
                 (long long)*(const int64_t *)is);
    else if (opt->kind == GPT_OPT_CHOICE &&
             *(const char *const *)was != *(const char *const *)is)
        snprintf(text + n, cap - n, " --%s %s", name,
                 *(const char *const *)is);
}

/* Where the ranks come from. */
static void add_ranks(const struct search *s, const struct cut *c, char *text,
                      size_t cap)
{
    const size_t n = strlen(text);
    const long long ranks = (long long)ranks_of(s, c);

    if (c->f == 1 || (s->o->more == GPT_MORE_PLANNED && !s->o->starts))
        return;
    if (s->o->more == GPT_MORE_PLANNED)
        snprintf(text + n, cap - n, " on %lld ranks", ranks);
    else if (s->o->more == GPT_MORE_GPUS)
        snprintf(text + n, cap - n, " on %lld ranks with a GPU like this each",
                 ranks);
    else
        snprintf(text + n, cap - n,
                 " on %lld ranks, %lld on each of %lld machines like this one",
                 ranks, (long long)s->o->local_ranks,
                 (long long)gpt_ceil_div(ranks, s->o->local_ranks));
}

/* What was tried, in words that can be pasted. */
static void describe(const struct search *s, const struct cut *c,
                     const struct trial *t, char *text, size_t cap)
{
    text[0] = '\0';
    for (size_t i = 0; i < GPT_COUNT(changed); i++)
        add_difference(s, t, changed[i], text, cap);
    add_ranks(s, c, text, cap);
}

/* ---- the whole ---- */

/* The tokenizer has told the size of the vocabulary, and need not be opened for
 * every plan. The batch is the one of the run: another micro batch or number of
 * ranks must not change what is trained. */
static struct gpt_train_options base_of(const struct gpt_train_plan *plan)
{
    struct gpt_train_options o = *plan->options;

    o.tokenizer = (struct gpt_tokenizer_options){
        .type = gpt_tokenizer_types[0], /* needs a file, and has none */
    };
    o.vocab_size = plan->replica.config.vocab_size;
    o.eod_mask_loss = o.reset_position_ids = o.reset_attention_mask = false;
    gpt_train_set_batch(&o, plan->rampup.global_batch);
    return o;
}

/* The fewest times as many ranks with which the run fits, *c and *t the way of
 * it; 0 when there is none: *t is what needs least then. */
static int64_t search_factors(struct search *s, struct cut *c,
                              struct trial *t)
{
    struct trial best = {.most = 1e300};
    unsigned sets[SETS];

    for (unsigned i = 0; i < SETS; i++)
        sets[i] = i;
    qsort(sets, SETS, sizeof(*sets), by_cost);
    for (int64_t f = 1; f <= MOST_FACTOR; f = next_factor(f))
        if (try_factor(s, f, sets, c, t, &best))
            return f;
    *t = best;
    c->f = best.plan.topology.world_size / s->plan->topology.world_size;
    return 0;
}

/* The same run in bfloat16 may need fewer ranks. That changes its numbers, so
 * that it is an alternative and not the advice. */
static void add_narrow(struct search *s, int64_t factor, char *text, size_t cap)
{
    const struct gpt_train_options *o = s->plan->options;
    char with[400], bytes[32];
    struct trial t;
    struct cut c;

    if (factor == 1 || o->bf16 || o->fp16 || o->tf32 ||
        !(s->o->be->act_types >> GPT_BF16 & 1))
        return;
    s->base.bf16 = true;
    const int64_t fewer = search_factors(s, &c, &t);
    if (fewer == 0 || (factor > 0 && fewer >= factor))
        return;
    describe(s, &c, &t, with, sizeof(with));
    const size_t n = strlen(text);
    snprintf(text + n, cap - n, "; or with%s it needs %s", with,
             gpt_text_bytes(bytes, t.most));
}

void gpt_advise(const struct gpt_train_plan *plan, const struct gpt_args *args,
                const struct gpt_advice_options *options, char *text,
                size_t cap)
{
    struct search s = {
        .plan = plan,
        .args = args,
        .o = options,
        .base = base_of(plan),
    };
    char with[400], bytes[32];
    struct trial t;
    struct cut c;

    const int64_t factor = search_factors(&s, &c, &t);
    describe(&s, &c, &t, with, sizeof(with));
    if (factor > 0)
        snprintf(text, cap, "with%s a rank needs %s", with,
                 gpt_text_bytes(bytes, t.most));
    else
        snprintf(text, cap, "nothing fits: with%s a rank needs %s still; a "
                 "shorter --seq-length or a smaller model needs less",
                 with, gpt_text_bytes(bytes, t.most));
    add_narrow(&s, factor, text, cap);
}
