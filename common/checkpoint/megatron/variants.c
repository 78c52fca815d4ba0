/* What variants of a model Megatron-LM has, as arguments of a run: read, and
 * written. Start at gpt_megatron_read_variants().
 *
 * Tensors of different variants have the same names and sometimes the same
 * shapes, so an argument that is not understood would give a model that
 * computes nonsense: those that are known to change what a model computes are
 * refused by name. A model that is written is read back from its arguments
 * before, and must be the same (gpt_megatron_check_variants()): a variant that
 * Megatron-LM has no argument for cannot be lost in silence. */
#include "checkpoint/megatron/megatron.h"
#include "checkpoint/torch/write.h"

#include "backend.h"

#include <stddef.h>

/* ---- arguments ---- */

/* An argument that is absent or None leaves *out as it is. */
void gpt_megatron_int(const struct gpt_pickle_value *args, const char *key,
                      int64_t *out)
{
    int64_t value;

    if (gpt_pickle_int(gpt_pickle_find(args, key), &value))
        *out = value;
}

/* Numbers that a user gave as integers count, too. */
void gpt_megatron_real(const struct gpt_pickle_value *args, const char *key,
                       double *out)
{
    double value;

    if (gpt_pickle_real(gpt_pickle_find(args, key), &value))
        *out = value;
}

/* Options with "no" in front store False, the others True. */
bool gpt_megatron_flag(const struct gpt_pickle_value *args, const char *key,
                       bool absent)
{
    int64_t value = absent;

    gpt_megatron_int(args, key, &value);
    return value != 0;
}

/* Flags that are fields of a model; `inverse`: the field is true where the flag
 * is false. A flag that is absent leaves the field false. */
#define AT(field) offsetof(struct gpt_config, field)
static const struct {
    const char *key;
    size_t offset;
    bool inverse;
} flags[] = {
    {"apply_layernorm_1p", AT(norm_plus_one), false},
    {"add_bias_linear", AT(no_linear_bias), true},
    {"add_qkv_bias", AT(qkv_bias), false},
    {"qk_layernorm", AT(qk_norm), false},
    {"rotary_interleaved", AT(rotary_interleaved), false},
};

/* Arguments that change what a model computes, in ways that are not read; must
 * be absent, None or False. */
static const char *const refused[] = {
    "quick_geglu",
    "glu_activation",
    "apply_residual_connection_post_layernorm",
    "multi_latent_attention",
    "attention_output_gate",
    "qk_l2_norm",
    "window_size",
    "sliding_window_size",
    "no_rope_freq",
    "activation_func_clamp_value",
    "experimental_attention_variant",
    "heterogeneous_layers_config_path",
    "hybrid_override_pattern",
    "mtp_num_layers",
};

/* Fields of the table above are bools of the structure. */
static bool *flag_field(struct gpt_config *c, size_t i)
{
    return (bool *)((char *)c + flags[i].offset);
}

/* A number that is not 0 is a setting, too: of a window, for example. */
int gpt_megatron_refuse(const struct gpt_pickle_value *args,
                        const char *const *keys, size_t n, const char *what,
                        struct gpt_err *err)
{
    int64_t value;

    for (size_t i = 0; i < n; i++) {
        const struct gpt_pickle_value *v = gpt_pickle_find(args, keys[i]);

        if (v && v->kind != GPT_PICKLE_NONE &&
            !(gpt_pickle_int(v, &value) && value == 0))
            return gpt_fail(err, GPT_EDATA,
                            "%s: its run had %s, which is not supported", what,
                            keys[i]);
    }
    return GPT_OK;
}

int gpt_megatron_choice(const struct gpt_pickle_value *args, const char *key,
                        const char *const *names, int64_t *out,
                        const char *what, struct gpt_err *err)
{
    const struct gpt_pickle_value *v = gpt_pickle_find(args, key);

    *out = 0;
    if (!v || v->kind == GPT_PICKLE_NONE)
        return GPT_OK;
    for (int64_t i = 0; names[i]; i++)
        if (gpt_pickle_is(v, names[i])) {
            *out = i;
            return GPT_OK;
        }
    return gpt_fail(err, GPT_EDATA,
                    "%s: its run had %s %.*s, which is not supported", what,
                    key, v->kind == GPT_PICKLE_STRING ? (int)v->n : 15,
                    v->kind == GPT_PICKLE_STRING ? v->text : "of another type");
}

/* ---- activations ---- */

/* Fused, or asked for as OpenAI's, GELU is the tanh form; else it is the exact
 * one. The first releases had the fused form and no argument for it. */
static void read_activation(struct gpt_config *c,
                            const struct gpt_pickle_value *args)
{
    const bool tanh_form = gpt_megatron_flag(args, "bias_gelu_fusion", true) ||
                           gpt_megatron_flag(args, "openai_gelu", false);

    c->gated = gpt_megatron_flag(args, "swiglu", false);
    c->activation = c->gated ? GPT_SILU
                    : gpt_megatron_flag(args, "squared_relu", false)
                        ? GPT_SQUARED_RELU
                    : tanh_form ? GPT_GELU
                                : GPT_GELU_EXACT;
}

/* The fused form adds a bias, so without one the other way of asking for the
 * tanh form is written. */
static void put_activation(struct gpt_pickle_out *o, const struct gpt_config *c)
{
    const bool tanh_form = c->activation == GPT_GELU;

    gpt_pickle_put_key_bool(o, "swiglu",
                            c->gated && c->activation == GPT_SILU);
    gpt_pickle_put_key_bool(o, "squared_relu",
                            c->activation == GPT_SQUARED_RELU);
    gpt_pickle_put_key_bool(o, "bias_gelu_fusion",
                            tanh_form && !c->no_linear_bias);
    gpt_pickle_put_key_bool(o, "openai_gelu", tanh_form && c->no_linear_bias);
    gpt_pickle_put_key_bool(o, "onnx_safe", false);
}

/* ---- positions ---- */

/* Llama 3.1's way of stretching is the only one of its kind in Megatron-LM,
 * with these numbers and a factor that became an argument later. */
enum { LLAMA3_POSITIONS = 8192 };

static void read_rotary(struct gpt_config *c,
                        const struct gpt_pickle_value *args)
{
    double stretch = 1;

    /* defaults of the options */
    c->rotary_base = 10000;
    c->rotary_percent = 1;
    gpt_megatron_real(args, "rotary_base", &c->rotary_base);
    gpt_megatron_real(args, "rotary_percent", &c->rotary_percent);
    gpt_megatron_real(args, "rotary_seq_len_interpolation_factor", &stretch);
    if (gpt_megatron_flag(args, "use_rope_scaling", false)) {
        c->rotary_scaling = GPT_SCALING_LLAMA3;
        c->rotary_factor = 8;
        gpt_megatron_real(args, "rope_scaling_factor", &c->rotary_factor);
        c->rotary_low_factor = 1;
        c->rotary_high_factor = 4;
        c->rotary_positions = LLAMA3_POSITIONS;
    } else if (stretch > 1) {
        c->rotary_scaling = GPT_SCALING_LINEAR;
        c->rotary_factor = stretch;
    }
}

static bool is_alibi(const struct gpt_config *c)
{
    return c->position_embedding == GPT_POSITION_ALIBI ||
           c->position_embedding == GPT_POSITION_ALIBI_BF16;
}

/* Runs of before 2022 have no such argument: all had a table. Between, rotary
 * positions had a flag of their own. */
static int read_positions(struct gpt_config *c,
                          const struct gpt_pickle_value *args, const char *what,
                          struct gpt_err *err)
{
    GPT_TRY(gpt_megatron_choice(args, "position_embedding_type",
                                gpt_position_embeddings,
                                &c->position_embedding, what, err));
    if (gpt_megatron_flag(args, "use_rotary_position_embeddings", false))
        c->position_embedding = GPT_POSITION_ROPE;
    if (is_alibi(c))
        return gpt_fail(err, GPT_EDATA,
                        "%s: its run had position_embedding_type %s, which "
                        "Megatron-LM does not have",
                        what, gpt_position_embeddings[c->position_embedding]);
    if (c->position_embedding == GPT_POSITION_ROPE)
        read_rotary(c, args);
    else
        c->rotary_interleaved = false;
    gpt_megatron_int(args, "max_position_embeddings", &c->max_positions);
    return GPT_OK;
}

/* The table of positions has as many rows, which says more than the argument;
 * for other kinds it is the only place that says how long a text may be. */
static void put_positions(struct gpt_pickle_out *o, const struct gpt_config *c)
{
    gpt_pickle_put_key_string(o, "position_embedding_type",
                              gpt_position_embeddings[c->position_embedding]);
    gpt_pickle_put_key_bool(o, "add_position_embedding",
                            c->position_embedding == GPT_POSITION_LEARNED);
    gpt_pickle_put_key_int(o, "max_position_embeddings", c->max_positions);
    if (c->position_embedding != GPT_POSITION_ROPE)
        return;
    gpt_pickle_put_key_real(o, "rotary_base", c->rotary_base);
    gpt_pickle_put_key_real(o, "rotary_percent", c->rotary_percent);
    if (c->rotary_scaling == GPT_SCALING_LINEAR)
        gpt_pickle_put_key_real(o, "rotary_seq_len_interpolation_factor",
                                c->rotary_factor);
    gpt_pickle_put_key_bool(o, "use_rope_scaling",
                            c->rotary_scaling == GPT_SCALING_LLAMA3);
    if (c->rotary_scaling == GPT_SCALING_LLAMA3)
        gpt_pickle_put_key_real(o, "rope_scaling_factor", c->rotary_factor);
}

/* ---- all of them ---- */

/* Defaults are those of Megatron-LM's options, for runs that do not have
 * them. */
int gpt_megatron_read_variants(struct gpt_config *c,
                               const struct gpt_pickle_value *args,
                               const char *what, struct gpt_err *err)
{
    c->norm_epsilon = 1e-5;
    c->init_std = 0.02;
    c->hidden_dropout = c->attention_dropout = 0.1;
    GPT_TRY(gpt_megatron_refuse(args, refused, GPT_COUNT(refused), what, err));
    for (size_t i = 0; i < GPT_COUNT(flags); i++)
        *flag_field(c, i) = gpt_megatron_flag(args, flags[i].key,
                                              flags[i].inverse) !=
                            flags[i].inverse;
    GPT_TRY(gpt_megatron_choice(args, "normalization", gpt_normalizations,
                                &c->normalization, what, err));
    read_activation(c, args);
    GPT_TRY(gpt_megatron_read_experts(c, args, what, err));
    GPT_TRY(read_positions(c, args, what, err));
    gpt_megatron_int(args, "num_attention_heads", &c->num_attention_heads);
    gpt_megatron_int(args, "kv_channels", &c->head_size);
    /* the number of groups has a default that counts only with the flag */
    if (gpt_megatron_flag(args, "group_query_attention", false))
        gpt_megatron_int(args, "num_query_groups", &c->num_query_groups);
    /* the second is the name since 2023 */
    gpt_megatron_real(args, "layernorm_epsilon", &c->norm_epsilon);
    gpt_megatron_real(args, "norm_epsilon", &c->norm_epsilon);
    gpt_megatron_real(args, "init_method_std", &c->init_std);
    gpt_megatron_real(args, "hidden_dropout", &c->hidden_dropout);
    gpt_megatron_real(args, "attention_dropout", &c->attention_dropout);
    return GPT_OK;
}

/* Both ways of saying epsilon, as readers of several years look for them. */
void gpt_megatron_put_variants(struct gpt_pickle_out *o,
                               const struct gpt_config *c)
{
    struct gpt_config copy = *c;

    gpt_pickle_put_key_int(o, "num_attention_heads", c->num_attention_heads);
    gpt_pickle_put_key_int(o, "kv_channels", c->head_size);
    gpt_pickle_put_key_bool(o, "group_query_attention",
                            c->num_query_groups != c->num_attention_heads);
    gpt_pickle_put_key_int(o, "num_query_groups", c->num_query_groups);
    put_positions(o, c);
    put_activation(o, c);
    gpt_megatron_put_experts(o, c);
    for (size_t i = 0; i < GPT_COUNT(flags); i++)
        gpt_pickle_put_key_bool(o, flags[i].key,
                                *flag_field(&copy, i) != flags[i].inverse);
    gpt_pickle_put_key_string(o, "normalization",
                              gpt_normalizations[c->normalization]);
    gpt_pickle_put_key_real(o, "layernorm_epsilon", c->norm_epsilon);
    gpt_pickle_put_key_real(o, "norm_epsilon", c->norm_epsilon);
    gpt_pickle_put_key_real(o, "init_method_std", c->init_std);
    gpt_pickle_put_key_real(o, "hidden_dropout", c->hidden_dropout);
    gpt_pickle_put_key_real(o, "attention_dropout", c->attention_dropout);
}

/* The value of a field as its JSON has it: a word or a number. */
static int refuse_field(const struct gpt_config *c, const char *field,
                        struct gpt_err *err)
{
    cJSON *json = gpt_config_to_json(c);
    char *text = gpt_json_print(cJSON_GetObjectItemCaseSensitive(json, field),
                                false);

    gpt_fail(err, GPT_EDATA,
             "in Megatron-LM's format, as it is written here, no argument says "
             "that %s is %s",
             field, text ? text : "what it is");
    cJSON_free(text);
    cJSON_Delete(json);
    return GPT_EDATA;
}

/* What shapes say, and not arguments, is the same by construction. */
static int compare_variants(const struct gpt_config *c,
                            const struct gpt_pickle_out *o,
                            struct gpt_err *err)
{
    struct gpt_config there = {
        .num_layers = c->num_layers,
        .hidden_size = c->hidden_size,
        .ffn_hidden_size = c->ffn_hidden_size,
        .vocab_size = c->vocab_size,
        .padded_vocab_size = c->padded_vocab_size,
        .tied_embeddings = c->tied_embeddings,
    };
    struct gpt_pickle pickle;
    const char *field;
    int status;

    GPT_TRY(gpt_pickle_parse(&pickle, o->b.data, o->b.len, "arguments", 0,
                             err));
    GPT_TRY_GOTO(status,
                 gpt_megatron_read_variants(&there, pickle.root, "model", err),
                 out);
    GPT_TRY_GOTO(status, gpt_config_complete(&there, 1, 1, err), out);
    /* any field that tells two models apart, also one that is newer than this
     * file */
    field = gpt_config_difference(c, &there);
    if (field)
        status = refuse_field(c, field, err);
out:
    gpt_pickle_free(&pickle);
    return status;
}

int gpt_megatron_check_variants(const struct gpt_config *c, struct gpt_err *err)
{
    struct gpt_pickle_out o;
    int status;

    /* reading refuses it, in words about a run of Megatron-LM */
    if (is_alibi(c))
        return refuse_field(c, "position_embedding", err);
    if (gpt_megatron_odd_experts(c))
        return refuse_field(c, gpt_megatron_odd_experts(c), err);
    gpt_pickle_begin(&o);
    gpt_pickle_put_dict(&o);
    gpt_megatron_put_variants(&o, c);
    gpt_pickle_end_dict(&o);
    status = gpt_pickle_end(&o, err);
    if (status == GPT_OK)
        status = compare_variants(c, &o, err);
    gpt_pickle_out_free(&o);
    return status;
}
