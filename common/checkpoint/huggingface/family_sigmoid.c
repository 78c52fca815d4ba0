/* Families of Hugging Face with experts that are scored one by one, by a
 * sigmoid, or chosen by their score and a bias: DeepSeek's kind of routers with
 * other attention than DeepSeek's. Which layers have none, and a feed-forward
 * that all tokens share, have keys of several names. See family_experts.c.
 *
 * The bias is no parameter of the class, which keeps it as a number of fp32:
 * files have it in that type. Layers that predict further words are left out,
 * as transformers does. */
#include "checkpoint/huggingface/rows_experts.h"

/* What newer files say of all of them. */
#define SIGMOID_NOTES                                 \
    KEY("num_nextn_predict_layers", UNUSED, "null"),  \
    KEY("scoring_func", UNUSED, "null"),              \
    KEY("topk_method", UNUSED, "null")

/* ---- GLM 4.5, dots.llm1, Solar Open ---- */

static const struct gpt_hf_rule glm4_moe_rules[] = {
    LLAMA_ATTENTION, LLAMA_MLP, EACH_EXPERT,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.gate.e_score_correction_bias"),
    SHARED_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
/* Half of a head turns. Norms of heads are those of one of its sizes. */
static const struct gpt_hf_key glm4_moe_keys[] = {
    LLAMA_KEYS, ENDS("null", "null"), QKV_BIAS("false"), NO_PAD, ROUTER_NOTES,
    SIGMOID_NOTES, EXPERT_GROUPS("1", "1"),
    HIDDEN("4096"), FFN("10944"), LAYERS("46"), HEADS("96"), KV_HEADS("8"),
    OWN_HEAD_DIM,
    POSITIONS("131072"), VOCAB("151552"), RMS_EPS("1e-5"), ROPE("10000"),
    TIED("false"),
    EXPERT_KEY("first_k_dense_replace", FROM, "1"),
    EXPERTS("n_routed_experts", "num_local_experts", "128"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("moe_intermediate_size", "1408"),
    EXPERT_KEY("n_shared_experts", SHARED, "1"),
    NORM_TOP("true"),
    KEY("num_mtp_layers", UNUSED, "null"),
    ROTARY_SHARE("0.5"),
    SCALED_TOP("routed_scaling_factor", "1"),
    FLAG("use_qk_norm", qk_norm, "false"),
};
const struct gpt_hf_family gpt_hf_glm4_moe = {
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .prefix = "model.",
    .predicts = true,
    .base = {LLAMA_BASE, SIGMOID},
    TABLES(glm4_moe_rules, glm4_moe_keys),
    MEMORY(stacked),
};

/* A window is in the class, and in no model. */
static const struct gpt_hf_key dots1_keys[] = {
    LLAMA_KEYS, ENDS("null", "null"), ATTENTION_BIAS, NO_PAD, ROUTER_NOTES,
    SIGMOID_NOTES, EXPERT_GROUPS("1", "1"),
    HIDDEN("4608"), FFN("10944"), LAYERS("62"), HEADS("32"), KV_HEADS("32"),
    OWN_HEAD_DIM,
    POSITIONS("2048"), VOCAB("152064"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    EXPERT_KEY("first_k_dense_replace", FROM, "0"),
    KEY("layer_types", LAYER_TYPES, "null"),
    KEY("max_window_layers", WINDOW_LAYERS, "62"),
    KEY("moe_layer_freq", ONLY, "1"),
    EXPERTS("n_routed_experts", "num_local_experts", NULL),
    TOP("num_experts_per_tok", NULL),
    EXPERT_FFN("moe_intermediate_size", "1408"),
    EXPERT_KEY("n_shared_experts", SHARED, NULL),
    NORM_TOP("false"),
    SCALED_TOP("routed_scaling_factor", "1"),
    KEY("sliding_window", WINDOW, "4096"),
    KEY("use_sliding_window", ONLY, "false"),
};
const struct gpt_hf_family gpt_hf_dots1 = {
    .model_type = "dots1",
    .architecture = "Dots1ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, SIGMOID, .qk_norm = true},
    TABLES(glm4_moe_rules, dots1_keys),
    MEMORY(stacked),
};

static const struct gpt_hf_key solar_open_keys[] = {
    LLAMA_KEYS, ENDS("null", "null"), QKV_BIAS("false"), NO_PAD, ROUTER_NOTES,
    SIGMOID_NOTES, EXPERT_GROUPS("1", "1"),
    HIDDEN("4096"), LAYERS("48"), HEADS("64"), KV_HEADS("8"),
    HEAD_DIM("128"), POSITIONS("131072"), VOCAB("196608"), RMS_EPS("1e-5"),
    ROPE("1000000"), TIED("false"),
    KEY("first_k_dense_replace", ONLY, "0"),
    KEY("intermediate_size", UNUSED, "null"),
    EXPERTS("n_routed_experts", "num_local_experts", "128"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("moe_intermediate_size", "1280"),
    EXPERT_KEY("n_shared_experts", SHARED, "1"),
    NORM_TOP("true"),
    ROTARY_SHARE("1"),
    SCALED_TOP("routed_scaling_factor", "1"),
    KEY("use_qk_norm", MUST, "false"),
};
const struct gpt_hf_family gpt_hf_solar_open = {
    .model_type = "solar_open",
    .architecture = "SolarOpenForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, SIGMOID},
    TABLES(glm4_moe_rules, solar_open_keys),
    MEMORY(stacked),
};

/* ---- Sarvam ---- */

/* GLM 4.5's function with a head that turns as a whole, under names of an older
 * implementation, whose queries, keys and values are one tensor. */
static const struct gpt_hf_rule sarvam_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "word_embeddings.weight"),
    RULE(QKV_WEIGHT, QKV, "layers.%.attention.query_key_value.weight"),
    RULE(QKV_BIAS, QKV, "layers.%.attention.query_key_value.bias"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.attention.dense.weight"),
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.attention.query_layernorm.weight"),
    RULE(K_NORM_WEIGHT, SAME, "layers.%.attention.key_layernorm.weight"),
    LLAMA_MLP, EACH_EXPERT,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.gate.expert_bias"),
    SHARED_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_rule sarvam_memory[] = {
    LLAMA_ATTENTION, STACKED_EXPERTS,
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.gate.e_score_correction_bias"),
};
static const struct gpt_hf_key sarvam_keys[] = {
    LLAMA_KEYS, ENDS("null", "1"), NO_PAD, ROUTER_NOTES,
    SIGMOID_NOTES, EXPERT_GROUPS("1", "1"),
    HIDDEN("4096"), FFN("8192"), LAYERS("19"), HEADS("64"), KV_HEADS("4"),
    HEAD_DIM("64"), POSITIONS("131072"), VOCAB("262144"), RMS_EPS("1e-6"),
    ROPE("8000000"), TIED("false"),
    {"attention_bias", "use_qkv_bias", GPT_HF_QKV_BIAS, "false", 0},
    EXPERT_KEY("first_k_dense_replace", FROM, "1"),
    EXPERTS("n_routed_experts", "num_experts", "128"),
    TOP("num_experts_per_tok", "6"),
    EXPERT_FFN("moe_intermediate_size", "1024"),
    {"n_shared_experts", "num_shared_experts", GPT_HF_EXPERTS, "1",
     GPT_HF_SHARED},
    NORM_TOP("true"),
    KEY("num_mtp_layers", UNUSED, "null"),
    ROTARY_SHARE("1"),
    SCALED_TOP("routed_scaling_factor", "2.5"),
    FLAG("use_qk_norm", qk_norm, "true"),
};
const struct gpt_hf_family gpt_hf_sarvam_moe = {
    .model_type = "sarvam_moe",
    .architecture = "SarvamMoEForCausalLM",
    .prefix = "model.",
    .predicts = true,
    .base = {LLAMA_BASE, SIGMOID},
    TABLES(sarvam_rules, sarvam_keys),
    MEMORY(sarvam_memory),
};

/* ---- EXAONE MoE ---- */

/* EXAONE 4's windows, with norms before blocks. */
static const struct gpt_hf_rule exaone_moe_rules[] = {
    LLAMA_ATTENTION, LLAMA_MLP,
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.e_score_correction_bias"),
    EACH_EXPERT,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    SHARED_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_rule exaone_moe_memory[] = {
    STACKED_EXPERTS,
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.gate.e_score_correction_bias"),
};
static const struct gpt_hf_key exaone_moe_keys[] = {
    LLAMA_KEYS, ENDS("1", "53"), NO_PAD, ROUTER_NOTES, SIGMOID_NOTES,
    EXPERT_GROUPS("1", "1"),
    HIDDEN("4096"), FFN("16384"), LAYERS("32"), HEADS("32"), KV_HEADS("32"),
    OWN_HEAD_DIM,
    POSITIONS("2048"), VOCAB("102400"), RMS_EPS("1e-5"), ROPE("10000"),
    TIED("false"),
    EXPERT_KEY("first_k_dense_replace", FROM, "1"),
    KEY("is_moe_layer", UNUSED, "null"),
    KEY("layer_types", LAYER_TYPES, "null"),
    EXPERT_KEY("mlp_layer_types", TYPES, "null"),
    EXPERTS("num_experts", "num_local_experts", "64"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("moe_intermediate_size", "1024"),
    EXPERT_KEY("num_shared_experts", SHARED, "1"),
    NORM_TOP("true"),
    SCALED_TOP("routed_scaling_factor", "2.5"),
    KEY("sliding_window", WINDOW, "4096"),
    KEY("sliding_window_pattern", WINDOW_EVERY, "4"),
};
const struct gpt_hf_family gpt_hf_exaone_moe = {
    .model_type = "exaone_moe",
    .architecture = "ExaoneMoeForCausalLM",
    .prefix = "model.",
    .unturned_full = true,
    .predicts = true,
    .base = {LLAMA_BASE, SIGMOID, .qk_norm = true},
    TABLES(exaone_moe_rules, exaone_moe_keys),
    MEMORY(exaone_moe_memory),
};

/* ---- Hunyuan 3 ---- */

/* Norms of heads come before positions, unlike those of older models of it. */
static const struct gpt_hf_rule hy_v3_rules[] = {
    LLAMA_ATTENTION, LLAMA_MLP,
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.expert_bias"),
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.router.gate.weight"),
    EACH_EXPERT, SHARED_MLP, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_rule hy_v3_memory[] = {
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.e_score_correction_bias"),
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    STACKED_EXPERTS, SHARED_EXPERTS,
};
static const struct gpt_hf_key hy_v3_keys[] = {
    LLAMA_KEYS, ENDS("null", "null"), ATTENTION_BIAS, NO_MLP_BIAS, NO_PAD,
    ROUTER_NOTES, SIGMOID_NOTES,
    HIDDEN("4096"), FFN("13312"), LAYERS("80"), HEADS("64"), KV_HEADS("8"),
    HEAD_DIM("128"), POSITIONS("131072"), VOCAB("120832"), RMS_EPS("1e-5"),
    ROPE("11158840"), TIED("false"),
    /* which type a sum has in bf16 */
    KEY("enable_moe_fp32_combine", UNUSED, "null"),
    EXPERT_KEY("first_k_dense_replace", FROM, "1"),
    EXPERT_KEY("mlp_layer_types", TYPES, "null"),
    EXPERTS("num_experts", "num_local_experts", "192"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("moe_intermediate_size", "1536"),
    EXPERT_KEY("num_shared_experts", SHARED, "1"),
    SCALED_TOP("router_scaling_factor", "2.826"),
};
const struct gpt_hf_family gpt_hf_hy_v3 = {
    .model_type = "hy_v3",
    .architecture = "HYV3ForCausalLM",
    .prefix = "model.",
    .predicts = true,
    .base = {LLAMA_BASE, SIGMOID, .qk_norm = true},
    TABLES(hy_v3_rules, hy_v3_keys),
    MEMORY(hy_v3_memory),
};

/* ---- MiniMax M2 ---- */

/* All layers have experts, none of them shared; queries and keys are normed
 * together, and a part of a head turns. */
static const struct gpt_hf_rule minimax_m2_rules[] = {
    LLAMA_ATTENTION,
    RULE(ROUTER_BIAS, SAME,
         "layers.%.block_sparse_moe.e_score_correction_bias"),
    RULE(ROUTER_WEIGHT, SAME, "layers.%.block_sparse_moe.gate.weight"),
    MIXTRAL_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_rule minimax_m2_memory[] = {
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.e_score_correction_bias"),
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    STACKED_EXPERTS,
};
static const struct gpt_hf_key minimax_m2_keys[] = {
    LLAMA_KEYS, ENDS("200034", "200020"), NO_PAD, ROUTER_NOTES, SIGMOID_NOTES,
    HIDDEN("3072"), LAYERS("62"), HEADS("48"), KV_HEADS("8"),
    HEAD_DIM("128"), POSITIONS("196608"), VOCAB("200064"), RMS_EPS("1e-6"),
    ROPE("5000000"), TIED("false"),
    KEY("attn_type_list", UNUSED, "null"),
    EXPERTS("num_local_experts", "num_experts", "256"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("intermediate_size", "1536"),
    KEY("mtp_transformer_layers", UNUSED, "null"),
    KEY("num_mtp_modules", UNUSED, "null"),
    KEY("qk_norm_type", ONLY, "\"per_layer\""),
    /* older files have the second one, newer ones the first */
    ROTARY_SHARE("1"),
    KEY("rotary_dim", ROTARY_SIZE, "null"),
    KEY("shared_intermediate_size", ONLY, "0"),
    KEY("use_mtp", UNUSED, "null"),
    KEY("use_qk_norm", ONLY, "true"),
    KEY("use_routing_bias", ONLY, "true"),
};
const struct gpt_hf_family gpt_hf_minimax_m2 = {
    .model_type = "minimax_m2",
    .architecture = "MiniMaxM2ForCausalLM",
    .prefix = "model.",
    .predicts = true,
    .base = {LLAMA_BASE, SIGMOID, .qk_norm = true, .qk_norm_whole = true},
    TABLES(minimax_m2_rules, minimax_m2_keys),
    MEMORY(minimax_m2_memory),
};

/* ---- Ernie 4.5 MoE ---- */

/* Ernie's layer. Scores are a softmax, and the bias is in a tensor of one row.
 * Experts are in layers from one to another, every so many-th of them. */
static const struct gpt_hf_rule ernie_moe_rules[] = {
    LLAMA_WORDS, LLAMA_QKV, LLAMA_PROJ, LLAMA_MLP,
    RULE(ROUTER_BIAS, ONE_ROW,
         "layers.%.mlp.moe_statics.e_score_correction_bias"),
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    EACH_EXPERT, SHARED_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_rule ernie_moe_memory[] = {
    RULE(ROUTER_BIAS, ONE_ROW,
         "layers.%.mlp.gate.moe_statics.e_score_correction_bias"),
    STACKED_EXPERTS,
};
static const struct gpt_hf_key ernie_moe_keys[] = {
    ARCHITECTURES, ENDS("1", "2"), INIT("0.02"), TYPE, DTYPE, CACHE, NO_PAD,
    ROUTER_NOTES,
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("2560"), FFN("12288"), LAYERS("28"), HEADS("20"), KV_HEADS("4"),
    OWN_HEAD_DIM,
    POSITIONS("131072"), VOCAB("103424"), RMS_EPS("1e-5"), ROPE("500000"),
    TIED("true"),
    KEY("compression_ratio", ONLY, "1"),
    KEY("moe_capacity", UNUSED, "null"), /* of training */
    KEY("moe_gate", ONLY, "\"topk\""),
    EXPERT_FFN("moe_intermediate_size", "1536"),
    {"moe_k", "num_experts_per_tok", GPT_HF_SIZE, "6", AT(moe_router_topk)},
    EXPERT_KEY("moe_layer_end_index", UPTO, "-1"),
    EXPERT_KEY("moe_layer_interval", EVERY, "1"),
    EXPERT_KEY("moe_layer_start_index", FROM, "1"),
    KEY("moe_norm_min", ONLY, "1e-12"), /* no sum of shares is less */
    EXPERTS("moe_num_experts", "num_experts", "64"),
    EXPERT_KEY("moe_num_shared_experts", SHARED_OR_NONE, "2"),
    KEY("moe_use_aux_free", UNUSED, "null"),
    KEY("num_nextn_predict_layers", UNUSED, "null"),
    KEY("use_bias", MUST, "false"),
    KEY("use_rmsnorm", ONLY, "true"),
};
const struct gpt_hf_family gpt_hf_ernie_moe = {
    .model_type = "ernie4_5_moe",
    .architecture = "Ernie4_5_MoeForCausalLM",
    .prefix = "model.",
    .predicts = true,
    .base = {LLAMA_BASE, .rotary_interleaved = true,
             .moe_router_expert_bias = true},
    TABLES(ernie_moe_rules, ernie_moe_keys),
    MEMORY(ernie_moe_memory),
};
