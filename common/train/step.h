/* One training step and one validation over a replica. */
#ifndef GPT_TRAIN_STEP_H
#define GPT_TRAIN_STEP_H

#include "train/feed.h"
#include "train/replica.h"

struct gpt_step {
    int64_t first_sample, micro_batches;
    double lr, weight_decay;
    /* results */
    double loss;      /* sum of losses / sum of unmasked tokens of the batch */
    double grad_norm; /* before clipping */
    bool skipped;     /* loss or norm was not finite: nothing was updated */
};

/* Forward and backward over the microbatches, norm, update. The feed must hold
 * the batch (gpt_feed_read). */
int gpt_step_train(struct gpt_replica *replica, struct gpt_feed *feed,
                   struct gpt_step *step, struct gpt_err *err) GPT_MUST_USE;

/* Adds losses and unmasked rows of the batch that the feed holds. */
int gpt_step_eval(struct gpt_replica *replica, struct gpt_feed *feed,
                  int64_t micro_batches, double *loss_sum, int64_t *rows,
                  struct gpt_err *err) GPT_MUST_USE;

#endif
