/* Tiles of attention for tensor cores: how they come into shared memory and
 * out of it as fragments. Rows are padded by 16 bytes, so that the eight rows
 * that ldmatrix reads at once lie in different banks.
 *
 * Elements T are of 16 bits, or floats where TF32 is allowed. Tiles of floats are
 * rounded to TF32 in place when they have come, as each is read by several warps.
 * A product takes 32 bytes of a row at a time, mma_k<T> elements. */
#ifndef GPT_KERNELS_CUDA_FLASH_CUH
#define GPT_KERNELS_CUDA_FLASH_CUH

#include "cuda/attn.cuh"
#include "cuda/mma.cuh"

/* A tile: ROWS positions of D elements. A block is four warps; which rows of the
 * block's own tile a warp owns, each kernel says. FLASH_ROWS: of flash_bwd.cu. */
enum { FLASH_ROWS = 64, FLASH_THREADS = 128 };
template <class T> constexpr int flash_at_once = 16 / sizeof(T); /* elements of 16 bytes */
template <int D, class T> constexpr int flash_ld = D + flash_at_once<T>;
template <int D, class T, int ROWS = FLASH_ROWS>
constexpr int flash_tile = ROWS * flash_ld<D, T>;

/* What most GPUs give a block at most. */
enum { FLASH_MEMORY = 99 * 1024 };

static const float FLASH_LOG2E = 1.44269504f;

/* Calls f(D), as a type, with the first of the sizes that d fits into. */
template <int D, class F> bool flash_padded(int64_t d, F f)
{
    if (d > D)
        return false;
    f(std::integral_constant<int, D>());
    return true;
}

template <int D, int NEXT, int... MORE, class F> bool flash_padded(int64_t d, F f)
{
    return flash_padded<D>(d, f) || flash_padded<NEXT, MORE...>(d, f);
}

/* Head sizes that kernels are made for. */
template <int... SIZES> struct flash_sizes {};

/* Calls f(T(), D), both as types, when tensor cores do op's type and options and
 * its head size is one of the sizes of its type or fits into one; else false. Tiles
 * then have columns of zeros, in shared memory only. */
template <int... SIZES, int... OF_FLOATS, class F>
bool flash_size(const struct gpt_attn *op, flash_sizes<SIZES...>, flash_sizes<OF_FLOATS...>, F f)
{
    auto sized = [&](auto type) {
        return flash_padded<SIZES...>(op->d, [&](auto d) { f(type, d); });
    };

    if (!gpu_flash_does(op, cuda_uses_tf32()) || !cuda_wide(op->act, op->d, op->qkv, op->out))
        return false;
    if (op->act == GPT_F32)
        return flash_padded<OF_FLOATS...>(op->d, [&](auto d) { f(float(), d); });
    return op->act == GPT_BF16 ? sized(__nv_bfloat16()) : sized(__half());
}

/* Calls f(row, column) for the pieces of a tile, 16 bytes each, that a thread
 * brings there. */
template <int D, class T, int ROWS, class F> __device__ inline void flash_pieces(F f)
{
    constexpr int W = flash_at_once<T>;

    for (int i = threadIdx.x; i < ROWS * D / W; i += FLASH_THREADS)
        f(i / (D / W), i % (D / W) * W);
}

/* Begins to copy rows first.. of x, ld apart, into a tile; zeros past row n and
 * past `columns`. */
template <int D, int ROWS = FLASH_ROWS, class T>
__device__ inline void flash_fetch(T *tile, const T *x, int64_t first, int64_t n, int64_t ld,
                                   int64_t columns)
{
    flash_pieces<D, T, ROWS>([&](int row, int column) {
        bool here = first + row < n && column < columns;

        copy_async(tile + row * flash_ld<D, T> + column,
                   here ? x + (first + row) * ld + column : x, here ? 16 : 0);
    });
}

/* An element of memory as products take it. */
template <class T> __device__ inline float flash_as_factor(float x)
{
    return std::is_same_v<T, float> ? round_tf32(x) : x;
}

/* Makes factors of what flash_fetch() has brought: rounds floats. Each thread has
 * waited for its own copies, and does these; a barrier follows. */
template <int D, int ROWS = FLASH_ROWS, class T> __device__ inline void flash_round(T *tile)
{
    if constexpr (std::is_same_v<T, float>)
        flash_pieces<D, T, ROWS>([&](int row, int column) {
            float *at = tile + row * flash_ld<D, T> + column, x[4];

            load(x, at);
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = flash_as_factor<T>(x[i]);
            store(at, x);
        });
}

/* The first key that any of the queries t.. t + ROWS - 1 sees, those inside the
 * sequence. */
template <int ROWS = FLASH_ROWS>
__device__ inline int flash_first(const struct attn_shape &s, int64_t b, int64_t t)
{
    if (!attn_hides(s))
        return 0;
    int first = (int)max(t, (int64_t)0);
#pragma unroll
    for (int i = threadIdx.x % 32; i < ROWS; i += 32)
        first = min(first, (int)attn_first(s, b, min(max(t + i, (int64_t)0), s.t - 1)));
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        first = min(first, __shfl_xor_sync(ALL_LANES, first, lanes));
    return warp_uniform(first);
}

/* The 16 x mma_k block at (row, column) as `a` of a product. */
template <int D, class T>
__device__ inline void flash_a(uint32_t (&a)[4], const T *tile, int row, int column)
{
    int lane = threadIdx.x % 32;

    ldmatrix4(a, tile + (row + lane % 16) * flash_ld<D, T> + column +
                     lane / 16 * flash_at_once<T>);
}

/* The 16 x mma_k block at (row, column) as two `b`, rows being columns of b:
 * b[0] of rows row.., b[1] of the eight after them. */
template <int D, class T>
__device__ inline void flash_b(uint32_t (&b)[2][2], const T *tile, int row, int column)
{
    int lane = threadIdx.x % 32;
    uint32_t r[4];

    ldmatrix4(r, tile + (row + lane / 16 * 8 + lane % 8) * flash_ld<D, T> + column +
                     lane / 8 % 2 * flash_at_once<T>);
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}

/* The mma_k x 16 block at (row, column) as two `b`, rows being rows of b: b[0] of
 * columns column.., b[1] of the eight after them. Of floats rows 2 t and 2 t + 1 of
 * the tile are rows t and t + 4 of b: flash_factor() has `a` in the same order. */
template <int D, class T>
__device__ inline void flash_b_rows(uint32_t (&b)[2][2], const T *tile, int row, int column)
{
    int lane = threadIdx.x % 32;

    if constexpr (std::is_same_v<T, float>) {
        /* Lanes read from different banks: two rows are 8 banks apart. */
        tile += (row + lane % 4 * 2) * flash_ld<D, T> + column + lane / 4;
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[i / 2][i % 2] = __float_as_uint(tile[i % 2 * flash_ld<D, T> + i / 2 * 8]);
    } else {
        uint32_t r[4];

        ldmatrix4_transposed(r, tile + (row + lane % 16) * flash_ld<D, T> + column +
                                    lane / 16 * 8);
        b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
    }
}

/* Two neighbouring `d` (16, 8) rounded to one `a` (16, 16) of 16 bits. */
template <class T>
__device__ inline void flash_d_to_a(uint32_t (&a)[4], const float (&low)[4],
                                    const float (&high)[4])
{
    a[0] = pack2<T>(low[0], low[1]);
    a[1] = pack2<T>(low[2], low[3]);
    a[2] = pack2<T>(high[0], high[1]);
    a[3] = pack2<T>(high[2], high[3]);
}

/* Columns k * mma_k.. of `d` fragments rounded to `a`, of floats in the order of
 * flash_b_rows(): those that a lane holds are its own of `a`. */
template <class T, int N>
__device__ inline void flash_factor(uint32_t (&a)[4], const float (&d)[N][4], int k)
{
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            a[e] = __float_as_uint(round_tf32(d[k][e / 2 + e % 2 * 2]));
    } else {
        flash_d_to_a<T>(a, d[2 * k], d[2 * k + 1]);
    }
}

/* The warp's 16 rows, as `a`, of a tile. */
template <int D, class T>
__device__ inline void flash_rows(uint32_t (&a)[D / mma_k<T>][4], const T *tile)
{
#pragma unroll
    for (int d = 0; d < D / mma_k<T>; d++)
        flash_a<D>(a[d], tile, threadIdx.x / 32 * 16, d * mma_k<T>);
}

/* s (16, 8 N) += a (16, D) times the transpose of tile (8 N, D). */
template <int D, int N, class T>
__device__ inline void flash_scores(float (&s)[N][4], const uint32_t (&a)[D / mma_k<T>][4],
                                    const T *tile)
{
#pragma unroll
    for (int d = 0; d < D / mma_k<T>; d++)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[2][2];

            flash_b<D>(b, tile, n * 8, d * mma_k<T>);
            mma<T>(s[n], a[d], b[0]);
            mma<T>(s[n + 1], a[d], b[1]);
        }
}

/* The same, `a` being rows row.. of a tile: fewer registers. */
template <int D, int N, class T>
__device__ inline void flash_scores_of(float (&s)[N][4], const T *rows, int row, const T *tile)
{
#pragma unroll
    for (int d = 0; d < D / mma_k<T>; d++) {
        uint32_t a[4];

        flash_a<D>(a, rows, row, d * mma_k<T>);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[2][2];

            flash_b<D>(b, tile, n * 8, d * mma_k<T>);
            mma<T>(s[n], a, b[0]);
            mma<T>(s[n + 1], a, b[1]);
        }
    }
}

/* The same for M times 16 rows, for which the tile is read once. */
template <int D, int M, int N, class T>
__device__ inline void flash_scores_of(float (&s)[M][N][4], const T *rows, int row,
                                       const T *tile)
{
#pragma unroll
    for (int d = 0; d < D / mma_k<T>; d++) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            flash_a<D>(a[m], rows, row + 16 * m, d * mma_k<T>);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[2][2];

            flash_b<D>(b, tile, n * 8, d * mma_k<T>);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma<T>(s[m][n], a[m], b[0]);
                mma<T>(s[m][n + 1], a[m], b[1]);
            }
        }
    }
}

/* sum (16, D) += p (16, 8 N), rounded, times tile (8 N, D). */
template <int D, int N, class T>
__device__ inline void flash_add(float (&sum)[D / 8][4], const float (&p)[N][4], const T *tile)
{
#pragma unroll
    for (int k = 0; k < N * 8 / mma_k<T>; k++) {
        uint32_t a[4];

        flash_factor<T>(a, p, k);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[2][2];

            flash_b_rows<D>(b, tile, k * mma_k<T>, n * 8);
            mma<T>(sum[n], a, b[0]);
            mma<T>(sum[n + 1], a, b[1]);
        }
    }
}

/* The same for M times 16 rows. */
template <int D, int M, int N, class T>
__device__ inline void flash_add(float (&sum)[M][D / 8][4], const float (&p)[M][N][4],
                                 const T *tile)
{
#pragma unroll
    for (int k = 0; k < N * 8 / mma_k<T>; k++) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            flash_factor<T>(a[m], p[m], k);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[2][2];

            flash_b_rows<D>(b, tile, k * mma_k<T>, n * 8);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma<T>(sum[m][n], a[m], b[0]);
                mma<T>(sum[m][n + 1], a[m], b[1]);
            }
        }
    }
}

/* Writes the first columns of a warp's (16, D) sums times by[row / 8] to rows
 * t.. of x, ld apart, those below n. t: this lane's first row. Rows begin at
 * multiples of 16 bytes, and columns are a multiple of 8: a lane writes 16
 * bytes at once, of floats the 8 that it holds, four lanes a sector. */
template <int D, class T>
__device__ inline void flash_store(T *x, const float (&sum)[D / 8][4], const float (&by)[2],
                                   int64_t t, int64_t n, int64_t ld, int64_t columns)
{
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        T *row = x + (t + 8 * h) * ld;
        if constexpr (std::is_same_v<T, float>) {
#pragma unroll
            for (int i = 0; i < D / 8; i++)
                if (t + 8 * h < n && i * 8 < columns)
                    mma_write(row + i * 8 + lane * 2,
                                make_float2(sum[i][2 * h] * by[h], sum[i][2 * h + 1] * by[h]));
        } else {
#pragma unroll
            for (int i = 0; i < D / 8; i += 4) {
                int column = (i + lane) * 8;
                uint32_t w[4] = {};
#pragma unroll
                for (int k = 0; k < 4 && i + k < D / 8; k++)
                    w[k] = pack2<T>(sum[i + k][2 * h] * by[h], sum[i + k][2 * h + 1] * by[h]);
                mma_gather(w); /* by all lanes, also those of rows past the end */
                if (t + 8 * h < n && column < columns)
                    mma_write(row + column, make_uint4(w[0], w[1], w[2], w[3]));
            }
        }
    }
}

/* ALiBi on scores in `d` fragments, before they are scaled: slope times the
 * distance of row i from column j, which are the thread's first. */
template <int N>
__device__ inline void flash_lean(float (&s)[N][4], float slope, int i, int j)
{
    float far = (float)(j - i); /* whole numbers below 2^24: sums are exact */
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] += slope * (far + (float)(n * 8 + e % 2 - e / 2 * 8));
}

/* tanh, by one exponential. What is lost near 0 is 2^-24 of 1, not of the result:
 * caps are tens, and scores are exponents. */
__device__ inline float flash_tanh(float x)
{
    float e = exp2_fast(-2 * FLASH_LOG2E * fabsf(x));

    return copysignf(__fdividef(1 - e, 1 + e), x);
}

/* Caps scores in `d` fragments, before they are scaled; by: the scale over the
 * cap. */
template <int N> __device__ inline void flash_cap(float (&s)[N][4], float by)
{
    float size = 1 / by;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = size * flash_tanh(s[n][e] * by);
}

/* What flash_cap() takes; 0 without a cap. */
__device__ inline float flash_cap_by(const struct attn_shape &s)
{
    return s.softcap > 0 ? s.scale / s.softcap : 0;
}

#endif
