/* Latent attention in GGUF files, of llama.cpp's "deepseek2": sizes of heads,
 * which its files say as those of one head of the cache, and YaRN's factor of
 * scores. Files of before 2025 have the sizes of heads as others do, and keys
 * and values in one tensor. */
#include "checkpoint/gguf/internal.h"

#include <math.h>
#include <stdio.h>

#define KEY_BYTES 96
/* a tenth of the number that Hugging Face's files call mscale_all_dim */
#define MULTIPLIER "rope.scaling.yarn_log_multiplier"

static void key_name(char *buf, const struct gpt_gguf_arch *arch,
                     const char *name)
{
    snprintf(buf, KEY_BYTES, "%s.%s", arch->name, name);
}

/* The number of a key, or of another one where it is absent; else 0. */
static int read_either(int64_t *to, const struct gpt_gguf_arch *arch,
                       const struct gpt_gguf *g, const char *name,
                       const char *other, struct gpt_err *err)
{
    char key[KEY_BYTES];

    *to = 0;
    key_name(key, arch, name);
    if (!gpt_gguf_find(g, key))
        key_name(key, arch, other);
    return gpt_gguf_int(g, key, 1, INT32_MAX, to, err);
}

/* What queries and keys are multiplied by, together. */
static double scores_of(double multiplier, double factor)
{
    return factor > 1 ? pow(1 + multiplier * log(factor), 4) : 1;
}

/* With the key sines and cosines are as they are, and scores are multiplied;
 * llama.cpp's way without it is no model's. */
static int read_yarn(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                     const struct gpt_gguf *g, struct gpt_err *err)
{
    char key[KEY_BYTES];
    double multiplier = 0;

    if (c->rotary_scaling != GPT_SCALING_YARN)
        return GPT_OK;
    key_name(key, arch, MULTIPLIER);
    GPT_TRY(gpt_gguf_real(g, key, &multiplier, err));
    if (!(multiplier > 0))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is %g with yarn: it must be "
                        "above 0", gpt_in_path(g->in), key, multiplier);
    c->rotary_attention = 1;
    c->query_pre_attn_scalar =
        (double)c->head_size /
        scores_of(gpt_gguf_shortest(multiplier), c->rotary_factor);
    return GPT_OK;
}

/* Without experts keys of them say nothing. */
static void leave_experts_out(struct gpt_config *c)
{
    c->moe_router_topk = c->moe_ffn_hidden_size = c->moe_dense_layers = 0;
    c->moe_shared_expert_intermediate_size = 0;
    c->moe_router_score_function = 0;
    c->moe_router_num_groups = c->moe_router_group_topk = 0;
    c->moe_router_pre_softmax = c->moe_router_expert_bias = false;
    c->moe_router_topk_scaling_factor = 0;
}

/* A query group is a head, whatever the cache has. There are models without
 * experts, too, whose files have keys of experts all the same. */
int gpt_gguf_read_latent(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                         const struct gpt_gguf *g,
                         const struct gpt_gguf_seen *seen, struct gpt_err *err)
{
    char key[KEY_BYTES];
    int64_t turned = 0;

    if (!arch->latent)
        return GPT_OK;
    c->num_query_groups = c->num_attention_heads;
    c->moe_router_expert_bias = seen->router_bias;
    if (c->num_experts == 0)
        leave_experts_out(c);
    GPT_TRY(read_either(&c->head_size, arch, g, "attention.key_length_mla",
                        "attention.key_length", err));
    GPT_TRY(read_either(&c->v_head_dim, arch, g, "attention.value_length_mla",
                        "attention.value_length", err));
    key_name(key, arch, "rope.dimension_count");
    GPT_TRY(gpt_gguf_int(g, key, 2, INT32_MAX, &turned, err));
    if (turned >= c->head_size)
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%s' is %lld, a head has %lld elements",
                        gpt_in_path(g->in), key, (long long)turned,
                        (long long)c->head_size);
    c->qk_pos_emb_head_dim = turned;
    c->qk_head_dim = c->head_size - turned;
    c->rotary_percent = 1;
    return read_yarn(c, arch, g, err);
}

/* Sizes of heads and groups are said by keys that are no field alone, the bias
 * by a tensor, and numbers of YaRN by one key for both. */
void gpt_gguf_take_latent(struct gpt_config *read, const struct gpt_config *c,
                          const struct gpt_gguf_arch *arch)
{
    if (!arch->latent)
        return;
    read->head_size = c->head_size;
    read->num_query_groups = c->num_attention_heads;
    read->qk_head_dim = c->qk_head_dim;
    read->qk_pos_emb_head_dim = c->qk_pos_emb_head_dim;
    read->v_head_dim = c->v_head_dim;
    read->moe_router_expert_bias = c->moe_router_expert_bias;
    if (c->rotary_scaling == GPT_SCALING_YARN) {
        read->rotary_attention = 1;
        read->query_pre_attn_scalar = c->query_pre_attn_scalar;
    }
}

/* One architecture is of all such models there; those that it computes in
 * another way are not written. */
const char *gpt_gguf_latent_misfit(const struct gpt_config *c,
                                   const struct gpt_gguf_arch *arch)
{
    if (!arch->latent)
        return NULL;
    if (!gpt_config_is_latent(c))
        return "kv_lora_rank";
    /* llama.cpp adds up the two best of a group, whatever scores are */
    if (c->moe_router_num_groups > 0 &&
        c->moe_router_score_function != GPT_SCORE_SIGMOID)
        return "moe_router_num_groups";
    if (c->rotary_scaling == GPT_SCALING_YARN && !(c->rotary_factor > 1))
        return "rotary_factor";
    if (c->rotary_scaling == GPT_SCALING_YARN &&
        !(c->query_pre_attn_scalar > 0 &&
          c->query_pre_attn_scalar < (double)c->head_size))
        return "query_pre_attn_scalar";
    return NULL;
}

/* llama.cpp multiplies queries by the matrix of keys, and keeps the rows that
 * keys are made of: to it they are the keys of one head. */
void gpt_gguf_put_latent(struct gpt_gguf_keys *k, const struct gpt_config *c,
                         const struct gpt_gguf_arch *arch)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        /* of the cache: what all heads share is one */
        {"attention.head_count_kv", 1},
        {"attention.key_length", c->kv_lora_rank + c->qk_pos_emb_head_dim},
        {"attention.value_length", c->kv_lora_rank},
        {"attention.key_length_mla", c->head_size},
        {"attention.value_length_mla", c->v_head_dim},
    };
    char key[KEY_BYTES];

    if (!arch->latent)
        return;
    for (size_t i = 0; i < GPT_COUNT(sizes); i++) {
        key_name(key, arch, sizes[i].name);
        gpt_gguf_put_int(k, key, GPT_GGUF_U32, sizes[i].value);
    }
    if (c->rotary_scaling != GPT_SCALING_YARN)
        return;
    key_name(key, arch, MULTIPLIER);
    gpt_gguf_put_real(k, key,
                      (pow((double)c->head_size / c->query_pre_attn_scalar,
                           0.25) - 1) / log(c->rotary_factor));
}
