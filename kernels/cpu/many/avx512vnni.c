/* Products of many rows with bytes by AVX512-VNNI: see many.h. VPDPBUSD
 * multiplies four bytes without a sign, those of inputs, by four with one, and
 * adds their products to a sum: four times as many at a time as floats are
 * multiplied. With three parts of inputs a product takes three quarters of the
 * time of one of floats, with one part a quarter. Start at multiply_panel() and
 * multiply_grouped(). */
#include "cpu/many/panel.h"

#include <string.h>

/* First parts have a sign, and are stored as what they are above -128. What
 * that adds to a sum, 128 times its weights, is taken from it in the end. */
enum { PLUS = 128 };
/* How many rows are multiplied at a time: ROWS rows of three parts have 24
 * vectors of sums in 32 columns, ROWS_OF_BYTES rows of one part 16. */
enum { ROWS = 4, PARTS = 3, ROWS_OF_BYTES = 8 };

static void put_chunk(const struct cpu_many_inputs *in, char *to,
                      const float *x, int64_t k, int64_t c, float unit)
{
    put_bytes(to + c * MANY_TILES, cpu_many_chunks(in) * MANY_TILES, x + 64 * c,
              k - 64 * c, unit, PLUS, in->parts);
}

static void pack_inputs(const struct cpu_many_inputs *in, int64_t panel,
                        int64_t begin, int64_t end)
{
    pack_panel(in, panel, begin, end, put_chunk);
}

/* Weights: four bytes of each of 32 columns. */
struct weights {
    __m512i left, right;
};

static inline struct weights weights_at(const char *w, int64_t l)
{
    return (struct weights){
        _mm512_load_si512(w + 64 * l),
        _mm512_load_si512(w + MANY_TILES / 2 + 64 * l)};
}

/* Repeats four bytes of inputs for all columns. */
static inline __m512i four_of(const char *a)
{
    int32_t four;

    memcpy(&four, a, sizeof(four));
    return _mm512_set1_epi32(four);
}

/* Computes what PLUS adds to the first parts' sums. */
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

/* Computes the sums of all parts of `rows` rows of inputs at a, whose parts lie
 * `apart`. Two loads of weights serve all rows and parts; each of these is
 * loaded once for 32 columns. */
static inline __attribute__((always_inline)) void
sum_rows(struct cpu_many_block *b, const char *a, int64_t apart, const char *w,
         const struct weights *plus, int32_t *sums, bool fetch,
         const int parts, const int rows)
{
    __m512i sum[PARTS][ROWS_OF_BYTES][2];

#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int part = 0; part < parts; part++) {
            sum[part][i][0] = _mm512_setzero_si512();
            sum[part][i][1] = _mm512_setzero_si512();
        }
    for (int64_t c = 0; c < b->chunks; c++, w += MANY_TILES, a += MANY_TILES) {
        if (fetch)
            cpu_many_fetch(&b->next);
        for (int64_t l = 0; l < 16; l++) {
            const struct weights at = weights_at(w, l);

#pragma GCC unroll 3
            for (int part = 0; part < parts; part++)
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++) {
                    const __m512i x =
                        four_of(a + part * apart + 64 * i + 4 * l);

                    sum[part][i][0] =
                        add_products(sum[part][i][0], x, at.left);
                    sum[part][i][1] =
                        add_products(sum[part][i][1], x, at.right);
                }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        sum[0][i][0] = _mm512_sub_epi32(sum[0][i][0], plus->left);
        sum[0][i][1] = _mm512_sub_epi32(sum[0][i][1], plus->right);
#pragma GCC unroll 3
        for (int part = 0; part < parts; part++) {
            int32_t *to = sums + (part * MANY_SIDE + i) * MANY_SIDE;

            _mm512_store_si512(to, sum[part][i][0]);
            _mm512_store_si512(to + 16, sum[part][i][1]);
        }
    }
}

/* Adds the sums of a group of chunks to those of the groups before as floats,
 * in ascending order, at y. Weights that come next are fetched beside as many
 * rows as turns are counted for. */
static inline __attribute__((always_inline)) void
multiply_parts(struct cpu_many_block *b, int64_t panel, float *y, int64_t ldy,
               bool add, const int parts, const int rows)
{
    _Alignas(64) float sums[PARTS * MANY_SIDE * MANY_SIDE];
    const char *a = inputs_at(b, panel), *w = b->packed;
    const int64_t apart = cpu_many_chunks(b->in) * MANY_TILES;
    struct place p = place_of(b, panel, y, ldy, add);

    for (; p.column < b->columns; p.column += MANY_SIDE) {
        const struct weights plus = sum_weights(b, w);

        p.columns = b->columns - p.column;
        for (int64_t i = 0; i < p.rows; i += rows)
            sum_rows(b, a + 64 * i, apart, w, &plus,
                     (int32_t *)(void *)sums + i * MANY_SIDE, i / rows < parts,
                     parts, rows);
        put_sixteen(&p, sums, 0);
        put_sixteen(&p, sums, 16);
        w += b->chunks * MANY_TILES;
    }
}

static void multiply_panel(struct cpu_many_block *b, int64_t panel, float *y,
                           int64_t ldy, bool add)
{
    multiply_parts(b, panel, y, ldy, add, PARTS, ROWS);
}

static void multiply_bytes(struct cpu_many_block *b, int64_t panel, float *y,
                           int64_t ldy, bool add)
{
    multiply_parts(b, panel, y, ldy, add, 1, ROWS_OF_BYTES);
}

const struct cpu_many_road cpu_many_digits = {
    .parts = PARTS, .most = 12, .group = 16,
    .measure = measure_row, .pack_inputs = pack_inputs,
    .pack_weights = pack_weights, .multiply = multiply_panel};
const struct cpu_many_road cpu_many_bytes = {
    .parts = 1, .most = 12, .group = 16,
    .measure = measure_bytes, .pack_inputs = pack_inputs,
    .pack_weights = pack_weights, .multiply = multiply_bytes};

/* ---- a scale for 32 ---- */

/* Packs a chunk of a row: 32 bytes, and their unit twice. What is past the end
 * of a row or of the matrix is zero, with a unit that is a number. */
static void put_groups(const struct cpu_many_inputs *in, char *to,
                       const float *x, int64_t k, int64_t c, float unit)
{
    /* the row's place in its panel, where units lie by groups, then by rows */
    const int64_t row = (to - in->packed) % cpu_many_panel(in);
    float *units = (void *)(to - row + cpu_many_chunks(in) * MANY_TILES);

    for (int64_t g = 0; g < MANY_GROUPS; g++) {
        const int64_t at = c * MANY_CHUNK + g * CPU_GROUP;
        const int64_t n = k < at ? 0 : gpt_min_i64(k - at, CPU_GROUP);

        unit = byte_unit_of(x + (n > 0 ? at : 0), n);
        units[(c * MANY_GROUPS + g) * MANY_SIDE + row / MANY_CHUNK] = unit;
        for (int64_t l = 0; l < CPU_GROUP; l += 16) {
            const __m512 v =
                _mm512_maskz_loadu_ps(lanes_of(n - l), x + at + l);

            put_digits(to + c * MANY_TILES + g * CPU_GROUP + l, 0,
                       _mm512_add_epi32(bytes_of(v, unit),
                                        _mm512_set1_epi32(PLUS)), 1);
        }
    }
}

static void pack_grouped_inputs(const struct cpu_many_inputs *in, int64_t panel,
                                int64_t begin, int64_t end)
{
    pack_panel(in, panel, begin, end, put_groups);
}

/* The scales of group g, with which a packed chunk of weights ends. */
static inline float *scales_at(char *w, int64_t g)
{
    return (float *)(void *)(w + MANY_TILES) + g * MANY_SIDE;
}

static inline int32_t *begins_at(char *w, int64_t g)
{
    return (int32_t *)(void *)(w + MANY_TILES + MANY_FLOATS) + g * MANY_SIDE;
}

/* The scale of group g of a row that exists. */
static inline float scale_of(const struct gpt_quant *w, int64_t row, int64_t g,
                             int64_t k)
{
    const char *values = w->values;
    uint16_t scale;

    if (!w->arranged)
        return gpt_bf16_to_f32(w->scales[row * gpt_ceil_div(k, CPU_GROUP) + g]);
    memcpy(&scale, values + cpu_panel_scale_at(w, row, g, k), sizeof(scale));
    return gpt_bf16_to_f32(scale);
}

/* Writes the scales of group g of the packed chunk w, which is number `at` of
 * all groups of a row. In rows of memory they lie a row apart, but there is
 * only one for 32 bytes. Those of rows that do not exist are zero. */
static void put_scales(const struct cpu_many_block *b, char *w, int64_t column,
                       int64_t g, int64_t at)
{
    const int64_t k = b->in->k;
    float *to = scales_at(w, g);

    for (int64_t j = 0; j < MANY_SIDE; j++) {
        const bool there = column + j < b->columns && at * CPU_GROUP < k;

        to[j] = there ? scale_of(b->w, b->first + column + j, at, k) : 0;
    }
}

/* Writes what sums begin with, which takes off PLUS. A group's sum is then
 * exact, and is not made of two large ones that cancel after they are
 * rounded. */
static void put_begins(char *w, int64_t g)
{
    const __m512i plus = _mm512_set1_epi8((char)PLUS);
    const __m512i zero = _mm512_setzero_si512();
    struct weights sum = {zero, zero};

    for (int64_t l = g * 8; l < g * 8 + 8; l++) {
        const struct weights at = weights_at(w, l);

        sum.left = _mm512_dpbusd_epi32(sum.left, plus, at.left);
        sum.right = _mm512_dpbusd_epi32(sum.right, plus, at.right);
    }
    _mm512_store_si512(begins_at(w, g), _mm512_sub_epi32(zero, sum.left));
    _mm512_store_si512(begins_at(w, g) + 16, _mm512_sub_epi32(zero, sum.right));
}

static void pack_grouped_weights(const struct cpu_many_block *b)
{
    char *w = b->packed;

    /* tiles of all chunks first, between which there is room */
    pack_weights(b);
    for (int64_t j = 0; j < b->columns; j += MANY_SIDE)
        for (int64_t c = 0; c < b->chunks; c++, w += cpu_many_packed(b->in))
            for (int64_t g = 0; g < MANY_GROUPS; g++) {
                put_scales(b, w, j, g, (b->begin + c) * MANY_GROUPS + g);
                put_begins(w, g);
            }
}

/* Adds group g of a chunk to the sums of ROWS rows of inputs at a, whose units
 * are `units`. Eight products of bytes become a float with three more
 * instructions: they take 8 of 11 parts of the time at the peak. The order of
 * additions is that of groups, for each element. */
static inline __attribute__((always_inline)) void
add_group(__m512 sums[ROWS][2], const char *a, const float *units,
          const char *w, int64_t g)
{
    const float *scales = (const void *)(w + MANY_TILES);
    const int32_t *begins = (const void *)(w + MANY_TILES + MANY_FLOATS);
    __m512i sum[ROWS][2];

    scales += g * MANY_SIDE;
    begins += g * MANY_SIDE;
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++) {
        sum[i][0] = _mm512_load_si512(begins);
        sum[i][1] = _mm512_load_si512(begins + 16);
    }
#pragma GCC unroll 8
    for (int64_t l = g * 8; l < g * 8 + 8; l++) {
        const struct weights at = weights_at(w, l);

#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            const __m512i x = four_of(a + 64 * i + 4 * l);

            sum[i][0] = add_products(sum[i][0], x, at.left);
            sum[i][1] = add_products(sum[i][1], x, at.right);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++) {
        const __m512 unit = _mm512_set1_ps(units[i]);

#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            sums[i][j] = _mm512_fmadd_ps(
                _mm512_cvtepi32_ps(sum[i][j]),
                _mm512_mul_ps(_mm512_load_ps(scales + 16 * j), unit),
                sums[i][j]);
    }
}

/* Computes the sums over a block of ROWS rows of inputs at a: 8 vectors of
 * floats, beside 8 of whole numbers. The lines that come next are fetched
 * beside the first rows. */
static inline __attribute__((always_inline)) void
sum_grouped(struct cpu_many_block *b, const char *a, const float *units,
            const char *w, float *to, bool fetch)
{
    __m512 sums[ROWS][2] = {0};

    for (int64_t c = 0; c < b->chunks; c++, w += cpu_many_packed(b->in)) {
        if (fetch)
            cpu_many_fetch(&b->next);
        for (int64_t g = 0; g < MANY_GROUPS; g++, units += MANY_SIDE)
            add_group(sums, a, units, w, g);
        a += MANY_TILES;
    }
    store_floats(to, sums, ROWS);
}

/* Like multiply_parts(), but a block's sums are floats when they are made: each
 * group has a scale and a unit of its own. */
static void multiply_grouped(struct cpu_many_block *b, int64_t panel, float *y,
                             int64_t ldy, bool add)
{
    _Alignas(64) float sums[MANY_SIDE * MANY_SIDE];
    const char *a = inputs_at(b, panel), *w = b->packed;
    const int64_t chunks = cpu_many_chunks(b->in);
    const float *units = (const void *)(a + (chunks - b->begin) * MANY_TILES);
    struct place p = place_of(b, panel, y, ldy, add);

    units += b->begin * MANY_GROUPS * MANY_SIDE;
    for (; p.column < b->columns; p.column += MANY_SIDE) {
        p.columns = b->columns - p.column;
        for (int64_t i = 0; i < p.rows; i += ROWS)
            sum_grouped(b, a + 64 * i, units + i, w, sums + i * MANY_SIDE,
                        i == 0);
        put_sixteen(&p, sums, 0);
        put_sixteen(&p, sums, 16);
        w += b->chunks * cpu_many_packed(b->in);
    }
}

const struct cpu_many_road cpu_many_grouped = {
    .parts = 1, .most = 12, .group = 16,
    .pack_inputs = pack_grouped_inputs,
    .pack_weights = pack_grouped_weights,
    .multiply = multiply_grouped};

const struct cpu_many cpu_many_avx512vnni = {
    {[CPU_BYTES] = &cpu_many_digits,
     [CPU_ROUNDED + CPU_BYTES] = &cpu_many_bytes,
     [CPU_ROUNDED + CPU_GROUPS] = &cpu_many_grouped}};
