/* The table of models that read pictures or sound, too; see pictures.h. Lists
 * are those of transformers' configuration_*.py and of the names that its
 * classes save, or of the first implementation of a model that transformers has
 * no class of (internvl_chat, minicpmv, llava_*, phi3_v, phi4mm). */
#include "checkpoint/huggingface/pictures.h"

#include "base/memory.h"

#define TEXT "text_config"

/* ---- keys beside the text part's ---- */

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
    "high_res_vision_config", "image_token_id", "vision_config", "vq_config",
    NULL,
};
static const char *const idefics_keys[] = {
    "image_token_id", "perceiver_config", "scale_factor",
    "use_reentrant_checkpointing", "vision_config", "vocab_size", NULL,
};
static const char *const idefics_text_keys[] = {
    "neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor",
    "qk_layer_norms", "use_resampler", NULL,
};
static const char *const audio_keys[] = {
    "audio_bos_token_id", "audio_config", "audio_eos_token_id",
    "audio_frame_step", "audio_token_id", "audio_token_index", "hidden_size",
    "ignore_index", "projector_bias", "projector_hidden_act",
    "rope_parameters", "vocab_size", NULL,
};
/* Logits of the part are divided by its logits_scaling, with which it was
 * trained; today's class of the whole leaves that out. */
static const char *const granite_keys[] = {
    "audio_token_id", "audio_token_index", "cat_hidden_layers",
    "downsample_rate", "encoder_config", "has_lora_adapter",
    "initializer_range", "projector_config", "window_size", NULL,
};
static const char *const paligemma_keys[] = {
    "hidden_size", "ignore_index", "image_token_id", "image_token_index",
    "projection_dim", "vision_config", "vocab_size", NULL,
};
static const char *const paligemma_text_keys[] = {
    "num_image_tokens", "projector_hidden_act",
    /* of the prompt of a picture */
    "use_bidirectional_attention", NULL,
};
static const char *const perception_keys[] = {
    "image_token_id", "projector_pooling_ratio", "video_token_id",
    "vision_config", "vision_use_cls_token", NULL,
};
static const char *const blip_keys[] = {
    "image_text_hidden_size", "image_token_id", "image_token_index",
    "initializer_range", "num_query_tokens", "qformer_config",
    "use_decoder_only_language_model", "video_token_index", "vision_config",
    NULL,
};
static const char *const mllama_text_keys[] = {"dropout", NULL};
static const char *const mllama_keys[] = {
    "image_token_id", "image_token_index", "vision_config", NULL,
};
/* The whole speaks, too; its part hears and sees. */
static const char *const omni_keys[] = {
    "assistant_token_id", "code2wav_config", "enable_audio_output",
    "enable_talker", "im_end_token_id", "im_start_token_id",
    "initializer_range", "system_token_id", "talker_config",
    "token2wav_config", "tts_bos_token_id", "tts_eos_token_id",
    "tts_pad_token_id", "user_token_id", NULL,
};
static const char *const thinker_keys[] = {
    "audio_config", "audio_end_token_id", "audio_start_token_id",
    "audio_token_id", "audio_token_index", "ignore_index", "image_token_id",
    "image_token_index", "initializer_range", "position_id_per_seconds",
    "seconds_per_chunk", "user_token_id", "video_token_id",
    "video_token_index", "vision_config", "vision_end_token_id",
    "vision_start_token_id", "vision_token_id", NULL,
};
/* transformers' words for settings of its own are in the part of such files */
static const char *const chat_keys[] = {
    "downsample_ratio", "dynamic_image_size", "force_image_size",
    "hidden_size", "max_dynamic_patch", "min_dynamic_patch", "pad2square",
    "ps_version", "select_layer", "system_message", "template",
    "use_backbone_lora", "use_llm_lora", "use_thumbnail", "vision_config",
    NULL,
};
static const char *const chat_text_keys[] = {
    "attn_implementation", NULL,
};
static const char *const minicpm_keys[] = {
    "batch_vision_input", "drop_vision_last_layer", "image_size",
    "mm_use_im_start_end", "patch_size", "query_num", "slice_config",
    "slice_mode", "use_image_id", "version", "vision_batch_size",
    "vision_config", NULL,
};
static const char *const first_llava_keys[] = {
    "freeze_mm_mlp_adapter", "freeze_mm_vision_resampler",
    "image_aspect_ratio", "image_crop_resolution", "image_grid_pinpoints",
    "image_split_resolution", "mm_*", "tokenizer_model_max_length",
    "tokenizer_padding_side", "tune_mm_mlp_adapter",
    "tune_mm_vision_resampler", "unfreeze_mm_vision_tower", "use_mm_proj",
    "use_pos_skipping", "pos_skipping_range", "vision_tower_pretrained", NULL,
};
static const char *const phi_keys[] = {
    "audio_config", "audio_processor", "embd_layer", "img_processor",
    "speech_lora", "vision_config", "vision_lora", NULL,
};

/* ---- tensors ---- */

/* Parts that see. transformers writes the names of its older versions; programs
 * that save a state_dict() write those of its modules today. */
static const char *const seeing[] = {
    "vision_tower.", "model.vision_tower.", "multi_modal_projector.",
    "model.multi_modal_projector.", "image_newline", "model.image_newline",
    "image_tower.", "model.image_tower.", "video_tower.", "model.video_tower.",
    "model.vision_encoder.", "model.vision_model.", "model.vision_projection.",
    "model.vision_projector.", "model.projector.", "model.aligner.",
    "model.visual_embeddings_table.", "model.generation_", "model.vqmodel.",
    "model.high_res_vision_", NULL,
};
static const char *const qwen_seeing[] = {"visual.", "model.visual.", NULL};
static const char *const idefics_seeing[] = {
    "model.vision_model.", "model.connector.", NULL,
};
static const char *const hearing[] = {
    "audio_tower.", "model.audio_tower.", "multi_modal_projector.",
    "model.multi_modal_projector.", NULL,
};
static const char *const granite_hearing[] = {
    "encoder.", "model.encoder.", "projector.", "model.projector.",
    ".lora_A.", ".lora_B.", NULL,
};
static const char *const blip_seeing[] = {
    "vision_model.", "model.vision_model.", "qformer.", "model.qformer.",
    "language_projection.", "model.language_projection.", "query_tokens",
    "model.query_tokens", NULL,
};
static const char *const mllama_seeing[] = {
    "vision_model.", "model.vision_model.", "multi_modal_projector.",
    "model.multi_modal_projector.", NULL,
};
static const char *const omni_seeing[] = {
    "thinker.visual.", "thinker.audio_tower.", "thinker.model.visual.",
    "thinker.model.audio_tower.", "talker.", "token2wav.", "code2wav.",
    "visual.", "audio_tower.", "model.visual.", "model.audio_tower.", NULL,
};
static const char *const chat_seeing[] = {"vision_model.", "mlp1.", NULL};
static const char *const minicpm_seeing[] = {"vpm.", "resampler.", NULL};
static const char *const first_llava_seeing[] = {
    "model.vision_tower.", "model.mm_projector.", "model.image_newline",
    "model.vision_resampler.", NULL,
};
static const char *const phi_seeing[] = {
    "model.vision_embed_tokens.", "model.embed_tokens_extend.",
    ".lora_A.", ".lora_B.", NULL,
};
static const char *const paddle_seeing[] = {
    "visual.", "model.visual.", "mlp_AR.", "model.projector.", NULL,
};

static const struct gpt_hf_renaming two_eras[] = {
    {"model.language_model.lm_head.", "lm_head."}, /* HyperCLOVA X */
    {"model.language_model.", "model."},
    {"language_model.", ""},
    {NULL, NULL},
};
/* OPT's names have two words in front of a layer's. */
static const struct gpt_hf_renaming blip_names[] = {
    {"model.language_model.", ""},
    {"language_model.", ""},
    {NULL, NULL},
};
static const struct gpt_hf_renaming idefics_names[] = {
    {"model.text_model.", "model."},
    {NULL, NULL},
};
static const struct gpt_hf_renaming omni_names[] = {
    {"thinker.model.language_model.", "model."},
    {"thinker.", ""},
    {"model.language_model.", "model."},
    {NULL, NULL},
};
static const struct gpt_hf_renaming minicpm_names[] = {
    {"llm.", ""},
    {NULL, NULL},
};
/* Adapters that read pictures are beside the matrices of text. */
static const struct gpt_hf_renaming phi_names[] = {
    {".base_layer.", "."},
    {NULL, NULL},
};
static const struct gpt_hf_renaming none[] = {{NULL, NULL}};

/* ---- the table ---- */

#define SEES(type, part, tied, keys)                                           \
    {type, "pictures", TEXT, false, part, tied, keys, seeing, two_eras, NULL,  \
     NULL, 0}
#define BLOCKS(type, flat, part, keys)                                         \
    {type, "pictures", TEXT, flat, part, "false", keys, qwen_seeing, two_eras, \
     NULL, NULL, 0}
#define QWEN(type, flat) BLOCKS(type, flat, type "_text", qwen_keys)
#define IDEFICS(type, part)                                                    \
    {type, "pictures", TEXT, false, part, "false", idefics_keys,               \
     idefics_seeing, idefics_names, idefics_text_keys, NULL, 0}
#define HEARS(type, part, tied)                                                \
    {type, "sound", TEXT, false, part, tied, audio_keys, hearing, two_eras,    \
     NULL, NULL, 0}
#define SPEECH(type)                                                           \
    {type, "sound", TEXT, false, "granite", "true", granite_keys,              \
     granite_hearing, two_eras, NULL, NULL, 0}
#define BLIP(type)                                                             \
    {type, "pictures", TEXT, false, "opt", NULL, blip_keys, blip_seeing,       \
     blip_names, NULL, NULL, 0}
#define OMNI(type, speaks)                                                     \
    {type, "pictures and sound", "thinker_config", false, type "_thinker",     \
     NULL, speaks, omni_seeing, omni_names, NULL, NULL, 0},                    \
    {type "_thinker", "pictures and sound", TEXT, false, type "_text",         \
     "false", thinker_keys, omni_seeing, omni_names, NULL, NULL, 0}
#define MINICPM(version, part)                                                 \
    {"minicpmv", "pictures", NULL, true, part, NULL, minicpm_keys,             \
     minicpm_seeing, minicpm_names, NULL, version, 0}
#define FIRST_LLAVA(type, part)                                                \
    {type, "pictures", NULL, true, part, NULL, first_llava_keys,               \
     first_llava_seeing, none, NULL, NULL, 0}
#define PHI(type)                                                              \
    {type, "pictures", NULL, true, "phi3", NULL, phi_keys, phi_seeing,         \
     phi_names, NULL, NULL, 0}
const struct gpt_hf_outer gpt_hf_outers[] = {
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
    SEES("deepseek_vl_hybrid", "llama", "true", deepseek_keys),
    SEES("janus", "llama", "true", deepseek_keys),
    SEES("fast_vlm", "qwen2", "false", llava_keys),
    SEES("perception_lm", "llama", "null", perception_keys),
    {"paligemma", "pictures", TEXT, false, "gemma", "true", paligemma_keys,
     seeing, two_eras, paligemma_text_keys, NULL, 0},
    QWEN("qwen2_vl", true),
    QWEN("qwen2_5_vl", true),
    QWEN("qwen3_vl", false),
    {"qwen3_vl_moe", "pictures", TEXT, false, "qwen3_vl_moe_text", "false",
     qwen_keys, qwen_seeing, two_eras, NULL, NULL, GPT_HF_TURNED_EXPERTS},
    BLOCKS("exaone4_5", false, "exaone4", qwen_keys),
    BLOCKS("glm4v", false, "glm4v_text", glm_keys),
    BLOCKS("glm46v", false, "glm4v_text", glm_keys),
    BLOCKS("glm4v_moe", false, "glm4v_moe_text", glm_keys),
    BLOCKS("glm_ocr", false, "glm_ocr_text", glm_keys),
    {"paddleocr_vl", "pictures", TEXT, true, "paddleocr_vl_text", "true",
     qwen_keys, paddle_seeing, two_eras, NULL, NULL, 0},
    {"mllama", "pictures", TEXT, false, "mllama_text_model", "false",
     mllama_keys, mllama_seeing, two_eras, mllama_text_keys, NULL,
     GPT_HF_CROSSED_LAYERS},
    IDEFICS("idefics2", "mistral"),
    IDEFICS("idefics3", "llama"),
    IDEFICS("smolvlm", "llama"),
    BLIP("blip-2"),
    BLIP("instructblip"),
    BLIP("instructblipvideo"),
    OMNI("qwen2_5_omni", omni_keys),
    OMNI("qwen3_omni_moe", omni_keys),
    HEARS("voxtral", "llama", "false"),
    HEARS("qwen2_audio", "qwen2", "false"),
    HEARS("audioflamingo3", "qwen2", "false"),
    HEARS("musicflamingo", "qwen2", "false"),
    HEARS("glmasr", "llama", "true"),
    SPEECH("granite_speech"),
    SPEECH("granite_speech_plus"),
    {"internvl_chat", "pictures", "llm_config", false, "internlm2", NULL,
     chat_keys, chat_seeing, two_eras, chat_text_keys, NULL, 0},
    MINICPM("2.5", "llama"),
    MINICPM("2.6", "qwen2"),
    MINICPM("4.0", "llama"),
    MINICPM("4.5", "qwen3"),
    FIRST_LLAVA("llava_llama", "llama"),
    FIRST_LLAVA("llava_mistral", "mistral"),
    FIRST_LLAVA("llava_qwen", "qwen2"),
    PHI("phi3_v"),
    PHI("phi4mm"),
    PHI("phi4_multimodal"),
};
const size_t gpt_hf_n_outers = GPT_COUNT(gpt_hf_outers);

/* A token of a text has one position, where one of a picture has three. What
 * their files leave out has another default. */
#define QWEN2_DEFAULTS                                                         \
    "{\"hidden_size\": 8192, \"intermediate_size\": 29568,"                    \
    " \"num_hidden_layers\": 80, \"num_attention_heads\": 64,"                 \
    " \"num_key_value_heads\": 8, \"max_window_layers\": 80,"                  \
    " \"vocab_size\": 152064, \"rms_norm_eps\": 1e-5,"                         \
    " \"rope_theta\": 1000000}"
const struct gpt_hf_text_type gpt_hf_text_types[] = {
    {"qwen2_vl_text", "qwen2", QWEN2_DEFAULTS},
    {"qwen2_5_vl_text", "qwen2", QWEN2_DEFAULTS},
    {"qwen3_vl_text", "qwen3",
     "{\"max_position_embeddings\": 128000, \"rope_theta\": 500000}"},
    /* weights of experts add up to 1, and no key says so */
    {"qwen3_vl_moe_text", "qwen3_moe",
     "{\"norm_topk_prob\": true, \"max_position_embeddings\": 128000,"
     " \"rope_theta\": 500000, \"intermediate_size\": 5632,"
     " \"num_attention_heads\": 16, \"num_key_value_heads\": 16,"
     " \"moe_intermediate_size\": 1408, \"num_experts_per_tok\": 4}"},
    {"glm4v_text", "glm4",
     "{\"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-5,"
     " \"head_dim\": 0}"},
    {"glm4v_moe_text", "glm4_moe",
     "{\"attention_bias\": true, \"max_position_embeddings\": 65536,"
     " \"vocab_size\": 151424}"},
    {"glm_ocr_text", "glm4",
     "{\"attention_bias\": false, \"partial_rotary_factor\": 1,"
     " \"head_dim\": 0, \"hidden_size\": 1024, \"intermediate_size\": 4096,"
     " \"num_hidden_layers\": 16, \"num_attention_heads\": 16,"
     " \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-5,"
     " \"vocab_size\": 59392}"},
    {"paddleocr_vl_text", "llama",
     "{\"head_dim\": 128, \"hidden_size\": 1024, \"intermediate_size\": 3072,"
     " \"num_hidden_layers\": 18, \"num_attention_heads\": 16,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 131072,"
     " \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000,"
     " \"vocab_size\": 103424}"},
    {"mllama_text_model", "llama",
     "{\"cross_attention_layers\": [3, 8, 13, 18, 23, 28, 33, 38],"
     " \"hidden_size\": 4096, \"intermediate_size\": 14336,"
     " \"num_hidden_layers\": 40, \"num_key_value_heads\": 8,"
     " \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5,"
     " \"rope_theta\": 500000, \"vocab_size\": 128256}"},
    {"qwen2_5_omni_text", "qwen2",
     "{\"hidden_size\": 3584, \"intermediate_size\": 18944,"
     " \"num_hidden_layers\": 28, \"num_attention_heads\": 28,"
     " \"num_key_value_heads\": 4, \"vocab_size\": 152064,"
     " \"rope_theta\": 1000000}"},
    {"qwen3_omni_moe_text", "qwen3_moe",
     "{\"norm_topk_prob\": true, \"num_hidden_layers\": 28,"
     " \"num_attention_heads\": 28, \"intermediate_size\": 18944,"
     " \"vocab_size\": 3584, \"rope_theta\": 1000000}"},
};
const size_t gpt_hf_n_text_types = GPT_COUNT(gpt_hf_text_types);
