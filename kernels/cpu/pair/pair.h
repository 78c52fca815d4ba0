/* Products of bf16 by instructions that multiply pairs of them and add in
 * float: AMX (TDPBF16PS) and AVX512-BF16 (VDPBF16PS). Each is a file of this
 * folder, compiled with its own flags and reached through its table, which
 * cpu_choose() picks. Nothing in here knows of threads. Start at
 * struct cpu_pairs; pairs.c cuts products into what it multiplies.
 *
 * Packed operands. A panel is 32 rows of a (or 32 columns of b), and its parts
 * are chunks of 32 values of k, one after the other, 1024 values each. A chunk
 * of a is two tiles of 16 rows, a row being 16 pairs (k, k + 1). A chunk of b
 * is two tiles of 16 columns, and row p of a tile is pair p of its columns.
 * Zeros fill what lies past the edges of a matrix, and add nothing. */
#ifndef GPT_KERNELS_CPU_PAIR_H
#define GPT_KERNELS_CPU_PAIR_H

#include <stdbool.h>
#include <stdint.h>

enum { PAIR_PANEL = 32, PAIR_CHUNK = 32, PAIR_VALUES = 1024 };

/* A band of a stored matrix on its way into chunks: at most 32 stored rows, ld
 * apart, cut into chunks every 32 columns. Chunk i goes to `to` + i * step.
 * along_k: k runs along stored rows, else across them. for_a: chunks of a. */
struct cpu_pair_band {
    const uint16_t *from;
    int64_t ld, rows, columns;
    uint16_t *to;
    int64_t step;
    bool along_k, for_a;
};

/* c (m, n), rows ldc apart, = or += the product of packed panels: panel i of a
 * is at a + i * a_step, panel j of b at b + j * b_step, each of `chunks`
 * chunks. m and n are multiples of PAIR_PANEL. Sums of an element run over k in
 * an order that depends on `chunks` alone. */
struct cpu_pair_block {
    int64_t m, n, chunks;
    const uint16_t *a, *b;
    int64_t a_step, b_step;
    float *c;
    int64_t ldc;
    bool add;
};

struct cpu_pairs {
    const char *name;
    void (*pack)(const struct cpu_pair_band *band);
    void (*multiply)(const struct cpu_pair_block *block);
};

extern const struct cpu_pairs cpu_pairs_amx, cpu_pairs_avx512bf16;

#endif
