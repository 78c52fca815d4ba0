/* Writes config.json of Hugging Face's models by the tables of family.c. Start
 * at gpt_hf_config_make(). */
#include "checkpoint/huggingface/huggingface.h"

#include "checkpoint/huggingface/biases.h"
#include "checkpoint/huggingface/derived.h"
#include "checkpoint/huggingface/experts.h"
#include "checkpoint/huggingface/window.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* As torch prints them, without "torch.". */
static const char *torch_name(enum gpt_dtype t)
{
    return t == GPT_BF16  ? "bfloat16"
           : t == GPT_F16 ? "float16"
           : t == GPT_F64 ? "float64"
                          : "float32";
}

/* null, not absence: absence means the default of the class. */
static cJSON *token_value(int64_t id)
{
    return id >= 0 ? cJSON_CreateNumber((double)id) : cJSON_CreateNull();
}

/* A family's own word where it means this activation, else the first one. */
static cJSON *activation_value(const struct gpt_config *c, const char *def)
{
    cJSON *own = cJSON_Parse(def);
    const struct gpt_hf_activation *a = NULL;

    /* backwards: the first of several names is left at the end */
    for (size_t i = gpt_hf_n_activations; i-- > 0;)
        if (gpt_hf_activations[i].activation == c->activation) {
            a = &gpt_hf_activations[i];
            if (own && strcmp(own->valuestring, a->name) == 0)
                return own;
        }
    cJSON_Delete(own);
    return a ? cJSON_CreateString(a->name) : NULL;
}

/* As many numbers as pairs turn: what follows them in a list is nothing. */
static void add_lists(cJSON *json, const struct gpt_config *c)
{
    for (size_t i = 0; i < gpt_hf_n_scaling_lists; i++) {
        const double *at =
            (const double *)(const void *)((const char *)c +
                                           gpt_hf_scaling_lists[i].offset);

        if (gpt_config_factors(c) > 0)
            gpt_json_add(json, gpt_hf_scaling_lists[i].name,
                         cJSON_CreateDoubleArray(at,
                                                 (int)gpt_config_factors(c)));
    }
}

/* Phi-3 has its positions of pretraining beside the object, which has three
 * entries and no more for older versions of its class, under older names. */
static bool says_before(const struct gpt_hf_family *family)
{
    for (size_t i = 0; i < family->n_keys; i++)
        if (family->keys[i].kind == GPT_HF_BEFORE)
            return true;
    return false;
}

/* The two numbers of YaRN's in place of the factor that follows from them, for
 * a class that multiplies scores by one of them, too: the second first, as the
 * other follows from both. */
static void add_sharpness(cJSON *json, const struct gpt_config *c)
{
    const double under = c->query_pre_attn_scalar > 0
                             ? c->query_pre_attn_scalar
                             : (double)c->head_size;
    const double scores = pow((double)c->head_size / under, 0.25);
    const double all = gpt_hf_sharpness_number(c->rotary_factor, scores);

    if (all > 0)
        cJSON_AddNumberToObject(json, "mscale_all_dim", all);
    if (c->rotary_attention > 0 && all > 0)
        cJSON_AddNumberToObject(
            json, "mscale",
            gpt_hf_sharpness_number(c->rotary_factor,
                                    c->rotary_attention * scores));
    else if (c->rotary_attention > 0)
        cJSON_AddNumberToObject(json, "attention_factor", c->rotary_attention);
}

/* Numbers that a formula does not read are 0 in the model, and left out. */
static cJSON *scaling_value(const struct gpt_config *c,
                            const struct gpt_hf_family *family)
{
    const bool apart = c->rotary_scaling == GPT_SCALING_LONGROPE &&
                       says_before(family);
    cJSON *json = cJSON_CreateObject();

    /* null and not {}: classes of older versions look for a type in it */
    if (c->rotary_scaling == GPT_SCALING_NONE) {
        cJSON_Delete(json);
        return cJSON_CreateNull();
    }
    if (c->rotary_scaling == GPT_SCALING_NTK_ALPHA) {
        cJSON_AddNumberToObject(json, "alpha", c->rotary_factor);
        /* "dynamic" asks for it, and the class does not read it */
        cJSON_AddNumberToObject(json, "factor", 1);
        cJSON_AddStringToObject(json, "rope_type", "dynamic");
        return json;
    }
    for (size_t i = 0; i < gpt_hf_n_scaling_numbers; i++) {
        const struct gpt_hf_scaling_number *n = &gpt_hf_scaling_numbers[i];
        const void *at = (const char *)c + n->offset;
        /* the class divides by them in any case: any number will do */
        const int64_t before = c->rotary_positions == 0 && family->grows_queries
                                   ? c->max_positions
                                   : c->rotary_positions;
        const double v = n->offset == 0 ? (double)before : *(const double *)at;

        /* base and share have keys of their own, which all versions read */
        if ((v > 0 || (family->grows_queries &&
                       at == &c->rotary_query_growth)) &&
            at != &c->rotary_base && at != &c->rotary_percent &&
            !(family->sharpens_scores && at == &c->rotary_attention) &&
            !(apart && n->offset == 0))
            cJSON_AddNumberToObject(json, n->name, v);
    }
    if (family->sharpens_scores && c->rotary_scaling == GPT_SCALING_YARN)
        add_sharpness(json, c);
    add_lists(json, c);
    cJSON_AddStringToObject(json, apart ? "type" : "rope_type",
                            gpt_rotary_scalings[c->rotary_scaling]);
    return json;
}

/* The object of newer versions, where its absence is not "default": the class
 * has a scaling of its own. A model without any says so by name: a null would
 * be that scaling again. Both forms are written, and say the same. */
static cJSON *parameters_value(const struct gpt_hf_key *key,
                               const struct gpt_config *c,
                               const struct gpt_hf_family *family)
{
    const bool plain = c->rotary_scaling == GPT_SCALING_NONE;
    cJSON *json;

    if (strcmp(key->def, "null") == 0)
        return NULL;
    json = plain ? cJSON_CreateObject() : scaling_value(c, family);
    cJSON_AddNumberToObject(json, "rope_theta", c->rotary_base);
    if (plain)
        cJSON_AddStringToObject(json, "rope_type", "default");
    return json;
}

/* Classes with two bases ask for both, also where they are one. */
static double local_base(const struct gpt_config *c)
{
    return c->rotary_local_base > 0 ? c->rotary_local_base : c->rotary_base;
}

/* Both kinds of layers, in the way of newer versions: with one base in its old
 * place they would take another one for layers with a window. */
static cJSON *two_scalings(const struct gpt_config *c,
                           const struct gpt_hf_family *family)
{
    const bool plain = c->rotary_scaling == GPT_SCALING_NONE;
    cJSON *json = cJSON_CreateObject();
    cJSON *all = plain ? cJSON_CreateObject() : scaling_value(c, family);
    cJSON *local = cJSON_CreateObject();

    cJSON_AddNumberToObject(all, "rope_theta", c->rotary_base);
    if (plain)
        cJSON_AddStringToObject(all, "rope_type", "default");
    cJSON_AddNumberToObject(local, "rope_theta", local_base(c));
    cJSON_AddStringToObject(local, "rope_type", "default");
    gpt_json_add(json, "full_attention", all);
    gpt_json_add(json, "sliding_attention", local);
    return json;
}

/* The class with the head that we have: other tools choose by it. */
static cJSON *architectures_value(const struct gpt_hf_family *family)
{
    cJSON *list = cJSON_CreateArray();

    gpt_json_add(list, NULL, cJSON_CreateString(family->architecture));
    return list;
}

/* Classes of newer versions take "30.0" and refuse "30", which is how cJSON
 * would print it. */
static cJSON *real_value(double x)
{
    char text[40];
    const int n = snprintf(text, sizeof(text), "%.17g", x);

    if (strspn(text, "0123456789") == (size_t)n)
        snprintf(text + n, sizeof(text) - (size_t)n, ".0");
    return cJSON_CreateRaw(text);
}

/* Others in as few digits as say them. */
static cJSON *rate_value(double x)
{
    return x == rint(x) && fabs(x) < 1e15 ? real_value(x)
                                          : cJSON_CreateNumber(x);
}

/* A cap, null for none. */
static cJSON *cap_value(double cap)
{
    return cap > 0 ? real_value(cap) : cJSON_CreateNull();
}

/* In the word that all versions know. It is always written: without a list the
 * class of a hybrid model has Mamba in all layers. */
static cJSON *attention_value(const struct gpt_config *c)
{
    cJSON *list = cJSON_CreateArray();

    for (int64_t l = 0; l < c->num_layers; l++)
        gpt_json_add(list, NULL, cJSON_CreateString("attention"));
    return list;
}

/* What scores are divided or multiplied by, or a factor of the model, where 0
 * is 1, or its inverse. Rows of scores have no place in the struct. */
static cJSON *factor_value(const struct gpt_hf_key *key,
                           const struct gpt_config *c)
{
    const void *at = (const char *)c + key->offset;
    const double x = key->offset ? *(const double *)at : 0;
    const double under = c->query_pre_attn_scalar > 0 ? c->query_pre_attn_scalar
                                                      : (double)c->head_size;

    if (key->kind == GPT_HF_SCALAR)
        return cJSON_CreateNumber(under);
    if (key->kind == GPT_HF_SCORE_SCALE)
        return cap_value(1 / sqrt(under));
    return cap_value(!(x > 0) ? 1 : key->kind == GPT_HF_DIVISOR ? 1 / x : x);
}

/* Other kinds have their positions of pretraining in the object, and a model
 * without scaling has none: the class then takes its default, and does not read
 * it. */
static cJSON *before_value(const struct gpt_config *c)
{
    return c->rotary_scaling == GPT_SCALING_LONGROPE
               ? cJSON_CreateNumber((double)c->rotary_positions)
               : NULL;
}

/* Which layers are of which kind. A class reads a number or a list: both are
 * written where the number says enough, and readers of either understand. */
static cJSON *layers_value(const struct gpt_hf_key *key,
                           const struct gpt_config *c,
                           const struct gpt_hf_family *family)
{
    switch (key->kind) {
    case GPT_HF_WINDOW:
        return gpt_hf_window_value(c, family);
    case GPT_HF_USE_WINDOW:
        return cJSON_CreateBool(c->window_size > 0);
    case GPT_HF_WINDOW_LAYERS:
        return c->window_size > 0
                   ? cJSON_CreateNumber((double)c->window_full_layers)
                   : NULL;
    case GPT_HF_WINDOW_EVERY:
        return gpt_hf_every_value(c->window_attn_skip_freq);
    case GPT_HF_TURNS:
        return gpt_hf_turns_value(c);
    case GPT_HF_PATTERN:
        return gpt_hf_pattern_value(c);
    case GPT_HF_ATTENTION:
        return attention_value(c);
    default: /* layer_types */
        return gpt_hf_layer_types_value(c, family);
    }
}

/* Left out where it follows from the width. */
static cJSON *head_size_value(const struct gpt_config *c)
{
    return c->head_size * c->num_attention_heads == c->hidden_size
               ? NULL
               : cJSON_CreateNumber((double)c->head_size);
}

/* null where it has the default, as on the hub */
static cJSON *inner_value(const struct gpt_config *c)
{
    return c->ffn_hidden_size == 4 * c->hidden_size
               ? cJSON_CreateNull()
               : cJSON_CreateNumber((double)c->ffn_hidden_size);
}

/* A number, null for 0, or for the default. */
static cJSON *none_value(const struct gpt_hf_key *key,
                         const struct gpt_config *c)
{
    const void *at = (const char *)c + key->offset;

    if (key->kind == GPT_HF_INNER)
        return inner_value(c);
    if (key->kind == GPT_HF_CAP)
        return cap_value(*(const double *)at);
    return *(const int64_t *)at > 0
               ? cJSON_CreateNumber((double)*(const int64_t *)at)
               : cJSON_CreateNull();
}

/* true is said; what is off is left out */
static cJSON *must_value(const char *def)
{
    return strcmp(def, "false") == 0 || strcmp(def, "null") == 0
               ? NULL
               : cJSON_Parse(def);
}

/* A number of a kind that has one place alone. */
static double number_of(const struct gpt_hf_key *key,
                        const struct gpt_config *c)
{
    return key->kind == GPT_HF_ROTARY_SIZE     ? (double)gpt_config_rotary(c)
           : key->kind == GPT_HF_LOCAL_THETA   ? local_base(c)
           : key->kind == GPT_HF_OTHER_DROPOUT ? c->hidden_dropout
           : key->kind == GPT_HF_DERIVED       ? gpt_hf_derived_value(key, c)
                                               : c->rotary_base;
}

/* NULL for what is not written. */
static cJSON *make_value(const struct gpt_hf_key *key,
                         const struct gpt_config *c,
                         const struct gpt_hf_extra *extra, enum gpt_dtype dtype)
{
    const void *at = (const char *)c + key->offset;

    switch (key->kind) {
    case GPT_HF_SIZE:
    case GPT_HF_EACH:
    case GPT_HF_WIDTH:
        return cJSON_CreateNumber((double)*(const int64_t *)at);
    case GPT_HF_HEAD_SIZE:
        return head_size_value(c);
    case GPT_HF_RATE:
        return rate_value(*(const double *)at);
    case GPT_HF_FLAG:
    case GPT_HF_EACH_NORM:
    case GPT_HF_NOT:
        return cJSON_CreateBool(*(const bool *)at != (key->kind == GPT_HF_NOT));
    case GPT_HF_ACTIVATION:
    case GPT_HF_TANH_ACTIVATION:
        return activation_value(c, key->def);
    case GPT_HF_CAP:
    case GPT_HF_INNER:
    case GPT_HF_SIZE_OR_NONE:
        return none_value(key, c);
    case GPT_HF_ATTENTION_BIAS:
    case GPT_HF_QKV_BIAS:
    case GPT_HF_PROJ_BIAS:
    case GPT_HF_MLP_BIAS:
        return cJSON_CreateBool(gpt_hf_has_biases(c, key->kind));
    case GPT_HF_MULTIQUERY:
        return cJSON_CreateBool(c->num_query_groups == 1);
    case GPT_HF_SCALAR:
    case GPT_HF_SCORE_SCALE:
    case GPT_HF_MULTIPLIER:
    case GPT_HF_DIVISOR:
        return factor_value(key, c);
    case GPT_HF_DERIVED:
    case GPT_HF_ROTARY_SIZE:
    case GPT_HF_LOCAL_THETA:
    case GPT_HF_OTHER_DROPOUT:
    case GPT_HF_THETA:
        return cJSON_CreateNumber(number_of(key, c));
    case GPT_HF_TWO_PARAMETERS:
        return two_scalings(c, extra->family);
    case GPT_HF_SCALING:
        return scaling_value(c, extra->family);
    case GPT_HF_BEFORE:
        return before_value(c);
    case GPT_HF_WINDOW:
    case GPT_HF_USE_WINDOW:
    case GPT_HF_WINDOW_LAYERS:
    case GPT_HF_WINDOW_EVERY:
    case GPT_HF_LAYER_TYPES:
    case GPT_HF_PATTERN:
    case GPT_HF_TURNS:
    case GPT_HF_ATTENTION:
        return layers_value(key, c, extra->family);
    case GPT_HF_EXPERTS:
        return gpt_hf_experts_value(key, c);
    case GPT_HF_ARCHITECTURES:
        return architectures_value(extra->family);
    case GPT_HF_BOS:
        return token_value(extra->bos_token_id);
    case GPT_HF_EOS:
        return token_value(extra->eos_token_id);
    case GPT_HF_MODEL_TYPE:
        return cJSON_CreateString(extra->family->model_type);
    case GPT_HF_DTYPE:
        return cJSON_CreateString(torch_name(dtype));
    case GPT_HF_NOTE:
    case GPT_HF_SAID:
        return cJSON_Parse(key->def);
    case GPT_HF_MUST:
        return must_value(key->def);
    case GPT_HF_PARAMETERS:
        return parameters_value(key, c, extra->family);
    case GPT_HF_TURNS_EVERY:
    case GPT_HF_ONLY:
    case GPT_HF_UNUSED:
        return NULL;
    }
    return NULL;
}

/* The row whose name follows `last`'s; the first one for NULL, and NULL after
 * the last. */
static const struct gpt_hf_key *next_key(const struct gpt_hf_family *family,
                                         const struct gpt_hf_key *last)
{
    const struct gpt_hf_key *next = NULL;

    for (size_t i = 0; i < family->n_keys; i++) {
        const struct gpt_hf_key *key = &family->keys[i];

        if ((!last || strcmp(key->name, last->name) > 0) &&
            (!next || strcmp(key->name, next->name) < 0))
            next = key;
    }
    return next;
}

/* "a.b" is b in an object a, which the first such name makes. */
static void add_value(cJSON *json, const char *name, cJSON *value)
{
    const char *dot = strchr(name, '.');
    char outer[64];
    cJSON *object;

    if (!dot) {
        gpt_json_add(json, name, value);
        return;
    }
    snprintf(outer, sizeof(outer), "%.*s", (int)(dot - name), name);
    object = cJSON_GetObjectItemCaseSensitive(json, outer);
    if (!object)
        object = gpt_json_add(json, outer, cJSON_CreateObject());
    gpt_json_add(object, dot + 1, value);
}

/* In the order of names, as transformers writes them: files can be
 * compared. */
cJSON *gpt_hf_config_make(const struct gpt_config *c,
                          const struct gpt_hf_extra *extra,
                          enum gpt_dtype dtype)
{
    cJSON *json = cJSON_CreateObject();

    for (const struct gpt_hf_key *key = next_key(extra->family, NULL); key;
         key = next_key(extra->family, key)) {
        cJSON *value = make_value(key, c, extra, dtype);

        if (value)
            add_value(json, key->name, value);
    }
    return json;
}
