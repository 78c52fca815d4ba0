/* The executor of pipeline schedules: runs the list of actions of this rank's
 * stage (parallel/schedule.h), computing with the stage and exchanging with its
 * neighbours over the pipeline's communicator. Plain accumulation on a single
 * rank is such a list, too. Start at gpt_pipeline_run(). */
#ifndef GPT_TRAIN_PIPELINE_H
#define GPT_TRAIN_PIPELINE_H

#include "parallel/schedule.h"
#include "train/feed.h"
#include "train/reduce.h"

struct gpt_pipeline_options {
    struct gpt_stage *stage;     /* outlives the pipeline */
    struct gpt_reducer *reducer; /* outlives it, too */
    struct gpt_world *world;     /* the same; NULL: a single rank */
    int64_t stages, stage_index, chunks;
    const int32_t *slots; /* of each chunk, as the stage has them */
};

struct gpt_pipeline;

/* Lists the transfers of `message` bytes that are posted together, of the n
 * actions from actions[0] on, without their memory; returns how many. */
int64_t gpt_pipeline_transfers(const struct gpt_action *actions, int64_t n,
                               int64_t message,
                               struct gpt_transfer list[GPT_GROUP_ACTIONS]);

/* Bytes of device memory: a gradient being received, `message` long
 * (gpt_stage_bytes). */
int64_t gpt_pipeline_memory(int64_t stages, int64_t message);

int gpt_pipeline_open(struct gpt_pipeline **pipeline, struct gpt_backend *be,
                      const struct gpt_pipeline_options *options,
                      struct gpt_err *err) GPT_MUST_USE;
void gpt_pipeline_close(struct gpt_pipeline *pipeline); /* NULL is fine */

/* Forward, and unless mode is GPT_STAGE_EVAL backward, of the n microbatches
 * that the feed holds; the last stage leaves losses in the feed. The schedule
 * is built again when n differs from the last call. Fails when another rank has
 * failed. */
int gpt_pipeline_run(struct gpt_pipeline *pipeline, struct gpt_queue *q,
                     struct gpt_feed *feed, int64_t n,
                     enum gpt_stage_mode mode, struct gpt_err *err)
    GPT_MUST_USE;

/* A function that is called with the logits of the passes that follow, on every
 * tensor parallel rank of the last stage, as gpt_stage_result.rows is. All
 * zero: none. It is copied. */
struct gpt_pipeline_watch {
    void (*rows)(void *context, int64_t microbatch,
                 const struct gpt_logit_rows *rows);
    void *context;
};
void gpt_pipeline_watch(struct gpt_pipeline *pipeline,
                        const struct gpt_pipeline_watch *watch);

/* Seconds of the last run: computing, and waiting for neighbours, transfers
 * included. On the busiest stage waiting / computing is at least
 * (P - 1) / (V m). */
void gpt_pipeline_times(const struct gpt_pipeline *pipeline, double *computing,
                        double *waiting);
/* The parts of computing that are forward and backward. On a device that
 * computes beside the host this is only the time to begin them. */
void gpt_pipeline_passes(const struct gpt_pipeline *pipeline, double *forward,
                         double *backward);

#endif
