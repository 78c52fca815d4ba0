/* Models of Hugging Face that read pictures or sound, too: one that reads text
 * is a part of them, with an object of its own in config.json and a prefix
 * before the names of its tensors. That part is read, as a model of its own
 * family; what sees or hears is left out. A type is a row of the table, whose
 * lists are those of transformers' configuration_*.py and of the names that its
 * classes save. Start at gpt_hf_text_config(). */
#include "checkpoint/huggingface/huggingface.h"

#include "checkpoint/huggingface/reader.h"
#include "checkpoint/safetensors/internal.h"

#include <string.h>

/* Lists end in NULL. */
struct gpt_hf_outer {
    const char *model_type;
    const char *reads;     /* "pictures" */
    bool may_be_flat;      /* older files have its keys beside the others */
    const char *text_type; /* model_type of an object that has none */
    const char *tied;      /* tie_word_embeddings where it is absent: JSON */
    const char *const *keys; /* its others: they concern pictures alone */
    const char *const *left; /* parts that see, by the beginnings of names */
    const struct renaming {
        const char *from, *to;
    } *names; /* beginnings, too; the first that fits counts */
    const char *const *text_keys; /* of the part, which are of pictures all the
                                   * same; NULL: none */
};

/* Keys beside the text part's. */
#define LLAVA_KEYS                                                             \
    "image_seq_length", "image_token_id", "image_token_index",                 \
    "multimodal_projector_bias", "projector_hidden_act", "vision_config",      \
    "vision_feature_layer", "vision_feature_select_strategy"
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
/* "vocab_size" and "ignore_index" are of older files: no class reads them */
static const char *const llava_keys[] = {
    LLAVA_KEYS, "ignore_index", "image_grid_pinpoints",
    "projector_layernorm_eps", "spatial_pool_mode", "spatial_pool_stride",
    "use_image_newline_parameter", "video_seq_length", "video_token_id",
    "video_token_index", "vision_aspect_ratio", "vision_feature_layers",
    "vocab_size", NULL,
};
/* Both of Cohere's. The part's logits are multiplied by its logit_scale, with
 * which it was trained; today's classes of the whole leave that out. */
static const char *const cohere_keys[] = {
    LLAVA_KEYS, "adapter_layer_norm_eps", "alignment_intermediate_size",
    "downsample_factor", "max_splits_per_img", NULL,
};
static const char *const ovis_keys[] = {
    "hidden_size", "image_token_id", "vision_config",
    "visual_indicator_token_ids", "vocab_size", NULL,
};
static const char *const internvl_keys[] = {
    LLAVA_KEYS, "downsample_ratio", NULL,
};
static const char *const qwen_keys[] = {
    "image_token_id", "video_token_id", "vision_config",
    "vision_end_token_id", "vision_start_token_id", "vision_token_id", NULL,
};
static const char *const glm_keys[] = {
    "image_end_token_id", "image_start_token_id", "image_token_id",
    "video_end_token_id", "video_start_token_id", "video_token_id",
    "vision_config", NULL,
};
/* DeepSeek's, and Janus, which draws with a part of its own */
static const char *const deepseek_keys[] = {
    "image_token_id", "vision_config", "vq_config", NULL,
};
static const char *const idefics_keys[] = {
    "image_token_id", "scale_factor", "use_reentrant_checkpointing",
    "vision_config", "vocab_size", NULL,
};
static const char *const idefics_text_keys[] = {
    "neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor",
    "qk_layer_norms", "use_resampler", NULL,
};
static const char *const audio_keys[] = {
    "audio_config", "audio_token_id", "audio_token_index", "hidden_size",
    "ignore_index", "projector_hidden_act", "vocab_size", NULL,
};

/* Parts that see. transformers writes the names of its older versions; programs
 * that save a state_dict() write those of its modules today. */
static const char *const seeing[] = {
    "vision_tower.", "model.vision_tower.", "multi_modal_projector.",
    "model.multi_modal_projector.", "image_newline", "model.image_newline",
    "image_tower.", "model.image_tower.", "video_tower.", "model.video_tower.",
    "model.vision_encoder.", "model.vision_model.", "model.vision_projection.",
    "model.vision_projector.", "model.projector.", "model.aligner.",
    "model.visual_embeddings_table.", "model.generation_", "model.vqmodel.",
    NULL,
};
static const char *const qwen_seeing[] = {"visual.", "model.visual.", NULL};
static const char *const idefics_seeing[] = {
    "model.vision_model.", "model.connector.", NULL,
};
static const char *const hearing[] = {
    "audio_tower.", "model.audio_tower.", "multi_modal_projector.",
    "model.multi_modal_projector.", NULL,
};
static const struct renaming two_eras[] = {
    {"model.language_model.lm_head.", "lm_head."}, /* HyperCLOVA X */
    {"model.language_model.", "model."},
    {"language_model.", ""},
    {NULL, NULL},
};
static const struct renaming idefics_names[] = {
    {"model.text_model.", "model."},
    {NULL, NULL},
};

#define SEES(type, part, tied, keys)                                           \
    {type, "pictures", false, part, tied, keys, seeing, two_eras, NULL}
#define BLOCKS(type, flat, part, keys)                                         \
    {type, "pictures", flat, part, "false", keys, qwen_seeing, two_eras, NULL}
#define QWEN(type, flat) BLOCKS(type, flat, type "_text", qwen_keys)
#define IDEFICS(type)                                                          \
    {type, "pictures", false, "llama", "false", idefics_keys, idefics_seeing,  \
     idefics_names, idefics_text_keys}
#define HEARS(type, part)                                                      \
    {type, "sound", false, part, "false", audio_keys, hearing, two_eras, NULL}
static const struct gpt_hf_outer outers[] = {
    SEES("gemma3", "gemma3_text", "true", gemma3_keys),
    SEES("mistral3", "mistral", "true", mistral3_keys),
    SEES("llava", "llama", "false", llava_keys), /* Pixtral, too */
    SEES("llava_next", "llama", "false", llava_keys),
    SEES("llava_onevision", "qwen2", "false", llava_keys),
    SEES("vipllava", "llama", "false", llava_keys),
    SEES("internvl", "qwen2", "true", internvl_keys),
    SEES("got_ocr2", "qwen2", "true", internvl_keys),
    SEES("aya_vision", "cohere2", "true", cohere_keys),
    SEES("cohere2_vision", "cohere2", "true", cohere_keys),
    SEES("llava_next_video", "llama", "false", llava_keys),
    SEES("video_llava", "llama", "false", llava_keys),
    SEES("ovis2", "qwen2", "true", ovis_keys),
    SEES("lighton_ocr", "qwen3", "true", mistral3_keys),
    SEES("video_llama_3", "qwen2", "false", qwen_keys),
    SEES("hyperclovax_vision_v2", "hyperclovax", "true", qwen_keys),
    SEES("deepseek_vl", "llama", "true", deepseek_keys),
    SEES("janus", "llama", "true", deepseek_keys),
    QWEN("qwen2_vl", true),
    QWEN("qwen2_5_vl", true),
    QWEN("qwen3_vl", false),
    BLOCKS("exaone4_5", false, "exaone4", qwen_keys),
    BLOCKS("glm4v", false, "glm4v_text", glm_keys),
    IDEFICS("idefics3"),
    IDEFICS("smolvlm"),
    HEARS("voxtral", "llama"),
    HEARS("qwen2_audio", "qwen2"),
};

/* Types of text parts that compute what a family does: a token of a text has
 * one position, where one of a picture has three. What their files leave out
 * has another default. */
#define QWEN2_DEFAULTS                                                         \
    "{\"hidden_size\": 8192, \"intermediate_size\": 29568,"                    \
    " \"num_hidden_layers\": 80, \"num_attention_heads\": 64,"                 \
    " \"num_key_value_heads\": 8, \"max_window_layers\": 80,"                  \
    " \"vocab_size\": 152064, \"rms_norm_eps\": 1e-5,"                         \
    " \"rope_theta\": 1000000}"
static const struct {
    const char *type, *family;
    const char *defaults; /* JSON: those that are not the family's */
} parts[] = {
    {"qwen2_vl_text", "qwen2", QWEN2_DEFAULTS},
    {"qwen2_5_vl_text", "qwen2", QWEN2_DEFAULTS},
    {"qwen3_vl_text", "qwen3",
     "{\"max_position_embeddings\": 128000, \"rope_theta\": 500000}"},
    {"glm4v_text", "glm4",
     "{\"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-5,"
     " \"head_dim\": 0}"},
};

/* ---- config.json ---- */

#define TIED "tie_word_embeddings"
#define TEXT "text_config" /* the text part's object */

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
            strcmp(item->string, TEXT) != 0 &&
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
    const cJSON *tied = gpt_json_member(json, TIED), *item;
    bool done = put(text, TIED, tied ? cJSON_Duplicate(tied, true)
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

/* Makes a part of a type of `parts` one of its family. */
static bool settle_part(cJSON *text)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(text, "model_type");
    const cJSON *item;
    size_t i = 0;

    while (i < GPT_COUNT(parts) && !(cJSON_IsString(type) &&
                                     strcmp(parts[i].type,
                                            type->valuestring) == 0))
        i++;
    if (i == GPT_COUNT(parts))
        return true;
    cJSON *defaults = cJSON_Parse(parts[i].defaults);
    bool done = defaults &&
                put(text, "model_type", cJSON_CreateString(parts[i].family)) &&
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
    cJSON *text = cJSON_Duplicate(json, true);

    for (const char *const *key = outer->keys; *key; key++)
        cJSON_DeleteItemFromObjectCaseSensitive(text, *key);
    cJSON_DeleteItemFromObjectCaseSensitive(text, "model_type");
    return text;
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
    const cJSON *part = cJSON_GetObjectItemCaseSensitive(*json, TEXT);
    const bool flat = !part && (*outer)->may_be_flat;
    if (!flat && !cJSON_IsObject(part))
        return gpt_fail(err, GPT_EDATA, "%s: no object '%s', which is the "
                        "text part of a model of model_type %s", what, TEXT,
                        (*outer)->model_type);
    /* the family knows the others of a flat file, or refuses them */
    if (!flat)
        GPT_TRY(check_keys(*outer, *json, what, err));
    cJSON *text = flat ? unflatten(*outer, *json) : cJSON_Duplicate(part, true);
    if (!text || !complete(text, *outer, *json) || !settle_part(text)) {
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

const char *gpt_hf_outer_reads(const struct gpt_hf_outer *outer)
{
    return outer->reads;
}

const char *gpt_hf_outer_type(const struct gpt_hf_outer *outer)
{
    return outer->model_type;
}
