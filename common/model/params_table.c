/* The rows of the parameter table. Start at `kinds`: it is the architecture;
 * its column `present` says which model has a row. params.c knows what a rank
 * holds of them. */
#include "model/params.h"

#include "backend.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Which size of the model a dimension is; geometry.h has the numbers. */
enum size {
    ONE, CHANNELS, HEAD, HEADS, GROUPS, QKV, ATTENTION, KEYS, FFN, VOCAB,
    POSITIONS, EXPERTS, EXPERTS_IN, EXPERTS_OUT, EXPERT, SHARED, VALUES,
    Q_RANK, KV_RANK, KV_WIDTH, TURNED,
};

/* The layers that have a row: all, those of dense feed-forwards, or those of
 * experts. */
enum layers { ALL, DENSE, SPARSE };

struct kind {
    enum gpt_param_role role;
    enum gpt_param_place place;
    const char *name; /* after "decoder.layers.N." in a layer */
    enum size rows, columns; /* columns ONE: a vector */
    enum gpt_param_split split;
    enum gpt_param_init init;
    enum gpt_first_write first_write;
    bool sequence_sum, heads_sum, counts;
    bool vectors; /* each row is a vector of its own, and the whole no matrix */
    enum layers layers;
    bool (*present)(const struct gpt_config *c); /* NULL: in every model */
};

/* ---- the column `present`: what variants do not have ---- */

static bool learns_positions(const struct gpt_config *c)
{
    return c->position_embedding == GPT_POSITION_LEARNED;
}

static bool is_untied(const struct gpt_config *c)
{
    return !c->tied_embeddings;
}

/* OLMo and nanochat leave the scale of what is normed to the matrices that
 * read it. */
static bool has_norm_weight(const struct gpt_config *c)
{
    return !c->no_norm_weight;
}

/* RMSNorm takes no mean away, and has nothing to put in its place; Cohere's
 * LayerNorm puts nothing there. */
static bool has_norm_bias(const struct gpt_config *c)
{
    return c->normalization == GPT_LAYERNORM && !c->no_norm_bias &&
           has_norm_weight(c);
}

/* BLOOM's large models were not stable without it. */
static bool has_embedding_norm(const struct gpt_config *c)
{
    return c->embedding_norm && has_norm_weight(c);
}

static bool has_embedding_norm_bias(const struct gpt_config *c)
{
    return c->embedding_norm && has_norm_bias(c);
}

/* OLMo 2 norms what blocks give and not what they read. */
static bool has_norm1(const struct gpt_config *c)
{
    return !c->no_pre_norm && has_norm_weight(c);
}

static bool has_norm1_bias(const struct gpt_config *c)
{
    return has_norm1(c) && has_norm_bias(c);
}

/* Blocks side by side may read the same normed rows (Falcon 7B). */
static bool has_norm2(const struct gpt_config *c)
{
    return has_norm1(c) && !c->shared_norm;
}

/* Gemma 2 and OLMo 2 norm what blocks give, before it is added. */
static bool has_post_norm(const struct gpt_config *c)
{
    return c->post_norm && has_norm_weight(c);
}

static bool has_post_norm_bias(const struct gpt_config *c)
{
    return c->post_norm && has_norm_bias(c);
}

static bool has_norm2_bias(const struct gpt_config *c)
{
    return has_norm2(c) && has_norm_bias(c);
}

static bool has_linear_bias(const struct gpt_config *c)
{
    return !c->no_linear_bias;
}

/* GPT-J has biases in the feed-forward alone. */
static bool has_attention_bias(const struct gpt_config *c)
{
    return has_linear_bias(c) && !c->no_attention_bias;
}

/* Llama's switch of attention's biases leaves the feed-forward without. */
static bool has_mlp_bias(const struct gpt_config *c)
{
    return has_linear_bias(c) && !c->no_mlp_bias;
}

/* DeepSeek's attention makes queries, keys and values by two products each, by
 * way of a row of few numbers; V2 Lite makes queries by one. */
static bool has_qkv(const struct gpt_config *c)
{
    return !gpt_config_is_latent(c);
}

static bool has_q_rank(const struct gpt_config *c)
{
    return c->q_lora_rank > 0;
}

static bool has_q_alone(const struct gpt_config *c)
{
    return gpt_config_is_latent(c) && c->q_lora_rank == 0;
}

/* Qwen 2 has these biases and no others, GPT-Neo all others. */
static bool has_qkv_bias(const struct gpt_config *c)
{
    return (has_attention_bias(c) && !c->no_qkv_bias) || c->qkv_bias;
}

/* GPT-J and Phi have a bias for every word's logit. */
static bool has_output_bias(const struct gpt_config *c)
{
    return c->output_bias;
}

static bool has_qk_norm(const struct gpt_config *c)
{
    return c->qk_norm && !c->qk_norm_whole && !c->qk_norm_each &&
           has_norm_weight(c);
}

/* OLMo 2 norms all heads together: the same roles with other shapes, so that
 * loading and saving need not know which of the two norms a model has. */
static bool has_whole_qk_norm(const struct gpt_config *c)
{
    return c->qk_norm_whole;
}

/* StableLM 2 12B and Command R+: a vector for each head. Neither has biases
 * there, whatever its other norms have. */
static bool has_each_qk_norm(const struct gpt_config *c)
{
    return c->qk_norm_each;
}

static bool has_gate(const struct gpt_config *c) { return c->gated; }

static bool has_qk_norm_bias(const struct gpt_config *c)
{
    return has_qk_norm(c) && has_norm_bias(c);
}

/* The biases of gate and fc1 are neighbours in memory, as their matrices are,
 * when the width is a multiple of 64. */
static bool has_gate_bias(const struct gpt_config *c)
{
    return c->gated && has_mlp_bias(c);
}

static bool has_alpha(const struct gpt_config *c)
{
    return c->activation == GPT_XIELU;
}

static bool has_router_bias(const struct gpt_config *c)
{
    return c->moe_router_expert_bias;
}

static bool has_shared(const struct gpt_config *c)
{
    return c->moe_shared_expert_intermediate_size > 0;
}

static bool has_shared_router(const struct gpt_config *c)
{
    return c->moe_shared_expert_gate;
}

static bool has_shared_gate(const struct gpt_config *c)
{
    return has_shared(c) && c->gated;
}

/* ---- the table ---- */

/* A row begins with role, place, name and shape. Other columns are 0 unless
 * named: not split, zero, a gradient that is added to, no sums over ranks
 * beyond the usual, in every model. */
#define OUTSIDE(role, place, name, rows, columns) \
    GPT_##role, GPT_PLACE_##place, name, rows, columns
#define IN_LAYER(role, name, rows, columns) \
    GPT_##role, GPT_PLACE_LAYER, name, rows, columns

/* The decoders, in order of the forward pass.
 *
 * sequence_sum marks what every rank holds whole while sequence parallel ranks
 * compute its gradient from their own rows: norms, and biases that are added
 * after a sum. heads_sum marks what a rank reads with its own columns alone:
 * norms of heads, and numbers of the activation; where all heads are normed
 * together, each has weights of its own, and goes with its rank. A router is
 * one of them: a rank has the gradients of its own experts' weights. So are the
 * rows of few numbers that latent attention makes heads of: a rank has the
 * gradients of its own heads. The weights of residual blocks' outputs begin
 * smaller, as each of them adds to the stream. */
static const struct kind kinds[] = {
    {OUTSIDE(WORD_EMBEDDING, EMBEDDING, "embedding.word_embeddings.weight",
             VOCAB, CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_OUTPUT},
    {OUTSIDE(POSITION_EMBEDDING, EMBEDDING,
             "embedding.position_embeddings.weight", POSITIONS, CHANNELS),
     .init = GPT_INIT_NORMAL, .present = learns_positions},
    {OUTSIDE(EMBEDDING_NORM_WEIGHT, EMBEDDING, "embedding.layernorm.weight",
             CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true,
     .present = has_embedding_norm},
    {OUTSIDE(EMBEDDING_NORM_BIAS, EMBEDDING, "embedding.layernorm.bias",
             CHANNELS, ONE),
     .sequence_sum = true, .present = has_embedding_norm_bias},
    {IN_LAYER(NORM1_WEIGHT, "input_layernorm.weight", CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true, .present = has_norm1},
    {IN_LAYER(NORM1_BIAS, "input_layernorm.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_norm1_bias},
    {IN_LAYER(QKV_WEIGHT, "self_attention.linear_qkv.weight", QKV, CHANNELS),
     .split = GPT_SPLIT_BY_GROUP, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .present = has_qkv},
    {IN_LAYER(QKV_BIAS, "self_attention.linear_qkv.bias", QKV, ONE),
     .split = GPT_SPLIT_BY_GROUP, .present = has_qkv_bias},
    {IN_LAYER(Q_NORM_WEIGHT, "self_attention.q_layernorm.weight", HEAD, ONE),
     .init = GPT_INIT_ONE, .heads_sum = true, .present = has_qk_norm},
    /* not added up over ranks: every element belongs to one head */
    {IN_LAYER(Q_NORM_WEIGHT, "self_attention.q_layernorm.weight", ATTENTION,
              ONE),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_ONE,
     .present = has_whole_qk_norm},
    {IN_LAYER(Q_NORM_WEIGHT, "self_attention.q_layernorm.weight", HEADS,
              HEAD),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_ONE, .vectors = true,
     .present = has_each_qk_norm},
    {IN_LAYER(Q_NORM_BIAS, "self_attention.q_layernorm.bias", HEAD, ONE),
     .heads_sum = true, .present = has_qk_norm_bias},
    {IN_LAYER(K_NORM_WEIGHT, "self_attention.k_layernorm.weight", HEAD, ONE),
     .init = GPT_INIT_ONE, .heads_sum = true, .present = has_qk_norm},
    {IN_LAYER(K_NORM_WEIGHT, "self_attention.k_layernorm.weight", KEYS, ONE),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_ONE,
     .present = has_whole_qk_norm},
    {IN_LAYER(K_NORM_WEIGHT, "self_attention.k_layernorm.weight", GROUPS,
              HEAD),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_ONE, .vectors = true,
     .present = has_each_qk_norm},
    {IN_LAYER(K_NORM_BIAS, "self_attention.k_layernorm.bias", HEAD, ONE),
     .heads_sum = true, .present = has_qk_norm_bias},
    {IN_LAYER(Q_DOWN, "self_attention.linear_q_down_proj.weight", Q_RANK,
              CHANNELS),
     .init = GPT_INIT_NORMAL, .first_write = GPT_FIRST_PRODUCT,
     .heads_sum = true, .present = has_q_rank},
    {IN_LAYER(Q_LATENT_NORM, "self_attention.q_layernorm.weight", Q_RANK, ONE),
     .init = GPT_INIT_ONE, .heads_sum = true, .present = has_q_rank},
    {IN_LAYER(Q_UP, "self_attention.linear_q_up_proj.weight", ATTENTION,
              Q_RANK),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .present = has_q_rank},
    {IN_LAYER(Q_PROJ, "self_attention.linear_q_proj.weight", ATTENTION,
              CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .present = has_q_alone},
    {IN_LAYER(KV_DOWN, "self_attention.linear_kv_down_proj.weight", KV_RANK,
              CHANNELS),
     .init = GPT_INIT_NORMAL, .first_write = GPT_FIRST_PRODUCT,
     .heads_sum = true, .present = gpt_config_is_latent},
    {IN_LAYER(K_TURNED, "self_attention.linear_k_pos_emb_proj.weight", TURNED,
              CHANNELS),
     .init = GPT_INIT_NORMAL, .first_write = GPT_FIRST_PRODUCT,
     .heads_sum = true, .present = gpt_config_is_latent},
    {IN_LAYER(KV_LATENT_NORM, "self_attention.kv_layernorm.weight", KV_RANK,
              ONE),
     .init = GPT_INIT_ONE, .heads_sum = true, .present = gpt_config_is_latent},
    {IN_LAYER(KV_UP, "self_attention.linear_kv_up_proj.weight", KV_WIDTH,
              KV_RANK),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .present = gpt_config_is_latent},
    {IN_LAYER(PROJ_WEIGHT, "self_attention.linear_proj.weight", CHANNELS,
              VALUES),
     .split = GPT_SPLIT_COLUMNS, .init = GPT_INIT_NORMAL_OUTPUT,
     .first_write = GPT_FIRST_PRODUCT},
    {IN_LAYER(PROJ_BIAS, "self_attention.linear_proj.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_attention_bias},
    {IN_LAYER(POST1_WEIGHT, "post_self_attn_layernorm.weight", CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true, .present = has_post_norm},
    {IN_LAYER(POST1_BIAS, "post_self_attn_layernorm.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_post_norm_bias},
    {IN_LAYER(NORM2_WEIGHT, "pre_mlp_layernorm.weight", CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true, .present = has_norm2},
    {IN_LAYER(NORM2_BIAS, "pre_mlp_layernorm.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_norm2_bias},
    {IN_LAYER(GATE_WEIGHT, "mlp.linear_gate.weight", FFN, CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .present = has_gate,
     .layers = DENSE},
    {IN_LAYER(FC1_WEIGHT, "mlp.linear_fc1.weight", FFN, CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT,
     .layers = DENSE},
    {IN_LAYER(GATE_BIAS, "mlp.linear_gate.bias", FFN, ONE),
     .split = GPT_SPLIT_ROWS, .present = has_gate_bias,
     .layers = DENSE},
    {IN_LAYER(FC1_BIAS, "mlp.linear_fc1.bias", FFN, ONE),
     .split = GPT_SPLIT_ROWS, .present = has_mlp_bias,
     .layers = DENSE},
    {IN_LAYER(ALPHA_P, "mlp.activation.alpha_p", ONE, ONE),
     .init = GPT_INIT_ALPHA_P, .heads_sum = true, .present = has_alpha,
     .layers = DENSE},
    {IN_LAYER(ALPHA_N, "mlp.activation.alpha_n", ONE, ONE),
     .init = GPT_INIT_ALPHA_N, .heads_sum = true, .present = has_alpha,
     .layers = DENSE},
    {IN_LAYER(FC2_WEIGHT, "mlp.linear_fc2.weight", CHANNELS, FFN),
     .split = GPT_SPLIT_COLUMNS, .init = GPT_INIT_NORMAL_OUTPUT,
     .first_write = GPT_FIRST_PRODUCT,
     .layers = DENSE},
    {IN_LAYER(FC2_BIAS, "mlp.linear_fc2.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_mlp_bias,
     .layers = DENSE},
    {IN_LAYER(ROUTER_WEIGHT, "mlp.router.weight", EXPERTS, CHANNELS),
     .init = GPT_INIT_NORMAL, .first_write = GPT_FIRST_PRODUCT,
     .heads_sum = true, .layers = SPARSE},
    /* counted by every rank of all its tokens */
    {IN_LAYER(ROUTER_BIAS, "mlp.router.expert_bias", EXPERTS, ONE),
     .counts = true, .layers = SPARSE, .present = has_router_bias},
    {IN_LAYER(EXPERTS_FC1, "mlp.experts.linear_fc1.weight", EXPERTS_IN,
              CHANNELS),
     .split = GPT_SPLIT_BY_EXPERT, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .layers = SPARSE},
    {IN_LAYER(EXPERTS_FC2, "mlp.experts.linear_fc2.weight", EXPERTS_OUT,
              EXPERT),
     .split = GPT_SPLIT_BY_EXPERT, .init = GPT_INIT_NORMAL_OUTPUT,
     .first_write = GPT_FIRST_PRODUCT, .layers = SPARSE},
    {IN_LAYER(SHARED_ROUTER, "mlp.shared_experts.gate_weight", ONE, CHANNELS),
     .init = GPT_INIT_NORMAL, .first_write = GPT_FIRST_PRODUCT,
     .heads_sum = true, .layers = SPARSE, .present = has_shared_router},
    {IN_LAYER(SHARED_GATE, "mlp.shared_experts.linear_gate.weight", SHARED,
              CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .layers = SPARSE,
     .present = has_shared_gate},
    {IN_LAYER(SHARED_FC1, "mlp.shared_experts.linear_fc1.weight", SHARED,
              CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_PRODUCT, .layers = SPARSE,
     .present = has_shared},
    {IN_LAYER(SHARED_FC2, "mlp.shared_experts.linear_fc2.weight", CHANNELS,
              SHARED),
     .split = GPT_SPLIT_COLUMNS, .init = GPT_INIT_NORMAL_OUTPUT,
     .first_write = GPT_FIRST_PRODUCT, .layers = SPARSE,
     .present = has_shared},
    {IN_LAYER(POST2_WEIGHT, "post_mlp_layernorm.weight", CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true, .present = has_post_norm},
    {IN_LAYER(POST2_BIAS, "post_mlp_layernorm.bias", CHANNELS, ONE),
     .sequence_sum = true, .present = has_post_norm_bias},
    {OUTSIDE(FINAL_NORM_WEIGHT, FINAL, "decoder.final_layernorm.weight",
             CHANNELS, ONE),
     .init = GPT_INIT_ONE, .sequence_sum = true, .present = has_norm_weight},
    {OUTSIDE(FINAL_NORM_BIAS, FINAL, "decoder.final_layernorm.bias", CHANNELS,
             ONE),
     .sequence_sum = true, .present = has_norm_bias},
    {OUTSIDE(OUTPUT_WEIGHT, FINAL, "output_layer.weight", VOCAB, CHANNELS),
     .split = GPT_SPLIT_ROWS, .init = GPT_INIT_NORMAL,
     .first_write = GPT_FIRST_OUTPUT, .present = is_untied},
    /* after the final norms, of which every rank has all: this one is cut */
    {OUTSIDE(OUTPUT_BIAS, FINAL, "output_layer.bias", VOCAB, ONE),
     .split = GPT_SPLIT_ROWS, .present = has_output_bias},
};

/* ---- rows ---- */

static int64_t size_of(const struct gpt_config *c, enum size s)
{
    const struct gpt_widths w = gpt_widths_of(c, 1);

    switch (s) {
    case ONE:
        return 1;
    case CHANNELS:
        return w.hidden;
    case HEAD:
        return c->head_size;
    case HEADS:
        return w.heads;
    case GROUPS:
        return w.groups;
    case QKV:
        return w.qkv;
    case ATTENTION:
        return w.attention;
    case KEYS:
        return w.keys;
    case FFN:
        return w.ffn;
    case VOCAB:
        return w.vocab;
    case POSITIONS:
        return c->max_positions + c->position_offset;
    case EXPERTS:
        return w.experts;
    case EXPERTS_IN:
        return w.experts * w.expert_in;
    case EXPERTS_OUT:
        return w.experts * w.hidden;
    case EXPERT:
        return w.expert;
    case SHARED:
        return w.shared;
    case VALUES:
        return w.values;
    case Q_RANK:
        return w.q_rank;
    case KV_RANK:
        return w.kv_rank;
    case KV_WIDTH:
        return w.kv_up;
    case TURNED:
        return w.turned;
    }
    return 0;
}

/* Query groups are kept whole: attention of a group needs its key and value. So
 * are experts, of which ranks have some each. */
static int64_t split_unit(const struct gpt_config *c, const struct kind *k)
{
    const struct gpt_widths w = gpt_widths_of(c, 1);

    switch (k->split) {
    case GPT_SPLIT_BY_GROUP:
        return w.qkv / w.groups;
    case GPT_SPLIT_BY_EXPERT:
        return size_of(c, k->rows) / w.experts;
    case GPT_SPLIT_NONE:
    case GPT_SPLIT_ROWS:
    case GPT_SPLIT_COLUMNS:
        return 1;
    }
    return 1;
}

/* An expert has one matrix in a row, or two where its first one has a gate. */
static int64_t matrices_of(const struct gpt_config *c, const struct kind *k)
{
    if (k->split != GPT_SPLIT_BY_EXPERT)
        return 1;
    return c->num_experts * (k->role == GPT_EXPERTS_FC1 && c->gated ? 2 : 1);
}

/* Fills columns that follow from others: vectors are not decayed, and rows of
 * the vocabulary may be dummies. */
static void fill_row(struct gpt_param *p, const struct kind *k, int64_t layer,
                     const struct gpt_config *c)
{
    *p = (struct gpt_param){
        .role = k->role,
        .place = k->place,
        .layer = layer,
        .ndim = k->columns == ONE ? 1 : 2,
        .shape = {size_of(c, k->rows), size_of(c, k->columns)},
        .split = k->split,
        .split_unit = split_unit(c, k),
        .key_rows = k->split == GPT_SPLIT_BY_GROUP ? c->head_size : 0,
        .matrices = matrices_of(c, k),
        .vocab_rows = k->rows == VOCAB,
        .decay = k->columns != ONE && !k->vectors,
        .tied = k->role == GPT_WORD_EMBEDDING && c->tied_embeddings,
        .sequence_sum = k->sequence_sum,
        .heads_sum = k->heads_sum,
        .counts = k->counts,
        .first_write = k->first_write,
        /* a norm that multiplies by 1 + weight begins as one too */
        .init = k->init == GPT_INIT_ONE && c->norm_plus_one ? GPT_INIT_ZERO
                                                            : k->init,
    };
    if (layer < 0)
        snprintf(p->name, sizeof(p->name), "%s", k->name);
    else
        snprintf(p->name, sizeof(p->name), "decoder.layers.%lld.%s",
                 (long long)layer, k->name);
}

/* Outside layers every row is of ALL. */
static bool is_in_layer(const struct kind *k, const struct gpt_config *c,
                        int64_t layer)
{
    return k->layers == ALL ||
           (k->layers == SPARSE) == gpt_config_has_experts(c, layer);
}

/* Appends the rows of one place (and layer) to the table. */
static void add_rows(struct gpt_param_table *t, const struct gpt_config *c,
                     enum gpt_param_place place, int64_t layer)
{
    for (size_t i = 0; i < GPT_COUNT(kinds); i++) {
        const struct kind *k = &kinds[i];

        if (k->place == place && (!k->present || k->present(c)) &&
            is_in_layer(k, c, layer))
            fill_row(&t->rows[t->n++], k, layer, c);
    }
}

int gpt_params_build(struct gpt_param_table *t, const struct gpt_config *c,
                     struct gpt_err *err)
{
    *t = (struct gpt_param_table){0};
    /* more than enough: no layer has rows of the two ends */
    size_t most = GPT_COUNT(kinds) * (size_t)(c->num_layers + 2);
    GPT_TRY(gpt_new(&t->rows, most, sizeof(t->rows[0]), "parameter table",
                    err));
    add_rows(t, c, GPT_PLACE_EMBEDDING, -1);
    for (int64_t l = 0; l < c->num_layers; l++)
        add_rows(t, c, GPT_PLACE_LAYER, l);
    add_rows(t, c, GPT_PLACE_FINAL, -1);
    return GPT_OK;
}

void gpt_params_free(struct gpt_param_table *t)
{
    gpt_free(t->rows);
    *t = (struct gpt_param_table){0};
}

int64_t gpt_params_vocab_rows(const struct gpt_param_table *t)
{
    int64_t n = 0;

    for (int64_t i = 0; i < t->n; i++)
        n += t->rows[i].vocab_rows;
    return n;
}

const struct gpt_param *gpt_params_find(const struct gpt_param_table *t,
                                        const char *name)
{
    for (int64_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].name, name) == 0)
            return &t->rows[i];
    return NULL;
}

bool gpt_param_is_scale(enum gpt_param_role role)
{
    for (size_t i = 0; i < GPT_COUNT(kinds); i++)
        if (kinds[i].role == role)
            return kinds[i].init == GPT_INIT_ONE;
    return false;
}

int64_t gpt_param_count(const struct gpt_param *p)
{
    return p->shape[0] * p->shape[1];
}
