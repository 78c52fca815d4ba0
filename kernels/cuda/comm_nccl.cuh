/* What cuda.cu needs of comm_nccl.cu. */
#ifndef GPT_KERNELS_CUDA_COMM_NCCL_CUH
#define GPT_KERNELS_CUDA_COMM_NCCL_CUH

#include "cuda/cuda.cuh"

extern "C" {
#include "collectives.h"
}

/* NULL where this was built without nccl.h. */
const struct gpt_collectives *cuda_collectives(void);
/* The library's name and version, or why it is not there, for describe(). */
const char *cuda_collectives_library(void);

/* Waits for the queue's stream; false after recording a failure. cuda_abandoned() is true once a
 * stream's aborted collective does not end. No call that waits for that stream, or for the device,
 * may be made from then on. */
bool cuda_wait(struct gpt_queue *q);
bool cuda_abandoned(void);

#endif
