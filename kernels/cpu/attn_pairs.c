/* Causal self-attention in bf16, by instructions that multiply pairs of bf16
 * (pair/): the tiles of attn_head.c and attn_bwd.c with other products. Scores
 * and sums are float; probabilities, and gradients of scores, are rounded to
 * bf16 for the products that take them, as on GPUs. Start at attend_queries(),
 * then grad_queries().
 *
 * An operand is packed in one of two ways: its stored rows run along the sum
 * (pack_along) or across it (pack_across). */
#include "cpu/attn.h"
#include "cpu/pair/pair.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Queries and keys of a tile of scores, whole panels. */
enum { BQ = 64, BK = ATTN_WIDEST, RUN = 8 * BQ };

/* Rows of bf16 that a product reads, ld apart. */
struct rows {
    const uint16_t *at;
    int64_t ld, n, width;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t chunks_of(int64_t n)
{
    return (n + PAIR_CHUNK - 1) / PAIR_CHUNK;
}

/* Panels of rows, summed along their width. */
static void pack_along(uint16_t *to, struct rows r, bool for_a)
{
    const int64_t step = chunks_of(r.width) * PAIR_VALUES;

    for (int64_t i = 0; i < r.n; i += PAIR_PANEL) {
        const struct cpu_pair_band band = {
            .from = r.at + i * r.ld, .ld = r.ld,
            .rows = least(r.n - i, PAIR_PANEL), .columns = r.width,
            .to = to + i / PAIR_PANEL * step, .step = PAIR_VALUES,
            .along_k = true, .for_a = for_a};

        cpu_pairs->pack(&band);
    }
}

/* Panels of columns, summed over the rows: `chunks` chunks of these a panel. */
static void pack_across(uint16_t *to, struct rows r, int64_t chunks, bool for_a)
{
    for (int64_t i = 0; i < r.n; i += PAIR_CHUNK) {
        const struct cpu_pair_band band = {
            .from = r.at + i * r.ld, .ld = r.ld,
            .rows = least(r.n - i, PAIR_CHUNK), .columns = r.width,
            .to = to + i / PAIR_CHUNK * PAIR_VALUES,
            .step = chunks * PAIR_VALUES, .along_k = false, .for_a = for_a};

        cpu_pairs->pack(&band);
    }
}

/* c (m, n) = or += a b; b's panels have room for `room` chunks each. */
static void multiply(float *c, int64_t ldc, int64_t m, int64_t n,
                     const uint16_t *a, const uint16_t *b, int64_t chunks,
                     int64_t room, bool add)
{
    struct cpu_pair_sweep sweep = {
        .still = a, .pass = b, .panels = chunks_of(n), .chunks = chunks,
        .step = room * PAIR_VALUES, .still_a = true, .add = add, .c = c,
        .ldc = ldc, .next_c = PAIR_PANEL};

    cpu_pairs->begin();
    for (int64_t i = 0; i < chunks_of(m); i++) {
        cpu_pairs->multiply(&sweep);
        sweep.still += chunks * PAIR_VALUES;
        sweep.c += PAIR_PANEL * ldc;
    }
    cpu_pairs->end();
}

/* ---- a head ----
 *
 * What attn.h's functions take is described in floats; here rows are of bf16,
 * and a head has both descriptions. */

/* A head of a sample: rows of bf16, and what attn.h's functions ask for. */
struct head {
    struct attn_head h;
    struct rows q, k, v; /* (T, D) */
    int64_t out;         /* element of `out` where row 0 is, rows h.ldo apart */
    int64_t d_pad, chunks;
};

/* The view is that of floats: only how many elements are before a place
 * counts. */
static struct head view_head(const struct gpt_attn *op, int64_t i)
{
    struct head head;

    cpu_attn_view(op, i / op->h, i % op->h, &head.h);
    const float *base = op->qkv;
    const uint16_t *qkv = op->qkv;
    const int64_t ld = head.h.ldq, t = op->t, d = op->d;
    head.q = (struct rows){qkv + (head.h.q - base), ld, t, d};
    head.k = (struct rows){qkv + (head.h.k - base), ld, t, d};
    head.v = (struct rows){qkv + (head.h.v - base), ld, t, d};
    head.out = head.h.out - (float *)op->out;
    head.chunks = chunks_of(d);
    head.d_pad = head.chunks * PAIR_CHUNK;
    return head;
}

/* Rows [from, from + n) of an operand. */
static struct rows cut(struct rows r, int64_t from, int64_t n)
{
    r.at += from * r.ld;
    r.n = n;
    return r;
}

/* Tiles of keys, or values, from the one that holds `from` on: tile j begins at
 * j * d_pad, whatever is before it. */
static void pack_tiles(uint16_t *to, const struct head *x, struct rows r,
                       int64_t from, int64_t end, bool along)
{
    for (int64_t j = from / BK * BK; j < end; j += BK) {
        const struct rows tile = cut(r, j, least(end - j, BK));

        if (along)
            pack_along(to + j * x->d_pad, tile, false);
        else
            pack_across(to + j * x->d_pad, tile, BK / PAIR_CHUNK, false);
    }
}

/* n rows of a tile of floats, BK apart, rounded in place of `to`. */
static void narrow_tile(uint16_t *to, const float *from, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        cpu_isa->narrow(to + i * BK, from + i * BK, n);
}

/* ---- memory ---- */

/* A thread's memory; see attend_queries() and grad_queries(). Panels of keys
 * and values are packed once a task and read by all its queries; everything
 * else is of one tile, and stays in the second cache. */
struct work {
    uint16_t *keys, *values, *keys_across;        /* all keys, packed */
    uint16_t *queries, *queries_across;           /* a tile's, packed */
    uint16_t *douts, *douts_across;
    uint16_t *rounded, *left, *left_across;       /* a tile of scores */
    float *s, *dp, *out, *dq, *dk, *dv, *keep, *max, *sum, *row;
};

/* Carves it; mem NULL: only the floats that are needed. */
static int64_t carve(struct work *w, float *mem, int64_t t, int64_t d,
                     bool backward)
{
    const int64_t d_pad = chunks_of(d) * PAIR_CHUNK;
    const int64_t all = attn_round(t, BK) * d_pad, tile = BQ * BK;
    const struct {
        uint16_t **narrow;
        float **wide;
        int64_t n;
        bool used;
    } parts[] = {
        {&w->keys, NULL, all, true},
        {&w->values, NULL, all, true},
        {&w->keys_across, NULL, all, backward},
        {&w->queries, NULL, BQ * d_pad, true},
        {&w->queries_across, NULL, BQ * d_pad, backward},
        {&w->douts, NULL, BQ * d_pad, backward},
        {&w->douts_across, NULL, BQ * d_pad, backward},
        {&w->rounded, NULL, tile, true},
        {&w->left, NULL, tile, true},
        {&w->left_across, NULL, tile, backward},
        {NULL, &w->s, tile, true},
        {NULL, &w->dp, tile, backward},
        {NULL, &w->out, BQ * d_pad, !backward},
        {NULL, &w->dq, BQ * d_pad, backward},
        {NULL, &w->dk, all, backward},
        {NULL, &w->dv, all, backward},
        {NULL, &w->keep, BK, backward},
        {NULL, &w->max, BQ, !backward},
        {NULL, &w->sum, BQ, !backward},
        {NULL, &w->row, 2 * d_pad, true},
    };
    int64_t at = 0;

    for (size_t i = 0; i < GPT_COUNT(parts); i++) {
        float *here = mem && parts[i].used ? mem + at : NULL;

        if (parts[i].narrow)
            *parts[i].narrow = (uint16_t *)(void *)here;
        else
            *parts[i].wide = here;
        if (parts[i].used)
            at += attn_round(parts[i].narrow ? (parts[i].n + 1) / 2
                                             : parts[i].n, 16);
    }
    return at;
}

bool cpu_attn_pairs_wanted(void)
{
    return cpu_pairs && strcmp(cpu_pairs->name, "amx") == 0;
}

/* ---- forward ---- */

/* m queries from q on against the tile of keys from j on. */
static void attend_tile(const struct head *x, const struct work *w, int64_t q,
                        int64_t m, int64_t j)
{
    const int64_t n = least(q + m - j, BK), seen = chunks_of(n);

    multiply(w->s, BK, m, n, w->queries, w->keys + j * x->d_pad, x->chunks,
             x->chunks, false);
    for (int64_t i = 0; i < m; i++) {
        const struct attn_row row = {w->s + i * BK, w->out + i * x->d_pad,
                                     w->max + i, w->sum + i, x->d_pad};

        cpu_attn_softmax(&x->h, &row, q + i, j, n);
    }
    narrow_tile(w->rounded, w->s, m, n);
    pack_along(w->left, (struct rows){w->rounded, BK, m, n}, true);
    multiply(w->out, x->d_pad, m, x->h.d, w->left, w->values + j * x->d_pad,
             seen, BK / PAIR_CHUNK, true);
}

/* The softmax of attn_head.c: a running maximum and sum. */
static void attend_queries(const struct head *x, const struct work *w,
                           int64_t q, int64_t m, uint16_t *out)
{
    int64_t j = cpu_attn_first(&x->h, q, m);

    pack_along(w->queries, cut(x->q, q, m), true);
    memset(w->out, 0, (size_t)(BQ * x->d_pad) * sizeof(*w->out));
    for (int64_t i = 0; i < m; i++) {
        w->max[i] = -INFINITY;
        w->sum[i] = 0;
    }
    for (j = j / BK * BK; j < q + m; j += BK)
        attend_tile(x, w, q, m, j);
    for (int64_t i = 0; i < m; i++) {
        float *row = w->out + i * x->d_pad;

        cpu_isa->scale(row, x->h.d, 1 / w->sum[i]);
        cpu_isa->narrow(out + x->out + (q + i) * x->h.ldo, row, x->h.d);
        x->h.lse[q + i] = w->max[i] + logf(w->sum[i]);
    }
}

/* A task is a run of queries, long enough to pay for packing the keys again. */
static void attend_run(const struct head *x, const struct work *w, int64_t from,
                       uint16_t *out)
{
    const int64_t end = least(from + RUN, x->q.n);
    const int64_t first = cpu_attn_first(&x->h, from, end - from);

    pack_tiles(w->keys, x, x->k, first, end, true);
    pack_tiles(w->values, x, x->v, first, end, false);
    for (int64_t q = from; q < end; q += BQ)
        attend_queries(x, w, q, least(end - q, BQ), out);
}

void cpu_attn_pairs_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    if (!cpu_ready(q, "attn_fwd", GPT_F32))
        return;
    struct work sizes;
    const int64_t each = carve(&sizes, NULL, op->t, op->d, false);
    float *work = cpu_work(q, (size_t)(each * omp_get_max_threads()));
    const int64_t runs = (op->t + RUN - 1) / RUN, heads = op->b * op->h;
    const struct cpu_drop drop = cpu_drop_of(&op->dropout);
    if (!work)
        return;
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(heads * op->t * op->t))
    for (int64_t i = 0; i < heads * runs; i++) {
        /* long runs of keys first: the last tasks are short */
        struct head x = view_head(op, i % heads);
        struct work w;

        carve(&w, work + omp_get_thread_num() * each, op->t, op->d, false);
        x.h.drop = op->dropout.p > 0 ? &drop : NULL;
        attend_run(&x, &w, (runs - 1 - i / heads) * RUN, op->out);
    }
}

/* ---- backward ---- */

/* What the tiles of backward share, beside the head. */
struct task {
    struct head x;
    struct work w;
    struct rows dout;
    const uint16_t *out;
    float delta[BQ];
};

/* dQ, dK and dV of a tile: see attn_bwd.c for the formulas. Rows past the last
 * query or key are zeros in what is packed, and add nothing to sums that are
 * whole panels. */
static void grad_tile(const struct task *k, int64_t q, int64_t m, int64_t j)
{
    const struct head *x = &k->x;
    const struct work *w = &k->w;
    const int64_t n = least(q + m - j, BK), rows = chunks_of(m);
    const struct rows tile = {w->rounded, BK, m, n};

    multiply(w->s, BK, m, n, w->queries, w->keys + j * x->d_pad, x->chunks,
             x->chunks, false);
    multiply(w->dp, BK, m, n, w->douts, w->values + j * x->d_pad, x->chunks,
             x->chunks, false);
    for (int64_t i = 0; i < m; i++) {
        const struct attn_grad row = {w->s + i * BK, w->dp + i * BK, w->keep,
                                      k->delta[i]};

        cpu_attn_grad_row(&x->h, &row, q + i, j, n);
    }
    narrow_tile(w->rounded, w->s, m, n);
    pack_across(w->left_across, tile, rows, true);
    multiply(w->dv + j * x->d_pad, x->d_pad, n, x->h.d, w->left_across,
             w->douts_across, rows, rows, true);
    narrow_tile(w->rounded, w->dp, m, n);
    pack_across(w->left_across, tile, rows, true);
    multiply(w->dk + j * x->d_pad, x->d_pad, n, x->h.d, w->left_across,
             w->queries_across, rows, rows, true);
    pack_along(w->left, tile, true);
    multiply(w->dq, x->d_pad, m, x->h.d, w->left, w->keys_across + j * x->d_pad,
             chunks_of(n), BK / PAIR_CHUNK, true);
}

/* rowsum(dP * P) equals rowsum(dO * O). */
static float delta_of(const struct task *k, int64_t q)
{
    float *a = k->w.row, *b = a + k->x.d_pad;

    cpu_isa->widen(a, k->out + q * k->x.h.ldo, k->x.h.d);
    cpu_isa->widen(b, k->dout.at + q * k->dout.ld, k->x.h.d);
    return cpu_isa->dot(a, b, k->x.h.d);
}

static void grad_queries(struct task *k, int64_t q, int64_t m, uint16_t *dq)
{
    const struct head *x = &k->x;
    const struct work *w = &k->w;
    const struct rows queries = cut(x->q, q, m), douts = cut(k->dout, q, m);
    int64_t j = cpu_attn_first(&x->h, q, m);

    for (int64_t i = 0; i < m; i++)
        k->delta[i] = delta_of(k, q + i);
    pack_along(w->queries, queries, true);
    pack_along(w->douts, douts, true);
    pack_across(w->queries_across, queries, chunks_of(m), false);
    pack_across(w->douts_across, douts, chunks_of(m), false);
    memset(w->dq, 0, (size_t)(BQ * x->d_pad) * sizeof(*w->dq));
    for (j = j / BK * BK; j < q + m; j += BK)
        grad_tile(k, q, m, j);
    for (int64_t i = 0; i < m; i++)
        cpu_isa->narrow(dq + (q + i) * x->q.ld, w->dq + i * x->d_pad, x->h.d);
}

/* All queries in order, so that no sum is shared between threads. */
static void grad_head(struct task *k, uint16_t *dq)
{
    const struct head *x = &k->x;
    const struct work *w = &k->w;
    const int64_t t = x->q.n;
    const size_t bytes = (size_t)(attn_round(t, BK) * x->d_pad) * sizeof(float);

    memset(w->dk, 0, bytes);
    memset(w->dv, 0, bytes);
    pack_tiles(w->keys, x, x->k, 0, t, true);
    pack_tiles(w->values, x, x->v, 0, t, true);
    pack_tiles(w->keys_across, x, x->k, 0, t, false);
    for (int64_t q = 0; q < t; q += BQ)
        grad_queries(k, q, least(t - q, BQ), dq);
}

/* dK and dV of head i, rounded where they belong, or as they are in scratch
 * where heads share keys. */
static void store_keys(const struct task *k, const struct gpt_attn *op,
                       uint16_t *dqkv, float *scratch, int64_t i)
{
    const struct head *x = &k->x;
    const int64_t d = op->d, key = x->k.at - (const uint16_t *)op->qkv;
    const size_t row = (size_t)d * sizeof(float);

    for (int64_t t = 0; t < op->t; t++) {
        const float *dk = k->w.dk + t * x->d_pad, *dv = k->w.dv + t * x->d_pad;
        float *to = scratch + (i * op->t + t) * 2 * d;

        if (op->h == op->g) {
            cpu_isa->narrow(dqkv + key + t * x->k.ld, dk, d);
            cpu_isa->narrow(dqkv + key + d + t * x->k.ld, dv, d);
        } else {
            memcpy(to, dk, row);
            memcpy(to + d, dv, row);
        }
    }
}

/* Gradients of shared keys: those of a group's heads, in their order. They are
 * added up in the first one's place, and rounded once. */
static void add_heads(const struct gpt_attn *op, uint16_t *dqkv, float *scratch)
{
    const int64_t per = op->h / op->g, d = op->d, t = op->t;
    const int64_t ld = op->g * (per + 2) * d;

#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->b * t * op->h * d / 4))
    for (int64_t i = 0; i < op->b * op->g * t; i++) {
        const int64_t b = i / (op->g * t), g = i / t % op->g, row = i % t;
        float *sum = scratch + ((b * op->h + g * per) * t + row) * 2 * d;

        for (int64_t h = 1; h < per; h++)
            cpu_isa->add(sum, sum, sum + h * t * 2 * d, 2 * d);
        cpu_isa->narrow(dqkv + (b * t + row) * ld + (g * (per + 2) + per) * d,
                        sum, 2 * d);
    }
}

void cpu_attn_pairs_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                        const struct gpt_attn_grad *grad)
{
    if (!cpu_ready(q, "attn_bwd", GPT_F32))
        return;
    struct work sizes;
    const int64_t each = carve(&sizes, NULL, op->t, op->d, true);
    float *work = cpu_work(q, (size_t)(each * omp_get_max_threads()));
    const struct cpu_drop drop = cpu_drop_of(&op->dropout);
    if (!work)
        return;
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(op->b * op->h * op->t * op->t))
    for (int64_t i = 0; i < op->b * op->h; i++) {
        struct task k = {.x = view_head(op, i)};
        uint16_t *dqkv = grad->dqkv;

        carve(&k.w, work + omp_get_thread_num() * each, op->t, op->d, true);
        k.x.h.drop = op->dropout.p > 0 ? &drop : NULL;
        k.out = (const uint16_t *)op->out + k.x.out;
        k.dout = (struct rows){(const uint16_t *)grad->dout + k.x.out,
                               k.x.h.ldo, op->t, op->d};
        grad_head(&k, dqkv + (k.x.q.at - (const uint16_t *)op->qkv));
        store_keys(&k, op, dqkv, grad->scratch, i);
    }
    if (op->h != op->g)
        add_heads(op, grad->dqkv, grad->scratch);
}
