/* Attention of new tokens against the key-value cache, for generation. One
 * token a row reads the cache once, in order, for all query heads of a group;
 * longer pieces (a prompt) go through the tiles of attn_head.c.
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

enum { FEW = 4 };     /* query heads that meet a key at once */
enum { SPAN = 1024 }; /* keys; a thread reads them in tens of microseconds */
/* From about this many new tokens on the packing of tiles, which takes as long
 * as a pass over the cache, is paid back. */
enum { TOKENS = 8 };

/* Group g of row b: where its queries, new keys and cache begin. */
struct group {
    int64_t per, ld, ldo; /* query heads; floats between rows of qkv, out */
    int64_t pos, len, head0; /* head0: number of the first query head */
    const float *q;
    float *k, *v, *out;
};

static struct group group_of(const struct gpt_attn_cached *op, int64_t b,
                             int64_t g)
{
    int64_t per = op->h / op->g, d = op->d;
    int64_t at = ((int64_t)op->slot[b] * op->g + g) * op->t_max * d;
    struct group v = {.per = per,
                      .ld = op->g * (per + 2) * d,
                      .ldo = op->h * d,
                      .pos = op->pos[b],
                      .len = op->len[b],
                      .head0 = op->head0 + g * per};

    v.q = (const float *)op->qkv + b * op->t_new * v.ld + g * (per + 2) * d;
    v.k = (float *)op->k_cache + at;
    v.v = (float *)op->v_cache + at;
    v.out = (float *)op->out + b * op->t_new * v.ldo + g * per * d;
    return v;
}

static float slope_of(const struct gpt_attn_cached *op, int64_t head)
{
    return attn_slope(op->alibi, head, op->h_global ? op->h_global : op->h,
                      op->scale);
}

/* New keys and values go to the cache before anything is attended to, since a
 * token sees itself, and a prompt's tokens see those before them. */
static void append_to_cache(const struct group *g, int64_t d)
{
    for (int64_t i = 0; i < g->len; i++) {
        const float *key = g->q + i * g->ld + g->per * d;

        memcpy(g->k + (g->pos + i) * d, key, (size_t)d * sizeof(*key));
        memcpy(g->v + (g->pos + i) * d, key + d, (size_t)d * sizeof(*key));
    }
}

/* ---- spans ---- */

/* A span's part of a softmax for one query head: out (D) is the sum of values
 * times exp(score - top), `sum` that of the exponentials. */
struct share {
    float top, sum;
};

/* Keys first..end of the cache for token i of the new ones, all heads of the
 * group: out (per, D) and shares (per). */
static void attend_span(const struct gpt_attn_cached *op, const struct group *g,
                        int64_t i, int64_t first, int64_t end, float *out,
                        struct share *shares, float *scores)
{
    const int64_t d = op->d, n = end - first;

    for (int64_t h = 0; h < g->per; h += FEW) {
        int64_t m = g->per - h < FEW ? g->per - h : FEW;

        /* Query heads of a group share its keys: up to FEW of them meet a key
         * while it is in the cache. The time of generation is that of reading
         * the cache from memory. */
        cpu_isa->dots(scores, n, g->q + i * g->ld + h * d, d,
                      g->k + first * d, d, m, n, d, false);
        memset(out, 0, (size_t)(m * d) * sizeof(*out));
        for (int64_t k = 0; k < m; k++, out += d) {
            float *s = scores + k * n;

            attn_cap(s, NULL, n, op->softcap, op->scale);
            attn_lean(s, n, slope_of(op, g->head0 + h + k),
                      g->pos + i - first);
            /* A span's row of scores is short enough to be held whole: the
             * plain softmax, less its maximum, as in attn_head.c. */
            shares[h + k].top = cpu_isa->max(s, n) * op->scale;
            shares[h + k].sum =
                cpu_isa->exp_sum(s, n, op->scale, shares[h + k].top);
            cpu_isa->combine(out, s, g->v + first * d, d, d, n);
        }
    }
}

/* Keys of token i of a group that lie in span number `span`; false where there
 * are none. Keys before the window are not read. */
static bool span_of(const struct gpt_attn_cached *op, const struct group *g,
                    int64_t i, int64_t span, int64_t *first, int64_t *end)
{
    const int64_t last = g->pos + i;
    const int64_t from =
        op->window > 0 && last > op->window ? last - op->window : 0;

    *first = span * SPAN > from ? span * SPAN : from;
    *end = (span + 1) * SPAN < last + 1 ? (span + 1) * SPAN : last + 1;
    return *first < *end;
}

/* A text within one span: no parts to put together. */
static void attend_token(const struct gpt_attn_cached *op,
                         const struct group *g, int64_t i, float *work)
{
    struct share *shares = (struct share *)(void *)work;
    float *out = g->out + i * g->ldo;
    int64_t first, end;

    span_of(op, g, i, 0, &first, &end);
    attend_span(op, g, i, first, end, out, shares, work + 2 * g->per);
    for (int64_t k = 0; k < g->per; k++)
        cpu_isa->scale(out + k * op->d, op->d, 1 / shares[k].sum);
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

static void attend_piece(const struct gpt_attn_cached *op,
                         const struct group *g, float *work)
{
    for (int64_t h = 0; h < g->per; h++) {
        struct attn_head head = {.d = op->d,
                                 .q0 = g->pos,
                                 .nq = g->len,
                                 .ldq = g->ld,
                                 .ldk = op->d,
                                 .ldv = op->d,
                                 .ldo = g->ldo,
                                 .q = g->q + h * op->d,
                                 .k = g->k,
                                 .v = g->v,
                                 .out = g->out + h * op->d,
                                 .scale = op->scale,
                                 .window = op->window,
                                 .cap = op->softcap,
                                 .slope = slope_of(op, g->head0 + h)};

        cpu_attn_head(&head, work);
    }
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

/* Memory of a call: scratch of each thread, and the parts of all queries. */
struct room {
    size_t each; /* floats of a thread */
    int64_t spans, queries; /* of one group in all rows */
    float *threads, *parts;
    struct share *shares;
};

/* Rows with few tokens: the longest text decides how many spans there are. */
static int64_t count_spans(const struct gpt_attn_cached *op)
{
    int64_t end = 1;

    for (int64_t b = 0; b < op->b; b++)
        if (op->len[b] <= TOKENS && op->pos[b] + op->len[b] > end)
            end = op->pos[b] + op->len[b];
    return (end + SPAN - 1) / SPAN;
}

/* The most tokens of a row that is read by spans. */
static int64_t few_tokens(const struct gpt_attn_cached *op)
{
    return op->t_new < TOKENS ? op->t_new : TOKENS;
}

static bool make_room(struct gpt_queue *q, const struct gpt_attn_cached *op,
                      struct room *r)
{
    const int64_t scores = (FEW + 2) * op->h / op->g + FEW * SPAN;
    size_t parts = 0;

    /* The same memory serves both ways. */
    r->each = op->t_new > TOKENS ? cpu_attn_work(op->t_max, op->d) : 0;
    if (r->each < (size_t)attn_round(scores, 16))
        r->each = (size_t)attn_round(scores, 16);
    r->spans = count_spans(op);
    r->queries = op->b * few_tokens(op) * op->h;
    if (r->spans > 1)
        parts = (size_t)(r->queries * r->spans * (op->d + 2));
    r->threads = cpu_work(q, r->each * (size_t)omp_get_max_threads() + parts);
    if (!r->threads)
        return false;
    r->parts = r->threads + r->each * (size_t)omp_get_max_threads();
    r->shares = (struct share *)(void *)(r->parts +
                                         r->queries * r->spans * op->d);
    return true;
}

/* The place of a group's token i among the queries: its heads follow. */
static int64_t query_at(const struct gpt_attn_cached *op, int64_t k, int64_t i)
{
    return (k * few_tokens(op) + i) * (op->h / op->g);
}

/* A span of a group, for all of its new tokens. */
static void attend_to_span(const struct gpt_attn_cached *op,
                           const struct room *r, int64_t k, int64_t span,
                           float *work)
{
    const struct group g = group_of(op, k / op->g, k % op->g);

    for (int64_t i = 0; i < g.len && g.len <= TOKENS; i++) {
        const int64_t at = span * r->queries + query_at(op, k, i);
        int64_t first, end;

        if (span_of(op, &g, i, span, &first, &end))
            attend_span(op, &g, i, first, end, r->parts + at * op->d,
                        r->shares + at, work);
        else
            memset(r->shares + at, 0, (size_t)g.per * sizeof(*r->shares));
    }
}

/* All parts first, then all sums of parts: a loop over threads each. */
static void attend_by_spans(const struct gpt_attn_cached *op,
                            const struct room *r)
{
    const int64_t groups = op->b * op->g, per = op->h / op->g;

#pragma omp parallel for schedule(dynamic)
    for (int64_t n = 0; n < groups * r->spans; n++) {
        float *mine = r->threads + (size_t)omp_get_thread_num() * r->each;

        attend_to_span(op, r, n / r->spans, n % r->spans, mine);
    }
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < groups; k++) {
        const struct group g = group_of(op, k / op->g, k % op->g);

        for (int64_t n = 0; n < g.len * per && g.len <= TOKENS; n++) {
            const int64_t at = query_at(op, k, n / per) + n % per;

            join_spans(g.out + n / per * g.ldo + n % per * op->d,
                       r->parts + at * op->d, r->queries * op->d,
                       r->shares + at, r->queries, r->spans, op->d);
        }
    }
}

void cpu_attn_cached(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    struct room r;
    int64_t pairs = 0;

    if (!cpu_ready(q, "attn_cached", op->act) || !check_rows(q, op) ||
        !make_room(q, op, &r))
        return;
    for (int64_t b = 0; b < op->b; b++)
        pairs += (int64_t)op->len[b] * (op->pos[b] + op->len[b]) * op->h;
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(pairs * (op->d / 8 + 1)))
    for (int64_t k = 0; k < op->b * op->g; k++) {
        struct group g = group_of(op, k / op->g, k % op->g);
        float *mine = r.threads + (size_t)omp_get_thread_num() * r.each;

        append_to_cache(&g, op->d);
        if (g.len > TOKENS)
            attend_piece(op, &g, mine);
        else
            for (int64_t i = 0; i < g.len && r.spans == 1; i++)
                attend_token(op, &g, i, mine);
    }
    if (r.spans > 1)
        attend_by_spans(op, &r);
}
