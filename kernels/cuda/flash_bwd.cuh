/* What the backward kernels for tensor cores share: see flash_bwd.cu. Scores are
 * those of before they are scaled. */
#ifndef GPT_KERNELS_CUDA_FLASH_BWD_CUH
#define GPT_KERNELS_CUDA_FLASH_BWD_CUH

#include "cuda/flash.cuh"
#include "cuda/flash_drop.cuh"

/* What backward needs of a query. Past the sequence's end lse is infinite, so
 * that its probabilities are 0. */
struct alignas(16) flash_query {
    float lse, delta; /* lse in units of log(2) */
    int first; /* the first key that it sees */
    int unused;
};

/* The same of 64 queries, for flash_bwd_sm90a.cu: each at flash_place(). */
enum { FLASH_QUERIES = 64 };
struct alignas(16) flash_queries {
    float lse[FLASH_QUERIES], delta[FLASH_QUERIES];
    int first[FLASH_QUERIES];
    int turn[FLASH_QUERIES]; /* [i]: how many blocks have added to part i of the sums of
                              * dQ of the step that begins here; others unused */
};

/* Lane c of four has columns 8 n + 2 c + e of a `d` fragment (e 0 or 1): it reads them in
 * four pieces of 16 bytes, n = 2 i and 2 i + 1 in piece i. The four lanes then read from
 * different banks. */
__device__ inline int flash_piece(int c, int i)
{
    return c * 4 + i + (i % 2 ? -(c / 2) : c / 2);
}

/* Query i of 64. */
__device__ inline int flash_place(int i)
{
    return flash_piece(i % 8 / 2, i / 16) * 4 + i / 8 % 2 * 2 + i % 2;
}

/* Where the sequence's end is padded to: whole steps of the Hopper kernel. */
static_assert(sizeof(struct flash_query) == GPU_ATTN_QUERY, "gpu_attn_scratch()");
static __host__ __device__ inline int64_t padded(int64_t t)
{
    return (t + GPU_ATTN_STEP - 1) / GPU_ATTN_STEP * GPU_ATTN_STEP;
}

/* Fills grad->scratch: flash_query (B, H, padded T) or, `by_64`, flash_queries
 * (B, H, padded T / 64). On Hopper sums of dQ follow. */
void cuda_flash_prepare(struct gpt_queue *q, const struct gpt_attn *op,
                        const struct gpt_attn_grad *grad, bool by_64);

/* A tile of queries: of head h, from t on. */
struct query_tile {
    int h, t;
};

/* The next tile of N that sees a key of j.. j + KEYS - 1, of the heads below
 * h_end; false when there is none. A head's first tile begins at j: it sees
 * itself. */
template <int N, int KEYS>
__device__ inline bool advance(const struct attn_shape &s, int b, int j, int h_end,
                               struct query_tile &at)
{
    /* the rows of keys end a window after the last of them */
    int64_t end = s.window > 0 ? min(s.t, j + KEYS + s.window) : s.t;
    for (at.t += N; at.t < end; at.t += N)
        if (flash_first<N>(s, b, at.t) < j + KEYS)
            return true;
    at.t = j;
    return ++at.h < h_end;
}

template <class T> struct flash_grad {
    const T *qkv, *dout;
    T *dqkv;
    const struct flash_query *queries; /* (B, H, padded T) */
};

template <class T>
static flash_grad<T> flash_grad_of(const struct gpt_attn *op, const struct gpt_attn_grad *grad)
{
    return {(const T *)op->qkv, (const T *)grad->dout, (T *)grad->dqkv,
            (const struct flash_query *)grad->scratch};
}

static inline struct attn_shape flash_grad_shape(const struct gpt_attn *op)
{
    struct attn_shape s = attn_shape_of(op);

    if (!s.drop.below)
        s.drop.scale = 1; /* of what stays: all */
    return s;
}

/* Rows of the tiles that a block goes over. With 64, scores take 64 registers:
 * heads of 64 would run two blocks at once instead of three, and spill on some
 * architectures. */
enum { FLASH_STEP = 32 };

/* Elements of a stage: tiles of such rows of two tensors; of the first of them, what
 * is known of the queries. */
template <int D, class T>
constexpr int flash_stage = 2 * flash_tile<D, T, FLASH_STEP> + flash_at_once<T> * FLASH_STEP;

/* Rounds the tiles of a stage, as flash_round() does. */
template <int D, class T> __device__ inline void flash_round_stage(T *stage)
{
    flash_round<D, FLASH_STEP>(stage);
    flash_round<D, FLASH_STEP>(stage + flash_tile<D, T, FLASH_STEP>);
}

/* Begins to copy a tile of queries, of dO, and what is known of the queries. */
template <int D, class T>
__device__ inline void fetch_queries(T *stage, const struct attn_shape &s,
                                     const flash_grad<T> &p, int64_t b,
                                     const struct query_tile &at)
{
    constexpr int N = FLASH_STEP, tile = flash_tile<D, T, N>;
    int64_t ldo = s.h * s.d;

    flash_fetch<D, N>(stage, p.qkv + attn_query_at(s, b, at.h), at.t, s.t, s.ld, s.d);
    flash_fetch<D, N>(stage + tile, p.dout + b * s.t * ldo + at.h * s.d, at.t, s.t, ldo, s.d);
    if (threadIdx.x < N)
        copy_async(stage + 2 * tile + flash_at_once<T> * threadIdx.x,
                   p.queries + (b * s.h + at.h) * padded(s.t) + at.t + threadIdx.x, 16);
}

/* The derivative of flash_cap() where it gave `score`; 1 if by is 0. */
__device__ inline float flash_rise(float score, float by)
{
    float t = score * by;

    return 1 - t * t;
}

/* From scores and dP, transposed: P M and dS. q: of the tile's queries; key:
 * this lane's first key, counted from the tile's first query; first: that
 * query's number; kept: see flash_keep_columns. */
template <int N>
__device__ inline void pairs_of_keys(float (&p)[N][4], float (&ds)[N][4],
                                     const struct attn_shape &s, const struct flash_query *q,
                                     int first, int key, bool all_seen,
                                     const uint32_t (&kept)[4])
{
    float by = flash_cap_by(s);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = n * 8 + threadIdx.x % 4 * 2 + e % 2, j = key + e / 2 * 8;
            /* Selected before the exponential and without branches: else each
             * probability becomes a block of its own in machine code. */
            bool seen = all_seen | ((j <= i) & (first + j >= q[i].first));
            float keep = kept[e] >> 4 * n & 1 ? s.drop.scale : 0;
            float x = p[n][e] * (s.scale * FLASH_LOG2E) - q[i].lse;
            float prob = exp2_fast(seen ? x : -INFINITY);

            ds[n][e] = prob * flash_rise(p[n][e], by) * (keep * ds[n][e] - q[i].delta);
            p[n][e] = prob * keep;
        }
}

/* From scores and dP: dS, in place of dP. q: of this lane's two queries, whose
 * first is number t; key: the number of its first key; kept: see
 * flash_keep_rows. */
template <int N>
__device__ inline void pairs_of_queries(const float (&p)[N][4], float (&ds)[N][4],
                                        const struct attn_shape &s,
                                        const struct flash_query (&q)[2], int t, int key,
                                        bool all_seen, uint32_t kept)
{
    float by = flash_cap_by(s);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int h = e / 2, i = t + 8 * h, j = key + n * 8 + e % 2;
            bool seen = all_seen | ((j <= i) & (j >= q[h].first));
            float keep = kept >> (4 * n + e) & 1 ? s.drop.scale : 0;
            float x = p[n][e] * (s.scale * FLASH_LOG2E) - q[h].lse;
            float prob = exp2_fast(seen ? x : -INFINITY);

            ds[n][e] = prob * flash_rise(p[n][e], by) * (keep * ds[n][e] - q[h].delta);
        }
}

/* Launches backward: what is prepared, then gradients of keys and values, then of
 * queries, each a block per `rows` positions with `shared` bytes. All go to one
 * queue, since the passes read what was prepared. */
template <class T>
static void flash_launch_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                             const struct gpt_attn_grad *grad, int rows, size_t shared,
                             void (*key_grads)(struct attn_shape, flash_grad<T>),
                             void (*query_grads)(struct attn_shape, flash_grad<T>))
{
    struct attn_shape s = flash_grad_shape(op);
    flash_grad<T> p = flash_grad_of<T>(op, grad);
    unsigned tiles = (unsigned)cuda_blocks(op->t, rows);

    cuda_flash_prepare(q, op, grad, false);
    launch(q, key_grads, dim3(tiles, op->g, op->b), FLASH_THREADS, shared, s, p);
    launch(q, query_grads, dim3(tiles, op->h, op->b), FLASH_THREADS, shared, s, p);
}

/* Heads that flash_bwd.cu does not do: of more than 128 elements, or of more than 80
 * floats; false when tensor cores do not do op. */
bool cuda_flash_bwd_wide(struct gpt_queue *q, const struct gpt_attn *op,
                         const struct gpt_attn_grad *grad);

#endif
