/* AdamW over the shards of a rank (all of its flat buffer, when there is no
 * distributed optimizer), with clipping by global norm: Megatron's semantics.
 * One moment buffer pair, one pass. */
#ifndef GPT_TRAIN_OPTIMIZER_H
#define GPT_TRAIN_OPTIMIZER_H

#include "backend.h"
#include "model/params.h"

struct gpt_optimizer_options {
    double beta1, beta2, eps;
    double clip_grad; /* 0 = off */
};

struct gpt_optimizer {
    struct gpt_optimizer_options o;
    const struct gpt_flat *flat;
    /* device, gpt_flat_compact() elements each, laid out as said there */
    float *exp_avg, *exp_avg_sq;
    int64_t step; /* updates made so far */
    /* private */
    struct gpt_backend *be;
    struct stretch *stretches; /* updated by one call each */
    int64_t n_stretches;
    struct gpt_adamw_segment *segments; /* of all stretches */
    struct run *runs;                   /* what counts in the norm */
    int64_t n_segments, n_runs;
    double *run_sums; /* host */
    void *memory, *sums, *device_segments; /* device */
};

/* Bytes of the moments and what belongs to them, for `flat`. */
int64_t gpt_optimizer_memory(const struct gpt_flat *flat);

/* Moments are zero. `flat` outlives the optimizer. tp_rank: what is not split
 * counts in the norm on the first tensor parallel rank only. Waits for q. */
int gpt_optimizer_open(struct gpt_optimizer **optimizer, struct gpt_backend *be,
                       struct gpt_queue *q, const struct gpt_flat *flat,
                       int64_t tp_rank,
                       const struct gpt_optimizer_options *options,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_optimizer_close(struct gpt_optimizer *optimizer);

/* This rank's part of the squared L2 norm of all gradients: of its shards,
 * without tied copies. gradients: of the shard of every bucket; without shards
 * one block in the order of the flat buffer. Waits for the queue: errors of the
 * step's operations surface here. */
int gpt_optimizer_squares(struct gpt_optimizer *optimizer, struct gpt_queue *q,
                          float *const *gradients, double *sum,
                          struct gpt_err *err) GPT_MUST_USE;

/* One update with gradients divided by the loss scale, and scaled by
 * clip/(norm + 1e-6) when that is below one. Gradients as above. */
struct gpt_update {
    float *params;
    bool compact;  /* params holds this rank's shards alone, as moments do;
                    * else it is flat, of which they are updated */
    void *weights; /* flat copy of params in `act`, or NULL */
    enum gpt_dtype act;
    float *const *gradients;
    double loss_scale; /* 1: none */
    double norm;       /* of the gradients once divided */
    double lr, weight_decay;
};
void gpt_optimizer_update(struct gpt_optimizer *optimizer, struct gpt_queue *q,
                          const struct gpt_update *update);

#endif
