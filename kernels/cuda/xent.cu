/* Softmax cross-entropy and its gradient in place, one block a row: one pass
 * for maximum and sum together (Milakov and Gimelshein 2018), one for the
 * gradient. Rows of which two fit into a multiprocessor's shared memory are read
 * once: the rows that a GPU has under way together are more than its L2 cache
 * holds. Where ranks hold parts of the vocabulary they exchange what the
 * first pass found before the second, which starts from the logits again. */
#include "cuda/device.cuh"

enum { MOST_THREADS = 512 };

template <class T> struct loss {
    int64_t n, v, v_real, v_begin;
    int64_t real; /* columns here that are words and no dummies */
    int64_t ld;
    T *logits;
    const int32_t *target;
    const float *weight, *scale; /* scale: NULL: 1 */
    float *loss;
    bool grad;
    float smoothing, z_loss;
    struct cuda_fault *fault;
};

/* This thread's share of the row: its maximum, and the sum of exp(x - max). keep:
 * where the share stays, or NULL. */
template <class T, int W>
static __device__ void max_and_sum(const T *row, int64_t n, T *keep, float *max, float *sum)
{
    *max = -INFINITY;
    *sum = 0;
    for (int64_t j = threadIdx.x * W; j < n; j += blockDim.x * W) {
        float x[W], top = *max;

        load(x, row + j);
        if (keep)
            store(keep + j, x); /* exact: x has the values of the type */
#pragma unroll
        for (int e = 0; e < W; e++) {
            x[e] = j + e < n ? x[e] : -INFINITY;
            top = x[e] <= top ? top : x[e]; /* NaN gets in, and stays */
        }
        /* Without the test, -inf less -inf would be NaN before the first logit. */
        *sum *= top == *max ? 1 : expf(*max - top);
        *max = top;
#pragma unroll
        for (int e = 0; e < W; e++)
            *sum += x[e] == -INFINITY ? 0 : expf(x[e] - top);
    }
}

/* What smoothing spreads over each column. */
template <class T> static __device__ float spread_of(const loss<T> &p)
{
    return p.smoothing / (float)p.v_real;
}

/* The loss of a row, `sum` being that of its logits; see kernels/cpu/xent.c. */
template <class T>
static __device__ float loss_of(const loss<T> &p, float lse, float target, float sum)
{
    float x = lse - target;

    if (p.smoothing > 0)
        x += p.smoothing * target - spread_of(p) * sum;
    return p.z_loss > 0 ? x + p.z_loss * lse * lse : x;
}

/* Sum of the row's real logits here, for smoothing alone; thread 0 gets it. */
template <class T, int W> static __device__ float sum_logits(const loss<T> &p, const T *row)
{
    float sum[1] = {0};

    if (!(p.smoothing > 0))
        return 0;
    for (int64_t j = threadIdx.x; j < p.real; j += blockDim.x)
        sum[0] += to_float(row[j]);
    block_sum(sum);
    return sum[0];
}

/* (softmax - [j = target]) weight; 0 past the real columns. from: the logits of
 * the columns that this thread reads, the row itself or what was kept of it. */
template <class T, int W>
static __device__ void gradient(const loss<T> &p, T *row, const T *from, int64_t target,
                                float weight, float lse)
{
    float more = 1 + 2 * p.z_loss * lse, spread = spread_of(p);

    for (int64_t j = threadIdx.x * W; j < p.v; j += blockDim.x * W) {
        float x[W] = {};

        if (j < p.real) /* what lies past was not kept */
            load(x, from + j);
#pragma unroll
        for (int e = 0; e < W; e++) {
            /* lse holds maximum and sum: no division, nothing to overflow. */
            float g = expf(x[e] - lse) * more - spread -
                      (j + e == target ? 1.0f - p.smoothing : 0.0f);

            x[e] = j + e < p.real && weight != 0 ? g * weight : 0;
        }
        store(row + j, x);
    }
}

/* Largest and sum over the row's real columns here; every thread gets them. */
template <class T, int W>
static __device__ void row_stats(const loss<T> &p, const T *row, T *keep, float *top,
                                 float *total)
{
    float max, sum[1];

    max_and_sum<T, W>(row, p.real, keep, &max, &sum[0]);
    *top = block_max(max);
    sum[0] *= max == *top ? 1 : expf(max - *top);
    block_sum(sum);
    *total = sum[0];
}

template <class T> static __device__ float weight_of(const loss<T> &p, int64_t i)
{
    return p.scale ? p.weight[i] * *p.scale : p.weight[i];
}

/* False, for the whole block, when row i's target is no word. */
template <class T> static __device__ bool good_target(const loss<T> &p, int64_t i)
{
    int target = p.target[i];

    if (target >= 0 && target < p.v_real)
        return true;
    if (threadIdx.x == 0)
        raise_fault(p.fault, CUDA_FAULT_TARGET, i, target, p.v_real);
    return false;
}

/* KEPT: the row stays in shared memory until its gradient is written. */
template <class T, int W, bool KEPT>
static __global__ void __launch_bounds__(MOST_THREADS) whole_row(loss<T> p)
{
    int64_t i = blockIdx.x;
    T *row = p.logits + i * p.ld, *keep = NULL;

    if (KEPT)
        keep = reinterpret_cast<T *>(dynamic_floats());

    if (!good_target(p, i))
        return;
    /* Read before the gradient overwrites it; the barriers of row_stats() are in
     * between. */
    float at_target = to_float(row[p.target[i]]), top, sum;
    row_stats<T, W>(p, row, keep, &top, &sum);
    float lse = top + logf(sum), logits = sum_logits<T, W>(p, row);
    if (threadIdx.x == 0)
        p.loss[i] = loss_of(p, lse, at_target, logits);
    if (p.grad)
        gradient<T, W>(p, row, KEPT ? keep : row, p.target[i], weight_of(p, i), lse);
}

/* What ranks tell each other of a row. */
enum { LARGEST, SUM, TARGET, LOGITS };

template <class T, int W>
static __global__ void __launch_bounds__(MOST_THREADS) partial_row(loss<T> p, float *stats)
{
    int64_t i = blockIdx.x;
    const T *row = p.logits + i * p.ld;

    if (!good_target(p, i))
        return;
    int64_t at = p.target[i] - p.v_begin;
    float top, sum;
    row_stats<T, W>(p, row, (T *)NULL, &top, &sum);
    float logits = sum_logits<T, W>(p, row);
    if (threadIdx.x == 0) {
        stats += i * GPT_XENT_STATS;
        stats[LOGITS] = logits;
        stats[LARGEST] = top;
        stats[SUM] = sum;
        stats[TARGET] = at >= 0 && at < p.real ? to_float(row[at]) : 0;
    }
}

/* stats: (ranks, N, GPT_XENT_STATS) */
template <class T, int W>
static __global__ void __launch_bounds__(MOST_THREADS)
    finish_row(loss<T> p, const float *stats, int64_t ranks)
{
    int64_t i = blockIdx.x, next = p.n * GPT_XENT_STATS;
    float max = -INFINITY, sum = 0, target = 0, logits = 0;

    stats += i * GPT_XENT_STATS;
    for (int64_t r = 0; r < ranks; r++)
        max = fmaxf(max, stats[r * next + LARGEST]);
    for (int64_t r = 0; r < ranks; r++) {
        /* In the order of ranks: all of them find the same, bit for bit. */
        sum += stats[r * next + SUM] * expf(stats[r * next + LARGEST] - max); /* NaN stays */
        target += stats[r * next + TARGET];
        logits += stats[r * next + LOGITS];
    }
    float lse = max + logf(sum);
    if (threadIdx.x == 0)
        p.loss[i] = loss_of(p, lse, target, logits);
    T *row = p.logits + i * p.ld;
    if (p.grad)
        gradient<T, W>(p, row, row, p.target[i] - p.v_begin, weight_of(p, i), lse);
}

/* Calls f(loss<T>, W, threads of a row) for the row's type and width. */
template <class F> static void with_loss(struct gpt_queue *q, const struct gpt_xent *op, F f)
{
    int64_t ld = op->ld ? op->ld : op->v, real = op->v_real - op->v_begin;

    real = real < 0 ? 0 : real < op->v ? real : op->v;
    /* Both the stride and the row must allow wide accesses. */
    bool wide = cuda_wide(op->act, ld, op->logits) && cuda_wide(op->act, op->v);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        loss<T> p = {op->n, op->v, op->v_real, op->v_begin, real, ld, (T *)op->logits,
                     op->target, op->weight, op->scale, op->loss, op->grad,
                     op->smoothing, op->z_loss, q->fault};
        f(p, width, cuda_threads(op->v / width, MOST_THREADS));
    });
}

/* The type of the logits. */
template <class T> static T logit_of(const loss<T> &) { return T(); }

/* A block with a multiprocessor for itself would not write while it reads: two
 * are to fit, with static memory and a KiB that each costs. */
static bool fits_twice(const struct gpt_queue *q, size_t row)
{
    const size_t besides = 2048;

    return 2 * (row + besides) <= q->shared_most;
}

void cuda_xent(struct gpt_queue *q, const struct gpt_xent *op)
{
    if (!cuda_ready(q, "xent", op->act) || !op->n)
        return;
    with_loss(q, op, [&](auto p, auto width, unsigned threads) {
        using T = decltype(logit_of(p));
        const int W = decltype(width)::value;
        size_t row = (size_t)op->v * sizeof(T);
        if (W > 1 && op->grad && fits_twice(q, row))
            launch(q, whole_row<T, W, true>, op->n, threads, row, p);
        else
            launch(q, whole_row<T, W, false>, op->n, threads, 0, p);
    });
}

void cuda_xent_partial(struct gpt_queue *q, const struct gpt_xent *op, float *stats)
{
    if (!cuda_ready(q, "xent_partial", op->act) || !op->n)
        return;
    with_loss(q, op, [&](auto p, auto width, unsigned threads) {
        using T = decltype(logit_of(p));
        launch(q, partial_row<T, decltype(width)::value>, op->n, threads, 0, p, stats);
    });
}

void cuda_xent_finish(struct gpt_queue *q, const struct gpt_xent *op, const float *stats,
                      int64_t ranks, int64_t rank)
{
    (void)rank; /* the logits are still here */
    if (!cuda_ready(q, "xent_finish", op->act) || !op->n)
        return;
    with_loss(q, op, [&](auto p, auto width, unsigned threads) {
        using T = decltype(logit_of(p));
        launch(q, finish_row<T, decltype(width)::value>, op->n, threads, 0, p, stats, ranks);
    });
}
