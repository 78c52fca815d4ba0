/* Families of Hugging Face whose layers are Llama's with more norms, or other
 * ones: Gemma, Gemma 2 and OLMo 2; see hf_family.h. */
#include "checkpoint/hf_rows.h"

/* ---- Gemma ---- */

/* Llama's tensors. Norms multiply by 1 + weight, words by the root of the
 * width, and the gate is GELU: the class has no keys for that. */
static const struct gpt_hf_rule gemma_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "embed_tokens.weight"),
    RULE(NORM1_WEIGHT, SAME, "layers.%.input_layernorm.weight"),
    LLAMA_QKV,
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.o_proj.weight"),
    RULE(NORM2_WEIGHT, SAME, "layers.%.post_attention_layernorm.weight"),
    LLAMA_MLP,
    LLAMA_ENDS,
};
/* "hidden_activation" is what a few versions read instead of "hidden_act". */
static const struct gpt_hf_key gemma_keys[] = {
    ARCHITECTURES,
    KEY("attention_bias", MUST, "false"),
    ATTENTION_DROPOUT,
    BOS("2"),
    EOS("1"),
    HEAD_DIM("256"),
    KEY("hidden_act", TANH_ACTIVATION, "\"gelu_pytorch_tanh\""),
    KEY("hidden_activation", ONLY, "\"gelu_pytorch_tanh\""),
    HIDDEN("3072"),
    INIT("0.02"),
    FFN("24576"),
    POSITIONS("8192"),
    TYPE,
    HEADS("16"),
    LAYERS("28"),
    KV_HEADS("16"),
    RATE("rms_norm_eps", norm_epsilon, "1e-6"),
    ROPE("10000"),
    TIED("true"),
    DTYPE,
    /* of embedding models, which see what follows */
    KEY("use_bidirectional_attention", MUST, "null"),
    CACHE,
    VOCAB("256000"),
};
#define GEMMA_BASE LLAMA_BASE, .norm_plus_one = true, .scale_embedding = true
const struct gpt_hf_family gpt_hf_gemma = {
    .model_type = "gemma",
    .architecture = "GemmaForCausalLM",
    .prefix = "model.",
    .base = {GEMMA_BASE},
    TABLES(gemma_rules, gemma_keys),
};

/* ---- Gemma 2 ---- */

/* Four norms in a layer; Llama's name of the second one is another here. */
static const struct gpt_hf_rule gemma2_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "embed_tokens.weight"),
    RULE(NORM1_WEIGHT, SAME, "layers.%.input_layernorm.weight"),
    LLAMA_QKV,
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.o_proj.weight"),
    RULE(POST1_WEIGHT, SAME, "layers.%.post_attention_layernorm.weight"),
    RULE(NORM2_WEIGHT, SAME, "layers.%.pre_feedforward_layernorm.weight"),
    LLAMA_MLP,
    RULE(POST2_WEIGHT, SAME, "layers.%.post_feedforward_layernorm.weight"),
    LLAMA_ENDS,
};
/* Every second layer attends to all tokens; newer files list the layers. */
static const struct gpt_hf_key gemma2_keys[] = {
    ARCHITECTURES,
    KEY("attention_bias", MUST, "false"),
    ATTENTION_DROPOUT,
    CAP("attn_logit_softcapping", attn_logit_softcapping, "50"),
    BOS("2"),
    /* of generation: a cache that forgets what no window reaches */
    KEY("cache_implementation", UNUSED, "null"),
    EOS("1"),
    CAP("final_logit_softcapping", final_logit_softcapping, "30"),
    HEAD_DIM("256"),
    /* the class reads the second one; files have both */
    KEY("hidden_act", ONLY, "\"gelu_pytorch_tanh\""),
    KEY("hidden_activation", ACTIVATION, "\"gelu_pytorch_tanh\""),
    HIDDEN("2304"),
    INIT("0.02"),
    FFN("9216"),
    KEY("layer_types", LAYER_TYPES, "null"),
    POSITIONS("8192"),
    TYPE,
    HEADS("8"),
    LAYERS("26"),
    KV_HEADS("4"),
    /* 144 in 27B: the width over the heads, where a head has 128 */
    KEY("query_pre_attn_scalar", SCALAR, "256"),
    RATE("rms_norm_eps", norm_epsilon, "1e-6"),
    ROPE("10000"),
    KEY("sliding_window", WINDOW, "4096"),
    TIED("true"),
    DTYPE,
    /* of embedding models, which see what follows */
    KEY("use_bidirectional_attention", MUST, "null"),
    CACHE,
    VOCAB("256000"),
};
const struct gpt_hf_family gpt_hf_gemma2 = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .prefix = "model.",
    .base = {GEMMA_BASE, .post_norm = true, .window_attn_skip_freq = 2},
    TABLES(gemma2_rules, gemma2_keys),
};

/* ---- OLMo 2 ---- */

/* Norms are after blocks alone, and of all queries and all keys together. */
static const struct gpt_hf_rule olmo2_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "embed_tokens.weight"),
    LLAMA_QKV,
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.self_attn.q_norm.weight"),
    RULE(K_NORM_WEIGHT, SAME, "layers.%.self_attn.k_norm.weight"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.o_proj.weight"),
    RULE(POST1_WEIGHT, SAME, "layers.%.post_attention_layernorm.weight"),
    LLAMA_MLP,
    RULE(POST2_WEIGHT, SAME, "layers.%.post_feedforward_layernorm.weight"),
    LLAMA_ENDS,
};
static const struct gpt_hf_key olmo2_keys[] = {
    ARCHITECTURES,
    KEY("attention_bias", MUST, "false"),
    ATTENTION_DROPOUT,
    BOS("null"),
    EOS("50279"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("11008"),
    POSITIONS("2048"),
    TYPE,
    HEADS("32"),
    LAYERS("32"),
    KV_HEADS("0"),
    RATE("rms_norm_eps", norm_epsilon, "1e-5"),
    ROPE("10000"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("50304"),
};
const struct gpt_hf_family gpt_hf_olmo2 = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_whole = true,
             .post_norm = true, .no_pre_norm = true},
    TABLES(olmo2_rules, olmo2_keys),
};
