/* Why a model of Hugging Face's is of no family here: what its config.json has
 * that these do not compute. Start at gpt_hf_why_unknown(). */
#include "checkpoint/huggingface/huggingface.h"

#include <string.h>

/* In the order in which they are looked for: a model may have several of
 * them. */
static const struct {
    const char *key;
    const char *what;
} signs[] = {
    {"num_local_experts", "experts"},
    {"num_experts", "experts"},
    {"n_routed_experts", "experts"},
    {"moe_num_experts", "experts"},
    {"num_experts_per_tok", "experts"},
    {"moe_intermediate_size", "experts"},
    {"ffn_config", "experts"}, /* DBRX */
    {"mamba_d_state", "state spaces"},
    {"mamba_n_heads", "state spaces"},
    {"state_size", "state spaces"},
    {"ssm_state_size", "state spaces"},
    {"lru_width", "recurrent layers"},
    {"attention_hidden_size", "recurrent layers"}, /* RWKV */
    {"qk_dim_factor", "recurrent layers"},         /* xLSTM */
    {"linear_num_key_heads", "layers of linear attention"},
    {"linear_attn_config", "layers of linear attention"},
    {"linear_key_head_dim", "layers of linear attention"},
    {"conv_L_cache", "convolutions"},
    {"kv_lora_rank", "keys and values of low rank"},
    {"vision_config", "pictures"},
    {"vq_config", "pictures"},
    {"audio_config", "sound"},
    {"num_mel_bins", "sound"},
    {"audio_channels", "sound"},
    {"encoder_layers", "an encoder"},
    {"num_encoder_layers", "an encoder"},
    {"cross_attention_layers", "attention to another text"},
    {"type_vocab_size", "the layers of an encoder"},
    {"hidden_size_per_layer_input", "words of each layer"},
    {"lambda_std_dev", "differences of attentions"},
    {"attn_layers", "attention by hashes"}, /* Reformer */
};

/* Types whose files have no key that says it. */
static const struct {
    const char *type, *what;
} types[] = {
    {"bert-generation", "the layers of an encoder"},
    {"bitnet", "weights of three values"},
    {"blt", "layers between bytes and words"},
    {"ctrl", "positions by a formula"},
    {"fuyu", "pictures"},
    {"granite_swa", "a number beside each head's scores"},
    {"hrm_text", "layers that are gone through again"},
    {"openai-gpt", "norms of sums"},
    {"xglm", "positions by a formula"},
    {"xlm", "norms of sums"},
    {"xlnet", "texts in two orders"},
};

/* The sign must be on: 0, false and null say that there is no such thing. */
static bool is_on(const cJSON *item)
{
    return item && !cJSON_IsNull(item) && !cJSON_IsFalse(item) &&
           !(cJSON_IsNumber(item) && item->valuedouble == 0);
}

const char *gpt_hf_why_unknown(const cJSON *config, const char *type,
                               const char **key)
{
    *key = "model_type";
    for (size_t i = 0; i < GPT_COUNT(types); i++)
        if (strcmp(types[i].type, type) == 0)
            return types[i].what;
    for (size_t i = 0; i < GPT_COUNT(signs); i++) {
        *key = signs[i].key;
        if (is_on(cJSON_GetObjectItemCaseSensitive(config, signs[i].key)))
            return signs[i].what;
    }
    return NULL;
}
