/* The tables of families; see family.h. Those of Llama's function are in
 * family_llama.c, with factors in family_factors.c, without a gate or with
 * LayerNorm in family_plain.c, with norms after blocks in family_post.c, with
 * blocks side by side in family_parallel.c, and what is older than Llama in
 * family_classic.c; those with experts in family_experts.c and
 * family_sigmoid.c; and those without a class of transformers in
 * family_remote.c.
 *
 * Defaults are those of transformers' configuration classes: files omit what
 * has the default. */
#include "checkpoint/huggingface/rows.h"

#include <stdio.h>
#include <string.h>

/* ---- what all families have in common ---- */

const struct gpt_hf_activation gpt_hf_activations[] = {
    {"gelu_new", GPT_GELU},      {"gelu_pytorch_tanh", GPT_GELU},
    {"gelu_fast", GPT_GELU},     {"gelu", GPT_GELU_EXACT},
    {"gelu_python", GPT_GELU_EXACT}, {"silu", GPT_SILU},
    {"swish", GPT_SILU},         {"relu", GPT_RELU},
    {"relu2", GPT_SQUARED_RELU}, {"xielu", GPT_XIELU},
};
const size_t gpt_hf_n_activations = GPT_COUNT(gpt_hf_activations);

const struct gpt_hf_scaling_number gpt_hf_scaling_numbers[] = {
    {"factor", offsetof(struct gpt_config, rotary_factor)},
    {"low_freq_factor", offsetof(struct gpt_config, rotary_low_factor)},
    {"high_freq_factor", offsetof(struct gpt_config, rotary_high_factor)},
    {"beta_fast", offsetof(struct gpt_config, rotary_fast)},
    {"beta_slow", offsetof(struct gpt_config, rotary_slow)},
    {"attention_factor", offsetof(struct gpt_config, rotary_attention)},
    {"original_max_position_embeddings", 0},
    {"llama_4_scaling_beta", offsetof(struct gpt_config, rotary_query_growth)},
    {"rope_theta", offsetof(struct gpt_config, rotary_base)},
    {"partial_rotary_factor", offsetof(struct gpt_config, rotary_percent)},
};
const size_t gpt_hf_n_scaling_numbers = GPT_COUNT(gpt_hf_scaling_numbers);

const struct gpt_hf_scaling_number gpt_hf_scaling_lists[] = {
    {"long_factor", offsetof(struct gpt_config, rotary_long_factors)},
    {"short_factor", offsetof(struct gpt_config, rotary_short_factors)},
};
const size_t gpt_hf_n_scaling_lists = GPT_COUNT(gpt_hf_scaling_lists);

/* Keys of files of the hub that concern names, tools, heads for other tasks, or
 * generation. Any other key that a family does not have may change what the
 * model computes: it is refused. */
static const char *const notes[] = {
    "architectures", "auto_map", "bad_words_ids", "begin_suppress_tokens",
    "bos_token_id", "chunk_size_feed_forward", "classifier_dropout",
    "cross_attention_hidden_size", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "dtype", "early_stopping",
    "encoder_no_repeat_ngram_size", "eos_token_id",
    "exponential_decay_length_penalty", "finetuning_task",
    "forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing",
    "id2label", "initializer_factor", "is_decoder", "is_llama_config",
    "label2id", "length_penalty", "max_length", "min_length", "model_type",
    "n_ctx", "no_repeat_ngram_size", "num_beams", "num_beam_groups",
    "num_return_sequences", "original_max_position_embeddings",
    "output_attentions", "output_hidden_states", "output_scores",
    "pad_token_id", "prefix", "pretraining_tp", "problem_type", "pruned_heads",
    "remove_invalid_values", "reorder_and_upcast_attn", "repetition_penalty",
    "return_dict", "return_dict_in_generate", "sep_token_id",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "suppress_tokens",
    "task_specific_params", "temperature", "tf_legacy_loss",
    "tie_encoder_decoder", "tokenizer_class", "top_k", "top_p", "torch_dtype",
    "torchscript", "transformers.js_config", "transformers_version",
    "typical_p", "unsloth_fixed", "use_bfloat16", "use_cache",
};

bool gpt_hf_is_note(const char *key)
{
    for (size_t i = 0; i < GPT_COUNT(notes); i++)
        if (strcmp(notes[i], key) == 0)
            return true;
    return key[0] == '_'; /* private to the library */
}

/* ---- GPT-2 ---- */

/* Matrices are those of a Conv1D, the transpose of ours. n_ctx is an old name
 * of n_positions that older tools read: it is written, and n_positions counts.
 */
static const struct gpt_hf_rule gpt2_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    RULE(POSITION_EMBEDDING, SAME, "wpe.weight"),
    GPT2_NORM1,
    RULE(QKV_WEIGHT, CONV_QKV, "h.%.attn.c_attn.weight"),
    RULE(QKV_BIAS, CONV_QKV, "h.%.attn.c_attn.bias"),
    RULE(PROJ_WEIGHT, TRANSPOSED, "h.%.attn.c_proj.weight"),
    RULE(PROJ_BIAS, SAME, "h.%.attn.c_proj.bias"),
    GPT2_NORM2,
    GPT2_MLP(TRANSPOSED),
    GPT2_ENDS,
};
/* Dropout after the embedding is a key of its own, and trained as the other: a
 * difference is a warning, as weights do not depend on it. */
static const struct gpt_hf_key gpt2_keys[] = {
    KEY("activation_function", ACTIVATION, "\"gelu_new\""),
    KEY("add_cross_attention", MUST, "false"),
    ARCHITECTURES,
    RATE("attn_pdrop", attention_dropout, "0.1"),
    BOS("50256"),
    KEY("embd_pdrop", OTHER_DROPOUT, "null"),
    EOS("50256"),
    INIT("0.02"),
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),
    TYPE,
    {"n_ctx", NULL, GPT_HF_SIZE, "0", AT(max_positions)},
    {"n_embd", "hidden_size", GPT_HF_SIZE, "768", AT(hidden_size)},
    {"n_head", "num_attention_heads", GPT_HF_SIZE, "12",
     AT(num_attention_heads)},
    KEY("n_inner", INNER, "null"),
    {"n_layer", "num_hidden_layers", GPT_HF_SIZE, "12", AT(num_layers)},
    {"n_positions", "max_position_embeddings", GPT_HF_SIZE, "1024",
     AT(max_positions)},
    RATE("resid_pdrop", hidden_dropout, "0.1"),
    KEY("scale_attn_by_inverse_layer_idx", MUST, "false"),
    KEY("scale_attn_weights", MUST, "true"),
    TIED("true"),
    DTYPE,
    CACHE,
    VOCAB("50257"),
};
static const struct gpt_hf_family gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .base = {.position_embedding = GPT_POSITION_LEARNED},
    TABLES(gpt2_rules, gpt2_keys),
};

/* ---- Llama and its descendants ---- */

/* Biases of queries, keys and values, and norms of heads, are Qwen's: a model
 * without them has no such parameters, and the rows wait for none. */
static const struct gpt_hf_rule llama_rules[] = {
    LLAMA_RULES,
};

/* Llama 2 and 3, SmolLM2, and models of many others that have taken this class.
 * Llama 3's scaling is an object of the rotary keys. */
static const struct gpt_hf_key llama_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"), ATTENTION_BIAS, MLP_BIAS,
    HIDDEN("4096"), FFN("11008"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    HEAD_DIM("0"), POSITIONS("2048"), VOCAB("32000"), RMS_EPS("1e-6"),
    ROPE("10000"), TIED("false"),
    KEY("rope_interleaved", MUST, "false"),
};
static const struct gpt_hf_family llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .prefix = "model.",
    .shares_width = true,
    .base = {LLAMA_BASE},
    TABLES(llama_rules, llama_keys),
};

/* Llama with a window of attention. Absence of the key means 4096 tokens, null
 * means none. */
static const struct gpt_hf_key mistral_keys[] = {
    LLAMA_KEYS, ENDS("1", "2"),
    HIDDEN("4096"), FFN("14336"), LAYERS("32"), HEADS("32"), KV_HEADS("8"),
    HEAD_DIM("0"), POSITIONS("131072"), VOCAB("32000"), RMS_EPS("1e-6"),
    ROPE("10000"), TIED("false"),
    KEY("sliding_window", WINDOW, "4096"),
};
static const struct gpt_hf_family mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE},
    TABLES(llama_rules, mistral_keys),
};

/* The keys that both families have, with the same defaults. */
#define QWEN_KEYS                                                              \
    KEY("hidden_act", ACTIVATION, "\"silu\""),                                 \
    HIDDEN("4096"),                                                            \
    INIT("0.02"),                                                              \
    FFN("22016"),                                                              \
    KEY("layer_types", LAYER_TYPES, "null"),                                   \
    POSITIONS("32768"),                                                        \
    KEY("max_window_layers", WINDOW_LAYERS, "28"),                             \
    TYPE,                                                                      \
    HEADS("32"),                                                               \
    LAYERS("32"),                                                              \
    KV_HEADS("32"),                                                            \
    RMS_EPS("1e-6"),                                                           \
    ROPE("10000"),                                                             \
    KEY("sliding_window", WINDOW, "4096"),                                     \
    TIED("false"),                                                             \
    DTYPE,                                                                     \
    CACHE

/* Biases of queries, keys and values. A window is there, and off, in all sizes
 * that were published. */
static const struct gpt_hf_key qwen2_keys[] = {
    ARCHITECTURES,
    ATTENTION_DROPOUT,
    BOS("null"),
    EOS("null"),
    OWN_HEAD_DIM,
    QWEN_KEYS,
    KEY("use_mrope", MUST, "false"),
    KEY("use_sliding_window", USE_WINDOW, "false"),
    VOCAB("151936"),
};
static const struct gpt_hf_family qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .qkv_bias = true},
    TABLES(llama_rules, qwen2_keys),
};

/* Norms of heads instead of biases. The size of a head is its own: 128,
 * whatever the width. */
static const struct gpt_hf_key qwen3_keys[] = {
    ARCHITECTURES,
    ATTENTION_BIAS,
    ATTENTION_DROPOUT,
    BOS("null"),
    EOS("null"),
    HEAD_DIM("128"),
    QWEN_KEYS,
    KEY("use_sliding_window", USE_WINDOW, "false"),
    VOCAB("151936"),
};
static const struct gpt_hf_family qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .prefix = "model.",
    .base = {LLAMA_BASE, .qk_norm = true},
    TABLES(llama_rules, qwen3_keys),
};

/* Phi-3's products are fused: queries, keys, values; gate, up. The function is
 * Llama's, so that such a model also fits "llama", with other tensors. */
static const struct gpt_hf_rule phi3_rules[] = {
    LLAMA_WORDS,
    RULE(PROJ_WEIGHT, SAME, "layers.%.self_attn.o_proj.weight"),
    RULE(QKV_WEIGHT, QKV, "layers.%.self_attn.qkv_proj.weight"),
    LLAMA_FUSED_MLP,
    RULE(NORM1_WEIGHT, SAME, "layers.%.input_layernorm.weight"),
    RULE(NORM2_WEIGHT, SAME, "layers.%.post_attention_layernorm.weight"),
    LLAMA_ENDS,
};
/* Long texts have a scaling of their own, LongRoPE, whose positions of
 * pretraining stand beside its lists. What else Phi-4-mini's files have is the
 * same in all of them, and no class reads it. */
static const struct gpt_hf_key phi3_keys[] = {
    LLAMA_KEYS, ENDS("1", "32000"), NO_ATTENTION_BIAS, NO_PAD,
    OWN_HEAD_DIM,
    HIDDEN("3072"), FFN("8192"), LAYERS("32"), HEADS("32"), KV_HEADS("0"),
    POSITIONS("4096"), VOCAB("32064"), RMS_EPS("1e-5"), ROPE("10000"),
    TIED("false"),
    KEY("embd_pdrop", OTHER_DROPOUT, "0"),
    KEY("full_attn_mod", ONLY, "1"),
    KEY("interpolate_factor", ONLY, "1"),
    KEY("original_max_position_embeddings", BEFORE, "4096"),
    ROTARY_SHARE("1"),
    RATE("resid_pdrop", hidden_dropout, "0"),
    KEY("sliding_window", WINDOW, "null"),
};
static const struct gpt_hf_family phi3 = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .prefix = "model.",
    .turns_again = true,
    .base = {LLAMA_BASE},
    TABLES(phi3_rules, phi3_keys),
};

/* ---- LayerNorm, biases and rotary positions ---- */

/* StarCoder 2: GPT-2's layer with Llama's names, query groups and rotation. One
 * key switches all biases. */
static const struct gpt_hf_rule starcoder2_rules[] = {
    LLAMA_ATTENTION,
    RULE(FC1_WEIGHT, SAME, "layers.%.mlp.c_fc.weight"),
    RULE(FC1_BIAS, SAME, "layers.%.mlp.c_fc.bias"),
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.c_proj.weight"),
    RULE(FC2_BIAS, SAME, "layers.%.mlp.c_proj.bias"),
    LLAMA_NORMS,
    LLAMA_BIASED_ENDS,
};
/* Two switches choose classes that were never published: they must be as they
 * always are. */
static const struct gpt_hf_key starcoder2_keys[] = {
    ARCHITECTURES,
    ATTENTION_DROPOUT,
    BOS("50256"),
    KEY("embedding_dropout", OTHER_DROPOUT, "0"),
    EOS("50256"),
    KEY("hidden_act", ACTIVATION, "\"gelu_pytorch_tanh\""),
    HIDDEN("3072"),
    OWN_HEAD_DIM,
    INIT("0.018042"),
    FFN("12288"),
    KEY("layer_types", LAYER_TYPES, "null"),
    POSITIONS("4096"),
    KEY("mlp_type", MUST, "\"default\""),
    TYPE,
    RATE("norm_epsilon", norm_epsilon, "1e-5"),
    KEY("norm_type", MUST, "\"layer_norm\""),
    HEADS("24"),
    LAYERS("30"),
    KV_HEADS("2"),
    RATE("residual_dropout", hidden_dropout, "0"),
    ROPE("10000"),
    KEY("sliding_window", WINDOW, "null"),
    TIED("true"),
    DTYPE,
    NOT("use_bias", no_linear_bias, "true"),
    CACHE,
    VOCAB("49152"),
};
static const struct gpt_hf_family starcoder2 = {
    .model_type = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .prefix = "model.",
    .base = {.position_embedding = GPT_POSITION_ROPE, .rotary_percent = 1},
    TABLES(starcoder2_rules, starcoder2_keys),
};

/* GPT-NeoX, of which Pythia is: both blocks side by side, each after a norm of
 * its own, or one after the other where the switch is off. A head's query, key
 * and value follow each other: our order, as every head is a group. */
static const struct gpt_hf_rule neox_rules[] = {
    RULE(WORD_EMBEDDING, SAME, "embed_in.weight"),
    LLAMA_NORMS,
    RULE(QKV_WEIGHT, SAME, "layers.%.attention.query_key_value.weight"),
    RULE(QKV_BIAS, SAME, "layers.%.attention.query_key_value.bias"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.attention.dense.weight"),
    RULE(PROJ_BIAS, SAME, "layers.%.attention.dense.bias"),
    RULE(FC1_WEIGHT, SAME, "layers.%.mlp.dense_h_to_4h.weight"),
    RULE(FC1_BIAS, SAME, "layers.%.mlp.dense_h_to_4h.bias"),
    RULE(FC2_WEIGHT, SAME, "layers.%.mlp.dense_4h_to_h.weight"),
    RULE(FC2_BIAS, SAME, "layers.%.mlp.dense_4h_to_h.bias"),
    RULE(FINAL_NORM_WEIGHT, SAME, "final_layer_norm.weight"),
    RULE(FINAL_NORM_BIAS, SAME, "final_layer_norm.bias"),
    RULE(OUTPUT_WEIGHT, SAME, "/embed_out.weight"),
};
/* The base and the share of a head have names of their own here. Dropout after
 * the embedding is that of the residual stream, as here. */
static const struct gpt_hf_key neox_keys[] = {
    COMMON_KEYS, ENDS("0", "2"),
    HIDDEN("6144"), FFN("24576"), LAYERS("44"), HEADS("64"), POSITIONS("2048"),
    VOCAB("50432"), TIED("false"),
    NOT("attention_bias", no_attention_bias, "true"),
    KEY("hidden_act", ACTIVATION, "\"gelu\""),
    RATE("hidden_dropout", hidden_dropout, "0"),
    RATE("layer_norm_eps", norm_epsilon, "1e-5"),
    KEY("rope_parameters", PARAMETERS, "null"),
    KEY("rope_scaling", SCALING, "null"),
    KEY("rotary_emb_base", THETA, "10000"),
    RATE("rotary_pct", rotary_percent, "0.25"),
    FLAG("use_parallel_residual", parallel_blocks, "true"),
};
static const struct gpt_hf_family neox = {
    .model_type = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .prefix = "gpt_neox.",
    .base = {.position_embedding = GPT_POSITION_ROPE},
    TABLES(neox_rules, neox_keys),
};

/* Falcon 7B: one head of keys and values, which comes after the heads of
 * queries, as here; one norm for both blocks. The larger ones are
 * gpt_hf_falcon_new. */
static const struct gpt_hf_rule falcon_rules[] = {
    FALCON_WORDS, FALCON_ATTENTION, FALCON_MLP, FALCON_NORM1, GPT2_ENDS,
};
/* 0: four times the hidden size. Its positions are rotary unless ALiBi is on,
 * which comes with other norms. */
static const struct gpt_hf_key falcon_keys[] = {
    COMMON_KEYS, ENDS("11", "11"),
    HIDDEN("4544"), LAYERS("32"), HEADS("71"), POSITIONS("2048"),
    VOCAB("65024"), ROPE("10000"), TIED("true"),
    KEY("activation", ACTIVATION, "\"gelu\""),
    KEY("alibi", MUST, "false"),
    KEY("apply_residual_connection_post_layernorm", MUST, "false"),
    NOT("bias", no_linear_bias, "false"),
    SIZE("ffn_hidden_size", ffn_hidden_size, "0"),
    RATE("hidden_dropout", hidden_dropout, "0"),
    RATE("layer_norm_epsilon", norm_epsilon, "1e-5"),
    KEY("multi_query", MULTIQUERY, "true"),
    KEY("new_decoder_architecture", MUST, "false"),
    KEY("num_kv_heads", UNUSED, "null"),
    KEY("num_ln_in_parallel_attn", MUST, "null"),
    KEY("parallel_attn", MUST, "true"),
};
static const struct gpt_hf_family falcon = {
    .model_type = "falcon",
    .architecture = "FalconForCausalLM",
    .prefix = "transformer.",
    .base = {.position_embedding = GPT_POSITION_ROPE,
             .rotary_percent = 1,
             .parallel_blocks = true,
             .shared_norm = true},
    TABLES(falcon_rules, falcon_keys),
};

/* ---- the families ---- */

/* A family is here when its logits, its gradients and what comes back have been
 * compared with transformers (tests/parity/hf_families.sh).
 *
 * A model that two families can express goes out as the first, unless it came
 * from a directory of the other. GPT-2 is first, as it was before there were
 * others; Llama is what most tools know. */
const struct gpt_hf_family *const gpt_hf_families[] = {
    &gpt2, &llama, &mistral, &qwen2, &qwen3, &phi3, &neox, &falcon, &starcoder2,
    &gpt_hf_gemma, &gpt_hf_gemma2, &gpt_hf_olmo2, &gpt_hf_falcon_new,
    &gpt_hf_falcon_one_norm, &gpt_hf_falcon_alibi, &gpt_hf_bigcode, &gpt_hf_opt,
    &gpt_hf_bloom, &gpt_hf_gemma3, &gpt_hf_olmo3, &gpt_hf_exaone4, &gpt_hf_glm,
    &gpt_hf_glm4, &gpt_hf_granite, &gpt_hf_smollm3, &gpt_hf_ernie,
    &gpt_hf_arcee, &gpt_hf_seed, &gpt_hf_nemotron, &gpt_hf_stablelm,
    &gpt_hf_stablelm_parallel, &gpt_hf_cohere, &gpt_hf_cohere2, &gpt_hf_phi,
    &gpt_hf_gptj, &gpt_hf_vaultgemma, &gpt_hf_hyperclovax, &gpt_hf_helium,
    &gpt_hf_internlm3, &gpt_hf_internlm3_biased, &gpt_hf_jais2,
    &gpt_hf_ministral3, &gpt_hf_hunyuan, &gpt_hf_exaone, &gpt_hf_granite_hybrid,
    &gpt_hf_cwm, &gpt_hf_ministral, &gpt_hf_iquest, &gpt_hf_gpt_neo,
    &gpt_hf_olmo, &gpt_hf_nanochat, &gpt_hf_apertus, &gpt_hf_apertus_text,
    &gpt_hf_persimmon, &gpt_hf_mpt, &gpt_hf_codegen, &gpt_hf_biogpt,
    &gpt_hf_mixtral, &gpt_hf_qwen3_moe, &gpt_hf_qwen2_moe, &gpt_hf_olmoe,
    &gpt_hf_flex_olmo, &gpt_hf_granite_moe, &gpt_hf_granite_shared,
    &gpt_hf_granite_hybrid_moe, &gpt_hf_mellum, &gpt_hf_hunyuan_moe,
    &gpt_hf_glm4_moe, &gpt_hf_dots1, &gpt_hf_solar_open, &gpt_hf_exaone_moe,
    &gpt_hf_hy_v3, &gpt_hf_minimax_m2, &gpt_hf_ernie_moe, &gpt_hf_deepseek_v3,
    &gpt_hf_deepseek_v2, &gpt_hf_glm4_lite, &gpt_hf_youtu, &gpt_hf_minicpm3,
    &gpt_hf_kimi_k2, &gpt_hf_aria, &gpt_hf_sarvam_moe, &gpt_hf_internlm2,
    &gpt_hf_chatglm, &gpt_hf_qwen, &gpt_hf_minicpm, &gpt_hf_deepseek,
    &gpt_hf_bailing,
};
const size_t gpt_hf_n_families = GPT_COUNT(gpt_hf_families);

/* The key of a row's condition, by either name; NULL where there is none. */
static const cJSON *condition_of(const struct gpt_hf_family *f,
                                 const cJSON *config)
{
    const cJSON *item = NULL;

    for (size_t i = 0; f->when && !item && i < f->n_keys; i++) {
        const struct gpt_hf_key *key = &f->keys[i];

        if (strcmp(key->name, f->when) != 0)
            continue;
        item = cJSON_GetObjectItemCaseSensitive(config, key->name);
        if (!item && key->alias)
            item = cJSON_GetObjectItemCaseSensitive(config, key->alias);
    }
    return item;
}

const struct gpt_hf_family *gpt_hf_family_find(const char *model_type,
                                               const cJSON *config)
{
    const struct gpt_hf_family *found = NULL;

    /* a row with a condition that holds goes before one without */
    for (size_t i = 0; i < gpt_hf_n_families; i++) {
        const struct gpt_hf_family *f = gpt_hf_families[i];
        const cJSON *item = condition_of(f, config);

        if (strcmp(f->model_type, model_type) != 0)
            continue;
        /* true for a flag, a number for Falcon's count of norms */
        if (f->when && (cJSON_IsTrue(item) || (cJSON_IsNumber(item) &&
                                               item->valueint == f->when_is)))
            found = f;
        else if (!f->when && !found)
            found = f;
    }
    return found;
}

const char *gpt_hf_family_type(const char *model_type)
{
    const struct gpt_hf_family *family =
        model_type ? gpt_hf_family_find(model_type, NULL) : NULL;

    return family ? family->model_type : NULL;
}

void gpt_hf_family_list(char *text, size_t cap)
{
    size_t used = 0;

    for (size_t i = 0; i < gpt_hf_n_families && used < cap; i++)
        if (!gpt_hf_families[i]->when) /* else a row of its type is listed */
            used += (size_t)snprintf(text + used, cap - used, "%s%s",
                                     i > 0 ? ", " : "",
                                     gpt_hf_families[i]->model_type);
}
