/* Attention of new tokens against the key-value cache, for generation: new keys
 * and values go to the cache first, then a warp takes one query of one head. */
#include "cuda/attn.cuh"

enum { WARPS = 4, MOST = ATTN_MAX_D / 32 };

/* A warp has one query of one head: t_new is one or few, so that there is little to share between
 * queries; what counts is to read the cache with many warps. */
template <class T> struct cached {
    int64_t t_new, h, g, d, t_max, b, head0, h_global;
    float scale;
    enum gpt_alibi alibi;
    int64_t window;
    float softcap;
    const T *qkv;
    T *out, *k, *v;
    const int32_t *pos, *len, *slot; /* device */
};

/* The offset of position t of a group from its position 0. */
template <class T> static __device__ int64_t key_at(const cached<T> &p, int64_t t)
{
    return (t / GPT_CACHE_BLOCK * p.g * GPT_CACHE_BLOCK + t % GPT_CACHE_BLOCK) * p.d;
}

/* The offset in the cache of position t of row b's group. */
template <class T>
static __device__ int64_t cache_at(const cached<T> &p, int64_t b, int64_t g, int64_t t)
{
    const int64_t rows = (p.t_max + GPT_CACHE_BLOCK - 1) / GPT_CACHE_BLOCK * GPT_CACHE_BLOCK;

    return ((int64_t)p.slot[b] * p.g * rows + g * GPT_CACHE_BLOCK) * p.d + key_at(p, t);
}

template <class T> static __global__ void append(cached<T> p)
{
    int64_t i = blockIdx.x, g = blockIdx.y, b = blockIdx.z, per = p.h / p.g;

    if (i >= p.len[b])
        return;
    const T *key = p.qkv + ((b * p.t_new + i) * p.g + g) * (per + 2) * p.d + per * p.d;
    int64_t to = cache_at(p, b, g, p.pos[b] + i);
    for (int64_t c = threadIdx.x; c < p.d; c += blockDim.x) {
        p.k[to + c] = key[c];
        p.v[to + c] = key[p.d + c];
    }
}

template <class T> static __global__ void attend(cached<T> p)
{
    __shared__ float query[WARPS][ATTN_MAX_D], prob[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t i = (int64_t)blockIdx.x * WARPS + warp, h = blockIdx.y, b = blockIdx.z;

    if (i >= p.len[b])
        return; /* the whole warp */
    int64_t per = p.h / p.g, t = p.pos[b] + i;
    /* t counts from the beginning of the cache row: the token sees what earlier
     * calls have left there. */
    const T *q = p.qkv + (((b * p.t_new + i) * p.g + h / per) * (per + 2) + h % per) * p.d;
    const T *k = p.k + cache_at(p, b, h / per, 0), *v = p.v + cache_at(p, b, h / per, 0);
    for (int c = lane; c < p.d; c += 32)
        query[warp][c] = to_float(q[c]) * p.scale;
    __syncwarp();
    float sum[MOST] = {}, max = -INFINITY, total = 0, slope = 0;
    if (p.alibi)
        slope = alibi_slope(p.head0 + h, p.h_global);
    /* Keys before the window stay in the cache, and are not read. */
    int64_t first = p.window > 0 && t > p.window ? t - p.window : 0;
    for (int64_t j0 = first; j0 <= t; j0 += 32) {
        int64_t j = j0 + lane, n = t - j0 < 31 ? t - j0 + 1 : 32;
        float score = -INFINITY, unused;

        if (j <= t) {
            const T *key = k + key_at(p, j);

            score = 0;
            for (int c = 0; c < p.d; c++)
                score += query[warp][c] * to_float(key[c]);
            score = attn_cap(score, p.softcap, &unused) +
                    alibi_bias(p.alibi == GPT_ALIBI_BF16, slope, p.scale, t, j);
        }
        float top = fmaxf(max, warp_max(score)), shrink = expf(max - top);
        /* A running maximum, as in attn_fwd.cu: old sums shrink when it grows. */
        prob[warp][lane] = j <= t ? expf(score - top) : 0;
        total = total * shrink + warp_sum(prob[warp][lane]);
        max = top;
        __syncwarp();
#pragma unroll
        for (int c = 0; c < MOST; c++) {
            sum[c] *= shrink;
            for (int64_t l = 0; lane + 32 * c < p.d && l < n; l++)
                sum[c] += prob[warp][l] * to_float(v[key_at(p, j0 + l) + lane + 32 * c]);
        }
        __syncwarp();
    }
    T *to = p.out + ((b * p.t_new + i) * p.h + h) * p.d;
#pragma unroll
    for (int c = 0; c < MOST; c++)
        if (lane + 32 * c < p.d)
            to[lane + 32 * c] = from_float<T>(sum[c] / total);
}

/* pos and len are in host memory for this check: a kernel could only say so
 * after it has written past the cache. */
static bool fits(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    if (!attn_fits(q, op->b, op->h, op->d))
        return false;
    if (op->narrow_cache) {
        cuda_fail(q, "keys and values in fewer bits than activations");
        return false;
    }
    for (int64_t b = 0; b < op->b; b++)
        if (op->pos[b] < 0 || op->len[b] < 0 || op->len[b] > op->t_new ||
            op->pos[b] + (int64_t)op->len[b] > op->t_max) {
            cuda_fail(q, "row %lld: position %d + %d tokens is past the cache's %lld",
                      (long long)b, op->pos[b], op->len[b], (long long)op->t_max);
            return false;
        }
    return true;
}

/* Copies pos, len and slot of all rows to work memory. */
static const int32_t *upload(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    const int32_t *from[] = {op->pos, op->len, op->slot};
    size_t bytes = (size_t)op->b * sizeof(int32_t);
    char *to = (char *)cuda_work(q, 3 * bytes);

    for (size_t i = 0; to && i < GPT_COUNT(from); i++)
        /* From memory that is not pinned: the runtime has taken the numbers when
         * this returns, and the caller may change them. */
        if (!cuda_check(q, cudaMemcpyAsync(to + i * bytes, from[i], bytes,
                                           cudaMemcpyHostToDevice, q->stream)))
            return NULL;
    return (const int32_t *)to;
}

void cuda_attn_cached(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    if (!cuda_ready(q, "attn_cached", op->act) || !op->b || !op->t_new || !fits(q, op))
        return;
    const int32_t *rows = upload(q, op);
    if (!rows)
        return;
    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        cached<T> p = {op->t_new, op->h, op->g, op->d, op->t_max, op->b, op->head0,
                       op->h_global ? op->h_global : op->h, op->scale, op->alibi, op->window,
                       op->softcap, (const T *)op->qkv, (T *)op->out, (T *)op->k_cache,
                       (T *)op->v_cache, rows, rows + op->b,
                       rows + 2 * op->b};
        /* Two launches: a token sees keys that other blocks append, and only the
         * end of a kernel orders blocks. */
        launch(q, append<T>, dim3(op->t_new, op->g, op->b), 64, 0, p);
        launch(q, attend<T>, dim3(cuda_blocks(op->t_new, WARPS), op->h, op->b), WARPS * 32, 0,
               p);
    });
}
