/* The part of a plan that is about ranks: which part of the model this one has,
 * what is kept and what computed again, and every rule that makes a layout
 * fit. The rules themselves are the library's (model/geometry.h); here they are
 * told in the words of options. Start at gpt_train_plan_ranks(). */
#include "cmd/train/plan.h"

#include "base/num.h"

#include <stdio.h>

/* ---- sizes ---- */

/* The number of stages is not known to fit the layers yet. */
static int count_chunks(const struct gpt_train_options *o, int64_t *chunks,
                        struct gpt_err *err)
{
    GPT_TRY(gpt_stage_layers_check(&o->stages, err));
    if (!gpt_stage_layers_count(&o->stages, o->model.num_layers, o->pp_size,
                                chunks))
        return gpt_fail(err, GPT_EUSAGE,
                        "--num-layers %lld is not a multiple of "
                        "--pipeline-model-parallel-size %lld x "
                        "--num-layers-per-virtual-pipeline-stage %lld",
                        (long long)o->model.num_layers, (long long)o->pp_size,
                        (long long)o->stages.layers_per_chunk);
    *chunks = gpt_max_i64(*chunks, 1);
    return GPT_OK;
}

/* This comes before the world is open, and so before the topology is known:
 * only rules that hold for any number of ranks are checked here. */
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
    /* ranks that are only planned compute nothing */
    if (o->world_size > 0 && !o->dry_run && !o->simulate)
        return gpt_fail(err, GPT_EUSAGE,
                        "--world-size is for --dry-run, --simulate and "
                        "gpt-train advise: what starts the ranks says how many "
                        "there are");
    return count_chunks(o, &w->chunks, err);
}

int gpt_train_layout(const struct gpt_train_plan *p, int64_t tp_rank,
                     int64_t pp_rank, struct gpt_layout *layout,
                     struct gpt_err *err)
{
    /* Layouts of other ranks are made in the same way: rank 0 prints what each
     * of them holds, and estimates ask for every stage. */
    struct gpt_topology there = p->topology;

    there.at[GPT_TP] = tp_rank;
    there.at[GPT_PP] = pp_rank;
    if (gpt_layout_init(layout, &p->replica.config, &there,
                        p->options->stages.first_layers,
                        p->options->stages.last_layers, err) != GPT_OK)
        return gpt_context(err,
                           "--num-layers %lld, --pipeline-model-parallel-size "
                           "%lld",
                           (long long)p->replica.config.num_layers,
                           (long long)there.size[GPT_PP]);
    if (p->replica.zero == GPT_ZERO_OFF)
        return GPT_OK;
    /* plan_sharding() comes first: shards follow from its decision */
    layout->shards = there.size[GPT_DP];
    layout->shard = there.at[GPT_DP];
    return GPT_OK;
}

/* Even stages, in the words of options; the library's rule also covers uneven
 * ones. */
static int check_stages(const struct gpt_train_plan *p,
                        const struct gpt_train_options *o, struct gpt_err *err)
{
    const int64_t stages = p->topology.size[GPT_PP];

    if (o->stages.first_layers > 0 || o->stages.last_layers > 0 ||
        o->model.num_layers % (stages * p->topology.chunks) == 0)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE,
             "--num-layers %lld is not a multiple of "
             "--pipeline-model-parallel-size %lld%s",
             (long long)o->model.num_layers, (long long)stages,
             p->topology.chunks > 1 ? " x virtual stages" : "");
    return gpt_hint(err, "--decoder-first-pipeline-num-layers and "
                         "--decoder-last-pipeline-num-layers make uneven "
                         "stages");
}

/* ---- tensor parallel ---- */

/* The option of a field of gpt_config: they share their names. */
static void option_of(char *option, size_t cap, const char *field)
{
    snprintf(option, cap, "%s", field);
    for (char *c = option; *c; c++)
        if (*c == '_')
            *c = '-';
}

/* Both rules hold again in the library, which would tell them without options:
 * gpt_layout_init() and gpt_stage_open() check what they need. */
static int plan_tensor(struct gpt_train_plan *p,
                       const struct gpt_train_options *o, struct gpt_err *err)
{
    const int64_t tp = p->topology.size[GPT_TP];
    struct gpt_execution *e = &p->replica.exec;
    struct gpt_undivided first;
    char option[64];

    if (!gpt_widths_divide(&p->replica.config, tp, &first)) {
        option_of(option, sizeof(option), first.field);
        return gpt_fail(err, GPT_EUSAGE,
                        "--%s %lld is not a multiple of "
                        "--tensor-model-parallel-size %lld",
                        option, (long long)first.value, (long long)tp);
    }
    e->overlap_tensor = o->overlap_tensor;
    e->sequence_parallel = o->sequence_parallel && tp > 1; /* as Megatron */
    if (e->sequence_parallel &&
        gpt_rows_check(e->micro_batch, e->seq_length, tp, NULL) != GPT_OK)
        return gpt_fail(err, GPT_EUSAGE,
                        "--sequence-parallel: --micro-batch-size %lld x "
                        "--seq-length %lld is not a multiple of "
                        "--tensor-model-parallel-size %lld",
                        (long long)e->micro_batch, (long long)e->seq_length,
                        (long long)tp);
    return GPT_OK;
}

/* ---- pipeline ---- */

/* An interleaved schedule gives each chunk a round of microbatches, as many as
 * there are stages, before the next chunk begins. The rule must hold for every
 * batch size on the way, so that the check of the ramp-up is called with the
 * samples of a round as the multiple. */
static int check_rounds(const struct gpt_train_plan *p, struct gpt_err *err)
{
    const int64_t stages = p->topology.size[GPT_PP];
    const int64_t samples = p->micro_samples * stages;

    if (p->topology.chunks == 1 ||
        gpt_rampup_check(&p->rampup, samples, NULL, NULL) == GPT_OK)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "virtual stages: the microbatches of a step must be a "
                    "multiple of --pipeline-model-parallel-size %lld, so "
                    "--global-batch-size %lld (and what --rampup-batch-size "
                    "or --step-batch-size-schedule makes of it) of %lld",
                    (long long)stages, (long long)p->rampup.global_batch,
                    (long long)samples);
}

/* ---- data parallel ---- */

static int plan_sharding(struct gpt_train_plan *p,
                         const struct gpt_train_options *o,
                         const struct gpt_args *args, struct gpt_err *err)
{
    /* --use-distributed-optimizer is the older name of strategy "optim"; it
     * contradicts "no_shard" only where that was typed, not as a default */
    const bool given =
        gpt_option_given(args, "data-parallel-sharding-strategy");

    p->replica.zero =
        (enum gpt_zero)gpt_train_choice(gpt_train_shardings, o->sharding);
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
    /* The option was accepted for the strategy that was asked for. A single
     * data parallel rank then has no shards all the same. */
    p->replica.overlap_gather = o->overlap_gather;
    if (p->topology.size[GPT_DP] == 1) /* no other rank to share with */
        p->replica.zero = GPT_ZERO_OFF;
    /* accepted with its only value, so that Megatron's scripts run */
    if (!o->overlap_reduce)
        return gpt_fail(err, GPT_EUSAGE,
                        "--no-overlap-grad-reduce: gradients are always "
                        "summed while backward goes on");
    return GPT_OK;
}

/* ---- recomputation ---- */

/* The layers of the largest stage; all chunks of a stage have as many as its
 * first. Every rank must find the same. */
static int most_layers(const struct gpt_train_plan *p, int64_t *most,
                       struct gpt_err *err)
{
    *most = 0;
    for (int64_t i = 0; i < p->topology.size[GPT_PP]; i++) {
        struct gpt_layout layout;

        GPT_TRY(gpt_train_layout(p, p->topology.at[GPT_TP], i, &layout, err));
        *most = gpt_max_i64(*most, layout.chunk[0].n_layers);
    }
    return GPT_OK;
}

static int plan_recompute(struct gpt_train_plan *p,
                          const struct gpt_train_options *o,
                          const struct gpt_args *args, struct gpt_err *err)
{
    static const char *const of_full[] = {"recompute-method",
                                          "recompute-num-layers"};
    const int what =
        gpt_train_choice(gpt_train_granularities, o->recompute_granularity);
    const int method = gpt_train_choice(gpt_train_methods, o->recompute_method);
    const bool full = what == GPT_GRANULARITY_FULL;
    struct gpt_execution *e = &p->replica.exec;
    int64_t most;

    if (full && o->recompute_activations)
        return gpt_fail(err, GPT_EUSAGE,
                        "--recompute-activations means "
                        "--recompute-granularity selective, not full");
    /* Without full recomputation these would silently do nothing, and the run
     * would need more memory than the user expects. */
    for (size_t i = 0; i < GPT_COUNT(of_full) && !full; i++) {
        if (!gpt_option_given(args, of_full[i]))
            continue;
        gpt_fail(err, GPT_EUSAGE, "--%s needs --recompute-granularity full",
                 of_full[i]);
        return gpt_hint(err, "without it no layer is recomputed whole: write "
                             "it, too, or leave --%s out", of_full[i]);
    }
    e->recompute_layers = o->recompute_layers;
    if (full)
        e->recompute = method == GPT_METHOD_BLOCK ? GPT_RECOMPUTE_BLOCK
                                                  : GPT_RECOMPUTE_UNIFORM;
    else if (what == GPT_GRANULARITY_SELECTIVE || o->recompute_activations)
        e->recompute = GPT_RECOMPUTE_SELECTIVE;
    if (!full)
        return GPT_OK;
    /* A smaller stage of uneven ones recomputes all of its layers. */
    GPT_TRY(most_layers(p, &most, err));
    if (o->recompute_layers > most)
        return gpt_fail(err, GPT_EUSAGE,
                        "--recompute-num-layers %lld is above the %lld "
                        "layer%s of a %sstage",
                        (long long)o->recompute_layers, (long long)most,
                        gpt_plural(most),
                        p->topology.chunks > 1 ? "virtual " : "");
    return GPT_OK;
}

/* ---- products of eight bits ---- */

/* Which layers have them, and whether the sizes of this layout allow them.
 * Errors grow where values are largest: the first layer reads the embedding,
 * and the last one is read by the output layer. Both stay in bf16 unless the
 * user says otherwise. */
static int plan_fp8(struct gpt_train_plan *p, const struct gpt_train_options *o,
                    struct gpt_err *err)
{
    const int64_t layers = p->replica.config.num_layers;
    struct gpt_fp8_layers *fp8 = &p->replica.exec.fp8;

    if (!o->fp8_format)
        return GPT_OK;
    if (!o->bf16)
        return gpt_fail(err, GPT_EUSAGE,
                        "--fp8-format needs --bf16: factors of eight bits are "
                        "rounded from bfloat16");
    fp8->types.forward = GPT_E4M3;
    fp8->types.gradients =
        gpt_train_choice(gpt_train_fp8_formats, o->fp8_format) ==
                GPT_FORMAT_HYBRID
            ? GPT_E5M2
            : GPT_E4M3;
    fp8->first = o->ends_in_bf16 ? o->bf16_at_start : 0;
    fp8->end = layers - (o->ends_in_bf16 ? o->bf16_at_end : 0);
    if (fp8->first >= fp8->end)
        return gpt_fail(err, GPT_EUSAGE,
                        "--fp8-format: of %lld layers, %lld first and %lld "
                        "last ones in bf16 leave none "
                        "(--num-layers-at-start-in-bf16, "
                        "--num-layers-at-end-in-bf16)",
                        (long long)layers, (long long)o->bf16_at_start,
                        (long long)o->bf16_at_end);
    /* the library names sizes and no options: it does not know them */
    int status =
        gpt_fp8_check(&p->replica.config, p->topology.size[GPT_TP],
                      o->micro_batch_size * o->seq_length,
                      p->replica.exec.act, err);
    return status == GPT_OK ? status : gpt_context(err, "--fp8-format");
}

/* ---- the whole ---- */

int gpt_train_plan_ranks(struct gpt_train_plan *p,
                         const struct gpt_train_options *o,
                         const struct gpt_args *args, struct gpt_err *err)
{
    /* sharding before the layout, which has shards; the layout before
     * recomputation, which counts its layers. The microbatches are those of the
     * full batch, which is what memory is sized for. */
    GPT_TRY(plan_tensor(p, o, err));
    GPT_TRY(check_stages(p, o, err));
    GPT_TRY(check_rounds(p, err));
    GPT_TRY(plan_sharding(p, o, args, err));
    GPT_TRY(gpt_train_layout(p, p->topology.at[GPT_TP], p->topology.at[GPT_PP],
                             &p->replica.layout, err));
    GPT_TRY(plan_recompute(p, o, args, err));
    GPT_TRY(plan_fp8(p, o, err));
    p->replica.micro_batches = p->rampup.global_batch / p->micro_samples;
    return GPT_OK;
}
