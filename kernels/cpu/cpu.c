/* The CPU backend: its table, memory, and a queue that runs at once. Start at
 * gpt_backend_cpu(); the operations are in the files beside this one. */
#include "cpu/cpu.h"
#include "cpu/pair/pair.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "queue_fail.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef GPT_HAVE_DNNL
#include <dnnl.h>
#endif

/* Every allocation begins with a header of 64 bytes, which keeps what follows
 * aligned. Big blocks are mapped, which zeroes them for nothing, and in huge
 * pages where there are any. */
struct block {
    size_t bytes; /* with the header */
    bool mapped;
};
enum { HEADER = 64, MAP_FROM = 1 << 20 };

static void *block_open(size_t bytes)
{
    /* Rounding up below cannot wrap around. */
    if (bytes > SIZE_MAX / 2)
        return NULL;
    /* Whole cache lines: aligned_alloc() asks for a multiple of its alignment,
     * and two blocks never share a line that two threads write. */
    size_t total = (bytes + HEADER + 63) & ~(size_t)63;
    struct block *b;
    if (total >= MAP_FROM) {
        void *mem = mmap(NULL, total, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (mem == MAP_FAILED)
            return NULL;
        madvise(mem, total, MADV_HUGEPAGE); /* only a wish */
        b = mem;
    } else {
        b = aligned_alloc(64, total);
        if (!b)
            return NULL;
        memset(b, 0, total);
    }
    /* The header says how the block is to be given back, since free() has
     * only the address. */
    *b = (struct block){total, total >= MAP_FROM};
    return (char *)b + HEADER;
}

static void block_close(void *mem)
{
    if (!mem)
        return;
    struct block *b = (struct block *)((char *)mem - HEADER);
    if (b->mapped)
        munmap(b, b->bytes);
    else
        free(b);
}

static int cpu_alloc(struct gpt_backend *be, size_t bytes, const char *what,
                     void **mem, struct gpt_err *err)
{
    (void)be;
    *mem = block_open(bytes);
    if (!*mem)
        return gpt_fail(err, GPT_EDEVICE,
                        "cpu: out of memory: %zu bytes for %s", bytes, what);
    return GPT_OK;
}

static void cpu_free(struct gpt_backend *be, void *mem)
{
    (void)be;
    block_close(mem);
}

/* All memory of the machine counts as available: the kernel promises it freely,
 * and takes it when it is touched. */
static void cpu_memory(struct gpt_backend *be, int64_t *available,
                       int64_t *total)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    (void)be;
    *available = *total = pages > 0 && page > 0 ? pages * page : 0;
}

static int cpu_queue_open(struct gpt_backend *be, struct gpt_queue **q,
                          struct gpt_err *err)
{
    (void)be;
    *q = calloc(1, sizeof(**q));
    if (!*q)
        return gpt_no_memory(err, "a queue of the CPU");
    return GPT_OK;
}

static void cpu_queue_close(struct gpt_queue *q)
{
    if (!q)
        return;
    block_close(q->work.mem);
    block_close(q->wide.mem);
    block_close(q->rounded.mem);
    block_close(q->angles.space.mem);
    free(q);
}

/* An operation has run when its call returns, so sync() only reports the first
 * failure. The failure stays in the queue: a second or late sync() reports it,
 * too. */
static int cpu_sync(struct gpt_queue *q, struct gpt_err *err)
{
    if (q->err.status != GPT_OK && err)
        *err = q->err;
    return q->err.status;
}

/* What comes before in any queue has run when the host comes here: there is
 * nothing to remember, and one event is as good as another. */
struct gpt_event {
    char nothing;
};

static int cpu_event_open(struct gpt_backend *be, struct gpt_event **e,
                          struct gpt_err *err)
{
    static struct gpt_event all;

    (void)be;
    (void)err;
    *e = &all;
    return GPT_OK;
}

static void cpu_event_close(struct gpt_event *e)
{
    (void)e;
}

static void cpu_event_pass(struct gpt_queue *q, struct gpt_event *e)
{
    (void)q;
    (void)e;
}

void cpu_fail(struct gpt_queue *q, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    queue_vfail(&q->err, "cpu", NULL, fmt, args);
    va_end(args);
}

bool cpu_ready(struct gpt_queue *q, const char *what, enum gpt_dtype act)
{
    if (q->err.status != GPT_OK)
        return false;
    /* bf16.c has made floats of bf16 before it came here. */
    if (act == GPT_F32)
        return true;
    cpu_fail(q, "%s: type %s is not computed here", what,
             gpt_dtype_name(act));
    return false;
}

/* Work memory never shrinks, so that training steps after the first allocate
 * nothing. Growing does not copy the contents: no operation keeps results in
 * work memory for a later one. */
static float *grow_space(struct gpt_queue *q, struct cpu_space *space,
                         size_t floats)
{
    if (space->bytes >= floats * sizeof(float) && space->mem)
        return space->mem;
    block_close(space->mem);
    space->bytes = floats * sizeof(float);
    space->mem = block_open(space->bytes);
    if (!space->mem) {
        cpu_fail(q, "out of memory: %zu bytes of work space", space->bytes);
        space->bytes = 0;
    }
    return space->mem;
}

float *cpu_work(struct gpt_queue *q, size_t floats)
{
    return grow_space(q, &q->work, floats);
}

float *cpu_wide(struct gpt_queue *q, size_t floats)
{
    return q->err.status == GPT_OK ? grow_space(q, &q->wide, floats) : NULL;
}

float *cpu_rounded(struct gpt_queue *q, size_t floats)
{
    return q->err.status == GPT_OK ? grow_space(q, &q->rounded, floats) : NULL;
}

float *cpu_angle_space(struct gpt_queue *q, size_t floats)
{
    return q->err.status == GPT_OK ? grow_space(q, &q->angles.space, floats)
                                   : NULL;
}

static void copy_bytes(struct gpt_queue *q, void *dst, const void *src,
                       size_t bytes)
{
    if (q->err.status == GPT_OK && bytes)
        memmove(dst, src, bytes);
}

enum { CHUNK = 1 << 16 }; /* of what is cut for the sake of threads only */

static void cpu_zero(struct gpt_queue *q, void *dst, size_t bytes)
{
    if (q->err.status != GPT_OK)
        return;
    /* Static schedules give a thread the same part in every pass: on machines
     * with several memories its pages are near it. */
#pragma omp parallel for schedule(static) if (bytes > CHUNK)
    for (size_t at = 0; at < bytes; at += CHUNK)
        memset((char *)dst + at, 0, bytes - at < CHUNK ? bytes - at : CHUNK);
}

void cpu_cast(struct gpt_queue *q, void *dst, enum gpt_dtype dst_type,
              const void *src, enum gpt_dtype src_type, int64_t n)
{
    if (q->err.status != GPT_OK)
        return;
    if (!gpt_dtype_is_float(dst_type) || !gpt_dtype_is_float(src_type)) {
        cpu_fail(q, "cast: from %s to %s", gpt_dtype_name(src_type),
                 gpt_dtype_name(dst_type));
        return;
    }
    /* Every element is converted alone, so cutting into chunks for threads
     * changes no bit. */
    size_t to = gpt_dtype_bytes(dst_type), from = gpt_dtype_bytes(src_type);
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t at = 0; at < n; at += CHUNK)
        cpu_convert((char *)dst + (size_t)at * to, dst_type,
                    (const char *)src + (size_t)at * from, src_type,
                    n - at < CHUNK ? n - at : CHUNK);
}

void cpu_convert(void *dst, enum gpt_dtype dst_type, const void *src,
                 enum gpt_dtype src_type, int64_t n)
{
    if (dst_type == GPT_BF16 && src_type == GPT_F32)
        cpu_isa->narrow(dst, src, n);
    else if (dst_type == GPT_F32 && src_type == GPT_BF16)
        cpu_isa->widen(dst, src, n);
    else
        gpt_convert(dst, dst_type, src, src_type, (size_t)n);
}

static void cpu_describe(const struct gpt_backend *be, char *text, size_t cap)
{
    const char *pairs = cpu_pairs ? ", bf16 by " : "";
    const char *name = cpu_pairs ? cpu_pairs->name : "";

    (void)be;
#ifdef GPT_HAVE_DNNL
    const dnnl_version_t *v = dnnl_version();
    if (cpu_use_dnnl || cpu_use_dnnl_bf16) {
        snprintf(text, cap, "cpu: %d threads, %s, oneDNN %d.%d.%d%s%s%s",
                 omp_get_max_threads(), cpu_isa->name, v->major, v->minor,
                 v->patch, cpu_use_dnnl_bf16 ? " (bf16 too)" : "", pairs,
                 name);
        return;
    }
#endif
    snprintf(text, cap, "cpu: %d threads, %s, portable matrix products%s%s",
             omp_get_max_threads(), cpu_isa->name, pairs, name);
}

/* record_begin(), allow_tf32() and collectives are NULL: there is nothing to
 * gain from recording, no TF32, and Gloo serves the CPU. Operations named
 * cpu_bf16_* widen bf16 first; the others take it as it is. */
static struct gpt_backend cpu = {
    .api = GPT_BACKEND_API,
    .name = "cpu",
    .act_types = 1U << GPT_F32 | 1U << GPT_BF16,
    .abilities = GPT_CAN_WINDOW | GPT_CAN_CAP | GPT_CAN_SCALE_WORDS |
                 GPT_CAN_NORM_WIDE | GPT_CAN_QUANT | GPT_CAN_FP8 |
                 GPT_CAN_CHOOSE_SUMS | GPT_CAN_NARROW_CACHE | GPT_CAN_EXPERTS |
                 GPT_CAN_LATENT,
    .host_memory = true,
    .logits_bytes = 128 << 20, /* large products run at full speed from here */
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_alloc = cpu_alloc,
    .host_free = cpu_free,
    .memory = cpu_memory,
    .queue_open = cpu_queue_open,
    .queue_open_beside = cpu_queue_open,
    .queue_close = cpu_queue_close,
    .sync = cpu_sync,
    .event_open = cpu_event_open,
    .event_close = cpu_event_close,
    .event_record = cpu_event_pass,
    .event_wait = cpu_event_pass,
    .copy_in = copy_bytes,
    .copy_out = copy_bytes,
    .copy = copy_bytes,
    .zero = cpu_zero,
    .cast = cpu_cast,
    .matmul = cpu_matmul,
    .quant_bytes = cpu_quant_bytes,
    .quant_arrange = cpu_quant_arrange,
    .amax = cpu_amax,
    .fp8_scratch = cpu_fp8_scratch,
    .bias_grad = cpu_bias_grad,
    .bias_add = cpu_bf16_bias_add,
    .activate = cpu_activate,
    .activate_bwd = cpu_activate_bwd,
    .xielu_grads = cpu_xielu_grads,
    .norm_fwd = cpu_norm_fwd,
    .norm_bwd = cpu_norm_bwd,
    .norm_scratch = cpu_norm_scratch,
    .head_norm = cpu_bf16_head_norm,
    .head_norm_bwd = cpu_bf16_head_norm_bwd,
    .head_norm_scratch = cpu_head_norm_scratch,
    .head_norm_sums = cpu_bf16_head_norm_sums,
    .softcap = cpu_bf16_softcap,
    .times = cpu_bf16_times,
    .scale = cpu_bf16_scale,
    .clip = cpu_bf16_clip,
    .clip_bwd = cpu_bf16_clip_bwd,
    .dropout = cpu_bf16_dropout,
    .embed_fwd = cpu_embed_fwd,
    .embed_bwd = cpu_bf16_embed_bwd,
    .embed_scratch = cpu_embed_scratch,
    .rope = cpu_rope,
    .attn_fwd = cpu_bf16_attn_fwd,
    .attn_bwd = cpu_bf16_attn_bwd,
    .attn_scratch = cpu_attn_scratch,
    .attn_cached = cpu_attn_cached,
    .route = cpu_route,
    .route_bwd = cpu_route_bwd,
    .balance = cpu_balance,
    .expert_pick = cpu_expert_pick,
    .expert_sum = cpu_expert_sum,
    .expert_matmul = cpu_expert_matmul,
    .expert_weigh = cpu_expert_weigh,
    .gate_rows = cpu_gate_rows,
    .gate_rows_bwd = cpu_gate_rows_bwd,
    .latent_join = cpu_latent_join,
    .latent_split = cpu_latent_split,
    .fit_columns = cpu_fit_columns,
    .xent = cpu_xent,
    .xent_partial = cpu_bf16_xent_partial,
    .xent_finish = cpu_bf16_xent_finish,
    .adamw = cpu_adamw,
    .sgd = cpu_sgd,
    .mix = cpu_mix,
    .sumsq = cpu_sumsq,
};

int gpt_backend_cpu(struct gpt_backend **be, struct gpt_err *err)
{
    /* Choosing again is harmless: the environment does not change. */
    GPT_TRY(cpu_choose(gpt_cpu_named(), getenv("GPT_CPU_MATMUL"), err));
    *be = &cpu;
    return GPT_OK;
}
