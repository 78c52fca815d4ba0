/* Products of many rows with bytes, inputs rounded to bytes, by AVX2 or by
 * AVX-VNNI: see many.h and pair/eights.h. Four rows of inputs meet 8 or 16
 * columns at a time. Sums are made in the order of the same roads of
 * AVX512-VNNI, and have their bits. Start at multiply_bytes() and
 * multiply_grouped(). */
#include "cpu/many/steps.h"

#include <string.h>

/* Blocks of columns that rows meet at a time: all sums are in registers, which
 * are PARTS for eight columns. */
enum { MOST_BLOCKS = 2 / PARTS };

/* ---- sums ---- */

/* Sums of a row of inputs and eight columns. AVX2 has two parts with four
 * products each, one for the first four columns and one for the others. */
struct sums {
    __m256i part[PARTS];
};

/* Loads one step of weights. */
static inline __attribute__((always_inline)) struct sums step_at(const char *w)
{
#ifdef __AVXVNNI__
    return (struct sums){{load(w)}};
#else
    const __m128i *from = (const void *)w;

    return (struct sums){{_mm256_cvtepi8_epi16(_mm_load_si128(from)),
                          _mm256_cvtepi8_epi16(_mm_load_si128(from + 1))}};
#endif
}

/* Repeats four inputs for all columns: bytes fill 32 bits of a lane, numbers of
 * 16 bits two lanes, which are two parts. */
static inline __m256i four_of(const input *x)
{
#ifdef __AVXVNNI__
    int32_t four;

    memcpy(&four, x, sizeof(four));
    return _mm256_set1_epi32(four);
#else
    int64_t four;

    memcpy(&four, x, sizeof(four));
    return _mm256_set1_epi64x(four);
#endif
}

/* Joins the parts into the sums of eight columns, in order. Both parts have two
 * sums of each of four columns side by side: even places are added to odd ones,
 * and then each half of the vector has two columns of either part. */
static inline __m256i whole_of(struct sums s)
{
#ifdef __AVXVNNI__
    return s.part[0];
#else
    const __m256 a = _mm256_castsi256_ps(s.part[0]);
    const __m256 b = _mm256_castsi256_ps(s.part[1]);
    const __m256i sum = _mm256_add_epi32(
        _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
        _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));

    return _mm256_permute4x64_epi64(sum, 0xd8);
#endif
}

/* Adds `steps` steps to the sums of ROWS rows and some blocks of columns, which
 * lie `apart` bytes apart. */
static inline __attribute__((always_inline)) void
add_steps(struct sums sums[ROWS][MOST_BLOCKS], const input *x, const char *w,
          int64_t apart, int64_t steps, const int blocks)
{
    for (int64_t l = 0; l < steps; l++, x += ROWS * FOUR, w += EIGHT * FOUR) {
        struct sums at[MOST_BLOCKS];

#pragma GCC unroll 2
        for (int j = 0; j < blocks; j++)
            at[j] = step_at(w + j * apart);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            const __m256i four = four_of(x + i * FOUR);

#pragma GCC unroll 2
            for (int j = 0; j < blocks; j++)
#pragma GCC unroll 2
                for (int p = 0; p < PARTS; p++)
                    sums[i][j].part[p] = add_products(sums[i][j].part[p], four,
                                                      at[j].part[p]);
        }
    }
}

/* ---- results ---- */

/* Which rows of a panel of inputs and which columns of a block are
 * multiplied. */
struct place {
    const struct cpu_many_block *b;
    int64_t first; /* of the panel's rows, in the matrix */
    int64_t rows, row, column;
    float *y;
    int64_t ldy;
    bool add;
};

/* Writes the results of row `row` in the columns from `column` of the block
 * on. */
static inline void put_row(const struct place *p, int64_t row, int64_t column,
                           __m256 v, __m256 scale)
{
    const int64_t n = p->b->columns - column;
    float *y = p->y + row * p->ldy + column;

    put_eight(y, n, times(v, scale, p->add,
                          p->add ? eight_of(y, n) : _mm256_setzero_ps()));
}

/* Turns sums of whole numbers into results, for the rows that are there. What
 * PLUS added is taken off while sums are exact; the products with unit and
 * scale are rounded. */
static inline __attribute__((always_inline)) void
put_sums(const struct place *p, struct sums sums[ROWS][MOST_BLOCKS],
         const __m256i plus[MOST_BLOCKS], const int blocks)
{
    const struct cpu_many_block *b = p->b;

#pragma GCC unroll 2
    for (int j = 0; j < blocks; j++) {
        const int64_t column = p->column + j * EIGHT;
        const __m256 scale = wide(scales_of(b->w->scales + b->first + column,
                                            b->columns - column));

#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            const int64_t row = p->row + i;
            const __m256i whole =
                _mm256_sub_epi32(whole_of(sums[i][j]), plus[j]);

            if (row >= p->rows)
                continue;
            const __m256 unit = _mm256_set1_ps(b->in->units[p->first + row]);
            const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(whole), unit);

            put_row(p, row, column, v, scale);
        }
    }
}

/* Multiplies ROWS rows of inputs with the block's chunks of some blocks of
 * columns at w. */
static inline __attribute__((always_inline)) void
multiply_rows(const struct place *p, struct cpu_many_ahead *next,
              const input *x, const char *w, const __m256i plus[MOST_BLOCKS],
              const int blocks)
{
    struct sums sums[ROWS][MOST_BLOCKS];

#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < blocks; j++)
#pragma GCC unroll 2
            for (int part = 0; part < PARTS; part++)
                sums[i][j].part[part] = _mm256_setzero_si256();
    for (int64_t c = 0; c < p->b->chunks; c++, x += VALUES, w += BYTES) {
        if (next)
            cpu_many_fetch(next);
        add_steps(sums, x, w, block_bytes(p->b), STEPS, blocks);
    }
    put_sums(p, sums, plus, blocks);
}

/* Multiplies all rows of a panel with some blocks of columns, whose weights
 * stay in the first cache meanwhile. What comes next is asked for beside the
 * first rows. */
static inline __attribute__((always_inline)) void
multiply_columns(struct place *p, struct cpu_many_ahead *next, const input *x,
                 const char *w, const int blocks)
{
    const struct cpu_many_block *b = p->b;
    __m256i plus[MOST_BLOCKS];

#pragma GCC unroll 2
    for (int j = 0; j < blocks; j++)
        plus[j] = sum_plus(w + j * block_bytes(b), b->chunks * STEPS);
    for (p->row = 0; p->row < p->rows; p->row += ROWS) {
        multiply_rows(p, p->row == 0 ? next : NULL, x, w, plus, blocks);
        x += cpu_many_chunks(b->in) * VALUES;
    }
}

static inline struct place place_of(const struct cpu_many_block *b,
                                    int64_t panel, float *y, int64_t ldy,
                                    bool add)
{
    const int64_t first = panel * MANY_SIDE;

    return (struct place){.b = b,
                          .first = first,
                          .rows = gpt_min_i64(b->in->m - first, MANY_SIDE),
                          .y = y,
                          .ldy = ldy,
                          .add = add};
}

/* The inputs of the block's first chunk in a panel of inputs. */
static inline const input *inputs_at(const struct cpu_many_block *b,
                                     int64_t panel)
{
    return (const input *)(void *)(b->in->packed +
                                   panel * cpu_many_panel(b->in)) +
           b->begin * VALUES;
}

/* What is fetched next, or NULL. It is fetched as often as cpu_many_turns()
 * says: beside PARTS of 32 columns. */
static inline struct cpu_many_ahead *next_of(struct cpu_many_block *b,
                                             int64_t column)
{
    return column % (MANY_SIDE / PARTS) == 0 ? &b->next : NULL;
}

static void multiply_bytes(struct cpu_many_block *b, int64_t panel, float *y,
                           int64_t ldy, bool add)
{
    enum { MOST = MOST_BLOCKS * EIGHT };
    const input *x = inputs_at(b, panel);
    struct place p = place_of(b, panel, y, ldy, add);
    const char *w = b->packed;

    for (; p.column < b->columns; p.column += MOST) {
        if (b->columns - p.column > MOST - EIGHT)
            multiply_columns(&p, next_of(b, p.column), x, w, MOST_BLOCKS);
        else
            multiply_columns(&p, next_of(b, p.column), x, w, 1);
        w += MOST_BLOCKS * block_bytes(b);
    }
}

static const struct cpu_many_road bytes = {
    .parts = PARTS, .most = 12, .group = 16,
    .measure = measure_row, .pack_inputs = pack_inputs,
    .pack_weights = pack_weights, .multiply = multiply_bytes};

/* ---- a scale for 32 ---- */

/* Adds one group of ROWS rows at x to their sums in eight columns. */
static inline __attribute__((always_inline)) void
add_group(__m256 sums[ROWS], const input *x, const char *w, const float *units,
          const float *scales, const int32_t *begins)
{
    struct sums whole[ROWS][MOST_BLOCKS];

#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; part++)
            whole[i][0].part[part] =
                PLUS != 0 ? load(begins) : _mm256_setzero_si256();
    add_steps(whole, x, w, 0, GROUP_STEPS, 1);
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
        sums[i] = _mm256_fmadd_ps(
            _mm256_cvtepi32_ps(whole_of(whole[i][0])),
            _mm256_mul_ps(_mm256_load_ps(scales), _mm256_set1_ps(units[i])),
            sums[i]);
}

/* Multiplies ROWS rows with the eight columns at w, group after group: sums are
 * floats, in the order of k. */
static inline void multiply_groups(const struct place *p,
                                   struct cpu_many_ahead *next, const input *x,
                                   char *w, const float *units)
{
    const float *scales = scales_at(p->b, w);
    const int32_t *begins = begins_at(p->b, w);
    __m256 sums[ROWS] = {0};

    for (int64_t g = 0; g < p->b->chunks * MANY_GROUPS; g++) {
        if (next && g % MANY_GROUPS == 0)
            cpu_many_fetch(next);
        add_group(sums, x, w, units, scales, begins);
        x += ROWS * CPU_GROUP;
        w += EIGHT * CPU_GROUP;
        units += MANY_SIDE;
        scales += EIGHT;
        begins += EIGHT;
    }
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
        if (p->row + i < p->rows)
            put_row(p, p->row + i, p->column, sums[i], _mm256_set1_ps(1));
}

/* Multiplies eight columns at a time with all rows of the panel: weights of 8
 * bytes for each k stay in the first cache, rows come from the second. */
static void multiply_grouped(struct cpu_many_block *b, int64_t panel, float *y,
                             int64_t ldy, bool add)
{
    char *packed = b->in->packed + panel * cpu_many_panel(b->in);
    const float *units =
        units_of(b->in, packed) + b->begin * MANY_GROUPS * MANY_SIDE;
    struct place p = place_of(b, panel, y, ldy, add);
    char *w = b->packed;

    for (; p.column < b->columns; p.column += EIGHT, w += block_bytes(b)) {
        const input *x = inputs_at(b, panel);

        for (p.row = 0; p.row < p.rows; p.row += ROWS) {
            multiply_groups(&p, p.row == 0 ? next_of(b, p.column) : NULL, x, w,
                            units + p.row);
            x += cpu_many_chunks(b->in) * VALUES;
        }
    }
}

static const struct cpu_many_road grouped = {
    .parts = PARTS, .most = 12, .group = 16,
    .pack_inputs = pack_inputs, .pack_weights = pack_weights,
    .multiply = multiply_grouped};

const struct cpu_many OF_SET(cpu_many) = {
    {[CPU_ROUNDED + CPU_BYTES] = &bytes,
     [CPU_ROUNDED + CPU_GROUPS] = &grouped}};
