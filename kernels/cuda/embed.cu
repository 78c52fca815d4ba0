/* Token and position embeddings. The backward pass sorts rows by what they
 * belong to, so that each row of a table is added up by one block, in the
 * order of positions. */
#include "cuda/device.cuh"
#include "cuda/sort.cuh"

template <class T> struct words {
    int64_t c, v_begin, v_local;
    const int32_t *tokens, *positions;
    const T *wte, *wpe;
    T *out;
    float scale;
    struct cuda_drop drop;
};

/* By what words are multiplied. A product with 1 costs nothing beside memory, and
 * changes no bit. */
static float scale_of(const struct gpt_embed *op)
{
    return op->scale != 0 ? op->scale : 1;
}

template <class T, int W> static __global__ void embed(words<T> p)
{
    int64_t i = blockIdx.x, row = p.tokens[i] - p.v_begin;

    for (int64_t j = threadIdx.x * W; j < p.c; j += blockDim.x * W) {
        float x[W] = {}, at[W];

        /* A word of another rank's part: zeros, to which the sum over ranks adds
         * that rank's row. */
        if (row >= 0 && row < p.v_local)
            load(x, p.wte + row * p.c + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            x[e] *= p.scale;
        if (p.wpe) {
            load(at, p.wpe + p.positions[i] * p.c + j);
#pragma unroll
            for (int e = 0; e < W; e++)
                x[e] += at[e];
        }
        if (p.drop.below)
            drop(x, p.drop, drop_index(p.drop, i, p.c) + j);
        store(p.out + i * p.c + j, x);
    }
}

void cuda_embed_fwd(struct gpt_queue *q, const struct gpt_embed *op)
{
    if (!cuda_ready(q, "embed_fwd", op->act) || !op->n)
        return;
    bool wide = cuda_wide(op->act, op->c, op->wte, op->wpe, op->out);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        words<T> p = {op->c, op->v_begin, op->v_local, op->tokens, op->positions,
                      (const T *)op->wte, (const T *)op->wpe, (T *)op->out,
                      scale_of(op), cuda_drop_of(&op->dropout)};
        launch(q, embed<T, W>, op->n, cuda_threads(op->c / W, 256), 0, p);
    });
}

template <class T> struct gradient {
    int64_t n, c;
    int32_t limit; /* rows of dw */
    const T *dout;
    float *dw, scale;
    struct cuda_sorted sorted;
    struct cuda_drop drop;
};

/* One past the last of the equal keys that begin at i. */
static __device__ int64_t run_end(const int32_t *keys, int64_t i, int64_t n)
{
    /* A word like "the" has a long run, hence a search and no walk. */
    int64_t lo = i, hi = n; /* keys[lo] is equal, keys[hi] is not */

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (keys[mid] == keys[i])
            lo = mid;
        else
            hi = mid;
    }
    return hi;
}

/* A block for each sorted row; those that begin a run of equal keys add it. */
template <class T, int W> static __global__ void add_rows(gradient<T> p)
{
    int64_t i = blockIdx.x;
    int32_t key = p.sorted.keys[i];

    /* Sorted keys make equal tokens neighbours. The sort is stable, so that a run
     * is in the order of positions, and one block adds all of it: no atomics, one
     * order, the same bits at every run. */
    if (key >= p.limit || (i > 0 && p.sorted.keys[i - 1] == key))
        return; /* the whole block */
    int64_t end = run_end(p.sorted.keys, i, p.n);
    for (int64_t j = threadIdx.x * W; j < p.c; j += blockDim.x * W) {
        float sum[W] = {};
#pragma unroll 4
        for (int64_t k = i; k < end; k++) {
            /* Unrolled, four rows are on their way at a time; they are added in
             * order nevertheless. */
            int64_t row = p.sorted.from[k];
            float x[W];

            load(x, p.dout + row * p.c + j);
            if (p.drop.below)
                drop(x, p.drop, drop_index(p.drop, row, p.c) + j);
#pragma unroll
            for (int e = 0; e < W; e++)
                sum[e] += x[e];
        }
        float *to = p.dw + key * p.c + j, dw[W];
        load(dw, to);
#pragma unroll
        for (int e = 0; e < W; e++)
            /* once an element of the table, after all its rows */
            dw[e] += sum[e] * p.scale;
        store(to, dw);
    }
}

static void add_by_key(struct gpt_queue *q, const struct gpt_embed *op, const void *dout,
                       const int32_t *keys, int64_t first, int32_t limit, float *dw,
                       float scale)
{
    void *work = cuda_work(q, cuda_sort_work(op->n));

    if (!work)
        return;
    /* Both sorts share the queue's work memory: the second begins when the first
     * table's rows were added, by the order of the stream. */
    struct cuda_sorted sorted = cuda_sort(q, keys, op->n, (int32_t)first, limit, work);
    with_access(op->act, cuda_wide(op->act, op->c, dout, dw), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        gradient<T> p = {op->n, op->c, limit, (const T *)dout, dw, scale, sorted,
                         cuda_drop_of(&op->dropout)};
        launch(q, add_rows<T, W>, op->n, cuda_threads(op->c / W, 256), 0, p);
    });
}

void cuda_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op, const void *dout,
                    float *dwte, float *dwpe)
{
    if (!cuda_ready(q, "embed_bwd", op->act) || !op->n)
        return;
    if (dwte)
        add_by_key(q, op, dout, op->tokens, op->v_begin, (int32_t)op->v_local, dwte,
                   scale_of(op));
    if (dwpe) /* how many positions there are is not known here */
        add_by_key(q, op, dout, op->positions, 0, INT32_MAX, dwpe, 1);
}
