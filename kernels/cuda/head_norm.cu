/* Norms of single heads: forward has a warp a head. Backward has a block a run of
 * rows, one head after the other; gradients of weights gather in its shared
 * memory, each thread owning its elements of a head, and the blocks' sums are
 * added in order at the end. Where every head has weights of its own, their gradients
 * gather in the block's part of the scratch. Statistics are computed again: a head is short. */
#include "cuda/device.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, PARTS = GPU_HEAD_NORM_GRADS };

template <class T> struct heads {
    int64_t n, all, each, d; /* rows; heads of a row; rows of a block */
    int group; /* heads of a group, its key and value too */
    int64_t own; /* weights of all query heads, where each has its own; else 0 */
    bool centred;
    float eps, offset; /* offset: 1 is added to weights, or 0 */
    const T *in, *wq, *bq, *wk, *bk;
    T *out;
    float *part; /* (blocks, PARTS, D): dwq, dbq, dwk, dbk; own: (blocks, H + G, D) */
};

/* A group is query heads, a key, a value (Megatron's order). */
template <class T> static __device__ bool is_key(const heads<T> &p, int64_t k)
{
    return k % p.group == p.group - 2;
}

template <class T> static __device__ bool is_value(const heads<T> &p, int64_t k)
{
    return k % p.group == p.group - 1;
}

/* Where the weights of head k of a row begin, among those of queries or of keys. */
template <class T> static __device__ int64_t first_weight(const heads<T> &p, int64_t k)
{
    int64_t group = k / p.group;

    if (!p.own)
        return 0;
    return (is_key(p, k) ? group : group * (p.group - 2) + k % p.group) * p.d;
}

/* Those of its row's head k, or NULL. */
template <class T> static __device__ const T *weights_of(const heads<T> &p, int64_t k)
{
    const T *w = is_key(p, k) ? p.wk : p.wq;

    return w ? w + first_weight(p, k) : w;
}

template <class T> static __device__ float weight(const heads<T> &p, const T *w, int64_t j)
{
    return w ? to_float(w[j]) + p.offset : 1;
}

/* No shared memory: a warp sums its own head, so that heads of any size share a
 * block without barriers. Two passes, so that nothing cancels; the head is in
 * the cache the second time. */
template <class T> static __global__ void norm_heads(heads<T> p)
{
    int64_t head = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;

    if (head >= p.n * p.all)
        return;
    const T *x = p.in + head * p.d;
    T *y = p.out + head * p.d;
    if (is_value(p, head % p.all)) {
        for (int64_t j = lane; j < p.d && y != x; j += 32)
            y[j] = x[j];
        return;
    }
    bool key = is_key(p, head % p.all);
    const T *w = weights_of(p, head % p.all), *b = key ? p.bk : p.bq;
    float sum = 0, mean = 0;
    for (int64_t j = lane; j < p.d && p.centred; j += 32)
        sum += to_float(x[j]);
    if (p.centred)
        mean = warp_sum(sum) / (float)p.d;
    sum = 0;
    for (int64_t j = lane; j < p.d; j += 32) {
        float v = to_float(x[j]) - mean;

        sum += v * v;
    }
    float rstd = rsqrtf(warp_sum(sum) / (float)p.d + p.eps);
    for (int64_t j = lane; j < p.d; j += 32) {
        float v = (to_float(x[j]) - mean) * rstd * weight(p, w, j);

        y[j] = from_float<T>(b ? v + to_float(b[j]) : v);
    }
}

/* dy becomes the gradient of x; dw, db are added to. The whole block calls it, as
 * sums cross warps. A thread reads and writes the same elements of dy in both
 * passes, so that no other may see a half of it. */
template <class T>
static __device__ void one_head(const heads<T> &p, const T *x, T *dy, const T *w, float *dw,
                                float *db)
{
    float moments[1] = {0}, sums[2] = {0, 0}, mean = 0;

    for (int64_t j = threadIdx.x; j < p.d && p.centred; j += THREADS)
        moments[0] += to_float(x[j]);
    if (p.centred) {
        block_sum(moments);
        mean = moments[0] / (float)p.d;
    }
    moments[0] = 0;
    for (int64_t j = threadIdx.x; j < p.d; j += THREADS) {
        float v = to_float(x[j]) - mean;

        moments[0] += v * v;
    }
    block_sum(moments);
    float rstd = rsqrtf(moments[0] / (float)p.d + p.eps);
    for (int64_t j = threadIdx.x; j < p.d; j += THREADS) {
        float norm = (to_float(x[j]) - mean) * rstd, g = to_float(dy[j]);
        float dnorm = g * weight(p, w, j);

        sums[0] += dnorm;
        sums[1] += dnorm * norm;
        dw[j] += g * norm;
        db[j] += g;
    }
    block_sum(sums);
    float m0 = p.centred ? sums[0] / (float)p.d : 0, m1 = sums[1] / (float)p.d;
    for (int64_t j = threadIdx.x; j < p.d; j += THREADS) {
        float norm = (to_float(x[j]) - mean) * rstd;
        float dnorm = to_float(dy[j]) * weight(p, w, j);

        dy[j] = from_float<T>(rstd * (dnorm - m0 - norm * m1));
    }
}

template <class T> static __global__ void norm_heads_grad(heads<T> p, T *dqkv)
{
    float *sums = dynamic_floats();
    int64_t begin = (int64_t)blockIdx.x * p.each;
    int64_t end = begin + p.each < p.n ? begin + p.each : p.n;
    /* weights of all heads are too many for shared memory: they gather where they go */
    int64_t heads = p.own / p.d + p.all / p.group, width = heads * p.d;
    float *own = p.part + blockIdx.x * width;

    /* A thread has the same elements of every head: no barrier is needed
     * between heads. */
    for (int part = 0; part < PARTS; part++)
        for (int64_t j = threadIdx.x; j < p.d; j += THREADS)
            sums[part * p.d + j] = 0;
    for (int64_t head = 0; p.own && head < heads; head++)
        for (int64_t j = threadIdx.x; j < p.d; j += THREADS)
            own[head * p.d + j] = 0;
    for (int64_t i = begin * p.all; i < end * p.all; i++) {
        int64_t k = i % p.all;

        if (is_value(p, k))
            continue;
        float *dw = sums + (is_key(p, k) ? 2 * p.d : 0), *db = dw + p.d;
        if (p.own)
            dw = own + (is_key(p, k) ? p.own : 0) + first_weight(p, k);
        one_head(p, p.in + i * p.d, dqkv + i * p.d, weights_of(p, k), dw, db);
    }
    if (p.own)
        return;
    float *part = p.part + (int64_t)blockIdx.x * PARTS * p.d;
    for (int k = 0; k < PARTS; k++)
        for (int64_t j = threadIdx.x; j < p.d; j += THREADS)
            part[k * p.d + j] = sums[k * p.d + j];
}

template <class T> static heads<T> heads_of(const struct gpt_head_norm *op, int64_t each)
{
    return {op->n, op->h + 2 * op->g, each, op->d, (int)(op->h / op->g + 2),
            op->each ? op->h * op->d : 0, op->kind == GPT_LAYERNORM, op->eps,
            op->plus_one ? 1.0f : 0.0f, (const T *)op->in, (const T *)op->wq,
            (const T *)op->bq, (const T *)op->wk, (const T *)op->bk, (T *)op->out, NULL};
}

void cuda_head_norm(struct gpt_queue *q, const struct gpt_head_norm *op)
{
    if (!cuda_ready(q, "head_norm", op->act) || !op->n)
        return;
    if (op->squares) {
        cuda_wide_norm(q, op);
        return;
    }
    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        heads<T> p = heads_of<T>(op, 0);
        launch(q, norm_heads<T>, cuda_blocks(p.n * p.all, WARPS), THREADS, 0, p);
    });
}

void cuda_head_norm_bwd(struct gpt_queue *q, const struct gpt_head_norm *op,
                        const struct gpt_head_norm_grad *grad)
{
    size_t shared = (size_t)(PARTS * op->d) * sizeof(float);

    if (!cuda_ready(q, "head_norm_bwd", op->act) || !op->n)
        return;
    if (op->squares) {
        cuda_wide_norm_bwd(q, op, grad);
        return;
    }
    int64_t each = gpu_norm_rows_each(op->n), blocks = cuda_blocks(op->n, each);
    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        heads<T> p = heads_of<T>(op, each);
        p.part = (float *)grad->scratch;
        if (!cuda_fits(q, norm_heads_grad<T>, "heads", op->d, PARTS * sizeof(float)))
            return;
        launch(q, norm_heads_grad<T>, blocks, THREADS, shared, p, (T *)grad->dqkv);
    });
    /* Blocks' sums in order: atomics would add in another one at every run. */
    int64_t d = op->d;
    if (op->each)
        cuda_add_columns(q, {{grad->dwq, grad->dwk}, {op->h * d, op->g * d}},
                         (float *)grad->scratch, blocks);
    else
        cuda_add_columns(q, {{grad->dwq, grad->dbq, grad->dwk, grad->dbk}, {d, d, d, d}},
                         (float *)grad->scratch, blocks);
}
