/* Vectors of the instruction set being compiled, by GCC's vector extension:
 * W floats, loads and stores anywhere in memory, sums over lanes in a fixed
 * order, and exp. Intrinsics only where the extension has no words. */
#ifndef GPT_KERNELS_CPU_SIMD_H
#define GPT_KERNELS_CPU_SIMD_H

#include "base/vectors.h"
#include "cpu/isa/isa.h"

#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>

enum { W = 16 };
#elif defined(__AVX2__)
enum { W = 8 };
#else
enum { W = 4 };
#endif

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef uint64_t vq __attribute__((vector_size(4 * W)));
typedef float vf_any __attribute__((vector_size(4 * W), aligned(4), may_alias));

static inline vf load(const float *x)
{
    return *(const vf_any *)x;
}

static inline void store(float *x, vf v)
{
    *(vf_any *)x = v;
}

static inline vf all(float x)
{
    return x - (vf){0}; /* a broadcast, exact also for -0 */
}

/* The first n < W floats; the other lanes are `fill`. */
static inline vf load_part(const float *x, int64_t n, float fill)
{
    float lanes[W];

    for (int i = 0; i < W; i++)
        lanes[i] = i < n ? x[i] : fill;
    return load(lanes);
}

static inline void store_part(float *x, vf v, int64_t n)
{
    float lanes[W];

    store(lanes, v);
    for (int64_t i = 0; i < n; i++)
        x[i] = lanes[i];
}

/* W floats of x (n) from element j on, or as many as there are. */
static inline vf any_load(const float *x, int64_t j, int64_t n)
{
    return n - j >= W ? load(x + j) : load_part(x + j, n - j, 0);
}

static inline void any_store(float *x, vf v, int64_t j, int64_t n)
{
    if (n - j >= W)
        store(x + j, v);
    else
        store_part(x + j, v, n - j);
}

/* mask lanes are -1 (a) or 0 (b), as comparisons give them */
static inline vf pick(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* The second argument where one is NaN, as x86's instructions have it. */
static inline vf larger(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return pick(a > b, a, b);
#endif
}

static inline vf smaller(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return pick(a < b, a, b);
#endif
}

/* 1 / x within a unit in the last place, for x of normal size. Division takes
 * 16 cycles of a vector of AVX-512; Newton's step doubles the 14 bits of an
 * estimate that takes two. */
static inline vf inverse(vf x)
{
#if defined(__AVX512F__)
    vf r = (vf)_mm512_rcp14_ps((__m512)x);

    return r + r * (all(1) - x * r);
#else
    return all(1) / x;
#endif
}

/* Halves onto each other: lane i gets i and i + W/2, and so on. */
static inline float lanes_sum(vf v)
{
#if defined(__AVX512F__)
    v += GPT_LANES(vi, v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6,
                   7);
    v += GPT_LANES(vi, v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10,
                   11);
    v += GPT_LANES(vi, v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12,
                   13);
    v += GPT_LANES(vi, v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15,
                   14);
#elif defined(__AVX2__)
    v += GPT_LANES(vi, v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += GPT_LANES(vi, v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    v += GPT_LANES(vi, v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    v += GPT_LANES(vi, v, v, 2, 3, 0, 1);
    v += GPT_LANES(vi, v, v, 1, 0, 3, 2);
#endif
    return v[0];
}

/* Halves onto each other, too: a maximum is the same in any order. */
static inline float lanes_max(vf v)
{
#if defined(__AVX512F__)
    v = larger(GPT_LANES(vi, v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4,
                         5, 6, 7),
               v);
    v = larger(GPT_LANES(vi, v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9,
                         10, 11),
               v);
    v = larger(GPT_LANES(vi, v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15,
                         12, 13),
               v);
    v = larger(GPT_LANES(vi, v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12,
                         15, 14),
               v);
    return v[0];
#else
    float x[W];

    store(x, v);
    for (int i = 1; i < W; i++)
        x[0] = x[i] > x[0] ? x[i] : x[0];
    return x[0];
#endif
}

/* e^x: x = n ln 2 + r, |r| <= ln 2 / 2, a polynomial of degree 6 in r, times
 * 2^n. Within 0.9 units in the last place with fused products, 1.2 without
 * (test_kernels_isa). Below -87.33 the result is 0 (no subnormals), above 88.37
 * it stays at e^88.37; NaN stays NaN. n wraps around where x is far below: what
 * it gives there is not used. */
static inline vf vexp(vf x)
{
    const vf low = all(-87.33f), high = all(88.37f);
    const vf magic = all(0x1.8p23f); /* adding it rounds to an integer */
    vf y = smaller(high, x);
    vf t = y * all(0x1.715476p0f) + magic;
    vu n = (vu)t - (vu)magic;
    vf whole = t - magic;
    vf r = y - whole * all(0x1.62e400p-1f);

    r = r - whole * all(0x1.7f7d1cp-20f);
    vf p = all(0x1.6a2350p-10f);
    p = p * r + all(0x1.123a6cp-7f);
    p = p * r + all(0x1.5558f4p-5f);
    p = p * r + all(0x1.555490p-3f);
    p = p * r + all(0x1.fffffcp-2f);
    p = p * r + all(1);
    p = p * r + all(1);
    vf power = (vf)((n + 127u) << 23);
    return pick(x < low, (vf){0}, p * power);
}

#endif
