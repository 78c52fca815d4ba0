/* Families of Hugging Face that compute what Llama does with small
 * differences: a rotation, a window, layers that do not turn, norms of heads,
 * biases, or other names alone. See family.h.
 *
 * Newer classes know one object of rotary positions alone, and some have a
 * scaling in it where a file says nothing: such families write the object in
 * any case (ROPE_OF).
 *
 * A switch that is MUST here is off in every model that was published, and its
 * class has been compared with it off alone. Switches of biases have been
 * compared on and off, though hardly any model has them on. */
#include "checkpoint/huggingface/rows.h"

/* Rows of biases and norms of heads wait for models that have them. */
static const struct gpt_hf_rule llama_rules[] = {
    LLAMA_RULES,
};

/* ---- SmolLM3 ---- */

/* Some layers do not turn. A window is in the class, and in no model. */
static const struct gpt_hf_key smollm3_keys[] = {
    LLAMA_KEYS, ENDS("128000", "128001"), ATTENTION_BIAS, MLP_BIAS,
    NO_PAD,
    HIDDEN("2048"), FFN("11008"), LAYERS("36"), HEADS("16"), KV_HEADS("4"),
    HEAD_DIM("0"), POSITIONS("32768"), VOCAB("128256"), RMS_EPS("1e-6"),
    ROPE("2000000"), TIED("true"),
    /* written by the class itself, "full_attention" for each layer */
    KEY("layer_types", LAYER_TYPES, "null"),
    /* the list counts; without it every so many-th layer does not turn. In the
     * list 1 is a layer that does, whatever its name says. */
    KEY("no_rope_layer_interval", TURNS_EVERY, "4"),
    KEY("no_rope_layers", TURNS, "null"),
    KEY("sliding_window", UNUSED, "null"),
    KEY("use_sliding_window", MUST, "false"),
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
    NOT("use_bias", no_linear_bias, "false"), /* of all products */
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

/* ---- Seed-OSS ---- */

/* Three switches of biases, of which one is on in its files. */
static const struct gpt_hf_key seed_keys[] = {
    ARCHITECTURES,
    QKV_BIAS("true"),
    /* not 0 by default, unlike all others here: fine-tuning drops */
    RATE("attention_dropout", attention_dropout, "0.1"),
    KEY("attention_out_bias", PROJ_BIAS, "false"),
    BOS("0"),
    EOS("2"),
    HEAD_DIM("128"),
    KEY("hidden_act", ACTIVATION, "\"silu\""),
    HIDDEN("4096"),
    INIT("0.02"),
    FFN("27648"),
    POSITIONS("524288"),
    MLP_BIAS,
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
    LLAMA_ATTENTION, LLAMA_FUSED_MLP, LLAMA_NORMS, LLAMA_ENDS,
};
static const struct gpt_hf_key glm_keys[] = {GLM_KEYS};
const struct gpt_hf_family gpt_hf_glm = {
    .model_type = "glm",
    .architecture = "GlmForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .rotary_interleaved = true},
    TABLES(glm_rules, glm_keys),
};

/* ---- Helium ---- */

/* Neighbours turn, as in Ernie. Its class wants heads that make up the width:
 * a model with others has an output product that it cannot load. */
static const struct gpt_hf_key helium_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), QKV_BIAS("false"), MLP_BIAS, NO_PAD,
    HIDDEN("2560"), FFN("7040"), LAYERS("24"), HEADS("20"), KV_HEADS("20"),
    HEAD_DIM("128"), POSITIONS("4096"), VOCAB("48000"), RMS_EPS("1e-8"),
    ROPE("100000"), TIED("false"),
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
 * are its own, and newer files may have Llama's. Both are on or off: the class
 * refuses one alone. */
#define INTERNLM3_KEYS                                                      \
    LLAMA_KEYS, ENDS("1", "2"), NO_PAD,                                     \
    HIDDEN("4096"), FFN("10240"), LAYERS("48"), HEADS("32"), KV_HEADS("2"), \
    HEAD_DIM("128"), POSITIONS("32768"), VOCAB("128512"), RMS_EPS("1e-5"),  \
    ROPE("10000"), TIED("false")
static const struct gpt_hf_key internlm3_keys[] = {
    INTERNLM3_KEYS,
    {"bias", "mlp_bias", GPT_HF_MUST, "false", 0},
    {"qkv_bias", "attention_bias", GPT_HF_MUST, "false", 0},
};
static const struct gpt_hf_key internlm3_biased_keys[] = {
    INTERNLM3_KEYS,
    {"bias", "mlp_bias", GPT_HF_MUST, "true", 0},
    {"qkv_bias", "attention_bias", GPT_HF_SAID, "true", 0},
};
const struct gpt_hf_family gpt_hf_internlm3 = {
    .model_type = "internlm3",
    .architecture = "InternLM3ForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {LLAMA_BASE},
    TABLES(llama_rules, internlm3_keys),
};
const struct gpt_hf_family gpt_hf_internlm3_biased = {
    .model_type = "internlm3",
    .architecture = "InternLM3ForCausalLM",
    .when = "bias",
    .prefix = "model.",
    .shares_width = true,
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,
             .normalization = GPT_RMSNORM, .gated = true},
    TABLES(llama_rules, internlm3_biased_keys),
};

/* ---- Ministral 3 ---- */

/* Mistral's layer, whose queries grow with their positions: by 0.1 times the
 * logarithm of how often a text has been as long as texts of pretraining were,
 * so that attention over many keys stays as sharp as over few. Without an
 * object of rotary positions its class has YaRN. Files with pictures, too, are
 * of another type, and hold this one under other names: see pictures.c. */
static const struct gpt_hf_key ministral3_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), NO_PAD,
    HIDDEN("4096"), FFN("14336"), LAYERS("34"), HEADS("32"), KV_HEADS("8"),
    HEAD_DIM("128"), POSITIONS("262144"), VOCAB("131072"), RMS_EPS("1e-5"),
    TIED("false"),
    ROPE_OF("{\"rope_type\": \"yarn\", \"rope_theta\": 1000000,"
            " \"factor\": 16, \"original_max_position_embeddings\": 16384,"
            " \"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 1,"
            " \"mscale_all_dim\": 1, \"llama_4_scaling_beta\": 0.1}",
            "1000000"),
    KEY("sliding_window", WINDOW, "null"),
};
const struct gpt_hf_family gpt_hf_ministral3 = {
    .model_type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .prefix = "model.",
    .grows_queries = true,
    .base = {LLAMA_BASE},
    TABLES(llama_rules, ministral3_keys),
};

/* ---- Hunyuan ---- */

/* Norms of heads come after positions, with a weight for all heads of queries
 * and one for those of keys, as in Qwen 3, by other names. */
static const struct gpt_hf_rule hunyuan_rules[] = {
    LLAMA_WORDS,
    LLAMA_QKV,
    LLAMA_PROJ,
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.self_attn.query_layernorm.weight"),
    RULE(K_NORM_WEIGHT, SAME, "layers.%.self_attn.key_layernorm.weight"),
    LLAMA_MLP,
    RULE(NORM1_WEIGHT, SAME, "layers.%.input_layernorm.weight"),
    LLAMA_NORM2,
    LLAMA_ENDS,
};
/* Its positions are "dynamic" with a number "alpha", which enlarges the base
 * once and for all: the length of a text changes nothing, unlike what the word
 * means elsewhere. "factor" and the numbers of YaRN beside it are not read. */
static const struct gpt_hf_key hunyuan_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, NO_MLP_BIAS, NO_PAD,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    HEAD_DIM("0"), POSITIONS("2048"), VOCAB("290943"), RMS_EPS("1e-5"),
    ROPE("10000"), TIED("false"), HUNYUAN_NOTES,
};
const struct gpt_hf_family gpt_hf_hunyuan = {
    .model_type = "hunyuan_v1_dense",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .prefix = "model.",
    .has_alpha = true,
    .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_turned = true},
    TABLES(hunyuan_rules, hunyuan_keys),
};

/* ---- EXAONE ---- */

/* Before EXAONE 4, in three sizes, and EXAONE Deep: Llama's function, which
 * transformers computes by its class, under names of GPT-2's kind. Both names
 * of a key are read, and the first ones are written, which all versions
 * know. */
static const struct gpt_hf_rule exaone_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    RULE(QKV_WEIGHT, Q, "h.%.attn.attention.q_proj.weight"),
    RULE(QKV_BIAS, Q, "h.%.attn.attention.q_proj.bias"),
    RULE(QKV_WEIGHT, K, "h.%.attn.attention.k_proj.weight"),
    RULE(QKV_BIAS, K, "h.%.attn.attention.k_proj.bias"),
    RULE(QKV_WEIGHT, V, "h.%.attn.attention.v_proj.weight"),
    RULE(QKV_BIAS, V, "h.%.attn.attention.v_proj.bias"),
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.attention.out_proj.weight"),
    RULE(PROJ_BIAS, SAME, "h.%.attn.attention.out_proj.bias"),
    RULE(GATE_WEIGHT, SAME, "h.%.mlp.c_fc_0.weight"),
    RULE(GATE_BIAS, SAME, "h.%.mlp.c_fc_0.bias"),
    RULE(FC1_WEIGHT, SAME, "h.%.mlp.c_fc_1.weight"),
    RULE(FC1_BIAS, SAME, "h.%.mlp.c_fc_1.bias"),
    RULE(FC2_WEIGHT, SAME, "h.%.mlp.c_proj.weight"),
    RULE(FC2_BIAS, SAME, "h.%.mlp.c_proj.bias"),
    RULE(NORM1_WEIGHT, SAME, "h.%.ln_1.weight"),
    RULE(NORM2_WEIGHT, SAME, "h.%.ln_2.weight"),
    RULE(FINAL_NORM_WEIGHT, SAME, "ln_f.weight"),
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),
};
/* Dropout of words alone is a key of the first implementation; the class has
 * none there. */
static const struct gpt_hf_key exaone_keys[] = {
    COMMON_KEYS, ENDS("1", "361"), ATTENTION_BIAS, MLP_BIAS, NO_PAD,
    HIDDEN("4096"), FFN("14336"), HEADS("32"), KV_HEADS("8"), HEAD_DIM("0"),
    POSITIONS("4096"), VOCAB("102400"), ROPE("500000"), TIED("false"),
    {"activation_function", "hidden_act", GPT_HF_ACTIVATION, "\"silu\"", 0},
    KEY("embed_dropout", UNUSED, "null"),
    {"layer_norm_epsilon", "rms_norm_eps", GPT_HF_RATE, "1e-5",
     AT(norm_epsilon)},
    {"num_layers", "num_hidden_layers", GPT_HF_SIZE, "32", AT(num_layers)},
};
const struct gpt_hf_family gpt_hf_exaone = {
    .model_type = "exaone",
    .architecture = "ExaoneForCausalLM",
    .prefix = "transformer.",
    .shares_width = true,
    .base = {LLAMA_BASE},
    TABLES(exaone_rules, exaone_keys),
};

/* ---- CWM, Ministral, IQuest-Coder ---- */

/* Three more descendants of Llama: with windows in most layers, in those of a
 * list, and without any. The first has Llama 3's scaling where a file has no
 * object of rotary positions, and a list of its own where a file has none:
 * that begins with a full layer, which no number here says. All files have it.
 */
static const struct gpt_hf_key cwm_keys[] = {
    LLAMA_KEYS, ENDS("128000", "128001"), NO_ATTENTION_BIAS, MLP_BIAS,
    HIDDEN("6144"), FFN("21504"), LAYERS("64"), HEADS("48"), KV_HEADS("8"),
    HEAD_DIM("128"), POSITIONS("131072"), VOCAB("128256"), RMS_EPS("1e-5"),
    TIED("false"),
    KEY("layer_types", LAYER_TYPES, NULL),
    ROPE_OF("{\"rope_type\": \"llama3\", \"rope_theta\": 1000000,"
            " \"factor\": 16, \"original_max_position_embeddings\": 8192,"
            " \"low_freq_factor\": 1, \"high_freq_factor\": 4}",
            "1000000"),
    KEY("sliding_window", WINDOW, "8192"),
};
const struct gpt_hf_family gpt_hf_cwm = {
    .model_type = "cwm",
    .architecture = "CwmForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .counts_window = true,
    .base = {LLAMA_BASE},
    TABLES(llama_rules, cwm_keys),
};

/* Mistral's keys and a list of layers; without one all have the window. Files
 * of before that class are of the type of Mistral, and have no such list: the
 * same model, with the window in all layers or in none. */
static const struct gpt_hf_key ministral_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"),
    HIDDEN("4096"), FFN("14336"), LAYERS("32"), HEADS("32"), KV_HEADS("8"),
    HEAD_DIM("0"), POSITIONS("131072"), VOCAB("32000"), RMS_EPS("1e-6"),
    ROPE("10000"), TIED("false"),
    KEY("layer_types", LAYER_TYPES, "null"),
    KEY("sliding_window", WINDOW, "4096"),
};
const struct gpt_hf_family gpt_hf_ministral = {
    .model_type = "ministral",
    .architecture = "MinistralForCausalLM",
    .prefix = "model.",
    .counts_window = true,
    .base = {LLAMA_BASE},
    TABLES(llama_rules, ministral_keys),
};

/* transformers computes it by Llama's class, which is why a window is refused
 * there: its original implementation had one, and no model that was published
 * has it. */
static const struct gpt_hf_key iquest_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, MLP_BIAS, NO_PAD,
    HIDDEN("5120"), FFN("27648"), LAYERS("80"), HEADS("40"), KV_HEADS("8"),
    HEAD_DIM("128"), POSITIONS("131072"), VOCAB("76800"), RMS_EPS("1e-5"),
    ROPE("10000"), TIED("false"),
    KEY("use_sliding_window", MUST, "false"),
};
const struct gpt_hf_family gpt_hf_iquest = {
    .model_type = "iquestcoder",
    .architecture = "IQuestCoderForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {LLAMA_BASE},
    TABLES(llama_rules, iquest_keys),
};
