/* Products of many rows with bytes by AVX512-VNNI: see many.h. VPDPBUSD
 * multiplies four bytes without a sign, those of inputs, by four with one, and
 * adds their products to a sum: four times as many at a time as floats are
 * multiplied. With three parts of inputs a product takes three quarters of the
 * time of one of floats. Start at multiply_panel(). */
#include "cpu/many/panel.h"

#include <string.h>

/* First parts have a sign, and are stored as what they are above -128. What
 * that adds to a sum, 128 times its weights, is taken from it in the end. */
enum { PLUS = 128 };
/* Rows at a time: their sums of three parts and 32 columns are 24 vectors. */
enum { ROWS = 4, PARTS = 3 };

static void put_chunk(const struct cpu_many_inputs *in, char *to,
                      const float *x, int64_t k, int64_t c, float unit)
{
    put_bytes(to + c * MANY_TILES, cpu_many_chunks(in) * MANY_TILES, x + 64 * c,
              k - 64 * c, unit, PLUS);
}

static void pack_inputs(const struct cpu_many_inputs *in, int64_t panel,
                        int64_t begin, int64_t end)
{
    pack_panel(in, panel, begin, end, put_chunk);
}

/* Four bytes of 32 columns. */
struct weights {
    __m512i left, right;
};

static inline struct weights weights_at(const char *w, int64_t l)
{
    return (struct weights){
        _mm512_load_si512(w + 64 * l),
        _mm512_load_si512(w + MANY_TILES / 2 + 64 * l)};
}

/* What PLUS adds to the first parts' sums. */
static struct weights sum_weights(const struct cpu_many_block *b, const char *w)
{
    const __m512i plus = _mm512_set1_epi8((char)PLUS);
    struct weights sum = {_mm512_setzero_si512(), _mm512_setzero_si512()};

    for (int64_t c = 0; c < b->chunks; c++, w += MANY_TILES)
        for (int64_t l = 0; l < 16; l++) {
            const struct weights at = weights_at(w, l);

            sum.left = _mm512_dpbusd_epi32(sum.left, plus, at.left);
            sum.right = _mm512_dpbusd_epi32(sum.right, plus, at.right);
        }
    return sum;
}

/* Sums of all parts of ROWS rows of inputs at a, whose parts lie `apart`. */
static inline __attribute__((always_inline)) void
sum_rows(struct cpu_many_block *b, const char *a, int64_t apart, const char *w,
         const struct weights *plus, int32_t *sums, bool fetch)
{
    __m512i sum[PARTS][ROWS][2];

#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
        for (int part = 0; part < PARTS; part++) {
            sum[part][i][0] = _mm512_setzero_si512();
            sum[part][i][1] = _mm512_setzero_si512();
        }
    for (int64_t c = 0; c < b->chunks; c++, w += MANY_TILES, a += MANY_TILES) {
        if (fetch)
            cpu_many_fetch(&b->next);
        for (int64_t l = 0; l < 16; l++) {
            const struct weights at = weights_at(w, l);

#pragma GCC unroll 3
            for (int part = 0; part < PARTS; part++)
#pragma GCC unroll 16
                for (int i = 0; i < ROWS; i++) {
                    int32_t four;

                    memcpy(&four, a + part * apart + 64 * i + 4 * l,
                           sizeof(four));
                    const __m512i x = _mm512_set1_epi32(four);

                    sum[part][i][0] =
                        add_products(sum[part][i][0], x, at.left);
                    sum[part][i][1] =
                        add_products(sum[part][i][1], x, at.right);
                }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        sum[0][i][0] = _mm512_sub_epi32(sum[0][i][0], plus->left);
        sum[0][i][1] = _mm512_sub_epi32(sum[0][i][1], plus->right);
#pragma GCC unroll 3
        for (int part = 0; part < PARTS; part++) {
            int32_t *to = sums + (part * MANY_SIDE + i) * MANY_SIDE;

            _mm512_store_si512(to, sum[part][i][0]);
            _mm512_store_si512(to + 16, sum[part][i][1]);
        }
    }
}

/* Sums of a group of chunks are added to those of groups before as floats, in
 * ascending order, at y. Weights that come next are fetched beside as many rows
 * as turns are counted for. */
static void multiply_panel(struct cpu_many_block *b, int64_t panel, float *y,
                           int64_t ldy, bool add)
{
    _Alignas(64) float sums[PARTS * MANY_SIDE * MANY_SIDE];
    const struct cpu_many_inputs *in = b->in;
    const char *a = inputs_at(b, panel), *w = b->packed;
    const int64_t apart = cpu_many_chunks(in) * MANY_TILES;
    const int64_t turns = cpu_many_turns(b) / b->chunks;
    struct place p = {.b = b, .y = y, .ldy = ldy, .add = add};

    p.row = panel * MANY_SIDE;
    p.rows = in->m - p.row < MANY_SIDE ? in->m - p.row : MANY_SIDE;
    for (; p.column < b->columns; p.column += MANY_SIDE) {
        const struct weights plus = sum_weights(b, w);

        p.columns = b->columns - p.column;
        for (int64_t i = 0; i < p.rows; i += ROWS)
            sum_rows(b, a + 64 * i, apart, w, &plus,
                     (int32_t *)(void *)sums + i * MANY_SIDE, i / ROWS < turns);
        put_sixteen(&p, sums, 0);
        put_sixteen(&p, sums, 16);
        w += b->chunks * MANY_TILES;
    }
}

const struct cpu_many cpu_many_avx512vnni = {
    .most = 12,
    .group = 16,
    .measure = measure_row,
    .pack_inputs = pack_inputs,
    .pack_weights = pack_weights,
    .multiply = multiply_panel};
