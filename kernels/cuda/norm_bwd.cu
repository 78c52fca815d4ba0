/* LayerNorm and RMSNorm backward. A block goes over a run of rows; gradients of
 * w and b gather in it, each thread owning its columns, and the blocks' sums are
 * added in order at the end. With norm = (x - mean) rstd and dnorm = dy w:
 *   dresid += rstd (dnorm - mean(dnorm) - norm mean(dnorm norm))
 * (without the first mean for RMSNorm).
 *
 * Two kernels: norm_grads_warps has a row in the registers of one to eight warps,
 * reads it once, and goes over several rows at a time; norm_grads takes rows of
 * any length and alignment, a block a row. */
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
        drop_row(dr, p.drop, i, p.c, j);
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

enum { WARPS = 8, LANES = 32 };

/* The sum over the warps of a row of two numbers of each lane. Two places serve in
 * turns: a warp that is one row ahead does not overwrite what another still
 * reads, so that one barrier a row is enough. */
static __device__ void row_sum(float (&x)[2], int warps, int turn)
{
    __shared__ float part[2][WARPS][2];
    int warp = threadIdx.x / LANES, first = warp / warps * warps;

    x[0] = warp_sum(x[0]);
    x[1] = warp_sum(x[1]);
    if (warps == 1)
        return;
    if (threadIdx.x % LANES == 0)
        part[turn][warp][0] = x[0], part[turn][warp][1] = x[1];
    __syncthreads();
    x[0] = x[1] = 0;
    for (int i = 0; i < warps; i++)
        x[0] += part[turn][first + i][0], x[1] += part[turn][first + i][1];
}

/* PIECES of W elements a lane, as memory has them: half the registers of floats. */
template <class T, int W, int PIECES> struct row_share {
    pack<T, W> at[PIECES];
};

/* This lane's pieces of a row begin at `first`, `step` apart; zeros past c. */
template <class T, int W, int PIECES>
static __device__ void load_share(row_share<T, W, PIECES> &r, const T *row, int first, int step,
                                  int64_t c)
{
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        r.at[k] = {};
        if (first + k * step < c)
            r.at[k] = *reinterpret_cast<const pack<T, W> *>(row + first + k * step);
    }
}

/* dresid and dx of one row, from its sums divided by c. */
template <class T, int W, int PIECES>
static __device__ void row_grads(const backward<T> &p, int64_t i, int first, int step,
                                 const row_share<T, W, PIECES> &dy,
                                 const row_share<T, W, PIECES> &x, const float (&m)[2])
{
    float mean = p.centred ? p.mean[i] : 0, rstd = p.rstd[i];
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        int64_t j = first + k * step, at = i * p.c + j;
        float w[W], dr[W];

        if (j >= p.c)
            continue;
        load(w, p.w + j);
        load(dr, p.dresid + at);
#pragma unroll
        for (int e = 0; e < W; e++) {
            float norm = (to_float(x.at[k].v[e]) - mean) * rstd;

            dr[e] += rstd * (to_float(dy.at[k].v[e]) * (w[e] + p.offset) - m[0] - norm * m[1]);
        }
        store(p.dresid + at, dr);
        if (!p.dx)
            continue;
        drop_row(dr, p.drop, i, p.c, j);
        store(p.dx + at, dr);
    }
}

/* Adds the rows' gradients of weights, a group of warps after the other, and writes
 * the block's. */
template <int W, int PIECES>
static __device__ void add_groups(float *to, const float (&g)[PIECES][W], int first, int step,
                                  int64_t c, int group, int groups)
{
    float *sums = dynamic_floats();

    for (int k = 0; k < groups; k++) {
        __syncthreads(); /* also before the first: the sums of w are read */
        if (group != k)
            continue;
#pragma unroll
        for (int i = 0; i < PIECES; i++)
#pragma unroll
            for (int e = 0; e < W; e++) {
                float *sum = sums + first + i * step + e;

                if (first + i * step < c)
                    *sum = k ? *sum + g[i][e] : g[i][e];
            }
    }
    __syncthreads();
    for (int64_t j = threadIdx.x; j < c; j += WARPS * LANES)
        to[j] = sums[j];
}

/* warps: of a row. All of a block's warps go through the same number of turns, as
 * barriers are the block's. */
template <class T, int W, int PIECES>
static __global__ void __launch_bounds__(WARPS * LANES, 2)
    norm_grads_warps(backward<T> p, int warps)
{
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, groups = WARPS / warps;
    int group = warp / warps, first = (warp % warps * LANES + lane) * W;
    int step = warps * LANES * W, turn = 0;
    int64_t begin = (int64_t)blockIdx.x * p.each, end = min(begin + p.each, p.n);
    float gw[PIECES][W] = {}, gb[PIECES][W] = {};

    for (int64_t i0 = begin; i0 < end; i0 += groups, turn = 1 - turn) {
        int64_t i = i0 + group;
        bool here = i < end; /* the same for all warps of a row */
        float mean = here && p.centred ? p.mean[i] : 0, rstd = here ? p.rstd[i] : 0;
        float sums[2] = {0, 0};
        row_share<T, W, PIECES> dy, x;
        load_share(dy, p.dy + i * p.c, first, step, here ? p.c : 0);
        load_share(x, p.x + i * p.c, first, step, here ? p.c : 0);
        /* A row that is not there brings zeros: its warps go to the barrier, too. */
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            float w[W] = {};

            if (first + k * step < p.c)
                load(w, p.w + first + k * step);
#pragma unroll
            for (int e = 0; e < W; e++) {
                float g = to_float(dy.at[k].v[e]);
                float norm = (to_float(x.at[k].v[e]) - mean) * rstd;

                sums[0] += g * (w[e] + p.offset);
                sums[1] += g * (w[e] + p.offset) * norm;
                gw[k][e] += g * norm;
                gb[k][e] += g;
            }
        }
        row_sum(sums, warps, turn);
        const float m[2] = {p.centred ? sums[0] / (float)p.c : 0, sums[1] / (float)p.c};
        if (here)
            row_grads(p, i, first, step, dy, x, m);
    }
    float *part = p.part + (int64_t)blockIdx.x * 2 * p.c;
    add_groups(part, gw, first, step, p.c, group, groups);
    add_groups(part + p.c, gb, first, step, p.c, group, groups);
}

/* Calls f(PIECES, warps): a lane's share of a row of c elements, in pieces of W;
 * false when a row is too long for the registers of a block. */
template <int W, class F> static bool with_share(int64_t c, F f)
{
    /* 24 sums for w and 24 for b; 16 of float, whose rows take more registers */
    const int most = W == 8 ? 3 : 4;
    int warps = 1;

    while (warps < WARPS && c > (int64_t)warps * LANES * W * most)
        warps *= 2;
    int64_t pieces = cuda_blocks(c, (int64_t)warps * LANES * W);
    if (pieces > most)
        return false;
    if (pieces == 1)
        f(std::integral_constant<int, 1>(), warps);
    else if (pieces == 2)
        f(std::integral_constant<int, 2>(), warps);
    else
        f(std::integral_constant<int, most>(), warps);
    return true;
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
        bool done = false;
        if constexpr (W > 1)
            done = with_share<W>(c, [&](auto pieces, int warps) {
                launch(q, norm_grads_warps<T, W, pieces.value>, blocks, WARPS * LANES,
                       c * sizeof(float), p, warps);
            });
        if (done || !cuda_fits(q, norm_grads<T, W>, "rows", c, 2 * sizeof(float)))
            return;
        launch(q, norm_grads<T, W>, blocks, cuda_threads(c / W, 256), shared, p);
    });
    /* Blocks' sums in order; dw and db lie side by side in part. */
    cuda_add_columns(q, grad->dw, part, blocks, c, 2 * c);
    if (grad->db)
        cuda_add_columns(q, grad->db, part + c, blocks, c, 2 * c);
}
