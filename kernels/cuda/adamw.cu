/* AdamW and gradient descent in one pass over flat buffers, and mixtures of two. */
#include "cuda/device.cuh"

#include <math.h>

enum { THREADS = 256 };

/* All that a kernel needs travels in its arguments: constant memory, one read for
 * a warp, no copy to wait for. */
template <class T> struct update {
    int64_t n;
    float *p, *m, *v;
    const float *g;
    T *copy; /* or NULL */
    float b1, b2, one_b1, one_b2, step_size, inv_bias2, eps, grad_scale, keep, couple;
    const struct gpt_decay_segment *segments;
    int64_t n_segments;
};

/* The segment that holds element i: the last one beginning at or before it. */
template <class U> static __device__ int64_t segment_of(const U &u, int64_t i)
{
    int64_t lo = 0, hi = u.n_segments;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (u.segments[mid].begin <= i)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* The segments of a block's elements, found by one thread for all: the first one,
 * and whether it holds them all. */
struct block_segments {
    int64_t first;
    bool alone, decay; /* decay: of the first */
};
template <class U> static __device__ struct block_segments segments_of(const U &u, int64_t each)
{
    __shared__ struct block_segments found;
    int64_t begin = blockIdx.x * each;

    if (threadIdx.x == 0) {
        int64_t s = segment_of(u, begin);

        found.first = s;
        found.alone = s + 1 >= u.n_segments || u.segments[s + 1].begin >= begin + each;
        found.decay = u.n_segments && u.segments[s].decay;
    }
    __syncthreads();
    return found;
}

/* Updates W elements from i on. */
template <int W, class T>
static __device__ void elements(const update<T> &u, const struct block_segments &b, int64_t i)
{
    float p[W], m[W], v[W], g[W];

    load(p, u.p + i);
    load(m, u.m + i);
    load(v, u.v + i);
    load(g, u.g + i);
    int64_t s = b.first;
#pragma unroll
    for (int e = 0; e < W; e++) {
        /* Most blocks lie in one segment: their threads do not read the table. */
        while (!b.alone && s + 1 < u.n_segments && u.segments[s + 1].begin <= i + e)
            s++;
        bool decay = b.alone ? b.decay : u.segments[s].decay;
        float keep = decay ? u.keep : 1;
        float ge = g[e] * u.grad_scale + (decay ? u.couple * p[e] : 0);
        m[e] = u.b1 * m[e] + u.one_b1 * ge;
        v[e] = u.b2 * v[e] + u.one_b2 * (ge * ge);
        p[e] = p[e] * keep - u.step_size * (m[e] / (sqrtf(v[e] * u.inv_bias2) + u.eps));
    }
    /* Seven arrays' worth of traffic an element: the time is that of memory, and
     * the copy is made while p is in registers. */
    store(u.m + i, m);
    store(u.v + i, v);
    store(u.p + i, p);
    if (u.copy)
        store(u.copy + i, p);
}

template <class T, int W> static __global__ void adamw(update<T> u)
{
    const struct block_segments b = segments_of(u, THREADS * W);
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;

    if (i + W <= u.n)
        elements<W>(u, b, i);
    else
        for (; i < u.n; i++)
            elements<1>(u, b, i);
}

void cuda_adamw(struct gpt_queue *q, const struct gpt_adamw *op)
{
    enum gpt_dtype act = op->p_act ? op->act : GPT_F32;

    if (!cuda_ready(q, "adamw", act) || !op->n)
        return;
    double t = (double)op->step;
    /* In float the activations' copy may be p itself. */
    void *copy = op->p_act == op->p ? NULL : op->p_act;
    /* Segments may begin anywhere: width depends on the addresses alone. */
    bool wide = cuda_wide(GPT_F32, 4, op->p, op->m, op->v, op->g, copy);
    with_type(act, [&](auto type) {
        using T = decltype(type);
        /* Factors in double, rounded once: see kernels/cpu/adamw.c, with which
         * results agree but for fused multiply-adds. */
        update<T> u = {op->n, op->p, op->m, op->v, op->g, (T *)copy,
                       (float)op->beta1, (float)op->beta2,
                       (float)(1 - op->beta1), (float)(1 - op->beta2),
                       (float)(op->lr / (1 - pow(op->beta1, t))),
                       (float)(1 / (1 - pow(op->beta2, t))),
                       (float)op->eps, (float)op->grad_scale,
                       op->coupled ? 1 : (float)(1 - op->lr * op->weight_decay),
                       op->coupled ? (float)op->weight_decay : 0,
                       op->segments, op->n_segments};
        if (wide)
            launch(q, adamw<T, 4>, cuda_blocks(op->n, THREADS * 4), THREADS, 0, u);
        else
            launch(q, adamw<T, 1>, cuda_blocks(op->n, THREADS), THREADS, 0, u);
    });
}

/* ---- gradient descent ---- */

template <class T> struct descent {
    int64_t n;
    float *p, *m; /* m NULL: no momentum */
    const float *g;
    T *copy; /* or NULL */
    float lr, momentum, weight_decay, grad_scale;
    const struct gpt_decay_segment *segments;
    int64_t n_segments;
};

/* Four floats of each array at once would gain nothing where m is missing and
 * little elsewhere: neighbouring threads read neighbouring elements. */
template <class T> static __global__ void sgd(descent<T> u)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= u.n)
        return;
    bool decay = u.n_segments && u.segments[segment_of(u, i)].decay;
    float p[1] = {u.p[i]};
    float step = u.g[i] * u.grad_scale + (decay ? u.weight_decay * p[0] : 0);
    /* The first step finds zeros: the momentum is then the gradient. */
    if (u.m)
        step = u.m[i] = u.momentum * u.m[i] + step;
    p[0] -= u.lr * step;
    u.p[i] = p[0];
    if (u.copy)
        store(u.copy + i, p);
}

void cuda_sgd(struct gpt_queue *q, const struct gpt_sgd *op)
{
    enum gpt_dtype act = op->p_act ? op->act : GPT_F32;

    if (!cuda_ready(q, "sgd", act) || !op->n)
        return;
    /* In float the activations' copy may be p itself. */
    void *copy = op->p_act == op->p ? NULL : op->p_act;
    with_type(act, [&](auto type) {
        using T = decltype(type);
        descent<T> u = {op->n, op->p, op->m, op->g, (T *)copy, (float)op->lr,
                        (float)op->momentum, (float)op->weight_decay,
                        (float)op->grad_scale, op->segments, op->n_segments};

        launch(q, sgd<T>, cuda_blocks(op->n, THREADS), THREADS, 0, u);
    });
}

/* ---- mixtures ---- */

/* Memory decides the time: two reads and a write, whatever the factors are. */
static __global__ void mix(struct gpt_mix op)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double a = op.a;

    if (i >= op.n)
        return;
    /* Every thread divides for itself: the host does not know the sum yet. */
    if (op.squares)
        a /= fmax(sqrt(*op.squares), op.least);
    op.out[i] = op.y ? (float)a * op.x[i] + (float)op.b * op.y[i] : (float)a * op.x[i];
}

void cuda_mix(struct gpt_queue *q, const struct gpt_mix *op)
{
    if (cuda_ready(q, "mix", GPT_F32) && op->n)
        launch(q, mix, cuda_blocks(op->n, THREADS), THREADS, 0, *op);
}
