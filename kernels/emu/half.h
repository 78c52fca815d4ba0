/* bfloat16 and half, with the conversions of CUDA's headers: to nearest even,
 * NaN stays NaN, overflow of half gives infinity; TF32. Included by cuda.h. */
#ifndef GPT_EMU_HALF_H
#define GPT_EMU_HALF_H

extern "C" {
#include "base/dtype.h"
}

struct __nv_bfloat16 { uint16_t bits; };
struct __half { uint16_t bits; };
typedef struct __half half;
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
struct alignas(4) __half2 { __half x, y; };

static inline __nv_bfloat16 __float2bfloat16(float x)
{
    return {gpt_f32_to_bf16(x)};
}
static inline float __bfloat162float(__nv_bfloat16 x)
{
    return gpt_bf16_to_f32(x.bits);
}
static inline __half __float2half(float x) { return {gpt_f32_to_f16(x)}; }
static inline float __half2float(__half x) { return gpt_f16_to_f32(x.bits); }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16(x), __float2bfloat16(y)};
}
static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half(x), __float2half(y)};
}

namespace emu {

/* To 10 bits of mantissa, ties away from zero, as cvt.rna.tf32.f32; the bits
 * below are 0. */
static inline float to_tf32(float x)
{
    uint32_t bits;

    if (isnan(x))
        return NAN;
    memcpy(&bits, &x, sizeof(bits));
    /* Rounding the bits of an infinity would make a NaN of it. */
    if (!isinf(x))
        bits += 0x1000;
    bits &= ~0x1fffu;
    memcpy(&x, &bits, sizeof(bits));
    return x;
}

} // namespace emu

#endif
