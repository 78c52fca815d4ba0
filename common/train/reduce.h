/* Sums of gradients over data parallel ranks, bucket by bucket while backward
 * still runs: a lane with a communicator of its own works through the buckets
 * in the order in which they are completed, which is the same on all ranks.
 * Also the memory of gradients, which follows from how they are summed.
 *
 * - no distributed optimizer: each bucket is all-reduced in place;
 * - ZeRO-1: each is reduce-scattered, its sum is left in this rank's shard;
 * - ZeRO-2: there are no whole gradients: layers take turns in two buffers,
 *   after every microbatch a layer's bucket is reduce-scattered and added to
 *   the shard. Buckets outside the layers are whole during a step.
 *
 * Without other data parallel ranks there is no lane and nothing is copied.
 * Start at gpt_reducer_hooks(). */
#ifndef GPT_TRAIN_REDUCE_H
#define GPT_TRAIN_REDUCE_H

#include "model/stage.h"
#include "parallel/lane.h"
#include "parallel/world.h"

enum gpt_zero {
    GPT_ZERO_OFF, /* every rank has all */
    GPT_ZERO_1,   /* optimizer state in shards */
    GPT_ZERO_2,   /* gradients, too */
};

struct gpt_reducer;

struct gpt_reducer_options {
    const struct gpt_flat *flat; /* outlives the reducer */
    enum gpt_zero zero;          /* as GPT_ZERO_OFF when flat->shards is 1 */
    bool sequence_parallel; /* tensor parallel ranks hold parts of some sums */
    struct gpt_world *world; /* NULL: a single rank */
    struct gpt_queue *q;     /* on which backward runs */
};

/* Bytes of gradients and buffers. Reads flat, zero and sequence_parallel. */
int64_t gpt_reducer_memory(const struct gpt_reducer_options *options);
/* Elements of all gradients that tensor parallel ranks hold in parts. */
int64_t gpt_reducer_pieces(const struct gpt_reducer_options *options);
/* The call that sums a bucket over data parallel ranks, without its memory. */
struct gpt_collective gpt_reducer_call(const struct gpt_flat *flat,
                                       int64_t bucket);
/* True when every backward overwrites the gradients of layers, instead of
 * adding to them (ZeRO-2). For gpt_stage_options.fresh_gradients. */
bool gpt_reducer_overwrites(const struct gpt_reducer_options *options);

int gpt_reducer_open(struct gpt_reducer **r, struct gpt_backend *be,
                     const struct gpt_reducer_options *options,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_reducer_close(struct gpt_reducer *r); /* NULL is fine */

/* Memory of every bucket, for gpt_stage_open(). Unless layers' gradients are
 * overwritten, one block in the order of the flat buffer. */
float *const *gpt_reducer_buckets(const struct gpt_reducer *r);
struct gpt_gradient_hooks gpt_reducer_hooks(struct gpt_reducer *r);

/* Begins a step. */
void gpt_reducer_begin(struct gpt_reducer *r);
/* Begins a backward. last: it is its chunk's last of the step
 * (gpt_action.last), so each of the chunk's buckets is summed as soon as it is
 * written. */
void gpt_reducer_begin_backward(struct gpt_reducer *r, bool last);
/* Adds up the two copies of a tied word table, waits for all sums, then adds up
 * what tensor parallel ranks hold in parts. */
int gpt_reducer_finish(struct gpt_reducer *r, struct gpt_err *err) GPT_MUST_USE;

/* After the step: gradients of this rank's shard of every bucket
 * (gpt_bucket_shard). */
float *const *gpt_reducer_shards(const struct gpt_reducer *r);

/* The lane of the sums; NULL without other data parallel ranks. */
struct gpt_lane *gpt_reducer_lane(const struct gpt_reducer *r);

/* Seconds of the last step that backward and gpt_reducer_finish() waited for
 * sums over data parallel ranks, and that these took. */
void gpt_reducer_times(const struct gpt_reducer *r, double *exposed,
                       double *total);
/* Seconds that backward has waited so far in this step; also while sums are
 * under way. */
double gpt_reducer_waited(const struct gpt_reducer *r);

#endif
