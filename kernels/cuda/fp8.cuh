/* Factors of eight bits on their way to a product (fp8.cu): what matmul.cu asks
 * for, and elements as kernels see them. */
#ifndef GPT_KERNELS_CUDA_FP8_CUH
#define GPT_KERNELS_CUDA_FP8_CUH

#include "cuda/gemm.cuh"

extern "C" {
#include "fp8.h"
}

/* True when GPUs of this compute capability have tensor cores of eight bits. */
bool cuda_can_fp8(int major, int minor);

/* An element in memory. */
template <enum gpt_fp8 TYPE> struct fp8_element {
    static const enum gpt_fp8 type = TYPE;
    uint8_t code;
};
template <enum gpt_fp8 TYPE> __device__ inline float to_float(fp8_element<TYPE> x)
{
    return gpt_fp8_value(x.code, TYPE);
}

/* Calls f(fp8_element<TYPE>()) with the C++ type of an fp8 type. */
template <class F> void with_fp8(enum gpt_fp8 type, F f)
{
    if (type == GPT_E4M3)
        f(fp8_element<GPT_E4M3>());
    else
        f(fp8_element<GPT_E5M2>());
}

/* Puts the factors of op, rounded, and the reciprocals of their scales into
 * op->fp8.scratch, and makes them those of `call`: both with neighbours in the
 * direction of k, which is all that tensor cores take. False after recording a
 * failure. */
bool cuda_fp8_factors(struct gpt_queue *q, const struct gpt_matmul *op, struct gemm_call *call);

#endif
