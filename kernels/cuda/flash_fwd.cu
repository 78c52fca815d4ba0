/* Causal self-attention on tensor cores, forward (Dao 2023). A block takes the
 * queries of one head, 128 or 64, and goes over the keys that they see, 16 to 64
 * at a time; keys and values of the next tile are on their way while one is
 * worked on. A warp owns 32 or 16 queries, for which it reads each tile once;
 * scores never leave its registers. */
#include "cuda/flash.cuh"
#include "cuda/flash_drop.cuh"

/* How a block is cut, by head size and type: sums of 32 queries a warp take D
 * registers of a thread, and all tiles have to fit into FLASH_MEMORY. */
template <int D, class T> struct cut {
    enum {
        M = D <= 128 ? 2 : 1, /* times 16 queries of a warp */
        ROWS = 64 * M,
        KEYS = D <= 64 ? 128 / sizeof(T) : D <= 80 ? 32 : 64 / sizeof(T),
        N = KEYS / 8,
        /* Queries, and two stages of keys and values. */
        BYTES = (flash_tile<D, T, ROWS> + 4 * flash_tile<D, T, KEYS>) * sizeof(T),
    };
    static_assert((int)BYTES <= (int)FLASH_MEMORY, "a block's shared memory");
};

/* What a thread keeps of its queries: of each 16 of the warp's, rows g and
 * g + 8. */
template <int D, class T> struct running {
    enum { M = cut<D, T>::M };
    float out[M][D / 8][4], max[M][2], sum[M][2];
};

/* Sets scores of sample b that query t does not see to -inf. */
template <int N>
static __device__ void hide_unseen(float (&s)[N][4], const struct attn_shape &a, int64_t b, int t,
                                   int key)
{
    /* Asked for again for each tile: most need no mask, and registers are few. */
    const int first[2] = {(int)attn_first(a, b, min((int64_t)t, a.t - 1)),
                          (int)attn_first(a, b, min((int64_t)t + 8, a.t - 1))};
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int j = key + n * 8 + e % 2, i = t + e / 2 * 8;

            if (j > i || j < first[e / 2])
                s[n][e] = -INFINITY;
        }
}

/* Turns scores of 16 queries into probabilities relative to the maximum so far; scale includes
 * log2(e). What was summed under an older maximum shrinks. */
template <int D, int N>
static __device__ void softmax(float (&s)[N][4], float (&out)[D / 8][4], float (&max)[2],
                               float (&sum)[2], float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = max[h];
#pragma unroll
        for (int n = 0; n < N; n++)
            top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        /* A query that has seen no key so far: exp2(-inf - 0) is 0, where -inf
         * less -inf would be NaN. */
        float shift = top == -INFINITY ? 0 : top * scale;
        float shrink = exp2_fast(max[h] * scale - shift);
        max[h] = top;
        /* A thread's own part of the sum: the four lanes of a row add theirs once,
         * at the end. */
        sum[h] *= shrink;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[n][e] = exp2_fast(s[n][e] * scale - shift);
                sum[h] += s[n][e];
            }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            out[n][2 * h] *= shrink;
            out[n][2 * h + 1] *= shrink;
        }
    }
}

/* Drops probabilities; kept is described at flash_keep_rows(). */
template <int N>
static __device__ void drop_scores(float (&s)[N][4], float scale, uint32_t kept)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] *= kept >> (4 * n + e) & 1 ? scale : 0;
}

/* A head of a sample, and where a warp is in it. */
struct place {
    int64_t b, h;
    int row, t; /* the warp's first query in the block's tile, in the sequence */
};

/* Attends to one tile of keys, which begins at `key`. */
template <int D, class T>
static __device__ void attend_tile(const struct attn_shape &a, running<D, T> &r,
                                   const struct place &at, const T *queries, const T *keys,
                                   const T *values, int key)
{
    constexpr int M = cut<D, T>::M, N = cut<D, T>::N;
    int lane = threadIdx.x % 32, t = at.t + lane / 4, own = key + lane % 4 * 2;
    uint32_t kept[M] = {};

    if (a.drop.below) /* before scores take their registers */
#pragma unroll
        for (int m = 0; m < M; m++)
            kept[m] = flash_keep_rows<N>(
                a.drop, attn_drop_at(a, at.b, at.h, at.t + 16 * m) + key, a.t);
    float s[M][N][4] = {};
    flash_scores_of<D>(s, queries, at.row, keys);
    if (a.softcap > 0)
#pragma unroll
        for (int m = 0; m < M; m++)
            flash_cap(s[m], flash_cap_by(a));
    if (a.alibi)
#pragma unroll
        for (int m = 0; m < M; m++)
            flash_lean(s[m], attn_slope(a, at.h) / a.scale, t + 16 * m, own);
    /* Tiles below the diagonal of one document, most of them, need no mask. */
    if (key + cut<D, T>::KEYS > at.t || attn_hides(a))
#pragma unroll
        for (int m = 0; m < M; m++)
            hide_unseen(s[m], a, at.b, t + 16 * m, own);
#pragma unroll
    for (int m = 0; m < M; m++)
        softmax<D>(s[m], r.out[m], r.max[m], r.sum[m], a.scale * FLASH_LOG2E);
    if (a.drop.below)
#pragma unroll
        for (int m = 0; m < M; m++)
            drop_scores(s[m], a.drop.scale, kept[m]);
    flash_add<D>(r.out, s, values);
}

/* Divides by the sums; writes what lies inside the sequence. */
template <int D, class T>
static __device__ void write_rows(const struct attn_shape &s, running<D, T> &r, T *out, float *lse,
                                  int64_t t)
{
#pragma unroll
    for (int m = 0; m < cut<D, T>::M; m++, t += 16) {
        float by[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = r.sum[m][h];

            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            by[h] = 1 / sum;
            if (threadIdx.x % 4 == 0 && t + 8 * h < s.t)
                lse[t + 8 * h] = r.max[m][h] * s.scale + logf(sum);
        }
        flash_store<D>(out, r.out[m], by, t, s.t, s.h * s.d, s.d);
    }
}

/* Two blocks a multiprocessor: more would leave too few registers. */
template <int D, class T>
static __global__ void __launch_bounds__(FLASH_THREADS, 2)
    flash_forward(struct attn_shape s, const T *qkv, T *out)
{
    constexpr int M = cut<D, T>::M, ROWS = cut<D, T>::ROWS, KEYS = cut<D, T>::KEYS;
    constexpr int tile = flash_tile<D, T, KEYS>;
    T *queries = reinterpret_cast<T *>(dynamic_floats());
    T *keys = queries + flash_tile<D, T, ROWS>, *values = keys + 2 * tile;
    /* Long rows of keys first. Blocks start in the order of their numbers, and
     * the last queries see the most keys: the short rows of the first queries
     * fill the gaps at the end, when multiprocessors become free one by one. */
    int t0 = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, end = (int)min((int64_t)t0 + ROWS, s.t);
    int64_t h = blockIdx.y, b = blockIdx.z;
    const T *k = qkv + attn_key_at(s, b, h / (s.h / s.g)); /* values follow */
    int begin = flash_first<ROWS>(s, b, t0) / KEYS * KEYS;

    flash_fetch<D, ROWS>(queries, qkv + attn_query_at(s, b, h), t0, s.t, s.ld, s.d);
    flash_fetch<D, KEYS>(keys, k, begin, s.t, s.ld, s.d);
    flash_fetch<D, KEYS>(values, k + s.d, begin, s.t, s.ld, s.d);
    copy_commit();
    int row = threadIdx.x / 32 * (16 * M);
    const struct place at = {b, h, row, t0 + row};
    running<D, T> r = {};
#pragma unroll
    for (int i = 0; i < 2 * M; i++)
        r.max[i / 2][i % 2] = -INFINITY;
    for (int j = begin; j < end; j += KEYS) {
        int now = (j - begin) / KEYS % 2, next = 1 - now;

        if (j + KEYS < end) {
            flash_fetch<D, KEYS>(keys + next * tile, k, j + KEYS, s.t, s.ld, s.d);
            flash_fetch<D, KEYS>(values + next * tile, k + s.d, j + KEYS, s.t, s.ld, s.d);
        }
        copy_commit();
        /* One group may be under way, that of the next tile: this one's is there,
         * for this thread; the barrier makes it so for all. */
        copy_wait<1>();
        if (j == begin)
            flash_round<D, ROWS>(queries);
        flash_round<D, KEYS>(keys + now * tile);
        flash_round<D, KEYS>(values + now * tile);
        __syncthreads();
        if (j < at.t + 16 * M) /* else the warp's queries see nothing of it */
            attend_tile<D>(s, r, at, queries, keys + now * tile, values + now * tile, j);
        __syncthreads(); /* the tile may be overwritten */
    }
    copy_wait<0>();
    write_rows<D>(s, r, out + (b * s.t * s.h + h) * s.d, s.lse + (b * s.h + h) * s.t,
                  at.t + threadIdx.x % 32 / 4);
}

template <int D, class T> static void launch_forward(struct gpt_queue *q, const struct gpt_attn *op)
{
    dim3 grid(cuda_blocks(op->t, cut<D, T>::ROWS), op->h, op->b);

    launch(q, flash_forward<D, T>, grid, FLASH_THREADS, cut<D, T>::BYTES, attn_shape_of(op),
           (const T *)op->qkv, (T *)op->out);
}

bool cuda_flash_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    return flash_size(op, flash_sizes<64, 80, 96, 128, 192, 256>(), flash_sizes<64, 80, 96, 128>(),
                      [&](auto type, auto d) {
                          launch_forward<d.value, decltype(type)>(q, op);
                      });
}
