/* Dropout of attention on tensor cores: a Philox block serves four neighbouring
 * keys; lanes that hold parts of a block share the work and exchange bits. Start
 * at flash_keep_rows() and flash_keep_columns(). */
#ifndef GPT_KERNELS_CUDA_FLASH_DROP_CUH
#define GPT_KERNELS_CUDA_FLASH_DROP_CUH

#include "cuda/attn.cuh"

/* Bit i: the probability with counter at + i stays. */
__device__ inline uint32_t flash_keep4(const struct cuda_drop &d, uint64_t at)
{
    unsigned skip = (unsigned)at % 4;
    uint4 low = philox(d.key, at / 4), high = low;

    if (skip)
        high = philox(d.key, at / 4 + 1);
    uint32_t kept = 0;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        uint32_t word = skip + i < 4 ? word_of(low, skip + i) : word_of(high, skip + i - 4);

        kept |= (uint32_t)(word >= d.below) << i;
    }
    return kept;
}

/* Bit 4 n + i: the probability with counter at + n * step + i stays, n < N <= 8. */
template <int N>
__device__ inline uint32_t flash_keep_blocks(const struct cuda_drop &d, uint64_t at,
                                             uint64_t step)
{
    uint64_t block = at / 4, last = (at + (N - 1) * step) / 4;
    bool whole = at % 4 == 0 && step % 4 == 0 && block >> 32 == last >> 32;
    uint32_t kept = 0;

    if (!__all_sync(ALL_LANES, whole)) {
        /* Sequences whose length is no multiple of four, and one tile in
         * millions of others. */
#pragma unroll 1
        for (int n = 0; n < N; n++)
            kept |= flash_keep4(d, at + n * step) << 4 * n;
        return kept;
    }
    /* Four blocks side by side, as each step of one waits for the step before; more
     * would cost registers. What becomes of the upper half of a counter in the first
     * rounds is computed once. */
    constexpr int AT_ONCE = N < 4 ? N : 4;
    uint64_t high = block >> 32 << 32;
    uint32_t low = (uint32_t)block, by = (uint32_t)(step / 4);
#pragma unroll 1
    for (int n = 0; n < N; n += AT_ONCE) {
        uint32_t some = 0;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            uint4 words = philox(d.key, high | (uint32_t)(low + (n + i) * by));
#pragma unroll
            for (int k = 0; k < 4; k++)
                some |= word_of(words, k) >= d.below ? 1u << (4 * i + k) : 0;
        }
        kept |= some << 4 * n;
    }
    return kept;
}

/* For `d` fragments of (16 queries, 8 N keys), N <= 8: bit 4 n + e is that of
 * element e of fragment n. at: the counter of (0, 0); t: counters from one
 * query to the next. Lanes t and t ^ 1 hold a Philox block of row g and one of
 * row g + 8: each computes one of the two. */
template <int N>
__device__ inline uint32_t flash_keep_rows(const struct cuda_drop &d, uint64_t at, int64_t t)
{
    int lane = threadIdx.x % 32, odd = lane % 2;

    at += (unsigned)((lane / 4 + 8 * odd) * (int)t + lane % 4 / 2 * 4);
    uint32_t mine = flash_keep_blocks<N>(d, at, 8);
    uint32_t other = __shfl_xor_sync(ALL_LANES, mine, 1), pairs = 0x33333333;
    uint32_t first = (odd ? other : mine) >> 2 * odd, second = (odd ? mine : other) >> 2 * odd;

    return (first & pairs) | (second & pairs) << 2;
}

/* For `d` fragments of (16 keys, 8 N queries): bit 4 n of kept[e] is that of
 * element e of fragment n. The four lanes that hold a Philox block hold four
 * of them, by element: each computes one. */
template <int N>
__device__ inline void flash_keep_columns(uint32_t (&kept)[4], const struct cuda_drop &d,
                                          uint64_t at, int64_t t)
{
    int lane = threadIdx.x % 32, part = lane / 4 % 4;

    at += (uint64_t)((lane % 4 * 2 + part % 2) * t + lane / 16 * 4 + part / 2 * 8);
    uint32_t mine = flash_keep_blocks<N>(d, at, 8 * (uint64_t)t);
#pragma unroll
    for (int e = 0; e < 4; e++)
        kept[e] = __shfl_sync(ALL_LANES, mine, (lane & ~12) | e * 4) >> part;
}

#endif
