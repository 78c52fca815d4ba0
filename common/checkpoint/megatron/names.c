/* What Megatron-LM has called the parameters of a GPT since 2019. `names` has a
 * row a parameter and a column a time; gpt_megatron_tensor() tries them all, so
 * a reader need not know which version wrote a file. The number of a
 * checkpoint's version says something else: how the rows of query, key and
 * value are ordered. */
#include "checkpoint/megatron/megatron.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIASES = 5, NAME = GPT_PARAM_NAME + 64 };

/* Where layers are: megatron-core, legacy, and legacy of 2019. */
static const char *const layer_prefixes[] = {
    "decoder.layers.",
    "language_model.encoder.layers.",
    "language_model.transformer.layers.",
};

/* Names after the number of a layer, or whole names outside layers. The first
 * is megatron-core's; then Transformer Engine's, where the norm in front of a
 * matrix is part of it; then legacy names by age. A layer's input_norm came
 * with core 0.4 (2023), attention without self_ was before 2.1 (2020). */
static const struct {
    enum gpt_param_role role;
    const char *names[ALIASES];
} names[] = {
    {GPT_WORD_EMBEDDING,
     {"embedding.word_embeddings.weight",
      "language_model.embedding.word_embeddings.weight"}},
    {GPT_POSITION_EMBEDDING,
     {"embedding.position_embeddings.weight",
      "language_model.embedding.position_embeddings.weight"}},
    {GPT_NORM1_WEIGHT,
     {"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight",
      "input_norm.weight", "self_attention.layernorm_qkv.layer_norm_weight"}},
    {GPT_NORM1_BIAS,
     {"input_layernorm.bias", "self_attention.linear_qkv.layer_norm_bias",
      "input_norm.bias", "self_attention.layernorm_qkv.layer_norm_bias"}},
    {GPT_QKV_WEIGHT,
     {"self_attention.linear_qkv.weight",
      "self_attention.query_key_value.weight",
      "attention.query_key_value.weight",
      "self_attention.layernorm_qkv.weight"}},
    {GPT_QKV_BIAS,
     {"self_attention.linear_qkv.bias", "self_attention.query_key_value.bias",
      "attention.query_key_value.bias", "self_attention.layernorm_qkv.bias"}},
    {GPT_Q_NORM_WEIGHT, {"self_attention.q_layernorm.weight"}},
    {GPT_Q_NORM_BIAS, {"self_attention.q_layernorm.bias"}},
    {GPT_K_NORM_WEIGHT, {"self_attention.k_layernorm.weight"}},
    {GPT_K_NORM_BIAS, {"self_attention.k_layernorm.bias"}},
    {GPT_PROJ_WEIGHT,
     {"self_attention.linear_proj.weight", "self_attention.dense.weight",
      "attention.dense.weight", "self_attention.proj.weight"}},
    {GPT_PROJ_BIAS,
     {"self_attention.linear_proj.bias", "self_attention.dense.bias",
      "attention.dense.bias", "self_attention.proj.bias"}},
    {GPT_NORM2_WEIGHT,
     {"pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight",
      "post_attention_layernorm.weight", "post_attention_norm.weight",
      "layernorm_mlp.layer_norm_weight"}},
    {GPT_NORM2_BIAS,
     {"pre_mlp_layernorm.bias", "mlp.linear_fc1.layer_norm_bias",
      "post_attention_layernorm.bias", "post_attention_norm.bias",
      "layernorm_mlp.layer_norm_bias"}},
    {GPT_FC1_WEIGHT,
     {"mlp.linear_fc1.weight", "mlp.dense_h_to_4h.weight",
      "layernorm_mlp.fc1_weight"}},
    {GPT_FC1_BIAS,
     {"mlp.linear_fc1.bias", "mlp.dense_h_to_4h.bias",
      "layernorm_mlp.fc1_bias"}},
    {GPT_FC2_WEIGHT,
     {"mlp.linear_fc2.weight", "mlp.dense_4h_to_h.weight",
      "layernorm_mlp.fc2_weight"}},
    {GPT_FC2_BIAS,
     {"mlp.linear_fc2.bias", "mlp.dense_4h_to_h.bias",
      "layernorm_mlp.fc2_bias"}},
    {GPT_ROUTER_WEIGHT, {"mlp.router.weight"}},
    {GPT_ROUTER_BIAS, {"mlp.router.expert_bias"}},
    /* of modules for one expert each, of one for grouped products, and of all
     * experts in torch_dist */
    {GPT_EXPERTS_FC1,
     {"mlp.experts.local_experts.%.linear_fc1.weight",
      "mlp.experts.linear_fc1.weight%",
      "mlp.experts.experts.linear_fc1.weight"}},
    {GPT_EXPERTS_FC2,
     {"mlp.experts.local_experts.%.linear_fc2.weight",
      "mlp.experts.linear_fc2.weight%",
      "mlp.experts.experts.linear_fc2.weight"}},
    {GPT_SHARED_ROUTER, {"mlp.shared_experts.gate_weight"}},
    {GPT_SHARED_FC1, {"mlp.shared_experts.linear_fc1.weight"}},
    {GPT_SHARED_FC2, {"mlp.shared_experts.linear_fc2.weight"}},
    {GPT_FINAL_NORM_WEIGHT,
     {"decoder.final_layernorm.weight",
      "language_model.encoder.final_layernorm.weight",
      "language_model.transformer.final_layernorm.weight",
      "language_model.encoder.final_norm.weight"}},
    {GPT_FINAL_NORM_BIAS,
     {"decoder.final_layernorm.bias",
      "language_model.encoder.final_layernorm.bias",
      "language_model.transformer.final_layernorm.bias",
      "language_model.encoder.final_norm.bias"}},
    {GPT_OUTPUT_WEIGHT,
     {"output_layer.weight", "language_model.output_layer.weight"}},
};

const char *const gpt_megatron_styles[] = {"transformer_engine", "local",
                                           "legacy", NULL};

/* The others are there once. */
static bool is_in_layer(enum gpt_param_role role)
{
    return role != GPT_WORD_EMBEDDING && role != GPT_POSITION_EMBEDDING &&
           role != GPT_FINAL_NORM_WEIGHT && role != GPT_FINAL_NORM_BIAS &&
           role != GPT_OUTPUT_WEIGHT;
}

int64_t gpt_megatron_part(enum gpt_param_role role, bool gated, int64_t *parts)
{
    const bool first = role == GPT_GATE_WEIGHT || role == GPT_GATE_BIAS ||
                       role == GPT_SHARED_GATE;
    const bool second = role == GPT_FC1_WEIGHT || role == GPT_FC1_BIAS ||
                        role == GPT_SHARED_FC1;

    *parts = gated && (first || second) ? 2 : 1;
    return *parts == 2 && second;
}

/* NULL for a role of a layer variant that Megatron-LM names in no way known
 * here. A gate is in the tensor of linear_fc1. */
static const char *const *names_of(enum gpt_param_role role)
{
    role = role == GPT_GATE_WEIGHT   ? GPT_FC1_WEIGHT
           : role == GPT_GATE_BIAS   ? GPT_FC1_BIAS
           : role == GPT_SHARED_GATE ? GPT_SHARED_FC1
                                     : role;
    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (names[i].role == role)
            return names[i].names;
    return NULL;
}

const char *gpt_megatron_alias(enum gpt_param_role role, int i)
{
    const char *const *aliases = names_of(role);

    return aliases && i < ALIASES ? aliases[i] : NULL;
}

/* A dozen lookups at most, each by bisection. */
const struct gpt_safetensor *
gpt_megatron_tensor(const struct gpt_megatron_chunk *chunk,
                    enum gpt_param_role role, int64_t local)
{
    const char *const *aliases = names_of(role);
    const struct gpt_safetensor *found = NULL;
    char name[NAME];

    /* A file has names of one age, so the first that is found is the only one;
     * were there two, the other would be reported as unknown. */
    for (size_t i = 0; aliases && i < ALIASES && aliases[i]; i++) {
        if (!is_in_layer(role)) {
            found = gpt_safetensors_find(&chunk->tensors, aliases[i]);
            if (found)
                return found;
            continue;
        }
        for (size_t k = 0; k < GPT_COUNT(layer_prefixes); k++) {
            snprintf(name, sizeof(name), "%s%lld.%s", layer_prefixes[k],
                     (long long)local, aliases[i]);
            found = gpt_safetensors_find(&chunk->tensors, name);
            if (found)
                return found;
        }
    }
    return NULL;
}

/* Puts the number of an expert where the name has a '%'. */
static void number_expert(char *buf, size_t cap, const char *name,
                          int64_t expert)
{
    const int n = (int)strcspn(name, "%");

    if (name[n])
        snprintf(buf, cap, "%.*s%lld%s", n, name, (long long)expert,
                 name + n + 1);
    else
        snprintf(buf, cap, "%s", name);
}

/* In modules for grouped products until 2026, all experts of a rank are two
 * tensors. Experts came after the legacy names. */
const struct gpt_safetensor *
gpt_megatron_expert(const struct gpt_megatron_chunk *chunk,
                    enum gpt_param_role role, int64_t local, int64_t expert,
                    bool *all)
{
    const char *const *aliases = names_of(role);
    const struct gpt_safetensor *found = NULL;
    char name[2 * NAME], tail[NAME];

    *all = false;
    for (int i = 0; !found && i < 2; i++) {
        number_expert(tail, sizeof(tail), aliases[i], expert);
        snprintf(name, sizeof(name), "%s%lld.%s", layer_prefixes[0],
                 (long long)local, tail);
        found = gpt_safetensors_find(&chunk->tensors, name);
    }
    if (found)
        return found;
    *all = true;
    snprintf(name, sizeof(name), "%s%lld.mlp.experts.weight%d",
             layer_prefixes[0], (long long)local,
             role == GPT_EXPERTS_FC1 ? 1 : 2);
    return gpt_safetensors_find(&chunk->tensors, name);
}

bool gpt_megatron_names_expert(const char *name)
{
    return strstr(name, ".mlp.experts.") != NULL;
}

/* Numbers of more than six digits are no layer's; the number is compared with
 * the tensors that are there before anything is allocated by it. */
int64_t gpt_megatron_layers(const struct gpt_safetensors *tensors)
{
    int64_t most = 0;

    for (int64_t i = 0; i < tensors->n; i++)
        for (size_t k = 0; k < GPT_COUNT(layer_prefixes); k++) {
            const char *name = tensors->tensors[i].name;
            const size_t n = strlen(layer_prefixes[k]);

            if (strncmp(name, layer_prefixes[k], n) != 0)
                continue;
            const size_t digits = strspn(name + n, "0123456789");
            if (digits < 1 || digits > 6)
                continue;
            const int64_t layer = strtoll(name + n, NULL, 10);
            if (layer >= most)
                most = layer + 1;
        }
    return most;
}

/* Engine and rotary code leave buffers among the parameters; a run moves
 * expert_bias by a rule of its own. */
bool gpt_megatron_is_parameter(const char *name)
{
    return !strstr(name, "_extra_state") && !strstr(name, "inv_freq") &&
           !strstr(name, "router.expert_bias");
}

/* The tied copy of the word table on the last stage, constants, and state of
 * FP8, which another run makes anew. */
bool gpt_megatron_ignores(const char *name)
{
    static const char *const parts[] = {
        GPT_MEGATRON_HEAD,
        "_extra_state",
        "inv_freq",
        "attention_mask",
        "tokentype_embeddings",
    };

    for (size_t i = 0; i < GPT_COUNT(parts); i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}

/* The columns that writers use: legacy files of 2020 to 2023, which readers of
 * other projects know best, are dicts in dicts. */
bool gpt_megatron_path(char *buf, size_t cap, enum gpt_megatron_names style,
                       enum gpt_param_role role, int64_t local, bool sparse,
                       int64_t expert)
{
    const char *const *aliases = names_of(role);
    const bool legacy = style == GPT_MEGATRON_LEGACY;
    char tail[NAME];
    const char *name;

    if (!aliases)
        return false;
    name = aliases[0];
    switch (role) {
    case GPT_WORD_EMBEDDING:
        name =
            legacy ? "language_model/embedding/word_embeddings/weight" : name;
        break;
    case GPT_POSITION_EMBEDDING:
        name = legacy ? "language_model/embedding/position_embeddings/weight"
                      : name;
        break;
    case GPT_OUTPUT_WEIGHT:
        name = legacy ? "language_model/output_layer/weight" : name;
        break;
    case GPT_FINAL_NORM_WEIGHT:
        name = legacy ? "language_model/encoder/final_layernorm.weight" : name;
        break;
    case GPT_FINAL_NORM_BIAS:
        name = legacy ? "language_model/encoder/final_layernorm.bias" : name;
        break;
    case GPT_NORM1_WEIGHT:
    case GPT_NORM1_BIAS:
        name = style == GPT_MEGATRON_TE ? aliases[1] : name;
        break;
    case GPT_NORM2_WEIGHT:
    case GPT_NORM2_BIAS:
        /* in front of a router it is a module of its own */
        name = style == GPT_MEGATRON_TE && !sparse ? aliases[1]
               : legacy                            ? aliases[2]
                                                   : name;
        break;
    case GPT_EXPERTS_FC1:
    case GPT_EXPERTS_FC2:
        /* Transformer Engine has grouped products */
        number_expert(tail, sizeof(tail),
                      aliases[style == GPT_MEGATRON_TE], expert);
        name = tail;
        break;
    default:
        /* norms of heads have one name, as they came after the legacy ones */
        name = legacy && aliases[1] ? aliases[1] : name;
        break;
    }
    if (is_in_layer(role))
        snprintf(buf, cap, "%s%lld.%s",
                 legacy ? "language_model/encoder/layers." : layer_prefixes[0],
                 (long long)local, name);
    else
        snprintf(buf, cap, "%s", name);
    return true;
}
