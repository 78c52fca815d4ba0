/* Whole training steps (forward, backward, gradient norm, AdamW) beside this
 * machine's sgemm, and the time of each operation in them, in fp32 and in bf16:
 * GPT-2 124M with 4 x 64 tokens, the case that llm.c publishes; then GPT-2 and
 * SmolLM2 135M, whose layers are Llama's, step by step in turns with 4 x 512
 * tokens, so that other work of the machine hits both. Start at compare(). */

#include "train_step.h"

enum { MOST_STEPS = 5 };

/* ---- time by operation: the backend's table with a clock around each ---- */

enum op {
    MATMUL,
    BIAS_GRAD,
    NORM_FWD,
    NORM_BWD,
    ACTIVATE,
    ROPE,
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
    "matmul", "bias_grad", "norm_fwd", "norm_bwd", "activate", "rope",  "embed",
    "attn_fwd", "attn_bwd", "xent",    "adamw",    "sumsq",    "zero",
};
static double *spent; /* (N_OPS) of the model whose turn it is */
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
static void t_activate(struct gpt_queue *q, const struct gpt_activate *op)
{
    TIMED(ACTIVATE, real->activate(q, op));
}
static void t_activate_bwd(struct gpt_queue *q, const struct gpt_activate *op,
                           const void *dout, void *dpre)
{
    TIMED(ACTIVATE, real->activate_bwd(q, op, dout, dpre));
}
static void t_rope(struct gpt_queue *q, const struct gpt_rope *op)
{
    TIMED(ROPE, real->rope(q, op));
}
static void t_embed_fwd(struct gpt_queue *q, const struct gpt_embed *op)
{
    TIMED(EMBED, real->embed_fwd(q, op));
}
static void t_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                        const struct gpt_embed_grad *grad)
{
    TIMED(EMBED, real->embed_bwd(q, op, grad));
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
    be.activate = t_activate;
    be.activate_bwd = t_activate_bwd;
    be.rope = t_rope;
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

/* ---- models ---- */

struct model {
    const char *name;
    struct gpt_config c;
    struct gpt_replica *r;
    double flops; /* of a step */
    double first, last; /* losses */
    double times[MOST_STEPS], total, spent[N_OPS];
};

static struct gpt_config gpt2_124m(void)
{
    return gpt_config_default();
}

/* share/presets/smollm2-135m.conf */
static struct gpt_config smollm2_135m(void)
{
    return (struct gpt_config){
        .num_layers = 30,
        .hidden_size = 576,
        .ffn_hidden_size = 1536,
        .num_attention_heads = 9,
        .num_query_groups = 3,
        .max_positions = 8192,
        .position_embedding = GPT_POSITION_ROPE,
        .rotary_base = 100000,
        .rotary_percent = 1,
        .normalization = GPT_RMSNORM,
        .norm_epsilon = 1e-5,
        .activation = GPT_SILU,
        .gated = true,
        .no_linear_bias = true,
        .tied_embeddings = true,
        .init_std = 1.0 / 24,
        .vocab_size = 49152,
    };
}

/* Everything before the steps that count: a first one fills caches. */
static void open_model(struct model *m, const char *name, struct gpt_config c,
                       struct gpt_backend *be, enum gpt_dtype act, int64_t t)
{
    struct gpt_err err;

    *m = (struct model){.name = name, .c = c};
    need(gpt_config_complete(&m->c, 128, 1, &err), &err);
    m->flops = gpt_flops_per_token(&m->c, t) * (double)(B * t);
    spent = m->spent;
    m->r = open_replica(be, &m->c, act, B, t);
    m->first = step(m->r, (int)m->c.vocab_size);
    memset(m->spent, 0, sizeof(m->spent));
}

static void step_model(struct model *m, int i)
{
    double begin = bench_clock();

    spent = m->spent;
    m->last = step(m->r, (int)m->c.vocab_size);
    m->times[i] = bench_clock() - begin;
    m->total += m->times[i];
}

/* The largest share of a step that an operation beside products has. */
static double largest_share(const struct model *m, const char **name)
{
    double most = 0;

    for (int i = 0; i < N_OPS; i++)
        if (i != MATMUL && m->spent[i] / m->total > most) {
            most = m->spent[i] / m->total;
            *name = op_names[i];
        }
    return most;
}

static void report(struct model *m, enum gpt_dtype act, int64_t t, int steps,
                   double ceiling)
{
    const double seconds = bench_median(m->times, steps);
    const double loss = log((double)m->c.vocab_size);
    char name[48];

    snprintf(name, sizeof(name), "train %s %s %dx%d", m->name,
             gpt_dtype_name(act), B, (int)t);
    bench_row(name, m->flops / seconds / 1e9, "GFLOP/s", ceiling / 1e9,
              fabs(m->first - loss) / loss);
    bench_row(name, (double)(B * t) / seconds, "tok/s",
              (double)(B * t) / (m->flops / ceiling), -1);
    printf("# %.3f s a step, loss %.4f at the first, %.4f after %d more\n",
           seconds, m->first, m->last, steps);
    for (int i = 0; i < N_OPS; i++)
        printf("#   %-10s %8.1f ms a step  %5.1f %%\n", op_names[i],
               1e3 * m->spent[i] / steps, 100 * m->spent[i] / m->total);
}

/* The machine may be shared: before and after, and the better one. */
static double higher_ceiling(double before)
{
    return fmax(before, bench_sgemm_ceiling());
}

static void train(struct gpt_backend *be, enum gpt_dtype act)
{
    struct model m;
    double ceiling = bench_sgemm_ceiling();

    open_model(&m, "124M", gpt2_124m(), be, act, T);
    for (int i = 0; i < MOST_STEPS; i++)
        step_model(&m, i);
    report(&m, act, T, MOST_STEPS, higher_ceiling(ceiling));
    gpt_replica_close(m.r);
}

/* Both models in turns. The second one's share of the ceiling is to be at least
 * 0.95 of the first one's, and no operation of it beside products above 0.1. */
static void compare(struct gpt_backend *be, enum gpt_dtype act, int steps)
{
    enum { LONG = 512 };
    struct model gpt2, llama;
    double ceiling = bench_sgemm_ceiling(), ratios[MOST_STEPS], most;
    const char *worst = "none";
    char name[48];

    open_model(&gpt2, "124M", gpt2_124m(), be, act, LONG);
    open_model(&llama, "Llama 135M", smollm2_135m(), be, act, LONG);
    for (int i = 0; i < steps; i++) {
        step_model(&gpt2, i);
        step_model(&llama, i);
        ratios[i] = llama.flops / llama.times[i] /
                    (gpt2.flops / gpt2.times[i]);
    }
    ceiling = higher_ceiling(ceiling);
    report(&gpt2, act, LONG, steps, ceiling);
    report(&llama, act, LONG, steps, ceiling);
    snprintf(name, sizeof(name), "Llama 135M / 124M %s", gpt_dtype_name(act));
    bench_row(name, bench_median(ratios, steps), "share", 0.95, -1);
    most = largest_share(&llama, &worst);
    snprintf(name, sizeof(name), "Llama 135M %s, beside products: %s",
             gpt_dtype_name(act), worst);
    bench_row(name, most, "step", 0.1, -1);
    gpt_replica_close(llama.r);
    gpt_replica_close(gpt2.r);
}

/* With a number: so many steps of the comparison alone; with "bf16" after it,
 * of that type alone. */
int main(int argc, char **argv)
{
    const enum gpt_dtype types[] = {GPT_F32, GPT_BF16};
    int steps = argc > 1 ? atoi(argv[1]) : 3;
    struct gpt_backend be;
    struct gpt_err err;

    steps = steps < 1 ? 1 : steps > MOST_STEPS ? MOST_STEPS : steps;
    need(gpt_backend_cpu(&real, &err), &err);
    be = timed_backend();
    for (size_t i = 0; i < GPT_COUNT(types) && argc < 2; i++)
        train(&be, types[i]);
    for (size_t i = argc > 2; i < GPT_COUNT(types); i++)
        compare(&be, types[i], steps);
    return 0;
}
