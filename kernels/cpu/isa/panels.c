/* Rows of a, up to those of a tile, with a panel of weights that lies in memory
 * as tiles read it: start at panel(). Every element of c is one sum over k in
 * ascending order, with the bits of a tile's. */
#include "cpu/isa/tile.h"

#include <string.h>

/* Writes M rows of c. A panel that is cut off at the edge of c is written by
 * way of a buffer. */
static inline __attribute__((always_inline)) void
put_rows(const struct cpu_panel *p, vf (*sums)[NV], const int M)
{
    if (p->n == NR) {
#pragma GCC unroll 12
        for (int i = 0; i < M; i++)
#pragma GCC unroll 2
            for (int v = 0; v < NV; v++) {
                float *c = p->c + i * p->ldc + v * W;

                store(c, p->add ? sums[i][v] + load(c) : sums[i][v]);
            }
        return;
    }
    for (int i = 0; i < M; i++) {
        float *c = p->c + i * p->ldc, out[NR];

        memcpy(out, sums[i], sizeof(out));
        for (int64_t j = 0; j < p->n; j++)
            c[j] = p->add ? out[j] + c[j] : out[j];
    }
}

/* Computes the sums of M rows of a. M is a constant for the compiler, so that
 * sums stay in registers over all of k: a step loads a row of the panel once
 * for all of them, and a float of each for all columns. Lines are asked for one
 * by one, into the second cache: many at once would take all the buffers that a
 * core has for lines on their way. */
static inline __attribute__((always_inline)) void
sum_rows(const struct cpu_panel *p, vf (*sums)[NV], const int M,
         const int lines)
{
    const float *a = p->a, *b = p->b, *next = p->next;

    for (int64_t l = 0; l < p->k; l++, a += M, b += NR) {
        const vf b0 = load(b), b1 = load(b + W);

#pragma GCC unroll 2
        for (int i = 0; i < lines; i++, next += 16)
            __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 12
        for (int i = 0; i < M; i++) {
            const vf ai = all(a[i]);

            sums[i][0] += ai * b0;
            sums[i][1] += ai * b1;
        }
    }
}

/* With so many rows or more, multiplying takes nearly as long as memory does,
 * and what follows is asked for. With fewer rows the processor itself looks
 * ahead, and is slower when it is asked to. */
enum { WAITS = 3 };

static inline __attribute__((always_inline)) void
rows_of(const struct cpu_panel *p, const int M)
{
    vf sums[MR][NV] = {{{0}}};

    if (M < WAITS || p->lines == 0)
        sum_rows(p, sums, M, 0);
    else if (p->lines == 1)
        sum_rows(p, sums, M, 1);
    else
        sum_rows(p, sums, M, 2);
    put_rows(p, sums, M);
}

#if defined(__AVX512F__)
/* Multiplies one row: memory comes faster to halves of vectors. */
static void one_row(const struct cpu_panel *p)
{
    typedef float half __attribute__((vector_size(4 * W / 2)));
    typedef float any_half
        __attribute__((vector_size(4 * W / 2), aligned(4), may_alias));
    enum { HALVES = 2 * NV };
    const float *b = p->b;
    half halves[HALVES] = {{0}};
    vf sums[1][NV];

    for (int64_t l = 0; l < p->k; l++, b += NR) {
        const half al = p->a[l] - (half){0};

#pragma GCC unroll 4
        for (int h = 0; h < HALVES; h++)
            halves[h] += al * *(const any_half *)(b + h * W / 2);
    }
    memcpy(sums, halves, sizeof(sums));
    put_rows(p, sums, 1);
}
#else
static void one_row(const struct cpu_panel *p)
{
    rows_of(p, 1);
}
#endif

/* There is a case for each number of rows up to a tile's, so that no row is
 * multiplied in vain; a set with smaller tiles has only its own cases. */
#define ROWS(M)                                                               \
    case M:                                                                   \
        if ((M) <= MR)                                                        \
            rows_of(p, (M) <= MR ? (M) : MR);                                 \
        break

void ISA(panel)(const struct cpu_panel *p)
{
    switch (p->m) {
    case 1:
        one_row(p);
        break;
        ROWS(2);
        ROWS(3);
        ROWS(4);
        ROWS(5);
        ROWS(6);
        ROWS(7);
        ROWS(8);
        ROWS(9);
        ROWS(10);
        ROWS(11);
        ROWS(12);
    }
}
