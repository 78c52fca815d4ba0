/* The emulation of what only Hopper has: copies and products are those of the
 * PTX manual, here written down a second time, and each kind of mistake is
 * found and named. */
#include "cuda/hopper.cuh"

#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "tests/lib/tap.h"
}

enum { T = 70, HEADS = 3, C = 64 };
typedef __nv_bfloat16 bf16;

/* x (2, T, HEADS, C): small whole numbers, which bfloat16 holds. */
static bf16 x[2 * T * HEADS * C];

static float number(int b, int t, int h, int c)
{
    if (t < 0 || t >= T || h < 0 || h >= HEADS || c >= C)
        return 0;
    return (float)((b * 31 + t * 7 + h * 5 + c * 3) % 17 - 8);
}

static CUresult encode(CUtensorMap *map, uint64_t row, cuuint32_t columns, cuuint32_t rows,
                       const void *at)
{
    cuuint64_t dim[4] = {C, HEADS, T, 2}, stride[3] = {C * 2, row, row * T};
    cuuint32_t box[4] = {columns, 1, rows, 1}, steps[4] = {1, 1, 1, 1};

    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
                                  const_cast<void *>(at), dim, stride, box, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void tensor_maps()
{
    CUtensorMap map;
    uint64_t row = HEADS * C * 2;

    is_int(encode(&map, row, 64, 64, x), CUDA_SUCCESS, "a tensor map");
    is_int(encode(&map, row + 8, 64, 64, x), CUDA_ERROR_INVALID_VALUE, "a stride of 8 bytes more");
    is_int(encode(&map, row, 64, 257, x), CUDA_ERROR_INVALID_VALUE, "a box of 257 rows");
    is_int(encode(&map, row, 128, 64, x), CUDA_ERROR_INVALID_VALUE, "a swizzled row of 256 bytes");
    is_int(encode(&map, row, 64, 64, x + 1), CUDA_ERROR_INVALID_VALUE, "a misaligned tensor");
}

struct memory {
    tile<bf16, 64, C> a, b;
    struct mbarrier full;
};

/* Loads heads 0 and 1 of sample 1 from row t on into a and b. */
static __device__ void fetch(struct memory &m, const CUtensorMap &map, int t)
{
    if (threadIdx.x == 0) {
        mbarrier_init(m.full, 1);
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_expect(m.full, sizeof(m.a) + sizeof(m.b));
        tma_load(m.a, map, m.full, 0, t, 1);
        tma_load(m.b, map, m.full, 1, t, 1);
    }
    mbarrier_wait(m.full, 0);
}

/* ---- copies ---- */

static __global__ void copy_out(bf16 *to, const CUtensorMap map, int t)
{
    auto &m = hopper_shared<struct memory>();
    fetch(m, map, t);
    for (unsigned i = threadIdx.x; i < 64 * C; i += blockDim.x)
        to[i] = m.a.at[0][i / C][i % C];
}

static void copies(const CUtensorMap &map)
{
    static const int first[] = {0, 13, -5};

    for (int t : first) {
        bf16 got[64 * C];
        int wrong = 0;
        bool good = emu::launch("copies", 1, 128, sizeof(struct memory),
                                [&] { copy_out(got, map, t); });

        for (int r = 0; r < 64; r++) /* 16-byte piece p of row r lies at p ^ r % 8 */
            for (int c = 0; c < C; c++) {
                bf16 e = got[r * C + ((c / 8) ^ (r % 8)) * 8 + c % 8];

                wrong += __bfloat162float(e) != number(1, t + r, 0, c);
            }
        ok(good && !wrong, "rows %d.. come swizzled, zeros beyond: %d wrong %s", t, wrong,
           emu::failure());
    }
}

/* ---- products ---- */

/* s = a b^T, and d = s rounded times b, of 64 x 64 each. */
static __global__ void multiply(float *s_out, float *d_out, const CUtensorMap map)
{
    auto &m = hopper_shared<struct memory>();
    float s[8][4], d[8][4] = {};
    uint32_t p[4][4];
    fetch(m, map, 0);
    wgmma_fence();
    for (int i = 0; i < 4; i++)
        wgmma<bf16>(s, wgmma_rows(m.a, 0, i), wgmma_rows(m.b, 0, i), i > 0);
    wgmma_commit();
    wgmma_wait<0>(s);
    for (int i = 0; i < 8; i++)
        for (int e = 0; e < 4; e++)
            s[i][e] = fmodf(s[i][e], 16);
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < 4; r++)
            p[i][r] = pack2<bf16>(s[2 * i + r / 2][r % 2 * 2], s[2 * i + r / 2][r % 2 * 2 + 1]);
    wgmma_fence();
    for (int i = 0; i < 4; i++)
        wgmma<bf16>(d, p[i], wgmma_columns(m.b, i), true);
    wgmma_commit();
    wgmma_wait<0>(d, p);
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 8; i++)
        for (int e = 0; e < 4; e++) {
            int at = (row + e / 2 * 8) * 64 + i * 8 + column + e % 2;

            s_out[at] = s[i][e];
            d_out[at] = d[i][e];
        }
}

static void products(const CUtensorMap &map)
{
    static float s[64 * 64], d[64 * 64], want[64 * 64];
    int wrong_s = 0, wrong_d = 0;
    bool good = emu::launch("products", 1, 128, sizeof(struct memory),
                            [&] { multiply(s, d, map); });

    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 64; j++) {
            float sum = 0;

            for (int k = 0; k < C; k++)
                sum += number(1, i, 0, k) * number(1, j, 1, k);
            want[i * 64 + j] = fmodf(sum, 16);
            wrong_s += s[i * 64 + j] != want[i * 64 + j];
        }
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < C; j++) {
            float sum = 0;

            for (int k = 0; k < 64; k++)
                sum += want[i * 64 + k] * number(1, k, 1, j);
            wrong_d += d[i * 64 + j] != sum;
        }
    ok(good && !wrong_s, "rows by rows: %d wrong %s", wrong_s, emu::failure());
    ok(good && !wrong_d, "registers by columns: %d wrong", wrong_d);
}

/* Without swizzle: 8 x 16 bytes lie together, a's and b's k pieces `leading`
 * apart, groups of 8 rows `stride` apart. */
static __global__ void multiply_plain(float *out)
{
    bf16 *a = reinterpret_cast<bf16 *>(emu::dynamic_shared());
    float d[1][4];

    if (threadIdx.x == 0) {
        for (int i = 0; i < 72 * 16; i++) { /* 64 rows of a, 8 of b */
            int row = i / 16, k = i % 16;
            a[row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8] =
                __float2bfloat16(number(0, row % 64, row / 64, k));
        }
    }
    __syncthreads();
    uint64_t form = (uint64_t)(256 >> 4) << 32 | (uint64_t)(128 >> 4) << 16;
    wgmma_fence();
    emu::wgmma_issue(d[0], {emu::WGMMA_BF16, 8, nullptr, form | shared_address(a) >> 4,
                            form | shared_address(a + 64 * 16) >> 4, false, false, false});
    wgmma_commit();
    wgmma_wait<0>(d);
    for (int e = 0; e < 4; e++)
        out[(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + e / 2 * 8) * 8 +
            threadIdx.x % 4 * 2 + e % 2] = d[0][e];
}

static void plain_product()
{
    float out[64 * 8];
    int wrong = 0;
    bool good = emu::launch("plain", 1, 128, 72 * 32, [&] { multiply_plain(out); });

    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;

            for (int k = 0; k < 16; k++)
                sum += number(0, i, 0, k) * number(0, j, 1, k);
            wrong += out[i * 8 + j] != sum;
        }
    ok(good && !wrong, "operands without swizzle: %d wrong %s", wrong, emu::failure());
}

/* ---- mistakes ---- */

static __device__ void mistake_of_copies(int kind, struct memory &m, const CUtensorMap &map)
{
    bool first = threadIdx.x == 0;

    switch (kind) {
    case 0:
        if (first)
            mbarrier_arrive(m.full);
        break;
    case 1: /* no fence after this */
        if (first) {
            mbarrier_init(m.full, 1);
            tma_load(m.a, map, m.full, 0, 0, 0);
        }
        break;
    case 2: /* of fewer bytes than come, or rather more */
        if (first) {
            mbarrier_init(m.full, 1);
            fence_async();
            mbarrier_expect(m.full, sizeof(m.a) + 16);
            tma_load(m.a, map, m.full, 0, 0, 0);
            mbarrier_wait(m.full, 0);
        }
        break;
    case 3:
        if (first) {
            mbarrier_init(m.full, 1);
            fence_async();
            mbarrier_expect(m.full, 16);
            mbarrier_arrive(m.full);
        }
        break;
    case 4:
        if (first) {
            mbarrier_init(m.full, 1);
            fence_async();
            tma_load(&m.a.at[0][0][32], map, m.full, {0, 0, 0, 0});
        }
        break;
    case 5: /* ends before the copy does */
        if (first) {
            mbarrier_init(m.full, 2);
            fence_async();
            mbarrier_expect(m.full, sizeof(m.a));
            tma_load(m.a, map, m.full, 0, 0, 0);
        }
        break;
    case 6:
        named_sync(1, threadIdx.x < 32 ? 64 : 128);
        break;
    case 7:
        more_registers<256>();
        more_registers<256>();
        break;
    case 16:
        named_sync(1 + threadIdx.x % 2, 128);
        break;
    case 17:
        if (threadIdx.x < 32)
            fewer_registers<24>();
        else
            fewer_registers<32>();
        break;
    case 18: /* 2^20 of them */
        if (first) {
            mbarrier_init(m.full, 1);
            fence_async();
            for (int i = 0; i < 128; i++)
                tma_load(m.a, map, m.full, 0, 0, 0);
            mbarrier_wait(m.full, 0);
        }
        break;
    }
}

static __device__ void mistake_of_products(int kind, struct memory &m)
{
    float d[8][4] = {};
    uint32_t a[4] = {};

    switch (kind) {
    case 8:
        wgmma<bf16>(d, wgmma_rows(m.a, 0, 0), wgmma_rows(m.b, 0, 0), true);
        break;
    case 9:
        wgmma_fence();
        wgmma<bf16>(d, wgmma_rows(m.a, 0, 0), wgmma_rows(m.b, 0, 0), true);
        d[3][1] = 0;
        wgmma_commit();
        wgmma_wait<0>(d);
        break;
    case 10: /* the result is not there */
        wgmma_fence();
        wgmma<bf16>(d, wgmma_rows(m.a, 0, 0), wgmma_rows(m.b, 0, 0), true);
        wgmma_commit();
        if (d[0][0] != d[0][0])
            emu::fail("NaN");
        break;
    case 11: /* a changes while it is read */
        wgmma_fence();
        wgmma<bf16>(d, a, wgmma_columns(m.b, 0), true);
        a[0] = a[1] = 0x7f807f80;
        wgmma_commit();
        wgmma_wait<0>(d);
        if (d[0][0] != 0)
            emu::fail("a changed");
        break;
    case 12: /* three rows down: the swizzle begins elsewhere */
        wgmma_fence();
        wgmma<bf16>(d, wgmma_rows(m.a, 3, 0), wgmma_rows(m.b, 0, 0), true);
        wgmma_commit();
        wgmma_wait<0>(d);
        break;
    case 13:
        wgmma_fence();
        wgmma<bf16>(d, wgmma_rows(m.a, 0, 0), wgmma_rows(m.b, 0, threadIdx.x / 64), true);
        wgmma_commit();
        wgmma_wait<0>(d);
        break;
    case 14:
        wgmma_fence();
        wgmma<bf16>(d, wgmma_rows(m.a, 0, 0), 1ull << 49, true);
        wgmma_commit();
        wgmma_wait<0>(d);
        break;
    case 15: /* a store that no fence follows */
        wgmma_fence();
        if (threadIdx.x == 0)
            mbarrier_init(*(struct mbarrier *)(emu::dynamic_shared() + sizeof(m.a)), 1);
        __syncthreads();
        wgmma<bf16>(d, wgmma_rows(m.a, 0, 0), wgmma_rows(m.b, 0, 0), true);
        wgmma_commit();
        wgmma_wait<0>(d);
        break;
    }
}

static __global__ void mistake(int kind, const CUtensorMap map)
{
    auto &m = hopper_shared<struct memory>();
    if (kind < 8 || kind > 15) {
        mistake_of_copies(kind, m, map);
    } else {
        fetch(m, map, 0);
        mistake_of_products(kind, m);
    }
}

static void mistakes(const CUtensorMap &map)
{
    static const struct {
        const char *what, *message;
    } cases[] = {
        {"an mbarrier that nobody initialised", "not initialised"},
        {"an mbarrier that copies do not see yet", "without fence.proxy.async"},
        {"bytes that never come", "mbarrier_wait"},
        {"one thread too many", "arrive at an mbarrier"},
        {"a copy to the middle of a row", "no multiple of 128"},
        {"a copy that nobody waits for", "bulk copies are under way"},
        {"a barrier of two sizes", "has begun with"},
        {"more registers than there are", "setmaxnreg"},
        {"products without wgmma.fence", "no wgmma.fence"},
        {"an accumulator that is written too early", "accumulator in flight"},
        {"an accumulator that is read too early", "NaN"},
        {"an operand that changes too early", "a changed"},
        {"an operand within the pattern", "begins within"},
        {"warps that do not do the same", "did different wgmma"},
        {"a descriptor with reserved bits", "reserved"},
        {"a store that products do not see yet", "without fence.proxy.async"},
        {"lanes at different barriers", "another barrier"},
        {"warps of a warpgroup with other registers", "or setmaxnreg"},
        {"bytes that nobody expects", "not expected"},
    };

    for (int k = 0; k < (int)(sizeof(cases) / sizeof(*cases)); k++) {
        bool good = emu::launch("mistake", 1, 128 << 2 * (k == 7), sizeof(struct memory),
                                [&] { mistake(k, map); });

        ok(!good && strstr(emu::failure(), cases[k].message), "%s: %s", cases[k].what,
           emu::failure());
    }
}

int main()
{
    alignas(64) CUtensorMap map;
    for (int i = 0; i < 2 * T * HEADS * C; i++)
        x[i] = __float2bfloat16(
            number(i / (T * HEADS * C), i / (HEADS * C) % T, i / C % HEADS, i % C));
    tensor_maps();
    encode(&map, HEADS * C * 2, 64, 64, x);
    for (const char *order : {"forward", "reverse", "random:3"}) {
        setenv("GPT_CUDA_EMU_ORDER", order, 1);
        copies(map);
        products(map);
        plain_product();
    }
    unsetenv("GPT_CUDA_EMU_ORDER");
    mistakes(map);
    return tap_done();
}
