/* Compares operations in bf16 with the same operations in float, on inputs that
 * bf16 holds exactly: results are those of float, rounded once. */
#include "tests/unit/kernels.h"

enum { BUFFERS = 8, GUARD = 0x7fc1 };

/* A case's buffers, by the order of its calls of in() and out(): float ones for
 * the reference, bf16 ones beside them. */
struct pair {
    float *wide;
    uint16_t *narrow;
    int64_t n;
};
static struct pair pairs[BUFFERS];
static int n_pairs;

static struct pair *buffer(int64_t n, double scale, bool defined)
{
    struct pair *p = &pairs[n_pairs++];

    p->n = n;
    p->wide = malloc((size_t)(n + 1) * sizeof(*p->wide));
    p->narrow = malloc((size_t)(n + 1) * sizeof(*p->narrow));
    for (int64_t i = 0; i < n; i++) {
        p->narrow[i] = defined ? gpt_f32_to_bf16((float)(rnd() * scale))
                               : GUARD;
        p->wide[i] = gpt_bf16_to_f32(p->narrow[i]);
    }
    p->narrow[n] = GUARD; /* not to be written */
    return p;
}

static struct pair *in(int64_t n)
{
    return buffer(n, 1, true);
}

static struct pair *out(int64_t n)
{
    return buffer(n, 1, false);
}

/* Compares all of them and frees them. */
static void compare(const char *what)
{
    struct gpt_err err = {0};
    int64_t wrong = 0, past = 0, total = 0;

    if (be->sync(q, &err) != GPT_OK)
        ok(false, "%s: %s", what, err.text);
    for (int i = 0; i < n_pairs; i++) {
        struct pair *p = &pairs[i];

        for (int64_t k = 0; k < p->n; k++)
            wrong += p->narrow[k] != gpt_f32_to_bf16(p->wide[k]);
        past += p->narrow[p->n] != GUARD;
        total += p->n;
        free(p->wide);
        free(p->narrow);
    }
    n_pairs = 0;
    ok(wrong == 0 && past == 0, "%s: %lld of %lld elements wrong, %lld written "
       "past the end", what, (long long)wrong, (long long)total,
       (long long)past);
}

static struct gpt_dropout dropout(int64_t t)
{
    return (struct gpt_dropout){.p = 0.3F, .rng = gpt_rng_open(5, "test"),
                                .sample0 = 3, .t_local = t, .t_global = t};
}

/* What float made, as bf16 stores it. */
static void store(struct pair *p)
{
    for (int64_t i = 0; i < p->n; i++)
        p->wide[i] = gpt_bf16_to_f32(gpt_f32_to_bf16(p->wide[i]));
}

/* ---- the operations ---- */

static void matmul(int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                   enum gpt_epilogue epilogue, float beta)
{
    struct pair *a = in(m * k), *b = in(k * n), *bias = in(n);
    struct pair *c = in(m * n), *aux = in(m * n);
    struct gpt_matmul op = {
        .m = m, .n = n, .k = k, .ta = ta, .tb = tb, .act = GPT_F32,
        .c_type = GPT_F32, .beta = beta, .epilogue = epilogue,
        .a = a->wide, .b = b->wide, .c = c->wide, .bias = bias->wide,
        .aux = aux->wide,
    };

    if (epilogue == GPT_EPI_BIAS_GELU) {
        op.epilogue = GPT_EPI_BIAS;
        op.c = aux->wide;
        be->matmul(q, &op);
        op.epilogue = epilogue;
        store(aux);
        be->gelu(q, c->wide, aux->wide, m * n, GPT_F32);
    } else {
        be->matmul(q, &op);
    }
    op.act = op.c_type = GPT_BF16;
    op.a = a->narrow;
    op.b = b->narrow;
    op.c = c->narrow;
    op.bias = bias->narrow;
    op.aux = aux->narrow;
    be->matmul(q, &op);
    compare("matmul");
}

/* A weight gradient is float whatever the activations are. */
static void matmul_gradient(void)
{
    int64_t m = 17, n = 33, k = 40;
    struct pair *a = in(m * k), *b = in(k * n);
    float *c = rnd_floats(m * n, 1), *got = copied(c, m * n);
    struct gpt_matmul op = {.m = m, .n = n, .k = k, .ta = true, .act = GPT_F32,
                            .c_type = GPT_F32, .beta = 1, .a = a->wide,
                            .b = b->wide, .c = c};

    be->matmul(q, &op);
    op.act = GPT_BF16;
    op.a = a->narrow;
    op.b = b->narrow;
    op.c = got;
    be->matmul(q, &op);
    ok(memcmp(c, got, (size_t)(m * n) * sizeof(*c)) == 0,
       "a gradient's sum is the one of float");
    compare("its operands");
    free(c);
    free(got);
}

/* Rows of c further apart than they are wide: what is between stays. */
static void matmul_gap(void)
{
    int64_t m = 3, n = 4, ld = 6;
    struct pair *a = in(m * 5), *b = in(5 * n), *c = in(m * ld - (ld - n));
    struct gpt_matmul op = {.m = m, .n = n, .k = 5, .ldc = ld, .act = GPT_F32,
                            .c_type = GPT_F32, .a = a->wide, .b = b->wide,
                            .c = c->wide};

    be->matmul(q, &op);
    op.act = op.c_type = GPT_BF16;
    op.a = a->narrow;
    op.b = b->narrow;
    op.c = c->narrow;
    be->matmul(q, &op);
    compare("matmul with gaps between rows");
}

static void norms(bool x_given)
{
    int64_t n = 13, c = 37;
    float mean[13], rstd[13], mean2[13], rstd2[13], dw[2][37], db[2][37];
    float *scratch = malloc(be->norm_scratch(n, c));
    struct pair *r = in(n * c), *x = in(n * c), *ro = out(n * c);
    struct pair *y = out(n * c), *w = in(c), *b = in(c), *dy = in(n * c);
    struct gpt_norm op = {
        .kind = GPT_LAYERNORM, .n = n, .c = c, .eps = 1e-5F, .act = GPT_F32,
        .resid_in = r->wide, .x = x_given ? x->wide : NULL,
        .resid_out = ro->wide, .y = y->wide, .w = w->wide, .b = b->wide,
        .mean = mean, .rstd = rstd, .dropout = dropout(n),
    };
    struct gpt_norm narrow = op;

    narrow.act = GPT_BF16;
    narrow.resid_in = r->narrow;
    narrow.x = x_given ? x->narrow : NULL;
    narrow.resid_out = ro->narrow;
    narrow.y = y->narrow;
    narrow.w = w->narrow;
    narrow.b = b->narrow;
    narrow.mean = mean2;
    narrow.rstd = rstd2;
    be->norm_fwd(q, &narrow);
    op.y = NULL; /* the sum, which is stored, then its norm */
    be->norm_fwd(q, &op);
    store(ro);
    op.y = y->wide;
    op.resid_in = ro->wide;
    op.x = NULL;
    be->norm_fwd(q, &op);
    ok(memcmp(rstd, rstd2, sizeof(rstd)) == 0, "statistics are those of float");
    struct pair *dr = in(n * c);
    struct gpt_norm_grad grad = {dy->wide, dr->wide, NULL, dw[0], db[0],
                                 scratch};
    memset(dw, 0, sizeof(dw));
    memset(db, 0, sizeof(db));
    be->norm_bwd(q, &op, &grad);
    struct gpt_norm_grad grad2 = {dy->narrow, dr->narrow, NULL, dw[1], db[1],
                                  scratch};
    be->norm_bwd(q, &narrow, &grad2);
    ok(memcmp(dw[0], dw[1], sizeof(dw[0])) == 0 &&
           memcmp(db[0], db[1], sizeof(db[0])) == 0,
       "gradients of norms are those of float");
    compare("norm");
    free(scratch);
}

static void attention(int64_t h, int64_t g)
{
    int64_t b = 2, t = 19, d = 16, width = (h + 2 * g) * d;
    float lse[2][2 * 4 * 19];
    struct pair *qkv = in(b * t * width), *o = out(b * t * h * d);
    struct pair *dout = in(b * t * h * d), *dqkv = out(b * t * width);
    struct gpt_attn op = {
        .b = b, .t = t, .h = h, .g = g, .d = d, .h_global = h, .scale = 0.25F,
        .act = GPT_F32, .qkv = qkv->wide, .out = o->wide, .lse = lse[0],
        .dropout = dropout(t),
    };
    struct gpt_attn narrow = op;

    narrow.act = GPT_BF16;
    narrow.qkv = qkv->narrow;
    narrow.out = o->narrow;
    narrow.lse = lse[1];
    be->attn_fwd(q, &op);
    be->attn_fwd(q, &narrow);
    for (int64_t i = 0; i < b * t * h * d; i++)
        o->wide[i] = gpt_bf16_to_f32(o->narrow[i]);
    void *scratch = malloc(be->attn_scratch(&op));
    struct gpt_attn_grad grad = {dout->wide, dqkv->wide, scratch};
    be->attn_bwd(q, &op, &grad);
    struct gpt_attn_grad grad2 = {dout->narrow, dqkv->narrow, scratch};
    be->attn_bwd(q, &narrow, &grad2);
    compare("attention");
    free(scratch);
}

static void embedding(void)
{
    enum { N = 9, C = 300, V = 20 };
    int32_t tokens[N], positions[N];
    float dwte[2][V * C] = {{0}}, dwpe[2][N * C] = {{0}};
    struct pair *wte = in(V * C), *wpe = in(N * C), *o = out(N * C);
    struct pair *dout = in(N * C);
    for (int i = 0; i < N; i++) {
        tokens[i] = (int32_t)rnd_int(0, V + 3); /* some held elsewhere */
        positions[i] = i;
    }
    struct gpt_embed op = {
        .n = N, .c = C, .v_begin = 2, .v_local = V, .act = GPT_F32,
        .tokens = tokens, .positions = positions, .wte = wte->wide,
        .wpe = wpe->wide, .out = o->wide, .dropout = dropout(N),
    };
    be->embed_fwd(q, &op);
    be->embed_bwd(q, &op, dout->wide, dwte[0], dwpe[0]);
    op.act = GPT_BF16;
    op.wte = wte->narrow;
    op.wpe = wpe->narrow;
    op.out = o->narrow;
    be->embed_fwd(q, &op);
    be->embed_bwd(q, &op, dout->narrow, dwte[1], dwpe[1]);
    ok(memcmp(dwte[0], dwte[1], sizeof(dwte[0])) == 0 &&
           memcmp(dwpe[0], dwpe[1], sizeof(dwpe[0])) == 0,
       "gradients of tables are those of float");
    compare("embedding");
}

static void loss(bool grad)
{
    enum { N = 7, V = 50 };
    int32_t target[N];
    float weight[N], losses[2][N];
    struct pair *logits = in(N * V);
    for (int i = 0; i < N; i++) {
        target[i] = (int32_t)rnd_int(0, V - 3);
        weight[i] = i == 3 ? 0 : 0.25F;
    }
    struct gpt_xent op = {.n = N, .v = V, .v_real = V - 2, .ld = V,
                          .act = GPT_F32, .logits = logits->wide,
                          .target = target, .weight = weight,
                          .loss = losses[0], .grad = grad};
    be->xent(q, &op);
    op.act = GPT_BF16;
    op.logits = logits->narrow;
    op.loss = losses[1];
    be->xent(q, &op);
    ok(memcmp(losses[0], losses[1], sizeof(losses[0])) == 0,
       "losses are those of float");
    compare("cross-entropy");
}

static void small_ones(void)
{
    enum { M = 11, N = 70 };
    float dbias[2][N] = {{0}};
    struct pair *x = in(M * N), *bias = in(N), *y = out(M * N);
    struct gpt_dropout d = dropout(M);
    be->bias_add(q, x->wide, bias->wide, M, N, GPT_F32);
    be->bias_add(q, x->narrow, bias->narrow, M, N, GPT_BF16);
    for (int i = 0; i < M * N; i++)
        x->wide[i] = gpt_bf16_to_f32(x->narrow[i]);
    be->dropout(q, y->wide, x->wide, M, N, GPT_F32, &d);
    be->dropout(q, y->narrow, x->narrow, M, N, GPT_BF16, &d);
    be->bias_grad(q, dbias[0], x->wide, M, N, GPT_F32);
    be->bias_grad(q, dbias[1], x->narrow, M, N, GPT_BF16);
    ok(memcmp(dbias[0], dbias[1], sizeof(dbias[0])) == 0,
       "a bias's gradient is the one of float");
    compare("bias and dropout");
}

/* The optimizer's copy of parameters in bf16. */
static void adamw(void)
{
    enum { N = 1000 };
    struct gpt_adamw_segment segment = {0, true};
    float *p = rnd_floats(N, 1), *m = calloc(N, sizeof(*m));
    float *v = calloc(N, sizeof(*v)), *g = rnd_floats(N, 1);
    uint16_t narrow[N];
    int wrong = 0;
    struct gpt_adamw op = {
        .n = N, .p = p, .m = m, .v = v, .g = g, .p_act = narrow,
        .act = GPT_BF16, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
        .weight_decay = 0.1, .grad_scale = 1, .step = 1, .segments = &segment,
        .n_segments = 1,
    };
    be->adamw(q, &op);
    for (int i = 0; i < N; i++)
        wrong += narrow[i] != gpt_f32_to_bf16(p[i]);
    is_int(wrong, 0, "parameters of an update, rounded");
    free(p);
    free(m);
    free(v);
    free(g);
}

int main(void)
{
    struct gpt_err err;

    if (gpt_backend_cpu(&be, &err) || be->queue_open(be, &q, &err)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    matmul(33, 50, 65, false, true, GPT_EPI_BIAS, 0);
    matmul(5, 50, 65, false, true, GPT_EPI_BIAS_GELU, 0); /* few rows */
    matmul(33, 50, 65, false, false, GPT_EPI_DGELU, 0);
    matmul(33, 50, 65, true, false, GPT_EPI_NONE, 1);
    /* several blocks, sums in parts */
    matmul(300, 400, 270, false, true, GPT_EPI_BIAS_GELU, 0);
    matmul(150, 790, 260, true, false, GPT_EPI_NONE, 1);
    matmul(290, 385, 30, true, true, GPT_EPI_DGELU, 0);
    matmul(3, 40, 0, false, true, GPT_EPI_BIAS, 0);
    matmul_gradient();
    matmul_gap();
    norms(true);
    norms(false);
    attention(4, 4);
    attention(4, 2);
    embedding();
    loss(true);
    loss(false);
    small_ones();
    adamw();
    be->queue_close(q);
    return tap_done();
}
