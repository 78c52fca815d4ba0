/* Instructions that only Hopper has (sm_90a): tensor copies to shared memory
 * (TMA), mbarriers that count their bytes, matrix products of a warpgroup
 * (wgmma: four warps, operands in shared memory, done in the background), and
 * registers that move between warpgroups. Files that use them end in _sm90a.
 *
 * A tile in shared memory: columns in groups of 64 elements (128 bytes), each
 * group its ROWS rows of 128 bytes one after another, in which the copy swaps
 * 16-byte pieces (128-byte swizzle) so that no banks collide. Tiles begin at
 * multiples of 1024. */
#ifndef GPT_KERNELS_CUDA_HOPPER_CUH
#define GPT_KERNELS_CUDA_HOPPER_CUH

#include "cuda/mma.cuh"

#ifndef GPT_CUDA_EMU
#include <cuda.h>
#endif

enum { WARPGROUP = 128, TILE_COLUMNS = 64 };

/* ROWS positions of C elements of 2 bytes. */
template <class T, int ROWS, int C> struct alignas(1024) tile {
    static_assert(C % TILE_COLUMNS == 0 && ROWS % 8 == 0 && sizeof(T) == 2, "128-byte rows");
    T at[C / TILE_COLUMNS][ROWS][TILE_COLUMNS];
};

/* In shared memory. Phases alternate between parity 0 (the first) and 1; one
 * ends when `count` threads have arrived and all bytes expected have come. */
struct alignas(8) mbarrier {
    uint64_t state;
};
__device__ inline void mbarrier_init(struct mbarrier &b, unsigned count);
__device__ inline void mbarrier_arrive(struct mbarrier &b);
/* Arrives, and `bytes` will come. */
__device__ inline void mbarrier_expect(struct mbarrier &b, unsigned bytes);
/* Waits for the end of a phase; of parity 1 before the first: no wait. */
__device__ inline void mbarrier_wait(struct mbarrier &b, unsigned parity);

/* What this thread wrote to shared memory is seen by copies and products;
 * mbarriers count as written by mbarrier_init(). */
__device__ inline void fence_async();

/* One thread copies the box of a tensor of four dimensions, innermost first,
 * that begins at `at`; what lies outside the tensor is zero. */
__device__ inline void tma_load(void *to, const CUtensorMap &map, struct mbarrier &b,
                                const int (&at)[4]);
/* ... so many bytes, a multiple of 16. */
__device__ inline void bulk_load(void *to, const void *from, unsigned bytes, struct mbarrier &b);

/* Barrier `id` (1 to 15) of `count` threads: come and wait, or just come. */
__device__ inline void named_sync(unsigned id, unsigned count);
__device__ inline void named_arrive(unsigned id, unsigned count);

/* Every thread of a warpgroup from now on has N registers. */
template <int N> __device__ inline void fewer_registers();
template <int N> __device__ inline void more_registers();

/* An operand in shared memory, `offset` bytes after p: its address and how its
 * rows lie (PTX manual, "matrix descriptor"): 128-byte swizzle, 1024 bytes from
 * 8 rows to the next, `group` from 64 columns to the next. */
__device__ inline uint64_t wgmma_operand(const void *p, unsigned group, unsigned offset);

/* k elements 16 i.. of rows row.. of a tile, whose columns are k. */
template <class T, int ROWS, int C>
__device__ inline uint64_t wgmma_rows(const tile<T, ROWS, C> &t, int row, int i)
{
    return wgmma_operand(t.at[0][row], 16, i / 4 * sizeof(t.at[0]) + i % 4 * 32);
}

/* k elements 16 i.. of a tile whose rows are k; columns from group `group` on. */
template <class T, int ROWS, int C>
__device__ inline uint64_t wgmma_columns(const tile<T, ROWS, C> &t, int i, int group = 0)
{
    return wgmma_operand(t.at[group][0], sizeof(t.at[0]), 16 * i * sizeof(t.at[0][0]));
}

/* Where a copy, and what reads it, has columns 8 chunk.. + 7 of a row. */
template <class T, int ROWS>
__device__ inline T *tile_chunk(tile<T, ROWS, TILE_COLUMNS> &t, int row, int chunk)
{
    return t.at[0][row] + (chunk ^ row % 8) * 8;
}

/* d (64, 8 N) = a (64, 16) b (16, 8 N), + d where `add`. Warp i of the warpgroup
 * has rows 16 i.. of d and of a in registers, as mma.cuh lays them out. Between
 * wgmma_fence(), after the last use of the registers, and wgmma_wait() they are
 * not to be touched. */
template <class T, int N>
__device__ void wgmma(float (&d)[N][4], uint64_t a, uint64_t b, bool add); /* wgmma_rows() twice */
template <class T, int N> /* b: wgmma_columns() */
__device__ void wgmma(float (&d)[N][4], const uint32_t (&a)[4], uint64_t b, bool add);
template <class T, int N> /* a: wgmma_rows(), b: wgmma_columns() */
__device__ void wgmma_rows_by_columns(float (&d)[N][4], uint64_t a, uint64_t b, bool add);
template <class T, int N> /* wgmma_columns() twice: the rows of both are k */
__device__ void wgmma_by_columns(float (&d)[N][4], uint64_t a, uint64_t b, bool add);
__device__ inline void wgmma_fence();
__device__ inline void wgmma_commit();
/* Waits for all groups but the newest `left`; then d is there, and a is free. */
template <int left, int N, class... A>
__device__ inline void wgmma_wait(float (&d)[N][4], A &...a);

/* Writes x to shared memory, and does so before any later wait. See
 * hopper_pin(). */
__device__ inline void store_volatile(float *to, float x);

/* Shared memory, aligned for tiles. */
template <class S> __device__ inline S &hopper_shared();

#ifdef GPT_CUDA_EMU

inline void mbarrier_init(struct mbarrier &b, unsigned count)
{
    emu::mbarrier_init(&b.state, count);
}
inline void mbarrier_arrive(struct mbarrier &b) { emu::mbarrier_arrive(&b.state); }
inline void mbarrier_expect(struct mbarrier &b, unsigned bytes)
{
    emu::mbarrier_expect(&b.state, bytes);
}
inline void mbarrier_wait(struct mbarrier &b, unsigned parity)
{
    emu::mbarrier_wait(&b.state, parity);
}
inline void fence_async() { emu::fence_async(); }
inline void tma_load(void *to, const CUtensorMap &map, struct mbarrier &b, const int (&at)[4])
{
    emu::tma_load(to, &map, &b.state, at);
}
inline void bulk_load(void *to, const void *from, unsigned bytes, struct mbarrier &b)
{
    emu::bulk_load(to, from, bytes, &b.state);
}
inline void named_sync(unsigned id, unsigned count) { emu::named_sync(id, count); }
inline void named_arrive(unsigned id, unsigned count) { emu::named_arrive(id, count); }
template <int N> inline void fewer_registers() { emu::set_registers(N, false); }
template <int N> inline void more_registers() { emu::set_registers(N, true); }
inline unsigned shared_address(const void *p) { return emu::shared_address(p); }
template <class T>
constexpr emu::wgmma_type wgmma_type_of =
    std::is_same_v<T, __half> ? emu::WGMMA_F16 : emu::WGMMA_BF16;
template <class T, int N>
inline void wgmma(float (&d)[N][4], uint64_t a, uint64_t b, bool add)
{
    emu::wgmma_issue(d[0], {wgmma_type_of<T>, 8 * N, nullptr, a, b, false, false, add});
}
template <class T, int N>
inline void wgmma(float (&d)[N][4], const uint32_t (&a)[4], uint64_t b, bool add)
{
    emu::wgmma_issue(d[0], {wgmma_type_of<T>, 8 * N, a, 0, b, false, true, add});
}
template <class T, int N>
inline void wgmma_rows_by_columns(float (&d)[N][4], uint64_t a, uint64_t b, bool add)
{
    emu::wgmma_issue(d[0], {wgmma_type_of<T>, 8 * N, nullptr, a, b, false, true, add});
}
template <class T, int N>
inline void wgmma_by_columns(float (&d)[N][4], uint64_t a, uint64_t b, bool add)
{
    emu::wgmma_issue(d[0], {wgmma_type_of<T>, 8 * N, nullptr, a, b, true, true, add});
}
inline void wgmma_fence() { emu::wgmma_fence(); }
inline void wgmma_commit() { emu::wgmma_commit(); }
template <int left, int N, class... A> inline void wgmma_wait(float (&)[N][4], A &...)
{
    emu::wgmma_wait(left);
}
inline void store_volatile(float *to, float x) { *to = x; }
template <class S> inline S &hopper_shared()
{
    return *reinterpret_cast<S *>(emu::dynamic_shared());
}

#else

__device__ inline void mbarrier_init(struct mbarrier &b, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&b)), "r"(count)
                 : "memory");
}

__device__ inline void mbarrier_arrive(struct mbarrier &b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&b)) : "memory");
}

__device__ inline void mbarrier_expect(struct mbarrier &b, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(&b)),
                 "r"(bytes)
                 : "memory");
}

__device__ inline void mbarrier_wait(struct mbarrier &b, unsigned parity)
{
    unsigned over;

    do {
        asm volatile("{\n\t"
                     ".reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t"
                     "}"
                     : "=r"(over)
                     : "r"(shared_address(&b)), "r"(parity)
                     : "memory");
    } while (!over);
}

__device__ inline void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void tma_load(void *to, const CUtensorMap &map, struct mbarrier &b,
                                const int (&at)[4])
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(&map), "r"(shared_address(&b)), "r"(at[0]), "r"(at[1]), "r"(at[2]),
                 "r"(at[3])
                 : "memory");
}

__device__ inline void bulk_load(void *to, const void *from, unsigned bytes, struct mbarrier &b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(&b))
                 : "memory");
}

__device__ inline void named_sync(unsigned id, unsigned count)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

__device__ inline void named_arrive(unsigned id, unsigned count)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory");
}

template <int N> __device__ inline void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ inline void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* "+f" of N fragments, and their operands' numbers. */
#define GPT_D1(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define GPT_D4(i) GPT_D1(i), GPT_D1(i + 1), GPT_D1(i + 2), GPT_D1(i + 3)
#define GPT_D8 GPT_D4(0), GPT_D4(4)
#define GPT_D16 GPT_D8, GPT_D4(8), GPT_D4(12)
#define GPT_R8                                                                                   \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                     \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define GPT_R16                                                                                  \
    GPT_R8 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                   \
           "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* Both factors in shared memory; i0..: numbers of the operands after the sums, which
 * are the last arguments; turned: whether a and b lie by columns. */
#define GPT_WGMMA_SHARED(type, function, turned, name, n, regs, i0, i1, i2, ...)                 \
    template <>                                                                                  \
    __device__ inline void function<type>(float(&d)[n / 8][4], uint64_t a, uint64_t b, bool add) \
    {                                                                                            \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " i2 ", 0;\n\t"                       \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" regs   \
                     "}, " i0 ", " i1 ", p, 1, 1, " turned ";\n\t}"                              \
                     : __VA_ARGS__                                                               \
                     : "l"(a), "l"(b), "r"((int)add));                                           \
    }

/* The products of a type and a width; i0..: as above, a being one number or four. */
#define GPT_WGMMA_OF(type, name, n, regs, sums, i0, i1, i2, i3, i4, i5)                          \
    GPT_WGMMA_SHARED(type, wgmma, "0, 0", name, n, regs, i0, i1, i2, sums)                       \
    GPT_WGMMA_SHARED(type, wgmma_rows_by_columns, "0, 1", name, n, regs, i0, i1, i2, sums)       \
    GPT_WGMMA_SHARED(type, wgmma_by_columns, "1, 1", name, n, regs, i0, i1, i2, sums)            \
    template <>                                                                                  \
    __device__ inline void wgmma<type>(float(&d)[n / 8][4], const uint32_t(&a)[4], uint64_t b,   \
                                       bool add)                                                 \
    {                                                                                            \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " i5 ", 0;\n\t"                       \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" regs   \
                     "}, {" i0 ", " i1 ", " i2 ", " i3 "}, " i4 ", p, 1, 1, 1;\n\t}"             \
                     : sums                                                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));       \
    }
#define GPT_WGMMA(type, name)                                                                    \
    GPT_WGMMA_OF(type, name, 64, GPT_R8, GPT_D8, "%32", "%33", "%34", "%35", "%36", "%37")       \
    GPT_WGMMA_OF(type, name, 128, GPT_R16, GPT_D16, "%64", "%65", "%66", "%67", "%68", "%69")
GPT_WGMMA(__nv_bfloat16, "bf16")
GPT_WGMMA(__half, "f16")
#undef GPT_WGMMA
#undef GPT_WGMMA_OF
#undef GPT_WGMMA_SHARED
#undef GPT_R16
#undef GPT_R8
#undef GPT_D16
#undef GPT_D8
#undef GPT_D4
#undef GPT_D1

__device__ inline void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* The compiler is to see that registers change here, or were in use. */
template <int N> __device__ inline void wgmma_hold(float (&d)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

template <int N> __device__ inline void wgmma_hold(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

template <int left, int N, class... A>
__device__ inline void wgmma_wait(float (&d)[N][4], A &...a)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
    wgmma_hold(d);
    (wgmma_hold(a), ...);
}

__device__ inline void store_volatile(float *to, float x)
{
    asm volatile("st.volatile.shared.f32 [%0], %1;" ::"r"(shared_address(to)), "f"(x)
                 : "memory");
}

template <class S> __device__ inline S &hopper_shared()
{
    extern __shared__ __align__(1024) char gpt_hopper_shared[];

    return *reinterpret_cast<S *>(gpt_hopper_shared);
}

#endif

/* ---- the same for both ---- */

__device__ inline uint64_t wgmma_operand(const void *p, unsigned group, unsigned offset)
{
    /* The offset is added to the finished descriptor, whose low half has 14 bits
     * for all of shared memory: products of a tile then differ by one addition. */
    uint32_t swizzle_128 = 1, stride = 1024 >> 4;
    uint32_t high = swizzle_128 << 30 | stride;
    uint32_t low = group >> 4 << 16 | (shared_address(p) & 0x3ffff) >> 4;

    return (uint64_t)high << 32 | (low + (offset >> 4));
}

/* Copies rows t.. of head x of sample b, in boxes of 64. */
template <class T, int ROWS, int C>
__device__ inline void tma_load(tile<T, ROWS, C> &to, const CUtensorMap &map, struct mbarrier &full,
                                int x, int t, int b)
{
    for (int i = 0; i < C / TILE_COLUMNS; i++)
        for (int row = 0; row < ROWS; row += 64)
            tma_load(to.at[i][row], map, full, {i * TILE_COLUMNS, x, t + row, b});
}

/* A ring of tiles in shared memory: step i uses place i % STAGES. One warp
 * fills it, others use it. */
template <class Tile, int STAGES> struct ring {
    Tile at[STAGES];
    struct mbarrier full[STAGES], empty[STAGES];
};

/* By one thread; users: how many arrive when they have used a place. */
template <class Tile, int STAGES>
__device__ inline void ring_init(ring<Tile, STAGES> &r, unsigned users)
{
    for (int i = 0; i < STAGES; i++) {
        mbarrier_init(r.full[i], 1);
        mbarrier_init(r.empty[i], users);
    }
}

/* The place of step i, when it is free; `bytes` are about to come. */
template <class Tile, int STAGES>
__device__ inline int ring_fill(ring<Tile, STAGES> &r, unsigned i, unsigned bytes)
{
    int place = i % STAGES;

    mbarrier_wait(r.empty[place], i / STAGES % 2 ^ 1);
    mbarrier_expect(r.full[place], bytes);
    return place;
}

/* The tile of step i, when it is there. */
template <class Tile, int STAGES>
__device__ inline const Tile &ring_get(ring<Tile, STAGES> &r, unsigned i)
{
    mbarrier_wait(r.full[i % STAGES], i / STAGES % 2);
    return r.at[i % STAGES];
}

/* This warp needs it no more. */
template <class Tile, int STAGES>
__device__ inline void ring_free(ring<Tile, STAGES> &r, unsigned i)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(r.empty[i % STAGES]);
}

/* Without using the tile: phases are not to be lost. */
template <class Tile, int STAGES>
__device__ inline void ring_pass(ring<Tile, STAGES> &r, unsigned i)
{
    ring_get(r, i);
    ring_free(r, i);
}

/* ---- on the host ---- */

/* Describes a tensor of elements of 2 bytes, dimensions innermost first,
 * strides of all but the innermost in bytes, to be copied in boxes; false after
 * recording why not; tensor_map.cu. */
struct tensor {
    const void *at;
    enum gpt_dtype type;
    int64_t dim[4], stride[3];
    unsigned box[4];
};
bool cuda_tensor_map(struct gpt_queue *q, CUtensorMap *map, const struct tensor &t);

#endif
