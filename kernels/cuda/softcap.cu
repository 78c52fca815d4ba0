/* Capped logits, the product with their derivative, and with a number; a limit: an element a
 * thread, or as many as a thread loads at once. */
#include "cuda/device.cuh"

enum { THREADS = 256 };

/* The derivative is stored, as cross-entropy leaves gradients in the place of logits:
 * from these it could not be computed again. */
template <class T, int W>
static __global__ void softcap(T *x, T *slope, int64_t n, float c)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    float v[W], rise[W]; /* rise: d(capped) / dx */

    if (i >= n)
        return;
    load(v, x + i);
#pragma unroll
    for (int e = 0; e < W; e++) {
        float t = tanhf(v[e] / c);

        v[e] = c * t;
        rise[e] = 1 - t * t;
    }
    store(x + i, v);
    if (slope)
        store(slope + i, rise);
}

/* Bound by memory, like all of this file: two streams in, one out. */
template <class T, int W> static __global__ void times(T *x, const T *y, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    float v[W], by[W];

    if (i >= n)
        return;
    load(v, x + i);
    load(by, y + i);
#pragma unroll
    for (int e = 0; e < W; e++)
        v[e] *= by[e];
    store(x + i, v);
}

template <class T, int W> static __global__ void scale(T *x, int64_t n, float factor)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    float v[W];

    if (i >= n)
        return;
    load(v, x + i);
#pragma unroll
    for (int e = 0; e < W; e++)
        v[e] *= factor;
    store(x + i, v);
}

void cuda_softcap(struct gpt_queue *q, void *x, void *slope, int64_t n, float c,
                  enum gpt_dtype act)
{
    if (!cuda_ready(q, "softcap", act) || !n)
        return;
    with_access(act, cuda_wide(act, n, x, slope), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;

        launch(q, softcap<T, W>, cuda_blocks(n / W, THREADS), THREADS, 0, (T *)x, (T *)slope, n,
               c);
    });
}

void cuda_times(struct gpt_queue *q, void *x, const void *y, int64_t n, enum gpt_dtype act)
{
    if (!cuda_ready(q, "times", act) || !n)
        return;
    with_access(act, cuda_wide(act, n, x, y), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;

        launch(q, times<T, W>, cuda_blocks(n / W, THREADS), THREADS, 0, (T *)x, (const T *)y, n);
    });
}

void cuda_scale(struct gpt_queue *q, void *x, int64_t n, float factor, enum gpt_dtype act)
{
    if (!cuda_ready(q, "scale", act) || !n)
        return;
    with_access(act, cuda_wide(act, n, x), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;

        launch(q, scale<T, W>, cuda_blocks(n / W, THREADS), THREADS, 0, (T *)x, n, factor);
    });
}

/* NaN stays one. */
template <class T, int W> static __global__ void clip(T *x, int64_t n, float limit)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    float v[W];

    if (i >= n)
        return;
    load(v, x + i);
#pragma unroll
    for (int e = 0; e < W; e++)
        v[e] = v[e] > limit ? limit : v[e] < -limit ? -limit : v[e];
    store(x + i, v);
}

/* limit: as the type rounds it, since x was stored. */
template <class T, int W> static __global__ void clip_grad(T *d, const T *x, int64_t n, float limit)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    float g[W], v[W], rounded = to_float(from_float<T>(limit));

    if (i >= n)
        return;
    load(g, d + i);
    load(v, x + i);
#pragma unroll
    for (int e = 0; e < W; e++)
        g[e] = v[e] >= rounded || v[e] <= -rounded ? 0 : g[e];
    store(d + i, g);
}

void cuda_clip(struct gpt_queue *q, void *x, int64_t n, float limit, enum gpt_dtype act)
{
    if (!cuda_ready(q, "clip", act) || !n)
        return;
    with_access(act, cuda_wide(act, n, x), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;

        launch(q, clip<T, W>, cuda_blocks(n / W, THREADS), THREADS, 0, (T *)x, n, limit);
    });
}

void cuda_clip_bwd(struct gpt_queue *q, void *d, const void *x, int64_t n, float limit,
                   enum gpt_dtype act)
{
    if (!cuda_ready(q, "clip_bwd", act) || !n)
        return;
    with_access(act, cuda_wide(act, n, d, x), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;

        launch(q, clip_grad<T, W>, cuda_blocks(n / W, THREADS), THREADS, 0, (T *)d, (const T *)x,
               n, limit);
    });
}
