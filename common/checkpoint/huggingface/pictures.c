/* Models of Hugging Face that read pictures or sound, too: one that reads text
 * is a part of them, with an object of its own in config.json and a prefix
 * before the names of its tensors. That part is read, as a model of its own
 * family; what sees or hears is left out. A type is a row of
 * pictures_table.c. Start at gpt_hf_text_config(). */
#include "checkpoint/huggingface/pictures.h"

#include "base/log.h"
#include "checkpoint/huggingface/reader.h"
#include "checkpoint/safetensors/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- config.json ---- */

#define TIED "tie_word_embeddings"
#define CROSSED "cross_attention_layers"

/* An entry that ends in '*' is all keys that begin so. */
static bool is_listed(const char *const *list, const char *key)
{
    for (; *list; list++) {
        const size_t n = strlen(*list) - 1;

        if ((*list)[n] == '*' ? strncmp(*list, key, n) == 0
                              : strcmp(*list, key) == 0)
            return true;
    }
    return false;
}

/* An unknown key may change what is computed: see check_unknown() of config.c,
 * which reads the text part's. */
static int check_keys(const struct gpt_hf_outer *outer, const cJSON *json,
                      const char *what, struct gpt_err *err)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, json)
        if (!cJSON_IsNull(item) && !cJSON_IsFalse(item) &&
            !is_listed(outer->keys, item->string) &&
            !gpt_hf_is_note(item->string) && strcmp(item->string, TIED) != 0 &&
            strcmp(item->string, outer->text_config) != 0 &&
            !gpt_hf_is_quantization(item->string))
            return gpt_hf_unknown_key(what, item->string, outer->model_type,
                                      err);
    return GPT_OK;
}

/* Puts `item` where `text` has another of its name, or none; takes it. */
static bool put(cJSON *text, const char *key, cJSON *item)
{
    cJSON_DeleteItemFromObjectCaseSensitive(text, key);
    return gpt_json_add(text, key, item) != NULL;
}

/* The whole model's tie counts, whatever the part says, where the output layer
 * is outside of the part. So do ends of a text and settings of generation; what
 * a part leaves out has the default of its own class. */
static bool complete(cJSON *text, const struct gpt_hf_outer *outer,
                     const cJSON *json)
{
    const cJSON *tied = gpt_json_member(json, TIED), *item;
    bool done = true;

    if (outer->tied && (tied || strcmp(outer->tied, "null") != 0))
        done = put(text, TIED, tied ? cJSON_Duplicate(tied, true)
                                    : cJSON_Parse(outer->tied));
    for (const char *const *key = outer->text_keys; key && *key; key++)
        cJSON_DeleteItemFromObjectCaseSensitive(text, *key);
    if (!cJSON_GetObjectItemCaseSensitive(text, "model_type"))
        done = done && put(text, "model_type",
                           cJSON_CreateString(outer->text_type));
    cJSON_ArrayForEach(item, json)
        if (((gpt_hf_is_note(item->string) && item->string[0] != '_' &&
              strcmp(item->string, "model_type") != 0) ||
             gpt_hf_is_quantization(item->string)) &&
            !cJSON_IsNull(item))
            done = done && put(text, item->string,
                               cJSON_Duplicate(item, true));
    return done;
}

/* Numbers of three positions: a text has one, which every pair turns by. */
static bool flatten_positions(cJSON *text, const char *key)
{
    static const char *const types[] = {"type", "rope_type"};
    cJSON *object = cJSON_GetObjectItemCaseSensitive(text, key);

    cJSON_DeleteItemFromObjectCaseSensitive(object, "mrope_section");
    cJSON_DeleteItemFromObjectCaseSensitive(object, "mrope_interleaved");
    for (size_t i = 0; i < GPT_COUNT(types); i++) {
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, types[i]);

        if (cJSON_IsString(type) && strcmp(type->valuestring, "mrope") == 0 &&
            !put(object, types[i], cJSON_CreateString("default")))
            return false;
    }
    return true;
}

/* Makes a part of a type of the second table one of its family. */
static bool settle_part(cJSON *text)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(text, "model_type");
    const struct gpt_hf_text_type *row = gpt_hf_text_types;
    const struct gpt_hf_text_type *end = row + gpt_hf_n_text_types;
    const cJSON *item;

    while (row < end && !(cJSON_IsString(type) &&
                          strcmp(row->type, type->valuestring) == 0))
        row++;
    if (row == end)
        return true;
    cJSON *defaults = cJSON_Parse(row->defaults);
    bool done = defaults &&
                put(text, "model_type", cJSON_CreateString(row->family)) &&
                flatten_positions(text, "rope_scaling") &&
                flatten_positions(text, "rope_parameters");
    cJSON_ArrayForEach(item, defaults)
        if (!cJSON_GetObjectItemCaseSensitive(text, item->string))
            done = done && put(text, item->string,
                               cJSON_Duplicate(item, true));
    cJSON_Delete(defaults);
    return done;
}

/* The text part of a file that has its keys beside those of pictures. */
static cJSON *unflatten(const struct gpt_hf_outer *outer, const cJSON *json)
{
    cJSON *text = cJSON_CreateObject();
    const cJSON *item;
    bool done = text != NULL;

    cJSON_ArrayForEach(item, json)
        if (!is_listed(outer->keys, item->string) &&
            strcmp(item->string, "model_type") != 0)
            done = done && gpt_json_add(text, item->string,
                                        cJSON_Duplicate(item, true));
    if (done)
        return text;
    cJSON_Delete(text);
    return NULL;
}

/* The key "version" is a number, or a text. */
static bool is_version(const cJSON *json, const char *version)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "version");
    const double v = cJSON_IsString(item) ? strtod(item->valuestring, NULL)
                     : cJSON_IsNumber(item) ? item->valuedouble
                                            : 0;

    return !version || fabs(v - strtod(version, NULL)) < 1e-6;
}

static const struct gpt_hf_outer *find_outer(const cJSON *json)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(json, "model_type");

    for (size_t i = 0; cJSON_IsString(type) && i < gpt_hf_n_outers; i++)
        if (strcmp(gpt_hf_outers[i].model_type, type->valuestring) == 0 &&
            is_version(json, gpt_hf_outers[i].when))
            return &gpt_hf_outers[i];
    return NULL;
}

/* Replaces the whole's tree by the part's. */
static int take_part(cJSON **json, const struct gpt_hf_outer *outer,
                     const char *what, struct gpt_err *err)
{
    const cJSON *part =
        outer->text_config
            ? cJSON_GetObjectItemCaseSensitive(*json, outer->text_config)
            : NULL;
    const bool flat = !part && outer->may_be_flat;

    if (!flat && !cJSON_IsObject(part))
        return gpt_fail(err, GPT_EDATA, "%s: no object '%s', which is the "
                        "text part of a model of model_type %s", what,
                        outer->text_config, outer->model_type);
    /* the family knows the others of a flat file, or refuses them */
    if (!flat)
        GPT_TRY(check_keys(outer, *json, what, err));
    cJSON *text = flat ? unflatten(outer, *json) : cJSON_Duplicate(part, true);
    if (!text || !complete(text, outer, *json) || !settle_part(text)) {
        cJSON_Delete(text);
        return gpt_no_memory(err, what);
    }
    cJSON_Delete(*json);
    *json = text;
    return GPT_OK;
}

/* Layers that attend to a picture do nothing in a text, and are left out: the
 * others are counted anew. */
static int leave_crossed(cJSON *text, struct gpt_hf_whole *whole,
                         const char *what, struct gpt_err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(text, CROSSED), *item;
    cJSON *layers =
        cJSON_GetObjectItemCaseSensitive(text, "num_hidden_layers");
    int64_t n = cJSON_IsNumber(layers) ? layers->valueint : 0;

    if (n < 1 || n > GPT_HF_CROSSED)
        return gpt_fail(err, GPT_EDATA,
                        "%s: 'num_hidden_layers' is not a number from 1 to %d",
                        what, GPT_HF_CROSSED);
    if (!cJSON_IsArray(list))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is not a list", what,
                        CROSSED);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsNumber(item) || item->valueint < 0 || item->valueint >= n)
            return gpt_fail(err, GPT_EDATA, "%s: %s names no layer", what,
                            CROSSED);
        whole->crossed[item->valueint] = true;
    }
    for (int64_t l = n; l-- > 0;)
        n -= whole->crossed[l];
    cJSON_SetNumberValue(layers, (double)n);
    cJSON_DeleteItemFromObjectCaseSensitive(text, CROSSED);
    return GPT_OK;
}

static int64_t whole_number(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

    return cJSON_IsNumber(item) ? item->valueint : 0;
}

/* A part may be a whole in another: what hears and sees, in what speaks. */
int gpt_hf_text_config(cJSON **json, struct gpt_hf_whole *whole,
                       const char *what, struct gpt_err *err)
{
    const struct gpt_hf_outer *inner;

    *whole = (struct gpt_hf_whole){.outer = find_outer(*json)};
    if (!whole->outer)
        return GPT_OK;
    GPT_TRY(take_part(json, whole->outer, what, err));
    inner = find_outer(*json);
    if (inner && strcmp(inner->model_type, whole->outer->text_type) == 0)
        GPT_TRY(take_part(json, inner, what, err));
    whole->width = whole_number(*json, "hidden_size");
    whole->words = whole_number(*json, "vocab_size");
    return whole->outer->peculiar == GPT_HF_CROSSED_LAYERS
               ? leave_crossed(*json, whole, what, err)
               : GPT_OK;
}

/* ---- tensors ---- */

/* A word that begins with '.' may be anywhere in a name; NULL where it is not
 * there, or not at the beginning. */
static const char *find_word(const char *name, const char *word)
{
    return word[0] == '.' ? strstr(name, word)
           : strncmp(name, word, strlen(word)) == 0 ? name
                                                    : NULL;
}

/* The number of the layer in a name, or -1; *end: what follows it. */
static int64_t layer_of(const char *name, const char **end)
{
    static const char layers[] = "layers.";
    const char *at = strstr(name, layers);
    char *after = NULL;
    const int64_t layer =
        at ? strtoll(at + strlen(layers), &after, 10) : -1;

    *end = after;
    return at && layer >= 0 && layer < GPT_HF_CROSSED ? layer : -1;
}

static bool is_left(const struct gpt_hf_whole *whole, const char *name)
{
    const char *const *part = whole->outer->left;
    const char *end;
    int64_t layer;

    while (*part && !find_word(name, *part))
        part++;
    if (*part)
        return true;
    layer = layer_of(name, &end);
    return whole->outer->peculiar == GPT_HF_CROSSED_LAYERS && layer >= 0 &&
           whole->crossed[layer];
}

static int rename_tensor(const char **name, const struct gpt_hf_outer *outer,
                         struct gpt_arena *arena, struct gpt_err *err)
{
    const struct gpt_hf_renaming *row = outer->names;
    const char *at = NULL;

    while (row->from && !(at = find_word(*name, row->from)))
        row++;
    if (!row->from)
        return GPT_OK;
    *name = gpt_arena_printf(arena, "%.*s%s%s", (int)(at - *name), *name,
                             row->to, at + strlen(row->from));
    return *name ? GPT_OK : gpt_no_memory(err, "names of tensors");
}

/* The first type whose row fits. */
int gpt_hf_text_name(const char **name, struct gpt_arena *arena,
                     struct gpt_err *err)
{
    const char *given = *name;

    for (size_t i = 0; *name == given && i < gpt_hf_n_outers; i++)
        GPT_TRY(rename_tensor(name, &gpt_hf_outers[i], arena, err));
    return GPT_OK;
}

/* Counts the layer of a name without those that are left out. */
static int count_anew(const char **name, const struct gpt_hf_whole *whole,
                      struct gpt_arena *arena, struct gpt_err *err)
{
    const char *end, *at;
    const int64_t layer = layer_of(*name, &end);
    int64_t here = 0;

    if (layer < 0)
        return GPT_OK;
    for (int64_t l = 0; l < layer; l++)
        here += !whole->crossed[l];
    for (at = end; at > *name && at[-1] != '.';)
        at--;
    *name = gpt_arena_printf(arena, "%.*s%lld%s", (int)(at - *name), *name,
                             (long long)here, end);
    return *name ? GPT_OK : gpt_no_memory(err, "names of tensors");
}

/* The other way round, as a view. */
static int turn_matrices(struct gpt_safetensor *t, struct gpt_arena *arena,
                         struct gpt_err *err)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(t->dtype);
    const int64_t tight[] = {t->shape[1] * t->shape[2] * size,
                             t->shape[2] * size, size};
    const int64_t *old = t->strides ? t->strides : tight;
    int64_t *strides = gpt_arena_alloc(arena, 3, sizeof(*strides));
    const int64_t rows = t->shape[1];

    if (!strides)
        return gpt_no_memory(err, "views of tensors");
    strides[0] = old[0];
    strides[1] = old[2];
    strides[2] = old[1];
    t->strides = strides;
    t->shape[1] = t->shape[2];
    t->shape[2] = rows;
    return GPT_OK;
}

static bool is_of_experts(const struct gpt_safetensor *t, const char *which)
{
    return t->ndim == 3 && gpt_path_ends_in(t->name, which);
}

/* Files have the matrices of experts (in, out), a state in memory (out, in),
 * under the same names: those that give the stream tell, whose inputs are
 * others. */
static bool has_turned(const struct gpt_safetensors *st, int64_t width)
{
    for (int64_t i = 0; i < st->n; i++)
        if (is_of_experts(&st->tensors[i], ".experts.down_proj"))
            return st->tensors[i].shape[1] != width;
    return true;
}

/* What the row of a model has beside names. */
static int settle_tensor(struct gpt_safetensor *t,
                         const struct gpt_hf_whole *whole, bool turned,
                         const char *path, struct gpt_arena *arena,
                         struct gpt_err *err)
{
    /* rows of a word for a picture, which no text has */
    enum { EXTRA = 8 };

    switch (whole->outer->peculiar) {
    case GPT_HF_CROSSED_LAYERS:
        if (strcmp(t->name, "model.embed_tokens.weight") == 0 &&
            t->ndim == 2 && t->shape[0] == whole->words + EXTRA) {
            t->shape[0] = whole->words;
            gpt_warn("%s: the last %d rows of the word table, which are of "
                     "pictures, are left out", path, EXTRA);
        }
        return count_anew(&t->name, whole, arena, err);
    case GPT_HF_TURNED_EXPERTS:
        return turned && (is_of_experts(t, ".experts.down_proj") ||
                          is_of_experts(t, ".experts.gate_up_proj"))
                   ? turn_matrices(t, arena, err)
                   : GPT_OK;
    case GPT_HF_NOTHING_MORE:
        break;
    }
    return GPT_OK;
}

int gpt_hf_text_tensors(struct gpt_safetensors *st,
                        const struct gpt_hf_whole *whole, const char *path,
                        int64_t *left, struct gpt_err *err)
{
    const bool turned = has_turned(st, whole->width);
    int64_t n = 0;

    for (int64_t i = 0; i < st->n; i++) {
        struct gpt_safetensor *t = &st->tensors[n];

        if (is_left(whole, st->tensors[i].name))
            continue;
        *t = st->tensors[i];
        GPT_TRY(rename_tensor(&t->name, whole->outer, &st->arena, err));
        GPT_TRY(settle_tensor(t, whole, turned, path, &st->arena,
                              err));
        n++;
    }
    *left += st->n - n;
    st->n = n;
    gpt_free(st->by_name);
    st->by_name = NULL;
    return gpt_safetensors_index(st, path, err);
}

const char *gpt_hf_outer_reads(const struct gpt_hf_outer *outer)
{
    return outer->reads;
}

const char *gpt_hf_outer_type(const struct gpt_hf_outer *outer)
{
    return outer->model_type;
}
