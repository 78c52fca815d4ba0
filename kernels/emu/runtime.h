/* The part of the CUDA runtime that kernels/cuda/ calls, except streams
 * (stream.h). Included by cuda.h. GPT_CUDA_EMU_ARCH is the device's
 * architecture: 80 (the default), 86, 90, 100 or 120. Device memory is host
 * memory that is filled with NaN when it is allocated. A copy fails unless its
 * device side lies in one allocation. */
#ifndef GPT_EMU_RUNTIME_H
#define GPT_EMU_RUNTIME_H

enum cudaError_t {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorNoDevice,
    cudaErrorLaunchFailure,
    cudaErrorStreamCaptureUnsupported,
    cudaErrorEmuSourceChanged, /* CUDA does not notice this error */
    cudaErrorNotReady,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes;
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum { cudaHostAllocDefault = 0 };

#include "kernels/emu/stream.h"

struct cudaDeviceProp {
    char name[64];
    size_t totalGlobalMem, sharedMemPerBlockOptin;
    int major, minor, multiProcessorCount, l2CacheSize;
    struct {
        char bytes[16];
    } uuid;
};

const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError();
/* GPT_CUDA_EMU_DEVICES: how many devices there are, 8 by default. */
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
/* GPT_CUDA_EMU_MEMORY: bytes that the device has, 8 GiB by default. */
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes,
                            cudaStream_t stream);
cudaError_t cudaMemset(void *dst, int byte, size_t bytes);
template <class F>
cudaError_t cudaFuncSetAttribute(F *, cudaFuncAttribute, int)
{
    return cudaSuccess; /* the launch checks the limit */
}
/* Static shared memory cannot be counted here: 1 KiB, more than any kernel
 * has. */
template <class F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, F *)
{
    a->sharedSizeBytes = 1024;
    return cudaSuccess;
}

namespace emu {
/* While one of these lives, device memory can be read and written: during
 * launches, copies and library calls. At other times a build with
 * AddressSanitizer ends the process at such an access, since the host cannot
 * use the memory of a GPU. */
struct device_access {
    device_access();
    ~device_access();
};

/* True when [p, p + bytes) lies in one allocation of the device. */
bool on_device(const void *p, size_t bytes);
/* The allocation that begins at or before p, if there is one. */
bool device_block(const void *p, const void **begin, size_t *bytes);
void set_error(cudaError_t e); /* what cudaGetLastError() will return */

/* How often the calling thread has done what a training step should avoid. */
struct counts {
    long allocations; /* of device and pinned memory, and their ends */
    long waits;       /* for streams, events, the device; copies that wait */
    long graphs;      /* launches of graphs, which a step may have many of */
};
extern thread_local struct counts counted;
}

/* For tests that have opened the plugin. */
extern "C" __attribute__((visibility("default"))) void
gpt_emu_counts(long *allocations, long *waits, long *graphs);

#endif
