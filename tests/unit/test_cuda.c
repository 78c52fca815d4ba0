/* Compares every kernel of kernels/cuda with kernels/cpu: sizes with and
 * without tails, all types, poisoned outputs, several orders of threads. Start
 * at the table of sections near the end. */
#include "tests/unit/device_experts.h"
#include "tests/unit/device_latent.h"

#include <dlfcn.h>

/* of the cases that follow */
static int64_t sample0 = 5;

static struct gpt_dropout some_dropout(double p, int64_t t)
{
    return (struct gpt_dropout){.p = (float)p,
                                .rng = gpt_rng_open(7, "dropout"),
                                .sample0 = sample0,
                                .t_local = t,
                                .t_global = 3 * t,
                                .t0 = t};
}

/* In device memory: more samples (gpt_dropout.samples), a loss scale. */
static const int64_t more_samples = 11;
static const float loss_scale = 0.37F;

/* n int32 in lo..hi; free() them */
static int32_t *rnd_ints(int64_t n, int64_t lo, int64_t hi)
{
    int32_t *x = malloc((size_t)(n + 1) * sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = (int32_t)rnd_int(lo, hi);
    return x;
}

/* ---- products ---- */

static void run_matmul(struct trial *t)
{
    struct gpt_matmul op = *(const struct gpt_matmul *)t->params;
    bool gradient = op.c_type == GPT_F32;

    op.act = t->act;
    op.c_type = gradient ? GPT_F32 : t->act;
    op.a = t->mem[0];
    op.b = t->mem[1];
    op.c = t->mem[gradient ? 3 : 2];
    op.bias = op.epilogue == GPT_EPI_NONE ? NULL : t->mem[4];
    op.aux = op.epilogue > GPT_EPI_BIAS ? t->mem[5] : NULL;
    t->be->matmul(t->q, &op);
}

static void check_matmul(int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                         bool gradient, float beta, enum gpt_epilogue epilogue,
                         int64_t pad)
{
    struct gpt_matmul op = {.m = m, .n = n, .k = k, .ta = ta, .tb = tb,
                            .c_type = gradient ? GPT_F32 : GPT_BF16,
                            .beta = beta, .epilogue = epilogue,
                            .lda = (ta ? m : k) + pad,
                            .ldb = (tb ? k : n) + pad,
                            .ldc = n + pad};
    int64_t na = (ta ? k : m) * op.lda, nb = (tb ? n : k) * op.ldb;
    float *a = rnd_floats(na, 1), *b = rnd_floats(nb, 1);
    float *c = rnd_floats(m * op.ldc, 1), *bias = rnd_floats(n, 1);
    float *pre = rnd_floats(m * n, 2);
    bool gelu = epilogue == GPT_EPI_BIAS_GELU;
    /* cuBLASLt's slope of GELU is less exact than ours: 6.1e-6 was seen. */
    double loose = epilogue == GPT_EPI_DGELU && !emulated ? 2 : 1;
    struct operand ops[] = {
        {"a", ACT, na, a, false, 0},
        {"b", ACT, nb, b, false, 0},
        {"c", ACT, m * op.ldc, beta != 0 || pad ? c : NULL, !gradient, loose},
        {"c", F32, m * op.ldc, beta != 0 || pad ? c : NULL, gradient, loose},
        {"bias", ACT, n, bias, false, 0},
        {"aux", ACT, m * n, gelu ? NULL : pre, gelu, 0},
    };

    if (beta == 0 && pad) /* what lies between rows stays; rows are written */
        for (int64_t i = 0; i < m * op.ldc; i++)
            c[i] = i % op.ldc < n ? NAN : c[i];
    compare(run_matmul, &op, ops, GPT_COUNT(ops),
            "matmul %lldx%lldx%lld%s%s%s%s epilogue %d pad %lld",
            (long long)m, (long long)n, (long long)k, ta ? " ta" : "",
            tb ? " tb" : "", gradient ? " gradient" : "",
            beta != 0 ? " beta" : "", (int)epilogue, (long long)pad);
    free(a), free(b), free(c), free(bias), free(pre);
}

static void matmuls(void)
{
    for (int i = 0; i < 4; i++) {
        check_matmul(17, 24, 40, i & 1, i & 2, false, 0, GPT_EPI_NONE, 0);
        check_matmul(9, 7, 33, i & 1, i & 2, true, 1, GPT_EPI_NONE, 0);
        check_matmul(8, 16, 24, i & 1, i & 2, false, (float)(i & 1),
                     GPT_EPI_NONE, 8);
    }
    check_matmul(1, 1, 1, false, true, false, 0, GPT_EPI_BIAS, 0);
    for (int64_t n = 7; n <= 48; n += 41)
        for (int e = GPT_EPI_BIAS; e <= GPT_EPI_DGELU; e++)
            check_matmul(19, n, 24, false, true, false, 0,
                         (enum gpt_epilogue)e, 0);
}

/* ---- rows ---- */

struct rows_case {
    int64_t n, c;
    enum gpt_norm_kind kind;
    bool with_x, with_b;
    struct gpt_dropout drop;
};

static void run_bias(struct trial *t)
{
    const struct rows_case *k = t->params;

    t->be->bias_grad(t->q, t->mem[0], t->mem[1], k->n, k->c, t->act);
    t->be->bias_add(t->q, t->mem[1], t->mem[2], k->n, k->c, t->act);
}

static void check_bias(int64_t n, int64_t c)
{
    struct rows_case k = {.n = n, .c = c};
    float *dbias = rnd_floats(c, 1), *x = rnd_floats(n * c, 1);
    float *bias = rnd_floats(c, 1);
    /* 0.5: two orders of 700 floats differ by sqrt(700) 2^-24 = 1.6e-6 */
    struct operand ops[] = {{"dbias", F32, c, dbias, true, 0.5},
                            {"x", ACT, n * c, x, true, 0},
                            {"bias", ACT, c, bias, false, 0}};

    compare(run_bias, &k, ops, GPT_COUNT(ops), "bias %lldx%lld", (long long)n,
            (long long)c);
    free(dbias), free(x), free(bias);
}

/* Norms without weights. */
static bool bare;

static void run_norm(struct trial *t)
{
    const struct rows_case *k = t->params;
    void **m = t->mem;
    struct gpt_norm op = {.kind = k->kind, .n = k->n, .c = k->c, .eps = 1e-5F,
                          .plus_one = k->n % 2 == 0,
                          .act = t->act, .resid_in = m[0],
                          .x = k->with_x ? m[1] : NULL, .resid_out = m[2],
                          .y = m[3], .w = bare ? NULL : m[4],
                          .b = k->with_b ? m[5] : NULL,
                          .mean = m[6], .rstd = m[7], .dropout = k->drop};

    t->be->norm_fwd(t->q, &op);
}

static void run_norm_bwd(struct trial *t)
{
    const struct rows_case *k = t->params;
    struct gpt_err err;
    void **m = t->mem, *scratch;
    struct gpt_norm op = {.kind = k->kind, .n = k->n, .c = k->c, .eps = 1e-5F,
                          .plus_one = k->n % 2 == 0,
                          .act = t->act, .resid_in = m[0], .resid_out = m[0],
                          .y = m[1], .w = bare ? NULL : m[2], .mean = m[3],
                          .rstd = m[4],
                          .dropout = k->drop};
    struct gpt_norm_grad grad = {.dy = m[5], .dresid = m[6],
                                 .dx = k->with_x ? m[7] : NULL,
                                 .dw = bare ? NULL : m[8],
                                 .db = k->with_b ? m[9] : NULL};
    struct gpt_norm first = op;

    first.dropout.p = 0;
    must(t->be->alloc(t->be, t->be->norm_scratch(k->n, k->c), "scratch",
                      &scratch, &err),
         &err);
    grad.scratch = scratch;
    t->be->norm_fwd(t->q, &first); /* mean and rstd */
    t->be->norm_bwd(t->q, &op, &grad);
    must(t->be->sync(t->q, &err), &err);
    t->be->free(t->be, scratch);
}

static void check_norm(enum gpt_norm_kind kind, int64_t n, int64_t c, double p,
                       bool with_x, bool with_b)
{
    struct rows_case k = {n, c, kind, with_x, with_b,
                          some_dropout(p, n > 3 ? 3 : n)};
    float *in = rnd_floats(n * c, 1), *x = rnd_floats(n * c, 1);
    float *w = rnd_floats(c, 1), *b = rnd_floats(c, 1);
    float *dy = rnd_floats(n * c, 1), *dw = rnd_floats(2 * c, 1);
    struct operand fwd[] = {
        {"resid_in", ACT, n * c, in, false, 0},
        {"x", ACT, n * c, x, false, 0},
        {"resid_out", ACT, n * c, NULL, true, 0},
        {"y", ACT, n * c, NULL, true, 2},
        {"w", ACT, c, w, false, 0},
        {"b", ACT, c, b, false, 0},
        {"mean", F32, n, NULL, kind == GPT_LAYERNORM, 1},
        {"rstd", F32, n, NULL, true, 1},
    };
    struct operand bwd[] = {
        {"resid", ACT, n * c, in, false, 0},
        {"y", ACT, n * c, NULL, false, 0},
        {"w", ACT, c, w, false, 0},
        {"mean", F32, n, NULL, false, 0},
        {"rstd", F32, n, NULL, false, 0},
        {"dy", ACT, n * c, dy, false, 0},
        {"dresid", ACT, n * c, x, true, 2},
        {"dx", ACT, n * c, NULL, with_x, 2},
        {"dw", F32, c, dw, true, 2},
        {"db", F32, c, dw + c, true, 1},
    };
    const char *name = kind == GPT_LAYERNORM ? "layernorm" : "rmsnorm";

    compare(run_norm, &k, fwd, GPT_COUNT(fwd), "%s %lldx%lld p %g", name,
            (long long)n, (long long)c, p);
    compare(run_norm_bwd, &k, bwd, GPT_COUNT(bwd), "%s backward %lldx%lld p %g",
            name, (long long)n, (long long)c, p);
    free(in), free(x), free(w), free(b), free(dy), free(dw);
}

static void run_dropout(struct trial *t)
{
    const struct rows_case *k = t->params;
    struct gpt_dropout drop = k->drop;

    drop.samples = k->n % 2 ? t->mem[2] : NULL;
    t->be->dropout(t->q, t->mem[1], t->mem[0], k->n, k->c, t->act, &drop);
}

static void check_dropout(int64_t n, int64_t c, double p)
{
    struct rows_case k = {.n = n, .c = c, .drop = some_dropout(p, 4)};
    float *x = rnd_floats(n * c, 1);
    struct operand ops[] = {{"x", ACT, n * c, x, false, 0},
                            {"y", ACT, n * c, NULL, true, 0},
                            {"samples", I32, 2, &more_samples, false, 0}};

    compare(run_dropout, &k, ops, GPT_COUNT(ops), "dropout %lldx%lld p %g",
            (long long)n, (long long)c, p);
    free(x);
}

static void rows(void)
{
    static const int64_t shapes[][2] = {{1, 1},   {2, 9},    {5, 64},
                                        {37, 72}, {70, 129}, {530, 8}};

    for (size_t i = 0; i < GPT_COUNT(shapes); i++) {
        int64_t n = shapes[i][0], c = shapes[i][1];

        check_bias(n, c);
        check_norm(GPT_LAYERNORM, n, c, i & 1 ? 0.3 : 0, i & 1, true);
        check_norm(GPT_RMSNORM, n, c, i & 1 ? 0 : 0.3, true, false);
        check_dropout(n, c, i & 1 ? 0.1 : 0);
    }
    check_bias(700, 264);
    check_norm(GPT_LAYERNORM, 3, 2056, 0.1, true, true);
    /* several warps a row, and rows that only some of a block's groups have */
    check_norm(GPT_LAYERNORM, 1100, 264, 0.1, true, true);
    check_norm(GPT_RMSNORM, 19, 1600, 0, true, false);
    check_norm(GPT_LAYERNORM, 5, 4104, 0.1, true, true);
    /* too long for registers: a block a row, by packs and by elements */
    check_norm(GPT_LAYERNORM, 3, 9000, 0.1, true, true);
    check_norm(GPT_RMSNORM, 2, 8203, 0, true, false);
}

/* ---- embedding ---- */

/* The sort takes MANY words in two passes, V in one. */
enum { V = 300, MANY = 1500, POS = 9, BEGIN = 4 };

struct embed_case {
    int64_t n, c, v;
    bool with_pos;
    struct gpt_dropout drop;
};

static void run_embed(struct trial *t)
{
    const struct embed_case *k = t->params;
    void **m = t->mem;
    struct gpt_embed op = {.n = k->n, .c = k->c, .v_begin = BEGIN,
                           .scale = k->n % 3 == 0 ? 1.7F : 0,
                           .v_local = k->v, .t_max = POS, .act = t->act,
                           .tokens = m[0],
                           .positions = m[1], .wte = m[2],
                           .wpe = k->with_pos ? m[3] : NULL, .out = m[4],
                           .dropout = k->drop};

    t->be->embed_fwd(t->q, &op);
    struct gpt_embed_grad grad = {m[5], m[6], k->with_pos ? m[7] : NULL, m[8]};
    t->be->embed_bwd(t->q, &op, &grad);
}

static void check_embed(int64_t n, int64_t c, double p, bool with_pos,
                        int64_t most)
{
    const int64_t v = most < MANY ? V : MANY;
    struct embed_case k = {n, c, v, with_pos, some_dropout(p, 5)};
    int32_t *tokens = rnd_ints(n, 0, most), *pos = rnd_ints(n, 0, POS - 1);
    float *wte = rnd_floats(v * c, 1), *wpe = rnd_floats(POS * c, 1);
    float *dout = rnd_floats(n * c, 1), *dw = rnd_floats((v + POS) * c, 1);
    /* two words alone: each ends where a piece of 32 rows does */
    for (int64_t i = 0; most == BEGIN && i < n; i++)
        tokens[i] = BEGIN + (int32_t)(i % 2);
    struct operand ops[] = {
        {"tokens", I32, n, tokens, false, 0},
        {"positions", I32, n, pos, false, 0},
        {"wte", ACT, v * c, wte, false, 0},
        {"wpe", ACT, POS * c, wpe, false, 0},
        {"out", ACT, n * c, NULL, true, 0},
        {"dout", ACT, n * c, dout, false, 0},
        {"dwte", F32, v * c, dw, true, 1},
        {"dwpe", F32, POS * c, dw + v * c, true, 1},
        {"scratch", F32,
         (int64_t)(dev_be->embed_scratch(n, c, with_pos) / sizeof(float)), NULL,
         false, 0},
    };

    compare(run_embed, &k, ops, GPT_COUNT(ops), "embed %lldx%lld p %g of %lld",
            (long long)n, (long long)c, p, (long long)most);
    free(tokens), free(pos), free(wte), free(wpe), free(dout), free(dw);
}

static void embeddings(void)
{
    check_embed(1, 1, 0, true, 20);
    check_embed(50, 70, 0.2, true, V + 2 * BEGIN); /* some are elsewhere */
    check_embed(90, 40, 0, false, 6);
    check_embed(1100, 8, 0, true, V + 2 * BEGIN);
    /* sorted in several tiles a block */
    check_embed(emulated ? 33000 : 70000, emulated ? 1 : 8, 0.1, true,
                V + 2 * BEGIN);
    check_embed(1300, 8, 0.1, true, MANY + 2 * BEGIN);
    check_embed(700, 16, 0.1, true, 5); /* words of many pieces */
    check_embed(128, 4, 0, false, BEGIN); /* words that end with their pieces */
}

/* ---- attention ---- */

static void run_attn(struct trial *t)
{
    struct gpt_attn op = *(const struct gpt_attn *)t->params;
    struct gpt_err err;
    void **m = t->mem, *scratch;

    op.act = t->act;
    op.qkv = m[0];
    op.out = m[1];
    op.lse = m[2];
    op.doc_start = op.doc_start ? m[3] : NULL;
    op.dropout.samples = op.t % 2 ? m[6] : NULL;
    struct gpt_attn_grad grad = {.dout = m[4], .dqkv = m[5]};
    must(t->be->alloc(t->be, t->be->attn_scratch(&op), "scratch", &scratch,
                      &err),
         &err);
    grad.scratch = scratch;
    t->be->attn_fwd(t->q, &op);
    t->be->attn_bwd(t->q, &op, &grad);
    must(t->be->sync(t->q, &err), &err);
    t->be->free(t->be, scratch);
}

struct attn_case {
    int64_t b, t, h, g, d;
    double p;
    bool docs;
};

/* of the cases that follow */
static int64_t window;
static float softcap;
static bool by_tf32;
static size_t types_end = GPT_COUNT(types);

/* What TF32 costs, whose rounding is off by u = 2^-11 at most. Numbers that
 * half has are TF32, too: probabilities and dS alone are rounded. Of others
 * both factors are, and what follows from scores is a factor again. */
static const struct precision tf32[] = {{GPT_F32, GPT_F16, 0x1p-10},
                                        {GPT_F32, GPT_F32, 0x1p-9}};

/* Fails where kernels that do not round have run: exact results are within
 * every limit. Leaves TF32 allowed. */
static void check_rounds(const struct gpt_attn *op, const struct operand *ops,
                         size_t n, const char *name)
{
    double *got[2][MOST_OPERANDS];

    for (int i = 0; i < 2; i++) {
        struct trial dev = {.be = dev_be, .q = dev_q, .act = GPT_F32,
                            .params = op};

        dev_be->allow_tf32(dev_be, i == 1);
        run_once(run_attn, &dev, ops, n, GPT_F32, got[i], NULL);
    }
    for (size_t k = 0; k < n; k++) {
        if (ops[k].compared && ops[k].kind == ACT) {
            double e = difference(got[1][k], got[0][k], ops[k].n);

            ok(e > types[0].tolerance, "%s: %s is not exact: error %.2g", name,
               ops[k].name, e);
        }
        free(got[0][k]);
        free(got[1][k]);
    }
}

static const char *const alibi_names[] = {"", " alibi", " alibi_bf16"};

/* In types[first] and those after it, up to types_end; or by TF32. */
static void check_attn(const char *title, size_t first, struct attn_case k,
                       enum gpt_alibi alibi)
{
    int64_t b = k.b, t = k.t, h = k.h, g = k.g, d = k.d;
    char name[120];
    int64_t nq = b * t * (h + 2 * g) * d, no = b * t * h * d;
    float *qkv = rnd_floats(nq, 1), *dout = rnd_floats(no, 1);
    int32_t *start = rnd_ints(b * t, 0, 0);
    double rare = t > 200 ? 0.96 : 0.7; /* short ones, and longer than tiles */

    for (int64_t i = 1; i < b * t; i++) /* documents begin here and there */
        start[i] = i % t == 0 ? 0
                   : rnd() > rare ? (int32_t)(i % t) : start[i - 1];
    struct gpt_attn op = {.b = b, .t = t, .h = h, .g = g, .d = d, .head0 = 2,
                          .h_global = h + 5,
                          .scale = 1 / sqrtf((float)d), .alibi = alibi,
                          .window = window, .softcap = softcap,
                          .doc_start = k.docs ? start : NULL,
                          .dropout = some_dropout(k.p, t)};
    struct operand ops[] = {
        {"qkv", ACT, nq, qkv, false, 0},
        {"out", ACT, no, NULL, true, 1},
        {"lse", F32, b * h * t, NULL, true, 1},
        {"doc_start", I32, b * t, start, false, 0},
        {"dout", ACT, no, dout, false, 0},
        {"dqkv", ACT, nq, NULL, true, 1},
        {"samples", I32, 2, &more_samples, false, 0},
    };
    snprintf(name, sizeof(name),
             "%s B%lld T%lld H%lld G%lld D%lld p %g%s%s%s%s", title,
             (long long)b, (long long)t, (long long)h, (long long)g,
             (long long)d, k.p, k.docs ? " documents" : "",
             alibi_names[alibi], window ? " window" : "",
             softcap > 0 ? " capped" : "");
    for (size_t i = first; !by_tf32 && i < types_end; i++)
        compare_type(run_attn, &op, ops, GPT_COUNT(ops), &types[i], name);
    for (size_t i = 0; by_tf32 && i < GPT_COUNT(tf32); i++)
        compare_type(run_attn, &op, ops, GPT_COUNT(ops), &tf32[i], name);
    if (by_tf32 && t < 100) /* short ones are of all sizes of heads */
        check_rounds(&op, ops, GPT_COUNT(ops), name);
    free(qkv), free(dout), free(start);
}

static void run_cached(struct trial *t)
{
    struct gpt_attn_cached op = *(const struct gpt_attn_cached *)t->params;

    op.act = t->act;
    op.qkv = t->mem[0];
    op.out = t->mem[1];
    op.k_cache = t->mem[2];
    op.v_cache = t->mem[3];
    t->be->attn_cached(t->q, &op);
}

static void check_cached(int64_t t_new, int64_t h, int64_t g, int64_t d,
                         enum gpt_alibi alibi)
{
    enum { B = 3, SLOTS = 4, T_MAX = 50 };
    int32_t pos[B] = {0, 7, 40}, slot[B] = {2, 0, 3}, len[B];
    const int64_t n = B * t_new * (h + 2 * g) * d;
    const int64_t nc = SLOTS * g * gpt_cache_rows(T_MAX) * d;
    for (int i = 0; i < B; i++)
        len[i] = (int32_t)t_new;
    struct gpt_attn_cached op = {.b = B, .t_new = t_new, .h = h, .g = g,
                                 .d = d, .t_max = T_MAX,
                                 .scale = 1 / sqrtf((float)d),
                                 .alibi = alibi, .window = window,
                                 .softcap = softcap, .pos = pos,
                                 .len = len, .slot = slot};
    float *qkv = rnd_floats(n, 1), *cache = rnd_floats(2 * nc, 1);
    struct operand ops[] = {
        {"qkv", ACT, n, qkv, false, 0},
        {"out", ACT, B * t_new * h * d, NULL, true, 1},
        {"k_cache", ACT, nc, cache, true, 0},
        {"v_cache", ACT, nc, cache + nc, true, 0},
    };
    compare(run_cached, &op, ops, GPT_COUNT(ops),
            "cached attention T%lld H%lld G%lld D%lld", (long long)t_new,
            (long long)h, (long long)g, (long long)d);
    free(qkv), free(cache);
}

static void run_rope(struct trial *t)
{
    struct gpt_rope op = *(const struct gpt_rope *)t->params;

    op.act = t->act;
    op.qkv = t->mem[0];
    op.positions = op.positions ? t->mem[1] : NULL;
    t->be->rope(t->q, &op);
    op.inverse = true;
    op.qkv = t->mem[2];
    t->be->rope(t->q, &op);
}

static void check_rope(int64_t b, int64_t t, int64_t h, int64_t g, int64_t d,
                       int64_t rotary, bool given)
{
    /* some cases have scaled rates, some by their number, some by themselves */
    struct gpt_rope_scaling scaling = {.factor = given ? 4 : 0,
                                       .by_rate = b == 3 ? 20 : 0,
                                       .from = b == 3 ? 1 : 4,
                                       .to = b == 3 ? 4 : 1,
                                       .attention = 1.25};

    /* others have a divisor for each pair */
    scaling.n_divisors = given && b == 2 ? rotary / 2 : 0;
    for (int64_t i = 0; i < scaling.n_divisors; i++)
        scaling.divisors[i] = 1 + 0.3F * (float)i;

    int64_t n = b * t, count = n * (h + 2 * g) * d;
    int32_t *positions = rnd_ints(n, 0, 300);
    float *x = rnd_floats(count, 1);
    struct gpt_rope op = {.n = n, .t = t, .h = h, .g = g, .d = d,
                          .rotary = rotary, .base = 10000,
                          .interleaved = h % 2 == 0, .scaling = scaling,
                          .query_growth = d == rotary && b > 1 ? 0.5F : 0,
                          .query_positions = 3,
                          .positions = given ? positions : NULL};
    struct operand ops[] = {{"qkv", ACT, count, x, true, 1},
                            {"positions", I32, n, positions, false, 0},
                            {"dqkv", ACT, count, x, true, 1}};

    compare(run_rope, &op, ops, GPT_COUNT(ops), "rope T%lld D%lld by %lld",
            (long long)t, (long long)d, (long long)rotary);
    free(x), free(positions);
}

/* Windows shorter and longer than tiles, on tensor cores and plainly (D 16);
 * capped scores. */
static void windows(void)
{
    static const struct attn_case cases[] = {
        {1, 190, 2, 1, 64, 0, false}, {2, 131, 2, 1, 80, 0.3, true},
        {1, 97, 3, 3, 16, 0, false},
    };
    static const struct attn_case hopper_cases[] = {
        {1, 300, 2, 1, 64, 0.1, false}, {1, 260, 2, 1, 128, 0, true},
        {1, 390, 2, 2, 64, 0, false},
    };

    reopen("GPT_CUDA_FLASH", "mma");
    for (window = 1; window < 100; window += 49)
        for (size_t i = 0; i < GPT_COUNT(cases); i++)
            check_attn("attention", 0, cases[i], i == 2);
    reopen("GPT_CUDA_FLASH", "auto");
    reopen("GPT_CUDA_EMU_ARCH", "90");
    reopen("GPT_CUDA_FLASH", "mma-backward");
    check_attn("hopper forward alone", 0, hopper_cases[0], GPT_ALIBI_NONE);
    reopen("GPT_CUDA_FLASH", "auto");
    for (window = 50; window < 200; window += 100)
        for (size_t i = 0; i < GPT_COUNT(hopper_cases); i++)
            check_attn("hopper attention", 1, hopper_cases[i], GPT_ALIBI_NONE);
    reopen("GPT_CUDA_EMU_ARCH", "80");
    window = 20;
    softcap = 0.7F;
    check_attn("attention", 0, (struct attn_case){1, 90, 4, 2, 64, 0.2, true},
               GPT_ALIBI);
    check_attn("attention", 1, (struct attn_case){1, 150, 4, 2, 64, 0.2, true},
               GPT_ALIBI_NONE);
    check_attn("attention", 1, (struct attn_case){1, 70, 2, 1, 256, 0, false},
               GPT_ALIBI_NONE);
    check_cached(9, 4, 2, 33, GPT_ALIBI_NONE);
    window = 0;
    check_cached(5, 6, 2, 24, GPT_ALIBI);
    softcap = 0;
}

static void attention(void)
{
    static const struct attn_case cases[] = {
        {1, 1, 1, 1, 1, 0, false},       {2, 37, 2, 2, 16, 0, false},
        {2, 33, 4, 2, 40, 0.2, true},    {1, 1, 1, 1, 128, 0.5, true},
        {1, 70, 3, 1, 64, 0, true},      {1, 190, 2, 1, 64, 0, false},
        {2, 64, 1, 1, 80, 0.1, false},   {1, 131, 2, 1, 80, 0.3, true},
        {1, 65, 2, 2, 96, 0, true},      {1, 98, 3, 1, 96, 0.2, false},
        {1, 150, 2, 2, 128, 0.3, true},  {1, 129, 2, 1, 128, 0.1, false},
        {1, 257, 2, 1, 64, 0.1, true},   {1, 212, 2, 1, 128, 0, true},
        {1, 75, 2, 1, 136, 0.1, true},   {1, 131, 1, 1, 192, 0, false},
        {1, 99, 2, 1, 256, 0, true},     {1, 65, 2, 2, 256, 0.2, false},
    };
    static const struct attn_case with_alibi[] = {
        {2, 40, 5, 1, 16, 0, false},    {1, 100, 3, 1, 64, 0.1, true},
        {1, 139, 2, 2, 80, 0, false},   {1, 97, 3, 3, 128, 0, true},
        {1, 70, 2, 1, 200, 0.1, true},
    };

    reopen("GPT_CUDA_FLASH", "mma");
    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_attn("attention", 0, cases[i], GPT_ALIBI_NONE);
    for (size_t i = 0; i < GPT_COUNT(with_alibi); i++)
        check_attn("attention", 0, with_alibi[i], GPT_ALIBI);
    for (size_t i = 0; i < GPT_COUNT(with_alibi); i++)
        check_attn("attention", 0, with_alibi[i], GPT_ALIBI_BF16);
    reopen("GPT_CUDA_FLASH", "auto");
    windows();
    check_cached(1, 2, 2, 16, GPT_ALIBI_NONE);
    check_cached(9, 4, 2, 33, GPT_ALIBI_NONE);
    check_cached(5, 6, 2, 24, GPT_ALIBI);
    check_rope(3, 5, 4, 2, 8, 8, true);
    check_rope(1, 70, 3, 1, 80, 20, false);
    check_rope(2, 9, 3, 1, 64, 64, true);
    check_rope(2, 9, 4, 2, 15, 6, false);
}

/* Hopper's kernels, on such a GPU: blocks with several pieces of work, more
 * tiles of keys than there are places for them, warpgroups that see nothing of
 * a tile. */
static void hopper(void)
{
    static const struct attn_case cases[] = {
        {1, 1, 1, 1, 128, 0.5, true},   {1, 64, 2, 1, 64, 0, false},
        {2, 67, 3, 1, 64, 0.2, true},   {1, 390, 2, 1, 64, 0, false},
        {1, 260, 2, 2, 64, 0, true},    {1, 300, 2, 1, 64, 0.1, false},
        {2, 130, 1, 1, 128, 0, true},   {1, 390, 1, 1, 128, 0, false},
        {1, 258, 2, 1, 128, 0.3, true}, {1, 70, 2, 1, 80, 0, false},
        {2, 37, 2, 2, 96, 0.2, true},   {1, 140, 2, 1, 40, 0, true},
    };
    static const struct attn_case with_alibi[] = {
        {1, 100, 3, 1, 64, 0, false},   {2, 67, 3, 1, 64, 0.2, true},
        {1, 260, 4, 2, 128, 0, true},   {1, 390, 2, 1, 128, 0, false},
        {1, 140, 2, 1, 128, 0.3, true}, {1, 70, 3, 3, 80, 0, false},
    };
    int64_t rounds =
        getenv("GPT_TEST_SWEEP") ? atoll(getenv("GPT_TEST_SWEEP")) : 0;

    reopen("GPT_CUDA_EMU_ARCH", "90");
    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_attn("hopper attention", 1, cases[i], GPT_ALIBI_NONE);
    for (size_t i = 0; i < GPT_COUNT(with_alibi); i++)
        check_attn("hopper attention", 1, with_alibi[i], GPT_ALIBI);
    /* Philox block 2^32 is that of query 91 and key 84 of the first head. */
    sample0 = 214748;
    check_attn("hopper attention", 1,
               (struct attn_case){1, 100, 3, 1, 64, 0.2, false},
               GPT_ALIBI_NONE);
    sample0 = 5;
    for (int64_t i = 0; i < rounds; i++) {
        int64_t g = rnd_int(1, 3), h = g * rnd_int(1, 3);
        struct attn_case k = {rnd_int(1, 2), rnd_int(1, 300), h, g,
                              rnd_int(1, 16) * 8, (double)(i % 2) / 5,
                              i / 2 % 2};

        check_attn("hopper attention", 1, k, i / 4 % 2);
    }
    reopen("GPT_CUDA_EMU_ARCH", "80");
}

static void allow_tf32(bool allow)
{
    by_tf32 = allow;
    dev_be->allow_tf32(dev_be, allow);
}

/* Which floats tensor cores take, and what is said where they do not. */
static void slow_floats(void)
{
    static const struct {
        struct gpt_attn op;
        bool allowed;
        const char *says; /* NULL: nothing */
    } cases[] = {
        {{.d = 64, .act = GPT_F32}, false, "float where TF32 is allowed"},
        {{.d = 64, .act = GPT_F32}, true, NULL},
        {{.d = 128, .act = GPT_F32}, true, NULL},
        {{.d = 136, .act = GPT_F32}, true, "8 floats, up to 128"},
        {{.d = 36, .act = GPT_F32}, true, "8 floats, up to 128"},
        {{.d = 64, .softcap = 1, .alibi = GPT_ALIBI, .act = GPT_F32}, true,
         "do not cap scores beside ALiBi"},
        {{.d = 136, .act = GPT_BF16}, true, NULL},
        {{.d = 264, .act = GPT_BF16}, true, "8 elements, up to 256"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        allow_tf32(cases[i].allowed);
        const char *why = dev_be->attn_slow(&cases[i].op);

        ok(cases[i].says ? why && strstr(why, cases[i].says) : !why,
           "heads of %lld%s: %s", (long long)cases[i].op.d,
           cases[i].allowed ? ", TF32 allowed" : "", why ? why : "fast");
    }
    allow_tf32(false);
}

/* Floats by TF32: all paddings of heads, on GPUs with and without Hopper's
 * kernels, which do none; rows and tiles that end anywhere. */
static void floats(void)
{
    static const struct attn_case cases[] = {
        {1, 1, 1, 1, 8, 0, false},      {2, 37, 2, 2, 16, 0.2, true},
        {1, 131, 2, 1, 64, 0, false},   {2, 70, 4, 2, 56, 0, true},
        {1, 190, 3, 1, 64, 0.1, true},  {1, 131, 2, 1, 80, 0.3, true},
        {1, 65, 2, 2, 72, 0, false},    {1, 98, 3, 1, 96, 0.2, false},
        {1, 75, 2, 1, 88, 0, true},     {1, 150, 2, 2, 128, 0.3, true},
        {1, 129, 2, 1, 128, 0, false},  {1, 70, 4, 2, 104, 0, true},
    };
    static const struct attn_case with_alibi[] = {
        {1, 100, 3, 1, 64, 0.1, true},  {2, 40, 5, 1, 16, 0, false},
        {1, 139, 2, 2, 80, 0, false},   {1, 97, 3, 3, 128, 0, true},
    };
    int64_t rounds =
        getenv("GPT_TEST_SWEEP") ? atoll(getenv("GPT_TEST_SWEEP")) : 0;

    slow_floats();
    allow_tf32(true);
    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_attn("attention by TF32", 0, cases[i], GPT_ALIBI_NONE);
    reopen("GPT_CUDA_EMU_ARCH", "90");
    for (size_t i = 0; i < GPT_COUNT(with_alibi); i++)
        check_attn("attention by TF32", 0, with_alibi[i], GPT_ALIBI);
    reopen("GPT_CUDA_EMU_ARCH", "80");
    for (window = 1; window < 100; window += 49) {
        check_attn("attention by TF32", 0, cases[2],
                   window > 1 ? GPT_ALIBI : GPT_ALIBI_NONE);
        check_attn("attention by TF32", 0, cases[9], GPT_ALIBI_NONE);
    }
    window = 20;
    softcap = 0.7F;
    check_attn("attention by TF32", 0, cases[4], GPT_ALIBI_NONE);
    check_attn("attention by TF32", 0, cases[7], GPT_ALIBI_NONE);
    window = 0;
    softcap = 0;
    for (int64_t i = 0; i < rounds; i++) {
        int64_t g = rnd_int(1, 3), h = g * rnd_int(1, 3);
        struct attn_case k = {rnd_int(1, 2), rnd_int(1, 300), h, g,
                              rnd_int(1, 16) * 8, (double)(i % 2) / 5,
                              i / 2 % 2};

        check_attn("attention by TF32", 0, k, i / 4 % 2);
    }
    /* Heads that tensor cores do not take are exact. */
    by_tf32 = false;
    check_attn("attention", 0, (struct attn_case){1, 40, 2, 1, 136, 0, true},
               GPT_ALIBI_NONE);
    check_attn("attention", 0, (struct attn_case){1, 40, 2, 1, 36, 0, true},
               GPT_ALIBI_NONE);
    allow_tf32(false);
}

/* More pieces of work than a GPU has multiprocessors, so that blocks take
 * several and wait for each other's turns; the same bytes in every run. The
 * emulation, for which this is too much, has such pieces in hopper(). */
static void many_pieces(void)
{
    static const struct attn_case cases[] = {
        {4, 1500, 12, 12, 64, 0, false}, {4, 1100, 8, 2, 128, 0.1, true},
        {2, 2100, 16, 16, 128, 0, false}, {8, 700, 9, 3, 64, 0.1, false},
        {3, 1030, 6, 2, 80, 0, true},    {2, 900, 6, 6, 192, 0, false},
    };

    if (emulated)
        return;
    device_runs = 8;
    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_attn("many pieces", 1, cases[i], i == 1);
    device_runs = 2;
}

/* Heads of d elements twice, each of ALiBi, documents and dropout in one of the
 * two; groups of one head or several; in types[type]. */
static void check_choice(const char *arch, int64_t d, int64_t options,
                         size_t type)
{
    static const int64_t heads[][2] = {{2, 1}, {2, 2}, {3, 1}};

    types_end = type + 1;
    for (int64_t k = 0; k < 2; k++, options = ~options) {
        const int64_t *hg = heads[(d / 8 + k) % (int64_t)GPT_COUNT(heads)];

        check_attn(arch, type,
                   (struct attn_case){1, d > 128 ? 45 : 70, hg[0], hg[1], d,
                                      options & 4 ? 0.2 : 0, options & 2},
                   options & 1);
    }
    types_end = GPT_COUNT(types);
}

/* Forward and backward each choose kernels by GPU, type, head size and options.
 * Were their choices to differ in what they compute, gradients would be wrong:
 * every head size of tensor cores and some others, in the default choice, with
 * and without each option. */
static void choices(void)
{
    static const char *const archs[] = {"80", "90", "120"};
    static const int64_t others[] = {1, 37, 100, 250}, floats_of[] = {36, 64};

    for (size_t a = 0; a < (emulated ? GPT_COUNT(archs) : 1); a++) {
        int64_t options = (int64_t)a;

        if (emulated)
            reopen("GPT_CUDA_EMU_ARCH", archs[a]);
        for (int64_t d = 8; d <= 256; d += 8, options += 3)
            check_choice(archs[a], d, options, 1 + (size_t)(d / 8 % 2));
        for (size_t i = 0; i < GPT_COUNT(others); i++, options++)
            check_choice(archs[a], others[i], options, 1 + i % 2);
        for (size_t i = 0; i < GPT_COUNT(floats_of); i++, options++)
            check_choice(archs[a], floats_of[i], options, 0);
    }
    if (emulated)
        reopen("GPT_CUDA_EMU_ARCH", "80");
}

/* ---- loss, optimizer, sums ---- */

struct xent_case {
    struct gpt_xent op;
    bool grad;
};

static void run_xent(struct trial *t)
{
    struct gpt_xent op = *(const struct gpt_xent *)t->params;

    op.act = t->act;
    op.logits = t->mem[0];
    op.target = t->mem[1];
    op.weight = t->mem[2];
    op.loss = t->mem[3];
    op.scale = op.n % 2 ? t->mem[4] : NULL;
    t->be->xent(t->q, &op);
}

static void check_xent(int64_t n, int64_t v, int64_t v_real, int64_t pad,
                       double spread, bool grad)
{
    struct gpt_xent op = {.n = n, .v = v, .v_real = v_real, .ld = v + pad,
                          .grad = grad, .smoothing = n % 2 ? 0.1F : 0,
                          .z_loss = n % 2 ? 0.01F : 0};
    float *logits = rnd_floats(n * op.ld, spread), *weight = rnd_floats(n, 1);
    int32_t *target = rnd_ints(n, 0, v_real - 1);

    for (int64_t i = 0; i < n; i++) {
        weight[i] = i % 4 == 3 ? 0 : weight[i];
        for (int64_t j = v_real; j < v; j++)
            logits[i * op.ld + j] = j & 1 ? 1e4F : NAN; /* must not matter */
    }
    struct operand ops[] = {
        {"logits", ACT, n * op.ld, logits, true, 1},
        {"target", I32, n, target, false, 0},
        {"weight", F32, n, weight, false, 0},
        {"loss", F32, n, NULL, true, 1},
        {"scale", F32, 1, &loss_scale, false, 0},
    };
    compare(run_xent, &op, ops, GPT_COUNT(ops), "xent %lldx%lld of %lld%s",
            (long long)n, (long long)v_real, (long long)v,
            grad ? "" : " without gradient");
    free(logits), free(weight), free(target);
}

static void run_adamw(struct trial *t)
{
    struct gpt_adamw op = *(const struct gpt_adamw *)t->params;

    op.act = t->act;
    op.p = t->mem[0];
    op.m = t->mem[1];
    op.v = t->mem[2];
    op.g = t->mem[3];
    op.p_act = t->mem[4];
    op.segments = t->mem[5];
    t->be->adamw(t->q, &op);
}

static void check_adamw(int64_t n, int64_t step, bool coupled)
{
    struct gpt_decay_segment seg[] = {
        {0, true}, {n / 3, false}, {n / 3 + n / 5, true}};
    struct gpt_adamw op = {.n = n, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95,
                           .eps = 1e-8, .weight_decay = 0.1,
                           .grad_scale = 0.7, .coupled = coupled, .step = step,
                           .n_segments = 3};
    float *p = rnd_floats(n, 1), *m = rnd_floats(n, 1);
    float *v = rnd_floats(n, 1), *g = rnd_floats(n, 3);

    for (int64_t i = 0; i < n; i++)
        v[i] = fabsf(v[i]);
    struct operand ops[] = {
        {"p", F32, n, p, true, 0.3}, {"m", F32, n, m, true, 0.3},
        {"v", F32, n, v, true, 0.3}, {"g", F32, n, g, false, 0},
        {"copy", ACT, n, NULL, true, 0},
        {"segments", I32, (int64_t)sizeof(seg) / 4, seg, false, 0},
    };
    compare(run_adamw, &op, ops, GPT_COUNT(ops), "adamw %lld step %lld",
            (long long)n, (long long)step);
    free(p), free(m), free(v), free(g);
}

static void run_sgd(struct trial *t)
{
    struct gpt_sgd op = *(const struct gpt_sgd *)t->params;

    op.act = t->act;
    op.p = t->mem[0];
    op.m = op.momentum > 0 ? t->mem[1] : NULL;
    op.g = t->mem[2];
    op.p_act = t->mem[3];
    op.segments = t->mem[4];
    t->be->sgd(t->q, &op);
}

static void check_sgd(int64_t n, bool momentum)
{
    struct gpt_decay_segment seg[] = {{0, true}, {n / 3, false}};
    struct gpt_sgd op = {.n = n, .lr = 0.01, .momentum = momentum ? 0.9 : 0,
                         .weight_decay = 0.1, .grad_scale = 0.7,
                         .n_segments = 2};
    const uint32_t keep = rnd_state; /* later cases stay what they were */
    float *p = rnd_floats(n, 1), *m = rnd_floats(n, 1), *g = rnd_floats(n, 3);
    struct operand ops[] = {
        {"p", F32, n, p, true, 0.3}, {"m", F32, n, m, true, 0.3},
        {"g", F32, n, g, false, 0}, {"copy", ACT, n, NULL, true, 0},
        {"segments", I32, (int64_t)sizeof(seg) / 4, seg, false, 0},
    };

    compare(run_sgd, &op, ops, GPT_COUNT(ops), "sgd %lld", (long long)n);
    rnd_state = keep;
    free(p), free(m), free(g);
}

static void run_mix(struct trial *t)
{
    struct gpt_mix op = *(const struct gpt_mix *)t->params;

    op.x = t->mem[0];
    op.y = t->mem[1];
    op.out = t->mem[2];
    t->be->sumsq(t->q, t->mem[4], t->mem[0], op.n);
    t->be->mix(t->q, &op);
    op.y = NULL;
    op.squares = t->mem[4];
    op.out = t->mem[3];
    t->be->mix(t->q, &op);
}

static void check_mix(int64_t n)
{
    struct gpt_mix op = {.n = n, .a = 2, .b = -0.5, .least = 1e-7};
    const uint32_t keep = rnd_state;
    float *x = rnd_floats(n, 1), *y = rnd_floats(n, 1);
    struct operand ops[] = {{"x", F32, n, x, false, 0},
                            {"y", F32, n, y, false, 0},
                            {"mixture", F32, n, NULL, true, 0.3},
                            {"by its norm", F32, n, NULL, true, 0.3},
                            {"squares", F64, 1, NULL, true, 1e-6}};

    compare(run_mix, &op, ops, GPT_COUNT(ops), "mix %lld", (long long)n);
    rnd_state = keep;
    free(x), free(y);
}

static void run_sums(struct trial *t)
{
    int64_t n = *(const int64_t *)t->params;

    t->be->sumsq(t->q, t->mem[1], t->mem[0], n);
}

static void run_cast(struct trial *t)
{
    int64_t n = *(const int64_t *)t->params;

    t->be->cast(t->q, t->mem[1], t->act, t->mem[0], GPT_F32, n);
    t->be->cast(t->q, t->mem[2], GPT_F32, t->mem[1], t->act, n);
    t->be->zero(t->q, t->mem[3], (size_t)(n / 2) * 4);
    t->be->copy(t->q, (char *)t->mem[3] + n / 2 * 4, t->mem[0],
                (size_t)(n - n / 2) * 4);
}

static void check_flat(int64_t n)
{
    float *x = rnd_floats(n, 1);
    struct operand sums[] = {{"x", F32, n, x, false, 0},
                             {"squares", F64, 1, NULL, true, 1e-6}};
    struct operand casts[] = {{"x", F32, n, x, false, 0},
                              {"narrow", ACT, n, NULL, true, 0.6},
                              {"wide", F32, n, NULL, true, 0.6},
                              {"zeros and a copy", F32, n, NULL, true, 1e-9}};

    compare(run_sums, &n, sums, GPT_COUNT(sums), "sums of %lld", (long long)n);
    compare(run_cast, &n, casts, GPT_COUNT(casts), "cast of %lld",
            (long long)n);
    free(x);
}

static void flat(void)
{
    static const int64_t sizes[] = {1, 31, 64, 1023, 40000};

    for (size_t i = 0; i < GPT_COUNT(sizes); i++) {
        check_flat(sizes[i]);
        check_adamw(sizes[i], (int64_t)i + 1, i % 2 == 1);
        check_sgd(sizes[i], i % 2 == 0);
        check_mix(sizes[i]);
    }
    check_xent(1, 1, 1, 0, 1, true);
    check_xent(9, 33, 30, 3, 4, true);
    check_xent(5, 2000, 1995, 8, 9, true);
    check_xent(3, 600, 600, 0, 9, false);
    check_xent(1, 84000, 83950, 8, 9, true); /* longer than shared memory */
}

/* ---- a vocabulary over ranks, GELU ---- */

enum { RANKS = 3 };

/* Ranks one after another; logits (RANKS, n, v). */
static void run_ranks(struct trial *t)
{
    struct gpt_xent op = *(const struct gpt_xent *)t->params;
    size_t size = t->act == GPT_F32 ? 4 : 2;

    op.act = t->act;
    op.target = t->mem[1];
    op.weight = t->mem[2];
    op.loss = t->mem[3];
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < RANKS; r++) {
            float *stats = t->mem[4];

            op.logits = (char *)t->mem[0] + (size_t)(r * op.n * op.v) * size;
            op.v_begin = r * op.v;
            if (pass == 0)
                t->be->xent_partial(t->q, &op,
                                    stats + r * op.n * GPT_XENT_STATS);
            else
                t->be->xent_finish(t->q, &op, stats, RANKS, r);
        }
}

static void check_ranks(int64_t n, int64_t v, int64_t v_real)
{
    struct gpt_xent op = {.n = n, .v = v, .v_real = v_real, .grad = true,
                          .smoothing = n % 2 ? 0.1F : 0,
                          .z_loss = n % 2 ? 0.01F : 0};
    int64_t all = RANKS * n * v;
    float *logits = rnd_floats(all, 5), *weight = rnd_floats(n, 1);
    int32_t *target = rnd_ints(n, 0, v_real - 1);
    struct operand ops[] = {
        /* the CPU rounds exponentials in between, the GPU does not */
        {"logits", ACT, all, logits, true, 1.5},
        {"target", I32, n, target, false, 0},
        {"weight", F32, n, weight, false, 0},
        {"loss", F32, n, NULL, true, 1},
        {"stats", F32, RANKS * n * GPT_XENT_STATS, NULL, true, 1},
    };

    compare(run_ranks, &op, ops, GPT_COUNT(ops),
            "xent over ranks %lldx%lld of %lld", (long long)n,
            (long long)v_real, (long long)v);
    free(logits), free(weight), free(target);
}

/* Gradients of long rows, each by its own size: compare() goes by the largest,
 * the target's, beside which those of a large vocabulary are nothing. ranks:
 * the row has RANKS parts of v. */
static void check_long_rows(int64_t v, int64_t v_real, bool ranks)
{
    enum { N = 2, OPERANDS = 5 };
    /* by type: of the gradient's size, and of the type's smallest numbers */
    static const double share[] = {2e-5, 0x1p-8, 0x1p-10};
    static const double least[] = {1e-14, 1e-14, 0x1p-24};
    const struct gpt_xent op = {.n = N, .v = v, .v_real = v_real, .ld = v,
                                .grad = true};
    int64_t all = (ranks ? RANKS : 1) * N * v;
    float *logits = rnd_floats(all, 8), *weight = rnd_floats(N, 1);
    int32_t *target = rnd_ints(N, 0, v_real - 1);
    struct operand ops[OPERANDS] = {
        {"logits", ACT, all, logits, true, 0},
        {"target", I32, N, target, false, 0},
        {"weight", F32, N, weight, false, 0},
        {"loss", F32, N, NULL, false, 0},
        {"stats", F32, RANKS * N * GPT_XENT_STATS, NULL, false, 0},
    };

    for (size_t i = 0; i < GPT_COUNT(types); i++) {
        double *want[OPERANDS], *got[OPERANDS];
        struct trial cpu = {.be = cpu_be, .q = cpu_q, .act = GPT_F32};
        struct trial dev = {.be = dev_be, .q = dev_q, .act = types[i].t};
        int64_t bad = 0;

        cpu.params = dev.params = &op;
        run_once(ranks ? run_ranks : run_xent, &cpu, ops, OPERANDS, types[i].t,
                 want, NULL);
        run_once(ranks ? run_ranks : run_xent, &dev, ops, OPERANDS, types[i].t,
                 got, NULL);
        for (int64_t k = 0; k < all; k++)
            bad += !(fabs(got[0][k] - want[0][k]) <=
                     fabs(want[0][k]) * share[i] + least[i]);
        is_int(bad, 0, "long rows of %lld%s %s: gradients that are wrong",
               (long long)v, ranks ? " on each rank" : "",
               gpt_dtype_name(types[i].t));
        for (size_t k = 0; k < OPERANDS; k++)
            free(want[k]), free(got[k]);
    }
    free(logits), free(weight), free(target);
}

static void run_activate(struct trial *t)
{
    struct gpt_activate op = *(const struct gpt_activate *)t->params;

    op.act = t->act;
    op.pre = t->mem[0];
    op.out = t->mem[2];
    t->be->activate(t->q, &op);
    t->be->activate_bwd(t->q, &op, t->mem[1], t->mem[3]);
}

static void check_activate(int64_t n, int64_t f, bool gated)
{
    int64_t wide = gated ? 2 * f : f;
    float *x = rnd_floats(n * wide, 6), *dy = rnd_floats(n * f, 1);
    struct operand ops[] = {{"pre", ACT, n * wide, x, false, 0},
                            {"dout", ACT, n * f, dy, false, 0},
                            {"out", ACT, n * f, NULL, true, 0},
                            {"dpre", ACT, n * wide, NULL, true, 0}};

    for (int kind = GPT_GELU; kind <= GPT_SQUARED_RELU; kind++) {
        struct gpt_activate op = {.kind = (enum gpt_activation)kind,
                                  .gated = gated, .n = n, .f = f};

        compare(run_activate, &op, ops, GPT_COUNT(ops),
                "activation %d of %lldx%lld%s", kind, (long long)n,
                (long long)f, gated ? " gated" : "");
    }
    free(x), free(dy);
}

static void run_xielu(struct trial *t)
{
    struct gpt_activate op = *(const struct gpt_activate *)t->params;
    float *grads = t->mem[5];

    op.act = t->act;
    op.pre = t->mem[0];
    op.out = t->mem[2];
    op.alpha_p = t->mem[4];
    op.alpha_n = (char *)t->mem[4] + gpt_dtype_bytes(t->act);
    t->be->activate(t->q, &op);
    t->be->activate_bwd(t->q, &op, t->mem[1], t->mem[3]);
    t->be->xielu_grads(t->q, &op, t->mem[1], grads, grads + 1);
}

/* far: how far below 0 all numbers are, or 0 */
static void check_xielu(int64_t n, int64_t f, float far)
{
    float *x = rnd_floats(n * f, 6), *dy = rnd_floats(n * f, 1);
    float alpha[2] = {0.3F, -0.7F}, start[2] = {0.5F, -2};
    struct gpt_activate op = {.kind = GPT_XIELU, .n = n, .f = f};
    struct operand ops[] = {{"pre", ACT, n * f, x, false, 0},
                            {"dout", ACT, n * f, dy, false, 0},
                            {"out", ACT, n * f, NULL, true, 0},
                            {"dpre", ACT, n * f, NULL, true, 0},
                            {"alpha", ACT, 2, alpha, false, 0},
                            {"dalpha", F32, 2, start, true, 2}};

    for (int64_t i = 0; far > 0 && i < n * f; i++)
        x[i] = -far * (1 + fabsf(x[i]));
    compare(run_xielu, &op, ops, GPT_COUNT(ops), "xielu of %lldx%lld, -%g",
            (long long)n, (long long)f, (double)far);
    free(x), free(dy);
}

static void run_clip(struct trial *t)
{
    const int64_t n = *(const int64_t *)t->params;

    t->be->clip(t->q, t->mem[0], n, 1.3F, t->act);
    t->be->clip_bwd(t->q, t->mem[1], t->mem[0], n, 1.3F, t->act);
}

static void check_clip(int64_t n)
{
    float *x = rnd_floats(n, 3), *d = rnd_floats(n, 1);
    struct operand ops[] = {{"x", ACT, n, x, true, 1},
                            {"d", ACT, n, d, true, 1}};

    /* numbers of all types, none of them near the limit */
    for (int64_t i = 0; i < n; i++)
        x[i] = roundf(4 * x[i]) / 4;
    compare(run_clip, &n, ops, GPT_COUNT(ops), "clipped %lld", (long long)n);
    free(x), free(d);
}

static void run_head_norm(struct trial *t)
{
    struct gpt_head_norm op = *(const struct gpt_head_norm *)t->params;
    bool centred = op.kind == GPT_LAYERNORM;
    struct gpt_head_norm_grad grad = {
        .dqkv = t->mem[6], .dwq = bare ? NULL : t->mem[7],
        .dbq = centred ? (float *)t->mem[7] + op.d : NULL,
        .dwk = bare ? NULL : (float *)t->mem[7] + 2 * op.d,
        .dbk = centred ? (float *)t->mem[7] + 3 * op.d : NULL,
        .scratch = t->mem[8]};

    op.act = t->act;
    op.in = t->mem[0];
    op.wq = bare ? NULL : t->mem[1];
    op.bq = centred ? t->mem[2] : NULL;
    op.wk = bare ? NULL : t->mem[3];
    op.bk = centred ? t->mem[4] : NULL;
    op.out = t->mem[5];
    t->be->head_norm(t->q, &op);
    t->be->head_norm_bwd(t->q, &op, &grad);
}

static void check_head_norm(enum gpt_norm_kind kind, int64_t n, int64_t h,
                            int64_t g, int64_t d, bool plus_one)
{
    int64_t count = n * (h + 2 * g) * d;
    float *x = rnd_floats(count, 1), *dy = rnd_floats(count, 1);
    float *w = rnd_floats(4 * d, 1);
    size_t cpu = cpu_be->head_norm_scratch(n, d);
    size_t dev = dev_be->head_norm_scratch(n, d);
    struct gpt_head_norm op = {.kind = kind, .plus_one = plus_one, .n = n,
                               .h = h, .g = g, .d = d, .eps = 1e-5F};
    struct operand ops[] = {
        {"qkv", ACT, count, x, false, 0},
        {"wq", ACT, d, w, false, 0},
        {"bq", ACT, d, w + d, false, 0},
        {"wk", ACT, d, w + 2 * d, false, 0},
        {"bk", ACT, d, w + 3 * d, false, 0},
        {"out", ACT, count, NULL, true, 1},
        {"dqkv", ACT, count, dy, true, 2},
        {"dw", F32, 4 * d, w, true, 2},
        {"scratch", F32, (int64_t)((cpu > dev ? cpu : dev) / sizeof(float)),
         NULL, false, 0},
    };

    compare(run_head_norm, &op, ops, GPT_COUNT(ops),
            "head norm %d of %lld H%lld G%lld D%lld%s", (int)kind,
            (long long)n, (long long)h, (long long)g, (long long)d,
            plus_one ? " plus one" : "");
    free(x), free(dy), free(w);
}

/* Every head by its own weights. */
static void run_each_norm(struct trial *t)
{
    struct gpt_head_norm op = *(const struct gpt_head_norm *)t->params;
    struct gpt_head_norm_grad grad = {
        .dqkv = t->mem[4], .dwq = t->mem[5],
        .dwk = (float *)t->mem[5] + op.h * op.d, .scratch = t->mem[6]};

    op.act = t->act;
    op.in = t->mem[0];
    op.wq = t->mem[1];
    op.wk = t->mem[2];
    op.out = t->mem[3];
    t->be->head_norm(t->q, &op);
    t->be->head_norm_bwd(t->q, &op, &grad);
}

static void check_each_norm(enum gpt_norm_kind kind, int64_t n, int64_t h,
                            int64_t g, int64_t d, bool plus_one)
{
    int64_t count = n * (h + 2 * g) * d, weights = (h + g) * d;
    float *x = rnd_floats(count, 1), *dy = rnd_floats(count, 1);
    float *w = rnd_floats(weights, 1);
    size_t cpu = cpu_be->head_norm_scratch(n, weights);
    size_t dev = dev_be->head_norm_scratch(n, weights);
    struct gpt_head_norm op = {.kind = kind, .plus_one = plus_one,
                               .each = true, .n = n, .h = h, .g = g, .d = d,
                               .eps = 1e-5F};
    struct operand ops[] = {
        {"qkv", ACT, count, x, false, 0},
        {"wq", ACT, h * d, w, false, 0},
        {"wk", ACT, g * d, w + h * d, false, 0},
        {"out", ACT, count, NULL, true, 1},
        {"dqkv", ACT, count, dy, true, 2},
        {"dw", F32, weights, w, true, 2},
        {"scratch", F32, (int64_t)((cpu > dev ? cpu : dev) / sizeof(float)),
         NULL, false, 0},
    };

    compare(run_each_norm, &op, ops, GPT_COUNT(ops),
            "norm of each head %d of %lld H%lld G%lld D%lld%s", (int)kind,
            (long long)n, (long long)h, (long long)g, (long long)d,
            plus_one ? " plus one" : "");
    free(x), free(dy), free(w);
}

/* Rows of all lengths, and heads. */
static void check_bare(void)
{
    bare = true;
    check_norm(GPT_LAYERNORM, 9, 96, 0.2, true, false);
    check_norm(GPT_RMSNORM, 5, 33, 0, false, false);
    check_norm(GPT_LAYERNORM, 3, 9000, 0, true, false);
    check_head_norm(GPT_RMSNORM, 7, 4, 2, 32, false);
    bare = false;
}

/* All heads together; sums of all ranks are those of this one twice. */
static void run_wide_norm(struct trial *t)
{
    struct gpt_head_norm op = *(const struct gpt_head_norm *)t->params;
    float *sums = t->mem[7], *dw = t->mem[6];
    struct gpt_head_norm_grad grad = {
        .dqkv = t->mem[4], .dots = sums + 2 * op.n, .dwq = dw,
        .dwk = dw + op.h * op.d, .scratch = t->mem[5]};

    op.act = t->act;
    op.in = t->mem[0];
    op.wq = t->mem[1];
    op.wk = t->mem[2];
    op.out = t->mem[3];
    op.squares = sums;
    t->be->head_norm_sums(t->q, &op, NULL, sums);
    t->be->head_norm(t->q, &op);
    t->be->head_norm_sums(t->q, &op, grad.dqkv, sums + 2 * op.n);
    t->be->head_norm_bwd(t->q, &op, &grad);
}

static void check_wide_norm(int64_t n, int64_t h, int64_t g, int64_t d)
{
    int64_t count = n * (h + 2 * g) * d, width = (h + g) * d;
    float *x = rnd_floats(count, 1), *dy = rnd_floats(count, 1);
    float *w = rnd_floats(width, 1);
    size_t cpu = cpu_be->head_norm_scratch(n, width);
    size_t dev = dev_be->head_norm_scratch(n, width);
    struct gpt_head_norm op = {.kind = GPT_RMSNORM, .n = n, .h = h, .g = g,
                               .d = d, .h_all = 2 * h, .g_all = 2 * g,
                               .plus_one = n % 2, .eps = 1e-5F};
    struct operand ops[] = {
        {"qkv", ACT, count, x, false, 0},
        {"wq", ACT, h * d, w, false, 0},
        {"wk", ACT, g * d, w + h * d, false, 0},
        {"out", ACT, count, NULL, true, 1},
        {"dqkv", ACT, count, dy, true, 2},
        {"scratch", F32, (int64_t)((cpu > dev ? cpu : dev) / sizeof(float)),
         NULL, false, 0},
        {"dw", F32, width, w, true, 2},
        {"sums", F32, 4 * n, NULL, true, 1},
    };

    compare(run_wide_norm, &op, ops, GPT_COUNT(ops),
            "norm of all heads of %lld H%lld G%lld D%lld", (long long)n,
            (long long)h, (long long)g, (long long)d);
    free(x), free(dy), free(w);
}

static void run_softcap(struct trial *t)
{
    const int64_t n = *(const int64_t *)t->params;

    t->be->softcap(t->q, t->mem[0], t->mem[1], n, 0.8F, t->act);
    t->be->softcap(t->q, t->mem[2], NULL, n, 30, t->act);
    t->be->times(t->q, t->mem[3], t->mem[1], n, t->act);
    t->be->scale(t->q, t->mem[4], n, -0.3F, t->act);
}

static void check_softcap(int64_t n)
{
    float *x = rnd_floats(n, 3), *y = rnd_floats(n, 1);
    struct operand ops[] = {
        {"x", ACT, n, x, true, 1},
        {"slope", ACT, n, NULL, true, 1},
        {"logits", ACT, n, x, true, 1},
        {"times", ACT, n, y, true, 1},
        {"scaled", ACT, n, y, true, 1},
    };

    compare(run_softcap, &n, ops, GPT_COUNT(ops), "capped %lld", (long long)n);
    free(x), free(y);
}

static void more(void)
{
    check_wide_norm(5, 4, 2, 8);
    check_wide_norm(300, 3, 1, 33);
    check_softcap(1);
    check_softcap(1000);
    check_ranks(5, 40, 110);
    check_ranks(3, 33, 60); /* the last rank has no word */
    check_long_rows(131072, 131072 - 11, false);
    check_long_rows(262144, 262144, false);
    check_long_rows(43700, 3 * 43700 - 60, true);
    check_activate(1, 1, false);
    check_activate(10, 100, false);
    check_activate(3, 1001, true);
    check_activate(7, 64, true);
    check_xielu(1, 1, 0);
    check_xielu(70, 100, 0);
    check_xielu(3, 40, 9e3F);
    check_clip(1);
    check_clip(1000);
    check_bare();
    check_head_norm(GPT_RMSNORM, 5, 4, 2, 8, false);
    check_head_norm(GPT_LAYERNORM, 70, 3, 1, 80, false);
    check_head_norm(GPT_RMSNORM, 530, 2, 2, 33, true);
    check_each_norm(GPT_LAYERNORM, 70, 6, 2, 33, false);
    check_each_norm(GPT_RMSNORM, 530, 4, 1, 80, true);
}

/* ---- random shapes ---- */

static bool coin(void)
{
    return rnd() > 0;
}

static void sweep_experts(void)
{
    const int64_t e = rnd_int(1, 40), k = rnd_int(1, e < 8 ? e : 8);
    const int64_t first = rnd_int(0, e - 1), by = coin() ? 1 : 8;

    check_experts((struct experts_case){
                      rnd_int(1, 200 / k), e, k, first, rnd_int(1, e - first),
                      coin(), coin(), coin(), rnd_int(1, 100) / by * by + by,
                      rnd_int(1, 150) / by * by + by, coin(), coin()},
                  NULL);
    check_gates(rnd_int(1, 40), rnd_int(1, 300));
}

static void sweep_latent(void)
{
    const int64_t size = rnd_int(1, 12), topk = rnd_int(1, 9);
    const int64_t most = topk * size < 64 ? topk * size : 64;
    const int64_t by = coin() ? 1 : 8;
    const int64_t nope = rnd_int(1, 16) * by, turned = rnd_int(1, 8) * by;

    set_groups(rnd_int(topk, 9), topk, rnd_int(1, size));
    check_group_router(rnd_int(1, 60), size, rnd_int(1, most), coin(), coin());
    set_groups(0, 0, 0);
    check_latent(rnd_int(1, 40), rnd_int(1, 9), nope, turned,
                 rnd_int(1, (nope + turned) / by) * by);
    check_fit(rnd_int(1, 40) * by, rnd_int(1, 40) * by, rnd_int(1, 60));
}

static void sweep(int64_t rounds)
{
    static const int64_t heads[] = {1, 8, 20, 64, 80, 96, 128};

    for (int64_t i = 0; i < rounds; i++) {
        int64_t n = rnd_int(1, 90), c = rnd_int(1, 300);
        int64_t g = rnd_int(1, 3), d = heads[rnd_int(0, 6)];
        double p = coin() ? 0 : (rnd() + 1) / 3;

        c = coin() ? c : c / 8 * 8 + 8;
        check_matmul(n, c, rnd_int(1, 90), coin(), coin(), coin(),
                     (float)coin(), GPT_EPI_NONE, rnd_int(0, 9));
        check_matmul(n, c, rnd_int(1, 90), coin(), coin(), false, 0,
                     (enum gpt_epilogue)rnd_int(1, 3), 0);
        check_bias(n, c);
        check_norm((enum gpt_norm_kind)coin(), n, c, p, coin(), coin());
        check_dropout(n, c, p);
        check_embed(n, c, p, coin(), rnd_int(1, V + 9));
        check_attn("attention", 0,
                   (struct attn_case){rnd_int(1, 2), rnd_int(1, 140),
                                      g * rnd_int(1, 3), g, d, p, coin()},
                   coin());
        check_cached(rnd_int(1, 10), g * rnd_int(1, 3), g, d, coin());
        check_rope(rnd_int(1, 3), rnd_int(1, 50), g * rnd_int(1, 3), g, d,
                   d / 2 * 2, coin());
        check_xent(n, c, rnd_int(1, c), rnd_int(0, 9), 6, coin());
        check_ranks(n, c, rnd_int(1, 3 * c));
        check_adamw(rnd_int(1, 5000), rnd_int(1, 1000), coin());
        check_sgd(rnd_int(1, 5000), coin());
        check_mix(rnd_int(1, 5000));
        check_flat(rnd_int(1, 50000));
        sweep_experts();
        sweep_latent();
    }
}

/* ---- failures ---- */

static void failures(void)
{
    struct gpt_err err;
    struct gpt_queue *q;
    void *mem = NULL;
    int32_t target = 40;

    is_int(dev_be->alloc(dev_be, (size_t)1 << 46, "too much", &mem, &err),
           GPT_EDEVICE, "out of memory is an error");
    ok(strstr(err.text, "too much") && strstr(err.text, "free"),
       "which says for what and how much is left: %s", err.text);
    must(dev_be->queue_open(dev_be, &q, &err), &err);
    must(dev_be->alloc(dev_be, 4096, "logits", &mem, &err), &err);
    dev_be->copy_in(q, (char *)mem + 1024, &target, sizeof(target));
    struct gpt_xent op = {.n = 1, .v = 40, .v_real = 40, .act = GPT_F32,
                          .logits = mem,
                          .target = (int32_t *)(void *)((char *)mem + 1024),
                          .weight = (float *)mem + 512,
                          .loss = (float *)mem + 513};
    dev_be->xent(q, &op);
    is_int(dev_be->sync(q, &err), GPT_EDEVICE, "a bad target is found");
    ok(strstr(err.text, "target 40 is not in 0..39"), "and named: %s",
       err.text);
    dev_be->zero(q, mem, 64);
    is_int(dev_be->sync(q, &err), GPT_EDEVICE, "the first failure sticks");
    dev_be->queue_close(q);
    dev_be->free(dev_be, mem);
}

/* Samples and heads are blocks of a grid, in dimensions that end at 65535. */
static void crowds(void)
{
    static const char *const want[] = {"65536 samples at once, limit 65535",
                                       "65536 heads, limit 65535",
                                       "heads of 257 elements, limit 256"};
    const struct gpt_attn_grad grad = {.dout = NULL};
    struct gpt_err err;

    for (int i = 0; i < 9; i++) {
        const int64_t b = i % 3 == 0 ? 65536 : 1, h = i % 3 == 1 ? 65536 : 1;
        const int64_t d = i % 3 == 2 ? 257 : 8;
        const struct gpt_attn op = {.b = b, .t = 1, .h = h, .g = 1, .d = d,
                                    .act = GPT_F32};
        const struct gpt_attn_cached cached = {.b = b, .t_new = 1, .h = h,
                                               .g = 1, .d = d, .t_max = 1,
                                               .act = GPT_F32};
        struct gpt_queue *q;

        must(dev_be->queue_open(dev_be, &q, &err), &err);
        if (i / 3 == 0)
            dev_be->attn_fwd(q, &op);
        else if (i / 3 == 1)
            dev_be->attn_bwd(q, &op, &grad);
        else
            dev_be->attn_cached(q, &cached);
        is_int(dev_be->sync(q, &err), GPT_EDEVICE, "attention refuses");
        ok(strstr(err.text, want[i % 3]), "and says what: %s", err.text);
        dev_be->queue_close(q);
    }
}

/* A plan for a GPU that is not here counts as one that is. */
static void plans(const char *arch)
{
    struct gpt_backend planned;
    const struct gpt_attn ops[] = {
        {.b = 2, .t = 70, .h = 3, .g = 1, .d = 64, .act = GPT_BF16},
        {.b = 2, .t = 70, .h = 3, .g = 1, .d = 128, .act = GPT_F16},
        {.b = 2, .t = 70, .h = 3, .g = 1, .d = 192, .act = GPT_BF16},
        {.b = 2, .t = 70, .h = 3, .g = 1, .d = 37, .act = GPT_BF16},
        {.b = 2, .t = 70, .h = 3, .g = 1, .d = 64, .act = GPT_F32},
        {.b = 2, .t = 70, .h = 3, .g = 1, .d = 64, .act = GPT_BF16,
         .softcap = 2},
    };
    int64_t left, memory;

    reopen("GPT_CUDA_EMU_ARCH", arch);
    dev_be->memory(dev_be, &left, &memory);
    gpt_backend_planned(&planned, memory, atoi(arch));
    is_int(planned.logits_bytes, dev_be->logits_bytes, "logits of a plan");
    /* Products of eight bits are those of the GPU that was opened first. */
    is_int(planned.abilities & (dev_be->abilities | GPT_CAN_FP8),
           planned.abilities, "what it can do");
    is_int((planned.abilities & GPT_CAN_FP8) != 0, atoi(arch) >= 89,
           "products of eight bits of sm_%s", arch);
    for (int learned = 0; learned < 2; learned++)
        is_int((int64_t)planned.embed_scratch(70, 24, learned),
               (int64_t)dev_be->embed_scratch(70, 24, learned),
               "the embedding's scratch with%s positions",
               learned ? "" : "out");
    for (size_t i = 0; i < GPT_COUNT(ops); i++)
        is_int((int64_t)planned.attn_scratch(&ops[i]),
               (int64_t)dev_be->attn_scratch(&ops[i]),
               "attention's scratch, %s, heads of %lld, cap %g on sm_%s",
               gpt_dtype_name(ops[i].act), (long long)ops[i].d,
               (double)ops[i].softcap, arch);
    for (int allow = 0; allow < 2; allow++) {
        planned.allow_tf32(&planned, allow);
        dev_be->allow_tf32(dev_be, allow);
        for (size_t i = 0; i < GPT_COUNT(ops); i++) {
            const char *says = planned.attn_slow(&ops[i]);
            const char *here = dev_be->attn_slow(&ops[i]);

            ok(says ? here && strcmp(says, here) == 0 : !here,
               "%s, heads of %lld: a plan calls them %s, too",
               gpt_dtype_name(ops[i].act), (long long)ops[i].d,
               says ? "slow" : "fast");
        }
    }
    dev_be->allow_tf32(dev_be, false);
}

/* What shared memory limits depends on the GPU: Hopper trains rows that others
 * have no room for. The limit counts a kernel's static memory, too. */
static void limits(void)
{
    struct gpt_norm op = {.n = 1, .c = 12650, .act = GPT_F32};
    struct gpt_norm_grad grad = {.dy = NULL};
    struct gpt_err err;

    if (!emulated)
        return;
    is_int(dev_be->logits_bytes, (int64_t)8 << 25, "logits: 1/32 of memory");
    reopen("GPT_CUDA_EMU_ARCH", "90");
    check_norm(GPT_LAYERNORM, 2, 16384, 0, false, false);
    reopen("GPT_CUDA_EMU_ARCH", "86");
    dev_be->norm_bwd(dev_q, &op, &grad);
    is_int(dev_be->sync(dev_q, &err), GPT_EDEVICE, "rows that are too long");
    ok(strstr(err.text, "rows of 12650 elements, limit 12544 on this GPU"),
       "and how long they may be: %s", err.text);
    plans("90");
    plans("80");
    plans("120");
    reopen("GPT_CUDA_EMU_ARCH", "80");
}

/* ---- sections: all, or those named on the command line ---- */

/* How often the emulated cuBLASLt was asked for an algorithm, has made a
 * product, and refused one. */
struct calls {
    long asked, made, refused;
};

static struct calls count_calls(void)
{
    static void (*counts)(long *asked, long *made, long *refused);
    const char *dir = getenv("GPT_PLUGIN_DIR");
    struct calls c;
    char path[400];

    snprintf(path, sizeof(path), "%s/libgpt-cuda-emu.so", dir);
    if (!counts) {
        void *symbol = dlsym(dlopen(path, RTLD_NOW), "gpt_emu_products");

        memcpy(&counts, &symbol, sizeof(counts));
    }
    counts(&c.asked, &c.made, &c.refused);
    return c;
}

/* 16 x 16 bf16 matrices of one allocation, the first `shift` bytes after its
 * beginning; what the library was asked and did. */
static struct calls multiply_at(size_t shift, int *status, struct gpt_err *err)
{
    enum { N = 16, BYTES = N * N * 2 };
    struct calls before = count_calls(), after;
    void *mem;

    must(dev_be->alloc(dev_be, 3 * 1024, "matrices", &mem, err), err);
    struct gpt_matmul op = {.m = N, .n = N, .k = N, .act = GPT_BF16,
                            .c_type = GPT_BF16,
                            .a = (char *)mem + shift,
                            .b = (char *)mem + 1024,
                            .c = (char *)mem + 2048};
    dev_be->matmul(dev_q, &op);
    *status = dev_be->sync(dev_q, err);
    dev_be->free(dev_be, mem);
    after = count_calls();
    return (struct calls){after.asked - before.asked, after.made - before.made,
                          after.refused - before.refused};
}

/* A library that is there and does not work: what is left is made here. */
static void library_fails(void)
{
    static const char *const modes[] = {"mute", "deaf", "blind"};
    struct gpt_err err;
    int status;

    for (size_t i = 0; i < GPT_COUNT(modes); i++) {
        reopen("GPT_CUDA_EMU_GEMM", modes[i]);
        struct calls c = multiply_at(0, &status, &err);

        is_int(status, GPT_OK, "a product without help: %s", modes[i]);
        is_int(c.made, 0, "is not made by the library");
    }
    /* A plan that was good, whose addresses are not taken. */
    reopen("GPT_CUDA_EMU_GEMM", "library");
    check_matmul(17, 24, 40, false, true, false, 0, GPT_EPI_BIAS, 0);
    setenv("GPT_CUDA_EMU_GEMM", "deaf", 1);
    check_matmul(17, 24, 40, false, true, false, 0, GPT_EPI_BIAS, 0);
    reopen("GPT_CUDA_EMU_GEMM", "dead");
    multiply_at(0, &status, &err);
    is_int(status, GPT_EDEVICE, "a library that does not start");
    ok(strstr(err.text, "cuBLASLt does not start"), "is named: %s", err.text);
}

/* More shapes than are kept: the first is asked for again. */
static void library_forgets(void)
{
    enum { SHAPES = 300 };
    struct calls before, after;
    struct gpt_err err;
    void *mem;

    reopen("GPT_CUDA_EMU_GEMM", "library");
    must(dev_be->alloc(dev_be, 1 << 16, "matrices", &mem, &err), &err);
    before = count_calls();
    for (int i = 0; i < 2 * SHAPES + 1; i++) {
        const struct gpt_matmul op = {
            .m = i < SHAPES ? 1 + i : 1,
            .n = 8,
            .k = 8,
            .act = GPT_BF16,
            .c_type = GPT_BF16,
            .a = mem,
            .b = (char *)mem + (32 << 10),
            .c = (char *)mem + (40 << 10),
        };

        dev_be->matmul(dev_q, &op);
    }
    is_int(dev_be->sync(dev_q, &err), GPT_OK, "%d shapes", SHAPES);
    after = count_calls();
    is_int(after.asked - before.asked, SHAPES + 1, "are asked for once");
    is_int(after.made - before.made, 2 * SHAPES + 1, "and all are made");
    dev_be->free(dev_be, mem);
}

/* What cuBLASLt is asked, promised and believed. */
static void library_calls(void)
{
    static const struct {
        size_t shift;
        long asked;
        const char *what;
    } shifts[] = {
        {0, 1, "a shape is asked for once"},
        {16, 0, "and serves every multiple of 16 bytes"},
        {8, 1, "less alignment is another shape"},
        {24, 0, "whose plan serves its own kind"},
        {2, 1, "elements that lie anyhow"},
    };
    struct gpt_err err;
    int status;

    reopen("GPT_CUDA_EMU_GEMM", "library");
    for (size_t i = 0; i < GPT_COUNT(shifts); i++) {
        struct calls c = multiply_at(shifts[i].shift, &status, &err);

        is_int(status, GPT_OK, "a product %zu bytes on", shifts[i].shift);
        is_int(c.asked, shifts[i].asked, "%s", shifts[i].what);
        is_int(c.made, 1, "and is made by the library");
    }
    reopen("GPT_CUDA_EMU_GEMM", "late");
    for (int i = 0; i < 2; i++) {
        struct calls c = multiply_at(0, &status, &err);

        is_int(status, GPT_OK, "what the library refuses late is made here");
        is_int(c.refused, i == 0, "and it is not tried again");
    }
    reopen("GPT_CUDA_EMU_GEMM", "broken");
    multiply_at(0, &status, &err);
    is_int(status, GPT_EDEVICE, "a product that fails");
    ok(strstr(err.text, "16 x 16 x 16 of BF16: cublasLtMatmul failed"),
       "is named: %s", err.text);
}

/* More tiles of rows than a grid has blocks in any dimension but the first. The
 * sums have no terms, so that most of the time is that of copies. */
static void many_rows(void)
{
    const int64_t m = ((int64_t)1 << 22) + 1;
    float *c = malloc((size_t)m * sizeof(*c));
    struct gpt_err err;
    int64_t wrong = 0;
    void *mem;

    reopen("GPT_CUDA_EMU_GEMM", "none");
    for (int64_t i = 0; i < m; i++)
        c[i] = (float)(i % 1000);
    must(dev_be->alloc(dev_be, (size_t)m * sizeof(*c), "rows", &mem, &err),
         &err);
    dev_be->copy_in(dev_q, mem, c, (size_t)m * sizeof(*c));
    dev_be->matmul(dev_q, &(struct gpt_matmul){.m = m, .n = 1, .k = 0,
                                               .a = mem, .b = mem, .c = mem,
                                               .act = GPT_BF16,
                                               .c_type = GPT_F32, .beta = 2});
    dev_be->copy_out(dev_q, c, mem, (size_t)m * sizeof(*c));
    is_int(dev_be->sync(dev_q, &err), GPT_OK, "%lld rows without the library",
           (long long)m);
    for (int64_t i = 0; i < m; i++)
        wrong += c[i] != (float)(i % 1000 * 2);
    is_int(wrong, 0, "of which none is left out, or done twice");
    dev_be->free(dev_be, mem);
    free(c);
    reopen("GPT_CUDA_EMU_GEMM", "library");
}

static void products(void)
{
    matmuls();
    reopen("GPT_CUDA_EMU_STREAMS", "late"); /* nobody waits for too little */
    if (!emulated)
        return;
    for (int i = 0; i < 2; i++) { /* without the library's help */
        reopen("GPT_CUDA_EMU_GEMM", i ? "none" : "plain");
        matmuls();
        check_matmul(70, 130, 50, i, !i, true, 1, GPT_EPI_NONE, 3);
    }
    many_rows();
    library_calls();
    library_fails();
    library_forgets();
    /* The fastest algorithm is not the first, and one does not work. */
    setenv("GPT_CUDA_TUNE", "1", 1);
    reopen("GPT_CUDA_EMU_GEMM", "library");
    matmuls();
    unsetenv("GPT_CUDA_TUNE");
    reopen("GPT_CUDA_EMU_GEMM", "library");
}

static void random_shapes(void)
{
    if (getenv("GPT_TEST_SWEEP"))
        sweep(atoll(getenv("GPT_TEST_SWEEP")));
}

/* ---- experts ---- */

/* Routers whose experts are of some groups. */
static void check_groups(void)
{
    set_groups(37, 3, 1);
    check_odd_logits(false);
    set_groups(37, 3, 2);
    check_odd_logits(true);
    set_groups(8, 4, 2);
    check_group_router(50, 32, 8, true, true);
    set_groups(8, 3, 1);
    check_group_router(33, 20, 6, false, false);
    set_groups(4, 2, 3);
    check_group_router(33, 5, 10, false, false);
    set_groups(40, 7, 1);
    check_group_router(20, 1, 7, true, false);
    set_groups(2, 1, 64);
    check_group_router(9, 64, 64, true, true);
    set_groups(70, 70, 2);
    check_group_router(9, 3, 5, false, true);
    set_groups(4, 2, 2);
    check_group_router(3, 1024, 4, true, false);
    set_groups(0, 0, 0);
}

static void experts(void)
{
    /* tokens, experts, of a token; first, here; options; matrices */
    static const struct experts_case cases[] = {
        {1, 1, 1, 0, 1, false, false, false, 1, 1, true, false},
        {7, 2, 2, 0, 2, true, false, true, 17, 24, false, true},
        {33, 8, 3, 2, 5, false, true, true, 40, 24, true, false},
        {33, 8, 3, 0, 8, false, false, false, 72, 136, false, true},
        {200, 5, 2, 0, 5, true, true, false, 48, 40, true, true},
        {300, 3, 1, 1, 2, false, false, true, 56, 264, false, false},
        {150, 1, 1, 0, 1, true, false, false, 136, 8, true, true},
        {40, 64, 6, 30, 34, true, false, true, 33, 70, true, false},
        {5, 130, 64, 3, 100, false, false, true, 16, 16, false, true},
        {5, 4096, 9, 4000, 96, true, false, false, 2, 3, true, false},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_experts(cases[i], NULL);
    check_odd_logits(false);
    check_odd_logits(true);
    check_groups();
    check_gates(1, 1);
    check_gates(37, 72);
    check_gates(5, 2056);
    allow_tf32(true);
    for (size_t i = 2; i < 7; i++)
        check_experts(cases[i], &tf32[1]);
    allow_tf32(false);
}

/* Heads whose parts are moved 16 bytes at a time, by all types or some, and
 * others; rows that are longer than a block is wide. */
static void latent(void)
{
    check_latent(1, 1, 1, 1, 1);
    check_latent(3, 2, 4, 2, 6);
    check_latent(37, 3, 7, 2, 3);
    check_latent(40, 5, 12, 4, 16);
    check_latent(9, 16, 128, 64, 128);
    check_latent(300, 2, 16, 8, 24);
    check_latent(5, 3, 2000, 640, 104);
    check_fit(1, 1, 1);
    check_fit(7, 5, 33);
    check_fit(5, 7, 300);
    check_fit(128, 192, 70);
    check_fit(192, 128, 70);
    check_fit(12, 20, 9);
    check_fit(5000, 3000, 3);
}

/* ---- a case or two of each kernel, for the interpreter of PTX, which is
 * slow ---- */

static void ptx_hopper(void)
{
    /* The heads of the first come one after another into the same places. */
    static const struct attn_case cases[] = {
        {1, 60, 5, 1, 128, 0, false},    {1, 140, 1, 1, 64, 0, true},
        {1, 150, 2, 1, 64, 0.2, false}, {1, 300, 1, 1, 128, 0, false},
    };

    if (!getenv("GPT_CUDA_PTX"))
        return;
    reopen("GPT_CUDA_EMU_ARCH", "90");
    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_attn("hopper attention", 1, cases[i], i == 2);
    reopen("GPT_CUDA_EMU_ARCH", "80");
}

static void ptx_attention(void)
{
    if (!getenv("GPT_CUDA_PTX"))
        return;
    check_attn("attention", 1, (struct attn_case){1, 100, 2, 1, 64, 0.2, true},
               GPT_ALIBI_NONE);
    check_attn("attention", 0, (struct attn_case){1, 33, 2, 2, 16, 0, true},
               GPT_ALIBI);
    softcap = 0.7F;
    check_attn("attention", 2, (struct attn_case){1, 40, 2, 1, 200, 0.1, true},
               GPT_ALIBI_NONE);
    softcap = 0;
    check_attn("attention", 2, (struct attn_case){1, 40, 2, 1, 200, 0.1, true},
               GPT_ALIBI_NONE);
    allow_tf32(true);
    check_attn("attention by TF32", 0,
               (struct attn_case){1, 70, 2, 1, 64, 0.2, true}, GPT_ALIBI_NONE);
    check_attn("attention by TF32", 0,
               (struct attn_case){1, 40, 1, 1, 128, 0, false}, GPT_ALIBI);
    allow_tf32(false);
    check_cached(5, 6, 2, 24, GPT_ALIBI);
    check_rope(1, 9, 3, 1, 80, 20, false);
    check_rope(1, 9, 3, 1, 32, 32, false);
}

static void ptx_rows(void)
{
    if (!getenv("GPT_CUDA_PTX"))
        return;
    check_flat(1023);
    check_norm(GPT_LAYERNORM, 9, 96, 0.2, true, true);
    check_norm(GPT_RMSNORM, 5, 33, 0, false, false);
    check_bias(37, 96);
    check_dropout(7, 40, 0.3);
    check_embed(33, 24, 0.1, true, 50);
    check_xent(3, 600, 590, 8, 9, true);
    check_ranks(5, 40, 110);
    check_adamw(1023, 3, true);
    check_sgd(65, true);
    check_mix(65);
    check_activate(5, 48, true);
    check_xielu(5, 48, 0);
    check_clip(100);
    check_bare();
    check_head_norm(GPT_RMSNORM, 7, 4, 2, 32, false);
    check_wide_norm(5, 4, 2, 16);
    check_softcap(100);
    reopen("GPT_CUDA_EMU_GEMM", "plain");
    check_matmul(17, 24, 40, false, true, false, 0, GPT_EPI_BIAS_GELU, 0);
    reopen("GPT_CUDA_EMU_GEMM", "library");
}

static void ptx_experts(void)
{
    static const struct experts_case cases[] = {
        {9, 4, 2, 1, 3, true, false, true, 24, 40, true, true},
        {70, 2, 1, 0, 2, false, true, false, 40, 16, false, false},
        {70, 1, 1, 0, 1, false, true, false, 16, 40, true, false},
        {9, 4, 2, 0, 4, false, false, false, 7, 9, true, false},
    };

    if (!getenv("GPT_CUDA_PTX"))
        return;
    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_experts(cases[i], NULL);
    check_gates(3, 40);
    set_groups(5, 2, 2);
    check_group_router(9, 4, 3, true, true);
    set_groups(0, 0, 0);
    check_latent(3, 2, 16, 8, 24);
    check_latent(3, 2, 5, 2, 3);
    check_fit(24, 40, 5);
    check_fit(5, 3, 5);
    allow_tf32(true);
    for (size_t i = 0; i < 3; i++)
        check_experts(cases[i], &tf32[1]);
    allow_tf32(false);
}

static const struct {
    const char *name;
    void (*run)(void);
} sections[] = {
    {"flat", flat},           {"products", products},
    {"rows", rows},           {"embeddings", embeddings},
    {"attention", attention}, {"hopper", hopper},
    {"floats", floats},
    {"choices", choices},     {"pieces", many_pieces},
    {"more", more},           {"sweep", random_shapes},
    {"failures", failures},   {"limits", limits},
    {"crowds", crowds},       {"experts", experts},
    {"latent", latent},
    {"ptx-hopper", ptx_hopper},
    {"ptx-attention", ptx_attention},
    {"ptx-rows", ptx_rows},
    {"ptx-experts", ptx_experts},
};

static bool wanted(const char *section, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], section) == 0)
            return true;
    return argc == 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < GPT_COUNT(sections); i++)
            puts(sections[i].name);
        return 0;
    }
    if (!open_devices())
        return tap_done();
    for (size_t i = 0; i < GPT_COUNT(sections); i++)
        if (wanted(sections[i].name, argc, argv))
            sections[i].run();
    close_devices();
    return tap_done();
}
