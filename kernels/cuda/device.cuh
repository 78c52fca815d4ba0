/* Inside kernels: conversions, wide accesses, sums over warps and blocks,
 * dropout. W is a number of elements that a thread moves at once; they are
 * float in registers, whatever their type in memory. */
#ifndef GPT_KERNELS_CUDA_DEVICE_CUH
#define GPT_KERNELS_CUDA_DEVICE_CUH

#include "cuda/cuda.cuh"

#include <string.h>

static const unsigned ALL_LANES = ~0u;

/* x of lane 0, for all lanes. Where all lanes have the same number, this shows
 * it to the compiler, which then keeps it in a register of the warp. */
template <class T> __device__ inline T warp_uniform(T x)
{
    return __shfl_sync(ALL_LANES, x, 0);
}

/* ---- elements ---- */

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T> __device__ T from_float(float x);
template <> __device__ inline float from_float<float>(float x) { return x; }
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16(x);
}
template <> __device__ inline __half from_float<__half>(float x) { return __float2half(x); }

/* Moved at once where that is at most 16 bytes, else 16 bytes at a time. */
template <class T, int W> struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) pack {
    T v[W];
};

template <int W, class T> __device__ inline void load(float (&x)[W], const T *from)
{
#ifdef GPT_CUDA_EMU
    emu::check_aligned(from, alignof(pack<T, W>));
#endif
    pack<T, W> p = *reinterpret_cast<const pack<T, W> *>(from);
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] = to_float(p.v[i]);
}

/* x becomes what memory then holds. */
template <int W, class T> __device__ inline void store(T *to, float (&x)[W])
{
#ifdef GPT_CUDA_EMU
    emu::check_aligned(to, alignof(pack<T, W>));
#endif
    pack<T, W> p;
#pragma unroll
    for (int i = 0; i < W; i++) {
        p.v[i] = from_float<T>(x[i]);
        x[i] = to_float(p.v[i]);
    }
    *reinterpret_cast<pack<T, W> *>(to) = p;
}

/* W elements on their way from memory, or kept as memory has them: in whole
 * registers, where the compiler would give each element of 16 bits its own, and
 * wait for it at once. */
template <class T, int W> struct alignas(pack<T, W>) words {
    using word = std::conditional_t<sizeof(T) * W % 4 == 0, uint32_t, uint16_t>;
    static const int N = sizeof(T) * W / sizeof(word);
    word v[N];
};

template <int W, class T> __device__ inline words<T, W> load_words(const T *from)
{
#ifdef GPT_CUDA_EMU
    emu::check_aligned(from, alignof(pack<T, W>));
#endif
    return *reinterpret_cast<const words<T, W> *>(from);
}

template <int W, class T> __device__ inline void store_words(T *to, const words<T, W> &x)
{
#ifdef GPT_CUDA_EMU
    emu::check_aligned(to, alignof(pack<T, W>));
#endif
    *reinterpret_cast<words<T, W> *>(to) = x;
}

template <class T, class B> __device__ inline T from_bits(B bits)
{
    T x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Element i, as a float. */
template <class T, int W> __device__ inline float element(const words<T, W> &x, int i)
{
    const int each = sizeof(x.v[0]) / sizeof(T); /* elements of a word */

    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        uint32_t word = x.v[i / each];

        return from_bits<float>(i % each ? word & 0xffff0000u : word << 16);
    } else if constexpr (each == 2) {
        return to_float(from_bits<T>((uint16_t)(x.v[i / each] >> i % each * 16)));
    } else {
        return to_float(from_bits<T>(x.v[i]));
    }
}

template <int W, class T> __device__ inline void unpack(float (&x)[W], const words<T, W> &from)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] = element(from, i);
}

/* Makes the compiler convert x again where it is used again: it would keep the
 * floats, which are twice as many registers. */
template <int W, class T> __device__ inline void convert_again(words<T, W> &x)
{
#ifdef GPT_CUDA_EMU
    (void)x;
#else
    if constexpr (sizeof(x.v[0]) == 4)
#pragma unroll
        for (int i = 0; i < x.N; i++)
            asm volatile("" : "+r"(x.v[i]));
#endif
}

/* 2^x; numbers below 2^-126 are 0. */
__device__ inline float exp2_fast(float x)
{
#ifdef GPT_CUDA_EMU
    return x < -126 ? 0 : exp2f(x);
#else
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* The block's dynamic shared memory. */
__device__ inline float *dynamic_floats()
{
#ifdef GPT_CUDA_EMU
    return reinterpret_cast<float *>(emu::dynamic_shared());
#else
    extern __shared__ __align__(128) float gpt_dynamic_shared[];
    return gpt_dynamic_shared;
#endif
}

/* ---- sums; every thread gets the result ---- */

template <class T> __device__ inline T warp_sum(T x)
{
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, lanes);
    return x;
}

__device__ inline float warp_max(float x)
{
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, lanes));
    return x;
}

/* N sums at once. Blocks are whole warps in one dimension. */
template <int N, class T> __device__ inline void block_sum(T (&x)[N])
{
    __shared__ T part[N][32];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[i] = warp_sum(x[i]);
        if (lane == 0)
            part[i][warp] = x[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = warp_sum(lane < warps ? part[i][lane] : T(0));
    __syncthreads(); /* part is free again */
}

/* ---- dropout: element i takes word i % 4 of Philox block i / 4 (base/rng.h) ---- */

__device__ inline uint4 philox(const uint32_t (&key)[10][2], uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = 0, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        /* One instruction each; __umulhi() and a 32-bit product would be two. */
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ key[round][0];
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ key[round][1];
        c3 = (uint32_t)p0;
    }
    return make_uint4(c0, c1, c2, c3);
}

__device__ inline uint32_t word_of(uint4 block, unsigned i)
{
    return i == 0 ? block.x : i == 1 ? block.y : i == 2 ? block.z : block.w;
}

/* Global number of row 0's sample. */
__device__ inline int64_t drop_sample0(const struct cuda_drop &d)
{
    return d.sample0 + (d.samples ? __ldg(d.samples) : 0);
}

/* Counter of element (row, 0) of rows of c. Rows are counted in 32 bits, as blocks
 * are: a division of 64 bits would cost as much as the random bits of a row. */
__device__ inline uint64_t drop_index(const struct cuda_drop &d, int64_t row, int64_t c)
{
    uint32_t t_local = (uint32_t)d.t_local, before = (uint32_t)row / t_local;
    int64_t sample = drop_sample0(d) + before, t = d.t0 + ((uint32_t)row - before * t_local);

    return (uint64_t)((sample * d.t_global + t) * c);
}

/* x with dropout, counters from `index` on. Of wide accesses index is a multiple of
 * four, as rows and their pieces are: a Philox block serves four elements. */
template <int W> __device__ inline void drop(float (&x)[W], const struct cuda_drop &d,
                                             uint64_t index)
{
    const bool whole = W % 4 == 0;
    uint4 block = philox(d.key, index / 4);

#ifdef GPT_CUDA_EMU
    if (whole && index % 4)
        emu::fail("dropout of %d elements from counter %llu on", W, (unsigned long long)index);
#endif
#pragma unroll
    for (int i = 0; i < W; i++) {
        unsigned word = (unsigned)((whole ? 0 : index) + i) % 4;

        if (i && word == 0)
            block = philox(d.key, (index + i) / 4);
        x[i] = word_of(block, word) < d.below ? 0 : x[i] * d.scale;
    }
}

/* Where there is dropout: the counter of element (row, 0), once a row, and W
 * elements with dropout from a counter on. */
__device__ inline uint64_t drop_begin(const struct cuda_drop &d, int64_t row, int64_t c)
{
    return d.below ? drop_index(d, row, c) : 0;
}

template <int W> __device__ inline void drop_any(float (&x)[W], const struct cuda_drop &d,
                                                 uint64_t index)
{
    if (d.below)
        drop(x, d, index);
}

/* ---- rows ---- */

/* A thread's row where a block has several, whose threads lie along x. */
__device__ inline int64_t own_row() { return (int64_t)blockIdx.x * blockDim.y + threadIdx.y; }

/* ---- faults ---- */

__device__ inline void raise_fault(struct cuda_fault *fault, int kind, long long row, int value,
                                   long long limit)
{
    if (atomicCAS(&fault->kind, (int)CUDA_FAULT_NONE, kind) != CUDA_FAULT_NONE)
        return;
    fault->row = row;
    fault->value = value;
    fault->limit = limit;
}

#endif
