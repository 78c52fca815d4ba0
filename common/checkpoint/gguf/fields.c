/* Keys of GGUF files that are fields of struct gpt_config, and which of them an
 * architecture has. config.c reads and writes by this table. Start at
 * gpt_gguf_fields[]. */
#include "checkpoint/gguf/gguf.h"

#include "backend.h"
#include "base/memory.h"

#include <stddef.h>

const struct gpt_gguf_field gpt_gguf_fields[] = {
#define AT(field) offsetof(struct gpt_config, field)
    {"context_length", true, GPT_GGUF_ALL, true,
     AT(max_positions), GPT_GGUF_SAME},
    {"embedding_length", true, GPT_GGUF_ALL, true,
     AT(hidden_size), GPT_GGUF_SAME},
    {"block_count", true, GPT_GGUF_ALL, true, AT(num_layers), GPT_GGUF_SAME},
    {"feed_forward_length", true, GPT_GGUF_ALL, true,
     AT(ffn_hidden_size), GPT_GGUF_SAME},
    {"attention.head_count", true, GPT_GGUF_ALL, true,
     AT(num_attention_heads), GPT_GGUF_SAME},
    {"attention.head_count_kv", true, GPT_GGUF_HEADS, false,
     AT(num_query_groups), GPT_GGUF_SAME},
    {"attention.key_length", true, GPT_GGUF_HEADS, false,
     AT(head_size), GPT_GGUF_SAME},
    {"attention.value_length", true, GPT_GGUF_HEADS, false,
     AT(head_size), GPT_GGUF_SAME},
    {"attention.layer_norm_epsilon", false, GPT_GGUF_LAYERNORM, true,
     AT(norm_epsilon), GPT_GGUF_SAME},
    {"attention.layer_norm_rms_epsilon", false, GPT_GGUF_RMS, true,
     AT(norm_epsilon), GPT_GGUF_SAME},
    {"rope.freq_base", false, GPT_GGUF_ROPE, false,
     AT(rotary_base), GPT_GGUF_SAME},
    {"rope.scaling.factor", false, GPT_GGUF_SCALED, false,
     AT(rotary_factor), GPT_GGUF_SAME},
    {"rope.scaling.original_context_length", true, GPT_GGUF_SCALED, false,
     AT(rotary_positions), GPT_GGUF_SAME},
    {"embedding_scale", false, GPT_GGUF_FACTORS, false,
     AT(embedding_multiplier), GPT_GGUF_FACTOR},
    {"residual_scale", false, GPT_GGUF_FACTORS, false,
     AT(residual_multiplier), GPT_GGUF_FACTOR},
    {"attention.scale", false, GPT_GGUF_FACTORS, false,
     AT(query_pre_attn_scalar), GPT_GGUF_ROOT},
    {"logit_scale", false, GPT_GGUF_LOGITS, true,
     AT(logit_multiplier), GPT_GGUF_FACTOR},
    {"logit_scale", false, GPT_GGUF_DIVISOR, true,
     AT(logit_multiplier), GPT_GGUF_INVERSE},
    {"attn_logit_softcapping", false, GPT_GGUF_CAPS, true,
     AT(attn_logit_softcapping), GPT_GGUF_SAME},
    {"final_logit_softcapping", false, GPT_GGUF_CAPS, true,
     AT(final_logit_softcapping), GPT_GGUF_SAME},
    {"final_logit_softcapping", false, GPT_GGUF_CAP, false,
     AT(final_logit_softcapping), GPT_GGUF_SAME},
    {"attention.temperature_scale", false, GPT_GGUF_GROWTH, false,
     AT(rotary_query_growth), GPT_GGUF_SAME},
    {"rope.scaling.yarn_beta_fast", false, GPT_GGUF_GROWTH, false,
     AT(rotary_fast), GPT_GGUF_SAME},
    {"rope.scaling.yarn_beta_slow", false, GPT_GGUF_GROWTH, false,
     AT(rotary_slow), GPT_GGUF_SAME},
    {"attention.clamp_kqv", false, GPT_GGUF_CLIP, false,
     AT(clip_qkv), GPT_GGUF_SAME},
    {"expert_count", true, GPT_GGUF_EXPERTS, false,
     AT(num_experts), GPT_GGUF_SAME},
    {"expert_used_count", true, GPT_GGUF_EXPERTS, false,
     AT(moe_router_topk), GPT_GGUF_SAME},
    {"expert_feed_forward_length", true, GPT_GGUF_EXPERT_FFN, true,
     AT(moe_ffn_hidden_size), GPT_GGUF_SAME},
    {"expert_shared_feed_forward_length", true, GPT_GGUF_SHARED, false,
     AT(moe_shared_expert_intermediate_size), GPT_GGUF_SAME},
    /* after that of an expert, which it is counted in */
    {"expert_shared_count", true, GPT_GGUF_COUNT, false,
     AT(moe_shared_expert_intermediate_size), GPT_GGUF_EXPERTS_WIDE},
    {"leading_dense_block_count", true, GPT_GGUF_LEAD, false,
     AT(moe_dense_layers), GPT_GGUF_SAME},
    {"interleave_moe_layer_step", true, GPT_GGUF_STEP, false,
     AT(moe_layer_freq), GPT_GGUF_ALL_ONES},
    {"expert_gating_func", true, GPT_GGUF_SCORES, false,
     AT(moe_router_score_function), GPT_GGUF_NEXT},
    {"expert_weights_scale", false, GPT_GGUF_WEIGHTS, false,
     AT(moe_router_topk_scaling_factor), GPT_GGUF_FACTOR},
    {"attention.kv_lora_rank", true, GPT_GGUF_LATENT, true,
     AT(kv_lora_rank), GPT_GGUF_SAME},
    {"attention.q_lora_rank", true, GPT_GGUF_LATENT, false,
     AT(q_lora_rank), GPT_GGUF_SAME},
    {"expert_group_count", true, GPT_GGUF_GROUPS, false,
     AT(moe_router_num_groups), GPT_GGUF_SAME},
    {"expert_group_used_count", true, GPT_GGUF_GROUPS, false,
     AT(moe_router_group_topk), GPT_GGUF_SAME},
    {"expert_weights_norm", true, GPT_GGUF_SUM, false,
     AT(moe_router_pre_softmax), GPT_GGUF_OPPOSITE},
};
const size_t gpt_gguf_n_fields = GPT_COUNT(gpt_gguf_fields);

/* Files of other programs may have keys that mean nothing for their
 * architecture, such as a rotary base of GPT-2. These are not read, or the
 * model would differ from itself after a round trip. */
bool gpt_gguf_is_used(const struct gpt_gguf_arch *arch,
                      enum gpt_gguf_use use, const struct gpt_config *c)
{
    switch (use) {
    case GPT_GGUF_ROPE:
        return arch->base.position_embedding == GPT_POSITION_ROPE;
    case GPT_GGUF_LAYERNORM:
        return arch->base.normalization == GPT_LAYERNORM;
    case GPT_GGUF_RMS:
        return arch->base.normalization == GPT_RMSNORM;
    case GPT_GGUF_SCALED:
        return c->rotary_scaling == GPT_SCALING_LINEAR ||
               c->rotary_scaling == GPT_SCALING_YARN;
    case GPT_GGUF_ALL:
        return true;
    case GPT_GGUF_HEADS:
        return !arch->latent;
    case GPT_GGUF_FACTORS:
    case GPT_GGUF_LOGITS:
    case GPT_GGUF_DIVISOR:
    case GPT_GGUF_CAPS:
    case GPT_GGUF_CAP:
    case GPT_GGUF_CLIP:
    case GPT_GGUF_EXPERTS:
    case GPT_GGUF_EXPERT_FFN:
    case GPT_GGUF_SHARED:
    case GPT_GGUF_COUNT:
    case GPT_GGUF_LEAD:
    case GPT_GGUF_STEP:
    case GPT_GGUF_SCORES:
    case GPT_GGUF_WEIGHTS:
    case GPT_GGUF_SUM:
    case GPT_GGUF_LATENT:
    case GPT_GGUF_GROUPS:
        break;
    case GPT_GGUF_GROWTH:
        if (c->rotary_scaling != GPT_SCALING_YARN)
            return false;
        break;
    }
    return arch->uses >> use & 1;
}
