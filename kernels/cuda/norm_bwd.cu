/* LayerNorm and RMSNorm backward. A block goes over a run of rows; gradients of
 * w and b gather in its shared memory, each thread owning its columns, and the
 * blocks' sums are added in order at the end. With norm = (x - mean) rstd and
 * dnorm = dy w:
 *   dresid += rstd (dnorm - mean(dnorm) - norm mean(dnorm norm))
 * (without the first mean for RMSNorm). */
#include "cuda/device.cuh"

/* More than a GPU has multiprocessors, few enough to be added up quickly. How
 * many there are depends on n alone, and so does the order of sums. */
enum { MOST_BLOCKS = 512 };

template <class T> struct backward {
    int64_t n, c, each;
    bool centred;
    float offset; /* 1 is added to weights, or 0 */
    const T *dy, *x, *w;
    const float *mean, *rstd;
    T *dresid, *dx;
    float *part; /* (blocks, 2, C): dw, db */
    struct cuda_drop drop;
};

/* dw, db and the row's two means; then dresid and dx. */
template <class T, int W>
static __device__ void norm_row(const backward<T> &p, int64_t i, float *dw, float *db)
{
    int64_t step = blockDim.x * W, first = threadIdx.x * W, at = i * p.c;
    float mean = p.centred ? p.mean[i] : 0, rstd = p.rstd[i];
    float sums[2] = {0, 0};

    for (int64_t j = first; j < p.c; j += step) {
        float dy[W], x[W], w[W], gw[W], gb[W];

        load(dy, p.dy + at + j);
        load(x, p.x + at + j);
        load(w, p.w + j);
        load(gw, dw + j);
        load(gb, db + j);
#pragma unroll
        for (int e = 0; e < W; e++) {
            float norm = (x[e] - mean) * rstd, dnorm = dy[e] * (w[e] + p.offset);

            sums[0] += dnorm;
            sums[1] += dnorm * norm;
            gw[e] += dy[e] * norm;
            gb[e] += dy[e];
        }
        store(dw + j, gw);
        store(db + j, gb);
    }
    /* Both sums cross the block together: one barrier for two. */
    block_sum(sums);
    float m0 = p.centred ? sums[0] / (float)p.c : 0, m1 = sums[1] / (float)p.c;
    for (int64_t j = first; j < p.c; j += step) {
        float dy[W], x[W], w[W], dr[W];

        load(dy, p.dy + at + j);
        load(x, p.x + at + j);
        load(w, p.w + j);
        load(dr, p.dresid + at + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            /* dresid comes in with what flows past the norm. */
            dr[e] += rstd * (dy[e] * (w[e] + p.offset) - m0 - (x[e] - mean) * rstd * m1);
        store(p.dresid + at + j, dr);
        if (!p.dx)
            continue;
        if (p.drop.below)
            drop(dr, p.drop, drop_index(p.drop, i, p.c) + j);
        store(p.dx + at + j, dr);
    }
}

template <class T, int W> static __global__ void norm_grads(backward<T> p)
{
    float *dw = dynamic_floats(), *db = dw + p.c;
    int64_t step = blockDim.x * W, first = threadIdx.x * W;

    for (int64_t j = first; j < 2 * p.c; j += step) {
        float zero[W] = {};

        store(dw + j, zero);
    }
    __syncthreads();
    /* A thread has the same columns in every row: dw and db need no barrier
     * between rows. */
    int64_t begin = (int64_t)blockIdx.x * p.each;
    int64_t end = begin + p.each < p.n ? begin + p.each : p.n;
    for (int64_t i = begin; i < end; i++)
        norm_row<T, W>(p, i, dw, db);
    float *part = p.part + (int64_t)blockIdx.x * 2 * p.c;
    __syncthreads();
    for (int64_t j = first; j < 2 * p.c; j += step) {
        float sum[W];

        load(sum, dw + j);
        store(part + j, sum);
    }
}

/* Rows of a block. */
static int64_t rows_each(int64_t n)
{
    return cuda_blocks(n, MOST_BLOCKS);
}

size_t cuda_norm_scratch(int64_t n, int64_t c)
{
    return n ? (size_t)(cuda_blocks(n, rows_each(n)) * 2 * c) * sizeof(float) : 64;
}

void cuda_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                   const struct gpt_norm_grad *grad)
{
    size_t shared = (size_t)(2 * op->c) * sizeof(float);

    if (!cuda_ready(q, "norm_bwd", op->act) || !op->n)
        return;
    int64_t each = rows_each(op->n), blocks = cuda_blocks(op->n, each), c = op->c;
    float *part = (float *)grad->scratch;
    bool wide =
        cuda_wide(op->act, c, grad->dy, op->resid_out, op->w, grad->dresid, grad->dx, part);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        backward<T> p = {op->n, c, each, op->kind == GPT_LAYERNORM,
                         op->plus_one ? 1.0f : 0.0f, (const T *)grad->dy,
                     (const T *)op->resid_out, (const T *)op->w, op->mean, op->rstd,
                     (T *)grad->dresid, (T *)grad->dx, part, cuda_drop_of(&op->dropout)};
        if (!cuda_fits(q, norm_grads<T, W>, "rows", c, 2 * sizeof(float)))
            return;
        launch(q, norm_grads<T, W>, blocks, cuda_threads(c / W, 256), shared, p);
    });
    /* Blocks' sums in order; dw and db lie side by side in part. */
    cuda_add_columns(q, grad->dw, part, blocks, c, 2 * c);
    if (grad->db)
        cuda_add_columns(q, grad->db, part + c, blocks, c, 2 * c);
}
