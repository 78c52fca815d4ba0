/* Reads config.json of Hugging Face's models by the tables of family.c: a row
 * says which field a key is, and what its absence means. Every key of the file
 * is taken: one that a family does not have, and that is no note (names, tools,
 * generation), is refused by name, as the model may compute something that this
 * one does not. A null counts as absent. Start at gpt_hf_config_parse(); rotary
 * positions are in rotary.c, and config_make.c is the reverse. */
#include "checkpoint/huggingface/huggingface.h"

#include "backend.h"
#include "base/log.h"
#include "checkpoint/huggingface/biases.h"
#include "checkpoint/huggingface/derived.h"
#include "checkpoint/huggingface/reader.h"
#include "checkpoint/huggingface/window.h"

#include <stdio.h>
#include <string.h>

/* ---- values ---- */

/* A feature is refused by its name and its value, so that the message can be
 * searched for in the model's config.json. */
int gpt_hf_refuse(const struct gpt_hf_reader *r, const char *key,
                  const cJSON *value, const char *need, struct gpt_err *err)
{
    char *text = gpt_json_print(value, false);
    const char *shown = cJSON_IsString(value) ? value->valuestring : text;
    int status = gpt_fail(err, GPT_EDATA, "%s: %s is %.200s: only %s is "
                          "supported", r->what, key, shown ? shown : "?", need);

    cJSON_free(text);
    return status;
}

/* The type that is wanted, in words: the file's own is in front of the user. */
int gpt_hf_wrong_type(const struct gpt_hf_reader *r, const char *key,
                      const char *need, struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA, "%s: '%s' is not %s", r->what, key, need);
}

/* 0 passes here and means what the format means by it; other sizes of 0 are
 * refused when the model is checked. Ranges of rates are the model's, too. */
int gpt_hf_read_number(const struct gpt_hf_reader *r, const char *key,
                       const cJSON *item, double *out, struct gpt_err *err)
{
    if (!cJSON_IsNumber(item))
        return gpt_hf_wrong_type(r, key, "a number", err);
    *out = item->valuedouble;
    return GPT_OK;
}

/* A size such as 2.5 would be cut to 2 without a word. */
int gpt_hf_read_size(const struct gpt_hf_reader *r, const char *key,
                     const cJSON *item, int64_t *out, struct gpt_err *err)
{
    double v = 0;

    GPT_TRY(gpt_hf_read_number(r, key, item, &v, err));
    /* written so that NaN is outside */
    if (!(v >= 0 && v <= INT32_MAX) || v != (double)(int64_t)v)
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is %g, out of range: 0 to %d",
                        r->what, key, v, INT32_MAX);
    *out = (int64_t)v;
    return GPT_OK;
}

/* 0 and 1 are no flags there: json of Python writes false and true. */
static int read_flag(const struct gpt_hf_reader *r, const char *key,
                     const cJSON *item, bool *out, struct gpt_err *err)
{
    if (!cJSON_IsBool(item))
        return gpt_hf_wrong_type(r, key, "true or false", err);
    *out = cJSON_IsTrue(item);
    return GPT_OK;
}

/* Names that differ by rounding alone are one activation; plain "gelu" is the
 * form with the error function, which is another. One that is not known is
 * refused: a model with another would give wrong texts without a sign of it. */
static int read_activation(const struct gpt_hf_reader *r,
                           const struct gpt_hf_key *row, const cJSON *item,
                           struct gpt_err *err)
{
    const char *key = row->name;

    /* Gemma's first files say so, and were trained with the other form */
    if (row->kind == GPT_HF_TANH_ACTIVATION && cJSON_IsString(item) &&
        strcmp(item->valuestring, "gelu") == 0) {
        r->c->activation = GPT_GELU;
        return GPT_OK;
    }
    for (size_t i = 0; cJSON_IsString(item) && i < gpt_hf_n_activations; i++)
        if (strcmp(item->valuestring, gpt_hf_activations[i].name) == 0) {
            r->c->activation = gpt_hf_activations[i].activation;
            return GPT_OK;
        }
    return gpt_hf_refuse(r, key, item,
                         "gelu_new, gelu, silu, relu, relu2 or xielu", err);
}

/* An id, or the first of a list of ids, as newer files have it for several ends
 * of a text. Anything else counts as none: a wrong id must not keep the weights
 * from being read. */
static int64_t token_id(const cJSON *item)
{
    if (cJSON_IsArray(item))
        item = cJSON_GetArrayItem(item, 0);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble > INT32_MAX)
        return GPT_TOKEN_NONE;
    return (int64_t)item->valuedouble;
}

/* Where the id of such a key goes. */
static int64_t *end_of(struct gpt_hf_extra *extra, enum gpt_hf_kind kind)
{
    return kind == GPT_HF_BOS ? &extra->bos_token_id : &extra->eos_token_id;
}

/* One dropout serves the embedding and the residual stream here. The weights do
 * not depend on either, so a difference is a warning. */
static int compare_dropout(const struct gpt_hf_reader *r, const char *key,
                           const cJSON *item, struct gpt_err *err)
{
    double v = 0;

    GPT_TRY(gpt_hf_read_number(r, key, item, &v, err));
    if (v < r->c->hidden_dropout || v > r->c->hidden_dropout)
        gpt_warn("%s: %s %g is trained as %g, the dropout of the residual "
                 "stream", r->what, key, v, r->c->hidden_dropout);
    return GPT_OK;
}

/* ---- reading ---- */

/* Compared as JSON: a number is one however it is written. */
static int read_must(const struct gpt_hf_reader *r,
                     const struct gpt_hf_key *key, const cJSON *item,
                     struct gpt_err *err)
{
    cJSON *need = cJSON_Parse(key->def);
    bool same = need && cJSON_Compare(item, need, true);

    cJSON_Delete(need);
    return same ? GPT_OK : gpt_hf_refuse(r, key->name, item, key->def, err);
}

/* Which layers are of which kind. All of these keys are put together in
 * gpt_hf_settle_window(), since they say the same thing in several ways. */
static int read_layers(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                       const cJSON *item, struct gpt_err *err)
{
    const bool null = cJSON_IsNull(item);

    switch (key->kind) {
    case GPT_HF_WINDOW:
        return null ? GPT_OK
                    : gpt_hf_read_size(r, key->name, item, &r->window, err);
    case GPT_HF_WINDOW_LAYERS:
        return gpt_hf_read_size(r, key->name, item, &r->c->window_full_layers,
                                err);
    case GPT_HF_WINDOW_EVERY:
        /* "LLLG" says nothing that can be counted on without the list */
        if (!cJSON_IsNumber(item) && !r->layer_types)
            return gpt_hf_refuse(r, key->name, item, "a number", err);
        return gpt_hf_read_every(&r->c->window_attn_skip_freq, item, key->name,
                                 r->what, err);
    case GPT_HF_TURNS_EVERY:
        return gpt_hf_read_every(&r->c->no_rope_freq, item, key->name, r->what,
                                 err);
    case GPT_HF_USE_WINDOW:
        return read_flag(r, key->name, item, &r->uses_window, err);
    case GPT_HF_PATTERN:
        cJSON_Delete(r->expanded);
        r->expanded = NULL;
        GPT_TRY(gpt_hf_expand_pattern(&r->expanded, item, key->name, r->what,
                                      err));
        r->layer_types = r->expanded;
        return GPT_OK;
    default: /* layer_types */
        r->layer_types = null ? NULL : item;
        return null ? GPT_OK : gpt_hf_check_layer_types(item, r->what, err);
    }
}

/* Where the number of a kind goes that has one place alone. */
static double *number_of(struct gpt_config *c, const struct gpt_hf_key *key)
{
    return key->kind == GPT_HF_THETA         ? &c->rotary_base
           : key->kind == GPT_HF_LOCAL_THETA ? &c->rotary_local_base
                                             : &c->query_pre_attn_scalar;
}

/* A flag that is no field. */
static int read_switch(const struct gpt_hf_reader *r,
                       const struct gpt_hf_key *key, const cJSON *item,
                       struct gpt_err *err)
{
    bool on = false;

    GPT_TRY(read_flag(r, key->name, item, &on, err));
    if (key->kind == GPT_HF_NOT)
        *(bool *)((char *)r->c + key->offset) = !on;
    else if (key->kind == GPT_HF_EACH_NORM)
        r->c->qk_norm = r->c->qk_norm_each = on;
    else if (key->kind == GPT_HF_MULTIQUERY)
        r->c->num_query_groups = on; /* 0 is filled in: as many as heads */
    else
        gpt_hf_switch_biases(r->c, key->kind, on);
    return GPT_OK;
}

/* null is 0 here, and not the class's default; that of the feed-forward's width
 * is filled in by gpt_config_complete(). */
static int read_or_none(const struct gpt_hf_reader *r,
                        const struct gpt_hf_key *key, const cJSON *item,
                        struct gpt_err *err)
{
    const size_t width = offsetof(struct gpt_config, ffn_hidden_size);
    void *to = (char *)r->c + (key->kind == GPT_HF_INNER ? width : key->offset);

    /* of a double, too */
    memset(to, 0, sizeof(int64_t));
    if (cJSON_IsNull(item))
        return GPT_OK;
    return key->kind == GPT_HF_CAP
               ? gpt_hf_read_number(r, key->name, item, to, err)
               : gpt_hf_read_size(r, key->name, item, to, err);
}

/* item: the value in the file, or the default. */
static int read_value(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                      const cJSON *item, struct gpt_err *err)
{
    void *to = (char *)r->c + key->offset;
    const bool null = cJSON_IsNull(item);

    switch (key->kind) {
    case GPT_HF_SIZE:
    case GPT_HF_HEAD_SIZE:
        return gpt_hf_read_size(r, key->name, item, to, err);
    case GPT_HF_RATE:
        return gpt_hf_read_number(r, key->name, item, to, err);
    case GPT_HF_FLAG:
        return read_flag(r, key->name, item, to, err);
    case GPT_HF_NOT:
    case GPT_HF_EACH_NORM:
    case GPT_HF_MULTIQUERY:
    case GPT_HF_ATTENTION_BIAS:
    case GPT_HF_QKV_BIAS:
    case GPT_HF_PROJ_BIAS:
    case GPT_HF_MLP_BIAS:
        return read_switch(r, key, item, err);
    case GPT_HF_ACTIVATION:
    case GPT_HF_TANH_ACTIVATION:
        return read_activation(r, key, item, err);
    case GPT_HF_CAP:
    case GPT_HF_INNER:
    case GPT_HF_SIZE_OR_NONE:
        return read_or_none(r, key, item, err);
    case GPT_HF_SCORE_SCALE:
    case GPT_HF_MULTIPLIER:
    case GPT_HF_DIVISOR:
        return gpt_hf_read_factor(r, key, item, err);
    case GPT_HF_THETA:
    case GPT_HF_LOCAL_THETA:
    case GPT_HF_SCALAR:
        return gpt_hf_read_number(r, key->name, item, number_of(r->c, key),
                                  err);
    case GPT_HF_SCALING:
        return null ? GPT_OK : gpt_hf_read_scaling(r, key->name, item, err);
    case GPT_HF_WINDOW:
    case GPT_HF_WINDOW_LAYERS:
    case GPT_HF_WINDOW_EVERY:
    case GPT_HF_TURNS_EVERY:
    case GPT_HF_USE_WINDOW:
    case GPT_HF_LAYER_TYPES:
    case GPT_HF_PATTERN:
        return read_layers(r, key, item, err);
    case GPT_HF_EXPERTS:
    case GPT_HF_EACH:
        return gpt_hf_read_experts(r, key, item, err);
    case GPT_HF_MUST:
    case GPT_HF_ONLY:
    case GPT_HF_SAID:
        return read_must(r, key, item, err);
    case GPT_HF_ATTENTION:
        return gpt_hf_check_attention(item, key->name, r->what, err);
    case GPT_HF_BOS:
    case GPT_HF_EOS:
        *end_of(r->extra, key->kind) = token_id(item);
        return GPT_OK;
    case GPT_HF_OTHER_DROPOUT: /* with the numbers of other keys: below */
    case GPT_HF_TWO_PARAMETERS:
    case GPT_HF_BEFORE:
    case GPT_HF_DERIVED:
    case GPT_HF_ROTARY_SIZE:
    case GPT_HF_TURNS:
    case GPT_HF_WIDTH:
    case GPT_HF_UNUSED:
    case GPT_HF_PARAMETERS:
    case GPT_HF_ARCHITECTURES:
    case GPT_HF_MODEL_TYPE:
    case GPT_HF_DTYPE:
    case GPT_HF_NOTE:
        return GPT_OK;
    }
    return GPT_OK;
}

/* By a name with a dot: in an object; NULL where there is none. */
static const cJSON *find_item(const cJSON *json, const char *name)
{
    const char *dot = strchr(name, '.');
    char outer[64];

    if (!dot)
        return cJSON_GetObjectItemCaseSensitive(json, name);
    snprintf(outer, sizeof(outer), "%.*s", (int)(dot - name), name);
    return cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(json, outer), dot + 1);
}

/* In the file by its own name or its alias; NULL when absent or null. */
static const cJSON *find_value(const struct gpt_hf_reader *r,
                               const struct gpt_hf_key *key)
{
    const cJSON *item = find_item(r->json, key->name);

    if (!item && key->alias)
        item = cJSON_GetObjectItemCaseSensitive(r->json, key->alias);
    return cJSON_IsNull(item) ? NULL : item;
}

/* What is read where there is no value: of a key that is not there, its
 * default. A token, a cap or a window that is null is none, and a size of heads
 * is the width over their number, whatever the default. */
static const char *value_of_none(const struct gpt_hf_reader *r,
                                 const struct gpt_hf_key *key)
{
    if (!cJSON_IsNull(find_item(r->json, key->name)))
        return key->def;
    if (key->kind == GPT_HF_BOS || key->kind == GPT_HF_EOS ||
        key->kind == GPT_HF_CAP || key->kind == GPT_HF_WINDOW ||
        key->kind == GPT_HF_SIZE_OR_NONE)
        return "null";
    return key->kind == GPT_HF_SIZE &&
                   key->offset == offsetof(struct gpt_config, head_size)
               ? "0"
               : key->def;
}

/* Defaults go the way of values, so that a row says in one place what absence
 * means. */
static int read_key(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                    struct gpt_err *err)
{
    const cJSON *item = find_value(r, key);

    if (item)
        return read_value(r, key, item, err);
    /* a row without a default is a key that every file has */
    if (!key->def || key->kind == GPT_HF_SAID)
        return gpt_fail(err, GPT_EDATA, "%s: no field '%s'", r->what,
                        key->name);
    cJSON *def = cJSON_Parse(value_of_none(r, key));
    if (!def)
        return gpt_no_memory(err, r->what);
    int status = read_value(r, key, def, err);
    cJSON_Delete(def);
    return status;
}

/* An older file has the object under another name, which goes before the
 * default of the class. Where both are absent, the default is read as if it was
 * in the file; most classes have none. */
static int read_parameters(const struct gpt_hf_reader *r,
                           const struct gpt_hf_key *key, const cJSON *item,
                           struct gpt_err *err)
{
    const cJSON *old = gpt_json_member(r->json, "rope_scaling");
    cJSON *def = NULL;

    if (!item && !old && !(def = cJSON_Parse(key->def)))
        return gpt_no_memory(err, r->what);
    item = def && !cJSON_IsNull(def) ? def : item;
    int status =
        item ? gpt_hf_read_scaling(r, key->name, item, err) : GPT_OK;
    cJSON_Delete(def);
    return status;
}

/* What depends on other keys, whatever their order. */
static int read_later(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                      struct gpt_err *err)
{
    const cJSON *item = find_value(r, key);

    if (key->kind == GPT_HF_DERIVED)
        return gpt_hf_read_derived(r, key, item, err);
    if (key->kind == GPT_HF_PARAMETERS)
        return read_parameters(r, key, item, err);
    if (key->kind == GPT_HF_TWO_PARAMETERS && item)
        return gpt_hf_read_two_scalings(r, key->name, item, err);
    if (key->kind == GPT_HF_ROTARY_SIZE && item)
        return gpt_hf_read_rotary_size(r, key->name, item, err);
    if (key->kind == GPT_HF_TURNS && item)
        return gpt_hf_read_turns(r->c, item, key->name, r->what, err);
    if (key->kind == GPT_HF_OTHER_DROPOUT && item)
        return compare_dropout(r, key->name, item, err);
    /* another width means a product between embedding and layers */
    if (key->kind == GPT_HF_WIDTH && item) {
        int64_t width = 0;

        GPT_TRY(gpt_hf_read_size(r, key->name, item, &width, err));
        if (width != r->c->hidden_size)
            return gpt_hf_refuse(r, key->name, item, "the hidden_size", err);
    }
    return GPT_OK;
}

/* In the order in which one thing depends on another: keys, those that are
 * compared with others, windows of layers, what is left over, the rules of the
 * model. The padded size is only completed to run the checks: padding depends
 * on the layout, which the caller knows. */
static int parse_config(struct gpt_hf_reader *r, struct gpt_err *err)
{
    const struct gpt_hf_family *family = r->extra->family;
    struct gpt_config *c = r->c;
    struct gpt_err inner = {0};

    /* keys overwrite what the family's class fixes */
    *c = family->base;
    for (size_t i = 0; i < family->n_keys; i++)
        GPT_TRY(read_key(r, &family->keys[i], err));
    /* only now: numbers that these are compared with may follow them */
    for (size_t i = 0; i < family->n_keys; i++)
        GPT_TRY(read_later(r, &family->keys[i], err));
    for (size_t i = 0; i < family->n_keys; i++)
        if (family->keys[i].kind == GPT_HF_BEFORE)
            GPT_TRY(gpt_hf_read_before(r, &family->keys[i],
                                       find_value(r, &family->keys[i]), err));
    GPT_TRY(gpt_hf_settle_window(c, family, r->uses_window ? r->window : 0,
                                 r->layer_types, r->what, err));
    GPT_TRY(gpt_hf_settle_experts(r, err));
    gpt_hf_settle_scores(r);
    if (family->in_quarters && c->num_attention_heads % 4 != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: %lld heads are not four equal parts, which models "
                        "of model_type %s have", r->what,
                        (long long)c->num_attention_heads, family->model_type);
    GPT_TRY(gpt_hf_quantized_parse(&r->extra->quantized, r->json, r->what,
                                   err));
    GPT_TRY(gpt_hf_check_unknown(r, r->json, "", err));
    if (gpt_config_complete(c, 1, 1, &inner) != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s: %s", r->what, inner.text);
    c->padded_vocab_size = 0;
    return GPT_OK;
}

int gpt_hf_config_parse(struct gpt_config *c, struct gpt_hf_extra *extra,
                        const cJSON *json, const char *what,
                        struct gpt_err *err)
{
    struct gpt_hf_reader r = {.c = c, .extra = extra, .json = json,
                              .what = what, .uses_window = true};

    if (!cJSON_IsObject(json))
        return gpt_fail(err, GPT_EDATA, "%s: not a JSON object", what);
    *extra = (struct gpt_hf_extra){0};
    GPT_TRY(gpt_hf_find_family(&r, err));
    int status = parse_config(&r, err);
    cJSON_Delete(r.expanded);
    return status;
}
