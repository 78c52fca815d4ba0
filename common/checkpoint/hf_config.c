/* config.json of Hugging Face's GPT-2, both ways. Defaults are those of
 * configuration_gpt2.py; a null counts as absent. Features that change what
 * the model computes and that this project's GPT-2 lacks are refused by name,
 * never ignored. */
#include "checkpoint/huggingface.h"

#include "base/log.h"

#include <string.h>

/* The field, by its own name or its alias; NULL when absent or null. */
static const cJSON *field(const cJSON *json, const char *key,
                          const char *alias)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

    if (!item && alias)
        item = cJSON_GetObjectItemCaseSensitive(json, alias);
    return cJSON_IsNull(item) ? NULL : item;
}

/* 0 passes here and means what the format means by it: n_inner 0 is four times
 * n_embd, which gpt_config_complete() fills in. Other sizes of 0 are refused
 * there. */
static int size_field(const cJSON *json, const char *key, const char *alias,
                      int64_t def, int64_t *out, const char *what,
                      struct gpt_err *err)
{
    const cJSON *item = field(json, key, alias);

    *out = def;
    if (!item)
        return GPT_OK;
    return gpt_json_int(json, item->string, 0, INT32_MAX, out, what, err);
}

/* Ranges of rates are the model's to check; here a rate is only a number. */
static int rate_field(const cJSON *json, const char *key, double def,
                      double *out, const char *what, struct gpt_err *err)
{
    *out = def;
    if (!field(json, key, NULL))
        return GPT_OK;
    return gpt_json_real_or(json, key, def, out, what, err);
}

/* A feature is refused by its name and its value, so that the message can be
 * searched for in the model's config.json. */
static int refuse(const char *what, const char *key, const char *value,
                  const char *need, struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA, "%s: %s is %s: only %s is supported", what,
                    key, value, need);
}

/* `need` is also the value that an absent flag has in transformers. */
static int check_flag(const cJSON *json, const char *key, bool need,
                      const char *what, struct gpt_err *err)
{
    bool v = need;

    if (field(json, key, NULL))
        GPT_TRY(gpt_json_bool_or(json, key, need, &v, what, err));
    if (v != need)
        return refuse(what, key, v ? "true" : "false",
                      need ? "true" : "false", err);
    return GPT_OK;
}

/* Checks the architecture and its variants. Three names are the tanh form of
 * GELU, whose results differ by rounding alone; plain "gelu" is the other form,
 * and a model trained with it would compute something else. */
static int check_features(const cJSON *json, const char *what,
                          struct gpt_err *err)
{
    static const char *const tanh_gelu[] = {"gelu_new", "gelu_pytorch_tanh",
                                            "gelu_fast"};
    const char *type, *activation = "gelu_new";
    bool known = false;

    GPT_TRY(gpt_json_string(json, "model_type", &type, what, err));
    if (strcmp(type, "gpt2") != 0)
        return refuse(what, "model_type", type, "gpt2", err);
    if (field(json, "activation_function", NULL))
        GPT_TRY(gpt_json_string(json, "activation_function", &activation, what,
                                err));
    for (size_t i = 0; i < GPT_COUNT(tanh_gelu); i++)
        known = known || strcmp(activation, tanh_gelu[i]) == 0;
    if (!known)
        return refuse(what, "activation_function", activation, "gelu_new",
                      err);
    GPT_TRY(check_flag(json, "scale_attn_weights", true, what, err));
    GPT_TRY(check_flag(json, "scale_attn_by_inverse_layer_idx", false, what,
                       err));
    GPT_TRY(check_flag(json, "add_cross_attention", false, what, err));
    if (field(json, "quantization_config", NULL))
        return refuse(what, "quantization_config", "set",
                      "an unquantised model", err);
    return GPT_OK;
}

/* An id, or the first of a list of ids, as newer files have it for several ends
 * of a text. Anything else counts as none: a wrong id must not keep the weights
 * from being read. */
static int64_t token_id(const cJSON *json, const char *key, int64_t def)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

    if (cJSON_IsArray(item))
        item = cJSON_GetArrayItem(item, 0);
    if (!item)
        return def;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble > INT32_MAX)
        return -1;
    return (int64_t)item->valuedouble;
}

static int parse_sizes(struct gpt_config *c, const cJSON *j, const char *what,
                       struct gpt_err *err)
{
    GPT_TRY(size_field(j, "n_layer", "num_hidden_layers", 12, &c->num_layers,
                       what, err));
    GPT_TRY(size_field(j, "n_embd", "hidden_size", 768, &c->hidden_size, what,
                       err));
    GPT_TRY(size_field(j, "n_head", "num_attention_heads", 12,
                       &c->num_attention_heads, what, err));
    GPT_TRY(size_field(j, "n_inner", NULL, 0, &c->ffn_hidden_size, what, err));
    GPT_TRY(size_field(j, "n_positions", "max_position_embeddings", 1024,
                       &c->max_positions, what, err));
    return size_field(j, "vocab_size", NULL, 50257, &c->vocab_size, what, err);
}

/* GPT-2 has a dropout of its own after the embedding; here it shares that of
 * the residual stream. The weights do not depend on either, so a difference is
 * a warning. The padded size is only completed to run the checks: padding
 * depends on the layout, which the caller knows. */
int gpt_hf_config_parse(struct gpt_config *c, struct gpt_hf_extra *extra,
                        const cJSON *json, const char *what,
                        struct gpt_err *err)
{
    struct gpt_err inner = {0};
    double embedding_dropout;
    bool tied = true;

    *c = (struct gpt_config){0};
    if (!cJSON_IsObject(json))
        return gpt_fail(err, GPT_EDATA, "%s: not a JSON object", what);
    GPT_TRY(check_features(json, what, err));
    GPT_TRY(parse_sizes(c, json, what, err));
    GPT_TRY(rate_field(json, "layer_norm_epsilon", 1e-5, &c->norm_epsilon,
                       what, err));
    GPT_TRY(rate_field(json, "initializer_range", 0.02, &c->init_std, what,
                       err));
    GPT_TRY(rate_field(json, "resid_pdrop", 0.1, &c->hidden_dropout, what,
                       err));
    GPT_TRY(rate_field(json, "attn_pdrop", 0.1, &c->attention_dropout, what,
                       err));
    GPT_TRY(rate_field(json, "embd_pdrop", c->hidden_dropout,
                       &embedding_dropout, what, err));
    if (field(json, "tie_word_embeddings", NULL))
        GPT_TRY(gpt_json_bool_or(json, "tie_word_embeddings", true, &tied,
                                 what, err));
    c->tied_embeddings = tied;
    if (embedding_dropout < c->hidden_dropout ||
        embedding_dropout > c->hidden_dropout)
        gpt_warn("%s: embd_pdrop %g is trained as resid_pdrop %g", what,
                 embedding_dropout, c->hidden_dropout);
    *extra = (struct gpt_hf_extra){0};
    extra->bos_token_id = token_id(json, "bos_token_id", 50256);
    extra->eos_token_id = token_id(json, "eos_token_id", 50256);
    if (gpt_config_complete(c, 1, 1, &inner) != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s: %s", what, inner.text);
    c->padded_vocab_size = 0;
    return GPT_OK;
}

static const char *torch_name(enum gpt_dtype t)
{
    return t == GPT_BF16  ? "bfloat16"
           : t == GPT_F16 ? "float16"
           : t == GPT_F64 ? "float64"
                          : "float32";
}

static void add_token(cJSON *json, const char *key, int64_t id)
{
    if (id >= 0)
        cJSON_AddNumberToObject(json, key, (double)id);
    else
        cJSON_AddNullToObject(json, key);
}

/* Writes what transformers writes for such a model, in its order of keys.
 * n_inner is null where it has the default, as in the files of the hub. */
cJSON *gpt_hf_config_make(const struct gpt_config *c,
                          const struct gpt_hf_extra *extra,
                          enum gpt_dtype dtype)
{
    cJSON *json = cJSON_CreateObject(), *list = cJSON_CreateArray();

    cJSON_AddStringToObject(json, "activation_function", "gelu_new");
    gpt_json_add(list, NULL, cJSON_CreateString("GPT2LMHeadModel"));
    gpt_json_add(json, "architectures", list);
    cJSON_AddNumberToObject(json, "attn_pdrop", c->attention_dropout);
    add_token(json, "bos_token_id", extra->bos_token_id);
    cJSON_AddNumberToObject(json, "embd_pdrop", c->hidden_dropout);
    add_token(json, "eos_token_id", extra->eos_token_id);
    cJSON_AddNumberToObject(json, "initializer_range", c->init_std);
    cJSON_AddNumberToObject(json, "layer_norm_epsilon", c->norm_epsilon);
    cJSON_AddStringToObject(json, "model_type", "gpt2");
    cJSON_AddNumberToObject(json, "n_ctx", (double)c->max_positions);
    cJSON_AddNumberToObject(json, "n_embd", (double)c->hidden_size);
    cJSON_AddNumberToObject(json, "n_head", (double)c->num_attention_heads);
    if (c->ffn_hidden_size == 4 * c->hidden_size)
        cJSON_AddNullToObject(json, "n_inner");
    else
        cJSON_AddNumberToObject(json, "n_inner", (double)c->ffn_hidden_size);
    cJSON_AddNumberToObject(json, "n_layer", (double)c->num_layers);
    cJSON_AddNumberToObject(json, "n_positions", (double)c->max_positions);
    cJSON_AddNumberToObject(json, "resid_pdrop", c->hidden_dropout);
    cJSON_AddBoolToObject(json, "scale_attn_weights", true);
    cJSON_AddBoolToObject(json, "tie_word_embeddings", c->tied_embeddings);
    cJSON_AddStringToObject(json, "torch_dtype", torch_name(dtype));
    cJSON_AddBoolToObject(json, "use_cache", true);
    cJSON_AddNumberToObject(json, "vocab_size", (double)c->vocab_size);
    return json;
}
