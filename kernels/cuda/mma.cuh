/* Matrix instructions and asynchronous copies of sm_80 and later. Fragments lie
 * over the lanes of a warp as the PTX manual says; with g = lane / 4 and
 * t = lane % 4, a register holding two neighbours in k (a, b) or one float (d):
 *   a (16, 16): (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8)
 *   b (16, 8):  (2t, g) (2t + 8, g), rows being k
 *   d (16, 8):  (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
 * A register of a or b holds one element where elements are floats:
 *   a (16, 8):  (g, t) (g + 8, t) (g, t + 4) (g + 8, t + 4)
 *   b (8, 8):   (t, g) (t + 4, g) */
#ifndef GPT_KERNELS_CUDA_MMA_CUH
#define GPT_KERNELS_CUDA_MMA_CUH

#include "cuda/device.cuh"

#include <string.h>

/* Two floats rounded into one register, `low` first in memory. */
template <class T> __device__ uint32_t pack2(float low, float high);
template <> __device__ inline uint32_t pack2<__nv_bfloat16>(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;

    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}
template <> __device__ inline uint32_t pack2<__half>(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;

    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

/* x rounded to TF32, which has 10 bits of mantissa; ties go away from zero. */
__device__ inline float round_tf32(float x);

/* d += a b, by all lanes of a warp. T: type of a and b; of floats those that
 * round_tf32() gives. */
template <class T>
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

/* How many k an instruction takes: 32 bytes of a row. */
template <class T> constexpr int mma_k = 32 / sizeof(T);

/* Reads 8 x 8 matrices of 16-bit elements from shared memory: lane 8 i + j
 * gives the address of row j of matrix i, a multiple of 16; register i of a
 * lane gets (g, 2t) and (g, 2t + 1) of matrix i, or of its transpose. Where
 * elements are floats, a matrix that is not transposed is 8 x 4 of them, and
 * register i gets (g, t). */
__device__ inline void ldmatrix4(uint32_t (&r)[4], const void *row);
__device__ inline void ldmatrix4_transposed(uint32_t (&r)[4], const void *row);

/* Copies 16 bytes to shared memory, of which those after the first `bytes` (0
 * to 16) become zero and are not read; done when the group is waited for. */
__device__ inline void copy_async(void *to, const void *from, int bytes);
__device__ inline void copy_commit();
/* Waits for all groups but the newest `left`; then a barrier, as other threads
 * have copied too. */
template <int left> __device__ void copy_wait();

#ifdef GPT_CUDA_EMU

inline float round_tf32(float x) { return emu::to_tf32(x); }
template <>
inline void mma<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emu::mma_bf16(d, a, b);
}
template <>
inline void mma<__half>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emu::mma_f16(d, a, b);
}
template <>
inline void mma<float>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emu::mma_tf32(d, a, b);
}
inline void ldmatrix4(uint32_t (&r)[4], const void *row) { emu::ldmatrix(r, 4, false, row); }
inline void ldmatrix4_transposed(uint32_t (&r)[4], const void *row)
{
    emu::ldmatrix(r, 4, true, row);
}
inline void copy_async(void *to, const void *from, int bytes)
{
    emu::copy_async(to, from, (size_t)bytes);
}
inline void copy_commit() { emu::copy_commit(); }
template <int left> void copy_wait() { emu::copy_wait(left); }

#else

__device__ inline float round_tf32(float x)
{
    uint32_t bits;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}

#define GPT_MMA(k, type)                                                                         \
    asm volatile("mma.sync.aligned.m16n8" k ".row.col.f32." type "." type ".f32 "                \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                         \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <>
__device__ inline void mma<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                          const uint32_t (&b)[2])
{
    GPT_MMA("k16", "bf16");
}
template <>
__device__ inline void mma<__half>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    GPT_MMA("k16", "f16");
}
template <>
__device__ inline void mma<float>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    GPT_MMA("k8", "tf32");
}
#undef GPT_MMA

__device__ inline unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ inline void ldmatrix4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void ldmatrix4_transposed(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void copy_async(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ inline void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int left> __device__ inline void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

#endif

/* Four lanes that have a row of an (8, 8) fragment between them, a register
 * each, exchange four fragments so that each lane has a whole row of one:
 * lane t of the four that of w[t], in order of columns. */
__device__ inline void mma_gather(uint32_t (&w)[4])
{
    /* A transposition in two steps: blocks of 1, then of 2. What a lane keeps
     * stays in its register, so that no index depends on the lane. */
    bool odd = threadIdx.x % 2, high = threadIdx.x / 2 % 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t got = __shfl_xor_sync(ALL_LANES, odd ? w[i] : w[i + 1], 1);

        w[i] = odd ? got : w[i];
        w[i + 1] = odd ? w[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t got = __shfl_xor_sync(ALL_LANES, high ? w[i] : w[i + 2], 2);

        w[i] = high ? got : w[i];
        w[i + 2] = high ? w[i + 2] : got;
    }
}

/* Writes 8 bytes or 16, aligned. */
template <class V, class T> __device__ inline void mma_write(T *to, const V &x)
{
#ifdef GPT_CUDA_EMU
    emu::check_aligned(to, sizeof(V));
#endif
    *reinterpret_cast<V *>(to) = x;
}

#endif
