/* RMSNorm of all queries of a row together, and of all its keys: statistics are sums
 * over the heads of all ranks, which a kernel of its own makes a rank's part of.
 * With these at hand every element stands alone. Start at place_of(). */
#include "cuda/device.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, MOST_BLOCKS = 128 };

template <class T> struct rows {
    int64_t n, h, g, d, row; /* row: elements of a row of qkv */
    float eps, offset;       /* offset: 1 is added to weights, or 0 */
    float width[2];          /* elements under a deviation: queries, keys */
    const float *squares, *dots;
    const T *in, *w[2];
};

/* What element i of a row is: whether it belongs to a key, and the number of its weight; -1 for a
 * value. */
struct place {
    int key;
    int64_t at;
};

/* A group is query heads, a key, a value (Megatron's order). */
template <class T> static __device__ struct place place_of(const rows<T> &p, int64_t i)
{
    int64_t per = p.h / p.g, head = i / p.d, group = head / (per + 2), k = head % (per + 2);

    if (k == per + 1)
        return {0, -1};
    return {k == per, (k == per ? group : group * per + k) * p.d + i % p.d};
}

/* Computed by every thread again: two loads that all threads of a row share, from
 * the cache, are less than another kernel would be. */
template <class T>
static __device__ float rstd_of(const rows<T> &p, int64_t n, int key)
{
    return rsqrtf(p.squares[2 * n + key] / p.width[key] + p.eps);
}

template <class T> static __device__ float weight_of(const rows<T> &p, struct place e)
{
    return to_float(p.w[e.key][e.at]) + p.offset;
}

/* Sums a row in each warp: lanes take elements in turn, so that the order of a sum follows from the
 * width alone. */
template <class T> static __global__ void sum_rows(rows<T> p, const T *dqkv, float *sums)
{
    int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    float sum[2] = {0, 0};

    if (n >= p.n)
        return;
    /* Queries and keys lie between each other: one walk makes both sums, without
     * branches that would part the lanes. */
    for (int64_t i = lane; i < p.row; i += 32) {
        struct place e = place_of(p, i);

        if (e.at < 0)
            continue;
        float x = to_float(p.in[n * p.row + i]);
        float term = dqkv ? weight_of(p, e) * to_float(dqkv[n * p.row + i]) * x : x * x;
        sum[0] += e.key ? 0 : term;
        sum[1] += e.key ? term : 0;
    }
    for (int key = 0; key < 2; key++) {
        float all = warp_sum(sum[key]);

        if (lane == 0)
            sums[2 * n + key] = all;
    }
}

/* In place, too: an element is read by the thread that writes it alone. */
template <class T> static __global__ void norm_rows(rows<T> p, T *out)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= p.n * p.row)
        return;
    struct place e = place_of(p, i % p.row);
    float x = to_float(p.in[i]);
    if (e.at < 0)
        out[i] = p.in[i];
    else
        out[i] = from_float<T>(x * rstd_of(p, i / p.row, e.key) * weight_of(p, e));
}

/* Computes dx = r (w dy - x r^2 dot / n) in the place of dy. */
template <class T> static __global__ void norm_rows_grad(rows<T> p, T *dqkv)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= p.n * p.row)
        return;
    struct place e = place_of(p, i % p.row);
    if (e.at < 0)
        return;
    float r = rstd_of(p, i / p.row, e.key);
    float lean = r * r * p.dots[i / p.row * 2 + e.key] / p.width[e.key];
    dqkv[i] = from_float<T>(r * (weight_of(p, e) * to_float(dqkv[i]) - to_float(p.in[i]) * lean));
}

/* A thread an element of a row, over the rows of its block: part (blocks,
 * (H + G) D), queries first. Blocks are added in order afterwards. */
template <class T>
static __global__ void weight_grads(rows<T> p, const T *dqkv, float *part, int64_t each)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, width = (p.h + p.g) * p.d;
    int64_t begin = blockIdx.y * each, end = min(begin + each, p.n);

    if (i >= p.row)
        return;
    struct place e = place_of(p, i);
    if (e.at < 0)
        return;
    float sum = 0;
    for (int64_t n = begin; n < end; n++)
        sum += to_float(dqkv[n * p.row + i]) * to_float(p.in[n * p.row + i]) *
               rstd_of(p, n, e.key);
    part[blockIdx.y * width + (e.key ? p.h * p.d : 0) + e.at] = sum;
}

template <class T> static rows<T> rows_of(const struct gpt_head_norm *op, const float *dots)
{
    return {op->n, op->h, op->g, op->d, (op->h + 2 * op->g) * op->d, op->eps,
            op->plus_one ? 1.0f : 0.0f,
            {(float)(op->h_all * op->d), (float)(op->g_all * op->d)}, op->squares, dots,
            (const T *)op->in, {(const T *)op->wq, (const T *)op->wk}};
}

void cuda_head_norm_sums(struct gpt_queue *q, const struct gpt_head_norm *op, const void *dqkv,
                         float *sums)
{
    if (!cuda_ready(q, "head_norm_sums", op->act) || !op->n)
        return;
    with_type(op->act, [&](auto type) {
        using T = decltype(type);

        launch(q, sum_rows<T>, cuda_blocks(op->n, WARPS), THREADS, 0, rows_of<T>(op, NULL),
               (const T *)dqkv, sums);
    });
}

void cuda_wide_norm(struct gpt_queue *q, const struct gpt_head_norm *op)
{
    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        rows<T> p = rows_of<T>(op, NULL);

        launch(q, norm_rows<T>, cuda_blocks(p.n * p.row, THREADS), THREADS, 0, p, (T *)op->out);
    });
}

/* Gradients of weights come first: they read dqkv before it becomes that of x. */
void cuda_wide_norm_bwd(struct gpt_queue *q, const struct gpt_head_norm *op,
                        const struct gpt_head_norm_grad *grad)
{
    /* Rows of a block depend on n alone, and with them the order of the sums. */
    int64_t each = cuda_blocks(op->n, MOST_BLOCKS), blocks = cuda_blocks(op->n, each);
    int64_t nq = op->h * op->d, nk = op->g * op->d;
    float *part = (float *)grad->scratch;

    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        /* columns over x, blocks of rows over y: neighbours read neighbours */
        rows<T> p = rows_of<T>(op, grad->dots);
        dim3 grid(cuda_blocks(p.row, THREADS), (unsigned)blocks);

        launch(q, weight_grads<T>, grid, THREADS, 0, p, (const T *)grad->dqkv, part, each);
        launch(q, norm_rows_grad<T>, cuda_blocks(p.n * p.row, THREADS), THREADS, 0, p,
               (T *)grad->dqkv);
    });
    cuda_add_columns(q, {{grad->dwq, grad->dwk}, {nq, nk}}, part, blocks);
}
