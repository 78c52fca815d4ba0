/* Backward of attention on tensor cores for heads of 129 to 256 elements, and of 81
 * to 128 floats: the two passes of flash_bwd.cu. The sums of 16 rows of heads that
 * long are too many for the registers of a warp, and tiles of 64 rows of floats for
 * shared memory. Two warps therefore share 16 rows of the block's 32: each
 * computes the scores of one half of the tile that the block goes over, both
 * exchange what follows from them in shared memory, and each adds to one half of
 * the columns.
 *
 * Shared memory: the block's own two tiles, what is exchanged, and one or two
 * stages of two tiles; at most FLASH_MEMORY. */
#include "cuda/flash_bwd.cuh"

enum { ROWS = 32, STEP = FLASH_STEP, HALF = STEP / 2, N = HALF / 8 };

/* P M and dS of the block, rounded: (ROWS, STEP). */
template <class T> struct exchange {
    T p[flash_tile<STEP, T, ROWS>], ds[flash_tile<STEP, T, ROWS>];
};

template <int D, class T> struct memory {
    enum { STAGES = D * sizeof(T) <= 384 ? 2 : 1 }; /* what fits */
    T own[2][flash_tile<D, T, ROWS>];
    exchange<T> shared;
    T stage[STAGES][flash_stage<D, T>];
};

template <int D, class T> static __device__ memory<D, T> &block_memory()
{
    return *reinterpret_cast<memory<D, T> *>(dynamic_floats());
}

/* The warp's place in the block: its first row, and which half of the tile and of
 * the columns it does. */
struct place {
    int row, half, lane;
};
static __device__ struct place place_of_warp()
{
    int warp = threadIdx.x / 32;

    /* the two of a pair are in different quarters of the multiprocessor */
    return {warp % 2 * 16, warp / 2, (int)threadIdx.x % 32};
}

/* Writes the warp's `d` fragments, rounded, to its half of an exchanged tile: as
 * flash_factor() has them, the registers of `a` for one product after another. */
template <class T>
static __device__ void give(T *to, const struct place &w, const float (&x)[N][4])
{
    constexpr int LD = flash_ld<STEP, T> * sizeof(T) / 4; /* words of 4 bytes */
    uint32_t *word = reinterpret_cast<uint32_t *>(to) + (w.row + w.lane / 4) * LD +
                     w.half * (HALF * sizeof(T) / 4) + w.lane % 4;
#pragma unroll
    for (int k = 0; k < HALF / mma_k<T>; k++) {
        uint32_t a[4];

        flash_factor<T>(a, x, k);
#pragma unroll
        for (int i = 0; i < 4; i++)
            word[i % 2 * 8 * LD + i / 2 * 4 + 8 * k] = a[i];
    }
}

/* Adds the warp's rows of an exchanged tile times its half of the columns of a tile (STEP, D) to
 * sum (16, D / 2). */
template <int D, class T>
static __device__ void add_half(float (&sum)[D / 16][4], const struct place &w, const T *given,
                                const T *tile)
{
#pragma unroll
    for (int k = 0; k < STEP / mma_k<T>; k++) {
        uint32_t a[4];

        flash_a<STEP>(a, given, w.row, k * mma_k<T>);
#pragma unroll
        for (int n = 0; n < D / 16; n += 2) {
            uint32_t b[2][2];

            flash_b_rows<D>(b, tile, k * mma_k<T>, w.half * (D / 2) + n * 8);
            mma<T>(sum[n], a, b[0]);
            mma<T>(sum[n + 1], a, b[1]);
        }
    }
}

/* Writes the warp's half of the columns times `by`. */
template <int D, class T>
static __device__ void store_half(T *x, const struct place &w, const float (&sum)[D / 16][4],
                                  float by, int64_t t, const struct attn_shape &s)
{
    int64_t columns = s.d - w.half * (D / 2);

    flash_store<D / 2>(x + w.half * (D / 2), sum, {by, by}, t, s.t, s.ld, columns);
}

/* Where the copies of the step after this one go: into another stage while this
 * one is at work, or into the only one when it is free. What has come for this one
 * is rounded, the block's own tiles, too, if it is the first. */
template <int D, class T, class F>
static __device__ void copy_next(memory<D, T> &m, int now, bool first, bool free, bool more,
                                 F fetch)
{
    const int stages = memory<D, T>::STAGES;

    if (more && free == (stages == 1))
        fetch(m.stage[(now + 1) % stages]);
    if (free)
        return;
    copy_commit();
    copy_wait<memory<D, T>::STAGES - 1>();
    if (first) {
        flash_round<D, ROWS>(m.own[0]);
        flash_round<D, ROWS>(m.own[1]);
    }
    flash_round_stage<D>(m.stage[now]);
    __syncthreads();
}

template <int D, class T>
static __global__ void __launch_bounds__(FLASH_THREADS, 2)
    key_grads(struct attn_shape s, flash_grad<T> p)
{
    auto &m = block_memory<D, T>();
    const struct place w = place_of_warp();
    int64_t j0 = (int64_t)blockIdx.x * ROWS, g = blockIdx.y, b = blockIdx.z;
    int64_t per = s.h / s.g, k_at = attn_key_at(s, b, g);

    flash_fetch<D, ROWS>(m.own[0], p.qkv + k_at, j0, s.t, s.ld, s.d);
    flash_fetch<D, ROWS>(m.own[1], p.qkv + k_at + s.d, j0, s.t, s.ld, s.d);
    struct query_tile next = {(int)(g * per), (int)j0};
    fetch_queries<D>(m.stage[0], s, p, b, next);
    copy_commit();
    float dk[D / 16][4] = {}, dv[D / 16][4] = {};
    auto fetch = [&](T *stage) { fetch_queries<D>(stage, s, p, b, next); };
    bool more = true;
    for (int now = 0; more; now = (now + 1) % memory<D, T>::STAGES) {
        struct query_tile at = next;

        more = advance<STEP, ROWS>(s, (int)b, (int)j0, (int)((g + 1) * per), next);
        copy_next(m, now, at.h == g * per && at.t == j0, false, more, fetch);
        const T *q = m.stage[now], *dout = q + flash_tile<D, T, STEP>;
        int t = at.t + w.half * HALF, key = (int)j0 - t + w.row + w.lane / 4;
        uint32_t kept[4] = {~0u, ~0u, ~0u, ~0u};
        if (s.drop.below)
            flash_keep_columns<N>(kept, s.drop, attn_drop_at(s, b, at.h, t) + j0 + w.row, s.t);
        float prob[N][4] = {}, ds[N][4] = {};
        flash_scores_of<D>(prob, m.own[0], w.row, q + w.half * HALF * flash_ld<D, T>);
        flash_scores_of<D>(ds, m.own[1], w.row, dout + w.half * HALF * flash_ld<D, T>);
        if (s.softcap > 0)
            flash_cap(prob, flash_cap_by(s));
        if (s.alibi) /* rows are keys here */
            flash_lean(prob, -attn_slope(s, at.h) / s.scale, key, w.lane % 4 * 2);
        const T *of = dout + flash_tile<D, T, STEP>;
        pairs_of_keys(prob, ds, s, reinterpret_cast<const struct flash_query *>(of) + w.half * HALF,
                      t, key, at.t >= j0 + ROWS && !attn_hides(s), kept);
        give(m.shared.p, w, prob);
        give(m.shared.ds, w, ds);
        __syncthreads(); /* the other half has come */
        add_half<D>(dv, w, m.shared.p, dout);
        add_half<D>(dk, w, m.shared.ds, q);
        __syncthreads(); /* the stage and what is exchanged may be overwritten */
        copy_next(m, now, false, true, more, fetch);
    }
    copy_wait<0>();
    T *to = p.dqkv + k_at;
    /* The scale of dS, left to the end: once an element, in float. */
    store_half<D>(to, w, dk, s.scale, j0 + w.row + w.lane / 4, s);
    store_half<D>(to + s.d, w, dv, 1, j0 + w.row + w.lane / 4, s);
}

template <int D, class T>
static __global__ void __launch_bounds__(FLASH_THREADS, 2)
    query_grads(struct attn_shape s, flash_grad<T> p)
{
    auto &m = block_memory<D, T>();
    const struct place w = place_of_warp();
    /* long rows of keys first */
    int64_t t0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * ROWS, h = blockIdx.y, b = blockIdx.z;
    int64_t end = min(t0 + ROWS, s.t), q_at = attn_query_at(s, b, h), ldo = s.h * s.d;
    int64_t k_at = attn_key_at(s, b, h / (s.h / s.g)), t = t0 + w.row + w.lane / 4;
    int64_t begin = flash_first<ROWS>(s, b, t0) / STEP * STEP, j = begin;
    auto fetch_keys = [&](T *stage, int64_t first) {
        const T *k = p.qkv + k_at;

        flash_fetch<D, STEP>(stage, k, first, s.t, s.ld, s.d);
        flash_fetch<D, STEP>(stage + flash_tile<D, T, STEP>, k + s.d, first, s.t, s.ld, s.d);
    };

    flash_fetch<D, ROWS>(m.own[0], p.qkv + q_at, t0, s.t, s.ld, s.d);
    flash_fetch<D, ROWS>(m.own[1], p.dout + b * s.t * ldo + h * s.d, t0, s.t, ldo, s.d);
    fetch_keys(m.stage[0], begin);
    copy_commit();
    const struct flash_query *of = p.queries + (b * s.h + h) * padded(s.t) + t;
    const struct flash_query mine[2] = {of[0], of[8]};
    float slope = attn_slope(s, h) / s.scale, dq[D / 16][4] = {};
    auto fetch = [&](T *stage) { fetch_keys(stage, j + STEP); };
    for (int now = 0; j < end; j += STEP, now = (now + 1) % memory<D, T>::STAGES) {
        copy_next(m, now, j == begin, false, j + STEP < end, fetch);
        const T *k = m.stage[now], *v = k + flash_tile<D, T, STEP>;
        int first = (int)j + w.half * HALF, key = first + w.lane % 4 * 2;
        uint32_t kept = ~0u;
        if (s.drop.below)
            kept = flash_keep_rows<N>(s.drop, attn_drop_at(s, b, h, t0 + w.row) + first, s.t);
        float prob[N][4] = {}, ds[N][4] = {};
        flash_scores_of<D>(prob, m.own[0], w.row, k + w.half * HALF * flash_ld<D, T>);
        flash_scores_of<D>(ds, m.own[1], w.row, v + w.half * HALF * flash_ld<D, T>);
        if (s.softcap > 0)
            flash_cap(prob, flash_cap_by(s));
        if (s.alibi)
            flash_lean(prob, slope, (int)t, key);
        pairs_of_queries(prob, ds, s, mine, (int)t, key, j + STEP <= t0 && !attn_hides(s), kept);
        give(m.shared.ds, w, ds);
        __syncthreads(); /* the other half has come */
        add_half<D>(dq, w, m.shared.ds, k);
        __syncthreads(); /* the stage and what is exchanged may be overwritten */
        copy_next(m, now, false, true, j + STEP < end, fetch);
    }
    copy_wait<0>();
    store_half<D>(p.dqkv + q_at, w, dq, s.scale, t, s);
}

bool cuda_flash_bwd_wide(struct gpt_queue *q, const struct gpt_attn *op,
                         const struct gpt_attn_grad *grad)
{
    auto begin = [&](auto type, auto d) {
        using T = decltype(type);
        const int D = decltype(d)::value;
        const size_t shared = sizeof(memory<D, T>);

        static_assert(shared <= FLASH_MEMORY, "a block's shared memory");
        flash_launch_bwd<T>(q, op, grad, ROWS, shared, key_grads<D, T>, query_grads<D, T>);
    };
    return flash_size(op, flash_sizes<192, 256>(), flash_sizes<96, 128>(), begin);
}
