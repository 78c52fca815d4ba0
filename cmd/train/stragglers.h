/* Ranks that compute longer than their peers: over some steps, from times that
 * every step exchanges anyway. */
#ifndef GPT_CMD_TRAIN_STRAGGLERS_H
#define GPT_CMD_TRAIN_STRAGGLERS_H

#include "parallel/world.h"
#include "train/step.h"

struct gpt_stragglers;

/* Watches the ranks of `world`, which outlives it; *s is NULL where no stage
 * has two ranks: stages have different work, and are not compared. */
int gpt_stragglers_open(struct gpt_stragglers **s, struct gpt_world *world,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_stragglers_close(struct gpt_stragglers *s); /* NULL is fine */

/* The times of a step. The first is left out: it allocates and loads. */
void gpt_stragglers_add(struct gpt_stragglers *s,
                        const struct gpt_step_ranks *ranks);

/* When every rank was measured often enough: logs a line for each, with its
 * host, that is more than a tenth above the median of its stage, and begins
 * anew. */
void gpt_stragglers_report(struct gpt_stragglers *s);

#endif
