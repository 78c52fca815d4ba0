/* The emulation itself: kernels that are right give what a GPU gives, and each
 * kind of mistake is found and named. One program, as kernels with mistakes
 * have no place in the plugin. */
#include "cuda/mma.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "tests/lib/tap.h"
}

#ifdef __SANITIZE_ADDRESS__
static const bool has_asan = true;
#else
static const bool has_asan = false;
#endif

/* ---- what works ---- */

static __global__ void reverse_block(int *x, bool wait)
{
    __shared__ int row[64];

    row[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    if (wait)
        __syncthreads();
    x[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];
}

/* True when the blocks of 64 come out reversed. */
static bool reverses(const char *order, bool wait)
{
    int x[256];

    for (int i = 0; i < 256; i++)
        x[i] = i + 1;
    setenv("GPT_CUDA_EMU_ORDER", order, 1);
    bool good = emu::launch("reverse", 4, 64, 0,
                            [&] { reverse_block(x, wait); });
    for (int i = 0; i < 256; i++)
        good = good && x[i] == i / 64 * 64 + 64 - i % 64;
    return good;
}

static void barriers()
{
    static const char *const orders[] = {"forward", "reverse", "random:1",
                                         "random:2"};
    int wrong = 0;

    for (const char *order : orders) {
        ok(reverses(order, true), "a barrier is kept (%s)", order);
        wrong += !reverses(order, false);
    }
    is_int(wrong, 4, "a missing barrier shows in every order");
}

static __global__ void warp_work(float *sum, unsigned *votes, unsigned *equal)
{
    float x = (float)threadIdx.x;

    for (int lanes = 16; lanes; lanes /= 2)
        x += __shfl_xor_sync(~0u, x, lanes);
    sum[threadIdx.x] = x + __shfl_down_sync(~0u, x, 1, 16) * 0;
    votes[threadIdx.x] = __ballot_sync(~0u, threadIdx.x % 3 == 0);
    equal[threadIdx.x] = __match_any_sync(~0u, threadIdx.x / 8);
    if (threadIdx.x % 32 < 16) /* half a warp may meet on its own */
        sum[threadIdx.x] += __shfl_sync(0xffffu, sum[threadIdx.x], 3);
}

static void warps()
{
    float sum[64];
    unsigned votes[64], equal[64];
    bool good = emu::launch("warps", 1, 64, 0,
                            [&] { warp_work(sum, votes, equal); });

    ok(good, "lanes meet: %s", emu::failure());
    ok(sum[5] == 2 * 496 && sum[20] == 496 && sum[32] == 2 * 1520,
       "shuffles add up a warp, and half a one");
    ok(votes[0] == 0x49249249 && votes[31] == votes[0], "votes");
    ok(equal[9] == 0x0000ff00 && equal[63] == 0xff000000, "equal lanes");
}

/* d = a b for a, b with small whole numbers, which every format holds. */
static __global__ void product(float *d, const uint16_t *a, const uint16_t *b)
{
    __shared__ __align__(16) uint16_t tile[16][16];
    uint32_t fa[4], fb[2], pair[4];
    float fd[4] = {0, 0, 0, 0};
    unsigned l = threadIdx.x;

    for (unsigned i = l; i < 256; i += 32)
        tile[i / 16][i % 16] = a[i];
    __syncwarp();
    ldmatrix4(fa, &tile[l % 16][l / 16 * 8]);
    __syncwarp();
    for (unsigned i = l; i < 128; i += 32)
        tile[i / 8][i % 8] = b[i];
    __syncwarp();
    ldmatrix4_transposed(pair, &tile[l % 16][0]);
    fb[0] = pair[0];
    fb[1] = pair[1];
    mma<__nv_bfloat16>(fd, fa, fb);
    for (unsigned i = 0; i < 4; i++)
        d[(l / 4 + i / 2 * 8) * 8 + l % 4 * 2 + i % 2] = fd[i];
}

static void tensors()
{
    float d[128], a[256], b[128];
    uint16_t ha[256], hb[128];

    for (int i = 0; i < 256; i++)
        ha[i] = gpt_f32_to_bf16(a[i] = (float)(i * 7 % 11 - 5));
    for (int i = 0; i < 128; i++)
        hb[i] = gpt_f32_to_bf16(b[i] = (float)(i * 5 % 13 - 6));
    bool good = emu::launch("product", 1, 32, 0, [&] { product(d, ha, hb); });
    int wrong = 0;
    for (int i = 0; i < 128; i++) {
        float want = 0;

        for (int k = 0; k < 16; k++)
            want += a[i / 8 * 16 + k] * b[k * 8 + i % 8];
        wrong += d[i] != want;
    }
    ok(good && !wrong, "ldmatrix and mma multiply: %d wrong %s", wrong,
       emu::failure());
}

/* Ties go away from zero; what is no number stays what it is. */
static void roundings()
{
    static const struct {
        float x, want;
    } cases[] = {
        {1 + 0x1p-11f, 1 + 0x1p-10f},   {-1 - 0x1p-11f, -1 - 0x1p-10f},
        {1 + 0x1.ffep-12f, 1},          {1 + 0x3p-11f, 1 + 0x1p-9f},
        {0x1.ffep3f, 16},               {-3, -3},
        {0x1p-149f, 0},                 {0x1.ff8p-127f, 0x1.ff8p-127f},
        {INFINITY, INFINITY},           {-INFINITY, -INFINITY},
        {0x1.ffffp127f, INFINITY},
    };

    for (const auto &c : cases)
        ok(round_tf32(c.x) == c.want, "%a as TF32: %a", (double)c.x,
           (double)round_tf32(c.x));
    ok(isnan(round_tf32(NAN)), "NaN as TF32");
}

static __global__ void fetch(float *to, const float *from, int waits)
{
    __shared__ __align__(16) float tile[32][4];
    unsigned i = threadIdx.x;

    for (unsigned k = 0; k < 4; k++)
        tile[i][k] = -1;
    copy_async(tile[i], from + 4 * i, i == 31 ? 8 : 16);
    copy_commit();
    if (waits)
        copy_wait<0>();
    for (unsigned k = 0; k < 4; k++)
        to[4 * i + k] = tile[i][k];
    copy_wait<0>();
}

static void copies()
{
    alignas(16) float from[128], to[128];
    for (int i = 0; i < 128; i++)
        from[i] = (float)i;
    emu::launch("fetch", 1, 32, 0, [&] { fetch(to, from, 1); });
    ok(to[50] == 50 && to[125] == 125 && to[126] == 0, "cp.async copies");
    emu::launch("fetch", 1, 32, 0, [&] { fetch(to, from, 0); });
    ok(to[50] == -1, "but not before it is waited for");
    setenv("GPT_CUDA_EMU_ORDER", "reverse", 1);
    emu::launch("fetch", 1, 32, 0, [&] { fetch(to, from, 0); });
    ok(to[50] == 50 && to[126] == 0, "in reverse order, at once");
    unsetenv("GPT_CUDA_EMU_ORDER");
}

/* ---- mistakes ---- */

static __global__ void mistake(int kind, char *memory)
{
    unsigned i = threadIdx.x;
    float *shared = (float *)emu::dynamic_shared();

    switch (kind) {
    case 0: /* not all come to the barrier */
        if (i != 5)
            __syncthreads();
        break;
    case 1: /* two barriers */
        if (i < 32)
            __syncthreads();
        else
            __syncthreads();
        break;
    case 2: /* a lane is elsewhere */
        if (i % 32 != 7)
            __shfl_xor_sync(~0u, i, 1);
        break;
    case 3: /* the mask leaves the caller out */
        __shfl_sync(0xffu, i, 0);
        break;
    case 4: /* a lane outside the mask is read */
        if (i % 32 < 8)
            __shfl_sync(0xffu, i, 9);
        break;
    case 5:
        emu::check_aligned(memory + 4, 16);
        break;
    case 6: /* shared memory that nobody wrote */
        if (!(shared[i] == shared[i]))
            emu::fail("NaN");
        break;
    case 7:
        copy_async(memory, memory + 64, 16);
        break;
    case 8: { /* a float that is not TF32 is a factor */
        uint32_t a[4] = {}, b[2] = {__float_as_uint(1.0f + 0x1p-11f), 0};
        float d[4] = {};

        mma<float>(d, a, b);
        break;
    }
    }
}

static void mistakes()
{
    static const struct {
        const char *what, *message;
        unsigned threads;
    } cases[] = {
        {"a barrier that one thread misses", "thread 5 has ended", 64},
        {"barriers at two places", "which is at", 64},
        {"a shuffle that one lane misses", "__shfl_xor_sync", 64},
        {"a mask without the caller", "called by lane", 64},
        {"a lane outside the mask", "which is not in", 64},
        {"a misaligned access", "no multiple", 32},
        {"shared memory that nobody wrote", "NaN", 32},
        {"a copy that nobody waits for", "cp.async", 32},
        {"a factor that was not rounded", "mma of TF32 has a factor", 32},
        {"too many threads", "threads in a block", 2048},
    };

    alignas(16) static char memory[128];
    for (int k = 0; k < (int)(sizeof(cases) / sizeof(*cases)); k++) {
        bool good = emu::launch("mistake", 2, cases[k].threads, 256,
                                [&] { mistake(k, memory); });

        ok(!good && strstr(emu::failure(), cases[k].message),
           "%s: %s", cases[k].what, emu::failure());
    }
    ok(emu::launch("mistake", 2, 64, 256, [&] { mistake(99, memory); }),
       "after failures the next launch runs");
}

static __global__ void overrun(float *x, float *row)
{
    if (threadIdx.x == 31)
        row[0] = x[threadIdx.x + 1];
}

/* AddressSanitizer ends a process that reads past device memory, shared
 * memory too. */
static void bounds(bool shared)
{
    if (!has_asan) {
        skip("out-of-bounds: this build has no AddressSanitizer");
        return;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        void *x, *y;

        close(2);
        cudaMalloc(&x, 32 * sizeof(float));
        cudaMalloc(&y, 32 * sizeof(float));
        emu::launch("overrun", 1, 32, 128, [&] {
            overrun(shared ? (float *)emu::dynamic_shared() : (float *)x,
                    (float *)y);
        });
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ok(status != 0, "a read past %s memory is found",
       shared ? "shared" : "device");
}

/* The host has no business in device memory. */
static void host_access()
{
    if (!has_asan) {
        skip("host access: this build has no AddressSanitizer");
        return;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        void *x;

        close(2);
        cudaMalloc(&x, 4);
        *(volatile float *)x = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ok(status != 0, "device memory read by the host is found");
}

int main()
{
    barriers();
    warps();
    tensors();
    roundings();
    copies();
    mistakes();
    bounds(false);
    bounds(true);
    host_access();
    return tap_done();
}
