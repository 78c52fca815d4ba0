/* Causal self-attention in bf16, backward: see attn_pairs.c. A tile of keys
 * stays with its dK and dV, and queries pass by with their dQ. Start at
 * grad_keys(). */
#include "cpu/attn_pairs.h"

#include <omp.h>
#include <string.h>

/* Queries of a tile: as many as make the products for dK and dV worth their
 * loads and stores of sums. */
enum { BQ = 128, QUERY_CHUNKS = BQ / PAIR_CHUNK, BK = ATTN_PAIR_KEYS };

/* A thread's memory. Operands of all queries are packed once for each head,
 * those of a tile of keys when the tile is reached. Operands named *_t are
 * summed over their rows. */
struct work {
    uint16_t *queries, *douts, *queries_t, *douts_t;
    uint16_t *keys, *values, *keys_t;
    float *dq;      /* (T / 32, d_pad, 32) */
    float *dk, *dv; /* (keys of a tile, d_pad) */
    float *sums;    /* (T, 2 D): dK and dV of a group's heads */
    struct attn_panel *panels;
    struct attn_pair_tile tile;
};

static int64_t carve_backward(struct work *w, float *mem,
                              const struct gpt_attn *op)
{
    const int64_t t = op->t, d = op->d;
    const int64_t d_pad = cpu_panels_of(d) * PAIR_CHUNK;
    const int64_t panels = cpu_panels_of(t);
    const int64_t all = panels * PAIR_PANEL * d_pad, tile = BK * PAIR_PANEL;
    const struct attn_part parts[] = {
        {&w->queries, 2 * all},
        {&w->douts, 2 * all},
        {&w->queries_t, 2 * all},
        {&w->douts_t, 2 * all},
        {&w->dq, 4 * all},
        {&w->sums, op->h > op->g ? 8 * t * d : 0},
        {&w->panels, panels * (int64_t)sizeof(*w->panels)},
        {&w->keys, 2 * BK * d_pad},
        {&w->values, 2 * BK * d_pad},
        {&w->keys_t, 2 * BK * d_pad},
        {&w->dk, 4 * BK * d_pad},
        {&w->dv, 4 * BK * d_pad},
        {&w->tile.s, 4 * tile},
        {&w->tile.dp, 4 * tile},
        {&w->tile.keep, 4 * tile},
        {&w->tile.cap_slope, 4 * tile},
        {&w->tile.rows, 4 * tile},
        {&w->tile.p, 2 * BK * BQ},
        {&w->tile.ds, 2 * BK * BQ},
        {&w->tile.ds_pairs, 2 * tile},
    };

    return cpu_attn_carve(parts, GPT_COUNT(parts), mem);
}

/* The backward pass of one head; attn_bwd.c has the formulas. */
struct task {
    struct attn_pair_head x;
    struct work w;
    struct attn_rows dout;
    const uint16_t *out;
    uint16_t *dq, *dk, *dv; /* where row 0 goes, rows x.k.ld apart */
    /* Where dK and dV of a head that shares its keys go, as floats (T, 2 D),
     * added to what is there or not. NULL: they go to dk and dv. */
    float *sums;
    bool add;
    int64_t panels; /* of queries */
};

/* Computes the factors of dV, dK and dQ that come from panel i (number `slot`
 * of its tile) and the keys from j on, and adds to dQ. Scores of 32 keys at a
 * time stay in the first cache. */
static void grad_panel(const struct task *k, int64_t i, int64_t slot, int64_t j)
{
    const struct attn_pair_head *x = &k->x;
    const struct work *w = &k->w;
    const struct attn_panel *p = &w->panels[i];
    const struct attn_span to = attn_seen(p, j);
    const int64_t at = i * PAIR_PANEL * x->d_pad;
    float *cap_slope = x->h.cap > 0 ? w->tile.cap_slope : NULL;
    const float *keep =
        cpu_attn_mask(x, &w->tile, p, j + to.lo, to.hi - to.lo);

    for (int64_t l = to.lo; l < to.hi; l += PAIR_PANEL) {
        const int64_t chunk = l * BQ + slot * PAIR_VALUES;

        cpu_attn_multiply_scores(w->tile.s, x, w->keys + l * x->d_pad,
                                 w->queries + at, PAIR_PANEL);
        cpu_attn_multiply_scores(w->tile.dp, x, w->values + l * x->d_pad,
                                 w->douts + at, PAIR_PANEL);
        struct cpu_pair_grad grad = {
            .scores = cpu_attn_open_scores(x, &w->tile, p, j + l, PAIR_PANEL,
                                           cap_slope),
            .dp = w->tile.dp, .lse = p->lse, .delta = p->delta,
            .cap_slope = cap_slope, .p = w->tile.p + chunk,
            .ds = w->tile.ds + chunk,
            .ds_pairs = w->tile.ds_pairs + l * PAIR_CHUNK};

        if (keep)
            grad.scores.keep = keep + (l - to.lo) * PAIR_PANEL;
        cpu_pairs->softmax_grad(&grad);
    }
    cpu_attn_sum_keys(w->dq + at, x, w->keys_t + to.lo * PAIR_CHUNK,
                      w->tile.ds_pairs + to.lo * PAIR_CHUNK, to.hi - to.lo);
}

/* Which keys the panels of a tile see, counted from the tile's first key. */
struct seen {
    int64_t slots; /* panels */
    struct attn_span of[QUERY_CHUNKS];
};

static bool sees(const struct seen *seen, int64_t slot, int64_t l)
{
    return l >= seen->of[slot].lo && l < seen->of[slot].hi;
}

/* The slots that see keys l .. l + 31, as one range. A slot inside the range
 * that does not see them adds nothing. */
static struct attn_span slots_of(const struct work *w, const struct seen *seen,
                                 int64_t l)
{
    struct attn_span slots = {seen->slots, 0};

    for (int64_t s = 0; s < seen->slots; s++)
        if (sees(seen, s, l)) {
            slots.lo = gpt_min_i64(slots.lo, s);
            slots.hi = s + 1;
        }
    for (int64_t s = slots.lo; s < slots.hi; s++) {
        const int64_t at = l * BQ + s * PAIR_VALUES;

        if (sees(seen, s, l))
            continue;
        memset(w->tile.p + at, 0, PAIR_VALUES * sizeof(*w->tile.p));
        memset(w->tile.ds + at, 0, PAIR_VALUES * sizeof(*w->tile.ds));
    }
    return slots;
}

/* Adds to `to`, which is (32, d_pad), the scores of 32 keys by n queries times
 * dO or the queries. */
static void sum_queries(float *to, const struct task *k, const uint16_t *scores,
                        const uint16_t *rows, int64_t n)
{
    cpu_pairs->multiply(&(struct cpu_pair_sweep){
        .still = scores, .pass = rows, .panels = k->x.chunks, .chunks = n,
        .step = k->panels * PAIR_VALUES, .still_a = true, .add = true, .c = to,
        .ldc = k->x.d_pad, .next_c = PAIR_PANEL});
}

/* Asks for the memory of the panel from row `at` on, which lies far away, while
 * the panel before it is worked on. */
static void fetch_panel(const struct task *k, int64_t at)
{
    const struct attn_pair_head *x = &k->x;
    const int64_t n = gpt_min_i64(x->q.n - at, PAIR_PANEL), d = x->h.d;

    if (n <= 0)
        return;
    cpu_attn_fetch(attn_cut(x->q, at, n));
    cpu_attn_fetch(attn_cut(k->dout, at, n));
    cpu_attn_fetch(
        (struct attn_rows){k->out + at * x->h.ldo, x->h.ldo, n, d, 0});
    cpu_attn_fetch_to_write(k->dq + at * x->q.ld, x->q.ld, n, d);
}

/* Packs panel i before it meets its first keys, and computes its delta, since
 * rowsum(dP * P) equals rowsum(dO * O). */
static void open_panel(const struct task *k, int64_t i)
{
    const struct attn_pair_head *x = &k->x;
    const struct work *w = &k->w;
    const int64_t from = i * PAIR_PANEL, at = from * x->d_pad;
    struct attn_panel *p = &w->panels[i];

    cpu_attn_open_panel(p, x, from);
    const struct attn_rows q = attn_cut(x->q, from, p->n);
    const struct attn_rows dout = attn_cut(k->dout, from, p->n);
    cpu_attn_pack_along(w->queries + at, q, false);
    cpu_attn_pack_along(w->douts + at, dout, false);
    cpu_attn_pack_across(w->queries_t + i * PAIR_VALUES, q, k->panels, false);
    cpu_attn_pack_across(w->douts_t + i * PAIR_VALUES, dout, k->panels, false);
    memset(w->dq + at, 0, (size_t)(PAIR_PANEL * x->d_pad) * sizeof(*w->dq));
    for (int64_t l = 0; l < p->n; l++) {
        p->lse[l] = x->h.lse[from + l];
        p->delta[l] = cpu_pairs->dot(k->out + (from + l) * x->h.ldo,
                                     dout.at + l * dout.ld, x->h.d);
    }
    fetch_panel(k, from + PAIR_PANEL);
}

/* Adds the gradients of a tile of panels from `i` on against the keys from j
 * on. */
static void grad_tile(const struct task *k, int64_t i, int64_t j)
{
    const struct work *w = &k->w;
    struct seen seen = {.slots = gpt_min_i64(k->panels - i, QUERY_CHUNKS)};

    for (int64_t s = 0; s < seen.slots; s++) {
        /* The first tile of keys meets every panel: each is packed when the
         * one before has been multiplied, and its memory has arrived. */
        if (j == 0)
            open_panel(k, i + s);
        seen.of[s] = attn_seen(&w->panels[i + s], j);
        if (seen.of[s].lo < seen.of[s].hi)
            grad_panel(k, i + s, s, j);
    }
    for (int64_t l = 0; l < BK; l += PAIR_PANEL) {
        const struct attn_span slots = slots_of(w, &seen, l);
        const int64_t n = slots.hi - slots.lo;
        const int64_t at = l * BQ + slots.lo * PAIR_VALUES;
        const int64_t row = (i + slots.lo) * PAIR_VALUES;

        if (n <= 0)
            continue;
        sum_queries(w->dv + l * k->x.d_pad, k, w->tile.p + at,
                    w->douts_t + row, n);
        sum_queries(w->dk + l * k->x.d_pad, k, w->tile.ds + at,
                    w->queries_t + row, n);
    }
}

/* Rounds n rows of (BK, d_pad) to bf16 and stores them. */
static void store_rows(const struct task *k, uint16_t *to, const float *from,
                       int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        cpu_isa->narrow(to + i * k->x.k.ld, from + i * k->x.d_pad, k->x.h.d);
}

/* Scales and stores dK and dV of the n keys from j on. */
static void store_keys(const struct task *k, int64_t j, int64_t n)
{
    const struct attn_pair_head *x = &k->x;
    const struct work *w = &k->w;
    const int64_t d = x->h.d, ld = x->k.ld;

    /* the factor of dS that softmax_grad() leaves out: once for all queries */
    cpu_isa->scale(w->dk, n * x->d_pad, x->h.scale);
    if (!k->sums) {
        store_rows(k, k->dk + j * ld, w->dk, n);
        store_rows(k, k->dv + j * ld, w->dv, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const float *dk = w->dk + i * x->d_pad, *dv = w->dv + i * x->d_pad;
        float *to = k->sums + (j + i) * 2 * d;

        if (k->add) {
            cpu_isa->add(to, to, dk, d);
            cpu_isa->add(to + d, to + d, dv, d);
        } else {
            memcpy(to, dk, (size_t)d * sizeof(*to));
            memcpy(to + d, dv, (size_t)d * sizeof(*to));
        }
    }
}

/* Computes dK and dV of the tile of keys from j on. Queries come in order, so
 * that no sum is shared between threads. */
static void grad_keys(const struct task *k, int64_t j)
{
    const struct attn_pair_head *x = &k->x;
    const struct work *w = &k->w;
    const int64_t n = gpt_min_i64(x->k.n - j, BK);
    const size_t bytes = (size_t)(BK * x->d_pad) * sizeof(float);

    cpu_attn_pack_along(w->keys, attn_cut(x->k, j, n), true);
    cpu_attn_pack_along(w->values, attn_cut(x->v, j, n), true);
    cpu_attn_pack_across(w->keys_t, attn_cut(x->k, j, n), ATTN_KEY_CHUNKS,
                         true);
    memset(w->dk, 0, bytes);
    memset(w->dv, 0, bytes);
    for (int64_t i = j / PAIR_PANEL; i < k->panels; i += QUERY_CHUNKS)
        grad_tile(k, i, j);
    store_keys(k, j, n);
}

static void grad_head(const struct task *k)
{
    const struct attn_pair_head *x = &k->x;
    float scale[PAIR_PANEL];

    cpu_pairs->begin();
    fetch_panel(k, 0);
    for (int64_t j = 0; j < x->k.n; j += BK)
        grad_keys(k, j);
    for (int64_t i = 0; i < PAIR_PANEL; i++)
        scale[i] = x->h.scale;
    for (int64_t i = 0; i < k->panels; i++) {
        const struct attn_panel *p = &k->w.panels[i];

        cpu_pairs->store_queries(&(struct cpu_pair_queries){
            .sums = k->w.dq + p->at * x->d_pad, .factor = scale,
            .to = k->dq + p->at * x->q.ld, .n = p->n, .d = x->h.d,
            .ld = x->q.ld});
    }
    cpu_pairs->end();
}

/* What the backward passes of all heads have in common. */
struct backward {
    const struct gpt_attn *op;
    const struct gpt_attn_grad *grad;
    const struct cpu_drop *drop;
    float *work;
    int64_t each, per; /* floats a thread; heads of a group */
};

/* The task of head i in a thread's memory. Where heads share keys, dK and dV go
 * to `sums`. */
static struct task task_of(const struct backward *b, int64_t i, float *sums)
{
    const struct gpt_attn *op = b->op;
    struct task k = {.x = cpu_attn_pair_head(op, i),
                     .sums = sums,
                     .panels = cpu_panels_of(op->t)};
    const uint16_t *qkv = op->qkv;
    uint16_t *dqkv = b->grad->dqkv;

    carve_backward(&k.w, b->work + omp_get_thread_num() * b->each, op);
    k.x.h.drop = op->dropout.p > 0 ? b->drop : NULL;
    k.out = (const uint16_t *)op->out + k.x.out;
    k.dout = (struct attn_rows){(const uint16_t *)b->grad->dout + k.x.out,
                           k.x.h.ldo, op->t, op->d, 0};
    k.dq = dqkv + (k.x.q.at - qkv);
    k.dk = dqkv + (k.x.k.at - qkv);
    k.dv = dqkv + (k.x.v.at - qkv);
    return k;
}

/* Computes a group's heads one after the other: the sums of their shared keys
 * stay in the thread's memory. */
static void grad_group(const struct backward *b, int64_t group)
{
    const struct gpt_attn *op = b->op;
    struct task k = {.panels = 0};

    for (int64_t h = 0; h < b->per; h++) {
        k = task_of(b, group * b->per + h, NULL);
        k.sums = b->per > 1 ? k.w.sums : NULL;
        k.add = h > 0;
        grad_head(&k);
    }
    for (int64_t t = 0; b->per > 1 && t < op->t; t++)
        cpu_isa->narrow(k.dk + t * k.x.k.ld, k.w.sums + t * 2 * op->d,
                        2 * op->d);
}

/* Adds the gradients of shared keys over a group's heads, in the order of
 * heads. They are added up in the first head's place, and rounded once. */
static void add_heads(const struct backward *b)
{
    const struct gpt_attn *op = b->op;
    const int64_t per = b->per, d = op->d, t = op->t;
    const int64_t ld = op->g * (per + 2) * d;

#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->b * t * op->h * d / 4))
    for (int64_t i = 0; i < op->b * op->g * t; i++) {
        const int64_t group = i / t, row = i % t;
        float *sum = (float *)b->grad->scratch +
                     (group * per * t + row) * 2 * d;
        uint16_t *to = (uint16_t *)b->grad->dqkv +
                       (group / op->g * t + row) * ld +
                       (group % op->g * (per + 2) + per) * d;

        for (int64_t h = 1; h < per; h++)
            cpu_isa->add(sum, sum, sum + h * t * 2 * d, 2 * d);
        cpu_isa->narrow(to, sum, 2 * d);
    }
}

/* A task is a group of heads. Where there are fewer groups than threads, a task
 * is one head, whose dK and dV wait in scratch. Both ways add the same floats
 * in the same order. */
void cpu_attn_pairs_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                        const struct gpt_attn_grad *grad)
{
    if (!cpu_ready(q, "attn_bwd", GPT_F32))
        return;
    struct work sizes;
    const struct cpu_drop drop = cpu_drop_of(&op->dropout);
    const int64_t threads = omp_get_max_threads(), groups = op->b * op->g;
    struct backward b = {.op = op, .grad = grad, .drop = &drop,
                         .each = carve_backward(&sizes, NULL, op),
                         .per = op->h / op->g};
    const bool together =
        b.per == 1 || groups % threads == 0 || groups >= 4 * threads;
    const int64_t tasks = together ? groups : op->b * op->h;

    b.work = cpu_work(q, (size_t)(b.each * threads));
    if (!b.work)
        return;
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(op->b * op->h * op->t * op->t))
    for (int64_t i = 0; i < tasks; i++) {
        if (together)
            grad_group(&b, i);
        else {
            const struct task k = task_of(
                &b, i, (float *)grad->scratch + i * op->t * 2 * op->d);

            grad_head(&k);
        }
    }
    if (!together)
        add_heads(&b);
}
