/* What the files of the CPU backend share: the queue, argument checks, work
 * memory, and the operations themselves, which cpu.c puts into the table. */
#ifndef GPT_KERNELS_CPU_H
#define GPT_KERNELS_CPU_H

#include "backend.h"
#include "cpu/isa/isa.h"

#include <math.h>

/* An operation runs within its call, in the calling thread and its OpenMP team.
 * After the first failure, operations do nothing. */
struct gpt_queue {
    struct gpt_err err; /* the first failure; status GPT_OK until then */
    struct cpu_space {
        float *mem;
        size_t bytes;
    } work, wide, rounded; /* cpu_work() and so on grow them; they are kept */
    struct cpu_angles { /* of rope.c: its table, and what that was made of */
        struct cpu_space space;
        int64_t t, rotary; /* t 0: there is none */
        double base;
        struct gpt_rope_scaling scaling;
    } angles;
};

/* True when operation `what` may run: the queue has no failure, and `act` is a
 * type that the CPU computes in. Another `act` is recorded as a failure. */
bool cpu_ready(struct gpt_queue *q, const char *what, enum gpt_dtype act);

/* The same for an operation that takes bf16 as it is, too. */
static inline bool cpu_ready_narrow(struct gpt_queue *q, const char *what,
                                    enum gpt_dtype act)
{
    return cpu_ready(q, what, act == GPT_BF16 ? GPT_F32 : act);
}

/* Records a failure of the queue, unless the queue already has one. */
void cpu_fail(struct gpt_queue *q, const char *fmt, ...) GPT_PRINTF(2, 3);

/* At least `floats` floats of work memory (64-byte aligned, contents
 * undefined), valid until the next call; NULL after recording a failure. */
float *cpu_work(struct gpt_queue *q, size_t floats);
/* A second work memory like cpu_work()'s, for copies of operands in another
 * type. Operations that bf16.c calls on such copies do not use this one. */
float *cpu_wide(struct gpt_queue *q, size_t floats);
/* A third one, for inputs of products that are rounded. */
float *cpu_rounded(struct gpt_queue *q, size_t floats);
/* Room for the table of angles, which stays from call to call. */
float *cpu_angle_space(struct gpt_queue *q, size_t floats);

/* Sets cpu_isa to "base", "avx2" or "avx512", or to one of these with products
 * of narrow numbers by "avx2vnni" or "avx512vnni" (bytes), "avx512bf16" or
 * "amx" (of bf16, too); and the library of products to "dnnl" (oneDNN)
 * or "portable" (the loops of cpu/isa/ and cpu/pair/). NULL chooses the best of
 * this processor. Tests call it again between operations. */
int cpu_choose(const char *isa, const char *matmul,
               struct gpt_err *err) GPT_MUST_USE;
extern bool cpu_use_dnnl, cpu_use_dnnl_bf16;
extern bool cpu_float_panels; /* the device keeps floats so (quant.h) */
struct cpu_pairs;
extern const struct cpu_pairs *cpu_pairs; /* or NULL: bf16 is widened */

/* True when work of about this many nanoseconds is worth waking the other
 * threads. Waking them takes microseconds, and far longer on a busy machine.
 * Results do not depend on the return value. */
static inline bool cpu_worth_threads(int64_t nanoseconds)
{
    return nanoseconds > 10000;
}

/* Number of blocks into which a sum over n rows is cut. It depends on n alone,
 * so that the order of the sum is the same for every number of threads. */
static inline int64_t cpu_row_blocks(int64_t n)
{
    int64_t blocks = (n + 7) / 8;

    return blocks < 64 ? blocks : 64;
}

/* Index of the first item of block i, when n items are cut into `blocks` almost
 * equal parts. */
static inline int64_t cpu_cut(int64_t n, int64_t blocks, int64_t i)
{
    return n / blocks * i + (i < n % blocks ? i : n % blocks);
}

/* The item of *next, which the threads of a team take in turn: each once. */
static inline int64_t cpu_take(int64_t *next)
{
    int64_t i;

#pragma omp atomic capture
    i = (*next)++;
    return i;
}

static inline float cpu_logistic(float x)
{
    return 1 / (1 + expf(-x));
}

/* Global number of row 0's sample. */
static inline int64_t cpu_sample0(const struct gpt_dropout *d)
{
    return d->sample0 + (d->samples ? *d->samples : 0);
}

/* Index of element (row, 0) in the counters of dropout. */
uint64_t cpu_drop_index(const struct gpt_dropout *d, int64_t row, int64_t c);

/* The form of a dropout that the inner loops of cpu/isa/ take. */
struct cpu_drop cpu_drop_of(const struct gpt_dropout *d);

void cpu_cast(struct gpt_queue *q, void *dst, enum gpt_dtype dst_type,
              const void *src, enum gpt_dtype src_type, int64_t n);
/* Converts n elements, between floats and bf16 by vectors; in the calling
 * thread. */
void cpu_convert(void *dst, enum gpt_dtype dst_type, const void *src,
                 enum gpt_dtype src_type, int64_t n);
void cpu_matmul(struct gpt_queue *q, const struct gpt_matmul *op);
void cpu_amax(struct gpt_queue *q, float *amax, const void *x, int64_t n);
size_t cpu_fp8_scratch(int64_t m, int64_t n, int64_t k);
size_t cpu_quant_bytes(const struct gpt_quant *w, int64_t n, int64_t k);
void cpu_quant_arrange(void *to, const struct gpt_quant *w, int64_t first,
                       int64_t rows, int64_t k);
/* Elements at.. of a row of w (N, k), n of them, as floats. */
void cpu_quant_row(float *to, const struct gpt_quant *w, int64_t row,
                   int64_t at, int64_t n, int64_t k);
void cpu_bias_grad(struct gpt_queue *q, float *dbias, const void *dy, int64_t m,
                   int64_t n, enum gpt_dtype act);
void cpu_bias_add(struct gpt_queue *q, void *x, const void *bias, int64_t m,
                  int64_t n, enum gpt_dtype act);
void cpu_activate(struct gpt_queue *q, const struct gpt_activate *op);
/* GELU of n values of bf16, with the bits that cpu_activate() gives. */
void cpu_gelu_narrow(uint16_t *y, const uint16_t *x, int64_t n);
void cpu_activate_bwd(struct gpt_queue *q, const struct gpt_activate *op,
                      const void *dout, void *dpre);
void cpu_xielu_grads(struct gpt_queue *q, const struct gpt_activate *op,
                     const void *dout, float *dalpha_p, float *dalpha_n);
void cpu_head_norm(struct gpt_queue *q, const struct gpt_head_norm *op);
void cpu_head_norm_bwd(struct gpt_queue *q, const struct gpt_head_norm *op,
                       const struct gpt_head_norm_grad *grad);
size_t cpu_head_norm_scratch(int64_t n, int64_t d);
void cpu_head_norm_sums(struct gpt_queue *q, const struct gpt_head_norm *op,
                        const void *dqkv, float *sums);
void cpu_softcap(struct gpt_queue *q, void *x, void *slope, int64_t n, float c,
                 enum gpt_dtype act);
void cpu_times(struct gpt_queue *q, void *x, const void *y, int64_t n,
               enum gpt_dtype act);
void cpu_scale(struct gpt_queue *q, void *x, int64_t n, float factor,
               enum gpt_dtype act);
void cpu_clip(struct gpt_queue *q, void *x, int64_t n, float limit,
              enum gpt_dtype act);
void cpu_clip_bwd(struct gpt_queue *q, void *d, const void *x, int64_t n,
                  float limit, enum gpt_dtype act);
void cpu_norm_fwd(struct gpt_queue *q, const struct gpt_norm *op);
void cpu_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                  const struct gpt_norm_grad *grad);
size_t cpu_norm_scratch(int64_t n, int64_t c);
void cpu_dropout(struct gpt_queue *q, void *y, const void *x, int64_t n,
                 int64_t c, enum gpt_dtype act, const struct gpt_dropout *d);
void cpu_embed_fwd(struct gpt_queue *q, const struct gpt_embed *op);
void cpu_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                   const struct gpt_embed_grad *grad);
size_t cpu_embed_scratch(int64_t n, int64_t c, bool positions);
void cpu_rope(struct gpt_queue *q, const struct gpt_rope *op);
void cpu_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op);
void cpu_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                  const struct gpt_attn_grad *grad);
size_t cpu_attn_scratch(const struct gpt_attn *op);
void cpu_attn_cached(struct gpt_queue *q, const struct gpt_attn_cached *op);
void cpu_route(struct gpt_queue *q, const struct gpt_router *op);
void cpu_route_bwd(struct gpt_queue *q, const struct gpt_router *op,
                   const struct gpt_router_grad *grad);
void cpu_balance(struct gpt_queue *q, const struct gpt_balance *op);
void cpu_expert_pick(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                     const void *x, void *out, int64_t c);
void cpu_expert_sum(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                    const void *x, void *y, int64_t c, bool weighed, bool add);
void cpu_expert_matmul(struct gpt_queue *q, const struct gpt_expert_matmul *op);
void cpu_expert_weigh(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                      void *h, void *dh, int64_t f, float *dweight);
void cpu_gate_rows(struct gpt_queue *q, void *x, const float *gate, int64_t n,
                   int64_t f, enum gpt_dtype act);
void cpu_gate_rows_bwd(struct gpt_queue *q, const void *x, void *dx,
                       const float *gate, void *dgate, int64_t n, int64_t f,
                       enum gpt_dtype act);
void cpu_latent_join(struct gpt_queue *q, const struct gpt_latent *op);
void cpu_latent_split(struct gpt_queue *q, const struct gpt_latent *op,
                      const struct gpt_latent_grad *grad);
void cpu_fit_columns(struct gpt_queue *q, void *y, int64_t to, const void *x,
                     int64_t from, int64_t n, enum gpt_dtype act);
void cpu_xent(struct gpt_queue *q, const struct gpt_xent *op);
void cpu_xent_partial(struct gpt_queue *q, const struct gpt_xent *op,
                      float *stats);
void cpu_xent_finish(struct gpt_queue *q, const struct gpt_xent *op,
                     const float *stats, int64_t ranks, int64_t rank);
void cpu_adamw(struct gpt_queue *q, const struct gpt_adamw *op);
void cpu_sgd(struct gpt_queue *q, const struct gpt_sgd *op);
void cpu_mix(struct gpt_queue *q, const struct gpt_mix *op);
void cpu_sumsq(struct gpt_queue *q, double *out, const float *x, int64_t n);

/* bf16.c: operations for activations in float or bf16. Their namesakes above
 * take only floats; those that have none here take both, but attn_cached, which
 * has no version for bf16. */
void cpu_bf16_bias_add(struct gpt_queue *q, void *x, const void *bias,
                       int64_t m, int64_t n, enum gpt_dtype act);
void cpu_bf16_dropout(struct gpt_queue *q, void *y, const void *x, int64_t n,
                      int64_t c, enum gpt_dtype act,
                      const struct gpt_dropout *d);
void cpu_bf16_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                        const struct gpt_embed_grad *grad);
void cpu_bf16_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op);
void cpu_bf16_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                       const struct gpt_attn_grad *grad);
void cpu_bf16_xent_partial(struct gpt_queue *q, const struct gpt_xent *op,
                           float *stats);
void cpu_bf16_xent_finish(struct gpt_queue *q, const struct gpt_xent *op,
                          const float *stats, int64_t ranks, int64_t rank);
void cpu_bf16_head_norm(struct gpt_queue *q, const struct gpt_head_norm *op);
void cpu_bf16_head_norm_bwd(struct gpt_queue *q,
                            const struct gpt_head_norm *op,
                            const struct gpt_head_norm_grad *grad);
void cpu_bf16_head_norm_sums(struct gpt_queue *q,
                             const struct gpt_head_norm *op, const void *dqkv,
                             float *sums);
void cpu_bf16_softcap(struct gpt_queue *q, void *x, void *slope, int64_t n,
                      float c, enum gpt_dtype act);
void cpu_bf16_times(struct gpt_queue *q, void *x, const void *y, int64_t n,
                    enum gpt_dtype act);
void cpu_bf16_scale(struct gpt_queue *q, void *x, int64_t n, float factor,
                    enum gpt_dtype act);
void cpu_bf16_clip(struct gpt_queue *q, void *x, int64_t n, float limit,
                   enum gpt_dtype act);
void cpu_bf16_clip_bwd(struct gpt_queue *q, void *d, const void *x, int64_t n,
                       float limit, enum gpt_dtype act);

#endif
