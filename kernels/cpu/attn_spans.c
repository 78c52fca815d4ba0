/* Attention of a few new tokens of a row to a span of its key-value cache: keys
 * are read once, in the order of memory, for all groups of heads and all tokens
 * beside each other, and then values. Spans are put together by the online
 * softmax (Milakov and Gimelshein 2018, as Dao et al. 2023 split it). Start at
 * cpu_attn_span(). */
#include "cpu/attn_spans.h"

#include <math.h>
#include <string.h>

enum { SPAN = ATTN_SPAN, BLOCK = GPT_CACHE_BLOCK };

/* The keys first .. end - 1 of the cache, which token i of a row sees. */
struct stretch {
    int64_t first, end;
};

/* The keys of token i of a row that lie in span number `span`; none where
 * first >= end. Keys before the window are not read. */
static struct stretch span_of(const struct gpt_attn_cached *op, int64_t pos,
                              int64_t i, int64_t span)
{
    const int64_t last = pos + i;
    const int64_t from =
        op->window > 0 && last > op->window ? last - op->window : 0;

    return (struct stretch){
        span * SPAN > from ? span * SPAN : from,
        (span + 1) * SPAN < last + 1 ? (span + 1) * SPAN : last + 1};
}

/* A thread's memory for a few tokens of a row, ordered by token, then by query
 * head. Queries and sums of values are `wide` floats each, in the order in
 * which keys are read; scores are `far` floats each; shares are the sums and
 * maxima of each head. */
struct few {
    int64_t wide, far;
    float *queries, *sums, *scores;
    struct attn_share *shares;
};

/* Rows are padded to whole chunks, which are read and written whole; what lies
 * past d is never given out. */
static int64_t wide_of(int64_t d)
{
    return gpt_round_up(d, CPU_CHUNK);
}

/* Floats from one row of scores to the next, such that rows do not all begin in
 * the same set of the first cache. */
static int64_t far_of(int64_t keys)
{
    return gpt_round_up(keys, 16) + 16;
}

int64_t cpu_attn_span_work(int64_t queries, int64_t keys, int64_t d)
{
    return queries * (2 * wide_of(d) + far_of(keys) + 2);
}

static struct few carve_few(float *mem, int64_t queries, int64_t keys,
                            int64_t d)
{
    struct few f = {.wide = wide_of(d), .far = far_of(keys), .queries = mem};

    f.sums = f.queries + queries * f.wide;
    f.scores = f.sums + queries * f.wide;
    f.shares = (struct attn_share *)(void *)(f.scores + queries * f.far);
    return f;
}

/* Query heads of the groups. */
static int64_t heads_of(const struct attn_groups *g)
{
    return g->n * g->per;
}

/* Copies the queries in their order, and sets the sums to 0. */
static void open_few(const struct gpt_attn_cached *op,
                     const struct attn_groups *g, const struct few *f)
{
    const int64_t heads = heads_of(g);

    for (int64_t n = 0; n < g->len * heads; n++) {
        const int64_t h = n % heads;
        const float *q =
            g->q + n / heads * g->ld + (h + h / g->per * 2) * op->d;

        cpu_isa->to_chunks(f->queries + n * f->wide, q, op->d,
                           op->narrow_cache);
    }
    memset(f->sums, 0,
           (size_t)(g->len * heads * f->wide) * sizeof(*f->sums));
}

/* A function that pass_over() calls for each block of a group that token i
 * sees. `seen` is the place of the block's first key in the token's stretch. */
typedef void visitor(const struct attn_groups *g, const struct few *f,
                     int64_t i, int64_t group, int64_t seen,
                     const struct cpu_keys *keys);

/* Calls the visitor for block after block, and in a block for group after
 * group: memory is read from its beginning to its end, which the processor
 * foresees. */
static void pass_over(const struct gpt_attn_cached *op,
                      const struct attn_groups *g, const char *cache,
                      int64_t span, const struct few *f, visitor *visit)
{
    const int64_t first = span_of(op, g->pos, 0, span).first;
    const int64_t end = span_of(op, g->pos, g->len - 1, span).end;

    for (int64_t t = first / BLOCK * BLOCK; t < end; t += BLOCK)
        for (int64_t n = 0; n < g->n * g->len; n++) {
            const int64_t i = n % g->len, k = n / g->len;
            const struct stretch s = span_of(op, g->pos, i, span);
            const int64_t from = s.first > t ? s.first : t;
            const int64_t to = s.end < t + BLOCK ? s.end : t + BLOCK;
            const struct cpu_keys keys = {cache + attn_cache_at(g, k, from),
                                          op->narrow_cache, to - from, op->d};

            if (from < to)
                visit(g, f, i, k, from - s.first, &keys);
        }
}

/* Scores of a group's query heads for token i, as many heads at a time as one
 * pass over the keys serves. What a score is does not depend on which heads
 * share a pass with it. */
static void score_keys(const struct attn_groups *g, const struct few *f,
                       int64_t i, int64_t group, int64_t seen,
                       const struct cpu_keys *keys)
{
    const int64_t at = i * heads_of(g) + group * g->per;

    for (int64_t h = 0, m; h < g->per; h += m) {
        m = g->per - h < CPU_QUERIES ? g->per - h : CPU_QUERIES;
        cpu_isa->key_dots(f->scores + (at + h) * f->far + seen, f->far,
                          f->queries + (at + h) * f->wide, f->wide, keys, m);
    }
}

/* Adds a block of values to the sums of a group's query heads for token i, as
 * many heads at a time as one pass over the values serves. */
static void sum_values(const struct attn_groups *g, const struct few *f,
                       int64_t i, int64_t group, int64_t seen,
                       const struct cpu_keys *values)
{
    const int64_t at = i * heads_of(g) + group * g->per;

    for (int64_t h = 0, m; h < g->per; h += m) {
        m = g->per - h < CPU_QUERIES ? g->per - h : CPU_QUERIES;
        cpu_isa->value_sums(f->sums + (at + h) * f->wide, f->wide,
                            f->scores + (at + h) * f->far + seen, f->far,
                            values, m);
    }
}

/* Turns the scores of token i's query head h into weights, relative to the
 * largest score of the span. A span without keys gives an empty share. */
static struct attn_share weigh_scores(const struct gpt_attn_cached *op,
                                      const struct attn_groups *g, int64_t i,
                                      int64_t h, struct stretch s,
                                      float *scores)
{
    const int64_t n = s.end - s.first;
    struct attn_share share = {0, 0};

    if (n <= 0)
        return share;
    attn_cap(scores, NULL, n, op->softcap, op->scale);
    attn_lean(scores, n, attn_slope_of(op, g, h), g->pos + i, s.first);
    /* A span's row of scores is short enough to be held whole, so the plain
     * softmax with its maximum taken off serves, as in attn_head.c. */
    share.top = cpu_isa->max(scores, n) * op->scale;
    share.sum = cpu_isa->exp_sum(scores, n, op->scale, share.top);
    return share;
}

/* The time of generation is that of reading the cache from memory. */
void cpu_attn_span(const struct gpt_attn_cached *op,
                   const struct attn_groups *g, int64_t span, int64_t keys,
                   const struct attn_parts *parts, float *work)
{
    const int64_t heads = heads_of(g), d = op->d, all = g->len * heads;
    const struct few f = carve_few(work, all, keys, d);

    open_few(op, g, &f);
    pass_over(op, g, g->k, span, &f, score_keys);
    for (int64_t n = 0; n < all; n++)
        f.shares[n] = weigh_scores(op, g, n / heads, n % heads,
                                   span_of(op, g->pos, n / heads, span),
                                   f.scores + n * f.far);
    pass_over(op, g, g->v, span, &f, sum_values);
    for (int64_t n = 0; n < all; n++) {
        const int64_t i = n / heads, h = n % heads;
        const float *sums = f.sums + n * f.wide;

        if (!parts) {
            cpu_isa->from_chunks(g->out + i * g->ldo + h * d, sums, d,
                                 1 / f.shares[n].sum, op->narrow_cache);
            continue;
        }
        cpu_isa->from_chunks(parts->out + (i * parts->step + h) * d, sums, d,
                             1, op->narrow_cache);
        parts->shares[i * parts->step + h] = f.shares[n];
    }
}

/* A part without keys has a sum of zero. A part with a NaN among its scores has
 * a sum that is NaN, and so has the result, as in a text of one span. */
void cpu_attn_join_spans(float *out, const float *parts, int64_t step,
                         const struct attn_share *shares, int64_t hop,
                         int64_t spans, int64_t d)
{
    float top = -INFINITY, sum = 0;

    for (int64_t s = 0; s < spans; s++)
        if (shares[s * hop].sum > 0 && shares[s * hop].top > top)
            top = shares[s * hop].top;
    memset(out, 0, (size_t)d * sizeof(*out));
    for (int64_t s = 0; s < spans; s++) {
        if (shares[s * hop].sum == 0)
            continue;
        const float weight = expf(shares[s * hop].top - top);

        sum += weight * shares[s * hop].sum;
        cpu_isa->combine(out, &weight, parts + s * step, d, d, 1);
    }
    cpu_isa->scale(out, d, 1 / sum);
}
