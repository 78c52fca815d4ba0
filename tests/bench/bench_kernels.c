/* Speed of every kernel of the CPU backend with the shapes of GPT-2 124M,
 * beside limits of the machine that are measured in the same run: oneDNN's
 * sgemm for products, streaming bandwidth for passes over memory. Errors
 * compare sampled elements with references in double.
 *
 *     build/tests/bench/bench_kernels [seconds a line]
 *
 * GPT_CPU_MATMUL=portable and GPT_CPU_ISA=... choose the code. */
#include "tests/bench/bench.h"

enum { ROWS = 256, C = 768, F = 3072, V = 50304, HEADS = 12, D = 64 };

static struct gpt_backend *be;
static struct gpt_queue *q;
static double budget = 0.15, read_floor, update_floor, gemm_floor;

static void *memory(size_t bytes, const char *what)
{
    struct gpt_err err;
    void *mem;

    if (be->alloc(be, bytes, what, &mem, &err) != GPT_OK) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        exit(1);
    }
    return mem;
}

/* n floats in [-1, 1) */
static float *filled(int64_t n)
{
    float *x = memory((size_t)n * sizeof(*x), "bench");
    uint32_t s = 12345;

    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) / (1 << 23) - 1;
    }
    return x;
}

static double worse(double err, double got, double want)
{
    double e = fabs(got - want) / (1 + fabs(want));

    return e > err ? e : err;
}

static void run_matmul(void *op)
{
    be->matmul(q, op);
}

/* Error of a few elements of a product without epilogue and with beta 0. */
static double matmul_error(const struct gpt_matmul *op)
{
    const float *a = op->a, *b = op->b, *c = op->c;
    double err = 0;

    for (int trial = 0; trial < 50; trial++) {
        int64_t i = trial * 37 % op->m, j = trial * 7919 % op->n;
        double sum = 0;

        for (int64_t k = 0; k < op->k; k++)
            sum += (double)a[op->ta ? k * op->m + i : i * op->k + k] *
                   (double)b[op->tb ? j * op->k + k : k * op->n + j];
        err = worse(err, (double)c[i * op->n + j], sum);
    }
    return err;
}

static void bench_matmul(void)
{
    static const struct {
        const char *name;
        int64_t m, n, k;
        bool ta, tb;
        enum gpt_epilogue epi;
    } cases[] = {
        {"qkv", ROWS, 3 * C, C, false, true, GPT_EPI_BIAS},
        {"proj", ROWS, C, C, false, true, GPT_EPI_BIAS},
        {"fc1 + gelu", ROWS, F, C, false, true, GPT_EPI_BIAS_GELU},
        {"fc2", ROWS, C, F, false, true, GPT_EPI_BIAS},
        {"head", ROWS, V, C, false, true, GPT_EPI_NONE},
        {"fc2 dx + dgelu", ROWS, F, C, false, false, GPT_EPI_DGELU},
        {"fc1 dx", ROWS, C, F, false, false, GPT_EPI_NONE},
        {"head dx", ROWS, C, V, false, false, GPT_EPI_NONE},
        {"proj dw", C, C, ROWS, true, false, GPT_EPI_NONE},
        {"fc1 dw", F, C, ROWS, true, false, GPT_EPI_NONE},
        {"fc2 dw", C, F, ROWS, true, false, GPT_EPI_NONE},
        {"head dw", V, C, ROWS, true, false, GPT_EPI_NONE},
    };
    float *x = filled((int64_t)V * C), *w = filled((int64_t)V * C);
    float *y = memory((size_t)V * C * sizeof(*y), "bench"), *bias = filled(F);
    float *aux = filled((int64_t)ROWS * F);

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_matmul op = {.m = cases[i].m,
                                .n = cases[i].n,
                                .k = cases[i].k,
                                .ta = cases[i].ta,
                                .tb = cases[i].tb,
                                .a = x,
                                .b = w,
                                .c = y,
                                .act = GPT_F32,
                                .c_type = GPT_F32,
                                .bias = bias,
                                .aux = aux};
        double flop = 2 * (double)op.m * (double)op.n * (double)op.k;

        be->matmul(q, &op);
        double err = matmul_error(&op);
        op.epilogue = cases[i].epi;
        char name[64];
        snprintf(name, sizeof(name), "matmul %s", cases[i].name);
        bench_row(name, flop / bench_time(run_matmul, &op, budget) * 1e-9,
                  "GFLOP/s", gemm_floor * 1e-9, err);
    }
    static const int64_t few[] = {1, 2, 4, 8, 16};
    for (size_t i = 0; i < GPT_COUNT(few); i++) {
        struct gpt_matmul op = {.m = few[i],
                                .n = V,
                                .k = C,
                                .tb = true,
                                .a = x,
                                .b = w,
                                .c = y,
                                .act = GPT_F32,
                                .c_type = GPT_F32};
        char name[64];

        snprintf(name, sizeof(name), "matmul head, %d rows", (int)few[i]);
        double s = bench_time(run_matmul, &op, budget);
        bench_row(name, 4e-9 * (double)V * C / s, "GB/s", read_floor * 1e-9,
                  matmul_error(&op));
    }
    be->free(be, x), be->free(be, w), be->free(be, y);
    be->free(be, bias), be->free(be, aux);
}

struct attn_run {
    struct gpt_attn op;
    struct gpt_attn_grad grad;
};

static void run_attn(void *r)
{
    be->attn_fwd(q, &((struct attn_run *)r)->op);
}

static void run_attn_grad(void *r)
{
    struct attn_run *k = r;

    be->attn_bwd(q, &k->op, &k->grad);
}

/* FLOP counted for the causal half only. */
static void bench_attn(int64_t b, int64_t t, float p)
{
    int64_t n = b * t * HEADS * D;
    float *qkv = filled(3 * n), *out = filled(n), *dout = filled(n);
    float *dqkv = filled(3 * n), *lse = filled(b * HEADS * t);
    struct attn_run r = {{.b = b,
                          .t = t,
                          .h = HEADS,
                          .g = HEADS,
                          .d = D,
                          .h_global = HEADS,
                          .scale = 0.125f,
                          .act = GPT_F32,
                          .qkv = qkv,
                          .out = out,
                          .lse = lse,
                          .dropout = {.p = p, .rng = {{1, 2}}}},
                         {dout, dqkv, NULL}};

    r.grad.scratch = memory(be->attn_scratch(&r.op), "bench");
    double flop = 2 * (double)(b * HEADS * t * t * D);
    char name[64];
    snprintf(name, sizeof(name), "attention fwd B%d T%d p %g", (int)b, (int)t,
             (double)p);
    double s = bench_time(run_attn, &r, budget);
    bench_row(name, flop / s * 1e-9, "GFLOP/s", gemm_floor * 1e-9, -1);
    snprintf(name, sizeof(name), "attention bwd B%d T%d p %g", (int)b, (int)t,
             (double)p);
    s = bench_time(run_attn_grad, &r, budget);
    bench_row(name, 2.5 * flop / s * 1e-9, "GFLOP/s", gemm_floor * 1e-9, -1);
    be->free(be, qkv), be->free(be, out), be->free(be, dout);
    be->free(be, dqkv), be->free(be, lse), be->free(be, r.grad.scratch);
}

static void run_cached(void *op)
{
    be->attn_cached(q, op);
}

static void bench_cached(int32_t pos)
{
    enum { T_MAX = 1024, SLOTS = 12 }; /* a slot a layer: past the caches */
    int64_t cache = (int64_t)SLOTS * HEADS * T_MAX * D;
    float *k = filled(cache), *v = filled(cache);
    float *qkv = filled(3 * C * SLOTS), *out = filled(C * SLOTS);
    int32_t at[SLOTS], len[SLOTS], slot[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        at[i] = pos - 1;
        len[i] = 1;
        slot[i] = i;
    }
    struct gpt_attn_cached op = {
        .b = SLOTS, .t_new = 1, .h = HEADS, .g = HEADS, .d = D, .t_max = T_MAX,
        .scale = 0.125f, .act = GPT_F32, .qkv = qkv, .out = out, .k_cache = k,
        .v_cache = v, .pos = at, .len = len, .slot = slot};
    double s = bench_time(run_cached, &op, budget);
    char name[64];
    snprintf(name, sizeof(name), "attention cached, %d keys", (int)pos);
    bench_row(name, 8e-9 * (double)(SLOTS * HEADS * (int64_t)pos * D) / s,
              "GB/s", read_floor * 1e-9, -1);
    be->free(be, k), be->free(be, v), be->free(be, qkv), be->free(be, out);
}

struct pass {
    struct gpt_norm norm;
    struct gpt_norm_grad grad;
    struct gpt_xent xent;
    struct gpt_adamw adamw;
    struct gpt_embed embed;
    struct gpt_dropout dropout;
    float *x, *y;
    double *sum;
    int64_t n;
};

static void run_norm(void *p)
{
    be->norm_fwd(q, &((struct pass *)p)->norm);
}

static void run_norm_grad(void *p)
{
    struct pass *k = p;

    be->norm_bwd(q, &k->norm, &k->grad);
}

static void run_xent(void *p)
{
    be->xent(q, &((struct pass *)p)->xent);
}

static void run_adamw(void *p)
{
    be->adamw(q, &((struct pass *)p)->adamw);
}

static void run_sumsq(void *p)
{
    struct pass *k = p;

    be->sumsq(q, k->sum, k->x, k->n);
}

static void run_zero(void *p)
{
    struct pass *k = p;

    be->zero(q, k->x, (size_t)k->n * sizeof(float));
}

static void run_dropout(void *p)
{
    struct pass *k = p;

    be->dropout(q, k->y, k->x, k->n / C, C, GPT_F32, &k->dropout);
}

static void run_bias_grad(void *p)
{
    struct pass *k = p;

    be->bias_grad(q, k->y, k->x, ROWS, F, GPT_F32);
}

static void run_embed(void *p)
{
    be->embed_fwd(q, &((struct pass *)p)->embed);
}

static void run_embed_grad(void *p)
{
    struct pass *k = p;

    be->embed_bwd(q, &k->embed,
                  &(struct gpt_embed_grad){.dout = k->embed.out, .dwte = k->y});
}

/* Rows that fit the caches: bytes moved a second, beside memory's update. */
static void bench_rows(void)
{
    int64_t n = (int64_t)ROWS * C;
    struct gpt_dropout drop = {
        .p = 0.1f, .rng = {{1, 2}}, .t_local = 64, .t_global = 64};
    float *a = filled(n), *b = filled(n), *c = filled(n), *d = filled(n);
    float *w = filled(4 * C + 2 * ROWS);
    struct pass k = {.x = a, .y = b, .n = n, .dropout = drop};

    k.norm = (struct gpt_norm){.n = ROWS,
                               .c = C,
                               .eps = 1e-5f,
                               .act = GPT_F32,
                               .resid_in = a,
                               .x = b,
                               .resid_out = c,
                               .y = d,
                               .w = w,
                               .b = w + C,
                               .mean = w + 2 * C,
                               .rstd = w + 2 * C + ROWS};
    double bytes = 4 * (double)n, floor = update_floor * 1e-9;
    bench_row("norm fwd", 4e-9 * bytes / bench_time(run_norm, &k, budget),
              "GB/s", floor, -1);
    k.norm.dropout = drop;
    bench_row("norm fwd p 0.1", 4e-9 * bytes / bench_time(run_norm, &k, budget),
              "GB/s", floor, -1);
    k.grad = (struct gpt_norm_grad){
        d, a, b, w, w + C, memory(be->norm_scratch(ROWS, C), "bench")};
    bench_row("norm bwd p 0.1",
              5e-9 * bytes / bench_time(run_norm_grad, &k, budget), "GB/s",
              floor, -1);
    bench_row("dropout p 0.1",
              2e-9 * bytes / bench_time(run_dropout, &k, budget), "GB/s", floor,
              -1);
    be->free(be, a), be->free(be, b), be->free(be, c), be->free(be, d);
    be->free(be, w), be->free(be, k.grad.scratch);
}

static void bench_embed(void)
{
    int32_t *ids = memory(2 * ROWS * sizeof(*ids), "bench");

    for (int i = 0; i < ROWS; i++) {
        ids[i] = i * 7919 % V;
        ids[ROWS + i] = i % 64;
    }
    struct pass k = {.x = filled((int64_t)V * C), .y = filled((int64_t)V * C)};
    k.embed = (struct gpt_embed){.n = ROWS,
                                 .c = C,
                                 .v_local = V,
                                 .act = GPT_F32,
                                 .tokens = ids,
                                 .positions = ids + ROWS,
                                 .wte = k.x,
                                 .wpe = k.x,
                                 .out = filled((int64_t)ROWS * C)};
    double bytes = 4 * (double)ROWS * C, floor = update_floor * 1e-9;
    bench_row("embed fwd", 3e-9 * bytes / bench_time(run_embed, &k, budget),
              "GB/s", floor, -1);
    bench_row("embed bwd",
              3e-9 * bytes / bench_time(run_embed_grad, &k, budget), "GB/s",
              floor, -1);
    bench_row("bias grad",
              4e-9 * ROWS * F / bench_time(run_bias_grad, &k, budget), "GB/s",
              read_floor * 1e-9, -1);
    be->free(be, ids), be->free(be, k.x), be->free(be, k.y);
    be->free(be, k.embed.out);
}

/* Logits are rewritten by every run: softmax of what is nearly uniform. */
static void bench_xent(void)
{
    int64_t n = (int64_t)ROWS * V;
    int32_t *target = memory(ROWS * sizeof(*target), "bench");
    struct pass k = {.x = filled(n), .y = filled(2 * ROWS)};

    k.xent = (struct gpt_xent){.n = ROWS,
                               .v = V,
                               .v_real = V - 47,
                               .ld = V,
                               .act = GPT_F32,
                               .logits = k.x,
                               .target = target,
                               .weight = k.y,
                               .loss = k.y + ROWS,
                               .grad = true};
    double s = bench_time(run_xent, &k, budget);
    bench_row("cross-entropy", 8e-9 * (double)n / s, "GB/s",
              update_floor * 1e-9, -1);
    be->free(be, k.x), be->free(be, k.y), be->free(be, target);
}

static void bench_flat(void)
{
    int64_t n = (1 << 25) + 16 * 333;
    float *p = filled(4 * n);
    struct gpt_decay_segment seg = {0, true};
    struct pass k = {.x = p, .n = n, .sum = memory(sizeof(double), "bench")};

    k.adamw = (struct gpt_adamw){.n = n,
                                 .p = p,
                                 .m = p + n,
                                 .v = p + 2 * n,
                                 .g = p + 3 * n,
                                 .act = GPT_F32,
                                 .lr = 1e-4,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .grad_scale = 1,
                                 .step = 10,
                                 .segments = &seg,
                                 .n_segments = 1};
    for (int64_t i = 2 * n; i < 3 * n; i++)
        p[i] = fabsf(p[i]);
    bench_row("adamw (7 floats)",
              28e-9 * (double)n / bench_time(run_adamw, &k, budget), "GB/s",
              update_floor * 1e-9, -1);
    k.n = 4 * n;
    bench_row("sum of squares",
              16e-9 * (double)n / bench_time(run_sumsq, &k, budget), "GB/s",
              read_floor * 1e-9, -1);
    bench_row("zero", 16e-9 * (double)n / bench_time(run_zero, &k, budget),
              "GB/s", update_floor * 1e-9, -1);
    be->free(be, p), be->free(be, k.sum);
}

int main(int argc, char **argv)
{
    struct gpt_err err;
    char text[200];

    if (argc > 1)
        budget = atof(argv[1]);
    if (gpt_backend_open(&be, "cpu", &err) != GPT_OK ||
        be->queue_open(be, &q, &err) != GPT_OK) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        return 1;
    }
    be->describe(be, text, sizeof(text));
    read_floor = bench_stream_rate(bench_read_all, 1);
    update_floor = bench_update_rate();
    gemm_floor = bench_sgemm_ceiling();
    printf(
        "# %s\n# floors: read %.1f GB/s, update %.1f GB/s, oneDNN sgemm %.1f "
        "GFLOP/s\n",
        text, read_floor * 1e-9, update_floor * 1e-9, gemm_floor * 1e-9);
    bench_head();
    bench_matmul();
    bench_attn(4, 64, 0);
    bench_attn(4, 64, 0.1f);
    bench_attn(1, 1024, 0);
    bench_attn(1, 1024, 0.1f);
    bench_cached(1000);
    bench_rows();
    bench_embed();
    bench_xent();
    bench_flat();
    int status = be->sync(q, &err);
    if (status != GPT_OK)
        fprintf(stderr, "bench_kernels: %s\n", err.text);
    be->queue_close(q);
    return status;
}
