/* A whole training step of GPT-2 124M in fp32 and in bf16 (forward, backward,
 * gradient norm, AdamW; batch 4 x 64 tokens, the case that llm.c publishes)
 * beside this machine's sgemm, and the time of each operation in it. */

#include "train_step.h"

enum { VOCABULARY = 50257, STEPS = 5 };

/* ---- time by operation: the backend's table with a clock around each ---- */

enum op {
    MATMUL,
    BIAS_GRAD,
    NORM_FWD,
    NORM_BWD,
    EMBED,
    ATTN_FWD,
    ATTN_BWD,
    XENT,
    ADAMW,
    SUMSQ,
    ZERO,
    N_OPS
};
static const char *const op_names[N_OPS] = {
    "matmul",   "bias_grad", "norm_fwd", "norm_bwd", "embed", "attn_fwd",
    "attn_bwd", "xent",      "adamw",    "sumsq",    "zero",
};
static double spent[N_OPS];
static struct gpt_backend *real;

#define TIMED(op, call)                    \
    do {                                   \
        double begin_ = bench_clock();     \
        call;                              \
        spent[op] += bench_clock() - begin_;\
    } while (0)

static void t_matmul(struct gpt_queue *q, const struct gpt_matmul *op)
{
    TIMED(MATMUL, real->matmul(q, op));
}
static void t_bias_grad(struct gpt_queue *q, float *d, const void *dy,
                        int64_t m, int64_t n, enum gpt_dtype act)
{
    TIMED(BIAS_GRAD, real->bias_grad(q, d, dy, m, n, act));
}
static void t_norm_fwd(struct gpt_queue *q, const struct gpt_norm *op)
{
    TIMED(NORM_FWD, real->norm_fwd(q, op));
}
static void t_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                       const struct gpt_norm_grad *grad)
{
    TIMED(NORM_BWD, real->norm_bwd(q, op, grad));
}
static void t_embed_fwd(struct gpt_queue *q, const struct gpt_embed *op)
{
    TIMED(EMBED, real->embed_fwd(q, op));
}
static void t_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                        const void *dout, float *dwte, float *dwpe)
{
    TIMED(EMBED, real->embed_bwd(q, op, dout, dwte, dwpe));
}
static void t_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    TIMED(ATTN_FWD, real->attn_fwd(q, op));
}
static void t_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                       const struct gpt_attn_grad *grad)
{
    TIMED(ATTN_BWD, real->attn_bwd(q, op, grad));
}
static void t_xent(struct gpt_queue *q, const struct gpt_xent *op)
{
    TIMED(XENT, real->xent(q, op));
}
static void t_adamw(struct gpt_queue *q, const struct gpt_adamw *op)
{
    TIMED(ADAMW, real->adamw(q, op));
}
static void t_sumsq(struct gpt_queue *q, double *out, const float *x, int64_t n)
{
    TIMED(SUMSQ, real->sumsq(q, out, x, n));
}
static void t_zero(struct gpt_queue *q, void *dst, size_t bytes)
{
    TIMED(ZERO, real->zero(q, dst, bytes));
}

static struct gpt_backend timed_backend(void)
{
    struct gpt_backend be = *real;

    be.matmul = t_matmul;
    be.bias_grad = t_bias_grad;
    be.norm_fwd = t_norm_fwd;
    be.norm_bwd = t_norm_bwd;
    be.embed_fwd = t_embed_fwd;
    be.embed_bwd = t_embed_bwd;
    be.attn_fwd = t_attn_fwd;
    be.attn_bwd = t_attn_bwd;
    be.xent = t_xent;
    be.adamw = t_adamw;
    be.sumsq = t_sumsq;
    be.zero = t_zero;
    return be;
}

static void train(struct gpt_backend *be, const struct gpt_config *c,
                  enum gpt_dtype act)
{
    struct gpt_replica *r = open_replica(be, c, act);
    double times[STEPS], loss = 0, total = 0;
    double flops = gpt_flops_per_token(c, T) * N;
    double ceiling = bench_sgemm_ceiling();
    double first = step(r, VOCABULARY);
    char name[40];

    memset(spent, 0, sizeof(spent));
    for (int i = 0; i < STEPS; i++) {
        double begin = bench_clock();

        loss = step(r, VOCABULARY);
        times[i] = bench_clock() - begin;
        total += times[i];
    }
    double again = bench_sgemm_ceiling(); /* the machine may be shared */
    ceiling = again > ceiling ? again : ceiling;
    double seconds = bench_median(times, STEPS);
    snprintf(name, sizeof(name), "train 124M %s 4x64", gpt_dtype_name(act));
    bench_row(name, flops / seconds / 1e9, "GFLOP/s", ceiling / 1e9,
              fabs(first - log(VOCABULARY)) / log(VOCABULARY));
    bench_row(name, N / seconds, "tok/s", N / (flops / ceiling), -1);
    printf("# %.3f s a step, loss %.4f at the first, %.4f after %d more\n",
           seconds, first, loss, STEPS);
    for (int i = 0; i < N_OPS; i++)
        printf("#   %-10s %8.1f ms a step  %5.1f %%\n", op_names[i],
               1e3 * spent[i] / STEPS, 100 * spent[i] / total);
    gpt_replica_close(r);
}

int main(void)
{
    struct gpt_config c = gpt_config_default();
    struct gpt_backend be;
    struct gpt_err err;

    need(gpt_backend_cpu(&real, &err), &err);
    need(gpt_config_complete(&c, 128, 1, &err), &err);
    be = timed_backend();
    train(&be, &c, GPT_F32);
    train(&be, &c, GPT_BF16);
    return 0;
}
