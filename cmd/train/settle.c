/* Options of files against options that were typed; see settle.h. Start at
 * `rules`: a row a contradiction. What two options of one source contradict is
 * an error, which plan.c reports. */
#include "cmd/train/settle.h"

#include "base/num.h"
#include "model/config.h"
#include "parallel/launch_env.h"
#include "train/lr_schedule.h"
#include "train/reduce.h"

#include <assert.h>
#include <string.h>

struct rule {
    const char *older; /* option of a file, which gives way */
    const char *newer; /* option of a later source */
    bool (*contradict)(const struct gpt_train_options *o, int64_t ranks);
    /* Gives the older one a value that fits, which is then the newer one's
     * source's; NULL: its default does. */
    void (*follow)(struct gpt_train_options *o, int64_t ranks);
};

/* ---- contradictions ---- */

static bool min_above_lr(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->min_lr > o->lr;
}

static bool init_above_lr(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->lr_warmup_init > o->lr;
}

static bool too_few_positions(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->max_position_embeddings > 0 &&
           o->seq_length > o->max_position_embeddings;
}

/* The default length of a sample may not fit either. */
static void shorten_samples(struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    o->seq_length = o->max_position_embeddings;
}

/* The global batch is cut into micro batches for every data parallel rank. */
static bool batch_does_not_divide(const struct gpt_train_options *o,
                                  int64_t ranks)
{
    return o->global_batch_size % (o->micro_batch_size * ranks) != 0;
}

/* The largest micro batch that is not above the one of the file. Where even one
 * sample does not divide, the plan names the rule. */
static void shrink_micro_batch(struct gpt_train_options *o, int64_t ranks)
{
    while (o->micro_batch_size > 1 && batch_does_not_divide(o, ranks))
        o->micro_batch_size--;
}

/* Only rotary positions have angles, and with them a base and a scaling. */
static bool has_no_angles(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return gpt_train_position(o->position_embedding_type) != GPT_POSITION_ROPE;
}

/* What scales angles says nothing without a kind of scaling. */
static bool has_no_scaling(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return gpt_train_choice(gpt_rotary_scalings, o->rotary_scaling) ==
           GPT_SCALING_NONE;
}

/* Only half precision has a loss scale. */
static bool has_no_scale(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return !o->fp16;
}

/* Factors of eight bits are rounded from bfloat16 alone. */
static bool is_not_bf16(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return !o->bf16;
}

static bool recomputes_no_layers(const struct gpt_train_options *o,
                                 int64_t ranks)
{
    (void)ranks;
    return gpt_train_choice(gpt_train_granularities,
                            o->recompute_granularity) != GPT_GRANULARITY_FULL;
}

/* A run counts in one unit, that of its length. */
static bool counts_iterations(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->train_iters > 0;
}

static bool has_batch_steps(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->batch_steps.n > 0;
}

static bool has_rampup(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->rampup.n > 0;
}

static bool has_global_batch(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->global_batch_size > 0;
}

static bool counts_samples(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->train_samples > 0;
}

static bool decay_is_constant(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return gpt_train_choice(gpt_wd_styles, o->weight_decay_incr_style) ==
           GPT_WD_CONSTANT;
}

static bool has_one_stage(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return o->pp_size == 1;
}

/* By either of the two options that ask for sharding. */
static bool shares_nothing(const struct gpt_train_options *o, int64_t ranks)
{
    (void)ranks;
    return !o->distributed_optimizer &&
           gpt_train_choice(gpt_train_shardings, o->sharding) == GPT_ZERO_OFF;
}

/* Rules that presets can meet come first. */
static const struct rule rules[] = {
    {"min-lr", "lr", min_above_lr, NULL},
    {"lr-warmup-init", "lr", init_above_lr, NULL},
    {"max-position-embeddings", "seq-length", too_few_positions, NULL},
    {"seq-length", "max-position-embeddings", too_few_positions,
     shorten_samples},
    {"micro-batch-size", "global-batch-size", batch_does_not_divide,
     shrink_micro_batch},
    {"rotary-base", "position-embedding-type", has_no_angles, NULL},
    {"rotary-percent", "position-embedding-type", has_no_angles, NULL},
    {"rotary-interleaved", "position-embedding-type", has_no_angles, NULL},
    {"rotary-local-base", "position-embedding-type", has_no_angles, NULL},
    {"no-rope-freq", "position-embedding-type", has_no_angles, NULL},
    {"rotary-scaling-type", "position-embedding-type", has_no_angles, NULL},
    {"rotary-scaling-factor", "position-embedding-type", has_no_angles,
     NULL},
    {"rotary-scaling-factor", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-original-positions", "position-embedding-type", has_no_angles,
     NULL},
    {"rotary-original-positions", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-low-freq-factor", "position-embedding-type", has_no_angles,
     NULL},
    {"rotary-low-freq-factor", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-high-freq-factor", "position-embedding-type", has_no_angles,
     NULL},
    {"rotary-high-freq-factor", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-beta-fast", "position-embedding-type", has_no_angles,
     NULL},
    {"rotary-beta-fast", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-beta-slow", "position-embedding-type", has_no_angles,
     NULL},
    {"rotary-beta-slow", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-attention-factor", "position-embedding-type", has_no_angles,
     NULL},
    {"rotary-attention-factor", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-query-growth", "position-embedding-type", has_no_angles, NULL},
    {"rotary-query-growth", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-short-factors", "position-embedding-type", has_no_angles, NULL},
    {"rotary-short-factors", "rotary-scaling-type", has_no_scaling, NULL},
    {"rotary-long-factors", "position-embedding-type", has_no_angles, NULL},
    {"rotary-long-factors", "rotary-scaling-type", has_no_scaling, NULL},
    {"loss-scale", "bf16", has_no_scale, NULL},
    {"initial-loss-scale", "bf16", has_no_scale, NULL},
    {"min-loss-scale", "bf16", has_no_scale, NULL},
    {"loss-scale-window", "bf16", has_no_scale, NULL},
    {"hysteresis", "bf16", has_no_scale, NULL},
    {"fp8-format", "fp16", is_not_bf16, NULL},
    {"fp8-format", "tf32", is_not_bf16, NULL},
    {"recompute-method", "recompute-granularity", recomputes_no_layers, NULL},
    {"recompute-num-layers", "recompute-granularity", recomputes_no_layers,
     NULL},
    {"recompute-method", "recompute-activations", recomputes_no_layers, NULL},
    {"recompute-num-layers", "recompute-activations", recomputes_no_layers,
     NULL},
    {"rampup-batch-size", "train-iters", counts_iterations, NULL},
    {"step-batch-size-schedule", "train-iters", counts_iterations, NULL},
    {"step-batch-size-schedule", "global-batch-size", has_global_batch, NULL},
    {"step-batch-size-schedule", "rampup-batch-size", has_rampup, NULL},
    {"global-batch-size", "step-batch-size-schedule", has_batch_steps, NULL},
    {"rampup-batch-size", "step-batch-size-schedule", has_batch_steps, NULL},
    {"lr-decay-samples", "train-iters", counts_iterations, NULL},
    {"lr-warmup-samples", "train-iters", counts_iterations, NULL},
    {"lr-wsd-decay-samples", "train-iters", counts_iterations, NULL},
    {"lr-decay-iters", "train-samples", counts_samples, NULL},
    {"lr-warmup-iters", "train-samples", counts_samples, NULL},
    {"lr-wsd-decay-iters", "train-samples", counts_samples, NULL},
    {"start-weight-decay", "weight-decay-incr-style", decay_is_constant, NULL},
    {"end-weight-decay", "weight-decay-incr-style", decay_is_constant, NULL},
    {"num-layers-per-virtual-pipeline-stage", "pipeline-model-parallel-size",
     has_one_stage, NULL},
    {"num-virtual-stages-per-pipeline-rank", "pipeline-model-parallel-size",
     has_one_stage, NULL},
    {"decoder-first-pipeline-num-layers", "pipeline-model-parallel-size",
     has_one_stage, NULL},
    {"decoder-last-pipeline-num-layers", "pipeline-model-parallel-size",
     has_one_stage, NULL},
    {"overlap-param-gather", "data-parallel-sharding-strategy", shares_nothing,
     NULL},
};

/* ---- rows ---- */

bool gpt_train_find_row(const char *name, size_t *row)
{
    for (*row = 0; *row < gpt_train_n_options; ++*row) {
        const struct gpt_opt *opt = &gpt_train_option_table[*row];

        if (opt->kind != GPT_OPT_GROUP && strcmp(opt->name, name) == 0)
            return true;
    }
    return false;
}

size_t gpt_train_row(const char *name)
{
    size_t row;
    const bool found = gpt_train_find_row(name, &row);

    assert(found);
    (void)found;
    return row;
}

/* Rows that give way are numbers, flags, choices and lists; the text of a
 * default is that of the table, which a test has parsed. */
void gpt_train_unset(struct gpt_train_options *o, size_t row)
{
    const struct gpt_opt *opt = &gpt_train_option_table[row];
    void *field = (char *)o + opt->offset;

    switch (opt->kind) {
    case GPT_OPT_FLAG:
        *(bool *)field = opt->def && strcmp(opt->def, "true") == 0;
        break;
    case GPT_OPT_INT:
    case GPT_OPT_BYTES:
        *(int64_t *)field = 0;
        if (opt->def)
            (void)gpt_parse_int(opt->def, field);
        break;
    case GPT_OPT_REAL:
        *(double *)field = 0;
        if (opt->def)
            (void)gpt_parse_real(opt->def, field);
        break;
    case GPT_OPT_LIST:
        *(struct gpt_list *)field = (struct gpt_list){0};
        break;
    case GPT_OPT_STRING:
    case GPT_OPT_CHOICE:
    case GPT_OPT_GROUP:
        *(const char **)field = opt->def;
        break;
    }
}

/* ---- the whole ---- */

/* The value before and after would be noise: which option gave way, and to
 * which, tells a user where to look. */
static int apply(const struct rule *r, struct gpt_train_options *o,
                 uint8_t *origin, size_t older, size_t newer, int64_t ranks,
                 struct gpt_buf *b)
{
    if (r->follow) {
        r->follow(o, ranks);
        origin[older] = origin[newer];
    } else {
        gpt_train_unset(o, older);
        origin[older] = GPT_FROM_DEFAULT;
    }
    return gpt_buf_printf(b, "%s--%s, which --%s %s", b->len > 0 ? ", " : "",
                          r->older, r->newer,
                          r->follow ? "changes" : "replaces");
}

/* Before the world is open, which has sizes of its own: data parallel ranks are
 * what is left of the launcher's. */
static int64_t count_replicas(const struct gpt_train_options *o)
{
    const int64_t ranks =
        o->world_size > 0 ? o->world_size : gpt_launch_env_size();

    return gpt_max_i64(ranks / (o->tp_size * o->pp_size), 1);
}

int gpt_train_settle(struct gpt_train_options *o, struct gpt_args *args,
                     struct gpt_arena *arena, struct gpt_buf *b,
                     struct gpt_err *err)
{
    const size_t rows = args->program->n_options;
    const int64_t ranks = count_replicas(o);
    uint8_t *origin = gpt_arena_alloc(arena, rows, sizeof(*origin));

    if (!origin)
        return gpt_no_memory(err, "options");
    memcpy(origin, args->origin, rows * sizeof(*origin));
    for (size_t i = 0; i < GPT_COUNT(rules); i++) {
        const struct rule *r = &rules[i];
        const size_t older = gpt_train_row(r->older);
        const size_t newer = gpt_train_row(r->newer);

        if (origin[older] != GPT_FROM_CONFIG ||
            args->source[older] >= args->source[newer] ||
            !r->contradict(o, ranks))
            continue;
        if (apply(r, o, origin, older, newer, ranks, b) != GPT_OK)
            return gpt_no_memory(err, "options");
    }
    args->origin = origin;
    return GPT_OK;
}
