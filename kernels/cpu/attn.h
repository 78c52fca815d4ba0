/* What the attention operations share: the tiles that scores are cut into,
 * and the forward pass over a range of queries of one head. */
#ifndef GPT_KERNELS_CPU_ATTN_H
#define GPT_KERNELS_CPU_ATTN_H

#include "base/num.h"
#include "cpu/cpu.h"

/* Queries and keys of a tile of scores; both multiples of every instruction
 * set's tile of a product. */
enum { ATTN_BQ = 48, ATTN_BK = 96 };

/* How scores fall with distance. by: ALiBi's slope in units of scores before
 * they are scaled, 0: they do not. rounded: this is GPT_ALIBI_BF16. */
struct attn_slope {
    float by;
    bool rounded;
};

/* One head: rows of q, k, v and out are ld* floats apart. Query i stands at
 * position q0 + i and sees the keys from start[i] (NULL: 0) to its own. */
struct attn_head {
    int64_t d, q0, nq, ldq, ldk, ldv, ldo;
    int64_t block; /* keys come in blocks of GPT_CACHE_BLOCK, so many numbers
                    * apart; 0: one after the other */
    const float *q, *k, *v;
    const uint16_t *narrow_k, *narrow_v; /* of bf16, where k and v are NULL */
    float *out, *lse; /* lse may be NULL */
    const int32_t *start;
    float scale;
    struct attn_slope slope;
    int64_t window;     /* keys before its own that a query sees, 0: all */
    float cap;          /* see attn_cap(); 0: none */
    const struct cpu_drop *drop; /* or NULL */
    uint64_t drop_at;            /* counter of (query 0, key 0) */
    int64_t drop_row;            /* counters between queries */
};

static inline struct attn_slope attn_slope(enum gpt_alibi alibi, int64_t head,
                                           int64_t heads, float scale)
{
    const float slope = alibi ? gpt_alibi_slope(head, heads) : 0;
    const bool rounded = alibi == GPT_ALIBI_BF16;

    return (struct attn_slope){rounded ? slope : slope / scale, rounded};
}

/* What n scores of a query lose with their keys' distance. Positions are those
 * of the query and of the first key in their document. */
static inline void attn_lean(float *s, int64_t n, struct attn_slope slope,
                             int64_t query, int64_t key)
{
    const float own = slope.rounded ? gpt_alibi_bf16(slope.by, query) : 0;

    if (slope.rounded)
        for (int64_t i = 0; i < n; i++)
            s[i] += gpt_alibi_bf16(slope.by, key + i) - own;
    else
        for (int64_t i = 0; slope.by > 0 && i < n; i++)
            s[i] -= slope.by * (float)(query - key - i);
}

/* The position at which the document of query i begins. */
static inline int64_t attn_begin(const struct attn_head *h, int64_t i)
{
    return h->start ? h->start[i] : 0;
}

/* The first key that query i sees: of its document, or of its window. */
static inline int64_t attn_first(const struct attn_head *h, int64_t i)
{
    int64_t first = attn_begin(h, i), near = h->q0 + i - h->window;

    return h->window > 0 && near > first ? near : first;
}

/* n scores that are not scaled yet become c tanh(s scale / c) / scale: what
 * scales them later gives capped scores. slope (n) or NULL: the derivative. */
static inline void attn_cap(float *s, float *slope, int64_t n, float cap,
                            float scale)
{
    if (cap > 0)
        cpu_isa->softcap(s, slope, n, scale / cap, cap / scale);
}

/* Floats of work memory that a thread needs for keys 0..nk-1. */
size_t cpu_attn_work(int64_t nk, int64_t d);

void cpu_attn_head(const struct attn_head *h, float *work);

/* True when the instructions of cpu_pairs are there and add this to scores. */
bool cpu_attn_has_pairs(enum gpt_alibi alibi);

/* Attention in bf16 by the instructions of cpu_pairs, which must do op.
 * scratch is that of cpu_attn_bwd(). */
void cpu_attn_pairs_fwd(struct gpt_queue *q, const struct gpt_attn *op);
void cpu_attn_pairs_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                        const struct gpt_attn_grad *grad);

/* The same of a head of floats whose keys and values are bf16, without dropout
 * and lse: queries are rounded to bf16, outputs are float. keys: q0 + nq. */
int64_t cpu_attn_pairs_work(int64_t keys, int64_t queries, int64_t d);
void cpu_attn_pairs_piece(const struct attn_head *h, float *work);

/* c (m, n) = or += a b for any m and n: b is panels as pack_b leaves them,
 * panel_floats apart (k may be less than they are high). */
void cpu_attn_product(const struct cpu_tile *all, int64_t panel_floats);

/* First key that any of the n queries from `from` on sees. */
int64_t cpu_attn_first(const struct attn_head *h, int64_t from, int64_t n);

/* Where head h of sample b lies in qkv and out, for training. */
void cpu_attn_view(const struct gpt_attn *op, int64_t b, int64_t h,
                   struct attn_head *head);

#endif
