/* Families of Hugging Face whose feed-forwards are experts, of which a router
 * gives each token some: those that score experts by a softmax of all. Others
 * are in family_sigmoid.c. See family.h.
 *
 * transformers 5 keeps all experts of a layer in two tensors while it computes,
 * and saves those of each expert, as older versions do: a family has rules for
 * both. Losses of routers (router_aux_loss_coef) are not read: there one loss
 * is of all layers together, and of no use unless output_router_logits is on;
 * here each layer has its own. Noise of routers in training is not read,
 * either. */
#include "checkpoint/huggingface/rows_experts.h"

/* ---- Mixtral ---- */

/* Mistral's layer. Weights of a token's experts add up to 1. */
static const struct gpt_hf_rule mixtral_rules[] = {
    LLAMA_WORDS, LLAMA_QKV, LLAMA_PROJ,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.block_sparse_moe.gate.weight"),
    MIXTRAL_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_rule mixtral_memory[] = {
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    STACKED_EXPERTS,
};
static const struct gpt_hf_key mixtral_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), NO_PAD, ROUTER_NOTES,
    HIDDEN("4096"), LAYERS("32"), HEADS("32"), KV_HEADS("8"), HEAD_DIM("0"),
    POSITIONS("131072"), VOCAB("32000"), RMS_EPS("1e-5"), ROPE("1000000"),
    TIED("false"),
    EXPERTS("num_local_experts", "num_experts", "8"),
    TOP("num_experts_per_tok", "2"),
    EXPERT_FFN("intermediate_size", "14336"),
    KEY("sliding_window", WINDOW, "null"),
};
const struct gpt_hf_family gpt_hf_mixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(mixtral_rules, mixtral_keys),
    MEMORY(mixtral_memory),
};

/* ---- Qwen ---- */

/* Qwen 2 with a feed-forward that all tokens share, of which a token takes as
 * much as a gate says. Layers without experts have a feed-forward of another
 * width. A window is in the class, and off in all models. */
static const struct gpt_hf_rule qwen2_moe_rules[] = {
    LLAMA_WORDS, LLAMA_QKV, LLAMA_PROJ, LLAMA_MLP,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    EACH_EXPERT,
    RULE(SHARED_GATE, SAME, "layers.%.mlp.shared_expert.gate_proj.weight"),
    RULE(SHARED_FC1, SAME, "layers.%.mlp.shared_expert.up_proj.weight"),
    RULE(SHARED_FC2, SAME, "layers.%.mlp.shared_expert.down_proj.weight"),
    RULE(SHARED_ROUTER, SAME, "layers.%.mlp.shared_expert_gate.weight"),
    LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_key qwen2_moe_keys[] = {
    LLAMA_KEYS, ENDS("null", "null"), NO_PAD, ROUTER_NOTES, QWEN_EXPERTS,
    HIDDEN("2048"), FFN("5632"), LAYERS("24"), HEADS("16"), KV_HEADS("16"),
    OWN_HEAD_DIM,
    POSITIONS("32768"), VOCAB("151936"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    KEY("layer_types", LAYER_TYPES, "null"),
    KEY("max_window_layers", UNUSED, "null"),
    EXPERTS("num_experts", "num_local_experts", "60"),
    TOP("num_experts_per_tok", "4"),
    EXPERT_FFN("moe_intermediate_size", "1408"),
    KEY("qkv_bias", QKV_BIAS, "true"),
    SIZE("shared_expert_intermediate_size",
         moe_shared_expert_intermediate_size, "5632"),
    KEY("sliding_window", UNUSED, "null"),
    KEY("use_sliding_window", MUST, "false"),
};
const struct gpt_hf_family gpt_hf_qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .moe_shared_expert_gate = true},
    TABLES(qwen2_moe_rules, qwen2_moe_keys),
    MEMORY(stacked),
};

/* Norms of heads instead of biases, as in Qwen 3, and nothing shared. */
static const struct gpt_hf_rule llama_moe_rules[] = {
    LLAMA_ATTENTION, EACH_EXPERT,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    LLAMA_MLP, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_key qwen3_moe_keys[] = {
    LLAMA_KEYS, ENDS("null", "null"), ATTENTION_BIAS, NO_PAD, ROUTER_NOTES,
    QWEN_EXPERTS,
    HIDDEN("2048"), FFN("6144"), LAYERS("24"), HEADS("32"), KV_HEADS("4"),
    OWN_HEAD_DIM,
    POSITIONS("32768"), VOCAB("151936"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    KEY("max_window_layers", UNUSED, "null"),
    EXPERTS("num_experts", "num_local_experts", "128"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("moe_intermediate_size", "768"),
    KEY("sliding_window", WINDOW, "4096"),
    KEY("use_sliding_window", USE_WINDOW, "false"),
};
const struct gpt_hf_family gpt_hf_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .qk_norm = true},
    TABLES(llama_moe_rules, qwen3_moe_keys),
    MEMORY(stacked),
};

/* ---- Mellum ---- */

/* Qwen 3's, with windows, beside which layers have two bases of angles. */
static const struct gpt_hf_key mellum_keys[] = {
    LLAMA_KEYS, ENDS("null", "null"), ATTENTION_BIAS, NO_PAD, ROUTER_NOTES,
    HIDDEN("2304"), FFN("7168"), LAYERS("28"), HEADS("32"), KV_HEADS("4"),
    HEAD_DIM("128"), POSITIONS("131072"), VOCAB("98304"), RMS_EPS("1e-6"),
    TIED("false"),
    KEY("layer_types", LAYER_TYPES, NULL),
    EXPERT_KEY("mlp_layer_types", TYPES, "null"),
    KEY("mtp_layer_types", UNUSED, "null"),
    KEY("mtp_mlp_layer_types", UNUSED, "null"),
    EXPERTS("num_experts", "num_local_experts", "64"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("moe_intermediate_size", "896"),
    NORM_TOP("true"),
    KEY("num_mtp_layers", UNUSED, "null"),
    KEY("num_nextn_predict_layers", UNUSED, "null"),
    KEY("rope_parameters", TWO_PARAMETERS, NULL),
    KEY("sliding_window", WINDOW, "1024"),
};
const struct gpt_hf_family gpt_hf_mellum = {
    .model_type = "mellum",
    .architecture = "MellumForCausalLM",
    .prefix = "model.",
    .local_angles = true,
    .counts_window = true,
    .predicts = true,
    .base = {LLAMA_BASE, .qk_norm = true},
    TABLES(llama_moe_rules, mellum_keys),
    MEMORY(stacked),
};

/* ---- OLMoE and FlexOlmo ---- */

/* Norms of all queries and all keys together. The class clips what they give,
 * where OLMo's clips what they would read: no model that was published has it
 * on. */
static const struct gpt_hf_rule olmoe_rules[] = {
    LLAMA_ATTENTION,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    EACH_EXPERT, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_key olmoe_keys[] = {
    LLAMA_KEYS, ENDS("null", "50279"), ATTENTION_BIAS, NO_PAD, ROUTER_NOTES,
    HIDDEN("2048"), LAYERS("16"), HEADS("16"), KV_HEADS("0"),
    POSITIONS("4096"), VOCAB("50304"), RMS_EPS("1e-5"), ROPE("10000"),
    TIED("false"),
    KEY("clip_qkv", MUST, "null"),
    EXPERTS("num_experts", "num_local_experts", "64"),
    TOP("num_experts_per_tok", "8"),
    EXPERT_FFN("intermediate_size", "2048"),
    NORM_TOP("false"),
};
const struct gpt_hf_family gpt_hf_olmoe = {
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_whole = true},
    TABLES(olmoe_rules, olmoe_keys),
    MEMORY(stacked),
};

/* OLMo 2's layer: norms are after blocks alone. */
static const struct gpt_hf_rule flex_olmo_rules[] = {
    LLAMA_ATTENTION,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    EACH_EXPERT,
    RULE(POST1_WEIGHT, SAME, "layers.%.post_attention_layernorm.weight"),
    RULE(POST2_WEIGHT, SAME, "layers.%.post_feedforward_layernorm.weight"),
    LLAMA_ENDS,
};
static const struct gpt_hf_key flex_olmo_keys[] = {
    LLAMA_KEYS, ENDS("null", "100257"), ATTENTION_BIAS, NO_PAD, ROUTER_NOTES,
    HIDDEN("4096"), LAYERS("32"), HEADS("32"), KV_HEADS("0"), OWN_HEAD_DIM,
    POSITIONS("4096"), VOCAB("100352"), RMS_EPS("1e-6"), ROPE("500000"),
    TIED("false"),
    EXPERTS("num_experts", "num_local_experts", "7"),
    TOP("num_experts_per_tok", "5"),
    EXPERT_FFN("intermediate_size", "11008"),
    NORM_TOP("false"),
};
const struct gpt_hf_family gpt_hf_flex_olmo = {
    .model_type = "flex_olmo",
    .architecture = "FlexOlmoForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_whole = true,
             .post_norm = true, .no_pre_norm = true},
    TABLES(flex_olmo_rules, flex_olmo_keys),
    MEMORY(stacked),
};

/* ---- Granite ---- */

/* Granite's layer and its four factors. All experts are in one tensor, in files
 * too. The softmax is that of a token's experts alone: the same weights as
 * those of a softmax of all that are made to add up to 1. */
#define GRANITE_EXPERTS                                                     \
    RULE(ROUTER_WEIGHT, SAME, "layers.%.block_sparse_moe.router.layer.weight"),\
    RULE(EXPERTS_FC1, STACKED,                                              \
         "layers.%.block_sparse_moe.input_linear.weight"),                  \
    RULE(EXPERTS_FC2, STACKED,                                              \
         "layers.%.block_sparse_moe.output_linear.weight"),                 \
    RULE(SHARED_GATE, FIRST, "layers.%.shared_mlp.input_linear.weight"),    \
    RULE(SHARED_FC1, SECOND, "layers.%.shared_mlp.input_linear.weight"),    \
    RULE(SHARED_FC2, SAME, "layers.%.shared_mlp.output_linear.weight")
static const struct gpt_hf_rule granite_moe_rules[] = {
    LLAMA_WORDS, LLAMA_QKV, LLAMA_PROJ, LLAMA_NORMS, GRANITE_EXPERTS,
    LLAMA_ENDS,
};
static const struct gpt_hf_rule granite_moe_memory[] = {
    RULE(ROUTER_WEIGHT, SAME, "layers.%.block_sparse_moe.router.weight"),
    RULE(EXPERTS_FC1, STACKED,
         "layers.%.block_sparse_moe.experts.gate_up_proj"),
    RULE(EXPERTS_FC2, STACKED,
         "layers.%.block_sparse_moe.experts.down_proj"),
};
#define GRANITE_MOE_KEYS                                                    \
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, NO_PAD, ROUTER_NOTES,       \
    HIDDEN("4096"), LAYERS("32"), HEADS("32"), KV_HEADS("0"), OWN_HEAD_DIM, \
    POSITIONS("2048"), VOCAB("32000"), RMS_EPS("1e-6"), ROPE("10000"),      \
    TIED("false"),                                                          \
    KEY("attention_multiplier", SCORE_SCALE, "1"),                          \
    {"embedding_multiplier", NULL, GPT_HF_MULTIPLIER, "1",                  \
     AT(embedding_multiplier)},                                             \
    {"logits_scaling", NULL, GPT_HF_DIVISOR, "1", AT(logit_multiplier)},    \
    {"residual_multiplier", NULL, GPT_HF_MULTIPLIER, "1",                   \
     AT(residual_multiplier)},                                              \
    EXPERTS("num_local_experts", "num_experts", "8"),                       \
    TOP("num_experts_per_tok", "2"),                                        \
    EXPERT_FFN("intermediate_size", "11008")
#define SHARED_WIDTH(def) \
    SIZE("shared_intermediate_size", moe_shared_expert_intermediate_size, def)
static const struct gpt_hf_key granite_moe_keys[] = {GRANITE_MOE_KEYS};
const struct gpt_hf_family gpt_hf_granite_moe = {
    .model_type = "granitemoe",
    .architecture = "GraniteMoeForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(granite_moe_rules, granite_moe_keys),
    MEMORY(granite_moe_memory),
};

/* With a feed-forward that all tokens share, if it has a width. */
static const struct gpt_hf_key granite_shared_keys[] = {
    GRANITE_MOE_KEYS, SHARED_WIDTH("0"),
};
const struct gpt_hf_family gpt_hf_granite_shared = {
    .model_type = "granitemoeshared",
    .architecture = "GraniteMoeSharedForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(granite_moe_rules, granite_shared_keys),
    MEMORY(granite_moe_memory),
};

/* Granite 4's class of hybrid models, with attention in all layers; see
 * gpt_hf_granite_hybrid, which has no experts. */
static const struct gpt_hf_rule granite_hybrid_moe_rules[] = {
    LLAMA_WORDS, LLAMA_NORMS, GRANITE_EXPERTS, LLAMA_QKV, LLAMA_PROJ,
    LLAMA_ENDS,
};
static const struct gpt_hf_key granite_hybrid_moe_keys[] = {
    GRANITE_MOE_KEYS, SHARED_WIDTH("1024"), HYBRID_KEYS,
};
const struct gpt_hf_family gpt_hf_granite_hybrid_moe = {
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(granite_hybrid_moe_rules, granite_hybrid_moe_keys),
    MEMORY(granite_moe_memory),
};

/* ---- Hunyuan ---- */

/* Hunyuan's layer, whose norms of heads come after positions, beside a shared
 * feed-forward of the width of an expert. Numbers may be lists that repeat one
 * for each layer. What else its files have is of an older implementation:
 * layers that share keys and values, which are off, and names of tokens. */
static const struct gpt_hf_rule hunyuan_moe_rules[] = {
    LLAMA_WORDS, LLAMA_QKV, LLAMA_PROJ,
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.self_attn.query_layernorm.weight"),
    RULE(K_NORM_WEIGHT, SAME, "layers.%.self_attn.key_layernorm.weight"),
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.wg.weight"),
    EACH_EXPERT, SHARED_MLP, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_key hunyuan_moe_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, NO_MLP_BIAS, NO_PAD,
    ROUTER_NOTES, HUNYUAN_NOTES,
    HIDDEN("4096"), LAYERS("32"), HEADS("32"), KV_HEADS("0"), HEAD_DIM("0"),
    POSITIONS("2048"), VOCAB("290943"), RMS_EPS("1e-5"), ROPE("10000"),
    TIED("false"),
    EACH("moe_topk", moe_router_topk, "1"),
    EACH("num_experts", num_experts, "1"),
    /* of experts, and of what is shared; other keys say it again */
    EXPERT_FFN("intermediate_size", "11008"),
    SIZE("intermediate_size", moe_shared_expert_intermediate_size, "11008"),
    KEY("moe_drop_tokens", UNUSED, "null"),
    KEY("moe_intermediate_size", UNUSED, "null"),
    KEY("moe_layer_num_skipped", ONLY, "0"),
    KEY("moe_random_routing_dropped_token", UNUSED, "null"),
    KEY("num_shared_expert", UNUSED, "null"),
    KEY("use_mixed_mlp_moe", ONLY, "true"),
};
const struct gpt_hf_family gpt_hf_hunyuan_moe = {
    .model_type = "hunyuan_v1_moe",
    .architecture = "HunYuanMoEV1ForCausalLM",
    .prefix = "model.",
    .has_alpha = true,
    .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_turned = true},
    TABLES(hunyuan_moe_rules, hunyuan_moe_keys),
    MEMORY(stacked),
};

/* ---- Aria ---- */

/* The text part of Aria, as a model of its own. Matrices of experts are (in,
 * out), and all of a layer are in one tensor; what all tokens share is so many
 * experts wide. */
static const struct gpt_hf_rule aria_rules[] = {
    LLAMA_WORDS, LLAMA_QKV, LLAMA_PROJ,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.router.weight"),
    RULE(EXPERTS_FC1, STACKED_TRANSPOSED, "layers.%.mlp.experts.fc1.weight"),
    RULE(EXPERTS_FC2, STACKED_TRANSPOSED, "layers.%.mlp.experts.fc2.weight"),
    SHARED_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_rule aria_memory[] = {
    RULE(EXPERTS_FC1, STACKED_TRANSPOSED, "layers.%.mlp.experts.gate_up_proj"),
    RULE(EXPERTS_FC2, STACKED_TRANSPOSED, "layers.%.mlp.experts.down_proj"),
};
static const struct gpt_hf_key aria_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, NO_MLP_BIAS, NO_PAD,
    HIDDEN("4096"), LAYERS("32"), HEADS("32"), KV_HEADS("0"), HEAD_DIM("0"),
    POSITIONS("2048"), VOCAB("32000"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    EXPERTS("moe_num_experts", "num_experts", "8"),
    TOP("moe_topk", "2"),
    EXPERT_FFN("intermediate_size", "4096"),
    EXPERT_KEY("moe_num_shared_experts", SHARED, "2"),
};
const struct gpt_hf_family gpt_hf_aria = {
    .model_type = "aria_text",
    .architecture = "AriaTextForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {LLAMA_BASE},
    TABLES(aria_rules, aria_keys),
    MEMORY(aria_memory),
};
