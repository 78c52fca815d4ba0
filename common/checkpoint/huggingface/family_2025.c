/* Families of Hugging Face of 2025 and after, whose layers are near Llama's;
 * see family.h. Older ones are in family_llama.c.
 *
 * Classes of these years know one object of rotary positions alone, and some
 * have a scaling in it where a file says nothing: such families write the
 * object in any case (ROPE_OF). A switch that is MUST here is off in every
 * model that was published, and its class has been compared with it off
 * alone. */
#include "checkpoint/huggingface/rows.h"

/* Rows of biases and norms of heads wait for models that have them. */
static const struct gpt_hf_rule llama_rules[] = {
    LLAMA_ATTENTION, LLAMA_NORM2, LLAMA_MLP, LLAMA_ENDS,
};

/* ---- Ministral 3 ---- */

/* Mistral's layer, whose queries grow with their positions: by 0.1 times the
 * logarithm of how often a text has been as long as texts of pretraining were,
 * so that attention over many keys stays as sharp as over few. Without an
 * object of rotary positions its class has YaRN. Files with pictures, too, are
 * of another type, and hold this one under other names: see pictures.c. */
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

/* Norms of heads come after positions, with a weight for all heads of queries
 * and one for those of keys, as in Qwen 3, by other names. What else its files
 * have is of the tokenizer, of pictures, or of an older implementation, whose
 * layers could share keys and values: that is off in all of them. */
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
/* Its positions are "dynamic" with a number "alpha", which enlarges the base
 * once and for all: the length of a text changes nothing, unlike what the word
 * means elsewhere. "factor" and the numbers of YaRN beside it are not read. */
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

/* ---- EXAONE ---- */

/* Before EXAONE 4, in three sizes, and EXAONE Deep: Llama's function, which
 * transformers computes by its class, under names of GPT-2's kind. Both names
 * of a key are read, and the first ones are written, which all versions
 * know. */
static const struct gpt_hf_rule exaone_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    RULE(NORM1_WEIGHT, SAME, "h.%.ln_1.weight"),
    RULE(QKV_WEIGHT, Q, "h.%.attn.attention.q_proj.weight"),
    RULE(QKV_WEIGHT, K, "h.%.attn.attention.k_proj.weight"),
    RULE(QKV_WEIGHT, V, "h.%.attn.attention.v_proj.weight"),
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.attention.out_proj.weight"),
    RULE(NORM2_WEIGHT, SAME, "h.%.ln_2.weight"),
    RULE(GATE_WEIGHT, SAME, "h.%.mlp.c_fc_0.weight"),
    RULE(FC1_WEIGHT, SAME, "h.%.mlp.c_fc_1.weight"),
    RULE(FC2_WEIGHT, SAME, "h.%.mlp.c_proj.weight"),
    RULE(FINAL_NORM_WEIGHT, SAME, "ln_f.weight"),
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),
};
/* Dropout of words alone is a key of the first implementation; the class has
 * none there. */
static const struct gpt_hf_key exaone_keys[] = {
    {"activation_function", "hidden_act", GPT_HF_ACTIVATION, "\"silu\"", 0},
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("1"),
    KEY("embed_dropout", UNUSED, "null"),
    EOS("361"),
    HEAD_DIM("0"),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("14336"),
    {"layer_norm_epsilon", "rms_norm_eps", GPT_HF_RATE, "1e-5",
     AT(norm_epsilon)},
    POSITIONS("4096"),
    NO_MLP_BIAS,
    TYPE,
    HEADS("32"),
    KV_HEADS("8"),
    {"num_layers", "num_hidden_layers", GPT_HF_SIZE, "32", AT(num_layers)},
    NO_PAD,
    ROPE("500000"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("102400"),
};
const struct gpt_hf_family gpt_hf_exaone = {
    .model_type = "exaone",
    .architecture = "ExaoneForCausalLM",
    .prefix = "transformer.",
    .base = {LLAMA_BASE},
    TABLES(exaone_rules, exaone_keys),
};

/* ---- Granite 4 ---- */

/* The small models of a class of hybrid ones: attention in all layers, and in
 * place of experts the feed-forward that all tokens share, gate and up in one
 * tensor. Granite's function, then, with Granite's four factors. Other layers,
 * experts, and a model without positions, which is the default, are refused;
 * what Mamba's layers would be is checked by the class in any case. */
static const struct gpt_hf_rule granite_hybrid_rules[] = {
    LLAMA_ATTENTION,
    LLAMA_NORM2,
    RULE(GATE_WEIGHT, FIRST, "layers.%.shared_mlp.input_linear.weight"),
    RULE(FC1_WEIGHT, SECOND, "layers.%.shared_mlp.input_linear.weight"),
    RULE(FC2_WEIGHT, SAME, "layers.%.shared_mlp.output_linear.weight"),
    LLAMA_ENDS,
};
/* The width of the feed-forward is that of what is shared: "intermediate_size"
 * is that of experts. */
static const struct gpt_hf_key granite_hybrid_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    KEY("attention_multiplier", SCORE_SCALE, "1"),
    BOS("1"),
    {"embedding_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(embedding_multiplier)},
    EOS("2"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    KEY("init_method", UNUSED, "null"),
    INIT("0.02"),
    KEY("intermediate_size", UNUSED, "null"),
    KEY("layer_types", ATTENTION, NULL),
    {"logits_scaling", NULL, GPT_HF_DIVISOR, "1", AT(logit_multiplier)},
    KEY("mamba_chunk_size", UNUSED, "null"),
    KEY("mamba_conv_bias", UNUSED, "null"),
    KEY("mamba_d_conv", UNUSED, "null"),
    KEY("mamba_d_head", UNUSED, "null"),
    KEY("mamba_d_state", UNUSED, "null"),
    KEY("mamba_expand", UNUSED, "null"),
    KEY("mamba_n_groups", UNUSED, "null"),
    /* one divides every width */
    KEY("mamba_n_heads", NOTE, "1"),
    KEY("mamba_proj_bias", UNUSED, "null"),
    POSITIONS("2048"),
    TYPE,
    KEY("normalization_function", ONLY, "\"rmsnorm\""),
    HEADS("32"),
    KEY("num_experts_per_tok", UNUSED, "null"),
    LAYERS("32"),
    KV_HEADS("0"),
    KEY("num_local_experts", SAID, "0"),
    KEY("output_router_logits", UNUSED, "null"),
    NO_PAD,
    KEY("position_embedding_type", SAID, "\"rope\""),
    {"residual_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(residual_multiplier)},
    RMS_EPS("1e-6"),
    ROPE("10000"),
    KEY("router_aux_loss_coef", UNUSED, "null"),
    SIZE("shared_intermediate_size", ffn_hidden_size, "1024"),
    TIED("false"),
    KEY("time_step_limit", UNUSED, "null"),
    DTYPE,
    CACHE,
    VOCAB("32000"),
};
const struct gpt_hf_family gpt_hf_granite_hybrid = {
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(granite_hybrid_rules, granite_hybrid_keys),
};

/* ---- CWM, Ministral, IQuest-Coder ---- */

/* Three more descendants of Llama: with windows in most layers, in those of a
 * list, and without any. The first has Llama 3's scaling where a file has no
 * object of rotary positions, and a list of its own where a file has none:
 * that begins with a full layer, which no number here says. All files have it.
 */
static const struct gpt_hf_key cwm_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("128000"),
    EOS("128001"),
    HEAD_DIM("128"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("6144"),
    INIT("0.02"),
    FFN("21504"),
    KEY("layer_types", LAYER_TYPES, NULL),
    POSITIONS("131072"),
    NO_MLP_BIAS,
    TYPE,
    HEADS("48"),
    LAYERS("64"),
    KV_HEADS("8"),
    RMS_EPS("1e-5"),
    ROPE_OF("{\"rope_type\": \"llama3\", \"rope_theta\": 1000000,"
            " \"factor\": 16, \"original_max_position_embeddings\": 8192,"
            " \"low_freq_factor\": 1, \"high_freq_factor\": 4}",
            "1000000"),
    KEY("sliding_window", WINDOW, "8192"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("128256"),
};
const struct gpt_hf_family gpt_hf_cwm = {
    .model_type = "cwm",
    .architecture = "CwmForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, cwm_keys),
};

/* Mistral's keys and a list of layers; without one all have the window. Files
 * of before that class are of the type of Mistral, and have no such list: the
 * same model, with the window in all layers or in none. */
static const struct gpt_hf_key ministral_keys[] = {
    ARCHITECTURES,
    ATTENTION_DROPOUT,
    BOS("1"),
    EOS("2"),
    HEAD_DIM("0"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("14336"),
    KEY("layer_types", LAYER_TYPES, "null"),
    POSITIONS("131072"),
    TYPE,
    HEADS("32"),
    LAYERS("32"),
    KV_HEADS("8"),
    RMS_EPS("1e-6"),
    ROPE("10000"),
    KEY("sliding_window", WINDOW, "4096"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("32000"),
};
const struct gpt_hf_family gpt_hf_ministral = {
    .model_type = "ministral",
    .architecture = "MinistralForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, ministral_keys),
};

/* transformers computes it by Llama's class, which is why a window is refused
 * there: its original implementation had one, and no model that was published
 * has it. */
static const struct gpt_hf_key iquest_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("1"),
    EOS("2"),
    HEAD_DIM("128"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("5120"),
    INIT("0.02"),
    FFN("27648"),
    POSITIONS("131072"),
    NO_MLP_BIAS,
    TYPE,
    HEADS("40"),
    LAYERS("80"),
    KV_HEADS("8"),
    NO_PAD,
    RMS_EPS("1e-5"),
    ROPE("10000"),
    TIED("false"),
    DTYPE,
    CACHE,
    KEY("use_sliding_window", MUST, "false"),
    VOCAB("76800"),
};
const struct gpt_hf_family gpt_hf_iquest = {
    .model_type = "iquestcoder",
    .architecture = "IQuestCoderForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, iquest_keys),
};
