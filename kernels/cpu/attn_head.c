/* Attention of one head: tiles of BQ queries meet tiles of BK keys; a running
 * maximum and sum (Milakov and Gimelshein 2018) make the softmax exact without
 * ever holding more than one tile of scores. Start at cpu_attn_head(). */
#include "cpu/attn.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A thread's memory. Keys (transposed) and values lie in panels, tile after
 * tile; behind them are one tile of scores, the sums of values, the statistics
 * of rows, and a tile of bf16 keys widened to floats. */
struct work {
    float *keys, *values, *scores, *out, *max, *sum, *wide;
    int64_t d_pad;
};

/* Rows of d_pad floats let every tile of a product write whole vectors; what
 * lies beyond d is computed from the zeros that panels end with. */
static struct work carve_work(float *mem, int64_t nk, int64_t d)
{
    struct work w = {.d_pad = gpt_round_up(d, CPU_NR_MAX)};
    int64_t nk_pad = gpt_round_up(nk, ATTN_BK);

    w.keys = mem;
    w.values = w.keys + nk_pad * d;
    w.scores = w.values + nk_pad * w.d_pad;
    w.out = w.scores + ATTN_BQ * ATTN_BK;
    w.max = w.out + ATTN_BQ * w.d_pad;
    w.sum = w.max + ATTN_BQ;
    w.wide = w.sum + ATTN_BQ;
    return w;
}

size_t cpu_attn_work(int64_t nk, int64_t d)
{
    int64_t d_pad = gpt_round_up(d, CPU_NR_MAX);
    int64_t floats = gpt_round_up(nk, ATTN_BK) * (d + d_pad) +
                     ATTN_BQ * (ATTN_BK + d_pad + 2) + ATTN_BK * d;

    return (size_t)gpt_round_up(floats, 16);
}

int64_t cpu_attn_first(const struct attn_head *h, int64_t from, int64_t n)
{
    int64_t first = attn_first(h, from);

    /* a window's begin grows with the query; documents may be in any order */
    for (int64_t i = 1; h->start && i < n; i++) {
        int64_t next = attn_first(h, from + i);

        first = next < first ? next : first;
    }
    return first;
}

/* The loop over panels of b is outside, that over rows of a inside: a panel
 * stays in the first cache while all rows pass by it. */
void cpu_attn_product(const struct cpu_tile *all, int64_t panel_floats)
{
    int64_t mr = cpu_isa->mr, nr = cpu_isa->nr;

    for (int64_t j = 0; j < all->n; j += nr)
        for (int64_t i = 0; i < all->m; i += mr) {
            struct cpu_tile t = *all;

            t.m = all->m - i < mr ? all->m - i : mr;
            t.n = all->n - j < nr ? all->n - j : nr;
            t.a += i * all->a_row;
            t.b += j / nr * panel_floats;
            t.c += i * all->ldc + j;
            cpu_isa->tile(&t);
        }
}

/* How many of the n rows of keys or values from j on lie one after the other,
 * and where they begin. */
static int64_t rows_at(const struct attn_head *h, int64_t ld, int64_t j,
                       int64_t n, int64_t *at)
{
    const int64_t into = j % GPT_CACHE_BLOCK;

    if (h->block == 0) {
        *at = j * ld;
        return n;
    }
    *at = j / GPT_CACHE_BLOCK * h->block + into * ld;
    return n < GPT_CACHE_BLOCK - into ? n : GPT_CACHE_BLOCK - into;
}

/* Keys are packed transposed: scores are q times k^T. A block is whole panels.
 */
static void pack_keys(const struct attn_head *h, struct work w, int64_t j,
                      int64_t n)
{
    for (int64_t i = 0, m, at; i < n; i += m) {
        const float *rows = h->k;

        m = rows_at(h, h->ldk, j + i, n - i, &at);
        if (rows)
            rows += at;
        else
            cpu_isa->widen(w.wide, h->narrow_k + at, m * h->ldk);
        cpu_isa->pack_b(w.keys + (j + i) * h->d, rows ? rows : w.wide, 1,
                        h->ldk, h->d, m);
    }
}

/* Values are packed as they are, and a panel has rows of several blocks: these
 * are put together before. */
static void pack_values(const struct attn_head *h, struct work w, int64_t j,
                        int64_t n)
{
    const int64_t ld = h->ldv;
    const float *rows = w.wide;

    for (int64_t i = 0, m, at; i < n; i += m) {
        m = rows_at(h, ld, j + i, n - i, &at);
        if (!h->v)
            cpu_isa->widen(w.wide + i * ld, h->narrow_v + at, m * ld);
        else if (m == n)
            rows = h->v + at;
        else
            memcpy(w.wide + i * ld, h->v + at,
                   (size_t)(m * ld) * sizeof(*w.wide));
    }
    cpu_isa->pack_b(w.values + j * w.d_pad, rows, ld, 1, n, h->d);
}

/* A tile of keys begins at j * d floats, whatever the tile before it held,
 * since tiles but the last are full. */
static void pack_head(const struct attn_head *h, struct work w, int64_t from,
                      int64_t to)
{
    for (int64_t j = from; j < to; j += ATTN_BK) {
        const int64_t n = to - j < ATTN_BK ? to - j : ATTN_BK;

        pack_keys(h, w, j, n);
        pack_values(h, w, j, n);
    }
}

/* A row of a tile of scores, and where its sums are. */
struct attn_row {
    float *scores; /* (n) */
    float *out;    /* (width): values, weighted and added up so far */
    float *max, *sum;
    int64_t width;
};

/* A query's scores of keys j .. j + n - 1 become probabilities relative to the
 * row's maximum so far, zero for keys not seen; what was summed under an older
 * maximum is scaled down. */
static void softmax_row(const struct attn_head *h, const struct attn_row *row,
                        int64_t query, int64_t j, int64_t n)
{
    float *s = row->scores;
    int64_t lo = attn_first(h, query) - j;
    int64_t hi = h->q0 + query + 1 - j;

    lo = lo < 0 ? 0 : lo;
    hi = hi > n ? n : hi;
    if (lo >= hi) {
        memset(s, 0, (size_t)n * sizeof(*s));
        return;
    }
    attn_cap(s + lo, NULL, hi - lo, h->cap, h->scale);
    attn_lean(s + lo, hi - lo, h->slope,
              h->q0 + query - attn_begin(h, query),
              j + lo - attn_begin(h, query));
    /* The largest score is subtracted before exp(): the result is at most 1 and
     * cannot overflow, and at least one term is 1, so that the sum cannot
     * vanish. The softmax itself does not change by it. */
    float top = cpu_isa->max(s + lo, hi - lo) * h->scale;
    if (!(top <= *row->max)) { /* NaN gets here too, and stays */
        float shrink = expf(*row->max - top);

        *row->max = top;
        *row->sum *= shrink;
        cpu_isa->scale(row->out, row->width, shrink);
    }
    /* The sum is taken before dropout: probabilities are normalized first, and
     * what is dropped does not make the others larger. */
    *row->sum += cpu_isa->exp_sum(s + lo, hi - lo, h->scale, *row->max);
    memset(s, 0, (size_t)lo * sizeof(*s));
    memset(s + hi, 0, (size_t)(n - hi) * sizeof(*s));
    if (h->drop)
        cpu_isa->drop(s + lo, s + lo, hi - lo, h->drop,
                      h->drop_at + (uint64_t)(query * h->drop_row + j + lo));
}

/* Attends from queries q .. q + m - 1 to the tile of keys from j on. */
static void attend_tile(const struct attn_head *h, struct work w, int64_t q,
                        int64_t m, int64_t j, int64_t height)
{
    int64_t last = h->q0 + q + m - j; /* keys past the last query: not at all */
    int64_t n = last < height ? last : height;
    struct cpu_tile scores = {.m = m,
                              .n = n,
                              .k = h->d,
                              .a = h->q + q * h->ldq,
                              .a_row = h->ldq,
                              .a_col = 1,
                              .b = w.keys + j * h->d,
                              .c = w.scores,
                              .ldc = ATTN_BK};

    cpu_attn_product(&scores, h->d * cpu_isa->nr);
    for (int64_t i = 0; i < m; i++) {
        const struct attn_row row = {w.scores + i * ATTN_BK,
                                     w.out + i * w.d_pad, w.max + i, w.sum + i,
                                     w.d_pad};

        softmax_row(h, &row, q + i, j, n);
    }
    struct cpu_tile sums = {.m = m,
                            .n = w.d_pad,
                            .k = n,
                            .a = w.scores,
                            .a_row = ATTN_BK,
                            .a_col = 1,
                            .b = w.values + j * w.d_pad,
                            .c = w.out,
                            .ldc = w.d_pad,
                            .add = true};
    /* No more columns than tiles of this instruction set touch: d_pad is for
     * the widest one. */
    sums.n = gpt_round_up(h->d, cpu_isa->nr);
    cpu_attn_product(&sums, height * cpu_isa->nr);
}

void cpu_attn_head(const struct attn_head *h, float *work)
{
    int64_t nk = h->q0 + h->nq;
    struct work w = carve_work(work, nk, h->d);
    int64_t first = cpu_attn_first(h, 0, h->nq) / ATTN_BK * ATTN_BK;

    /* rows of a tile begin at whole panels */
    assert(ATTN_BQ % cpu_isa->mr == 0 && ATTN_BK % cpu_isa->nr == 0);
    assert(GPT_CACHE_BLOCK % cpu_isa->nr == 0);
    /* Keys before the first that any query sees are not packed, but keep their
     * places, so that key j is found without an offset. */
    pack_head(h, w, first, nk);
    for (int64_t q = 0; q < h->nq; q += ATTN_BQ) {
        int64_t m = h->nq - q < ATTN_BQ ? h->nq - q : ATTN_BQ;

        /* The running softmax starts at minus infinity: the first tile scales
         * the empty sums by exp(-inf) = 0. */
        memset(w.out, 0, (size_t)(ATTN_BQ * w.d_pad) * sizeof(*w.out));
        for (int64_t i = 0; i < m; i++) {
            w.max[i] = -INFINITY;
            w.sum[i] = 0;
        }
        int64_t j = cpu_attn_first(h, q, m);
        for (j = j / ATTN_BK * ATTN_BK; j < h->q0 + q + m; j += ATTN_BK)
            attend_tile(h, w, q, m, j, nk - j < ATTN_BK ? nk - j : ATTN_BK);
        for (int64_t i = 0; i < m; i++) {
            float *out = h->out + (q + i) * h->ldo;

            memcpy(out, w.out + i * w.d_pad, (size_t)h->d * sizeof(*out));
            /* One division a row; the log-sum-exp of max and sum is all that
             * backward needs to have the probabilities again. */
            cpu_isa->scale(out, h->d, 1 / w.sum[i]);
            if (h->lse)
                h->lse[q + i] = w.max[i] + logf(w.sum[i]);
        }
    }
}
