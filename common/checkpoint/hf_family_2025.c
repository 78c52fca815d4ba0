/* Families of Hugging Face of 2025 and after, whose layers are near Llama's;
 * see hf_family.h. Older ones are in hf_family_llama.c.
 *
 * Classes of these years know one object of rotary positions alone, and some
 * have a scaling in it where a file says nothing: such families write the
 * object in any case (ROPE_OF). A switch that is MUST here is off in every
 * model that was published, and its class has been compared with it off
 * alone. */
#include "checkpoint/hf_rows.h"

/* Rows of biases and norms of heads wait for models that have them. */
static const struct gpt_hf_rule llama_rules[] = {
    LLAMA_ATTENTION, LLAMA_NORM2, LLAMA_MLP, LLAMA_ENDS,
};

/* ---- Ministral 3 ---- */

/* Mistral's layer, whose queries grow with their positions: by 0.1 times the
 * logarithm of how often a text has been as long as texts of pretraining were,
 * so that attention over many keys stays as sharp as over few. Without an
 * object of rotary positions its class has YaRN. Files with pictures, too, are
 * of another type, and hold this one under other names: they are refused. */
static const struct gpt_hf_key ministral3_keys[] = {
    ARCHITECTURES,
    ATTENTION_DROPOUT,
    BOS("1"),
    EOS("2"),
    HEAD_DIM("128"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("14336"),
    POSITIONS("262144"),
    TYPE,
    HEADS("32"),
    LAYERS("34"),
    KV_HEADS("8"),
    NO_PAD,
    RMS_EPS("1e-5"),
    ROPE_OF("{\"rope_type\": \"yarn\", \"rope_theta\": 1000000,"
            " \"factor\": 16, \"original_max_position_embeddings\": 16384,"
            " \"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 1,"
            " \"mscale_all_dim\": 1, \"llama_4_scaling_beta\": 0.1}",
            "1000000"),
    KEY("sliding_window", WINDOW, "null"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("131072"),
};
const struct gpt_hf_family gpt_hf_ministral3 = {
    .model_type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .prefix = "model.",
    .grows_queries = true,
    .base = {LLAMA_BASE},
    TABLES(llama_rules, ministral3_keys),
};

/* ---- Hunyuan ---- */

/* Norms of heads come after positions. What else its files have is of the
 * tokenizer, of pictures, or of an older implementation, whose layers could
 * share keys and values: that is off in all of them. */
static const struct gpt_hf_rule hunyuan_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "embed_tokens.weight"),
    RULE(NORM1_WEIGHT, SAME, "layers.%.input_layernorm.weight"),
    LLAMA_QKV,
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.self_attn.query_layernorm.weight"),
    RULE(K_NORM_WEIGHT, SAME, "layers.%.self_attn.key_layernorm.weight"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.o_proj.weight"),
    LLAMA_NORM2,
    LLAMA_MLP,
    LLAMA_ENDS,
};
static const struct gpt_hf_key hunyuan_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    /* of heads, again: head_dim counts */
    KEY("attention_head_dim", UNUSED, "null"),
    BOS("1"),
    KEY("cla_share_factor", UNUSED, "null"),
    KEY("class_num", UNUSED, "null"),
    KEY("dense_list", UNUSED, "null"),
    KEY("eod_token_id", UNUSED, "null"),
    EOS("2"),
    HEAD_DIM("0"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    KEY("im_end_id", UNUSED, "null"),
    KEY("im_newline_id", UNUSED, "null"),
    KEY("im_start_id", UNUSED, "null"),
    INIT("0.02"),
    FFN("11008"),
    KEY("mask_init_id", UNUSED, "null"),
    POSITIONS("2048"),
    NO_MLP_BIAS,
    TYPE,
    KEY("norm_type", ONLY, "\"rms\""),
    HEADS("32"),
    LAYERS("32"),
    KV_HEADS("0"),
    KEY("org_vocab_size", UNUSED, "null"),
    KEY("pad_id", UNUSED, "null"),
    NO_PAD,
    KEY("pool_type", UNUSED, "null"),
    RMS_EPS("1e-5"),
    ROPE("10000"),
    KEY("text_end_id", UNUSED, "null"),
    KEY("text_start_id", UNUSED, "null"),
    TIED("false"),
    DTYPE,
    CACHE,
    KEY("use_cla", MUST, "false"),
    KEY("use_qk_norm", ONLY, "true"),
    KEY("use_rotary_pos_emb", ONLY, "true"),
    VOCAB("290943"),
};
const struct gpt_hf_family gpt_hf_hunyuan = {
    .model_type = "hunyuan_v1_dense",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .prefix = "model.",
    .has_alpha = true,
    .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_turned = true},
    TABLES(hunyuan_rules, hunyuan_keys),
};
