/* Queries, keys and values of latent attention, between the forms of its
 * products and that of attention; see struct gpt_latent for the order of
 * things. All of it is copies, but for the gradient of the keys' shared part.
 * Start at cuda_latent_join(). */
#include "cuda/device.cuh"

enum { THREADS = 256 };

/* A block of several rows: threads of a row along x, which need not be whole warps. */
static dim3 row_block(int64_t items)
{
    const unsigned across = (unsigned)max(min(items, (int64_t)THREADS), (int64_t)1);

    return dim3(across, THREADS / across);
}

/* A head's parts in elements, of which d are a query or a key; all are multiples of W. A row is a
 * head of a token. */
struct latent {
    int64_t rows;
    unsigned h;
    int nope, turned, value, d;
};

static struct latent latent_of(const struct gpt_latent *op)
{
    return {op->n * op->h, (unsigned)op->h, (int)op->nope, (int)op->turned, (int)op->value,
            (int)(op->nope + op->turned)};
}

/* True when parts of heads may be moved 16 bytes at a time. */
template <class... P> static bool is_wide(const struct gpt_latent *op, P... at)
{
    return cuda_wide(op->act, op->nope, at...) && cuda_wide(op->act, op->turned) &&
           cuda_wide(op->act, op->value);
}

template <class T> struct inputs {
    const T *q, *k, *kv;
};

/* Where element j of (3, D) of a row comes from; NULL: it is 0. */
template <class T>
static __device__ inline const T *source_of(const latent &p, const inputs<T> &in, int64_t row,
                                            int j)
{
    const int kv = p.nope + p.value;

    if (j < p.d)
        return in.q + row * p.d + (j < p.turned ? p.nope + j : j - p.turned);
    j -= p.d + p.turned; /* what follows is in the order of kv */
    if (j >= 0)
        return j < kv ? in.kv + row * kv + j : NULL;
    /* in 32 bits: a division of 64 would take longer than the copy */
    const int64_t token = (uint32_t)row / p.h;
    return in.k + (token + 1) * p.turned + j;
}

template <class T, int W>
static __global__ void __launch_bounds__(THREADS) join(latent p, inputs<T> in, T *qkv)
{
    const int64_t row = own_row();

    if (row >= p.rows)
        return;
    for (int j = threadIdx.x * W; j < 3 * p.d; j += blockDim.x * W) {
        const T *from = source_of(p, in, row, j);

        store_words(qkv + row * 3 * p.d + j, from ? load_words<W>(from) : words<T, W>());
    }
}

void cuda_latent_join(struct gpt_queue *q, const struct gpt_latent *op)
{
    const struct latent p = latent_of(op);

    if (!cuda_ready(q, "latent_join", op->act) || !p.rows)
        return;
    with_access(op->act, is_wide(op, op->q, op->k, op->kv, op->qkv), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        const inputs<T> in = {(const T *)op->q, (const T *)op->k, (const T *)op->kv};
        const dim3 block = row_block(3 * p.d / W);

        launch(q, join<T, W>, cuda_blocks(p.rows, block.y), block, 0, p, in, (T *)op->qkv);
    });
}

/* Elements of dq, then of dkv; the keys' shared part is sum_keys()'s. */
template <class T, int W>
static __global__ void __launch_bounds__(THREADS) split(latent p, const T *dqkv, T *dq, T *dkv)
{
    const int64_t row = own_row();
    const int kv = p.nope + p.value;

    if (row >= p.rows)
        return;
    const T *from = dqkv + row * 3 * p.d;
    for (int j = threadIdx.x * W; j < p.d + kv; j += blockDim.x * W) {
        const int at = j - p.d; /* of dkv */

        if (at < 0)
            store_words(dq + row * p.d + j,
                        load_words<W>(from + (j < p.nope ? p.turned + j : j - p.nope)));
        else
            store_words(dkv + row * kv + at, load_words<W>(from + p.d + p.turned + at));
    }
}

/* A thread has W elements of a token, which it adds up in the order of heads. */
template <class T, int W>
static __global__ void __launch_bounds__(THREADS) sum_keys(latent p, const T *dqkv, T *dk)
{
    const int64_t n = own_row();

    if (n * p.h >= p.rows)
        return;
    for (int j = threadIdx.x * W; j < p.turned; j += blockDim.x * W) {
        const T *from = dqkv + n * p.h * 3 * p.d + p.d + j;
        float sum[W] = {};

#pragma unroll 8
        for (unsigned h = 0; h < p.h; h++) {
            float v[W];

            load(v, from + (int64_t)h * 3 * p.d);
#pragma unroll
            for (int e = 0; e < W; e++)
                sum[e] += v[e];
        }
        store(dk + n * p.turned + j, sum);
    }
}

void cuda_latent_split(struct gpt_queue *q, const struct gpt_latent *op,
                       const struct gpt_latent_grad *grad)
{
    const struct latent p = latent_of(op);

    if (!cuda_ready(q, "latent_split", op->act) || !p.rows)
        return;
    const bool wide = is_wide(op, grad->dqkv, grad->dq, grad->dk, grad->dkv);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        const T *dqkv = (const T *)grad->dqkv;
        const dim3 heads = row_block((p.d + p.nope + p.value) / W), keys = row_block(p.turned / W);

        launch(q, split<T, W>, cuda_blocks(p.rows, heads.y), heads, 0, p, dqkv, (T *)grad->dq,
               (T *)grad->dkv);
        launch(q, sum_keys<T, W>, cuda_blocks(op->n, keys.y), keys, 0, p, dqkv, (T *)grad->dk);
    });
}

template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    fit(T *y, int64_t to, const T *x, int64_t from, int64_t n)
{
    const int64_t row = own_row();

    if (row >= n)
        return;
    for (int64_t j = threadIdx.x * W; j < to; j += blockDim.x * W)
        store_words(y + row * to + j,
                    j < from ? load_words<W>(x + row * from + j) : words<T, W>());
}

void cuda_fit_columns(struct gpt_queue *q, void *y, int64_t to, const void *x, int64_t from,
                      int64_t n, enum gpt_dtype act)
{
    if (!cuda_ready(q, "fit_columns", act) || !n || !to)
        return;
    with_access(act, cuda_wide(act, to, y) && cuda_wide(act, from, x), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        const dim3 block = row_block(to / W);

        launch(q, fit<T, W>, cuda_blocks(n, block.y), block, 0, (T *)y, to, (const T *)x, from, n);
    });
}
