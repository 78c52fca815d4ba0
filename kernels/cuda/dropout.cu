/* Dropout by counter: the mask is a pure function of the element's index. */
#include "cuda/device.cuh"

template <class T, int W>
static __global__ void drop_rows(T *y, const T *x, int64_t c, struct cuda_drop d)
{
    int64_t i = blockIdx.x;

    for (int64_t j = threadIdx.x * W; j < c; j += blockDim.x * W) {
        float v[W];

        /* y may be x: a thread writes only what it has read. */
        load(v, x + i * c + j);
        if (d.below)
            drop(v, d, drop_index(d, i, c) + j);
        store(y + i * c + j, v);
    }
}

void cuda_dropout(struct gpt_queue *q, void *y, const void *x, int64_t n, int64_t c,
                  enum gpt_dtype act, const struct gpt_dropout *d)
{
    if (!cuda_ready(q, "dropout", act) || !n)
        return;
    with_access(act, cuda_wide(act, c, x, y), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        /* A block a row: its first counter is computed once. */
        launch(q, drop_rows<T, W>, n, cuda_threads(c / W, 256), 0, (T *)y, (const T *)x, c,
               cuda_drop_of(d));
    });
}
