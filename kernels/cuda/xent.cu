/* Softmax cross-entropy and its gradient in place, one block a row: one pass
 * for maximum and sum together (Milakov and Gimelshein 2018), one for the
 * gradient. */
#include "cuda/device.cuh"

enum { THREADS = 512 };

template <class T> struct loss {
    int64_t v, v_real, ld;
    T *logits;
    const int32_t *target;
    const float *weight;
    float *loss;
    bool grad;
    struct cuda_fault *fault;
};

/* This thread's share of the row: its maximum, and the sum of exp(x - max). */
template <class T, int W>
static __device__ void max_and_sum(const T *row, int64_t n, float *max, float *sum)
{
    *max = -INFINITY;
    *sum = 0;
    for (int64_t j = threadIdx.x * W; j < n; j += THREADS * W) {
        float x[W], top = *max;
        load(x, row + j);
#pragma unroll
        for (int e = 0; e < W; e++) {
            x[e] = j + e < n ? x[e] : -INFINITY;
            top = x[e] <= top ? top : x[e]; /* NaN gets in, and stays */
        }
        *sum *= top == *max ? 1 : expf(*max - top);
        *max = top;
#pragma unroll
        for (int e = 0; e < W; e++)
            *sum += x[e] == -INFINITY ? 0 : expf(x[e] - top);
    }
}

/* (softmax - [j = target]) weight; 0 past v_real. */
template <class T, int W>
static __device__ void gradient(const loss<T> &p, T *row, int target, float weight, float lse)
{
    for (int64_t j = threadIdx.x * W; j < p.v; j += THREADS * W) {
        float x[W];
        load(x, row + j);
#pragma unroll
        for (int e = 0; e < W; e++) {
            float g = expf(x[e] - lse) - (j + e == target ? 1.0f : 0.0f);
            x[e] = j + e < p.v_real && weight != 0 ? g * weight : 0;
        }
        store(row + j, x);
    }
}

template <class T, int W> static __global__ void __launch_bounds__(THREADS) xent_row(loss<T> p)
{
    int64_t i = blockIdx.x;
    T *row = p.logits + i * p.ld;
    int target = p.target[i];
    if (target < 0 || target >= p.v_real) {
        if (threadIdx.x == 0)
            raise_fault(p.fault, CUDA_FAULT_TARGET, i, target, p.v_real);
        return; /* the whole block */
    }
    float at_target = to_float(row[target]), max, sum[1];
    max_and_sum<T, W>(row, p.v_real, &max, &sum[0]);
    float top = block_max(max);
    sum[0] *= max == -INFINITY ? 0 : expf(max - top);
    block_sum(sum);
    float lse = top + logf(sum[0]);
    if (threadIdx.x == 0)
        p.loss[i] = lse - at_target;
    if (p.grad)
        gradient<T, W>(p, row, target, p.weight[i], lse);
}

void cuda_xent(struct gpt_queue *q, const struct gpt_xent *op)
{
    if (!cuda_ready(q, "xent", op->act) || !op->n)
        return;
    int64_t ld = op->ld ? op->ld : op->v;
    bool wide = cuda_wide(op->act, ld, op->logits) && cuda_wide(op->act, op->v);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        loss<T> p = {op->v, op->v_real, ld, (T *)op->logits, op->target, op->weight, op->loss,
                     op->grad, q->fault};
        launch(q, xent_row<T, W>, op->n, THREADS, 0, p);
    });
}
