/* Activations, gated or not, and their gradients. A thread has W neighbouring
 * features of a row: where rows are gated, their gates and their ups. */
#include "cuda/gelu.cuh"

enum { THREADS = 256 };

/* A value and its slope. The kind is a constant of the kernel: what a caller does
 * not use is not computed. */
struct point {
    float value, slope;
};

template <int KIND> static __device__ inline point at(float x)
{
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
};

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
    load(v, pre + from);
    if (p.gated)
        load(up, pre + from + p.f);
#pragma unroll
    for (int e = 0; e < W; e++)
        v[e] = at<KIND>(v[e]).value * (p.gated ? up[e] : 1);
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
    load(v, pre + from);
    load(d, dout + i);
    if (p.gated)
        load(up, pre + from + p.f);
#pragma unroll
    for (int e = 0; e < W; e++) {
        point x = at<KIND>(v[e]);

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
    rows p = {op->n, op->f, op->gated};
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
    rows p = {op->n, op->f, op->gated};
    with_all(op, op->pre, dout, dpre, [&](auto type, auto width, auto kind) {
        using T = decltype(type);
        const int W = decltype(width)::value, KIND = decltype(kind)::value;
        launch(q, backward<T, W, KIND>, cuda_blocks(op->n * op->f, THREADS * W), THREADS, 0, p,
               (T *)dpre, (const T *)dout, (const T *)op->pre);
    });
}
