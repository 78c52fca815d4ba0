/* The option table of gpt-train: one row an option, in the order of --help.
 * Parsing, ranges, --help and --print-config read it; what the options mean
 * together is in plan.c. */
#include "cmd/train/options.h"

#include "base/json.h"
#include "backend.h"
#include "data/indexed.h"
#include "tokenizer/tokenizer_options.h"
#include "train/batch_schedule.h"
#include "parallel/comm.h"
#include "model/config.h"
#include "train/lr_schedule.h"
#include "train/optimizer.h"
#include "train/reduce.h"
#include "cmd/train/hardware.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) .offset = offsetof(struct gpt_train_options, field)
#define MODEL(field) AT(model.field)
#define GROUP(text) { .kind = GPT_OPT_GROUP, .help = (text) }

/* There is one, so that nothing asks which. */
static const char *const fp8_recipes[] = {"tensorwise", NULL};

/* Gradients need range more than digits: "hybrid" gives them five bits of
 * exponent. */
const char *const gpt_train_fp8_formats[] = {
    [GPT_FORMAT_E4M3] = "e4m3",
    [GPT_FORMAT_HYBRID] = "hybrid",
    NULL,
};
/* Megatron-LM gathers a matrix, or shares the iteration over ranks. Here it is
 * never gathered, so that the first two are the same. */
const char *const gpt_train_muon_modes[] = {
    "duplicated", "distributed",
    [GPT_MUON_BLOCKWISE] = "blockwise",
    NULL,
};
/* Heads of keys and values: one for each of the queries, or one for all. */
const char *const gpt_train_heads[] = {
    [GPT_HEADS_OF_EACH] = "multihead",
    [GPT_HEADS_MULTIQUERY] = "multiquery",
    NULL,
};
const char *const gpt_train_positions[] = {
    "learned_absolute", "rope", "alibi", "alibi_bf16", "none", "rotary",
    "absolute", NULL,
};
const char *const gpt_train_shardings[] = {
    [GPT_ZERO_OFF] = "no_shard",
    [GPT_ZERO_1] = "optim",
    [GPT_ZERO_2] = "optim_grads",
    NULL,
};
const char *const gpt_train_backends[] = {
    [GPT_GLOO] = "gloo",
    [GPT_NCCL] = "nccl",
    NULL,
};
const char *const gpt_train_granularities[] = {
    [GPT_GRANULARITY_FULL] = "full",
    [GPT_GRANULARITY_SELECTIVE] = "selective",
    NULL,
};
const char *const gpt_train_methods[] = {
    [GPT_METHOD_UNIFORM] = "uniform",
    [GPT_METHOD_BLOCK] = "block",
    NULL,
};
const char *const gpt_train_graphs[] = {
    [GPT_GRAPH_NONE] = "none",
    "local", "transformer_engine", "full_iteration",
    NULL,
};

/* The option table has refused every other text, so that a search cannot fail:
 * the assertion is for a table that names other choices than the caller. */
int gpt_train_choice(const char *const *names, const char *choice)
{
    int i = 0;

    if (!choice)
        return -1;
    while (names[i] && strcmp(names[i], choice) != 0)
        i++;
    assert(names[i]);
    return i;
}

/* Megatron-LM's pair is what comes before and after; only causal models are
 * here, which have 0 after. */
bool gpt_train_window(const char *text, int64_t *window)
{
    static const char *const ends[2][3] = {{"", ",0", ", 0"},
                                           {",0)", ", 0)", ", 0 )"}};
    /* quoted in shells, as Python prints the pair */
    const bool bracket = text && text[0] == '(';
    char *end = NULL;

    *window = 0;
    if (!text)
        return true;
    const long long n = strtoll(text + bracket, &end, 10);
    for (size_t i = 0; i < GPT_COUNT(ends[0]); i++)
        if (n >= 1 && n <= 1 << 24 && strcmp(end, ends[bracket][i]) == 0)
            *window = n;
    return *window > 0;
}

/* Values of an option that mean the same as another: choices after the last of
 * enum gpt_position_embedding. */
enum gpt_position_embedding gpt_train_position(const char *name)
{
    static const enum gpt_position_embedding others[] = {GPT_POSITION_ROPE,
                                                         GPT_POSITION_LEARNED};
    /* the first names are those of the enum, in its order */
    const int i = gpt_train_choice(gpt_train_positions, name);

    return i > GPT_POSITION_NONE ? others[i - GPT_POSITION_NONE - 1]
                                 : (enum gpt_position_embedding)i;
}

/* Limits that keep every product of sizes countable. */
#define MAX_SIZE 16777216.0
#define MAX_COUNT 1e15

/* GPT_OPT_LOCAL: what ranks need not agree on, because it concerns one process,
 * as its device, or names input files, which may lie elsewhere on another
 * machine. Names and defaults are Megatron's, where it has the option. A rule
 * about one option is its range here; a rule between options is in plan.c,
 * which can name both. */
const struct gpt_opt gpt_train_option_table[] = {
    /* These fix the parameters and their shapes. A checkpoint keeps them, and a
     * run that resumes must give the same; dropout may change. A size of 0
     * follows from others. */
    GROUP("Model"),
    {.kind = GPT_OPT_INT, .name = "num-layers", .arg = "N", .def = "12",
     MODEL(num_layers), .min = 1, .max = 65536, .help = "transformer layers"},
    {.kind = GPT_OPT_INT, .name = "hidden-size", .arg = "N", .def = "768",
     MODEL(hidden_size), .min = 1, .max = MAX_SIZE,
     .help = "width of the residual stream"},
    {.kind = GPT_OPT_INT, .name = "ffn-hidden-size", .arg = "N", .def = "0",
     MODEL(ffn_hidden_size), .min = 0, .max = MAX_SIZE,
     .help = "width of the feed-forward layer, 0 = 4 x hidden size, or 8/3 x "
             "with a gate"},
    {.kind = GPT_OPT_INT, .name = "num-attention-heads", .arg = "N",
     .def = "12", MODEL(num_attention_heads), .min = 1, .max = 65536,
     .help = "attention heads"},
    {.kind = GPT_OPT_INT, .name = "num-query-groups", .arg = "N", .def = "0",
     MODEL(num_query_groups), .min = 0, .max = 65536,
     .help = "key and value heads, 0 = as many as attention heads"},
    {.kind = GPT_OPT_FLAG, .name = "group-query-attention", AT(group_query),
     .help = "says that --num-query-groups must be given"},
    {.kind = GPT_OPT_CHOICE, .name = "attention-head-type", .arg = "TYPE",
     .def = "multihead", AT(head_type), .choices = gpt_train_heads,
     .help = "multiquery: one head of keys and values"},
    /* heads need not fill the width: Qwen 3's have 128 elements whatever it
     * is */
    {.kind = GPT_OPT_INT, .name = "kv-channels", .arg = "N", .def = "0",
     MODEL(head_size), .min = 0, .max = 65536,
     .help = "size of a head, 0 = hidden size / attention heads"},
    {.kind = GPT_OPT_FLAG, .name = "qk-layernorm", MODEL(qk_norm),
     .help = "norm every head's queries and keys"},
    {.kind = GPT_OPT_FLAG, .name = "qk-norm-whole", MODEL(qk_norm_whole),
     .help = "... all queries of a token as one, and all keys"},
    {.kind = GPT_OPT_FLAG, .name = "qk-norm-each", MODEL(qk_norm_each),
     .help = "... each head, by weights of its own"},
    {.kind = GPT_OPT_FLAG, .name = "qk-norm-turned", MODEL(qk_norm_turned),
     .help = "... each head, after rotary positions turned it"},
    /* Megatron-LM's sizes of latent attention are its defaults, once there is
     * such a thing; its flag alone says so there. */
    {.kind = GPT_OPT_FLAG, .name = "multi-latent-attention",
     AT(multi_latent_attention),
     .help = "--kv-lora-rank 32, unless it is given, and --rotary-interleaved"},
    {.kind = GPT_OPT_INT, .name = "kv-lora-rank", .arg = "N", .def = "0",
     MODEL(kv_lora_rank), .min = 0, .max = MAX_SIZE,
     .help = "latent attention: numbers that keys and values are made of"},
    {.kind = GPT_OPT_INT, .name = "q-lora-rank", .arg = "N", .def = "0",
     MODEL(q_lora_rank), .min = 0, .max = MAX_SIZE,
     .help = "... and queries, 0 = of all of the stream"},
    {.kind = GPT_OPT_INT, .name = "qk-head-dim", .arg = "N", .def = "0",
     MODEL(qk_head_dim), .min = 0, .max = 32768,
     .help = "... elements of a head that do not turn, 0 = 128"},
    {.kind = GPT_OPT_INT, .name = "qk-pos-emb-head-dim", .arg = "N",
     .def = "0", MODEL(qk_pos_emb_head_dim), .min = 0, .max = 32768,
     .help = "... elements that turn, 0 = 64"},
    {.kind = GPT_OPT_INT, .name = "v-head-dim", .arg = "N", .def = "0",
     MODEL(v_head_dim), .min = 0, .max = 65536,
     .help = "... elements of a head's value, 0 = 128"},
    {.kind = GPT_OPT_REAL, .name = "latent-norm-epsilon", .arg = "X",
     .def = "0", MODEL(latent_norm_epsilon), .min = 0, .max = 1,
     .help = "... epsilon of their norms, 0 = --norm-epsilon"},
    /* No defaults, and no 0: a model of a checkpoint that lacks these has 0
     * there, and then they count as not given. */
    {.kind = GPT_OPT_STRING, .name = "window-size", .arg = "N,0",
     AT(window_size), .min = 1,
     .help = "attend to the N tokens before one's own alone"},
    {.kind = GPT_OPT_STRING, .name = "window-attn-skip-freq",
     .arg = "N|LIST", AT(window_skip), .min = 1,
     .help = "... but in every N-th layer, or those with 0, to all"},
    {.kind = GPT_OPT_INT, .name = "window-full-layers", .arg = "N",
     MODEL(window_full_layers), .def = "0", .min = 0, .max = 65536,
     .help = "... and in the first N layers"},
    {.kind = GPT_OPT_REAL, .name = "query-pre-attn-scalar", .arg = "X",
     MODEL(query_pre_attn_scalar), .def = "0", .min = 0, .max = 1e9,
     .help = "divide scores by its root, 0 = by that of a head's size"},
    {.kind = GPT_OPT_REAL, .name = "clip-qkv", .arg = "X",
     MODEL(clip_qkv), .def = "0", .min = 0, .max = 1e6,
     .help = "queries, keys and values stay in -X to X, 0 = anywhere"},
    {.kind = GPT_OPT_REAL, .name = "attn-logit-softcapping", .arg = "X",
     MODEL(attn_logit_softcapping), .def = "0", .min = 0, .max = 1e6,
     .help = "attention scores s become X tanh(s / X), 0 = stay"},
    {.kind = GPT_OPT_REAL, .name = "final-logit-softcapping", .arg = "X",
     MODEL(final_logit_softcapping), .def = "0", .min = 0, .max = 1e6,
     .help = "so do the logits, 0 = stay"},
    {.kind = GPT_OPT_INT, .name = "max-position-embeddings", .arg = "N",
     .def = "0", AT(max_position_embeddings), .min = 0, .max = MAX_SIZE,
     .help = "rows of the position table, 0 = sequence length"},
    {.kind = GPT_OPT_CHOICE, .name = "position-embedding-type", .arg = "TYPE",
     .def = "learned_absolute", AT(position_embedding_type),
     .choices = gpt_train_positions,
     .help = "how the model knows positions"},
    /* OPT: its table was made for a tokenizer that pads with the first rows */
    {.kind = GPT_OPT_INT, .name = "position-offset", .arg = "N",
     MODEL(position_offset), .def = "0", .min = 0, .max = 64,
     .help = "rows of the position table before that of position 0"},
    {.kind = GPT_OPT_INT, .name = "rotary-base", .arg = "N", .def = "10000",
     AT(rotary_base), .min = 2, .max = 1000000000000,
     .help = "base of the angles of rotary positions"},
    {.kind = GPT_OPT_REAL, .name = "rotary-percent", .arg = "X", .def = "1",
     AT(rotary_percent), .min = 1e-4, .max = 1,
     .help = "share of a head that rotary positions turn"},
    {.kind = GPT_OPT_FLAG, .name = "rotary-interleaved",
     AT(rotary_interleaved),
     .help = "rotary positions turn neighbours, not halves"},
    {.kind = GPT_OPT_STRING, .name = "no-rope-freq", .arg = "N|LIST",
     AT(no_rope), .min = 1,
     .help = "every N-th layer, or those with 1, do not turn"},
    {.kind = GPT_OPT_INT, .name = "rotary-local-base", .arg = "N",
     .def = "0", AT(rotary_local_base), .min = 0, .max = 1000000000000,
     .help = "base in layers with a window, 0 = as in the others"},
    /* Which of the next ten a kind reads is a table in plan_model.c: one that
     * would not be used is refused. 0 is the default of the kind. */
    {.kind = GPT_OPT_CHOICE, .name = "rotary-scaling-type", .arg = "TYPE",
     .def = "none", AT(rotary_scaling), .choices = gpt_rotary_scalings,
     .help = "how rotary positions are stretched for longer texts"},
    {.kind = GPT_OPT_REAL, .name = "rotary-scaling-factor", .arg = "X",
     .def = "0", AT(rotary_factor), .min = 0, .max = 1e6,
     .help = "how much longer texts are; llama3: 8 by default"},
    {.kind = GPT_OPT_INT, .name = "rotary-original-positions", .arg = "N",
     .def = "0", AT(rotary_positions), .min = 0, .max = MAX_SIZE,
     .help = "positions of pretraining; llama3: 8192 by default"},
    {.kind = GPT_OPT_REAL, .name = "rotary-low-freq-factor", .arg = "X",
     .def = "1", AT(rotary_low_factor), .min = 1e-6, .max = 1e6,
     .help = "llama3: pairs of fewer turns are stretched in full"},
    {.kind = GPT_OPT_REAL, .name = "rotary-high-freq-factor", .arg = "X",
     .def = "4", AT(rotary_high_factor), .min = 1e-6, .max = 1e6,
     .help = "llama3: pairs of more turns are not stretched"},
    {.kind = GPT_OPT_REAL, .name = "rotary-beta-fast", .arg = "X",
     .def = "32", AT(rotary_fast), .min = 1e-6, .max = 1e6,
     .help = "yarn: pairs of more turns are not stretched"},
    {.kind = GPT_OPT_REAL, .name = "rotary-beta-slow", .arg = "X",
     .def = "1", AT(rotary_slow), .min = 1e-6, .max = 1e6,
     .help = "yarn: pairs of fewer turns are stretched in full"},
    {.kind = GPT_OPT_REAL, .name = "rotary-attention-factor", .arg = "X",
     .def = "0", AT(rotary_attention), .min = 0, .max = 1e3,
     .help = "yarn, longrope: factor of queries and keys, 0 = by formula"},
    {.kind = GPT_OPT_REAL, .name = "rotary-query-growth", .arg = "X",
     .def = "0", AT(rotary_query_growth), .min = 0, .max = 1e3,
     .help = "growth of queries past the positions of pretraining"},
    {.kind = GPT_OPT_STRING, .name = "rotary-short-factors", .arg = "LIST",
     AT(rotary_short_factors), .min = 1,
     .help = "longrope: what the rate of each pair is divided by"},
    {.kind = GPT_OPT_STRING, .name = "rotary-long-factors", .arg = "LIST",
     AT(rotary_long_factors), .min = 1,
     .help = "longrope: the same in texts longer than in pretraining"},
    {.kind = GPT_OPT_CHOICE, .name = "normalization", .arg = "TYPE",
     .def = "LayerNorm", AT(normalization), .choices = gpt_normalizations,
     .help = "kind of norms"},
    {.kind = GPT_OPT_FLAG, .name = "apply-layernorm-1p", MODEL(norm_plus_one),
     .help = "norms multiply by 1 + weight"},
    {.kind = GPT_OPT_FLAG, .name = "no-norm-bias", MODEL(no_norm_bias),
     .help = "LayerNorm without biases"},
    {.kind = GPT_OPT_FLAG, .name = "no-norm-weight", MODEL(no_norm_weight),
     .help = "norms of any kind without weights and biases"},
    /* No default: a preset's name must give way to --swiglu, and a row of
     * several that say one thing is reset to nothing. */
    {.kind = GPT_OPT_CHOICE, .name = "activation-function", .arg = "NAME",
     AT(activation), .choices = gpt_activations,
     .help = "activation of the feed-forward layer, the first by default",
     .one_of = "activation"},
    {.kind = GPT_OPT_FLAG, .name = "gated-linear-unit", MODEL(gated),
     .help = "multiply the activation by a second product"},
    {.kind = GPT_OPT_FLAG, .name = "swiglu", AT(swiglu),
     .help = "silu with a gate",
     .one_of = "activation"},
    {.kind = GPT_OPT_FLAG, .name = "geglu", AT(geglu),
     .help = "gelu with a gate",
     .one_of = "activation"},
    {.kind = GPT_OPT_FLAG, .name = "squared-relu", AT(squared_relu),
     .help = "the same as --activation-function squared_relu",
     .one_of = "activation"},
    {.kind = GPT_OPT_FLAG, .name = "disable-bias-linear", MODEL(no_linear_bias),
     .help = "linear layers without biases"},
    {.kind = GPT_OPT_FLAG, .name = "add-qkv-bias", MODEL(qkv_bias),
     .help = "... but queries, keys and values have them"},
    /* GPT-J, and Phi */
    {.kind = GPT_OPT_FLAG, .name = "no-attention-bias",
     MODEL(no_attention_bias),
     .help = "attention without biases, the feed-forward with them"},
    {.kind = GPT_OPT_FLAG, .name = "no-mlp-bias", MODEL(no_mlp_bias),
     .help = "the feed-forward without biases, attention with them"},
    {.kind = GPT_OPT_FLAG, .name = "no-qkv-bias", MODEL(no_qkv_bias),
     .help = "queries, keys and values without biases, all else with them"},
    {.kind = GPT_OPT_FLAG, .name = "output-bias", MODEL(output_bias),
     .help = "a bias of every word's logit"},
    /* GPT-NeoX and GPT-J; Megatron-LM itself has no name for them. */
    {.kind = GPT_OPT_FLAG, .name = "parallel-residual", MODEL(parallel_blocks),
     .help = "attention and feed-forward side by side"},
    {.kind = GPT_OPT_FLAG, .name = "shared-norm", MODEL(shared_norm),
     .help = "... after one norm for both"},
    /* Gemma 2 and OLMo 2; the second implies the first. */
    {.kind = GPT_OPT_FLAG, .name = "post-norm", MODEL(post_norm),
     .help = "norm what attention and feed-forward give, too"},
    {.kind = GPT_OPT_FLAG, .name = "no-pre-norm", MODEL(no_pre_norm),
     .help = "... and not what they read"},
    {.kind = GPT_OPT_FLAG, .name = "embedding-norm", MODEL(embedding_norm),
     .help = "a norm after the embedding", .alias = "embed-layernorm"},
    {.kind = GPT_OPT_FLAG, .name = "scale-embedding", MODEL(scale_embedding),
     .help = "multiply embeddings of words by the root of the hidden size"},
    {.kind = GPT_OPT_REAL, .name = "embedding-multiplier", .arg = "X",
     MODEL(embedding_multiplier), .def = "1", .min = 1e-6, .max = 1e6,
     .help = "... or by X"},
    {.kind = GPT_OPT_REAL, .name = "residual-multiplier", .arg = "X",
     MODEL(residual_multiplier), .def = "1", .min = 1e-6, .max = 1e6,
     .help = "multiply what attention and feed-forward give by X"},
    {.kind = GPT_OPT_REAL, .name = "logit-multiplier", .arg = "X",
     MODEL(logit_multiplier), .def = "1", .min = 1e-6, .max = 1e6,
     .help = "multiply the logits by X"},
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N", .def = "0",
     AT(vocab_size), .min = 0, .max = 1073741824,
     .help = "vocabulary size before padding, 0 = the tokenizer's"},
    {.kind = GPT_OPT_INT, .name = "make-vocab-size-divisible-by", .arg = "N",
     .def = "128", AT(make_vocab_size_divisible_by), .min = 1,
     .max = MAX_SIZE,
     .help = "pad the vocabulary to a multiple of N x tensor parallel size"},
    {.kind = GPT_OPT_FLAG, .name = "untie-embeddings-and-output-weights",
     AT(untie_embeddings),
     .help = "give the output layer a matrix of its own"},
    {.kind = GPT_OPT_REAL, .name = "norm-epsilon", .arg = "X", .def = "1e-5",
     MODEL(norm_epsilon), .min = 1e-12, .max = 1,
     .help = "epsilon of layer norms", .alias = "layernorm-epsilon"},
    /* 0 follows from --num-experts: a model without experts has none of this */
    {.kind = GPT_OPT_INT, .name = "num-experts", .arg = "N", .def = "0",
     MODEL(num_experts), .min = 0, .max = 4096,
     .help = "experts in the place of the feed-forward, 0 = none"},
    {.kind = GPT_OPT_INT, .name = "moe-router-topk", .arg = "N", .def = "0",
     MODEL(moe_router_topk), .min = 0, .max = GPT_ROUTER_MOST,
     .help = "experts of a token, 0 = 2"},
    {.kind = GPT_OPT_INT, .name = "moe-ffn-hidden-size", .arg = "N",
     .def = "0", MODEL(moe_ffn_hidden_size), .min = 0, .max = MAX_SIZE,
     .help = "width of an expert, 0 = --ffn-hidden-size"},
    {.kind = GPT_OPT_STRING, .name = "moe-layer-freq", .arg = "N|LIST",
     AT(moe_layers), .min = 1,
     .help = "experts in the first of every N layers, or those with 1"},
    {.kind = GPT_OPT_INT, .name = "moe-dense-layers", .arg = "N", .def = "0",
     MODEL(moe_dense_layers), .min = 0, .max = 65536,
     .help = "... but in none of the first N layers"},
    {.kind = GPT_OPT_INT, .name = "moe-shared-expert-intermediate-size",
     .arg = "N", .def = "0", MODEL(moe_shared_expert_intermediate_size),
     .min = 0, .max = MAX_SIZE,
     .help = "width of an expert of all tokens beside them, 0 = none"},
    {.kind = GPT_OPT_FLAG, .name = "moe-shared-expert-gate",
     MODEL(moe_shared_expert_gate),
     .help = "... which a gate of each token weighs"},
    {.kind = GPT_OPT_CHOICE, .name = "moe-router-score-function",
     .arg = "TYPE", .def = "softmax", AT(moe_score),
     .choices = gpt_router_scores,
     .help = "how experts are scored: together, or each by itself"},
    {.kind = GPT_OPT_INT, .name = "moe-router-num-groups", .arg = "N",
     .def = "0", MODEL(moe_router_num_groups), .min = 0, .max = 4096,
     .help = "groups of experts, of which a token takes some, 0 = none"},
    {.kind = GPT_OPT_INT, .name = "moe-router-group-topk", .arg = "N",
     .def = "0", MODEL(moe_router_group_topk), .min = 0, .max = 4096,
     .help = "... as many as this"},
    {.kind = GPT_OPT_FLAG, .name = "moe-router-pre-softmax",
     MODEL(moe_router_pre_softmax),
     .help = "weigh by shares of all experts, not of the chosen ones"},
    {.kind = GPT_OPT_FLAG, .name = "moe-router-expert-bias",
     MODEL(moe_router_expert_bias),
     .help = "a number for each expert, to choose by alone",
     .alias = "moe-router-enable-expert-bias"},
    {.kind = GPT_OPT_REAL, .name = "moe-router-bias-update-rate",
     .arg = "X", .def = "1e-3", AT(moe_bias_rate), .min = 0, .max = 1e6,
     .help = "what a step adds to it where an expert had few tokens"},
    {.kind = GPT_OPT_REAL, .name = "moe-router-topk-scaling-factor",
     .arg = "X", .def = "0", MODEL(moe_router_topk_scaling_factor),
     .min = 0, .max = 1e6, .help = "of experts' weights, 0 = 1"},
    {.kind = GPT_OPT_REAL, .name = "moe-aux-loss-coeff", .arg = "X",
     .def = "0", MODEL(moe_aux_loss_coeff), .min = 0, .max = 1e6,
     .help = "of the loss that spreads tokens over experts"},
    {.kind = GPT_OPT_REAL, .name = "moe-z-loss-coeff", .arg = "X",
     .def = "0", MODEL(moe_z_loss_coeff), .min = 0, .max = 1e6,
     .help = "of the loss that keeps a router's numbers small"},
    {.kind = GPT_OPT_REAL, .name = "init-method-std", .arg = "X",
     .def = "0.02", MODEL(init_std), .min = 0, .max = 10,
     .help = "standard deviation of initial weights"},
    {.kind = GPT_OPT_REAL, .name = "hidden-dropout", .arg = "P", .def = "0.1",
     MODEL(hidden_dropout), .min = 0, .max = 0.99,
     .help = "dropout of embeddings and of what layers add"},
    {.kind = GPT_OPT_REAL, .name = "attention-dropout", .arg = "P",
     .def = "0.1", MODEL(attention_dropout), .min = 0, .max = 0.99,
     .help = "dropout of attention probabilities"},

    /* These cut the model and the batch over ranks. Another layout sums in
     * another order, and is otherwise the same training: checkpoints change
     * layouts freely. What is left of the ranks after tensor and pipeline
     * parallel ones is data parallel. */
    GROUP("Layout over ranks"),
    {.kind = GPT_OPT_INT, .name = "tensor-model-parallel-size", .arg = "N",
     .def = "1", AT(tp_size), .min = 1, .max = 65536,
     .help = "ranks that share every layer", .alias = "model-parallel-size"},
    {.kind = GPT_OPT_INT, .name = "pipeline-model-parallel-size", .arg = "N",
     .def = "1", AT(pp_size), .min = 1, .max = 4096,
     .help = "stages that the layers are cut into"},
    GPT_STAGE_LAYERS_OPTIONS(struct gpt_train_options, stages),
    {.kind = GPT_OPT_FLAG, .name = "sequence-parallel", AT(sequence_parallel),
     .help = "tensor parallel ranks share norms and dropout, too"},
    {.kind = GPT_OPT_FLAG, .name = "use-distributed-optimizer",
     AT(distributed_optimizer),
     .help = "data parallel ranks share the optimizer's state (ZeRO-1)",
     .one_of = "sharding"},
    {.kind = GPT_OPT_CHOICE, .name = "data-parallel-sharding-strategy",
     .arg = "WHAT", .def = "no_shard", AT(sharding),
     .choices = gpt_train_shardings,
     .help = "what data parallel ranks share: optim (ZeRO-1), optim_grads "
             "(ZeRO-2)",
     .one_of = "sharding"},
    {.kind = GPT_OPT_FLAG, .name = "overlap-grad-reduce", .def = "true",
     AT(overlap_reduce),
     .help = "sum gradients while backward goes on: always"},
    {.kind = GPT_OPT_FLAG, .name = "overlap-param-gather", AT(overlap_gather),
     .help = "gather weights of a distributed optimizer while the next step's "
             "forward goes on"},
    {.kind = GPT_OPT_FLAG, .name = "async-tensor-model-parallel-allreduce",
     .def = "true", AT(overlap_tensor),
     .help = "compute weight gradients while tensor parallel ranks sum those "
             "of inputs"},
    {.kind = GPT_OPT_FLAG, .name = "recompute-activations",
     AT(recompute_activations),
     .help = "the same as --recompute-granularity selective",
     .one_of = "recomputation"},
    {.kind = GPT_OPT_CHOICE, .name = "recompute-granularity",
     .choices = gpt_train_granularities, AT(recompute_granularity),
     .help = "what backward computes again: whole layers, or what is cheap",
     .one_of = "recomputation"},
    {.kind = GPT_OPT_CHOICE, .name = "recompute-method", .def = "uniform",
     .choices = gpt_train_methods, AT(recompute_method),
     .help = "full: keep the input of every group of layers, or recompute a "
             "stage's first layers one by one"},
    {.kind = GPT_OPT_INT, .name = "recompute-num-layers", .arg = "N",
     .def = "1", AT(recompute_layers), .min = 1, .max = 65536,
     .help = "uniform: layers of a group; block: layers a stage"},
    {.kind = GPT_OPT_CHOICE, .name = "distributed-backend",
     AT(backend), .choices = gpt_train_backends,
     .help = "what carries bytes between ranks; nccl where each has a GPU of "
             "its own, else gloo"},
    {.kind = GPT_OPT_REAL, .name = "distributed-timeout-minutes", .arg = "M",
     .def = "10", AT(timeout_mins), .min = 0.01, .max = 1e6,
     .help = "longest wait for other ranks until the first step is over"},
    {.kind = GPT_OPT_REAL, .name = "distributed-step-timeout-minutes",
     .arg = "M", .def = "2", AT(step_timeout_mins), .min = 0.01, .max = 1e6,
     .help = "longest wait for other ranks afterwards"},

    /* The type that weights and activations are computed in. Gradients, moments
     * and the weights that Adam changes stay float. The loss scale keeps small
     * gradients of half precision from becoming 0: it doubles after a window of
     * good steps, and halves at overflows, as in Megatron-LM. */
    GROUP("Precision"),
    {.kind = GPT_OPT_FLAG, .name = "bf16", AT(bf16),
     .help = "weights and activations in bfloat16",
     .one_of = "type"},
    {.kind = GPT_OPT_FLAG, .name = "fp16", AT(fp16),
     .help = "weights and activations in half precision, with a loss scale",
     .one_of = "type"},
    {.kind = GPT_OPT_FLAG, .name = "tf32", AT(tf32),
     .help = "products of float by TF32 tensor cores: faster, less exact",
     .one_of = "type"},
    /* Megatron-LM's names. There another recipe is the default, and the first
     * and the last layers are rounded unless they are excepted. */
    {.kind = GPT_OPT_CHOICE, .name = "fp8-format", .arg = "FORMAT",
     AT(fp8_format), .choices = gpt_train_fp8_formats,
     .help = "products of linear layers with factors of eight bits: E4M3, and "
             "with hybrid E5M2 for gradients"},
    {.kind = GPT_OPT_CHOICE, .name = "fp8-recipe", .arg = "RECIPE",
     .def = "tensorwise", AT(fp8_recipe), .choices = fp8_recipes,
     .help = "a scale for each tensor, of the tensor at hand"},
    {.kind = GPT_OPT_FLAG, .name = "first-last-layers-bf16", .def = "true",
     AT(ends_in_bf16), .help = "keep the first and the last layers in bf16"},
    {.kind = GPT_OPT_INT, .name = "num-layers-at-start-in-bf16", .arg = "N",
     .def = "1", AT(bf16_at_start), .min = 0, .max = MAX_SIZE,
     .help = "... so many first layers"},
    {.kind = GPT_OPT_INT, .name = "num-layers-at-end-in-bf16", .arg = "N",
     .def = "1", AT(bf16_at_end), .min = 0, .max = MAX_SIZE,
     .help = "... so many last layers"},
    {.kind = GPT_OPT_REAL, .name = "loss-scale", .arg = "X", .def = "0",
     AT(loss_scale), .min = 0, .max = 1e38,
     .help = "constant loss scale, 0 = one that adapts (fp16)"},
    {.kind = GPT_OPT_REAL, .name = "initial-loss-scale", .arg = "X",
     .def = "4294967296", AT(initial_loss_scale), .min = 0, .max = 1e38,
     .help = "loss scale to begin with"},
    {.kind = GPT_OPT_REAL, .name = "min-loss-scale", .arg = "X", .def = "1",
     AT(min_loss_scale), .min = 0, .max = 1e38,
     .help = "loss scale never goes below"},
    {.kind = GPT_OPT_INT, .name = "loss-scale-window", .arg = "N",
     .def = "1000", AT(loss_scale_window), .min = 1, .max = MAX_COUNT,
     .help = "good steps until the loss scale is doubled"},
    {.kind = GPT_OPT_INT, .name = "hysteresis", .arg = "N", .def = "2",
     AT(hysteresis), .min = 1, .max = MAX_COUNT,
     .help = "overflows until the loss scale is halved"},

    /* These decide the sequence of samples together with the seed; a checkpoint
     * has their digest. The tokenizer gives the vocabulary's size and the
     * end-of-document token: tokens themselves come from the data. */
    GROUP("Data"),
    {.kind = GPT_OPT_LIST, .name = "data-path", .arg = "PREFIX",
     AT(data_path), .flags = GPT_OPT_SET | GPT_OPT_LOCAL | GPT_OPT_ONCE,
     .help = "data sets without .bin/.idx: P, or W1 P1 W2 P2 ..."},
    {.kind = GPT_OPT_STRING, .name = "data-args-path", .arg = "FILE",
     AT(data_args_path),
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT | GPT_OPT_LOCAL,
     .help = "file of the words of --data-path"},
    {.kind = GPT_OPT_FLAG, .name = "mock-data", AT(mock_data),
     .help = "train on tokens that are made up, without a data set"},
    {.kind = GPT_OPT_STRING, .name = "split", .arg = "A,B,C",
     .def = "969,30,1", AT(split),
     .help = "shares of train, valid and test in --data-path"},
    {.kind = GPT_OPT_LIST, .name = "train-data-path", .arg = "PREFIX",
     AT(train_path), .flags = GPT_OPT_SET | GPT_OPT_LOCAL | GPT_OPT_ONCE,
     .help = "data sets for training only, instead of --data-path"},
    {.kind = GPT_OPT_STRING, .name = "data-stages", .arg = "FILE",
     AT(data_stages), .flags = GPT_OPT_FILE | GPT_OPT_INPUT | GPT_OPT_LOCAL,
     .help = "training data that change during the run: lines of a sample, "
             "then weights and data sets"},
    {.kind = GPT_OPT_LIST, .name = "valid-data-path", .arg = "PREFIX",
     AT(valid_path), .flags = GPT_OPT_SET | GPT_OPT_LOCAL | GPT_OPT_ONCE,
     .help = "data sets for validation only"},
    {.kind = GPT_OPT_LIST, .name = "test-data-path", .arg = "PREFIX",
     AT(test_path), .flags = GPT_OPT_SET | GPT_OPT_LOCAL | GPT_OPT_ONCE,
     .help = "data sets for testing"},
    {.kind = GPT_OPT_STRING, .name = "per-split-data-args-path",
     .arg = "FILE", AT(per_split_paths),
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT | GPT_OPT_LOCAL,
     .help = "JSON with the lists of these three: train, valid and test"},
    {.kind = GPT_OPT_CHOICE, .name = "data-impl", .arg = "IMPL",
     .def = "infer", AT(data_impl), .choices = gpt_indexed_impls,
     .help = "how data files are read", .alias = "dataset-impl"},
    {.kind = GPT_OPT_INT, .name = "seq-length", .arg = "N", .def = "1024",
     AT(seq_length), .min = 1, .max = MAX_SIZE,
     .help = "tokens of a sample", .alias = "encoder-seq-length"},
    GPT_TOKENIZER_FILE_OPTIONS(struct gpt_train_options, tokenizer,
                               "GPT2BPETokenizer", GPT_OPT_LOCAL),
    GPT_TOKENIZER_TEXT_OPTIONS(struct gpt_train_options, tokenizer),
    GPT_TOKENIZER_MISMATCH_OPTION(struct gpt_train_options,
                                  allow_vocab_mismatch),
    /* Documents side by side, or one a sample. Ids, as in config.json of
     * Hugging Face: a tokenizer may know several ends, or none. */
    {.kind = GPT_OPT_FLAG, .name = "document-samples", AT(document_samples),
     .help = "a sample is one document, clipped or padded"},
    {.kind = GPT_OPT_INT, .name = "bos-token-id", .arg = "ID", .def = "-1",
     AT(bos_token), .min = -1, .max = 2147483647.0,
     .help = "token before each document of --document-samples"},
    {.kind = GPT_OPT_INT, .name = "eos-token-id", .arg = "ID", .def = "-1",
     AT(eos_token), .min = -1, .max = 2147483647.0,
     .help = "token after each document of --document-samples"},
    {.kind = GPT_OPT_INT, .name = "pad-token-id", .arg = "ID", .def = "-1",
     AT(pad_token), .min = -1, .max = 2147483647.0,
     .help = "token of padding; no loss where it is the target"},
    {.kind = GPT_OPT_FLAG, .name = "shuffle", .def = "true", AT(shuffle),
     .help = "draw documents and samples in random order"},
    {.kind = GPT_OPT_FLAG, .name = "calculate-per-token-loss",
     AT(per_token_loss),
     .help = "mean over all tokens of a batch, not of microbatches' means"},
    /* What is minimised in training. Validation is always plain cross-entropy,
     * so that losses of runs compare. */
    {.kind = GPT_OPT_REAL, .name = "label-smoothing", .arg = "X", .def = "0",
     AT(label_smoothing), .min = 0, .max = 0.999,
     .help = "share of the target that is spread over the vocabulary"},
    {.kind = GPT_OPT_REAL, .name = "z-loss", .arg = "X", .def = "0",
     AT(z_loss), .min = 0, .max = 1000,
     .help = "coefficient of the squared logarithm of the softmax's sum"},
    {.kind = GPT_OPT_STRING, .name = "token-loss-weights", .arg = "FILE",
     AT(token_loss_weights),
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT | GPT_OPT_LOCAL,
     .help = "token ids and numbers: a sample's loss counts 1 plus those of "
             "its tokens"},
    {.kind = GPT_OPT_STRING, .name = "loss-plugin", .arg = "FILE",
     AT(loss_plugin), .flags = GPT_OPT_FILE | GPT_OPT_LOCAL,
     .help = "shared library with a loss of one's own, see gpt_loss.h"},
    {.kind = GPT_OPT_STRING, .name = "loss-plugin-args", .arg = "TEXT",
     AT(loss_plugin_args), .help = "what the library is given"},
    {.kind = GPT_OPT_FLAG, .name = "eod-mask-loss", AT(eod_mask_loss),
     .help = "no loss where the input is an end of document"},
    {.kind = GPT_OPT_FLAG, .name = "reset-position-ids",
     AT(reset_position_ids),
     .help = "positions start again after an end of document"},
    {.kind = GPT_OPT_FLAG, .name = "reset-attention-mask",
     AT(reset_attention_mask),
     .help = "documents of a sample do not see each other"},

    /* The number of microbatches of a step is global batch / (micro batch x
     * data parallel ranks). The length is given in steps or in samples, and
     * warm-up and decay are then given in the same unit. */
    GROUP("Batches and length"),
    {.kind = GPT_OPT_INT, .name = "micro-batch-size", .arg = "N", .def = "1",
     AT(micro_batch_size), .min = 1, .max = MAX_SIZE,
     .help = "samples that go through the model together"},
    {.kind = GPT_OPT_INT, .name = "global-batch-size", .arg = "N",
     .def = "0", AT(global_batch_size), .min = 0, .max = GPT_BATCH_LARGEST,
     .help = "samples of a step, 0 = micro batch size"},
    {.kind = GPT_OPT_LIST, .name = "rampup-batch-size", .arg = "N",
     AT(rampup), .help = "START INCREMENT SAMPLES: let the batch grow"},
    {.kind = GPT_OPT_LIST, .name = "step-batch-size-schedule",
     .arg = "TOKENS:BATCH", AT(batch_steps),
     .help = "sizes of the batch from so many tokens on: 0:64 2B:256"},
    {.kind = GPT_OPT_INT, .name = "train-iters", .arg = "N", .def = "0",
     AT(train_iters), .min = 0, .max = MAX_COUNT,
     .help = "steps of the whole run",
     .one_of = "length"},
    {.kind = GPT_OPT_INT, .name = "train-samples", .arg = "N", .def = "0",
     AT(train_samples), .min = 0, .max = MAX_COUNT,
     .help = "samples of the whole run, instead of --train-iters",
     .one_of = "length"},
    /* becomes a number of steps when the data are known: run.c */
    {.kind = GPT_OPT_INT, .name = "epochs", .arg = "N", .def = "0",
     AT(epochs), .min = 0, .max = 1e9,
     .help = "length in passes over the training data, instead of both",
     .one_of = "length"},
    {.kind = GPT_OPT_INT, .name = "exit-interval", .arg = "N", .def = "0",
     AT(exit_interval), .min = 0, .max = MAX_COUNT,
     .help = "save and leave when the step is a multiple of N"},
    {.kind = GPT_OPT_REAL, .name = "exit-duration-in-mins", .arg = "M",
     .def = "0", AT(exit_duration_mins), .min = 0, .max = 1e9,
     .help = "save and leave after M minutes"},
    {.kind = GPT_OPT_INT, .name = "max-nan-iterations", .arg = "N",
     .def = "0", AT(max_nan_iterations), .min = 0, .max = MAX_COUNT,
     .help = "skip up to N steps in a row whose loss or gradient is not "
             "finite, then give up"},
    {.kind = GPT_OPT_INT, .name = "seed", .arg = "N", .def = "1234",
     AT(seed), .min = 0, .max = UINT32_MAX,
     .help = "of initial weights, dropout and data order"},

    /* The schedule follows Megatron-LM's rules, and is a function of the
     * samples seen so far. Counts in steps become samples by the global batch
     * size. */
    GROUP("Learning rate and optimizer"),
    {.kind = GPT_OPT_REAL, .name = "lr", .arg = "X", .def = "0", AT(lr),
     .min = 0, .max = 1000, .help = "highest learning rate"},
    {.kind = GPT_OPT_REAL, .name = "min-lr", .arg = "X", .def = "0",
     AT(min_lr), .min = 0, .max = 1000, .help = "lowest learning rate"},
    {.kind = GPT_OPT_REAL, .name = "decoupled-lr", .arg = "X", .def = "0",
     AT(decoupled_lr), .min = 0, .max = 1000,
     .help = "highest of word embedding and output layer, 0 = --lr"},
    {.kind = GPT_OPT_REAL, .name = "decoupled-min-lr", .arg = "X",
     .def = "-1", AT(decoupled_min_lr), .min = -1, .max = 1000,
     .help = "their lowest, -1 = --min-lr"},
    {.kind = GPT_OPT_CHOICE, .name = "lr-decay-style", .arg = "STYLE",
     .def = "linear", AT(lr_decay_style), .choices = gpt_lr_styles,
     .help = "shape of the way down"},
    {.kind = GPT_OPT_INT, .name = "lr-decay-iters", .arg = "N", .def = "0",
     AT(lr_decay_iters), .min = 0, .max = MAX_COUNT,
     .help = "step where the lowest rate is reached, 0 = the last",
     .one_of = "decay"},
    {.kind = GPT_OPT_INT, .name = "lr-decay-samples", .arg = "N",
     .def = "0", AT(lr_decay_samples), .min = 0, .max = MAX_COUNT,
     .help = "the same in samples, with --train-samples",
     .one_of = "decay"},
    {.kind = GPT_OPT_INT, .name = "lr-warmup-iters", .arg = "N", .def = "0",
     AT(lr_warmup_iters), .min = 0, .max = MAX_COUNT,
     .help = "steps of linear warm-up",
     .one_of = "warm-up"},
    {.kind = GPT_OPT_INT, .name = "lr-warmup-samples", .arg = "N",
     .def = "0", AT(lr_warmup_samples), .min = 0, .max = MAX_COUNT,
     .help = "samples of linear warm-up, with --train-samples",
     .one_of = "warm-up"},
    {.kind = GPT_OPT_REAL, .name = "lr-warmup-fraction", .arg = "X",
     .def = "0", AT(lr_warmup_fraction), .min = 0, .max = 1,
     .help = "warm-up as a fraction of the decay",
     .one_of = "warm-up"},
    {.kind = GPT_OPT_REAL, .name = "lr-warmup-init", .arg = "X", .def = "0",
     AT(lr_warmup_init), .min = 0, .max = 1000,
     .help = "learning rate where the warm-up starts"},
    {.kind = GPT_OPT_CHOICE, .name = "lr-warmup-style", .arg = "STYLE",
     AT(lr_warmup_style), .choices = gpt_lr_warmups,
     .help = "shape of the warm-up of WarmupLR and WarmupDecayLR: log, the "
             "default, or linear"},
    {.kind = GPT_OPT_CHOICE, .name = "lr-wsd-decay-style", .arg = "STYLE",
     .def = "exponential", AT(lr_wsd_decay_style), .choices = gpt_wsd_styles,
     .help = "shape of the end of WSD"},
    {.kind = GPT_OPT_INT, .name = "lr-wsd-decay-iters", .arg = "N",
     .def = "0", AT(lr_wsd_decay_iters), .min = 0, .max = MAX_COUNT,
     .help = "steps of the end of WSD"},
    {.kind = GPT_OPT_INT, .name = "lr-wsd-decay-samples", .arg = "N",
     .def = "0", AT(lr_wsd_decay_samples), .min = 0, .max = MAX_COUNT,
     .help = "samples of the end of WSD, with --train-samples"},
    {.kind = GPT_OPT_REAL, .name = "weight-decay", .arg = "X",
     .def = "0.01", AT(weight_decay), .min = 0, .max = 1000,
     .help = "weight decay of matrices; vectors have none"},
    {.kind = GPT_OPT_REAL, .name = "start-weight-decay", .arg = "X",
     .def = "0", AT(start_weight_decay), .min = 0, .max = 1000,
     .help = "first weight decay, when it changes"},
    {.kind = GPT_OPT_REAL, .name = "end-weight-decay", .arg = "X",
     .def = "0", AT(end_weight_decay), .min = 0, .max = 1000,
     .help = "last weight decay, when it changes"},
    {.kind = GPT_OPT_CHOICE, .name = "weight-decay-incr-style",
     .arg = "STYLE", .def = "constant", AT(weight_decay_incr_style),
     .choices = gpt_wd_styles,
     .help = "how weight decay goes from start to end over the run"},
    /* Options of an optimizer have effect with it alone; effects.c warns of the
     * others. Choices are the library's names, in the order of its enums. */
    {.kind = GPT_OPT_CHOICE, .name = "optimizer", .arg = "NAME",
     .def = "adam", AT(optimizer), .choices = gpt_optimizer_names,
     .help = "rule that updates weights: adam, sgd, or muon: matrices of "
             "layers by Muon, the rest by adam"},
    {.kind = GPT_OPT_FLAG, .name = "decoupled-weight-decay", .def = "true",
     AT(decoupled_decay),
     .help = "weight decay apart from the gradient: AdamW, not Adam"},
    {.kind = GPT_OPT_REAL, .name = "adam-beta1", .arg = "X", .def = "0.9",
     AT(adam_beta1), .min = 0, .max = 0.99999999,
     .help = "decay of adam's mean gradient"},
    {.kind = GPT_OPT_REAL, .name = "adam-beta2", .arg = "X", .def = "0.999",
     AT(adam_beta2), .min = 0, .max = 0.99999999,
     .help = "decay of adam's mean squared gradient"},
    {.kind = GPT_OPT_REAL, .name = "adam-eps", .arg = "X", .def = "1e-8",
     AT(adam_eps), .min = 1e-30, .max = 1,
     .help = "term that keeps adam's division finite"},
    {.kind = GPT_OPT_REAL, .name = "sgd-momentum", .arg = "X", .def = "0.9",
     AT(sgd_momentum), .min = 0, .max = 0.99999999,
     .help = "momentum of sgd, 0 = none"},
    {.kind = GPT_OPT_REAL, .name = "muon-momentum", .arg = "X",
     .def = "0.9", AT(muon_momentum), .min = 0, .max = 0.99999999,
     .help = "momentum of muon"},
    {.kind = GPT_OPT_FLAG, .name = "muon-use-nesterov", AT(muon_nesterov),
     .help = "Nesterov's momentum in muon", .alias = "muon-nesterov"},
    {.kind = GPT_OPT_INT, .name = "muon-num-ns-steps", .arg = "N",
     .def = "5", AT(muon_steps), .min = 1, .max = 100,
     .help = "steps of muon's Newton-Schulz iteration"},
    {.kind = GPT_OPT_CHOICE, .name = "muon-coefficient-type", .arg = "TYPE",
     .def = "quintic", AT(muon_coefficients),
     .choices = gpt_muon_coefficient_types,
     .help = "coefficients of the iteration"},
    {.kind = GPT_OPT_CHOICE, .name = "muon-scale-mode", .arg = "MODE",
     .def = "spectral", AT(muon_scale), .choices = gpt_muon_scales,
     .help = "how muon's update follows from a matrix's shape"},
    {.kind = GPT_OPT_REAL, .name = "muon-extra-scale-factor", .arg = "X",
     .def = "1", AT(muon_extra_scale), .min = 0, .max = 1e6,
     .help = "factor of muon's updates; 0.2 is near AdamW's"},
    {.kind = GPT_OPT_FLAG, .name = "muon-no-split-qkv", AT(muon_whole_qkv),
     .help = "queries, keys and values as one matrix in muon"},
    {.kind = GPT_OPT_CHOICE, .name = "muon-tp-mode", .arg = "MODE",
     .def = "duplicated", AT(muon_tp_mode), .choices = gpt_train_muon_modes,
     .help = "blockwise: the part of a tensor parallel rank is a matrix of "
             "its own in muon"},
    {.kind = GPT_OPT_REAL, .name = "clip-grad", .arg = "X", .def = "1.0",
     AT(clip_grad), .min = 0, .max = 1e30,
     .help = "limit of the gradient's norm, 0 = none"},

    /* What is kept, and what a new run takes over. A run that resumes compares
     * its schedule with the checkpoint's; two of these options say which of
     * them counts. */
    GROUP("Checkpoints"),
    {.kind = GPT_OPT_STRING, .name = "save", .arg = "DIR", AT(save),
     .flags = GPT_OPT_DIR, .help = "where checkpoints go"},
    {.kind = GPT_OPT_STRING, .name = "load", .arg = "DIR", AT(load),
     .flags = GPT_OPT_DIR,
     .help = "continue from the checkpoint there; start anew when DIR is "
             "--save and holds none"},
    {.kind = GPT_OPT_INT, .name = "save-interval", .arg = "N", .def = "0",
     AT(save_interval), .min = 0, .max = MAX_COUNT,
     .help = "save every N steps, 0 = at the end only"},
    {.kind = GPT_OPT_INT, .name = "keep-checkpoints", .arg = "N", .def = "0",
     AT(keep_checkpoints), .min = 0, .max = MAX_COUNT,
     .help = "keep the newest N in --save, 0 = all"},
    {.kind = GPT_OPT_FLAG, .name = "async-save", AT(async_save),
     .help = "train on while a checkpoint is written, from a copy in memory"},
    {.kind = GPT_OPT_FLAG, .name = "no-save-optim", AT(no_save_optim),
     .help = "leave the optimizer's state out of checkpoints"},
    {.kind = GPT_OPT_FLAG, .name = "no-load-optim", AT(no_load_optim),
     .help = "do not load the optimizer's state"},
    {.kind = GPT_OPT_FLAG, .name = "finetune", AT(finetune),
     .help = "load weights only and start at step 0"},
    {.kind = GPT_OPT_FLAG, .name = "override-opt-param-scheduler",
     AT(override_scheduler),
     .help = "schedules as given here, not as in the checkpoint"},
    {.kind = GPT_OPT_FLAG, .name = "use-checkpoint-opt-param-scheduler",
     AT(use_checkpoint_scheduler),
     .help = "schedules as in the checkpoint, not as given here"},
    {.kind = GPT_OPT_FLAG, .name = "use-checkpoint-args",
     AT(use_checkpoint_args),
     .help = "take the options of model and tokenizer from the checkpoint in "
             "--load"},

    /* Looking at the model while it is trained, which does not change what is
     * trained. The last three decide what is kept of it, and when it is over.
     * Names of files are local: what was read is compared between ranks. */
    GROUP("Evaluation"),
    {.kind = GPT_OPT_INT, .name = "eval-interval", .arg = "N",
     .def = "1000", AT(eval_interval), .min = 1, .max = MAX_COUNT,
     .help = "steps between validations"},
    {.kind = GPT_OPT_INT, .name = "eval-iters", .arg = "N", .def = "100",
     AT(eval_iters), .min = 0, .max = MAX_COUNT,
     .help = "batches of a validation, 0 = none"},
    {.kind = GPT_OPT_FLAG, .name = "eval-only", AT(eval_only),
     .help = "evaluate the model in --load, print a table, and stop",
     .alias = "skip-train"},
    {.kind = GPT_OPT_LIST, .name = "valid-set", .arg = "NAME=PREFIX",
     AT(valid_set), .flags = GPT_OPT_SET | GPT_OPT_LOCAL,
     .help = "a further validation set, or a blend: NAME=W1 P1 W2 P2 ..."},
    {.kind = GPT_OPT_FLAG, .name = "multiple-validation-sets",
     AT(multiple_valid),
     .help = "each of --valid-data-path is a validation set of its own"},
    {.kind = GPT_OPT_LIST, .name = "score-set", .arg = "NAME=FILE",
     AT(score_set), .flags = GPT_OPT_FILE | GPT_OPT_LOCAL,
     .help = "score JSON lines: context and continuation, or ctx, endings and "
             "label"},
    {.kind = GPT_OPT_INT, .name = "score-interval", .arg = "N", .def = "0",
     AT(score_interval), .min = 0, .max = MAX_COUNT,
     .help = "steps between scores, 0 = --eval-interval"},
    {.kind = GPT_OPT_STRING, .name = "sample-prompts", .arg = "FILE",
     AT(sample_prompts),
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT | GPT_OPT_LOCAL,
     .help = "continue these prompts, a line each, or JSON lines"},
    {.kind = GPT_OPT_INT, .name = "sample-interval", .arg = "N", .def = "0",
     AT(sample_interval), .min = 0, .max = MAX_COUNT,
     .help = "steps between samples, 0 = --eval-interval"},
    {.kind = GPT_OPT_INT, .name = "sample-tokens", .arg = "N", .def = "64",
     AT(sample_tokens), .min = 1, .max = MAX_SIZE,
     .help = "the most tokens to add to a prompt"},
    {.kind = GPT_OPT_REAL, .name = "sample-temperature", .arg = "X",
     .def = "1", AT(sample_temperature), .min = 0, .max = 1000,
     .help = "below 1 the likely becomes likelier; 0 = greedy"},
    {.kind = GPT_OPT_INT, .name = "sample-top-k", .arg = "N", .def = "0",
     AT(sample_top_k), .min = 0, .max = 1e9,
     .help = "choose among the N most probable tokens, 0 = all"},
    {.kind = GPT_OPT_REAL, .name = "sample-top-p", .arg = "P", .def = "0",
     AT(sample_top_p), .min = 0, .max = 1,
     .help = "choose among the most probable tokens that together reach P, 0 = "
             "all"},
    {.kind = GPT_OPT_INT, .name = "sample-seed", .arg = "N", .def = "-1",
     AT(sample_seed), .min = -1, .max = (double)GPT_JSON_EXACT,
     .help = "of the choices, the same at each interval; -1 = --seed"},
    {.kind = GPT_OPT_FLAG, .name = "save-best", AT(save_best),
     .help = "save when the validation loss is the lowest yet, and keep that "
             "checkpoint: best in --save"},
    {.kind = GPT_OPT_INT, .name = "early-stopping-patience", .arg = "N",
     .def = "0", AT(patience), .min = 0, .max = MAX_COUNT,
     .help = "stop after N validations without a lower loss, 0 = never"},
    {.kind = GPT_OPT_REAL, .name = "early-stopping-min-delta", .arg = "X",
     .def = "0", AT(min_delta), .min = 0, .max = 1e6,
     .help = "by how much a loss must be lower to count",
     .alias = "early-stopping-threshold"},

    /* None of these changes what is trained. The dry run and the simulation are
     * here, too, as their product is a report. */
    GROUP("Reports"),
    {.kind = GPT_OPT_INT, .name = "log-interval", .arg = "N", .def = "100",
     AT(log_interval), .min = 1, .max = MAX_COUNT,
     .help = "steps between log lines"},
    {.kind = GPT_OPT_FLAG, .name = "log-throughput", AT(log_throughput),
     .help = "add throughput to log lines"},
    {.kind = GPT_OPT_INT, .name = "timing-log-level", .arg = "N", .def = "0",
     AT(timing_level), .min = 0, .max = 2,
     .help = "above 0: log the times of forward, backward and update, too"},
    {.kind = GPT_OPT_FLAG, .name = "log-gradient-noise-scale",
     AT(log_noise_scale),
     .help = "add the gradient noise scale to log lines, in samples"},
    {.kind = GPT_OPT_STRING, .name = "metrics", .arg = "FILE", AT(metrics),
     .flags = GPT_OPT_FILE | GPT_OPT_LOCAL,
     .help = "one JSON object a log line, default metrics.jsonl in --save"},
    {.kind = GPT_OPT_STRING, .name = "tensorboard-dir", .arg = "DIR",
     AT(tensorboard_dir), .flags = GPT_OPT_DIR | GPT_OPT_LOCAL,
     .help = "write the metrics for TensorBoard, too"},
    {.kind = GPT_OPT_STRING, .name = "log-metrics-command", .arg = "COMMAND",
     AT(log_metrics_command), .flags = GPT_OPT_LOCAL,
     .help = "give each line of metrics to the standard input of COMMAND"},
    {.kind = GPT_OPT_FLAG, .name = "dry-run", AT(dry_run),
     .help = "check everything, print model, batches, memory and traffic, and "
             "stop"},
    {.kind = GPT_OPT_INT, .name = "world-size", .arg = "N", .def = "0",
     AT(world_size), .min = 0, .max = 16777216,
     .help = "--dry-run and advise for so many ranks, of which none is started",
     .alias = "gpus"},
    {.kind = GPT_OPT_BYTES, .name = "memory-limit", .arg = "SIZE", .def = "0",
     AT(memory_limit), .min = 0, .max = 1e18,
     .help = "--dry-run finds the micro batch that fits into SIZE a rank, "
             "advise the layout",
     .alias = "memory"},
    {.kind = GPT_OPT_STRING, .name = "simulate", .arg = "F:B[:T[:S[:W]]]",
     AT(simulate),
     .help = "print the pipeline's timeline, given seconds of a stage's "
             "forward, backward, of a transfer, a sum, gathering weights, and "
             "stop"},
    {.kind = GPT_OPT_STRING, .name = "simulate-svg", .arg = "FILE",
     AT(simulate_svg), .flags = GPT_OPT_FILE,
     .help = "write the timeline of --simulate as a picture"},
    {.kind = GPT_OPT_STRING, .name = "device", .arg = "NAME", .def = "auto",
     AT(device), .flags = GPT_OPT_LOCAL, .choices = gpt_device_words,
     .help = "what computes: auto, cpu, cuda or cuda:N"},
    {.kind = GPT_OPT_CHOICE, .name = "cuda-graph-impl", .arg = "HOW",
     .def = "none", AT(graph_impl), .choices = gpt_train_graphs,
     .help = "record forward and backward, for models too small to keep a GPU "
             "busy; all but the first are the same here"},
    {.kind = GPT_OPT_FLAG, .name = "enable-cuda-graph", AT(enable_graph),
     .help = "the same as --cuda-graph-impl local"},

    /* What a rank is, for times that were not measured. A number of 0 is the
     * one of --hardware. The first is of use to runs, too. */
    GROUP("Advice: gpt-train advise"),
    {.kind = GPT_OPT_CHOICE, .name = "hardware", .arg = "NAME", .def = "h100",
     AT(hardware), .choices = gpt_hardware_names, .flags = GPT_OPT_LOCAL,
     .help = "what ranks compute with; cpu is measured"},
    {.kind = GPT_OPT_REAL, .name = "device-peak-tflops", .arg = "X",
     .def = "0", AT(device_peak), .min = 0, .max = 1e9, .flags = GPT_OPT_LOCAL,
     .help = "peak of a rank, for its utilization (MFU), too; 0 = of the "
             "device"},
    {.kind = GPT_OPT_REAL, .name = "product-efficiency", .arg = "X",
     .def = "0", AT(product_efficiency), .min = 0, .max = 1,
     .flags = GPT_OPT_LOCAL,
     .help = "part of the peak that large products reach"},
    {.kind = GPT_OPT_REAL, .name = "memory-bandwidth", .arg = "GB/S",
     .def = "0", AT(memory_bandwidth), .min = 0, .max = 1e9,
     .flags = GPT_OPT_LOCAL, .help = "of a rank's memory"},
    {.kind = GPT_OPT_INT, .name = "gpus-per-node", .arg = "N", .def = "0",
     AT(gpus_per_node), .min = 0, .max = 16777216, .flags = GPT_OPT_LOCAL,
     .help = "ranks of a machine"},
    {.kind = GPT_OPT_REAL, .name = "intra-node-bandwidth", .arg = "GB/S",
     .def = "0", AT(near_bandwidth), .min = 0, .max = 1e9,
     .flags = GPT_OPT_LOCAL, .help = "of a rank's link within a machine, one "
     "way"},
    {.kind = GPT_OPT_REAL, .name = "inter-node-bandwidth", .arg = "GB/S",
     .def = "0", AT(far_bandwidth), .min = 0, .max = 1e9,
     .flags = GPT_OPT_LOCAL, .help = "of a rank's link between machines"},
    {.kind = GPT_OPT_REAL, .name = "intra-node-latency", .arg = "US",
     .def = "0", AT(near_latency), .min = 0, .max = 1e9,
     .flags = GPT_OPT_LOCAL, .help = "microseconds of a message within a "
     "machine"},
    {.kind = GPT_OPT_REAL, .name = "inter-node-latency", .arg = "US",
     .def = "0", AT(far_latency), .min = 0, .max = 1e9,
     .flags = GPT_OPT_LOCAL, .help = "... between machines"},
    {.kind = GPT_OPT_INT, .name = "top", .arg = "N", .def = "10", AT(top),
     .min = 1, .max = 1000, .flags = GPT_OPT_LOCAL,
     .help = "layouts to show"},
    {.kind = GPT_OPT_FLAG, .name = "json", AT(json), .flags = GPT_OPT_LOCAL,
     .help = "show them as JSON"},
    GPT_COMMON_OPTIONS(struct gpt_train_options, common),
};

const size_t gpt_train_n_options = GPT_COUNT(gpt_train_option_table);
