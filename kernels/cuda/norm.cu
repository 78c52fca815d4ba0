/* LayerNorm and RMSNorm forward, with the residual add and dropout before
 * them: one block a row, which stays in shared memory between the passes. */
#include "cuda/device.cuh"

template <class T> struct forward {
    int64_t c;
    bool centred;
    float eps, offset; /* offset: 1 is added to weights, or 0 */
    const T *resid_in, *x, *w, *b;
    T *resid_out, *y;
    float *mean, *rstd;
    struct cuda_drop drop;
};

/* W elements of resid_out, as memory holds them. */
template <class T, int W>
static __device__ void residual(const forward<T> &p, int64_t i, int64_t j, float (&r)[W])
{
    load(r, p.resid_in + i * p.c + j);
    if (p.x) {
        float x[W];

        load(x, p.x + i * p.c + j);
        drop_row(x, p.drop, i, p.c, j);
#pragma unroll
        for (int e = 0; e < W; e++)
            r[e] += x[e];
    }
    /* store() also rounds r: the norm is that of the sum as it is stored. */
    if (p.x || p.resid_out != p.resid_in)
        store(p.resid_out + i * p.c + j, r);
}

template <class T, int W> static __global__ void norm_rows(forward<T> p)
{
    float *row = dynamic_floats();
    int64_t i = blockIdx.x, step = blockDim.x * W, first = threadIdx.x * W;
    float sum[1] = {0}, mean = 0;

    for (int64_t j = first; j < p.c; j += step) {
        float r[W];

        residual(p, i, j, r);
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
        float y[W], w[W], b[W] = {};

        load(y, row + j);
        load(w, p.w + j);
        if (p.b)
            load(b, p.b + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            y[e] = (y[e] - mean) * rstd * (w[e] + p.offset) + b[e];
        store(p.y + i * p.c + j, y);
    }
    if (threadIdx.x == 0) {
        if (p.centred)
            p.mean[i] = mean;
        p.rstd[i] = rstd;
    }
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
        forward<T> p = {op->c, op->kind == GPT_LAYERNORM, op->eps,
                     op->plus_one ? 1.0f : 0.0f, (const T *)op->resid_in, (const T *)op->x,
                     (const T *)op->w, (const T *)op->b, (T *)op->resid_out, (T *)op->y,
                     op->mean, op->rstd, cuda_drop_of(&op->dropout)};
        /* A block a row: the order of a row's sum depends on c and W alone, and W
         * on how rows lie in memory. */
        if (!cuda_fits(q, norm_rows<T, W>, "rows", op->c, sizeof(float)))
            return;
        launch(q, norm_rows<T, W>, op->n, cuda_threads(op->c / W, 256), shared, p);
    });
}
