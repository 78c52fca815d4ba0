/* Tiles of matrix products, and packing of what they read. Every element of c
 * is one sum over k in ascending order, whatever tile it falls into. */
#include "base/vectors.h"
#include "cpu/isa/tile.h"
#include "cpu/isa/weights.h"
#include "cpu/many/many.h"

#include <string.h>

/* Lines that a tile writes, and lines that are read after it, are asked for one
 * at a time, every STEP of k: many at once would take all the buffers that a
 * core has for lines on their way, and hold up what the tile itself reads. */
enum { STEP = CPU_TILE_STEP };
/* AVX2 has few sums for each step of k: a core that shares its units with
 * another program is busy with the loop itself. */
enum { UNROLLED = W == 8 };

struct lines {
    struct cpu_many_ahead *ahead;
    const float *c;
    int64_t ldc, left;
};

static inline __attribute__((always_inline)) void ask(struct lines *l)
{
    if (l->left > 0) {
        __builtin_prefetch(l->c, 1);
        __builtin_prefetch(l->c + NR - 1, 1);
        l->c += l->ldc;
        l->left--;
    }
    if (l->ahead) {
        cpu_many_fetch(&l->ahead[0]);
        cpu_many_fetch(&l->ahead[1]);
    }
}

/* Adds the products of one step over k. */
static inline __attribute__((always_inline)) void
add_step(const float *a, int64_t a_row, const float *b, const int64_t *row,
         vf acc[MR][NV], const int M)
{
    const vf b0 = load(b), b1 = load(b + W);

#pragma GCC unroll 16
    for (int i = 0; i < M; i++) {
        const vf ai = all(a[row ? row[i] : i * a_row]);

        acc[i][0] += ai * b0;
        acc[i][1] += ai * b1;
    }
}

/* Computes the sums of M rows of a tile. Row i of a begins at a + i * a_row, or
 * for a tile with fewer rows, at a + row[i]. The loops over rows unroll. */
static inline __attribute__((always_inline)) void
sum_tile(const struct cpu_tile *t, int64_t a_row, int64_t a_col,
         const int64_t *row, vf acc[MR][NV], const int M)
{
    /* MR x NV vectors of sums stay in registers over all of k; each step loads
     * NV vectors of b and broadcasts MR floats of a. MR and NV are the largest
     * for which the registers suffice (tile.h). */
    const float *a = t->a, *b = t->b;
    struct lines lines = {t->ahead, t->c, t->ldc, t->m};
    int64_t l = 0;

    for (; UNROLLED && l + STEP <= t->k; l += STEP) {
        ask(&lines);
#pragma GCC unroll 8
        for (int i = 0; i < STEP; i++)
            add_step(a + i * a_col, a_row, b + i * NR, row, acc, M);
        a += STEP * a_col;
        b += STEP * NR;
    }
    while (l < t->k) {
        const int64_t end = t->k - l < STEP ? t->k : l + STEP;

        ask(&lines);
        for (; l < end; l++, a += a_col, b += NR)
            add_step(a, a_row, b, row, acc, M);
    }
}

/* Writes M rows of c, all columns. */
static inline __attribute__((always_inline)) void
put_rows(const struct cpu_tile *t, vf acc[MR][NV], const int M)
{
    float *c = t->c;
    int64_t ldc = t->ldc;

    if (t->add)
#pragma GCC unroll 16
        for (int i = 0; i < M; i++) {
            acc[i][0] += load(c + i * ldc);
            acc[i][1] += load(c + i * ldc + W);
        }
#pragma GCC unroll 16
    for (int i = 0; i < M; i++) {
        store(c + i * ldc, acc[i][0]);
        store(c + i * ldc + W, acc[i][1]);
    }
}

/* Writes the part of a tile that lies inside c, by way of a buffer. */
static inline void put_part(const struct cpu_tile *t, vf acc[MR][NV])
{
    float out[MR][NR];

    memcpy(out, acc, sizeof(out));
    for (int64_t i = 0; i < t->m; i++) {
        float *c = t->c + i * t->ldc;

        for (int64_t j = 0; j < t->n; j++)
            c[j] = t->add ? c[j] + out[i][j] : out[i][j];
    }
}

static inline __attribute__((always_inline)) void
whole_tile(const struct cpu_tile *t, int64_t a_row, int64_t a_col)
{
    /* Sums begin at zero and c is added at the end, so that the order within a
     * part of k is the same whether c is added or not. */
    vf acc[MR][NV] = {{{0}}};

    sum_tile(t, a_row, a_col, NULL, acc, MR);
    put_rows(t, acc, MR);
}

/* Computes a tile cut off at an edge: rows that are missing repeat the last
 * one. */
static void edge_tile(const struct cpu_tile *t)
{
    int64_t row[MR];
    vf acc[MR][NV] = {{{0}}};

    for (int64_t i = 0; i < MR; i++)
        /* Reading a row twice is harmless; reading past the matrix is not. */
        row[i] = (i < t->m ? i : t->m - 1) * t->a_row;
    sum_tile(t, 0, t->a_col, row, acc, MR);
    put_part(t, acc);
}

/* Multiplies panels of b, one after the other, with M rows of a panel of a. The
 * processor overlaps tiles when the code around them is in one loop. */
static inline __attribute__((always_inline)) void
row_of_tiles(const struct cpu_tile *t, const int M)
{
    const int64_t panel = t->panel ? t->panel : NR * t->k;
    struct cpu_tile one = *t;

    for (int64_t left = t->n; left > 0; left -= NR) {
        vf acc[MR][NV] = {{{0}}};

        one.n = left < NR ? left : NR;
        sum_tile(&one, 1, MR, NULL, acc, M);
        if (t->m == M && one.n == NR)
            put_rows(&one, acc, M);
        else
            put_part(&one, acc);
        one.b += panel;
        one.c += NR;
    }
}

void ISA(tile)(const struct cpu_tile *t)
{
    const bool whole = t->m == MR && t->n == NR;

    /* Strides that the compiler knows become addresses of the instruction. */
    if (t->packed && t->m <= MR / 3)
        row_of_tiles(t, MR / 3);
    else if (t->packed && t->m <= MR / 3 * 2)
        row_of_tiles(t, MR / 3 * 2);
    else if (t->packed)
        row_of_tiles(t, MR);
    else if (!whole)
        edge_tile(t);
    else if (t->a_row == 1)
        whole_tile(t, 1, t->a_col);
    else if (t->a_col == 1)
        whole_tile(t, t->a_row, 1);
    else
        whole_tile(t, t->a_row, t->a_col);
}

typedef int32_t i4 __attribute__((vector_size(16)));

/* 4 x 4 transposition inside a panel, for sources whose rows are the panel's
 * columns: whole vectors are read and written. */
static inline void transpose4(float *to, int64_t to_row, const float *from,
                              int64_t from_row)
{
    typedef float v4 __attribute__((vector_size(16)));
    typedef float v4_any
        __attribute__((vector_size(16), aligned(4), may_alias));
    v4 r0 = *(const v4_any *)from;
    v4 r1 = *(const v4_any *)(from + from_row);
    v4 r2 = *(const v4_any *)(from + 2 * from_row);
    v4 r3 = *(const v4_any *)(from + 3 * from_row);
    v4 a = GPT_LANES(i4, r0, r1, 0, 4, 1, 5);
    v4 b = GPT_LANES(i4, r0, r1, 2, 6, 3, 7);
    v4 c = GPT_LANES(i4, r2, r3, 0, 4, 1, 5);
    v4 d = GPT_LANES(i4, r2, r3, 2, 6, 3, 7);

    *(v4_any *)to = GPT_LANES(i4, a, c, 0, 1, 4, 5);
    *(v4_any *)(to + to_row) = GPT_LANES(i4, a, c, 2, 3, 6, 7);
    *(v4_any *)(to + 2 * to_row) = GPT_LANES(i4, b, d, 0, 1, 4, 5);
    *(v4_any *)(to + 3 * to_row) = GPT_LANES(i4, b, d, 2, 3, 6, 7);
}

/* Packs two columns of a panel, four rows. */
static inline void transpose2(float *to, int64_t to_row, const float *from,
                              int64_t from_row)
{
    for (int l = 0; l < 4; l++) {
        float pair[2] = {from[l], from[from_row + l]};

        memcpy(to + l * to_row, pair, sizeof(pair));
    }
}

/* Packs a source whose rows are the panel's columns, col floats apart. Rows
 * that are a power of two apart fall into the same few lines of a cache, so a
 * line is used up (16 floats) with only four rows in flight. */
static inline __attribute__((always_inline)) void
transpose_panel(float *to, const float *from, int64_t col, int64_t k,
                int64_t width)
{
    for (int64_t l0 = 0; l0 < k; l0 += 16) {
        int64_t end = k < l0 + 16 ? k : l0 + 16, whole4 = end - (end - l0) % 4;
        int64_t j = 0;

        for (; j + 4 <= width; j += 4)
            for (int64_t l = l0; l < whole4; l += 4)
                transpose4(to + l * width + j, width, from + l + j * col, col);
        for (; j + 2 <= width; j += 2)
            for (int64_t l = l0; l < whole4; l += 4)
                transpose2(to + l * width + j, width, from + l + j * col, col);
        for (int64_t l = l0; j < width && l < whole4; l++)
            to[l * width + j] = from[l + j * col];
        for (int64_t l = whole4; l < end; l++)
            for (j = 0; j < width; j++)
                to[l * width + j] = from[l + j * col];
    }
}

/* Packs the last panel, or a source with strides both ways. Zeros fill the
 * columns that are missing: they add nothing to sums, and tiles need no case
 * for them. */
static void pack_part(float *to, const float *from, int64_t row, int64_t col,
                      int64_t k, int64_t n, int64_t width)
{
    for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < width; j++)
            to[l * width + j] = j < n ? from[l * row + j * col] : 0;
}

/* Packs n columns as panels of `width` columns: to[l * width + j] = from[l *
 * row + j * col]. */
static inline __attribute__((always_inline)) void
pack_panels(float *to, const float *from, int64_t row, int64_t col, int64_t k,
            int64_t n, int64_t width)
{
    int64_t count = n / width, done = 0;

    if (col == 1) { /* four rows at a time, all panels */
        for (int64_t l0 = 0; l0 < k; l0 += 4) {
            int64_t end = k < l0 + 4 ? k : l0 + 4;

            for (int64_t p = 0; p < count; p++)
                for (int64_t l = l0; l < end; l++)
                    memcpy(to + (p * k + l) * width, from + l * row + p * width,
                           (size_t)width * sizeof(*to));
        }
        done = count;
    } else if (row == 1) {
        for (; done < count; done++)
            transpose_panel(to + done * k * width, from + done * width * col,
                            col, k, width);
    }
    for (; done * width < n; done++) {
        int64_t left = n - done * width;

        pack_part(to + done * k * width, from + done * width * col, row, col, k,
                  left < width ? left : width, width);
    }
}

void ISA(pack_b)(float *to, const float *b, int64_t row, int64_t col, int64_t k,
                 int64_t n)
{
    pack_panels(to, b, row, col, k, n, NR);
}

/* Widens a panel of bf16, in which two values of a column, four bytes, lie side
 * by side. */
void ISA(widen_panel)(float *to, const void *b, int64_t k)
{
    typedef uint32_t words __attribute__((vector_size(4 * W)));
    typedef uint32_t any_words
        __attribute__((vector_size(4 * W), aligned(4), may_alias));
    const char *from = b;

    for (int64_t l = 0; l < k; l += 2, from += CPU_STEP, to += 2 * NR)
#pragma GCC unroll 2
        for (int v = 0; v < NV; v++) {
            const words pair = *(const any_words *)(from + 4 * W * v);

            store(to + v * W, (vf)(pair << 16));
            if (l + 1 < k)
                store(to + NR + v * W, (vf)(pair & 0xffff0000U));
        }
}

/* Widens columns of a panel of bytes, in which four values of a column lie side
 * by side, and the scales of a panel's columns behind the 32 values of their
 * group. A byte times its scale is exact in a float: tiles multiply the numbers
 * that the bits stand for. */
void ISA(widen_groups)(float *to, const void *panel, int64_t column,
                       int64_t k)
{
    typedef int32_t words __attribute__((vector_size(4 * W)));
    typedef int32_t any_words
        __attribute__((vector_size(4 * W), aligned(4), may_alias));
    const char *from = panel;

    for (int64_t l = 0; l < k; l += CPU_GROUP, from += CPU_GROUP_BYTES) {
        const char *scales = from + CPU_GROUP / 4 * CPU_STEP + 2 * column;
        const int64_t n = k - l < CPU_GROUP ? k - l : CPU_GROUP;

        for (int64_t i = 0; i < n; i++, to += NR)
#pragma GCC unroll 2
            for (int v = 0; v < NV; v++) {
                const words four = *(const any_words *)(
                    from + i / 4 * CPU_STEP + 4 * (column + W * v));
                const vf value = __builtin_convertvector(
                    four << (24 - i % 4 * 8) >> 24, vf);

                store(to + v * W,
                      value * values(scales + 2 * W * v, W, BF16));
            }
    }
}

void ISA(pack_a)(float *to, const float *a, int64_t row, int64_t col, int64_t m,
                 int64_t k)
{
    pack_panels(to, a, col, row, k, m, MR);
}

/* Packs m rows of a. Groups of few rows are read as often as panels pass, so
 * the last one has no zeros for rows that are missing. */
void ISA(pack_rows)(float *to, const float *a, int64_t row, int64_t m,
                    int64_t k)
{
    for (; m >= MR; m -= MR, to += MR * k, a += MR * row)
        transpose_panel(to, a, row, k, MR);
    if (m > 0)
        transpose_panel(to, a, row, k, m);
}
