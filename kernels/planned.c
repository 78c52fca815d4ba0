/* A GPU that is not here, for plans: how much memory its kernels want, by the
 * rules that they count by themselves. Start at gpt_backend_planned(). */
#include "gpu_sizes.h"

static size_t hopper_attn_scratch(const struct gpt_attn *op)
{
    return gpu_attn_scratch(op, true);
}

static size_t other_attn_scratch(const struct gpt_attn *op)
{
    return gpu_attn_scratch(op, false);
}

void gpt_backend_planned(struct gpt_backend *be, int64_t memory, int capability)
{
    *be = (struct gpt_backend){
        .api = GPT_BACKEND_API,
        .name = "planned",
        .act_types = 1U << GPT_F32 | 1U << GPT_BF16 | 1U << GPT_F16,
        .abilities = GPU_ABILITIES | (capability >= 89 ? GPT_CAN_FP8 : 0),
        .logits_bytes = gpu_logits_bytes(memory),
        .fp8_scratch = gpu_fp8_scratch,
        .norm_scratch = gpu_norm_scratch,
        .head_norm_scratch = gpu_head_norm_scratch,
        .embed_scratch = gpu_embed_scratch,
        .attn_scratch = capability == 90 ? hopper_attn_scratch
                                         : other_attn_scratch,
    };
}
