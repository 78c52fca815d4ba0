/* Attention of new tokens against the key-value cache, for generation. A few
 * tokens of a row read the cache once, in order, all groups of heads beside
 * each other; longer pieces (a prompt) go through the tiles of attn_head.c, or
 * of bf16 through those of attn_pairs.c.
 *
 * A long cache is cut into spans, which several threads read, and whose parts
 * of the softmax are put together in their order (the online softmax of
 * Milakov and Gimelshein 2018, as Dao et al. 2023 split it). Spans have a fixed
 * length, so that the result does not depend on the number of threads, and a
 * text of one span has the bits of the plain softmax. */
#include "cpu/attn.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { SPAN = 1024 }; /* keys; a thread reads them in tens of microseconds */
enum { BLOCK = GPT_CACHE_BLOCK };
/* From about this many new tokens on the packing of tiles, which takes as long
 * as a pass over the cache, is paid back. */
enum { TOKENS = 8 };

/* Groups of heads of row b, from number `first` on: where the queries, new keys
 * and cache of the first begin. */
struct groups {
    int64_t first, n, per, ld, ldo; /* query heads; floats between rows of qkv,
                                     * out */
    int64_t pos, len;
    size_t row, hop; /* bytes of a key, from one block of a group to the next */
    const float *q;
    char *k, *v;
    float *out;
};

static struct groups groups_of(const struct gpt_attn_cached *op, int64_t b,
                               int64_t first, int64_t n)
{
    const int64_t per = op->h / op->g, d = op->d;
    const size_t row = (size_t)d * (op->narrow_cache ? sizeof(uint16_t)
                                                     : sizeof(float));
    struct groups v = {.first = first,
                       .n = n,
                       .per = per,
                       .ld = op->g * (per + 2) * d,
                       .ldo = op->h * d,
                       .pos = op->pos[b],
                       .len = op->len[b],
                       .row = row,
                       .hop = (size_t)op->g * BLOCK * row};
    const size_t at =
        (size_t)(op->slot[b] * op->g * gpt_cache_rows(op->t_max) +
                 first * BLOCK) * row;

    v.q = (const float *)op->qkv + b * op->t_new * v.ld +
          first * (per + 2) * d;
    v.k = (char *)op->k_cache + at;
    v.v = (char *)op->v_cache + at;
    v.out = (float *)op->out + b * op->t_new * v.ldo + first * per * d;
    return v;
}

/* Byte of a cache where position t of group i of these lies. */
static size_t cache_at(const struct groups *g, int64_t i, int64_t t)
{
    return (size_t)(t / BLOCK) * g->hop +
           (size_t)(i * BLOCK + t % BLOCK) * g->row;
}

static float slope_of(const struct gpt_attn_cached *op, int64_t head)
{
    return attn_slope(op->alibi, head, op->h_global ? op->h_global : op->h,
                      op->scale);
}

/* New keys and values go to the cache before anything is attended to, since a
 * token sees itself, and a prompt's tokens see those before them. */
static void append_to_cache(const struct gpt_attn_cached *op,
                            const struct groups *g)
{
    for (int64_t n = 0; n < g->len * g->n; n++) {
        const int64_t i = n / g->n, k = n % g->n;
        const size_t at = cache_at(g, k, g->pos + i);
        const float *key =
            g->q + i * g->ld + (k * (g->per + 2) + g->per) * op->d;

        if (op->narrow_cache) {
            cpu_isa->narrow((uint16_t *)(void *)(g->k + at), key, op->d);
            cpu_isa->narrow((uint16_t *)(void *)(g->v + at), key + op->d,
                            op->d);
        } else {
            memcpy(g->k + at, key, g->row);
            memcpy(g->v + at, key + op->d, g->row);
        }
    }
}

/* ---- spans ---- */

/* A span's part of a softmax for one query head: out (D) is the sum of values
 * times exp(score - top), `sum` that of the exponentials. */
struct share {
    float top, sum;
};

/* Keys first..end of the cache, which token i of a row sees. */
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

/* A thread's memory for a few tokens of a row, by token, then query head:
 * queries and sums of values in the order in which keys come, both `wide`
 * floats; scores, `far` floats; and what is known of them. */
struct few {
    int64_t wide, far;
    float *queries, *sums, *scores;
    struct share *shares;
};

/* Floats of it for so many queries that see so many keys of a span. Rows of
 * scores do not all begin in the same set of the first cache. */
static int64_t carve_few(struct few *f, float *mem, int64_t queries,
                         int64_t keys, int64_t d)
{
    f->wide = attn_round(d, CPU_CHUNK);
    f->far = attn_round(keys, 16) + 16;
    f->queries = mem;
    f->sums = mem + queries * f->wide;
    f->scores = mem + queries * 2 * f->wide;
    f->shares =
        (struct share *)(void *)(mem + queries * (2 * f->wide + f->far));
    return queries * (2 * f->wide + f->far + 2);
}

/* Query heads of the groups. */
static int64_t count_heads(const struct groups *g)
{
    return g->n * g->per;
}

/* Queries in their order, and sums that are 0. */
static void open_few(const struct gpt_attn_cached *op, const struct groups *g,
                     const struct few *f)
{
    const int64_t heads = count_heads(g);

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

/* What a pass over keys or values does with those of one group that token i
 * sees in a block, of which `seen` is the first's place in its stretch. */
typedef void visitor(const struct groups *g, const struct few *f, int64_t i,
                     int64_t group, int64_t seen, const struct cpu_keys *keys);

/* Memory is read from its beginning to its end, which the processor foresees:
 * block after block, group after group. */
static void pass_over(const struct gpt_attn_cached *op, const struct groups *g,
                      const char *cache, int64_t span, const struct few *f,
                      visitor *visit)
{
    const int64_t first = span_of(op, g->pos, 0, span).first;
    const int64_t end = span_of(op, g->pos, g->len - 1, span).end;

    for (int64_t t = first / BLOCK * BLOCK; t < end; t += BLOCK)
        for (int64_t n = 0; n < g->n * g->len; n++) {
            const int64_t i = n % g->len, k = n / g->len;
            const struct stretch s = span_of(op, g->pos, i, span);
            const int64_t from = s.first > t ? s.first : t;
            const int64_t to = s.end < t + BLOCK ? s.end : t + BLOCK;
            const struct cpu_keys keys = {cache + cache_at(g, k, from),
                                          op->narrow_cache, to - from, op->d};

            if (from < to)
                visit(g, f, i, k, from - s.first, &keys);
        }
}

static void score_keys(const struct groups *g, const struct few *f, int64_t i,
                       int64_t group, int64_t seen,
                       const struct cpu_keys *keys)
{
    const int64_t at = i * count_heads(g) + group * g->per;

    for (int64_t h = 0, m; h < g->per; h += m) {
        m = g->per - h < CPU_QUERIES ? g->per - h : CPU_QUERIES;
        cpu_isa->key_dots(f->scores + (at + h) * f->far + seen, f->far,
                          f->queries + (at + h) * f->wide, f->wide, keys, m);
    }
}

static void sum_values(const struct groups *g, const struct few *f, int64_t i,
                       int64_t group, int64_t seen,
                       const struct cpu_keys *values)
{
    const int64_t at = i * count_heads(g) + group * g->per;

    for (int64_t h = 0, m; h < g->per; h += m) {
        m = g->per - h < CPU_QUERIES ? g->per - h : CPU_QUERIES;
        cpu_isa->value_sums(f->sums + (at + h) * f->wide, f->wide,
                            f->scores + (at + h) * f->far + seen, f->far,
                            values, m);
    }
}

/* Scores of token i's query head h become weights. */
static struct share weigh_scores(const struct gpt_attn_cached *op,
                                 const struct groups *g, int64_t i, int64_t h,
                                 struct stretch s, float *scores)
{
    const int64_t n = s.end - s.first;
    struct share share = {0, 0};

    if (n <= 0)
        return share;
    attn_cap(scores, NULL, n, op->softcap, op->scale);
    attn_lean(scores, n, slope_of(op, op->head0 + g->first * g->per + h),
              g->pos + i - s.first);
    /* A span's row of scores is short enough to be held whole: the plain
     * softmax, less its maximum, as in attn_head.c. */
    share.top = cpu_isa->max(scores, n) * op->scale;
    share.sum = cpu_isa->exp_sum(scores, n, op->scale, share.top);
    return share;
}

/* Where the parts of a span go: those of the groups' first query head. Those
 * of the next token are `step` heads further on. */
struct parts {
    float *out; /* D each */
    struct share *shares;
    int64_t step;
};

/* A span of the groups, for all of their few tokens: to `parts`, or where that
 * is NULL, since there is one span, to the outputs. The time of generation is
 * that of reading the cache from memory. */
static void attend_span(const struct gpt_attn_cached *op,
                        const struct groups *g, int64_t span,
                        const struct parts *parts, const struct few *f)
{
    const int64_t heads = count_heads(g), d = op->d;

    open_few(op, g, f);
    pass_over(op, g, g->k, span, f, score_keys);
    for (int64_t n = 0; n < g->len * heads; n++)
        f->shares[n] = weigh_scores(op, g, n / heads, n % heads,
                                    span_of(op, g->pos, n / heads, span),
                                    f->scores + n * f->far);
    pass_over(op, g, g->v, span, f, sum_values);
    for (int64_t n = 0; n < g->len * heads; n++) {
        const int64_t i = n / heads, h = n % heads;
        const float *sums = f->sums + n * f->wide;

        if (!parts) {
            cpu_isa->from_chunks(g->out + i * g->ldo + h * d, sums, d,
                                 1 / f->shares[n].sum, op->narrow_cache);
            continue;
        }
        cpu_isa->from_chunks(parts->out + (i * parts->step + h) * d, sums, d,
                             1, op->narrow_cache);
        parts->shares[i * parts->step + h] = f->shares[n];
    }
}

/* Puts the parts of a query head together; parts[s] and shares[s] are `step`
 * and `hop` apart. A part without keys has a sum of zero. */
static void join_spans(float *out, const float *parts, int64_t step,
                       const struct share *shares, int64_t hop, int64_t spans,
                       int64_t d)
{
    float top = -INFINITY, sum = 0;

    for (int64_t s = 0; s < spans; s++)
        if (shares[s * hop].sum > 0 && shares[s * hop].top > top)
            top = shares[s * hop].top;
    memset(out, 0, (size_t)d * sizeof(*out));
    for (int64_t s = 0; s < spans; s++) {
        if (!(shares[s * hop].sum > 0))
            continue;
        const float weight = expf(shares[s * hop].top - top);

        sum += weight * shares[s * hop].sum;
        cpu_isa->combine(out, &weight, parts + s * step, d, d, 1);
    }
    cpu_isa->scale(out, d, 1 / sum);
}

/* ---- long pieces ---- */

/* Pieces of bf16 are multiplied as bf16 where there are instructions for it:
 * their queries, and weights of values, are rounded too. */
static bool by_pairs(const struct gpt_attn_cached *op)
{
    return op->narrow_cache && cpu_pairs;
}

/* Query head h of a group. */
static void attend_piece(const struct gpt_attn_cached *op,
                         const struct groups *g, int64_t h, float *work)
{
    struct attn_head head = {.d = op->d,
                             .q0 = g->pos,
                             .nq = g->len,
                             .ldq = g->ld,
                             .ldk = op->d,
                             .ldv = op->d,
                             .ldo = g->ldo,
                             .block = op->g * BLOCK * op->d,
                             .q = g->q + h * op->d,
                             .out = g->out + h * op->d,
                             .scale = op->scale,
                             .window = op->window,
                             .cap = op->softcap,
                             .slope = slope_of(op, op->head0 +
                                                       g->first * g->per + h)};

    if (op->narrow_cache) {
        head.narrow_k = (const uint16_t *)(const void *)g->k;
        head.narrow_v = (const uint16_t *)(const void *)g->v;
    } else {
        head.k = (const float *)(const void *)g->k;
        head.v = (const float *)(const void *)g->v;
    }
    if (by_pairs(op))
        cpu_attn_pairs_piece(&head, work);
    else
        cpu_attn_head(&head, work);
}

/* Work memory of the longest piece. */
static int64_t piece_work(const struct gpt_attn_cached *op)
{
    int64_t end = 0;

    for (int64_t b = 0; b < op->b; b++)
        if (op->len[b] > TOKENS && op->pos[b] + op->len[b] > end)
            end = op->pos[b] + op->len[b];
    if (end == 0)
        return 0;
    return by_pairs(op) ? cpu_attn_pairs_work(end, op->t_new, op->d)
                        : (int64_t)cpu_attn_work(end, op->d);
}

static bool check_rows(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    for (int64_t b = 0; b < op->b; b++)
        if (op->pos[b] < 0 || op->len[b] < 0 || op->len[b] > op->t_new ||
            op->pos[b] + (int64_t)op->len[b] > op->t_max) {
            cpu_fail(q,
                     "attn_cached: row %lld: position %d + %d tokens is past "
                     "the cache's %lld",
                     (long long)b, op->pos[b], op->len[b],
                     (long long)op->t_max);
            return false;
        }
    return true;
}

/* ---- the operation ---- */

/* Memory of a call: scratch of each thread, and the parts of all queries; and
 * how it is cut. */
struct room {
    size_t each;            /* floats of a thread */
    int64_t tokens, queries; /* of a row that is read by spans, and of all */
    int64_t spans, keys;    /* of the longest text, and of its longest span */
    int64_t groups, shares; /* of an item, and items that share a row */
    float *threads, *part;
    struct share *part_shares;
};

/* The longest text that is read by spans. */
static int64_t longest_text(const struct gpt_attn_cached *op)
{
    int64_t end = 1;

    for (int64_t b = 0; b < op->b; b++)
        if (op->len[b] <= TOKENS && op->pos[b] + op->len[b] > end)
            end = op->pos[b] + op->len[b];
    return end;
}

/* A thread that reads all groups of a text reads one stretch of memory; but
 * every thread should have some turns, since cores differ in speed from moment
 * to moment. Packing a long piece pays by itself. */
static int64_t groups_of_item(const struct gpt_attn_cached *op, int64_t spans)
{
    enum { TURNS = 4 };
    const int64_t threads = omp_get_max_threads();
    const int64_t wanted = threads > 1 ? TURNS * threads : 1;
    const int64_t shares = (wanted + op->b * spans - 1) / (op->b * spans);

    if (op->t_new > TOKENS || shares >= op->g)
        return 1;
    return (op->g + shares - 1) / shares;
}

static bool make_room(struct gpt_queue *q, const struct gpt_attn_cached *op,
                      struct room *r)
{
    const int64_t end = longest_text(op), per = op->h / op->g;
    const size_t threads = (size_t)omp_get_max_threads();
    size_t parts = 0;
    struct few f;

    r->tokens = op->t_new < TOKENS ? op->t_new : TOKENS;
    r->queries = op->b * r->tokens * op->h;
    r->spans = (end + SPAN - 1) / SPAN;
    r->keys = end < SPAN ? end : SPAN;
    r->groups = groups_of_item(op, r->spans);
    r->shares = (op->g + r->groups - 1) / r->groups;
    /* The same memory serves both ways. */
    const int64_t piece = piece_work(op);
    const int64_t few =
        carve_few(&f, NULL, r->tokens * r->groups * per, r->keys, op->d);
    r->each = (size_t)attn_round(piece > few ? piece : few, 16);
    if (r->spans > 1)
        parts = (size_t)(r->queries * r->spans * (op->d + 2));
    r->threads = cpu_work(q, r->each * threads + parts);
    if (!r->threads)
        return false;
    r->part = r->threads + r->each * threads;
    r->part_shares = (struct share *)(void *)(r->part +
                                              r->queries * r->spans * op->d);
    return true;
}

/* Item n of a span: some groups of a row. */
static struct groups item_of(const struct gpt_attn_cached *op,
                             const struct room *r, int64_t n)
{
    const int64_t first = n % r->shares * r->groups;
    const int64_t left = op->g - first;

    return groups_of(op, n / r->shares, first,
                     left < r->groups ? left : r->groups);
}

static struct few few_of(const struct gpt_attn_cached *op,
                         const struct room *r, const struct groups *g,
                         float *work)
{
    struct few f;

    carve_few(&f, work, g->len * count_heads(g), r->keys, op->d);
    return f;
}

/* New keys and values of an item; and what its tokens see, where they are many,
 * or there is one span. */
static void attend_item(const struct gpt_attn_cached *op, const struct room *r,
                        int64_t n, float *work)
{
    const struct groups g = item_of(op, r, n);

    append_to_cache(op, &g);
    if (g.len > TOKENS) {
        for (int64_t h = 0; h < g.per; h++)
            attend_piece(op, &g, h, work);
    } else if (g.len > 0 && r->spans == 1) {
        const struct few f = few_of(op, r, &g, work);

        attend_span(op, &g, 0, NULL, &f);
    }
}

/* The place of token i's first query head among the queries. */
static int64_t query_at(const struct gpt_attn_cached *op, const struct room *r,
                        int64_t b, int64_t i)
{
    return (b * r->tokens + i) * op->h;
}

static void attend_part(const struct gpt_attn_cached *op, const struct room *r,
                        int64_t n, int64_t span, float *work)
{
    const struct groups g = item_of(op, r, n);
    const int64_t at = span * r->queries +
                       query_at(op, r, n / r->shares, 0) + g.first * g.per;
    const struct parts parts = {r->part + at * op->d, r->part_shares + at,
                                op->h};

    if (g.len > 0 && g.len <= TOKENS) {
        const struct few f = few_of(op, r, &g, work);

        attend_span(op, &g, span, &parts, &f);
    }
}

/* All parts first, then all sums of parts: a loop over threads each. */
static void attend_by_spans(const struct gpt_attn_cached *op,
                            const struct room *r)
{
    const int64_t items = op->b * r->shares;

#pragma omp parallel for schedule(dynamic)
    for (int64_t n = 0; n < items * r->spans; n++)
        attend_part(op, r, n / r->spans, n % r->spans,
                    r->threads + (size_t)omp_get_thread_num() * r->each);
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < op->b; b++)
        for (int64_t n = 0; n < op->len[b] * op->h && op->len[b] <= TOKENS;
             n++) {
            const int64_t at = query_at(op, r, b, 0) + n;

            join_spans((float *)op->out + b * op->t_new * op->h * op->d +
                           n * op->d,
                       r->part + at * op->d, r->queries * op->d,
                       r->part_shares + at, r->queries, r->spans, op->d);
        }
}

void cpu_attn_cached(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    struct room r;
    int64_t pairs = 0;

    if (!cpu_ready(q, "attn_cached", op->act) || !check_rows(q, op) ||
        op->b == 0 || !make_room(q, op, &r))
        return;
    for (int64_t b = 0; b < op->b; b++)
        pairs += (int64_t)op->len[b] * (op->pos[b] + op->len[b]) * op->h;
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(pairs * (op->d / 8 + 1)))
    for (int64_t n = 0; n < op->b * r.shares; n++)
        attend_item(op, &r, n,
                    r.threads + (size_t)omp_get_thread_num() * r.each);
    if (r.spans > 1)
        attend_by_spans(op, &r);
}
