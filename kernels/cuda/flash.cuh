/* Tiles of attention for tensor cores: how they come into shared memory and
 * out of it as fragments. Rows are padded by 16 bytes, so that the eight rows
 * that ldmatrix reads at once lie in different banks. */
#ifndef GPT_KERNELS_CUDA_FLASH_CUH
#define GPT_KERNELS_CUDA_FLASH_CUH

#include "cuda/attn.cuh"
#include "cuda/mma.cuh"

/* A tile: ROWS positions of D elements. A block is four warps, each of which
 * owns 16 of its own tile's rows. */
enum { FLASH_ROWS = 64, FLASH_THREADS = 128 };
template <int D> constexpr int flash_ld = D + 8;
template <int D> constexpr int flash_tile = FLASH_ROWS * flash_ld<D>;

/* Calls f(T(), D), both as types, when tensor cores do op's type and head size;
 * else false. */
template <class F> bool flash_size(const struct gpt_attn *op, F f)
{
    auto sized = [&](auto type) {
        switch (op->d) {
        case 64:
            f(type, std::integral_constant<int, 64>());
            return true;
        case 80:
            f(type, std::integral_constant<int, 80>());
            return true;
        case 96:
            f(type, std::integral_constant<int, 96>());
            return true;
        case 128:
            f(type, std::integral_constant<int, 128>());
            return true;
        }
        return false;
    };
    if (op->act == GPT_F32 || !cuda_wide(op->act, op->d, op->qkv, op->out))
        return false;
    return op->act == GPT_BF16 ? sized(__nv_bfloat16()) : sized(__half());
}

/* Where the first tile of keys begins that queries t0.. of a block see. */
__device__ inline int64_t flash_first(const struct attn_shape &s, int64_t b, int64_t t0)
{
    int64_t first = attn_first(s, b, t0);
    for (int64_t t = t0 + 1; s.doc_start && t < s.t && t < t0 + FLASH_ROWS; t++)
        first = min(first, attn_first(s, b, t));
    return first / FLASH_ROWS * FLASH_ROWS;
}

/* Begins to copy rows first.. of x, ld apart, into a tile; zeros past n. */
template <int D, class T>
__device__ inline void flash_fetch(T *tile, const T *x, int64_t first, int64_t n, int64_t ld)
{
    for (int i = threadIdx.x; i < FLASH_ROWS * D / 8; i += FLASH_THREADS) {
        int row = i / (D / 8), column = i % (D / 8) * 8;
        bool here = first + row < n;
        copy_async(tile + row * flash_ld<D> + column,
                   x + (here ? first + row : 0) * ld + column, here ? 16 : 0);
    }
}

/* The 16 x 16 block at (row, column) as `a` of a product. */
template <int D, class T>
__device__ inline void flash_a(uint32_t (&a)[4], const T *tile, int row, int column)
{
    int lane = threadIdx.x % 32;
    ldmatrix4(a, tile + (row + lane % 16) * flash_ld<D> + column + lane / 16 * 8);
}

/* The 16 x 16 block at (row, column) as two `b`, rows being columns of b:
 * b[0] of rows row.., b[1] of the eight after them. */
template <int D, class T>
__device__ inline void flash_b(uint32_t (&b)[2][2], const T *tile, int row, int column)
{
    int lane = threadIdx.x % 32;
    uint32_t r[4];
    ldmatrix4(r, tile + (row + lane / 16 * 8 + lane % 8) * flash_ld<D> + column +
                     lane / 8 % 2 * 8);
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}

/* The same block as two `b`, rows being rows of b: b[0] of columns column..,
 * b[1] of the eight after them. */
template <int D, class T>
__device__ inline void flash_b_rows(uint32_t (&b)[2][2], const T *tile, int row, int column)
{
    int lane = threadIdx.x % 32;
    uint32_t r[4];
    ldmatrix4_transposed(r, tile + (row + lane % 16) * flash_ld<D> + column + lane / 16 * 8);
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}

/* Two neighbouring `d` (16, 8) rounded to one `a` (16, 16). */
template <class T>
__device__ inline void flash_d_to_a(uint32_t (&a)[4], const float (&low)[4],
                                    const float (&high)[4])
{
    a[0] = pack2<T>(low[0], low[1]);
    a[1] = pack2<T>(low[2], low[3]);
    a[2] = pack2<T>(high[0], high[1]);
    a[3] = pack2<T>(high[2], high[3]);
}

#endif
