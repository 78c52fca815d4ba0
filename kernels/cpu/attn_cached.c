/* Attention of new tokens against the key-value cache, for generation. A few
 * tokens of a row read the cache once, in order (attn_spans.c); longer pieces
 * (a prompt) go through the tiles of attn_head.c, or of bf16 through those of
 * attn_pairs.c. Start at cpu_attn_cached().
 *
 * A long cache is cut into spans, which several threads read, and whose parts
 * of the softmax are put together in their order. Spans have a fixed length, so
 * that the result does not depend on the number of threads, and a text of one
 * span has the bits of the plain softmax. */
#include "cpu/attn_spans.h"

#include <omp.h>
#include <string.h>

enum { SPAN = ATTN_SPAN, BLOCK = GPT_CACHE_BLOCK };
/* From about this many new tokens on, packing tiles pays, although it takes as
 * long as a pass over the cache. */
enum { TOKENS = 8 };

/* The n groups of row b from number `first` on. */
static struct attn_groups groups_of(const struct gpt_attn_cached *op,
                                    int64_t b, int64_t first, int64_t n)
{
    const int64_t per = op->h / op->g, d = op->d;
    const size_t row = (size_t)d * (op->narrow_cache ? sizeof(uint16_t)
                                                     : sizeof(float));
    struct attn_groups v = {.first = first,
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

/* New keys and values go to the cache before anything is attended to, since a
 * token sees itself, and a prompt's tokens see those before them. */
static void append_to_cache(const struct gpt_attn_cached *op,
                            const struct attn_groups *g)
{
    for (int64_t n = 0; n < g->len * g->n; n++) {
        const int64_t i = n / g->n, k = n % g->n;
        const size_t at = attn_cache_at(g, k, g->pos + i);
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

/* ---- long pieces ---- */

/* Pieces of bf16 are multiplied as bf16 where there are instructions for it:
 * their queries, and weights of values, are rounded too. */
static bool by_pairs(const struct gpt_attn_cached *op)
{
    return op->narrow_cache && cpu_attn_has_pairs(op->alibi);
}

/* Attends from all new tokens of query head h of a group. */
static void attend_piece(const struct gpt_attn_cached *op,
                         const struct attn_groups *g, int64_t h, float *work)
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
                             .slope = attn_slope_of(op, g, h)};

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

/* Floats of work memory that the longest piece needs. */
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

/* ---- items that threads share ---- */

/* Items 0 .. n - 1, of which each of some threads has a stretch. A thread takes
 * its own items first, whose memory its caches may hold, and then those that
 * others have not taken: cores differ in speed, and items in length. */
struct stretches {
    int64_t n, threads;
    int64_t *next; /* (threads, APART) the next item of each, then room */
};
enum { APART = 8 }; /* a line for each, so that threads do not share one */

static void open_stretches(struct stretches *s)
{
    for (int64_t i = 0; i < s->threads; i++)
        s->next[i * APART] = cpu_cut(s->n, s->threads, i);
}

/* Returns an item for thread `me`, or -1 when all are taken. */
static int64_t take_near(struct stretches *s, int64_t me)
{
    for (int64_t i = 0; i < s->threads; i++) {
        const int64_t at = (me + i) % s->threads;
        const int64_t item = cpu_take(&s->next[at * APART]);

        if (item < cpu_cut(s->n, s->threads, at + 1))
            return item;
    }
    return -1;
}

/* ---- the operation ---- */

/* How the memory of a call is cut: scratch for each thread, and the parts of
 * all queries. */
struct room {
    size_t each;            /* floats of a thread */
    int64_t tokens, queries; /* of a row that is read by spans, and of all */
    int64_t spans, keys;    /* of the longest text, and of its longest span */
    int64_t groups, shares; /* of an item, and items that share a row */
    float *threads, *part;
    struct attn_share *part_shares;
    struct stretches items;
};

/* The length of the longest text that is read by spans. */
static int64_t longest_text(const struct gpt_attn_cached *op)
{
    int64_t end = 1;

    for (int64_t b = 0; b < op->b; b++)
        if (op->len[b] <= TOKENS && op->pos[b] + op->len[b] > end)
            end = op->pos[b] + op->len[b];
    return end;
}

/* How many groups of a text a thread takes at once. A thread that reads all
 * groups reads one stretch of memory; but every thread should have several
 * items, since cores differ in speed from moment to moment. Packing a long
 * piece pays by itself. */
static int64_t groups_of_item(const struct gpt_attn_cached *op, int64_t spans)
{
    enum { TURNS = 4 };
    const int64_t threads = omp_get_max_threads();
    const int64_t wanted = threads > 1 ? TURNS * threads : 1;
    const int64_t shares = (wanted + op->b * spans - 1) / (op->b * spans);

    if (op->t_new > TOKENS || shares >= op->g)
        return 1;
    return gpt_ceil_div(op->g, shares);
}

static bool make_room(struct gpt_queue *q, const struct gpt_attn_cached *op,
                      struct room *r)
{
    const int64_t end = longest_text(op), per = op->h / op->g;
    const size_t threads = (size_t)omp_get_max_threads();
    size_t parts = 0;

    r->tokens = op->t_new < TOKENS ? op->t_new : TOKENS;
    r->queries = op->b * r->tokens * op->h;
    r->spans = gpt_ceil_div(end, SPAN);
    r->keys = end < SPAN ? end : SPAN;
    r->groups = groups_of_item(op, r->spans);
    r->shares = gpt_ceil_div(op->g, r->groups);
    /* One piece of memory serves both ways, which never run at once. */
    const int64_t piece = piece_work(op);
    const int64_t few = cpu_attn_span_work(r->tokens * r->groups * per,
                                           r->keys, op->d);
    r->each = (size_t)gpt_round_up(piece > few ? piece : few, 16);
    if (r->spans > 1)
        parts = (size_t)(r->queries * r->spans * (op->d + 2));
    const size_t marks = threads * APART * sizeof(*r->items.next);
    float *mem = cpu_work(q, marks / sizeof(*mem) + r->each * threads + parts);

    if (!mem)
        return false;
    r->threads = mem + marks / sizeof(*mem);
    r->items = (struct stretches){.n = op->b * r->shares,
                                  .threads = (int64_t)threads,
                                  .next = (int64_t *)(void *)mem};
    open_stretches(&r->items);
    r->part = r->threads + r->each * threads;
    r->part_shares =
        (struct attn_share *)(void *)(r->part + r->queries * r->spans * op->d);
    return true;
}

/* The groups of a row that item n of a span stands for. */
static struct attn_groups item_of(const struct gpt_attn_cached *op,
                                  const struct room *r, int64_t n)
{
    const int64_t first = n % r->shares * r->groups;
    const int64_t left = op->g - first;

    return groups_of(op, n / r->shares, first,
                     left < r->groups ? left : r->groups);
}

/* Stores the new keys and values of an item. It also attends where the item has
 * many new tokens or its cache is one span; attend_part() does so elsewhere. */
static void attend_item(const struct gpt_attn_cached *op, const struct room *r,
                        int64_t n, float *work)
{
    const struct attn_groups g = item_of(op, r, n);

    append_to_cache(op, &g);
    if (g.len > TOKENS) {
        for (int64_t h = 0; h < g.per; h++)
            attend_piece(op, &g, h, work);
    } else if (g.len > 0 && r->spans == 1) {
        cpu_attn_span(op, &g, 0, r->keys, NULL, work);
    }
}

/* The place among all queries of token i's first query head. */
static int64_t query_at(const struct gpt_attn_cached *op, const struct room *r,
                        int64_t b, int64_t i)
{
    return (b * r->tokens + i) * op->h;
}

static void attend_part(const struct gpt_attn_cached *op, const struct room *r,
                        int64_t n, int64_t span, float *work)
{
    const struct attn_groups g = item_of(op, r, n);
    const int64_t at = span * r->queries +
                       query_at(op, r, n / r->shares, 0) + g.first * g.per;
    const struct attn_parts parts = {r->part + at * op->d, r->part_shares + at,
                                     op->h};

    if (g.len > 0 && g.len <= TOKENS)
        cpu_attn_span(op, &g, span, r->keys, &parts, work);
}

/* Computes all parts, then the sums of parts: two loops over threads. */
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

            cpu_attn_join_spans(
                (float *)op->out + b * op->t_new * op->h * op->d + n * op->d,
                r->part + at * op->d, r->queries * op->d, r->part_shares + at,
                r->queries, r->spans, op->d);
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
#pragma omp parallel if (cpu_worth_threads(pairs * (op->d / 8 + 1)))
    {
        const int64_t me = omp_get_thread_num();

        for (int64_t n; (n = take_near(&r.items, me)) >= 0;)
            attend_item(op, &r, n, r.threads + (size_t)me * r.each);
    }
    if (r.spans > 1)
        attend_by_spans(op, &r);
}
