/* Which data set of a blend has given least for its weight, sample after
 * sample: the inner loop of gpt_blend_build(). Internal to data/. */
#ifndef GPT_DATA_BLEND_ORDER_H
#define GPT_DATA_BLEND_ORDER_H

#include "base/status.h"

struct gpt_blend_order;

/* Normalized weights of n data sets, borrowed; `size` samples will be asked
 * for at most. */
int gpt_blend_order_open(struct gpt_blend_order **order, const double *weight,
                         int64_t n, int64_t size, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_blend_order_close(struct gpt_blend_order *order); /* NULL is fine */

/* The data set of the next sample, and how many it gave before. */
int64_t gpt_blend_order_next(struct gpt_blend_order *order, int64_t *given);

#endif
