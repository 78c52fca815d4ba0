/* Weights of a distributed optimizer: after an update every data parallel rank
 * has its own shard of each bucket, and gathers the others'. Bucket by bucket
 * on a lane, in the order of the forward pass, and waited for at once; or, with
 * `overlap`, by the next forward, where each layer waits for its own bucket
 * alone.
 *
 * Without shards there is nothing to gather, and the gatherer is NULL. Start at
 * gpt_gatherer_begin(). */
#ifndef GPT_TRAIN_GATHER_H
#define GPT_TRAIN_GATHER_H

#include "model/stage.h"
#include "parallel/lane.h"

struct gpt_gatherer;

struct gpt_gatherer_options {
    const struct gpt_flat *flat; /* outlives the gatherer */
    void *weights;               /* device, act, flat->elements; and this */
    enum gpt_dtype act;
    struct gpt_comm *comm; /* of the data parallel ranks, used by nobody else */
    struct gpt_queue *q;   /* of update and forward */
    bool overlap;
};

/* *g is NULL when flat->shards is 1; that is fine for all calls below. */
int gpt_gatherer_open(struct gpt_gatherer **g, struct gpt_backend *be,
                      const struct gpt_gatherer_options *options,
                      struct gpt_err *err) GPT_MUST_USE;
void gpt_gatherer_close(struct gpt_gatherer *g);

/* For gpt_stage_open(); empty where nothing is left to be waited for. */
struct gpt_weight_hook gpt_gatherer_hook(struct gpt_gatherer *g);

/* The shards of this rank are new. */
void gpt_gatherer_begin(struct gpt_gatherer *g);
/* For who reads weights without the hook: all are there. */
void gpt_gatherer_wait(struct gpt_gatherer *g);

struct gpt_lane *gpt_gatherer_lane(const struct gpt_gatherer *g);
/* Of what was begun last, when it is over. */
struct gpt_lane_times gpt_gatherer_times(const struct gpt_gatherer *g);

#endif
