/* Products of many rows with bf16, inputs rounded to bf16, by AVX512-BF16: see
 * many.h. VDPBF16PS adds the products of two pairs to each of 16 sums; it takes
 * subnormal numbers for zero. Start at multiply_panel(). */
#include "cpu/many/panel.h"

#include <string.h>

/* How many rows are multiplied at a time: their sums of 32 columns are 16
 * vectors. */
enum { ROWS = 8 };

/* Packs 32 values of a row, or what there is of them, among zeros. */
static void put_chunk(const struct cpu_many_inputs *in, char *to,
                      const float *x, int64_t k, int64_t c, float unit)
{
    const int64_t n = k - 32 * c;

    (void)in;
    (void)unit;
    x += 32 * c;
    _mm512_store_si512(
        to + c * MANY_TILES,
        (__m512i)_mm512_cvtne2ps_pbh(
            _mm512_maskz_loadu_ps(lanes_of(n - 16), x + 16),
            _mm512_maskz_loadu_ps(lanes_of(n), x)));
}

/* Rows are rounded as they are packed: they need no measure. */
static void pack_inputs(const struct cpu_many_inputs *in, int64_t panel,
                        int64_t begin, int64_t end)
{
    pack_panel(in, panel, begin, end, put_chunk);
}

/* Computes the sums of ROWS rows of inputs at a. A row's pair is repeated in
 * all lanes, whose columns have pairs of their own. */
static inline __attribute__((always_inline)) void
sum_rows(struct cpu_many_block *b, const char *a, const char *w, float *to,
         bool fetch)
{
    __m512 sum[ROWS][2];

#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (int64_t c = 0; c < b->chunks; c++, w += MANY_TILES, a += MANY_TILES) {
        if (fetch)
            cpu_many_fetch(&b->next);
        for (int64_t l = 0; l < 16; l++) {
            const __m512bh left = (__m512bh)_mm512_load_si512(w + 64 * l);
            const __m512bh right =
                (__m512bh)_mm512_load_si512(w + MANY_TILES / 2 + 64 * l);

#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++) {
                int32_t pair;

                memcpy(&pair, a + 64 * i + 4 * l, sizeof(pair));
                const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);

                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, left);
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, right);
            }
        }
    }
    store_floats(to, sum, ROWS);
}

/* Adds the sums of a group of chunks to those of the groups before, in
 * ascending order, at y. Weights that come next are fetched beside the first
 * rows. */
static void multiply_panel(struct cpu_many_block *b, int64_t panel, float *y,
                           int64_t ldy, bool add)
{
    _Alignas(64) float sums[MANY_SIDE * MANY_SIDE];
    const char *a = inputs_at(b, panel), *w = b->packed;
    struct place p = place_of(b, panel, y, ldy, add);

    for (; p.column < b->columns; p.column += MANY_SIDE) {
        p.columns = b->columns - p.column;
        for (int64_t i = 0; i < p.rows; i += ROWS)
            sum_rows(b, a + 64 * i, w, sums + i * MANY_SIDE, i == 0);
        put_sixteen(&p, sums, 0);
        put_sixteen(&p, sums, 16);
        w += b->chunks * MANY_TILES;
    }
}

/* 24 chunks are 768 values: rows of that length have one group, and their sums
 * are stored once. */
static const struct cpu_many_road bf16 = {
    .parts = 1, .most = 12, .group = 24, .pack_inputs = pack_inputs,
    .pack_weights = pack_weights, .multiply = multiply_panel};

const struct cpu_many cpu_many_avx512bf16 = {
    {[CPU_BYTES] = &cpu_many_digits,
     [CPU_ROUNDED + CPU_BF16] = &bf16,
     [CPU_ROUNDED + CPU_BYTES] = &cpu_many_bytes,
     [CPU_ROUNDED + CPU_GROUPS] = &cpu_many_grouped}};
