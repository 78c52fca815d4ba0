/* Reductions of comm.c. Inside parallel/ only. */
#ifndef GPT_PARALLEL_COMM_SUM_H
#define GPT_PARALLEL_COMM_SUM_H

#include "parallel/comm.h"

/* out (n) = from[0] op from[1] op ... from[size - 1], each (n), in this order;
 * out may be one of them. */
typedef void gpt_reduce_fn(uint8_t *out, const uint8_t *const *from,
                           int64_t size, int64_t n, enum gpt_reduce op);

/* NULL for types that are not summed. */
gpt_reduce_fn *gpt_reduce_of(enum gpt_dtype type);

#endif
