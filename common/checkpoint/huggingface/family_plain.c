/* Families of Hugging Face with Llama's names of tensors and another
 * feed-forward or other norms: no gate, squared ReLU, LayerNorm. See family.h.
 *
 * A switch that is MUST here is off in every model that was published, and its
 * class has been compared with it off alone. */
#include "checkpoint/huggingface/rows.h"

/* Rows of biases and norms of heads wait for models that have them. */
static const struct gpt_hf_rule llama_rules[] = {
    LLAMA_ATTENTION, LLAMA_NORM2, LLAMA_MLP, LLAMA_ENDS,
};

/* ---- Arcee ---- */

/* Squared ReLU without a gate: the first product is called as that beside a
 * gate. */
static const struct gpt_hf_key arcee_keys[] = {
    COMMON_KEYS, ENDS("128000", "128001"), NO_ATTENTION_BIAS, NO_MLP_BIAS,
    HIDDEN("2560"), FFN("18432"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    HEAD_DIM("0"), POSITIONS("4096"), VOCAB("32000"), RMS_EPS("1e-5"),
    ROPE("10000"), TIED("false"),
    KEY("hidden_act", ACTIVATION, "\"relu2\""),
};
const struct gpt_hf_family gpt_hf_arcee = {
    .model_type = "arcee",
    .architecture = "ArceeForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,
             .normalization = GPT_RMSNORM, .no_linear_bias = true},
    TABLES(llama_rules, arcee_keys),
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
