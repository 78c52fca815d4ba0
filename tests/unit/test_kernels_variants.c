/* Operations of variants of the architecture: activations, gated or not, and
 * norms of heads. Forward is compared with a reference in double, backward with
 * central differences of that reference. */
#include "tests/unit/kernels.h"

/* ---- activations ---- */

/* What XIELU is trained to. */
static float alpha_p = 0.3F, alpha_n = -0.7F;

static double xielu(double p, double n, double x)
{
    double above = log1p(exp(p)), below = 0.5 + log1p(exp(n));

    return x > 0 ? above * x * x + x / 2 : below * (expm1(x) - x) + x / 2;
}

static double reference(enum gpt_activation kind, double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);

    switch (kind) {
    case GPT_GELU:
        return x / (1 + exp(-2 * u)); /* 0.5 x (1 + tanh u) */
    case GPT_GELU_EXACT:
        return 0.5 * x * erfc(-x / sqrt(2));
    case GPT_SILU:
        return x / (1 + exp(-x));
    case GPT_RELU:
        return fmax(x, 0);
    case GPT_SQUARED_RELU:
        return fmax(x, 0) * fmax(x, 0);
    case GPT_XIELU:
        return xielu((double)alpha_p, (double)alpha_n, x);
    }
    return (double)NAN;
}

/* At a kink neither side's slope is wrong: inputs of tests avoid it. */
static double slope(enum gpt_activation kind, double x)
{
    double h = 1e-5;

    return (reference(kind, x + h) - reference(kind, x - h)) / (2 * h);
}

struct activate_case {
    struct gpt_activate op;
    const float *dout;
    float *dpre;
    int64_t wide;
};

static void run_activate(void *ctx)
{
    struct activate_case *k = ctx;

    poison(k->op.out, k->op.n * k->op.f + k->op.n * k->wide);
    be->activate(q, &k->op);
    be->activate_bwd(q, &k->op, k->dout, k->dpre);
}

static void check_activate(enum gpt_activation kind, int64_t n, int64_t f,
                           bool gated)
{
    int64_t wide = gated ? 2 * f : f, outs = n * f, ins = n * wide;
    float *pre = rnd_floats(ins, 9), *dout = rnd_floats(outs, 1);
    float *out = poisoned(outs + ins);
    double *want = malloc((size_t)(outs + ins) * sizeof(*want));
    struct activate_case k = {
        .op = {.kind = kind, .gated = gated, .n = n, .f = f, .act = GPT_F32,
               .pre = pre, .out = out, .alpha_p = &alpha_p,
               .alpha_n = &alpha_n},
        .dout = dout, .dpre = out + outs, .wide = wide};
    char name[80];

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < f; j++) {
            double x = (double)pre[i * wide + j];
            double up = gated ? (double)pre[i * wide + f + j] : 1;
            double d = (double)dout[i * f + j];
            double *dpre = want + outs + i * wide;

            want[i * f + j] = reference(kind, x) * up;
            dpre[j] = d * slope(kind, x) * up;
            if (gated)
                dpre[f + j] = d * reference(kind, x);
        }
    snprintf(name, sizeof(name), "%s: activation %d %lldx%lld%s", setting,
             (int)kind, (long long)n, (long long)f, gated ? " gated" : "");
    ok(same_bytes(run_activate, &k, out, outs + ins),
       "%s: equal for 1, 2, 3 threads", name);
    /* numbers of a float, and what follows from them, are rounded there */
    close_to(out, want, outs, kind == GPT_XIELU ? 1e-6 : 4e-7, "%s: forward",
             name);
    close_to(out + outs, want + outs, ins, 3e-6, "%s: backward", name);
    pre[0] = NAN;
    be->activate(q, &k.op);
    ok(isnan(out[0]), "%s: NaN stays", name);
    free(pre), free(dout), free(out), free(want);
}

/* Far from 0, and very near it, where sums of floats have no digits left. */
static void check_far(void)
{
    enum { N = 12 };

    float pre[N] = {-1e30F, -3e8F, -2e5F, -90, -20, -0.5F,
                    -1e-3F, 0, 1e-3F, 90, 3e8F, 1e18F};
    float dout[N], out[N], dpre[N];
    const double n = (double)alpha_n, p = (double)alpha_p;
    struct gpt_activate op = {.kind = GPT_XIELU, .n = 1, .f = N, .act = GPT_F32,
                              .pre = pre, .out = out, .alpha_p = &alpha_p,
                              .alpha_n = &alpha_n};
    bool good = true;

    for (int i = 0; i < N; i++)
        dout[i] = 1;
    be->activate(q, &op);
    be->activate_bwd(q, &op, dout, dpre);
    for (int i = 0; i < N; i++) {
        const double x = (double)pre[i], y = xielu(p, n, x);
        const double slope = x > 0 ? 2 * log1p(exp(p)) * x + 0.5
                                   : (0.5 + log1p(exp(n))) * expm1(x) + 0.5;

        good = good && fabs((double)out[i] - y) <= 1e-6 * (fabs(y) + 1) &&
               fabs((double)dpre[i] - slope) <= 2e-6 * (fabs(slope) + 1);
    }
    ok(good, "%s: xielu far from 0", setting);
}

/* The gradients of XIELU's two numbers, beside central differences. */
static void run_alphas(void *ctx)
{
    struct activate_case *k = ctx;

    k->dpre[0] = k->dpre[1] = 0.25F;
    be->xielu_grads(q, &k->op, k->dout, k->dpre, k->dpre + 1);
}

static void check_alphas(int64_t n, int64_t f, enum gpt_dtype act)
{
    float *pre = rnd_floats(n * f, 3), *dout = rnd_floats(n * f, 1), got[2];
    uint16_t *narrow = malloc(2 * (size_t)(n * f) * sizeof(*narrow));
    uint16_t alpha[2];
    double want[2] = {0.25, 0.25}, h = 1e-4;
    struct activate_case k = {
        .op = {.kind = GPT_XIELU, .n = n, .f = f, .act = act, .pre = pre,
               .alpha_p = &alpha_p, .alpha_n = &alpha_n},
        .dout = dout, .dpre = got};
    const float p0 = alpha_p, n0 = alpha_n;

    if (act == GPT_BF16) {
        gpt_convert(narrow, GPT_BF16, pre, GPT_F32, n * f);
        gpt_convert(narrow + n * f, GPT_BF16, dout, GPT_F32, n * f);
        gpt_convert(pre, GPT_F32, narrow, GPT_BF16, n * f);
        gpt_convert(dout, GPT_F32, narrow + n * f, GPT_BF16, n * f);
        gpt_convert(alpha, GPT_BF16, &alpha_p, GPT_F32, 1);
        gpt_convert(alpha + 1, GPT_BF16, &alpha_n, GPT_F32, 1);
        gpt_convert(&alpha_p, GPT_F32, alpha, GPT_BF16, 1);
        gpt_convert(&alpha_n, GPT_F32, alpha + 1, GPT_BF16, 1);
        k.op.pre = narrow;
        k.dout = (const float *)(const void *)(narrow + n * f);
        k.op.alpha_p = alpha;
        k.op.alpha_n = alpha + 1;
    }
    for (int64_t i = 0; i < n * f; i++) {
        const double x = (double)pre[i], d = (double)dout[i] / (2 * h);
        const double p = (double)alpha_p, m = (double)alpha_n;

        want[0] += d * (xielu(p + h, m, x) - xielu(p - h, m, x));
        want[1] += d * (xielu(p, m + h, x) - xielu(p, m - h, x));
    }
    ok(same_bytes(run_alphas, &k, got, 2),
       "%s: xielu's numbers, %lldx%lld: equal for 1, 2, 3 threads", setting,
       (long long)n, (long long)f);
    close_to(got, want, 2, 2e-5, "%s: xielu's numbers, %lldx%lld %s", setting,
             (long long)n, (long long)f, gpt_dtype_name(act));
    alpha_p = p0, alpha_n = n0;
    free(pre), free(dout), free(narrow);
}

/* ---- what is cut off at a limit ---- */

static void check_clip(int64_t n)
{
    float *x = rnd_floats(n, 3), *d = rnd_floats(n, 1);
    float *y = malloc((size_t)n * sizeof(*y)), *g = malloc((size_t)n *
                                                           sizeof(*g));
    bool good = true;

    memcpy(y, x, (size_t)n * sizeof(*y));
    memcpy(g, d, (size_t)n * sizeof(*g));
    y[0] = NAN;
    be->clip(q, y, n, 1.5F, GPT_F32);
    be->clip_bwd(q, g, y, n, 1.5F, GPT_F32);
    for (int64_t i = 1; i < n; i++)
        good = good && y[i] == fminf(1.5F, fmaxf(-1.5F, x[i])) &&
               g[i] == (fabsf(x[i]) < 1.5F ? d[i] : 0);
    ok(good && isnan(y[0]) && !isnan(g[0]), "%s: clipped %lld", setting,
       (long long)n);
    free(x), free(d), free(y), free(g);
}

/* Every number of bf16 from 2^-30 to 9, of both signs: below -9 a gate of GELU
 * is less than float's exponential gives. */
enum { FROM = 0x3080, UPTO = 0x4110, NUMBERS = 2 * (UPTO - FROM) };

struct narrow_case {
    struct gpt_activate op;
    const uint16_t *dout;
    uint16_t *out;
};

static void run_narrow(void *ctx)
{
    struct narrow_case *k = ctx;

    be->activate(q, &k->op);
    be->activate_bwd(q, &k->op, k->dout, k->out + NUMBERS);
}

/* The largest error of `got`, over the rounding to bf16 of a result of size
 * `size`, or of `want` where that is larger. */
static double worse(double worst, uint16_t got, double want, double size)
{
    double error = fabs((double)gpt_bf16_to_f32(got) - want);
    double half = ldexp(1, ilogb(fmax(fabs(want), size)) - 8);

    return error < 1e300 ? fmax(worst, error / half) : HUGE_VAL; /* NaN */
}

/* Rows (F, 2F): gates are the numbers, ups and gradients are 3/4 and 1. */
static void check_narrow(enum gpt_activation kind, bool gated)
{
    uint16_t *pre = malloc(2 * NUMBERS * sizeof(*pre));
    float *mem = poisoned(3 * NUMBERS / 2);
    uint16_t *dout = malloc(NUMBERS * sizeof(*dout));
    uint16_t *out = (uint16_t *)mem;
    struct narrow_case k = {
        .op = {.kind = kind, .gated = gated, .n = 1, .f = NUMBERS,
               .act = GPT_BF16, .pre = pre, .out = out},
        .dout = dout, .out = out};
    double up = gated ? 0.75 : 1, worst[3] = {0};
    char name[80];

    for (int i = 0; i < NUMBERS; i++) {
        pre[i] = (uint16_t)((FROM + i / 2) | (i & 1) << 15);
        pre[NUMBERS + i] = gpt_f32_to_bf16(0.75F);
        dout[i] = gpt_f32_to_bf16(1);
    }
    snprintf(name, sizeof(name), "%s: bf16 activation %d%s", setting, (int)kind,
             gated ? " gated" : "");
    ok(same_bytes(run_narrow, &k, mem, (gated ? 3 : 2) * NUMBERS / 2),
       "%s: equal for 1, 2, 3 threads", name);
    for (int i = 0; i < NUMBERS; i++) {
        double x = (double)gpt_bf16_to_f32(pre[i]), y = reference(kind, x);

        worst[0] = worse(worst[0], out[i], y * up, 0);
        worst[1] = worse(worst[1], out[NUMBERS + i], up * slope(kind, x),
                         0.05);
        if (gated)
            worst[2] = worse(worst[2], out[2 * NUMBERS + i], y, 0);
    }
    for (int i = 0; i < 3; i++)
        ok(worst[i] <= 1.03, "%s: result %d is rounded once (%.2f)", name, i,
           worst[i]);
    pre[0] = 0x7fc0;
    be->activate(q, &k.op);
    ok(isnan((double)gpt_bf16_to_f32(out[0])), "%s: NaN stays", name);
    be->activate_bwd(q, &k.op, dout, out + NUMBERS);
    ok(isnan((double)gpt_bf16_to_f32(out[NUMBERS])),
       "%s: NaN stays in backward", name);
    free(pre), free(mem), free(dout);
}

/* ---- norms of heads ---- */

struct head_case {
    struct gpt_head_norm op;
    struct gpt_head_norm_grad grad;
    const float *dy;
    float *out;
    int64_t count, weights;
};

static void run_head_norm(void *ctx)
{
    struct head_case *k = ctx;
    float *dw = k->out + 2 * k->count;

    poison(k->out, k->count);
    memcpy(k->grad.dqkv, k->dy, (size_t)k->count * sizeof(float));
    for (int64_t j = 0; j < k->weights; j++)
        dw[j] = 0.25F;
    be->head_norm(q, &k->op);
    be->head_norm_bwd(q, &k->op, &k->grad);
}

/* The loss sum(dy * y) of one head. */
static double head_loss(const struct gpt_head_norm *op, const double *x,
                        const double *w, const double *b, const float *dy,
                        double *y)
{
    double mean = 0, square = 0, loss = 0;

    for (int64_t j = 0; j < op->d && op->kind == GPT_LAYERNORM; j++)
        mean += x[j] / (double)op->d;
    for (int64_t j = 0; j < op->d; j++)
        square += (x[j] - mean) * (x[j] - mean) / (double)op->d;
    for (int64_t j = 0; j < op->d; j++) {
        double v = (x[j] - mean) / sqrt(square + (double)op->eps) *
                       (w[j] + (op->plus_one ? 1 : 0)) + b[j];

        if (y)
            y[j] = v;
        loss += v * (double)dy[j];
    }
    return loss;
}

/* The slope of the loss by element j of v, which is x or w. */
static double head_slope(const struct gpt_head_norm *op, const double *x,
                         const double *w, const double *b, const float *dy,
                         double *v, int64_t j)
{
    double at = v[j], h = 1e-5, loss[2];

    for (int side = 0; side < 2; side++) {
        v[j] = at + (side ? h : -h);
        loss[side] = head_loss(op, x, w, b, dy, NULL);
    }
    v[j] = at;
    return (loss[1] - loss[0]) / (2 * h);
}

static void widen(double *to, const float *from, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        to[j] = from ? (double)from[j] : 0;
}

/* want: y, dx (count), then dwq, dbq, dwk, dbk; each: the first and the third
 * of all heads, and no others */
static void head_reference(const struct head_case *k, double *want)
{
    const struct gpt_head_norm *op = &k->op;
    int64_t d = op->d, heads = op->h / op->g + 2;
    double *dx = want + k->count, *dw = dx + k->count;
    double *x = malloc((size_t)(3 * d) * sizeof(*x)), *w = x + d, *b = w + d;

    for (int64_t j = 0; j < k->weights; j++)
        dw[j] = 0.25;
    for (int64_t i = 0; i < k->count / d; i++) {
        int64_t place = i % heads, at = i * d, group = i / heads % op->g;
        bool key = place == heads - 2;
        int64_t own = key ? group : group * (heads - 2) + place;
        const float *dy = k->dy + at, *weights = key ? op->wk : op->wq;
        double *mine = dw + (key ? 2 * d : 0);

        if (op->each) {
            mine = dw + (key ? op->h + own : own) * d;
            weights += own * d;
        }

        widen(x, (const float *)op->in + at, d);
        if (place == heads - 1) {
            memcpy(want + at, x, (size_t)d * sizeof(*x));
            widen(dx + at, dy, d);
            continue;
        }
        widen(w, weights, d);
        widen(b, key ? op->bk : op->bq, d);
        head_loss(op, x, w, b, dy, want + at);
        for (int64_t j = 0; j < d; j++) {
            dx[at + j] = head_slope(op, x, w, b, dy, x, j);
            mine[j] += head_slope(op, x, w, b, dy, w, j);
            if (!op->each)
                mine[d + j] += (double)dy[j];
        }
    }
    free(x);
}

static void check_head_norm(enum gpt_norm_kind kind, int64_t n, int64_t h,
                            int64_t g, int64_t d, bool plus_one)
{
    int64_t count = n * (h + 2 * g) * d, all = 2 * count + 4 * d;
    bool centred = kind == GPT_LAYERNORM;
    float *in = rnd_floats(count, 2), *dy = rnd_floats(count, 1);
    float *w = rnd_floats(4 * d, 1), *out = poisoned(all);
    float *dw = out + 2 * count;
    double *want = malloc((size_t)all * sizeof(*want));
    void *scratch = malloc(be->head_norm_scratch(n, d));
    struct head_case k = {
        .op = {.kind = kind, .plus_one = plus_one, .n = n, .h = h, .g = g,
               .d = d, .eps = d > 1 ? 1e-5F : 0.1F, .act = GPT_F32, .in = in,
               .out = out, .wq = w, .bq = centred ? w + d : NULL,
               .wk = w + 2 * d, .bk = centred ? w + 3 * d : NULL},
        .grad = {.dqkv = out + count, .dwq = dw,
                 .dbq = centred ? dw + d : NULL, .dwk = dw + 2 * d,
                 .dbk = centred ? dw + 3 * d : NULL, .scratch = scratch},
        .dy = dy, .out = out, .count = count, .weights = 4 * d};
    char name[80];

    snprintf(name, sizeof(name), "%s: head norm %d %lldx%lldx%lldx%lld",
             setting, (int)kind, (long long)n, (long long)h, (long long)g,
             (long long)d);
    ok(same_bytes(run_head_norm, &k, out, all), "%s: equal for 1, 2, 3 threads",
       name);
    head_reference(&k, want);
    close_to(out, want, count, 2e-6, "%s: forward", name);
    close_to(out + count, want + count, count, 2e-5, "%s: dx", name);
    for (int i = 0; i < 4; i++) {
        if (!centred && i % 2 == 1)
            for (int64_t j = 0; j < d; j++)
                want[2 * count + i * d + j] = 0.25;
        close_to(dw + i * d, want + 2 * count + i * d, d, 2e-5,
                 "%s: gradient of weights %d", name, i);
    }
    if (!plus_one && !centred) {
        /* no weights are weights of one */
        float *bare = malloc((size_t)count * sizeof(*bare));

        for (int64_t j = 0; j < 4 * d; j++)
            w[j] = 1;
        be->head_norm(q, &k.op);
        k.op.wq = k.op.wk = NULL;
        k.op.out = bare;
        be->head_norm(q, &k.op);
        ok(memcmp(out, bare, (size_t)count * sizeof(*bare)) == 0,
           "%s: without weights", name);
        k.op.wq = w, k.op.wk = w + 2 * d;
        free(bare);
    }
    k.op.out = in; /* generation norms in place */
    be->head_norm(q, &k.op);
    ok(memcmp(in, out, (size_t)count * sizeof(*in)) == 0, "%s: in place", name);
    free(in), free(dy), free(w), free(out), free(want), free(scratch);
}

/* Every head by its own weights. */
static void check_each(enum gpt_norm_kind kind, int64_t n, int64_t h, int64_t g,
                       int64_t d, bool plus_one)
{
    int64_t count = n * (h + 2 * g) * d, weights = (h + g) * d;
    int64_t all = 2 * count + weights;
    float *in = rnd_floats(count, 2), *dy = rnd_floats(count, 1);
    float *w = rnd_floats(weights, 1), *out = poisoned(all);
    double *want = malloc((size_t)all * sizeof(*want));
    void *scratch = malloc(be->head_norm_scratch(n, weights));
    struct head_case k = {
        .op = {.kind = kind, .plus_one = plus_one, .each = true, .n = n, .h = h,
               .g = g, .d = d, .eps = 1e-5F, .act = GPT_F32, .in = in,
               .out = out, .wq = w, .wk = w + h * d},
        .grad = {.dqkv = out + count, .dwq = out + 2 * count,
                 .dwk = out + 2 * count + h * d, .scratch = scratch},
        .dy = dy, .out = out, .count = count, .weights = weights};
    char name[80];

    snprintf(name, sizeof(name), "%s: norm of each head %d %lldx%lldx%lldx%lld",
             setting, (int)kind, (long long)n, (long long)h, (long long)g,
             (long long)d);
    ok(same_bytes(run_head_norm, &k, out, all), "%s: equal for 1, 2, 3 threads",
       name);
    head_reference(&k, want);
    close_to(out, want, count, 2e-6, "%s: forward", name);
    close_to(out + count, want + count, count, 2e-5, "%s: dx", name);
    close_to(out + 2 * count, want + 2 * count, weights, 2e-5,
             "%s: gradient of weights", name);
    free(in), free(dy), free(w), free(out), free(want), free(scratch);
}

static void body(void)
{
    for (int kind = GPT_GELU; kind <= GPT_SQUARED_RELU; kind++) {
        check_activate((enum gpt_activation)kind, 1, 1, false);
        check_activate((enum gpt_activation)kind, 3, 67, false);
        check_activate((enum gpt_activation)kind, 5, 33, true);
        check_activate((enum gpt_activation)kind, 70, 256, true);
    }
    check_activate(GPT_XIELU, 1, 1, false);
    check_activate(GPT_XIELU, 70, 133, false);
    check_far();
    check_alphas(1, 1, GPT_F32);
    check_alphas(70, 133, GPT_F32);
    check_alphas(5, 1030, GPT_BF16);
    check_clip(7);
    check_clip(9000);
    check_narrow(GPT_GELU, false);
    check_narrow(GPT_SILU, false);
    check_narrow(GPT_SILU, true);
    check_head_norm(GPT_RMSNORM, 1, 1, 1, 1, false);
    check_head_norm(GPT_RMSNORM, 37, 6, 3, 5, false);
    check_head_norm(GPT_LAYERNORM, 9, 4, 1, 24, false);
    check_head_norm(GPT_RMSNORM, 70, 2, 2, 64, true);
    check_each(GPT_LAYERNORM, 37, 6, 3, 5, false);
    check_each(GPT_RMSNORM, 70, 4, 1, 24, true);
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
