/* Families of Hugging Face whose layers are Llama's with more norms, or other
 * ones: Gemma, OLMo, EXAONE and GLM 4; see family.h. */
#include "checkpoint/huggingface/rows.h"

/* ---- Gemma ---- */

/* Llama's tensors. Norms multiply by 1 + weight, words by the root of the
 * width, and the gate is GELU: the class has no keys for that. */
static const struct gpt_hf_rule gemma_rules[] = {
    LLAMA_RULES,
};
/* "hidden_activation" is what a few versions read instead of "hidden_act". */
static const struct gpt_hf_key gemma_keys[] = {
    COMMON_KEYS, ENDS("2", "1"), ATTENTION_BIAS,
    HIDDEN("3072"), FFN("24576"), LAYERS("28"), HEADS("16"), KV_HEADS("16"),
    HEAD_DIM("256"), POSITIONS("8192"), VOCAB("256000"), RMS_EPS("1e-6"),
    ROPE("10000"), TIED("true"),
    KEY("hidden_act", TANH_ACTIVATION, "\"gelu_pytorch_tanh\""),
    KEY("hidden_activation", ONLY, "\"gelu_pytorch_tanh\""),
    /* of embedding models, which see what follows */
    KEY("use_bidirectional_attention", MUST, "null"),
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
    LLAMA_ATTENTION,
    LLAMA_MLP,
    LLAMA_NORM1,
    RULE(POST1_WEIGHT, SAME, "layers.%.post_attention_layernorm.weight"),
    RULE(NORM2_WEIGHT, SAME, "layers.%.pre_feedforward_layernorm.weight"),
    RULE(POST2_WEIGHT, SAME, "layers.%.post_feedforward_layernorm.weight"),
    LLAMA_ENDS,
};
/* Every second layer attends to all tokens; newer files list the layers. */
static const struct gpt_hf_key gemma2_keys[] = {
    COMMON_KEYS, ENDS("2", "1"), ATTENTION_BIAS,
    HIDDEN("2304"), FFN("9216"), LAYERS("26"), HEADS("8"), KV_HEADS("4"),
    HEAD_DIM("256"), POSITIONS("8192"), VOCAB("256000"), RMS_EPS("1e-6"),
    ROPE("10000"), TIED("true"),
    CAP("attn_logit_softcapping", attn_logit_softcapping, "50"),
    /* of generation: a cache that forgets what no window reaches */
    KEY("cache_implementation", UNUSED, "null"),
    CAP("final_logit_softcapping", final_logit_softcapping, "30"),
    /* the class reads the second one; files have both */
    KEY("hidden_act", ONLY, "\"gelu_pytorch_tanh\""),
    KEY("hidden_activation", ACTIVATION, "\"gelu_pytorch_tanh\""),
    KEY("layer_types", LAYER_TYPES, "null"),
    /* 144 in 27B: the width over the heads, where a head has 128 */
    KEY("query_pre_attn_scalar", SCALAR, "256"),
    KEY("sliding_window", WINDOW, "4096"),
    /* of embedding models, which see what follows */
    KEY("use_bidirectional_attention", MUST, "null"),
};
const struct gpt_hf_family gpt_hf_gemma2 = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {GEMMA_BASE, .post_norm = true, .window_attn_skip_freq = 2},
    TABLES(gemma2_rules, gemma2_keys),
};

/* ---- VaultGemma ---- */

/* Gemma 2 without norms of what blocks give: the norm before the feed-forward
 * keeps its long name. The keys are the same, and so are their defaults. */
static const struct gpt_hf_rule vaultgemma_rules[] = {
    LLAMA_ATTENTION,
    LLAMA_MLP,
    LLAMA_NORM1,
    RULE(NORM2_WEIGHT, SAME, "layers.%.pre_feedforward_layernorm.weight"),
    LLAMA_ENDS,
};
const struct gpt_hf_family gpt_hf_vaultgemma = {
    .model_type = "vaultgemma",
    .architecture = "VaultGemmaForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {GEMMA_BASE, .window_attn_skip_freq = 2},
    TABLES(vaultgemma_rules, gemma2_keys),
};

/* ---- Gemma 3 ---- */

/* Gemma 2 with norms of heads, and two bases of angles: one of layers with a
 * window, which are five of six. Models that read pictures, too, are of another
 * type, and hold this one under other names: see pictures.c. */
static const struct gpt_hf_key gemma3_keys[] = {
    COMMON_KEYS, ENDS("2", "1"), ATTENTION_BIAS,
    HIDDEN("2304"), FFN("9216"), LAYERS("26"), HEADS("8"), KV_HEADS("4"),
    HEAD_DIM("256"), POSITIONS("131072"), VOCAB("262208"), RMS_EPS("1e-6"),
    TIED("true"),
    /* the class has the key of Gemma 2, and caps no scores by it */
    KEY("attn_logit_softcapping", UNUSED, "null"),
    KEY("cache_implementation", UNUSED, "null"),
    CAP("final_logit_softcapping", final_logit_softcapping, "null"),
    KEY("hidden_activation", ACTIVATION, "\"gelu_pytorch_tanh\""),
    KEY("layer_types", LAYER_TYPES, "null"),
    KEY("query_pre_attn_scalar", SCALAR, "256"),
    /* older files have the two bases apart, newer ones two objects; what is
     * written has both forms: either version reads one and skips the other */
    KEY("rope_local_base_freq", LOCAL_THETA, "10000"),
    KEY("rope_parameters", TWO_PARAMETERS, "null"),
    KEY("rope_scaling", SCALING, "null"),
    KEY("rope_theta", THETA, "1000000"),
    KEY("sliding_window", WINDOW, "4096"),
    {"sliding_window_pattern", "_sliding_window_pattern", GPT_HF_WINDOW_EVERY,
     "6", 0},
    KEY("use_bidirectional_attention", MUST, "false"),
};
const struct gpt_hf_family gpt_hf_gemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .local_angles = true,
    .base = {GEMMA_BASE, .qk_norm = true, .post_norm = true,
             .window_attn_skip_freq = 6},
    TABLES(gemma2_rules, gemma3_keys),
};

/* ---- GLM 4 ---- */

/* GLM with norms of what blocks give: four in a layer, as in Gemma 2, by other
 * names. */
static const struct gpt_hf_rule glm4_rules[] = {
    LLAMA_ATTENTION,
    LLAMA_FUSED_MLP,
    LLAMA_NORMS,
    RULE(POST1_WEIGHT, SAME, "layers.%.post_self_attn_layernorm.weight"),
    RULE(POST2_WEIGHT, SAME, "layers.%.post_mlp_layernorm.weight"),
    LLAMA_ENDS,
};
static const struct gpt_hf_key glm4_keys[] = {GLM_KEYS};
const struct gpt_hf_family gpt_hf_glm4 = {
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .rotary_interleaved = true, .post_norm = true},
    TABLES(glm4_rules, glm4_keys),
};

/* ---- OLMo 2 ---- */

/* Norms are after blocks alone, and of all queries and all keys together. */
static const struct gpt_hf_rule olmo2_rules[] = {
    LLAMA_ATTENTION,
    LLAMA_MLP,
    LLAMA_NORM1,
    RULE(POST1_WEIGHT, SAME, "layers.%.post_attention_layernorm.weight"),
    RULE(POST2_WEIGHT, SAME, "layers.%.post_feedforward_layernorm.weight"),
    LLAMA_ENDS,
};
static const struct gpt_hf_key olmo2_keys[] = {
    LLAMA_KEYS, ENDS("null", "50279"), ATTENTION_BIAS,
    OWN_HEAD_DIM,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    POSITIONS("2048"), VOCAB("50304"), RMS_EPS("1e-5"), ROPE("10000"),
    TIED("false"),
};
const struct gpt_hf_family gpt_hf_olmo2 = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_whole = true,
             .post_norm = true, .no_pre_norm = true},
    TABLES(olmo2_rules, olmo2_keys),
};

/* ---- OLMo 3 ---- */

/* With windows, beside which full layers alone have scaled angles: long texts
 * reach only those. Both kinds have one base, which older files say once: the
 * versions that wrote such files took it for both, and newer ones read it for
 * full layers alone. */
static const struct gpt_hf_key olmo3_keys[] = {
    LLAMA_KEYS, ENDS("null", "50279"), ATTENTION_BIAS,
    OWN_HEAD_DIM,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    POSITIONS("2048"), VOCAB("50304"), RMS_EPS("1e-5"), TIED("false"),
    KEY("layer_types", LAYER_TYPES, "null"),
    KEY("rope_parameters", TWO_PARAMETERS, "null"),
    KEY("rope_scaling", SCALING, "null"),
    KEY("rope_theta", THETA, "500000"),
    KEY("sliding_window", WINDOW, "4096"),
};
const struct gpt_hf_family gpt_hf_olmo3 = {
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .prefix = "model.",
    .local_angles = true,
    .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_whole = true,
             .post_norm = true, .no_pre_norm = true,
             .window_attn_skip_freq = 4},
    TABLES(olmo2_rules, olmo3_keys),
};

/* ---- EXAONE 4 ---- */

/* OLMo 2's norms after blocks, of each head as in Qwen 3. Where there is a
 * window, full layers do not turn; the small models have none, and turn in all
 * layers. */
static const struct gpt_hf_key exaone4_keys[] = {
    LLAMA_KEYS, ENDS("0", "2"),
    HIDDEN("4096"), FFN("16384"), LAYERS("32"), HEADS("32"), KV_HEADS("32"),
    HEAD_DIM("0"), POSITIONS("2048"), VOCAB("102400"), RMS_EPS("1e-5"),
    ROPE("10000"), TIED("false"),
    KEY("layer_types", LAYER_TYPES, "null"),
    KEY("sliding_window", WINDOW, "4096"),
    /* a number, or a word such as "LLLG" beside the list */
    KEY("sliding_window_pattern", WINDOW_EVERY, "4"),
};
const struct gpt_hf_family gpt_hf_exaone4 = {
    .model_type = "exaone4",
    .architecture = "Exaone4ForCausalLM",
    .prefix = "model.",
    .unturned_full = true,
    .base = {LLAMA_BASE, .qk_norm = true, .post_norm = true,
             .no_pre_norm = true},
    TABLES(olmo2_rules, exaone4_keys),
};
