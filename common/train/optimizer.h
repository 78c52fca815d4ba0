/* AdamW over the flat buffers of a rank, with clipping by global norm:
 * Megatron's semantics. One moment buffer pair, one pass. */
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
    float *exp_avg, *exp_avg_sq; /* device, flat->elements each */
    int64_t step;                /* updates made so far */
    /* private */
    struct gpt_backend *be;
    struct gpt_adamw_segment *segments;
    int64_t n_segments;
    struct run *runs; /* stretches that count in the norm */
    int64_t n_runs;
    double *run_sums;    /* host */
    void *memory, *sums; /* device */
};

/* Bytes of the moments and what belongs to them, for `flat`. */
int64_t gpt_optimizer_memory(const struct gpt_flat *flat);

/* Moments are zero. `flat` outlives the optimizer. */
int gpt_optimizer_open(struct gpt_optimizer **optimizer, struct gpt_backend *be,
                       const struct gpt_flat *flat,
                       const struct gpt_optimizer_options *options,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_optimizer_close(struct gpt_optimizer *optimizer);

/* L2 norm of the gradients (tied copies not counted twice). Waits for the
 * queue: errors of the step's operations surface here. */
int gpt_optimizer_norm(struct gpt_optimizer *optimizer, struct gpt_queue *q,
                       const float *gradients, double *norm,
                       struct gpt_err *err) GPT_MUST_USE;

/* One update with gradients scaled by clip/(norm + 1e-6) when that is below
 * one. params: float; params_act: its copy in `act`, or NULL. */
struct gpt_update {
    float *params;
    void *params_act;
    enum gpt_dtype act;
    const float *gradients;
    double norm, lr, weight_decay;
};
void gpt_optimizer_update(struct gpt_optimizer *optimizer, struct gpt_queue *q,
                          const struct gpt_update *update);

#endif
