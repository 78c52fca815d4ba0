/* Causal self-attention on tensor cores, forward (Dao 2023). A block takes 64
 * queries of one head and goes over the keys that they see, 64 at a time; keys
 * and values of the next tile are on their way while one is worked on. A warp
 * owns 16 queries; scores never leave its registers. */
#include "cuda/flash.cuh"

/* What a thread keeps of its two queries, rows g and g + 8 of the warp's. */
template <int D> struct running {
    float out[D / 8][4], max[2], sum[2];
};

/* Scores that query t does not see become -inf; first: its first key. */
static __device__ void hide_unseen(float (&s)[8][4], int t, int key, const int (&first)[2])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int j = key + n * 8 + e % 2, i = t + e / 2 * 8;

            if (j > i || j < first[e / 2])
                s[n][e] = -INFINITY;
        }
}

/* Scores become probabilities relative to the maximum so far; scale includes
 * log2(e). What was summed under an older maximum shrinks. */
template <int D>
static __device__ void softmax(float (&s)[8][4], running<D> &r, float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = r.max[h];
#pragma unroll
        for (int n = 0; n < 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        /* A query that has seen no key so far: exp2(-inf - 0) is 0, where -inf
         * less -inf would be NaN. */
        float shift = top == -INFINITY ? 0 : top * scale;
        float shrink = exp2_fast(r.max[h] * scale - shift);
        r.max[h] = top;
        /* A thread's own part of the sum: the four lanes of a row add theirs once,
         * at the end. */
        r.sum[h] *= shrink;
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[n][e] = exp2_fast(s[n][e] * scale - shift);
                r.sum[h] += s[n][e];
            }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            r.out[n][2 * h] *= shrink;
            r.out[n][2 * h + 1] *= shrink;
        }
    }
}

/* Dropout of probabilities; kept: see flash_keep_rows. */
static __device__ void drop_scores(float (&s)[8][4], float scale, const uint32_t (&kept)[2])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] *= kept[e / 2] >> (4 * n + e % 2) & 1 ? scale : 0;
}

/* One tile of keys. slope: ALiBi's, before scores are scaled, or 0; t, key: of
 * this thread's first score; drop_at: the counter of the warp's first. */
template <int D, class T>
static __device__ void attend_tile(const struct attn_shape &shape, running<D> &r,
                            const uint32_t (&q)[D / 16][4], const T *keys, const T *values,
                            float slope, int t, int key, const int (&first)[2], bool all_seen,
                            uint64_t drop_at)
{
    uint32_t kept[2] = {};

    if (shape.drop.below) /* before scores take their registers */
        flash_keep_rows<8>(kept, shape.drop, drop_at, shape.t);
    float s[8][4] = {};
    flash_scores<D>(s, q, keys);
    if (shape.alibi)
        flash_lean(s, slope, t, key);
    /* Tiles below the diagonal of one document, most of them, need no mask. */
    if (!all_seen)
        hide_unseen(s, t, key, first);
    softmax<D>(s, r, shape.scale * FLASH_LOG2E);
    if (shape.drop.below)
        drop_scores(s, shape.drop.scale, kept);
    flash_add<D>(r.out, s, values);
}

/* Divides by the sums; writes what lies inside the sequence. */
template <int D, class T>
static __device__ void write_rows(const struct attn_shape &s, running<D> &r, T *out, float *lse,
                              int64_t t)
{
    float by[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.sum[h];

        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        by[h] = 1 / sum;
        if (threadIdx.x % 4 == 0 && t + 8 * h < s.t)
            lse[t + 8 * h] = r.max[h] * s.scale + logf(sum);
    }
    flash_store<D>(out, r.out, by, t, s.t, s.h * s.d, s.d);
}

/* Blocks at once: as many as the compiler likes (0), but where it would spill for a
 * third, at D = 64. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
enum { FORWARD_BLOCKS = 2 };
#else
enum { FORWARD_BLOCKS = 0 };
#endif

template <int D, class T>
static __global__ void __launch_bounds__(FLASH_THREADS, FORWARD_BLOCKS)
    flash_forward(struct attn_shape s, const T *qkv, T *out)
{
    T *mem = reinterpret_cast<T *>(dynamic_floats());
    T *queries = mem, *keys = mem + flash_tile<D>, *values = keys + 2 * flash_tile<D>;
    /* Long rows of keys first. Blocks start in the order of their numbers, and
     * the last queries see the most keys: the short rows of the first queries
     * fill the gaps at the end, when multiprocessors become free one by one. */
    int64_t t0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * FLASH_ROWS;
    int64_t h = blockIdx.y, b = blockIdx.z;
    const T *k = qkv + attn_key_at(s, b, h / (s.h / s.g)), *v = k + s.d;
    int64_t begin = flash_first(s, b, t0) / FLASH_ROWS * FLASH_ROWS;

    flash_fetch<D>(queries, qkv + attn_query_at(s, b, h), t0, s.t, s.ld, s.d);
    flash_fetch<D>(keys, k, begin, s.t, s.ld, s.d);
    flash_fetch<D>(values, v, begin, s.t, s.ld, s.d);
    copy_commit();
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    int64_t t = t0 + row + lane / 4;
    int first[2] = {(int)attn_first(s, b, min(t, s.t - 1)),
                    (int)attn_first(s, b, min(t + 8, s.t - 1))};
    float slope = attn_slope(s, h) / s.scale;
    uint32_t q[D / 16][4];
    running<D> r = {{}, {-INFINITY, -INFINITY}, {0, 0}};
    for (int64_t j = begin; j <= t0; j += FLASH_ROWS) {
        int now = (j - begin) / FLASH_ROWS % 2, next = 1 - now;

        if (j + FLASH_ROWS <= t0) {
            flash_fetch<D>(keys + next * flash_tile<D>, k, j + FLASH_ROWS, s.t, s.ld, s.d);
            flash_fetch<D>(values + next * flash_tile<D>, v, j + FLASH_ROWS, s.t, s.ld, s.d);
        }
        copy_commit();
        /* One group may be under way, that of the next tile: this one's is there,
         * for this thread; the barrier makes it so for all. */
        copy_wait<1>();
        __syncthreads();
        if (j == begin)
            /* Queries stay in registers as fragments from here on. */
            flash_rows<D>(q, queries);
        attend_tile<D>(s, r, q, keys + now * flash_tile<D>, values + now * flash_tile<D>,
                slope, (int)t, (int)j + lane % 4 * 2, first, j < t0 && !s.doc_start,
                attn_drop_at(s, b, h, t0 + row) + j);
        __syncthreads(); /* the tile may be overwritten */
    }
    copy_wait<0>();
    write_rows<D>(s, r, out + (b * s.t * s.h + h) * s.d, s.lse + (b * s.h + h) * s.t, t);
}

template <int D, class T> static void launch_forward(struct gpt_queue *q, const struct gpt_attn *op)
{
    /* Five tiles of shared memory: queries, and two stages of keys and values. */
    dim3 grid(cuda_blocks(op->t, FLASH_ROWS), op->h, op->b);

    launch(q, flash_forward<D, T>, grid, FLASH_THREADS, 5 * flash_tile<D> * sizeof(T),
           attn_shape_of(op), (const T *)op->qkv, (T *)op->out);
}

bool cuda_flash_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    return flash_size(op, [&](auto type, auto d) {
        launch_forward<d.value, decltype(type)>(q, op);
    });
}
