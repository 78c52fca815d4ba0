/* What the files of the CUDA backend share: the queue, launches, the choice of
 * types, and the operations themselves, which cuda.cu puts into the table.
 * Inside kernels: device.cuh.
 *
 * One operation a file. Sums have a fixed order: results do not depend on the
 * GPU's scheduling, only on shapes. These sources are compiled by nvcc into
 * libgpt-cuda.so, and by a C++ compiler against kernels/emu/ into
 * libgpt-cuda-emu.so, which runs the same kernels on a CPU. */
#ifndef GPT_KERNELS_CUDA_CUH
#define GPT_KERNELS_CUDA_CUH

#ifdef GPT_CUDA_EMU
#include "kernels/emu/cuda.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

extern "C" {
#include "gpu_sizes.h"
}

#include <type_traits>
#include <utility>

struct gemm;

/* What a kernel found wrong with its data; the first finder writes. */
enum cuda_fault_kind { CUDA_FAULT_NONE, CUDA_FAULT_TARGET };
struct cuda_fault {
    int kind, value; /* enum cuda_fault_kind; the offending value */
    long long row, limit;
};

/* Numbers of pieces of work, for the blocks of one kernel at a time: the next
 * piece, and how many blocks found none left. Zeros between kernels. */
struct cuda_dealer {
    unsigned next, ended;
};

/* A stream. After a failure nothing more is put on it. */
struct gpt_queue {
    struct gpt_err err; /* the first failure; status GPT_OK until then */
    cudaStream_t stream;
    const char *op;           /* the operation put on it last */
    void *work;               /* grown by cuda_work(), kept */
    size_t work_bytes;
    struct cuda_fault *fault, *fault_host; /* device; pinned */
    struct cuda_dealer *dealer;            /* device */
    struct gemm *gemm; /* opened by the first product: its work space is large */
    bool gemm_known;
    bool step_by_step; /* wait after every operation (GPT_CUDA_SYNC=1) */
    bool hopper;       /* use kernels that only Hopper runs (not: GPT_CUDA_FLASH=mma) */
    int processors, l2_bytes; /* of the device */
    size_t shared_most; /* shared memory that it can give a block, static and dynamic */
};

/* True when the operation is to run: no failure so far, and `act` is a type
 * that the GPU computes in. */
bool cuda_ready(struct gpt_queue *q, const char *op, enum gpt_dtype act);

/* Records the first failure, under the operation's name. */
void cuda_fail(struct gpt_queue *q, const char *fmt, ...) GPT_PRINTF(2, 3);

/* Makes the process's device the calling thread's. */
void cuda_use_device();

/* True when a device runs the kernels that are for Hopper alone. */
bool cuda_runs_hopper(const cudaDeviceProp &p);
bool cuda_hopper_backward(void); /* not: GPT_CUDA_FLASH=mma-backward */

/* Records a failure of the runtime; true when there was none. */
bool cuda_check(struct gpt_queue *q, cudaError_t e);

/* At least so many bytes of device memory (256-byte aligned, contents
 * undefined), valid until the next call; NULL after recording a failure. */
void *cuda_work(struct gpt_queue *q, size_t bytes);

/* True when a block of `kernel` can have `each` bytes of dynamic shared memory for each of n
 * elements on this GPU; records a failure otherwise, which says what cannot have so many. */
template <class... P>
bool cuda_fits(struct gpt_queue *q, void (*kernel)(P...), const char *what, int64_t n, size_t each)
{
    cudaFuncAttributes a = {};
    const size_t everywhere = 32 * 1024; /* asked for without a question */

    if ((size_t)n * each <= everywhere)
        return true;
    if (!cuda_check(q, cudaFuncGetAttributes(&a, kernel)))
        return false;
    size_t most = (q->shared_most - a.sharedSizeBytes) / each;
    if ((size_t)n > most)
        cuda_fail(q, "%s of %lld elements, limit %zu on this GPU", what, (long long)n, most);
    return (size_t)n <= most;
}

/* Puts a kernel on the queue. */
template <class... P, class... A>
void launch(struct gpt_queue *q, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
            A... args)
{
    if (q->err.status != GPT_OK)
        return;
    /* 48 KiB are given unasked, static memory included, of which no kernel that
     * has dynamic memory has a third. */
    if (shared > 32 * 1024 &&
        !cuda_check(q, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)shared)))
        return;
#ifdef GPT_CUDA_EMU
    const char *op = q->op;
    cuda_check(q, emu::submit(q->stream, [=] {
        bool good = emu::launch_kernel(op, grid, block, shared, kernel, args...);
        return good ? cudaSuccess : cudaErrorLaunchFailure;
    }));
#else
    kernel<<<grid, block, shared, q->stream>>>(args...);
#endif
    cuda_check(q, cudaGetLastError());
}

/* Calls f(T()) with the C++ type of an activation type. */
template <class F> void with_type(enum gpt_dtype act, F f)
{
    if (act == GPT_F32)
        f(float());
    else if (act == GPT_BF16)
        f(__nv_bfloat16());
    else
        f(__half());
}

/* Calls f(T(), W) where W, a constant, is how many elements a thread moves at
 * once: 16 bytes of them, or one where rows do not allow it. */
template <class F> void with_access(enum gpt_dtype act, bool wide, F f)
{
    with_type(act, [&](auto type) {
        if (wide)
            f(type, std::integral_constant<int, 16 / sizeof(type)>());
        else
            f(type, std::integral_constant<int, 1>());
    });
}

/* True when rows of c elements at these addresses may be moved 16 bytes at a time. */
template <class... P> bool cuda_wide(enum gpt_dtype act, int64_t c, P... at)
{
    return c * (int64_t)gpt_dtype_bytes(act) % 16 == 0 && (((uintptr_t)at % 16 == 0) && ...);
}

/* Threads for a row of `items` work items: whole warps, at most `most`. */
static inline unsigned cuda_threads(int64_t items, unsigned most)
{
    int64_t whole = (items + 31) / 32 * 32;

    return whole < 32 ? 32 : whole < most ? (unsigned)whole : most;
}

static inline int64_t cuda_blocks(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

/* What kernels need of a dropout; below = 0: off. */
struct cuda_drop {
    uint32_t key[10][2]; /* of each round of Philox; a parameter is an operand */
    uint32_t below;      /* dropped where the counter's word is below this, a multiple of
                          * 2^8: 24 bits count */
    float scale;
    int64_t sample0;
    const int64_t *samples; /* device, or NULL: added to sample0 */
    int64_t t_local, t_global, t0;
};
struct cuda_drop cuda_drop_of(const struct gpt_dropout *d);

/* Buffers that neighbouring columns of a matrix are added to; out NULL: not wanted. */
enum { CUDA_COLUMNS = 4 };
struct cuda_columns {
    float *out[CUDA_COLUMNS];
    int64_t cols[CUDA_COLUMNS];
};

/* Adds to them the sums of the columns of part (rows, their columns together) float,
 * in a fixed order; bias.cu. */
void cuda_add_columns(struct gpt_queue *q, const struct cuda_columns &to, const float *part,
                      int64_t rows);

int cuda_record_begin(struct gpt_queue *q, struct gpt_err *err);
int cuda_record_end(struct gpt_queue *q, struct gpt_recording **r, struct gpt_err *err);
bool cuda_replay(struct gpt_queue *q, struct gpt_recording *r);
void cuda_recording_close(struct gpt_recording *r);

void cuda_cast(struct gpt_queue *q, void *dst, enum gpt_dtype dst_type, const void *src,
               enum gpt_dtype src_type, int64_t n);
void cuda_amax(struct gpt_queue *q, float *amax, const void *x, int64_t n);
void cuda_allow_tf32(struct gpt_backend *be, bool allow);
bool cuda_uses_tf32();
void cuda_matmul(struct gpt_queue *q, const struct gpt_matmul *op);
void cuda_bias_grad(struct gpt_queue *q, float *dbias, const void *dy, int64_t m, int64_t n,
                    enum gpt_dtype act);
void cuda_bias_add(struct gpt_queue *q, void *x, const void *bias, int64_t m, int64_t n,
                   enum gpt_dtype act);
void cuda_activate(struct gpt_queue *q, const struct gpt_activate *op);
void cuda_activate_bwd(struct gpt_queue *q, const struct gpt_activate *op, const void *dout,
                       void *dpre);
void cuda_xielu_grads(struct gpt_queue *q, const struct gpt_activate *op, const void *dout,
                      float *dalpha_p, float *dalpha_n);
void cuda_head_norm(struct gpt_queue *q, const struct gpt_head_norm *op);
void cuda_head_norm_bwd(struct gpt_queue *q, const struct gpt_head_norm *op,
                        const struct gpt_head_norm_grad *grad);
/* The norms of all heads together (head_norm_wide.cu). */
void cuda_head_norm_sums(struct gpt_queue *q, const struct gpt_head_norm *op, const void *dqkv,
                         float *sums);
void cuda_wide_norm(struct gpt_queue *q, const struct gpt_head_norm *op);
void cuda_wide_norm_bwd(struct gpt_queue *q, const struct gpt_head_norm *op,
                        const struct gpt_head_norm_grad *grad);
void cuda_softcap(struct gpt_queue *q, void *x, void *slope, int64_t n, float c,
                  enum gpt_dtype act);
void cuda_times(struct gpt_queue *q, void *x, const void *y, int64_t n, enum gpt_dtype act);
void cuda_scale(struct gpt_queue *q, void *x, int64_t n, float factor, enum gpt_dtype act);
void cuda_clip(struct gpt_queue *q, void *x, int64_t n, float limit, enum gpt_dtype act);
void cuda_clip_bwd(struct gpt_queue *q, void *d, const void *x, int64_t n, float limit,
                   enum gpt_dtype act);
void cuda_norm_fwd(struct gpt_queue *q, const struct gpt_norm *op);
void cuda_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                   const struct gpt_norm_grad *grad);
void cuda_dropout(struct gpt_queue *q, void *y, const void *x, int64_t n, int64_t c,
                  enum gpt_dtype act, const struct gpt_dropout *d);
void cuda_embed_fwd(struct gpt_queue *q, const struct gpt_embed *op);
void cuda_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                    const struct gpt_embed_grad *grad);
void cuda_rope(struct gpt_queue *q, const struct gpt_rope *op);
void cuda_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op);
void cuda_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                   const struct gpt_attn_grad *grad);
size_t cuda_attn_scratch(const struct gpt_attn *op);
const char *cuda_attn_slow(const struct gpt_attn *op);
void cuda_attn_cached(struct gpt_queue *q, const struct gpt_attn_cached *op);
void cuda_route(struct gpt_queue *q, const struct gpt_router *op);
void cuda_route_bwd(struct gpt_queue *q, const struct gpt_router *op,
                    const struct gpt_router_grad *grad);
void cuda_balance(struct gpt_queue *q, const struct gpt_balance *op);
void cuda_expert_pick(struct gpt_queue *q, const struct gpt_expert_rows *rows, const void *x,
                      void *out, int64_t c);
void cuda_expert_sum(struct gpt_queue *q, const struct gpt_expert_rows *rows, const void *x,
                     void *y, int64_t c, bool weighed, bool add);
void cuda_expert_matmul(struct gpt_queue *q, const struct gpt_expert_matmul *op);
void cuda_expert_weigh(struct gpt_queue *q, const struct gpt_expert_rows *rows, void *h, void *dh,
                       int64_t f, float *dweight);
void cuda_gate_rows(struct gpt_queue *q, void *x, const float *gate, int64_t n, int64_t f,
                    enum gpt_dtype act);
void cuda_gate_rows_bwd(struct gpt_queue *q, const void *x, void *dx, const float *gate,
                        void *dgate, int64_t n, int64_t f, enum gpt_dtype act);
void cuda_latent_join(struct gpt_queue *q, const struct gpt_latent *op);
void cuda_latent_split(struct gpt_queue *q, const struct gpt_latent *op,
                       const struct gpt_latent_grad *grad);
void cuda_fit_columns(struct gpt_queue *q, void *y, int64_t to, const void *x, int64_t from,
                      int64_t n, enum gpt_dtype act);
void cuda_xent(struct gpt_queue *q, const struct gpt_xent *op);
void cuda_xent_partial(struct gpt_queue *q, const struct gpt_xent *op, float *stats);
void cuda_xent_finish(struct gpt_queue *q, const struct gpt_xent *op, const float *stats,
                      int64_t ranks, int64_t rank);
void cuda_adamw(struct gpt_queue *q, const struct gpt_adamw *op);
void cuda_sgd(struct gpt_queue *q, const struct gpt_sgd *op);
void cuda_mix(struct gpt_queue *q, const struct gpt_mix *op);
void cuda_sumsq(struct gpt_queue *q, double *out, const float *x, int64_t n);

#endif
