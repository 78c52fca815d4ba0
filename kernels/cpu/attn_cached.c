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

enum { SPAN = 1024 }; /* keys; a thread reads them in tens of microseconds */
/* From about this many new tokens on the packing of tiles, which takes as long
 * as a pass over the cache, is paid back. */
enum { TOKENS = 8 };

/* Group g of row b: where its queries, new keys and cache begin. */
struct group {
    int64_t per, ld, ldo; /* query heads; floats between rows of qkv, out */
    int64_t pos, len, head0; /* head0: number of the first query head */
    size_t row;              /* bytes of a key */
    const float *q;
    char *k, *v;
    float *out;
};

static struct group group_of(const struct gpt_attn_cached *op, int64_t b,
                             int64_t g)
{
    const int64_t per = op->h / op->g, d = op->d;
    const size_t row = (size_t)d * (op->narrow_cache ? sizeof(uint16_t)
                                                     : sizeof(float));
    const size_t at =
        (size_t)(((int64_t)op->slot[b] * op->g + g) * op->t_max) * row;
    struct group v = {.per = per,
                      .ld = op->g * (per + 2) * d,
                      .ldo = op->h * d,
                      .pos = op->pos[b],
                      .len = op->len[b],
                      .head0 = op->head0 + g * per,
                      .row = row};

    v.q = (const float *)op->qkv + b * op->t_new * v.ld + g * (per + 2) * d;
    v.k = (char *)op->k_cache + at;
    v.v = (char *)op->v_cache + at;
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
static void append_to_cache(const struct gpt_attn_cached *op,
                            const struct group *g)
{
    for (int64_t i = 0; i < g->len; i++) {
        const size_t at = (size_t)(g->pos + i) * g->row;
        const float *key = g->q + i * g->ld + g->per * op->d;

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

/* Keys first..end of the cache, which token i of a group sees. */
struct stretch {
    int64_t i, first, end;
};

/* The keys of token i of a group that lie in span number `span`; false where
 * there are none. Keys before the window are not read. */
static bool span_of(const struct gpt_attn_cached *op, const struct group *g,
                    int64_t i, int64_t span, struct stretch *s)
{
    const int64_t last = g->pos + i;
    const int64_t from =
        op->window > 0 && last > op->window ? last - op->window : 0;

    s->i = i;
    s->first = span * SPAN > from ? span * SPAN : from;
    s->end = (span + 1) * SPAN < last + 1 ? (span + 1) * SPAN : last + 1;
    return s->first < s->end;
}

/* Memory that is read next. */
struct after {
    const char *at;
    int64_t bytes;
};

/* How much of it is asked for. Long stretches of floats come faster when the
 * processor foresees them itself (Zen 4: 20 and 15 GB/s a core from 48 KiB on);
 * bf16, of which a byte takes longer to multiply, does not (14 and 19). */
static int64_t asked_bytes(const struct gpt_attn_cached *op,
                           const struct after *after)
{
    enum { LONG_FLOATS = 32 << 10, MOST = 64 << 10 };

    if (!op->narrow_cache && after->bytes > LONG_FLOATS)
        return 0;
    return after->bytes < MOST ? after->bytes : MOST;
}

/* A stretch of a cache's keys or values, and what is read after it. */
static struct cpu_keys rows_of(const struct gpt_attn_cached *op,
                               const struct group *g, const char *cache,
                               const struct stretch *s,
                               const struct after *after)
{
    return (struct cpu_keys){.rows = cache + (size_t)s->first * g->row,
                             .narrow = op->narrow_cache,
                             .n = s->end - s->first,
                             .d = op->d,
                             .next = after->at,
                             .next_bytes = asked_bytes(op, after)};
}

/* Heads h .. h + m of a group: scores (m, n) become weights. */
static void weigh_scores(const struct gpt_attn_cached *op,
                         const struct group *g, const struct stretch *s,
                         int64_t h, int64_t m, float *scores,
                         struct share *shares)
{
    const int64_t n = s->end - s->first;

    for (int64_t k = 0; k < m; k++, scores += n, shares++) {
        attn_cap(scores, NULL, n, op->softcap, op->scale);
        attn_lean(scores, n, slope_of(op, g->head0 + h + k),
                  g->pos + s->i - s->first);
        /* A span's row of scores is short enough to be held whole: the plain
         * softmax, less its maximum, as in attn_head.c. */
        shares->top = cpu_isa->max(scores, n) * op->scale;
        shares->sum = cpu_isa->exp_sum(scores, n, op->scale, shares->top);
    }
}

/* A stretch for all heads of the group: out (per, D) and shares (per). The time
 * of generation is that of reading the cache from memory: query heads of a
 * group share its keys, and values come while keys are read. */
static void attend_stretch(const struct gpt_attn_cached *op,
                           const struct group *g, const struct stretch *s,
                           const struct after *after, float *out,
                           struct share *shares, float *scores)
{
    const int64_t d = op->d, n = s->end - s->first;
    const struct after values = {g->v + (size_t)s->first * g->row,
                                 n * (int64_t)g->row};
    static const struct after nothing;

    for (int64_t h = 0, m; h < g->per; h += m) {
        m = g->per - h < CPU_QUERIES ? g->per - h : CPU_QUERIES;
        const bool last = h + m == g->per;
        const struct cpu_keys k =
            rows_of(op, g, g->k, s, h == 0 ? &values : &nothing);
        const struct cpu_keys v =
            rows_of(op, g, g->v, s, last ? after : &nothing);

        cpu_isa->key_dots(scores, n, g->q + s->i * g->ld + h * d, d, &k, m);
        weigh_scores(op, g, s, h, m, scores, shares + h);
        cpu_isa->value_sums(out + h * d, d, scores, n, &v, m);
    }
}

/* A text within one span: no parts to put together. */
static void attend_token(const struct gpt_attn_cached *op,
                         const struct group *g, int64_t i,
                         const struct after *after, float *work)
{
    struct share *shares = (struct share *)(void *)work;
    float *out = g->out + i * g->ldo;
    struct stretch s;

    span_of(op, g, i, 0, &s);
    attend_stretch(op, g, &s, after, out, shares, work + 2 * g->per);
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
                                 .out = g->out + h * op->d,
                                 .scale = op->scale,
                                 .window = op->window,
                                 .cap = op->softcap,
                                 .slope = slope_of(op, g->head0 + h)};

        if (op->narrow_cache) {
            head.narrow_k = (const uint16_t *)(const void *)g->k;
            head.narrow_v = (const uint16_t *)(const void *)g->v;
        } else {
            head.k = (const float *)(const void *)g->k;
            head.v = (const float *)(const void *)g->v;
        }
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
    const int64_t scores = 2 * op->h / op->g + CPU_QUERIES * SPAN;
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

/* The keys of item n, a span of a group, which are read when it begins. Items
 * of long pieces are read otherwise. */
static struct after keys_of(const struct gpt_attn_cached *op,
                            const struct room *r, int64_t n)
{
    const int64_t k = n / r->spans;
    struct after first = {0};
    struct stretch s;

    if (k >= op->b * op->g)
        return first;
    const struct group g = group_of(op, k / op->g, k % op->g);
    if (g.len > 0 && g.len <= TOKENS && span_of(op, &g, 0, n % r->spans, &s))
        first = (struct after){g.k + (size_t)s.first * g.row,
                               (s.end - s.first) * (int64_t)g.row};
    return first;
}

/* What is read after token i of a group: its keys again, or those of the next
 * item. */
static struct after after_token(const struct group *g, int64_t i,
                                const struct after *item)
{
    return i + 1 < g->len ? (struct after){0} : *item;
}

/* A span of a group, for all of its new tokens. */
static void attend_to_span(const struct gpt_attn_cached *op,
                           const struct room *r, int64_t n,
                           const struct after *item, float *work)
{
    const int64_t k = n / r->spans, span = n % r->spans;
    const struct group g = group_of(op, k / op->g, k % op->g);

    for (int64_t i = 0; i < g.len && g.len <= TOKENS; i++) {
        const int64_t at = span * r->queries + query_at(op, k, i);
        const struct after after = after_token(&g, i, item);
        struct stretch s;

        if (span_of(op, &g, i, span, &s))
            attend_stretch(op, &g, &s, &after, r->parts + at * op->d,
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
    int64_t taken = 0;

#pragma omp parallel
    for (int64_t n = cpu_take(&taken), next; n < groups * r->spans; n = next) {
        float *mine = r->threads + (size_t)omp_get_thread_num() * r->each;

        next = cpu_take(&taken);
        const struct after item = keys_of(op, r, next);
        attend_to_span(op, r, n, &item, mine);
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

/* New keys and values of group number k; and what its tokens see, where they
 * are many, or there is one span. */
static void attend_group(const struct gpt_attn_cached *op,
                         const struct room *r, int64_t k,
                         const struct after *item, float *work)
{
    const struct group g = group_of(op, k / op->g, k % op->g);

    append_to_cache(op, &g);
    if (g.len > TOKENS) {
        attend_piece(op, &g, work);
        return;
    }
    for (int64_t i = 0; i < g.len && r->spans == 1; i++) {
        const struct after after = after_token(&g, i, item);

        attend_token(op, &g, i, &after, work);
    }
}

/* Threads take groups in turn, and each takes its next one before it begins the
 * one at hand, so that it can ask for what it will read. */
void cpu_attn_cached(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    struct room r;
    int64_t pairs = 0, taken = 0;

    if (!cpu_ready(q, "attn_cached", op->act) || !check_rows(q, op) ||
        !make_room(q, op, &r))
        return;
    for (int64_t b = 0; b < op->b; b++)
        pairs += (int64_t)op->len[b] * (op->pos[b] + op->len[b]) * op->h;
#pragma omp parallel if (cpu_worth_threads(pairs * (op->d / 8 + 1)))
    for (int64_t k = cpu_take(&taken), next; k < op->b * op->g; k = next) {
        float *mine = r.threads + (size_t)omp_get_thread_num() * r.each;

        next = cpu_take(&taken);
        const struct after item = keys_of(op, &r, next * r.spans);
        attend_group(op, &r, k, &item, mine);
    }
    if (r.spans > 1)
        attend_by_spans(op, &r);
}
