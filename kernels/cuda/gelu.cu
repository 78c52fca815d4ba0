/* GELU of a flat buffer. */
#include "cuda/gelu.cuh"

enum { THREADS = 256 };

template <class T, int W> static __global__ void gelu_all(T *y, const T *x, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;

    if (i >= n)
        return;
    /* gelu() of what memory holds, as after a product whose aux was stored:
     * recomputing activations gives their bits again. */
    float v[W];
    load(v, x + i);
#pragma unroll
    for (int e = 0; e < W; e++)
        v[e] = gelu(v[e]);
    store(y + i, v);
}

void cuda_gelu(struct gpt_queue *q, void *y, const void *x, int64_t n, enum gpt_dtype act)
{
    if (!cuda_ready(q, "gelu", act) || !n)
        return;
    with_access(act, cuda_wide(act, n, x, y), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        /* y may be x: a thread writes only what it has read. */
        launch(q, gelu_all<T, W>, cuda_blocks(n, THREADS * W), THREADS, 0, (T *)y, (const T *)x,
               n);
    });
}
