/* The backend "cuda-emu", libgpt-cuda-emu.so: CUDA for a C++ compiler. It has
 * what kernels/cuda/ uses of the language and of its runtime, so that the same
 * .cu files run on a CPU; tests/emu/ tests the emulation itself. Blocks are a
 * loop, threads are fibers that stop only where they wait for others (emu.h),
 * shared memory is static. Work on a stream runs in the calling thread, at once
 * or as late as it may. Behaviour that a GPU leaves undefined is an error here,
 * whose message names the place.
 *
 *   cuda.h     types, qualifiers, intrinsics of one thread
 *   emu.h      launches, barriers, shuffles, votes      schedule.cc, warp.cc
 *   half.h     bfloat16 and half
 *   tensor.h   mma, ldmatrix, cp.async                  tensor.cc
 *   async.h    mbarriers, TMA, wgmma: Hopper            async.cc, bulk.cc,
 *                                                       wgmma.cc
 *   runtime.h  memory, properties                       runtime.cc
 *   stream.h   streams, events                          stream.cc
 *   ptx/       kernels as nvcc compiled them, instead of as C++ did
 *
 * GPT_CUDA_EMU_ORDER=forward (the default), reverse or random[:SEED] chooses
 * the order in which blocks and threads run. When results differ between
 * orders, a barrier is missing. */
#ifndef GPT_EMU_CUDA_H
#define GPT_EMU_CUDA_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
/* Blocks run one after another, so that one copy is enough. */
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};
struct uint3 { unsigned x, y, z; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

/* These describe the thread that runs; schedule.cc sets them. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

template <class T> static inline T max(T a, T b) { return a > b ? a : b; }
template <class T> static inline T min(T a, T b) { return a < b ? a : b; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
#define __expf expf /* glibc has declared these names */
#define __logf logf
static inline float __fdividef(float a, float b) { return a / b; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline float __uint_as_float(unsigned u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}
static inline unsigned __float_as_uint(float f)
{
    unsigned u;

    memcpy(&u, &f, sizeof(u));
    return u;
}
template <class T> static inline T __ldg(const T *p) { return *p; }

/* A fiber is switched only where it waits for others, so that these need no
 * lock. */
template <class T> static inline T atomicAdd(T *p, T x)
{
    T old = *p;

    *p = old + x;
    return old;
}
template <class T> static inline T atomicMax(T *p, T x)
{
    T old = *p;

    *p = old > x ? old : x;
    return old;
}
template <class T> static inline T atomicCAS(T *p, T expected, T x)
{
    T old = *p;

    if (old == expected)
        *p = x;
    return old;
}

#include "kernels/emu/emu.h"
#include "kernels/emu/half.h"
#include "kernels/emu/runtime.h"
#include "kernels/emu/tensor.h"
#include "kernels/emu/async.h"

#endif
