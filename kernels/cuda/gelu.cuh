/* GELU in its tanh form (Hendrycks and Gimpel 2016, eq. 2) and its slope. */
#ifndef GPT_KERNELS_CUDA_GELU_CUH
#define GPT_KERNELS_CUDA_GELU_CUH

#include "cuda/device.cuh"

/* x s(2u), u = sqrt(2/pi) (x + 0.044715 x^3), s the logistic
 * function: the same as x (1 + tanh u) / 2. */
__device__ inline float gelu(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);

    return x / (1 + expf(-2 * u));
}

__device__ inline float gelu_slope(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    float s = 1 / (1 + expf(-2 * u));
    float du = 0.7978845608f * (1 + 3 * 0.044715f * x * x);

    return s + 2 * x * s * (1 - s) * du;
}

#endif
