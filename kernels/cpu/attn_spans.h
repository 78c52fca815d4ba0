/* What the files of attention against a cache share: how a text's keys lie, and
 * attention of a few tokens to a span of them. */
#ifndef GPT_KERNELS_CPU_ATTN_SPANS_H
#define GPT_KERNELS_CPU_ATTN_SPANS_H

#include "cpu/attn.h"

/* Keys of a span; a thread reads them in tens of microseconds. */
enum { ATTN_SPAN = 1024 };

/* Groups of heads of a row, from number `first` on: where the queries, new keys
 * and cache of the first begin. */
struct attn_groups {
    int64_t first, n, per, ld, ldo; /* query heads; floats between rows of qkv,
                                     * out */
    int64_t pos, len;
    size_t row, hop; /* bytes of a key, from one block of a group to the next */
    const float *q;
    char *k, *v;
    float *out;
};

/* Byte of a cache where position t of group i of these lies. */
static inline size_t attn_cache_at(const struct attn_groups *g, int64_t i,
                                   int64_t t)
{
    return (size_t)(t / GPT_CACHE_BLOCK) * g->hop +
           (size_t)(i * GPT_CACHE_BLOCK + t % GPT_CACHE_BLOCK) * g->row;
}

/* ALiBi's slope of query head h of the groups. */
static inline struct attn_slope
attn_slope_of(const struct gpt_attn_cached *op, const struct attn_groups *g,
              int64_t h)
{
    return attn_slope(op->alibi, op->head0 + g->first * g->per + h,
                      op->h_global ? op->h_global : op->h, op->scale);
}

/* A span's part of a softmax for one query head: out (D) is the sum of values
 * times exp(score - top), `sum` that of the exponentials. */
struct attn_share {
    float top, sum;
};

/* Where the parts of a span go: those of the groups' first query head. Those
 * of the next token are `step` heads further on. */
struct attn_parts {
    float *out; /* D each */
    struct attn_share *shares;
    int64_t step;
};

/* Floats of work memory for so many query heads of all tokens together, which
 * see so many keys of a span. */
int64_t cpu_attn_span_work(int64_t queries, int64_t keys, int64_t d);

/* Span number `span` of the groups, for all of their few tokens: to `parts`, or
 * where that is NULL, since there is one span, to the outputs. `keys`: as the
 * memory `work` was made for. */
void cpu_attn_span(const struct gpt_attn_cached *op,
                   const struct attn_groups *g, int64_t span, int64_t keys,
                   const struct attn_parts *parts, float *work);

/* Puts the parts of a query head together: out (D). parts[s] and shares[s] are
 * `step` and `hop` apart. */
void cpu_attn_join_spans(float *out, const float *parts, int64_t step,
                         const struct attn_share *shares, int64_t hop,
                         int64_t spans, int64_t d);

#endif
