/* The fields of a model's configuration: the table `fields` names each once.
 * Reading and writing JSON, comparing and checking ranges walk it. */
#include "model/config.h"

#include "backend.h"
#include "base/memory.h"
#include "model/config_rules.h"
#include "model/factors.h"
#include "model/layer_list.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* How a field is stored, and how JSON writes it: a SIZE as a whole number, a
 * RATE as any, a FLAG as true or false, a CHOICE by name, LAYERS as a number or
 * as the text of a list, FACTORS as a list of numbers, where there are any. In
 * memory a RATE is double, FACTORS are GPT_ROTARY_PAIRS of them, a FLAG is
 * bool, all others are int64_t. */
enum kind { SIZE, RATE, FLAG, CHOICE, LAYERS, FACTORS };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
    double min, max; /* of a CHOICE: its first and last number */
    bool identity;   /* two models that differ here are not the same */
    bool optional;   /* may be missing in JSON: 0 then */
    bool odd;        /* of LAYERS: the entry of every N-th */
    const char *const *names; /* of a CHOICE: in JSON, by number */
};

/* In the order of a checkpoint's JSON. `identity` is false for what a run may
 * change between two checkpoints of one model: dropout, how weights were
 * initialised, and padding, which reshaping changes. `optional` is true for
 * fields that the first checkpoints did not have; their 0 is what was then. */
#define AT(name) offsetof(struct gpt_config, name)

/* The limits are far above what exists, near enough that products of three of
 * them stay inside int64. */
static const struct field fields[] = {
    {"num_layers", SIZE, AT(num_layers), 1, 65536, .identity = true},
    {"hidden_size", SIZE, AT(hidden_size), 1, 1 << 20, .identity = true},
    {"num_attention_heads", SIZE, AT(num_attention_heads), 1, 65536,
     .identity = true},
    {"num_query_groups", SIZE, AT(num_query_groups), 1, 65536,
     .identity = true},
    {"head_size", SIZE, AT(head_size), 1, 65536, .identity = true},
    {"ffn_hidden_size", SIZE, AT(ffn_hidden_size), 1, 1 << 22,
     .identity = true},
    {"max_positions", SIZE, AT(max_positions), 1, 1 << 24, .identity = true},
    {"position_embedding", CHOICE, AT(position_embedding), 0, GPT_POSITION_NONE,
     .identity = true, .optional = true, .names = gpt_position_embeddings},
    {"position_offset", SIZE, AT(position_offset), 0, 64, .identity = true,
     .optional = true},
    {"rotary_base", RATE, AT(rotary_base), 0, 1e12, .identity = true,
     .optional = true},
    {"rotary_percent", RATE, AT(rotary_percent), 0, 1, .identity = true,
     .optional = true},
    {"rotary_interleaved", FLAG, AT(rotary_interleaved), 0, 1,
     .identity = true, .optional = true},
    {"rotary_local_base", RATE, AT(rotary_local_base), 0, 1e12,
     .identity = true, .optional = true},
    {"no_rope_freq", LAYERS, AT(no_rope_freq), 0, (double)GPT_LAYERS_MAX,
     .identity = true, .optional = true, .odd = true},
    {"rotary_scaling", CHOICE, AT(rotary_scaling), 0, GPT_SCALING_LONGROPE,
     .identity = true, .optional = true, .names = gpt_rotary_scalings},
    {"rotary_factor", RATE, AT(rotary_factor), 0, 1e6, .identity = true,
     .optional = true},
    {"rotary_low_factor", RATE, AT(rotary_low_factor), 0, 1e6,
     .identity = true, .optional = true},
    {"rotary_high_factor", RATE, AT(rotary_high_factor), 0, 1e6,
     .identity = true, .optional = true},
    {"rotary_fast", RATE, AT(rotary_fast), 0, 1e6, .identity = true,
     .optional = true},
    {"rotary_slow", RATE, AT(rotary_slow), 0, 1e6, .identity = true,
     .optional = true},
    {"rotary_attention", RATE, AT(rotary_attention), 0, 1e3,
     .identity = true, .optional = true},
    {"rotary_positions", SIZE, AT(rotary_positions), 0, 1 << 24,
     .identity = true, .optional = true},
    {"rotary_query_growth", RATE, AT(rotary_query_growth), 0, 1e3,
     .identity = true, .optional = true},
    {"rotary_short_factors", FACTORS, AT(rotary_short_factors), 0, 1e6,
     .identity = true, .optional = true},
    {"rotary_long_factors", FACTORS, AT(rotary_long_factors), 0, 1e6,
     .identity = true, .optional = true},
    {"normalization", CHOICE, AT(normalization), 0, GPT_RMSNORM,
     .identity = true, .optional = true, .names = gpt_normalizations},
    {"norm_plus_one", FLAG, AT(norm_plus_one), 0, 1, .identity = true,
     .optional = true},
    {"no_norm_bias", FLAG, AT(no_norm_bias), 0, 1, .identity = true,
     .optional = true},
    {"no_norm_weight", FLAG, AT(no_norm_weight), 0, 1, .identity = true,
     .optional = true},
    {"activation", CHOICE, AT(activation), 0, GPT_XIELU,
     .identity = true, .optional = true, .names = gpt_activations},
    {"gated", FLAG, AT(gated), 0, 1, .identity = true, .optional = true},
    {"no_linear_bias", FLAG, AT(no_linear_bias), 0, 1, .identity = true,
     .optional = true},
    {"no_attention_bias", FLAG, AT(no_attention_bias), 0, 1, .identity = true,
     .optional = true},
    {"no_mlp_bias", FLAG, AT(no_mlp_bias), 0, 1, .identity = true,
     .optional = true},
    {"qkv_bias", FLAG, AT(qkv_bias), 0, 1, .identity = true, .optional = true},
    {"no_qkv_bias", FLAG, AT(no_qkv_bias), 0, 1, .identity = true,
     .optional = true},
    {"output_bias", FLAG, AT(output_bias), 0, 1, .identity = true,
     .optional = true},
    {"qk_norm", FLAG, AT(qk_norm), 0, 1, .identity = true, .optional = true},
    {"qk_norm_whole", FLAG, AT(qk_norm_whole), 0, 1, .identity = true,
     .optional = true},
    {"qk_norm_each", FLAG, AT(qk_norm_each), 0, 1, .identity = true,
     .optional = true},
    {"qk_norm_turned", FLAG, AT(qk_norm_turned), 0, 1, .identity = true,
     .optional = true},
    {"window_size", SIZE, AT(window_size), 0, 1 << 24, .identity = true,
     .optional = true},
    {"window_attn_skip_freq", LAYERS, AT(window_attn_skip_freq), 0,
     (double)GPT_LAYERS_MAX, .identity = true, .optional = true},
    {"window_full_layers", SIZE, AT(window_full_layers), 0, 65536,
     .identity = true, .optional = true},
    {"kv_lora_rank", SIZE, AT(kv_lora_rank), 0, 1 << 20, .identity = true,
     .optional = true},
    {"q_lora_rank", SIZE, AT(q_lora_rank), 0, 1 << 20, .identity = true,
     .optional = true},
    {"qk_head_dim", SIZE, AT(qk_head_dim), 0, 32768, .identity = true,
     .optional = true},
    {"qk_pos_emb_head_dim", SIZE, AT(qk_pos_emb_head_dim), 0, 32768,
     .identity = true, .optional = true},
    {"v_head_dim", SIZE, AT(v_head_dim), 0, 65536, .identity = true,
     .optional = true},
    {"latent_norm_epsilon", RATE, AT(latent_norm_epsilon), 0, 1,
     .identity = true, .optional = true},
    {"clip_qkv", RATE, AT(clip_qkv), 0, 1e6, .identity = true,
     .optional = true},
    {"attn_logit_softcapping", RATE, AT(attn_logit_softcapping), 0, 1e6,
     .identity = true, .optional = true},
    {"final_logit_softcapping", RATE, AT(final_logit_softcapping), 0, 1e6,
     .identity = true, .optional = true},
    {"query_pre_attn_scalar", RATE, AT(query_pre_attn_scalar), 0, 1e9,
     .identity = true, .optional = true},
    {"scale_embedding", FLAG, AT(scale_embedding), 0, 1, .identity = true,
     .optional = true},
    {"embedding_multiplier", RATE, AT(embedding_multiplier), 0, 1e6,
     .identity = true, .optional = true},
    {"residual_multiplier", RATE, AT(residual_multiplier), 0, 1e6,
     .identity = true, .optional = true},
    {"logit_multiplier", RATE, AT(logit_multiplier), 0, 1e6, .identity = true,
     .optional = true},
    {"embedding_norm", FLAG, AT(embedding_norm), 0, 1, .identity = true,
     .optional = true},
    {"post_norm", FLAG, AT(post_norm), 0, 1, .identity = true,
     .optional = true},
    {"no_pre_norm", FLAG, AT(no_pre_norm), 0, 1, .identity = true,
     .optional = true},
    {"parallel_blocks", FLAG, AT(parallel_blocks), 0, 1, .identity = true,
     .optional = true},
    {"shared_norm", FLAG, AT(shared_norm), 0, 1, .identity = true,
     .optional = true},
    {"num_experts", SIZE, AT(num_experts), 0, 4096, .identity = true,
     .optional = true},
    {"moe_router_topk", SIZE, AT(moe_router_topk), 0, GPT_ROUTER_MOST,
     .identity = true, .optional = true},
    {"moe_ffn_hidden_size", SIZE, AT(moe_ffn_hidden_size), 0, 1 << 22,
     .identity = true, .optional = true},
    {"moe_layer_freq", LAYERS, AT(moe_layer_freq), 0, (double)GPT_LAYERS_MAX,
     .identity = true, .optional = true, .odd = true},
    {"moe_dense_layers", SIZE, AT(moe_dense_layers), 0, 65536,
     .identity = true, .optional = true},
    {"moe_shared_expert_intermediate_size", SIZE,
     AT(moe_shared_expert_intermediate_size), 0, 1 << 22, .identity = true,
     .optional = true},
    {"moe_shared_expert_gate", FLAG, AT(moe_shared_expert_gate), 0, 1,
     .identity = true, .optional = true},
    {"moe_router_score_function", CHOICE, AT(moe_router_score_function), 0,
     GPT_SCORE_SIGMOID, .identity = true, .optional = true,
     .names = gpt_router_scores},
    {"moe_router_num_groups", SIZE, AT(moe_router_num_groups), 0, 4096,
     .identity = true, .optional = true},
    {"moe_router_group_topk", SIZE, AT(moe_router_group_topk), 0, 4096,
     .identity = true, .optional = true},
    {"moe_router_pre_softmax", FLAG, AT(moe_router_pre_softmax), 0, 1,
     .identity = true, .optional = true},
    {"moe_router_expert_bias", FLAG, AT(moe_router_expert_bias), 0, 1,
     .identity = true, .optional = true},
    {"moe_router_topk_scaling_factor", RATE,
     AT(moe_router_topk_scaling_factor), 0, 1e6, .identity = true,
     .optional = true},
    {"moe_aux_loss_coeff", RATE, AT(moe_aux_loss_coeff), 0, 1e6,
     .identity = false, .optional = true},
    {"moe_z_loss_coeff", RATE, AT(moe_z_loss_coeff), 0, 1e6,
     .identity = false, .optional = true},
    {"vocab_size", SIZE, AT(vocab_size), 1, 1 << 24, .identity = true},
    {"padded_vocab_size", SIZE, AT(padded_vocab_size), 1, 1 << 25,
     .identity = false},
    {"norm_epsilon", RATE, AT(norm_epsilon), 0, 1, .identity = true},
    {"init_std", RATE, AT(init_std), 0, 1e3, .identity = false},
    {"hidden_dropout", RATE, AT(hidden_dropout), 0, 0.999, .identity = false},
    {"attention_dropout", RATE, AT(attention_dropout), 0, 0.999,
     .identity = false},
    {"tied_embeddings", FLAG, AT(tied_embeddings), 0, 1, .identity = true},
};

static const void *field_at(const struct gpt_config *c, const struct field *f)
{
    return (const char *)c + f->offset;
}

/* Loops over fields are over their numbers, so that a list is as any field. */
static int64_t field_count(const struct field *f)
{
    return f->kind == FACTORS ? GPT_ROTARY_PAIRS : 1;
}

/* Number i of a field of any kind. A double holds all sizes exactly, as their
 * limits are far below 2^53. */
static double field_value(const struct gpt_config *c, const struct field *f,
                          int64_t i)
{
    switch (f->kind) {
    case SIZE:
    case CHOICE:
    case LAYERS:
        return (double)*(const int64_t *)field_at(c, f);
    case RATE:
    case FACTORS:
        return ((const double *)field_at(c, f))[i];
    case FLAG:
        return *(const bool *)field_at(c, f);
    }
    return 0;
}

int gpt_config_check_ranges(const struct gpt_config *c, struct gpt_err *err)
{
    for (const struct field *f = fields; f < fields + GPT_COUNT(fields); f++)
        for (int64_t k = 0; k < field_count(f); k++) {
            const double v = field_value(c, f, k);

            /* written so that NaN is outside, too */
            if (!(v >= f->min && v <= f->max))
                return gpt_fail(err, GPT_EUSAGE,
                                "model: %s is %g, must be %g to %g", f->name, v,
                                f->min, f->max);
        }
    return GPT_OK;
}

/* Writes a number where a number says it, as old checkpoints do, and a list as
 * text elsewhere. */
static cJSON *layers_to_json(const struct gpt_config *c, const struct field *f)
{
    const int64_t layers = *(const int64_t *)field_at(c, f);
    struct gpt_buf text = {0};
    cJSON *json = NULL;

    if (layers < GPT_LAYERS_LIST)
        return cJSON_CreateNumber((double)layers);
    if (gpt_layers_print(&text, layers, c->num_layers, f->odd) == GPT_OK)
        json = cJSON_CreateString(text.data);
    gpt_buf_free(&text);
    return json;
}

/* NULL where there are none. */
static cJSON *factors_to_json(const struct gpt_config *c, const struct field *f)
{
    const double *factors = field_at(c, f);
    const int64_t n = gpt_factors_length(factors);

    return n > 0 ? cJSON_CreateDoubleArray(factors, (int)n) : NULL;
}

static cJSON *to_json(const struct gpt_config *c, const struct field *f)
{
    double v = field_value(c, f, 0);

    if (f->kind == FACTORS)
        return factors_to_json(c, f);
    if (f->kind == LAYERS)
        return layers_to_json(c, f);
    if (f->kind == FLAG)
        return cJSON_CreateBool(v != 0.0);
    if (f->kind == CHOICE)
        return cJSON_CreateString(f->names[(int)v]);
    return cJSON_CreateNumber(v);
}

cJSON *gpt_config_to_json(const struct gpt_config *c)
{
    cJSON *json = cJSON_CreateObject();

    for (size_t i = 0; i < GPT_COUNT(fields); i++) {
        cJSON *value = to_json(c, &fields[i]);

        /* most models have no factors: such lists are left out */
        if (value || fields[i].kind != FACTORS)
            gpt_json_add(json, fields[i].name, value);
    }
    return json;
}

/* A number must not be taken for a list: such a one is above all numbers, and
 * hostile input could have any. */
static double layers_from_json(const struct gpt_config *c,
                               const struct field *f, const cJSON *item)
{
    int64_t layers;

    if (cJSON_IsNumber(item) && item->valuedouble <= GPT_LAYERS_EVERY)
        return item->valuedouble;
    if (!cJSON_IsString(item) ||
        gpt_layers_parse(&layers, item->valuestring, c->num_layers, f->odd,
                         NULL) != GPT_OK)
        return (double)NAN;
    return (double)layers;
}

/* A field as a number: a flag is 0 or 1, a choice its place among the names.
 * NaN means that JSON holds the wrong type, or no such name. The number of
 * layers, which lists are of, is the first field. */
static double from_json(const struct gpt_config *c, const struct field *f,
                        const cJSON *item)
{
    if (f->kind == LAYERS)
        return layers_from_json(c, f, item);
    if (f->kind == FLAG)
        return cJSON_IsBool(item) ? cJSON_IsTrue(item) : (double)NAN;
    if (f->kind != CHOICE)
        return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
    for (int i = 0; cJSON_IsString(item) && f->names[i]; i++)
        if (strcmp(item->valuestring, f->names[i]) == 0)
            return i;
    return (double)NAN;
}

/* Zeros follow the list, as its length is that of what is above 0. */
static int read_factors(struct gpt_config *c, const struct field *f,
                        const cJSON *list, const char *what,
                        struct gpt_err *err)
{
    double *to = (double *)(void *)((char *)c + f->offset);
    const cJSON *item;
    int64_t n = 0;

    memset(to, 0, GPT_ROTARY_PAIRS * sizeof(*to));
    if (list && !cJSON_IsArray(list))
        return gpt_fail(err, GPT_EDATA, "%s: wrong type of field '%s'", what,
                        f->name);
    cJSON_ArrayForEach(item, list) {
        if (n == GPT_ROTARY_PAIRS)
            return gpt_fail(err, GPT_EDATA, "%s: %s has more than %d numbers",
                            what, f->name, GPT_ROTARY_PAIRS);
        if (!cJSON_IsNumber(item) ||
            !(item->valuedouble > f->min && item->valuedouble <= f->max))
            return gpt_fail(err, GPT_EDATA,
                            "%s: an element of %s is no number above %g and up "
                            "to %g", what, f->name, f->min, f->max);
        to[n++] = item->valuedouble;
    }
    return GPT_OK;
}

/* A file is input from anywhere: nothing is written before type, range and
 * wholeness hold, and messages name file, field, value and limit. */
static int read_field(struct gpt_config *c, const struct field *f,
                      const cJSON *item, const char *what, struct gpt_err *err)
{
    char *to = (char *)c + f->offset;
    double v = item ? from_json(c, f, item) : 0;

    if (f->kind == FACTORS)
        return read_factors(c, f, item, what, err);
    if (!item && !f->optional)
        return gpt_fail(err, GPT_EDATA, "%s: no field '%s'", what, f->name);
    if (isnan(v))
        return gpt_fail(err, GPT_EDATA, "%s: wrong type of field '%s'", what,
                        f->name);
    /* a size such as 2.5 would be cut to 2 without a word */
    bool whole = f->kind == RATE || v == floor(v);
    if (!(v >= f->min && v <= f->max) || !whole)
        return gpt_fail(err, GPT_EDATA, "%s: %s is %g, must be %g to %g", what,
                        f->name, v, f->min, f->max);
    if (f->kind == RATE)
        *(double *)to = v;
    else if (f->kind == FLAG)
        *(bool *)to = v != 0.0;
    else
        *(int64_t *)to = (int64_t)v;
    return GPT_OK;
}

int gpt_config_from_json(struct gpt_config *c, const cJSON *json,
                         const char *what, struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(fields); i++)
        GPT_TRY(read_field(
            c, &fields[i],
            cJSON_GetObjectItemCaseSensitive(json, fields[i].name), what, err));
    gpt_config_settle(c);
    return gpt_config_check(c, GPT_EDATA, what, err);
}

size_t gpt_config_differences(const struct gpt_config *a,
                              const struct gpt_config *b, const char **names,
                              size_t cap)
{
    size_t n = 0;

    /* both sides come from options or JSON, which keep every double; a format
     * that has the inverse of a rate loses its last bits */
    for (size_t i = 0; i < GPT_COUNT(fields); i++)
        for (int64_t k = 0; k < field_count(&fields[i]); k++) {
            const double x = field_value(a, &fields[i], k);
            const double y = field_value(b, &fields[i], k);

            if (!fields[i].identity || fabs(x - y) <= 1e-12 * fabs(x))
                continue;
            if (n++ < cap)
                names[n - 1] = fields[i].name;
            break; /* a list is one field */
        }
    return n;
}
