/* Quantized weights of several stored tensors; see scaled.h. A stretch is cut
 * into rectangles, and these into strips that are so narrow that a line of all
 * that is read fits on the stack. What is the same for the next line of a strip
 * is not read again: its group, and a word of numbers that go down the rows.
 * Start at gpt_scaled_read(). */
#include "checkpoint/scaled.h"

#include "base/num.h"

#include <assert.h>

enum {
    STRIP = 2048, /* columns */
    NAMED = 256,  /* rows whose groups are read at once */
};

/* What was read for a strip. */
struct strip {
    int64_t column, n;
    int64_t group, unit; /* whose scales and numbers these are, or -1 */
    float scales[STRIP], zeros[STRIP], x[STRIP];
    uint8_t raw[4 * (STRIP + 2)];
    int64_t first_named; /* row, or -1 */
    uint8_t named[4 * NAMED];
};

/* ---- numbers of few bits ---- */

static float value_of(const struct gpt_fields *f, uint32_t stored)
{
    if (f->codes)
        return f->codes[stored];
    const uint32_t mask = (1U << f->bits) - 1;
    return (float)((int)((stored + (uint32_t)f->plus) & mask) - f->minus);
}

/* One line of units that go down the rows, which is kept for the next row. */
static int read_units(const struct gpt_fields *f, uint8_t *raw, int64_t *unit,
                      int64_t line, int64_t column, int64_t n,
                      struct gpt_err *err)
{
    if (*unit != line)
        GPT_TRY(gpt_in_read(f->in, raw, f->begin + line * f->pitch + 4 * column,
                            (size_t)(4 * n), err));
    *unit = line;
    return GPT_OK;
}

/* Units that go down the rows: one a column. Of 3 bits one may be in two of
 * them: the lower ones are kept as a float meanwhile. */
static int read_down(const struct gpt_fields *f, float *to, uint8_t *raw,
                     int64_t *unit, int64_t row, int64_t column, int64_t n,
                     struct gpt_err *err)
{
    const int64_t line = row * f->bits / 32;
    const int shift = (int)(row * f->bits % 32), lower = 32 - shift;
    const uint32_t mask = (1U << f->bits) - 1;

    GPT_TRY(read_units(f, raw, unit, line, column, n, err));
    for (int64_t i = 0; i < n; i++) {
        const uint32_t stored = gpt_get_u32(raw + 4 * i) >> shift & mask;

        to[i] = lower < f->bits ? (float)stored : value_of(f, stored);
    }
    if (lower >= f->bits)
        return GPT_OK;
    GPT_TRY(read_units(f, raw, unit, line + 1, column, n, err));
    for (int64_t i = 0; i < n; i++)
        to[i] = value_of(f, ((uint32_t)to[i] |
                             gpt_get_u32(raw + 4 * i) << lower) & mask);
    return GPT_OK;
}

/* Units that go along the row. */
static int read_along(const struct gpt_fields *f, float *to, uint8_t *raw,
                      int64_t row, int64_t column, int64_t n,
                      struct gpt_err *err)
{
    const int per = f->order ? f->per : f->bits == 3 ? 8 : 8 / f->bits;
    const int size = per * f->bits / 8;
    const int64_t first = column / per;
    const int64_t units = gpt_ceil_div(column + n, per) - first;
    const uint32_t mask = (1U << f->bits) - 1;
    int64_t i = first * per - column; /* of the first number of a unit */

    GPT_TRY(gpt_in_read(f->in, raw, f->begin + row * f->pitch + first * size,
                        (size_t)(units * size), err));
    for (; i < n; i += per, raw += size)
        for (int k = 0; k < per; k++) {
            const int bit = (f->order ? f->order[k] : k) * f->bits;
            uint32_t stored = (uint32_t)raw[bit / 8] >> bit % 8;

            if (bit % 8 + f->bits > 8) /* the rest is in the next byte */
                stored |= (uint32_t)raw[bit / 8 + 1] << (8 - bit % 8);
            if (i + k >= 0 && i + k < n)
                to[i + k] = value_of(f, stored & mask);
        }
    return GPT_OK;
}

/* ---- groups ---- */

static int find_group(const struct gpt_scaled *s, struct strip *p, int64_t row,
                      int64_t *group, struct gpt_err *err)
{
    const int64_t first = row / NAMED * NAMED;
    const int64_t n = gpt_min_i64(NAMED, s->rows - first);

    *group = row / s->group_rows;
    if (!s->index)
        return GPT_OK;
    if (p->first_named != first)
        GPT_TRY(gpt_in_read(s->index, p->named, s->index_begin + 4 * first,
                            (size_t)(4 * n), err));
    p->first_named = first;
    *group = (int32_t)gpt_get_u32(p->named + 4 * (row - first));
    if (*group >= 0 && *group < s->n_groups)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: tensor '%s': row %lld is of group %lld; there are "
                    "%lld",
                    gpt_in_path(s->index), s->name, (long long)row,
                    (long long)*group, (long long)s->n_groups);
}

static int read_scales(const struct gpt_scaled *s, struct strip *p,
                       int64_t first, int64_t n, struct gpt_err *err)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(s->scale_type);
    const int64_t at = p->group * s->n_scales + first;

    if (s->nested) {
        GPT_TRY(gpt_scaled_read(s->nested, p->scales, at, n, err));
        for (int64_t i = 0; i < n; i++)
            p->scales[i] += s->offset;
        return GPT_OK;
    }
    GPT_TRY(gpt_in_read(s->scales, p->raw, s->scales_begin + at * size,
                        (size_t)(n * size), err));
    (void)!gpt_convert(p->scales, GPT_F32, p->raw, s->scale_type, (size_t)n);
    return GPT_OK;
}

/* Scales and zero points of the groups that a strip meets in this row. */
static int read_group(const struct gpt_scaled *s, struct strip *p, int64_t row,
                      struct gpt_err *err)
{
    const int64_t first = p->column / s->group_columns;
    const int64_t n = (p->column + p->n - 1) / s->group_columns - first + 1;
    int64_t group, unit = -1;

    GPT_TRY(find_group(s, p, row, &group, err));
    if (group == p->group)
        return GPT_OK;
    p->group = group;
    p->unit = -1; /* the buffer is used here, too */
    GPT_TRY(read_scales(s, p, first, n, err));
    if (!s->zeros.in)
        return GPT_OK;
    return s->zeros.down
               ? read_down(&s->zeros, p->zeros, p->raw, &unit, group, first, n,
                           err)
               : read_along(&s->zeros, p->zeros, p->raw, group, first, n, err);
}

/* ---- lines ---- */

static void scale_line(const struct gpt_scaled *s, const struct strip *p,
                       float *to)
{
    const int64_t wide = s->group_columns, first = p->column / wide;
    const bool zeros = s->zeros.in != NULL;

    /* each has its own */
    for (int64_t i = 0; wide == 1 && i < p->n; i++)
        to[i] = (p->x[i] - (zeros ? p->zeros[i] : 0)) * p->scales[i] * s->after;
    for (int64_t i = 0; wide > 1 && i < p->n;) {
        const int64_t k = (p->column + i) / wide - first;
        const int64_t end =
            gpt_min_i64(p->n, (first + k + 1) * wide - p->column);
        const float zero = zeros ? p->zeros[k] : 0, scale = p->scales[k];

        for (; i < end; i++)
            to[i] = (p->x[i] - zero) * scale * s->after;
    }
}

static int read_line(const struct gpt_scaled *s, struct strip *p, float *to,
                     int64_t row, struct gpt_err *err)
{
    GPT_TRY(read_group(s, p, row, err));
    if (s->numbers.down)
        GPT_TRY(read_down(&s->numbers, p->x, p->raw, &p->unit, row, p->column,
                          p->n, err));
    else
        GPT_TRY(
            read_along(&s->numbers, p->x, p->raw, row, p->column, p->n, err));
    scale_line(s, p, to);
    return GPT_OK;
}

/* Lines are `apart` in memory. */
static int read_rectangle(const struct gpt_scaled *s, float *to, int64_t apart,
                          int64_t row, int64_t rows, int64_t column,
                          int64_t columns, struct gpt_err *err)
{
    struct strip p;

    p.first_named = -1;
    for (int64_t j = 0; j < columns; j += p.n) {
        p.column = column + j;
        p.n = gpt_min_i64(STRIP, columns - j);
        p.group = p.unit = -1;
        for (int64_t i = 0; i < rows; i++)
            GPT_TRY(read_line(s, &p, to + i * apart + j, row + i, err));
    }
    return GPT_OK;
}

/* The rest of a row, whole rows, the beginning of another. */
int gpt_scaled_read(const struct gpt_scaled *s, float *to, int64_t at,
                    int64_t n, struct gpt_err *err)
{
    while (n > 0) {
        const int64_t row = at / s->columns, column = at % s->columns;
        const int64_t rows =
            column == 0 && n >= s->columns ? n / s->columns : 1;
        const int64_t columns = gpt_min_i64(s->columns - column, n);

        assert(row + rows <= s->rows);
        GPT_TRY(
            read_rectangle(s, to, s->columns, row, rows, column, columns, err));
        to += rows * columns;
        at += rows * columns;
        n -= rows * columns;
    }
    return GPT_OK;
}

int gpt_scaled_read_lines(const struct gpt_scaled *s, float *to, int64_t at,
                          int64_t pitch, int64_t lines, int64_t n,
                          struct gpt_err *err)
{
    const int64_t row = at / s->columns, column = at % s->columns;

    if (pitch == s->columns && n <= s->columns - column)
        return read_rectangle(s, to, n, row, lines, column, n, err);
    for (int64_t i = 0; i < lines; i++)
        GPT_TRY(gpt_scaled_read(s, to + i * n, at + i * pitch, n, err));
    return GPT_OK;
}
