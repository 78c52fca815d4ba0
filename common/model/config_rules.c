/* Rules between the fields of a model: what excludes what, and what needs what.
 * A model that breaks one would compute something else than its fields say.
 * Start at gpt_config_check(), at the end. */
#include "model/config_rules.h"

#include "backend.h"
#include "model/factors.h"

/* Both lists have a factor for each pair, and a model of another kind has none:
 * factors that nothing reads would make two models of one. A logarithm of the
 * positions of pretraining is divided by, which is 0 for one position. */
static int check_factors(const struct gpt_config *c, int status,
                         const char *what, struct gpt_err *err)
{
    const int64_t pairs = gpt_config_factors(c);
    const int64_t few = gpt_factors_length(c->rotary_short_factors);
    const int64_t many = gpt_factors_length(c->rotary_long_factors);

    if (pairs > GPT_ROTARY_PAIRS)
        return gpt_fail(err, status,
                        "%s: rotary_scaling longrope turns %lld pairs of a "
                        "head: at most %d are supported", what,
                        (long long)pairs, GPT_ROTARY_PAIRS);
    if (few != pairs || many != pairs)
        return gpt_fail(err, status,
                        "%s: %s has %lld factors, but rotary positions turn "
                        "%lld pairs of a head", what,
                        few != pairs ? "rotary_short_factors"
                                     : "rotary_long_factors",
                        (long long)(few != pairs ? few : many),
                        (long long)pairs);
    if (c->rotary_scaling == GPT_SCALING_LONGROPE && c->rotary_positions < 2)
        return gpt_fail(err, status,
                        "%s: rotary_scaling longrope needs rotary_positions, "
                        "the positions of pretraining, 2 or more", what);
    return GPT_OK;
}

/* Checks that what the formula of each kind of scaling reads is given. A
 * missing number would be a division by zero, or a model that turns no pair as
 * it was trained to. */
static int check_scaling(const struct gpt_config *c, int status,
                         const char *what, struct gpt_err *err)
{
    const char *kind = gpt_rotary_scalings[c->rotary_scaling];

    GPT_TRY(check_factors(c, status, what, err));
    if (c->rotary_scaling == GPT_SCALING_NONE)
        return GPT_OK;
    if (c->position_embedding != GPT_POSITION_ROPE)
        return gpt_fail(err, status,
                        "%s: rotary_scaling %s without rotary positions", what,
                        kind);
    if (!(c->rotary_factor >= 1) &&
        (c->rotary_scaling != GPT_SCALING_LONGROPE || c->rotary_factor > 0))
        return gpt_fail(err, status,
                        "%s: rotary_scaling %s: rotary_factor is %g, must be "
                        "at least 1",
                        what, kind, c->rotary_factor);
    if (c->rotary_scaling != GPT_SCALING_LINEAR &&
        c->rotary_scaling != GPT_SCALING_NTK_ALPHA && c->rotary_positions < 1)
        return gpt_fail(err, status,
                        "%s: rotary_scaling %s needs rotary_positions, the "
                        "positions of pretraining",
                        what, kind);
    if (c->rotary_scaling == GPT_SCALING_LLAMA3 &&
        !(c->rotary_low_factor > 0 &&
          c->rotary_high_factor > c->rotary_low_factor))
        return gpt_fail(err, status,
                        "%s: rotary_scaling llama3: rotary_low_factor (%g) "
                        "must be above 0 and below rotary_high_factor (%g)",
                        what, c->rotary_low_factor, c->rotary_high_factor);
    if (c->rotary_scaling == GPT_SCALING_YARN &&
        !(c->rotary_slow > 0 && c->rotary_fast >= c->rotary_slow))
        return gpt_fail(err, status,
                        "%s: rotary_scaling yarn: rotary_slow (%g) must be "
                        "above 0 and at most rotary_fast (%g)",
                        what, c->rotary_slow, c->rotary_fast);
    return GPT_OK;
}

/* Where norms and biases are, and what they are of: places that exclude each
 * other. A rule that is broken has a message. */
static int check_places(const struct gpt_config *c, int status,
                        const char *what, struct gpt_err *err)
{
    /* each names the field that would be ignored, and why it cannot be used */
    const struct {
        bool broken;
        const char *rule;
    } rules[] = {
        {c->shared_norm && !c->parallel_blocks,
         "shared_norm needs parallel_blocks: one norm serves attention and "
         "feed-forward only where both read the same stream"},
        {c->post_norm && c->residual_multiplier > 0,
         "post_norm excludes residual_multiplier: a norm undoes it"},
        {c->post_norm && c->parallel_blocks,
         "post_norm excludes parallel_blocks: the two outputs are one sum "
         "there"},
        {c->no_pre_norm && !c->post_norm,
         "no_pre_norm needs post_norm: a layer has norms before its blocks or "
         "after them"},
        {c->qk_norm_whole && !c->qk_norm,
         "qk_norm_whole needs qk_norm: it says of what those norms are"},
        {c->qk_norm_each && (!c->qk_norm || c->qk_norm_whole),
         "qk_norm_each needs qk_norm, and excludes qk_norm_whole: it says "
         "whose the weights of those norms are"},
        {c->qk_norm_turned && (!c->qk_norm || c->qk_norm_whole),
         "qk_norm_turned needs qk_norm, and excludes qk_norm_whole: it says "
         "when each head is normed"},
        {c->qk_norm_turned && c->position_embedding != GPT_POSITION_ROPE,
         "qk_norm_turned needs position_embedding rope: nothing else turns"},
        {c->qk_norm_whole && c->normalization != GPT_RMSNORM,
         "qk_norm_whole needs normalization RMSNorm"},
        {c->output_bias && c->logit_multiplier > 0,
         "output_bias excludes logit_multiplier"},
        {c->no_norm_bias && c->normalization != GPT_LAYERNORM,
         "no_norm_bias needs normalization LayerNorm: no other has a bias"},
        {c->no_qkv_bias &&
             (c->no_linear_bias || c->no_attention_bias || c->qkv_bias),
         "no_qkv_bias excludes no_linear_bias, no_attention_bias and qkv_bias: "
         "it says that of attention's biases one is there"},
        {c->no_norm_weight && (c->norm_plus_one || c->no_norm_bias),
         "no_norm_weight excludes norm_plus_one and no_norm_bias: there is "
         "nothing to which these could apply"},
        {c->activation == GPT_XIELU && c->gated,
         "activation xielu excludes gated"},
        {c->clip_qkv > 0 && c->qk_norm_turned,
         "clip_qkv excludes qk_norm_turned"},
        {c->no_norm_weight && c->qk_norm_whole,
         "no_norm_weight excludes qk_norm_whole"},
        {c->no_norm_weight && c->qk_norm_each,
         "no_norm_weight excludes qk_norm_each: no head has weights"},
        {c->no_mlp_bias && (c->no_linear_bias || c->no_attention_bias),
         "no_mlp_bias excludes no_linear_bias and no_attention_bias, which "
         "take all biases away, or all others"},
        {c->no_attention_bias && c->no_linear_bias,
         "no_attention_bias excludes no_linear_bias, which takes all biases "
         "away"},
        {c->scale_embedding && c->embedding_multiplier > 0,
         "scale_embedding excludes embedding_multiplier: words are multiplied "
         "by one number"},
    };

    for (size_t i = 0; i < GPT_COUNT(rules); i++)
        if (rules[i].broken)
            return gpt_fail(err, status, "%s: %s", what, rules[i].rule);
    return GPT_OK;
}

/* What an expert computes has no biases and no numbers of its own: no model of
 * this kind has them together with experts. */
static int check_experts(const struct gpt_config *c, int status,
                         const char *what, struct gpt_err *err)
{
    const bool any = c->moe_router_topk > 0 || c->moe_ffn_hidden_size > 0 ||
                     c->moe_layer_freq > 0 || c->moe_dense_layers > 0 ||
                     c->moe_shared_expert_intermediate_size > 0 ||
                     c->moe_router_score_function > 0 ||
                     c->moe_router_num_groups > 0 ||
                     c->moe_router_group_topk > 0 ||
                     c->moe_router_pre_softmax || c->moe_router_expert_bias ||
                     c->moe_router_topk_scaling_factor > 0 ||
                     c->moe_aux_loss_coeff > 0 || c->moe_z_loss_coeff > 0;
    const struct {
        bool broken;
        const char *rule;
    } rules[] = {
        {any && c->num_experts == 0,
         "options of experts need num_experts: there is none"},
        {c->num_experts > 0 && c->moe_router_topk == 0,
         "num_experts needs moe_router_topk, the experts of a token"},
        {c->moe_router_topk > c->num_experts,
         "moe_router_topk is above num_experts"},
        {(c->moe_router_num_groups > 0) != (c->moe_router_group_topk > 0),
         "moe_router_num_groups and moe_router_group_topk need each other"},
        {c->moe_router_num_groups > 0 &&
             c->num_experts % c->moe_router_num_groups != 0,
         "num_experts is no multiple of moe_router_num_groups"},
        /* such a group is chosen by its two best */
        {c->moe_router_num_groups > 0 &&
             c->moe_router_score_function == GPT_SCORE_SIGMOID &&
             c->num_experts < 2 * c->moe_router_num_groups,
         "moe_router_num_groups leaves fewer than two experts in a group"},
        {c->moe_router_group_topk > c->moe_router_num_groups,
         "moe_router_group_topk is above moe_router_num_groups"},
        {c->moe_router_num_groups > 0 &&
             c->moe_router_topk * c->moe_router_num_groups >
                 c->moe_router_group_topk * c->num_experts,
         "moe_router_topk is above the experts of moe_router_group_topk "
         "groups"},
        {c->num_experts > 0 && c->moe_ffn_hidden_size == 0,
         "num_experts needs moe_ffn_hidden_size"},
        {c->num_experts > 0 && gpt_config_expert_layers(c) == 0,
         "num_experts, but no layer has experts"},
        {c->moe_shared_expert_gate &&
             c->moe_shared_expert_intermediate_size == 0,
         "moe_shared_expert_gate needs moe_shared_expert_intermediate_size"},
        {c->num_experts > 0 && !c->no_linear_bias && !c->no_mlp_bias,
         "num_experts needs no_linear_bias or no_mlp_bias: experts have no "
         "biases"},
        {c->num_experts > 0 && c->activation == GPT_XIELU,
         "num_experts excludes activation xielu"},
        {c->num_experts > 0 && c->parallel_blocks,
         "num_experts excludes parallel_blocks"},
    };

    for (size_t i = 0; i < GPT_COUNT(rules); i++)
        if (rules[i].broken)
            return gpt_fail(err, status, "%s: %s", what, rules[i].rule);
    return GPT_OK;
}

/* Latent attention has heads, norms and biases of its own: what is about those
 * of other attention would change nothing. */
static int check_latent(const struct gpt_config *c, int status,
                        const char *what, struct gpt_err *err)
{
    const bool latent = gpt_config_is_latent(c);
    const bool any = c->q_lora_rank > 0 || c->qk_head_dim > 0 ||
                     c->qk_pos_emb_head_dim > 0 || c->v_head_dim > 0 ||
                     c->latent_norm_epsilon > 0;
    const struct {
        bool broken;
        const char *rule;
    } rules[] = {
        {any && !latent,
         "q_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim and "
         "latent_norm_epsilon need kv_lora_rank: they are of latent attention"},
        {latent && (c->qk_head_dim == 0 || c->qk_pos_emb_head_dim == 0 ||
                    c->v_head_dim == 0),
         "kv_lora_rank needs qk_head_dim, qk_pos_emb_head_dim and v_head_dim"},
        {latent && c->head_size != c->qk_head_dim + c->qk_pos_emb_head_dim,
         "kv_lora_rank needs a head_size of qk_head_dim + "
         "qk_pos_emb_head_dim"},
        {latent && c->v_head_dim > c->head_size,
         "v_head_dim is above qk_head_dim + qk_pos_emb_head_dim"},
        {latent && c->num_query_groups != c->num_attention_heads,
         "kv_lora_rank excludes num_query_groups: every head has a key and a "
         "value of its own"},
        {latent && c->position_embedding != GPT_POSITION_ROPE,
         "kv_lora_rank needs position_embedding rope"},
        {latent && c->normalization != GPT_RMSNORM,
         "kv_lora_rank needs normalization RMSNorm"},
        {latent && c->no_norm_weight,
         "kv_lora_rank excludes no_norm_weight"},
        {latent && c->rotary_percent != 1.0,
         "kv_lora_rank excludes rotary_percent: qk_pos_emb_head_dim says what "
         "turns"},
        {latent && (c->qkv_bias ||
                    !(c->no_linear_bias || c->no_attention_bias)),
         "kv_lora_rank needs no_linear_bias or no_attention_bias, without "
         "qkv_bias: latent attention has no biases"},
        {latent && (c->qk_norm || c->clip_qkv > 0),
         "kv_lora_rank excludes qk_norm and clip_qkv"},
    };

    for (size_t i = 0; i < GPT_COUNT(rules); i++)
        if (rules[i].broken)
            return gpt_fail(err, status, "%s: %s", what, rules[i].rule);
    return GPT_OK;
}

/* Checks fields that only refine another field, which must then be set. */
static int check_details(const struct gpt_config *c, int status,
                         const char *what, struct gpt_err *err)
{
    const char *field = c->window_attn_skip_freq > 0 ? "window_attn_skip_freq"
                        : c->window_full_layers > 0  ? "window_full_layers"
                                                     : NULL;

    if (c->window_size == 0 && field)
        return gpt_fail(err, status, "%s: %s needs window_size", what, field);
    if (c->window_attn_skip_freq == 1)
        return gpt_fail(err, status,
                        "%s: window_attn_skip_freq 1 leaves no layer with a "
                        "window: 2 or more, or no window_size",
                        what);
    if (c->rotary_query_growth > 0 &&
        (c->rotary_positions < 1 || gpt_config_rotary(c) != c->head_size))
        return gpt_fail(err, status,
                        "%s: rotary_query_growth needs rotary_positions, the "
                        "positions of pretraining, and rotary_percent 1", what);
    if (c->rotary_local_base > 0 && c->window_size == 0)
        return gpt_fail(err, status,
                        "%s: rotary_local_base needs window_size: it is of "
                        "layers with a window", what);
    /* only rotary positions turn: without them both would be ignored */
    field = c->rotary_local_base > 0 ? "rotary_local_base"
            : c->no_rope_freq > 0    ? "no_rope_freq"
                                     : NULL;
    if (field && c->position_embedding != GPT_POSITION_ROPE)
        return gpt_fail(err, status, "%s: %s without rotary positions", what,
                        field);
    /* such a model has no positions at all, and must say so */
    if (c->no_rope_freq == 1)
        return gpt_fail(err, status,
                        "%s: no_rope_freq 1 leaves no layer that turns: 2 or "
                        "more, or position_embedding %s", what,
                        gpt_position_embeddings[GPT_POSITION_NONE]);
    if (c->position_offset > 0 &&
        c->position_embedding != GPT_POSITION_LEARNED)
        return gpt_fail(err, status,
                        "%s: position_offset needs position_embedding %s",
                        what, gpt_position_embeddings[GPT_POSITION_LEARNED]);
    return GPT_OK;
}

/* Checks the rules between fields. Ranges hold already, so that no product
 * overflows. */
int gpt_config_check(const struct gpt_config *c, int status, const char *what,
                     struct gpt_err *err)
{
    if (c->num_attention_heads % c->num_query_groups != 0)
        return gpt_fail(err, status,
                        "%s: num_attention_heads (%lld) is not a multiple of "
                        "num_query_groups (%lld)",
                        what, (long long)c->num_attention_heads,
                        (long long)c->num_query_groups);
    /* the rotation takes pairs of elements */
    if (c->position_embedding == GPT_POSITION_ROPE &&
        (!(c->rotary_base > 1) || gpt_config_rotary(c) < 2 ||
         gpt_config_rotary(c) % 2 != 0))
        return gpt_fail(err, status,
                        "%s: rotary positions of base %g turn %lld of a head's "
                        "%lld elements: base must be above 1, elements even",
                        what, c->rotary_base, (long long)gpt_config_rotary(c),
                        (long long)c->head_size);
    GPT_TRY(check_scaling(c, status, what, err));
    GPT_TRY(check_places(c, status, what, err));
    GPT_TRY(check_details(c, status, what, err));
    GPT_TRY(check_latent(c, status, what, err));
    GPT_TRY(check_experts(c, status, what, err));
    if (c->padded_vocab_size < c->vocab_size)
        return gpt_fail(err, status,
                        "%s: padded_vocab_size (%lld) is below vocab_size "
                        "(%lld)",
                        what, (long long)c->padded_vocab_size,
                        (long long)c->vocab_size);
    return GPT_OK;
}
