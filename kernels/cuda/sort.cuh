/* A stable sort of int32 keys on the GPU, for sums that go by key in a fixed
 * order (the backward pass of embeddings). */
#ifndef GPT_KERNELS_CUDA_SORT_CUH
#define GPT_KERNELS_CUDA_SORT_CUH

#include "cuda/cuda.cuh"

/* Device memory: keys in order, and where each came from. */
struct cuda_sorted {
    const int32_t *keys, *from;
};

/* Sorts keys (n) that lie in 0..limit-1; others become `limit` and come last.
 * The result lies in `work`, of gpu_sort_scratch() bytes. */
struct cuda_sorted cuda_sort(struct gpt_queue *q, const int32_t *keys, int64_t n, int32_t first,
                             int32_t limit, void *work);

#endif
