/* How rows of weights meet rounded inputs by AVX-512: a few texts at a time
 * pass over a strip, which stays in the second cache for the next ones. One
 * text meets rows one after the other, in the order of memory, which processors
 * foresee; several meet rows side by side, so that fewer loads serve more
 * products. Start at EACH_BLOCK(). */
#ifndef GPT_KERNELS_CPU_FEW_BLOCKS_H
#define GPT_KERNELS_CPU_FEW_BLOCKS_H

#include "cpu/few/few.h"
#include "cpu/pair/rows.h"

#ifdef __AVX512F__ /* as in the files that use it */

/* Texts at a time, and rows of weights for one text, whose sums over lanes are
 * made together. */
enum { BLOCK_TEXTS = 4, BLOCK_ROWS = 4 };

/* ---- reading ahead ---- */

/* The strip after this one comes to the second cache, in the order of memory,
 * `step` lines with every chunk: as many as all texts together need to ask for
 * the whole of it. */
struct ahead {
    const char *at, *end;
    int64_t step;
};

/* `most` texts at a time meet `rows` rows side by side. */
static inline struct ahead ahead_of(const struct cpu_few_strip *s, int64_t most,
                                    int64_t rows)
{
    const int64_t bytes = s->in->bytes ? s->in->k : 2 * s->in->k;
    const char *at = s->values + (s->row + FEW_ROWS) * bytes;
    const int64_t passes = gpt_ceil_div(s->in->m, most);

    if (s->last)
        return (struct ahead){.step = 0};
    return (struct ahead){.at = at,
                          .end = at + FEW_ROWS * bytes,
                          .step = gpt_ceil_div(rows, passes)};
}

/* With one text the processor itself looks ahead, and is slower when it is
 * asked to. */
static inline __attribute__((always_inline)) void
fetch(struct ahead *a, int64_t chunks, const int M)
{
    if (M == 1 || a->at >= a->end)
        return;
    for (int64_t n = chunks * a->step; n > 0; n--, a->at += 64)
        __builtin_prefetch(a->at, 0, 2);
}

/* ---- blocks ---- */

/* multiply(s, row, text, next, M, R) of the strip's rows, R at a time, and of M
 * texts, at most `most`: M and R are constants for the compiler. */
#define EACH_ROW(multiply, s, text, next, M, R)                               \
    do {                                                                      \
        int64_t row_ = 0;                                                     \
                                                                              \
        for (; row_ + (R) <= (s)->rows; row_ += (R))                          \
            multiply(s, row_, text, next, M, R);                              \
        for (; row_ < (s)->rows; row_++)                                      \
            multiply(s, row_, text, next, M, 1);                              \
    } while (0)

#define EACH_BLOCK(multiply, s, most, R)                                      \
    do {                                                                      \
        struct ahead next_ = ahead_of(s, most, R);                            \
        int64_t text_ = 0;                                                    \
                                                                              \
        for (; text_ + (most) <= (s)->in->m; text_ += (most))                 \
            EACH_ROW(multiply, s, text_, &next_, most, R);                    \
        if ((s)->in->m - text_ == 3 && (most) > 3)                            \
            EACH_ROW(multiply, s, text_, &next_, 3, R);                       \
        else if ((s)->in->m - text_ == 2 && (most) > 2)                       \
            EACH_ROW(multiply, s, text_, &next_, 2, R);                       \
        else if ((s)->in->m - text_ == 1)                                     \
            EACH_ROW(multiply, s, text_, &next_, 1, BLOCK_ROWS);              \
    } while (0)

/* ---- sums of floats ---- */

/* The sums over lanes of four vectors, in four lanes: halves are added until
 * one lane is left, in the same order for each. */
static inline __m128 sum_four(const __m512 v[4])
{
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0,
                                             0, 0, 0, 0, 0);
    const __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44),
                                   _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    const __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44),
                                   _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    __m512 c = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88),
                             _mm512_shuffle_f32x4(a, b, 0xdd));

    c = _mm512_add_ps(c, _mm512_permute_ps(c, 0x4e));
    c = _mm512_add_ps(c, _mm512_permute_ps(c, 0xb1));
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, c));
}

/* Results of M texts and R rows from `row` of the strip on. */
static inline __attribute__((always_inline)) void
put_sums(const struct cpu_few_strip *s, int64_t row, int64_t text,
         __m512 (*sums)[BLOCK_ROWS], const int M, const int R)
{
    __m512 flat[BLOCK_TEXTS * BLOCK_ROWS + 3] = {0};
    _Alignas(16) float dots[BLOCK_TEXTS * BLOCK_ROWS + 3];

#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            flat[i * R + r] = sums[i][r];
#pragma GCC unroll 4
    for (int j = 0; j < M * R; j += 4)
        _mm_store_ps(dots + j, sum_four(flat + j));
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            float *y = s->y + (text + i) * s->ldy + row + r;

            *y = s->add ? *y + dots[i * R + r] : dots[i * R + r];
        }
}

#endif
#endif
