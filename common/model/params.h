/* The parameter table: one row a parameter. Initialisation, parameter counts,
 * memory prediction, checkpoints, reshaping, the optimizer and the gradient
 * norm all read this table and nothing else; a new architecture is new rows.
 *
 * Names are Megatron-core's with global layer numbers. Matrices are (out, in),
 * row-major. A rank's part of a parameter is always one box, an equal cut of
 * one dimension; what ranks must not tear apart is therefore kept together in
 * the order of rows: linear_qkv has, for each query group, its query heads, its
 * key, its value (Megatron's order). A gated feed-forward has two matrices,
 * linear_gate and linear_fc1, each cut by rows. They are neighbours in the flat
 * buffer, so that one product serves both (layer.c).
 *
 * The matrices of a layer's experts are one parameter, one above the other; in
 * a gated expert's linear_fc1 the rows of its gate come first. */
#ifndef GPT_MODEL_PARAMS_H
#define GPT_MODEL_PARAMS_H

#include "model/geometry.h"
#include "parallel/topology.h"

enum { GPT_PARAM_NAME = 96, GPT_PARAM_DIMS = 2 };

enum gpt_param_init {
    GPT_INIT_ZERO,
    GPT_INIT_ONE,
    GPT_INIT_NORMAL,        /* N(0, init_std) */
    GPT_INIT_NORMAL_OUTPUT, /* N(0, init_std / sqrt(2 L)) */
    GPT_INIT_ALPHA_P, /* where the growth is 0.8, on both sides */
    GPT_INIT_ALPHA_N,
};

/* Where in the pipeline a parameter lives. */
enum gpt_param_place {
    GPT_PLACE_EMBEDDING, /* first stage */
    GPT_PLACE_LAYER,     /* the stage that holds .layer */
    GPT_PLACE_FINAL,     /* last stage */
};

/* How tensor parallel ranks share a parameter: equal parts, in their order. */
enum gpt_param_split {
    GPT_SPLIT_NONE,     /* every rank holds all of it */
    GPT_SPLIT_ROWS,     /* dimension 0: outputs */
    GPT_SPLIT_BY_GROUP, /* dimension 0, between query groups */
    GPT_SPLIT_BY_EXPERT, /* dimension 0, between experts */
    GPT_SPLIT_COLUMNS,  /* dimension 1: inputs */
};

/* Which operation writes a gradient first in a step. */
enum gpt_first_write {
    GPT_FIRST_ADDS,     /* one that adds: the gradient is zeroed before */
    GPT_FIRST_PRODUCT,  /* a matrix product, which overwrites (beta 0) */
    GPT_FIRST_OUTPUT,   /* the output layer's product, where this is its matrix
                         * and the stage has it; else one that adds */
};

/* Which parameter of a layer this is: how layer code finds its weights. */
enum gpt_param_role {
    GPT_WORD_EMBEDDING,
    GPT_POSITION_EMBEDDING,
    GPT_EMBEDDING_NORM_WEIGHT,
    GPT_EMBEDDING_NORM_BIAS,
    GPT_NORM1_WEIGHT,
    GPT_NORM1_BIAS,
    GPT_QKV_WEIGHT,
    GPT_QKV_BIAS,
    GPT_Q_NORM_WEIGHT,
    GPT_Q_NORM_BIAS,
    GPT_K_NORM_WEIGHT,
    GPT_K_NORM_BIAS,
    GPT_Q_DOWN, /* of latent attention, in place of those of QKV and heads */
    GPT_Q_LATENT_NORM,
    GPT_Q_UP,
    GPT_Q_PROJ, /* ... where queries have no such row */
    GPT_KV_DOWN,
    GPT_K_TURNED,
    GPT_KV_LATENT_NORM,
    GPT_KV_UP,
    GPT_PROJ_WEIGHT,
    GPT_PROJ_BIAS,
    GPT_POST1_WEIGHT, /* norms of a block's output */
    GPT_POST1_BIAS,
    GPT_NORM2_WEIGHT,
    GPT_NORM2_BIAS,
    GPT_GATE_WEIGHT,
    GPT_FC1_WEIGHT,
    GPT_GATE_BIAS,
    GPT_FC1_BIAS,
    GPT_ALPHA_P, /* of XIELU: its growth above 0, and below */
    GPT_ALPHA_N,
    GPT_FC2_WEIGHT,
    GPT_FC2_BIAS,
    GPT_ROUTER_WEIGHT, /* of a layer with experts, in place of those above */
    GPT_ROUTER_BIAS,
    GPT_EXPERTS_FC1,
    GPT_EXPERTS_FC2,
    GPT_SHARED_ROUTER,
    GPT_SHARED_GATE,
    GPT_SHARED_FC1,
    GPT_SHARED_FC2,
    GPT_POST2_WEIGHT,
    GPT_POST2_BIAS,
    GPT_FINAL_NORM_WEIGHT,
    GPT_FINAL_NORM_BIAS,
    GPT_OUTPUT_WEIGHT,
    GPT_OUTPUT_BIAS,
    GPT_N_ROLES
};

struct gpt_param {
    char name[GPT_PARAM_NAME]; /* "decoder.layers.3.mlp.linear_fc1.weight" */
    enum gpt_param_role role;
    enum gpt_param_place place;
    int64_t layer; /* global number, -1 outside layers */
    int ndim;
    int64_t shape[GPT_PARAM_DIMS]; /* global; shape[1] = 1 for vectors */
    enum gpt_param_split split;
    int64_t split_unit; /* rows or columns that one rank holds together */
    int64_t key_rows;   /* of a query group: those of its key, then as many of
                         * its value, end the unit; 0 of other splits */
    int64_t matrices; /* of equal rows, that lie one above the other: those of
                       * experts, and of their gates; else 1 */
    bool vocab_rows; /* rows from vocab_size on are dummies */
    bool decay;      /* weight decay applies: matrices, not vectors, also not
                      * where there is one for each head */
    bool tied; /* also the output layer's: a second copy on the last stage */
    bool sequence_sum; /* gradient is summed over TP ranks under SP */
    bool heads_sum; /* ... under TP: each rank sees its own columns alone */
    bool counts; /* it has no gradient, in whose place tokens are counted: the
                  * optimizer keeps no state of it, and the norm leaves it */
    enum gpt_first_write first_write;
    enum gpt_param_init init;
};

struct gpt_param_table {
    struct gpt_param *rows; /* in order of the forward pass */
    int64_t n;
};

/* The rows of a model of this configuration, which is a valid one. */
int gpt_params_build(struct gpt_param_table *t, const struct gpt_config *c,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_params_free(struct gpt_param_table *t);
/* NULL where the model has no such parameter. */
const struct gpt_param *gpt_params_find(const struct gpt_param_table *t,
                                        const char *name);
/* How many have a row for each token: the word table, and the output layer's
 * weight and bias where it has them. */
int64_t gpt_params_vocab_rows(const struct gpt_param_table *t);
/* True for what a norm multiplies by. */
bool gpt_param_is_scale(enum gpt_param_role role);
int64_t gpt_param_count(const struct gpt_param *p); /* global elements */

/* Consecutive layers that a rank computes without asking another stage. */
struct gpt_layer_range {
    int64_t first_layer, n_layers;
};

/* A rank's part of the model. */
struct gpt_layout {
    int64_t size[GPT_N_DIMS], at[GPT_N_DIMS]; /* as in the topology */
    int64_t chunks; /* of this stage; more than 1 when interleaved */
    struct gpt_layer_range chunk[GPT_MAX_CHUNKS];
    bool has_embedding; /* in front of the first chunk: first stage */
    bool has_output;    /* after the last chunk: last stage */
    /* Distributed optimizer: every bucket is cut into `shards` equal parts (the
     * data parallel size), and this rank keeps part `shard`. 1, 0: whole. */
    int64_t shards, shard;
};

/* The layout of one rank when the layers are cut evenly over pp_size stages;
 * gpt_layout_init() must allow it. */
struct gpt_layout gpt_layout_even(const struct gpt_config *c, int64_t tp_size,
                                  int64_t tp_rank, int64_t pp_size,
                                  int64_t pp_rank);
#define GPT_LAYOUT_SINGLE(c) gpt_layout_even((c), 1, 0, 1, 0)

/* The layout of rank t->rank. first, last: layers of an uneven first and last
 * stage, 0 = even. shards is 1; set shards and shard for a distributed
 * optimizer. GPT_EUSAGE names the rule that the model breaks. */
int gpt_layout_init(struct gpt_layout *layout, const struct gpt_config *c,
                    const struct gpt_topology *t, int64_t first, int64_t last,
                    struct gpt_err *err) GPT_MUST_USE;

/* A parameter's part on one rank: begin[] and shape[] within the global one,
 * and where it sits in the rank's flat buffers. */
struct gpt_slice {
    const struct gpt_param *param;
    int64_t begin[GPT_PARAM_DIMS], shape[GPT_PARAM_DIMS];
    int64_t count;  /* elements */
    int64_t offset; /* in the flat buffer, elements; multiple of 64 */
    int64_t bucket; /* that it is in */
    bool copy;      /* tied copy of the word table on the last stage: not
                     * saved, not counted in the norm */
};

/* A range of the flat buffer whose gradients are complete, and reduced,
 * together: one layer, or what is in front of or after the layers. Its length
 * is a multiple of 64 * shards; shard i is the i-th of equal parts, whatever
 * parameters it cuts through. */
struct gpt_bucket {
    int64_t layer; /* global number, -1: not a layer */
    int64_t begin, end;
    int64_t first_slice, end_slice; /* its slices, the end not included */
};

/* The flat buffer of a rank: parameters and gradients have this same layout,
 * optimizer state that of its shards. Gaps between slices are zero. */
struct gpt_flat {
    struct gpt_slice *slices; /* in table order */
    int64_t n;
    struct gpt_bucket *buckets; /* in order, without gaps */
    int64_t n_buckets;
    int64_t shards, shard; /* as in the layout */
    int64_t tp_size;
    int64_t count;         /* parameters held here */
    int64_t elements;      /* with alignment gaps: size of the buffers */
};

/* Table and config must outlive the result. */
int gpt_flat_build(struct gpt_flat *f, const struct gpt_param_table *t,
                   const struct gpt_layout *layout, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_flat_free(struct gpt_flat *f);
/* A shard of a bucket, in elements of the flat buffer: *begin, *end. */
void gpt_bucket_shard(const struct gpt_flat *f, int64_t bucket, int64_t shard,
                      int64_t *begin, int64_t *end);
/* What this rank's shard of its bucket has of a slice: elements `begin` to
 * `end` of the slice, none of them where these are equal. The first is element
 * `at` of the shard. */
struct gpt_shard_part {
    int64_t begin, end, at;
};
struct gpt_shard_part gpt_slice_shard(const struct gpt_flat *f,
                                      const struct gpt_slice *s);
/* A compact buffer holds what this rank keeps for its shards alone (optimizer
 * state): the shards of all buckets in their order. Its elements, and where in
 * it the shard of a bucket begins, a multiple of 64. */
int64_t gpt_flat_compact(const struct gpt_flat *f);
int64_t gpt_bucket_compact(const struct gpt_flat *f, int64_t bucket);
/* The slice of a role (and layer), or NULL when it is not held here. */
const struct gpt_slice *gpt_flat_find(const struct gpt_flat *f,
                                      enum gpt_param_role role, int64_t layer);

/* True when each tensor parallel rank computes a part of the slice's gradient,
 * though all of them hold the whole slice: the parts are to be summed. */
bool gpt_flat_is_partial(const struct gpt_flat *f, const struct gpt_slice *s,
                         bool sequence_parallel);

/* Initial values of one slice into dst (float, slice->count): a function of
 * (seed, name, global element index) only, whatever the layout. */
void gpt_param_init(const struct gpt_config *c, const struct gpt_slice *slice,
                    uint64_t seed, float *dst);

#endif
