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

#include "backend.h"

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

/* Memory that a product is about to need, as blocks of 32 rows beside each
 * other, one for each passing panel: fetched while tiles are multiplied. NULL:
 * none. */
struct cpu_pair_ahead {
    const char *mem;
    int64_t ld, next; /* bytes to the next row, to the next panel's block */
};

/* What becomes of a sweep's sums (m, n) when they are complete: they go to c16,
 * or c32 where that is NULL, rows ldc apart, added to what is there or not,
 * after an epilogue. */
struct cpu_pair_finish {
    int64_t m, n;
    /* `past`, `past_aux`: c and what GELU writes to aux go past the caches,
     * since nothing reads them soon */
    bool add, past, past_aux;
    enum gpt_epilogue epilogue;
    const uint16_t *bias;
    uint16_t *aux, *c16;
    float *c32;
    int64_t ld_aux, ldc;
};

/* One panel of an operand, which stays in the first cache, times `panels` of
 * the other, which pass by, each `chunks` chunks: 32 x 32 sums a passing panel,
 * rows ldc apart, next_c floats from one panel to the next. still_a: the first
 * is of a. `odd`: whether the first passing panel is an odd one of its matrix:
 * sums of odd ones may run over k from its end, since what was used last is
 * still there. Sums begin at zero, or at c for `add`; they end in c, or as
 * `finish` says. */
struct cpu_pair_sweep {
    const uint16_t *still, *pass;
    int64_t panels, chunks, step; /* step: between passing panels */
    bool still_a, add, odd;
    bool one_order; /* of all panels, odd ones, too */
    float *c;
    int64_t ldc, next_c;
    const struct cpu_pair_finish *finish; /* NULL: sums stay in c */
    struct cpu_pair_ahead beside[2]; /* read with sums, a line a row */
    /* what comes after this panel: beside each chunk the lines of `read_rows`
     * rows, and then those `read_step` bytes further on */
    struct cpu_pair_ahead read;
    int64_t read_rows, read_step;
};

/* Scores of 32 queries of attention, before they are scaled: row k is key `key`
 * + k, column i query `query` + i (positions). A query sees the keys from
 * first[i] to its own; of one that is not there first[i] is INT32_MAX. */
struct cpu_pair_scores {
    float *s;             /* (keys, 32) */
    int64_t keys;         /* a multiple of 32 */
    int32_t key, query;
    const int32_t *first; /* (32) */
    int32_t highest;      /* of `first` */
    float scale, slope;   /* slope: ALiBi's, of scores that are not scaled */
    const float *keep;    /* (keys, 32): factors of dropout, or NULL */
};

/* A step of a running softmax. top: the largest score so far, scaled, times
 * log2(e); sum: of exponentials relative to it. p: the exponentials, rounded,
 * as chunks of b that are summed over keys; columns of products with them come
 * in an order that cpu_pairs.store_queries() undoes. out: such a product with
 * d_pad rows, which is scaled down where `top` rises. */
struct cpu_pair_softmax {
    struct cpu_pair_scores scores;
    float *top, *sum; /* (32) each */
    float *out;       /* (d_pad, 32) */
    int64_t d_pad;
    uint16_t *p;
};

/* The same of backward, for 32 keys: dp (32, 32) is dO V^T; lse and delta (32)
 * are as in attn_bwd.c. Probabilities (under dropout's mask) and dS without the
 * factor `scale` become chunks of a that are summed over queries, dS also a
 * chunk of b, as in cpu_pair_softmax. */
struct cpu_pair_grad {
    struct cpu_pair_scores scores;
    const float *dp, *lse, *delta;
    const float *cap_slope; /* (32, 32): of a soft cap, or NULL */
    uint16_t *p, *ds, *ds_pairs;
};

/* n rows (D) of queries, ld apart, from sums whose columns they are: (d_pad,
 * 32), as products with chunks of cpu_pair_softmax leave them. They go to `to`,
 * or where that is NULL, to `floats`. */
struct cpu_pair_queries {
    const float *sums, *factor; /* factor (32): of each query */
    uint16_t *to;
    float *floats;
    int64_t n, d, ld;
};

/* n values of an activation: `to` gets f(x), or f(x) up where `up` is not NULL;
 * with dy, of the gradient: dy f'(x) [up], and dup gets dy f(x). */
struct cpu_pair_activation {
    const uint16_t *x, *up, *dy;
    uint16_t *to, *dup;
    int64_t n;
    enum gpt_activation kind;
};

struct cpu_pairs {
    const char *name;
    /* around a thread's calls of the others */
    void (*begin)(void), (*end)(void);
    void (*pack)(const struct cpu_pair_band *band);
    void (*multiply)(const struct cpu_pair_sweep *sweep);
    /* what attention does beside products */
    void (*softmax)(const struct cpu_pair_softmax *softmax);
    void (*softmax_grad)(const struct cpu_pair_grad *grad);
    void (*store_queries)(const struct cpu_pair_queries *queries);
    float (*dot)(const uint16_t *x, const uint16_t *y, int64_t n);
    /* false for a kind that no epilogue has: it is left to cpu_isa */
    bool (*activate)(const struct cpu_pair_activation *activation);
};

extern const struct cpu_pairs cpu_pairs_amx, cpu_pairs_avx512bf16;

#endif
