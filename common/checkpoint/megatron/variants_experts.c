/* What the arguments of a run of Megatron-LM say of experts, both ways; see
 * variants.c. Start at gpt_megatron_read_experts(). */
#include "checkpoint/megatron/megatron.h"
#include "checkpoint/torch/write.h"

/* Arguments that change what experts compute, or how their matrices lie. */
static const char *const refused[] = {
    "moe_router_topk_limited_devices",
    "moe_router_force_load_balancing",
    "moe_router_force_biased",
    "moe_expert_capacity_factor",
    "moe_expert_rank_capacity_factor",
    "moe_apply_probs_on_input",
    "moe_latent_size",
    "moe_mlp_glu_interleave_size",
    "moe_shared_expert_glu_interleave_size",
};

/* Losses that spread tokens over experts. They are training's alone; the first
 * is that of an absent argument, and the one that is known here. */
static const char *const balancings[] = {"aux_loss", "seq_aux_loss",
                                         "global_aux_loss", "none", NULL};

/* ---- reading ---- */

/* Item i of an argument that is a list or stands alone. */
static const struct gpt_pickle_value *
item_of(const struct gpt_pickle_value *args, const char *key, int64_t i)
{
    const struct gpt_pickle_value *v = gpt_pickle_find(args, key);
    struct gpt_pickle_value **list;
    int64_t n;

    if (!gpt_pickle_sequence(v, &list, &n))
        return i == 0 ? v : NULL;
    return i < n ? list[i] : NULL;
}

/* A run may have several such losses, with a coefficient each. */
static int read_balancing(struct gpt_config *c,
                          const struct gpt_pickle_value *args, const char *what,
                          struct gpt_err *err)
{
    static const char key[] = "moe_router_load_balancing_type";
    int64_t i = 0;

    c->moe_aux_loss_coeff = c->moe_z_loss_coeff = 0;
    gpt_megatron_real(args, "moe_z_loss_coeff", &c->moe_z_loss_coeff);
    do {
        const struct gpt_pickle_value *v = item_of(args, key, i);
        int known = 0;

        while (v && v->kind != GPT_PICKLE_NONE && balancings[known] &&
               !gpt_pickle_is(v, balancings[known]))
            known++;
        if (!balancings[known])
            return gpt_fail(err, GPT_EDATA,
                            "%s: its run had %s %.*s, which is not supported",
                            what, key,
                            v->kind == GPT_PICKLE_STRING ? (int)v->n : 15,
                            v->kind == GPT_PICKLE_STRING ? v->text
                                                         : "of another type");
        if (known == 0)
            (void)gpt_pickle_real(item_of(args, "moe_aux_loss_coeff", i),
                                  &c->moe_aux_loss_coeff);
    } while (item_of(args, key, ++i));
    return GPT_OK;
}

/* A list has an entry a layer. A number N stands for layers 0, N, 2 N and so
 * on, which is not how the number of ours counts. */
static int read_layers(struct gpt_config *c,
                       const struct gpt_pickle_value *args, const char *what,
                       struct gpt_err *err)
{
    static const char key[] = "moe_layer_freq";
    const struct gpt_pickle_value *v = gpt_pickle_find(args, key);
    struct gpt_pickle_value **list = NULL;
    int64_t every = 1, n, entry;
    bool *experts, known = true;

    c->moe_dense_layers = c->moe_layer_freq = 0;
    if (!gpt_pickle_sequence(v, &list, &n)) {
        n = c->num_layers;
        known = !v || v->kind == GPT_PICKLE_NONE ||
                (gpt_pickle_int(v, &every) && every > 0);
    }
    if (!known || n != c->num_layers || n < 1)
        return gpt_fail(err, GPT_EDATA,
                        "%s: its %s is neither a number above 0 nor a list of "
                        "its %lld layers",
                        what, key, (long long)c->num_layers);
    GPT_TRY(gpt_new(&experts, (size_t)n, sizeof(*experts), "layers", err));
    for (int64_t i = 0; i < n; i++) {
        entry = i % every == 0;
        known = known && (!list || gpt_pickle_int(list[i], &entry));
        experts[i] = entry != 0;
    }
    known = known && gpt_config_choose_experts(c, experts);
    gpt_free(experts);
    if (known)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: its %s is a list that is not supported: layers with "
                    "experts do not repeat", what, key);
}

/* A group of experts is chosen by its best there, as many as a token has of
 * each of its groups; here by two of sigmoids, and by one of a softmax. */
static bool same_groups(const struct gpt_config *c, int64_t top)
{
    const int64_t best =
        c->moe_router_score_function == GPT_SCORE_SIGMOID ? 2 : 1;

    return top > 0 && c->moe_router_topk / top == best;
}

/* Experts are chosen among all, or first among groups of them. */
static int read_groups(struct gpt_config *c,
                       const struct gpt_pickle_value *args, const char *what,
                       struct gpt_err *err)
{
    int64_t groups = 0, top = 0;

    gpt_megatron_int(args, "moe_router_num_groups", &groups);
    gpt_megatron_int(args, "moe_router_group_topk", &top);
    if (top == 0 || top == groups)
        return GPT_OK;
    if (same_groups(c, top)) {
        c->moe_router_num_groups = groups;
        c->moe_router_group_topk = top;
        return GPT_OK;
    }
    return gpt_fail(err, GPT_EDATA,
                    "%s: its run had moe_router_group_topk %lld of %lld "
                    "groups and moe_router_topk %lld, which is not supported",
                    what, (long long)top, (long long)groups,
                    (long long)c->moe_router_topk);
}

/* Scores of a sigmoid are divided by those of the token's experts wherever it
 * has several of them. */
static void read_router(struct gpt_config *c,
                        const struct gpt_pickle_value *args)
{
    c->moe_router_topk = 2;
    gpt_megatron_int(args, "moe_router_topk", &c->moe_router_topk);
    c->moe_router_pre_softmax =
        c->moe_router_score_function == GPT_SCORE_SIGMOID
            ? c->moe_router_topk == 1
            : gpt_megatron_flag(args, "moe_router_pre_softmax", false);
    c->moe_router_expert_bias =
        gpt_megatron_flag(args, "moe_router_enable_expert_bias", false);
    gpt_megatron_real(args, "moe_router_topk_scaling_factor",
                      &c->moe_router_topk_scaling_factor);
}

/* Defaults are those of the options. The width of dense layers is in the
 * arguments, too, as there may be none of these in the first file. */
int gpt_megatron_read_experts(struct gpt_config *c,
                              const struct gpt_pickle_value *args,
                              const char *what, struct gpt_err *err)
{
    gpt_megatron_int(args, "num_experts", &c->num_experts);
    if (c->num_experts == 0)
        return GPT_OK;
    if (c->num_experts < 0)
        return gpt_fail(err, GPT_EDATA, "%s: its run had num_experts %lld",
                        what, (long long)c->num_experts);
    GPT_TRY(gpt_megatron_refuse(args, refused, GPT_COUNT(refused), what, err));
    GPT_TRY(gpt_megatron_choice(args, "moe_router_score_function",
                                gpt_router_scores,
                                &c->moe_router_score_function, what, err));
    read_router(c, args);
    GPT_TRY(read_groups(c, args, what, err));
    if (gpt_megatron_odd_experts(c))
        return gpt_fail(err, GPT_EDATA,
                        "%s: its run had moe_router_enable_expert_bias with "
                        "moe_router_score_function softmax",
                        what);
    gpt_megatron_int(args, "ffn_hidden_size", &c->ffn_hidden_size);
    c->moe_ffn_hidden_size = c->ffn_hidden_size;
    gpt_megatron_int(args, "moe_ffn_hidden_size", &c->moe_ffn_hidden_size);
    gpt_megatron_int(args, "moe_shared_expert_intermediate_size",
                     &c->moe_shared_expert_intermediate_size);
    c->moe_shared_expert_gate =
        gpt_megatron_flag(args, "moe_shared_expert_gate", false);
    GPT_TRY(read_balancing(c, args, what, err));
    return read_layers(c, args, what, err);
}

/* ---- writing ---- */

/* Megatron-LM adds the biases of experts to scores of sigmoids alone. */
const char *gpt_megatron_odd_experts(const struct gpt_config *c)
{
    return c->moe_router_expert_bias &&
                   c->moe_router_score_function == GPT_SCORE_SOFTMAX
               ? "moe_router_expert_bias"
               : NULL;
}

/* A number that is 0 here is None there. */
static void put_some(struct gpt_pickle_out *o, const char *key, double value)
{
    if (value > 0)
        gpt_pickle_put_key_real(o, key, value);
}

/* A list also where a number would do: it says the same in every version. */
static void put_layers(struct gpt_pickle_out *o, const struct gpt_config *c)
{
    if (gpt_config_expert_layers(c) == c->num_layers) {
        gpt_pickle_put_key_int(o, "moe_layer_freq", 1);
        return;
    }
    gpt_pickle_put_string(o, "moe_layer_freq");
    gpt_pickle_put_list(o);
    for (int64_t i = 0; i < c->num_layers; i++)
        gpt_pickle_put_int(o, gpt_config_has_experts(c, i));
    gpt_pickle_end_list(o);
}

void gpt_megatron_put_experts(struct gpt_pickle_out *o,
                              const struct gpt_config *c)
{
    if (c->num_experts == 0)
        return;
    gpt_pickle_put_key_int(o, "num_experts", c->num_experts);
    gpt_pickle_put_key_int(o, "moe_router_topk", c->moe_router_topk);
    gpt_pickle_put_key_int(o, "moe_ffn_hidden_size", c->moe_ffn_hidden_size);
    put_layers(o, c);
    if (c->moe_shared_expert_intermediate_size > 0) {
        gpt_pickle_put_key_int(o, "moe_shared_expert_intermediate_size",
                               c->moe_shared_expert_intermediate_size);
        gpt_pickle_put_key_bool(o, "moe_shared_expert_gate",
                                c->moe_shared_expert_gate);
    }
    if (same_groups(c, c->moe_router_group_topk)) {
        gpt_pickle_put_key_int(o, "moe_router_num_groups",
                               c->moe_router_num_groups);
        gpt_pickle_put_key_int(o, "moe_router_group_topk",
                               c->moe_router_group_topk);
    }
    gpt_pickle_put_key_string(o, "moe_router_score_function",
                              gpt_router_scores[c->moe_router_score_function]);
    gpt_pickle_put_key_bool(o, "moe_router_pre_softmax",
                            c->moe_router_pre_softmax);
    gpt_pickle_put_key_bool(o, "moe_router_enable_expert_bias",
                            c->moe_router_expert_bias);
    put_some(o, "moe_router_topk_scaling_factor",
             c->moe_router_topk_scaling_factor);
    gpt_pickle_put_key_string(o, "moe_router_load_balancing_type",
                              balancings[0]);
    gpt_pickle_put_key_real(o, "moe_aux_loss_coeff", c->moe_aux_loss_coeff);
    put_some(o, "moe_z_loss_coeff", c->moe_z_loss_coeff);
}
