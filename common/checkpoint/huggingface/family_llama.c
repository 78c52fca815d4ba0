/* Families of Hugging Face whose layers are Llama's with small differences: a
 * factor, a rotation, an activation, biases. See family.h.
 *
 * A switch that is MUST here is off in every model that was published, and its
 * class has been compared with it off alone. */
#include "checkpoint/huggingface/rows.h"

/* Rows of biases and norms of heads wait for models that have them. */
static const struct gpt_hf_rule llama_rules[] = {
    LLAMA_ATTENTION, LLAMA_NORM2, LLAMA_MLP, LLAMA_ENDS,
};

/* ---- Granite ---- */

/* Four factors: of words, of what blocks give, of scores, and what logits are
 * divided by. */
static const struct gpt_hf_key granite_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    /* files have 1 over the size of a head, or over 8 roots of it: no other
     * class of Llama's kin says the factor itself */
    KEY("attention_multiplier", SCORE_SCALE, "1"),
    BOS("1"),
    /* 12 in the files: words begin small, and the stream is not to */
    {"embedding_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(embedding_multiplier)},
    EOS("2"),
    HEAD_DIM("0"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("11008"),
    /* a divisor, where all others are factors */
    {"logits_scaling", NULL, GPT_HF_DIVISOR, "1", AT(logit_multiplier)},
    POSITIONS("2048"),
    NO_MLP_BIAS,
    TYPE,
    HEADS("32"),
    LAYERS("32"),
    KV_HEADS("0"),
    /* 0.22: forty layers that add all they give would grow the stream */
    {"residual_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(residual_multiplier)},
    RMS_EPS("1e-6"),
    ROPE("10000"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("32000"),
};
const struct gpt_hf_family gpt_hf_granite = {
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, granite_keys),
};

/* ---- SmolLM3 ---- */

/* Some layers do not turn. A window is in the class, and in no model. */
static const struct gpt_hf_key smollm3_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("128000"),
    EOS("128001"),
    HEAD_DIM("0"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("2048"),
    INIT("0.02"),
    FFN("11008"),
    /* written by the class itself, "full_attention" for each layer */
    KEY("layer_types", LAYER_TYPES, "null"),
    POSITIONS("32768"),
    NO_MLP_BIAS,
    TYPE,
    /* the list counts; without it every so many-th layer does not turn. In the
     * list 1 is a layer that does, whatever its name says. */
    KEY("no_rope_layer_interval", TURNS_EVERY, "4"),
    KEY("no_rope_layers", TURNS, "null"),
    HEADS("16"),
    LAYERS("36"),
    KV_HEADS("4"),
    NO_PAD,
    RMS_EPS("1e-6"),
    ROPE("2000000"),
    KEY("sliding_window", UNUSED, "null"),
    TIED("true"),
    DTYPE,
    CACHE,
    KEY("use_sliding_window", MUST, "false"),
    VOCAB("128256"),
};
const struct gpt_hf_family gpt_hf_smollm3 = {
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, smollm3_keys),
};

/* ---- Ernie 4.5 ---- */

/* Neighbours turn. Two keys of its files say what its class always does. */
static const struct gpt_hf_key ernie_keys[] = {
    ARCHITECTURES,
    BOS("1"),
    /* of positions, in an implementation for longer texts */
    KEY("compression_ratio", ONLY, "1"),
    EOS("2"),
    HEAD_DIM("128"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("1024"),
    INIT("0.02"),
    FFN("3072"),
    POSITIONS("131072"),
    TYPE,
    HEADS("16"),
    LAYERS("18"),
    KV_HEADS("2"),
    RMS_EPS("1e-5"),
    ROPE("500000"),
    TIED("true"),
    DTYPE,
    /* biases of all products: RMSNorm is there either way */
    KEY("use_bias", MUST, "false"),
    CACHE,
    KEY("use_rmsnorm", ONLY, "true"),
    VOCAB("103424"),
};
const struct gpt_hf_family gpt_hf_ernie = {
    .model_type = "ernie4_5",
    .architecture = "Ernie4_5ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .rotary_interleaved = true},
    TABLES(llama_rules, ernie_keys),
};

/* ---- Arcee ---- */

/* Squared ReLU without a gate: the first product is called as that beside a
 * gate. */
static const struct gpt_hf_key arcee_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("128000"),
    EOS("128001"),
    HEAD_DIM("0"),
    KEY("hidden_act", ACTIVATION, "\"relu2\""),
    HIDDEN("2560"),
    INIT("0.02"),
    FFN("18432"),
    POSITIONS("4096"),
    NO_MLP_BIAS,
    TYPE,
    HEADS("32"),
    LAYERS("32"),
    KV_HEADS("0"),
    RMS_EPS("1e-5"),
    ROPE("10000"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("32000"),
};
const struct gpt_hf_family gpt_hf_arcee = {
    .model_type = "arcee",
    .architecture = "ArceeForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,
             .normalization = GPT_RMSNORM, .no_linear_bias = true},
    TABLES(llama_rules, arcee_keys),
};

/* ---- Seed-OSS ---- */

/* Biases of queries, keys and values by a switch. */
static const struct gpt_hf_key seed_keys[] = {
    ARCHITECTURES,
    FLAG("attention_bias", qkv_bias, "true"),
    /* not 0 by default, unlike all others here: fine-tuning drops */
    RATE("attention_dropout", attention_dropout, "0.1"),
    /* the output's bias is a switch of its own, beside that of the others */
    KEY("attention_out_bias", MUST, "false"),
    BOS("0"),
    EOS("2"),
    HEAD_DIM("128"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("27648"),
    POSITIONS("524288"),
    NO_MLP_BIAS,
    TYPE,
    HEADS("80"),
    LAYERS("64"),
    KV_HEADS("8"),
    RATE("residual_dropout", hidden_dropout, "0.1"),
    RMS_EPS("1e-6"),
    ROPE("10000"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("155136"),
};
const struct gpt_hf_family gpt_hf_seed = {
    .model_type = "seed_oss",
    .architecture = "SeedOssForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, seed_keys),
};

/* ---- GLM ---- */

/* Neighbours of half a head turn; gate and up are one tensor, as in Phi-3,
 * while queries, keys and values are three. */
static const struct gpt_hf_rule glm_rules[] = {
    LLAMA_ATTENTION, LLAMA_NORM2, LLAMA_FUSED_MLP, LLAMA_ENDS,
};
static const struct gpt_hf_key glm_keys[] = {GLM_KEYS};
const struct gpt_hf_family gpt_hf_glm = {
    .model_type = "glm",
    .architecture = "GlmForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .rotary_interleaved = true},
    TABLES(glm_rules, glm_keys),
};

/* ---- StableLM ---- */

/* LayerNorm with its biases and no others, or those of queries, keys and
 * values. The parallel form has one norm: that of the feed-forward is absent
 * from its files, and its row finds no parameter. */
static const struct gpt_hf_rule stablelm_rules[] = {
    LLAMA_ATTENTION, LLAMA_NORM2, LLAMA_MLP, LLAMA_ENDS, LLAMA_END_BIAS,
};
#define STABLELM_KEYS                                  \
    ARCHITECTURES,                                     \
    ATTENTION_DROPOUT,                                 \
    BOS("0"),                                          \
    EOS("0"),                                          \
    KEY("hidden_act", ACTIVATION, "\"silu\""),         \
    RATE("hidden_dropout", hidden_dropout, "0"),       \
    HIDDEN("2560"),                                    \
    INIT("0.02"),                                      \
    FFN("6912"),                                       \
    RATE("layer_norm_eps", norm_epsilon, "1e-5"),      \
    POSITIONS("4096"),                                 \
    TYPE,                                              \
    HEADS("32"),                                       \
    LAYERS("32"),                                      \
    KV_HEADS("32"),                                    \
    ROTARY_SHARE("0.25"),                              \
    /* a norm for each head, with weights of its own */\
    KEY("qk_layernorm", MUST, "false"),                \
    ROPE("10000"),                                     \
    TIED("false"),                                     \
    DTYPE,                                             \
    CACHE,                                             \
    FLAG("use_qkv_bias", qkv_bias, "false"),           \
    VOCAB("50304")
static const struct gpt_hf_key stablelm_keys[] = {
    STABLELM_KEYS,
    KEY("use_parallel_residual", MUST, "false"),
};
static const struct gpt_hf_key stablelm_parallel_keys[] = {
    STABLELM_KEYS,
    KEY("use_parallel_residual", MUST, "true"),
};
#define STABLELM_BASE                                                       \
    .position_embedding = GPT_POSITION_ROPE, .gated = true,                 \
    .no_linear_bias = true
const struct gpt_hf_family gpt_hf_stablelm = {
    .model_type = "stablelm",
    .architecture = "StableLmForCausalLM",
    .prefix = "model.",
    .base = {STABLELM_BASE},
    TABLES(stablelm_rules, stablelm_keys),
};
const struct gpt_hf_family gpt_hf_stablelm_parallel = {
    .model_type = "stablelm",
    .architecture = "StableLmForCausalLM",
    .when = "use_parallel_residual",
    .prefix = "model.",
    .base = {STABLELM_BASE, .parallel_blocks = true, .shared_norm = true},
    TABLES(stablelm_rules, stablelm_parallel_keys),
};

/* ---- Nemotron ---- */

/* LayerNorm that multiplies by 1 + weight, squared ReLU without a gate: what
 * Megatron-LM calls layernorm_1p and squared_relu, where these models were
 * trained. Their large successors mix in layers of other kinds, under
 * other types. */
static const struct gpt_hf_key nemotron_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("2"),
    EOS("3"),
    HEAD_DIM("0"),
    KEY("hidden_act", ACTIVATION, "\"relu2\""),
    HIDDEN("6144"),
    INIT("0.0134"),
    FFN("24576"),
    POSITIONS("4096"),
    NO_MLP_BIAS,
    TYPE,
    RATE("norm_eps", norm_epsilon, "1e-5"),
    HEADS("48"),
    LAYERS("32"),
    KV_HEADS("0"),
    ROTARY_SHARE("0.5"),
    ROPE("10000"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("256000"),
};
const struct gpt_hf_family gpt_hf_nemotron = {
    .model_type = "nemotron",
    .architecture = "NemotronForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .norm_plus_one = true,
             .no_linear_bias = true},
    TABLES(stablelm_rules, nemotron_keys),
};

/* ---- HyperCLOVA X ---- */

/* Granite's four factors, and norms of what blocks give, which a switch takes
 * away. The factor of logits multiplies, though it has the name of Granite's
 * divisor. A factor of what blocks give beside such norms is refused where the
 * model is checked. */
static const struct gpt_hf_rule hyperclovax_rules[] = {
    LLAMA_ATTENTION,
    RULE(POST1_WEIGHT, SAME, "layers.%.post_norm1.weight"),
    LLAMA_NORM2,
    LLAMA_MLP,
    RULE(POST2_WEIGHT, SAME, "layers.%.post_norm2.weight"),
    LLAMA_ENDS,
};
static const struct gpt_hf_key hyperclovax_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    /* the default is 1 over the root of a head, which the class writes out:
     * absence is no factor of 1, as it is with Granite */
    KEY("attention_multiplier", SCORE_SCALE, NULL),
    BOS("1"),
    {"embedding_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(embedding_multiplier)},
    EOS("2"),
    HEAD_DIM("0"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("11008"),
    {"logits_scaling", NULL, GPT_HF_MULTIPLIER, "1", AT(logit_multiplier)},
    POSITIONS("2048"),
    NO_MLP_BIAS,
    TYPE,
    HEADS("32"),
    LAYERS("32"),
    KV_HEADS("0"),
    {"residual_multiplier", NULL, GPT_HF_MULTIPLIER, "1",
     AT(residual_multiplier)},
    RMS_EPS("1e-6"),
    ROPE("10000"),
    TIED("false"),
    DTYPE,
    CACHE,
    FLAG("use_post_norm", post_norm, "true"),
    VOCAB("32000"),
};
const struct gpt_hf_family gpt_hf_hyperclovax = {
    .model_type = "hyperclovax",
    .architecture = "HyperCLOVAXForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(hyperclovax_rules, hyperclovax_keys),
};

/* ---- Helium ---- */

/* Neighbours turn, as in Ernie. Its class wants heads that make up the width:
 * a model with others has an output product that it cannot load. */
static const struct gpt_hf_key helium_keys[] = {
    ARCHITECTURES,
    NO_ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("1"),
    EOS("2"),
    HEAD_DIM("128"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("2560"),
    INIT("0.02"),
    FFN("7040"),
    POSITIONS("4096"),
    NO_MLP_BIAS,
    TYPE,
    HEADS("20"),
    LAYERS("24"),
    KV_HEADS("20"),
    NO_PAD,
    RMS_EPS("1e-8"),
    ROPE("100000"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("48000"),
};
const struct gpt_hf_family gpt_hf_helium = {
    .model_type = "helium",
    .architecture = "HeliumForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .rotary_interleaved = true},
    TABLES(llama_rules, helium_keys),
};

/* ---- InternLM 3 ---- */

/* transformers reads it with Llama's class; the names of its switches of biases
 * are its own, and newer files may have Llama's. */
static const struct gpt_hf_key internlm3_keys[] = {
    ARCHITECTURES,
    ATTENTION_DROPOUT,
    {"bias", "mlp_bias", GPT_HF_MUST, "false", 0},
    BOS("1"),
    EOS("2"),
    HEAD_DIM("128"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("10240"),
    POSITIONS("32768"),
    TYPE,
    HEADS("32"),
    LAYERS("48"),
    KV_HEADS("2"),
    NO_PAD,
    /* with biases of queries, keys and values alone it would be Qwen 2 */
    {"qkv_bias", "attention_bias", GPT_HF_MUST, "false", 0},
    RMS_EPS("1e-5"),
    ROPE("10000"),
    TIED("false"),
    DTYPE,
    CACHE,
    VOCAB("128512"),
};
const struct gpt_hf_family gpt_hf_internlm3 = {
    .model_type = "internlm3",
    .architecture = "InternLM3ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, internlm3_keys),
};
