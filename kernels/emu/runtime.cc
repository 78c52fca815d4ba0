/* Memory of the emulated device. */
#include "kernels/emu/threads.h"
#include "kernels/emu/variables.h"

#include <map>
#include <mutex>
#include <stdio.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define __asan_poison_memory_region(p, n) ((void)(p), (void)(n))
#define __asan_unpoison_memory_region(p, n) ((void)(p), (void)(n))
#endif

static std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> locked;
/* Device memory is memory of the host. Outside of kernels and copies it is
 * poisoned under AddressSanitizer, so that host code which dereferences a
 * device pointer is caught. */
static std::map<uintptr_t, size_t> blocks; /* address, bytes */
static std::map<uintptr_t, size_t> pinned; /* the same of the host */
static size_t used;
static int accesses; /* device_access alive */

emu::device_access::device_access()
{
    locked hold(lock);

    if (accesses++ == 0)
        for (auto b : blocks)
            __asan_unpoison_memory_region((void *)b.first, b.second);
}

emu::device_access::~device_access()
{
    locked hold(lock);

    if (--accesses == 0)
        for (auto b : blocks)
            __asan_poison_memory_region((void *)b.first, b.second);
}
/* As in CUDA: each host thread has a last error, which asking for it clears. */
static thread_local cudaError_t last;
thread_local struct emu::counts emu::counted;

void gpt_emu_counts(long *allocations, long *waits, long *graphs)
{
    *allocations = emu::counted.allocations;
    *waits = emu::counted.waits;
    *graphs = emu::counted.graphs;
}

void emu::set_error(cudaError_t e)
{
    last = e;
}

static cudaError_t result(cudaError_t e)
{
    if (e != cudaSuccess)
        last = e;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid value";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no device";
    case cudaErrorStreamCaptureUnsupported:
        return "this cannot be captured";
    case cudaErrorEmuSourceChanged:
        return "the source of a copy changed before the copy was made";
    /* The failure's own words: kernel, block, threads and lines. */
    case cudaErrorLaunchFailure:
        return emu::failure();
    case cudaErrorNotReady:
        return "not ready";
    }
    return "unknown";
}

cudaError_t cudaGetLastError()
{
    cudaError_t e = last;

    last = cudaSuccess;
    return e;
}

static int device; /* of this process */

cudaError_t cudaGetDeviceCount(int *n)
{
    /* All are the same memory; ranks of a test that ask for different devices
     * get them, and may share one. */
    *n = (int)emu::number("GPT_CUDA_EMU_DEVICES", 8);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *d)
{
    *d = device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int d)
{
    int n;

    cudaGetDeviceCount(&n);
    if (d < 0 || d >= n)
        return result(cudaErrorNoDevice);
    /* The process has one current device, though CUDA keeps one for each
     * thread: a backend has one device (cuda.cu). */
    device = d;
    return cudaSuccess;
}

static size_t capacity()
{
    /* A limit, not an allocation: tests of running out of memory set it low. */
    return emu::number("GPT_CUDA_EMU_MEMORY", (size_t)8 << 30);
}

unsigned emu::arch()
{
    return (unsigned)emu::number("GPT_CUDA_EMU_ARCH", 80);
}

/* 8.0 has 163 KiB, but runs the kernels of 8.6, 8.9 and 12.0, which have 99. */
size_t emu::max_shared()
{
    return arch() == 90 || arch() == 100 ? 227 * 1024 : 99 * 1024;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int d)
{
    int n, major = (int)emu::arch() / 10, minor = (int)emu::arch() % 10;

    cudaGetDeviceCount(&n);
    if (d < 0 || d >= n)
        return result(cudaErrorNoDevice);
    /* 2 multiprocessors: persistent kernels then go through several rounds of
     * work even in small tests. */
    *p = cudaDeviceProp{"emulated", capacity(), emu::max_shared(), major,
                        minor, 2, 1 << 20, {}};
    snprintf(p->uuid.bytes, sizeof(p->uuid.bytes), "emulated %d", d % 256);
    return cudaSuccess;
}

/* Not 0, which would mean that no driver is there. */
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 1000; /* 1.0 */
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 1000; /* 1.0 */
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    emu::counted.allocations++;
    if (emu::refused())
        return cudaErrorStreamCaptureUnsupported;
    locked hold(lock);
    if (bytes > capacity() || used > capacity() - bytes ||
        posix_memalign(p, 256, bytes) != 0)
        return result(cudaErrorMemoryAllocation);
    /* NaN in every float format: what is read before it is written shows. */
    memset(*p, 0xff, bytes);
    blocks[(uintptr_t)*p] = bytes;
    used += bytes;
    if (accesses == 0)
        __asan_poison_memory_region(*p, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    emu::counted.allocations++;
    if (emu::refused())
        return cudaErrorStreamCaptureUnsupported;
    /* Programs may rely on it: cuda_work() frees what kernels just used. */
    emu::finish_all(); /* as freeing waits for the device */
    locked hold(lock);
    /* Freeing twice, or what was never allocated, is an error here. */
    auto b = blocks.find((uintptr_t)p);
    if (b == blocks.end())
        return result(cudaErrorInvalidValue);
    used -= b->second;
    __asan_unpoison_memory_region(p, b->second);
    blocks.erase(b);
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *total = capacity();
    *available = used < *total ? *total - used : 0;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    emu::counted.allocations++;
    locked hold(lock);
    if (posix_memalign(p, 256, bytes) != 0)
        return result(cudaErrorMemoryAllocation);
    pinned[(uintptr_t)*p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    emu::counted.allocations++;
    emu::finish_all();
    locked hold(lock);
    pinned.erase((uintptr_t)p);
    free(p);
    return cudaSuccess;
}

/* True when [p, p + bytes) lies in one of the allocations `all`. */
static bool lies_in(const std::map<uintptr_t, size_t> &all, const void *p,
                    size_t bytes)
{
    locked hold(lock);
    auto b = all.upper_bound((uintptr_t)p);

    if (b == all.begin())
        return false;
    /* The last block that begins at or before p. */
    --b;
    size_t at = (uintptr_t)p - b->first;
    return at <= b->second && bytes <= b->second - at;
}

bool emu::device_block(const void *p, const void **begin, size_t *bytes)
{
    locked hold(lock);
    auto b = blocks.upper_bound((uintptr_t)p);

    if (b == blocks.begin())
        return false;
    --b; /* it may end before p: the caller looks */
    *begin = (const void *)b->first;
    *bytes = b->second;
    return true;
}

bool emu::on_device(const void *p, size_t bytes)
{
    return lies_in(blocks, p, bytes);
}

static cudaError_t put_copy(void *dst, const void *src, size_t bytes,
                            cudaStream_t stream)
{
    return emu::submit(stream, [=] {
        emu::device_access open;
        memmove(dst, src, bytes);
        return cudaSuccess;
    });
}

/* FNV-1a. A digest is kept instead of the bytes: copies of a whole model are
 * under way, and the only question is whether their source has changed since
 * they were ordered. */
static uint64_t digest(const void *p, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3;
    return h;
}

/* A copy from pinned memory happens later: the bytes must still be the same then. */
static cudaError_t put_copy_in(void *dst, const void *src, size_t bytes,
                               cudaStream_t stream)
{
    return emu::submit(stream, [=, now = digest(src, bytes)] {
        if (digest(src, bytes) != now)
            return cudaErrorEmuSourceChanged;
        emu::device_access open;
        memcpy(dst, src, bytes);
        return cudaSuccess;
    });
}

/* From other memory: the host may change what it gave once this has returned.
 * It may have to wait for that. */
static cudaError_t put_copy_of(void *dst, const void *src, size_t bytes,
                               cudaStream_t stream)
{
    emu::counted.waits++;
    std::vector<char> kept((const char *)src, (const char *)src + bytes);
    return emu::submit(stream, [dst, kept] {
        emu::device_access open;
        memcpy(dst, kept.data(), kept.size());
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    /* backend.h: no copies from or to the host in a recording. */
    if (kind != cudaMemcpyDeviceToDevice && emu::refused())
        return cudaErrorStreamCaptureUnsupported;
    bool to = kind != cudaMemcpyDeviceToHost;
    bool from = kind != cudaMemcpyHostToDevice;
    /* `kind` and the addresses must agree, and a copy lies in one
     * allocation. */
    if (lies_in(blocks, dst, bytes) != to ||
        lies_in(blocks, src, bytes) != from)
        return result(cudaErrorInvalidValue);
    if (!from)
        return lies_in(pinned, src, bytes)
                   ? put_copy_in(dst, src, bytes, stream)
                   : put_copy_of(dst, src, bytes, stream);
    cudaError_t e = put_copy(dst, src, bytes, stream);
    /* To memory that is not pinned CUDA returns when the bytes are there. */
    if (e == cudaSuccess && !to && !lies_in(pinned, dst, bytes))
        e = cudaStreamSynchronize(stream);
    return e;
}

cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes,
                            cudaStream_t stream)
{
    if (!lies_in(blocks, dst, bytes))
        return result(cudaErrorInvalidValue);
    return emu::submit(stream, [=] {
        emu::device_access open;
        memset(dst, byte, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaMemset(void *dst, int byte, size_t bytes)
{
    return cudaMemsetAsync(dst, byte, bytes, nullptr);
}
