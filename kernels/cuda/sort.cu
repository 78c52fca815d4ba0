/* Radix sort, least significant digit first, eight bits at a time. A pass
 * counts digits by block, makes places of the counts, and moves elements: a
 * block is one warp, which takes its elements 32 at a time, so that equal
 * digits keep their order. */
#include "cuda/sort.cuh"

#include "cuda/device.cuh"

enum { DIGITS = 256, EACH = 1024, SCAN = 256 };

/* first.. becomes 0..; what is not in 0..limit-1 becomes limit. */
static __global__ void number_keys(int32_t *to, int32_t *from, const int32_t *keys, int64_t n,
                                   int32_t first, int32_t limit)
{
    int64_t i = (int64_t)blockIdx.x * SCAN + threadIdx.x;

    if (i >= n)
        return;
    int64_t key = (int64_t)keys[i] - first;
    to[i] = key >= 0 && key < limit ? (int32_t)key : limit;
    from[i] = (int32_t)i;
}

/* counts (DIGITS, blocks) */
static __global__ void count_digits(int32_t *counts, const int32_t *keys, int64_t n, int shift)
{
    __shared__ int count[DIGITS];

    for (int i = threadIdx.x; i < DIGITS; i += 32)
        count[i] = 0;
    __syncwarp();
    int64_t begin = (int64_t)blockIdx.x * EACH;
    for (int64_t i = begin + threadIdx.x; i < n && i < begin + EACH; i += 32)
        /* Whole numbers: the order of additions does not show. */
        atomicAdd(&count[keys[i] >> shift & (DIGITS - 1)], 1);
    __syncwarp();
    for (int i = threadIdx.x; i < DIGITS; i += 32)
        /* By digit, then by block: the sum over all before is the place. */
        counts[(int64_t)i * gridDim.x + blockIdx.x] = count[i];
}

/* Each count becomes the sum of those before it; one block. */
static __global__ void sum_before(int32_t *counts, int64_t n)
{
    __shared__ int warp_total[SCAN / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, before = 0;

    for (int64_t i0 = 0; i0 < n; i0 += SCAN) {
        int64_t i = i0 + threadIdx.x;
        int own = i < n ? counts[i] : 0, upto = own;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            int left = __shfl_up_sync(ALL_LANES, upto, by);

            upto += lane >= by ? left : 0;
        }
        if (lane == 31)
            warp_total[warp] = upto;
        __syncthreads();
        int start = before;
        for (int w = 0; w < SCAN / 32; w++) {
            start += w < warp ? warp_total[w] : 0;
            before += warp_total[w];
        }
        if (i < n)
            counts[i] = start + upto - own;
        __syncthreads();
    }
}

static __global__ void move_keys(int32_t *to, int32_t *to_from, const int32_t *keys,
                                 const int32_t *from, const int32_t *places, int64_t n,
                                 int shift)
{
    __shared__ int next[DIGITS];

    for (int i = threadIdx.x; i < DIGITS; i += 32)
        next[i] = places[(int64_t)i * gridDim.x + blockIdx.x];
    __syncwarp();
    int64_t begin = (int64_t)blockIdx.x * EACH;
    for (int64_t i0 = begin; i0 < n && i0 < begin + EACH; i0 += 32) {
        int64_t i = i0 + threadIdx.x;
        int digit = i < n ? keys[i] >> shift & (DIGITS - 1) : DIGITS;
        /* The rank among equal digits of the warp, by lane, keeps their order. */
        unsigned equal = __match_any_sync(ALL_LANES, digit);
        int rank = __popc(equal & ((1u << threadIdx.x) - 1)), place = 0;

        if (i < n) {
            place = next[digit] + rank;
            to[place] = keys[i];
            to_from[place] = from[i];
        }
        __syncwarp();
        /* One lane of each digit counts for all; the barriers keep reads of next
         * before it and after. */
        if (i < n && rank == 0)
            next[digit] += __popc(equal);
        __syncwarp();
    }
}

size_t cuda_sort_work(int64_t n)
{
    return (size_t)(4 * n + DIGITS * cuda_blocks(n, EACH)) * sizeof(int32_t);
}

struct cuda_sorted cuda_sort(struct gpt_queue *q, const int32_t *keys, int64_t n, int32_t first,
                             int32_t limit, void *work)
{
    int32_t *key = (int32_t *)work, *from = key + n, *key2 = from + n, *from2 = key2 + n;
    int32_t *counts = from2 + n;
    int64_t blocks = cuda_blocks(n, EACH);

    launch(q, number_keys, cuda_blocks(n, SCAN), SCAN, 0, key, from, keys, n, first, limit);
    /* Only digits that the largest key, limit, has. */
    for (int shift = 0; shift < 32 && limit >> shift; shift += 8) {
        launch(q, count_digits, blocks, 32, 0, counts, (const int32_t *)key, n, shift);
        launch(q, sum_before, 1, SCAN, 0, counts, DIGITS * blocks);
        launch(q, move_keys, blocks, 32, 0, key2, from2, (const int32_t *)key,
               (const int32_t *)from, (const int32_t *)counts, n, shift);
        std::swap(key, key2);
        std::swap(from, from2);
    }
    struct cuda_sorted sorted = {key, from};
    return sorted;
}
