/* Radix sort, least significant digit first. A pass counts digits by block; then
 * each block adds up the counts before its own, and moves its elements. A block
 * takes them a tile at a time, and a warp of it 32 neighbours at a time, so that
 * equal digits keep their order. */
#include "cuda/sort.cuh"

#include "cuda/device.cuh"

/* A tile is WARPS x ROUNDS x 32 elements. */
enum { LANES = 32, WARPS = 8, THREADS = WARPS * LANES, ROUNDS = 4 };
enum { TILE = THREADS * ROUNDS, MOST_BITS = 10, DIGITS = 1 << MOST_BITS };
static_assert(TILE == (int)GPU_SORT_TILE && DIGITS == (int)GPU_SORT_DIGITS,
              "gpu_sort_scratch()");

struct pass {
    const int32_t *keys, *from; /* from: NULL: the first pass */
    int32_t first, limit;       /* what becomes 0, in the first pass; see key_of() */
    int64_t n, each;            /* each: elements of a block */
    int shift, bits;
    int32_t *counts; /* (blocks, 1 << bits) */
    int32_t *to, *to_from;
};

/* A pass for each list: that of a block is number blockIdx.y. */
struct passes {
    pass of[CUDA_LISTS];
};

static __device__ inline pass own_pass(const passes &p)
{
    return blockIdx.y ? p.of[1] : p.of[0];
}

/* The key of element i: first .. becomes 0 .., and what is not in 0 .. limit - 1 becomes limit. */
static __device__ inline int32_t key_of(const pass &p, int64_t i)
{
    if (p.from)
        return p.keys[i];
    int64_t key = (int64_t)p.keys[i] - p.first;

    return key >= 0 && key < p.limit ? (int32_t)key : p.limit;
}

static __device__ inline int digit_of(const pass &p, int32_t key)
{
    return key >> p.shift & ((1 << p.bits) - 1);
}

static __global__ void __launch_bounds__(THREADS) count_digits(passes all)
{
    __shared__ int count[DIGITS];
    const pass p = own_pass(all);
    int64_t begin = blockIdx.x * p.each, end = min(begin + p.each, p.n);

    for (int d = threadIdx.x; d < 1 << p.bits; d += THREADS)
        count[d] = 0;
    __syncthreads();
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        /* Whole numbers: the order of additions does not show. */
        atomicAdd(&count[digit_of(p, key_of(p, i))], 1);
    __syncthreads();
    for (int d = threadIdx.x; d < 1 << p.bits; d += THREADS)
        p.counts[((int64_t)blockIdx.x << p.bits) + d] = count[d];
}

/* Finds where this block's first element of each digit goes: after all elements with a lower digit,
 * and those of earlier blocks with the same. */
static __device__ void first_places(int *place, const pass &p)
{
    __shared__ int warp_total[WARPS];
    const int each = DIGITS / THREADS; /* neighbouring digits of a thread */
    int total[each] = {}, before[each] = {}, own = 0;

#pragma unroll
    for (int k = 0; k < each; k++) {
        int d = threadIdx.x * each + k;

        if (d >= 1 << p.bits)
            break;
#pragma unroll 8
        for (int b = 0; b < (int)gridDim.x; b++) {
            int count = p.counts[((int64_t)b << p.bits) + d];

            total[k] += count;
            before[k] += b < (int)blockIdx.x ? count : 0;
        }
        own += total[k];
    }
    int upto = own, lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
#pragma unroll
    for (int by = 1; by < LANES; by *= 2) {
        int left = __shfl_up_sync(ALL_LANES, upto, by);

        upto += lane >= by ? left : 0;
    }
    if (lane == LANES - 1)
        warp_total[warp] = upto;
    __syncthreads();
    int start = upto - own;
    for (int w = 0; w < warp; w++)
        start += warp_total[w];
#pragma unroll
    for (int k = 0; k < each; k++) {
        place[threadIdx.x * each + k] = start + before[k];
        start += total[k];
    }
}

static __global__ void __launch_bounds__(THREADS) move_keys(passes all)
{
    /* `next` of the block; and of a tile, of each warp: counts, then places */
    __shared__ int next[DIGITS], warp_next[WARPS][DIGITS];
    const pass p = own_pass(all);
    int lane = threadIdx.x % LANES, *mine = warp_next[threadIdx.x / LANES];
    int64_t begin = blockIdx.x * p.each, end = min(begin + p.each, p.n);

    first_places(next, p);
    for (int64_t tile = begin; tile < end; tile += TILE) {
        int64_t i0 = tile + threadIdx.x / LANES * ROUNDS * LANES + lane;
        int32_t key[ROUNDS], from[ROUNDS];
        int digit[ROUNDS], rank[ROUNDS];

#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            int64_t i = i0 + r * LANES;

            key[r] = i < end ? key_of(p, i) : 0;
            from[r] = i < end && p.from ? p.from[i] : (int32_t)i;
            digit[r] = i < end ? digit_of(p, key[r]) : DIGITS;
        }
        for (int d = lane; d < 1 << p.bits; d += LANES)
            mine[d] = 0;
        __syncwarp();
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            /* The rank among equal digits, by lane, keeps their order. One lane of
             * each digit counts for all; the barriers keep reads of `mine` before
             * it and after. */
            unsigned equal = __match_any_sync(ALL_LANES, digit[r]);
            int among = __popc(equal & ((1u << lane) - 1));

            rank[r] = digit[r] < DIGITS ? mine[digit[r]] + among : 0;
            __syncwarp();
            if (digit[r] < DIGITS && among == 0)
                mine[digit[r]] += __popc(equal);
            __syncwarp();
        }
        __syncthreads();
        for (int d = threadIdx.x; d < 1 << p.bits; d += THREADS) {
            int at = next[d];

            for (int w = 0; w < WARPS; w++) {
                int count = warp_next[w][d];

                warp_next[w][d] = at;
                at += count;
            }
            next[d] = at;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < ROUNDS; r++)
            if (digit[r] < DIGITS) {
                p.to[mine[digit[r]] + rank[r]] = key[r];
                p.to_from[mine[digit[r]] + rank[r]] = from[r];
            }
        __syncwarp(); /* before the next tile's counts */
    }
}

/* How many bits the largest key has. */
static int bits_of(const struct cuda_list &list)
{
    int bits = 1;

    while (bits < 31 && (list.limit - list.whole) >> bits)
        bits++;
    return bits;
}

void cuda_sort(struct gpt_queue *q, struct cuda_sorted *sorted, const struct cuda_list *list,
               int lists, int64_t n, void *work)
{
    const int64_t each = gpu_sort_each(n), blocks = cuda_blocks(n, each);
    passes all = {};
    int n_passes = 1;

    for (int k = 0; k < lists; k++)
        n_passes = max(n_passes, (int)cuda_blocks(bits_of(list[k]), MOST_BITS));
    for (int k = 0; k < lists; k++) {
        int32_t *to = (int32_t *)((char *)work + k * gpu_sort_scratch(n));

        all.of[k] = {list[k].keys, NULL, list[k].first, list[k].limit, n, each, 0,
                     (int)cuda_blocks(bits_of(list[k]), n_passes), to + 4 * n, to, to + n};
    }
    for (int i = 0; i < n_passes; i++) {
        launch(q, count_digits, dim3(blocks, lists), THREADS, 0, all);
        launch(q, move_keys, dim3(blocks, lists), THREADS, 0, all);
        for (int k = 0; k < lists; k++) {
            pass &p = all.of[k];
            int32_t *first = p.counts - 4 * n; /* of the list's work */

            p.shift += p.bits;
            p.keys = p.to;
            p.from = p.to_from;
            p.to = p.to == first ? first + 2 * n : first; /* the other half */
            p.to_from = p.to + n;
        }
    }
    for (int k = 0; k < lists; k++)
        sorted[k] = {all.of[k].keys, all.of[k].from};
}
