/* A GPU that is not here, for plans: how much memory its kernels want, and
 * which attention is slow, by the kernels' own rules. Start at
 * gpt_backend_planned(). */
#include "gpu_sizes.h"

static size_t hopper_attn_scratch(const struct gpt_attn *op)
{
    return gpu_attn_scratch(op, true);
}

static size_t other_attn_scratch(const struct gpt_attn *op)
{
    return gpu_attn_scratch(op, false);
}

static const char *attn_slow(const struct gpt_attn *op)
{
    return gpu_attn_slow(op, false);
}

static const char *tf32_attn_slow(const struct gpt_attn *op)
{
    return gpu_attn_slow(op, true);
}

/* Records whether TF32 is allowed. Where there is a GPU, its plugin keeps the
 * choice; a plan keeps its own, so that several plans in a process do not share
 * it. */
static void allow_tf32(struct gpt_backend *be, bool allow)
{
    be->attn_slow = allow ? tf32_attn_slow : attn_slow;
}

void gpt_backend_planned(struct gpt_backend *be, int64_t memory, int capability)
{
    *be = (struct gpt_backend){
        .api = GPT_BACKEND_API,
        .name = "planned",
        .act_types = 1U << GPT_F32 | 1U << GPT_BF16 | 1U << GPT_F16,
        .abilities = GPU_ABILITIES | (capability >= 89 ? GPT_CAN_FP8 : 0),
        .logits_bytes = gpu_logits_bytes(memory),
        .allow_tf32 = allow_tf32,
        .fp8_scratch = gpu_fp8_scratch,
        .norm_scratch = gpu_norm_scratch,
        .head_norm_scratch = gpu_head_norm_scratch,
        .embed_scratch = gpu_embed_scratch,
        .attn_scratch = capability == 90 ? hopper_attn_scratch
                                         : other_attn_scratch,
        .attn_slow = attn_slow,
    };
}
