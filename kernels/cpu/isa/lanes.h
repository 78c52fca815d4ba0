/* Sums over the lanes of several vectors at once. Start at sum_lanes(). */
#ifndef GPT_KERNELS_CPU_LANES_H
#define GPT_KERNELS_CPU_LANES_H

#include "cpu/isa/simd.h"

#if defined(__AVX512F__)
/* The four steps of lanes_sum() for two vectors at a time, whose sums come side
 * by side. */
static inline vf halves(vf a, vf b)
{
    return (vf)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0x44) +
           (vf)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0xee);
}

static inline vf quarters(vf a, vf b)
{
    return (vf)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0x88) +
           (vf)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0xdd);
}

static inline vf within(vf a, vf b)
{
    return (vf)_mm512_shuffle_ps((__m512)a, (__m512)b, 0x44) +
           (vf)_mm512_shuffle_ps((__m512)a, (__m512)b, 0xee);
}

static inline vf last(vf a, vf b)
{
    return (vf)_mm512_shuffle_ps((__m512)a, (__m512)b, 0x88) +
           (vf)_mm512_shuffle_ps((__m512)a, (__m512)b, 0xdd);
}

/* Sums come in the order in which these steps took the vectors: in that of the
 * vectors. */
static inline vf in_order(vf v)
{
    return GPT_LANES(vi, v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11,
                     15);
}
#endif

/* The sums over lanes of n vectors, each with the bits of lanes_sum(): the
 * first steps of several vectors are steps of one. */
static inline __attribute__((always_inline)) void
sum_lanes(float *dot, const vf *v, const int n)
{
#if defined(__AVX512F__)
    vf sums[3];

    if (n % 8 == 0) {
#pragma GCC unroll 3
        for (int i = 0; i < n / 8; i++, v += 8)
            sums[i] = within(quarters(halves(v[0], v[1]), halves(v[2], v[3])),
                             quarters(halves(v[4], v[5]), halves(v[6], v[7])));
#pragma GCC unroll 2
        for (int i = 0; i < n / 8; i += 2) {
            const vf other = i + 1 < n / 8 ? sums[i + 1] : sums[i];
            float lanes[W];

            store(lanes, in_order(last(sums[i], other)));
            memcpy(dot + 8 * i, lanes,
                   (i + 1 < n / 8 ? 16 : 8) * sizeof(*dot));
        }
        return;
    }
    if (n == 4) {
        const vf q = quarters(halves(v[0], v[1]), halves(v[2], v[3]));
        const vf both = within(q, q);
        float lanes[W];

        store(lanes, in_order(last(both, both)));
        memcpy(dot, lanes, 4 * sizeof(*dot));
        return;
    }
#endif
#pragma GCC unroll 24
    for (int i = 0; i < n; i++)
        dot[i] = lanes_sum(v[i]);
}

#endif
