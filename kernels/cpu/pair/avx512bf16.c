/* Products of bf16 by AVX512-BF16: see pair.h. VDPBF16PS adds the products of
 * 16 pairs to 16 sums; it rounds to nearest even and takes subnormal numbers
 * for zero. */
#include "cpu/pair/finish.h"
#include "cpu/pair/pack.h"
#include "cpu/pair/scores.h"

#include <string.h>

/* Rows of a at a time: 2 x 8 vectors of sums, 2 of b and 1 of a stay in
 * registers. */
enum { ROWS = 8 };

static inline __m512bh pairs_of(__m512i words)
{
    return (__m512bh)words;
}

/* 8 x 32 of c, rows `at` of both tiles' rows on. */
static inline void multiply_rows(const uint16_t *a, const uint16_t *b,
                                 int64_t chunks, float *c, int64_t ldc,
                                 bool add)
{
    __m512 sum[ROWS][2];

#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] = add ? _mm512_loadu_ps(c + i * ldc + 16 * j)
                            : _mm512_setzero_ps();
    for (int64_t l = 0; l < chunks; l++, a += PAIR_VALUES, b += PAIR_VALUES)
        for (int64_t p = 0; p < 32; p += 2) {
            __m512bh b0 = pairs_of(_mm512_load_si512(b + 16 * p));
            __m512bh b1 = pairs_of(_mm512_load_si512(b + TILE + 16 * p));

#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++) {
                int32_t pair;

                memcpy(&pair, a + 32 * i + p, sizeof(pair));
                __m512bh ai = pairs_of(_mm512_set1_epi32(pair));

                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], ai, b0);
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], ai, b1);
            }
        }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++)
            _mm512_storeu_ps(c + i * ldc + 16 * j, sum[i][j]);
}

/* 32 x 32 of c. */
static void multiply_panels(const struct cpu_pair_sweep *s, const uint16_t *a,
                            const uint16_t *b, float *c)
{
    for (int64_t i = 0; i < PAIR_PANEL; i += ROWS)
        multiply_rows(a + i / 16 * TILE + i % 16 * 32, b, s->chunks,
                      c + i * s->ldc, s->ldc, s->add);
}

static void multiply_by_vectors(const struct cpu_pair_sweep *s)
{
    const uint16_t *pass = s->pass;
    float *c = s->c;

    for (int64_t i = 0; i < s->panels; i++, pass += s->step, c += s->next_c) {
        if (s->still_a)
            multiply_panels(s, s->still, pass, c);
        else
            multiply_panels(s, pass, s->still, c);
    }
}

/* Vectors need no configuration. */
static void nothing(void) {}

const struct cpu_pairs cpu_pairs_avx512bf16 = {
    "avx512bf16", nothing, nothing, pack_band, multiply_by_vectors,
    finish_sums, softmax_scores, grad_scores, store_queries, dot_pairs};
