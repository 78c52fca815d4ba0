/* Dropout by counter: the mask is a pure function of the element's index. */
#include "cuda/device.cuh"

#include <math.h>

struct cuda_drop cuda_drop_of(const struct gpt_dropout *d)
{
    struct cuda_drop drop = {};

    if (d->p == 0)
        return drop;
    /* Philox's key grows by constants every round (base/rng.c). */
    for (uint32_t round = 0; round < 10; round++) {
        drop.key[round][0] = d->rng.key[0] + round * 0x9e3779b9u;
        drop.key[round][1] = d->rng.key[1] + round * 0xbb67ae85u;
    }
    /* An integer comparison in place of u 2^-24 < p, which could round. */
    const double below = ceil((double)d->p * 0x1p24); /* u 2^-24 < p */
    const bool all = below >= 0x1p24;                 /* and what is left is 0 */
    drop.below = all ? UINT32_MAX : (uint32_t)below << 8;
    drop.scale = all ? 0 : 1 / (1 - d->p);
    drop.sample0 = d->sample0;
    drop.samples = d->samples;
    drop.t_local = d->t_local;
    drop.t_global = d->t_global;
    drop.t0 = d->t0;
    return drop;
}

template <class T, int W>
static __global__ void drop_rows(T *y, const T *x, int64_t c, struct cuda_drop d)
{
    int64_t i = blockIdx.x;
    uint64_t counter = drop_begin(d, i, c);

    for (int64_t j = threadIdx.x * W; j < c; j += blockDim.x * W) {
        float v[W];

        /* y may be x: a thread writes only what it has read. */
        load(v, x + i * c + j);
        drop_any(v, d, counter + j);
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
