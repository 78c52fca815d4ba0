/* Norms, dropout and embeddings: forward is compared with a reference in
 * double, backward with central differences of that reference. */
#include "tests/unit/kernels.h"

/* What a row of counters says, by the definition in backend.h. */
static double keep(const struct gpt_dropout *d, int64_t row, int64_t j,
                   int64_t c)
{
    if (d->p == 0)
        return 1;
    int64_t b = row / d->t_local, t = row % d->t_local;
    int64_t at = ((d->sample0 + b) * d->t_global + d->t0 + t) * c + j;
    return gpt_rng_uniform(d->rng, (uint64_t)at) < d->p
               ? 0
               : 1 / (1 - (double)d->p);
}

static struct gpt_dropout some_dropout(float p, int64_t t_local)
{
    return (struct gpt_dropout){.p = p,
                                .rng = {{0x1234567, 0x89abcdef}},
                                .sample0 = 3,
                                .t_local = t_local,
                                .t_global = 2 * t_local + 1,
                                .t0 = t_local};
}

static double scale(const struct gpt_norm *op, const float *w, int64_t j)
{
    return (double)w[j] + (op->plus_one ? 1 : 0);
}

/* resid, y, mean, rstd of one row in double */
static void ref_row(const struct gpt_norm *op, int64_t i, const double *x,
                    double *y, double *mean, double *rstd)
{
    int64_t c = op->c;
    const float *w = op->w, *b = op->b;
    double m = 0, s = 0;

    for (int64_t j = 0; j < c && op->kind == GPT_LAYERNORM; j++)
        m += x[j] / (double)c;
    for (int64_t j = 0; j < c; j++)
        s += (x[j] - m) * (x[j] - m) / (double)c;
    double r = 1 / sqrt(s + (double)op->eps);
    for (int64_t j = 0; j < c; j++)
        y[j] =
            (x[j] - m) * r * scale(op, w, j) + (b ? (double)b[j] : 0);
    mean[i] = m;
    rstd[i] = r;
}

struct norm_case {
    struct gpt_norm op;
    struct gpt_norm_grad grad;
    float *outputs; /* y, resid_out, rstd in one block: for comparison */
    float *dresid0, *dw0;
    int64_t n_grads;
};

static void run_norm(void *ctx)
{
    struct norm_case *k = ctx;

    poison(k->outputs, 2 * k->op.n * k->op.c + 2 * k->op.n);
    if (k->op.kind == GPT_RMSNORM)
        memset(k->op.mean, 0, (size_t)k->op.n * sizeof(float));
    be->norm_fwd(q, &k->op);
}

static void run_norm_grad(void *ctx)
{
    struct norm_case *k = ctx;
    int64_t n = k->op.n, c = k->op.c;
    float *dresid = k->grad.dresid;

    memcpy(dresid, k->dresid0, (size_t)(n * c) * sizeof(float));
    poison(dresid + n * c, n * c);
    memcpy(dresid + 2 * n * c, k->dw0, (size_t)(2 * c) * sizeof(float));
    be->norm_bwd(q, &k->op, &k->grad);
}

/* The reference's gradients by the chain rule in double, from x = resid. */
static void ref_grad(const struct norm_case *k, double *mean, double *rstd,
                     double *want)
{
    const struct gpt_norm *op = &k->op;
    int64_t n = op->n, c = op->c;
    const float *x = op->resid_out, *dy = k->grad.dy, *w = op->w;
    double *dr = want, *dx = want + n * c, *dw = want + 2 * n * c, *db = dw + c;

    for (int64_t j = 0; j < 2 * c; j++)
        dw[j] = (double)k->dw0[j];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < c; j++)
            dx[j] = (double)x[i * c + j];
        ref_row(op, 0, dx, dr, &mean[i], &rstd[i]); /* of the float residual */
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, dot = 0;

        for (int64_t j = 0; j < c; j++) {
            double xhat = ((double)x[i * c + j] - mean[i]) * rstd[i];
            double g = (double)dy[i * c + j];

            sum += g * scale(op, w, j) / (double)c;
            dot += g * scale(op, w, j) * xhat / (double)c;
            dw[j] += g * xhat;
            db[j] += g;
        }
        if (op->kind == GPT_RMSNORM)
            sum = 0;
        for (int64_t j = 0; j < c; j++) {
            int64_t e = i * c + j;
            double xhat = ((double)x[e] - mean[i]) * rstd[i];

            dr[e] = (double)k->dresid0[e] +
                    ((double)dy[e] * scale(op, w, j) - sum - xhat * dot) *
                        rstd[i];
            dx[e] = dr[e] * keep(&op->dropout, i, j, c);
        }
    }
}

/* dL/dx of L = sum(dy * y) by differences, at a few places */
static void check_slopes(const struct norm_case *k, const double *resid,
                         const char *name)
{
    int64_t c = k->op.c;
    double err = 0;
    double *x = malloc((size_t)(2 * c) * sizeof(*x)), *y = x + c, mean, rstd;

    for (int trial = 0; trial < 5; trial++) {
        int64_t i = rnd_int(0, k->op.n - 1), j = rnd_int(0, c - 1);
        double loss[2], h = 1e-5;
        struct gpt_norm one = k->op;

        for (int side = 0; side < 2; side++) {
            memcpy(x, resid + i * c, (size_t)c * sizeof(*x));
            x[j] += side ? h : -h;
            ref_row(&one, 0, x, y, &mean, &rstd);
            loss[side] = 0;
            for (int64_t l = 0; l < c; l++)
                loss[side] +=
                    y[l] * (double)((const float *)k->grad.dy)[i * c + l];
        }
        double got = (double)((float *)k->grad.dresid)[i * c + j] -
                     (double)k->dresid0[i * c + j];
        double want = (loss[1] - loss[0]) / (2 * h);
        err = fmax(err, fabs(got - want) / (1 + fabs(want)));
    }
    ok(err < 2e-5, "%s: gradient is the slope (error %.2g)", name, err);
    free(x);
}

static void check_norm(enum gpt_norm_kind kind, int64_t n, int64_t c, float p,
                       bool with_x, bool with_b)
{
    struct norm_case k = {0};
    float *in = rnd_floats(n * c, 2), *x = rnd_floats(n * c, 1);
    float *w = rnd_floats(c, 1), *b = rnd_floats(c, 1);
    float *out = poisoned(2 * n * c + 2 * n), *dy = rnd_floats(n * c, 1);
    float *grads = poisoned(2 * n * c + 2 * c);
    float *scratch = malloc(be->norm_scratch(n, c));

    k.outputs = out;
    k.dresid0 = rnd_floats(n * c, 1);
    k.dw0 = rnd_floats(2 * c, 1);
    k.op = (struct gpt_norm){.kind = kind,
                             .plus_one = c % 3 == 1,
                             .n = n,
                             .c = c,
                             .eps = c > 1 ? 1e-5f : 0.1f,
                             .act = GPT_F32,
                             .resid_in = in,
                             .x = with_x ? x : NULL,
                             .y = out,
                             .resid_out = out + n * c,
                             .mean = out + 2 * n * c,
                             .rstd = out + 2 * n * c + n,
                             .w = w,
                             .b = with_b ? b : NULL,
                             .dropout = some_dropout(p, n > 3 ? 3 : n)};
    k.grad = (struct gpt_norm_grad){.dy = dy,
                                    .dresid = grads,
                                    .dx = grads + n * c,
                                    .dw = grads + 2 * n * c,
                                    .db = with_b ? grads + 2 * n * c + c : NULL,
                                    .scratch = scratch};
    char name[100];
    snprintf(name, sizeof(name), "%s: %s %lldx%lld p %g%s%s", setting,
             kind == GPT_LAYERNORM ? "layernorm" : "rmsnorm", (long long)n,
             (long long)c, (double)p, with_x ? " x" : "", with_b ? " b" : "");
    bool same = same_bytes(run_norm, &k, out, 2 * n * c + 2 * n);
    ok(same, "%s: forward equal for 1, 2, 3 threads", name);

    double *want = malloc((size_t)(2 * n * c + 2 * c + 2 * n) * sizeof(*want));
    double *resid = want + n * c, *mean = want + 2 * n * c + 2 * c,
           *rstd = mean + n;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < c; j++)
            resid[i * c + j] =
                (double)in[i * c + j] +
                (with_x ? (double)x[i * c + j] * keep(&k.op.dropout, i, j, c)
                        : 0);
        ref_row(&k.op, i, resid + i * c, want + i * c, mean, rstd);
    }
    close_to(out, want, n * c, 1e-5, "%s: y", name);
    close_to(k.op.resid_out, resid, n * c, 2e-7, "%s: resid_out", name);
    close_to(k.op.mean, mean, n, 2e-6, "%s: mean", name);
    close_to(k.op.rstd, rstd, n, 2e-6, "%s: rstd", name);

    same =
        same_bytes(run_norm_grad, &k, grads, 2 * n * c + (with_b ? 2 : 1) * c);
    ok(same, "%s: backward equal for 1, 2, 3 threads", name);
    check_slopes(&k, resid, name);
    ref_grad(&k, mean, rstd, want);
    close_to(grads, want, n * c, 2e-5, "%s: dresid", name);
    close_to(grads + n * c, want + n * c, n * c, 2e-5, "%s: dx", name);
    close_to(grads + 2 * n * c, want + 2 * n * c, (with_b ? 2 : 1) * c, 2e-5,
             "%s: dw, db", name);
    free(in), free(x), free(w), free(b), free(out), free(dy), free(grads);
    free(scratch), free(k.dresid0), free(k.dw0), free(want);
}

struct drop_case {
    struct gpt_dropout d;
    const float *x;
    float *y;
    int64_t n, c;
};

static void run_dropout(void *ctx)
{
    struct drop_case *k = ctx;

    poison(k->y, k->n * k->c);
    be->dropout(q, k->y, k->x, k->n, k->c, GPT_F32, &k->d);
}

static void check_dropout(int64_t n, int64_t c, float p)
{
    float *x = rnd_floats(n * c, 1), *y = poisoned(n * c);
    struct drop_case k = {some_dropout(p, 4), x, y, n, c};

    ok(same_bytes(run_dropout, &k, y, n * c),
       "%s: dropout %lldx%lld equal for 1, 2, 3 threads", setting, (long long)n,
       (long long)c);
    int64_t wrong = 0, kept = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < c; j++) {
            double f = keep(&k.d, i, j, c);
            double want = f * (double)x[i * c + j];

            kept += f > 0;
            wrong += !(fabs((double)y[i * c + j] - want) <= 2e-7 * fabs(want));
        }
    is_int(wrong, 0, "%s: dropout %lldx%lld p %g by its counters", setting,
           (long long)n, (long long)c, (double)p);
    if (n * c > 5000)
        is_near((double)kept / (double)(n * c), 1 - (double)p, 0, 0.02,
                "%s: share kept", setting);
    be->dropout(q, y, y, n, c, GPT_F32, &k.d); /* in place: mask twice */
    wrong = 0;
    for (int64_t i = 0; i < n * c; i++) {
        double f = keep(&k.d, i / c, i % c, c);
        double want = f * f * (double)x[i];

        wrong += !(fabs((double)y[i] - want) <= 4e-7 * fabs(want));
    }
    is_int(wrong, 0, "%s: dropout in place", setting);
    free(x), free(y);
}

struct embed_case {
    struct gpt_embed op;
    const float *dout;
    float *grads;
    int64_t n_pos;
};

static void run_embed(void *ctx)
{
    struct embed_case *k = ctx;

    poison(k->op.out, k->op.n * k->op.c);
    be->embed_fwd(q, &k->op);
}

static void run_embed_grad(void *ctx)
{
    struct embed_case *k = ctx;
    int64_t words = k->op.v_local * k->op.c, all = words + k->n_pos * k->op.c;

    for (int64_t i = 0; i < all; i++)
        k->grads[i] = 0.5f;
    const struct gpt_embed_grad grad = {
        .dout = k->dout, .dwte = k->grads,
        .dwpe = k->op.wpe ? k->grads + words : NULL};
    be->embed_bwd(q, &k->op, &grad);
}

static void check_embed(int64_t n, int64_t c, float p, bool with_pos)
{
    enum { V = 11, POS = 9, BEGIN = 4 };
    int32_t *tokens = malloc((size_t)(2 * n) * sizeof(*tokens));
    int32_t *positions = tokens + n;
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)rnd_int(0, V + 2 * BEGIN - 1); /* some elsewhere */
        positions[i] = (int32_t)rnd_int(0, POS - 1);
    }
    float *wte = rnd_floats(V * c, 1), *wpe = rnd_floats(POS * c, 1);
    float *out = poisoned(n * c), *dout = rnd_floats(n * c, 1);
    float *grads = poisoned((V + POS) * c);
    struct embed_case k = {{.n = n, .c = c, .v_begin = BEGIN, .v_local = V,
                            .act = GPT_F32, .tokens = tokens,
                            .positions = positions, .wte = wte,
                            .wpe = with_pos ? wpe : NULL, .out = out,
                            .dropout = some_dropout(p, 5)},
                           dout,
                           grads,
                           POS};
    double *want = calloc((size_t)(n * c + (V + POS) * c), sizeof(*want));
    double *dw = want + n * c, *dp = dw + V * c;
    for (int64_t i = 0; i < (V + POS) * c; i++)
        dw[i] = 0.5;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < c; j++) {
            int64_t row = tokens[i] - BEGIN;
            bool here = row >= 0 && row < V;
            double f = keep(&k.op.dropout, i, j, c);
            double x = here ? (double)wte[row * c + j] : 0;

            x += with_pos ? (double)wpe[positions[i] * c + j] : 0;
            want[i * c + j] = x * f;
            if (here)
                dw[row * c + j] += f * (double)dout[i * c + j];
            if (with_pos)
                dp[positions[i] * c + j] += f * (double)dout[i * c + j];
        }
    char name[80];
    snprintf(name, sizeof(name), "%s: embed %lldx%lld p %g pos %d", setting,
             (long long)n, (long long)c, (double)p, with_pos);
    ok(same_bytes(run_embed, &k, out, n * c), "%s: equal for 1, 2, 3 threads",
       name);
    close_to(out, want, n * c, 5e-7, "%s: forward", name);
    ok(same_bytes(run_embed_grad, &k, grads, (V + POS) * c),
       "%s: backward equal for 1, 2, 3 threads", name);
    close_to(grads, dw, (V + POS) * c, 5e-6, "%s: dwte, dwpe", name);
    /* nothing to do is allowed */
    be->embed_bwd(q, &k.op, &(struct gpt_embed_grad){.dout = dout});
    free(tokens), free(wte), free(wpe), free(out), free(dout), free(grads);
    free(want);
}

/* Without y: the sum with dropout, and nothing else. */
static void check_sum_only(int64_t n, int64_t c)
{
    float *r = rnd_floats(n * c, 1), *x = rnd_floats(n * c, 1);
    float *sum = poisoned(n * c), *want = poisoned(n * c), *y = poisoned(n * c);
    float *w = rnd_floats(c, 1), *mean = poisoned(n), *rstd = poisoned(n);
    struct gpt_norm op = {
        .n = n, .c = c, .eps = 1e-5f, .act = GPT_F32, .resid_in = r, .x = x,
        .resid_out = want, .y = y, .w = w, .mean = mean, .rstd = rstd,
        .dropout = some_dropout(0.4f, n)};

    be->norm_fwd(q, &op);
    op.resid_out = sum;
    op.y = NULL;
    op.w = NULL;
    op.mean = op.rstd = NULL;
    be->norm_fwd(q, &op);
    ok(memcmp(sum, want, (size_t)(n * c) * sizeof(*sum)) == 0,
       "%s: norm without y is the sum alone", setting);
    free(r), free(x), free(sum), free(want), free(y), free(w), free(mean);
    free(rstd);
}

/* No weights are weights of one, forward and backward. */
static void check_bare(enum gpt_norm_kind kind, int64_t n, int64_t c)
{
    float *in = rnd_floats(n * c, 2), *dy = rnd_floats(n * c, 1);
    float *dresid = rnd_floats(n * c, 1), *w = malloc((size_t)c * sizeof(*w));
    float *out[2], *scratch = malloc(be->norm_scratch(n, c));
    const size_t bytes = (size_t)(n * c) * sizeof(float);

    for (int64_t j = 0; j < c; j++)
        w[j] = 1;
    for (int i = 0; i < 2; i++) {
        float *dw = malloc((size_t)c * sizeof(*dw));

        out[i] = poisoned(3 * n * c + 2 * n);
        struct gpt_norm op = {.kind = kind, .n = n, .c = c, .eps = 1e-5F,
                              .act = GPT_F32, .resid_in = in,
                              .resid_out = out[i] + 2 * n * c, .y = out[i],
                              .w = i ? NULL : w, .mean = out[i] + 3 * n * c,
                              .rstd = out[i] + 3 * n * c + n};
        struct gpt_norm_grad grad = {.dy = dy, .dresid = out[i] + n * c,
                                     .dw = i ? NULL : dw, .scratch = scratch};

        memcpy(out[i] + n * c, dresid, bytes);
        be->norm_fwd(q, &op);
        op.y = NULL; /* backward may not know where it was */
        be->norm_bwd(q, &op, &grad);
        free(dw);
    }
    ok(memcmp(out[0], out[1], 3 * bytes) == 0, "%s: norm %d %lldx%lld without "
       "weights", setting, (int)kind, (long long)n, (long long)c);
    free(in), free(dy), free(dresid), free(w), free(scratch);
    free(out[0]), free(out[1]);
}

static void body(void)
{
    check_sum_only(9, 37);
    static const int64_t shapes[][2] = {{1, 1},   {1, 9},    {5, 16},
                                        {37, 67}, {70, 129}, {600, 40}};
    for (size_t i = 0; i < GPT_COUNT(shapes); i++)
        for (int kind = 0; kind < 2; kind++) {
            int64_t n = shapes[i][0], c = shapes[i][1];

            check_norm((enum gpt_norm_kind)kind, n, c, 0, i & 1, true);
            check_norm((enum gpt_norm_kind)kind, n, c, 0.3f, true, kind == 0);
        }
    check_bare(GPT_LAYERNORM, 70, 133);
    check_bare(GPT_RMSNORM, 3, 64);
    check_dropout(1, 1, 0.5f);
    check_dropout(33, 201, 0.1f);
    check_dropout(9, 7, 0);
    check_embed(1, 1, 0, true);
    check_embed(50, 70, 0.2f, true);
    check_embed(50, 129, 0, false);
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
