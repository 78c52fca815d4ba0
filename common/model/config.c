/* Model configuration: defaults, and what follows from what. Its fields, and
 * JSON, are in config_fields.c. Start at gpt_config_complete(). */
#include "model/config.h"

#include "base/num.h"
#include "model/config_rules.h"
#include "model/layer_list.h"

/* What is left 0 here is filled by gpt_config_complete(). */
struct gpt_config gpt_config_default(void)
{
    return (struct gpt_config){
        .num_layers = 12,
        .hidden_size = 768,
        .num_attention_heads = 12,
        .max_positions = 1024,
        .vocab_size = 50257,
        .norm_epsilon = 1e-5,
        .init_std = 0.02,
        .hidden_dropout = 0.1,
        .attention_dropout = 0.1,
        .tied_embeddings = true,
    };
}

/* A vocabulary that is a multiple of 128 on every rank makes large products
 * fast; Megatron does the same. */
int64_t gpt_config_padded_vocab(int64_t vocab, int64_t divisible_by, int64_t tp)
{
    return gpt_round_up(vocab, divisible_by * tp);
}

void gpt_config_settle(struct gpt_config *c)
{
    double *const factors[] = {&c->embedding_multiplier,
                               &c->residual_multiplier, &c->logit_multiplier,
                               &c->moe_router_topk_scaling_factor};

    /* scores are divided by that root anyway */
    if (c->query_pre_attn_scalar == (double)c->head_size)
        c->query_pre_attn_scalar = 0;
    for (size_t i = 0; i < GPT_COUNT(factors); i++)
        if (*factors[i] == 1.0)
            *factors[i] = 0;
    if (c->latent_norm_epsilon == c->norm_epsilon)
        c->latent_norm_epsilon = 0;
    /* one group, or experts of all groups, is a choice without groups */
    if (c->moe_router_num_groups == c->moe_router_group_topk ||
        (c->moe_router_num_groups == 1 && c->moe_router_group_topk == 0))
        c->moe_router_num_groups = c->moe_router_group_topk = 0;
    /* every N-th layer of fewer is none */
    if (c->window_attn_skip_freq > c->num_layers &&
        c->window_attn_skip_freq <= GPT_LAYERS_EVERY)
        c->window_attn_skip_freq = 0;
    if (c->no_rope_freq > c->num_layers && c->no_rope_freq <= GPT_LAYERS_EVERY)
        c->no_rope_freq = 0;
    /* ranges are checked later */
    if (c->num_experts > 0 && c->num_layers <= GPT_LAYERS_EVERY) {
        gpt_config_settle_experts(c);
        if (!gpt_config_has_dense(c))
            c->ffn_hidden_size = c->moe_ffn_hidden_size;
    }
    if (c->rotary_local_base == c->rotary_base &&
        c->rotary_scaling == GPT_SCALING_NONE)
        c->rotary_local_base = 0;
}

int gpt_config_complete(struct gpt_config *c, int64_t divisible_by, int64_t tp,
                        struct gpt_err *err)
{
    if (divisible_by < 1 || tp < 1 || divisible_by > 1 << 20 || tp > 1 << 20)
        return gpt_fail(err, GPT_EUSAGE,
                        "vocabulary padding to %lld x %lld is out of range",
                        (long long)divisible_by, (long long)tp);
    if (c->head_size == 0 && gpt_config_is_latent(c))
        c->head_size = c->qk_head_dim + c->qk_pos_emb_head_dim;
    if (c->v_head_dim == 0 && gpt_config_is_latent(c) &&
        c->num_attention_heads > 0)
        c->v_head_dim = c->hidden_size / c->num_attention_heads;
    if (c->head_size == 0 && c->num_attention_heads > 0) {
        if (c->hidden_size % c->num_attention_heads != 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "hidden_size (%lld) is not a multiple of "
                            "num_attention_heads (%lld)",
                            (long long)c->hidden_size,
                            (long long)c->num_attention_heads);
        c->head_size = c->hidden_size / c->num_attention_heads;
    }
    /* defaults of GPT-2, in an order in which each has what it needs */
    if (c->num_query_groups == 0)
        c->num_query_groups = c->num_attention_heads;
    /* a gated layer has three matrices instead of two: two thirds of the width
     * keep their size, in whole 64s as Megatron rounds */
    if (c->ffn_hidden_size == 0)
        c->ffn_hidden_size =
            c->gated ? gpt_max_i64(4 * c->hidden_size * 2 / 3 / 64, 1) * 64
                     : 4 * c->hidden_size;
    if (c->num_experts > 0 && c->moe_ffn_hidden_size == 0)
        c->moe_ffn_hidden_size = c->ffn_hidden_size;
    if (c->padded_vocab_size == 0)
        c->padded_vocab_size =
            gpt_config_padded_vocab(c->vocab_size, divisible_by, tp);
    gpt_config_settle(c);
    /* ranges first: the rules divide by fields that may be 0 before it */
    GPT_TRY(gpt_config_check_ranges(c, err));
    return gpt_config_check(c, GPT_EUSAGE, "model", err);
}
