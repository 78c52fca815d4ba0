/* The instructions that Hopper added, as functions with the names that
 * kernels/cuda/hopper.cuh and hopper_bulk.cuh give them: mbarriers, tensor
 * copies (TMA), copies out of shared memory, named barriers, setmaxnreg and
 * wgmma, as the PTX manual (ISA 8.0 and later, sections of those names) and the
 * driver's cuTensorMapEncodeTiled() describe them. Included by cuda.h.
 *
 * An asynchronous operation happens as late as it may
 * (GPT_CUDA_EMU_ORDER=forward), at once (reverse) or anywhere between (random).
 * The accumulators of a wgmma hold NaN until a thread has waited for it. */
#ifndef GPT_EMU_ASYNC_H
#define GPT_EMU_ASYNC_H

namespace emu {

/* The 32-bit address that instructions use for p, which must point into the
 * block's shared memory. Dynamic shared memory begins at a multiple of 1024. */
unsigned shared_address(const void *p, EMU_HERE);

/* ---- mbarriers: 8 bytes of shared memory ---- */
void mbarrier_init(uint64_t *b, unsigned count, EMU_HERE);
void mbarrier_arrive(uint64_t *b, EMU_HERE);
/* Adds `bytes` to what copies still have to bring, then arrives. */
void mbarrier_expect(uint64_t *b, unsigned bytes, EMU_HERE);
void mbarrier_wait(uint64_t *b, unsigned parity, EMU_HERE);

/* fence.proxy.async: makes this thread's writes to shared memory visible to TMA
 * and wgmma. The emulation notices only those of mbarrier_init(). */
void fence_async();

/* ---- bar.sync and bar.arrive with a number ---- */
void named_sync(unsigned id, unsigned count, EMU_HERE);
void named_arrive(unsigned id, unsigned count, EMU_HERE);

/* ---- setmaxnreg ---- */

/* Sets the registers of a thread; all warps of a warpgroup call it. With `more`
 * the call waits until other warps have given up enough registers. */
void set_registers(unsigned count, bool more, EMU_HERE);

/* ---- wgmma.m64nNk16 ---- */

enum wgmma_type { WGMMA_BF16, WGMMA_F16 };

/* One instruction. Operand a is in this lane's registers `a` or, when `a` is
 * NULL, in the shared memory that desc_a describes. */
struct wgmma {
    enum wgmma_type type;
    unsigned n;
    const uint32_t *a;
    uint64_t desc_a, desc_b;
    bool trans_a, trans_b; /* M-, N-major */
    bool add;              /* scale-d */
};
void wgmma_issue(float *d, const struct wgmma &op, EMU_HERE);
void wgmma_fence();
void wgmma_commit(EMU_HERE);
void wgmma_wait(unsigned groups_left, EMU_HERE);

} // namespace emu

/* ---- tensor maps ---- */

struct alignas(64) CUtensorMap {
    uint64_t opaque[16];
};
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType {
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle {
    CU_TENSOR_MAP_SWIZZLE_NONE,
    CU_TENSOR_MAP_SWIZZLE_32B,
    CU_TENSOR_MAP_SWIZZLE_64B,
    CU_TENSOR_MAP_SWIZZLE_128B,
};
enum CUtensorMapL2promotion {
    CU_TENSOR_MAP_L2_PROMOTION_NONE,
    CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
#define CUDART_VERSION 13000
enum { cudaEnableDefault = 0 };
CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
    const cuuint64_t *dim, const cuuint64_t *strides, const cuuint32_t *box,
    const cuuint32_t *steps, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
    CUtensorMapFloatOOBfill fill);
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned version,
    unsigned long long flags, cudaDriverEntryPointQueryResult *result);

namespace emu {

/* cp.async.bulk.tensor of four dimensions, by one thread. */
void tma_load(void *to, const CUtensorMap *map, uint64_t *barrier,
              const int (&at)[4], EMU_HERE);
/* cp.async.bulk: `bytes` is a multiple of 16. */
void bulk_load(void *to, const void *from, unsigned bytes, uint64_t *barrier,
               EMU_HERE);
/* The other way; `add`: cp.reduce.async.bulk.add.f32. Then commit_group, and
 * wait_group 0 of all groups; `read`: until shared memory is read only. */
void bulk_store(void *to, const void *from, unsigned bytes, bool add, EMU_HERE);
void bulk_commit();
void bulk_wait(bool read, EMU_HERE);

} // namespace emu

#endif
