/* Products of many rows with bytes, inputs rounded to bytes, by AVX2 or by
 * AVX-VNNI: see many.h and pair/eights.h. Four rows of inputs meet 8 or 16
 * columns at a time. Sums are made in the order of the same roads of
 * AVX512-VNNI, and have their bits. Start at multiply_bytes() and
 * multiply_grouped().
 *
 * Packed memory is not that of many.h. A panel of inputs is eight rows of
 * blocks: four rows of the matrix, whose chunks follow each other; a chunk is
 * 16 steps, and a step four inputs of each row, side by side. A panel of
 * weights is four rows of blocks: eight columns, whose chunks follow each
 * other; a step is four weights of each column. Where groups have scales, these
 * follow the chunks of their eight columns: eight floats a group, and after all
 * of them, eight whole numbers a group from which its sums begin. Units follow
 * the panel of inputs as in many.h. */
#include "cpu/many/many.h"
#include "cpu/pair/eights.h"

/* Rows and columns of a block, weights of a row in a step, and steps. */
enum { ROWS = 4, EIGHT = 8, FOUR = 4 };
enum { STEPS = MANY_CHUNK / FOUR, GROUP_STEPS = CPU_GROUP / FOUR };
/* Values of a chunk of a block of inputs, bytes of one of weights. */
enum { VALUES = ROWS * MANY_CHUNK, BYTES = EIGHT * MANY_CHUNK };
/* Vectors that the products of eight columns with a row are summed in. */
enum { PARTS = sizeof(input) };
/* Blocks of columns that rows meet at a time: all sums are in registers. */
enum { MOST_BLOCKS = 2 / PARTS };

/* ---- inputs ---- */

/* In many.h an input is a byte: one of 16 bits has the room of two parts. */
static inline input *block_of_row(const struct cpu_many_inputs *in, char *panel,
                                  int64_t row)
{
    return (input *)(void *)panel +
           row / ROWS * cpu_many_chunks(in) * VALUES + row % ROWS * FOUR;
}

/* Units of a panel: 32 for each group. */
static inline float *units_of(const struct cpu_many_inputs *in, char *panel)
{
    return (float *)(void *)(panel +
                             cpu_many_chunks(in) * PARTS * MANY_TILES);
}

/* n values, a multiple of 8, of which `there` are inputs, to steps at `to`.
 * Bytes lose their sign: turning the upper bit adds PLUS. */
static inline void put_steps(input *to, int64_t n, const float *x,
                             int64_t there, float unit)
{
    enum { STEP = ROWS * FOUR };
    input values[EIGHT];

    for (int64_t l = 0; l < n; l += EIGHT, to += 2 * STEP) {
        put_inputs(values, in_units(eight_of(x + l, there - l), unit));
        for (int i = 0; i < EIGHT; i++)
            values[i] ^= -PLUS;
        memcpy(to, values, FOUR * sizeof(input));
        memcpy(to + STEP, values + FOUR, FOUR * sizeof(input));
    }
}

/* Chunk c of row `row` of a panel, which is x, of k floats. */
static void put_groups(const struct cpu_many_inputs *in, char *panel,
                       int64_t row, const float *x, int64_t k, int64_t c)
{
    input *to = block_of_row(in, panel, row) + c * VALUES;
    float *units = units_of(in, panel) + row;

    for (int64_t g = c * MANY_GROUPS; g < (c + 1) * MANY_GROUPS; g++) {
        const int64_t at = g * CPU_GROUP, left = k > at ? k - at : 0;
        const int64_t n = gpt_min_i64(left, CPU_GROUP);
        const float *from = x + (n > 0 ? at : 0);
        const float unit = byte_unit_of(from, n);

        units[g * MANY_SIDE] = unit;
        put_steps(to, CPU_GROUP, from, n, unit);
        to += ROWS * CPU_GROUP;
    }
}

static void pack_inputs(const struct cpu_many_inputs *in, int64_t panel,
                        int64_t begin, int64_t end)
{
    char *to = in->packed + panel * cpu_many_panel(in);

    for (int64_t r = 0; r < MANY_SIDE; r++) {
        const int64_t row = panel * MANY_SIDE + r;
        const bool there = row < in->m;
        const float *x = in->x + (there ? row : 0) * in->ldx;
        const int64_t k = there ? in->k : 0;

        for (int64_t c = begin; c < end; c++)
            if (in->groups)
                put_groups(in, to, r, x, k, c);
            else
                put_steps(block_of_row(in, to, r) + c * VALUES, MANY_CHUNK,
                          x + c * MANY_CHUNK, k - c * MANY_CHUNK,
                          there ? in->units[row] : 1);
    }
}

static void measure_row(const struct cpu_many_inputs *in, int64_t row)
{
    in->units[row] = byte_unit_of(in->x + row * in->ldx, in->k);
}

/* ---- weights ---- */

/* Four bytes of each of eight rows, ld bytes apart, as eight steps of those. */
static inline void transpose(char *to, const char *from, int64_t ld)
{
    __m256i a[EIGHT], b[EIGHT];

#pragma GCC unroll 4
    for (int i = 0; i < EIGHT; i += 2) {
        const __m256i x = load(from + i * ld), y = load(from + (i + 1) * ld);

        a[i] = _mm256_unpacklo_epi32(x, y);
        a[i + 1] = _mm256_unpackhi_epi32(x, y);
    }
    /* b[i]: steps i and i + 4 of rows 0 to 3; b[i + 4]: of rows 4 to 7 */
#pragma GCC unroll 2
    for (int i = 0; i < EIGHT; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = _mm256_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm256_store_si256((__m256i *)(void *)(to + 32 * i),
                           _mm256_permute2x128_si256(b[i], b[i + 4], 0x20));
        _mm256_store_si256((__m256i *)(void *)(to + 32 * (i + 4)),
                           _mm256_permute2x128_si256(b[i], b[i + 4], 0x31));
    }
}

/* Bytes of a block of eight columns, all chunks with what follows them. */
static inline int64_t block_bytes(const struct cpu_many_block *b)
{
    return b->chunks * cpu_many_packed(b->in) * EIGHT / MANY_SIDE;
}

static inline float *scales_at(const struct cpu_many_block *b, char *w)
{
    return (float *)(void *)(w + b->chunks * BYTES);
}

static inline int32_t *begins_at(const struct cpu_many_block *b, char *w)
{
    return (int32_t *)(void *)(scales_at(b, w) +
                               b->chunks * MANY_GROUPS * EIGHT);
}

/* Chunks of the eight columns from `first` of the block on. What is not there
 * is zero. */
static void pack_chunks(const struct cpu_many_block *b, char *to, int64_t first)
{
    const int64_t k = b->in->k, columns = b->columns - first;
    const char *from = (const char *)b->w->values + (b->first + first) * k +
                       b->begin * MANY_CHUNK;
    _Alignas(32) char edge[EIGHT][MANY_CHUNK];

    for (int64_t c = 0; c < b->chunks; c++, from += MANY_CHUNK, to += BYTES) {
        const int64_t left = k - (b->begin + c) * MANY_CHUNK;
        const bool whole = left >= MANY_CHUNK && columns >= EIGHT;
        const char *rows = whole ? from : edge[0];
        const int64_t ld = whole ? k : MANY_CHUNK;

        if (!whole) {
            memset(edge, 0, sizeof(edge));
            for (int64_t j = 0; j < EIGHT && j < columns; j++)
                memcpy(edge[j], from + j * k,
                       (size_t)gpt_min_i64(left, MANY_CHUNK));
        }
        transpose(to, rows, ld);
        transpose(to + BYTES / 2, rows + MANY_CHUNK / 2, ld);
    }
}

/* Sums of PLUS times the weights of so many steps, for eight columns. */
static inline __m256i sum_plus(const char *w, int64_t steps)
{
    __m256i sum = _mm256_setzero_si256();

    if (PLUS != 0)
        for (int64_t l = 0; l < steps; l++)
            sum = add_products(sum, _mm256_set1_epi8((char)PLUS),
                               load(w + 32 * l));
    return sum;
}

/* Scales, and what takes off PLUS, of the columns at w, packed, whose first one
 * is `first` of the block. In memory scales lie a row apart, but there is only
 * one for 32 bytes. */
static void put_scales(const struct cpu_many_block *b, char *w, int64_t first)
{
    const int64_t groups = gpt_ceil_div(b->in->k, CPU_GROUP);
    const uint16_t *from = b->w->scales + (b->first + first) * groups;

    for (int64_t g = 0; g < b->chunks * MANY_GROUPS; g++) {
        const int64_t at = b->begin * MANY_GROUPS + g;
        float *to = scales_at(b, w) + g * EIGHT;

        for (int64_t j = 0; j < EIGHT; j++) {
            const bool there = first + j < b->columns && at < groups;

            to[j] = there ? gpt_bf16_to_f32(from[j * groups + at]) : 0;
        }
        _mm256_store_si256(
            (__m256i *)(void *)(begins_at(b, w) + g * EIGHT),
            _mm256_sub_epi32(_mm256_setzero_si256(),
                             sum_plus(w + g * BYTES / 2, GROUP_STEPS)));
    }
}

static void pack_weights(const struct cpu_many_block *b)
{
    char *to = b->packed;

    for (int64_t j = 0; j < b->columns; j += EIGHT, to += block_bytes(b)) {
        pack_chunks(b, to, j);
        if (b->in->groups)
            put_scales(b, to, j);
    }
}

/* ---- sums ---- */

/* Sums of a row of inputs and eight columns: by AVX2, of two parts of four
 * products each, of the first four columns and of the others. */
struct sums {
    __m256i part[PARTS];
};

/* A step of weights. */
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

/* Four inputs, for all columns. */
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

/* The sums of eight columns, in their order. */
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

/* What `steps` steps add to the sums of ROWS rows and some blocks of columns,
 * `apart` bytes apart. */
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

/* Rows and columns of a panel of inputs and of a block that are multiplied. */
struct place {
    const struct cpu_many_block *b;
    int64_t first; /* of the panel's rows, in the matrix */
    int64_t rows, row, column;
    float *y;
    int64_t ldy;
    bool add;
};

/* Results of row `row` in the columns from `column` of the block on. */
static inline void put_row(const struct place *p, int64_t row, int64_t column,
                           __m256 v, __m256 scale)
{
    const int64_t n = p->b->columns - column;
    float *y = p->y + row * p->ldy + column;

    put_eight(y, n, times(v, scale, p->add,
                          p->add ? eight_of(y, n) : _mm256_setzero_ps()));
}

/* Sums of whole numbers, of rows that are there. */
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
            put_row(p, row, column, _mm256_mul_ps(_mm256_cvtepi32_ps(whole), unit), scale);
        }
    }
}

/* ROWS rows of inputs, with the block's chunks of some blocks of columns at w.
 */
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

/* All rows of a panel with some blocks of columns. */
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

/* The block's chunks of the first rows of a panel of inputs. */
static inline const input *inputs_at(const struct cpu_many_block *b,
                                     int64_t panel)
{
    return (const input *)(void *)(b->in->packed +
                                   panel * cpu_many_panel(b->in)) +
           b->begin * VALUES;
}

/* What follows is fetched as often as cpu_many_turns() says: beside PARTS of
 * 32 columns. */
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

/* What a group of ROWS rows at x adds to their sums in eight columns. */
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

/* ROWS rows with the eight columns at w: sums are floats. */
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
