/* Families of Hugging Face with LayerNorm that are older than Llama, or built
 * like those: Falcon but for 7B, StarCoder, OPT, BioGPT, BLOOM, GPT-Neo,
 * Jais 2 and MPT; see family.h. Fused products of queries, keys and values have
 * our order but for MPT's: query heads of a group, its key, its value. */
#include "checkpoint/huggingface/rows.h"

/* ---- Falcon 40B ---- */

/* Both blocks side by side, each after a norm of its own. */
static const struct gpt_hf_rule falcon_new_rules[] = {
    FALCON_WORDS,
    FALCON_ATTENTION,
    FALCON_MLP,
    RULE(NORM1_WEIGHT, SAME, "h.%.ln_attn.weight"),
    RULE(NORM1_BIAS, SAME, "h.%.ln_attn.bias"),
    RULE(NORM2_WEIGHT, SAME, "h.%.ln_mlp.weight"),
    RULE(NORM2_BIAS, SAME, "h.%.ln_mlp.bias"),
    GPT2_ENDS,
};
/* Falcon 11B: one norm for both, as in 7B, and query groups. */
static const struct gpt_hf_rule falcon_one_norm_rules[] = {
    FALCON_WORDS, FALCON_ATTENTION, FALCON_MLP, FALCON_NORM1, GPT2_ENDS,
};
/* multi_query and parallel_attn are not read where the architecture is new.
 * Absence of num_kv_heads means as many as heads. */
#define FALCON_NEW_KEYS(norms)                                                 \
    KEY("activation", ACTIVATION, "\"gelu\""),                                 \
    KEY("alibi", MUST, "false"),                                               \
    KEY("apply_residual_connection_post_layernorm", MUST, "false"),            \
    ARCHITECTURES,                                                             \
    ATTENTION_DROPOUT,                                                         \
    NOT("bias", no_linear_bias, "false"),                                      \
    BOS("11"),                                                                 \
    EOS("11"),                                                                 \
    SIZE("ffn_hidden_size", ffn_hidden_size, "0"),                             \
    RATE("hidden_dropout", hidden_dropout, "0"),                               \
    HIDDEN("4544"),                                                            \
    INIT("0.02"),                                                              \
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),                          \
    POSITIONS("2048"),                                                         \
    TYPE,                                                                      \
    KEY("multi_query", UNUSED, "null"),                                        \
    KEY("new_decoder_architecture", MUST, "true"),                             \
    HEADS("71"),                                                               \
    LAYERS("32"),                                                              \
    SIZE("num_kv_heads", num_query_groups, "0"),                               \
    /* absence means 2 where the architecture is new */                        \
    KEY("num_ln_in_parallel_attn", MUST, norms),                               \
    KEY("parallel_attn", MUST, "true"),                                        \
    ROPE("10000"),                                                             \
    TIED("true"),                                                              \
    DTYPE,                                                                     \
    CACHE,                                                                     \
    VOCAB("65024")
static const struct gpt_hf_key falcon_new_keys[] = {FALCON_NEW_KEYS("2")};
static const struct gpt_hf_key falcon_one_norm_keys[] = {FALCON_NEW_KEYS("1")};
#define FALCON_BASE                                                            \
    .position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1,              \
    .parallel_blocks = true
const struct gpt_hf_family gpt_hf_falcon_new = {
    .model_type = "falcon",
    .architecture = "FalconForCausalLM",
    .when = "new_decoder_architecture",
    .prefix = "transformer.",
    .base = {FALCON_BASE},
    TABLES(falcon_new_rules, falcon_new_keys),
};
const struct gpt_hf_family gpt_hf_falcon_one_norm = {
    .model_type = "falcon",
    .architecture = "FalconForCausalLM",
    .when = "num_ln_in_parallel_attn",
    .when_is = 1,
    .prefix = "transformer.",
    .base = {FALCON_BASE, .shared_norm = true},
    TABLES(falcon_one_norm_rules, falcon_one_norm_keys),
};

/* Falcon RW: blocks that follow each other, each after a norm, and ALiBi, with
 * which its class reads no key of rotary positions. The numbers are those of
 * the attention that the class has by itself: asked for "eager", transformers 5
 * adds ALiBi twice. */
static const struct gpt_hf_rule falcon_alibi_rules[] = {
    FALCON_WORDS,
    FALCON_ATTENTION,
    FALCON_MLP,
    RULE(NORM2_WEIGHT, SAME, "h.%.post_attention_layernorm.weight"),
    RULE(NORM2_BIAS, SAME, "h.%.post_attention_layernorm.bias"),
    FALCON_NORM1,
    GPT2_ENDS,
};
static const struct gpt_hf_rule falcon_alibi_before[] = {
    FALCON_WORDS,
    FALCON_ATTENTION,
    FALCON_MLP,
    FALCON_NORM1,
    RULE(NORM2_WEIGHT, SAME, "h.%.post_attention_layernorm.weight"),
    RULE(NORM2_BIAS, SAME, "h.%.post_attention_layernorm.bias"),
    GPT2_ENDS,
};
_Static_assert(GPT_COUNT(falcon_alibi_before) == GPT_COUNT(falcon_alibi_rules),
               "the same rules in another order");
static const struct gpt_hf_key falcon_alibi_keys[] = {
    COMMON_KEYS, ENDS("11", "11"),
    HIDDEN("4544"), LAYERS("32"), HEADS("71"), POSITIONS("2048"),
    VOCAB("65024"), TIED("true"),
    KEY("activation", ACTIVATION, "\"gelu\""),
    KEY("alibi", SAID, "true"),
    KEY("apply_residual_connection_post_layernorm", MUST, "false"),
    NOT("bias", no_linear_bias, "false"),
    SIZE("ffn_hidden_size", ffn_hidden_size, "0"),
    RATE("hidden_dropout", hidden_dropout, "0"),
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),
    KEY("multi_query", MULTIQUERY, "true"),
    KEY("new_decoder_architecture", MUST, "false"),
    KEY("num_kv_heads", UNUSED, "null"),
    KEY("num_ln_in_parallel_attn", UNUSED, "null"),
    KEY("parallel_attn", SAID, "false"),
    KEY("rope_parameters", UNUSED, "null"),
    KEY("rope_scaling", UNUSED, "null"),
    KEY("rope_theta", UNUSED, "null"),
};
const struct gpt_hf_family gpt_hf_falcon_alibi = {
    .model_type = "falcon",
    .architecture = "FalconForCausalLM",
    .when = "alibi",
    .prefix = "transformer.",
    .base = {.position_embedding = GPT_POSITION_ALIBI_BF16},
    TABLES(falcon_alibi_rules, falcon_alibi_keys),
    .before = falcon_alibi_before,
    .reordered = "4.41",
};

/* ---- StarCoder ---- */

/* GPT-2's names, and matrices as ours: no Conv1D. With one head of keys and
 * values these come after all queries; else every head is a group. */
static const struct gpt_hf_rule bigcode_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    RULE(POSITION_EMBEDDING, SAME, "wpe.weight"),
    GPT2_NORM1,
    RULE(QKV_WEIGHT, SAME, "h.%.attn.c_attn.weight"),
    RULE(QKV_BIAS, SAME, "h.%.attn.c_attn.bias"),
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.c_proj.weight"),
    RULE(PROJ_BIAS, SAME, "h.%.attn.c_proj.bias"),
    GPT2_NORM2,
    GPT2_MLP(SAME),
    GPT2_ENDS,
};
/* Keys of a server for such models, and of rounding, are in its files. */
static const struct gpt_hf_key bigcode_keys[] = {
    KEY("activation_function", ACTIVATION, "\"gelu_pytorch_tanh\""),
    KEY("add_cross_attention", MUST, "false"),
    ARCHITECTURES,
    /* statistics of the softmax are float here in any case */
    KEY("attention_softmax_in_fp32", UNUSED, "null"),
    RATE("attn_pdrop", attention_dropout, "0.1"),
    BOS("50256"),
    KEY("embd_pdrop", OTHER_DROPOUT, "null"),
    EOS("50256"),
    KEY("inference_runner", UNUSED, "null"),
    INIT("0.02"),
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),
    /* of a server: how much memory it takes at its start */
    KEY("max_batch_size", UNUSED, "null"),
    KEY("max_sequence_length", UNUSED, "null"),
    TYPE,
    KEY("multi_query", MULTIQUERY, "true"),
    {"n_embd", "hidden_size", GPT_HF_SIZE, "768", AT(hidden_size)},
    {"n_head", "num_attention_heads", GPT_HF_SIZE, "12",
     AT(num_attention_heads)},
    KEY("n_inner", INNER, "null"),
    {"n_layer", "num_hidden_layers", GPT_HF_SIZE, "12", AT(num_layers)},
    {"n_positions", "max_position_embeddings", GPT_HF_SIZE, "1024",
     AT(max_positions)},
    KEY("num_key_value_heads", UNUSED, "null"), /* follows from multi_query */
    KEY("pad_key_length", UNUSED, "null"),
    KEY("pre_allocate_kv_cache", UNUSED, "null"),
    RATE("resid_pdrop", hidden_dropout, "0.1"),
    KEY("scale_attention_softmax_in_fp32", UNUSED, "null"),
    KEY("scale_attn_weights", MUST, "true"),
    TIED("true"),
    DTYPE,
    CACHE,
    /* the last of the server's keys: whether it looks at what it is given */
    KEY("validate_runner_input", UNUSED, "null"),
    VOCAB("50257"),
};
const struct gpt_hf_family gpt_hf_bigcode = {
    .model_type = "gpt_bigcode",
    .architecture = "GPTBigCodeForCausalLM",
    .prefix = "transformer.",
    .base = {.position_embedding = GPT_POSITION_LEARNED},
    TABLES(bigcode_rules, bigcode_keys),
};

/* ---- OPT ---- */

/* GPT-2's layer with ReLU. Its table of positions has two rows in front, which
 * padding used. */
static const struct gpt_hf_rule opt_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "decoder.embed_tokens.weight"),
    RULE(POSITION_EMBEDDING, SAME, "decoder.embed_positions.weight"),
    RULE(FINAL_NORM_WEIGHT, SAME, "decoder.final_layer_norm.weight"),
    RULE(FINAL_NORM_BIAS, SAME, "decoder.final_layer_norm.bias"),
    RULE(QKV_WEIGHT, K, "decoder.layers.%.self_attn.k_proj.weight"),
    RULE(QKV_BIAS, K, "decoder.layers.%.self_attn.k_proj.bias"),
    RULE(QKV_WEIGHT, V, "decoder.layers.%.self_attn.v_proj.weight"),
    RULE(QKV_BIAS, V, "decoder.layers.%.self_attn.v_proj.bias"),
    RULE(QKV_WEIGHT, Q, "decoder.layers.%.self_attn.q_proj.weight"),
    RULE(QKV_BIAS, Q, "decoder.layers.%.self_attn.q_proj.bias"),
    RULE(PROJ_WEIGHT, SAME, "decoder.layers.%.self_attn.out_proj.weight"),
    RULE(PROJ_BIAS, SAME, "decoder.layers.%.self_attn.out_proj.bias"),
    RULE(NORM1_WEIGHT, SAME, "decoder.layers.%.self_attn_layer_norm.weight"),
    RULE(NORM1_BIAS, SAME, "decoder.layers.%.self_attn_layer_norm.bias"),
    RULE(FC1_WEIGHT, SAME, "decoder.layers.%.fc1.weight"),
    RULE(FC1_BIAS, SAME, "decoder.layers.%.fc1.bias"),
    RULE(FC2_WEIGHT, SAME, "decoder.layers.%.fc2.weight"),
    RULE(FC2_BIAS, SAME, "decoder.layers.%.fc2.bias"),
    RULE(NORM2_WEIGHT, SAME, "decoder.layers.%.final_layer_norm.weight"),
    RULE(NORM2_BIAS, SAME, "decoder.layers.%.final_layer_norm.bias"),
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),
};
/* 350M has norms after the sums, and words of another width: it is refused. */
static const struct gpt_hf_key opt_keys[] = {
    KEY("_remove_final_layer_norm", MUST, "false"),
    KEY("activation_function", ACTIVATION, "\"relu\""),
    ARCHITECTURES,
    ATTENTION_DROPOUT,
    BOS("2"),
    /* false: the norm is of the sum, and not of what is added */
    KEY("do_layer_norm_before", MUST, "true"),
    RATE("dropout", hidden_dropout, "0.1"),
    NOT("enable_bias", no_linear_bias, "true"),
    EOS("2"),
    SIZE("ffn_dim", ffn_hidden_size, "3072"),
    HIDDEN("768"),
    RATE("init_std", init_std, "0.02"),
    KEY("layer_norm_elementwise_affine", MUST, "true"),
    /* layers that training leaves out at random */
    KEY("layerdrop", ONLY, "0"),
    POSITIONS("2048"),
    TYPE,
    HEADS("12"),
    LAYERS("12"),
    TIED("true"),
    DTYPE,
    CACHE,
    VOCAB("50272"),
    {"word_embed_proj_dim", NULL, GPT_HF_WIDTH, "null", AT(hidden_size)},
};
const struct gpt_hf_family gpt_hf_opt = {
    .model_type = "opt",
    .architecture = "OPTForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_LEARNED,
             .position_offset = 2,
             .norm_epsilon = 1e-5},
    TABLES(opt_rules, opt_keys),
};

/* ---- BioGPT ---- */

/* OPT's layer and table of positions with GELU, and words times the root of the
 * width. The class reads no epsilon. */
static const struct gpt_hf_rule biogpt_rules[] = {
    LLAMA_WORDS,
    RULE(POSITION_EMBEDDING, SAME, "embed_positions.weight"),
    RULE(QKV_WEIGHT, K, "layers.%.self_attn.k_proj.weight"),
    RULE(QKV_BIAS, K, "layers.%.self_attn.k_proj.bias"),
    RULE(QKV_WEIGHT, V, "layers.%.self_attn.v_proj.weight"),
    RULE(QKV_BIAS, V, "layers.%.self_attn.v_proj.bias"),
    RULE(QKV_WEIGHT, Q, "layers.%.self_attn.q_proj.weight"),
    RULE(QKV_BIAS, Q, "layers.%.self_attn.q_proj.bias"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.out_proj.weight"),
    RULE(PROJ_BIAS, SAME, "layers.%.self_attn.out_proj.bias"),
    RULE(NORM1_WEIGHT, SAME, "layers.%.self_attn_layer_norm.weight"),
    RULE(NORM1_BIAS, SAME, "layers.%.self_attn_layer_norm.bias"),
    RULE(FC1_WEIGHT, SAME, "layers.%.fc1.weight"),
    RULE(FC1_BIAS, SAME, "layers.%.fc1.bias"),
    RULE(FC2_WEIGHT, SAME, "layers.%.fc2.weight"),
    RULE(FC2_BIAS, SAME, "layers.%.fc2.bias"),
    RULE(NORM2_WEIGHT, SAME, "layers.%.final_layer_norm.weight"),
    RULE(NORM2_BIAS, SAME, "layers.%.final_layer_norm.bias"),
    RULE(FINAL_NORM_WEIGHT, SAME, "layer_norm.weight"),
    RULE(FINAL_NORM_BIAS, SAME, "layer_norm.bias"),
    RULE(OUTPUT_WEIGHT, SAME, "/output_projection.weight"),
};
static const struct gpt_hf_key biogpt_keys[] = {
    ARCHITECTURES, TYPE, DTYPE, CACHE, INIT("0.02"), ENDS("0", "2"),
    HIDDEN("1024"), FFN("4096"), LAYERS("24"), HEADS("16"), POSITIONS("1024"),
    VOCAB("42384"), TIED("true"),
    KEY("activation_dropout", ONLY, "0"),
    RATE("attention_probs_dropout_prob", attention_dropout, "0.1"),
    KEY("hidden_act", ACTIVATION, "\"gelu\""),
    RATE("hidden_dropout_prob", hidden_dropout, "0.1"),
    KEY("layer_norm_eps", UNUSED, "null"),
    /* layers that training leaves out at random */
    KEY("layerdrop", ONLY, "0"),
    FLAG("scale_embedding", scale_embedding, "true"),
};
const struct gpt_hf_family gpt_hf_biogpt = {
    .model_type = "biogpt",
    .architecture = "BioGptForCausalLM",
    .prefix = "biogpt.",
    .base = {.position_embedding = GPT_POSITION_LEARNED, .position_offset = 2,
             .norm_epsilon = 1e-5},
    TABLES(biogpt_rules, biogpt_keys),
};

/* ---- BLOOM ---- */

/* ALiBi, and a norm after the embedding; a head's query, key and value follow
 * each other. */
static const struct gpt_hf_rule bloom_rules[] = {
    FALCON_WORDS,
    RULE(EMBEDDING_NORM_WEIGHT, SAME, "word_embeddings_layernorm.weight"),
    RULE(EMBEDDING_NORM_BIAS, SAME, "word_embeddings_layernorm.bias"),
    FALCON_NORM1,
    FALCON_ATTENTION,
    RULE(NORM2_WEIGHT, SAME, "h.%.post_attention_layernorm.weight"),
    RULE(NORM2_BIAS, SAME, "h.%.post_attention_layernorm.bias"),
    FALCON_MLP,
    GPT2_ENDS,
};
/* The length of its texts is only in files of the hub; keys of the program that
 * trained it, which the class does not read, are there, too. */
static const struct gpt_hf_key bloom_keys[] = {
    COMMON_KEYS, ENDS("1", "2"),
    VOCAB("250880"), TIED("true"),
    KEY("apply_residual_connection_post_layernorm", MUST, "false"),
    KEY("attention_softmax_in_fp32", UNUSED, "null"),
    KEY("bias_dropout_fusion", UNUSED, "null"),
    RATE("hidden_dropout", hidden_dropout, "0"),
    {"hidden_size", "n_embed", GPT_HF_SIZE, "64", AT(hidden_size)},
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),
    KEY("masked_softmax_fusion", UNUSED, "null"),
    {"n_head", "num_attention_heads", GPT_HF_SIZE, "8",
     AT(num_attention_heads)},
    {"n_layer", "num_hidden_layers", GPT_HF_SIZE, "2", AT(num_layers)},
    /* the same number is added to all scores of a row, which changes none */
    KEY("offset_alibi", UNUSED, "null"),
    {"seq_length", "max_position_embeddings", GPT_HF_SIZE, "2048",
     AT(max_positions)},
    KEY("skip_bias_add", UNUSED, "null"),
    KEY("skip_bias_add_qkv", UNUSED, "null"),
    /* the order of a sum over ranks of the run that trained it */
    KEY("slow_but_exact", UNUSED, "null"),
    KEY("unk_token_id", UNUSED, "null"),
};
const struct gpt_hf_family gpt_hf_bloom = {
    .model_type = "bloom",
    .architecture = "BloomForCausalLM",
    .prefix = "transformer.",
    .base = {.position_embedding = GPT_POSITION_ALIBI, .embedding_norm = true,
             .activation = GPT_GELU},
    TABLES(bloom_rules, bloom_keys),
};

/* ---- Jais 2 ---- */

/* Llama's names for a block of GPT-2's kind that turns: LayerNorm, squared ReLU
 * without a gate, and biases everywhere, by two switches. */
static const struct gpt_hf_rule jais2_rules[] = {
    LLAMA_ATTENTION, LLAMA_MLP, LLAMA_NORMS, LLAMA_BIASED_ENDS,
};
static const struct gpt_hf_key jais2_keys[] = {
    COMMON_KEYS, ENDS("0", "150024"),
    HIDDEN("3328"), FFN("26624"), LAYERS("32"), HEADS("26"), KV_HEADS("0"),
    HEAD_DIM("0"), POSITIONS("8192"), VOCAB("150272"), ROPE("10000"),
    TIED("false"),
    KEY("attention_bias", ATTENTION_BIAS, "true"),
    KEY("hidden_act", ACTIVATION, "\"relu2\""),
    RATE("layer_norm_eps", norm_epsilon, "1e-5"),
    KEY("mlp_bias", MLP_BIAS, "true"),
};
const struct gpt_hf_family gpt_hf_jais2 = {
    .model_type = "jais2",
    .architecture = "Jais2ForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1},
    TABLES(jais2_rules, jais2_keys),
};

/* ---- GPT-Neo ---- */

/* GPT-2 with a window in every other layer, scores as they are, and no biases
 * of queries, keys and values. Its matrices are not transposed, unlike those of
 * GPT-2 under the same names. The window is written where no layer has one,
 * too: a number, which the class wants. */
static const struct gpt_hf_rule gpt_neo_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    RULE(POSITION_EMBEDDING, SAME, "wpe.weight"),
    GPT2_NORM1,
    RULE(QKV_WEIGHT, K, "h.%.attn.attention.k_proj.weight"),
    RULE(QKV_WEIGHT, V, "h.%.attn.attention.v_proj.weight"),
    RULE(QKV_WEIGHT, Q, "h.%.attn.attention.q_proj.weight"),
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.attention.out_proj.weight"),
    RULE(PROJ_BIAS, SAME, "h.%.attn.attention.out_proj.bias"),
    GPT2_NORM2,
    GPT2_MLP(SAME),
    GPT2_ENDS,
};
static const struct gpt_hf_key gpt_neo_keys[] = {
    KEY("activation_function", ACTIVATION, "\"gelu_new\""),
    ARCHITECTURES,
    RATE("attention_dropout", attention_dropout, "0"),
    /* what the pattern below says, layer after layer */
    KEY("attention_layers", UNUSED, "null"),
    KEY("attention_types", PATTERN, "[[[\"global\", \"local\"], 12]]"),
    BOS("50256"),
    KEY("embed_dropout", OTHER_DROPOUT, "0"),
    EOS("50256"),
    HIDDEN("2048"),
    INIT("0.02"),
    KEY("intermediate_size", INNER, "null"),
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),
    POSITIONS("2048"),
    TYPE,
    {"num_heads", "num_attention_heads", GPT_HF_SIZE, "16",
     AT(num_attention_heads)},
    {"num_layers", "num_hidden_layers", GPT_HF_SIZE, "24", AT(num_layers)},
    RATE("resid_dropout", hidden_dropout, "0"),
    TIED("true"),
    DTYPE,
    CACHE,
    VOCAB("50257"),
    KEY("window_size", WINDOW, "256"),
};
const struct gpt_hf_family gpt_hf_gpt_neo = {
    .model_type = "gpt_neo",
    .architecture = "GPTNeoForCausalLM",
    .prefix = "transformer.",
    .counts_window = true,
    .base = {.position_embedding = GPT_POSITION_LEARNED, .no_qkv_bias = true,
             .query_pre_attn_scalar = 1},
    TABLES(gpt_neo_rules, gpt_neo_keys),
};

/* ---- MPT ---- */

/* ALiBi and no bias anywhere. What attention does is in an object of its own.
 * The class has ALiBi, a width of four and exact GELU whatever a file says:
 * keys of its first implementation that say otherwise are refused. */
static const struct gpt_hf_rule mpt_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    RULE(NORM1_WEIGHT, SAME, "blocks.%.norm_1.weight"),
    RULE(QKV_WEIGHT, QKV, "blocks.%.attn.Wqkv.weight"),
    RULE(PROJ_WEIGHT, SAME, "blocks.%.attn.out_proj.weight"),
    RULE(NORM2_WEIGHT, SAME, "blocks.%.norm_2.weight"),
    RULE(FC1_WEIGHT, SAME, "blocks.%.ffn.up_proj.weight"),
    RULE(FC2_WEIGHT, SAME, "blocks.%.ffn.down_proj.weight"),
    RULE(FINAL_NORM_WEIGHT, SAME, "norm_f.weight"),
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),
};
static const struct gpt_hf_key mpt_keys[] = {
    ARCHITECTURES, TYPE, DTYPE, CACHE, INIT("0.02"), ENDS("null", "null"),
    TIED("true"), VOCAB("50368"),
    KEY("attn_config.alibi", MUST, "true"),
    KEY("attn_config.alibi_bias_max", MUST, "8"),
    KEY("attn_config.attn_impl", UNUSED, "null"),
    /* a whole number there, and 0 in all files */
    KEY("attn_config.attn_pdrop", NOTE, "0"),
    KEY("attn_config.attn_type", MUST, "\"multihead_attention\""),
    KEY("attn_config.attn_uses_sequence_id", MUST, "false"),
    CAP("attn_config.clip_qkv", clip_qkv, "null"),
    KEY("attn_config.prefix_lm", MUST, "false"),
    /* all queries as one vector, by LayerNorm */
    KEY("attn_config.qk_ln", MUST, "false"),
    KEY("attn_config.softmax_scale", MUST, "null"),
    {"d_model", "hidden_size", GPT_HF_SIZE, "2048", AT(hidden_size)},
    KEY("emb_pdrop", OTHER_DROPOUT, "0"),
    /* of gradients */
    KEY("embedding_fraction", ONLY, "1"),
    KEY("expansion_ratio", MUST, "4"),
    KEY("init_config", UNUSED, "null"),
    KEY("init_device", UNUSED, "null"),
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),
    KEY("learned_pos_emb", UNUSED, "null"),
    KEY("logit_scale", MUST, "null"),
    {"max_seq_len", "max_position_embeddings", GPT_HF_SIZE, "2048",
     AT(max_positions)},
    {"n_heads", "num_attention_heads", GPT_HF_SIZE, "16",
     AT(num_attention_heads)},
    {"n_layers", "num_hidden_layers", GPT_HF_SIZE, "24", AT(num_layers)},
    KEY("no_bias", MUST, "true"),
    KEY("norm_type", UNUSED, "null"),
    RATE("resid_pdrop", hidden_dropout, "0"),
    KEY("tokenizer_name", UNUSED, "null"),
    KEY("verbose", UNUSED, "null"),
};
const struct gpt_hf_family gpt_hf_mpt = {
    .model_type = "mpt",
    .architecture = "MptForCausalLM",
    .prefix = "transformer.",
    .base = {.position_embedding = GPT_POSITION_ALIBI, .no_norm_bias = true,
             .no_linear_bias = true, .activation = GPT_GELU_EXACT},
    TABLES(mpt_rules, mpt_keys),
};
