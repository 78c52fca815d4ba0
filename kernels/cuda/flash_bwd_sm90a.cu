/* Causal self-attention on Hopper, backward, in one pass: a block owns 128 keys of
 * a group and goes over the queries that see them, head by head. Of its warps
 *   produce()  copies tiles into a ring, as in flash_fwd_sm90a.cu
 *   consume()  two warpgroups have 64 of the keys each: S^T = K Q^T and
 *              dP^T = V dO^T, dV += (P M)^T dO and dK += dS^T Q; each then has half
 *              of dQ = dS K over all keys, for which they exchange dS
 *   keep_turns() lets the block add its part of dQ when its turn has come
 * While a warpgroup computes probabilities its dP is under way, and while it
 * computes dS, the product for dV; all the while the other has products under
 * way.
 *
 * The order of sums is fixed, dQ's, too, which many blocks add to: those with the
 * last keys first, each when the one before has. Blocks therefore take the last
 * keys first, though these have least to do: all begin at the diagonal and go to
 * later queries, so that a block comes to a tile two steps after the one before.
 * No block waits for one that has not begun, as a piece of work waits for
 * earlier pieces alone (Dao-AILab's deterministic FlashAttention-3 has that
 * order, too).
 *
 * Registers of a thread at D = 128: 64 + 64 sums, 32 + 32 scores and dP, of which
 * 32 are later dQ, 16 + 16 rounded. */
#include "cuda/flash_bwd.cuh"
#include "cuda/flash_hopper.cuh"

enum {
    GROUPS = 2,
    ROWS = 64 * GROUPS, /* of a block's own tiles */
    QUERIES = 64,       /* of a tile that it goes over */
    N = QUERIES / 8,
    STAGES = 3,
    THREADS = WARPGROUP * (GROUPS + 1),
};

/* Tiles of a step. Heads of 64 take two, so that the warpgroups can share dQ: each
 * has 64 queries of it, or, of heads of 128, 64 columns. */
template <int D> constexpr int TILES = 128 / D;
template <int D> constexpr int STEP = QUERIES * TILES<D>;

/* A warpgroup's part of dQ: (64, 64) floats in the order of its registers. */
struct dq_part {
    float4 at[N][WARPGROUP];
};

template <class T> struct grads {
    T *dqkv;
    struct flash_query *queries; /* (B, H, padded T) */
    struct dq_part *dq;          /* (B, H, padded T / STEP, GROUPS) */
    float scale;                 /* of scores, in units of log(2) */
};

/* Registers of a thread that copies, that computes: together what a launch gives
 * three threads, 3 * 168. */
enum { COPY_REGISTERS = 40, REGISTERS = 232 };

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

/* ---- the order of work ---- */

template <int D, class T> struct query_stage {
    tile<T, QUERIES, D> q[TILES<D>], dout[TILES<D>];
    struct flash_query of[STEP<D>];
};

template <int D, class T> struct memory {
    tile<T, ROWS, D> k, v;
    /* dS of a step, of the one before: a warpgroup may still read it. */
    tile<T, ROWS, QUERIES> ds[2][TILES<D>];
    ring<query_stage<D, T>, STAGES> queries;
    struct mbarrier full, empty; /* k, v */
    struct mbarrier turn, added; /* dQ: may be added to; all warps have */
    struct hopper_desk desk;
};

/* Work that is a tile of keys of a group; rank 0: the last, which fewest see. */
struct key_work {
    int j0, g, b;
};

static __device__ struct key_work key_work_of(const struct attn_shape &s,
                                              const struct hopper_plan &plan,
                                              const struct hopper_work &w)
{
    return {((int)plan.blocks - 1 - w.rank) * ROWS, w.head % (int)s.g, w.head / (int)s.g};
}

/* Where what is known of head h's queries begins. */
static __device__ unsigned query_row(const struct attn_shape &s, int b, int h)
{
    return (unsigned)(b * (int)s.h + h) * (unsigned)padded(s.t);
}

/* A block's turn to add to dQ of the step that begins at query t: `before` blocks
 * add before. A query's keys are one run, and so are the blocks: from that of the
 * query's own key back to that of its first. */
struct turn {
    int before;
    bool last;
};

template <int D>
static __device__ struct turn turn_of(const struct attn_shape &s, int b, int j0, int t)
{
    return {t / ROWS - j0 / ROWS, flash_first<STEP<D>>(s, b, t) >= j0};
}

template <int D, class T>
static __device__ void produce(memory<D, T> &m, const struct attn_shape &s,
                               const struct hopper_plan &plan, const CUtensorMap &qkv,
                               const CUtensorMap &dout, const struct flash_query *queries)
{
    int per = (int)(s.h / s.g);
    unsigned step = 0, works = 0;
    struct hopper_work turn;

    for (; hopper_announce(turn, m.desk, plan, works); works++) {
        struct key_work w = key_work_of(s, plan, turn);
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
                for (int i = 0; i < TILES<D>; i++, t += QUERIES) {
                    tma_load(stage.q[i], qkv, full, h / per * (per + 2) + h % per, t, w.b);
                    tma_load(stage.dout[i], dout, full, h, t, w.b);
                }
                bulk_load(stage.of, queries + query_row(s, w.b, h) + at.t, sizeof(stage.of), full);
            }
            __syncwarp();
            step++;
        } while (advance<STEP<D>, ROWS>(s, w.b, w.j0, (w.g + 1) * per, at));
    }
}

/* One warp waits for the block's turns and passes them on, so that the ways to
 * other multiprocessors and back cost the warpgroups nothing. */
template <int D, class T>
static __device__ void keep_turns(memory<D, T> &m, const struct attn_shape &s,
                                  const struct hopper_plan &plan, struct flash_query *queries)
{
    int per = (int)(s.h / s.g);
    unsigned step = 0, works = 0;
    struct hopper_work turn;

    for (; hopper_next(turn, m.desk, plan, works); works++) {
        struct key_work w = key_work_of(s, plan, turn);
        struct query_tile at = {w.g * per, w.j0};
        do {
            struct turn own = turn_of<D>(s, w.b, w.j0, at.t);
            int *now = &queries[query_row(s, w.b, at.h) + at.t].turn;
            if (threadIdx.x % 32 == 0) {
                if (own.before)
                    turn_wait(now, own.before);
                mbarrier_arrive(m.turn);
                mbarrier_wait(m.added, step % 2);
                if (!own.last)
                    turn_give(now, own.before + 1);
            }
            __syncwarp();
            step++;
        } while (advance<STEP<D>, ROWS>(s, w.b, w.j0, (w.g + 1) * per, at));
    }
}

/* ---- dK, dV ---- */

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

/* Scores, transposed, become probabilities. scale: see grads; key: this lane's first,
 * counted from the tile's first query, whose number is t; stay:
 * flash_keep_columns(). slope: ALiBi's, before scores are scaled. */
template <bool DROP>
static __device__ void probabilities_of_keys(float (&p)[N][4], const struct attn_shape &s,
                                             float scale, const struct flash_query *q, int t,
                                             int key, float slope, const uint32_t (&stay)[4])
{
    bool all_seen = key + 8 <= 0 && !attn_hides(s);
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

            p[n][e] = exp2_fast(p[n][e] * scale - lse);
            if (DROP)
                p[n][e] = drop_sign(p[n][e], stay[e] >> 4 * n & 1);
        }
}

/* dS^T of a warp's 16 keys, for both warpgroups. row: this lane's first. */
template <class T>
static __device__ void share_ds(tile<T, ROWS, QUERIES> &to, const uint32_t (&a)[N / 2][4],
                                int row)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            *reinterpret_cast<uint32_t *>(tile_chunk(to, row + e % 2 * 8, 2 * i + e / 2) +
                                          threadIdx.x % 4 * 2) = a[i][e];
}

/* What a thread knows of a step. own: its first of the block's keys; t: the first
 * query; key: the first of its keys among all. */
struct key_step {
    int group, own, t, key;
    float slope;
    uint64_t drop_at; /* the counter of (t, the warp's first key) */
};

/* One tile of queries: begins dV and dK and shares dS. a, b: what they read. */
template <bool DROP, int D, class T>
static __device__ void add_tile(float (&dk)[D / 8][4], float (&dv)[D / 8][4],
                                uint32_t (&a)[N / 2][4], uint32_t (&b)[N / 2][4],
                                memory<D, T> &m, const struct attn_shape &s,
                                const grads<T> &grad, const query_stage<D, T> &stage, int i,
                                tile<T, ROWS, QUERIES> &shared, const struct key_step &at)
{
    float p[N][4], ds[N][4];
    uint32_t stay[4] = {};
    const struct flash_query *of = stage.of + i * QUERIES;
    int t = at.t + i * QUERIES;
    if (DROP) /* before scores take their registers */
        flash_keep_columns<N>(stay, s.drop, at.drop_at + (uint64_t)(i * QUERIES * s.t), s.t);
    /* Scores before dP: wgmma_wait<1> then waits for the first of two groups, and
     * probabilities are computed while dP is under way. What the tile before has
     * begun is over by then, too. */
    hopper_scores(p, m.k, 64 * at.group, stage.q[i]);
    hopper_scores(ds, m.v, 64 * at.group, stage.dout[i]);
    wgmma_wait<1>(p, a, b);
    probabilities_of_keys<DROP>(p, s, grad.scale, of, t, at.key - t, at.slope, stay);
    round_kept<DROP, T>(a, p);
    hopper_add<T>(dv, a, stage.dout[i]);
    wgmma_wait<1>(ds);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float delta = of[n * 8 + threadIdx.x % 4 * 2 + e % 2].delta;

            ds[n][e] = ds_of<DROP>(p[n][e], ds[n][e], delta, s.drop.scale);
        }
    hopper_round<T>(b, ds);
    share_ds(shared, b, at.own);
    fence_async();
    hopper_add<T>(dk, b, stage.q[i]);
}

/* dq = this warpgroup's part of dS K, begun. */
template <int D, class T>
static __device__ void begin_dq(float (&dq)[N][4], memory<D, T> &m,
                                const tile<T, ROWS, QUERIES> (&ds)[TILES<D>], int group)
{
    int i = group % TILES<D>, columns = group / TILES<D>;

    wgmma_fence();
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++)
        wgmma_by_columns<T>(dq, wgmma_columns(ds[i], k), wgmma_columns(m.k, k, columns), k > 0);
    wgmma_commit();
}

/* Adds it to what blocks before have added, or writes the whole sum. */
template <int D, class T>
static __device__ void add_dq(float (&dq)[N][4], const struct attn_shape &s,
                              const grads<T> &grad, const struct turn &turn, int b, int h, int t)
{
    int group = threadIdx.x / WARPGROUP - 1, thread = threadIdx.x % WARPGROUP;
    struct dq_part &sums = grad.dq[(query_row(s, b, h) + t) / STEP<D> * GROUPS + group];

    if (!turn.last) {
#pragma unroll
        for (int n = 0; n < N; n++)
            if (turn.before)
                add_global(&sums.at[n][thread], dq[n]);
            else
                sums.at[n][thread] = make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
        return;
    }
    if (turn.before)
#pragma unroll
        for (int n = 0; n < N; n++) {
            float4 x = __ldcg(&sums.at[n][thread]);

            dq[n][0] += x.x, dq[n][1] += x.y, dq[n][2] += x.z, dq[n][3] += x.w;
        }
    int column = group / TILES<D> * 64;
    t += group % TILES<D> * QUERIES + thread / 32 * 16 + thread % 32 / 4;
    flash_store<64>(grad.dqkv + attn_query_at(s, b, h) + column, dq, {s.scale, s.scale}, t, s.t,
                    s.ld, s.d - column);
}

/* One step of queries. */
template <bool DROP, int D, class T>
static __device__ void add_step(float (&dk)[D / 8][4], float (&dv)[D / 8][4], memory<D, T> &m,
                                const struct attn_shape &s, const grads<T> &grad, unsigned step,
                                const struct key_step &at, const struct turn &turn, int b, int h)
{
    const query_stage<D, T> &stage = ring_get(m.queries, step);
    auto &ds = m.ds[step % 2];
    uint32_t a[N / 2][4] = {}, c[N / 2][4] = {};
    float dq[N][4];
#pragma unroll
    for (int i = 0; i < TILES<D>; i++)
        add_tile<DROP>(dk, dv, a, c, m, s, grad, stage, i, ds[i], at);
    /* dS of the other warpgroup is there, and no warp reads that of the step before. */
    named_sync(1, WARPGROUP * GROUPS);
    begin_dq(dq, m, ds, at.group);
    wgmma_wait<0>(dq, a, c);
    wgmma_wait<0>(dk);
    wgmma_wait<0>(dv);
    ring_free(m.queries, step);
    mbarrier_wait(m.turn, step % 2);
    add_dq<D>(dq, s, grad, turn, b, h, at.t);
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(m.added);
}

template <bool DROP, int D, class T>
static __device__ void consume(memory<D, T> &m, const struct attn_shape &s,
                               const struct hopper_plan &plan, const grads<T> &grad)
{
    int own = threadIdx.x / 32 * 16 - 64; /* the warp's first key */
    int group = hopper_group(), lane = threadIdx.x % 32, per = (int)(s.h / s.g);
    unsigned step = 0, works = 0;
    struct hopper_work piece;

    for (; hopper_next(piece, m.desk, plan, works); works++) {
        struct key_work w = key_work_of(s, plan, piece);
        /* All heads of the group, then all queries of a head, into one sum. */
        float dk[D / 8][4] = {}, dv[D / 8][4] = {};
        struct query_tile at = {w.g * per, w.j0};
        mbarrier_wait(m.full, works % 2);
        do {
            struct key_step now = {group, own + lane / 4, at.t, w.j0 + own + lane / 4,
                                   attn_slope(s, at.h) / s.scale,
                                   attn_drop_at(s, w.b, at.h, at.t) + w.j0 + own};
            add_step<DROP>(dk, dv, m, s, grad, step, now, turn_of<D>(s, w.b, w.j0, at.t), w.b,
                           at.h);
            step++;
        } while (advance<STEP<D>, ROWS>(s, w.b, w.j0, (w.g + 1) * per, at));
        if (lane == 0)
            mbarrier_arrive(m.empty);
        T *to = grad.dqkv + attn_key_at(s, w.b, w.g);
        flash_store<D>(to, dk, {s.scale, s.scale}, w.j0 + own + lane / 4, s.t, s.ld, s.d);
        float scale = DROP ? s.drop.scale : 1;
        flash_store<D>(to + s.d, dv, {scale, scale}, w.j0 + own + lane / 4, s.t, s.ld, s.d);
    }
}

template <bool DROP, int D, class T>
static __global__ void __launch_bounds__(THREADS, 1)
    flash_backward(struct attn_shape s, struct hopper_plan plan,
                   const __grid_constant__ CUtensorMap qkv,
                   const __grid_constant__ CUtensorMap dout, grads<T> p)
{
    auto &m = hopper_shared<memory<D, T>>();
    if (threadIdx.x == 0) {
        mbarrier_init(m.full, 1);
        mbarrier_init(m.empty, 4 * GROUPS);
        mbarrier_init(m.turn, 1);
        mbarrier_init(m.added, 4 * GROUPS);
        hopper_desk_init(m.desk);
        ring_init(m.queries, 4 * GROUPS);
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<COPY_REGISTERS>();
        if (threadIdx.x < 32)
            produce(m, s, plan, qkv, dout, p.queries);
        else if (threadIdx.x < 64)
            keep_turns(m, s, plan, p.queries);
    } else {
        more_registers<REGISTERS>();
        consume<DROP>(m, s, plan, p);
    }
}

/* ---- launches ---- */

template <bool DROP, int D, class T>
static void launch_backward(struct gpt_queue *q, const struct gpt_attn *op,
                            const struct gpt_attn_grad *grad)
{
    struct attn_shape s = flash_grad_shape(op);
    CUtensorMap qkv, dout;
    int64_t per = op->h / op->g, tiles = cuda_blocks(op->t, ROWS);

    if (!hopper_map(q, &qkv, op, op->qkv, op->g * (per + 2)) ||
        !hopper_map(q, &dout, op, grad->dout, op->h))
        return;
    struct flash_query *queries = (struct flash_query *)grad->scratch;
    struct dq_part *dq = (struct dq_part *)(queries + op->b * op->h * padded(op->t));
    /* Heads at a time by what a group's blocks share in the L2 cache: queries, dO, and
     * the sums of dQ. */
    struct hopper_plan plan = hopper_plan_of(q, tiles, op->b * op->g,
                                             op->t * (op->d * 4 + D * 4) * per);
    cuda_flash_prepare(q, op, grad);
    launch(q, flash_backward<DROP, D, T>, hopper_blocks(q, plan), THREADS, sizeof(memory<D, T>),
           s, plan, qkv, dout, grads<T>{(T *)grad->dqkv, queries, dq, op->scale * FLASH_LOG2E});
}

bool cuda_hopper_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                     const struct gpt_attn_grad *grad)
{
    if (!cuda_hopper_backward() || !hopper_size(q, op) ||
        !cuda_wide(op->act, op->d, grad->dout, grad->dqkv, grad->scratch))
        return false;
    hopper_with_size(op, [&](auto type, auto d) {
        if (op->dropout.p != 0)
            launch_backward<true, d.value, decltype(type)>(q, op, grad);
        else
            launch_backward<false, d.value, decltype(type)>(q, op, grad);
    });
    return true;
}

size_t cuda_hopper_scratch(const struct gpt_attn *op, size_t rows)
{
    size_t d = op->d <= 64 ? 64 : 128;
    cudaDeviceProp p;
    int device;

    cuda_use_device();
    return hopper_does(op) && cuda_hopper_backward() && cudaGetDevice(&device) == cudaSuccess &&
                   cudaGetDeviceProperties(&p, device) == cudaSuccess && cuda_runs_hopper(p)
               ? rows * d * sizeof(float)
               : 0;
}
