/* A small model on one rank of any layout, with weights that follow from name
 * and global index, and batches for it: for tests that compare a layout with a
 * single rank. Start at rig_open(). Failures end the program. */
#ifndef GPT_TESTS_MODEL_RIG_H
#define GPT_TESTS_MODEL_RIG_H

#include "model/stage.h"

#include "tests/lib/must.h"
#include "tests/lib/tap.h"

#include "base/memory.h"
#include "base/num.h"

#include <unistd.h>

enum { VOCABULARY = 35, MICROBATCHES = 3, MOST_ROWS = 64 };

static struct gpt_backend *be;
__attribute__((unused))
static const char *const recompute_names[] = {"none", "selective", "uniform",
                                              "block"};

/* ---- a model on a rank ---- */

static struct gpt_config config(bool tied, int64_t groups)
{
    struct gpt_config c = {
        .num_layers = 4,
        .hidden_size = 24,
        .num_attention_heads = 8,
        .num_query_groups = groups,
        .head_size = 4, /* H D > C */
        .ffn_hidden_size = 40,
        .max_positions = 16,
        .vocab_size = VOCABULARY,
        .norm_epsilon = 1e-5,
        .init_std = 0.02,
        .hidden_dropout = 0.1,
        .attention_dropout = 0.1,
        .tied_embeddings = tied,
    };
    struct gpt_err err;

    must(gpt_config_complete(&c, 12, 4, &err), &err); /* 48: one rank of 4
                                                      * holds dummies alone */
    return c;
}

/* Architectures beside GPT-2's. The width of the feed-forward is no multiple of
 * 64 on any rank: gate and fc1 are two products. */
enum variant {
    GPT2, LLAMA, NEOX, FALCON, GATED_BIASES, GEMMA2, OLMO2, BLOOM, OPT, GPTJ,
    GRANITE, MIXTRAL, QWEN_MOE, DEEPSEEK, LATENT, N_VARIANTS
};
__attribute__((unused))
static const char *const variant_names[] = {"gpt2", "llama", "neox", "falcon",
                                            "gated, with biases", "gemma2",
                                            "olmo2", "bloom", "opt", "gptj",
                                            "granite", "mixtral",
                                            "qwen_moe", "deepseek", "latent"};

/* Experts of four ranks; those of every second layer, with all that may be
 * beside them. */
__attribute__((unused))
static void make_experts(struct gpt_config *c, enum variant v)
{
    c->position_embedding = GPT_POSITION_ROPE;
    c->rotary_base = 100;
    c->rotary_percent = 1;
    c->normalization = GPT_RMSNORM;
    c->activation = GPT_SILU;
    c->gated = c->no_linear_bias = true;
    c->num_experts = 8;
    c->moe_router_topk = v == MIXTRAL ? 2 : 3;
    c->moe_ffn_hidden_size = 20;
    if (v == MIXTRAL)
        return;
    c->moe_layer_freq = 2;
    c->moe_router_score_function = GPT_SCORE_SIGMOID;
    c->moe_router_expert_bias = true;
    c->moe_router_topk_scaling_factor = 1.5;
    c->moe_shared_expert_intermediate_size = 12;
    c->moe_shared_expert_gate = true;
    c->moe_aux_loss_coeff = 0.1;
    c->moe_z_loss_coeff = 0.01;
}

/* Latent attention, whose values are smaller than its keys, or as large, and
 * whose queries are made of a row of few numbers, or are not; with experts of
 * two of four groups, or without. */
__attribute__((unused))
static void make_latent(struct gpt_config *c, enum variant v)
{
    make_experts(c, QWEN_MOE);
    c->num_query_groups = c->num_attention_heads;
    c->kv_lora_rank = 10;
    c->q_lora_rank = v == DEEPSEEK ? 9 : 0;
    c->qk_head_dim = 3;
    c->qk_pos_emb_head_dim = 2;
    c->v_head_dim = v == DEEPSEEK ? 4 : 5;
    c->head_size = 5;
    c->rotary_interleaved = true;
    c->latent_norm_epsilon = 1e-3;
    if (v == DEEPSEEK) {
        c->moe_router_num_groups = 4;
        c->moe_router_group_topk = 2;
        return;
    }
    c->num_experts = c->moe_router_topk = c->moe_ffn_hidden_size = 0;
    c->moe_layer_freq = c->moe_shared_expert_intermediate_size = 0;
    c->moe_router_score_function = 0;
    c->moe_router_topk_scaling_factor = 0;
    c->moe_router_expert_bias = c->moe_shared_expert_gate = false;
    c->moe_aux_loss_coeff = c->moe_z_loss_coeff = 0;
}

__attribute__((unused))
static void make_variant(struct gpt_config *c, enum variant v)
{
    const bool olmo2 = v == OLMO2, gemma2 = v == GEMMA2;
    const bool granite = v == GRANITE;

    if (v == OPT)
        c->position_offset = 2;
    if (v == OPT)
        c->activation = GPT_RELU;
    if (v == GPT2 || v == OPT)
        return;
    if (v == MIXTRAL || v == QWEN_MOE) {
        make_experts(c, v);
        return;
    }
    if (v == DEEPSEEK || v == LATENT) {
        make_latent(c, v);
        return;
    }
    if (v == BLOOM) {
        c->position_embedding = GPT_POSITION_ALIBI;
        c->embedding_norm = true;
        return;
    }
    c->post_norm = olmo2 || gemma2;
    c->no_pre_norm = c->qk_norm_whole = olmo2;
    if (gemma2) {
        c->window_size = 3;
        c->window_attn_skip_freq = 2;
        c->attn_logit_softcapping = 1.5;
        c->final_logit_softcapping = 2;
        c->query_pre_attn_scalar = 5;
        c->scale_embedding = true;
    }
    c->position_embedding = GPT_POSITION_ROPE;
    c->rotary_base = 100;
    c->rotary_percent = v == NEOX || v == GPTJ ? 0.5 : 1;
    c->rotary_interleaved = v == LLAMA || v == GPTJ;
    c->no_attention_bias = c->output_bias = v == GPTJ;
    /* and what is Cohere's: it changes the same places */
    c->no_norm_bias = v == FALCON;
    if (granite) {
        c->embedding_multiplier = 3;
        c->residual_multiplier = 0.4;
        c->logit_multiplier = 0.7;
        c->no_rope_freq = 3;
    }
    c->normalization =
        v == LLAMA || olmo2 || gemma2 || granite ? GPT_RMSNORM : GPT_LAYERNORM;
    c->norm_plus_one = v == GATED_BIASES || gemma2;
    c->gated = v == LLAMA || v == GATED_BIASES || olmo2 || gemma2 || granite;
    c->activation = c->gated ? GPT_SILU : GPT_GELU_EXACT;
    c->no_linear_bias =
        v == LLAMA || v == FALCON || olmo2 || gemma2 || granite;
    c->qkv_bias = v == LLAMA;
    c->qk_norm_each = v == FALCON;
    c->qk_norm = v == LLAMA || v == FALCON || olmo2;
    c->parallel_blocks = v == NEOX || v == FALCON || v == GPTJ;
    c->shared_norm = v == FALCON || v == GPTJ;
}

/* A bucket has a block of its own, or (shared) the block of all layers. */
struct rig {
    struct gpt_config c;
    struct gpt_param_table table;
    struct gpt_flat flat;
    void *w;
    float **gradients;
    struct gpt_queue *q;
    struct gpt_stage *stage;
};

/* A function of name and global index. */
static void fill_slice(const struct gpt_slice *s, float *to)
{
    struct gpt_rng rng = gpt_rng_open(3, s->param->name);
    float base = s->param->init == GPT_INIT_ONE ? 1 : 0;

    for (int64_t i = 0; i < s->shape[0]; i++)
        for (int64_t j = 0; j < s->shape[1]; j++) {
            int64_t at = (s->begin[0] + i) * s->param->shape[1] + s->begin[1];

            to[i * s->shape[1] + j] =
                base + 0.3F * gpt_rng_normal(rng, (uint64_t)(at + j));
        }
}

static void fill(struct rig *r, enum gpt_dtype act)
{
    float *w = gpt_alloc((size_t)r->flat.elements, sizeof(*w));

    for (int64_t i = 0; i < r->flat.n; i++)
        fill_slice(&r->flat.slices[i], w + r->flat.slices[i].offset);
    be->cast(r->q, r->w, act, w, GPT_F32, r->flat.elements);
    gpt_free(w);
}

static void *device(int64_t elements, size_t size)
{
    struct gpt_err err;
    void *mem;

    must(be->alloc(be, (size_t)elements * size, "a test", &mem, &err), &err);
    return mem;
}

/* o: layout, batch, ranks, recomputation; the rest is filled in. */
static void rig_open(struct rig *r, const struct gpt_config *c,
                     struct gpt_stage_options o, bool shared)
{
    struct gpt_err err;

    *r = (struct rig){.c = *c};
    must(gpt_params_build(&r->table, &r->c, &err), &err);
    must(gpt_flat_build(&r->flat, &r->table, &o.layout, &err), &err);
    must(be->queue_open(be, &r->q, &err), &err);
    r->w = device(r->flat.elements, sizeof(float));
    r->gradients = gpt_alloc((size_t)r->flat.n_buckets, sizeof(float *));
    for (int64_t i = 0; i < r->flat.n_buckets; i++) {
        const struct gpt_bucket *b = &r->flat.buckets[i];
        bool again = shared && b->layer >= 0 && i > 0 && b[-1].layer >= 0;

        r->gradients[i] = again ? r->gradients[i - 1]
                                : device(b->end - b->begin, sizeof(float));
    }
    fill(r, o.exec.act);
    o.config = &r->c;
    o.flat = &r->flat;
    o.training = o.exec.documents = true;
    o.exec.seed = 11;
    for (int64_t i = 0; i < o.layout.chunks; i++)
        o.slots[i] = o.slots[i] ? o.slots[i] : 1;
    o.fresh_gradients = shared;
    must(gpt_stage_open(&r->stage, be, &o, r->w, r->gradients, &err), &err);
}

static void rig_close(struct rig *r)
{
    gpt_stage_close(r->stage);
    for (int64_t i = r->flat.n_buckets - 1; i >= 0; i--)
        if (i == 0 || r->gradients[i] != r->gradients[i - 1])
            be->free(be, r->gradients[i]);
    gpt_free(r->gradients);
    be->free(be, r->w);
    be->queue_close(r->q);
    gpt_flat_free(&r->flat);
    gpt_params_free(&r->table);
}

static float *gradient(const struct rig *r, const struct gpt_slice *s)
{
    return r->gradients[s->bucket] + s->offset -
           r->flat.buckets[s->bucket].begin;
}

/* ---- a batch ---- */

struct batch {
    int64_t b, t;
    int32_t input[MICROBATCHES][MOST_ROWS], target[MICROBATCHES][MOST_ROWS];
    int32_t position[MICROBATCHES][MOST_ROWS], start[MICROBATCHES][MOST_ROWS];
    float weight[MICROBATCHES][MOST_ROWS], loss[MICROBATCHES][MOST_ROWS];
    float *logits; /* (MICROBATCHES, N, V / tp) */
};

static void batch_open(struct batch *x, int64_t b, int64_t t, int64_t columns)
{
    *x = (struct batch){.b = b, .t = t};
    for (int64_t m = 0; m < MICROBATCHES; m++)
        for (int64_t i = 0; i < b * t; i++) {
            int32_t at = (int32_t)(i % t), cut = at >= 5 ? 5 : 0;

            x->input[m][i] = (int32_t)((i * 7 + m * 5) % VOCABULARY);
            x->target[m][i] = (int32_t)((i * 11 + m * 3 + 1) % VOCABULARY);
            x->start[m][i] = cut;
            x->position[m][i] = at - cut;
            x->weight[m][i] = i % 6 == 4 ? 0 : 0.05F;
        }
    x->logits = gpt_alloc((size_t)(MICROBATCHES * b * t * columns),
                          sizeof(float));
}

static struct gpt_microbatch micro(const struct batch *x, int64_t m)
{
    return (struct gpt_microbatch){
        .input = x->input[m],
        .target = x->target[m],
        .position = x->position[m],
        .doc_start = x->start[m],
        .weight = x->weight[m],
        .sample0 = 100 + m * x->b,
    };
}

/* Losses alone, through a stage that is the whole pipeline. */
__attribute__((unused))
static void evaluate(struct rig *r, struct batch *x)
{
    struct gpt_err err;

    for (int64_t m = 0; m < MICROBATCHES; m++) {
        struct gpt_microbatch mb = micro(x, m);
        struct gpt_stage_result result = {.loss = x->loss[m]};

        gpt_stage_forward(r->stage, r->q, 0, 0, GPT_STAGE_EVAL, &mb, NULL,
                          &result);
    }
    must(be->sync(r->q, &err), &err);
}

/* The whole batch, forward and backward. */
static void run(struct rig *r, struct batch *x, int64_t columns)
{
    struct gpt_err err;

    gpt_stage_begin(r->stage, r->q);
    for (int64_t m = 0; m < MICROBATCHES; m++) {
        struct gpt_microbatch mb = micro(x, m);
        struct gpt_stage_result result = {
            .loss = x->loss[m],
            .logits = x->logits + m * x->b * x->t * columns,
        };

        gpt_stage_forward(r->stage, r->q, 0, 0, GPT_STAGE_TRAIN, &mb, NULL,
                          &result);
        gpt_stage_backward(r->stage, r->q, 0, 0, NULL);
    }
    must(be->sync(r->q, &err), &err);
}

/* ---- comparison ---- */

/* Largest difference over largest wanted value; NaN is infinitely wrong. */
struct error {
    double worst, largest;
};

static void compare(struct error *e, float got, float want)
{
    double d = fabs((double)got - (double)want);

    e->worst = d <= e->worst ? e->worst : isnan(d) ? (double)INFINITY : d;
    e->largest = fmax(e->largest, fabs((double)want));
}

static double relative(const struct error *e)
{
    return e->worst / (e->largest > 0 ? e->largest : 1);
}

/* A slice against the same part of the single rank's. */
__attribute__((unused))
static double slice_error(const struct gpt_slice *s, const float *got,
                          const struct rig *whole)
{
    const float *want = gradient(
        whole, gpt_flat_find(&whole->flat, s->param->role, s->param->layer));
    struct error e = {0, 0};

    for (int64_t i = 0; i < s->shape[0]; i++)
        for (int64_t j = 0; j < s->shape[1]; j++) {
            int64_t at = (s->begin[0] + i) * s->param->shape[1] + s->begin[1];

            compare(&e, got[i * s->shape[1] + j], want[at + j]);
        }
    return relative(&e);
}

__attribute__((unused))
static double loss_error(const struct batch *got, const struct batch *want)
{
    struct error e = {0, 0};

    for (int64_t m = 0; m < MICROBATCHES; m++)
        for (int64_t i = 0; i < got->b * got->t; i++)
            compare(&e, got->loss[m][i], want->loss[m][i]);
    return relative(&e);
}

__attribute__((unused))
static double logits_error(const struct batch *got, int64_t columns,
                           int64_t begin, const struct batch *want)
{
    int64_t all = config(true, 4).padded_vocab_size;
    struct error e = {0, 0};

    for (int64_t i = 0; i < MICROBATCHES * got->b * got->t; i++)
        for (int64_t j = 0; j < columns; j++)
            compare(&e, got->logits[i * columns + j],
                    want->logits[i * all + begin + j]);
    return relative(&e);
}

__attribute__((unused))
static bool same_bits(const struct rig *a, const struct batch *x,
                      const struct rig *b, const struct batch *y)
{
    bool same = memcmp(x->loss, y->loss, sizeof(x->loss)) == 0;

    for (int64_t i = 0; i < a->flat.n_buckets; i++) {
        const struct gpt_bucket *of = &a->flat.buckets[i];

        same = same && memcmp(a->gradients[i], b->gradients[i],
                              (size_t)(of->end - of->begin) * 4) == 0;
    }
    return same;
}

#endif
