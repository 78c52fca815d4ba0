/* Products of bf16 by AVX512-BF16: see pair.h. VDPBF16PS adds the products of
 * 16 pairs to 16 sums; it rounds to nearest even and takes subnormal numbers
 * for zero. */
#include "cpu/pair/activation.h"
#include "cpu/pair/ahead.h"
#include "cpu/pair/finish.h"
#include "cpu/pair/pack.h"
#include "cpu/pair/scores.h"

#include <string.h>

/* How many rows of a are multiplied at a time: 2 x 8 vectors of sums, 2 of b
 * and 1 of a stay in registers. */
enum { ROWS = 8 };

static inline __m512bh pairs_of(__m512i words)
{
    return (__m512bh)words;
}

/* Multiplies 8 x 32 of c, from row `at` of its 32 on. */
static inline __attribute__((always_inline)) void
multiply_rows(const struct cpu_pair_sweep *s, const uint16_t *a,
              const uint16_t *b, const struct sums *sums, int64_t at,
              struct ahead *to_fetch)
{
    const float *from = sums->from ? sums->from + at * sums->ld_from : NULL;
    float *to = sums->to + at * sums->ld_to;
    __m512 sum[ROWS][2];

#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] =
                from ? _mm512_loadu_ps(from + i * sums->ld_from + 16 * j)
                     : _mm512_setzero_ps();
    for (int64_t l = 0; l < s->chunks; l++) {
        if (to_fetch)
            fetch_ahead(s, to_fetch);
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
        a += PAIR_VALUES;
        b += PAIR_VALUES;
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++)
            _mm512_storeu_ps(to + i * sums->ld_to + 16 * j, sum[i][j]);
}

/* Multiplies 32 x 32 of c. The first rows' products hide what is fetched. */
static void multiply_panels(const struct cpu_pair_sweep *s, int64_t panel,
                            const uint16_t *a, const uint16_t *b,
                            const struct sums *sums)
{
    struct ahead to_fetch = ahead_of(s, panel);

    multiply_rows(s, a, b, sums, 0, &to_fetch);
    for (int64_t i = ROWS; i < PAIR_PANEL; i += ROWS)
        multiply_rows(s, a + i / 16 * TILE + i % 16 * 32, b, sums, i, NULL);
}

static void multiply_by_vectors(const struct cpu_pair_sweep *s)
{
    _Alignas(64) float room[PAIR_PANEL * PAIR_PANEL];

    for (int64_t i = 0; i < s->panels; i++) {
        const uint16_t *pass = s->pass + i * s->step;
        const struct sums sums = sums_of(s, i, room);

        if (s->still_a)
            multiply_panels(s, i, s->still, pass, &sums);
        else
            multiply_panels(s, i, pass, s->still, &sums);
        /* Results are finished at once: vectors multiply and finish, so that
         * neither could hide the other, and the sums are in the first cache. */
        if (s->finish) {
            struct finishing due = finishing_of(s, i, room);

            finish_rows(&due, due.rows);
        }
    }
}

/* Stands for the configuration of tiles, which vectors do not need. */
static void nothing(void) {}

const struct cpu_pairs cpu_pairs_avx512bf16 = {
    "avx512bf16", nothing, stores_end, pack_band, multiply_by_vectors,
    softmax_scores, grad_scores, store_queries, dot_pairs,
    activate_pairs};
