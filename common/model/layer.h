/* One transformer layer: attention and feed-forward with norms in front
 * (pre-LN), after them or both, one after the other or side by side, as calls
 * of the backend; for stage.c and decode.c.
 *
 * The residual stream r is carried between layers together with x, the last
 * block's output that has not been added yet: every norm adds it, so that
 * residual, dropout and norm are one pass over memory.
 *
 * Tensor parallel ranks hold H / tp heads and F / tp of the feed-forward; H, G
 * and F below are those held here (geometry.h), F' the width of fc1's output.
 * With sequence parallelism a rank keeps `rows` = N / tp rows of the residual
 * stream, and works on these rows between the sum of one linear layer and the
 * input of the next; else rows = N. */
#ifndef GPT_MODEL_LAYER_H
#define GPT_MODEL_LAYER_H

#include "backend.h"
#include "model/weights.h"
#include "parallel/lane.h"

/* What one microbatch keeps of a norm for backward. */
struct gpt_norm_acts {
    void *r;            /* (rows, C) act: residual stream that went in */
    void *y;            /* (rows, C) act: normalised; NULL: only r is wanted */
    float *mean, *rstd; /* (rows) */
};

/* What one microbatch keeps of experts, of a layer that has them: K experts a
 * token, E on all ranks, F' and F their widths. Tables are those of struct
 * gpt_router; rows are those of this rank's experts. */
struct gpt_expert_acts {
    float *logits, *weight;                   /* (N, E), (N, K) */
    int32_t *expert, *begin, *source, *place; /* (N, K), (E + 1), (N K) */
    void *pre;       /* (N K, F') act: linear_fc1's output */
    void *activated; /* (N K, F) act: after the activation */
    float *gate;     /* (N): of the feed-forward beside experts, or NULL */
};

/* What one microbatch keeps of latent attention: the rows of few numbers that
 * queries, and keys and values, are made of, before their norms and after. */
struct gpt_latent_acts {
    void *q_down, *kv_down;   /* (N, Rq), (N, Rkv) act */
    void *q, *kv;             /* the same, normed */
    float *q_rstd, *kv_rstd;  /* (N) */
};

/* What one microbatch keeps of a layer. Layers may share what backward computes
 * again. */
struct gpt_layer_acts {
    struct gpt_norm_acts norm1, norm2;
    struct gpt_norm_acts post1, post2; /* of blocks' outputs; no y */
    float *squares;   /* (N, 2): of queries and of keys that are normed whole */
    void *qkv;        /* (N, (H + 2G) D) act */
    void *heads;      /* the same after norms of heads and rotation; NULL: both
                       * are in place */
    void *att;        /* (N, H D) act: attention's output */
    float *lse;       /* (B, H, T) */
    void *pre;        /* (N, F') act: fc1's output, before the activation */
    void *activated;  /* (N, F) act: after it; backward leaves its gradient
                       * there where the product does not take the slope */
    struct gpt_latent_acts latent;
    struct gpt_expert_acts experts; /* beside which the last two are those of
                                     * the feed-forward of all tokens */
};

/* Buffers of experts that all layers share. */
struct gpt_expert_work {
    void *rows; /* (N K, C) act: of tokens, of outputs, and their gradients */
    void *dactivated; /* (max(N K F, N shared)) act: gradients behind the
                       * activation */
    void *dpre;       /* (N K, F') act: and in front of it */
    void *dlogits;    /* (N, E) act: of the router; then (N) of the gate */
    float *dweight;   /* (N, K) */
    float *losses;    /* (2): of routers, since they were zeroed */
    /* generation over tensor parallel ranks: experts.c */
    void *pairs;         /* (N K, C) act */
    int32_t *same;       /* (N K): 0, 1, ... */
    int32_t *ends;       /* (2): 0, N K */
};

/* Buffers of latent attention that all layers share. The first four are made
 * forward, and hold the gradients of the same backward. */
struct gpt_latent_work {
    void *q, *kv;   /* (N, H D), (N, H (D's own of a key + of a value)) act */
    void *turned;   /* (N, what turns of a key) act */
    void *values;   /* (N, H values) act: attention's output as proj takes it,
                     * where a value is smaller than D; else NULL */
    void *dnormed;  /* (N, max(Rq, Rkv)) act: the rest is of backward */
    void *dq_down, *dkv_down; /* (N, Rq), (N, Rkv) act */
};

/* Buffers shared by all layers; x is also what a block hands to the next norm
 * in forward, and its gradient in backward. */
struct gpt_layer_work {
    void *x;      /* (rows, C) act */
    void *dresid; /* (rows, C) act: gradient of the residual stream */
    void *dy;     /* (rows, C) and (N, H D) act */
    void *dwide;  /* (N, max(F', (H + 2G) D)) act */
    void *all;    /* (N, C) act: with sequence parallelism, a (rows, C) block
                   * gathered from all ranks */
    void *part;   /* (N, C) act: with sequence parallelism, this rank's part of
                   * a sum; `all` where there is no backward */
    struct gpt_latent_work latent;
    struct gpt_expert_work experts;
    float *dots;   /* (N, 2): what their backward sums over the ranks */
    float *amax;   /* (GPT_N_LINEAR_TENSORS): of the linear layer at hand, where
                    * its products are of eight bits */
    void *scratch;
};

/* Generation: the cache of a layer, and the texts whose new tokens are the rows
 * of the pass. A run is texts side by side with equally many tokens each. */
struct gpt_pass_run {
    int64_t texts, tokens;
};
struct gpt_pass_cache {
    void *k, *v; /* of the layer: see struct gpt_attn_cached */
    bool narrow; /* bf16, not act */
    int64_t t_max;
    const int32_t *pos, *len, *slot; /* of all texts: struct gpt_attn_cached */
    const struct gpt_pass_run *runs; /* (n_runs) */
    int64_t n_runs;
};

/* Generation over tensor parallel ranks: proj and fc2 are cut by rows, too, as
 * decode_ranks.h says. */
struct gpt_pass_columns {
    void *gathered; /* (tp, N, widest / tp) act: columns as ranks send them */
    void *wide;     /* (N, widest input) act: those of all ranks as rows */
    void *own;      /* (N, C / tp) act: this rank's columns of the output */
};

/* What stays the same for all layers during one pass of one microbatch. */
struct gpt_pass {
    struct gpt_backend *be;
    struct gpt_queue *q;
    const struct gpt_config *config;
    const struct gpt_layout *layout;
    struct gpt_widths widths; /* held here */
    enum gpt_dtype act;
    int64_t b, t, n;     /* n = b * t */
    int64_t rows;        /* of the residual stream here */
    struct gpt_comm *tp; /* NULL: one rank */
    struct gpt_lane *lane; /* runs collectives of tp while backward computes;
                            * NULL: backward waits for them */
    bool sequence;       /* rows are cut over the ranks */
    const int64_t *samples;   /* device: number of the first sample */
    bool dropout;             /* masks are on: training */
    bool selective;           /* GPT_RECOMPUTE_SELECTIVE */
    float beta;               /* of weight gradients: 0 overwrites, 1 adds */
    const int32_t *doc_start; /* (B, T) device, or NULL */
    const float *weights;     /* (N) device: of losses, which those of routers
                               * count like; scale (1) as well, or NULL */
    const float *scale;
    const int32_t *positions; /* (N) device, or NULL: row n mod T */
    bool is_long; /* texts, as gpt_config_is_long() has it */
    /* Generation: attention goes to this cache instead; NULL in training. */
    const struct gpt_pass_cache *cache;
    enum gpt_sums sums; /* of products forward */
    const struct gpt_pass_columns *columns; /* NULL: sums over the ranks */
    struct gpt_layer_work work;
};

struct gpt_layer {
    struct gpt_roles w, dw; /* weights and gradients */
    int64_t bucket;         /* of the gradients */
    int64_t number;         /* global */
    struct gpt_rng attention_rng, proj_rng, mlp_rng;
};

/* layer: global number. gradients: memory of each bucket, may be NULL. */
void gpt_layer_bind(struct gpt_layer *layer, const struct gpt_flat *flat,
                    int64_t number, void *weights, enum gpt_dtype act,
                    float *const *gradients, uint64_t seed);

/* r (N, C): residual stream so far; x_rng: dropout stream of pass->work.x that
 * is to be added to it, NULL when there is nothing to add. Leaves the stream
 * in acts->norm2.r and what is to be added next in pass->work.x. */
void gpt_layer_forward(const struct gpt_layer *layer,
                       const struct gpt_pass *pass,
                       const struct gpt_layer_acts *acts, const void *r,
                       const struct gpt_rng *x_rng);

/* The same without the last product: what backward needs of a forward. */
void gpt_layer_recompute(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, const void *r,
                         const struct gpt_rng *x_rng);

/* In: work.dresid, and in work.x the gradient of what forward left there. Out:
 * the same for the layer below (work.x untouched when x_rng is NULL). */
void gpt_layer_backward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts,
                        const struct gpt_rng *x_rng);

/* Dropout of a (rows, C) block in this pass. */
struct gpt_dropout gpt_pass_dropout(const struct gpt_pass *pass,
                                    struct gpt_rng rng, double p);

/* All rows (N, C) of `mine` (rows, C): itself, or gathered into work.all. */
void *gpt_pass_gather(const struct gpt_pass *pass, void *mine);
/* Where to put a rank's part (N, C) of a sum that is to end in `mine` (rows,
 * C): there, or work.part; and the sum. */
void *gpt_pass_part(const struct gpt_pass *pass, void *mine);
void gpt_pass_sum(const struct gpt_pass *pass, const void *part, void *mine);

/* Rows (N, tp * width) of `mine` (N, width), the columns that each rank has, to
 * `out`. Needs pass->columns. */
void gpt_pass_join_columns(const struct gpt_pass *pass, const void *mine,
                           int64_t width, void *out);

/* Begin the same calls on the pass's lane (or make them, where there is none)
 * and return a job. Until gpt_pass_join() nothing may touch what the job reads
 * and writes, and no other job may begin. */
int64_t gpt_pass_begin_gather(const struct gpt_pass *pass, void *mine);
int64_t gpt_pass_begin_sum(const struct gpt_pass *pass, const void *part,
                           void *mine);
void gpt_pass_join(const struct gpt_pass *pass, int64_t job);
/* Where gpt_pass_gather() puts the rows of `mine`. */
void *gpt_pass_all(const struct gpt_pass *pass, void *mine);

/* The operation of a layer's attention (also used to size its scratch). */
struct gpt_attn gpt_layer_attn(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct gpt_layer_acts *acts);

#endif
