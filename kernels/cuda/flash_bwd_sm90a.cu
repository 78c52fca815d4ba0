/* Causal self-attention on Hopper, backward, in one pass: a block owns 128 keys of
 * a group and goes over the queries that see them, head by head. Of its warps
 *   produce()  copies tiles into a ring, as in flash_fwd_sm90a.cu
 *   consume()  two warpgroups have 64 of the keys each: S^T = K Q^T and
 *              dP^T = V dO^T, dV += (P M)^T dO and dK += dS^T Q; each then has half
 *              of dQ = dS K over all keys, for which they exchange dS, and leaves
 *              it in shared memory
 *   keep_turns() a warp for each warpgroup lets the copy engine add that to the
 *              sums of dQ when the block's turn has come
 * While a warpgroup computes probabilities its dP is under way, while it computes
 * dS the product for dV, and while it leaves dQ that for dK; all the while the
 * other has products under way.
 *
 * The order of sums is fixed, dQ's, too, which many blocks add to: those with the
 * first keys first, each when the one before has. Most queries see the first keys:
 * pieces of work become smaller and smaller, and multiprocessors end together.
 * All blocks of a head go from its last queries to earlier ones; a block that
 * begins later than the one before follows it without waiting. No block waits for
 * one that has not begun, as a piece of work waits for earlier pieces alone.
 *
 * Registers of a thread at D = 128: 64 + 64 sums, 32 + 32 scores and dP, of which
 * 32 are later dQ, 16 probabilities rounded. dS is not kept: the last dK of a
 * step reads it from shared memory, since the next scores begin before dK is over. */
#include "cuda/flash_bwd_hopper.cuh"

/* Registers of a thread that copies, that computes: together what a launch gives
 * three threads, 3 * 168. */
enum { COPY_REGISTERS = 40, REGISTERS = 232 };

/* How many of the four pieces of lse are read while the scores are under way. Heads of
 * 128 have no registers for all. */
template <int D> constexpr int EARLY = D == 64 ? N / 2 : 1;

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

/* Makes of the probabilities that dropout leaves the operand `a` of a product. */
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

/* Returns element i of a vector. */
static __device__ float at4(const float4 &x, int i)
{
    return i < 2 ? i ? x.y : x.x : i > 2 ? x.w : x.z;
}
static __device__ int at4(const int4 &x, int i)
{
    return i < 2 ? i ? x.y : x.x : i > 2 ? x.w : x.z;
}

/* Returns what is known of this lane's queries 16 i .. of a tile: [0], [1] of the first of two
 * fragments, [2], [3] of the second. */
template <class V, class X> static __device__ V of_queries(const X (&x)[QUERIES], int i)
{
    return reinterpret_cast<const V *>(x)[flash_piece(threadIdx.x % 4, i)];
}

/* Scores, transposed, become probabilities. scale: see grads; key: this lane's first,
 * counted from the tile's first query, whose number is t; stay:
 * flash_keep_columns(). slope: ALiBi's, before scores are scaled. */
template <bool DROP>
static __device__ void probabilities_of_keys(float (&p)[N][4], const struct attn_shape &s,
                                             float scale, const struct flash_queries &q,
                                             const float4 (&lse)[N / 2], int t, int key,
                                             float slope, const uint32_t (&stay)[4])
{
    bool all_seen = key + 8 <= 0 && !attn_hides(s);
    int query = threadIdx.x % 4 * 2;

    if (s.alibi) /* rows are keys here */
        flash_lean(p, -slope, key, query);
    /* The warp decides together, and what is not seen becomes -inf: neither leads
     * to branches among the probabilities. */
    if (!__all_sync(ALL_LANES, all_seen)) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            int4 first = of_queries<int4>(q.first, n / 2);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int i = n * 8 + query + e % 2, j = key + e / 2 * 8;
                bool seen = (j <= i) & (t + j >= at4(first, n % 2 * 2 + e % 2));

                p[n][e] = seen ? p[n][e] : -INFINITY;
            }
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            p[n][e] = exp2_fast(p[n][e] * scale - at4(lse[n / 2], n % 2 * 2 + e % 2));
            if (DROP)
                p[n][e] = drop_sign(p[n][e], stay[e] >> 4 * n & 1);
        }
}

/* Computes dS^T of a warp's 16 keys, for both warpgroups. row is this lane's first. */
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

/* Returns x, of which the compiler knows nothing from here on: what is computed from it is not kept
 * over the loop, in registers that there are not. */
static __device__ int opaque(int x)
{
#ifndef GPT_CUDA_EMU
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/* The warpgroup's number, from which descriptors follow that are the same in all steps.
 * Heads of 64 have more of these than a warp has registers for: they are computed again,
 * where the compiler would move them there from the threads' registers. */
template <int D> static __device__ int group_of_step(int group)
{
    return TILES<D> > 1 ? opaque(group) : group;
}

/* The first of the block's keys that this lane has. */
static __device__ int own_key()
{
    int thread = opaque((int)threadIdx.x) - WARPGROUP;

    return thread / 32 * 16 + thread % 32 / 4;
}

/* What a thread knows of a step. j0: the block's first key; h, t: the head, the first
 * query. */
struct key_step {
    int group, j0, h, t;
    float slope;
    uint64_t drop_at; /* the counter of (t, the warp's first key) */
    bool follows;     /* another of the same piece of work */
};

/* Arrives when all that the warp did before is over. */
static __device__ void warp_arrive(struct mbarrier &b)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(b);
}

/* Gives the place of dQ back once the warp has left its part there. */
static __device__ void give_back(struct mbarrier &back)
{
    fence_async();
    warp_arrive(back);
}

/* One tile of queries: begins dV, shares dS, and begins dK but for the step's last
 * tile, whose dK add_step() begins. a, b: what they read. */
template <bool DROP, int D, class T>
static __device__ void add_tile(float (&dk)[D / 8][4], float (&dv)[D / 8][4],
                                uint32_t (&a)[N / 2][4], uint32_t (&b)[N / 2][4],
                                memory<D, T> &m, const struct attn_shape &s,
                                const grads<T> &grad, const query_stage<D, T> &stage, int i,
                                unsigned step, const struct key_step &at)
{
    float p[N][4], ds[N][4];
    uint32_t stay[4] = {};
    const struct flash_queries &of = stage.of[i];
    float4 lse[N / 2];
    int t = at.t + i * QUERIES;
    if (DROP) /* before scores take their registers */
        flash_keep_columns<N>(stay, s.drop, at.drop_at + (uint64_t)(i * QUERIES * s.t), s.t);
    /* Scores before dP: wgmma_wait<1> then waits for the first of two groups, and
     * probabilities are computed while dP is under way. What the tile before has
     * begun is over by then, too. */
    hopper_scores(p, m.k, 64 * at.group, stage.q[i]);
    if (i == 0 && at.follows)
        give_back(m.back[at.group]);
    hopper_scores(ds, m.v, 64 * at.group, stage.dout[i]);
#pragma unroll
    for (int k = 0; k < EARLY<D>; k++)
        lse[k] = of_queries<float4>(of.lse, k);
    if (i > 0)
        wgmma_wait<1>(p, a, b);
    else {
        wgmma_wait<1>(p);
        if (step > 0) {
            ring_free(m.queries, step - 1);
            warp_arrive(m.ds_read);
        }
    }
#pragma unroll
    for (int k = EARLY<D>; k < N / 2; k++)
        lse[k] = of_queries<float4>(of.lse, k);
    probabilities_of_keys<DROP>(p, s, grad.scale, of, lse, t, at.j0 + own_key() - t, at.slope,
                                stay);
    round_kept<DROP, T>(a, p);
    hopper_add<T>(dv, a, stage.dout[i]);
    wgmma_wait<1>(ds);
#pragma unroll
    for (int n = 0; n < N; n++) {
        float4 delta = of_queries<float4>(of.delta, n / 2);
#pragma unroll
        for (int e = 0; e < 4; e++)
            ds[n][e] = ds_of<DROP>(p[n][e], ds[n][e], at4(delta, n % 2 * 2 + e % 2),
                                   s.drop.scale);
    }
    hopper_round<T>(b, ds);
    /* The step before has read dS when all warps have waited for its products: PTX does
     * not say that a warp reads the rows of its own results alone. */
    if (i == 0)
        mbarrier_wait(m.ds_read, step % 2 ^ 1);
    share_ds(m.ds[i], b, own_key());
    fence_async();
    if (i < TILES<D> - 1)
        hopper_add<T>(dk, b, stage.q[i]);
}

/* Begins dq = this warpgroup's part of dS K. */
template <int D, class T>
static __device__ void begin_dq(float (&dq)[N][4], const memory<D, T> &m, int group)
{
    int i = group_of_step<D>(group) % TILES<D>, columns = group / TILES<D>;

    wgmma_fence();
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++)
        wgmma_by_columns<T>(dq, wgmma_columns(m.ds[i], k), wgmma_columns(m.k, k, columns), k > 0);
    wgmma_commit();
}

/* Leaves dq to be added to the sums, or writes the whole sum. */
template <int D, class T>
static __device__ void leave_dq(float (&dq)[N][4], memory<D, T> &m, const struct attn_shape &s,
                                const grads<T> &grad, int first,
                                unsigned step, int group, int j0, int b, int h, int t)
{
    int thread = threadIdx.x % WARPGROUP;
    struct dq_part &place = m.dq[group];

    mbarrier_wait(m.lent[group], step % 2);
    if (!adds_last(j0, t)) {
#pragma unroll
        for (int n = 0; n < N; n++)
            place.at[n][thread] = make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
    } else {
        if (blocks_before(j0, first))
#pragma unroll
            for (int n = 0; n < N; n++) {
                float4 x = place.at[n][thread];

                dq[n][0] += x.x, dq[n][1] += x.y, dq[n][2] += x.z, dq[n][3] += x.w;
            }
        int column = group / TILES<D> * 64;
        t += group % TILES<D> * QUERIES + thread / 32 * 16 + thread % 32 / 4;
        flash_store<64>(grad.dqkv + attn_query_at(s, b, h) + column, dq, {s.scale, s.scale}, t,
                        s.t, s.ld, s.d - column);
    }
}

/* Begins dk += this warpgroup's rows of dS^T Q. */
template <int D, class T>
static __device__ void begin_dk(float (&dk)[D / 8][4], const tile<T, ROWS, QUERIES> &ds,
                                const tile<T, QUERIES, D> &q, int group)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < QUERIES / 16; i++)
        wgmma_rows_by_columns<T>(dk, wgmma_rows(ds, 64 * group_of_step<D>(group), i),
                                 wgmma_columns(q, i), true);
    wgmma_commit();
}

/* Makes one step of queries. Its last dK is still under way at the end, when the scores of the next
 * step begin. */
template <bool DROP, int D, class T>
static __device__ void add_step(float (&dk)[D / 8][4], float (&dv)[D / 8][4], memory<D, T> &m,
                                const struct attn_shape &s, const grads<T> &grad, unsigned step,
                                const struct key_step &at, int b)
{
    const query_stage<D, T> &stage = ring_get(m.queries, step);
    uint32_t a[N / 2][4] = {}, c[N / 2][4] = {};
    float dq[N][4];
#pragma unroll
    for (int i = 0; i < TILES<D>; i++)
        add_tile<DROP>(dk, dv, a, c, m, s, grad, stage, i, step, at);
    named_sync(1, WARPGROUP * GROUPS); /* dS of the other warpgroup is there */
    begin_dq(dq, m, at.group);
    begin_dk(dk, m.ds[TILES<D> - 1], stage.q[TILES<D> - 1], at.group);
    wgmma_wait<1>(dq, a);
    leave_dq<D>(dq, m, s, grad, stage.of[0].first[0], step, at.group, at.j0, b, at.h, at.t);
}

template <bool DROP, int D, class T>
static __device__ void consume(memory<D, T> &m, const struct attn_shape &s,
                               const struct hopper_plan &plan, const grads<T> &grad)
{
    int own = threadIdx.x / 32 * 16 - 64; /* the warp's first key */
    int group = hopper_group();
    unsigned step = 0, works = 0;
    struct hopper_work piece;

    for (; hopper_next(piece, m.desk, plan, works); works++) {
        struct key_work w = key_work_of<D>(s, piece);
        /* All heads of the group, then all queries of a head, into one sum. */
        float dk[D / 8][4] = {}, dv[D / 8][4] = {};
        mbarrier_wait(m.full, works % 2);
        for (int h = w.h; h < w.h_end; h++) {
            float slope = attn_slope(s, h) / s.scale;
            for (int t = w.t_last; t >= w.j0; t -= STEP<D>, step++) {
                struct key_step now = {group, w.j0, h, t, slope,
                                       attn_drop_at(s, w.b, h, t) + w.j0 + own,
                                       t < w.t_last || h > w.h};
                add_step<DROP>(dk, dv, m, s, grad, step, now, w.b);
            }
        }
        give_back(m.back[group]);
        wgmma_wait<0>(dk);
        wgmma_wait<0>(dv);
        warp_arrive(m.empty);
        T *to = grad.dqkv + attn_key_at(s, w.b, w.g);
        flash_store<D>(to, dk, {s.scale, s.scale}, w.j0 + own_key(), s.t, s.ld, s.d);
        float scale = DROP ? s.drop.scale : 1;
        flash_store<D>(to + s.d, dv, {scale, scale}, w.j0 + own_key(), s.t, s.ld, s.d);
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
        mbarrier_init(m.ds_read, 4 * GROUPS);
        for (int i = 0; i < GROUPS; i++) {
            mbarrier_init(m.lent[i], 1);
            mbarrier_init(m.back[i], 4);
        }
        hopper_desk_init(m.desk);
        ring_init(m.queries, 4 * GROUPS);
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<COPY_REGISTERS>();
        if (threadIdx.x < 32)
            produce(m, s, plan, qkv, dout, p.queries);
        else if (threadIdx.x < 32 * (1 + GROUPS))
            keep_turns(m, s, plan, p, (int)warp_uniform(threadIdx.x / 32) - 1);
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
    static_assert(sizeof(flash_queries) == QUERIES * sizeof(flash_query) &&
                      sizeof(dq_part) * GROUPS == STEP<D> * D * sizeof(float),
                  "scratch is counted by rows: gpu_attn_scratch()");
    struct flash_queries *queries = (struct flash_queries *)grad->scratch;
    struct dq_part *dq = (struct dq_part *)(queries + op->b * op->h * padded(op->t) / QUERIES);
    /* Heads at a time by what a group's blocks share in the L2 cache: queries, dO, and
     * the sums of dQ. */
    struct hopper_plan plan = hopper_plan_of(q, tiles, op->b * op->g,
                                             op->t * (op->d * 4 + D * 4) * per);
    cuda_flash_prepare(q, op, grad, true);
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

bool cuda_hopper_here()
{
    cudaDeviceProp p;
    int device;

    cuda_use_device();
    return cuda_hopper_backward() && cudaGetDevice(&device) == cudaSuccess &&
           cudaGetDeviceProperties(&p, device) == cudaSuccess && cuda_runs_hopper(p);
}
