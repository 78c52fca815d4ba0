/* Rows of weights in any type, which become floats in registers on their way
 * from memory: see gemv.c. Start at weights(). */
#ifndef GPT_KERNELS_CPU_WEIGHTS_H
#define GPT_KERNELS_CPU_WEIGHTS_H

#include "cpu/isa/simd.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* Rows of w, in any of the types. The bytes of a group that has a scale of its
 * own follow each other, as do the scales. Functions that take a kind are
 * inlined, and the compiler sees a constant. Narrow values become floats in
 * registers, on their way from memory: products are exact but for the rounding
 * of floats, and what weights cost is their bytes. */
enum kind { FLOATS, BF16, INT8, INT8_GROUPS };
enum { GROUP = 32 };

struct rows {
    const void *w;
    const uint16_t *scales;
    int64_t ld, lds; /* values and scales from one row to the next */
    int64_t n, k;
    int64_t strip; /* strip_of() */
    bool in_order; /* reads_in_order() */
};

typedef uint16_t vh __attribute__((vector_size(2 * W)));

/* W bytes as floats. GCC converts vectors of bytes one by one. */
static inline vf float_bytes(const char *at)
{
#if defined(__AVX512F__)
    const __m128i *from = (const void *)at;

    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
#elif defined(__AVX2__)
    const __m128i *from = (const void *)at;

    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from)));
#else
    vf v = {0};

    for (int i = 0; i < W; i++)
        v[i] = (float)(int8_t)at[i];
    return v;
#endif
}

static inline float of_bf16(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline size_t value_bytes(enum kind kind)
{
    return kind == FLOATS ? 4 : kind == BF16 ? 2 : 1;
}

static inline const char *value_at(const struct rows *w, int64_t i, int64_t l,
                                   enum kind kind)
{
    return (const char *)w->w + (size_t)(i * w->ld + l) * value_bytes(kind);
}

/* bf16 is the upper half of a float, so that widening is a shift. W values from
 * `at` on, as floats; n < W: the others are 0. */
static inline __attribute__((always_inline)) vf
values(const char *at, int64_t n, enum kind kind)
{
    char lanes[4 * W] = {0};
    vh halves;

    if (n < W) {
        memcpy(lanes, at, (size_t)n * value_bytes(kind));
        at = lanes;
    }
    if (kind == FLOATS)
        return load((const float *)(const void *)at);
    if (kind == BF16) {
        memcpy(&halves, at, sizeof(halves));
        return (vf)(__builtin_convertvector(halves, vu) << 16);
    }
    return float_bytes(at);
}

/* The scale of row i from column l on, or 1. */
static inline __attribute__((always_inline)) vf
scale_of(const struct rows *w, int64_t i, int64_t l, enum kind kind)
{
    if (kind != INT8_GROUPS)
        return all(1);
    const uint16_t *scale = w->scales + i * w->lds + l / GROUP;
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_set1_epi16((int16_t)*scale), 16);
#else
    return all(of_bf16(*scale));
#endif
}

/* Values of row i from column l on, times the scale of their group. Weights
 * are multiplied, and not sums, since a weight meets several rows of x, and a
 * row's sums are then the same beside others as alone. */
static inline __attribute__((always_inline)) vf
weights(const struct rows *w, int64_t i, int64_t l, int64_t n, vf scale,
        enum kind kind)
{
    vf v = values(value_at(w, i, l, kind), n, kind);

    return kind == INT8_GROUPS ? v * scale : v;
}

#endif
