/* The part of a plan that is about ranks: which part of the model this one has,
 * what is kept and what computed again, and every rule that makes a layout
 * fit. Start at gpt_train_plan_ranks(). */
#include "cmd/train/plan.h"

#include <string.h>

/* ---- sizes ---- */

/* Virtual stages of a rank: by their number or by their layers. */
static int count_chunks(const struct gpt_train_options *o, int64_t *chunks,
                        struct gpt_err *err)
{
    const int64_t each = o->layers_per_chunk;

    *chunks = o->chunks > 0 ? o->chunks : 1;
    if (each == 0)
        return GPT_OK;
    if (o->chunks > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--num-layers-per-virtual-pipeline-stage and "
                        "--num-virtual-stages-per-pipeline-rank exclude each "
                        "other");
    if (o->first_layers > 0 || o->last_layers > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--num-layers-per-virtual-pipeline-stage is for even "
                        "stages; with --decoder-%s-pipeline-num-layers give "
                        "--num-virtual-stages-per-pipeline-rank",
                        o->first_layers > 0 ? "first" : "last");
    if (o->num_layers % (o->pp_size * each) != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--num-layers %lld is not a multiple of "
                        "--pipeline-model-parallel-size %lld x "
                        "--num-layers-per-virtual-pipeline-stage %lld",
                        (long long)o->num_layers, (long long)o->pp_size,
                        (long long)each);
    *chunks = o->num_layers / (o->pp_size * each);
    return GPT_OK;
}

int gpt_train_world_options(struct gpt_world_options *w,
                            const struct gpt_train_options *o,
                            struct gpt_err *err)
{
    *w = (struct gpt_world_options){
        .size = {[GPT_TP] = o->tp_size, [GPT_PP] = o->pp_size},
        .imagined = o->world_size,
        .timeout = 60 * o->timeout_mins,
        .timeout_later = 60 * o->step_timeout_mins,
    };
    if (o->world_size > 0 && !o->dry_run && !o->simulate)
        return gpt_fail(err, GPT_EUSAGE,
                        "--world-size is for --dry-run and --simulate: what "
                        "starts the ranks says how many there are");
    return count_chunks(o, &w->chunks, err);
}

int gpt_train_layout(const struct gpt_train_plan *p, int64_t tp_rank,
                     int64_t pp_rank, struct gpt_layout *layout,
                     struct gpt_err *err)
{
    struct gpt_topology there = p->topology;

    there.at[GPT_TP] = tp_rank;
    there.at[GPT_PP] = pp_rank;
    if (gpt_layout_init(layout, &p->replica.config, &there, p->first_layers,
                        p->last_layers, err) != GPT_OK)
        return gpt_context(err,
                           "--num-layers %lld, --pipeline-model-parallel-size "
                           "%lld",
                           (long long)p->replica.config.num_layers,
                           (long long)there.size[GPT_PP]);
    if (p->replica.zero == GPT_ZERO_OFF)
        return GPT_OK;
    layout->shards = there.size[GPT_DP];
    layout->shard = there.at[GPT_DP];
    return GPT_OK;
}

/* ---- tensor parallel ---- */

static int plan_tensor(struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    const int64_t tp = p->topology.size[GPT_TP];
    const struct {
        const char *option;
        int64_t value;
    } divided[] = {
        {"num-attention-heads", p->replica.config.num_attention_heads},
        {"num-query-groups", p->replica.config.num_query_groups},
        {"ffn-hidden-size", p->replica.config.ffn_hidden_size},
    };

    for (size_t i = 0; i < GPT_COUNT(divided); i++)
        if (divided[i].value % tp != 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "--%s %lld is not a multiple of "
                            "--tensor-model-parallel-size %lld",
                            divided[i].option, (long long)divided[i].value,
                            (long long)tp);
    p->replica.overlap_tensor = o->overlap_tensor;
    p->replica.sequence_parallel = o->sequence_parallel && tp > 1;
    if (p->replica.sequence_parallel &&
        o->micro_batch_size * o->seq_length % tp != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--sequence-parallel: --micro-batch-size %lld x "
                        "--seq-length %lld is not a multiple of "
                        "--tensor-model-parallel-size %lld",
                        (long long)o->micro_batch_size,
                        (long long)o->seq_length, (long long)tp);
    return GPT_OK;
}

/* ---- pipeline ---- */

/* Interleaved stages take microbatches in rounds of as many as there are
 * stages. */
static int plan_rounds(const struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    const struct gpt_topology *t = &p->topology;

    if (t->chunks == 1)
        return GPT_OK;
    if (gpt_rampup_check(&p->rampup,
                         o->micro_batch_size * t->size[GPT_DP] *
                             t->size[GPT_PP],
                         NULL) == GPT_OK)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "virtual stages: the microbatches of a step must be a "
                    "multiple of --pipeline-model-parallel-size %lld, so "
                    "--global-batch-size %lld (and what "
                    "--rampup-batch-size makes of it) of %lld",
                    (long long)t->size[GPT_PP],
                    (long long)p->rampup.global_batch,
                    (long long)(o->micro_batch_size * t->size[GPT_DP] *
                                t->size[GPT_PP]));
}

/* ---- data parallel ---- */

static int plan_sharding(struct gpt_train_plan *p,
                         const struct gpt_train_options *o,
                         const struct gpt_args *args, struct gpt_err *err)
{
    static const char *const names[] = {
        [GPT_ZERO_OFF] = "no_shard",
        [GPT_ZERO_1] = "optim",
        [GPT_ZERO_2] = "optim_grads",
    };
    const bool given =
        gpt_option_given(args, "data-parallel-sharding-strategy");

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (strcmp(o->sharding, names[i]) == 0)
            p->replica.zero = (enum gpt_zero)i;
    if (o->distributed_optimizer && given && p->replica.zero == GPT_ZERO_OFF)
        return gpt_fail(err, GPT_EUSAGE,
                        "--use-distributed-optimizer excludes "
                        "--data-parallel-sharding-strategy no_shard");
    if (o->distributed_optimizer && p->replica.zero == GPT_ZERO_OFF)
        p->replica.zero = GPT_ZERO_1;
    if (o->overlap_gather && p->replica.zero == GPT_ZERO_OFF)
        return gpt_fail(err, GPT_EUSAGE,
                        "--overlap-param-gather needs "
                        "--use-distributed-optimizer");
    p->replica.overlap_gather = o->overlap_gather;
    if (p->topology.size[GPT_DP] == 1) /* nobody to share with */
        p->replica.zero = GPT_ZERO_OFF;
    if (!o->overlap_reduce)
        return gpt_fail(err, GPT_EUSAGE,
                        "--no-overlap-grad-reduce: gradients are always "
                        "summed while backward goes on");
    return GPT_OK;
}

/* ---- recomputation ---- */

static int plan_recompute(struct gpt_train_plan *p,
                          const struct gpt_train_options *o,
                          const struct gpt_args *args, struct gpt_err *err)
{
    static const char *const of_full[] = {"recompute-method",
                                          "recompute-num-layers"};
    const char *what = o->recompute_granularity;
    const bool full = what && strcmp(what, "full") == 0;

    if (full && o->recompute_activations)
        return gpt_fail(err, GPT_EUSAGE,
                        "--recompute-activations means "
                        "--recompute-granularity selective, not full");
    for (size_t i = 0; i < GPT_COUNT(of_full) && !full; i++)
        if (gpt_option_given(args, of_full[i]))
            return gpt_fail(err, GPT_EUSAGE,
                            "--%s needs --recompute-granularity full",
                            of_full[i]);
    p->replica.recompute_layers = o->recompute_layers;
    if (full)
        p->replica.recompute = strcmp(o->recompute_method, "block") == 0
                           ? GPT_RECOMPUTE_BLOCK
                           : GPT_RECOMPUTE_UNIFORM;
    else if (what || o->recompute_activations)
        p->replica.recompute = GPT_RECOMPUTE_SELECTIVE;
    if (full && o->recompute_layers > p->replica.layout.chunk[0].n_layers)
        return gpt_fail(err, GPT_EUSAGE,
                        "--recompute-num-layers %lld is above the %lld layers "
                        "of a %sstage",
                        (long long)o->recompute_layers,
                        (long long)p->replica.layout.chunk[0].n_layers,
                        p->topology.chunks > 1 ? "virtual " : "");
    return GPT_OK;
}

/* ---- the whole ---- */

int gpt_train_plan_ranks(struct gpt_train_plan *p,
                         const struct gpt_train_options *o,
                         const struct gpt_args *args, struct gpt_err *err)
{
    p->first_layers = o->first_layers;
    p->last_layers = o->last_layers;
    GPT_TRY(plan_tensor(p, o, err));
    GPT_TRY(plan_rounds(p, o, err));
    GPT_TRY(plan_sharding(p, o, args, err));
    GPT_TRY(gpt_train_layout(p, p->topology.at[GPT_TP], p->topology.at[GPT_PP],
                             &p->replica.layout, err));
    GPT_TRY(plan_recompute(p, o, args, err));
    p->replica.micro_batches =
        p->rampup.global_batch /
        (o->micro_batch_size * p->topology.size[GPT_DP]);
    return GPT_OK;
}
