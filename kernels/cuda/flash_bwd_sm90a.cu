/* Causal self-attention on Hopper, backward: the two passes of flash_bwd.cu with
 * the means of flash_fwd_sm90a.cu. Sums have one order, without atomics.
 *   key_grads    a warpgroup owns 64 keys of a group and goes over the queries
 *                that see them, 64 at a time, head by head
 *   query_grads  a warpgroup owns 64 queries and goes over the keys they see
 * While a warpgroup computes probabilities its dP is under way, and while it
 * computes dS, the product for dV (or, for dQ, that of the tile before); all
 * the while another warpgroup has products under way. What is rounded never
 * leaves registers.
 *
 * Registers of a thread at D = 128: key_grads 64 + 64 sums, 32 + 32 scores and
 * dP, 16 + 16 rounded; query_grads 64 sums, 32 + 32, 16. */
#include "cuda/flash_bwd.cuh"
#include "cuda/flash_hopper.cuh"

enum {
    GROUPS = 2,
    ROWS = 64 * GROUPS, /* of a block's own tiles */
    STEP = 64,          /* of those that it goes over */
    N = STEP / 8,
    STAGES = 3,
    THREADS = WARPGROUP * (GROUPS + 1),
};

template <class T> struct grads {
    T *dqkv;
    const struct flash_query *queries; /* (B, H, padded T) */
};

/* Registers of a thread that copies, that computes: together what a launch gives
 * three threads, 3 * 168. */
enum { COPY_REGISTERS = 40, REGISTERS = 232 };

/* At the start of a block. One thread initialises the barriers; the fence shows
 * them to the copies, which are another proxy, and the barrier of the block to
 * the other threads. A warp arrives once: 4 * GROUPS arrivals empty a place. */
template <class M, class R> static __device__ void init_barriers(M &m, R &ring)
{
    if (threadIdx.x == 0) {
        mbarrier_init(m.full, 1);
        mbarrier_init(m.empty, 4 * GROUPS);
        hopper_desk_init(m.desk);
        ring_init(ring, 4 * GROUPS);
        fence_async();
    }
    __syncthreads();
}

/* ---- probabilities and dS ---- */

/* A probability that dropout removes becomes negative: dS needs it, and whether
 * it was removed. */
static __device__ float drop_sign(float p, bool stays)
{
    return stays ? p : -p;
}

/* dP becomes dS; scale: by what dropout multiplies. */
template <bool DROP> static __device__ float ds_of(float p, float dp, float delta, float scale)
{
    if (!DROP)
        return p * (dp - delta);
    /* dS = P (M dP - delta): delta is subtracted from dropped ones, too. */
    return fabsf(p) * ((p > 0 ? dp * scale : 0) - delta);
}

/* ---- dK, dV ---- */

template <int D, class T> struct query_stage {
    tile<T, STEP, D> q, dout;
    struct flash_query of[STEP];
};

template <int D, class T> struct key_memory {
    tile<T, ROWS, D> k, v;
    ring<query_stage<D, T>, STAGES> queries;
    struct mbarrier full, empty; /* k, v */
    struct hopper_desk desk;
};

/* Work that is a tile of keys of a group; rank 0: the first, which most see. */
struct key_work {
    int j0, g, b;
};

static __device__ struct key_work key_work_of(const struct attn_shape &s,
                                              const struct hopper_work &w)
{
    return {w.rank * ROWS, w.head % (int)s.g, w.head / (int)s.g};
}

template <int D, class T>
static __device__ void produce_queries(key_memory<D, T> &m, const struct attn_shape &s,
                                       const struct hopper_plan &plan, const CUtensorMap &qkv,
                                       const CUtensorMap &dout, const struct flash_query *queries)
{
    int per = (int)(s.h / s.g);
    unsigned step = 0, works = 0;
    struct hopper_work turn;

    for (; hopper_announce(turn, m.desk, plan, works); works++) {
        struct key_work w = key_work_of(s, turn);
        int key = w.g * (per + 2) + per;
        if (threadIdx.x == 0) {
            mbarrier_wait(m.empty, works % 2 ^ 1);
            mbarrier_expect(m.full, sizeof(m.k) + sizeof(m.v));
            tma_load(m.k, qkv, m.full, key, w.j0, w.b);
            tma_load(m.v, qkv, m.full, key + 1, w.j0, w.b);
        }
        struct query_tile at = {w.g * per, w.j0};
        do {
            if (threadIdx.x == 0) {
                int h = at.h, t = at.t, to = ring_fill(m.queries, step, sizeof(m.queries.at[0]));

                struct mbarrier &full = m.queries.full[to];
                query_stage<D, T> &stage = m.queries.at[to];
                tma_load(stage.q, qkv, full, h / per * (per + 2) + h % per, t, w.b);
                tma_load(stage.dout, dout, full, h, t, w.b);
                unsigned row = (unsigned)(w.b * (int)s.h + h) * (unsigned)padded(s.t);
                bulk_load(stage.of, queries + row + t, sizeof(stage.of), full);
            }
            __syncwarp();
            step++;
        } while (advance<STEP, ROWS>(s, w.b, w.j0, (w.g + 1) * per, at));
    }
}

/* Those that dropout leaves, as `a` of a product. */
template <bool DROP, class T>
static __device__ void round_kept(uint32_t (&a)[N / 2][4], const float (&p)[N][4])
{
    float stays[N][4];
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            stays[n][e] = DROP ? fmaxf(p[n][e], 0) : p[n][e];
    hopper_round<T>(a, stays);
}

/* Scores, transposed, become probabilities. key: this lane's first, counted
 * from the tile's first query, whose number is t; stay: flash_keep_columns().
 * slope: ALiBi's, before scores are scaled. */
template <bool DROP>
static __device__ void probabilities_of_keys(float (&p)[N][4], const struct attn_shape &s,
                                             const struct flash_query *q, int t, int key,
                                             float slope, const uint32_t (&stay)[4])
{
    bool all_seen = key + 8 <= 0 && !s.doc_start;
    int query = threadIdx.x % 4 * 2;

    if (s.alibi) /* rows are keys here */
        flash_lean(p, -slope, key, query);
    /* The warp decides together, and what is not seen becomes -inf: neither leads
     * to branches among the probabilities. */
    if (!__all_sync(ALL_LANES, all_seen)) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int i = n * 8 + query + e % 2, j = key + e / 2 * 8;

                p[n][e] = (j <= i) & (t + j >= q[i].first) ? p[n][e] : -INFINITY;
            }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float lse = q[n * 8 + query + e % 2].lse;

            p[n][e] = exp2_fast(p[n][e] * (s.scale * FLASH_LOG2E) - lse);
            if (DROP)
                p[n][e] = drop_sign(p[n][e], stay[e] >> 4 * n & 1);
        }
}

/* One tile of queries. */
template <bool DROP, int D, class T>
static __device__ void key_step(float (&dk)[D / 8][4], float (&dv)[D / 8][4],
                                key_memory<D, T> &m, const struct attn_shape &s, unsigned step,
                                int row, int t, int key, float slope, uint64_t drop_at)
{
    const query_stage<D, T> &stage = ring_get(m.queries, step);
    float p[N][4], ds[N][4];
    uint32_t a[N / 2][4], b[N / 2][4], stay[4] = {};
    if (DROP) /* before scores take their registers */
        flash_keep_columns<N>(stay, s.drop, drop_at, s.t);
    /* Scores before dP: wgmma_wait<1> then waits for the first of two groups, and
     * probabilities are computed while dP is under way. */
    hopper_scores(p, m.k, row, stage.q);
    hopper_scores(ds, m.v, row, stage.dout);
    wgmma_wait<1>(p);
    probabilities_of_keys<DROP>(p, s, stage.of, t, key, slope, stay);
    round_kept<DROP, T>(a, p);
    hopper_add<T>(dv, a, stage.dout);
    wgmma_wait<1>(ds);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float delta = stage.of[n * 8 + threadIdx.x % 4 * 2 + e % 2].delta;

            ds[n][e] = ds_of<DROP>(p[n][e], ds[n][e], delta, s.drop.scale);
        }
    hopper_round<T>(b, ds);
    hopper_add<T>(dk, b, stage.q);
    /* The stage is freed below: both products read it. */
    wgmma_wait<0>(dk, a, b);
    wgmma_wait<0>(dv);
    ring_free(m.queries, step);
}

template <bool DROP, int D, class T>
static __device__ void consume_queries(key_memory<D, T> &m, const struct attn_shape &s,
                                       const struct hopper_plan &plan, T *dqkv)
{
    int row = hopper_group() * 64;        /* the warpgroup's first */
    int own = threadIdx.x / 32 * 16 - 64;        /* the warp's */
    int lane = threadIdx.x % 32, per = (int)(s.h / s.g);
    unsigned step = 0, works = 0;
    struct hopper_work turn;

    for (; hopper_next(turn, m.desk, plan, works); works++) {
        struct key_work w = key_work_of(s, turn);
        /* All heads of the group, then all queries of a head, into one sum. */
        float dk[D / 8][4] = {}, dv[D / 8][4] = {};
        struct query_tile at = {w.g * per, w.j0};
        mbarrier_wait(m.full, works % 2);
        do {
            int t = at.t;

            if (t + STEP > w.j0 + row)
                key_step<DROP>(dk, dv, m, s, step, row, t, w.j0 - t + own + lane / 4,
                               attn_slope(s, at.h) / s.scale,
                               attn_drop_at(s, w.b, at.h, t) + w.j0 + own);
            else /* no query of this step sees these keys */
                ring_pass(m.queries, step);
            step++;
        } while (advance<STEP, ROWS>(s, w.b, w.j0, (w.g + 1) * per, at));
        if (lane == 0)
            mbarrier_arrive(m.empty);
        T *to = dqkv + attn_key_at(s, w.b, w.g);
        flash_store<D>(to, dk, {s.scale, s.scale}, w.j0 + own + lane / 4, s.t, s.ld, s.d);
        float scale = DROP ? s.drop.scale : 1;
        flash_store<D>(to + s.d, dv, {scale, scale}, w.j0 + own + lane / 4, s.t, s.ld, s.d);
    }
}

template <bool DROP, int D, class T>
static __global__ void __launch_bounds__(THREADS, 1)
    key_grads(struct attn_shape s, struct hopper_plan plan,
              const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dout,
              grads<T> p)
{
    auto &m = hopper_shared<key_memory<D, T>>();
    init_barriers(m, m.queries);
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<COPY_REGISTERS>();
        if (threadIdx.x < 32)
            produce_queries(m, s, plan, qkv, dout, p.queries);
    } else {
        more_registers<REGISTERS>();
        consume_queries<DROP>(m, s, plan, p.dqkv);
    }
}

/* ---- dQ ---- */

template <int D, class T> struct key_stage {
    tile<T, STEP, D> k, v;
};

template <int D, class T> struct query_memory {
    tile<T, ROWS, D> q, dout;
    ring<key_stage<D, T>, STAGES> keys;
    struct mbarrier full, empty; /* q, dout */
    struct hopper_desk desk;
    float pin[WARPGROUP * GROUPS];
};

template <int D, class T>
static __device__ void produce_keys(query_memory<D, T> &m, const struct attn_shape &s,
                                    const struct hopper_plan &plan, const CUtensorMap &qkv,
                                    const CUtensorMap &dout)
{
    int per = (int)(s.h / s.g);
    unsigned step = 0, works = 0;
    struct hopper_work turn;

    for (; hopper_announce(turn, m.desk, plan, works); works++) {
        struct hopper_queries w = hopper_queries_of<ROWS, STEP>(s, plan, turn);
        /* qkv has per + 2 heads a group: queries, key, value. */
        int group = w.h / per * (per + 2), key = group + per;
        if (threadIdx.x == 0) {
            mbarrier_wait(m.empty, works % 2 ^ 1);
            mbarrier_expect(m.full, sizeof(m.q) + sizeof(m.dout));
            tma_load(m.q, qkv, m.full, group + w.h % per, w.t0, w.b);
            tma_load(m.dout, dout, m.full, w.h, w.t0, w.b);
            for (int j = w.begin; j < w.end; j++, step++) {
                int to = ring_fill(m.keys, step, sizeof(m.keys.at[0]));

                tma_load(m.keys.at[to].k, qkv, m.keys.full[to], key, j * STEP, w.b);
                tma_load(m.keys.at[to].v, qkv, m.keys.full[to], key + 1, j * STEP, w.b);
            }
        }
        __syncwarp();
    }
}

/* Scores become probabilities. q: of this lane's two queries, whose first is
 * number t; key: of the tile's first; stay: flash_keep_rows(). slope: ALiBi's,
 * before scores are scaled. */
template <bool DROP>
static __device__ void probabilities_of_queries(float (&p)[N][4], const struct attn_shape &s,
                                                const struct flash_query (&q)[2], int t, int key,
                                                float slope, const uint32_t (&stay)[2])
{
    bool all_seen = key + STEP - 1 <= t && !s.doc_start;

    key += threadIdx.x % 4 * 2;
    if (s.alibi)
        flash_lean(p, slope, t, key);
    if (!__all_sync(ALL_LANES, all_seen)) { /* see probabilities_of_keys() */
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int i = t + e / 2 * 8, j = key + n * 8 + e % 2;

                p[n][e] = (j <= i) & (j >= q[e / 2].first) ? p[n][e] : -INFINITY;
            }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            p[n][e] = exp2_fast(p[n][e] * (s.scale * FLASH_LOG2E) - q[e / 2].lse);
            if (DROP)
                p[n][e] = drop_sign(p[n][e], stay[e / 2] >> (4 * n + e % 2) & 1);
        }
}

/* A number that depends on all of p, for hopper_pin(). */
static __device__ float sum_of(const float (&p)[N][4])
{
    float sum = 0;
#pragma unroll
    for (int n = 0; n < N; n++)
        sum += p[n][0] + p[n][1] + p[n][2] + p[n][3];
    return sum;
}

/* One tile of keys: its product with the sum is begun. `a` is in use by that of
 * the tile before until the scores are there. */
template <bool DROP, int D, class T>
static __device__ void query_step(float (&dq)[D / 8][4], uint32_t (&a)[N / 2][4],
                                  query_memory<D, T> &m, const struct attn_shape &s,
                                  unsigned step, bool free_last, int row,
                                  const struct flash_query (&q)[2], int t, int key,
                                  float slope, uint64_t drop_at)
{
    const key_stage<D, T> &stage = ring_get(m.keys, step);
    float p[N][4], ds[N][4];
    uint32_t stay[2] = {};
    hopper_scores(p, m.q, row, stage.k);
    hopper_scores(ds, m.dout, row, stage.v);
    if (DROP)
        flash_keep_rows<N>(stay, s.drop, drop_at, s.t);
    wgmma_wait<1>(p, a);
    if (free_last)
        ring_free(m.keys, step - 1);
    probabilities_of_queries<DROP>(p, s, q, t, key, slope, stay);
    hopper_pin(m, sum_of(p));
    wgmma_wait<0>(ds);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            ds[n][e] = ds_of<DROP>(p[n][e], ds[n][e], q[e / 2].delta, s.drop.scale);
    hopper_round<T>(a, ds);
    hopper_add<T>(dq, a, stage.k);
}

template <bool DROP, int D, class T>
static __device__ void consume_keys(query_memory<D, T> &m, const struct attn_shape &s,
                                    const struct hopper_plan &plan, const grads<T> &grad)
{
    int row = hopper_group() * 64;        /* the warpgroup's first */
    int own = threadIdx.x / 32 * 16 - 64;        /* the warp's */
    int lane = threadIdx.x % 32;
    unsigned step = 0, works = 0;
    struct hopper_work turn;

    for (; hopper_next(turn, m.desk, plan, works); works++) {
        struct hopper_queries w = hopper_queries_of<ROWS, STEP>(s, plan, turn);
        int t = w.t0 + own + lane / 4;
        /* Rows past the end: probabilities of exp2(-inf) = 0. */
        const struct flash_query none = {INFINITY, 0, 0, 0};
        const struct flash_query *of = grad.queries + (w.b * s.h + w.h) * padded(s.t) + t;
        const struct flash_query q[2] = {t < s.t ? of[0] : none, t + 8 < s.t ? of[8] : none};
        uint64_t drop_at = attn_drop_at(s, w.b, w.h, w.t0 + own);
        float slope = attn_slope(s, w.h) / s.scale;
        float dq[D / 8][4] = {};
        uint32_t a[N / 2][4] = {};
        int end = min(w.end, (w.t0 + row + 63) / STEP + 1), j = w.begin;
        mbarrier_wait(m.full, works % 2);
        for (; j < end; j++, step++)
            query_step<DROP>(dq, a, m, s, step, j > w.begin, row, q, t, j * STEP, slope,
                             drop_at + (uint64_t)j * STEP);
        wgmma_wait<0>(dq, a);
        ring_free(m.keys, step - 1);
        if (lane == 0)
            mbarrier_arrive(m.empty);
        /* Warpgroups share a ring: one that sees fewer keys must still free the
         * others' places, or the copies would wait for ever. */
        for (; j < w.end; j++, step++) /* no query of this warpgroup sees them */
            ring_pass(m.keys, step);
        flash_store<D>(grad.dqkv + attn_query_at(s, w.b, w.h), dq, {s.scale, s.scale}, t, s.t,
                       s.ld, s.d);
    }
}

template <bool DROP, int D, class T>
static __global__ void __launch_bounds__(THREADS, 1)
    query_grads(struct attn_shape s, struct hopper_plan plan,
                const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dout,
                grads<T> p)
{
    auto &m = hopper_shared<query_memory<D, T>>();
    init_barriers(m, m.keys);
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<COPY_REGISTERS>();
        if (threadIdx.x < 32)
            produce_keys(m, s, plan, qkv, dout);
    } else {
        more_registers<REGISTERS>();
        consume_keys<DROP>(m, s, plan, p);
    }
}

/* ---- launches ---- */

template <bool DROP, int D, class T>
static void launch_backward(struct gpt_queue *q, const struct gpt_attn *op,
                            const struct gpt_attn_grad *grad)
{
    struct attn_shape s = attn_shape_of(op);
    CUtensorMap qkv, dout;
    int64_t per = op->h / op->g, tiles = cuda_blocks(op->t, ROWS), head = op->t * op->d * 4;

    if (!hopper_map(q, &qkv, op, op->qkv, op->g * (per + 2)) ||
        !hopper_map(q, &dout, op, grad->dout, op->h))
        return;
    grads<T> p = {(T *)grad->dqkv, (const struct flash_query *)grad->scratch};
    /* Heads at a time by what their blocks share in the L2 cache: the queries of a
     * group's heads for key_grads, one head's share of keys for query_grads. */
    struct hopper_plan keys = hopper_plan_of(q, tiles, op->b * op->g, head * per);
    struct hopper_plan queries = hopper_plan_of(q, tiles, op->b * op->h, head / per);
    cuda_flash_prepare(q, op, grad);
    launch(q, key_grads<DROP, D, T>, hopper_blocks(q, keys), THREADS, sizeof(key_memory<D, T>), s,
           keys, qkv, dout, p);
    launch(q, query_grads<DROP, D, T>, hopper_blocks(q, queries), THREADS,
           sizeof(query_memory<D, T>), s, queries, qkv, dout, p);
}

bool cuda_hopper_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                     const struct gpt_attn_grad *grad)
{
    if (!hopper_size(q, op) || !cuda_wide(op->act, op->d, grad->dout, grad->dqkv, grad->scratch))
        return false;
    hopper_with_size(op, [&](auto type, auto d) {
        if (op->dropout.p != 0)
            launch_backward<true, d.value, decltype(type)>(q, op, grad);
        else
            launch_backward<false, d.value, decltype(type)>(q, op, grad);
    });
    return true;
}
