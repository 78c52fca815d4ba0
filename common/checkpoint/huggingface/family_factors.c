/* Families of Hugging Face whose layers are Llama's with factors: of words, of
 * what blocks give, of scores, of logits. See family.h.
 *
 * A switch that is MUST here is off in every model that was published, and its
 * class has been compared with it off alone. */
#include "checkpoint/huggingface/rows.h"

/* Rows of biases and norms of heads wait for models that have them. */
static const struct gpt_hf_rule llama_rules[] = {
    LLAMA_RULES,
};

/* ---- Granite ---- */

/* Four factors: of words, of what blocks give, of scores, and what logits are
 * divided by. */
static const struct gpt_hf_key granite_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, MLP_BIAS,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    HEAD_DIM("0"), POSITIONS("2048"), VOCAB("32000"), RMS_EPS("1e-6"),
    ROPE("10000"), TIED("false"),
    /* files have 1 over the size of a head, or over 8 roots of it: no other
     * class of Llama's kin says the factor itself */
    KEY("attention_multiplier", SCORE_SCALE, "1"),
    /* 12 in the files: words begin small, and the stream is not to */
    {"embedding_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(embedding_multiplier)},
    /* a divisor, where all others are factors */
    {"logits_scaling", NULL, GPT_HF_DIVISOR, "1", AT(logit_multiplier)},
    /* 0.22: forty layers that add all they give would grow the stream */
    {"residual_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(residual_multiplier)},
};
const struct gpt_hf_family gpt_hf_granite = {
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, granite_keys),
};

/* ---- Granite 4 ---- */

/* The small models of a class of hybrid ones: attention in all layers, and in
 * place of experts the feed-forward that all tokens share, gate and up in one
 * tensor. Granite's function, then, with Granite's four factors. Those with
 * experts are in family_experts.c; other layers, and a model without positions,
 * are refused. */
static const struct gpt_hf_rule granite_hybrid_rules[] = {
    LLAMA_WORDS,
    LLAMA_NORMS,
    RULE(GATE_WEIGHT, FIRST, "layers.%.shared_mlp.input_linear.weight"),
    RULE(FC1_WEIGHT, SECOND, "layers.%.shared_mlp.input_linear.weight"),
    RULE(FC2_WEIGHT, SAME, "layers.%.shared_mlp.output_linear.weight"),
    LLAMA_QKV,
    LLAMA_PROJ,
    LLAMA_QK_NORMS,
    LLAMA_ENDS,
};
/* The width of the feed-forward is that of what is shared: "intermediate_size"
 * is that of experts. */
static const struct gpt_hf_key granite_hybrid_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, NO_PAD,
    OWN_HEAD_DIM,
    HIDDEN("4096"), LAYERS("32"), HEADS("32"), KV_HEADS("0"), POSITIONS("2048"),
    VOCAB("32000"), RMS_EPS("1e-6"), ROPE("10000"), TIED("false"),
    KEY("attention_multiplier", SCORE_SCALE, "1"),
    {"embedding_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(embedding_multiplier)},
    {"logits_scaling", NULL, GPT_HF_DIVISOR, "1", AT(logit_multiplier)},
    {"residual_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(residual_multiplier)},
    HYBRID_KEYS,
    KEY("intermediate_size", UNUSED, "null"),
    KEY("num_experts_per_tok", UNUSED, "null"),
    KEY("num_local_experts", SAID, "0"),
    KEY("output_router_logits", UNUSED, "null"),
    KEY("router_aux_loss_coef", UNUSED, "null"),
    SIZE("shared_intermediate_size", ffn_hidden_size, "1024"),
};
const struct gpt_hf_family gpt_hf_granite_hybrid = {
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .when = "num_local_experts",
    .when_is = 0,
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(granite_hybrid_rules, granite_hybrid_keys),
};

/* ---- HyperCLOVA X ---- */

/* Granite's four factors, and norms of what blocks give, which a switch takes
 * away. The factor of logits multiplies, though it has the name of Granite's
 * divisor. A factor of what blocks give beside such norms is refused where the
 * model is checked. */
static const struct gpt_hf_rule hyperclovax_rules[] = {
    LLAMA_ATTENTION,
    LLAMA_MLP,
    LLAMA_NORMS,
    RULE(POST1_WEIGHT, SAME, "layers.%.post_norm1.weight"),
    RULE(POST2_WEIGHT, SAME, "layers.%.post_norm2.weight"),
    LLAMA_ENDS,
};
static const struct gpt_hf_key hyperclovax_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, MLP_BIAS,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    HEAD_DIM("0"), POSITIONS("2048"), VOCAB("32000"), RMS_EPS("1e-6"),
    ROPE("10000"), TIED("false"),
    /* the default is 1 over the root of a head, which the class writes out:
     * absence is no factor of 1, as it is with Granite */
    KEY("attention_multiplier", SCORE_SCALE, NULL),
    {"embedding_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(embedding_multiplier)},
    {"logits_scaling", NULL, GPT_HF_MULTIPLIER, "1", AT(logit_multiplier)},
    {"residual_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(residual_multiplier)},
    FLAG("use_post_norm", post_norm, "true"),
};
const struct gpt_hf_family gpt_hf_hyperclovax = {
    .model_type = "hyperclovax",
    .architecture = "HyperCLOVAXForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {LLAMA_BASE},
    TABLES(hyperclovax_rules, hyperclovax_keys),
};
