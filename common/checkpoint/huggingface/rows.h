/* The words in which tables of families are written: a line a key, a line a
 * tensor. Only files of such tables include this. */
#ifndef GPT_CHECKPOINT_HF_ROWS_H
#define GPT_CHECKPOINT_HF_ROWS_H

#include "backend.h"
#include "base/memory.h"
#include "checkpoint/huggingface/family.h"

#define AT(field) offsetof(struct gpt_config, field)
#define SIZE(name, field, def) {name, NULL, GPT_HF_SIZE, def, AT(field)}
#define RATE(name, field, def) {name, NULL, GPT_HF_RATE, def, AT(field)}
#define FLAG(name, field, def) {name, NULL, GPT_HF_FLAG, def, AT(field)}
#define NOT(name, field, def) {name, NULL, GPT_HF_NOT, def, AT(field)}
#define EACH_NORM(name) \
    {name, NULL, GPT_HF_EACH_NORM, "false", AT(qk_norm_each)}
#define KEY(name, kind, def) {name, NULL, GPT_HF_##kind, def, 0}
#define CAP(name, field, def) {name, NULL, GPT_HF_CAP, def, AT(field)}
#define RULE(role, order, name) {GPT_##role, GPT_HF_##order, name}
#define CONSTANTS(c) .constants = (c), .n_constants = GPT_COUNT(c)
#define TABLES(r, k) \
    .rules = (r), .n_rules = GPT_COUNT(r), .keys = (k), .n_keys = GPT_COUNT(k)

/* Keys that mean the same everywhere. */
#define ARCHITECTURES KEY("architectures", ARCHITECTURES, "null")
#define TYPE KEY("model_type", MODEL_TYPE, NULL)
#define DTYPE KEY("torch_dtype", DTYPE, "null")
/* null: the default of a few classes is an id that a smaller vocabulary lacks,
 * and they fail on it. */
#define NO_PAD KEY("pad_token_id", NOTE, "null")
#define CACHE KEY("use_cache", NOTE, "true")
#define BOS(def) KEY("bos_token_id", BOS, def)
#define EOS(def) KEY("eos_token_id", EOS, def)
#define TIED(def) FLAG("tie_word_embeddings", tied_embeddings, def)
#define VOCAB(def) SIZE("vocab_size", vocab_size, def)
#define INIT(def) RATE("initializer_range", init_std, def)
#define LAYERS(def) SIZE("num_hidden_layers", num_layers, def)
#define HIDDEN(def) SIZE("hidden_size", hidden_size, def)
#define HEADS(def) SIZE("num_attention_heads", num_attention_heads, def)
#define FFN(def) SIZE("intermediate_size", ffn_hidden_size, def)
#define POSITIONS(def) SIZE("max_position_embeddings", max_positions, def)
/* 0: as many as heads; the hidden size over heads */
#define KV_HEADS(def) SIZE("num_key_value_heads", num_query_groups, def)
#define HEAD_DIM(def) SIZE("head_dim", head_size, def)
#define OWN_HEAD_DIM {"head_dim", NULL, GPT_HF_HEAD_SIZE, "0", AT(head_size)}
#define ATTENTION_DROPOUT RATE("attention_dropout", attention_dropout, "0")
/* Written in the way that all versions read. */
#define ROPE(def) ROPE_OF("null", def)
/* parameters: the object that the class has without one, as JSON. */
#define ROPE_OF(parameters, def)                   \
    KEY("rope_parameters", PARAMETERS, parameters), \
    KEY("rope_scaling", SCALING, "null"),          \
    KEY("rope_theta", THETA, def)

/* Keys of nearly all classes. A table may have its rows in any order. */
#define COMMON_KEYS \
    ARCHITECTURES, ATTENTION_DROPOUT, INIT("0.02"), TYPE, DTYPE, CACHE
#define LLAMA_KEYS COMMON_KEYS, KEY("hidden_act", ACTIVATION, "\"silu\"")
/* The tokens that begin and end a text. */
#define ENDS(bos, eos) BOS(bos), EOS(eos)

#define RMS_EPS(def) RATE("rms_norm_eps", norm_epsilon, def)
#define ROTARY_SHARE(def) RATE("partial_rotary_factor", rotary_percent, def)
/* Switches of biases: of all of attention; of queries, keys and values alone,
 * where the class has none of attention's output; of the feed-forward. */
#define ATTENTION_BIAS KEY("attention_bias", ATTENTION_BIAS, "false")
#define QKV_BIAS(def) KEY("attention_bias", QKV_BIAS, def)
#define MLP_BIAS KEY("mlp_bias", MLP_BIAS, "false")
/* One that the class does not read: it has no such biases. */
#define NO_ATTENTION_BIAS KEY("attention_bias", MUST, "false")
#define NO_MLP_BIAS KEY("mlp_bias", MUST, "false")

/* Tensors that Llama's descendants call alike. */
#define LLAMA_WORDS RULE(WORD_EMBEDDING, SAME, "embed_tokens.weight")
#define LLAMA_QKV                                              \
    RULE(QKV_WEIGHT, Q, "layers.%.self_attn.q_proj.weight"),   \
    RULE(QKV_BIAS, Q, "layers.%.self_attn.q_proj.bias"),       \
    RULE(QKV_WEIGHT, K, "layers.%.self_attn.k_proj.weight"),   \
    RULE(QKV_BIAS, K, "layers.%.self_attn.k_proj.bias"),       \
    RULE(QKV_WEIGHT, V, "layers.%.self_attn.v_proj.weight"),   \
    RULE(QKV_BIAS, V, "layers.%.self_attn.v_proj.bias")
#define LLAMA_PROJ                                                 \
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.o_proj.weight"),   \
    RULE(PROJ_BIAS, SAME, "layers.%.self_attn.o_proj.bias")
#define LLAMA_QK_NORMS                                             \
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.self_attn.q_norm.weight"), \
    RULE(K_NORM_WEIGHT, SAME, "layers.%.self_attn.k_norm.weight")
#define LLAMA_ATTENTION LLAMA_WORDS, LLAMA_QKV, LLAMA_PROJ, LLAMA_QK_NORMS
#define LLAMA_MLP                                              \
    RULE(GATE_WEIGHT, SAME, "layers.%.mlp.gate_proj.weight"),  \
    RULE(GATE_BIAS, SAME, "layers.%.mlp.gate_proj.bias"),      \
    RULE(FC1_WEIGHT, SAME, "layers.%.mlp.up_proj.weight"),     \
    RULE(FC1_BIAS, SAME, "layers.%.mlp.up_proj.bias"),         \
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.down_proj.weight"),   \
    RULE(FC2_BIAS, SAME, "layers.%.mlp.down_proj.bias")
#define LLAMA_FUSED_MLP                                            \
    RULE(GATE_WEIGHT, FIRST, "layers.%.mlp.gate_up_proj.weight"),  \
    RULE(FC1_WEIGHT, SECOND, "layers.%.mlp.gate_up_proj.weight"),  \
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.down_proj.weight")
/* Biases of LayerNorm are of some classes alone. */
#define LLAMA_NORM1                                                         \
    RULE(NORM1_WEIGHT, SAME, "layers.%.input_layernorm.weight"),            \
    RULE(NORM1_BIAS, SAME, "layers.%.input_layernorm.bias")
#define LLAMA_NORM2                                                         \
    RULE(NORM2_WEIGHT, SAME, "layers.%.post_attention_layernorm.weight"),   \
    RULE(NORM2_BIAS, SAME, "layers.%.post_attention_layernorm.bias")
#define LLAMA_NORMS LLAMA_NORM1, LLAMA_NORM2
#define LLAMA_END_WEIGHT RULE(FINAL_NORM_WEIGHT, SAME, "norm.weight")
#define LLAMA_HEAD RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight")
#define LLAMA_ENDS LLAMA_END_WEIGHT, LLAMA_HEAD
#define LLAMA_BIASED_ENDS \
    LLAMA_END_WEIGHT, RULE(FINAL_NORM_BIAS, SAME, "norm.bias"), LLAMA_HEAD
#define LLAMA_RULES LLAMA_ATTENTION, LLAMA_MLP, LLAMA_NORMS, LLAMA_ENDS

/* Tensors that GPT-2's descendants call alike. */
#define GPT2_NORM1                                                          \
    RULE(NORM1_WEIGHT, SAME, "h.%.ln_1.weight"),                            \
    RULE(NORM1_BIAS, SAME, "h.%.ln_1.bias")
#define GPT2_NORM2                                                          \
    RULE(NORM2_WEIGHT, SAME, "h.%.ln_2.weight"),                            \
    RULE(NORM2_BIAS, SAME, "h.%.ln_2.bias")
#define GPT2_MLP(order)                                                     \
    RULE(FC1_WEIGHT, order, "h.%.mlp.c_fc.weight"),                         \
    RULE(FC1_BIAS, SAME, "h.%.mlp.c_fc.bias"),                              \
    RULE(FC2_WEIGHT, order, "h.%.mlp.c_proj.weight"),                       \
    RULE(FC2_BIAS, SAME, "h.%.mlp.c_proj.bias")
#define GPT2_ENDS                                                           \
    RULE(FINAL_NORM_WEIGHT, SAME, "ln_f.weight"),                           \
    RULE(FINAL_NORM_BIAS, SAME, "ln_f.bias"),                               \
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight")

/* Tensors of all kinds of Falcon, and of BLOOM. */
#define FALCON_WORDS RULE(WORD_EMBEDDING, SAME, "word_embeddings.weight")
#define FALCON_NORM1                                                        \
    RULE(NORM1_WEIGHT, SAME, "h.%.input_layernorm.weight"),                 \
    RULE(NORM1_BIAS, SAME, "h.%.input_layernorm.bias")
#define FALCON_ATTENTION                                                    \
    RULE(QKV_WEIGHT, SAME, "h.%.self_attention.query_key_value.weight"),    \
    RULE(QKV_BIAS, SAME, "h.%.self_attention.query_key_value.bias"),        \
    RULE(PROJ_WEIGHT, SAME, "h.%.self_attention.dense.weight"),             \
    RULE(PROJ_BIAS, SAME, "h.%.self_attention.dense.bias")
#define FALCON_MLP                                                          \
    RULE(FC1_WEIGHT, SAME, "h.%.mlp.dense_h_to_4h.weight"),                 \
    RULE(FC1_BIAS, SAME, "h.%.mlp.dense_h_to_4h.bias"),                     \
    RULE(FC2_WEIGHT, SAME, "h.%.mlp.dense_4h_to_h.weight"),                 \
    RULE(FC2_BIAS, SAME, "h.%.mlp.dense_4h_to_h.bias")

/* What Llama's descendants share. */
#define LLAMA_BASE                                                            \
    .position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,             \
    .normalization = GPT_RMSNORM, .gated = true, .no_linear_bias = true

/* Both of GLM's. The first of several ends of a text is kept: generation stops
 * at what generation_config.json says. */
#define GLM_KEYS                                         \
    ARCHITECTURES,                                       \
    QKV_BIAS("true"),                                    \
    ATTENTION_DROPOUT,                                   \
    BOS("null"),                                         \
    EOS("151329"),                                       \
    HEAD_DIM("128"),                                     \
    KEY("hidden_act", ACTIVATION, "\"silu\""),           \
    HIDDEN("4096"),                                      \
    INIT("0.02"),                                        \
    FFN("13696"),                                        \
    POSITIONS("131072"),                                 \
    TYPE,                                                \
    HEADS("32"),                                         \
    LAYERS("40"),                                        \
    KV_HEADS("2"),                                       \
    NO_PAD,                                              \
    ROTARY_SHARE("0.5"),                                 \
    RMS_EPS("0.00000015625"),                            \
    ROPE("10000"),                                       \
    TIED("false"),                                       \
    DTYPE,                                               \
    CACHE,                                               \
    VOCAB("151552")

/* Granite's hybrid class has attention in every layer of what is read, and no
 * layer of Mamba's, which it checks in any case; its default has no
 * positions. */
#define HYBRID_KEYS                                               \
    KEY("init_method", UNUSED, "null"),                           \
    KEY("layer_types", ATTENTION, NULL),                          \
    KEY("mamba_chunk_size", UNUSED, "null"),                      \
    KEY("mamba_conv_bias", UNUSED, "null"),                       \
    KEY("mamba_d_conv", UNUSED, "null"),                          \
    KEY("mamba_d_head", UNUSED, "null"),                          \
    KEY("mamba_d_state", UNUSED, "null"),                         \
    KEY("mamba_expand", UNUSED, "null"),                          \
    KEY("mamba_n_groups", UNUSED, "null"),                        \
    /* one divides every width */                                 \
    KEY("mamba_n_heads", NOTE, "1"),                              \
    KEY("mamba_proj_bias", UNUSED, "null"),                       \
    KEY("normalization_function", ONLY, "\"rmsnorm\""),           \
    KEY("position_embedding_type", SAID, "\"rope\""),             \
    KEY("time_step_limit", UNUSED, "null")

/* What files of Hunyuan have of tokenizers, of pictures, and of an older
 * implementation, whose layers could share keys and values. */
#define HUNYUAN_NOTES                                             \
    /* of heads, again: head_dim counts */                        \
    KEY("attention_head_dim", UNUSED, "null"),                    \
    KEY("cla_share_factor", UNUSED, "null"),                      \
    KEY("class_num", UNUSED, "null"),                             \
    KEY("dense_list", UNUSED, "null"),                            \
    KEY("eod_token_id", UNUSED, "null"),                          \
    KEY("im_end_id", UNUSED, "null"),                             \
    KEY("im_newline_id", UNUSED, "null"),                         \
    KEY("im_start_id", UNUSED, "null"),                           \
    KEY("mask_init_id", UNUSED, "null"),                          \
    KEY("norm_type", ONLY, "\"rms\""),                            \
    KEY("org_vocab_size", UNUSED, "null"),                        \
    KEY("pad_id", UNUSED, "null"),                                \
    KEY("pool_type", UNUSED, "null"),                             \
    KEY("text_end_id", UNUSED, "null"),                           \
    KEY("text_start_id", UNUSED, "null"),                         \
    KEY("use_cla", MUST, "false"),                                \
    KEY("use_qk_norm", ONLY, "true"),                             \
    KEY("use_rotary_pos_emb", ONLY, "true")

/* Families that are in files of their own. */
extern const struct gpt_hf_family gpt_hf_gemma, gpt_hf_gemma2, gpt_hf_olmo2;
extern const struct gpt_hf_family gpt_hf_falcon_new, gpt_hf_falcon_one_norm;
extern const struct gpt_hf_family gpt_hf_falcon_alibi;
extern const struct gpt_hf_family gpt_hf_bigcode, gpt_hf_opt, gpt_hf_bloom;
extern const struct gpt_hf_family gpt_hf_gemma3, gpt_hf_olmo3, gpt_hf_exaone4;
extern const struct gpt_hf_family gpt_hf_glm, gpt_hf_glm4, gpt_hf_granite;
extern const struct gpt_hf_family gpt_hf_smollm3, gpt_hf_ernie, gpt_hf_arcee;
extern const struct gpt_hf_family gpt_hf_seed, gpt_hf_nemotron;
extern const struct gpt_hf_family gpt_hf_stablelm, gpt_hf_stablelm_parallel;
extern const struct gpt_hf_family gpt_hf_cohere, gpt_hf_cohere2, gpt_hf_phi;
extern const struct gpt_hf_family gpt_hf_gptj, gpt_hf_vaultgemma;
extern const struct gpt_hf_family gpt_hf_hyperclovax, gpt_hf_helium;
extern const struct gpt_hf_family gpt_hf_internlm3, gpt_hf_jais2;
extern const struct gpt_hf_family gpt_hf_internlm3_biased;
extern const struct gpt_hf_family gpt_hf_ministral3, gpt_hf_hunyuan;
extern const struct gpt_hf_family gpt_hf_exaone, gpt_hf_granite_hybrid;
extern const struct gpt_hf_family gpt_hf_cwm, gpt_hf_ministral, gpt_hf_iquest;
extern const struct gpt_hf_family gpt_hf_gpt_neo;
extern const struct gpt_hf_family gpt_hf_olmo, gpt_hf_nanochat, gpt_hf_apertus;
extern const struct gpt_hf_family gpt_hf_apertus_text;
extern const struct gpt_hf_family gpt_hf_persimmon, gpt_hf_mpt;
extern const struct gpt_hf_family gpt_hf_codegen, gpt_hf_biogpt;
extern const struct gpt_hf_family gpt_hf_mixtral, gpt_hf_qwen2_moe;
extern const struct gpt_hf_family gpt_hf_qwen3_moe, gpt_hf_mellum;
extern const struct gpt_hf_family gpt_hf_olmoe, gpt_hf_flex_olmo;
extern const struct gpt_hf_family gpt_hf_granite_moe, gpt_hf_granite_shared;
extern const struct gpt_hf_family gpt_hf_granite_hybrid_moe;
extern const struct gpt_hf_family gpt_hf_hunyuan_moe, gpt_hf_glm4_moe;
extern const struct gpt_hf_family gpt_hf_dots1, gpt_hf_solar_open;
extern const struct gpt_hf_family gpt_hf_exaone_moe, gpt_hf_hy_v3;
extern const struct gpt_hf_family gpt_hf_minimax_m2, gpt_hf_ernie_moe;
extern const struct gpt_hf_family gpt_hf_deepseek_v3, gpt_hf_kimi_k2;
extern const struct gpt_hf_family gpt_hf_glm4_lite, gpt_hf_deepseek_v2;
extern const struct gpt_hf_family gpt_hf_youtu, gpt_hf_minicpm3;
extern const struct gpt_hf_family gpt_hf_aria, gpt_hf_sarvam_moe;
extern const struct gpt_hf_family gpt_hf_internlm2, gpt_hf_chatglm;
extern const struct gpt_hf_family gpt_hf_qwen, gpt_hf_minicpm;
extern const struct gpt_hf_family gpt_hf_deepseek, gpt_hf_bailing;

#endif
