/* What the backward kernels for tensor cores share: see flash_bwd.cu. */
#ifndef GPT_KERNELS_CUDA_FLASH_BWD_CUH
#define GPT_KERNELS_CUDA_FLASH_BWD_CUH

#include "cuda/flash.cuh"

/* What backward needs of a query. Past the sequence's end lse is infinite, so
 * that its probabilities are 0. */
struct alignas(16) flash_query {
    float lse, delta; /* lse in units of log(2) */
    int first, unused; /* the first key that it sees */
};

/* Where the sequence's end is padded to. */
static __host__ __device__ inline int64_t padded(int64_t t)
{
    return (t + FLASH_ROWS - 1) / FLASH_ROWS * FLASH_ROWS;
}

/* Fills grad->scratch: flash_query (B, H, padded T). */
void cuda_flash_prepare(struct gpt_queue *q, const struct gpt_attn *op,
                        const struct gpt_attn_grad *grad);

/* A tile of queries: of head h, from t on. */
struct query_tile {
    int h, t;
};

/* The next tile of N that sees a key of j.. j + KEYS - 1, of the heads below
 * h_end; false when there is none. A head's first tile begins at j: it sees
 * itself. */
template <int N, int KEYS>
__device__ inline bool advance(const struct attn_shape &s, int b, int j, int h_end,
                               struct query_tile &at)
{
    for (at.t += N; at.t < s.t; at.t += N) {
        if (flash_first<N>(s, b, at.t) < j + KEYS)
            return true;
        if (!s.doc_start) /* windows move on: no later query sees the keys */
            break;
    }
    at.t = j;
    return ++at.h < h_end;
}

#endif
