/* Attention of new tokens against the key-value cache, for generation. One
 * token a row reads the cache once, in order, for all query heads of a group;
 * longer pieces (a prompt) go through the tiles of attn_head.c. */
#include "cpu/attn.h"

#include <omp.h>
#include <string.h>

enum { FEW = 4 }; /* query heads that meet a key at once */

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
                      .head0 = g * per};

    v.q = (const float *)op->qkv + b * op->t_new * v.ld + g * (per + 2) * d;
    v.k = (float *)op->k_cache + at;
    v.v = (float *)op->v_cache + at;
    v.out = (float *)op->out + b * op->t_new * v.ldo + g * per * d;
    return v;
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

/* Token i of the new ones, all heads of the group. */
static void attend_token(const struct gpt_attn_cached *op,
                         const struct group *g, int64_t i, float *scores)
{
    int64_t d = op->d, end = g->pos + i + 1;
    /* keys before the window are not read */
    int64_t first = op->window > 0 && end - 1 > op->window
                        ? end - 1 - op->window
                        : 0;
    int64_t n = end - first;

    for (int64_t h = 0; h < g->per; h += FEW) {
        int64_t m = g->per - h < FEW ? g->per - h : FEW;
        float *out = g->out + i * g->ldo + h * d;

        /* Query heads of a group share its keys: up to FEW of them meet a key
         * while it is in the cache. The time of generation is that of reading
         * the cache from memory. */
        cpu_isa->dots(scores, n, g->q + i * g->ld + h * d, d,
                      g->k + first * d, d, m, n, d, false);
        memset(out, 0, (size_t)(m * d) * sizeof(*out));
        for (int64_t k = 0; k < m; k++, out += d) {
            float *s = scores + k * n;

            attn_cap(s, NULL, n, op->softcap, op->scale);
            attn_lean(s, n, attn_slope(op->alibi, g->head0 + h + k, op->h,
                                       op->scale), n - 1);
            /* One row of scores is short enough to be held whole: the plain
             * softmax, less its maximum, as in attn_head.c. */
            float top = cpu_isa->max(s, n) * op->scale;
            float sum = cpu_isa->exp_sum(s, n, op->scale, top);
            cpu_isa->combine(out, s, g->v + first * d, d, d, n);
            cpu_isa->scale(out, d, 1 / sum);
        }
    }
}

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
                                 .slope = attn_slope(op->alibi, g->head0 + h,
                                                     op->h, op->scale)};

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

void cpu_attn_cached(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    if (!cpu_ready(q, "attn_cached", op->act) || !check_rows(q, op))
        return;
    size_t each = cpu_attn_work(op->t_max, op->d);
    /* The same memory serves both ways; scores of FEW heads may be longer than
     * what the tiles need. */
    if (each < (size_t)(FEW * op->t_max))
        each = (size_t)attn_round(FEW * op->t_max, 16);
    float *work = cpu_work(q, each * (size_t)omp_get_max_threads());
    if (!work)
        return;
    int64_t pairs = 0;
    for (int64_t b = 0; b < op->b; b++)
        pairs += (int64_t)op->len[b] * (op->pos[b] + op->len[b]) * op->h;
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(pairs * (op->d / 8 + 1)))
    for (int64_t k = 0; k < op->b * op->g; k++) {
        struct group g = group_of(op, k / op->g, k % op->g);
        float *mine = work + (size_t)omp_get_thread_num() * each;

        append_to_cache(&g, op->d);
        /* Tiles pack all keys, which takes as long as a pass over the cache:
         * from about eight tokens on that is paid back. */
        if (g.len > 8)
            attend_piece(op, &g, mine);
        else
            for (int64_t i = 0; i < g.len; i++)
                attend_token(op, &g, i, mine);
    }
}
