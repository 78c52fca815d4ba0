/* What the router and the rows of experts share on the CPU: rows are float or
 * bf16. */
#ifndef GPT_KERNELS_CPU_EXPERTS_H
#define GPT_KERNELS_CPU_EXPERTS_H

#include "cpu/cpu.h"

#include <math.h>

/* True where a row is bf16; else it is float. */
static inline bool cpu_is_narrow(enum gpt_dtype act)
{
    return act == GPT_BF16;
}

/* The CPU computes in both: any other type is a failure of the queue. */
static inline bool cpu_rows_ready(struct gpt_queue *q, const char *what,
                                  enum gpt_dtype act)
{
    return cpu_ready(q, what, cpu_is_narrow(act) ? GPT_F32 : act);
}

static inline size_t cpu_row_bytes(int64_t c, enum gpt_dtype act)
{
    return (size_t)c * (cpu_is_narrow(act) ? sizeof(uint16_t) : sizeof(float));
}

static inline float cpu_logistic(float x)
{
    return 1 / (1 + expf(-x));
}

#endif
