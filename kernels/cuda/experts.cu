/* Rows of a feed-forward of experts: copies of tokens' rows for their experts,
 * their sums, and rows times weights or gates, with the gradients of these. The
 * grid has all pairs of tokens and experts, as where those of the experts here
 * begin is known on the device alone. */
#include "cuda/device.cuh"

enum { THREADS = 256 };

/* A block of several rows, each of so many work items: threads of a row along x. */
static dim3 row_block(int64_t items)
{
    const unsigned across = cuda_threads(items, THREADS);

    return dim3(across, THREADS / across);
}

/* Pairs [begin, end) are here. */
struct span {
    int begin, end;
};

static __device__ inline span pairs_here(const struct gpt_expert_rows &r)
{
    return {r.begin[r.first], r.begin[r.first + r.count]};
}

template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    pick(struct gpt_expert_rows r, const T *x, T *out, int64_t c)
{
    const span here = pairs_here(r);
    const int64_t row = own_row();

    if (row >= here.end - here.begin)
        return;
    const T *from = x + r.source[here.begin + row] / (int)r.k * c;
    T *to = out + row * c;
    for (int64_t j = threadIdx.x * W; j < c; j += blockDim.x * W)
        store_words(to + j, load_words<W>(from + j));
}

void cuda_expert_pick(struct gpt_queue *q, const struct gpt_expert_rows *rows, const void *x,
                      void *out, int64_t c)
{
    const int64_t pairs = rows->n * rows->k;

    if (!cuda_ready(q, "expert_pick", rows->act) || !pairs || !c)
        return;
    with_access(rows->act, cuda_wide(rows->act, c, x, out), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        const dim3 block = row_block(c / W);

        launch(q, pick<T, W>, cuda_blocks(pairs, block.y), block, 0, *rows, (const T *)x, (T *)out,
               c);
    });
}

/* A thread has W columns of a token, whose rows it adds in the order of the token's experts. */
template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    sum(struct gpt_expert_rows r, const T *x, T *y, int64_t c, bool weighed, bool add)
{
    const span here = pairs_here(r);
    const int64_t n = own_row();

    if (n >= r.n)
        return;
    const int32_t *place = r.place + n * r.k;
    const float *weight = r.weight + n * r.k;
    for (int64_t j = threadIdx.x * W; j < c; j += blockDim.x * W) {
        float total[W] = {};

        if (add)
            load(total, y + n * c + j);
#pragma unroll 4
        for (int i = 0; i < (int)r.k; i++) {
            const int p = place[i];
            float v[W];

            if (p < here.begin || p >= here.end)
                continue;
            load(v, x + (int64_t)(p - here.begin) * c + j);
            const float w = weighed ? weight[i] : 1;
#pragma unroll
            for (int e = 0; e < W; e++)
                total[e] += w * v[e];
        }
        store(y + n * c + j, total);
    }
}

void cuda_expert_sum(struct gpt_queue *q, const struct gpt_expert_rows *rows, const void *x,
                     void *y, int64_t c, bool weighed, bool add)
{
    if (!cuda_ready(q, "expert_sum", rows->act) || !rows->n || !c)
        return;
    with_access(rows->act, cuda_wide(rows->act, c, x, y), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        const dim3 block = row_block(c / W);

        launch(q, sum<T, W>, cuda_blocks(rows->n, block.y), block, 0, *rows, (const T *)x, (T *)y,
               c, weighed, add);
    });
}

/* ---- rows times a number, and its gradient ---- */

/* Multiplies dh by w, and h, too, where that is not const; returns the dot of the rows of f
 * elements before, for all threads of the block. */
template <int W, class H, class T>
static __device__ float weigh_rows(H *h, T *dh, int64_t f, float w)
{
    float dot[1] = {0};

    for (int64_t j = threadIdx.x * W; j < f; j += blockDim.x * W) {
        float a[W], b[W];

        load(a, h + j);
        load(b, dh + j);
#pragma unroll
        for (int e = 0; e < W; e++) {
            dot[0] += a[e] * b[e];
            a[e] *= w;
            b[e] *= w;
        }
        if constexpr (!std::is_const_v<H>)
            store(h + j, a);
        store(dh + j, b);
    }
    block_sum(dot);
    return dot[0];
}

/* A block a pair, those of other ranks' experts, too: their weights have no gradient here. */
template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    weigh(struct gpt_expert_rows r, T *h, T *dh, int64_t f, float *dweight)
{
    const span here = pairs_here(r);
    const int p = blockIdx.x, pair = r.source[p];
    const int64_t row = p - here.begin;
    float dot = 0;

    if (p >= here.begin && p < here.end)
        dot = weigh_rows<W>(h + row * f, dh + row * f, f, r.weight[pair]);
    if (threadIdx.x == 0)
        dweight[pair] = dot;
}

void cuda_expert_weigh(struct gpt_queue *q, const struct gpt_expert_rows *rows, void *h, void *dh,
                       int64_t f, float *dweight)
{
    const int64_t pairs = rows->n * rows->k;

    if (!cuda_ready(q, "expert_weigh", rows->act) || !pairs)
        return;
    with_access(rows->act, cuda_wide(rows->act, f, h, dh), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;

        launch(q, weigh<T, W>, pairs, cuda_threads(f / W, THREADS), 0, *rows, (T *)h, (T *)dh, f,
               dweight);
    });
}

static __device__ inline float logistic(float x) { return 1 / (1 + expf(-x)); }

template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    gate_forward(T *x, const float *gate, int64_t n, int64_t f)
{
    const int64_t i = own_row();

    if (i >= n)
        return;
    const float w = logistic(gate[i]);
    for (int64_t j = threadIdx.x * W; j < f; j += blockDim.x * W) {
        float v[W];

        load(v, x + i * f + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            v[e] *= w;
        store(x + i * f + j, v);
    }
}

void cuda_gate_rows(struct gpt_queue *q, void *x, const float *gate, int64_t n, int64_t f,
                    enum gpt_dtype act)
{
    if (!cuda_ready(q, "gate_rows", act) || !n || !f)
        return;
    with_access(act, cuda_wide(act, f, x), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        const dim3 block = row_block(f / W);

        launch(q, gate_forward<T, W>, cuda_blocks(n, block.y), block, 0, (T *)x, gate, n, f);
    });
}

/* x is what gate_forward() has left: times the function already. */
template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    gate_backward(const T *x, T *dx, const float *gate, T *dgate, int64_t f)
{
    const int64_t i = blockIdx.x;
    const float w = logistic(gate[i]);
    const float dot = weigh_rows<W>(x + i * f, dx + i * f, f, w);

    if (threadIdx.x == 0)
        dgate[i] = from_float<T>(dot * (1 - w));
}

void cuda_gate_rows_bwd(struct gpt_queue *q, const void *x, void *dx, const float *gate,
                        void *dgate, int64_t n, int64_t f, enum gpt_dtype act)
{
    if (!cuda_ready(q, "gate_rows_bwd", act) || !n)
        return;
    with_access(act, cuda_wide(act, f, x, dx), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;

        launch(q, gate_backward<T, W>, n, cuda_threads(f / W, THREADS), 0, (const T *)x, (T *)dx,
               gate, (T *)dgate, f);
    });
}
