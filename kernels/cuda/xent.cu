/* Softmax cross-entropy and its gradient in place, one block a row: one pass
 * for maximum and sum together (Milakov and Gimelshein 2018), one for the
 * gradient. The first pass keeps as much of the row as fits into shared memory; the
 * second reads only the rest again, from the L2 cache if it is small. Where ranks
 * hold parts of the vocabulary they exchange what the first pass found before
 * the second, which starts from the logits again. */
#include "cuda/device.cuh"

/* A thread has BATCH accesses of memory on their way at a time. Two blocks of
 * HALF_THREADS, or one of MOST_THREADS, fill a multiprocessor's registers. */
enum { HALF_THREADS = 512, MOST_THREADS = 1024, BATCH = 4 };
static const float LOG2E = 1.4426950408889634f;

template <class T> struct loss {
    int64_t n, v_begin;
    int v, v_real;
    int real; /* columns here that are words and no dummies */
    int kept; /* columns that stay in shared memory between the passes */
    int64_t ld;
    T *logits;
    const int32_t *target;
    const float *weight, *scale; /* scale: NULL: 1 */
    float *loss;
    bool grad;
    float smoothing, z_loss;
    struct cuda_fault *fault;
};

/* The largest of some logits of a row, and the sum of exp(x - max) over them. */
struct share {
    float max, sum;
};

/* The factor of a sum up to `max` when the largest logit is `top`. Without the test, -inf less -inf
 * would be NaN before the first logit. */
static __device__ inline float shrink(float max, float top)
{
    return max == top ? 1 : exp2_fast((max - top) * LOG2E);
}

/* Exponentials are powers of 2, of which one product and difference makes
 * exp(x - max): max LOG2E is taken from x LOG2E. */
template <int W> static __device__ inline void add_to_share(share &s, const float (&x)[W])
{
    float top = s.max;
#pragma unroll
    for (int e = 0; e < W; e++)
        top = fmaxf(top, x[e]); /* not NaN: that gets into the sum, and stays */
    float sum = s.sum * shrink(s.max, top), shift = top == -INFINITY ? 0 : top * LOG2E;
#pragma unroll
    for (int e = 0; e < W; e++)
        sum += exp2_fast(x[e] * LOG2E - shift);
    s = {top, sum};
}

/* Reads BATCH pieces of a row, `step` apart, from column j on: none is waited for before all are
 * asked for. The first is before n; it stands in for those that are not. */
template <class T, int W>
static __device__ inline void load_batch(words<T, W> (&at)[BATCH], const T *from, int j, int step,
                                         int n)
{
#pragma unroll
    for (int k = 0; k < BATCH; k++)
        at[k] = load_words<W>(from + (j + k * step < n ? j + k * step : j));
}

/* Keeps x where its column, j or later, is before n, and takes `other` elsewhere. */
template <int W>
static __device__ inline void replace_from(float (&x)[W], int j, int n, float other)
{
#pragma unroll
    for (int e = 0; e < W; e++)
        x[e] = j + e < n ? x[e] : other;
}

/* Computes this thread's share of the columns that are real. The first `kept` stay in `keep`. */
template <class T, int W>
static __device__ share thread_share(const loss<T> &p, const T *row, T *keep, int kept)
{
    const int step = blockDim.x * W;
    share s = {-INFINITY, 0};

    for (int j0 = threadIdx.x * W; j0 < p.real; j0 += BATCH * step) {
        bool whole = j0 + (BATCH - 1) * step + W <= p.real;
        words<T, W> at[BATCH];

        load_batch(at, row, j0, step, p.real);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int j = j0 + k * step;
            float x[W];

            if (j < kept && j < p.real)
                store_words(keep + j, at[k]);
            unpack(x, at[k]);
            if (!whole)
                replace_from(x, j, p.real, -INFINITY);
            add_to_share(s, x);
        }
    }
    return s;
}

static __device__ inline share warp_share(share s)
{
    float top = warp_max(s.max);

    return {top, warp_sum(s.sum * shrink(s.max, top))};
}

/* Joins the shares of all threads of the block; every thread gets the result. */
static __device__ share block_share(share s)
{
    __shared__ share part[MOST_THREADS / 32];
    unsigned lane = threadIdx.x % 32;

    s = warp_share(s);
    if (lane == 0)
        part[threadIdx.x / 32] = s;
    __syncthreads();
    return warp_share(lane < blockDim.x / 32 ? part[lane] : share{-INFINITY, 0});
}

/* The part of the probability that smoothing spreads over each column. */
template <class T> static __device__ float spread_of(const loss<T> &p)
{
    return p.smoothing / (float)p.v_real;
}

/* Computes the loss of a row, `sum` being that of its logits; see kernels/cpu/xent.c. */
template <class T>
static __device__ float loss_of(const loss<T> &p, float lse, float target, float sum)
{
    float x = lse - target;

    if (p.smoothing > 0)
        x += p.smoothing * target - spread_of(p) * sum;
    return p.z_loss > 0 ? x + p.z_loss * lse * lse : x;
}

/* Sums the row's real logits here, for smoothing alone; thread 0 gets the sum. */
template <class T> static __device__ float sum_logits(const loss<T> &p, const T *row)
{
    float sum[1] = {0};

    if (!(p.smoothing > 0))
        return 0;
    for (int64_t j = threadIdx.x; j < p.real; j += blockDim.x)
        sum[0] += to_float(row[j]);
    block_sum(sum);
    return sum[0];
}

/* g = by 2^(x LOG2E - shift) - less, of all columns but the target's. */
struct slope {
    float shift, by, less;
};

/* Writes columns begin .. of the gradient. from holds the logits of those that this thread has in
 * thread_share(): the row itself, or what was kept of it. */
template <class T, int W>
static __device__ void column_grads(const loss<T> &p, T *row, const T *from, int begin, int end,
                                    const slope &s)
{
    const int step = blockDim.x * W;

    end = min(end, p.real);
    for (int j0 = begin + threadIdx.x * W; j0 < end; j0 += BATCH * step) {
        bool whole = j0 + (BATCH - 1) * step + W <= end;
        words<T, W> at[BATCH];

        load_batch(at, from, j0, step, end);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int j = j0 + k * step;
            float x[W];

            unpack(x, at[k]);
#pragma unroll
            for (int e = 0; e < W; e++)
                x[e] = exp2_fast(x[e] * LOG2E - s.shift) * s.by - s.less;
            if (!whole)
                replace_from(x, j, p.real, 0);
            if (j < end)
                store(row + j, x);
        }
    }
}

/* Writes zeros to columns from begin on, which is a multiple of W. */
template <class T, int W>
static __device__ void clear_columns(T *row, int begin, int end)
{
    for (int j = begin + threadIdx.x * W; j < end; j += blockDim.x * W)
        store_words(row + j, words<T, W>{});
}

/* Where a row's target is, and its logit, which the gradient overwrites. */
struct target {
    int column;
    float logit;
};

/* (softmax - [j = target]) weight; 0 past the real columns. */
template <class T, int W>
static __device__ void gradient(const loss<T> &p, T *row, const T *keep, int kept,
                                const target &t, float weight, float lse)
{
    float more = 1 + 2 * p.z_loss * lse, spread = spread_of(p);
    /* lse holds maximum and sum: no division, nothing to overflow. */
    slope s = {lse * LOG2E, more * weight, spread * weight};

    if (weight == 0) { /* whatever the logits are, NaN too */
        clear_columns<T, W>(row, 0, p.v);
        return;
    }
    /* The target's column is written again by the thread that writes it. */
    bool mine = t.column >= 0 && t.column < p.real &&
                (unsigned)t.column / W % blockDim.x == threadIdx.x;
    float at_target =
        (exp2_fast(t.logit * LOG2E - s.shift) * more - spread - (1 - p.smoothing)) * weight;
    T *to = mine ? row + t.column : NULL;
    column_grads<T, W>(p, row, keep, 0, kept, s);
    column_grads<T, W>(p, row, row, kept, p.v, s);
    clear_columns<T, W>(row, (p.real + W - 1) / W * W, p.v);
    if (to)
        *to = from_float<T>(at_target);
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

template <class T, int W>
static __global__ void __launch_bounds__(MOST_THREADS, 1) whole_row(loss<T> p)
{
    int64_t i = blockIdx.x;
    T *row = p.logits + i * p.ld, *keep = reinterpret_cast<T *>(dynamic_floats());

    /* The target is looked at when the row's loads are on their way. */
    share s = thread_share<T, W>(p, row, keep, p.kept);
    if (!good_target(p, i))
        return;
    /* The gradient overwrites it after the barrier of block_share(). */
    target t = {p.target[i], to_float(row[p.target[i]])};
    s = block_share(s);
    float lse = s.max + logf(s.sum), logits = sum_logits(p, row);
    if (threadIdx.x == 0)
        p.loss[i] = loss_of(p, lse, t.logit, logits);
    if (p.grad)
        gradient<T, W>(p, row, keep, p.kept, t, weight_of(p, i), lse);
}

/* What ranks tell each other of a row. */
enum { LARGEST, SUM, TARGET, LOGITS };

template <class T, int W>
static __global__ void __launch_bounds__(MOST_THREADS, 1) partial_row(loss<T> p, float *stats)
{
    int64_t i = blockIdx.x;
    const T *row = p.logits + i * p.ld;

    if (!good_target(p, i))
        return;
    int64_t at = p.target[i] - p.v_begin;
    share s = block_share(thread_share<T, W>(p, row, (T *)NULL, 0));
    float logits = sum_logits(p, row);
    if (threadIdx.x == 0) {
        stats += i * GPT_XENT_STATS;
        stats[LOGITS] = logits;
        stats[LARGEST] = s.max;
        stats[SUM] = s.sum;
        stats[TARGET] = at >= 0 && at < p.real ? to_float(row[at]) : 0;
    }
}

/* stats: (ranks, N, GPT_XENT_STATS) */
template <class T, int W>
static __global__ void __launch_bounds__(MOST_THREADS, 1)
    finish_row(loss<T> p, const float *stats, int64_t ranks)
{
    int64_t i = blockIdx.x, next = p.n * GPT_XENT_STATS;
    float max = -INFINITY, sum = 0, logit = 0, logits = 0;

    stats += i * GPT_XENT_STATS;
    for (int64_t r = 0; r < ranks; r++)
        max = fmaxf(max, stats[r * next + LARGEST]);
    for (int64_t r = 0; r < ranks; r++) {
        /* In the order of ranks: all of them find the same, bit for bit. */
        sum += stats[r * next + SUM] * expf(stats[r * next + LARGEST] - max); /* NaN stays */
        logit += stats[r * next + TARGET];
        logits += stats[r * next + LOGITS];
    }
    float lse = max + logf(sum);
    if (threadIdx.x == 0)
        p.loss[i] = loss_of(p, lse, logit, logits);
    target t = {p.target[i] - (int)p.v_begin, logit}; /* zeros from other ranks */
    T *row = p.logits + i * p.ld;
    if (p.grad)
        gradient<T, W>(p, row, row, 0, t, weight_of(p, i), lse);
}

/* Threads for a row of so many pieces: each has a whole batch, if rows are long. */
static unsigned threads_of(int64_t pieces, unsigned most)
{
    return cuda_threads(cuda_blocks(pieces, BATCH), most);
}

/* Calls f(loss<T>, W) for the row's type and width. */
template <class F> static void with_loss(struct gpt_queue *q, const struct gpt_xent *op, F f)
{
    int64_t ld = op->ld ? op->ld : op->v, real = op->v_real - op->v_begin;

    real = real < 0 ? 0 : real < op->v ? real : op->v;
    /* Both the stride and the row must allow wide accesses. */
    bool wide = cuda_wide(op->act, ld, op->logits) && cuda_wide(op->act, op->v);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        loss<T> p = {op->n, op->v_begin, (int)op->v, (int)op->v_real, (int)real, 0, ld,
                     (T *)op->logits, op->target, op->weight, op->scale, op->loss, op->grad,
                     op->smoothing, op->z_loss, q->fault};
        f(p, width);
    });
}

/* The type of the logits. */
template <class T> static T logit_of(const loss<T> &) { return T(); }

/* Threads of whole_row(), and p.kept. Where two rows fit into the shared memory of a
 * Hopper multiprocessor, one is read while the other is written. The order of sums
 * follows threads, which therefore follow the row alone, on any GPU. Of a longer row
 * all that fits stays. */
enum { HALF_ROW = 110 << 10 /* bytes */ };

template <int W, class T> static unsigned plan_row(const struct gpt_queue *q, loss<T> &p)
{
    const int64_t besides = 2048; /* static memory, and a KiB that a block costs */
    int64_t pieces = cuda_blocks(p.v, W), room = (int64_t)q->shared_most - besides;
    int64_t row = p.v * (int64_t)sizeof(T);
    unsigned threads = threads_of(pieces, row <= HALF_ROW ? HALF_THREADS : MOST_THREADS);

    /* Whole steps of the block, so that each thread goes on where it left off. */
    int64_t step = (int64_t)threads * W, fit = room / (step * (int64_t)sizeof(T)) * step;
    p.kept = !p.grad ? 0 : row <= room ? p.v : (int)fit;
    return threads;
}

void cuda_xent(struct gpt_queue *q, const struct gpt_xent *op)
{
    if (!cuda_ready(q, "xent", op->act) || !op->n)
        return;
    with_loss(q, op, [&](auto p, auto width) {
        using T = decltype(logit_of(p));
        const int W = decltype(width)::value;
        unsigned threads = plan_row<W>(q, p);

        launch(q, whole_row<T, W>, op->n, threads, p.kept * sizeof(T), p);
    });
}

void cuda_xent_partial(struct gpt_queue *q, const struct gpt_xent *op, float *stats)
{
    if (!cuda_ready(q, "xent_partial", op->act) || !op->n)
        return;
    with_loss(q, op, [&](auto p, auto width) {
        using T = decltype(logit_of(p));
        const int W = decltype(width)::value;

        launch(q, partial_row<T, W>, op->n, threads_of(p.v / W, HALF_THREADS), 0, p, stats);
    });
}

void cuda_xent_finish(struct gpt_queue *q, const struct gpt_xent *op, const float *stats,
                      int64_t ranks, int64_t rank)
{
    (void)rank; /* the logits are still here */
    if (!cuda_ready(q, "xent_finish", op->act) || !op->n)
        return;
    with_loss(q, op, [&](auto p, auto width) {
        using T = decltype(logit_of(p));
        const int W = decltype(width)::value;

        launch(q, finish_row<T, W>, op->n, threads_of(p.v / W, HALF_THREADS), 0, p, stats, ranks);
    });
}
