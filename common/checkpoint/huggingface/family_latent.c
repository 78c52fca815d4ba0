/* Families of Hugging Face with latent attention, DeepSeek's and those of its
 * kind, with experts and without. See family.h, and rows_experts.h for experts.
 *
 * Norms of the rows that heads are made of have an epsilon of their own, which
 * is the default of the class's norm, whatever config.json says of others. */
#include "checkpoint/huggingface/derived.h"
#include "checkpoint/huggingface/rows_experts.h"

#define LATENT \
    .latent_norm_epsilon = 1e-6, .rotary_interleaved = true

/* Queries are made of a row of their own, or of the stream. */
#define LATENT_QKV                                                           \
    RULE(Q_PROJ, SAME, "layers.%.self_attn.q_proj.weight"),                  \
    RULE(Q_DOWN, SAME, "layers.%.self_attn.q_a_proj.weight"),                \
    RULE(Q_LATENT_NORM, SAME, "layers.%.self_attn.q_a_layernorm.weight"),    \
    RULE(Q_UP, SAME, "layers.%.self_attn.q_b_proj.weight"),                  \
    RULE(KV_DOWN, KV_ROWS, "layers.%.self_attn.kv_a_proj_with_mqa.weight"),  \
    RULE(K_TURNED, TURNED_ROWS,                                              \
         "layers.%.self_attn.kv_a_proj_with_mqa.weight"),                    \
    RULE(KV_LATENT_NORM, SAME, "layers.%.self_attn.kv_a_layernorm.weight"),  \
    RULE(KV_UP, SAME, "layers.%.self_attn.kv_b_proj.weight")

/* What newer versions compute of the others, and write. */
#define LATENT_KEYS(kv, q, nope, turned, value)                              \
    KEY("head_dim", UNUSED, "null"),                                         \
    KEY("qk_head_dim", UNUSED, "null"),                                      \
    SIZE("kv_lora_rank", kv_lora_rank, kv),                                  \
    {"q_lora_rank", NULL, GPT_HF_SIZE_OR_NONE, q, AT(q_lora_rank)},          \
    SIZE("qk_nope_head_dim", qk_head_dim, nope),                             \
    SIZE("qk_rope_head_dim", qk_pos_emb_head_dim, turned),                   \
    SIZE("v_head_dim", v_head_dim, value)
#define INTERLEAVE FLAG("rope_interleave", rotary_interleaved, "true")
/* What was of training, or of other implementations. */
#define DEEPSEEK_NOTES                                                       \
    KEY("aux_loss_alpha", UNUSED, "null"),                                   \
    KEY("ep_size", UNUSED, "null"),                                          \
    KEY("num_mtp_layers", UNUSED, "null"),                                   \
    KEY("num_nextn_predict_layers", UNUSED, "null"),                         \
    KEY("seq_aux", UNUSED, "null")

/* ---- DeepSeek V3, Kimi K2, Moonlight ---- */

/* The bias of routers is a number of the class, and no parameter. A layer that
 * predicts further words is left out, as transformers does. */
static const struct gpt_hf_rule deepseek_rules[] = {
    LLAMA_WORDS, LATENT_QKV, LLAMA_PROJ, LLAMA_MLP, EACH_EXPERT,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    RULE(ROUTER_BIAS, SAME, "layers.%.mlp.gate.e_score_correction_bias"),
    SHARED_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
/* What families of this function have in common: of keys, and of the rest. */
#define DEEPSEEK_KEYS                                                        \
    LLAMA_KEYS, ENDS("0", "1"), NO_ATTENTION_BIAS, NO_PAD, ROUTER_NOTES,     \
    DEEPSEEK_NOTES, INTERLEAVE
#define DEEPSEEK_CLASS(keys)                                                 \
    .prefix = "model.", .predicts = true, .sharpens_scores = true,           \
    .base = {LLAMA_BASE, LATENT, SIGMOID}, TABLES(deepseek_rules, keys),     \
    MEMORY(stacked)
static const struct gpt_hf_key deepseek_v3_keys[] = {
    DEEPSEEK_KEYS,
    HIDDEN("7168"), FFN("18432"), LAYERS("61"), HEADS("128"), KV_HEADS("0"),
    LATENT_KEYS("512", "1536", "128", "64", "128"),
    POSITIONS("4096"), VOCAB("129280"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    EXPERT_KEY("first_k_dense_replace", FROM, "3"),
    KEY("moe_layer_freq", ONLY, "1"),
    EXPERTS("n_routed_experts", "num_local_experts", "256"),
    EXPERT_GROUPS("8", "4"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("moe_intermediate_size", "2048"),
    EXPERT_KEY("n_shared_experts", SHARED, "1"),
    NORM_TOP("true"),
    SCALED_TOP("routed_scaling_factor", "2.5"),
    KEY("scoring_func", ONLY, "\"sigmoid\""),
    KEY("topk_method", ONLY, "\"noaux_tc\""),
};
const struct gpt_hf_family gpt_hf_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    DEEPSEEK_CLASS(deepseek_v3_keys),
};

/* The same class under another name, whose files bring it along. */
const struct gpt_hf_family gpt_hf_kimi_k2 = {
    .model_type = "kimi_k2",
    .architecture = "DeepseekV3ForCausalLM",
    DEEPSEEK_CLASS(deepseek_v3_keys),
};

/* ---- GLM 4.7 Flash ---- */

/* The same, where a list says which layers have experts. */
static const struct gpt_hf_key glm4_lite_keys[] = {
    DEEPSEEK_KEYS,
    HIDDEN("2048"), FFN("10240"), LAYERS("47"), HEADS("20"), KV_HEADS("0"),
    LATENT_KEYS("512", "768", "192", "64", "256"),
    POSITIONS("202752"), VOCAB("154880"), RMS_EPS("1e-5"), ROPE("10000"),
    TIED("false"),
    EXPERT_KEY("first_k_dense_replace", FROM, "1"),
    EXPERT_KEY("mlp_layer_types", TYPES, "null"),
    EXPERTS("n_routed_experts", "num_local_experts", "64"),
    EXPERT_GROUPS("1", "1"),
    TOP("num_experts_per_tok", "4"),
    EXPERT_FFN("moe_intermediate_size", "1536"),
    EXPERT_KEY("n_shared_experts", SHARED, "1"),
    NORM_TOP("true"),
    SCALED_TOP("routed_scaling_factor", "1.8"),
    KEY("topk_method", ONLY, "\"noaux_tc\""),
};
const struct gpt_hf_family gpt_hf_glm4_lite = {
    .model_type = "glm4_moe_lite",
    .architecture = "Glm4MoeLiteForCausalLM",
    DEEPSEEK_CLASS(glm4_lite_keys),
};

/* ---- DeepSeek V2 ---- */

/* A softmax of all experts, whose scores are the weights: the class does not
 * divide by their sum, whatever norm_topk_prob says. A group of experts is
 * chosen by its best. */
static const struct gpt_hf_rule deepseek_v2_rules[] = {
    LLAMA_WORDS, LATENT_QKV, LLAMA_PROJ, LLAMA_MLP, EACH_EXPERT,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    SHARED_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_key deepseek_v2_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), NO_ATTENTION_BIAS, NO_MLP_BIAS, NO_PAD,
    ROUTER_NOTES, DEEPSEEK_NOTES,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    LATENT_KEYS("512", "1536", "128", "64", "128"),
    POSITIONS("2048"), VOCAB("102400"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    EXPERT_KEY("first_k_dense_replace", FROM, "0"),
    KEY("moe_layer_freq", ONLY, "1"),
    EXPERTS("n_routed_experts", "num_experts", "64"),
    EXPERT_GROUPS("null", "null"),
    TOP("num_experts_per_tok", NULL),
    EXPERT_FFN("moe_intermediate_size", "1407"),
    EXPERT_KEY("n_shared_experts", SHARED, "2"),
    KEY("norm_topk_prob", MUST, "false"),
    SCALED_TOP("routed_scaling_factor", "1"),
    KEY("scoring_func", ONLY, "\"softmax\""),
    EXPERT_KEY("topk_method", METHOD, "\"greedy\""),
};
const struct gpt_hf_family gpt_hf_deepseek_v2 = {
    .model_type = "deepseek_v2",
    .architecture = "DeepseekV2ForCausalLM",
    .prefix = "model.",
    .sharpens_scores = true,
    .base = {LLAMA_BASE, LATENT, .moe_router_pre_softmax = true},
    TABLES(deepseek_v2_rules, deepseek_v2_keys),
    MEMORY(stacked),
};

/* ---- Youtu ---- */

/* Without experts. */
static const struct gpt_hf_rule youtu_rules[] = {
    LLAMA_WORDS, LATENT_QKV, LLAMA_PROJ, LLAMA_MLP, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_key youtu_keys[] = {
    LLAMA_KEYS, ENDS("128000", "128001"), NO_ATTENTION_BIAS, NO_MLP_BIAS,
    NO_PAD, INTERLEAVE,
    KEY("embedding_initializer_range", UNUSED, "null"),
    HIDDEN("2048"), FFN("6144"), LAYERS("32"), HEADS("16"), KV_HEADS("0"),
    LATENT_KEYS("512", "1536", "128", "64", "128"),
    POSITIONS("131072"), VOCAB("128256"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("true"),
};
const struct gpt_hf_family gpt_hf_youtu = {
    .model_type = "youtu",
    .architecture = "YoutuForCausalLM",
    .prefix = "model.",
    .sharpens_scores = true,
    .base = {LLAMA_BASE, LATENT},
    TABLES(youtu_rules, youtu_keys),
};

/* ---- MiniCPM 3 ---- */

/* MiniCPM's factors, and halves of what turns where others turn neighbours. A
 * value has the width over the heads where nothing is said. */
static const struct gpt_hf_key minicpm3_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), NO_ATTENTION_BIAS, NO_MLP_BIAS, NO_PAD,
    {"dim_model_base", NULL, GPT_HF_DERIVED, "256", GPT_HF_BASE_WIDTH},
    {"scale_depth", NULL, GPT_HF_DERIVED, "1.4", GPT_HF_DEPTH},
    {"scale_emb", NULL, GPT_HF_MULTIPLIER, "12", AT(embedding_multiplier)},
    HIDDEN("2560"), FFN("6400"), LAYERS("62"), HEADS("40"), KV_HEADS("0"),
    LATENT_KEYS("256", "768", "64", "32", "0"),
    POSITIONS("32768"), VOCAB("73448"), RMS_EPS("1e-5"), ROPE("10000"),
    TIED("true"),
};
const struct gpt_hf_family gpt_hf_minicpm3 = {
    .model_type = "minicpm3",
    .architecture = "MiniCPM3ForCausalLM",
    .prefix = "model.",
    .sharpens_scores = true,
    .base = {LLAMA_BASE, .latent_norm_epsilon = 1e-6},
    TABLES(youtu_rules, minicpm3_keys),
};
