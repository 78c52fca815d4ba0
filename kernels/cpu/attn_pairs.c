/* Causal self-attention in bf16, by instructions that multiply pairs of bf16
 * (pair/): what both passes share, and forward. Scores and sums are float;
 * probabilities, and gradients of scores, are rounded to bf16 for the products
 * that take them, as on GPUs.
 *
 * Scores are computed transposed, 32 queries (a panel) across and keys down:
 * what the next products take is then made of whole vectors (pair/scores.h),
 * and the sums of a panel's queries, transposed too, stay in the first cache.
 * Forward holds a tile of queries and lets keys pass by. Start at
 * attend_queries().
 *
 * An operand is packed in one of two ways: its stored rows run along the sum
 * (cpu_attn_pack_along) or across it (cpu_attn_pack_across). */
#include "cpu/attn_pairs.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* BQ is the queries of a tile, RUN those of a task. */
enum { BQ = 64, RUN = 8 * BQ, BK = ATTN_PAIR_KEYS };

/* ---- rows ---- */

/* Rows of a head are thousands of bytes apart, which the processor's own
 * prefetching does not follow. */
void cpu_attn_fetch(struct attn_rows r)
{
    for (int64_t i = 0; i < r.n; i++)
        for (int64_t j = 0; j < r.width; j += 32)
            __builtin_prefetch(r.at + i * r.ld + j);
}

void cpu_attn_fetch_to_write(const uint16_t *rows, int64_t ld, int64_t n,
                             int64_t width)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j += 32)
            __builtin_prefetch(rows + i * ld + j, 1);
}

/* Fetches the rows after the n rows from i on. */
static void fetch_next(struct attn_rows r, int64_t i, int64_t n)
{
    if (i + n < r.n)
        cpu_attn_fetch(attn_cut(r, i + n, gpt_min_i64(r.n - i - n, n)));
}

void cpu_attn_pack_along(uint16_t *to, struct attn_rows r, bool for_a)
{
    const int64_t step = cpu_panels_of(r.width) * PAIR_VALUES;

    for (int64_t i = 0; i < r.n; i += PAIR_PANEL) {
        const struct cpu_pair_band band = {
            .from = attn_cut(r, i, 0).at, .ld = r.ld,
            .rows = gpt_min_i64(r.n - i, PAIR_PANEL), .columns = r.width,
            .to = to + i / PAIR_PANEL * step, .step = PAIR_VALUES,
            .along_k = true, .for_a = for_a};

        fetch_next(r, i, PAIR_PANEL);
        cpu_pairs->pack(&band);
    }
}

void cpu_attn_pack_across(uint16_t *to, struct attn_rows r, int64_t chunks,
                          bool for_a)
{
    for (int64_t i = 0; i < r.n; i += PAIR_CHUNK) {
        const struct cpu_pair_band band = {
            .from = attn_cut(r, i, 0).at, .ld = r.ld,
            .rows = gpt_min_i64(r.n - i, PAIR_CHUNK), .columns = r.width,
            .to = to + i / PAIR_CHUNK * PAIR_VALUES,
            .step = chunks * PAIR_VALUES, .along_k = false, .for_a = for_a};

        cpu_pairs->pack(&band);
    }
}

/* ---- a head ---- */

/* The view is that of floats: only how many elements are before a place
 * counts. */
struct attn_pair_head cpu_attn_pair_head(const struct gpt_attn *op, int64_t i)
{
    struct attn_pair_head head = {.piece = false};

    cpu_attn_view(op, i / op->h, i % op->h, &head.h);
    const float *base = op->qkv;
    const uint16_t *qkv = op->qkv;
    const int64_t ld = head.h.ldq, t = op->t, d = op->d;
    head.q = (struct attn_rows){qkv + (head.h.q - base), ld, t, d, 0};
    head.k = (struct attn_rows){qkv + (head.h.k - base), ld, t, d, 0};
    head.v = (struct attn_rows){qkv + (head.h.v - base), ld, t, d, 0};
    head.out = head.h.out - (float *)op->out;
    head.chunks = cpu_panels_of(d);
    head.d_pad = head.chunks * PAIR_CHUNK;
    return head;
}

void cpu_attn_open_panel(struct attn_panel *p, const struct attn_pair_head *x,
                         int64_t at)
{
    *p = (struct attn_panel){.at = at,
                             .n = gpt_min_i64(x->q.n - at, PAIR_PANEL),
                             .position = x->h.q0 + at,
                             .lowest = INT32_MAX};
    for (int64_t i = 0; i < PAIR_PANEL; i++) {
        p->first[i] =
            i < p->n ? (int32_t)attn_first(&x->h, at + i) : INT32_MAX;
        p->lowest = (int32_t)gpt_min_i64(p->lowest, p->first[i]);
        p->highest = p->first[i] > p->highest ? p->first[i] : p->highest;
        p->top[i] = -INFINITY;
    }
}

int64_t cpu_attn_carve(const struct attn_part *parts, size_t n, float *mem)
{
    int64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        float *here = mem ? mem + at : NULL;

        memcpy(parts[i].to, &here, sizeof(here));
        at += gpt_round_up(parts[i].bytes, 64) / (int64_t)sizeof(float);
    }
    return at;
}

/* ---- scores ---- */

void cpu_attn_multiply_scores(float *s, const struct attn_pair_head *x,
                              const uint16_t *rows, const uint16_t *panel,
                              int64_t n)
{
    cpu_pairs->multiply(&(struct cpu_pair_sweep){
        .still = panel, .pass = rows, .panels = n / PAIR_PANEL,
        .chunks = x->chunks, .step = x->chunks * PAIR_VALUES, .c = s,
        .one_order = x->piece, .ldc = PAIR_PANEL,
        .next_c = PAIR_PANEL * PAIR_PANEL});
}

void cpu_attn_sum_keys(float *sums, const struct attn_pair_head *x,
                       const uint16_t *rows, const uint16_t *scores, int64_t n)
{
    cpu_pairs->multiply(&(struct cpu_pair_sweep){
        .still = scores, .pass = rows, .panels = x->chunks,
        .chunks = n / PAIR_CHUNK, .step = ATTN_KEY_CHUNKS * PAIR_VALUES,
        .add = true, .one_order = x->piece, .c = sums, .ldc = PAIR_PANEL,
        .next_c = PAIR_PANEL * PAIR_PANEL});
}

/* Ones go through the function of other masks, whose rows are queries, and
 * which is fast with whole groups of 64. */
const float *cpu_attn_mask(const struct attn_pair_head *x,
                           const struct attn_pair_tile *tile,
                           const struct attn_panel *p, int64_t key, int64_t n)
{
    const struct attn_head *h = &x->h;

    if (!h->drop)
        return NULL;
    for (int64_t i = 0; i < PAIR_PANEL * BK; i++)
        tile->rows[i] = 1;
    for (int64_t i = 0; i < p->n; i++) {
        float *row = tile->rows + i * BK;

        cpu_isa->drop(row, row, gpt_round_up(n, 64), h->drop,
                      h->drop_at + (uint64_t)((p->at + i) * h->drop_row + key));
    }
    /* a panel of floats is 32 columns where pairs are multiplied */
    cpu_isa->pack_b(tile->keep, tile->rows, 1, BK, n, PAIR_PANEL);
    return tile->keep;
}

struct cpu_pair_scores cpu_attn_open_scores(const struct attn_pair_head *x,
                                            const struct attn_pair_tile *tile,
                                            const struct attn_panel *p,
                                            int64_t key, int64_t n,
                                            float *cap_slope)
{
    attn_cap(tile->s, cap_slope, n * PAIR_PANEL, x->h.cap, x->h.scale);
    return (struct cpu_pair_scores){
        .s = tile->s, .keys = n, .key = (int32_t)key,
        .query = (int32_t)p->position,
        .first = p->first, .highest = p->highest, .scale = x->h.scale,
        .slope = x->h.slope.by};
}

/* ---- forward ---- */

/* A thread's memory: keys and values of the whole task, packed once, pass by
 * from the second cache. */
struct work {
    uint16_t *keys, *values, *queries;
    float *out; /* (BQ / 32, d_pad, 32) */
    struct attn_panel *panels;
    struct attn_pair_tile tile;
};

static int64_t carve_forward(struct work *w, float *mem, int64_t t, int64_t d)
{
    const int64_t d_pad = cpu_panels_of(d) * PAIR_CHUNK;
    const int64_t all = gpt_round_up(t, BK) * d_pad, tile = BK * PAIR_PANEL;
    const struct attn_part parts[] = {
        {&w->keys, 2 * all},
        {&w->values, 2 * all},
        {&w->queries, 2 * BQ * d_pad},
        {&w->out, 4 * BQ * d_pad},
        {&w->panels, BQ / PAIR_PANEL * (int64_t)sizeof(*w->panels)},
        {&w->tile.s, 4 * tile},
        {&w->tile.keep, 4 * tile},
        {&w->tile.rows, 4 * tile},
        {&w->tile.p, 2 * tile},
    };

    return cpu_attn_carve(parts, GPT_COUNT(parts), mem);
}

/* Attends from panel i of the tile's queries to the tile of keys from j on. */
static void attend_tile(const struct attn_pair_head *x, const struct work *w,
                        int64_t i, int64_t j)
{
    struct attn_panel *p = &w->panels[i];
    const struct attn_span to = attn_seen(p, j);
    const int64_t n = to.hi - to.lo, key = j + to.lo;
    float *out = w->out + i * PAIR_PANEL * x->d_pad;

    if (n <= 0)
        return;
    cpu_attn_multiply_scores(w->tile.s, x, w->keys + key * x->d_pad,
                             w->queries + i * PAIR_PANEL * x->d_pad, n);
    struct cpu_pair_softmax step = {
        .scores = cpu_attn_open_scores(x, &w->tile, p, key, n, NULL),
        .top = p->top, .sum = p->sum, .out = out, .d_pad = x->d_pad,
        .p = w->tile.p};
    step.scores.keep = cpu_attn_mask(x, &w->tile, p, key, n);
    cpu_pairs->softmax(&step);
    cpu_attn_sum_keys(out, x, w->values + j * x->d_pad + to.lo * PAIR_CHUNK,
                      w->tile.p, n);
}

static void store_panel(const struct attn_pair_head *x, const struct work *w,
                        int64_t i, uint16_t *out)
{
    const struct attn_panel *p = &w->panels[i];
    float factor[PAIR_PANEL] = {0};
    struct cpu_pair_queries to = {
        .sums = w->out + i * PAIR_PANEL * x->d_pad, .factor = factor,
        .n = p->n, .d = x->h.d, .ld = x->h.ldo};

    for (int64_t l = 0; l < p->n; l++) {
        factor[l] = 1 / p->sum[l];
        if (x->h.lse)
            x->h.lse[p->at + l] = p->top[l] * 0x1.62e43p-1F + logf(p->sum[l]);
    }
    if (x->piece)
        to.floats = x->h.out + p->at * x->h.ldo;
    else
        to.to = out + x->out + p->at * x->h.ldo;
    cpu_pairs->store_queries(&to);
}

/* Attends from m queries from q on, with a running maximum and sum as in
 * attn_head.c. */
static void attend_queries(const struct attn_pair_head *x,
                           const struct work *w, int64_t q, int64_t m,
                           uint16_t *out)
{
    const int64_t panels = cpu_panels_of(m);
    int64_t j = cpu_attn_first(&x->h, q, m) / BK * BK;

    if (!x->piece)
        cpu_attn_fetch_to_write(out + x->out + q * x->h.ldo, x->h.ldo, m,
                                x->h.d);
    cpu_attn_pack_along(w->queries, attn_cut(x->q, q, m), false);
    memset(w->out, 0, (size_t)(BQ * x->d_pad) * sizeof(*w->out));
    for (int64_t i = 0; i < panels; i++)
        cpu_attn_open_panel(&w->panels[i], x, q + i * PAIR_PANEL);
    for (; j < x->h.q0 + q + m; j += BK)
        for (int64_t i = 0; i < panels; i++)
            attend_tile(x, w, i, j);
    for (int64_t i = 0; i < panels; i++)
        store_panel(x, w, i, out);
}

/* A task is a run of queries, long enough to pay for packing the keys again. */
static void attend_run(const struct attn_pair_head *x, const struct work *w,
                       int64_t from, uint16_t *out)
{
    const int64_t end = gpt_min_i64(from + RUN, x->q.n), keys = x->h.q0 + end;
    int64_t j = cpu_attn_first(&x->h, from, end - from) / BK * BK;

    cpu_pairs->begin();
    /* tile j is at j * d_pad, whatever is before it */
    for (; j < keys; j += BK) {
        const int64_t n = gpt_min_i64(keys - j, BK);

        cpu_attn_pack_along(w->keys + j * x->d_pad, attn_cut(x->k, j, n), true);
        cpu_attn_pack_across(w->values + j * x->d_pad, attn_cut(x->v, j, n),
                             ATTN_KEY_CHUNKS, true);
    }
    for (int64_t q = from; q < end; q += BQ)
        attend_queries(x, w, q, gpt_min_i64(end - q, BQ), out);
    cpu_pairs->end();
}

/* Floats of work memory for a piece, including room for its queries in bf16. */
int64_t cpu_attn_pairs_work(int64_t keys, int64_t queries, int64_t d)
{
    struct work w;

    return carve_forward(&w, NULL, keys, d) +
           gpt_round_up(queries * d, 32) / 2;
}

/* Where a query's sums begin and end does not depend on what is beside it in
 * the piece: tiles of keys begin at multiples of BK, and keys that it does not
 * see add zeros. */
void cpu_attn_pairs_piece(const struct attn_head *h, float *mem)
{
    const int64_t d = h->d, keys = h->q0 + h->nq;
    struct work w;
    uint16_t *queries =
        (uint16_t *)(void *)(mem + carve_forward(&w, NULL, keys, d));
    const struct attn_pair_head x = {
        .h = *h,
        .q = {queries, d, h->nq, d, 0},
        .k = {h->narrow_k, h->ldk, keys, d, h->block},
        .v = {h->narrow_v, h->ldv, keys, d, h->block},
        .piece = true,
        .chunks = cpu_panels_of(d),
        .d_pad = cpu_panels_of(d) * PAIR_CHUNK};

    carve_forward(&w, mem, keys, d);
    for (int64_t i = 0; i < h->nq; i++)
        cpu_isa->narrow(queries + i * d, h->q + i * h->ldq, d);
    for (int64_t from = 0; from < h->nq; from += RUN)
        attend_run(&x, &w, from, NULL);
}

bool cpu_attn_has_pairs(enum gpt_alibi alibi)
{
    return cpu_pairs && alibi != GPT_ALIBI_BF16;
}

void cpu_attn_pairs_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    if (!cpu_ready(q, "attn_fwd", GPT_F32))
        return;
    struct work sizes;
    const int64_t each = carve_forward(&sizes, NULL, op->t, op->d);
    float *work = cpu_work(q, (size_t)(each * omp_get_max_threads()));
    const int64_t runs = gpt_ceil_div(op->t, RUN), heads = op->b * op->h;
    const struct cpu_drop drop = cpu_drop_of(&op->dropout);
    if (!work)
        return;
#pragma omp parallel for schedule(dynamic) if (                                \
        cpu_worth_threads(heads * op->t * op->t))
    for (int64_t i = 0; i < heads * runs; i++) {
        /* long runs of keys first: the last tasks are short */
        struct attn_pair_head x = cpu_attn_pair_head(op, i % heads);
        struct work w;

        carve_forward(&w, work + omp_get_thread_num() * each, op->t, op->d);
        x.h.drop = op->dropout.p > 0 ? &drop : NULL;
        attend_run(&x, &w, (runs - 1 - i / heads) * RUN, op->out);
    }
}

