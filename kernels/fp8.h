/* Numbers of eight bits, E4M3 and E5M2 (Micikevicius et al. 2022): a sign, four
 * or five bits of exponent, three or two of mantissa. E4M3 has no infinity, its
 * largest value is 448; that of E5M2 is 57344. For the CPU backend, and for
 * CUDA where a GPU has no instruction for them. */
#ifndef GPT_KERNELS_FP8_H
#define GPT_KERNELS_FP8_H

#include "backend.h"

#include <string.h>

#ifdef __CUDACC__
#define GPT_FP8_INLINE __host__ __device__ static inline
#else
#define GPT_FP8_INLINE static inline
#endif

enum { GPT_FP8_NAN = 0x7f };

GPT_FP8_INLINE uint32_t gpt_fp8_bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

GPT_FP8_INLINE float gpt_fp8_float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

GPT_FP8_INLINE float gpt_fp8_max(enum gpt_fp8 type)
{
    return type == GPT_E4M3 ? 448.0f : 57344.0f;
}

/* x to nearest even. What is above the largest value, infinity too, becomes
 * that; NaN stays NaN. */
GPT_FP8_INLINE uint8_t gpt_fp8_of(float x, enum gpt_fp8 type)
{
    const uint32_t mantissa = type == GPT_E4M3 ? 3 : 2;
    const uint32_t bias = type == GPT_E4M3 ? 7 : 15;
    const uint32_t most = type == GPT_E4M3 ? 0x7e : 0x7b;
    const uint32_t drop = 23 - mantissa; /* bits of a float that are lost */
    const uint32_t sign = gpt_fp8_bits_of(x) >> 24 & 0x80;
    const uint32_t u = gpt_fp8_bits_of(x) & 0x7fffffff;
    uint32_t code;

    if (u > 0x7f800000)
        return GPT_FP8_NAN;
    if (gpt_fp8_float_of(u) >= gpt_fp8_max(type)) {
        code = most;
    } else if (u >= (128 - bias) << 23) { /* normal there */
        const uint32_t v = u - ((127 - bias) << 23);

        code = (v + (1u << (drop - 1)) - 1 + (v >> drop & 1)) >> drop;
    } else {
        /* a float of this size has the subnormals' unit as its last bit, so
         * that the sum rounds */
        const uint32_t unit = (151 - bias - mantissa) << 23;

        code = gpt_fp8_bits_of(gpt_fp8_float_of(u) + gpt_fp8_float_of(unit)) -
               unit;
    }
    return (uint8_t)(sign | code);
}

GPT_FP8_INLINE float gpt_fp8_value(uint8_t code, enum gpt_fp8 type)
{
    const uint32_t mantissa = type == GPT_E4M3 ? 3 : 2;
    const uint32_t bias = type == GPT_E4M3 ? 7 : 15;
    const uint32_t sign = (uint32_t)(code & 0x80) << 24, u = code & 0x7f;
    /* the same digits with the exponent of a float that is too small, which a
     * product with a power of two puts right, of subnormals as well */
    const float small = gpt_fp8_float_of(u << (23 - mantissa));
    const float value = small * gpt_fp8_float_of((254 - bias) << 23);
    const bool nan = type == GPT_E4M3 ? u == 0x7f : u > 0x7c;

    return gpt_fp8_float_of(sign | (nan ? 0x7fc00000
                                    : type == GPT_E5M2 && u == 0x7c
                                        ? 0x7f800000
                                        : gpt_fp8_bits_of(value)));
}

/* What a tensor is multiplied by before it is rounded. The limit keeps the
 * reciprocal a normal number, and is the scale of a tensor of zeros. With an
 * infinity in the tensor the scale is 0, its reciprocal infinite, and a product
 * NaN. */
GPT_FP8_INLINE float gpt_fp8_scale(float amax, enum gpt_fp8 type)
{
    const float limit = gpt_fp8_float_of((127 + 126) << 23);
    const float scale = gpt_fp8_max(type) / amax;

    return scale > limit ? limit : scale;
}

#endif
