/* For the tests of operations that take float and bf16 as they are: rows of
 * either type, and comparison with sums in double. Start at rnd_rows(). */
#ifndef GPT_TESTS_ROWS_H
#define GPT_TESTS_ROWS_H

#include "tests/unit/kernels.h"

static size_t bytes_of(int64_t n, enum gpt_dtype act)
{
    return (size_t)n * gpt_dtype_bytes(act);
}

/* Fills memory with what is no number in either type. */
static void spoil(float *x, int64_t words)
{
    memset(x, 0xff, (size_t)words * sizeof(*x));
}

/* Floats that an image of n elements takes. */
static int64_t words_of(int64_t n, enum gpt_dtype act)
{
    return (int64_t)((bytes_of(n, act) + sizeof(float) - 1) / sizeof(float));
}

/* n random elements, times scale; free() them. */
static void *rnd_rows(int64_t n, double scale, enum gpt_dtype act)
{
    float *x = rnd_floats(n, scale);
    void *rows = malloc(bytes_of(n, act) + 4);

    gpt_convert(rows, act, x, GPT_F32, (size_t)n);
    free(x);
    return rows;
}

static double at(const void *x, int64_t i, enum gpt_dtype act)
{
    return act == GPT_BF16
               ? (double)gpt_bf16_to_f32(((const uint16_t *)x)[i])
               : (double)((const float *)x)[i];
}

static const char *name_of(enum gpt_dtype act)
{
    return act == GPT_BF16 ? "bf16" : "float";
}

/* Elements that are further from `want` than rounding explains: that of `terms`
 * sums and products whose terms are `size` in all, and that of storing. */
__attribute__((unused)) static int64_t
wrong_by(const void *got, const double *want, const double *size, int64_t n,
         int64_t terms, enum gpt_dtype act)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < n; i++) {
        const double sums = size[i] * 0x1p-23 * (double)(terms + 4);
        const double stored = act == GPT_BF16 ? 0x1p-8 * fabs(want[i]) : 0;

        wrong += !(fabs(at(got, i, act) - want[i]) <= sums + stored + 1e-37);
    }
    return wrong;
}

#endif
