/* The part of a plan that is the model: options become a configuration. Start
 * at gpt_train_plan_model(). Rules within the configuration are the library's
 * (model/config.c); here are those that name options. */
#include "cmd/train/plan.h"

#include "backend.h"
#include "base/num.h"
#include "tokenizer/tokenizer_options.h"
#include "model/factors.h"
#include "model/layer_list.h"

#include <string.h>

/* Vocabulary size and end-of-document token from the tokenizer, if any. The
 * tokenizer is opened only for these two numbers: training reads ids. */
static int plan_vocabulary(struct gpt_train_plan *p,
                           const struct gpt_train_options *o,
                           struct gpt_err *err)
{
    struct gpt_tokenizer_options options = o->tokenizer;
    struct gpt_config *c = &p->replica.config;
    struct gpt_tokenizer *tok;

    /* NullTokenizer adds a token to the N of --vocab-size, so that N is not
     * the model's size: the tokenizer says what is */
    bool null = strcmp(options.type, "NullTokenizer") == 0;
    c->vocab_size = null ? 0 : o->vocab_size;
    options.vocab_size = o->vocab_size;
    p->masks.eod = -1;
    if (gpt_tokenizer_named(&options)) {
        GPT_TRY(gpt_tokenizer_open_given(&tok, &options, err));
        int64_t size = gpt_tokenizer_vocab_size(tok);
        p->masks.eod = gpt_tokenizer_eod(tok);
        gpt_tokenizer_close(tok);
        if (c->vocab_size == 0)
            c->vocab_size = size;
        /* more is a model whose table has room; less would have ids without
         * a row */
        if (c->vocab_size < size)
            return gpt_fail(err, GPT_EUSAGE,
                            "--vocab-size %lld is below the tokenizer's %lld",
                            (long long)c->vocab_size, (long long)size);
    }
    if (c->vocab_size == 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "the vocabulary size is not known: give --vocab-file and "
                 "--merge-file, --tokenizer-model, or --vocab-size");
        return gpt_hint(err, "they are those that gpt-preprocess was given; %s",
                        o->load ? "--use-checkpoint-args takes them and the "
                                  "model from --load"
                                : "try 'gpt-train --help'");
    }
    /* without it these would silently do nothing */
    if (p->masks.eod < 0 &&
        (o->eod_mask_loss || o->reset_position_ids || o->reset_attention_mask))
        return gpt_fail(err, GPT_EUSAGE,
                        "--%s needs to know the end-of-"
                        "document token: give --vocab-file and --merge-file, "
                        "or --tokenizer-model",
                        o->eod_mask_loss        ? "eod-mask-loss"
                        : o->reset_position_ids ? "reset-position-ids"
                                                : "reset-attention-mask");
    return GPT_OK;
}

/* Which kinds of scaling read an option of rotary positions: a row an option,
 * so that a new kind is a bit in some rows. */
enum {
    ANY_ROPE = 1 << GPT_SCALING_NONE,
    LINEAR = 1 << GPT_SCALING_LINEAR,
    DYNAMIC = 1 << GPT_SCALING_DYNAMIC,
    LLAMA3 = 1 << GPT_SCALING_LLAMA3,
    YARN = 1 << GPT_SCALING_YARN,
    NTK_ALPHA = 1 << GPT_SCALING_NTK_ALPHA,
    LONGROPE = 1 << GPT_SCALING_LONGROPE,
};
static const struct {
    const char *name;
    int kinds;
    const char *needs; /* for the message */
} rotary_options[] = {
    {"rotary-base", ANY_ROPE, "--position-embedding-type rope"},
    {"rotary-percent", ANY_ROPE, "--position-embedding-type rope"},
    {"rotary-interleaved", ANY_ROPE, "--position-embedding-type rope"},
    {"rotary-local-base", ANY_ROPE, "--position-embedding-type rope"},
    {"no-rope-freq", ANY_ROPE, "--position-embedding-type rope"},
    {"rotary-scaling-type", ANY_ROPE, "--position-embedding-type rope"},
    {"rotary-scaling-factor",
     LINEAR | DYNAMIC | LLAMA3 | YARN | NTK_ALPHA | LONGROPE,
     "--rotary-scaling-type"},
    {"rotary-original-positions", DYNAMIC | LLAMA3 | YARN | LONGROPE,
     "--rotary-scaling-type dynamic, llama3, yarn or longrope"},
    {"rotary-low-freq-factor", LLAMA3, "--rotary-scaling-type llama3"},
    {"rotary-high-freq-factor", LLAMA3, "--rotary-scaling-type llama3"},
    {"rotary-beta-fast", YARN, "--rotary-scaling-type yarn"},
    {"rotary-beta-slow", YARN, "--rotary-scaling-type yarn"},
    {"rotary-attention-factor", YARN | LONGROPE,
     "--rotary-scaling-type yarn or longrope"},
    {"rotary-query-growth", DYNAMIC | LLAMA3 | YARN | LONGROPE,
     "--rotary-scaling-type dynamic, llama3, yarn or longrope"},
    {"rotary-short-factors", LONGROPE, "--rotary-scaling-type longrope"},
    {"rotary-long-factors", LONGROPE, "--rotary-scaling-type longrope"},
};

/* A value that would not be used is a mistake, not a preference; defaults do
 * not count as given. */
static int check_rotary_options(const struct gpt_config *c,
                                const struct gpt_args *args,
                                struct gpt_err *err)
{
    /* bits of the kinds whose options would be read */
    const bool rope = c->position_embedding == GPT_POSITION_ROPE;
    const int used = rope ? ANY_ROPE | 1 << c->rotary_scaling : 0;

    for (size_t i = 0; i < GPT_COUNT(rotary_options); i++)
        if (!(rotary_options[i].kinds & used) &&
            gpt_option_given(args, rotary_options[i].name))
            return gpt_fail(err, GPT_EUSAGE, "--%s needs %s",
                            rotary_options[i].name, rotary_options[i].needs);
    return GPT_OK;
}

/* The lists of longrope, which has no others to fall back on: they were
 * searched for when the model was stretched (Ding et al. 2024), and no formula
 * gives them. How many there must be is a rule of the model, which knows how
 * much of a head turns. The message names the option, as both are read here. */
static int plan_factors(double *factors, const char *text, const char *option,
                        struct gpt_err *err)
{
    struct gpt_err inner = {0};

    if (text && gpt_factors_parse(factors, text, &inner) != GPT_OK)
        return gpt_fail(err, GPT_EUSAGE, "--%s: %s", option, inner.text);
    return GPT_OK;
}

static int need_factors(const char *text, const char *option,
                        struct gpt_err *err)
{
    return text ? GPT_OK
                : gpt_fail(err, GPT_EUSAGE,
                           "--rotary-scaling-type longrope needs --%s LIST, a "
                           "number for each pair that turns", option);
}

/* Numbers of the scaling, where its formula reads them. Llama 3.1's own are the
 * defaults of its kind. */
static int plan_scaling(struct gpt_config *c,
                        const struct gpt_train_options *o, struct gpt_err *err)
{
    const int kind = 1 << c->rotary_scaling;
    const bool llama3 = kind == LLAMA3;

    if (kind == ANY_ROPE)
        return GPT_OK;
    c->rotary_factor = o->rotary_factor > 0 ? o->rotary_factor : llama3 ? 8 : 0;
    if (c->rotary_factor < 1 && !(kind == LONGROPE && o->rotary_factor <= 0))
        return gpt_fail(err, GPT_EUSAGE,
                        "--rotary-scaling-type %s needs "
                        "--rotary-scaling-factor X, at least 1",
                        o->rotary_scaling);
    /* a ramp over turns or pairs needs to know over which positions */
    if (kind != LINEAR && kind != NTK_ALPHA) {
        c->rotary_positions = o->rotary_positions > 0 ? o->rotary_positions
                              : llama3                ? 8192
                                                      : 0;
        if (c->rotary_positions < 1)
            return gpt_fail(err, GPT_EUSAGE,
                            "--rotary-scaling-type %s needs "
                            "--rotary-original-positions N, the positions of "
                            "pretraining",
                            o->rotary_scaling);
    }
    /* 0 where the formula has none: two models that compute the same must not
     * differ in what nothing reads */
    c->rotary_low_factor = llama3 ? o->rotary_low_factor : 0;
    c->rotary_high_factor = llama3 ? o->rotary_high_factor : 0;
    c->rotary_fast = kind == YARN ? o->rotary_fast : 0;
    c->rotary_slow = kind == YARN ? o->rotary_slow : 0;
    c->rotary_attention =
        kind == YARN || kind == LONGROPE ? o->rotary_attention : 0;
    c->rotary_query_growth =
        c->rotary_positions > 0 ? o->rotary_query_growth : 0;
    if (kind != LONGROPE)
        return GPT_OK;
    GPT_TRY(need_factors(o->rotary_short_factors, "rotary-short-factors",
                         err));
    return need_factors(o->rotary_long_factors, "rotary-long-factors", err);
}

static int plan_positions(struct gpt_config *c,
                          const struct gpt_train_options *o,
                          const struct gpt_args *args, struct gpt_err *err)
{
    c->position_embedding = gpt_train_position(o->position_embedding_type);
    c->rotary_scaling = gpt_train_choice(gpt_rotary_scalings,
                                         o->rotary_scaling);
    /* a list that is none is refused before one that is not wanted */
    GPT_TRY(plan_factors(c->rotary_short_factors, o->rotary_short_factors,
                         "rotary-short-factors", err));
    GPT_TRY(plan_factors(c->rotary_long_factors, o->rotary_long_factors,
                         "rotary-long-factors", err));
    GPT_TRY(check_rotary_options(c, args, err));
    /* fields of rotary positions are 0 in models without them */
    if (c->position_embedding != GPT_POSITION_ROPE) {
        c->rotary_scaling = GPT_SCALING_NONE;
        return GPT_OK;
    }
    c->rotary_base = (double)o->rotary_base;
    c->rotary_percent = o->rotary_percent;
    c->rotary_interleaved = o->rotary_interleaved;
    c->rotary_local_base = (double)o->rotary_local_base;
    return plan_scaling(c, o, err);
}

/* Query groups by their number, or by what a model of one group is called:
 * Megatron-LM and accelerate have a word each for the same thing, and both may
 * be given where they agree. */
static int plan_heads(struct gpt_config *c, const struct gpt_train_options *o,
                      const struct gpt_args *args, struct gpt_err *err)
{
    const bool multiquery = gpt_train_choice(gpt_train_heads, o->head_type) ==
                            GPT_HEADS_MULTIQUERY;
    const int64_t heads = c->num_attention_heads;
    const int64_t groups = c->num_query_groups ? c->num_query_groups
                           : multiquery        ? 1
                                               : heads;

    /* Megatron-LM's default is one group then, which few mean */
    if (o->group_query && c->num_query_groups == 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--group-query-attention needs --num-query-groups N");
    if (gpt_option_given(args, "attention-head-type") &&
        groups != (multiquery ? 1 : heads))
        return gpt_fail(err, GPT_EUSAGE,
                        "--attention-head-type %s has %lld query groups, "
                        "--num-query-groups says %lld",
                        o->head_type, (long long)(multiquery ? 1 : heads),
                        (long long)groups);
    /* 0 is filled in by gpt_config_complete() */
    c->num_query_groups = groups;
    return GPT_OK;
}

/* Sizes of Megatron-LM where latent attention is there and nothing else is
 * said. Its classes turn neighbours, whatever --rotary-interleaved says. */
static void plan_latent(struct gpt_config *c, const struct gpt_train_options *o)
{
    if (o->multi_latent_attention && c->kv_lora_rank == 0)
        c->kv_lora_rank = 32;
    if (o->multi_latent_attention)
        c->rotary_interleaved = true;
    if (!gpt_config_is_latent(c))
        return;
    if (c->qk_head_dim == 0)
        c->qk_head_dim = 128;
    if (c->qk_pos_emb_head_dim == 0)
        c->qk_pos_emb_head_dim = 64;
    if (c->v_head_dim == 0)
        c->v_head_dim = 128;
}

/* The feed-forward's activation by its name, or by the names that papers gave
 * to activation and gate together. */
static int plan_activation(struct gpt_config *c,
                           const struct gpt_train_options *o,
                           const struct gpt_args *args, struct gpt_err *err)
{
    static const char *const names[] = {"activation-function", "swiglu",
                                        "geglu", "squared-relu"};
    const char *first = NULL;

    for (size_t i = 0; i < GPT_COUNT(names); i++) {
        if (!gpt_option_given(args, names[i]))
            continue;
        if (first)
            return gpt_fail(err, GPT_EUSAGE, "--%s excludes --%s", names[i],
                            first);
        first = names[i];
    }
    c->activation = o->activation
                        ? gpt_train_choice(gpt_activations, o->activation)
                        : GPT_GELU;
    if (o->swiglu) {
        c->activation = GPT_SILU;
        c->gated = true;
    } else if (o->geglu) {
        c->activation = GPT_GELU;
        c->gated = true;
    } else if (o->squared_relu) {
        c->activation = GPT_SQUARED_RELU;
    }
    return GPT_OK;
}

/* Layers that an option names; odd: see gpt_layers_entry(). The library says
 * what is wrong with a text, and cannot know which option had it. */
static int plan_layers(int64_t *layers, const char *text,
                       const struct gpt_config *c, bool odd, const char *name,
                       struct gpt_err *err)
{
    if (!text ||
        gpt_layers_parse(layers, text, c->num_layers, odd, err) == GPT_OK)
        return GPT_OK;
    return gpt_hint(err, "the option is --%s", name);
}

/* Layers with experts. A number is Megatron's: the first of every so many
 * layers, where a list's number is the last. */
static int plan_experts(struct gpt_config *c, const struct gpt_train_options *o,
                        struct gpt_err *err)
{
    bool *entry;
    int64_t every;

    c->moe_router_score_function = gpt_train_choice(gpt_router_scores,
                                                    o->moe_score);
    if (c->num_experts > 0 && c->moe_router_topk == 0)
        c->moe_router_topk = gpt_min_i64(2, c->num_experts);
    /* 1 is Megatron-LM's default, which dense models have, too */
    if (!o->moe_layers || strcmp(o->moe_layers, "1") == 0)
        return GPT_OK;
    if (!gpt_parse_int(o->moe_layers, &every) || every < 2) {
        GPT_TRY(plan_layers(&c->moe_layer_freq, o->moe_layers, c, true,
                            "moe-layer-freq", err));
        /* a list without experts; the model's 0 would be all */
        if (c->moe_layer_freq == 0)
            c->moe_dense_layers = c->num_layers;
        return GPT_OK;
    }
    GPT_TRY(gpt_new(&entry, (size_t)c->num_layers, sizeof(*entry), "layers",
                    err));
    for (int64_t l = 0; l < c->num_layers; l++)
        entry[l] = l % every == 0;
    c->moe_layer_freq = gpt_layers_pack(entry, c->num_layers, true);
    gpt_free(entry);
    if (c->moe_layer_freq < 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--moe-layer-freq %s is above %d, the most layers "
                        "after which experts may repeat",
                        o->moe_layers, GPT_LAYERS_PERIOD);
    return GPT_OK;
}

/* Options that choose layers and choose none would do nothing. Presets are not
 * asked: --num-layers may cut their layers of another kind off. */
static int check_layers(const struct gpt_config *c,
                        const struct gpt_args *args, struct gpt_err *err)
{
    int64_t straight = 0, windows = 0;

    for (int64_t l = 0; l < c->num_layers; l++) {
        /* however long a text is: a window that is wider than all texts is a
         * window */
        straight += !gpt_config_turns(c, l);
        windows += gpt_config_window(c, l, INT64_MAX) > 0;
    }
    if (straight == 0 && gpt_option_given(args, "no-rope-freq"))
        return gpt_fail(err, GPT_EUSAGE,
                        "--no-rope-freq names none of the %lld layers",
                        (long long)c->num_layers);
    if (windows == 0 && gpt_option_given(args, "window-size"))
        return gpt_fail(err, GPT_EUSAGE,
                        "--window-size: none of the %lld layers has a window "
                        "(--window-full-layers, --window-attn-skip-freq)",
                        (long long)c->num_layers);
    return GPT_OK;
}

/* Options to a configuration; what is 0 follows from the rest. The padded
 * vocabulary depends on the tensor parallel size, and is the only part of the
 * model that a layout decides. */
int gpt_train_plan_model(struct gpt_train_plan *p,
                         const struct gpt_train_options *o,
                         const struct gpt_args *args, struct gpt_err *err)
{
    struct gpt_config *c = &p->replica.config;

    *c = o->model;
    c->max_positions = o->max_position_embeddings ? o->max_position_embeddings
                                                  : o->seq_length;
    c->normalization = gpt_train_choice(gpt_normalizations, o->normalization);
    c->tied_embeddings = !o->untie_embeddings;
    /* an option that refines another one implies it */
    c->qk_norm |= c->qk_norm_whole || c->qk_norm_each || c->qk_norm_turned;
    c->post_norm |= c->no_pre_norm;
    c->parallel_blocks |= c->shared_norm;
    /* Megatron-LM writes a pair, and causal models have nothing after it */
    if (!gpt_train_window(o->window_size, &c->window_size))
        return gpt_fail(err, GPT_EUSAGE,
                        "--window-size %s: must be N or N,0: the tokens before "
                        "its own that a token attends to, 1 to 16777216, and "
                        "none after it",
                        o->window_size);
    GPT_TRY(plan_layers(&c->window_attn_skip_freq, o->window_skip, c, false,
                        "window-attn-skip-freq", err));
    GPT_TRY(plan_layers(&c->no_rope_freq, o->no_rope, c, true, "no-rope-freq",
                        err));
    GPT_TRY(plan_experts(c, o, err));
    GPT_TRY(plan_activation(c, o, args, err));
    GPT_TRY(plan_heads(c, o, args, err));
    GPT_TRY(plan_positions(c, o, args, err));
    plan_latent(c, o);
    GPT_TRY(plan_vocabulary(p, o, err));
    /* fills what is 0; from here on the configuration is the model's */
    if (gpt_config_complete(c, o->make_vocab_size_divisible_by,
                            p->topology.size[GPT_TP], err) != GPT_OK)
        return gpt_hint(err, "the fields of the model are options of the same "
                             "names: --hidden-size, --num-attention-heads ...");
    GPT_TRY(check_layers(c, args, err));
    if (o->seq_length > c->max_positions) {
        gpt_fail(err, GPT_EUSAGE,
                 "--seq-length %lld is above --max-position-embeddings %lld",
                 (long long)o->seq_length, (long long)c->max_positions);
        return gpt_hint(err, "give both the same value, or leave "
                             "--max-position-embeddings out");
    }
    p->vocab_dummies = c->padded_vocab_size - c->vocab_size;
    return GPT_OK;
}
