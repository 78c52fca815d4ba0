/* Families of Hugging Face that transformers has no class of: the code of such
 * a model came with its files, which users have all the same. What they compute
 * is that of another family; sources: those files, and the programs that read
 * them (vLLM, llama.cpp).
 *
 * A family is here when a class of transformers that computes the same has
 * given the same logits with the tensors by these names
 * (tests/parity/remote.sh). */
#include "checkpoint/huggingface/derived.h"
#include "checkpoint/huggingface/rows_experts.h"

#define DERIVED(name, formula, def) \
    {name, NULL, GPT_HF_DERIVED, def, formula}

static const struct gpt_hf_rule llama_rules[] = {LLAMA_RULES};

/* ---- InternLM 2 ---- */

/* Llama's function. Queries, keys and values are one tensor, in which heads of
 * a group are together, as here. A switch is of biases of attention alone. */
static const struct gpt_hf_rule internlm2_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "tok_embeddings.weight"),
    RULE(QKV_WEIGHT, SAME, "layers.%.attention.wqkv.weight"),
    RULE(QKV_BIAS, SAME, "layers.%.attention.wqkv.bias"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.attention.wo.weight"),
    RULE(PROJ_BIAS, SAME, "layers.%.attention.wo.bias"),
    RULE(GATE_WEIGHT, SAME, "layers.%.feed_forward.w1.weight"),
    RULE(FC1_WEIGHT, SAME, "layers.%.feed_forward.w3.weight"),
    RULE(FC2_WEIGHT, SAME, "layers.%.feed_forward.w2.weight"),
    RULE(NORM1_WEIGHT, SAME, "layers.%.attention_norm.weight"),
    RULE(NORM2_WEIGHT, SAME, "layers.%.ffn_norm.weight"),
    LLAMA_END_WEIGHT,
    RULE(OUTPUT_WEIGHT, SAME, "/output.weight"),
};
static const struct gpt_hf_key internlm2_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), NO_PAD,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    POSITIONS("2048"), VOCAB("103168"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    KEY("attn_implementation", UNUSED, "null"),
    KEY("bias", ATTENTION_BIAS, "true"),
};
const struct gpt_hf_family gpt_hf_internlm2 = {
    .model_type = "internlm2",
    .architecture = "InternLM2ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(internlm2_rules, internlm2_keys),
};

/* ---- ChatGLM ---- */

/* ChatGLM 2 and 3, and GLM 4 before it had a class: GLM's function with fused
 * products. The base of angles is said as a ratio. The first ChatGLM is another
 * model, whose keys are not these. */
static const struct gpt_hf_rule chatglm_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "embedding.word_embeddings.weight"),
    RULE(NORM1_WEIGHT, SAME, "encoder.layers.%.input_layernorm.weight"),
    RULE(QKV_WEIGHT, QKV,
         "encoder.layers.%.self_attention.query_key_value.weight"),
    RULE(QKV_BIAS, QKV,
         "encoder.layers.%.self_attention.query_key_value.bias"),
    RULE(PROJ_WEIGHT, SAME, "encoder.layers.%.self_attention.dense.weight"),
    RULE(NORM2_WEIGHT, SAME,
         "encoder.layers.%.post_attention_layernorm.weight"),
    RULE(GATE_WEIGHT, FIRST, "encoder.layers.%.mlp.dense_h_to_4h.weight"),
    RULE(FC1_WEIGHT, SECOND, "encoder.layers.%.mlp.dense_h_to_4h.weight"),
    RULE(FC2_WEIGHT, SAME, "encoder.layers.%.mlp.dense_4h_to_h.weight"),
    RULE(FINAL_NORM_WEIGHT, SAME, "encoder.final_layernorm.weight"),
    RULE(OUTPUT_WEIGHT, SAME, "/transformer.output_layer.weight"),
};
static const struct gpt_hf_key chatglm_keys[] = {
    COMMON_KEYS, ENDS("null", "2"), NO_PAD, HIDDEN("4096"), HEADS("32"),
    TIED("false"),
    KEY("add_bias_linear", MUST, "false"),
    KEY("add_qkv_bias", QKV_BIAS, "false"),
    /* a factor of scores that is taken back */
    KEY("apply_query_key_layer_scaling", UNUSED, "null"),
    KEY("apply_residual_connection_post_layernorm", MUST, "false"),
    KEY("attention_softmax_in_fp32", UNUSED, "null"),
    KEY("bias_dropout_fusion", UNUSED, "null"),
    SIZE("ffn_hidden_size", ffn_hidden_size, "13696"),
    KEY("fp32_residual_connection", UNUSED, "null"),
    RATE("hidden_dropout", hidden_dropout, "0"),
    SIZE("kv_channels", head_size, "128"),
    RATE("layernorm_epsilon", norm_epsilon, "1e-5"),
    KEY("multi_query_attention", SAID, "true"),
    SIZE("multi_query_group_num", num_query_groups, "1"),
    {"num_layers", "num_hidden_layers", GPT_HF_SIZE, "28", AT(num_layers)},
    /* neighbours turn, as in GLM */
    KEY("original_rope", ONLY, "true"),
    {"padded_vocab_size", "vocab_size", GPT_HF_SIZE, "65024", AT(vocab_size)},
    KEY("post_layer_norm", ONLY, "true"),
    KEY("quantization_bit", ONLY, "0"),
    KEY("rmsnorm", ONLY, "true"),
    DERIVED("rope_ratio", GPT_HF_BASE_RATIO, "1"),
    {"seq_length", "max_position_embeddings", GPT_HF_SIZE, "2048",
     AT(max_positions)},
};
const struct gpt_hf_family gpt_hf_chatglm = {
    .model_type = "chatglm",
    .architecture = "ChatGLMForConditionalGeneration",
    .prefix = "transformer.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 0.5,
             .rotary_interleaved = true, .normalization = GPT_RMSNORM,
             .activation = GPT_SILU, .gated = true, .no_linear_bias = true},
    TABLES(chatglm_rules, chatglm_keys),
};

/* ---- Qwen ---- */

/* The first one: Qwen 2's function under names of GPT-2's kind. "w2" is the
 * gate. Texts that are longer than those of pretraining have other angles and
 * scores there: the model ends where they do. */
static const struct gpt_hf_rule qwen_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    RULE(NORM1_WEIGHT, SAME, "h.%.ln_1.weight"),
    RULE(QKV_WEIGHT, QKV, "h.%.attn.c_attn.weight"),
    RULE(QKV_BIAS, QKV, "h.%.attn.c_attn.bias"),
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.c_proj.weight"),
    RULE(NORM2_WEIGHT, SAME, "h.%.ln_2.weight"),
    RULE(FC1_WEIGHT, SAME, "h.%.mlp.w1.weight"),
    RULE(GATE_WEIGHT, SAME, "h.%.mlp.w2.weight"),
    RULE(FC2_WEIGHT, SAME, "h.%.mlp.c_proj.weight"),
    RULE(FINAL_NORM_WEIGHT, SAME, "ln_f.weight"),
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),
};
static const struct gpt_hf_key qwen_keys[] = {
    ARCHITECTURES, TYPE, DTYPE, CACHE, INIT("0.02"), ENDS("null", "null"),
    HIDDEN("4096"), LAYERS("32"), HEADS("32"), VOCAB("151936"), TIED("false"),
    RATE("attn_dropout_prob", attention_dropout, "0"),
    KEY("bf16", UNUSED, "null"),
    KEY("emb_dropout_prob", OTHER_DROPOUT, "0"),
    KEY("fp16", UNUSED, "null"),
    KEY("fp32", UNUSED, "null"),
    DERIVED("intermediate_size", GPT_HF_BOTH_HALVES, "22016"),
    SIZE("kv_channels", head_size, "128"),
    RATE("layer_norm_epsilon", norm_epsilon, "1e-6"),
    KEY("max_position_embeddings", UNUSED, "null"),
    KEY("no_bias", MUST, "true"),
    KEY("onnx_safe", UNUSED, "null"),
    KEY("rotary_emb_base", THETA, "10000"),
    RATE("rotary_pct", rotary_percent, "1"),
    KEY("scale_attn_weights", MUST, "true"),
    SIZE("seq_length", max_positions, "8192"),
    KEY("softmax_in_fp32", UNUSED, "null"),
    KEY("tokenizer_type", UNUSED, "null"),
    KEY("use_cache_kernel", UNUSED, "null"),
    KEY("use_cache_quantization", UNUSED, "null"),
    KEY("use_dynamic_ntk", UNUSED, "null"),
    KEY("use_flash_attn", UNUSED, "null"),
    KEY("use_logn_attn", UNUSED, "null"),
};
const struct gpt_hf_family gpt_hf_qwen = {
    .model_type = "qwen",
    .architecture = "QWenLMHeadModel",
    .prefix = "transformer.",
    .base = {LLAMA_BASE, .qkv_bias = true, .activation = GPT_SILU},
    TABLES(qwen_rules, qwen_keys),
};

/* ---- MiniCPM ---- */

/* MiniCPM 1, 2 and 4: Llama's layer with factors, of which two follow from
 * other numbers. */
static const struct gpt_hf_key minicpm_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, NO_PAD, OWN_HEAD_DIM,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    POSITIONS("2048"), VOCAB("32000"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("true"),
    DERIVED("dim_model_base", GPT_HF_BASE_WIDTH, "1"),
    /* of a rate of training */
    KEY("mup_denominator", UNUSED, "null"),
    DERIVED("scale_depth", GPT_HF_DEPTH, "1"),
    {"scale_emb", NULL, GPT_HF_MULTIPLIER, "1", AT(embedding_multiplier)},
};
const struct gpt_hf_family gpt_hf_minicpm = {
    .model_type = "minicpm",
    .architecture = "MiniCPMForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, minicpm_keys),
};

/* ---- DeepSeek MoE ---- */

/* The first one, before attention of low rank: Llama's, with experts from one
 * layer on and a feed-forward that all tokens share. */
static const struct gpt_hf_rule deepseek_rules[] = {
    LLAMA_WORDS, LLAMA_QKV, LLAMA_PROJ, LLAMA_MLP, EACH_EXPERT,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    SHARED_EXPERTS, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_key deepseek_keys[] = {
    LLAMA_KEYS, ENDS("100000", "100001"), ATTENTION_BIAS, NO_PAD,
    OWN_HEAD_DIM,
    HIDDEN("4096"), FFN("11008"), LAYERS("30"), HEADS("32"), KV_HEADS("0"),
    POSITIONS("2048"), VOCAB("102400"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    KEY("aux_loss_alpha", UNUSED, "null"), /* of training, as the next */
    KEY("seq_aux", UNUSED, "null"),
    EXPERT_KEY("first_k_dense_replace", FROM, "0"),
    KEY("moe_layer_freq", MUST, "1"),
    EXPERTS("n_routed_experts", "num_experts", NULL),
    TOP("num_experts_per_tok", NULL),
    EXPERT_FFN("moe_intermediate_size", "1407"),
    EXPERT_KEY("n_shared_experts", SHARED_OR_NONE, "null"),
    NORM_TOP("false"),
    KEY("scoring_func", MUST, "\"softmax\""),
};
const struct gpt_hf_family gpt_hf_deepseek = {
    .model_type = "deepseek",
    .architecture = "DeepseekForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(deepseek_rules, deepseek_keys),
    MEMORY(stacked),
};

/* ---- Ling ---- */

/* Ling Lite and Ling Plus. Those of version 2 choose experts in groups, and
 * have another type. */
static const struct gpt_hf_rule bailing_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "word_embeddings.weight"),
    RULE(NORM1_WEIGHT, SAME, "layers.%.input_layernorm.weight"),
    RULE(QKV_WEIGHT, QKV, "layers.%.attention.query_key_value.weight"),
    RULE(QKV_BIAS, QKV, "layers.%.attention.query_key_value.bias"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.attention.dense.weight"),
    LLAMA_MLP, EACH_EXPERT,
    RULE(ROUTER_WEIGHT, SAME, "layers.%.mlp.gate.weight"),
    SHARED_EXPERTS, LLAMA_NORM2, LLAMA_ENDS,
};
static const struct gpt_hf_key bailing_keys[] = {
    LLAMA_KEYS, ENDS("null", "null"), NO_PAD, ROUTER_NOTES,
    HIDDEN("2048"), FFN("5632"), LAYERS("28"), HEADS("16"), KV_HEADS("4"),
    OWN_HEAD_DIM,
    POSITIONS("16384"), VOCAB("126464"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    KEY("embedding_dropout", OTHER_DROPOUT, "0"),
    EXPERT_KEY("first_k_dense_replace", FROM, "0"),
    KEY("max_window_layers", UNUSED, "null"),
    KEY("multi_gate", MUST, "false"), /* routers of other tokens */
    EXPERTS("num_experts", "num_local_experts", "64"),
    TOP("num_experts_per_tok", "6"),
    EXPERT_FFN("moe_intermediate_size", "1408"),
    KEY("norm_head", MUST, "false"), /* an output layer of unit columns */
    KEY("norm_softmax", MUST, "false"),
    NORM_TOP("true"),
    EXPERT_KEY("num_shared_experts", SHARED_OR_NONE, "0"),
    RATE("output_dropout", hidden_dropout, "0"),
    KEY("sliding_window", UNUSED, "null"),
    KEY("use_bias", MUST, "false"),
    KEY("use_qkv_bias", QKV_BIAS, "false"),
    KEY("use_sliding_window", MUST, "false"),
};
const struct gpt_hf_family gpt_hf_bailing = {
    .model_type = "bailing_moe",
    .architecture = "BailingMoeForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(bailing_rules, bailing_keys),
    MEMORY(stacked),
};
