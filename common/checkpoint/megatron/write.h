/* What a classic Megatron checkpoint that is written will hold: a plan made
 * from headers, shared by the files that write one. plan.c makes it, pickle.c
 * says it in pickles, write.c writes tensors. Start at struct
 * gpt_megatron_rank_plan. */
#ifndef GPT_CHECKPOINT_MEGATRON_WRITE_H
#define GPT_CHECKPOINT_MEGATRON_WRITE_H

#include "checkpoint/megatron/megatron.h"
#include "checkpoint/names.h"
#include "checkpoint/target.h"
#include "checkpoint/torch/write.h"

enum {
    GPT_MEGATRON_JOINED = 2,   /* most parameters in one tensor */
    GPT_MEGATRON_CHAINS = 2,   /* of optimizers */
    GPT_MEGATRON_GROUPS = 3,   /* of parameters: decayed, not decayed, and
                                * experts of ranks that share them */
    GPT_MEGATRON_PATH = GPT_PARAM_NAME + 64,
};

/* A rank's tensor: boxes of the source's parameters after each other, rows of
 * the same width. There is one of each kind: weights, moments. */
struct gpt_megatron_cut {
    const char *path; /* in the state dict, keys separated by '/' */
    struct {
        int64_t row; /* of the parameter table */
        int64_t begin[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];
    } boxes[GPT_MEGATRON_JOINED];
    int n_boxes;
    int ndim;
    int64_t shape[GPT_PARAM_DIMS], count;
    int64_t chunk;  /* of an interleaved stage */
    int64_t group;  /* of the optimizer; -1: it does not train it */
    int64_t number; /* in the optimizer's state */
    bool shared;    /* a tied table that two stages have */
    bool copy;      /* the second one of these */
    int64_t offset; /* in the buffer of a distributed optimizer, elements */
    int64_t order;  /* among the modules of the chunk, */
    int64_t within; /* ... and among experts */
};

/* A rank's tensors, in the order in which Megatron-LM registers them: that of
 * its optimizer's numbers. */
struct gpt_megatron_rank_plan {
    struct gpt_megatron_cut *cuts;
    int64_t n;
    int64_t group_size[GPT_MEGATRON_GROUPS];
    /* Where each chunk's cuts begin, and elements of its buffers. */
    int64_t first[GPT_MAX_CHUNKS + 1];
    int64_t elements[GPT_MEGATRON_CHAINS][GPT_MAX_CHUNKS];
    bool gives; /* what is no expert's has its state in this rank's file */
};

enum gpt_megatron_optimizer {
    GPT_MEGATRON_NONE,        /* weights alone */
    GPT_MEGATRON_PLAIN,       /* in the file of the weights */
    GPT_MEGATRON_DISTRIBUTED, /* in a file beside it */
};

/* A kind of tensors in a file: every cut, of this kind. */
struct gpt_megatron_block {
    enum gpt_kind kind;
    enum gpt_dtype dtype;
    const char *key; /* in the optimizer's state; NULL: weights */
};

struct gpt_megatron_output {
    struct gpt_param_table table;
    const struct gpt_tensor **sources[GPT_N_ADAM_KINDS]; /* one a parameter */
    struct gpt_megatron_rank_plan *ranks;
    int64_t n_ranks, chunks;
    bool released; /* "release": weights of no iteration */
    enum gpt_megatron_optimizer optimizer;
    enum gpt_dtype dtype; /* of weights; GPT_N_DTYPES: each its own */
    /* What is in the model's file, and, for a distributed optimizer, in the
     * other. */
    struct gpt_megatron_block blocks[4], shards[3];
    int n_blocks, n_shards;
};

/* A chain of optimizers has one of experts where ranks share these, with groups
 * and numbers of its own. */
static inline int gpt_megatron_chains(const struct gpt_target *t)
{
    return t->o.ep_size > 1 ? 2 : 1;
}
/* Groups [*begin, *end) of a chain. */
static inline void gpt_megatron_chain(int chain, int64_t *begin, int64_t *end)
{
    *begin = chain ? GPT_MEGATRON_GROUPS - 1 : 0;
    *end = chain ? GPT_MEGATRON_GROUPS : GPT_MEGATRON_GROUPS - 1;
}

/* The chain whose buffer has a cut, or -1. */
static inline int gpt_megatron_chain_of(const struct gpt_megatron_cut *c)
{
    return c->group < 0 ? -1 : c->group == GPT_MEGATRON_GROUPS - 1;
}

/* A rank by its number: tensor parallel ranks come first, then stages. */
struct gpt_megatron_place {
    int64_t tp, pp, ep;
};
static inline struct gpt_megatron_place
gpt_megatron_place(const struct gpt_target *t, int64_t rank)
{
    return (struct gpt_megatron_place){
        rank % t->o.tp_size, rank / t->o.tp_size % t->o.pp_size,
        rank / (t->o.tp_size * t->o.pp_size)};
}

/* Fills what the files hold of a run: the optimizer, and blocks. */
void gpt_megatron_plan_blocks(struct gpt_target *t);

/* GPT_EUSAGE, or GPT_EDATA, when ranks cannot share the experts. */
int gpt_megatron_check_experts(const struct gpt_target *t,
                               struct gpt_err *err) GPT_MUST_USE;
/* Cuts that a rank has more than slices. */
int64_t gpt_megatron_more_cuts(const struct gpt_target *t,
                               const struct gpt_flat *flat);
/* Appends the cuts of a rank's experts to r, of a slice that has all of a
 * layer. */
int gpt_megatron_add_experts(struct gpt_target *t,
                             struct gpt_megatron_rank_plan *r,
                             const struct gpt_slice *s,
                             const struct gpt_layout *layout, int64_t rank,
                             struct gpt_err *err) GPT_MUST_USE;
/* Appends a cut of a slice without boxes; expert: its number among those of
 * the rank. */
int gpt_megatron_new_cut(struct gpt_target *t,
                         struct gpt_megatron_rank_plan *r,
                         const struct gpt_slice *s,
                         const struct gpt_layout *layout, int64_t expert,
                         struct gpt_megatron_cut **cut,
                         struct gpt_err *err) GPT_MUST_USE;
/* Appends a box of parameter `row` to a cut. */
void gpt_megatron_add_box(struct gpt_megatron_cut *c, int64_t row,
                          const int64_t *begin, const int64_t *shape);

/* The parameters as this layout and naming cut them. */
int gpt_megatron_build_table(struct gpt_param_table *table,
                             const struct gpt_target_options *options,
                             struct gpt_err *err) GPT_MUST_USE;
/* Fills *r with the cuts of a rank (t->o says of which layout and naming, and
 * t->data has the table): what it holds, in the order in which Megatron-LM
 * registers it. r->cuts is freed with gpt_free(). */
int gpt_megatron_plan_cuts(struct gpt_target *t, int64_t rank,
                           struct gpt_megatron_rank_plan *r,
                           struct gpt_err *err) GPT_MUST_USE;
/* True when a cut is in a block: not what an optimizer has, of what it does not
 * train. */
static inline bool gpt_megatron_has_cut(const struct gpt_megatron_block *block,
                                        const struct gpt_megatron_cut *cut)
{
    return !block->key || cut->group >= 0;
}
/* The type of a cut in a block. */
enum gpt_dtype gpt_megatron_cut_dtype(const struct gpt_megatron_output *p,
                                      const struct gpt_megatron_block *block,
                                      const struct gpt_megatron_cut *cut);

/* The pickle of the model's file: storage n * b + i is cut i of block b. The
 * last storage, after those, is the loss scale where there is one
 * (gpt_megatron_scale()). */
int gpt_megatron_put_model(struct gpt_pickle_out *o, const struct gpt_target *t,
                           int64_t rank, struct gpt_err *err) GPT_MUST_USE;
/* Says what a run of Megatron-LM has that is not written. */
void gpt_megatron_report_run(const struct gpt_target *t);
/* The pickle of the other file: storages of a chain's buffers follow each
 * other, in each chunk n_shards of them, where it has any elements. */
int gpt_megatron_put_shards(struct gpt_pickle_out *o,
                            const struct gpt_target *t, int64_t rank,
                            struct gpt_err *err) GPT_MUST_USE;
/* True when the source's run has a loss scale; fills it. */
bool gpt_megatron_scale(const struct gpt_target *t, float *scale);

#endif
