/* Where elements lie: tiles in shared memory, operands' descriptors, fragments
 * in registers. The kernels and the emulation have these formulas from one
 * reading of the PTX manual; here are NVIDIA's others, those of CuTe (its
 * Swizzle<3, 4, 3> of byte addresses, and the layouts of its MMA traits), and
 * places as literal numbers. A misreading on both sides shows here. Tiles have
 * two groups of columns, so that the distance of groups counts. */
#include "cuda/hopper.cuh"

#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "tests/lib/tap.h"
}

typedef __nv_bfloat16 bf16;
enum { C = 128, ROWS = 64 };

static bf16 x[ROWS * C]; /* one head of one sample */

/* Small whole numbers, which bfloat16 holds, few of them equal nearby. */
static float number(int row, int column)
{
    return (float)((row * 37 + column * 11 + row * column) % 101 - 50);
}

/* CuTe: bits 4 to 6 of a byte address are xored with bits 7 to 9. */
static unsigned place_of(unsigned rows, unsigned row, unsigned column)
{
    unsigned at = column / 64 * rows * 128 + row * 128 + column % 64 * 2;

    return at ^ (at >> 3 & 0x70);
}

static void literals()
{
    static const struct {
        unsigned rows, row, column, byte;
    } places[] = {
        {64, 0, 0, 0},      {64, 1, 0, 144},      {64, 1, 8, 128},
        {64, 7, 63, 910},   {64, 8, 0, 1024},     {64, 9, 20, 1208},
        {64, 3, 127, 8654}, {64, 63, 64, 16368},  {128, 63, 64, 24560},
        {192, 1, 64, 24720},
    };

    for (const auto &p : places)
        is_int(place_of(p.rows, p.row, p.column), p.byte, "(%u, %u) of %u rows", p.row, p.column,
               p.rows);
}

/* ---- tiles, as the tensor copy leaves them ---- */

struct memory {
    tile<bf16, ROWS, C> a, b;
    struct mbarrier full;
};

static __global__ void copy_tile(bf16 *to, const CUtensorMap map)
{
    auto &m = hopper_shared<struct memory>();

    if (threadIdx.x == 0) {
        mbarrier_init(m.full, 1);
        fence_async();
        mbarrier_expect(m.full, sizeof(m.a));
        tma_load(m.a, map, m.full, 0, 0, 0);
        mbarrier_wait(m.full, 0);
        memcpy(to, &m.a, sizeof(m.a));
    }
}

static void tiles()
{
    alignas(64) CUtensorMap map;
    static bf16 got[ROWS * C];
    cuuint64_t dim[4] = {C, 1, ROWS, 1}, stride[3] = {C * 2, C * 2, C * 2 * ROWS};
    cuuint32_t box[4] = {64, 1, 64, 1}, steps[4] = {1, 1, 1, 1};
    int wrong = 0;

    is_int(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, x, dim, stride, box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
           CUDA_SUCCESS, "a tensor map");
    bool good = emu::launch("tiles", 1, 128, sizeof(struct memory), [&] { copy_tile(got, map); });
    for (unsigned r = 0; r < ROWS; r++)
        for (unsigned c = 0; c < C; c++)
            wrong += __bfloat162float(got[place_of(ROWS, r, c) / 2]) != number((int)r, (int)c);
    ok(good && !wrong, "a copied tile has CuTe's places: %d wrong %s", wrong, emu::failure());
}

/* ---- descriptors ---- */

/* Bits 0-13: address / 16; 16-29: leading; 32-45: stride; 62-63: 1, 128 bytes. */
static uint64_t descriptor(unsigned address, unsigned leading, unsigned stride)
{
    return 0x4000000000000000u + stride * 0x100000000u + leading * 0x10000u + address / 16;
}

static __global__ void describe(uint64_t *got, uint64_t *want)
{
    auto &small = hopper_shared<tile<bf16, 64, C>>();
    auto &tall = hopper_shared<tile<bf16, 128, C>>();
    unsigned at = shared_address(&small);

    got[0] = wgmma_rows(small, 0, 0), want[0] = descriptor(at, 1, 64);
    got[1] = wgmma_rows(small, 0, 3), want[1] = descriptor(at + 96, 1, 64);
    got[2] = wgmma_rows(small, 0, 5), want[2] = descriptor(at + 8192 + 32, 1, 64);
    got[3] = wgmma_rows(tall, 64, 6), want[3] = descriptor(at + 16384 + 8192 + 64, 1, 64);
    got[4] = wgmma_columns(small, 0), want[4] = descriptor(at, 512, 64);
    got[5] = wgmma_columns(small, 3), want[5] = descriptor(at + 6144, 512, 64);
    got[6] = wgmma_columns(tall, 7), want[6] = descriptor(at + 14336, 1024, 64);
}

static void descriptors()
{
    static const char *const what[] = {
        "rows",           "rows, elements 48.. of k", "rows, elements 80.. of k",
        "rows 64 of 128", "columns",                  "columns, rows 48..",
        "columns, rows 112.. of 128"};
    uint64_t got[7] = {}, want[7] = {};
    bool good = emu::launch("descriptors", 1, 1, sizeof(tile<bf16, 128, C>),
                            [&] { describe(got, want); });

    for (int i = 0; i < 7; i++)
        ok(good && got[i] == want[i], "%s: %#llx, wanted %#llx %s", what[i],
           (unsigned long long)got[i], (unsigned long long)want[i], emu::failure());
}

/* ---- products of tiles that are filled by place ---- */

static __device__ void put(tile<bf16, ROWS, C> &t, int offset)
{
    for (unsigned i = threadIdx.x; i < ROWS * C; i += blockDim.x) {
        bf16 e = __float2bfloat16(number((int)(i / C) + offset, (int)(i % C)));

        memcpy((char *)&t + place_of(ROWS, i / C, i % C), &e, sizeof(e));
    }
}

/* CuTe's layouts of accumulators and of operands in registers: thread t's value
 * v of 64 rows. */
static unsigned row_of(unsigned t, unsigned v)
{
    return t / 32 * 16 + t % 32 / 4 + v / 2 % 2 * 8;
}

static unsigned column_of(unsigned t, unsigned v)
{
    return t % 4 * 2 + v % 2 + v / 4 * 8;
}

/* s = a b^T over k of two groups; d = p b with p of registers, over the rows of
 * b, for columns of two groups. */
static __global__ void multiply(float *s_out, float *d_out)
{
    auto &m = hopper_shared<struct memory>();
    float s[8][4], d[16][4] = {};
    uint32_t p[4][4];

    put(m.a, 0);
    put(m.b, 5);
    fence_async();
    __syncthreads();
    wgmma_fence();
    for (int i = 0; i < C / 16; i++)
        wgmma<bf16>(s, wgmma_rows(m.a, 0, i), wgmma_rows(m.b, 0, i), i > 0);
    wgmma_commit();
    wgmma_wait<0>(s);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned r = 0; r < 4; r++) {
            unsigned row = row_of(threadIdx.x, 2 * (r % 2));
            unsigned k = 16 * i + column_of(threadIdx.x, 4 * (r / 2));

            p[i][r] = pack2<bf16>(number((int)row, (int)k + 3),
                                     number((int)row, (int)k + 4));
        }
    wgmma_fence();
    for (int i = 0; i < 4; i++)
        wgmma<bf16>(d, p[i], wgmma_columns(m.b, i), true);
    wgmma_commit();
    wgmma_wait<0>(d, p);
    for (unsigned v = 0; v < 64; v++) {
        unsigned row = row_of(threadIdx.x, v), column = column_of(threadIdx.x, v);

        if (v < 32)
            s_out[row * 64 + column] = s[v / 4][v % 4];
        d_out[row * C + column] = d[v / 4][v % 4];
    }
}

static void products()
{
    static float s[64 * 64], d[64 * C];
    int wrong_s = 0, wrong_d = 0;
    bool good = emu::launch("products", 1, 128, sizeof(struct memory), [&] { multiply(s, d); });

    for (int i = 0; i < 64; i++)
        for (int j = 0; j < C; j++) {
            float rows = 0, columns = 0;

            for (int k = 0; k < C && j < 64; k++)
                rows += number(i, k) * number(j + 5, k);
            for (int k = 0; k < ROWS; k++)
                columns += number(i, k + 3) * number(k + 5, j);
            wrong_s += j < 64 && s[i * 64 + j] != rows;
            wrong_d += d[i * C + j] != columns;
        }
    ok(good && !wrong_s, "rows by rows, k of 128: %d wrong %s", wrong_s, emu::failure());
    ok(good && !wrong_d, "registers by 128 columns: %d wrong", wrong_d);
}

/* Places of a few fragments, by thread and register. */
static void fragments()
{
    static const struct {
        unsigned thread, value, row, column;
    } places[] = {
        {0, 0, 0, 0},    {1, 2, 8, 2},     {4, 1, 1, 1},     {31, 3, 15, 7},
        {77, 23, 43, 43}, {127, 29, 55, 63}, {32, 4, 16, 8}, {95, 62, 47, 126},
    };

    for (const auto &p : places)
        ok(row_of(p.thread, p.value) == p.row && column_of(p.thread, p.value) == p.column,
           "thread %u has (%u, %u) as its value %u", p.thread, p.row, p.column, p.value);
}

/* mma.sync of one warp: a (16, 16) and b (16, 8) by literal places. */
static __global__ void multiply_warp(float *out)
{
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t a[4], b[2];
    float d[4] = {};

    for (unsigned r = 0; r < 4; r++) {
        int row = (int)(g + r % 2 * 8), k = (int)(2 * t + r / 2 * 8);

        a[r] = pack2<bf16>(number(row, k), number(row, k + 1));
    }
    for (unsigned r = 0; r < 2; r++) {
        int k = (int)(2 * t + r * 8);

        b[r] = pack2<bf16>(number(k, (int)g + 40), number(k + 1, (int)g + 40));
    }
    mma<bf16>(d, a, b);
    for (unsigned v = 0; v < 4; v++)
        out[row_of(threadIdx.x, v) * 8 + column_of(threadIdx.x, v)] = d[v];
}

/* The same of floats, a (16, 8) and b (8, 8), by CuTe's strides of lanes and values
 * (SM80_16x8x8_F32TF32TF32F32_TN): over the columns of a, over the rows of b. */
static __global__ void multiply_floats(float *out)
{
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t a[4], b[2];
    float d[4] = {};

    for (unsigned r = 0; r < 4; r++) {
        int at = (int)(t * 16 + g + r % 2 * 8 + r / 2 * 64);

        a[r] = __float_as_uint(number(at % 16, at / 16));
    }
    for (unsigned r = 0; r < 2; r++) {
        int at = (int)(t * 8 + g + r * 32);

        b[r] = __float_as_uint(number(at / 8, at % 8 + 40));
    }
    mma<float>(d, a, b);
    for (unsigned v = 0; v < 4; v++)
        out[row_of(threadIdx.x, v) * 8 + column_of(threadIdx.x, v)] = d[v];
}

template <class F> static void check_warp(const char *name, int terms, F multiply)
{
    static float d[16 * 8];
    int wrong = 0;
    bool good = emu::launch(name, 1, 32, 0, [&] { multiply(d); });

    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;

            for (int k = 0; k < terms; k++)
                sum += number(i, k) * number(k, j + 40);
            wrong += d[i * 8 + j] != sum;
        }
    ok(good && !wrong, "a product of one warp, %s: %d wrong %s", name, wrong, emu::failure());
}

static void warps()
{
    check_warp("of bfloat16", 16, multiply_warp);
    check_warp("of TF32", 8, multiply_floats);
}

int main()
{
    for (int i = 0; i < ROWS * C; i++)
        x[i] = __float2bfloat16(number(i / C, i % C));
    literals();
    tiles();
    descriptors();
    fragments();
    products();
    warps();
    return tap_done();
}
