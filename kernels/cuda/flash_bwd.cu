/* Causal self-attention on tensor cores, backward (Dao 2023). The formulas are
 * at the top of attn_bwd.c of kernels/cpu; the factor `scale` of dS is left to
 * the end. Three kernels, without atomics, so that sums have one order:
 *   prepare     what the others need of each query, in 16 bytes
 *   key_grads   a block per 64 keys of a group goes over the queries that see
 *               them, head by head: S^T = K Q^T, dP^T = V dO^T, then
 *               dV += (P M)^T dO and dK += dS^T Q
 *   query_grads a block per 64 queries goes over the keys that they see:
 *               S = Q K^T, dP = dO V^T, then dQ += dS K
 * Computing S and dP twice costs 2 products of 7; it saves dQ's atomics.
 *
 * Shared memory of both: the block's own two tiles (64 rows), then two stages,
 * one at work, one on its way, each of two tiles of FLASH_STEP rows (and
 * the flash_query of these, for key_grads). A thread's registers at D = 128:
 * key_grads 64 + 64 sums, 16 + 16 scores; query_grads 64 fragments, 64 sums,
 * 16 + 16 scores. Heads of more than 128 elements, of floats of more than 80, for
 * which shared memory is too small: flash_bwd_wide.cu. */
#include "cuda/flash_bwd.cuh"

/* Bytes of shared memory. */
template <int D, class T>
constexpr size_t flash_shared = 2 * (flash_tile<D, T> + flash_stage<D, T>) * sizeof(T);

/* Blocks of query_grads at once: with three, heads of 96 would spill. Fragments of
 * floats are twice as many. */
template <int D, class T> constexpr int flash_blocks = D * sizeof(T) > 160 ? 2 : 3;

/* ---- what both need of a query ---- */

/* Delta is that of dO as products take it, so that dS of a query adds up to nothing.
 * LANES lanes read a row, 16 bytes each, and a thread reads of PASSES rows before it
 * uses any: memory, not latency, is to limit it. */
enum { PASSES = 4 };
template <int LANES, class T>
static __global__ void prepare(struct attn_shape s, const T *out, const T *dout,
                               struct flash_query *queries, bool by_64)
{
    constexpr int AT_ONCE = FLASH_THREADS / LANES;
    int lane = threadIdx.x % LANES;
    int64_t first = (int64_t)blockIdx.x * PASSES * AT_ONCE + threadIdx.x / LANES;
    int64_t h = blockIdx.y, b = blockIdx.z, t = first + lane * AT_ONCE;
    float o[PASSES][8] = {}, d[PASSES][8] = {};
#pragma unroll
    for (int i = 0; i < PASSES; i++)
        if (first + i * AT_ONCE < s.t && 8 * lane < s.d) {
            int64_t at = ((b * s.t + first + i * AT_ONCE) * s.h + h) * s.d + 8 * lane;

            load(o[i], out + at);
            load(d[i], dout + at);
        }
    /* Padding: with lse = inf every probability is exp2(-inf) = 0, and rows past
     * the end need no test in the inner loops. */
    struct flash_query q = {INFINITY, 0, 0, 0};
    bool writes = lane < PASSES, here = writes && t < s.t;
    if (here) {
        /* In units of log2, as exp2 takes it. */
        q.lse = s.lse[(b * s.h + h) * s.t + t] * FLASH_LOG2E;
        q.first = (int)attn_first(s, b, t);
    }
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum += o[i][k] * flash_as_factor<T>(d[i][k]);
#pragma unroll
        for (int lanes = LANES / 2; lanes; lanes /= 2)
            sum += __shfl_xor_sync(ALL_LANES, sum, lanes);
        if (lane == i)
            q.delta = sum;
    }
    int64_t row = (b * s.h + h) * padded(s.t) + t;
    if (writes && !by_64)
        queries[row] = q;
    if (writes && by_64) {
        struct flash_queries &to = reinterpret_cast<struct flash_queries *>(queries)[row / 64];
        int place = flash_place((int)(row % 64));

        to.lse[place] = q.lse;
        to.delta[place] = q.delta;
        to.first[place] = q.first;
        to.turn[place] = 0;
    }
}

template <int LANES>
static void launch_prepare(struct gpt_queue *q, const struct gpt_attn *op,
                           const struct gpt_attn_grad *grad, bool by_64)
{
    dim3 grid((unsigned)(padded(op->t) * LANES / (PASSES * FLASH_THREADS)), op->h, op->b);
    auto put = [&](auto type) {
        using T = decltype(type);
        launch(q, prepare<LANES, T>, grid, FLASH_THREADS, 0, attn_shape_of(op),
               (const T *)op->out, (const T *)grad->dout, (struct flash_query *)grad->scratch,
               by_64);
    };

    with_type(op->act, put);
}

void cuda_flash_prepare(struct gpt_queue *q, const struct gpt_attn *op,
                        const struct gpt_attn_grad *grad, bool by_64)
{
    if (op->d <= 64)
        launch_prepare<8>(q, op, grad, by_64);
    else if (op->d <= 128)
        launch_prepare<16>(q, op, grad, by_64);
    else
        launch_prepare<32>(q, op, grad, by_64);
}

/* ---- dK, dV ---- */

template <int D, class T>
static __global__ void __launch_bounds__(FLASH_THREADS)
    key_grads(struct attn_shape s, flash_grad<T> p)
{
    constexpr int N = FLASH_STEP, tile = flash_tile<D, T, N>;
    T *keys = reinterpret_cast<T *>(dynamic_floats()), *values = keys + flash_tile<D, T>;
    T *stages = values + flash_tile<D, T>;
    int64_t j0 = (int64_t)blockIdx.x * FLASH_ROWS, g = blockIdx.y, b = blockIdx.z;
    int64_t per = s.h / s.g, k_at = attn_key_at(s, b, g);
    int row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;

    flash_fetch<D>(keys, p.qkv + k_at, j0, s.t, s.ld, s.d);
    flash_fetch<D>(values, p.qkv + k_at + s.d, j0, s.t, s.ld, s.d);
    struct query_tile next = {(int)(g * per), (int)j0};
    fetch_queries<D>(stages, s, p, b, next);
    copy_commit();
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    bool more = true;
    for (int now = 0; more; now = 1 - now) {
        struct query_tile at = next;

        more = advance<N, FLASH_ROWS>(s, (int)b, (int)j0, (int)((g + 1) * per), next);
        if (more)
            fetch_queries<D>(stages + (1 - now) * flash_stage<D, T>, s, p, b, next);
        copy_commit();
        copy_wait<1>();
        if (at.h == g * per && at.t == j0) { /* the first step */
            flash_round<D>(keys);
            flash_round<D>(values);
        }
        flash_round_stage<D>(stages + now * flash_stage<D, T>);
        __syncthreads();
        const T *q = stages + now * flash_stage<D, T>, *dout = q + tile;
        /* The mask before the scores, whose registers it can use meanwhile. */
        uint32_t kept[4] = {~0u, ~0u, ~0u, ~0u};
        if (s.drop.below)
            flash_keep_columns<N / 8>(kept, s.drop,
                                      attn_drop_at(s, b, at.h, at.t) + j0 + row, s.t);
        float prob[N / 8][4] = {}, ds[N / 8][4] = {};
        flash_scores_of<D>(prob, keys, row, q);
        flash_scores_of<D>(ds, values, row, dout);
        if (s.softcap > 0)
            flash_cap(prob, flash_cap_by(s));
        if (s.alibi) /* rows are keys here */
            flash_lean(prob, -attn_slope(s, at.h) / s.scale,
                       (int)(j0 - at.t) + row + lane / 4, lane % 4 * 2);
        pairs_of_keys(prob, ds, s, reinterpret_cast<const struct flash_query *>(dout + tile),
                      at.t, (int)(j0 - at.t) + row + lane / 4,
                      at.t >= j0 + FLASH_ROWS && !attn_hides(s), kept);
        flash_add<D>(dv, prob, dout);
        flash_add<D>(dk, ds, q);
        __syncthreads(); /* the stage may be overwritten */
    }
    copy_wait<0>();
    T *to = p.dqkv + k_at;
    /* The scale of dS, left to the end: once an element, in float. */
    flash_store<D>(to, dk, {s.scale, s.scale}, j0 + row + lane / 4, s.t, s.ld, s.d);
    flash_store<D>(to + s.d, dv, {1, 1}, j0 + row + lane / 4, s.t, s.ld, s.d);
}

/* ---- dQ ---- */

template <int D, class T>
static __global__ void __launch_bounds__(FLASH_THREADS, flash_blocks<D, T>)
    query_grads(struct attn_shape s, flash_grad<T> p)
{
    constexpr int N = FLASH_STEP, tile = flash_tile<D, T, N>;
    T *queries = reinterpret_cast<T *>(dynamic_floats()), *douts = queries + flash_tile<D, T>;
    T *stages = douts + flash_tile<D, T>;
    /* long rows of keys first */
    int64_t t0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * FLASH_ROWS, h = blockIdx.y, b = blockIdx.z;
    int64_t end = min(t0 + FLASH_ROWS, s.t), q_at = attn_query_at(s, b, h), ldo = s.h * s.d;
    int64_t k_at = attn_key_at(s, b, h / (s.h / s.g)), begin = flash_first(s, b, t0) / N * N;
    const T *k = p.qkv + k_at, *v = k + s.d;
    int row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
    int64_t t = t0 + row + lane / 4;

    flash_fetch<D>(queries, p.qkv + q_at, t0, s.t, s.ld, s.d);
    flash_fetch<D>(douts, p.dout + b * s.t * ldo + h * s.d, t0, s.t, ldo, s.d);
    flash_fetch<D, N>(stages, k, begin, s.t, s.ld, s.d);
    flash_fetch<D, N>(stages + tile, v, begin, s.t, s.ld, s.d);
    copy_commit();
    const struct flash_query *of = p.queries + (b * s.h + h) * padded(s.t) + t;
    const struct flash_query mine[2] = {of[0], of[8]};
    float slope = attn_slope(s, h) / s.scale;
    uint32_t q[D / mma_k<T>][4], dout[D / mma_k<T>][4];
    float dq[D / 8][4] = {};
    for (int64_t j = begin, now = 0; j < end; j += N, now = 1 - now) {
        T *stage = stages + now * flash_stage<D, T>;
        T *next = stages + (1 - now) * flash_stage<D, T>;

        if (j + N < end) {
            flash_fetch<D, N>(next, k, j + N, s.t, s.ld, s.d);
            flash_fetch<D, N>(next + tile, v, j + N, s.t, s.ld, s.d);
        }
        copy_commit();
        copy_wait<1>();
        if (j == begin) {
            flash_round<D>(queries);
            flash_round<D>(douts);
        }
        flash_round_stage<D>(stage);
        __syncthreads();
        if (j == begin) {
            flash_rows<D>(q, queries);
            flash_rows<D>(dout, douts);
        }
        uint32_t kept = ~0u;
        if (s.drop.below)
            kept = flash_keep_rows<N / 8>(s.drop, attn_drop_at(s, b, h, t0 + row) + j, s.t);
        float prob[N / 8][4] = {}, ds[N / 8][4] = {};
        flash_scores<D>(prob, q, stage);
        flash_scores<D>(ds, dout, stage + tile);
        if (s.softcap > 0)
            flash_cap(prob, flash_cap_by(s));
        if (s.alibi)
            flash_lean(prob, slope, (int)t, (int)j + lane % 4 * 2);
        pairs_of_queries(prob, ds, s, mine, (int)t, (int)j + lane % 4 * 2,
                         j + N <= t0 && !attn_hides(s), kept);
        flash_add<D>(dq, ds, stage);
        __syncthreads(); /* the stage may be overwritten */
    }
    copy_wait<0>();
    flash_store<D>(p.dqkv + q_at, dq, {s.scale, s.scale}, t, s.t, s.ld, s.d);
}

/* ---- launches ---- */

bool cuda_flash_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                    const struct gpt_attn_grad *grad)
{
    if (!cuda_wide(op->act, op->d, grad->dout, grad->dqkv, grad->scratch))
        return false;
    auto begin = [&](auto type, auto d) {
        using T = decltype(type);
        const int D = decltype(d)::value;
        const size_t shared = flash_shared<D, T>;

        static_assert(shared <= FLASH_MEMORY, "a block's shared memory");
        flash_launch_bwd<T>(q, op, grad, FLASH_ROWS, shared, key_grads<D, T>, query_grads<D, T>);
    };
    return flash_size(op, flash_sizes<64, 80, 96, 128>(), flash_sizes<64, 80>(), begin) ||
           cuda_flash_bwd_wide(q, op, grad);
}
