/* Sums of columns. Partial sums of blocks of rows come first, where rows are
 * many; then columns of these are added in a fixed order. */
#include "cuda/device.cuh"

/* Neighbouring threads read neighbouring columns: 32 lanes make whole lines of memory. DEPTH rows
 * are added at a time, which keeps enough reads under way. */
enum { LANES = 32, DEPTH = 8 };
/* Parts depend on the matrix alone: blocks enough for any GPU, of PART_ROWS rows
 * or more. Atomics would save the second pass, and add in another order at every
 * run. */
static const int64_t BLOCKS = 768, PART_ROWS = 64;

/* A block is LANES columns wide (of W elements each) and DEPTH rows high. */
template <class T, int W>
static __global__ void sum_columns(float *out, const T *x, int64_t rows, int64_t cols,
                                   int64_t each)
{
    __shared__ float part[DEPTH][LANES * W];
    int64_t j = ((int64_t)blockIdx.x * LANES + threadIdx.x) * W;
    int64_t begin = (int64_t)blockIdx.y * each;
    int64_t end = begin + each < rows ? begin + each : rows;
    float sum[W] = {};

    /* Each thread adds every DEPTH-th row of its columns, in ascending order. */
#pragma unroll 4
    for (int64_t i = begin + threadIdx.y; j < cols && i < end; i += DEPTH) {
        float v[W];

        load(v, x + i * cols + j);
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
        out[(int64_t)blockIdx.y * cols + c0 + c] = total;
    }
}

/* A block is NARROW columns wide and TALL rows high: parts are few, and the time is
 * that of the reads which wait for each other. */
enum { NARROW = 16, TALL = 64 };

static __global__ void __launch_bounds__(NARROW *TALL)
    add_parts(cuda_columns to, const float *part, int64_t rows, int64_t ld)
{
    __shared__ float sums[TALL][NARROW];
    int64_t j = (int64_t)blockIdx.x * NARROW + threadIdx.x;
    float sum = 0;

#pragma unroll 4
    for (int64_t i = threadIdx.y; j < ld && i < rows; i += TALL)
        sum += part[i * ld + j];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || j >= ld)
        return;
    sum = 0;
#pragma unroll
    for (int k = 0; k < TALL; k++)
        sum += sums[k][threadIdx.x];
    for (int k = 0; k < CUDA_COLUMNS; k++, j -= to.cols[k - 1]) {
        if (j >= to.cols[k])
            continue;
        if (to.out[k])
            to.out[k][j] += sum;
        return;
    }
}

void cuda_add_columns(struct gpt_queue *q, const struct cuda_columns &to, const float *part,
                      int64_t rows)
{
    int64_t ld = 0;

    for (int64_t cols : to.cols)
        ld += cols;
    launch(q, add_parts, cuda_blocks(ld, NARROW), dim3(NARROW, TALL), 0, to, part, rows, ld);
}

void cuda_bias_grad(struct gpt_queue *q, float *dbias, const void *dy, int64_t m, int64_t n,
                    enum gpt_dtype act)
{
    if (!cuda_ready(q, "bias_grad", act) || !m || !n)
        return;
    with_access(act, cuda_wide(act, n, dy), [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        int64_t across = cuda_blocks(n, LANES * W);
        int64_t parts = min(cuda_blocks(m, PART_ROWS), cuda_blocks(BLOCKS, across));
        /* Rounded up, so parts are counted again: the last may be empty else. */
        int64_t each = cuda_blocks(m, parts);
        parts = cuda_blocks(m, each);
        float *work = (float *)cuda_work(q, (size_t)(parts * n) * sizeof(float));
        if (!work)
            return;
        launch(q, sum_columns<T, W>, dim3(across, parts), dim3(LANES, DEPTH), 0, work,
               (const T *)dy, m, n, each);
        cuda_add_columns(q, {{dbias}, {n}}, work, parts);
    });
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
