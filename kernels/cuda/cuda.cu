/* The CUDA backend: its table, memory and queues. Start at gpt_plugin_open();
 * the operations are in the files beside this one. */
#include "cuda/cuda.cuh"

#include "cuda/comm_nccl.cuh"
#include "cuda/fp8.cuh"

extern "C" {
#include "queue_fail.h"
}

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GPT_CUDA_EMU
#define NAME "cuda-emu"
#else
#define NAME "cuda"
#endif
#ifndef GPT_CUDA_ARCHS
#define GPT_CUDA_ARCHS "emulation"
#endif

/* ---- failures ---- */

static int fail_runtime(struct gpt_err *err, cudaError_t e, const char *what)
{
    return gpt_fail(err, GPT_EDEVICE, NAME ": %s: %s", what, cudaGetErrorString(e));
}

void cuda_fail(struct gpt_queue *q, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    queue_vfail(&q->err, NAME, q->op, fmt, args);
    va_end(args);
}

bool cuda_check(struct gpt_queue *q, cudaError_t e)
{
    /* With GPT_CUDA_SYNC a failure is named where it happens, not at the next
     * operation that looks. */
    if (e == cudaSuccess && q->step_by_step)
        e = cudaStreamSynchronize(q->stream);
    if (e != cudaSuccess)
        cuda_fail(q, "%s", cudaGetErrorString(e));
    return e == cudaSuccess;
}

/* A process has one device. Memory, streams and NCCL's communicators belong to a device, and the
 * functions here do not record which device each of them belongs to. */
static int device_open = -1; /* of this process */

/* Every host thread has a current device of its own. */
void cuda_use_device()
{
    static thread_local bool set;
    if (!set)
        set = cudaSetDevice(device_open) == cudaSuccess;
}

/* Begins an operation: false after a failure. */
static bool begin_operation(struct gpt_queue *q, const char *op)
{
    if (q->err.status != GPT_OK)
        return false;
    cuda_use_device();
    q->op = op;
    return true;
}

bool cuda_ready(struct gpt_queue *q, const char *op, enum gpt_dtype act)
{
    if (!begin_operation(q, op))
        return false;
    if (act == GPT_F32 || act == GPT_BF16 || act == GPT_F16)
        return true;
    cuda_fail(q, "activations of type %s", gpt_dtype_name(act));
    return false;
}

/* ---- memory ---- */

static int cuda_alloc(struct gpt_backend *be, size_t bytes, const char *what, void **mem,
                      struct gpt_err *err)
{
    (void)be;
    *mem = NULL;
    cuda_use_device();
    cudaError_t e = cudaMalloc(mem, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        size_t left = 0, all = 0;

        cudaGetLastError(); /* it is reported here */
        cudaMemGetInfo(&left, &all);
        return gpt_fail(err, GPT_EDEVICE,
                        NAME ": out of memory: %zu bytes for %s, %zu of %zu are free", bytes,
                        what, left, all);
    }
    if (e == cudaSuccess)
        /* Zeroed, as backend.h says. The memset runs on the default stream, to
         * which streams that do not block pay no attention. */
        e = cudaMemset(*mem, 0, bytes ? bytes : 1);
    if (e == cudaSuccess)
        e = cudaDeviceSynchronize(); /* queues do not wait for the memset */
    return e == cudaSuccess ? GPT_OK : fail_runtime(err, e, what);
}

static void cuda_free(struct gpt_backend *be, void *mem)
{
    (void)be;
    if (!cuda_abandoned()) /* it waits for the device */
        cudaFree(mem);
}

static int cuda_host_alloc(struct gpt_backend *be, size_t bytes, const char *what, void **mem,
                           struct gpt_err *err)
{
    (void)be;
    *mem = NULL;
    cuda_use_device();
    cudaError_t e = cudaHostAlloc(mem, bytes ? bytes : 1, cudaHostAllocDefault);
    if (e == cudaSuccess) {
        memset(*mem, 0, bytes);
        return GPT_OK;
    }
    cudaGetLastError(); /* it is reported here */
    return gpt_fail(err, GPT_EDEVICE, NAME ": %zu bytes of pinned host memory for %s: %s", bytes,
                    what, cudaGetErrorString(e));
}

static void cuda_host_free(struct gpt_backend *be, void *mem)
{
    (void)be;
    if (!cuda_abandoned())
        cudaFreeHost(mem);
}

static void cuda_memory(struct gpt_backend *be, int64_t *available, int64_t *total)
{
    size_t left = 0, all = 0;

    (void)be;
    cuda_use_device();
    cudaMemGetInfo(&left, &all);
    *available = (int64_t)left;
    *total = (int64_t)all;
}

void *cuda_work(struct gpt_queue *q, size_t bytes)
{
    if (q->work && q->work_bytes >= bytes)
        return q->work;
    /* Kernels on the stream may still use the old memory. It grows in the first
     * step only: recordings keep its address, and replay() checks it. */
    if (!cuda_check(q, cudaStreamSynchronize(q->stream)))
        return NULL;
    cudaFree(q->work);
    q->work = NULL;
    cudaError_t e = cudaMalloc(&q->work, bytes);
    if (e != cudaSuccess) {
        cudaGetLastError(); /* it is reported here */
        cuda_fail(q, "%s: %zu bytes of work space", cudaGetErrorString(e), bytes);
        return NULL;
    }
    q->work_bytes = bytes;
    return q->work;
}

/* ---- queues ---- */

/* After a stream has hung nothing may be freed: the driver would wait for it.
 * The process is about to end. */
static void queue_close(struct gpt_queue *q)
{
    if (!q || cuda_abandoned())
        return;
    gemm_close(q->gemm);
    cudaFree(q->work);
    cudaFree(q->fault);
    cudaFree(q->dealer);
    cudaFreeHost(q->fault_host);
    if (q->stream)
        cudaStreamDestroy(q->stream);
    free(q);
}

/* Reads the properties of the device on which launches depend. */
static cudaError_t read_device(struct gpt_queue *q)
{
    cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device_open);

    if (e != cudaSuccess)
        return e;
    q->hopper = cuda_runs_hopper(p);
    q->processors = p.multiProcessorCount;
    q->l2_bytes = p.l2CacheSize;
    q->shared_most = p.sharedMemPerBlockOptin;
    return cudaSuccess;
}

/* Priority is the device's order among blocks that could start; running blocks
 * are never stopped. Copies and sums that others wait for go first by it. */
static cudaError_t open_stream(struct gpt_queue *q, bool first)
{
    int least = 0, most = 0;
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &most);

    return e == cudaSuccess ? cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking,
                                                           first ? most : least)
                            : e;
}

static int open_queue(struct gpt_queue **out, bool first, struct gpt_err *err)
{
    const char *sync = getenv("GPT_CUDA_SYNC");
    struct gpt_queue *q = (struct gpt_queue *)calloc(1, sizeof(*q));

    *out = NULL;
    cuda_use_device();
    if (!q)
        return gpt_fail(err, GPT_EFAIL, NAME ": out of memory: a queue");
    q->op = "queue";
    q->step_by_step = sync && strcmp(sync, "1") == 0;
    cudaError_t e = read_device(q);
    if (e == cudaSuccess)
        e = open_stream(q, first);
    if (e == cudaSuccess)
        /* Kernels cannot return an error: they leave it here, and sync() reads it
         * by way of pinned memory, without another wait. */
        e = cudaMalloc((void **)&q->fault, sizeof(*q->fault));
    if (e == cudaSuccess)
        e = cudaMemsetAsync(q->fault, 0, sizeof(*q->fault), q->stream);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&q->dealer, sizeof(*q->dealer));
    if (e == cudaSuccess)
        e = cudaMemsetAsync(q->dealer, 0, sizeof(*q->dealer), q->stream);
    if (e == cudaSuccess)
        e = cudaHostAlloc((void **)&q->fault_host, sizeof(*q->fault_host), cudaHostAllocDefault);
    int status = e == cudaSuccess ? GPT_OK : fail_runtime(err, e, "a queue");
    if (status != GPT_OK)
        queue_close(q);
    else
        *out = q;
    return status;
}

static int queue_open(struct gpt_backend *, struct gpt_queue **out, struct gpt_err *err)
{
    return open_queue(out, false, err);
}

static int queue_open_beside(struct gpt_backend *, struct gpt_queue **out, struct gpt_err *err)
{
    return open_queue(out, true, err);
}

static void report_fault(struct gpt_queue *q)
{
    const struct cuda_fault *f = q->fault_host;

    if (f->kind == CUDA_FAULT_TARGET) {
        q->op = "xent";
        cuda_fail(q, "row %lld: target %d is not in 0..%lld", f->row, f->value, f->limit - 1);
    }
}

/* The fault comes last on the stream: what all operations before have found. */
static int queue_sync(struct gpt_queue *q, struct gpt_err *err)
{
    cuda_use_device();
    if (q->err.status == GPT_OK &&
        cuda_check(q, cudaMemcpyAsync(q->fault_host, q->fault, sizeof(*q->fault),
                                      cudaMemcpyDeviceToHost, q->stream)) &&
        cuda_wait(q))
        report_fault(q);
    if (q->err.status != GPT_OK && err)
        *err = q->err;
    return q->err.status;
}

struct gpt_event {
    cudaEvent_t event;
};

static void event_close(struct gpt_event *e)
{
    if (!e)
        return;
    if (e->event)
        cudaEventDestroy(e->event);
    free(e);
}

static int event_open(struct gpt_backend *be, struct gpt_event **out, struct gpt_err *err)
{
    struct gpt_event *e = (struct gpt_event *)calloc(1, sizeof(*e));

    (void)be;
    *out = NULL;
    cuda_use_device();
    if (!e)
        return gpt_fail(err, GPT_EFAIL, NAME ": out of memory: an event");
    /* Without timing an event costs the stream nothing. */
    cudaError_t status = cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming);
    if (status != cudaSuccess) {
        event_close(e);
        return fail_runtime(err, status, "an event");
    }
    *out = e;
    return GPT_OK;
}

static void event_record(struct gpt_queue *q, struct gpt_event *e)
{
    if (begin_operation(q, "event_record"))
        cuda_check(q, cudaEventRecord(e->event, q->stream));
}

static void event_wait(struct gpt_queue *q, struct gpt_event *e)
{
    if (begin_operation(q, "event_wait"))
        cuda_check(q, cudaStreamWaitEvent(q->stream, e->event, 0));
}

static void copy(struct gpt_queue *q, const char *op, void *dst, const void *src, size_t bytes,
                 cudaMemcpyKind kind)
{
    if (bytes && begin_operation(q, op))
        cuda_check(q, cudaMemcpyAsync(dst, src, bytes, kind, q->stream));
}

static void cuda_copy_in(struct gpt_queue *q, void *dst, const void *host, size_t bytes)
{
    copy(q, "copy_in", dst, host, bytes, cudaMemcpyHostToDevice);
}

static void cuda_copy_out(struct gpt_queue *q, void *host, const void *src, size_t bytes)
{
    copy(q, "copy_out", host, src, bytes, cudaMemcpyDeviceToHost);
}

static void cuda_copy(struct gpt_queue *q, void *dst, const void *src, size_t bytes)
{
    copy(q, "copy", dst, src, bytes, cudaMemcpyDeviceToDevice);
}

static void cuda_zero(struct gpt_queue *q, void *dst, size_t bytes)
{
    if (bytes && begin_operation(q, "zero"))
        cuda_check(q, cudaMemsetAsync(dst, 0, bytes, q->stream));
}

/* ---- the table ---- */

static void cuda_describe(const struct gpt_backend *be, char *text, size_t cap)
{
    int device = *(const int *)be->state, driver = 0;
    const char *loading = getenv("CUDA_MODULE_LOADING");
    cudaDeviceProp p;

    if (cudaGetDeviceProperties(&p, device) != cudaSuccess) {
        snprintf(text, cap, NAME ":%d", device);
        return;
    }
    cudaDriverGetVersion(&driver);
    snprintf(text, cap, NAME ":%d: %s, sm_%d%d, %d multiprocessors, %.1f GiB, driver %d.%d, %s, "
             "%s%s%s",
             device, p.name, p.major, p.minor, p.multiProcessorCount,
             (double)p.totalGlobalMem / (1 << 30), driver / 1000, driver % 1000 / 10,
             gemm_library(), cuda_collectives_library(),
             cuda_uses_tf32() ? ", float products in TF32" : "",
             loading && strcmp(loading, "EAGER") == 0 ? ", kernels loaded at once" : "");
}

/* What experts and latent attention need. */
static void add_variants(struct gpt_backend *be)
{
    be->route = cuda_route;
    be->route_bwd = cuda_route_bwd;
    be->balance = cuda_balance;
    be->expert_pick = cuda_expert_pick;
    be->expert_sum = cuda_expert_sum;
    be->expert_matmul = cuda_expert_matmul;
    be->expert_weigh = cuda_expert_weigh;
    be->gate_rows = cuda_gate_rows;
    be->gate_rows_bwd = cuda_gate_rows_bwd;
    be->latent_join = cuda_latent_join;
    be->latent_split = cuda_latent_split;
    be->fit_columns = cuda_fit_columns;
}

/* Filled by names, not by position: C++17 has no designated initializers, and the
 * table grows in the middle. */
static struct gpt_backend table()
{
    struct gpt_backend be = {};

    be.api = GPT_BACKEND_API;
    be.name = NAME;
    be.state = &device_open;
    be.act_types = 1u << GPT_F32 | 1u << GPT_BF16 | 1u << GPT_F16;
    be.describe = cuda_describe;
    be.alloc = cuda_alloc;
    be.free = cuda_free;
    be.host_alloc = cuda_host_alloc;
    be.host_free = cuda_host_free;
    be.memory = cuda_memory;
    be.queue_open = queue_open;
    be.queue_open_beside = queue_open_beside;
    be.queue_close = queue_close;
    be.sync = queue_sync;
    be.event_open = event_open;
    be.event_close = event_close;
    be.event_record = event_record;
    be.event_wait = event_wait;
    be.record_begin = cuda_record_begin;
    be.record_end = cuda_record_end;
    be.replay = cuda_replay;
    be.recording_close = cuda_recording_close;
    be.copy_in = cuda_copy_in;
    be.copy_out = cuda_copy_out;
    be.copy = cuda_copy;
    be.zero = cuda_zero;
    be.cast = cuda_cast;
    be.allow_tf32 = cuda_allow_tf32;
    be.matmul = cuda_matmul;
    be.amax = cuda_amax;
    be.fp8_scratch = gpu_fp8_scratch;
    be.bias_grad = cuda_bias_grad;
    be.bias_add = cuda_bias_add;
    be.activate = cuda_activate;
    be.activate_bwd = cuda_activate_bwd;
    be.xielu_grads = cuda_xielu_grads;
    be.head_norm = cuda_head_norm;
    be.head_norm_bwd = cuda_head_norm_bwd;
    be.head_norm_scratch = gpu_head_norm_scratch;
    be.head_norm_sums = cuda_head_norm_sums;
    be.softcap = cuda_softcap;
    be.times = cuda_times;
    be.scale = cuda_scale;
    be.clip = cuda_clip;
    be.clip_bwd = cuda_clip_bwd;
    be.norm_fwd = cuda_norm_fwd;
    be.norm_bwd = cuda_norm_bwd;
    be.norm_scratch = gpu_norm_scratch;
    be.dropout = cuda_dropout;
    be.embed_fwd = cuda_embed_fwd;
    be.embed_bwd = cuda_embed_bwd;
    be.embed_scratch = gpu_embed_scratch;
    be.rope = cuda_rope;
    be.attn_fwd = cuda_attn_fwd;
    be.attn_bwd = cuda_attn_bwd;
    be.attn_scratch = cuda_attn_scratch;
    be.attn_slow = cuda_attn_slow;
    be.attn_cached = cuda_attn_cached;
    add_variants(&be);
    be.xent = cuda_xent;
    be.xent_partial = cuda_xent_partial;
    be.xent_finish = cuda_xent_finish;
    be.adamw = cuda_adamw;
    be.sgd = cuda_sgd;
    be.mix = cuda_mix;
    be.sumsq = cuda_sumsq;
    be.collectives = cuda_collectives();
    return be;
}

/* The one symbol that programs look up (kernels/plugin.h). */
extern "C" __attribute__((visibility("default"))) int
gpt_plugin_open(struct gpt_backend **out, uint32_t interface, int device, bool wrap,
                struct gpt_err *err)
{
    static struct gpt_backend be = table();
    int n = 0, driver = 0;

    /* A plugin of another build would read the members of an operation in other
     * places, and compute something else without a word. */
    if (interface != GPT_INTERFACE) {
        gpt_fail(err, GPT_EDEVICE, NAME ": program and plugin are of different builds");
        return gpt_hint(err, "build both anew, or remove the plugin that is left over");
    }
    cudaDriverGetVersion(&driver);
    /* Asked before anything else: without a driver the runtime's other calls give
     * errors that name neither cause nor cure. */
    if (driver == 0)
        return gpt_fail(err, GPT_EDEVICE, NAME ": no driver is installed");
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0)
        return gpt_fail(err, GPT_EDEVICE, NAME ": no device: %s",
                        e == cudaSuccess ? "none is there" : cudaGetErrorString(e));
    device = wrap ? device % n : device;
    if (device >= n)
        return gpt_fail(err, GPT_EDEVICE, NAME ": no device %d: there are %d", device, n);
    if (device_open >= 0 && device_open != device)
        return gpt_fail(err, GPT_EDEVICE, NAME ": device %d is in use by this process, asked "
                        "for %d", device_open, device);
    if ((e = cudaSetDevice(device)) != cudaSuccess)
        return fail_runtime(err, e, "set device");
    cudaDeviceProp p;
    if ((e = cudaGetDeviceProperties(&p, device)) != cudaSuccess)
        return fail_runtime(err, e, "properties");
    be.abilities = GPU_ABILITIES | (cuda_can_fp8(p.major, p.minor) ? GPT_CAN_FP8 : 0);
    be.logits_bytes = gpu_logits_bytes((int64_t)p.totalGlobalMem);
    device_open = device;
    *out = &be;
    return GPT_OK;
}

/* Says what was built, for the version that programs print. */
extern "C" __attribute__((visibility("default"))) const char *gpt_plugin_built(void)
{
    return GPT_CUDA_ARCHS;
}
