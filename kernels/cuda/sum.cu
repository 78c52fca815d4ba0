/* The sum of squares of a flat buffer in double: of fixed blocks, then of these in order. */
#include "cuda/device.cuh"

/* EACH is a constant: the parentheses of the sum depend on n alone. */
enum { THREADS = 256, EACH = 1 << 14 };

template <int W>
static __global__ void sum_block(double *part, const float *x, int64_t n)
{
    double sum[1] = {0};
    int64_t begin = (int64_t)blockIdx.x * EACH;
    int64_t end = begin + EACH < n ? begin + EACH : n;

    /* In double throughout: float squares of large gradients would overflow, and
     * of small ones vanish. */
    for (int64_t i = begin + threadIdx.x * W; i < end; i += THREADS * W) {
        float v[W];

        if (i + W <= end)
            load(v, x + i);
        else
            for (int e = 0; e < W; e++)
                v[e] = i + e < end ? x[i + e] : 0;
#pragma unroll
        for (int e = 0; e < W; e++)
            sum[0] += (double)v[e] * (double)v[e];
    }
    block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum[0];
}

/* One block: each thread adds every THREADS-th part in order, then the threads'
 * sums meet in a tree whose shape does not change. */
static __global__ void sum_parts(double *out, const double *part, int64_t n)
{
    double sum[1] = {0};

    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        sum[0] += part[i];
    block_sum(sum);
    if (threadIdx.x == 0)
        *out = sum[0];
}

void cuda_sumsq(struct gpt_queue *q, double *out, const float *x, int64_t n)
{
    if (!cuda_ready(q, "sumsq", GPT_F32))
        return;
    int64_t blocks = cuda_blocks(n, EACH);
    double *part = (double *)cuda_work(q, (size_t)(blocks + 1) * sizeof(double));

    if (!part)
        return;
    if (blocks && cuda_wide(GPT_F32, 4, x))
        launch(q, sum_block<4>, blocks, THREADS, 0, part, x, n);
    else if (blocks)
        launch(q, sum_block<1>, blocks, THREADS, 0, part, x, n);
    launch(q, sum_parts, 1, THREADS, 0, out, (const double *)part, blocks);
}
