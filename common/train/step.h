/* One training step and one validation over a replica, or over all replicas
 * together: every rank of the world calls these, and gets the same results.
 *
 * This folder is one step of training: the model of a rank with its memory
 * (replica.h), its batches (feed.h), the pipeline (pipeline.h), the sums of
 * gradients (reduce.h), the update (optimizer.h) and the new weights
 * (gather.h). It knows nothing of options, logs of runs or checkpoints: the
 * program decides how many steps there are. Start here, at gpt_step_train(). */
#ifndef GPT_TRAIN_STEP_H
#define GPT_TRAIN_STEP_H

#include "train/feed.h"
#include "train/replica.h"

/* Seconds of a step on this rank. */
struct gpt_step_times {
    double computing; /* forward and backward */
    double forward, backward; /* of all microbatches, waits within included */
    double busy; /* computing without what was waited for within it */
    double waiting;   /* for other pipeline stages, transfers included */
    double reducing;  /* gradients being summed over data parallel ranks... */
    double exposed;   /* ... of which nothing was computed meanwhile */
    double optimizer; /* the update alone, without the norm */
    /* Sums and gathers over tensor parallel ranks, and the gathering of the
     * weights that this step has computed with; of both the part that was
     * waited for: the rest is hidden behind computing. */
    struct gpt_lane_times tensor, gathering;
};

/* Means over all ranks of what they waited for, seconds. */
struct gpt_step_waits {
    double pipeline, gradients, tensor, weights;
};

/* How long n ranks from `first` on, and then from 0, computed in a step:
 * times.busy of each. All ranks in turns of several steps, where there are very
 * many. */
struct gpt_step_ranks {
    int64_t first, n;
    double busy[GPT_REPLICA_TURN];
};

/* Losses of routers; 0 where the model has none. */
struct gpt_router_losses {
    double balance, size;
};

struct gpt_step {
    int64_t micro_batches; /* of this rank */
    struct gpt_rates rates;
    /* Called when backward is over: sets whether this rank wants to stop, and
     * the signal by which it was asked to, or to save. May be NULL. After the
     * step `stop` and `save` are true on all ranks if any rank wants it, so
     * that all do it after the same step, and `signal` is one that a rank has
     * received, or 0: the run was stopped by it, whatever the rank. */
    void (*ask)(void *context, struct gpt_step *step);
    void *context; /* of ask */
    bool stop, save;
    int signal;
    /* results */
    double loss;      /* sum of losses / sum of unmasked tokens of the batch */
    double grad_norm; /* before clipping */
    struct gpt_router_losses routers; /* in no other loss */
    /* Squared norms of the gradient of the first microbatch, of its mean, and
     * of the whole batch, both of the matrices of layers (noise.h); 0: they are
     * not measured. */
    double noise_small, noise_big;
    double loss_scale; /* of this step, 1: none */
    double row_share;  /* per-token loss: unmasked rows / all rows; else 1 */
    bool skipped;     /* loss or norm was not finite: nothing was updated */
    bool overflow;    /* ... because the loss scale is still too large */
    struct gpt_step_times times;
    double forward, backward; /* means over all ranks of these times */
    struct gpt_step_waits waits;
    struct gpt_step_ranks ranks;
};

/* Forward and backward over the microbatches, norm, update. The feed must hold
 * the batch (gpt_feed_read). */
int gpt_step_train(struct gpt_replica *replica, struct gpt_feed *feed,
                   struct gpt_step *step, struct gpt_err *err) GPT_MUST_USE;

/* Sums over batches that were evaluated. */
struct gpt_evaluation {
    double loss;  /* of unmasked tokens */
    int64_t rows; /* their number */
    /* The part of it whose tokens are text, and its bytes: 0 where the feed
     * does not know them. text_loss / bytes / ln 2 are the bits a byte. */
    double text_loss;
    int64_t bytes;
};

/* Adds losses and unmasked rows of the batch that the feeds of all ranks hold,
 * micro_batches on each of them. All ranks call it and get the same sums; it
 * waits for the queue. */
int gpt_step_eval(struct gpt_replica *replica, struct gpt_feed *feed,
                  int64_t micro_batches, struct gpt_evaluation *sum,
                  struct gpt_err *err) GPT_MUST_USE;

#endif
