/* Architectures of GGUF files as tables: which tensor is which parameter, and
 * what a key is in struct gpt_config. Rules are those of Hugging Face's
 * families (huggingface/family.h) with other names. config.c reads and writes
 * keys by these tables, and choose.c finds the one of a model. Start at
 * gpt_gguf_archs[]. */
#include "checkpoint/gguf/internal.h"

#include "backend.h"

#include <stdio.h>
#include <string.h>

/* ---- tensors ---- */

#define RULE(role, order, name) {GPT_##role, GPT_HF_##order, name}
#define EMBEDDINGS                                       \
    RULE(WORD_EMBEDDING, SAME, GPT_GGUF_WORDS),          \
    RULE(EMBEDDING_NORM_WEIGHT, SAME, "token_embd_norm.weight"), \
    RULE(EMBEDDING_NORM_BIAS, SAME, "token_embd_norm.bias"), \
    RULE(POSITION_EMBEDDING, SAME, "position_embd.weight"), \
    RULE(NORM1_WEIGHT, SAME, "blk.%.attn_norm.weight"),  \
    RULE(NORM1_BIAS, SAME, "blk.%.attn_norm.bias")
#define SPLIT(q, k)                                      \
    RULE(QKV_WEIGHT, q, "blk.%.attn_q.weight"),          \
    RULE(QKV_WEIGHT, k, "blk.%.attn_k.weight"),          \
    RULE(QKV_WEIGHT, V, "blk.%.attn_v.weight"),          \
    RULE(QKV_BIAS, q, "blk.%.attn_q.bias"),              \
    RULE(QKV_BIAS, k, "blk.%.attn_k.bias"),              \
    RULE(QKV_BIAS, V, "blk.%.attn_v.bias")
#define FUSED                                            \
    RULE(QKV_WEIGHT, QKV, "blk.%.attn_qkv.weight"),      \
    RULE(QKV_BIAS, QKV, "blk.%.attn_qkv.bias")
#define BETWEEN                                          \
    RULE(Q_NORM_WEIGHT, SAME, "blk.%.attn_q_norm.weight"), \
    RULE(K_NORM_WEIGHT, SAME, "blk.%.attn_k_norm.weight"), \
    RULE(PROJ_WEIGHT, SAME, "blk.%.attn_output.weight"), \
    RULE(PROJ_BIAS, SAME, "blk.%.attn_output.bias")
#define BEFORE                                           \
    RULE(NORM2_WEIGHT, SAME, "blk.%.ffn_norm.weight"),   \
    RULE(NORM2_BIAS, SAME, "blk.%.ffn_norm.bias")
#define AFTER                                            \
    RULE(POST1_WEIGHT, SAME, "blk.%.post_attention_norm.weight"), \
    RULE(POST2_WEIGHT, SAME, "blk.%.post_ffw_norm.weight")
#define APART                                            \
    RULE(GATE_WEIGHT, SAME, "blk.%.ffn_gate.weight"),    \
    RULE(GATE_BIAS, SAME, "blk.%.ffn_gate.bias"),        \
    RULE(FC1_WEIGHT, SAME, "blk.%.ffn_up.weight"),       \
    RULE(FC1_BIAS, SAME, "blk.%.ffn_up.bias")
#define TOGETHER                                         \
    RULE(GATE_WEIGHT, FIRST, "blk.%.ffn_up.weight"),     \
    RULE(FC1_WEIGHT, SECOND, "blk.%.ffn_up.weight")
#define ROUTED                                           \
    RULE(ROUTER_WEIGHT, SAME, "blk.%.ffn_gate_inp.weight"), \
    RULE(ROUTER_BIAS, SAME, "blk.%.exp_probs_b.bias"),   \
    RULE(EXPERTS_FC1, GATES, "blk.%.ffn_gate_exps.weight"), \
    RULE(EXPERTS_FC1, UPS, "blk.%.ffn_up_exps.weight"),  \
    RULE(EXPERTS_FC2, STACKED, "blk.%.ffn_down_exps.weight"), \
    RULE(SHARED_ROUTER, ROWS, "blk.%.ffn_gate_inp_shexp.weight"), \
    RULE(SHARED_GATE, SAME, "blk.%.ffn_gate_shexp.weight"), \
    RULE(SHARED_FC1, SAME, "blk.%.ffn_up_shexp.weight"), \
    RULE(SHARED_FC2, SAME, "blk.%.ffn_down_shexp.weight")
#define ENDS                                             \
    RULE(FC2_WEIGHT, SAME, "blk.%.ffn_down.weight"),     \
    RULE(FC2_BIAS, SAME, "blk.%.ffn_down.bias"),         \
    ROUTED,                                              \
    RULE(FINAL_NORM_WEIGHT, SAME, "output_norm.weight"), \
    RULE(FINAL_NORM_BIAS, SAME, "output_norm.bias"),     \
    RULE(OUTPUT_WEIGHT, SAME, GPT_GGUF_HEAD),            \
    RULE(OUTPUT_BIAS, SAME, "output.bias")

static const struct gpt_hf_rule fused[] = {EMBEDDINGS, FUSED, BETWEEN, BEFORE,
                                           APART, ENDS};
static const struct gpt_hf_rule halves[] = {EMBEDDINGS, SPLIT(Q, K), BETWEEN,
                                            BEFORE, AFTER, APART, ENDS};
static const struct gpt_hf_rule pairs[] = {
    EMBEDDINGS, SPLIT(Q_PAIRS, K_PAIRS), BETWEEN, BEFORE, APART, ENDS};
static const struct gpt_hf_rule phi3[] = {EMBEDDINGS, FUSED,    BETWEEN,
                                          BEFORE,     TOGETHER, ENDS};
static const struct gpt_hf_rule glm4[] = {
    EMBEDDINGS, SPLIT(Q, K), BETWEEN, BEFORE, AFTER, TOGETHER, ENDS};
/* the norm before the feed-forward has the name of one after attention */
static const struct gpt_hf_rule seed[] = {
    EMBEDDINGS, SPLIT(Q, K), BETWEEN,
    RULE(NORM2_WEIGHT, SAME, "blk.%.post_attention_norm.weight"), APART, ENDS};

#define LATENT                                           \
    EMBEDDINGS,                                          \
    RULE(Q_PROJ, SAME, "blk.%.attn_q.weight"),           \
    RULE(Q_DOWN, SAME, "blk.%.attn_q_a.weight"),         \
    RULE(Q_LATENT_NORM, SAME, "blk.%.attn_q_a_norm.weight"), \
    RULE(Q_UP, SAME, "blk.%.attn_q_b.weight"),           \
    RULE(KV_DOWN, KV_ROWS, "blk.%.attn_kv_a_mqa.weight"), \
    RULE(K_TURNED, TURNED_ROWS, "blk.%.attn_kv_a_mqa.weight"), \
    RULE(KV_LATENT_NORM, SAME, "blk.%.attn_kv_a_norm.weight")
static const struct gpt_hf_rule latent[] = {
    LATENT,
    RULE(KV_UP, KEY_HEADS, "blk.%.attn_k_b.weight"),
    RULE(KV_UP, VALUE_HEADS, "blk.%.attn_v_b.weight"),
    BETWEEN, BEFORE, APART, ENDS};
static const struct gpt_hf_rule latent_together[] = {
    LATENT, RULE(KV_UP, SAME, "blk.%.attn_kv_b.weight"),
    BETWEEN, BEFORE, APART, ENDS};

/* ---- architectures ---- */

#define TABLE(r) .rules = (r), .n_rules = GPT_COUNT(r)
#define LLAMA_BASE                                                         \
    .position_embedding = GPT_POSITION_ROPE, .normalization = GPT_RMSNORM, \
    .activation = GPT_SILU, .gated = true, .no_linear_bias = true

#define GEMMA_BASE                                                         \
    .position_embedding = GPT_POSITION_ROPE, .normalization = GPT_RMSNORM, \
    .activation = GPT_GELU, .gated = true, .no_linear_bias = true,         \
    .norm_plus_one = true, .scale_embedding = true
#define COHERE_BASE                                                        \
    .position_embedding = GPT_POSITION_ROPE, .rotary_interleaved = true,   \
    .no_norm_bias = true, .activation = GPT_SILU, .gated = true,           \
    .no_linear_bias = true, .parallel_blocks = true, .shared_norm = true

#define SIGMOID                                                            \
    .moe_router_score_function = GPT_SCORE_SIGMOID,                        \
    .moe_router_expert_bias = true
#define ROUTED_KEYS                                                        \
    (GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN) |                    \
     GPT_GGUF_HAS(COUNT) | GPT_GGUF_HAS(SCORES) | GPT_GGUF_HAS(WEIGHTS) |  \
     GPT_GGUF_HAS(SUM))

/* In the order in which a model to be written tries them: Llama's biases may be
 * those of Qwen 2, whose name is then the one that users expect. One is here
 * when llama.cpp has written the same text as this project of a model of it
 * (tests/parity/gguf.sh); internlm2 and minicpm are as its source has them. */
const struct gpt_gguf_arch gpt_gguf_archs[] = {
    {.name = "gpt2", .family = "gpt2",
     .base = {.position_embedding = GPT_POSITION_LEARNED,
              .activation = GPT_GELU},
     TABLE(fused), .fills_width = true, .needs_head = true},
    {.name = "qwen2", .family = "qwen2", .fills_width = true,
     .base = {LLAMA_BASE, .qkv_bias = true}, TABLE(halves)},
    {.name = "llama", .family = "llama", .base = {LLAMA_BASE}, TABLE(pairs),
     .pairs = true, .whole_heads = true, .has_freqs = true,
     .free_bias = {.qkv = true, .proj = true, .mlp = true},
     .uses = GPT_GGUF_HAS(EXPERTS)}, /* Mixtral, too */
    {.name = "qwen3", .family = "qwen3", .base = {LLAMA_BASE, .qk_norm = true},
     TABLE(halves)},
    {.name = "phi3", .family = "phi3", .base = {LLAMA_BASE}, TABLE(phi3),
     .needs_head = true, .has_lists = true, .says_window = true},
    {.name = "starcoder2", .family = "starcoder2", .fills_width = true,
     .base = {.position_embedding = GPT_POSITION_ROPE,
              .activation = GPT_GELU},
     TABLE(halves), .whole_heads = true, .needs_head = true},
    {.name = "gptneox", .family = "gpt_neox", .fills_width = true,
     .base = {.position_embedding = GPT_POSITION_ROPE,
              .activation = GPT_GELU_EXACT},
     TABLE(fused), .says_parallel = true, .needs_head = true},
    {.name = "falcon", .family = "falcon",
     .base = {.position_embedding = GPT_POSITION_ROPE,
              .activation = GPT_GELU_EXACT, .no_linear_bias = true,
              .parallel_blocks = true, .shared_norm = true},
     TABLE(fused), .needs_head = true, .fills_width = true},
    {.name = "gemma", .family = "gemma", .base = {GEMMA_BASE}, TABLE(halves),
     .only_tied = true, .plus_one = true, .whole_heads = true},
    {.name = "gemma2", .family = "gemma2", .only_tied = true,
     .base = {GEMMA_BASE, .post_norm = true}, TABLE(halves), .plus_one = true,
     .whole_heads = true, .uses = GPT_GGUF_HAS(CAPS), .window_every = 2,
     .must_window = true, .wide_layers = 46},
    {.name = "gemma3", .family = "gemma3_text",
     .base = {GEMMA_BASE, .post_norm = true, .qk_norm = true}, TABLE(halves),
     .plus_one = true, .whole_heads = true, .uses = GPT_GGUF_HAS(CAP),
     .window_every = 6, .must_window = true, .local_base = 10000,
     .wide_layers = 62},
    {.name = "olmo2", .family = "olmo2",
     .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_whole = true,
              .post_norm = true, .no_pre_norm = true},
     TABLE(halves), .needs_head = true, .whole_heads = true, .window_every = 4,
     .plain_local = true, .fills_width = true},
    {.name = "granite", .family = "granite", .base = {LLAMA_BASE},
     TABLE(pairs), .pairs = true, .whole_heads = true,
     .uses = GPT_GGUF_HAS(FACTORS) | GPT_GGUF_HAS(DIVISOR)},
    {.name = "smollm3", .family = "smollm3",
     .base = {LLAMA_BASE, .no_rope_freq = 4}, TABLE(pairs), .pairs = true,
     .whole_heads = true, .has_freqs = true},
    {.name = "mistral3", .family = "ministral3", .base = {LLAMA_BASE},
     TABLE(pairs), .pairs = true, .whole_heads = true, .has_freqs = true,
     .uses = GPT_GGUF_HAS(GROWTH)},
    {.name = "arcee", .family = "arcee",
     .base = {.position_embedding = GPT_POSITION_ROPE,
              .normalization = GPT_RMSNORM, .activation = GPT_SQUARED_RELU,
              .no_linear_bias = true},
     TABLE(pairs), .pairs = true, .whole_heads = true, .has_freqs = true},
    {.name = "olmo", .family = "olmo",
     .base = {.position_embedding = GPT_POSITION_ROPE,
              .activation = GPT_SILU, .gated = true, .no_linear_bias = true,
              .no_norm_weight = true},
     TABLE(pairs), .fills_width = true, .pairs = true, .whole_heads = true,
     .uses = GPT_GGUF_HAS(CLIP)},
    {.name = "exaone", .family = "exaone", .base = {LLAMA_BASE},
     TABLE(halves), .fills_width = true, .has_freqs = true},
    {.name = "exaone4", .family = "exaone4", .fills_width = true,
     .base = {LLAMA_BASE, .qk_norm = true, .post_norm = true,
              .no_pre_norm = true},
     TABLE(halves), .whole_heads = true, .has_freqs = true},
    {.name = "seed_oss", .family = "seed_oss", .base = {LLAMA_BASE},
     TABLE(seed), .free_bias = {.qkv = true}},
    {.name = "hunyuan-dense", .family = "hunyuan_v1_dense",
     .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_turned = true},
     TABLE(halves), .whole_heads = true, .folds_alpha = true},
    {.name = "ernie4_5", .family = "ernie4_5",
     .base = {LLAMA_BASE, .rotary_interleaved = true}, TABLE(halves),
     .whole_heads = true},
    {.name = "glm4", .family = "glm4",
     .base = {LLAMA_BASE, .rotary_interleaved = true, .post_norm = true},
     TABLE(glm4), .free_bias = {.qkv = true}},
    {.name = "command-r", .family = "cohere", .base = {COHERE_BASE},
     TABLE(halves), .only_tied = true, .uses = GPT_GGUF_HAS(LOGITS),
     .each_norm_layers = 64, .must_norm_each = true, .fills_width = true},
    {.name = "cohere2", .family = "cohere2", .fills_width = true,
     .base = {COHERE_BASE}, TABLE(halves), .only_tied = true,
     .uses = GPT_GGUF_HAS(LOGITS), .window_every = 4, .must_window = true,
     .unturned_full = true},
    {.name = "stablelm", .family = "stablelm",
     .base = {.position_embedding = GPT_POSITION_ROPE, .activation = GPT_SILU,
              .gated = true, .no_linear_bias = true},
     TABLE(halves), .free_bias = {.qkv = true}, .needs_head = true,
     .each_norm_layers = 1, .fills_width = true},
    {.name = "apertus", .family = "apertus",
     .base = {.position_embedding = GPT_POSITION_ROPE,
              .normalization = GPT_RMSNORM, .activation = GPT_XIELU,
              .no_linear_bias = true, .qk_norm = true},
     TABLE(halves), .needs_head = true, .has_freqs = true},
    {.name = "nemotron", .family = "nemotron",
     .base = {.position_embedding = GPT_POSITION_ROPE, .norm_plus_one = true,
              .activation = GPT_SQUARED_RELU, .no_linear_bias = true},
     TABLE(halves), .fills_width = true, .plus_one = true, .needs_head = true},
    {.name = "phi2", .family = "phi",
     .base = {.position_embedding = GPT_POSITION_ROPE, .activation = GPT_GELU,
              .output_bias = true, .parallel_blocks = true,
              .shared_norm = true},
     TABLE(fused), .needs_head = true, .fills_width = true},
    {.name = "starcoder", .family = "gpt_bigcode",
     .base = {.position_embedding = GPT_POSITION_LEARNED,
              .activation = GPT_GELU},
     TABLE(fused), .needs_head = true, .fills_width = true},
    {.name = "bloom", .family = "bloom",
     .base = {.position_embedding = GPT_POSITION_ALIBI,
              .embedding_norm = true, .activation = GPT_GELU},
     TABLE(fused), .needs_head = true, .fills_width = true},
    {.name = "qwen2moe", .family = "qwen2_moe", .fills_width = true,
     .base = {LLAMA_BASE, .qkv_bias = true, .moe_shared_expert_gate = true,
              .moe_router_pre_softmax = true},
     TABLE(halves), .uses = GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN) |
                            GPT_GGUF_HAS(SHARED)},
    {.name = "qwen3moe", .family = "qwen3_moe",
     .base = {LLAMA_BASE, .qk_norm = true}, TABLE(halves),
     .uses = GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN)},
    {.name = "olmoe", .family = "olmoe", .fills_width = true,
     .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_whole = true,
              .moe_router_pre_softmax = true},
     TABLE(halves), .whole_heads = true, .uses = GPT_GGUF_HAS(EXPERTS)},
    {.name = "granitemoe", .family = "granitemoe", .base = {LLAMA_BASE},
     TABLE(pairs), .pairs = true, .whole_heads = true,
     .uses = GPT_GGUF_HAS(FACTORS) | GPT_GGUF_HAS(DIVISOR) |
             GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(SHARED)},
    /* before GLM's, which can say all that it is, and is more */
    {.name = "dots1", .family = "dots1",
     .base = {LLAMA_BASE, SIGMOID, .qk_norm = true}, TABLE(halves),
     .whole_heads = true, .needs_head = true, .must_share = true,
     .all_groups = true, .uses = ROUTED_KEYS | GPT_GGUF_HAS(LEAD)},
    {.name = "glm4moe", .family = "glm4_moe",
     .base = {LLAMA_BASE, SIGMOID}, TABLE(seed), .free_bias = {.qkv = true},
     .free_norm = true, .must_share = true,
     .uses = ROUTED_KEYS | GPT_GGUF_HAS(LEAD)},
    {.name = "ernie4_5-moe", .family = "ernie4_5_moe",
     .base = {LLAMA_BASE, .rotary_interleaved = true,
              .moe_router_expert_bias = true},
     TABLE(halves), .whole_heads = true,
     .uses = GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN) |
             GPT_GGUF_HAS(SHARED) | GPT_GGUF_HAS(LEAD) | GPT_GGUF_HAS(STEP)},
    /* what is shared has a width of its own, where others count experts */
    {.name = "hunyuan-moe", .family = "hunyuan_v1_moe",
     .base = {LLAMA_BASE, .qk_norm = true, .qk_norm_turned = true},
     TABLE(halves), .whole_heads = true, .folds_alpha = true,
     .must_share = true,
     .uses = GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN) |
             GPT_GGUF_HAS(SHARED)},
    {.name = "minimax-m2", .family = "minimax_m2",
     .base = {LLAMA_BASE, SIGMOID, .qk_norm = true, .qk_norm_whole = true},
     TABLE(halves), .needs_head = true,
     .uses = GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN) |
             GPT_GGUF_HAS(SCORES)},
    /* its graph has experts in all layers, whatever the key of others says */
    {.name = "bailingmoe", .family = "bailing_moe", .base = {LLAMA_BASE},
     TABLE(pairs), .pairs = true, .whole_heads = true, .needs_head = true,
     .has_freqs = true, .must_share = true, .free_bias = {.qkv = true},
     .uses = GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN) |
             GPT_GGUF_HAS(COUNT) | GPT_GGUF_HAS(WEIGHTS) | GPT_GGUF_HAS(SUM)},
    {.name = "deepseek", .family = "deepseek",
     .base = {LLAMA_BASE, .moe_router_pre_softmax = true}, TABLE(pairs),
     .pairs = true, .whole_heads = true, .fills_width = true,
     .must_share = true,
     .uses = GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN) |
             GPT_GGUF_HAS(COUNT) | GPT_GGUF_HAS(LEAD) | GPT_GGUF_HAS(WEIGHTS)},
    {.name = "deepseek2", .family = "deepseek_v3",
     .base = {LLAMA_BASE, .rotary_interleaved = true}, TABLE(latent),
     .latent = true, .must_share = true,
     .uses = ROUTED_KEYS | GPT_GGUF_HAS(LEAD) | GPT_GGUF_HAS(LATENT) |
             GPT_GGUF_HAS(GROUPS)},
    {.name = "internlm2", .family = "internlm2", .base = {LLAMA_BASE},
     TABLE(pairs), .pairs = true, .whole_heads = true, .needs_head = true},
    /* its factors are Granite's, and their keys must be there: without them
     * llama.cpp has numbers of one model */
    {.name = "minicpm", .family = "minicpm", .base = {LLAMA_BASE},
     TABLE(pairs), .pairs = true, .whole_heads = true,
     .uses = GPT_GGUF_HAS(FACTORS) | GPT_GGUF_HAS(DIVISOR)},
    /* GLM without norms after blocks, under the name of its first versions */
    {.name = "chatglm", .family = "chatglm",
     .base = {LLAMA_BASE, .rotary_interleaved = true}, TABLE(phi3),
     .free_bias = {.qkv = true}, .fills_width = true},
    /* text of models that read pictures, too: a token has one position */
    {.name = "qwen2vl", .family = "qwen2", .fills_width = true,
     .base = {LLAMA_BASE, .qkv_bias = true}, TABLE(halves)},
    {.name = "qwen3vl", .family = "qwen3",
     .base = {LLAMA_BASE, .qk_norm = true}, TABLE(halves)},
    {.name = "qwen3vlmoe", .family = "qwen3_moe",
     .base = {LLAMA_BASE, .qk_norm = true}, TABLE(halves),
     .uses = GPT_GGUF_HAS(EXPERTS) | GPT_GGUF_HAS(EXPERT_FFN)},
    {.name = "mpt", .family = "mpt",
     .base = {.position_embedding = GPT_POSITION_ALIBI, .no_norm_bias = true,
              .no_linear_bias = true, .activation = GPT_GELU_EXACT},
     TABLE(fused), .needs_head = true, .says_alibi = true,
     .fills_width = true, .uses = GPT_GGUF_HAS(CLIP)},
};

const size_t gpt_gguf_n_archs = GPT_COUNT(gpt_gguf_archs);

/* A model that turns neighbours is in the order of pairs already. */
const struct gpt_hf_rule *gpt_gguf_next_rule(const struct gpt_gguf_arch *arch,
                                             const struct gpt_config *c,
                                             const struct gpt_param *p,
                                             size_t *at)
{
    const bool as_is = arch->pairs && c->rotary_interleaved;
    const struct gpt_hf_rule *rules = as_is ? halves : arch->rules;
    const size_t n_rules = as_is ? GPT_COUNT(halves) : arch->n_rules;

    while (*at < n_rules) {
        const struct gpt_hf_rule *rule = &rules[(*at)++];

        if (rule->role == p->role)
            return rule;
    }
    return NULL;
}

/* Phi 2's were in one tensor in its first files. */
void gpt_gguf_take_apart(struct gpt_gguf_arch *arch)
{
    if (arch->rules != fused)
        return;
    arch->rules = halves;
    arch->n_rules = GPT_COUNT(halves);
}

void gpt_gguf_take_together(struct gpt_gguf_arch *arch)
{
    if (!arch->latent)
        return;
    arch->rules = latent_together;
    arch->n_rules = GPT_COUNT(latent_together);
}

/* ---- finding ---- */

/* The list in the message is made of the table, so that it cannot be out of
 * date. */
int gpt_gguf_find_arch(const struct gpt_gguf_arch **arch, struct gpt_gguf *g,
                       struct gpt_err *err)
{
    const char *name = NULL;
    char list[800] = "";
    size_t used = 0;

    GPT_TRY(gpt_gguf_text(g, "general.architecture", &name, err));
    if (!name)
        return gpt_fail(err, GPT_EDATA, "%s: no key 'general.architecture'",
                        gpt_in_path(g->in));
    for (size_t i = 0; i < gpt_gguf_n_archs; i++) {
        if (strcmp(gpt_gguf_archs[i].name, name) == 0) {
            *arch = &gpt_gguf_archs[i];
            return GPT_OK;
        }
        if (used < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
                                     i ? ", " : "", gpt_gguf_archs[i].name);
    }
    return gpt_fail(err, GPT_EDATA,
                    "%s: general.architecture is %.100s: only %s are supported",
                    gpt_in_path(g->in), name, list);
}

void gpt_gguf_free_biases(struct gpt_config *c,
                          const struct gpt_gguf_arch *arch,
                          const struct gpt_hf_biases *there)
{
    struct gpt_hf_biases b = gpt_hf_biases_of(c);

    b.qkv = arch->free_bias.qkv ? there->qkv : b.qkv;
    b.proj = arch->free_bias.proj ? there->proj : b.proj;
    b.mlp = arch->free_bias.mlp ? there->mlp : b.mlp;
    gpt_hf_set_biases(c, &b);
}
