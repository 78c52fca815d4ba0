/* Rows of which a few warps hold all elements in registers. */
#ifndef GPT_KERNELS_CUDA_NORM_CUH
#define GPT_KERNELS_CUDA_NORM_CUH

#include "cuda/device.cuh"

enum { LANES = 32, BLOCK_WARPS = 8, MOST_WARPS = 16 };

/* N sums over the warps of a row, which are neighbours in their block. Two places
 * serve in turns: a warp that is one turn ahead does not overwrite what another
 * still reads, so that one barrier a turn is enough. */
template <int N> static __device__ inline void warps_sum(float (&x)[N], int warps, int turn)
{
    __shared__ float part[2][MOST_WARPS][N];
    int warp = threadIdx.x / LANES, first = warp / warps * warps;

#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = warp_sum(x[i]);
    if (warps == 1)
        return;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (threadIdx.x % LANES == 0)
            part[turn][warp][i] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[i] = 0;
        for (int k = 0; k < warps; k++)
            x[i] += part[turn][first + k][i];
    }
}

#endif
