/* A stable sort of int32 keys on the GPU, for sums that go by key in a fixed
 * order (the backward pass of embeddings). */
#ifndef GPT_KERNELS_CUDA_SORT_CUH
#define GPT_KERNELS_CUDA_SORT_CUH

#include "cuda/cuda.cuh"

/* A list: first.. becomes 0..; what is not in 0..limit-1 then becomes `limit` and
 * comes last. `whole`: there is nothing such. */
struct cuda_list {
    const int32_t *keys;
    int32_t first, limit;
    bool whole;
};

/* Device memory: keys in order, and where each came from. */
struct cuda_sorted {
    const int32_t *keys, *from;
};

/* Sorts `lists` lists of n keys each, one or two, at the same time: kernels of a sort
 * are short beside the time from one to the next. The results lie in `work`, of
 * gpu_sort_scratch() bytes for each. */
enum { CUDA_LISTS = 2 };
void cuda_sort(struct gpt_queue *q, struct cuda_sorted *sorted, const struct cuda_list *list,
               int lists, int64_t n, void *work);

#endif
