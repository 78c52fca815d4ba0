/* Options without effect; see effects.h. `rows` is the table: an option, when
 * it has an effect, and what to say when it has none. Rules under which a run
 * cannot be made at all are in plan.c. Start at gpt_train_effects(). */
#include "cmd/train/effects.h"

#include "base/memory.h"
#include "cmd/train/settle.h"

#include <string.h>

/* Users of Megatron-LM give one list of options to runs of any size, so that
 * options without effect are harmless, and get a warning. Files of another
 * tokenizer than the one that is used are refused, by tokenizer_options.c. */

struct effect {
    const char *option;
    bool (*works)(const struct gpt_train_plan *p);
    const char *reason;
    bool of_presets; /* presets have it: said only when it was typed */
    bool evaluating; /* counts also where no step is made */
};

/* ---- when options work ---- */

static bool has_ranks(const struct gpt_train_plan *p)
{
    return p->topology.world_size > 1;
}

static bool has_replicas(const struct gpt_train_plan *p)
{
    return p->topology.size[GPT_DP] > 1;
}

/* "no_shard" asks for nothing, and is what a single rank does. */
static bool shares_state(const struct gpt_train_plan *p)
{
    return has_replicas(p) ||
           gpt_train_choice(gpt_train_shardings, p->options->sharding) ==
               GPT_ZERO_OFF;
}

/* Half precision alone has a scale. */
static bool has_scale(const struct gpt_train_plan *p)
{
    return p->options->fp16;
}

/* A fixed scale, of --loss-scale, never grows or shrinks: the options that say
 * how it would are then without effect. */
static bool scale_adapts(const struct gpt_train_plan *p)
{
    return !has_scale(p) || p->options->loss_scale <= 0;
}

/* What a rate falls to, and when, says nothing of one that does not. */
static bool rate_falls(const struct gpt_train_plan *p)
{
    return p->schedule.style != GPT_LR_CONSTANT;
}

/* A warm-up that is a fraction is one of the decay, also of a rate that does
 * not fall. */
static bool length_counts(const struct gpt_train_plan *p)
{
    return rate_falls(p) || p->options->lr_warmup_fraction > 0;
}

/* Without a rate of its own what is decoupled has no floor of its own, either:
 * both ends are those of the other parameters. */
static bool is_decoupled(const struct gpt_train_plan *p)
{
    return p->schedule.decoupled_lr > 0;
}

static bool warms_up(const struct gpt_train_plan *p)
{
    return p->schedule.warmup_samples > 0 ||
           gpt_lr_counts_steps(p->schedule.style);
}

/* DeepSpeed's schedules have no floor of their own, and one does not fall. */
static bool has_floor(const struct gpt_train_plan *p)
{
    return !gpt_lr_counts_steps(p->schedule.style);
}

/* WarmupLR has an end of its warm-up, and of nothing else. */
static bool decays_at_all(const struct gpt_train_plan *p)
{
    return p->schedule.style != GPT_LR_WARMUP ||
           p->options->lr_warmup_fraction > 0;
}

/* The warm-up of Megatron's schedules has one shape. */
static bool warms_up_by_style(const struct gpt_train_plan *p)
{
    return gpt_lr_counts_steps(p->schedule.style);
}

/* Muon leaves vectors, embeddings and the output layer to Adam. */
static bool is_adam(const struct gpt_train_plan *p)
{
    return p->replica.optimizer.kind != GPT_SGD;
}

/* Momentum of gradient descent has a default of its own, as in Megatron-LM, and
 * an option that is not Muon's. */
static bool is_sgd(const struct gpt_train_plan *p)
{
    return p->replica.optimizer.kind == GPT_SGD;
}

/* Everything about the iteration. */
static bool is_muon(const struct gpt_train_plan *p)
{
    return p->replica.optimizer.kind == GPT_MUON;
}

/* The noise scale compares a microbatch with the batch. */
static bool has_microbatches(const struct gpt_train_plan *p)
{
    return p->rampup.global_batch > p->replica.exec.micro_batch;
}

/* WSD alone ends in a decay of its own shape. */
static bool has_tail(const struct gpt_train_plan *p)
{
    return p->schedule.style == GPT_LR_WSD;
}

static bool decay_is_constant(const struct gpt_train_plan *p)
{
    return p->schedule.wd_style == GPT_WD_CONSTANT;
}

/* A dry run may have none at all. */
static bool has_data(const struct gpt_corpus_options *c)
{
    return c->n_data_path > 0 || c->n_split_path[GPT_TRAIN] > 0 || c->stages;
}

/* --eval-iters 0 is the way to ask for no validation: beside it the interval is
 * no surprise. */
static bool validates(const struct gpt_train_plan *p)
{
    return p->corpus.n_samples[GPT_VALID] > 0 || p->options->eval_iters == 0 ||
           p->valid_sets || (p->options->dry_run && !has_data(&p->corpus));
}

/* Scores and samples come with validations by default. */
static bool evaluates(const struct gpt_train_plan *p)
{
    return validates(p) || p->options->score_set.n > 0 ||
           p->options->sample_prompts;
}

static bool evaluates_batches(const struct gpt_train_plan *p)
{
    return p->options->eval_iters > 0;
}

/* Files of texts ask for what is done with them. */
static bool scores(const struct gpt_train_plan *p)
{
    return p->options->score_set.n > 0;
}

static bool samples(const struct gpt_train_plan *p)
{
    return p->options->sample_prompts != NULL;
}

static bool draws(const struct gpt_train_plan *p)
{
    return samples(p) && p->options->sample_temperature > 0;
}

static bool has_patience(const struct gpt_train_plan *p)
{
    return p->options->patience > 0;
}

/* Intervals and kinds of saving need a place to save to. */
static bool saves(const struct gpt_train_plan *p)
{
    return p->options->save != NULL;
}

static bool makes_steps(const struct gpt_train_plan *p)
{
    return !p->evaluates;
}

/* Weights alone, for --finetune, bring no optimizer and no schedule along. */
static bool resumes(const struct gpt_train_plan *p)
{
    return p->options->load && !p->options->finetune;
}

/* What --force allows to be replaced. */
static bool replaces(const struct gpt_train_plan *p)
{
    return p->options->save || p->options->simulate_svg;
}

/* The picture and the times of actions belong to --simulate. */
static bool simulates(const struct gpt_train_plan *p)
{
    return p->options->simulate != NULL;
}

/* A plan may be for a GPU that is not here. */
static bool only_plans(const struct gpt_train_plan *p)
{
    return p->options->dry_run;
}

/* What ranks are made of is read by the advice, which makes no plan of this
 * kind. */
static bool advises(const struct gpt_train_plan *p)
{
    (void)p;
    return false;
}

/* Experts without a width of their own have that of the feed-forward. */
static bool has_dense_width(const struct gpt_train_plan *p)
{
    return gpt_config_has_dense(&p->replica.config) ||
           p->options->model.moe_ffn_hidden_size == 0;
}

/* A checkpoint's model may have it, too. */
static bool has_router_bias(const struct gpt_train_plan *p)
{
    return p->replica.config.moe_router_expert_bias;
}

static bool has_eight_bits(const struct gpt_train_plan *p)
{
    return p->options->fp8_format != NULL;
}

/* Their numbers say nothing where all layers are rounded. */
static bool has_ends_in_bf16(const struct gpt_train_plan *p)
{
    return has_eight_bits(p) && p->options->ends_in_bf16;
}

static bool is_type(const struct gpt_train_plan *p, const char *type)
{
    return strcmp(p->options->tokenizer.type, type) == 0;
}

/* Options that a NullTokenizer drops were named then. */
static bool has_ranks_of_tokens(const struct gpt_train_plan *p)
{
    return is_type(p, "TikTokenizer") || is_type(p, "NullTokenizer");
}

static bool has_tokens_around(const struct gpt_train_plan *p)
{
    return is_type(p, "HuggingFaceTokenizer") || is_type(p, "NullTokenizer");
}

/* Rotary positions go on, as in Megatron-LM: only the table has positions that
 * do not follow from the places of tokens. */
static bool has_position_table(const struct gpt_train_plan *p)
{
    return p->replica.config.position_embedding == GPT_POSITION_LEARNED;
}

/* ---- the table ---- */

/* Reasons complete the sentence "no effect here, because". */

#define ALONE "there is one rank"
#define NO_FP8 "there is no --fp8-format"
#define NO_ENDS "that takes --fp8-format and --first-last-layers-bf16"
#define ONE_REPLICA "there is one data parallel rank"
#define NO_SCALE "there is no --fp16"
#define CONSTANT_SCALE "--loss-scale is constant"
#define CONSTANT_RATE "--lr-decay-style is constant"
#define NO_FLOOR "this --lr-decay-style falls to --lr-warmup-init"
#define NO_DECAY "--lr-decay-style WarmupLR stays at --lr"
#define NO_ADAM "--optimizer is sgd"
#define NO_SGD "--optimizer is not sgd"
#define NO_MUON "--optimizer is not muon"
#define NO_TAIL "--lr-decay-style is not WSD"
#define NOTHING_VALID "nothing is validated: there are no data for it"
#define NO_BATCHES "--eval-iters is 0"
#define NO_PROMPTS "there is no --sample-prompts"
#define NO_DRAW                                                                \
    "nothing is drawn by chance without --sample-prompts, or with "            \
    "--sample-temperature 0"
#define NO_SAVE "there is no --save"
#define NO_RUN "no run is resumed: that takes --load without --finetune"
#define FOR_ADVICE "it is for gpt-train advise"
#define OTHER_FAMILY "it is not of this --tokenizer-type"

static const struct effect rows[] = {
    {.option = "fp8-recipe", .works = has_eight_bits, .reason = NO_FP8,
     .evaluating = true},
    {.option = "first-last-layers-bf16", .works = has_eight_bits,
     .reason = NO_FP8, .evaluating = true},
    {.option = "num-layers-at-start-in-bf16", .works = has_ends_in_bf16,
     .reason = NO_ENDS, .evaluating = true},
    {.option = "num-layers-at-end-in-bf16", .works = has_ends_in_bf16,
     .reason = NO_ENDS, .evaluating = true},
    {.option = "distributed-backend", .works = has_ranks, .reason = ALONE,
     .evaluating = true},
    {.option = "distributed-timeout-minutes", .works = has_ranks,
     .reason = ALONE},
    {.option = "distributed-step-timeout-minutes", .works = has_ranks,
     .reason = ALONE},
    {.option = "use-distributed-optimizer", .works = has_replicas,
     .reason = ONE_REPLICA},
    {.option = "data-parallel-sharding-strategy", .works = shares_state,
     .reason = ONE_REPLICA},
    {.option = "overlap-param-gather", .works = has_replicas,
     .reason = ONE_REPLICA},
    /* Several rows for an option: each has its own reason. */
    {.option = "initial-loss-scale", .works = has_scale, .reason = NO_SCALE},
    {.option = "min-loss-scale", .works = has_scale, .reason = NO_SCALE},
    {.option = "loss-scale-window", .works = has_scale, .reason = NO_SCALE},
    {.option = "hysteresis", .works = has_scale, .reason = NO_SCALE},
    {.option = "initial-loss-scale", .works = scale_adapts,
     .reason = CONSTANT_SCALE},
    {.option = "min-loss-scale", .works = scale_adapts,
     .reason = CONSTANT_SCALE},
    {.option = "loss-scale-window", .works = scale_adapts,
     .reason = CONSTANT_SCALE},
    {.option = "hysteresis", .works = scale_adapts, .reason = CONSTANT_SCALE},
    {.option = "min-lr", .works = rate_falls, .reason = CONSTANT_RATE,
     .of_presets = true},
    {.option = "decoupled-min-lr", .works = rate_falls,
     .reason = CONSTANT_RATE},
    {.option = "decoupled-min-lr", .works = is_decoupled,
     .reason = "there is no --decoupled-lr"},
    {.option = "lr-decay-iters", .works = length_counts,
     .reason = CONSTANT_RATE},
    {.option = "lr-decay-samples", .works = length_counts,
     .reason = CONSTANT_RATE},
    /* one schedule cannot be of both kinds */
    {.option = "min-lr", .works = has_floor, .reason = NO_FLOOR,
     .of_presets = true},
    {.option = "lr-decay-iters", .works = decays_at_all, .reason = NO_DECAY},
    {.option = "lr-decay-samples", .works = decays_at_all,
     .reason = NO_DECAY},
    {.option = "lr-warmup-style", .works = warms_up_by_style,
     .reason = "--lr-decay-style is not WarmupLR or WarmupDecayLR"},
    {.option = "adam-beta1", .works = is_adam, .reason = NO_ADAM,
     .of_presets = true},
    {.option = "adam-beta2", .works = is_adam, .reason = NO_ADAM,
     .of_presets = true},
    {.option = "adam-eps", .works = is_adam, .reason = NO_ADAM,
     .of_presets = true},
    {.option = "decoupled-weight-decay", .works = is_adam, .reason = NO_ADAM},
    {.option = "sgd-momentum", .works = is_sgd, .reason = NO_SGD},
    {.option = "muon-momentum", .works = is_muon, .reason = NO_MUON},
    {.option = "muon-use-nesterov", .works = is_muon, .reason = NO_MUON},
    {.option = "muon-num-ns-steps", .works = is_muon, .reason = NO_MUON},
    {.option = "muon-coefficient-type", .works = is_muon, .reason = NO_MUON},
    {.option = "muon-scale-mode", .works = is_muon, .reason = NO_MUON},
    {.option = "muon-extra-scale-factor", .works = is_muon,
     .reason = NO_MUON},
    {.option = "muon-no-split-qkv", .works = is_muon, .reason = NO_MUON},
    {.option = "muon-tp-mode", .works = is_muon, .reason = NO_MUON},
    {.option = "moe-router-bias-update-rate", .works = has_router_bias,
     .reason = "there is no --moe-router-expert-bias"},
    {.option = "reset-position-ids", .works = has_position_table,
     .reason = "there is no table of positions: --position-embedding-type",
     .evaluating = true},
    {.option = "ffn-hidden-size", .works = has_dense_width,
     .reason = "all layers have experts, of --moe-ffn-hidden-size",
     .of_presets = true, .evaluating = true},
    {.option = "log-gradient-noise-scale", .works = has_microbatches,
     .reason = "a step has one microbatch: --micro-batch-size is "
               "--global-batch-size"},
    {.option = "lr-warmup-init", .works = warms_up,
     .reason = "there is no warm-up"},
    {.option = "lr-wsd-decay-style", .works = has_tail, .reason = NO_TAIL},
    {.option = "lr-wsd-decay-iters", .works = has_tail, .reason = NO_TAIL},
    {.option = "lr-wsd-decay-samples", .works = has_tail, .reason = NO_TAIL},
    {.option = "weight-decay", .works = decay_is_constant,
     .reason = "--start-weight-decay and --end-weight-decay replace it",
     .of_presets = true},
    {.option = "eval-interval", .works = evaluates, .reason = NOTHING_VALID},
    {.option = "eval-iters", .works = validates, .reason = NOTHING_VALID},
    {.option = "valid-data-path", .works = evaluates_batches,
     .reason = NO_BATCHES},
    {.option = "test-data-path", .works = evaluates_batches,
     .reason = NO_BATCHES},
    {.option = "valid-set", .works = evaluates_batches,
     .reason = NO_BATCHES, .evaluating = true},
    {.option = "multiple-validation-sets", .works = evaluates_batches,
     .reason = NO_BATCHES, .evaluating = true},
    {.option = "score-interval", .works = scores,
     .reason = "there is no --score-set"},
    {.option = "sample-interval", .works = samples, .reason = NO_PROMPTS},
    {.option = "sample-tokens", .works = samples, .reason = NO_PROMPTS,
     .evaluating = true},
    {.option = "sample-temperature", .works = samples, .reason = NO_PROMPTS,
     .evaluating = true},
    {.option = "sample-top-k", .works = draws, .reason = NO_DRAW,
     .evaluating = true},
    {.option = "sample-top-p", .works = draws, .reason = NO_DRAW,
     .evaluating = true},
    {.option = "sample-seed", .works = draws, .reason = NO_DRAW,
     .evaluating = true},
    {.option = "save-best", .works = saves, .reason = NO_SAVE},
    {.option = "early-stopping-min-delta", .works = has_patience,
     .reason = "there is no --early-stopping-patience"},
    {.option = "save", .works = makes_steps, .reason = "no step is made",
     .evaluating = true},
    {.option = "save-interval", .works = saves, .reason = NO_SAVE},
    {.option = "keep-checkpoints", .works = saves, .reason = NO_SAVE},
    {.option = "async-save", .works = saves, .reason = NO_SAVE},
    {.option = "no-save-optim", .works = saves, .reason = NO_SAVE},
    {.option = "no-load-optim", .works = resumes, .reason = NO_RUN},
    {.option = "override-opt-param-scheduler", .works = resumes,
     .reason = NO_RUN},
    {.option = "use-checkpoint-opt-param-scheduler", .works = resumes,
     .reason = NO_RUN},
    {.option = "force", .works = replaces, .reason = NO_SAVE},
    {.option = "simulate-svg", .works = simulates,
     .reason = "there is no --simulate"},
    {.option = "hardware", .works = only_plans,
     .reason = "it is for gpt-train advise and --dry-run"},
    {.option = "product-efficiency", .works = advises, .reason = FOR_ADVICE},
    {.option = "memory-bandwidth", .works = advises, .reason = FOR_ADVICE},
    {.option = "gpus-per-node", .works = advises, .reason = FOR_ADVICE},
    {.option = "intra-node-bandwidth", .works = advises, .reason = FOR_ADVICE},
    {.option = "inter-node-bandwidth", .works = advises, .reason = FOR_ADVICE},
    {.option = "intra-node-latency", .works = advises, .reason = FOR_ADVICE},
    {.option = "inter-node-latency", .works = advises, .reason = FOR_ADVICE},
    {.option = "top", .works = advises, .reason = FOR_ADVICE},
    {.option = "json", .works = advises, .reason = FOR_ADVICE},
    {.option = "tiktoken-pattern", .works = has_ranks_of_tokens,
     .reason = OTHER_FAMILY},
    {.option = "tiktoken-num-special-tokens", .works = has_ranks_of_tokens,
     .reason = OTHER_FAMILY},
    {.option = "tokenizer-special-tokens", .works = has_ranks_of_tokens,
     .reason = OTHER_FAMILY},
    {.option = "tokenizer-hf-no-include-special-tokens",
     .works = has_tokens_around, .reason = OTHER_FAMILY},
};

/* ---- the whole ---- */

bool gpt_train_has_effect(const struct gpt_train_plan *p, const char *option)
{
    for (size_t i = 0; i < GPT_COUNT(rows); i++)
        if (strcmp(rows[i].option, option) == 0 && !rows[i].works(p))
            return false;
    return true;
}

/* A flag that was switched off asks for nothing. What a preset sets is not the
 * user's wish for this run. */
static bool is_given(const struct effect *e, const struct gpt_train_plan *p,
                     const struct gpt_args *args)
{
    const size_t row = gpt_train_row(e->option);
    const struct gpt_opt *opt = &gpt_train_option_table[row];

    if (args->origin[row] != GPT_FROM_COMMAND &&
        (args->origin[row] != GPT_FROM_CONFIG || e->of_presets))
        return false;
    return opt->kind != GPT_OPT_FLAG ||
           *(const bool *)((const char *)p->options + opt->offset);
}

/* Options with one reason share its words. */
int gpt_train_effects(const struct gpt_train_plan *p,
                      const struct gpt_args *args, struct gpt_buf *b,
                      struct gpt_err *err)
{
    const char *reason = NULL;

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const struct effect *e = &rows[i];

        if ((p->evaluates && !e->evaluating) || e->works(p) ||
            !is_given(e, p, args))
            continue;
        if (reason && strcmp(reason, e->reason) != 0 &&
            gpt_buf_printf(b, " (%s)", reason) != GPT_OK)
            return gpt_no_memory(err, "a warning");
        if (gpt_buf_printf(b, "%s--%s", reason ? ", " : "", e->option) !=
            GPT_OK)
            return gpt_no_memory(err, "a warning");
        reason = e->reason;
    }
    return reason && gpt_buf_printf(b, " (%s)", reason) != GPT_OK
               ? gpt_no_memory(err, "a warning")
               : GPT_OK;
}
