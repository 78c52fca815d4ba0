/* The configuration of a Megatron checkpoint: the arguments of its run, as far
 * as they are there, and what the shapes of tensors say. Start at
 * gpt_megatron_configure().
 *
 * Shapes go before arguments, since a shape cannot be wrong about itself, and
 * since the releases of 2019 have no arguments. What a shape cannot say (heads,
 * epsilon, activation) comes from arguments or from GPT-2's defaults. */
#include "checkpoint/megatron.h"

#include "base/log.h"
#include "base/num.h"

/* ---- arguments ---- */

/* An argument that is absent or None leaves *out as it is. */
static void int_argument(const struct gpt_pickle_value *args, const char *key,
                         int64_t *out)
{
    int64_t value;

    if (gpt_pickle_int(gpt_pickle_find(args, key), &value))
        *out = value;
}

/* Numbers that a user gave as integers count, too. */
static void real_argument(const struct gpt_pickle_value *args, const char *key,
                          double *out)
{
    double value;

    if (gpt_pickle_real(gpt_pickle_find(args, key), &value))
        *out = value;
}

/* Options with "no" in front store False, the others True; `absent` is what
 * runs of before the option did. */
static bool flag_argument(const struct gpt_pickle_value *args, const char *key,
                          bool absent)
{
    int64_t value = absent;

    int_argument(args, key, &value);
    return value != 0;
}

/* Features that change what a model computes, and the only value that can be
 * read: a flag, or a word. None and absence are the value. */
static const struct {
    const char *key;
    const char *word; /* NULL: a flag */
    bool flag;
} features[] = {
    {"swiglu", NULL, false},
    {"squared_relu", NULL, false},
    {"quick_geglu", NULL, false},
    {"add_bias_linear", NULL, true},
    {"apply_layernorm_1p", NULL, false},
    {"apply_residual_connection_post_layernorm", NULL, false},
    {"qk_layernorm", NULL, false},
    {"multi_latent_attention", NULL, false},
    {"attention_output_gate", NULL, false},
    {"rotary_interleaved", NULL, false},
    {"use_rope_scaling", NULL, false},
    {"normalization", "LayerNorm", false},
};

/* Arguments that must be absent, None or at most `most`. */
static const struct {
    const char *key;
    int64_t most;
} counts[] = {
    {"num_experts", 0},
    {"mtp_num_layers", 0},
    {"rotary_seq_len_interpolation_factor", 1},
    {"expert_model_parallel_size", 1},
};

/* A model with another feature would load without a message, as its tensors
 * have the same names and sometimes the same shapes, and compute nonsense. */
static int check_features(const struct gpt_megatron *m,
                          const struct gpt_pickle_value *args,
                          struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(features); i++) {
        const struct gpt_pickle_value *v =
            gpt_pickle_find(args, features[i].key);

        if (!v || v->kind == GPT_PICKLE_NONE)
            continue;
        if (features[i].word ? gpt_pickle_is(v, features[i].word)
                             : flag_argument(args, features[i].key, false) ==
                                   features[i].flag)
            continue;
        return gpt_fail(err, GPT_EDATA,
                        "%s: its run had %s %.*s: only %s is supported", m->dir,
                        features[i].key,
                        v->kind == GPT_PICKLE_STRING ? (int)v->n : 20,
                        v->kind == GPT_PICKLE_STRING ? v->text
                        : features[i].word           ? "of another type"
                        : features[i].flag           ? "False"
                                                     : "True",
                        features[i].word   ? features[i].word
                        : features[i].flag ? "True"
                                           : "False");
    }
    for (size_t i = 0; i < GPT_COUNT(counts); i++) {
        int64_t value = 0;

        int_argument(args, counts[i].key, &value);
        if (value > counts[i].most)
            return gpt_fail(err, GPT_EDATA,
                            "%s: its run had %s %lld, which is "
                            "not supported",
                            m->dir, counts[i].key, (long long)value);
    }
    return GPT_OK;
}

/* Fused, or asked for as OpenAI's, GELU is the tanh form; else it is the exact
 * one, which models here do not compute. */
static int check_activation(const struct gpt_megatron *m,
                            const struct gpt_pickle_value *args,
                            struct gpt_err *err)
{
    if (!gpt_pickle_find(args, "bias_gelu_fusion") ||
        flag_argument(args, "bias_gelu_fusion", true) ||
        flag_argument(args, "openai_gelu", false))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: its run had neither bias_gelu_fusion nor openai_gelu: "
                    "its GELU is the exact form, only the tanh form is "
                    "supported",
                    m->dir);
}

/* ---- sizes ---- */

/* What the first rank's tensors say: C, F, rows of the vocabulary and of the
 * table of positions. */
static int read_shapes(struct gpt_megatron *m, struct gpt_err *err)
{
    const struct gpt_megatron_chunk *c = &m->ranks[0].chunks[0];
    const struct gpt_safetensor *words =
        gpt_megatron_tensor(c, GPT_WORD_EMBEDDING, 0);
    const struct gpt_safetensor *positions =
        gpt_megatron_tensor(c, GPT_POSITION_EMBEDDING, 0);
    const struct gpt_safetensor *fc1 =
        gpt_megatron_tensor(c, GPT_FC1_WEIGHT, 0);

    /* tensors are looked up under all names, so this is also the test of
     * whether the file is of a GPT at all */
    if (!words || words->ndim != 2 || !fc1 || fc1->ndim != 2) {
        gpt_fail(err, GPT_EDATA, "%s/%s: no %s of a GPT", m->dir,
                 m->ranks[0].file, words ? "layer" : "word_embeddings");
        return gpt_hint(err, "'gpt-reshape inspect' shows what is in the file");
    }
    m->config.hidden_size = words->shape[1];
    if (!gpt_mul(words->shape[0], m->tp_size, &m->config.padded_vocab_size) ||
        !gpt_mul(fc1->shape[0], m->tp_size, &m->config.ffn_hidden_size))
        return gpt_fail(err, GPT_EDATA, "%s/%s: a shape overflows", m->dir,
                        m->ranks[0].file);
    m->config.max_positions = positions ? positions->shape[0] : 0;
    return GPT_OK;
}

/* Heads are in no shape. The releases without arguments are GPT-2's, whose
 * heads have 64 elements in every size. */
static int read_heads(struct gpt_megatron *m,
                      const struct gpt_pickle_value *args, struct gpt_err *err)
{
    struct gpt_config *c = &m->config;

    int_argument(args, "num_attention_heads", &c->num_attention_heads);
    int_argument(args, "kv_channels", &c->head_size);
    /* the number of groups has a default that counts only with the flag */
    if (flag_argument(args, "group_query_attention", false))
        int_argument(args, "num_query_groups", &c->num_query_groups);
    if (c->num_attention_heads > 0)
        return GPT_OK;
    if (c->hidden_size < 64 || c->hidden_size % 64 != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: no argument 'num_attention_heads', and %lld "
                        "channels are not heads of 64",
                        m->dir, (long long)c->hidden_size);
    c->num_attention_heads = c->hidden_size / 64;
    gpt_warn("%s: holds no arguments: %lld heads of 64 are assumed, as in "
             "GPT-2",
             m->dir, (long long)c->num_attention_heads);
    return GPT_OK;
}

/* Runs of before 2022 have no such argument: all had a table. The number of
 * positions of other kinds is only in the arguments. */
static int read_positions(struct gpt_megatron *m,
                          const struct gpt_pickle_value *args,
                          struct gpt_err *err)
{
    static const struct {
        const char *name;
        enum gpt_position_embedding kind;
    } kinds[] = {
        {"learned_absolute", GPT_POSITION_LEARNED},
        {"rope", GPT_POSITION_ROPE},
        {"none", GPT_POSITION_NONE},
    };
    const struct gpt_pickle_value *v =
        gpt_pickle_find(args, "position_embedding_type");
    struct gpt_config *c = &m->config;
    size_t i = 0;

    /* absent is the first kind, a table */
    while (v && i < GPT_COUNT(kinds) && !gpt_pickle_is(v, kinds[i].name))
        i++;
    if (i == GPT_COUNT(kinds))
        return gpt_fail(err, GPT_EDATA,
                        "%s: its run had a position_embedding_type that is "
                        "not supported",
                        m->dir);
    c->position_embedding = kinds[i].kind;
    if (c->position_embedding == GPT_POSITION_ROPE) {
        c->rotary_base = 10000;
        c->rotary_percent = 1;
        real_argument(args, "rotary_base", &c->rotary_base);
        real_argument(args, "rotary_percent", &c->rotary_percent);
    }
    if (c->position_embedding != GPT_POSITION_LEARNED || !c->max_positions)
        int_argument(args, "max_position_embeddings", &c->max_positions);
    return GPT_OK;
}

/* Ids that exist. Runs with GPT-2's vocabulary do not always say its size; then
 * it is known from how many rows it is padded to. */
static void read_vocabulary(struct gpt_megatron *m,
                            const struct gpt_pickle_value *args)
{
    struct gpt_config *c = &m->config;
    const struct gpt_pickle_value *tokenizer =
        gpt_pickle_find(args, "tokenizer_type");
    int64_t unit = 128;

    c->vocab_size = 0;
    /* the second is of converters, which pad by rules of their own */
    int_argument(args, "vocab_size", &c->vocab_size);
    int_argument(args, "orig_vocab_size", &c->vocab_size);
    if (c->vocab_size > 0 && c->vocab_size <= c->padded_vocab_size)
        return;
    int_argument(args, "make_vocab_size_divisible_by", &unit);
    c->vocab_size = c->padded_vocab_size;
    if ((!tokenizer || gpt_pickle_is(tokenizer, "GPT2BPETokenizer")) &&
        unit > 0 && unit <= 1 << 20 &&
        c->padded_vocab_size ==
            gpt_config_padded_vocab(50257, unit, m->tp_size))
        c->vocab_size = 50257;
}

/* Untied where the arguments say so; without them, where a first and last stage
 * has a matrix of its own. With several stages the last one has a copy. */
static void read_ties(struct gpt_megatron *m,
                      const struct gpt_pickle_value *args)
{
    const bool untied =
        m->pp_size == 1 && m->ranks[0].n_chunks == 1 &&
        gpt_megatron_tensor(&m->ranks[0].chunks[m->ranks[0].n_chunks - 1],
                            GPT_OUTPUT_WEIGHT, 0);

    m->config.tied_embeddings =
        !flag_argument(args, "untie_embeddings_and_output_weights", untied);
}

/* ---- the run ---- */

/* 0 where the key is absent, as in the first releases. */
static int read_version(struct gpt_megatron *m, struct gpt_err *err)
{
    double version = 0;

    real_argument(m->ranks[0].torch.root, "checkpoint_version", &version);
    if (!(version >= 0) || version >= 4)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: checkpoint_version %g, known are 0 to 3",
                        m->dir, m->ranks[0].file, version);
    m->version = (int64_t)version;
    return GPT_OK;
}

/* What is kept of a run: its place. Names are those of gpt-checkpoint(5);
 * "converted_from" says that there is no run to resume. */
static int read_state(struct gpt_megatron *m,
                      const struct gpt_pickle_value *args, struct gpt_err *err)
{
    const struct gpt_pickle_value *root = m->ranks[0].torch.root;
    int64_t train = 0, valid = 0;

    /* the name of 2019, then that of all later versions */
    int_argument(root, "total_iters", &m->iteration);
    int_argument(root, "iteration", &m->iteration);
    int_argument(args, "consumed_train_samples", &train);
    int_argument(args, "consumed_valid_samples", &valid);
    if (m->iteration < 0 || m->iteration >= 1LL << 53 || train < 0 ||
        train >= 1LL << 53 || valid < 0 || valid >= 1LL << 53)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: iteration or consumed samples "
                        "are out of range",
                        m->dir, m->ranks[0].file);
    m->state = cJSON_CreateObject();
    cJSON_AddNumberToObject(m->state, "iteration", (double)m->iteration);
    cJSON_AddNumberToObject(m->state, "consumed_train_samples", (double)train);
    cJSON_AddNumberToObject(m->state, "consumed_valid_samples", (double)valid);
    cJSON_AddStringToObject(m->state, "converted_from", "megatron");
    return GPT_OK;
}

/* Sizes of the layout in the arguments are compared with the files: a directory
 * that lost its last ranks would look like one of a smaller layout. */
static int check_layout(const struct gpt_megatron *m,
                        const struct gpt_pickle_value *args,
                        struct gpt_err *err)
{
    int64_t tp = m->tp_size, pp = m->pp_size, layers = m->config.num_layers;

    int_argument(args, "model_parallel_size", &tp);
    int_argument(args, "tensor_model_parallel_size", &tp);
    int_argument(args, "pipeline_model_parallel_size", &pp);
    int_argument(args, "num_layers", &layers);
    /* the first name is that of version 2 and before */
    if (tp != m->tp_size || pp != m->pp_size)
        return gpt_fail(err, GPT_EDATA,
                        "%s: has files of %lld x %lld ranks, its arguments say "
                        "%lld x %lld",
                        m->dir, (long long)m->tp_size, (long long)m->pp_size,
                        (long long)tp, (long long)pp);
    if (layers != m->config.num_layers)
        return gpt_fail(err, GPT_EDATA,
                        "%s: its files have %lld layers, its arguments say "
                        "%lld",
                        m->dir, (long long)m->config.num_layers,
                        (long long)layers);
    return GPT_OK;
}

/* The layout comes first: sizes are products of shapes with it. The first
 * rank's file stands for all; what other files hold is compared when tensors
 * are made. */
int gpt_megatron_configure(struct gpt_megatron *m, struct gpt_err *err)
{
    const struct gpt_pickle_value *args =
        gpt_pickle_find(m->ranks[0].torch.root, "args");
    struct gpt_config *c = &m->config;
    struct gpt_err inner = {0};

    c->norm_epsilon = 1e-5;
    c->init_std = 0.02;
    c->hidden_dropout = c->attention_dropout = 0.1;
    /* defaults of Megatron-LM's options, for runs that do not have them */
    GPT_TRY(check_layout(m, args, err));
    GPT_TRY(check_features(m, args, err));
    GPT_TRY(check_activation(m, args, err));
    GPT_TRY(read_version(m, err));
    GPT_TRY(read_shapes(m, err));
    GPT_TRY(read_heads(m, args, err));
    GPT_TRY(read_positions(m, args, err));
    read_vocabulary(m, args);
    read_ties(m, args);
    real_argument(args, "layernorm_epsilon", &c->norm_epsilon);
    real_argument(args, "norm_epsilon", &c->norm_epsilon);
    real_argument(args, "init_method_std", &c->init_std);
    real_argument(args, "hidden_dropout", &c->hidden_dropout);
    real_argument(args, "attention_dropout", &c->attention_dropout);
    if (gpt_config_complete(c, 1, 1, &inner) != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s: %s", m->dir, inner.text);
    return read_state(m, args, err);
}
