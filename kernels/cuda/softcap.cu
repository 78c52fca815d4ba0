/* Elementwise work on one tensor: capped logits, products with another tensor or a number, a
 * limit and its gradient. An element a thread, or as many as a thread loads at once. */
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

/* ---- one tensor, by another or by a number ---- */

/* An operation says whether it reads the other tensor, y, and what an element x becomes, by
 * an element of y and a number. */
struct times {
    static const bool READS_Y = true;
    template <class T> static __device__ float of(float x, float y, float) { return x * y; }
};

struct scale {
    static const bool READS_Y = false;
    template <class T> static __device__ float of(float x, float, float by) { return x * by; }
};

/* NaN stays one. */
struct clip {
    static const bool READS_Y = false;
    template <class T> static __device__ float of(float x, float, float limit)
    {
        return x > limit ? limit : x < -limit ? -limit : x;
    }
};

/* limit: as the type rounds it, since y was stored. */
struct clip_grad {
    static const bool READS_Y = true;
    template <class T> static __device__ float of(float x, float y, float limit)
    {
        float rounded = to_float(from_float<T>(limit));

        return y >= rounded || y <= -rounded ? 0 : x;
    }
};

/* Bound by memory, like all of this file. */
template <class OP, class T, int W>
static __global__ void update(T *x, const T *y, int64_t n, float by)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    float v[W], other[W] = {};

    if (i >= n)
        return;
    load(v, x + i);
    if (OP::READS_Y)
        load(other, y + i);
#pragma unroll
    for (int e = 0; e < W; e++)
        v[e] = OP::template of<T>(v[e], other[e], by);
    store(x + i, v);
}

/* y: NULL where OP does not read it. */
template <class OP>
static void launch_update(struct gpt_queue *q, const char *name, void *x, const void *y, int64_t n,
                          float by, enum gpt_dtype act)
{
    if (!cuda_ready(q, name, act) || !n)
        return;
    with_access(act, cuda_wide(act, n, x, y), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;

        launch(q, update<OP, T, W>, cuda_blocks(n / W, THREADS), THREADS, 0, (T *)x, (const T *)y,
               n, by);
    });
}

void cuda_times(struct gpt_queue *q, void *x, const void *y, int64_t n, enum gpt_dtype act)
{
    launch_update<times>(q, "times", x, y, n, 0, act);
}

void cuda_scale(struct gpt_queue *q, void *x, int64_t n, float factor, enum gpt_dtype act)
{
    launch_update<scale>(q, "scale", x, NULL, n, factor, act);
}

void cuda_clip(struct gpt_queue *q, void *x, int64_t n, float limit, enum gpt_dtype act)
{
    launch_update<clip>(q, "clip", x, NULL, n, limit, act);
}

void cuda_clip_bwd(struct gpt_queue *q, void *d, const void *x, int64_t n, float limit,
                   enum gpt_dtype act)
{
    launch_update<clip_grad>(q, "clip_bwd", d, x, n, limit, act);
}
