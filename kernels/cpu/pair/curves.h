/* Exponentials, GELU and SiLU for results that are rounded to bf16: within a
 * few units of 2^-14, where that rounding is 2^-9, in half of the instructions
 * of isa/gelu.h. GELU of a value is the same in an epilogue and in a pass of
 * its own: backward computes some again, and they have to come out with the
 * same bits. NaN stays NaN. */
#ifndef GPT_KERNELS_CPU_PAIR_CURVES_H
#define GPT_KERNELS_CPU_PAIR_CURVES_H

#include <immintrin.h>

#ifdef __AVX512F__ /* as in the files that use it */

/* 2^x within 3e-6 of it; x below -126 counts as -126, so that nothing subnormal
 * comes out. x = n + f with 0 <= f < 1, and a polynomial of degree 4 in f that
 * is 1 at 0. While tiles are multiplied the processor has one vector
 * instruction of this kind a cycle, so that their number counts. NaN stays
 * NaN. */
static inline __m512 exp2_of(__m512 x)
{
    const __m512 y = _mm512_max_ps(_mm512_set1_ps(-126), x);
    const __m512 f = _mm512_reduce_ps(y, _MM_FROUND_TO_NEG_INF |
                                             _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(0x1.b7f756p-7F);

    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.abf85ap-5F));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ee2452p-3F));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62d6c6p-1F));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, y); /* p times 2^n */
}

/* The logistic function by an estimate of 14 bits: s = 1 / (1 + e), e = 2^x. */
struct gate {
    __m512 s, e;
};

static inline struct gate logistic2_of(__m512 x)
{
    const __m512 e = exp2_of(x);

    return (struct gate){_mm512_rcp14_ps(_mm512_add_ps(e, _mm512_set1_ps(1))),
                         e};
}

/* A value is x s, where s is the logistic function of what follows. */
struct curve {
    __m512 s, slope; /* slope: of the value */
};

/* GELU's tanh form: x s with s of 2 sqrt(2/pi) (x + 0.044715 x^3), here times
 * -log2(e); the slope of that is `rise`. */
static inline struct gate gelu_gate(__m512 x, __m512 square)
{
    const __m512 by = _mm512_fmadd_ps(square, _mm512_set1_ps(-0x1.a5a7d0p-4F),
                                      _mm512_set1_ps(-0x1.26aec2p+1F));

    return logistic2_of(_mm512_mul_ps(x, by));
}

/* s + x s (1 - s) times the slope of what s is a function of. 1 - s is s e: the
 * error of s would be all of a difference that is small. Where e is infinite s
 * is 0, and has to stay it. */
static inline __m512 slope_of_gate(__m512 x, struct gate g, __m512 rise)
{
    const __m512 e = _mm512_min_ps(_mm512_set1_ps(0x1p120F), g.e);
    const __m512 bend = _mm512_mul_ps(_mm512_mul_ps(g.s, e), g.s);

    return _mm512_fmadd_ps(_mm512_mul_ps(x, bend), rise, g.s);
}

static inline struct curve gelu_curve(__m512 x)
{
    const __m512 square = _mm512_mul_ps(x, x);
    const struct gate g = gelu_gate(x, square);
    const __m512 rise = _mm512_fmadd_ps(square, _mm512_set1_ps(0x1.b66768p-3F),
                                        _mm512_set1_ps(0x1.988454p0F));

    return (struct curve){g.s, slope_of_gate(x, g, rise)};
}

static inline struct curve silu_curve(__m512 x)
{
    const struct gate g =
        logistic2_of(_mm512_mul_ps(x, _mm512_set1_ps(-0x1.715476p0F)));

    return (struct curve){g.s, slope_of_gate(x, g, _mm512_set1_ps(1))};
}

#endif
#endif
