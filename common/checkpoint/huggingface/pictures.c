/* Models of Hugging Face that read pictures, too: one that reads text is a part
 * of them, with an object of its own in config.json and a prefix before the
 * names of its tensors. That part is read, as a model of its own family; what
 * sees is left out. A type is a row of the table. Start at
 * gpt_hf_text_config(). */
#include "checkpoint/huggingface/huggingface.h"

#include "checkpoint/huggingface/reader.h"
#include "checkpoint/safetensors/internal.h"

#include <string.h>

/* Lists end in NULL. */
struct gpt_hf_outer {
    const char *model_type;
    const char *text;      /* key of the text part's object */
    const char *text_type; /* model_type of an object that has none */
    const char *tied;      /* tie_word_embeddings where it is absent: JSON */
    const char *const *keys; /* its others: they concern pictures alone */
    const char *const *left; /* parts that see, by the beginnings of names */
    const struct renaming {
        const char *from, *to;
    } *names; /* beginnings, too; the first that fits counts */
};

static const char *const gemma3_keys[] = {
    "boi_token_id", "boi_token_index", "eoi_token_id", "eoi_token_index",
    "image_token_id", "image_token_index", "initializer_range",
    "mm_tokens_per_image", "vision_config", NULL,
};
static const char *const mistral3_keys[] = {
    "image_token_id", "image_token_index", "multimodal_projector_bias",
    "projector_hidden_act", "spatial_merge_size", "vision_config",
    "vision_feature_layer", NULL,
};

/* These are of both types. transformers writes the names of its older versions;
 * programs that save a state_dict() write those of its modules today. */
static const char *const seeing[] = {
    "vision_tower.", "model.vision_tower.", "multi_modal_projector.",
    "model.multi_modal_projector.", NULL,
};
static const struct renaming two_eras[] = {
    {"model.language_model.", "model."},
    {"language_model.", ""},
    {NULL, NULL},
};

static const struct gpt_hf_outer outers[] = {
    {"gemma3", "text_config", "gemma3_text", "true", gemma3_keys, seeing,
     two_eras},
    {"mistral3", "text_config", "mistral", "true", mistral3_keys, seeing,
     two_eras},
};

/* ---- config.json ---- */

#define TIED "tie_word_embeddings"

static bool is_listed(const char *const *list, const char *key)
{
    while (*list && strcmp(*list, key) != 0)
        list++;
    return *list != NULL;
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
            strcmp(item->string, outer->text) != 0 &&
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

/* The whole model's tie counts, whatever the part says: the output layer is
 * outside of the part. So do ends of a text and settings of generation; what a
 * part leaves out has the default of its own class. */
static bool complete(cJSON *text, const struct gpt_hf_outer *outer,
                     const cJSON *json)
{
    const cJSON *tied = cJSON_GetObjectItemCaseSensitive(json, TIED), *item;
    bool done = put(text, TIED, !tied || cJSON_IsNull(tied)
                                    ? cJSON_Parse(outer->tied)
                                    : cJSON_Duplicate(tied, true));

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

static const struct gpt_hf_outer *find_outer(const cJSON *json)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(json, "model_type");

    for (size_t i = 0; cJSON_IsString(type) && i < GPT_COUNT(outers); i++)
        if (strcmp(outers[i].model_type, type->valuestring) == 0)
            return &outers[i];
    return NULL;
}

int gpt_hf_text_config(cJSON **json, const struct gpt_hf_outer **outer,
                       const char *what, struct gpt_err *err)
{
    *outer = find_outer(*json);
    if (!*outer)
        return GPT_OK;
    const cJSON *part =
        cJSON_GetObjectItemCaseSensitive(*json, (*outer)->text);
    if (!cJSON_IsObject(part))
        return gpt_fail(err, GPT_EDATA, "%s: no object '%s', which is the "
                        "text part of a model of model_type %s", what,
                        (*outer)->text, (*outer)->model_type);
    GPT_TRY(check_keys(*outer, *json, what, err));
    cJSON *text = cJSON_Duplicate(part, true);
    if (!text || !complete(text, *outer, *json)) {
        cJSON_Delete(text);
        return gpt_no_memory(err, what);
    }
    cJSON_Delete(*json);
    *json = text;
    return GPT_OK;
}

/* ---- tensors ---- */

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static bool is_left(const struct gpt_hf_outer *outer, const char *name)
{
    const char *const *part = outer->left;

    while (*part && !begins(name, *part))
        part++;
    return *part != NULL;
}

static int rename_tensor(const char **name, const struct gpt_hf_outer *outer,
                         struct gpt_arena *arena, struct gpt_err *err)
{
    const struct renaming *row = outer->names;

    while (row->from && !begins(*name, row->from))
        row++;
    if (!row->from)
        return GPT_OK;
    *name = gpt_arena_printf(arena, "%s%s", row->to,
                             *name + strlen(row->from));
    return *name ? GPT_OK : gpt_no_memory(err, "names of tensors");
}

/* The first type whose row fits. */
int gpt_hf_text_name(const char **name, struct gpt_arena *arena,
                     struct gpt_err *err)
{
    const char *given = *name;

    for (size_t i = 0; *name == given && i < GPT_COUNT(outers); i++)
        GPT_TRY(rename_tensor(name, &outers[i], arena, err));
    return GPT_OK;
}

int gpt_hf_text_tensors(struct gpt_safetensors *st,
                        const struct gpt_hf_outer *outer, const char *path,
                        int64_t *left, struct gpt_err *err)
{
    int64_t n = 0;

    for (int64_t i = 0; i < st->n; i++) {
        if (is_left(outer, st->tensors[i].name))
            continue;
        st->tensors[n] = st->tensors[i];
        GPT_TRY(rename_tensor(&st->tensors[n++].name, outer, &st->arena, err));
    }
    *left += st->n - n;
    st->n = n;
    gpt_free(st->by_name);
    st->by_name = NULL;
    return gpt_safetensors_index(st, path, err);
}

const char *gpt_hf_outer_type(const struct gpt_hf_outer *outer)
{
    return outer->model_type;
}
