/* Sums of columns. Partial sums of blocks of rows come first, where rows are
 * many; then columns of these are added in a fixed order. */
#include "cuda/device.cuh"

/* Neighbouring threads read neighbouring columns: 32 lanes make whole lines of
 * memory. DEPTH rows at a time keep enough reads under way. */
enum { LANES = 32, DEPTH = 8 };
/* Parts depend on the number of rows alone. Atomics would save the second pass,
 * and add in another order at every run. */
static const int64_t MOST_PARTS = 64, PART_ROWS = 64;

/* A block is LANES columns wide (of W elements each) and DEPTH rows high. */
template <class T, int W>
static __global__ void sum_columns(float *out, const T *x, int64_t rows, int64_t cols,
                                   int64_t ld, int64_t each, bool add)
{
    __shared__ float part[DEPTH][LANES * W];
    int64_t j = ((int64_t)blockIdx.x * LANES + threadIdx.x) * W;
    int64_t begin = (int64_t)blockIdx.y * each;
    int64_t end = begin + each < rows ? begin + each : rows;
    float sum[W] = {};

    /* Each thread adds every DEPTH-th row of its columns, in ascending order. */
    for (int64_t i = begin + threadIdx.y; j < cols && i < end; i += DEPTH) {
        float v[W];

        load(v, x + i * ld + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            sum[e] += v[e];
    }
#pragma unroll
    for (int e = 0; e < W; e++)
        part[threadIdx.y][threadIdx.x * W + e] = sum[e];
    __syncthreads();
    /* Then the DEPTH sums of a column are added in the order of threads, by any
     * thread: the order is the column's, not the thread's. */
    int64_t c0 = (int64_t)blockIdx.x * LANES * W;
    for (int c = threadIdx.y * LANES + threadIdx.x; c < LANES * W; c += LANES * DEPTH) {
        if (c0 + c >= cols)
            break;
        float total = 0;
        for (int k = 0; k < DEPTH; k++)
            total += part[k][c];
        float *to = &out[(int64_t)blockIdx.y * cols + c0 + c];
        *to = add ? *to + total : total;
    }
}

void cuda_add_columns(struct gpt_queue *q, float *out, const float *part, int64_t rows,
                      int64_t cols, int64_t ld)
{
    launch(q, sum_columns<float, 1>, cuda_blocks(cols, LANES), dim3(LANES, DEPTH), 0, out, part,
           rows, cols, ld, rows, true);
}

void cuda_bias_grad(struct gpt_queue *q, float *dbias, const void *dy, int64_t m, int64_t n,
                    enum gpt_dtype act)
{
    if (!cuda_ready(q, "bias_grad", act) || !m || !n)
        return;
    int64_t parts = cuda_blocks(m, PART_ROWS);
    parts = parts < MOST_PARTS ? parts : MOST_PARTS;
    /* Rounded up, so parts are counted again: the last may be empty else. */
    int64_t each = cuda_blocks(m, parts);
    parts = cuda_blocks(m, each);
    float *work = (float *)cuda_work(q, (size_t)(parts * n) * sizeof(float));
    if (!work)
        return;
    with_access(act, cuda_wide(act, n, dy), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        launch(q, sum_columns<T, W>, dim3(cuda_blocks(n, LANES * W), parts), dim3(LANES, DEPTH),
               0, work, (const T *)dy, m, n, n, each, false);
    });
    cuda_add_columns(q, dbias, work, parts, n, n);
}

template <class T, int W>
static __global__ void add_bias(T *x, const T *bias, int64_t n)
{
    T *row = x + (int64_t)blockIdx.x * n;

    for (int64_t j = threadIdx.x * W; j < n; j += blockDim.x * W) {
        float v[W], b[W];

        load(v, row + j);
        load(b, bias + j);
#pragma unroll
        for (int e = 0; e < W; e++)
            v[e] += b[e];
        store(row + j, v);
    }
}

void cuda_bias_add(struct gpt_queue *q, void *x, const void *bias, int64_t m, int64_t n,
                   enum gpt_dtype act)
{
    if (!cuda_ready(q, "bias_add", act) || !m || !n)
        return;
    with_access(act, cuda_wide(act, n, x, bias), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        launch(q, add_bias<T, W>, m, cuda_threads(n / W, 256), 0, (T *)x, (const T *)bias, n);
    });
}
