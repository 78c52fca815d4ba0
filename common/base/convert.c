/* Conversions of element types that round to nearest even. Start at
 * gpt_convert().
 *
 * The half formats are handled in integer arithmetic, so every machine gives
 * the same bits, of NaNs as well. The bulk conversions are the same lines of C
 * for each instruction set: this file is compiled with -O3, which vectorises
 * them. A double goes to a half format by way of a float rounded to odd, which
 * keeps the second rounding correct (Boldo and Melquiond 2008). */
#include "base/dtype.h"

#include "base/cpu.h"

#include <pthread.h>
#include <string.h>

/* memcpy() instead of a union or a cast: defined in C and in C++, and free. */
static inline uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline float from_bf16(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

/* Adds just under half a unit, and one more when the kept part is odd: ties go
 * to even. */
static inline uint16_t to_bf16(float x)
{
    uint32_t u = bits_of(x);
    uint32_t even = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40; /* rounding could turn NaN into inf */

    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : even);
}

/* Computes all three cases and chooses: without branches the loop is
 * vectorised. */
static inline float from_f16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16;
    uint32_t mag = (uint32_t)(x & 0x7fff) << 13;
    uint32_t normal = mag + ((127 - 15) << 23);
    uint32_t special = mag | 0x7f800000;
    /* a subnormal is mantissa * 2^-24, exact in a float */
    uint32_t small = bits_of((float)(x & 0x3ff) * 0x1p-24f);
    uint32_t u = (x & 0x7fff) >= 0x7c00  ? special
                 : (x & 0x7fff) < 0x0400 ? small
                                         : normal;

    return float_of(sign | u);
}

static inline uint16_t to_f16(float x)
{
    uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000;
    uint32_t h;

    u &= 0x7fffffff;
    if (u > 0x7f800000) { /* NaN, made quiet */
        h = 0x7e00 | ((u >> 13) & 0x3ff);
    } else if (u >= 0x477ff000) { /* from 65520 on: infinity */
        h = 0x7c00;
    } else if (u >= 0x38800000) { /* normal, from 2^-14 on */
        uint32_t v = u - ((127 - 15) << 23);

        h = (v + 0xfff + ((v >> 13) & 1)) >> 13;
    } else { /* the sum's unit in the last place is 2^-24: it rounds */
        h = bits_of(float_of(u) + 0.5f) - bits_of(0.5f);
    }
    return (uint16_t)(sign | h);
}

/* Narrows to float, rounding to odd: inexact results get their last bit set. */
static inline float narrow_odd(double x)
{
    float f = (float)x;

    if ((double)f == x || x != x)
        return f;
    uint32_t u = bits_of(f);
    bool away = (f < 0 ? -(double)f : (double)f) > (x < 0 ? -x : x);
    u -= away; /* now truncated; from infinity this gives the largest float */
    return float_of(u | 1);
}

float gpt_bf16_to_f32(uint16_t x)
{
    return from_bf16(x);
}

uint16_t gpt_f32_to_bf16(float x)
{
    return to_bf16(x);
}

float gpt_f16_to_f32(uint16_t x)
{
    return from_f16(x);
}

uint16_t gpt_f32_to_f16(float x)
{
    return to_f16(x);
}

/* One loop a pair and instruction set: the load to `mid` and the store from it
 * are inlined. */
#define CONVERT(name, to_t, from_t, expr)                  \
    static void name(void *dst, const void *src, size_t n) \
    {                                                      \
        to_t *restrict d = dst;                            \
        const from_t *restrict s = src;                    \
        for (size_t i = 0; i < n; i++) {                   \
            from_t x = s[i];                               \
            d[i] = (expr);                                 \
        }                                                  \
    }

#define CONVERT_ALL(isa, target)                                            \
    target CONVERT(f16_bf16_##isa, uint16_t, uint16_t, to_bf16(from_f16(x))) \
    target CONVERT(f16_f32_##isa, float, uint16_t, from_f16(x))             \
    target CONVERT(f16_f64_##isa, double, uint16_t, (double)from_f16(x))    \
    target CONVERT(bf16_f16_##isa, uint16_t, uint16_t, to_f16(from_bf16(x))) \
    target CONVERT(bf16_f32_##isa, float, uint16_t, from_bf16(x))           \
    target CONVERT(bf16_f64_##isa, double, uint16_t, (double)from_bf16(x))  \
    target CONVERT(f32_f16_##isa, uint16_t, float, to_f16(x))               \
    target CONVERT(f32_bf16_##isa, uint16_t, float, to_bf16(x))             \
    target CONVERT(f32_f64_##isa, double, float, (double)x)                 \
    target CONVERT(f64_f16_##isa, uint16_t, double, to_f16(narrow_odd(x)))  \
    target CONVERT(f64_bf16_##isa, uint16_t, double, to_bf16(narrow_odd(x))) \
    target CONVERT(f64_f32_##isa, float, double, (float)x)

/* Types, and the loop of each set of instructions, by gpt_cpu_loops(). */
struct pair {
    enum gpt_dtype from, to;
    void (*run[3])(void *dst, const void *src, size_t n);
};

#if defined(__x86_64__) && defined(GPT_HAVE_ISA_avx512)
CONVERT_ALL(base, )
CONVERT_ALL(avx2, __attribute__((target("avx2"))))
/* Vectors of 64 bytes, where the compiler would take halves of them. */
#ifdef __clang__
CONVERT_ALL(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"),
                                   min_vector_width(512))))
#else
CONVERT_ALL(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,"
                                          "avx512dq,prefer-vector-width=512"))))
#endif
#define RUNS(name) {name##_base, name##_avx2, name##_avx512}
#else
CONVERT_ALL(base, )
#define RUNS(name) {name##_base, name##_base, name##_base}
#endif

static const struct pair pairs[] = {
    {GPT_F16, GPT_BF16, RUNS(f16_bf16)}, {GPT_F16, GPT_F32, RUNS(f16_f32)},
    {GPT_F16, GPT_F64, RUNS(f16_f64)},   {GPT_BF16, GPT_F16, RUNS(bf16_f16)},
    {GPT_BF16, GPT_F32, RUNS(bf16_f32)}, {GPT_BF16, GPT_F64, RUNS(bf16_f64)},
    {GPT_F32, GPT_F16, RUNS(f32_f16)},   {GPT_F32, GPT_BF16, RUNS(f32_bf16)},
    {GPT_F32, GPT_F64, RUNS(f32_f64)},   {GPT_F64, GPT_F16, RUNS(f64_f16)},
    {GPT_F64, GPT_BF16, RUNS(f64_bf16)}, {GPT_F64, GPT_F32, RUNS(f64_f32)},
};

/* The best set that this machine has, found once. */
static int best;

static void find_best(void)
{
    best = gpt_cpu_loops();
}

bool gpt_convert_with(int isa, void *dst, enum gpt_dtype dst_type,
                      const void *src, enum gpt_dtype src_type, size_t n)
{
    /* A copy of integers would be right, too, but a caller that asks for one
     * took a tensor for another. */
    if (src_type == dst_type && gpt_dtype_is_float(src_type)) {
        if (n)
            memcpy(dst, src, n * gpt_dtype_bytes(src_type));
        return true;
    }
    for (size_t i = 0; i < GPT_COUNT(pairs); i++)
        if (pairs[i].from == src_type && pairs[i].to == dst_type) {
            pairs[i].run[isa](dst, src, n);
            return true;
        }
    return false;
}

bool gpt_convert(void *dst, enum gpt_dtype dst_type, const void *src,
                 enum gpt_dtype src_type, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_best);
    return gpt_convert_with(best, dst, dst_type, src, src_type, n);
}
