/* What forward (attn_pairs.c) and backward (attn_pairs_bwd.c) of attention in
 * bf16 share: rows of bf16 and how they are packed, heads, panels of queries,
 * and the products around a tile of scores. */
#ifndef GPT_KERNELS_CPU_ATTN_PAIRS_H
#define GPT_KERNELS_CPU_ATTN_PAIRS_H

#include "cpu/attn.h"
#include "cpu/pack.h"

/* Keys of a tile, whole panels. */
enum { ATTN_PAIR_KEYS = 128, ATTN_KEY_CHUNKS = ATTN_PAIR_KEYS / PAIR_CHUNK };

/* Rows of bf16 that a product reads, ld apart; where `block` is not 0,
 * PAIR_PANEL of them, and then those `block` values further on. */
struct attn_rows {
    const uint16_t *at;
    int64_t ld, n, width, block;
};

/* Rows [from, from + n) of an operand; a cut is where a block begins. */
static inline struct attn_rows attn_cut(struct attn_rows r, int64_t from,
                                        int64_t n)
{
    r.at += r.block ? from / PAIR_PANEL * r.block : from * r.ld;
    r.n = n;
    return r;
}

/* Panels of rows, summed along their width. */
void cpu_attn_pack_along(uint16_t *to, struct attn_rows r, bool for_a);

/* Panels of columns, summed over the rows: `chunks` chunks of these a panel. */
void cpu_attn_pack_across(uint16_t *to, struct attn_rows r, int64_t chunks,
                          bool for_a);

/* Asks for rows that are about to be read, or for n rows of `width` values, ld
 * apart, that are about to be written. */
void cpu_attn_fetch(struct attn_rows r);
void cpu_attn_fetch_to_write(const uint16_t *rows, int64_t ld, int64_t n,
                             int64_t width);

/* A head of a sample: rows of bf16, and what attn.h's functions ask for. */
struct attn_pair_head {
    struct attn_head h;       /* described as if it were of floats */
    struct attn_rows q, k, v; /* (T, D) */
    int64_t out; /* element of `out` where row 0 is, rows h.ldo apart */
    bool piece;  /* see cpu_attn_pairs_piece(); queries go to h.out */
    int64_t d_pad, chunks;
};

struct attn_pair_head cpu_attn_pair_head(const struct gpt_attn *op, int64_t i);

/* Up to 32 queries beside each other, from the one at `at` on, and what is
 * known of each: top and sum in forward, lse and delta in backward. */
struct attn_panel {
    int64_t at, n, position; /* position: of the query `at` */
    int32_t first[PAIR_PANEL], lowest, highest; /* see cpu_pair_scores */
    float top[PAIR_PANEL], sum[PAIR_PANEL];
    float lse[PAIR_PANEL], delta[PAIR_PANEL];
};

void cpu_attn_open_panel(struct attn_panel *p, const struct attn_pair_head *x,
                         int64_t at);

/* Keys j + lo .. j + hi - 1, whole chunks, of the tile from j on: no query of
 * the panel sees others there. lo >= hi: it sees none. */
struct attn_span {
    int64_t lo, hi;
};

static inline struct attn_span attn_seen(const struct attn_panel *p,
                                         int64_t j)
{
    const int64_t before = p->lowest > j ? p->lowest - j : 0;

    return (struct attn_span){
        before / PAIR_CHUNK * PAIR_CHUNK,
        gpt_min_i64(gpt_round_up(p->position + p->n - j, PAIR_PANEL),
                    ATTN_PAIR_KEYS)};
}

/* What a task needs for a tile of scores. keep, cap_slope: see cpu_pair_grad;
 * rows: of a mask of dropout, before it is transposed. */
struct attn_pair_tile {
    float *s, *dp, *keep, *cap_slope, *rows; /* (ATTN_PAIR_KEYS, 32) each */
    uint16_t *p, *ds, *ds_pairs;
};

/* Memory cut into parts, each at the pointer whose address is `to`; mem NULL:
 * only the floats of all. */
struct attn_part {
    void *to;
    int64_t bytes;
};

int64_t cpu_attn_carve(const struct attn_part *parts, size_t n, float *mem);

/* (n, 32) = keys, or values, from `rows` on times a panel of queries, or of
 * dO. */
void cpu_attn_multiply_scores(float *s, const struct attn_pair_head *x,
                              const uint16_t *rows, const uint16_t *panel,
                              int64_t n);

/* sums (d_pad, 32) += `rows`, panels of D summed over n keys, times the chunks
 * of a panel's scores. */
void cpu_attn_sum_keys(float *sums, const struct attn_pair_head *x,
                       const uint16_t *rows, const uint16_t *scores,
                       int64_t n);

/* Dropout's mask as factors (n, 32), for n keys from `key` on; NULL: none. */
const float *cpu_attn_mask(const struct attn_pair_head *x,
                           const struct attn_pair_tile *tile,
                           const struct attn_panel *p, int64_t key, int64_t n);

/* The tile's scores, of n keys from `key` on, capped; without a mask.
 * cap_slope: see attn_cap(). */
struct cpu_pair_scores cpu_attn_open_scores(const struct attn_pair_head *x,
                                            const struct attn_pair_tile *tile,
                                            const struct attn_panel *p,
                                            int64_t key, int64_t n,
                                            float *cap_slope);

#endif
