/* Causal self-attention on tensor cores, backward (Dao 2023; the formulas are
 * in attn_bwd.cu). Two kernels, so that no sum is shared between blocks and
 * each has a fixed order: dQ, a block for 64 queries, going over keys; dK and
 * dV, a block for 64 keys, going over the queries of all heads of its group.
 * Both compute scores again. */
#include "cuda/flash.cuh"

#include <limits.h>

template <class T> struct flash_grads {
    const T *qkv, *dout;
    T *dqkv;
    const float *delta; /* (B, H, T), row_deltas() of attn_bwd.cu */
};

/* What queries t0.. know of themselves; outside the sequence: they see nothing. */
struct flash_rows {
    float lse[FLASH_ROWS], delta[FLASH_ROWS];
    int first[FLASH_ROWS];
};
static __device__ void fetch_rows(struct flash_rows *r, const struct attn_shape &s,
                                  const float *delta, int64_t b, int64_t h, int64_t t0)
{
    int i = threadIdx.x;
    int64_t at = (b * s.h + h) * s.t + t0 + i;
    if (i >= FLASH_ROWS)
        return;
    bool here = t0 + i < s.t;
    r->lse[i] = here ? s.lse[at] : 0;
    r->delta[i] = here ? delta[at] : 0;
    r->first[i] = here ? (int)attn_first(s, b, t0 + i) : INT_MAX;
}

/* s, dp: q . k and dout . v of key j and query t0 + i become P M and dS.
 * drop_at: the counter of (query t0, key 0). */
static __device__ void pair_grad(const struct attn_shape &shape, const struct flash_rows &r,
                                 int64_t t0, int i, int64_t j, uint64_t drop_at, float *s,
                                 float *dp)
{
    bool seen = j <= t0 + i && j >= r.first[i];
    float p = seen ? exp2f((*s * shape.scale - r.lse[i]) * 1.44269504f) : 0;
    float keep = shape.drop.below ? attn_keep(shape, drop_at + (uint64_t)(i * shape.t + j)) : 1;
    *s = p * keep;
    *dp = shape.scale * p * (keep * *dp - r.delta[i]);
}

/* c (16, 8 N) += x y': 16 rows of x from `row` on, the first 8 N rows of y. */
template <int D, int N, class T>
static __device__ void scores(float (&c)[N][4], const T *x, int row, const T *y)
{
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
        uint32_t a[4];
        flash_a<D>(a, x, row, d * 16);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[2][2];
            flash_b<D>(b, y, n * 8, d * 16);
            mma16816<T>(c[n], a, b[0]);
            mma16816<T>(c[n + 1], a, b[1]);
        }
    }
}

/* c (16, D) += p y: p (16, 8 N) in registers, the first 8 N rows of y. */
template <int D, int N, class T>
static __device__ void combine(float (&c)[D / 8][4], const float (&p)[N][4], const T *y)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[4];
        flash_d_to_a<T>(a, p[2 * k], p[2 * k + 1]);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[2][2];
            flash_b_rows<D>(b, y, k * 16, n * 8);
            mma16816<T>(c[n], a, b[0]);
            mma16816<T>(c[n + 1], a, b[1]);
        }
    }
}

/* This warp's 16 rows of D, those inside the sequence; rows ld apart. */
template <int D, class T>
static __device__ void write(T *to, const float (&c)[D / 8][4], int64_t row, int64_t n_rows,
                             int64_t ld)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (row + 8 * h < n_rows) {
                uint32_t pair = pack2<T>(c[n][2 * h], c[n][2 * h + 1]);
                memcpy(to + (row + 8 * h) * ld + n * 8 + lane % 4 * 2, &pair, sizeof pair);
            }
}

template <int D, class T>
static __global__ void __launch_bounds__(FLASH_THREADS)
    flash_query_grads(struct attn_shape s, flash_grads<T> p)
{
    const int N = FLASH_ROWS / 8;
    __shared__ struct flash_rows rows;
    T *queries = reinterpret_cast<T *>(dynamic_floats()), *douts = queries + flash_tile<D>;
    T *keys = douts + flash_tile<D>, *values = keys + flash_tile<D>;
    int64_t t0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * FLASH_ROWS, h = blockIdx.y, b = blockIdx.z;
    int64_t q_at = attn_query_at(s, b, h);
    const T *k = p.qkv + attn_key_at(s, b, h / (s.h / s.g));
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    float dq[D / 8][4] = {};
    uint64_t drop_at = attn_drop_at(s, b, h, t0);
    fetch_rows(&rows, s, p.delta, b, h, t0);
    flash_fetch<D>(queries, p.qkv + q_at, t0, s.t, s.ld);
    flash_fetch<D>(douts, p.dout + (b * s.t * s.h + h) * s.d, t0, s.t, s.h * s.d);
    for (int64_t j0 = flash_first(s, b, t0); j0 <= t0; j0 += FLASH_ROWS) {
        flash_fetch<D>(keys, k, j0, s.t, s.ld);
        flash_fetch<D>(values, k + s.d, j0, s.t, s.ld);
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        float c[N][4] = {}, dp[N][4] = {};
        scores<D, N>(c, queries, row, keys);
        scores<D, N>(dp, douts, row, values);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                pair_grad(s, rows, t0, row + lane / 4 + e / 2 * 8,
                          j0 + n * 8 + lane % 4 * 2 + e % 2, drop_at, &c[n][e], &dp[n][e]);
        combine<D, N>(dq, dp, keys);
        __syncthreads(); /* the tiles may be overwritten */
    }
    write<D>(p.dqkv + q_at, dq, t0 + row + lane / 4, s.t, s.ld);
}

/* What 8 N queries, from i0 of their tile on, add to this warp's keys. */
template <int D, int N, class T>
static __device__ void key_block(const struct attn_shape &s, const struct flash_rows &rows,
                                 const T *keys, const T *values, const T *queries, const T *douts,
                                 int64_t t0, int i0, int64_t j0, uint64_t drop_at,
                                 float (&dk)[D / 8][4], float (&dv)[D / 8][4])
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    float c[N][4] = {}, dp[N][4] = {}; /* rows are keys, columns queries */
    scores<D, N>(c, keys, row, queries);
    scores<D, N>(dp, values, row, douts);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            pair_grad(s, rows, t0, i0 + n * 8 + lane % 4 * 2 + e % 2,
                      j0 + row + lane / 4 + e / 2 * 8, drop_at, &c[n][e], &dp[n][e]);
    combine<D, N>(dv, c, douts);
    combine<D, N>(dk, dp, queries);
}

template <int D, class T>
static __global__ void __launch_bounds__(FLASH_THREADS)
    flash_key_grads(struct attn_shape s, flash_grads<T> p)
{
    const int N = D > 96 ? 4 : 8; /* queries at once, by 8: what registers hold */
    __shared__ struct flash_rows rows;
    T *keys = reinterpret_cast<T *>(dynamic_floats()), *values = keys + flash_tile<D>;
    T *queries = values + flash_tile<D>, *douts = queries + flash_tile<D>;
    int64_t j0 = (int64_t)blockIdx.x * FLASH_ROWS, g = blockIdx.y, b = blockIdx.z;
    int64_t k_at = attn_key_at(s, b, g), per = s.h / s.g;
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    int64_t j = j0 + row + lane / 4;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    flash_fetch<D>(keys, p.qkv + k_at, j0, s.t, s.ld);
    flash_fetch<D>(values, p.qkv + k_at + s.d, j0, s.t, s.ld);
    for (int64_t h = g * per; h < (g + 1) * per; h++)
        for (int64_t t0 = j0; t0 < s.t; t0 += FLASH_ROWS) {
            flash_fetch<D>(queries, p.qkv + attn_query_at(s, b, h), t0, s.t, s.ld);
            flash_fetch<D>(douts, p.dout + (b * s.t * s.h + h) * s.d, t0, s.t, s.h * s.d);
            fetch_rows(&rows, s, p.delta, b, h, t0);
            uint64_t drop_at = attn_drop_at(s, b, h, t0);
            copy_commit();
            copy_wait<0>();
            __syncthreads();
#pragma unroll 1
            for (int i0 = 0; i0 < FLASH_ROWS; i0 += 8 * N)
                key_block<D, N>(s, rows, keys, values, queries + i0 * flash_ld<D>,
                                douts + i0 * flash_ld<D>, t0, i0, j0, drop_at, dk, dv);
            __syncthreads();
        }
    write<D>(p.dqkv + k_at, dk, j, s.t, s.ld);
    write<D>(p.dqkv + k_at + s.d, dv, j, s.t, s.ld);
}

bool cuda_flash_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                    const struct gpt_attn_grad *grad)
{
    if (!cuda_wide(op->act, op->d, grad->dout, grad->dqkv))
        return false;
    return flash_size(op, [&](auto type, auto size) {
        using T = decltype(type);
        const int D = decltype(size)::value;
        struct attn_shape s = attn_shape_of(op);
        flash_grads<T> p = {(const T *)op->qkv, (const T *)grad->dout, (T *)grad->dqkv,
                            (const float *)grad->scratch};
        size_t shared = 4 * flash_tile<D> * sizeof(T);
        dim3 by_head(cuda_blocks(op->t, FLASH_ROWS), op->h, op->b);
        dim3 by_group(by_head.x, op->g, op->b);
        launch(q, flash_query_grads<D, T>, by_head, FLASH_THREADS, shared, s, p);
        launch(q, flash_key_grads<D, T>, by_group, FLASH_THREADS, shared, s, p);
    });
}
