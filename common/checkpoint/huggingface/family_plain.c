/* Families of Hugging Face with Llama's names of tensors and another
 * feed-forward or other norms: no gate, squared ReLU, LayerNorm. See family.h.
 *
 * A switch that is MUST here is off in every model that was published, and its
 * class has been compared with it off alone. */
#include "checkpoint/huggingface/rows.h"

/* Rows of biases and norms of heads wait for models that have them. */
static const struct gpt_hf_rule llama_rules[] = {
    LLAMA_RULES,
};

/* ---- Arcee ---- */

/* Squared ReLU without a gate: the first product is called as that beside a
 * gate. */
static const struct gpt_hf_key arcee_keys[] = {
    COMMON_KEYS, ENDS("128000", "128001"), ATTENTION_BIAS, MLP_BIAS,
    HIDDEN("2560"), FFN("18432"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    HEAD_DIM("0"), POSITIONS("4096"), VOCAB("32000"), RMS_EPS("1e-5"),
    ROPE("10000"), TIED("false"),
    KEY("hidden_act", ACTIVATION, "\"relu2\""),
};
const struct gpt_hf_family gpt_hf_arcee = {
    .model_type = "arcee",
    .architecture = "ArceeForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,
             .normalization = GPT_RMSNORM, .no_linear_bias = true},
    TABLES(llama_rules, arcee_keys),
};

/* ---- StableLM ---- */

/* LayerNorm with its biases and no others, or those of queries, keys and
 * values. The parallel form has one norm: that of the feed-forward is absent
 * from its files, and its row finds no parameter. */
static const struct gpt_hf_rule stablelm_rules[] = {
    LLAMA_WORDS,
    LLAMA_QKV,
    LLAMA_PROJ,
    RULE(Q_NORM_WEIGHT, ROWS, "layers.%.self_attn.q_layernorm.norms.%.weight"),
    RULE(K_NORM_WEIGHT, ROWS, "layers.%.self_attn.k_layernorm.norms.%.weight"),
    LLAMA_MLP,
    LLAMA_NORMS,
    LLAMA_BIASED_ENDS,
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
    /* of StableLM 2 12B: a tensor for each head */    \
    EACH_NORM("qk_layernorm"),                         \
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
    ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("2"),
    EOS("3"),
    HEAD_DIM("0"),
    KEY("hidden_act", ACTIVATION, "\"relu2\""),
    HIDDEN("6144"),
    INIT("0.0134"),
    FFN("24576"),
    POSITIONS("4096"),
    MLP_BIAS,
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

/* ---- OLMo ---- */

/* The first one: LayerNorm without weights, of which no file says the epsilon,
 * and a limit of queries, keys and values in OLMo 1.7. */
static const struct gpt_hf_key olmo_keys[] = {
    LLAMA_KEYS, ENDS("null", "50279"), ATTENTION_BIAS, NO_PAD,
    OWN_HEAD_DIM,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    POSITIONS("2048"), VOCAB("50304"), ROPE("10000"), TIED("false"),
    CAP("clip_qkv", clip_qkv, "null"),
};
const struct gpt_hf_family gpt_hf_olmo = {
    .model_type = "olmo",
    .architecture = "OlmoForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,
             .gated = true, .no_linear_bias = true, .no_norm_weight = true,
             .norm_epsilon = 1e-5},
    TABLES(llama_rules, olmo_keys),
};

/* ---- nanochat ---- */

/* Norms without weights, of words and of heads too, after these turned; squared
 * ReLU; heads turn the other way. */
static const struct gpt_hf_rule nanochat_rules[] = {
    LLAMA_WORDS,
    RULE(QKV_WEIGHT, Q_TURNED, "layers.%.self_attn.q_proj.weight"),
    RULE(QKV_BIAS, Q_TURNED, "layers.%.self_attn.q_proj.bias"),
    RULE(QKV_WEIGHT, K_TURNED, "layers.%.self_attn.k_proj.weight"),
    RULE(QKV_BIAS, K_TURNED, "layers.%.self_attn.k_proj.bias"),
    RULE(QKV_WEIGHT, V, "layers.%.self_attn.v_proj.weight"),
    RULE(QKV_BIAS, V, "layers.%.self_attn.v_proj.bias"),
    LLAMA_PROJ,
    RULE(FC1_WEIGHT, SAME, "layers.%.mlp.fc1.weight"),
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.fc2.weight"),
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),
};
static const struct gpt_hf_key nanochat_keys[] = {
    COMMON_KEYS, ENDS("0", "1"), ATTENTION_BIAS, NO_PAD,
    OWN_HEAD_DIM,
    HIDDEN("768"), FFN("8192"), LAYERS("12"), HEADS("6"), KV_HEADS("0"),
    POSITIONS("2048"), VOCAB("50304"), RMS_EPS("1e-6"), ROPE("10000"),
    TIED("false"),
    CAP("final_logit_softcapping", final_logit_softcapping, "15"),
    KEY("hidden_act", ACTIVATION, "\"relu2\""),
};
const struct gpt_hf_family gpt_hf_nanochat = {
    .model_type = "nanochat",
    .architecture = "NanoChatForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,
             .normalization = GPT_RMSNORM, .no_linear_bias = true,
             .no_norm_weight = true, .embedding_norm = true, .qk_norm = true,
             .qk_norm_turned = true},
    TABLES(nanochat_rules, nanochat_keys),
};

/* ---- Apertus ---- */

/* Norms of heads, and xIELU, whose numbers are parameters of each layer. Its
 * two constants are tensors, too. Without an object of rotary positions
 * the class has Llama 3's scaling. */
static const struct gpt_hf_rule apertus_rules[] = {
    LLAMA_ATTENTION,
    RULE(FC1_WEIGHT, SAME, "layers.%.mlp.up_proj.weight"),
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.down_proj.weight"),
    RULE(ALPHA_P, SAME, "layers.%.mlp.act_fn.alpha_p"),
    RULE(ALPHA_N, SAME, "layers.%.mlp.act_fn.alpha_n"),
    RULE(NORM1_WEIGHT, SAME, "layers.%.attention_layernorm.weight"),
    RULE(NORM2_WEIGHT, SAME, "layers.%.feedforward_layernorm.weight"),
    LLAMA_ENDS,
};
static const struct gpt_hf_constant apertus_constants[] = {
    {GPT_ALPHA_N, "layers.%.mlp.act_fn.beta", 0.5F},
    {GPT_ALPHA_N, "layers.%.mlp.act_fn.eps", -1e-6F},
};
#define APERTUS_KEYS(vocab)                                                    \
    COMMON_KEYS, ENDS("1", "2"), ATTENTION_BIAS, NO_MLP_BIAS, NO_PAD,          \
    OWN_HEAD_DIM,                                                              \
    HIDDEN("4096"), FFN("14336"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),    \
    POSITIONS("65536"), VOCAB(vocab), RMS_EPS("1e-5"), TIED("false"),          \
    ROPE_OF("{\"rope_type\": \"llama3\", \"rope_theta\": 12000000,"            \
            " \"factor\": 8, \"original_max_position_embeddings\": 8192,"      \
            " \"low_freq_factor\": 1, \"high_freq_factor\": 4}",               \
            "12000000"),                                                       \
    KEY("hidden_act", ACTIVATION, "\"xielu\"")
static const struct gpt_hf_key apertus_keys[] = {
    APERTUS_KEYS("131072"),
    KEY("post_norm", MUST, "false"),
    KEY("qk_norm", ONLY, "true"),
};
#define APERTUS                                                                \
    .prefix = "model.",                                                        \
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,     \
             .normalization = GPT_RMSNORM, .no_linear_bias = true,             \
             .qk_norm = true},                                                 \
    CONSTANTS(apertus_constants)
const struct gpt_hf_family gpt_hf_apertus = {
    .model_type = "apertus",
    .architecture = "ApertusForCausalLM",
    APERTUS,
    TABLES(apertus_rules, apertus_keys),
};

/* The text part of 1.5, as a model of its own. Its words include codes of
 * pictures and sound; an output layer of fewer rows than that is refused. */
static const struct gpt_hf_key apertus_text_keys[] = {
    APERTUS_KEYS("266752"),
    KEY("output_vocab_size", MUST, "null"),
};
const struct gpt_hf_family gpt_hf_apertus_text = {
    .model_type = "apertus1p5_text",
    .architecture = "Apertus1p5TextForCausalLM",
    APERTUS,
    TABLES(apertus_rules, apertus_text_keys),
};

/* ---- Persimmon ---- */

/* GPT-NeoX's layer one block after the other, with squared ReLU and LayerNorm
 * of heads with biases. A head's query, key and value follow each other. */
static const struct gpt_hf_rule persimmon_rules[] = {
    LLAMA_WORDS,
    RULE(QKV_WEIGHT, SAME, "layers.%.self_attn.query_key_value.weight"),
    RULE(QKV_BIAS, SAME, "layers.%.self_attn.query_key_value.bias"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.dense.weight"),
    RULE(PROJ_BIAS, SAME, "layers.%.self_attn.dense.bias"),
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.self_attn.q_layernorm.weight"),
    RULE(Q_NORM_BIAS, SAME, "layers.%.self_attn.q_layernorm.bias"),
    RULE(K_NORM_WEIGHT, SAME, "layers.%.self_attn.k_layernorm.weight"),
    RULE(K_NORM_BIAS, SAME, "layers.%.self_attn.k_layernorm.bias"),
    RULE(FC1_WEIGHT, SAME, "layers.%.mlp.dense_h_to_4h.weight"),
    RULE(FC1_BIAS, SAME, "layers.%.mlp.dense_h_to_4h.bias"),
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.dense_4h_to_h.weight"),
    RULE(FC2_BIAS, SAME, "layers.%.mlp.dense_4h_to_h.bias"),
    LLAMA_NORMS,
    RULE(FINAL_NORM_WEIGHT, SAME, "final_layernorm.weight"),
    RULE(FINAL_NORM_BIAS, SAME, "final_layernorm.bias"),
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),
};
static const struct gpt_hf_key persimmon_keys[] = {
    COMMON_KEYS, ENDS("1", "2"), NO_PAD,
    HIDDEN("4096"), FFN("16384"), LAYERS("36"), HEADS("64"),
    POSITIONS("16384"), VOCAB("262144"), ROPE("25000"), TIED("false"),
    KEY("hidden_act", ACTIVATION, "\"relu2\""),
    RATE("hidden_dropout", hidden_dropout, "0"),
    RATE("layer_norm_eps", norm_epsilon, "1e-5"),
    ROTARY_SHARE("0.5"),
    FLAG("qk_layernorm", qk_norm, "true"),
};
const struct gpt_hf_family gpt_hf_persimmon = {
    .model_type = "persimmon",
    .architecture = "PersimmonForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_ROPE},
    TABLES(persimmon_rules, persimmon_keys),
};
