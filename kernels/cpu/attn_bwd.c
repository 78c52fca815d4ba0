/* Causal self-attention, backward, one head a task: probabilities are computed
 * again, tile by tile, from the log-sum-exp that the forward pass kept.
 *
 * With P = softmax(scale Q K^T) under its mask M of dropout, delta = rowsum(
 * dO * O) and dS = scale P * (M * (dO V^T) - delta):
 *   dV = (P * M)^T dO,   dQ = dS K,   dK = dS^T Q        (Dao et al. 2022)
 *
 * Several heads of a group share a key: their dK and dV go to scratch and are
 * added in the order of heads at the end. */
#include "cpu/attn.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

/* A thread's memory. Panels hold the keys and values transposed (for scores),
 * the keys as they are (for dQ), and a tile's queries and output gradients (for
 * dK, dV). */
struct work {
    int64_t d_pad, t_pad;
    float *keys_t, *values_t, *keys, *queries, *douts;
    float *s, *dp, *dq, *dk, *dv, *keep;
};

/* Cuts up a thread's memory; without memory only the size is computed, so that
 * sizes and places cannot differ. */
static int64_t carve_work(struct work *w, float *mem, int64_t t, int64_t d)
{
    int64_t at = 0;

    w->d_pad = gpt_round_up(d, CPU_NR_MAX);
    w->t_pad = gpt_round_up(t, ATTN_BK);
    struct {
        float **to;
        int64_t floats;
    } parts[] = {
        {&w->keys_t, w->t_pad * d},
        {&w->values_t, w->t_pad * d},
        {&w->keys, w->t_pad * w->d_pad},
        {&w->queries, ATTN_BQ * w->d_pad},
        {&w->douts, ATTN_BQ * w->d_pad},
        {&w->s, ATTN_BQ * ATTN_BK},
        {&w->dp, ATTN_BQ * ATTN_BK},
        {&w->dq, ATTN_BQ * w->d_pad},
        {&w->dk, w->t_pad * w->d_pad},
        {&w->dv, w->t_pad * w->d_pad},
        {&w->keep, ATTN_BK},
    };
    for (size_t i = 0; i < GPT_COUNT(parts); i++) {
        *parts[i].to = mem ? mem + at : NULL;
        at += gpt_round_up(parts[i].floats, 16);
    }
    return at;
}

/* A head whose gradients one task computes, and the memory for it. */
struct task {
    struct attn_head h;
    struct work w;
    const float *dout;
    float *dq;
};

/* A row of a tile. s holds scores, dp the first factor of their gradient, keep
 * is room for a mask, and delta is the row's sum of dO * O. */
struct attn_grad {
    float *s, *dp, *keep; /* (n) each */
    float delta;
};

/* Turns the scores s and dp of keys j .. j + n - 1 into probabilities (times
 * the mask) and dS, in the same places. */
static void grad_row(const struct attn_head *h, const struct attn_grad *row,
                     int64_t query, int64_t j, int64_t n)
{
    float *s = row->s, *dp = row->dp, cap_slope[ATTN_BK];
    int64_t lo = attn_first(h, query) - j, hi = query + 1 - j;

    lo = lo < 0 ? 0 : lo;
    hi = hi > n ? n : hi;
    if (hi < lo)
        lo = hi = hi < 0 ? 0 : hi;
    /* The mask is needed as factors: forward's function drops from a row of
     * ones, so that both passes drop the same elements. */
    if (h->drop && hi > lo) {
        for (int64_t l = 0; l < hi - lo; l++)
            row->keep[l] = 1;
        cpu_isa->drop(row->keep, row->keep, hi - lo, h->drop,
                      h->drop_at + (uint64_t)(query * h->drop_row + j + lo));
    }
    attn_cap(s + lo, cap_slope, hi - lo, h->cap, h->scale);
    attn_lean(s + lo, hi - lo, h->slope, query - attn_begin(h, query),
              j + lo - attn_begin(h, query));
    cpu_isa->softmax_grad(s + lo, dp + lo, h->drop ? row->keep : NULL, hi - lo,
                          h->scale, h->lse[query], row->delta);
    if (h->cap > 0)
        cpu_isa->times(dp + lo, cap_slope, hi - lo);
    /* Products go over whole tiles, so that keys which are not seen must hold
     * zeros. */
    memset(s, 0, (size_t)lo * sizeof(*s));
    memset(dp, 0, (size_t)lo * sizeof(*dp));
    memset(s + hi, 0, (size_t)(n - hi) * sizeof(*s));
    memset(dp + hi, 0, (size_t)(n - hi) * sizeof(*dp));
}

/* Adds the gradients of queries q .. q + m - 1 against keys j .. of a tile
 * `height` keys high. */
static void grad_tile(const struct task *k, int64_t q, int64_t m, int64_t j,
                      int64_t height, const float *delta)
{
    const struct attn_head *h = &k->h;
    const struct work *w = &k->w;
    int64_t nr = cpu_isa->nr, d = h->d, d_use = gpt_round_up(d, nr);
    int64_t n = q + m - j < height ? q + m - j : height;
    struct cpu_tile t = {.m = m,
                         .n = n,
                         .k = d,
                         .a = h->q + q * h->ldq,
                         .a_row = h->ldq,
                         .a_col = 1,
                         .b = w->keys_t + j * d,
                         .c = w->s,
                         .ldc = ATTN_BK};

    assert(m <= ATTN_BQ && height <= ATTN_BK && n > 0);
    cpu_attn_product(&t, d * nr); /* scores */
    t.a = k->dout + q * h->ldo;
    t.a_row = h->ldo;
    t.b = w->values_t + j * d;
    t.c = w->dp;
    cpu_attn_product(&t, d * nr); /* dO V^T */
    for (int64_t i = 0; i < m; i++) {
        const struct attn_grad row = {w->s + i * ATTN_BK, w->dp + i * ATTN_BK,
                                      w->keep, delta[i]};

        grad_row(h, &row, q + i, j, n);
    }
    t = (struct cpu_tile){.m = m,
                          .n = d_use,
                          .k = n,
                          .a = w->dp,
                          .a_row = ATTN_BK,
                          .a_col = 1,
                          .b = w->keys + j * w->d_pad,
                          .c = w->dq,
                          .ldc = w->d_pad,
                          .add = true};
    cpu_attn_product(&t, height * nr); /* dQ */
    t = (struct cpu_tile){.m = n,
                          .n = d_use,
                          .k = m,
                          .a = w->dp,
                          .a_row = 1,
                          .a_col = ATTN_BK,
                          .b = w->queries,
                          .c = w->dk + j * w->d_pad,
                          .ldc = w->d_pad,
                          .add = true};
    cpu_attn_product(&t, m * nr); /* dK */
    t.a = w->s;
    t.b = w->douts;
    t.c = w->dv + j * w->d_pad;
    cpu_attn_product(&t, m * nr); /* dV */
}

static void grad_queries(const struct task *k, int64_t q, int64_t m)
{
    const struct attn_head *h = &k->h;
    const struct work *w = &k->w;
    float delta[ATTN_BQ];

    for (int64_t i = 0; i < m; i++)
        /* rowsum(dP * P) equals rowsum(dO * O): a dot product of D elements in
         * place of a pass over all keys. */
        delta[i] = cpu_isa->dot(h->out + (q + i) * h->ldo,
                                k->dout + (q + i) * h->ldo, h->d);
    cpu_isa->pack_b(w->queries, h->q + q * h->ldq, h->ldq, 1, m, h->d);
    cpu_isa->pack_b(w->douts, k->dout + q * h->ldo, h->ldo, 1, m, h->d);
    memset(w->dq, 0, (size_t)(ATTN_BQ * w->d_pad) * sizeof(*w->dq));
    int64_t j = cpu_attn_first(h, q, m);
    for (j = j / ATTN_BK * ATTN_BK; j < q + m; j += ATTN_BK)
        grad_tile(k, q, m, j, h->nq - j < ATTN_BK ? h->nq - j : ATTN_BK, delta);
    for (int64_t i = 0; i < m; i++)
        memcpy(k->dq + (q + i) * h->ldq, w->dq + i * w->d_pad,
               (size_t)h->d * sizeof(*k->dq));
}

/* Computes the gradients of one head. Those of keys and values go to dk and dv,
 * whose rows are ldk floats apart. */
static void head_grad(struct task *k, float *dk, float *dv, int64_t ldk)
{
    const struct attn_head *h = &k->h;
    const struct work *w = &k->w;
    size_t sums = (size_t)(w->t_pad * w->d_pad) * sizeof(float);

    /* dK and dV of the head stay in this thread's memory over all queries, and
     * queries come in order: no sum is shared between threads. */
    memset(w->dk, 0, sums);
    memset(w->dv, 0, sums);
    for (int64_t j = 0; j < h->nq; j += ATTN_BK) {
        int64_t n = h->nq - j < ATTN_BK ? h->nq - j : ATTN_BK;
        const float *key = h->k + j * h->ldk, *value = h->v + j * h->ldv;

        cpu_isa->pack_b(w->keys_t + j * h->d, key, 1, h->ldk, h->d, n);
        cpu_isa->pack_b(w->values_t + j * h->d, value, 1, h->ldv, h->d, n);
        cpu_isa->pack_b(w->keys + j * w->d_pad, key, h->ldk, 1, n, h->d);
    }
    for (int64_t q = 0; q < h->nq; q += ATTN_BQ)
        grad_queries(k, q, h->nq - q < ATTN_BQ ? h->nq - q : ATTN_BQ);
    size_t row = (size_t)h->d * sizeof(float);
    for (int64_t i = 0; i < h->nq; i++) {
        memcpy(dk + i * ldk, w->dk + i * w->d_pad, row);
        memcpy(dv + i * ldk, w->dv + i * w->d_pad, row);
    }
}

/* Where heads share keys, scratch holds dK and dV of every head. */
size_t cpu_attn_scratch(const struct gpt_attn *op)
{
    if (op->h == op->g)
        return 64; /* not used; something to allocate */
    return (size_t)(op->b * op->h * op->t * 2 * op->d) * sizeof(float);
}

static void add_heads(const struct gpt_attn *op, float *dqkv,
                      const float *scratch)
{
    int64_t per = op->h / op->g, d = op->d, ld = op->g * (per + 2) * d;
#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->b * op->t * op->h * d))
    for (int64_t i = 0; i < op->b * op->t; i++)
        for (int64_t g = 0; g < op->g; g++) {
            int64_t b = i / op->t, t = i % op->t;
            float *to = dqkv + i * ld + g * (per + 2) * d + per * d;

            for (int64_t h = g * per; h < (g + 1) * per; h++) {
                const float *from =
                    scratch + ((b * op->h + h) * op->t + t) * 2 * d;

                if (h == g * per)
                    memcpy(to, from, (size_t)(2 * d) * sizeof(*to));
                else
                    cpu_isa->add(to, to, from, 2 * d);
            }
        }
}

void cpu_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                  const struct gpt_attn_grad *grad)
{
    if (!cpu_ready(q, "attn_bwd", op->act))
        return;
    struct work sizes;
    int64_t each = carve_work(&sizes, NULL, op->t, op->d);
    float *work = cpu_work(q, (size_t)(each * (int64_t)omp_get_max_threads()));
    if (!work)
        return;
    struct cpu_drop drop = {0};
    if (op->dropout.p > 0)
        drop = cpu_drop_of(&op->dropout);
    bool shared = op->h != op->g;
    /* Backward makes five products of forward's two. */
    int64_t pairs = op->b * op->h * op->t * op->t / 2;
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(pairs * (op->d / 4 + 1)))
    for (int64_t i = 0; i < op->b * op->h; i++) {
        struct task k;

        cpu_attn_view(op, i / op->h, i % op->h, &k.h);
        carve_work(&k.w, work + omp_get_thread_num() * each, op->t, op->d);
        k.h.drop = op->dropout.p > 0 ? &drop : NULL;
        k.dout = (const float *)grad->dout + (k.h.out - (float *)op->out);
        float *dqkv = grad->dqkv;
        const float *qkv = op->qkv;
        k.dq = dqkv + (k.h.q - qkv);
        /* Heads of a group run at the same time: each has a place of its own
         * for dK and dV, and add_heads() adds them in the order of heads. */
        float *dk = dqkv + (k.h.k - qkv);
        if (shared)
            dk = (float *)grad->scratch + i * op->t * 2 * op->d;
        head_grad(&k, dk, dk + op->d, shared ? 2 * op->d : k.h.ldk);
    }
    if (shared)
        add_heads(op, grad->dqkv, grad->scratch);
}
