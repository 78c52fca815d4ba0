/* Products of eight bits: the largest element of a tensor, and factors that are
 * scaled by it, rounded and, where they lie across the product's sums, turned.
 * Rounding takes a pass over memory for each product instead of copies that last
 * from forward to backward: a factor of bf16 is read once more, and nothing more is
 * kept of a layer. Start at cuda_fp8_factors(). */
#include "cuda/fp8.cuh"
#include "cuda/device.cuh"

enum { THREADS = 256, WIDE = 8 /* bf16 of 16 bytes */, EACH = 2 * WIDE /* of a thread */ };

bool cuda_can_fp8(int major, int minor)
{
    return major > 8 || (major == 8 && minor >= 9);
}

/* ---- the largest element ---- */

/* Finds the largest magnitude. Values are compared as integers: a NaN is then the largest of all,
 * and no order matters. */
static __global__ void largest(uint32_t *amax, const uint4 *x, int64_t n)
{
    __shared__ uint32_t part[THREADS / 32];
    uint32_t most = 0;

#pragma unroll 4 /* reads under way */
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS) {
        uint4 v = x[i];
        uint32_t pairs[] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            most = max(most, max(pairs[j] & 0x7fff0000u, pairs[j] << 16 & 0x7fff0000u));
    }
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        most = max(most, __shfl_xor_sync(ALL_LANES, most, lanes));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x)
        return;
#pragma unroll
    for (int i = 1; i < THREADS / 32; i++)
        most = max(most, part[i]);
    atomicMax(amax, most);
}

/* Kernels read 16 bytes at a time, and ends have no road of their own. */
static bool is_aligned(struct gpt_queue *q, const void *x, int64_t n)
{
    if ((uintptr_t)x % 16 == 0 && n % 16 == 0)
        return true;
    cuda_fail(q, "a tensor for eight bits does not begin and end at multiples of 16");
    return false;
}

void cuda_amax(struct gpt_queue *q, float *amax, const void *x, int64_t n)
{
    const int64_t rounds = 8; /* of a block: fewer updates of the one result */

    if (!cuda_ready(q, "amax", GPT_BF16) || !n || !is_aligned(q, x, n))
        return;
    launch(q, largest, cuda_blocks(n / WIDE, THREADS * rounds), THREADS, 0, (uint32_t *)amax,
           (const uint4 *)x, n / WIDE);
}

/* ---- rounding ---- */

/* A factor in bf16, rows ld apart, and where it goes. */
struct rounding {
    const __nv_bfloat16 *from;
    uint8_t *to;
    int64_t rows, columns, ld;
    const float *amax;
    float *reciprocal; /* of the scale */
};

/* Rounds two numbers, the first into the lower byte. */
template <enum gpt_fp8 TYPE> static __device__ inline uint32_t two_of(float x, float y)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t pair;

    if (TYPE == GPT_E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(y), "f"(x));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(y), "f"(x));
    return pair;
#else
    return gpt_fp8_of(x, TYPE) | (uint32_t)gpt_fp8_of(y, TYPE) << 8;
#endif
}

/* Rounds eight neighbours after scaling them. The scale is not a power of two, so that the product
 * is rounded to float before it is rounded to eight bits, on every device. */
template <enum gpt_fp8 TYPE>
static __device__ inline uint2 round_eight(const __nv_bfloat16 *from, float scale)
{
    float x[WIDE];

    load(x, from);
    return make_uint2(two_of<TYPE>(x[0] * scale, x[1] * scale) |
                          two_of<TYPE>(x[2] * scale, x[3] * scale) << 16,
                      two_of<TYPE>(x[4] * scale, x[5] * scale) |
                          two_of<TYPE>(x[6] * scale, x[7] * scale) << 16);
}

/* Every thread computes the scale: a pass of its own would cost a launch. One
 * thread writes the reciprocal, by which the product's sums are multiplied. */
template <enum gpt_fp8 TYPE> static __device__ inline float scale_of(const struct rounding &r)
{
    const float scale = gpt_fp8_scale(*r.amax, TYPE);

    if (blockIdx.x == 0 && threadIdx.x == 0)
        *r.reciprocal = 1 / scale;
    return scale;
}

/* to (rows, columns). Rows without room between them are one long row: where a thread's
 * elements lie takes a division else, which costs as much as all the rest. */
template <enum gpt_fp8 TYPE> static __global__ void round_rows(struct rounding r)
{
    const float scale = scale_of<TYPE>(r);
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;

    if (i >= r.rows * r.columns)
        return;
    const int64_t at = r.ld == r.columns ? i : i / r.columns * r.ld + i % r.columns;
    const uint2 low = round_eight<TYPE>(r.from + at, scale);
    const uint2 high = round_eight<TYPE>(r.from + at + WIDE, scale);
    *reinterpret_cast<uint4 *>(r.to + i) = make_uint4(low.x, low.y, high.x, high.y);
}

/* to (columns, rows), by tiles of TILE x TILE. In shared memory a row is four
 * bytes longer, so that the lanes of a warp read different banks. */
enum { TILE = 64, STEP = TILE + 4 };

template <enum gpt_fp8 TYPE> static __global__ void round_turned(struct rounding r)
{
    __shared__ __align__(16) uint8_t tile[TILE * STEP];
    const float scale = scale_of<TYPE>(r);
    const int64_t across = (r.columns + TILE - 1) / TILE;
    const int64_t row0 = blockIdx.x / across * TILE, column0 = blockIdx.x % across * TILE;

    for (unsigned i = threadIdx.x; i < TILE * TILE / WIDE; i += THREADS) {
        const unsigned row = i / (TILE / WIDE), column = i % (TILE / WIDE) * WIDE;

        /* sizes are multiples of 16: eight are inside together, or none */
        if (row0 + row >= r.rows || column0 + column >= r.columns)
            continue;
        const uint2 eight =
            round_eight<TYPE>(r.from + (row0 + row) * r.ld + column0 + column, scale);
        uint32_t *at = reinterpret_cast<uint32_t *>(tile + row * STEP + column);
        at[0] = eight.x;
        at[1] = eight.y;
    }
    __syncthreads();
    /* four threads write 64 neighbours: 16 rows of one column each */
    const unsigned column = threadIdx.x / 4, row = threadIdx.x % 4 * 16;
    if (row0 + row >= r.rows || column0 + column >= r.columns)
        return;
    uint32_t words[4];
#pragma unroll
    for (unsigned i = 0; i < 16; i++) {
        const uint32_t code = tile[(row + i) * STEP + column];

        words[i / 4] = i % 4 ? words[i / 4] | code << i % 4 * 8 : code;
    }
    *reinterpret_cast<uint4 *>(r.to + (column0 + column) * r.rows + row0 + row) =
        make_uint4(words[0], words[1], words[2], words[3]);
}

static void round_factor(struct gpt_queue *q, enum gpt_fp8 type, bool turned,
                         const struct rounding &r)
{
    const int64_t rows = cuda_blocks(r.rows * r.columns, THREADS * EACH);
    const int64_t tiles = cuda_blocks(r.rows, TILE) * cuda_blocks(r.columns, TILE);

    static_assert(TILE * 4 == THREADS, "four threads for a column of a tile");
    if (!is_aligned(q, r.from, r.ld))
        return;
    with_fp8(type, [&](auto element) {
        const enum gpt_fp8 TYPE = decltype(element)::type;

        if (turned)
            launch(q, round_turned<TYPE>, tiles, THREADS, 0, r);
        else
            launch(q, round_rows<TYPE>, rows, THREADS, 0, r);
    });
}

/* ---- the factors of a product ---- */

/* Scratch begins with both reciprocals, where cuBLASLt reads them. */

bool cuda_fp8_factors(struct gpt_queue *q, const struct gpt_matmul *op, struct gemm_call *call)
{
    const struct gpt_fp8_factors *fp8 = &op->fp8;
    float *reciprocals = (float *)fp8->scratch;
    uint8_t *a = (uint8_t *)fp8->scratch + GPU_FP8_HEAD, *b = a + op->m * op->k;
    /* call has the factors of the transposed product: its a is op's b. A factor that lies the other
     * way for its own product is turned, as in both gradients. */
    const bool turn_a = op->ta, turn_b = !op->tb;

    if (op->act != GPT_BF16 || (op->m | op->n | op->k) % 16 || (uintptr_t)a % 16 ||
        (fp8->a == GPT_E5M2 && fp8->b == GPT_E5M2)) {
        cuda_fail(q, "no product of eight bits of this type or size");
        return false;
    }
    round_factor(q, fp8->a, turn_a,
                 {(const __nv_bfloat16 *)op->a, a, turn_a ? op->k : op->m,
                  turn_a ? op->m : op->k, call->ldb, fp8->amax_a, reciprocals});
    round_factor(q, fp8->b, turn_b,
                 {(const __nv_bfloat16 *)op->b, b, turn_b ? op->k : op->n,
                  turn_b ? op->n : op->k, call->lda, fp8->amax_b, reciprocals + 4});
    call->a = b;
    call->b = a;
    call->a8 = fp8->b;
    call->b8 = fp8->a;
    call->a_scale = reciprocals + 4;
    call->b_scale = reciprocals;
    call->lda = call->ldb = op->k;
    call->ta = true;
    call->tb = false;
    call->coarse = fp8->coarse;
    return q->err.status == GPT_OK;
}
