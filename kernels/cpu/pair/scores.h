/* What attention does with scores between its products, by AVX-512: see struct
 * cpu_pair_scores. A row of scores is a key and its 32 columns are queries, so
 * that a maximum or a sum over keys is one of whole vectors, and that rounded
 * rows are chunks of a as they are: nothing is transposed. Start at
 * softmax_scores() and grad_scores(). */
#ifndef GPT_KERNELS_CPU_PAIR_SCORES_H
#define GPT_KERNELS_CPU_PAIR_SCORES_H

#include "cpu/pair/curves.h"
#include "cpu/pair/pack.h"

#ifdef __AVX512BF16__ /* as in the files that use it */

/* A unit of tiles that rests for some hundred cycles takes 500 more for what
 * comes next, as long as a product of 32 x 32 and two: one step now and then
 * keeps it awake. The tile that it adds to is written before it is read. */
static inline void keep_awake(void)
{
#ifdef __AMX_BF16__
    __asm__ volatile("tdpbf16ps %%tmm7, %%tmm6, %%tmm0" ::);
#endif
}

/* Positions of a half's queries, and the first keys that they see. */
struct sight {
    __m512i query, first;
};

static inline struct sight sight_of(const struct cpu_pair_scores *o, int half)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                            11, 12, 13, 14, 15);

    return (struct sight){
        _mm512_add_epi32(_mm512_set1_epi32(o->query + 16 * half), lanes),
        _mm512_loadu_si512(o->first + 16 * half)};
}

static inline __mmask16 sees(struct sight to, int32_t key)
{
    const __m512i k = _mm512_set1_epi32(key);

    return _mm512_mask_cmple_epi32_mask(_mm512_cmple_epi32_mask(to.first, k), k,
                                        to.query);
}

/* Keys between which it is looked whether every query sees them all. */
enum { FEW = 8 };

static inline bool sees_all(const struct cpu_pair_scores *o, int64_t k)
{
    return o->key + k >= o->highest && o->key + k + FEW - 1 <= o->query;
}

/* ALiBi: a score loses with its key's distance. */
static inline void lean_scores(const struct cpu_pair_scores *o)
{
    for (int64_t k = 0; o->slope > 0 && k < o->keys; k++)
        for (int half = 0; half < 2; half++) {
            float *s = o->s + 32 * k + 16 * half;
            const __m512i distance =
                _mm512_sub_epi32(sight_of(o, half).query,
                                 _mm512_set1_epi32(o->key + (int32_t)k));

            _mm512_storeu_ps(
                s, _mm512_fnmadd_ps(_mm512_cvtepi32_ps(distance),
                                    _mm512_set1_ps(o->slope),
                                    _mm512_loadu_ps(s)));
        }
}

/* Rows of two keys, rounded, as a chunk of b has them: key by key for a query.
 * Unpacking works within lanes, so that queries come as 0 to 3, 8 to 11, 16 to
 * 19 and 24 to 27 in the left tile: see column_of(). */
static inline void store_pair(uint16_t *to, __m512i even, __m512i odd)
{
    _mm512_storeu_si512(to, _mm512_unpacklo_epi16(even, odd));
    _mm512_storeu_si512(to + TILE, _mm512_unpackhi_epi16(even, odd));
}

/* Where such a chunk has column i of tile t. */
static inline int64_t column_of(int t, int64_t i)
{
    return i / 4 * 8 + 4 * t + i % 4;
}

/* The values of two halves as the columns of such a tile. */
static inline __m512 columns_of(const float *x, int t)
{
    const __m512i left = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18,
                                           19, 24, 25, 26, 27);

    return _mm512_permutex2var_ps(
        _mm512_loadu_ps(x), _mm512_add_epi32(left, _mm512_set1_epi32(4 * t)),
        _mm512_loadu_ps(x + 16));
}

/* A row of 32 floats, rounded. */
static inline __m512i rounded(__m512 left, __m512 right)
{
    return (__m512i)_mm512_cvtne2ps_pbh(right, left);
}

/* ---- forward ---- */

/* The largest of a half's scores; NaN is passed over. */
static inline __m512 largest(const struct cpu_pair_scores *o, int half)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    const struct sight to = sight_of(o, half);
    const float *s = o->s + 16 * half;
    __m512 a = none, b = none; /* as one waits for its comparison */

    for (int64_t k = 0; k < o->keys; k += FEW, s += 32 * FEW) {
        keep_awake();
        if (sees_all(o, k))
            for (int i = 0; i < FEW; i += 2) {
                a = _mm512_max_ps(_mm512_loadu_ps(s + 32 * i), a);
                b = _mm512_max_ps(_mm512_loadu_ps(s + 32 * i + 32), b);
            }
        else
            for (int i = 0; i < FEW; i++) {
                const __mmask16 seen = sees(to, o->key + (int32_t)k + i);
                const __m512 x = _mm512_loadu_ps(s + 32 * i);

                a = _mm512_max_ps(_mm512_mask_mov_ps(none, seen, x), a);
            }
    }
    return _mm512_max_ps(a, b);
}

/* What exponentials are relative to: the largest score so far. Nothing is
 * subtracted where no key was seen. */
static inline __m512 shift_of(const float *top)
{
    const __m512 x = _mm512_loadu_ps(top);
    const __mmask16 none =
        _mm512_cmp_ps_mask(x, _mm512_set1_ps(-INFINITY), _CMP_EQ_OQ);

    return _mm512_mask_mov_ps(x, none, _mm512_setzero_ps());
}

/* Sums under an older maximum are scaled down to the new one. */
static inline void raise_tops(const struct cpu_pair_softmax *o, __m512 factor)
{
    float shrink[32];
    bool any = false;

    for (int half = 0; half < 2; half++) {
        float *top = o->top + 16 * half, *sum = o->sum + 16 * half;
        const __m512 old = _mm512_loadu_ps(top);
        const __m512 s = _mm512_mul_ps(largest(&o->scores, half), factor);

        _mm512_storeu_ps(top, _mm512_max_ps(s, old));
        any |= _mm512_cmp_ps_mask(s, old, _CMP_GT_OQ) != 0;
        const __m512 less = exp2_of(_mm512_sub_ps(old, shift_of(top)));
        _mm512_storeu_ps(shrink + 16 * half, less);
        _mm512_storeu_ps(sum, _mm512_mul_ps(_mm512_loadu_ps(sum), less));
    }
    for (int t = 0; any && t < 2; t++) {
        const __m512 less = columns_of(shrink, t);

        for (int64_t i = 0; i < o->d_pad; i++) {
            float *x = o->out + 32 * i + 16 * t;

            _mm512_storeu_ps(x, _mm512_mul_ps(_mm512_loadu_ps(x), less));
        }
    }
}

/* What the loops over keys keep in registers. */
struct exponents {
    __m512 factor, shift[2], sum[2];
    struct sight sight[2];
};

/* Two keys' probabilities, relative to the maximum. */
static inline __attribute__((always_inline)) void
softmax_keys(const struct cpu_pair_softmax *o, struct exponents *e, int64_t k,
             bool whole, bool plain)
{
    const struct cpu_pair_scores *sc = &o->scores;
    __m512i row[2];

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const float *s = sc->s + 32 * (k + i);
        __m512 p[2];

#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            p[half] = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(s + 16 * half),
                                              e->factor, e->shift[half]));
            if (!whole)
                p[half] = _mm512_maskz_mov_ps(
                    sees(e->sight[half], sc->key + (int32_t)k + i), p[half]);
            /* The sum is taken before dropout: probabilities are normalized
             * first, and what is dropped does not make the others larger. */
            e->sum[half] = _mm512_add_ps(e->sum[half], p[half]);
            if (!plain && sc->keep)
                p[half] = _mm512_mul_ps(
                    p[half],
                    _mm512_loadu_ps(sc->keep + 32 * (k + i) + 16 * half));
        }
        row[i] = rounded(p[0], p[1]);
    }
    store_pair(o->p + k / 32 * PAIR_VALUES + k % 32 * 16, row[0], row[1]);
}

static void softmax_scores(const struct cpu_pair_softmax *of)
{
    const struct cpu_pair_softmax o = *of; /* as in grad_scores() */
    const __m512 log2e = _mm512_set1_ps(0x1.715476p0F);
    struct exponents e = {
        .factor = _mm512_mul_ps(_mm512_set1_ps(o.scores.scale), log2e)};

    lean_scores(&o.scores);
    raise_tops(&o, e.factor);
    for (int half = 0; half < 2; half++) {
        e.shift[half] = shift_of(o.top + 16 * half);
        e.sum[half] = _mm512_setzero_ps();
        e.sight[half] = sight_of(&o.scores, half);
    }
    for (int64_t k = 0; k < o.scores.keys; k += FEW) {
        keep_awake();
        if (!o.scores.keep && sees_all(&o.scores, k))
            for (int64_t i = k; i < k + FEW; i += 2)
                softmax_keys(&o, &e, i, true, true);
        else
            for (int64_t i = k; i < k + FEW; i += 2)
                softmax_keys(&o, &e, i, false, false);
    }
    for (int half = 0; half < 2; half++) {
        float *sum = o.sum + 16 * half;

        _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), e.sum[half]));
    }
}

/* ---- backward ---- */

/* What the loop over keys keeps in registers. */
struct grad_constants {
    __m512 factor, lse[2], delta[2];
    struct sight sight[2];
};

/* A half of a key's row: probabilities under the mask, and dS without the
 * scale of scores. */
static inline __attribute__((always_inline)) void
grad_half(const struct cpu_pair_grad *o, const struct grad_constants *c,
          int64_t k, int half, bool whole, bool plain, __m512 *p, __m512 *ds)
{
    const struct cpu_pair_scores *sc = &o->scores;
    const int64_t at = 32 * k + 16 * half;
    __m512 dp = _mm512_loadu_ps(o->dp + at);

    /* lse holds both the maximum and the sum: p is normalized at once. */
    *p = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(sc->s + at), c->factor,
                                 c->lse[half]));
    if (!whole)
        *p = _mm512_maskz_mov_ps(sees(c->sight[half], sc->key + (int32_t)k),
                                 *p);
    if (!plain && sc->keep)
        dp = _mm512_mul_ps(dp, _mm512_loadu_ps(sc->keep + at));
    *ds = _mm512_mul_ps(*p, _mm512_sub_ps(dp, c->delta[half]));
    if (!plain && o->cap_slope)
        *ds = _mm512_mul_ps(*ds, _mm512_loadu_ps(o->cap_slope + at));
    if (!plain && sc->keep)
        *p = _mm512_mul_ps(*p, _mm512_loadu_ps(sc->keep + at));
}

static inline __attribute__((always_inline)) void
grad_keys(const struct cpu_pair_grad *o, const struct grad_constants *c,
          int64_t k, bool whole, bool plain)
{
    __m512i row[2];

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m512 p[2], ds[2];

        grad_half(o, c, k + i, 0, whole, plain, &p[0], &ds[0]);
        grad_half(o, c, k + i, 1, whole, plain, &p[1], &ds[1]);
        _mm512_storeu_si512(o->p + 32 * (k + i), rounded(p[0], p[1]));
        row[i] = rounded(ds[0], ds[1]);
        _mm512_storeu_si512(o->ds + 32 * (k + i), row[i]);
    }
    store_pair(o->ds_pairs + 16 * k, row[0], row[1]);
}

static void grad_scores(const struct cpu_pair_grad *of)
{
    /* A copy, which stores to other memory cannot change as far as the compiler
     * knows. */
    const struct cpu_pair_grad o = *of;
    const __m512 log2e = _mm512_set1_ps(0x1.715476p0F);
    struct grad_constants c = {
        .factor = _mm512_mul_ps(_mm512_set1_ps(o.scores.scale), log2e)};
    const bool plain = !o.scores.keep && !o.cap_slope;

    lean_scores(&o.scores);
    for (int half = 0; half < 2; half++) {
        c.lse[half] = _mm512_mul_ps(_mm512_loadu_ps(o.lse + 16 * half), log2e);
        c.delta[half] = _mm512_loadu_ps(o.delta + 16 * half);
        c.sight[half] = sight_of(&o.scores, half);
    }
    for (int64_t k = 0; k < 32; k += FEW) {
        keep_awake();
        if (plain && sees_all(&o.scores, k))
            for (int64_t i = k; i < k + FEW; i += 2)
                grad_keys(&o, &c, i, true, true);
        else
            for (int64_t i = k; i < k + FEW; i += 2)
                grad_keys(&o, &c, i, false, false);
    }
}

/* ---- what is read and written once ---- */

/* Rows of queries from columns of sums: 32 x 32 are rounded, then transposed as
 * values are packed. */
static inline void store_rounded(const struct cpu_pair_queries *o,
                                 const __m512 factor[2])
{
    for (int64_t d = 0; d < o->d; d += 32) {
        keep_awake();
        const int64_t left = o->d - d;
        const __mmask32 lanes = left < 32 ? (1U << left) - 1 : 0xffffffff;
        _Alignas(64) uint16_t narrow[PAIR_VALUES], tile[TILE];

        for (int64_t i = 0; i < 32; i++) {
            const float *x = o->sums + 32 * (d + i);

            _mm512_store_si512(
                narrow + 32 * i,
                rounded(_mm512_mul_ps(_mm512_loadu_ps(x), factor[0]),
                        _mm512_mul_ps(_mm512_loadu_ps(x + 16), factor[1])));
        }
        for (int t = 0; t < 2; t++) {
            transpose_values(tile, narrow + 16 * t, 32);
            for (int64_t i = 0; i < 16; i++)
                if (column_of(t, i) < o->n)
                    _mm512_mask_storeu_epi16(
                        o->to + column_of(t, i) * o->ld + d, lanes,
                        _mm512_load_si512(tile + 32 * i));
        }
    }
}

/* 16 rows of 16 values become columns. */
static inline void transpose_floats(__m512 row[16])
{
    __m512 pair[16], four[16];

#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        pair[i] = _mm512_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm512_unpackhi_ps(row[i], row[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            const __m512d x = _mm512_castps_pd(pair[i + k]);
            const __m512d y = _mm512_castps_pd(pair[i + k + 2]);

            four[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            four[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    /* lane l of four[4 r + i] has rows 4 r .. 4 r + 3 of column 4 l + i */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512 a = _mm512_shuffle_f32x4(four[i], four[4 + i], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(four[i], four[4 + i], 0xdd);
        const __m512 c = _mm512_shuffle_f32x4(four[8 + i], four[12 + i], 0x88);
        const __m512 d = _mm512_shuffle_f32x4(four[8 + i], four[12 + i], 0xdd);

        row[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        row[8 + i] = _mm512_shuffle_f32x4(a, c, 0xdd);
        row[4 + i] = _mm512_shuffle_f32x4(b, d, 0x88);
        row[12 + i] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

static inline void store_floats(const struct cpu_pair_queries *o,
                                const __m512 factor[2])
{
    for (int64_t d = 0; d < o->d; d += 16) {
        const int64_t left = o->d - d;
        const __mmask16 lanes =
            left < 16 ? (__mmask16)((1U << left) - 1) : 0xffff;

        for (int t = 0; t < 2; t++) {
            __m512 row[16];

#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                row[i] = _mm512_mul_ps(
                    _mm512_loadu_ps(o->sums + 32 * (d + i) + 16 * t),
                    factor[t]);
            transpose_floats(row);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                if (column_of(t, i) < o->n)
                    _mm512_mask_storeu_ps(o->floats +
                                              column_of(t, i) * o->ld + d,
                                          lanes, row[i]);
        }
    }
}

static void store_queries(const struct cpu_pair_queries *o)
{
    const __m512 factor[2] = {columns_of(o->factor, 0),
                              columns_of(o->factor, 1)};

    if (o->to)
        store_rounded(o, factor);
    else
        store_floats(o, factor);
}

/* x . y of n values of bf16; sums are float. */
static float dot_pairs(const uint16_t *x, const uint16_t *y, int64_t n)
{
    __m512 sum = _mm512_setzero_ps();

    for (int64_t i = 0; i < n; i += 32) {
        const __mmask32 lanes = n - i < 32 ? (1U << (n - i)) - 1 : 0xffffffff;

        sum = _mm512_dpbf16_ps(
            sum, (__m512bh)_mm512_maskz_loadu_epi16(lanes, x + i),
            (__m512bh)_mm512_maskz_loadu_epi16(lanes, y + i));
    }
    return _mm512_reduce_add_ps(sum);
}

#endif
#endif
