/* Conversion between float types, rounding to nearest even. */
#include "cuda/device.cuh"

enum { THREADS = 256 };

template <class D, class S, int W>
static __global__ void convert(D *dst, const S *src, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;

    if (i >= n)
        return;
    float x[W];
    load(x, src + i);
    store(dst + i, x);
}

template <class D, class S>
static void convert_all(struct gpt_queue *q, void *dst, const void *src, int64_t n)
{
    /* 16 bytes of the wider type at once, fewer of the other. */
    const int W = 16 / (sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S));
    /* By way of float, which holds all values of bf16 and F16: one rounding. */
    D *d = (D *)dst;
    const S *s = (const S *)src;
    bool aligned = ((uintptr_t)d | (uintptr_t)s) % 16 == 0;
    /* Elements are independent: how they are cut changes no bit. */
    int64_t head = aligned ? n / W * W : 0;

    if (head)
        launch(q, convert<D, S, W>, cuda_blocks(head, THREADS * W), THREADS, 0, d, s, head);
    if (head < n)
        launch(q, convert<D, S, 1>, cuda_blocks(n - head, THREADS), THREADS, 0, d + head,
               s + head, n - head);
}

void cuda_cast(struct gpt_queue *q, void *dst, enum gpt_dtype dst_type, const void *src,
               enum gpt_dtype src_type, int64_t n)
{
    if (!cuda_ready(q, "cast", dst_type) || !cuda_ready(q, "cast", src_type))
        return;
    with_type(dst_type, [&](auto to) {
        with_type(src_type, [&](auto from) {
            convert_all<decltype(to), decltype(from)>(q, dst, src, n);
        });
    });
}
