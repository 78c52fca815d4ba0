/* Copies from shared memory to the GPU's by the engine that also loads tiles
 * (hopper.cuh), and the turns in which blocks of threads make them. */
#ifndef GPT_KERNELS_CUDA_HOPPER_BULK_CUH
#define GPT_KERNELS_CUDA_HOPPER_BULK_CUH

#include "cuda/hopper.cuh"

/* One thread copies `bytes`, a multiple of 16, from shared memory to the GPU's, or
 * adds that many bytes of floats to what is there: begun. Threads have fenced what
 * they wrote there. The thread that began copies waits: until shared memory may
 * be overwritten; until others see the result. */
__device__ inline void bulk_store(void *to, const void *from, unsigned bytes);
__device__ inline void bulk_add(float *to, const float *from, unsigned bytes);
__device__ inline void bulk_wait_read();
__device__ inline void bulk_wait();

/* Waits until *turn is n: what the thread did that wrote n, and what others had
 * shown that thread, is then seen, by copies that this thread begins, too. */
__device__ inline void turn_wait(const int *turn, int n);
/* Lets those continue that wait for n. */
__device__ inline void turn_give(int *turn, int n);

#ifdef GPT_CUDA_EMU

inline void bulk_store(void *to, const void *from, unsigned bytes)
{
    emu::bulk_store(to, from, bytes, false);
    emu::bulk_commit();
}
inline void bulk_add(float *to, const float *from, unsigned bytes)
{
    emu::bulk_store(to, from, bytes, true);
    emu::bulk_commit();
}
inline void bulk_wait_read() { emu::bulk_wait(true); }
inline void bulk_wait() { emu::bulk_wait(false); }
inline void turn_wait(const int *turn, int n)
{
    /* Blocks run one after another: no other can change it. */
    if (*turn != n)
        emu::fail("turn %d never comes: it is that of %d", n, *turn);
}
inline void turn_give(int *turn, int n) { *turn = n; }

#else

__device__ inline void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ inline void bulk_store(void *to, const void *from, unsigned bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    bulk_commit();
}

__device__ inline void bulk_add(float *to, const float *from, unsigned bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    bulk_commit();
}

__device__ inline void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ inline void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ inline void turn_wait(const int *turn, int n)
{
    int now;

    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                     : "=r"(now)
                     : "l"(__cvta_generic_to_global(turn))
                     : "memory");
    } while (now != n);
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

__device__ inline void turn_give(int *turn, int n)
{
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(turn)),
                 "r"(n)
                 : "memory");
}

#endif

#endif
