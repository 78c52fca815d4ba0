/* Sums of gradients over the data parallel ranks, bucket by bucket while
 * backward still goes on: a thread with a communicator of its own works through
 * the buckets in the order in which they were completed, which is the same on
 * all ranks. Also where gradients live, which follows from how they are summed.
 *
 * - no distributed optimizer: each bucket is all-reduced in place;
 * - ZeRO-1: each is reduce-scattered, its sum is left in this rank's shard;
 * - ZeRO-2: there are no whole gradients: layers take turns in two buffers,
 *   after every microbatch a layer's bucket is reduce-scattered and added to
 *   the shard. Buckets outside the layers are whole during a step.
 *
 * Start at gpt_reduce_hooks(). */
#ifndef GPT_TRAIN_REDUCE_H
#define GPT_TRAIN_REDUCE_H

#include "model/stage.h"
#include "parallel/world.h"

enum gpt_zero {
    GPT_ZERO_OFF, /* every rank has all */
    GPT_ZERO_1,   /* optimizer state in shards */
    GPT_ZERO_2,   /* gradients, too */
};

struct gpt_reduce;

/* Bytes of gradients and buffers. */
int64_t gpt_reduce_memory(const struct gpt_flat *flat, enum gpt_zero zero);

/* world may be NULL: a single rank. flat->shards is the data parallel size
 * unless zero is GPT_ZERO_OFF. */
int gpt_reduce_open(struct gpt_reduce **r, struct gpt_backend *be,
                    const struct gpt_flat *flat, enum gpt_zero zero,
                    struct gpt_world *world, struct gpt_err *err) GPT_MUST_USE;
void gpt_reduce_close(struct gpt_reduce *r); /* NULL is fine */

/* Memory of every bucket, for gpt_stage_open(). */
float *const *gpt_reduce_buckets(const struct gpt_reduce *r);
struct gpt_gradient_hooks gpt_reduce_hooks(struct gpt_reduce *r);

/* A new step. */
void gpt_reduce_begin(struct gpt_reduce *r);
/* Whether the backward that comes next is its chunk's last of the step
 * (gpt_action.last), which lets the chunk's buckets go. */
void gpt_reduce_last(struct gpt_reduce *r, bool last);
/* Waits for all sums, then adds up what tensor parallel ranks hold in parts
 * (sequence parallelism) and the two copies of a tied word table. */
int gpt_reduce_finish(struct gpt_reduce *r, struct gpt_queue *q,
                      struct gpt_err *err) GPT_MUST_USE;

/* After the step: the gradient of elements [begin, end) of the flat buffer,
 * which lie in this rank's shard of one bucket. */
const float *gpt_reduce_at(const struct gpt_reduce *r, int64_t begin);

/* Seconds of a step that waited for sums, and that sums took. */
void gpt_reduce_times(const struct gpt_reduce *r, double *exposed,
                      double *total);

#endif
