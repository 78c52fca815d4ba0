/* What a plan costs, for a world of any size that need not be started: memory
 * of every pipeline stage, bytes that a rank sends in a step, the bubble, the
 * largest microbatch that fits. All of it follows from the parameter table, the
 * layout and the schedule; the code that sizes memory is the code that
 * allocates it. For --dry-run. */
#ifndef GPT_CMD_TRAIN_ESTIMATE_H
#define GPT_CMD_TRAIN_ESTIMATE_H

#include "cmd/train/plan.h"

/* Everything that the rank of this replica, open or not, allocates for a run:
 * the replica, its communicators, batches, and with --save the copy that is
 * saved in the background. */
int gpt_estimate_rank(const struct gpt_train_plan *plan,
                      const struct gpt_replica *replica,
                      struct gpt_memory *memory,
                      struct gpt_err *err) GPT_MUST_USE;

/* Bytes of host memory that the communicators of that rank hold when they go
 * through Gloo. */
int gpt_estimate_calls(const struct gpt_replica *replica,
                       const struct gpt_topology *topology, int64_t *bytes,
                       struct gpt_err *err) GPT_MUST_USE;

/* The same as gpt_estimate_rank() for any rank of a pipeline stage (tensor
 * parallel rank 0 is taken, which holds no less than the others), and its
 * number of parameters. */
int gpt_estimate_memory(const struct gpt_train_plan *plan,
                        struct gpt_backend *be, int64_t pp_rank,
                        struct gpt_memory *memory, int64_t *parameters,
                        struct gpt_err *err) GPT_MUST_USE;

/* Memory of the device that a rank needs, at the rank that needs most. */
int gpt_estimate_largest(const struct gpt_train_plan *plan,
                         struct gpt_backend *be, double *bytes,
                         struct gpt_err *err) GPT_MUST_USE;

/* Groups that a step sends over. Sums of a few numbers are not counted. */
enum gpt_link {
    GPT_LINK_TENSOR,   /* activations within layers */
    GPT_LINK_PIPELINE, /* between stages */
    GPT_LINK_DATA,     /* gradients, and weights of a distributed optimizer */
    GPT_LINK_TIED,     /* the word table's gradient, first and last stage */
    GPT_N_LINKS
};

/* Idle time of a stage divided by its time of computing: (P - 1) / (V m). */
double gpt_estimate_bubble(const struct gpt_train_plan *plan);

/* The largest --micro-batch-size, a divisor of a rank's samples a step, with
 * which every rank stays within `limit` bytes of the device; 0 when none
 * does. */
int gpt_estimate_fit(const struct gpt_train_plan *plan, struct gpt_backend *be,
                     double limit, int64_t *micro_batch,
                     struct gpt_err *err) GPT_MUST_USE;

/* Logs all of these, a line each. limit: bytes of memory of a rank, 0 when it
 * is not known. */
int gpt_estimate_print(const struct gpt_train_plan *plan,
                       struct gpt_backend *be, double limit,
                       struct gpt_err *err) GPT_MUST_USE;

#endif
