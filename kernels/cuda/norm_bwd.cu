/* LayerNorm and RMSNorm backward. A block goes over a run of rows; gradients of
 * w and b gather in it, each thread owning its columns, and the blocks' sums are
 * added in order at the end. With norm = (x - mean) rstd and dnorm = dy w:
 *   dresid += rstd (dnorm - mean(dnorm) - norm mean(dnorm norm))
 * (without the first mean for RMSNorm).
 *
 * Two kernels: norm_grads_warps has a row in the registers of a few warps, reads it
 * once, and goes over several rows at a time; norm_grads takes rows of any length
 * and alignment, a block a row. */
#include "cuda/norm.cuh"

template <class T> struct backward {
    int64_t n, c, each;
    bool centred;
    float offset; /* 1 is added to weights, which are 0 where w is NULL, or 0 */
    const T *dy, *x, *w;
    const float *mean, *rstd;
    T *dresid, *dx;
    float *part; /* (blocks, 2, C): dw, db */
    struct cuda_drop drop;
};

/* W weights; zeros where there are none. */
template <class T, int W>
static __device__ inline void load_weights(float (&w)[W], const backward<T> &p, int64_t j)
{
#pragma unroll
    for (int e = 0; e < W; e++)
        w[e] = 0;
    if (p.w)
        load(w, p.w + j);
}

/* dw, db and the row's two means; then dresid and dx. */
template <class T, int W>
static __device__ void norm_row(const backward<T> &p, int64_t i, float *dw, float *db)
{
    int64_t step = blockDim.x * W, first = threadIdx.x * W, at = i * p.c;
    float mean = p.centred ? p.mean[i] : 0, rstd = p.rstd[i];
    float sums[2] = {0, 0};
    uint64_t counter = drop_begin(p.drop, i, p.c);

    for (int64_t j = first; j < p.c; j += step) {
        float dy[W], x[W], w[W], gw[W], gb[W];

        load(dy, p.dy + at + j);
        load(x, p.x + at + j);
        load_weights(w, p, j);
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
        load_weights(w, p, j);
        load(dr, p.dresid + at + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            /* dresid comes in with what flows past the norm. */
            dr[e] += rstd * (dy[e] * (w[e] + p.offset) - m0 - (x[e] - mean) * rstd * m1);
        store(p.dresid + at + j, dr);
        if (!p.dx)
            continue;
        drop_any(dr, p.drop, counter + j);
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

/* ---- rows in registers ---- */

/* PIECES of W elements of a row that a lane has, as memory has them. */
template <class T, int W, int PIECES> struct row_share {
    words<T, W> dy[PIECES], x[PIECES], dresid[PIECES];
    float mean, rstd;
};

/* The columns of a lane's pieces of a row: from `first` on, `step` apart, before c. */
struct columns {
    int first, step, c;
};

/* Reads all of a row's pieces at once: nothing is waited for before all is asked for. Where there
 * is no row, and past c, they are zeros. */
template <class T, int W, int PIECES>
static __device__ void load_row(row_share<T, W, PIECES> &r, const backward<T> &p, int64_t i,
                                bool here, const columns &at)
{
    r = {};
    if (!here)
        return;
    r.mean = p.centred ? p.mean[i] : 0;
    r.rstd = p.rstd[i];
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        int j = at.first + k * at.step;

        if (j >= at.c)
            continue;
        r.dy[k] = load_words<W>(p.dy + i * p.c + j);
        r.x[k] = load_words<W>(p.x + i * p.c + j);
        r.dresid[k] = load_words<W>(p.dresid + i * p.c + j);
    }
}

/* Adds a row to the gradients of weights, and to its sums of dnorm, dnorm norm. */
template <class T, int W, int PIECES>
static __device__ void add_row(const row_share<T, W, PIECES> &r, const words<T, W> (&w)[PIECES],
                               float offset, float (&gw)[PIECES][W], float (&gb)[PIECES][W],
                               float *sums)
{
#pragma unroll
    for (int k = 0; k < PIECES; k++)
#pragma unroll
        for (int e = 0; e < W; e++) {
            float g = element(r.dy[k], e);
            float norm = (element(r.x[k], e) - r.mean) * r.rstd;
            float dnorm = g * (element(w[k], e) + offset);

            sums[0] += dnorm;
            sums[1] += dnorm * norm;
            gw[k][e] += g * norm;
            gb[k][e] += g;
        }
}

template <class T, int W, int PIECES>
static __device__ void convert_again(row_share<T, W, PIECES> &r, words<T, W> (&w)[PIECES])
{
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        convert_again(r.dy[k]);
        convert_again(r.x[k]);
        convert_again(r.dresid[k]);
        convert_again(w[k]);
    }
}

/* Computes dresid and dx of row i, whose means of dnorm and dnorm norm are m0 and m1. */
template <class T, int W, int PIECES>
static __device__ void row_grads(const backward<T> &p, const row_share<T, W, PIECES> &r,
                                 const words<T, W> (&w)[PIECES], int64_t i, float m0, float m1,
                                 const columns &at)
{
    uint64_t counter = drop_begin(p.drop, i, p.c);

#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        int j = at.first + k * at.step;
        float dr[W];

        if (j >= at.c)
            continue;
        unpack(dr, r.dresid[k]);
#pragma unroll
        for (int e = 0; e < W; e++) {
            float norm = (element(r.x[k], e) - r.mean) * r.rstd;
            float dnorm = element(r.dy[k], e) * (element(w[k], e) + p.offset);

            dr[e] += r.rstd * (dnorm - m0 - norm * m1);
        }
        store(p.dresid + i * p.c + j, dr);
        if (!p.dx)
            continue;
        drop_any(dr, p.drop, counter + j);
        store(p.dx + i * p.c + j, dr);
    }
}

/* Adds the gradients of the groups' rows, in the order of groups, and writes the
 * block's: (2, C). */
template <int W, int PIECES>
static __device__ void write_part(float *part, const float (&gw)[PIECES][W],
                                  const float (&gb)[PIECES][W], const columns &at, int group,
                                  int groups)
{
    float *sums = dynamic_floats(), *own = sums + group * 2 * at.c;

#pragma unroll
    for (int k = 0; k < PIECES; k++)
#pragma unroll
        for (int e = 0; e < W; e++) {
            int j = at.first + k * at.step + e;

            if (j < at.c)
                own[j] = gw[k][e], own[at.c + j] = gb[k][e];
        }
    __syncthreads();
    for (int j = threadIdx.x; j < 2 * at.c; j += blockDim.x) {
        float sum = 0;

        for (int k = 0; k < groups; k++)
            sum += sums[k * 2 * at.c + j];
        part[j] = sum;
    }
}

/* Groups of `warps` warps have a row each. All of a block's warps go through the same
 * number of turns, as barriers are the block's. */
template <class T, int W, int PIECES, int THREADS, int BLOCKS>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    norm_grads_warps(backward<T> p, int warps)
{
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, group = warp / warps;
    int groups = blockDim.x / LANES / warps, turn = 0;
    const columns at = {(warp % warps * LANES + lane) * W, warps * LANES * W, (int)p.c};
    int64_t begin = (int64_t)blockIdx.x * p.each, end = min(begin + p.each, p.n);
    float gw[PIECES][W] = {}, gb[PIECES][W] = {};
    words<T, W> w[PIECES] = {};

#pragma unroll
    for (int k = 0; k < PIECES; k++)
        if (p.w && at.first + k * at.step < at.c)
            w[k] = load_words<W>(p.w + at.first + k * at.step);
    /* The next row is on its way while this one is computed, where a lane has the
     * registers. */
    const bool ahead = sizeof(T) == 2 && PIECES == 1;
    row_share<T, W, PIECES> r, next;
    load_row(r, p, begin + group, begin + group < end, at);
    for (int64_t i0 = begin; i0 < end; i0 += groups, turn = 1 - turn) {
        int64_t i = i0 + group;
        float sums[2] = {};

        /* A row that is not there brings zeros: its warps go to the barrier, too. */
        if (ahead)
            load_row(next, p, i + groups, i + groups < end, at);
        add_row(r, w, p.offset, gw, gb, sums);
        convert_again(r, w);
        warps_sum(sums, warps, turn);
        if (i < end)
            row_grads(p, r, w, i, p.centred ? sums[0] / (float)p.c : 0, sums[1] / (float)p.c, at);
        if (!ahead)
            load_row(next, p, i + groups, i + groups < end, at);
        r = next;
    }
    write_part(p.part + (int64_t)blockIdx.x * 2 * p.c, gw, gb, at, group, groups);
}

/* Puts norm_grads_warps on the queue, for rows of W PIECES elements a lane; false
 * when a row is longer. */
template <int W, int PIECES, class T>
static bool launch_warps(struct gpt_queue *q, const backward<T> &p, int64_t blocks)
{
    /* Where a lane has few sums, three blocks fit into a multiprocessor. */
    const bool few = W * PIECES <= 8;
    const int most = few ? 8 : 16;
    int64_t warps = cuda_blocks(p.c, LANES * W * PIECES), groups = warps < 8 ? 8 / warps : 1;

    if (warps > most)
        return false;
    launch(q, norm_grads_warps<T, W, PIECES, most * LANES, few ? 3 : 1>, blocks,
           warps * groups * LANES, groups * 2 * p.c * sizeof(float), p, (int)warps);
    return true;
}

void cuda_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                   const struct gpt_norm_grad *grad)
{
    size_t shared = (size_t)(2 * op->c) * sizeof(float);

    if (!cuda_ready(q, "norm_bwd", op->act) || !op->n)
        return;
    int64_t each = gpu_norm_rows_each(op->n), blocks = cuda_blocks(op->n, each), c = op->c;
    float *part = (float *)grad->scratch;
    bool wide =
        cuda_wide(op->act, c, grad->dy, op->resid_out, op->w, grad->dresid, grad->dx, part);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        backward<T> p = {op->n, c, each, op->kind == GPT_LAYERNORM,
                         op->plus_one || !op->w ? 1.0f : 0.0f, (const T *)grad->dy,
                     (const T *)op->resid_out, (const T *)op->w, op->mean, op->rstd,
                     (T *)grad->dresid, (T *)grad->dx, part, cuda_drop_of(&op->dropout)};
        bool done = false;
        if constexpr (W > 1)
            done = launch_warps<W, 1>(q, p, blocks) || launch_warps<W, 2>(q, p, blocks);
        if constexpr (W == 4)
            done = done || launch_warps<W, 3>(q, p, blocks);
        if (done || !cuda_fits(q, norm_grads<T, W>, "rows", c, 2 * sizeof(float)))
            return;
        launch(q, norm_grads<T, W>, blocks, cuda_threads(c / W, 256), shared, p);
    });
    /* dw and db lie side by side in part. */
    cuda_add_columns(q, {{grad->dw, grad->db}, {c, c}}, part, blocks);
}
