/* Keys and values of a cache, floats or bf16, against a few queries: rows are
 * short, and there are many of them. Start at key_dots() and value_sums().
 *
 * Two vectors of columns are a chunk. Numbers of bf16 become floats by a shift
 * and a mask: the even columns of a chunk, then the odd ones. Queries and
 * outputs have that order, too (to_chunks(), from_chunks()). A score has one
 * vector of sums and an element of an output has one sum, so that neither
 * depends on how many queries and keys are taken at once. */
#include "cpu/isa/lanes.h"

#include <string.h>

/* A multiple of this, in every instruction set, is what rows of floats are
 * padded to (CPU_CHUNK), so that whole vectors are read and written. */
enum { CHUNK = 2 * W };

struct chunk {
    vf low, high; /* columns of floats in order; of bf16 even ones, odd ones */
};

static inline struct chunk split_pairs(vu pairs)
{
    return (struct chunk){(vf)(pairs << 16), (vf)(pairs & 0xffff0000u)};
}

/* Loads a vector of a row. AVX-512 loads it in two halves, which memory answers
 * faster than one load of all of it. */
#if defined(__AVX512F__)
static inline vf load_row(const float *x)
{
    const __m256 first = _mm256_loadu_ps(x);
    const __m256 second = _mm256_loadu_ps(x + W / 2);

    return (vf)_mm512_insertf64x4((__m512d)_mm512_castps256_ps512(first),
                                  (__m256d)second, 1);
}
#else
static inline vf load_row(const float *x)
{
    return load(x);
}
#endif

/* Loads columns l .. l + left - 1 of a row; columns past its end are 0. */
static inline __attribute__((always_inline)) struct chunk
load_chunk(const void *row, int64_t l, int64_t left, const bool narrow)
{
    const size_t size = narrow ? sizeof(uint16_t) : sizeof(float);
    const char *at = (const char *)row + (size_t)l * size;
    float part[CHUNK] = {0};

    if (left < CHUNK)
        at = memcpy(part, at, (size_t)left * size);
    if (narrow) {
        vu pairs;

        memcpy(&pairs, at, sizeof(pairs));
        return split_pairs(pairs);
    }
    const float *x = (const float *)(const void *)at;
    return (struct chunk){load_row(x), load_row(x + W)};
}

/* Puts even and odd columns back where they belong: undoes deinterleave(). */
static inline struct chunk interleave(struct chunk c)
{
    const vf e = c.low, o = c.high;

#if defined(__AVX512F__)
    return (struct chunk){GPT_LANES(vi, e, o, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
                                    5, 21, 6, 22, 7, 23),
                          GPT_LANES(vi, e, o, 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                    28, 13, 29, 14, 30, 15, 31)};
#elif defined(__AVX2__)
    return (struct chunk){GPT_LANES(vi, e, o, 0, 8, 1, 9, 2, 10, 3, 11),
                          GPT_LANES(vi, e, o, 4, 12, 5, 13, 6, 14, 7, 15)};
#else
    return (struct chunk){GPT_LANES(vi, e, o, 0, 4, 1, 5),
                          GPT_LANES(vi, e, o, 2, 6, 3, 7)};
#endif
}

static inline struct chunk deinterleave(struct chunk c)
{
    const vf a = c.low, b = c.high;

#if defined(__AVX512F__)
    return (struct chunk){GPT_LANES(vi, a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
                                    20, 22, 24, 26, 28, 30),
                          GPT_LANES(vi, a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19,
                                    21, 23, 25, 27, 29, 31)};
#elif defined(__AVX2__)
    return (struct chunk){GPT_LANES(vi, a, b, 0, 2, 4, 6, 8, 10, 12, 14),
                          GPT_LANES(vi, a, b, 1, 3, 5, 7, 9, 11, 13, 15)};
#else
    return (struct chunk){GPT_LANES(vi, a, b, 0, 2, 4, 6),
                          GPT_LANES(vi, a, b, 1, 3, 5, 7)};
#endif
}

/* ---- rows in the order of chunks ---- */

/* Zeros past the end of a query meet zeros past the end of a key. What is past
 * the end of an output is never given out. */

void ISA(to_chunks)(float *y, const float *x, int64_t d, bool narrow)
{
    for (int64_t l = 0; l < d; l += CHUNK) {
        struct chunk c = load_chunk(x, l, d - l, false);

        if (narrow)
            c = deinterleave(c);
        store(y + l, c.low);
        store(y + l + W, c.high);
    }
}

void ISA(from_chunks)(float *y, const float *x, int64_t d, float factor,
                      bool narrow)
{
    for (int64_t l = 0; l < d; l += CHUNK) {
        struct chunk c = {load(x + l), load(x + l + W)};

        if (narrow)
            c = interleave(c);
        any_store(y + l, c.low * all(factor), 0, d - l);
        if (d - l > W)
            any_store(y + l + W, c.high * all(factor), 0, d - l - W);
    }
}

/* ---- scores ---- */

/* The queries, in the order of a chunk's columns. */
struct queries {
    float *y;
    const float *x;
    int64_t ldy, ldx;
};

/* Adds a chunk of a key with M queries to the sums of key r at acc[r]; R sums
 * belong to a query. */
static inline __attribute__((always_inline)) void
chunk_dots(vf *acc, const struct queries *q, int64_t l, struct chunk k,
           const int M, const int R)
{
#pragma GCC unroll 4
    for (int i = 0; i < M; i++) {
        acc[i * R] += k.low * load(q->x + i * q->ldx + l);
        acc[i * R] += k.high * load(q->x + i * q->ldx + l + W);
    }
}

/* Computes the scores of M queries with R keys from key j on. A key has C whole
 * chunks, or, where C is 0, as many as there are. Keys are read one after the
 * other, which the processor foresees, and not side by side. */
static inline __attribute__((always_inline)) void
some_dots(const struct queries *q, const struct cpu_keys *keys, int64_t j,
          const int M, const int R, const int C, const bool narrow)
{
    const int64_t d = keys->d;
    const size_t row = (size_t)d * (narrow ? sizeof(uint16_t) : sizeof(float));
    const char *at = (const char *)keys->rows + (size_t)j * row;
    const int64_t whole = C > 0 ? C * CHUNK : d / CHUNK * CHUNK;
    vf acc[24] = {{0}};
    float dot[24];

#pragma GCC unroll 8
    for (int r = 0; r < R; r++, at += row) {
#pragma GCC unroll 4
        for (int64_t l = 0; l < whole; l += CHUNK)
            chunk_dots(acc + r, q, l, load_chunk(at, l, CHUNK, narrow), M, R);
        if (C == 0 && whole < d)
            chunk_dots(acc + r, q, whole,
                       load_chunk(at, whole, d - whole, narrow), M, R);
    }
    sum_lanes(dot, acc, M * R);
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            q->y[i * q->ldy + j + r] = dot[i * R + r];
}

/* Computes the scores of M queries. R is how many keys have sums with M queries
 * in registers. */
static inline __attribute__((always_inline)) void
all_dots(const struct queries *q, const struct cpu_keys *keys, const int M,
         const int C, const bool narrow)
{
    const int R = W == 16 ? (M < 4 ? 8 : 4) : M == 1 ? 4 : 2;
    int64_t j = 0;

    for (; j + R <= keys->n; j += R)
        some_dots(q, keys, j, M, R, C, narrow);
    for (; j < keys->n; j++)
        some_dots(q, keys, j, M, 1, C, narrow);
}

static inline __attribute__((always_inline)) void
dots_of_kind(const struct queries *q, const struct cpu_keys *keys, int64_t m,
             const bool narrow)
{
    /* heads of 64 and 128 with vectors of 16 floats */
    if (m == 1 && keys->d == 2 * CHUNK)
        all_dots(q, keys, 1, 2, narrow);
    else if (m == 1 && keys->d == 4 * CHUNK)
        all_dots(q, keys, 1, 4, narrow);
    else if (m == 1)
        all_dots(q, keys, 1, 0, narrow);
    else if (m == 2)
        all_dots(q, keys, 2, 0, narrow);
    else if (m == 3)
        all_dots(q, keys, 3, 0, narrow);
    else
        all_dots(q, keys, 4, 0, narrow);
}

void ISA(key_dots)(float *y, int64_t ldy, const float *x, int64_t ldx,
                   const struct cpu_keys *keys, int64_t m)
{
    const struct queries q = {y, x, ldy, ldx};

    if (keys->narrow)
        dots_of_kind(&q, keys, m, true);
    else
        dots_of_kind(&q, keys, m, false);
}

/* ---- sums of values ---- */

struct weights {
    float *y;
    const float *a;
    int64_t ldy, lda;
};

/* Adds values to the outputs of M queries, C chunks of columns from column l
 * on. Outputs are read and written once for all rows. */
static inline __attribute__((always_inline)) void
some_sums(const struct weights *w, const struct cpu_keys *values, int64_t l,
          const int M, const int C, const bool narrow)
{
    const size_t row =
        (size_t)values->d * (narrow ? sizeof(uint16_t) : sizeof(float));
    const char *at = values->rows;
    const int64_t left = values->d - l;
    struct chunk sum[16];

#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            const float *y = w->y + i * w->ldy + l + c * CHUNK;

            sum[i * C + c] = (struct chunk){load(y), load(y + W)};
        }
    for (int64_t j = 0; j < values->n; j++, at += row)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            const struct chunk v =
                load_chunk(at, l + c * CHUNK,
                           C > 1 ? CHUNK : left - c * CHUNK, narrow);

#pragma GCC unroll 4
            for (int i = 0; i < M; i++) {
                const vf a = all(w->a[i * w->lda + j]);

                sum[i * C + c].low += a * v.low;
                sum[i * C + c].high += a * v.high;
            }
        }
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            float *y = w->y + i * w->ldy + l + c * CHUNK;

            store(y, sum[i * C + c].low);
            store(y + W, sum[i * C + c].high);
        }
}

/* Adds all columns in strips, whose sums stay in registers over all rows. */
static inline __attribute__((always_inline)) void
all_sums(const struct weights *w, const struct cpu_keys *values, const int M,
         const bool narrow)
{
    const int C = W == 16 ? (M > 2 ? 2 : 4) : M == 1 ? 4 : M == 2 ? 2 : 1;
    int64_t l = 0;

    /* of what is left, two chunks, then one, which may be a part of one */
    for (; C > 1 && l + C * CHUNK <= values->d; l += C * CHUNK)
        some_sums(w, values, l, M, C, narrow);
    for (; C > 2 && l + 2 * CHUNK <= values->d; l += 2 * CHUNK)
        some_sums(w, values, l, M, 2, narrow);
    for (; l < values->d; l += CHUNK)
        some_sums(w, values, l, M, 1, narrow);
}

static inline __attribute__((always_inline)) void
sums_of_kind(const struct weights *w, const struct cpu_keys *values, int64_t m,
             const bool narrow)
{
    if (m == 1)
        all_sums(w, values, 1, narrow);
    else if (m == 2)
        all_sums(w, values, 2, narrow);
    else if (m == 3)
        all_sums(w, values, 3, narrow);
    else
        all_sums(w, values, 4, narrow);
}

void ISA(value_sums)(float *y, int64_t ldy, const float *a, int64_t lda,
                     const struct cpu_keys *values, int64_t m)
{
    const struct weights w = {y, a, ldy, lda};

    if (values->narrow)
        sums_of_kind(&w, values, m, true);
    else
        sums_of_kind(&w, values, m, false);
}
