/* A product without a library: for machines that have none, and for shapes that
 * it refuses. Tiles of 64 x 64 in float; a block's threads each own 4 x 4. */
#include "cuda/device.cuh"
#include "cuda/fp8.cuh"

enum { TILE = 64, DEPTH = 16, EDGE = 16, EACH = TILE / EDGE };

/* op(x) (rows, cols) column-major from (row0, col0) on into tile[col][row], or
 * [row][col] when `turned`; zeros outside. */
template <class T, int R, int C>
static __device__ void fill(float (*tile)[TILE + 1], const T *x, int64_t ld, bool t, int64_t row0,
                            int64_t col0, int64_t rows, int64_t cols, bool turned)
{
    for (int i = threadIdx.x; i < R * C; i += EDGE * EDGE) {
        /* neighbouring threads take neighbours in memory */
        int r = t ? i / C : i % R, c = t ? i % C : i / R;
        int64_t row = row0 + r, col = col0 + c;
        float v = 0;

        if (row < rows && col < cols)
            v = to_float(x[t ? col + row * ld : row + col * ld]);
        if (turned)
            tile[r][c] = v;
        else
            tile[c][r] = v;
    }
}

/* A block a tile, of which `across` are side by side: their rows and columns together are the
 * grid's first dimension, since the others have 65535 blocks at most. */
template <class A, class B, class C>
static __global__ void product(struct gemm_call g, unsigned across)
{
    /* TILE + 1: columns of a tile fall into different banks. */
    __shared__ float a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    int64_t m0 = (int64_t)(blockIdx.x % across) * TILE, n0 = (int64_t)(blockIdx.x / across) * TILE;
    int i0 = threadIdx.x % EDGE, j0 = threadIdx.x / EDGE;
    float sum[EACH][EACH] = {};

    for (int64_t k0 = 0; k0 < g.k; k0 += DEPTH) {
        fill<A, TILE, DEPTH>(a, (const A *)g.a, g.lda, g.ta, m0, k0, g.m, g.k, false);
        fill<B, DEPTH, TILE>(b, (const B *)g.b, g.ldb, g.tb, k0, n0, g.k, g.n, true);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
#pragma unroll
            for (int j = 0; j < EACH; j++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    /* Threads own elements EDGE apart: neighbours read
                     * neighbours, and k ascends for every sum. */
                    sum[j][i] += a[k][i0 + i * EDGE] * b[k][j0 + j * EDGE];
        __syncthreads();
    }
    const float by = g.a_scale ? *g.a_scale * *g.b_scale : 1;
#pragma unroll
    for (int j = 0; j < EACH; j++)
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int64_t row = m0 + i0 + i * EDGE, col = n0 + j0 + j * EDGE;

            if (row >= g.m || col >= g.n)
                continue;
            C *to = (C *)g.c + row + col * g.ldc;
            *to = from_float<C>(sum[j][i] * by + (g.beta != 0 ? g.beta * to_float(*to) : 0));
        }
}

void gemm_plain(struct gpt_queue *q, const struct gemm_call *call)
{
    /* All combinations of types: float c of bf16 factors is a weight's gradient. */
    const unsigned across = (unsigned)cuda_blocks(call->m, TILE);
    const int64_t tiles = across * cuda_blocks(call->n, TILE);

    with_type(call->c_type, [&](auto c_type) {
        using C = decltype(c_type);
        if (call->a8 != GPT_FP8_NONE)
            with_fp8(call->a8, [&](auto a) {
                with_fp8(call->b8, [&](auto b) {
                    launch(q, product<decltype(a), decltype(b), C>, tiles, EDGE * EDGE, 0, *call,
                           across);
                });
            });
        else
            with_type(call->act, [&](auto act) {
                using T = decltype(act);
                launch(q, product<T, T, C>, tiles, EDGE * EDGE, 0, *call, across);
            });
    });
}
