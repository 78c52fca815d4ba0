/* Families of Hugging Face with attention and feed-forward side by side after
 * one norm: Cohere, Phi, GPT-J and CodeGen; see family.h. GPT-NeoX, whose
 * blocks have a norm each, is in family.c, Falcon in family_classic.c. */
#include "checkpoint/huggingface/rows.h"

/* ---- Cohere ---- */

/* Llama's products; LayerNorm without a bias, neighbours turn, and logits are
 * multiplied. */
static const struct gpt_hf_rule cohere_rules[] = {
    LLAMA_ATTENTION, LLAMA_MLP, LLAMA_NORM1, LLAMA_ENDS,
};
static const struct gpt_hf_key cohere_keys[] = {
    LLAMA_KEYS, ENDS("5", "255001"), ATTENTION_BIAS,
    OWN_HEAD_DIM,
    HIDDEN("8192"), FFN("22528"), LAYERS("40"), HEADS("64"), KV_HEADS("0"),
    POSITIONS("8192"), VOCAB("256000"), ROPE("500000"), TIED("true"),
    RATE("layer_norm_eps", norm_epsilon, "1e-5"),
    {"logit_scale", NULL, GPT_HF_MULTIPLIER, "0.0625", AT(logit_multiplier)},
    /* of the tokenizer: texts may be longer than the positions here say */
    KEY("model_max_length", UNUSED, "null"),
    /* of Command R+: a row of weights for each head */
    EACH_NORM("use_qk_norm"),
};
#define COHERE_BASE                                                         \
    .position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,           \
    .rotary_interleaved = true, .no_norm_bias = true, .gated = true,        \
    .no_linear_bias = true, .parallel_blocks = true, .shared_norm = true
const struct gpt_hf_family gpt_hf_cohere = {
    .model_type = "cohere",
    .architecture = "CohereForCausalLM",
    .prefix = "model.",
    .base = {COHERE_BASE},
    TABLES(cohere_rules, cohere_keys),
};

/* With windows, beside which full layers do not turn. Its files have words for
 * what the class does in any case, and for its first implementation: those that
 * could mean another function must have the value that it has. A model without
 * windows would turn in no layer at all: that is refused. */
static const struct gpt_hf_key cohere2_keys[] = {
    LLAMA_KEYS, ENDS("5", "255001"), ATTENTION_BIAS,
    HIDDEN("8192"), FFN("22528"), LAYERS("40"), HEADS("64"), KV_HEADS("0"),
    HEAD_DIM("0"), POSITIONS("8192"), VOCAB("256000"), ROPE("10000"),
    TIED("true"),
    /* of generation: a cache that forgets what no window reaches */
    KEY("cache_implementation", UNUSED, "null"),
    RATE("layer_norm_eps", norm_epsilon, "1e-5"),
    KEY("layer_switch", UNUSED, "null"),
    KEY("layer_types", LAYER_TYPES, "null"),
    {"logit_scale", NULL, GPT_HF_MULTIPLIER, "0.0625", AT(logit_multiplier)},
    KEY("order_of_interleaved_layers", ONLY, "\"local_attn_first\""),
    KEY("position_embedding_type", ONLY, "\"rope_gptj\""),
    KEY("rotary_pct", ONLY, "1"),
    KEY("sliding_window", WINDOW, "4096"),
    /* where there is no list: newer versions write that instead */
    {"sliding_window_pattern", "_sliding_window_pattern", GPT_HF_WINDOW_EVERY,
     "4", 0},
    KEY("use_embedding_sharing", UNUSED, "null"),
    KEY("use_gated_activation", ONLY, "true"),
    KEY("use_parallel_block", ONLY, "true"),
    KEY("use_parallel_embedding", UNUSED, "null"),
};
const struct gpt_hf_family gpt_hf_cohere2 = {
    .model_type = "cohere2",
    .architecture = "Cohere2ForCausalLM",
    .prefix = "model.",
    .unturned_full = true,
    .needs_window = true,
    .base = {COHERE_BASE},
    TABLES(cohere_rules, cohere2_keys),
};

/* ---- Phi ---- */

/* Biases everywhere, at the logits too; a part of a head turns. Phi-3 is
 * another class, without any of that. */
static const struct gpt_hf_rule phi_rules[] = {
    LLAMA_WORDS,
    LLAMA_QKV,
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.dense.weight"),
    RULE(PROJ_BIAS, SAME, "layers.%.self_attn.dense.bias"),
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.self_attn.q_layernorm.weight"),
    RULE(Q_NORM_BIAS, SAME, "layers.%.self_attn.q_layernorm.bias"),
    RULE(K_NORM_WEIGHT, SAME, "layers.%.self_attn.k_layernorm.weight"),
    RULE(K_NORM_BIAS, SAME, "layers.%.self_attn.k_layernorm.bias"),
    RULE(FC1_WEIGHT, SAME, "layers.%.mlp.fc1.weight"),
    RULE(FC1_BIAS, SAME, "layers.%.mlp.fc1.bias"),
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.fc2.weight"),
    RULE(FC2_BIAS, SAME, "layers.%.mlp.fc2.bias"),
    LLAMA_NORM1,
    RULE(FINAL_NORM_WEIGHT, SAME, "final_layernorm.weight"),
    RULE(FINAL_NORM_BIAS, SAME, "final_layernorm.bias"),
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),
    RULE(OUTPUT_BIAS, SAME, "/lm_head.bias"),
};
static const struct gpt_hf_key phi_keys[] = {
    COMMON_KEYS, ENDS("1", "2"),
    OWN_HEAD_DIM,
    HIDDEN("2048"), FFN("8192"), LAYERS("24"), HEADS("32"), KV_HEADS("0"),
    POSITIONS("2048"), VOCAB("51200"), ROPE("10000"), TIED("false"),
    KEY("embd_pdrop", OTHER_DROPOUT, "0"),
    KEY("hidden_act", ACTIVATION, "\"gelu_new\""),
    RATE("layer_norm_eps", norm_epsilon, "1e-5"),
    ROTARY_SHARE("0.5"),
    /* one norm for all heads, with a bias */
    FLAG("qk_layernorm", qk_norm, "false"),
    RATE("resid_pdrop", hidden_dropout, "0"),
};
const struct gpt_hf_family gpt_hf_phi = {
    .model_type = "phi",
    .architecture = "PhiForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .output_bias = true,
             .parallel_blocks = true, .shared_norm = true},
    TABLES(phi_rules, phi_keys),
};

/* ---- GPT-J ---- */

/* Biases of the feed-forward and of the logits, none of attention. The matrices
 * are not transposed, unlike those of GPT-2 under the same names. */
static const struct gpt_hf_rule gptj_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    GPT2_NORM1,
    RULE(QKV_WEIGHT, K, "h.%.attn.k_proj.weight"),
    RULE(QKV_WEIGHT, V, "h.%.attn.v_proj.weight"),
    RULE(QKV_WEIGHT, Q, "h.%.attn.q_proj.weight"),
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.out_proj.weight"),
    RULE(FC1_WEIGHT, SAME, "h.%.mlp.fc_in.weight"),
    RULE(FC1_BIAS, SAME, "h.%.mlp.fc_in.bias"),
    RULE(FC2_WEIGHT, SAME, "h.%.mlp.fc_out.weight"),
    RULE(FC2_BIAS, SAME, "h.%.mlp.fc_out.bias"),
    GPT2_ENDS,
    RULE(OUTPUT_BIAS, SAME, "/lm_head.bias"),
};
/* Neighbours turn; how many elements of a head is a number, and null would be
 * the whole width of the model, which no head has. The base of angles is fixed
 * by the class. */
static const struct gpt_hf_key gptj_keys[] = {
    KEY("activation_function", ACTIVATION, "\"gelu_new\""),
    ARCHITECTURES,
    RATE("attn_pdrop", attention_dropout, "0"),
    BOS("50256"),
    KEY("embd_pdrop", OTHER_DROPOUT, "null"),
    EOS("50256"),
    INIT("0.02"),
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),
    TYPE,
    {"n_embd", "hidden_size", GPT_HF_SIZE, "4096", AT(hidden_size)},
    {"n_head", "num_attention_heads", GPT_HF_SIZE, "16",
     AT(num_attention_heads)},
    KEY("n_inner", INNER, "null"),
    {"n_layer", "num_hidden_layers", GPT_HF_SIZE, "28", AT(num_layers)},
    {"n_positions", "max_position_embeddings", GPT_HF_SIZE, "2048",
     AT(max_positions)},
    RATE("resid_pdrop", hidden_dropout, "0"),
    KEY("rotary", ONLY, "true"),
    KEY("rotary_dim", ROTARY_SIZE, NULL),
    KEY("scale_attn_weights", ONLY, "true"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("50400"),
};
const struct gpt_hf_family gpt_hf_gptj = {
    .model_type = "gptj",
    .architecture = "GPTJForCausalLM",
    .prefix = "transformer.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_base = 10000,
             .rotary_interleaved = true, .no_attention_bias = true,
             .output_bias = true, .parallel_blocks = true,
             .shared_norm = true},
    TABLES(gptj_rules, gptj_keys),
};

/* ---- CodeGen ---- */

/* GPT-J's keys and layer, with queries, keys and values in one tensor. */
static const struct gpt_hf_rule codegen_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    GPT2_NORM1,
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.out_proj.weight"),
    RULE(QKV_WEIGHT, QUARTERS, "h.%.attn.qkv_proj.weight"),
    RULE(FC1_WEIGHT, SAME, "h.%.mlp.fc_in.weight"),
    RULE(FC1_BIAS, SAME, "h.%.mlp.fc_in.bias"),
    RULE(FC2_WEIGHT, SAME, "h.%.mlp.fc_out.weight"),
    RULE(FC2_BIAS, SAME, "h.%.mlp.fc_out.bias"),
    GPT2_ENDS,
    RULE(OUTPUT_BIAS, SAME, "/lm_head.bias"),
};
const struct gpt_hf_family gpt_hf_codegen = {
    .model_type = "codegen",
    .architecture = "CodeGenForCausalLM",
    .prefix = "transformer.",
    .in_quarters = true,
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_base = 10000,
             .rotary_interleaved = true, .no_attention_bias = true,
             .output_bias = true, .parallel_blocks = true,
             .shared_norm = true},
    TABLES(codegen_rules, gptj_keys),
};
