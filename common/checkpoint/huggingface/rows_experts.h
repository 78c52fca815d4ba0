/* Words of the tables of families with experts; see rows.h. */
#ifndef GPT_CHECKPOINT_HF_ROWS_EXPERTS_H
#define GPT_CHECKPOINT_HF_ROWS_EXPERTS_H

#include "checkpoint/huggingface/experts.h"
#include "checkpoint/huggingface/rows.h"

#define MEMORY(m) .memory = (m), .n_memory = GPT_COUNT(m)

/* ---- tensors ---- */

#define EACH_EXPERT                                                          \
    RULE(EXPERTS_FC1, EXPERT_GATE,                                           \
         "layers.%.mlp.experts.%.gate_proj.weight"),                         \
    RULE(EXPERTS_FC1, EXPERT_UP, "layers.%.mlp.experts.%.up_proj.weight"),   \
    RULE(EXPERTS_FC2, EXPERT, "layers.%.mlp.experts.%.down_proj.weight")
#define MIXTRAL_EXPERTS                                                      \
    RULE(EXPERTS_FC1, EXPERT_GATE,                                           \
         "layers.%.block_sparse_moe.experts.%.w1.weight"),                   \
    RULE(EXPERTS_FC1, EXPERT_UP,                                             \
         "layers.%.block_sparse_moe.experts.%.w3.weight"),                   \
    RULE(EXPERTS_FC2, EXPERT,                                                \
         "layers.%.block_sparse_moe.experts.%.w2.weight")
/* In memory. */
#define STACKED_EXPERTS                                                      \
    RULE(EXPERTS_FC1, STACKED, "layers.%.mlp.experts.gate_up_proj"),         \
    RULE(EXPERTS_FC2, STACKED, "layers.%.mlp.experts.down_proj")
#define SHARED_EXPERTS                                                       \
    RULE(SHARED_GATE, SAME, "layers.%.mlp.shared_experts.gate_proj.weight"), \
    RULE(SHARED_FC1, SAME, "layers.%.mlp.shared_experts.up_proj.weight"),    \
    RULE(SHARED_FC2, SAME, "layers.%.mlp.shared_experts.down_proj.weight")

/* Hunyuan has one of them. */
#define SHARED_MLP                                                           \
    RULE(SHARED_GATE, SAME, "layers.%.mlp.shared_mlp.gate_proj.weight"),     \
    RULE(SHARED_FC1, SAME, "layers.%.mlp.shared_mlp.up_proj.weight"),        \
    RULE(SHARED_FC2, SAME, "layers.%.mlp.shared_mlp.down_proj.weight")

/* All experts of a layer in memory, as most classes have them. */
static const struct gpt_hf_rule stacked[] = {STACKED_EXPERTS};

/* ---- keys ---- */

#define EXPERTS(name, other, def) \
    {name, other, GPT_HF_SIZE, def, AT(num_experts)}
#define TOP(name, def) SIZE(name, moe_router_topk, def)
#define EXPERT_FFN(name, def) SIZE(name, moe_ffn_hidden_size, def)
#define NORM_TOP(def) NOT("norm_topk_prob", moe_router_pre_softmax, def)
#define EXPERT_KEY(name, which, def) \
    {name, NULL, GPT_HF_EXPERTS, def, GPT_HF_##which}
#define EACH(name, field, def) {name, NULL, GPT_HF_EACH, def, AT(field)}
/* What only training reads. */
#define ROUTER_NOTES                               \
    KEY("output_router_logits", UNUSED, "null"),   \
    KEY("router_aux_loss_coef", UNUSED, "null"),   \
    KEY("router_jitter_noise", UNUSED, "null")
#define QWEN_EXPERTS                               \
    EXPERT_KEY("decoder_sparse_step", EVERY, "1"), \
    EXPERT_KEY("mlp_only_layers", BUT, "null"),    \
    NORM_TOP("false")
/* DeepSeek's kind of routers. */
#define SIGMOID                                       \
    .moe_router_score_function = GPT_SCORE_SIGMOID,   \
    .moe_router_expert_bias = true
/* Factors, and a choice by groups of experts. */
#define SCALED_TOP(name, def) \
    {name, NULL, GPT_HF_MULTIPLIER, def, AT(moe_router_topk_scaling_factor)}
#define EXPERT_GROUPS(groups, top)                 \
    EXPERT_KEY("n_group", GROUPS, groups),         \
    EXPERT_KEY("topk_group", GROUP_TOP, top)

#endif
