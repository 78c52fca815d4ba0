/* Weights of a distributed optimizer: after an update every data parallel rank
 * has its own shard of each bucket, and gathers those of the others. Buckets
 * are gathered one by one on a lane, in the order of the forward pass. The
 * gatherer waits for them at once; with `overlap` the next forward does, where
 * each layer waits for its own bucket alone.
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
    struct gpt_comm *comm; /* of the data parallel ranks, for this alone */
    struct gpt_queue *q;   /* of update and forward */
    bool overlap;
};

/* The call that gathers a bucket, without its memory. */
struct gpt_collective gpt_gatherer_call(const struct gpt_flat *flat,
                                        int64_t bucket, enum gpt_dtype act);

/* *g is NULL when flat->shards is 1; that is fine for all calls below. */
int gpt_gatherer_open(struct gpt_gatherer **g, struct gpt_backend *be,
                      const struct gpt_gatherer_options *options,
                      struct gpt_err *err) GPT_MUST_USE;
void gpt_gatherer_close(struct gpt_gatherer *g);

/* For gpt_stage_open(); empty without overlap. */
struct gpt_weight_hook gpt_gatherer_hook(struct gpt_gatherer *g);

/* Begins to gather, after this rank's shards were written. */
void gpt_gatherer_begin(struct gpt_gatherer *g);
/* Waits for all buckets, for code that reads weights without the hook. */
void gpt_gatherer_wait(struct gpt_gatherer *g);

struct gpt_lane *gpt_gatherer_lane(const struct gpt_gatherer *g);
/* Times of the gather that was begun last, when it is over. */
struct gpt_lane_times gpt_gatherer_times(const struct gpt_gatherer *g);

#endif
