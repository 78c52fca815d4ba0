/* Activations, gated or not, and their gradients. A thread has W neighbouring
 * features of a row: where rows are gated, their gates and their ups. */
#include "cuda/gelu.cuh"

enum { THREADS = 256 };

/* A value and its slope. The kind is a constant of the kernel: what a caller does
 * not use is not computed. */
struct point {
    float value, slope;
};

/* What XIELU's parameters stand for. */
struct alphas {
    float above, below;
};

/* What XIELU is made of for x <= 0: e^x - 1, and that less x. */
struct below {
    float grown, rest;
};

/* By their series where the difference would lose digits; grown is no sum of rest and x, as a
 * large x would leave nothing of it. x is kept below a number near 0, as the paper's code does. */
static __device__ inline below below_at(float x)
{
    float m = x > -1e-6f ? -1e-6f : x, p = 1.0f / 40320;

    if (m < -0.5f) {
        float far = expf(m) - 1;

        return {far, far - x};
    }
    p = p * m + 1.0f / 5040;
    p = p * m + 1.0f / 720;
    p = p * m + 1.0f / 120;
    p = p * m + 1.0f / 24;
    p = p * m + 1.0f / 6;
    p = p * m + 0.5f;
    return {p * m * m + m, p * m * m + (m - x)};
}

template <int KIND> static __device__ inline point at(float x, const alphas &alpha)
{
    if (KIND == GPT_XIELU) {
        if (x > 0)
            return {alpha.above * x * x + 0.5f * x, 2 * alpha.above * x + 0.5f};
        below b = below_at(x);

        return {alpha.below * b.rest + 0.5f * x, alpha.below * b.grown + 0.5f};
    }
    if (KIND == GPT_GELU)
        return {gelu(x), gelu_slope(x)};
    if (KIND == GPT_GELU_EXACT) {
        /* erfc keeps the digits far below zero, where 1 + erf would cancel. */
        float whole = 0.5f * erfcf(-0.7071067812f * x);

        return {x * whole, whole + 0.3989422804f * x * expf(-0.5f * x * x)};
    }
    if (KIND == GPT_SILU) {
        float s = 1 / (1 + expf(-x));

        return {x * s, s + x * s * (1 - s)};
    }
    float y = x < 0 ? 0 : x; /* NaN stays one: a broken step must show */
    if (KIND == GPT_RELU)
        return {y, x > 0 ? 1.0f : 0.0f};
    return {y * y, 2 * y};
}

struct rows {
    int64_t n, f; /* rows; features of the output */
    bool gated;
    const void *alpha_p, *alpha_n; /* of XIELU */
};

/* ln(1 + e^x) */
static __device__ inline float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

template <class T, int KIND> static __device__ inline alphas alphas_of(const rows &p)
{
    if (KIND != GPT_XIELU)
        return {0, 0};
    return {softplus(to_float(*(const T *)p.alpha_p)),
            softplus(to_float(*(const T *)p.alpha_n)) + 0.5f};
}

/* The place of the inputs of features i .. i + W - 1 of the output. Rows of a gated input are twice
 * as long; W divides a row, so that a thread's features are in one. */
static __device__ inline int64_t input_of(const rows &p, int64_t i)
{
    return p.gated ? i + i / p.f * p.f : i;
}

template <class T, int W, int KIND>
static __global__ void forward(rows p, T *out, const T *pre)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;

    if (i >= p.n * p.f)
        return;
    int64_t from = input_of(p, i);
    /* of what memory holds, as after a product whose aux was stored: recomputing
     * activations gives their bits again */
    float v[W], up[W];
    const alphas alpha = alphas_of<T, KIND>(p);
    load(v, pre + from);
    if (p.gated)
        load(up, pre + from + p.f);
#pragma unroll
    for (int e = 0; e < W; e++)
        v[e] = at<KIND>(v[e], alpha).value * (p.gated ? up[e] : 1);
    store(out + i, v);
}

/* Value and slope come from one exponential: a gated layer wants both, and
 * reading the forward's output instead would be a third stream of memory. */
template <class T, int W, int KIND>
static __global__ void backward(rows p, T *dpre, const T *dout, const T *pre)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;

    if (i >= p.n * p.f)
        return;
    int64_t from = input_of(p, i);
    float v[W], up[W], d[W], dup[W];
    const alphas alpha = alphas_of<T, KIND>(p);
    load(v, pre + from);
    load(d, dout + i);
    if (p.gated)
        load(up, pre + from + p.f);
#pragma unroll
    for (int e = 0; e < W; e++) {
        point x = at<KIND>(v[e], alpha);

        dup[e] = d[e] * x.value;
        d[e] *= x.slope * (p.gated ? up[e] : 1);
    }
    store(dpre + from, d);
    if (p.gated)
        store(dpre + from + p.f, dup);
}

/* Calls f with the kind as a constant: a kernel that chose at run time would hold
 * the registers of the most expensive kind. */
template <class F> static void with_kind(enum gpt_activation kind, F f)
{
    switch (kind) {
    case GPT_GELU:
        return f(std::integral_constant<int, GPT_GELU>());
    case GPT_GELU_EXACT:
        return f(std::integral_constant<int, GPT_GELU_EXACT>());
    case GPT_SILU:
        return f(std::integral_constant<int, GPT_SILU>());
    case GPT_RELU:
        return f(std::integral_constant<int, GPT_RELU>());
    case GPT_SQUARED_RELU:
        return f(std::integral_constant<int, GPT_SQUARED_RELU>());
    case GPT_XIELU:
        return f(std::integral_constant<int, GPT_XIELU>());
    }
}

/* Calls f with type, width and kind. A thread's features must not cross rows where gates
 * and ups are apart, so a row, not the whole, divides by W. */
template <class F>
static void with_all(const struct gpt_activate *op, const void *a, const void *b, const void *c,
                     F f)
{
    bool wide = cuda_wide(op->act, op->f, a, b, c);

    with_access(op->act, wide, [&](auto type, auto width) {
        with_kind(op->kind, [&](auto kind) { f(type, width, kind); });
    });
}

void cuda_activate(struct gpt_queue *q, const struct gpt_activate *op)
{
    if (!cuda_ready(q, "activate", op->act) || !op->n || !op->f)
        return;
    rows p = {op->n, op->f, op->gated, op->alpha_p, op->alpha_n};
    with_all(op, op->pre, op->out, op->out, [&](auto type, auto width, auto kind) {
        using T = decltype(type);
        const int W = decltype(width)::value, KIND = decltype(kind)::value;
        /* out may be pre where nothing is gated: a thread writes only what it has read. */
        launch(q, forward<T, W, KIND>, cuda_blocks(op->n * op->f, THREADS * W), THREADS, 0, p,
               (T *)op->out, (const T *)op->pre);
    });
}

void cuda_activate_bwd(struct gpt_queue *q, const struct gpt_activate *op, const void *dout,
                       void *dpre)
{
    if (!cuda_ready(q, "activate_bwd", op->act) || !op->n || !op->f)
        return;
    rows p = {op->n, op->f, op->gated, op->alpha_p, op->alpha_n};
    with_all(op, op->pre, dout, dpre, [&](auto type, auto width, auto kind) {
        using T = decltype(type);
        const int W = decltype(width)::value, KIND = decltype(kind)::value;
        launch(q, backward<T, W, KIND>, cuda_blocks(op->n * op->f, THREADS * W), THREADS, 0, p,
               (T *)dpre, (const T *)dout, (const T *)op->pre);
    });
}

/* ---- parameters of XIELU ---- */

/* Blocks that sum: fixed, so that a sum does not depend on the device. */
enum { SUM_BLOCKS = 256 };

/* part (SUM_BLOCKS, 2): the gradients of a block's elements. The slope of ln(1 + e^a) is the
 * logistic function of a. */
template <class T>
static __global__ void sum_alphas(rows p, float *part, const T *dout, const T *pre)
{
    float sums[2] = {0, 0};
    int64_t each = (p.n * p.f + SUM_BLOCKS - 1) / SUM_BLOCKS;
    int64_t begin = blockIdx.x * each, end = min(begin + each, p.n * p.f);

    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        float x = to_float(pre[i]), d = to_float(dout[i]);

        if (x > 0)
            sums[0] += d * x * x;
        else
            sums[1] += d * below_at(x).rest;
    }
    block_sum(sums);
    if (threadIdx.x > 0)
        return;
    part[2 * blockIdx.x] = sums[0] / (1 + expf(-to_float(*(const T *)p.alpha_p)));
    part[2 * blockIdx.x + 1] = sums[1] / (1 + expf(-to_float(*(const T *)p.alpha_n)));
}

void cuda_xielu_grads(struct gpt_queue *q, const struct gpt_activate *op, const void *dout,
                      float *dalpha_p, float *dalpha_n)
{
    if (!cuda_ready(q, "xielu_grads", op->act) || !op->n || !op->f)
        return;
    float *part = (float *)cuda_work(q, 2 * SUM_BLOCKS * sizeof(float));
    if (!part)
        return;
    rows p = {op->n, op->f, op->gated, op->alpha_p, op->alpha_n};
    with_type(op->act, [&](auto type) {
        using T = decltype(type);

        launch(q, sum_alphas<T>, SUM_BLOCKS, THREADS, 0, p, part, (const T *)dout,
               (const T *)op->pre);
    });
    cuda_add_columns(q, {{dalpha_p, dalpha_n}, {1, 1}}, part, SUM_BLOCKS);
}
