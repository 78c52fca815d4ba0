/* The words in which tables of families are written: a line a key, a line a
 * tensor. Only files of such tables include this. */
#ifndef GPT_CHECKPOINT_HF_ROWS_H
#define GPT_CHECKPOINT_HF_ROWS_H

#include "backend.h"
#include "base/memory.h"
#include "checkpoint/hf_family.h"

#define AT(field) offsetof(struct gpt_config, field)
#define SIZE(name, field, def) {name, NULL, GPT_HF_SIZE, def, AT(field)}
#define RATE(name, field, def) {name, NULL, GPT_HF_RATE, def, AT(field)}
#define FLAG(name, field, def) {name, NULL, GPT_HF_FLAG, def, AT(field)}
#define NOT(name, field, def) {name, NULL, GPT_HF_NOT, def, AT(field)}
#define KEY(name, kind, def) {name, NULL, GPT_HF_##kind, def, 0}
#define CAP(name, field, def) {name, NULL, GPT_HF_CAP, def, AT(field)}
#define RULE(role, order, name) {GPT_##role, GPT_HF_##order, name}
#define TABLES(r, k) \
    .rules = (r), .n_rules = GPT_COUNT(r), .keys = (k), .n_keys = GPT_COUNT(k)

/* Keys that mean the same everywhere. */
#define ARCHITECTURES KEY("architectures", ARCHITECTURES, "null")
#define TYPE KEY("model_type", MODEL_TYPE, NULL)
#define DTYPE KEY("torch_dtype", DTYPE, "null")
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
#define ATTENTION_DROPOUT RATE("attention_dropout", attention_dropout, "0")
/* Written in the way that all versions read. */
#define ROPE(def)                                  \
    KEY("rope_parameters", PARAMETERS, "null"),    \
    KEY("rope_scaling", SCALING, "null"),          \
    KEY("rope_theta", THETA, def)

/* Tensors that Llama's descendants call alike. */
#define LLAMA_QKV                                              \
    RULE(QKV_WEIGHT, Q, "layers.%.self_attn.q_proj.weight"),   \
    RULE(QKV_WEIGHT, K, "layers.%.self_attn.k_proj.weight"),   \
    RULE(QKV_WEIGHT, V, "layers.%.self_attn.v_proj.weight")
#define LLAMA_MLP                                              \
    RULE(GATE_WEIGHT, SAME, "layers.%.mlp.gate_proj.weight"),  \
    RULE(FC1_WEIGHT, SAME, "layers.%.mlp.up_proj.weight"),     \
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.down_proj.weight")
#define LLAMA_ENDS                                             \
    RULE(FINAL_NORM_WEIGHT, SAME, "norm.weight"),              \
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight")

/* What Llama's descendants share. */
#define LLAMA_BASE                                                            \
    .position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,             \
    .normalization = GPT_RMSNORM, .gated = true, .no_linear_bias = true

/* Families that are in files of their own. */
extern const struct gpt_hf_family gpt_hf_gemma, gpt_hf_gemma2, gpt_hf_olmo2;
extern const struct gpt_hf_family gpt_hf_falcon_new, gpt_hf_falcon_one_norm;
extern const struct gpt_hf_family gpt_hf_bigcode, gpt_hf_opt, gpt_hf_bloom;

#endif
