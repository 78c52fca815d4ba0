/* LayerNorm and RMSNorm forward, with the residual add and dropout before
 * them. Two kernels: norm_rows_warps has a row in the registers of a few warps;
 * norm_rows takes rows of any length and alignment, a block a row, which stays in
 * shared memory between the passes. */
#include "cuda/norm.cuh"

template <class T> struct forward {
    int64_t n, c;
    bool centred;
    float eps, offset; /* offset: 1 is added to weights, which are 0 where w is NULL, or 0 */
    const T *resid_in, *x, *w, *b;
    T *resid_out, *y;
    float *mean, *rstd;
    struct cuda_drop drop;
};

/* W elements of a row's inputs. */
template <class T, int W> struct inputs {
    words<T, W> resid, x;
};

template <class T, int W>
static __device__ inline void load_inputs(inputs<T, W> &in, const forward<T> &p, int64_t i,
                                          int64_t j)
{
    in.resid = load_words<W>(p.resid_in + i * p.c + j);
    if (p.x)
        in.x = load_words<W>(p.x + i * p.c + j);
}

/* Computes W elements of resid_out, as memory holds them. */
template <class T, int W>
static __device__ inline void residual(float (&r)[W], const inputs<T, W> &in,
                                       const forward<T> &p, int64_t i, int64_t j,
                                       uint64_t counter)
{
    unpack(r, in.resid);
    if (p.x) {
        float x[W];

        unpack(x, in.x);
        drop_any(x, p.drop, counter + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            r[e] += x[e];
    }
    /* store() also rounds r: the norm is that of the sum as it is stored. */
    if (p.x || p.resid_out != p.resid_in)
        store(p.resid_out + i * p.c + j, r);
}

/* W elements of the parameters. */
template <class T, int W> struct affine {
    words<T, W> w, b;
};

template <class T, int W>
static __device__ inline void load_affine(affine<T, W> &a, const forward<T> &p, int64_t j)
{
    a = {};
    if (p.w)
        a.w = load_words<W>(p.w + j);
    if (p.b)
        a.b = load_words<W>(p.b + j);
}

/* Computes W elements of y. */
template <class T, int W>
static __device__ inline void normed(float (&y)[W], const affine<T, W> &a, const forward<T> &p,
                                     int64_t i, int64_t j, float mean, float rstd)
{
#pragma unroll
    for (int e = 0; e < W; e++)
        y[e] = (y[e] - mean) * rstd * (element(a.w, e) + p.offset) + element(a.b, e);
    store(p.y + i * p.c + j, y);
}

template <class T>
static __device__ inline void store_moments(const forward<T> &p, int64_t i, float mean,
                                            float rstd)
{
    if (p.centred)
        p.mean[i] = mean;
    p.rstd[i] = rstd;
}

template <class T, int W> static __global__ void norm_rows(forward<T> p)
{
    float *row = dynamic_floats();
    int64_t i = blockIdx.x, step = blockDim.x * W, first = threadIdx.x * W;
    float sum[1] = {0}, mean = 0;
    uint64_t counter = drop_begin(p.drop, i, p.c);

    for (int64_t j = first; j < p.c; j += step) {
        inputs<T, W> in;
        float r[W];

        load_inputs(in, p, i, j);
        residual(r, in, p, i, j, counter);
        store(row + j, r);
#pragma unroll
        for (int e = 0; e < W; e++)
            sum[0] += r[e];
    }
    if (!p.y)
        return; /* the whole block */
    if (p.centred) {
        block_sum(sum);
        /* Two passes over the row in shared memory: deviations from the mean
         * itself, so that nothing cancels. */
        mean = sum[0] / (float)p.c;
    }
    sum[0] = 0;
    for (int64_t j = first; j < p.c; j += step) {
        float r[W];

        load(r, row + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            sum[0] += (r[e] - mean) * (r[e] - mean);
    }
    block_sum(sum);
    float rstd = rsqrtf(sum[0] / (float)p.c + p.eps);
    for (int64_t j = first; j < p.c; j += step) {
        affine<T, W> a;
        float y[W];

        load_affine(a, p, j);
        load(y, row + j);
        normed(y, a, p, i, j, mean, rstd);
    }
    if (threadIdx.x == 0)
        store_moments(p, i, mean, rstd);
}

/* A lane has PIECES of W elements of a row, which `warps` neighbouring warps share.
 * All of a block's warps stay to its end, as barriers are the block's. */
template <class T, int W, int PIECES>
static __global__ void __launch_bounds__(BLOCK_WARPS * LANES, W * PIECES > 24 ? 2 : 3)
    norm_rows_warps(forward<T> p, int warps)
{
    int warp = threadIdx.x / LANES, groups = blockDim.x / LANES / warps;
    int first = (warp % warps * LANES + threadIdx.x % LANES) * W, step = warps * LANES * W;
    int64_t i = (int64_t)blockIdx.x * groups + warp / warps;
    int c = i < p.n ? (int)p.c : 0;
    inputs<T, W> in[PIECES] = {};
    float r[PIECES][W] = {}, sum[1] = {0}, mean = 0;

    /* Nothing is waited for before all of the row is asked for. */
    uint64_t counter = drop_begin(p.drop, i, p.c);
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        if (first + k * step < c)
            load_inputs(in[k], p, i, first + k * step);
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        if (first + k * step < c) {
            residual(r[k], in[k], p, i, first + k * step, counter);
#pragma unroll
            for (int e = 0; e < W; e++)
                sum[0] += r[k][e];
        }
    if (!p.y)
        return;
    affine<T, W> a[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        if (first + k * step < c)
            load_affine(a[k], p, first + k * step);
    if (p.centred) {
        warps_sum(sum, warps, 0);
        mean = sum[0] / (float)p.c;
    }
    /* Deviations from the mean itself, so that nothing cancels. */
    sum[0] = 0;
#pragma unroll
    for (int k = 0; k < PIECES; k++)
#pragma unroll
        for (int e = 0; e < W; e++)
            if (first + k * step < c)
                sum[0] += (r[k][e] - mean) * (r[k][e] - mean);
    warps_sum(sum, warps, 1);
    float rstd = rsqrtf(sum[0] / (float)p.c + p.eps);
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        if (first + k * step < c)
            normed(r[k], a[k], p, i, first + k * step, mean, rstd);
    if (first == 0 && c)
        store_moments(p, i, mean, rstd);
}

/* Puts norm_rows_warps on the queue; false when a row is too long for it. */
template <int W, class T> static bool launch_warps(struct gpt_queue *q, const forward<T> &p)
{
    const int64_t lanes = LANES * W, most = 4;
    /* One warp needs no barrier; of several, each has two pieces if that is enough. */
    int64_t warps = p.c <= 3 * lanes ? 1 : min(cuda_blocks(p.c, 2 * lanes), (int64_t)BLOCK_WARPS);
    int64_t pieces = cuda_blocks(p.c, lanes * warps);
    if (pieces > most)
        return false;
    auto put = [&](auto n) {
        int64_t groups = BLOCK_WARPS / warps;

        launch(q, norm_rows_warps<T, W, n.value>, cuda_blocks(p.n, groups),
               groups * warps * LANES, 0, p, (int)warps);
    };
    if (pieces == 1)
        put(std::integral_constant<int, 1>());
    else if (pieces == 2)
        put(std::integral_constant<int, 2>());
    else if (pieces == 3)
        put(std::integral_constant<int, 3>());
    else
        put(std::integral_constant<int, most>());
    return true;
}

void cuda_norm_fwd(struct gpt_queue *q, const struct gpt_norm *op)
{
    size_t shared = (size_t)op->c * sizeof(float);

    if (!cuda_ready(q, "norm_fwd", op->act) || !op->n)
        return;
    bool wide = cuda_wide(op->act, op->c, op->resid_in, op->x, op->resid_out, op->y, op->w,
                          op->b);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        forward<T> p = {op->n, op->c, op->kind == GPT_LAYERNORM, op->eps,
                     op->plus_one || !op->w ? 1.0f : 0.0f, (const T *)op->resid_in,
                     (const T *)op->x, (const T *)op->w, (const T *)op->b,
                     (T *)op->resid_out, (T *)op->y, op->mean, op->rstd,
                     cuda_drop_of(&op->dropout)};
        /* The order of a row's sum depends on c and W alone, and W on how rows lie in
         * memory. */
        if constexpr (W > 1)
            if (launch_warps<W>(q, p))
                return;
        if (!cuda_fits(q, norm_rows<T, W>, "rows", op->c, sizeof(float)))
            return;
        launch(q, norm_rows<T, W>, op->n, cuda_threads(op->c / W, 256), shared, p);
    });
}
