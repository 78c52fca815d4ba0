/* What config.json has that is not known here: a type of models, which is
 * refused by what such models have, or a key. Start at gpt_hf_find_family() and
 * gpt_hf_check_unknown(). */
#include "checkpoint/huggingface/reader.h"

#include <stdio.h>
#include <string.h>

/* ---- types of models ---- */

/* In the order in which they are looked for: a model may have several of
 * them. */
static const struct {
    const char *key;
    const char *what;
} signs[] = {
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
    {"kv_lora_rank", "latent attention of another kind"},
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
    /* last: most of such types are read, and others have something else */
    {"num_local_experts", "experts of another kind"},
    {"num_experts", "experts of another kind"},
    {"n_routed_experts", "experts of another kind"},
    {"moe_num_experts", "experts of another kind"},
    {"num_experts_per_tok", "experts of another kind"},
    {"moe_intermediate_size", "experts of another kind"},
    {"ffn_config", "experts of another kind"}, /* DBRX */
};

/* Types whose files have no key that says it. */
static const struct {
    const char *type, *what;
} types[] = {
    {"afmoe", "gates of what attention gives"},
    {"baichuan", "an output layer that is normed, or no word for ALiBi"},
    {"bailing_moe_v2", "layers of a kind that is not known"},
    {"beam", "gates of what attention gives"},
    {"bert-generation", "the layers of an encoder"},
    {"bitnet", "weights of three values"},
    {"blt", "layers between bytes and words"},
    {"cohere2_moe", "experts beside attention"},
    {"cohere_compass_text", "rotary positions for each kind of layer"},
    {"cpmant", "scores of distances that are learned"},
    {"ctrl", "positions by a formula"},
    {"doge", "masks that are computed from values"},
    {"dory", "layers that are gone through again"},
    {"flint", "a number beside each head's scores"},
    {"fuyu", "pictures"},
    {"gemma4", "norms of values and heads of two sizes"},
    {"gemma4_assistant", "keys and values of another model"},
    {"gemma4_text", "norms of values and heads of two sizes"},
    {"gemma4_unified", "norms of values and heads of two sizes"},
    {"gemma4_unified_assistant", "keys and values of another model"},
    {"gemma4_unified_text", "norms of values and heads of two sizes"},
    {"gpt_neox_japanese", "a bias in the last layer alone"},
    {"gpt_oss", "a number beside each head's scores"},
    {"granite_swa", "a number beside each head's scores"},
    {"granitemoe_swa", "a number beside each head's scores"},
    {"hrm_text", "layers that are gone through again"},
    {"jetmoe", "experts of attention"},
    {"kolibri1", "scores of experts with a bias under the sigmoid"},
    {"laguna", "gates of what attention gives"},
    {"llama4_text", "scores that multiply what experts read"},
    {"mimo_v2_flash", "a number beside each head's scores"},
    {"modernbert-decoder", "a first layer without a norm"},
    {"moshi", "sound"},
    {"musicgen", "sound"},
    {"musicgen_melody", "sound"},
    {"openai-gpt", "norms of sums"},
    {"phimoe", "experts whose weights are shares of some scores"},
    {"trocr", "pictures"},
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

/* "experts", and the key that says so; NULL where nothing is known. */
static const char *why_unknown(const cJSON *config, const char *type,
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

/* "architectures" would name the head, too; the type alone says which classes
 * read the file, as in transformers' AutoModelForCausalLM. */
int gpt_hf_find_family(struct gpt_hf_reader *r, struct gpt_err *err)
{
    char list[1400];
    const char *type, *key, *why;

    GPT_TRY(gpt_json_string(r->json, "model_type", &type, r->what, err));
    r->extra->family = gpt_hf_family_find(type, r->json);
    if (r->extra->family)
        return GPT_OK;
    gpt_hf_family_list(list, sizeof(list));
    why = why_unknown(r->json, type, &key);
    if (why)
        return gpt_fail(err, GPT_EDATA,
                        "%s: model_type is %.200s, whose models have %s (%s): "
                        "only %s are supported", r->what, type, why, key, list);
    return gpt_fail(err, GPT_EDATA,
                    "%s: model_type is %.200s: only %s are supported", r->what,
                    type, list);
}

/* ---- keys ---- */

/* An alias counts: a file may have either name. */
static bool has_key(const struct gpt_hf_family *family, const char *name)
{
    for (size_t i = 0; i < family->n_keys; i++)
        if (strcmp(family->keys[i].name, name) == 0 ||
            (family->keys[i].alias &&
             strcmp(family->keys[i].alias, name) == 0))
            return true;
    return gpt_hf_is_note(name);
}

int gpt_hf_unknown_key(const char *what, const char *key,
                       const char *model_type, struct gpt_err *err)
{
    gpt_fail(err, GPT_EDATA, "%s: '%.200s' is not known of model_type %s: the "
             "model may compute what this one does not", what, key,
             model_type);
    return gpt_hint(err, "remove the key when it changes nothing that the "
                         "model computes");
}

static bool has_keys_in(const struct gpt_hf_family *family, const char *outer)
{
    const size_t n = strlen(outer);

    for (size_t i = 0; i < family->n_keys; i++)
        if (strncmp(family->keys[i].name, outer, n) == 0 &&
            family->keys[i].name[n] == '.')
            return true;
    return false;
}

/* A feature that is off, by null or false, is no feature. Here a file that is
 * newer than this program shows itself. outer: what the object is in, "a.". */
int gpt_hf_check_unknown(const struct gpt_hf_reader *r, const cJSON *object,
                         const char *outer, struct gpt_err *err)
{
    const struct gpt_hf_family *family = r->extra->family;
    const cJSON *item;

    cJSON_ArrayForEach(item, object)
    {
        char name[256];

        if (cJSON_IsNull(item) || cJSON_IsFalse(item) ||
            (!*outer && gpt_hf_is_quantization(item->string)))
            continue;
        snprintf(name, sizeof(name), "%s%.200s", outer, item->string);
        if (!*outer && cJSON_IsObject(item) && has_keys_in(family, name)) {
            snprintf(name, sizeof(name), "%.200s.", item->string);
            GPT_TRY(gpt_hf_check_unknown(r, item, name, err));
        } else if (!has_key(family, name) && !gpt_hf_is_note(item->string))
            return gpt_hf_unknown_key(r->what, name, family->model_type, err);
    }
    return GPT_OK;
}
