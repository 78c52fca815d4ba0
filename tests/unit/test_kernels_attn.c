/* Compares attention with a reference in double that keeps the whole T x T
 * matrix: forward, backward by the chain rule and by central differences, and
 * the cached form; rotary positions and ALiBi. */
#include "tests/unit/kernels.h"

struct attn_case {
    struct gpt_attn op;
    struct gpt_attn_grad grad;
    float *out; /* out, lse */
    float *dqkv;
    int64_t n_out, n_qkv, row;
};

/* in the cases that follow */
static enum gpt_alibi alibi;
static const char *const alibi_names[] = {"", " alibi", " alibi_bf16"};
static int64_t window;
static double softcap;
static bool narrow; /* caches of bf16 */

/* Whole numbers of heads as in the paper's code. */
static double ref_slope(int64_t head, int64_t heads)
{
    static const double twelve[] = {
        0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
        0.7071067811865476, 0.35355339059327384, 0.17677669529663692,
        0.08838834764831849};
    static const double others[][6] = {
        [3] = {0.0625, 0.00390625, 0.25},
        [4] = {0.25, 0.0625, 0.015625, 0.00390625},
        [5] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5},
        [6] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125},
    };

    if (!alibi)
        return 0;
    return heads == 12  ? twelve[head]
           : heads == 2 ? pow(2, -4.0 * (double)(head + 1))
                        : others[heads][head];
}

/* With the eight bits that bf16 has, halves to even. */
static double eight_bits(double x)
{
    int exponent;
    const double m = frexp(x, &exponent);

    return ldexp(nearbyint(m * 256), exponent - 8);
}

/* Added to the score of query i and key j; their document begins at `from`. */
static double ref_bias(const struct gpt_attn *op, int64_t h, int64_t i,
                       int64_t j, int64_t from)
{
    const double slope = ref_slope(op->head0 + h, op->h_global);

    if (alibi != GPT_ALIBI_BF16)
        return -slope * (double)(i - j);
    return (double)op->scale *
           (eight_bits(eight_bits(slope) * eight_bits((double)(j - from))) -
            eight_bits(eight_bits(slope) * eight_bits((double)(i - from))));
}

static void check_slope(void)
{
    double worst = 0;

    alibi = GPT_ALIBI;
    for (int64_t i = 0; i < 12; i++)
        worst = fmax(worst, fabs((double)gpt_alibi_slope(i, 12) /
                                     ref_slope(i, 12) - 1));
    alibi = GPT_ALIBI_NONE;
    ok(worst < 1e-7, "ALiBi's slopes of twelve heads (error %.2g)", worst);
}

static double keep(const struct gpt_attn *op, int64_t b, int64_t h, int64_t tq,
                   int64_t tk)
{
    const struct gpt_dropout *d = &op->dropout;

    if (d->p == 0)
        return 1;
    int64_t head = (d->sample0 + b) * op->h_global + op->head0 + h;
    int64_t at = (head * op->t + tq) * op->t + tk;
    return gpt_rng_uniform(d->rng, (uint64_t)at) < d->p
               ? 0
               : 1 / (1 - (double)d->p);
}

/* Places of a head's query, key, value in a row of qkv. */
static void places(const struct gpt_attn *op, int64_t h, int64_t at[3])
{
    int64_t per = op->h / op->g, group = h / per * (per + 2) * op->d;

    at[0] = group + h % per * op->d;
    at[1] = group + per * op->d;
    at[2] = at[1] + op->d;
}

/* Forward, and when dqkv is not NULL backward, of one head in double. */
static void ref_head(const struct attn_case *k, const double *qkv, int64_t b,
                     int64_t h, double *out, double *lse, const float *dout,
                     double *dqkv)
{
    const struct gpt_attn *op = &k->op;
    int64_t t = op->t, d = op->d, at[3];

    places(op, h, at);
    double *p = malloc((size_t)t * sizeof(*p)),
           *dp = malloc((size_t)t * sizeof(*p)),
           *slope = malloc((size_t)t * sizeof(*p));
    for (int64_t i = 0; i < t; i++) {
        const double *x = qkv + b * t * k->row;
        const int64_t begin = op->doc_start ? op->doc_start[b * t + i] : 0;
        int64_t from = begin;
        double max = -1e300, sum = 0, delta = 0;

        if (op->window > 0 && i - op->window > from)
            from = i - op->window;

        for (int64_t j = from; j <= i; j++) {
            p[j] = 0;
            for (int64_t e = 0; e < d; e++)
                p[j] += x[i * k->row + at[0] + e] * x[j * k->row + at[1] + e] *
                        (double)op->scale;
            slope[j] = 1;
            if (op->softcap > 0) {
                double capped = tanh(p[j] / softcap);

                p[j] = softcap * capped;
                slope[j] = 1 - capped * capped;
            }
            p[j] += ref_bias(op, h, i, j, begin);
            max = fmax(max, p[j]);
        }
        for (int64_t j = from; j <= i; j++)
            sum += exp(p[j] - max);
        lse[(b * op->h + h) * t + i] = max + log(sum);
        double *o = out + ((b * t + i) * op->h + h) * d;
        memset(o, 0, (size_t)d * sizeof(*o));
        for (int64_t j = from; j <= i; j++) {
            p[j] = exp(p[j] - max) / sum;
            for (int64_t e = 0; e < d; e++)
                o[e] += p[j] * keep(op, b, h, i, j) * x[j * k->row + at[2] + e];
        }
        if (!dqkv)
            continue;
        const float *go = dout + ((b * t + i) * op->h + h) * d;
        double *dx = dqkv + b * t * k->row;
        for (int64_t j = from; j <= i; j++) {
            double m = keep(op, b, h, i, j);

            dp[j] = 0;
            for (int64_t e = 0; e < d; e++) {
                dp[j] += (double)go[e] * x[j * k->row + at[2] + e] * m;
                dx[j * k->row + at[2] + e] += p[j] * m * (double)go[e];
            }
            delta += p[j] * dp[j];
        }
        for (int64_t j = from; j <= i; j++) {
            double ds = p[j] * (dp[j] - delta) * (double)op->scale * slope[j];

            for (int64_t e = 0; e < d; e++) {
                dx[i * k->row + at[0] + e] += ds * x[j * k->row + at[1] + e];
                dx[j * k->row + at[1] + e] += ds * x[i * k->row + at[0] + e];
            }
        }
    }
    free(p), free(dp), free(slope);
}

static double *doubles(const float *x, int64_t n)
{
    double *y = malloc((size_t)n * sizeof(*y));

    for (int64_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

static void run_fwd(void *ctx)
{
    struct attn_case *k = ctx;

    poison(k->out, k->n_out + k->op.b * k->op.h * k->op.t);
    be->attn_fwd(q, &k->op);
}

static void run_bwd(void *ctx)
{
    struct attn_case *k = ctx;

    poison(k->dqkv, k->n_qkv);
    be->attn_bwd(q, &k->op, &k->grad);
}

/* L = sum(dout * out): its slope at a few elements of qkv */
static void check_slopes(struct attn_case *k, double *qkv, const float *dout,
                         const char *name)
{
    double err = 0, *out = malloc((size_t)k->n_out * sizeof(*out));
    double *lse = malloc((size_t)(k->op.b * k->op.h * k->op.t) * sizeof(*lse));

    for (int trial = 0; trial < 4; trial++) {
        int64_t at = rnd_int(0, k->n_qkv - 1);
        double loss[2] = {0}, x = qkv[at], h = 1e-5;

        for (int side = 0; side < 2; side++) {
            qkv[at] = x + (side ? h : -h);
            for (int64_t i = 0; i < k->op.b * k->op.h; i++)
                ref_head(k, qkv, i / k->op.h, i % k->op.h, out, lse, NULL,
                         NULL);
            for (int64_t i = 0; i < k->n_out; i++)
                loss[side] += out[i] * (double)dout[i];
        }
        qkv[at] = x;
        double want = (loss[1] - loss[0]) / (2 * h);
        err = fmax(err, fabs((double)k->dqkv[at] - want) / (1 + fabs(want)));
    }
    ok(err < 1e-4, "%s: gradient is the slope (error %.2g)", name, err);
    free(out), free(lse);
}

static void check(int64_t b, int64_t t, int64_t h, int64_t g, int64_t d,
                  float p, bool docs, double spread)
{
    struct attn_case k = {.row = g * (h / g + 2) * d};

    k.n_out = b * t * h * d;
    k.n_qkv = b * t * k.row;
    float *x = rnd_floats(k.n_qkv, spread), *dout = rnd_floats(k.n_out, 1);
    int32_t *start = malloc((size_t)(b * t) * sizeof(*start));
    for (int64_t i = 0; i < b * t; i++)
        start[i] = (int32_t)(i % t == 0    ? 0
                             : rnd() > 0.9 ? i % t
                                           : start[i - 1]);
    k.out = poisoned(k.n_out + b * h * t);
    k.dqkv = poisoned(k.n_qkv);
    k.op =
        (struct gpt_attn){.b = b,
                          .t = t,
                          .h = h,
                          .g = g,
                          .d = d,
                          .head0 = 1,
                          .h_global = h + 2,
                          .scale = 1 / sqrtf((float)d),
                          .alibi = alibi,
                          .window = window,
                          .softcap = (float)softcap,
                          .act = GPT_F32,
                          .qkv = x,
                          .out = k.out,
                          .lse = k.out + k.n_out,
                          .doc_start = docs ? start : NULL,
                          .dropout = {.p = p, .rng = {{7, 8}}, .sample0 = 5}};
    k.grad =
        (struct gpt_attn_grad){dout, k.dqkv, malloc(be->attn_scratch(&k.op))};
    char name[120];
    snprintf(name, sizeof(name),
             "%s: attn b%lld t%lld h%lld g%lld d%lld p%g%s%s w%lld c%g",
             setting,
             (long long)b, (long long)t, (long long)h, (long long)g,
             (long long)d, (double)p, docs ? " docs" : "",
             alibi_names[alibi], (long long)window, softcap);
    ok(same_bytes(run_fwd, &k, k.out, k.n_out + b * h * t),
       "%s: equal for 1, 2, 3 threads", name);
    ok(same_bytes(run_bwd, &k, k.dqkv, k.n_qkv),
       "%s: backward equal for 1, 2, 3 threads", name);
    double *qkv = doubles(x, k.n_qkv), *want = doubles(k.out, k.n_out);
    double *lse = doubles(k.out, b * h * t);
    double *dwant = calloc((size_t)k.n_qkv, sizeof(*dwant));
    for (int64_t i = 0; i < b * h; i++)
        ref_head(&k, qkv, i / h, i % h, want, lse, dout, dwant);
    double tol = spread > 4 ? 3e-5 : 3e-6; /* of scores in the hundreds */
    close_to(k.out, want, k.n_out, tol, "%s: out", name);
    close_to(k.op.lse, lse, b * h * t, 1e-6, "%s: lse", name);
    close_to(k.dqkv, dwant, k.n_qkv, 2 * tol, "%s: dqkv", name);
    if (t < 40)
        check_slopes(&k, qkv, dout, name);
    free(x), free(dout), free(start), free(k.out), free(k.dqkv);
    free(k.grad.scratch), free(qkv), free(want), free(lse), free(dwant);
}

/* Rounds keys and values of qkv (n rows) as a cache of bf16 does, or the
 * queries. */
static void round_heads(double *qkv, int64_t n, int64_t h, int64_t g, int64_t d,
                        bool keys)
{
    const int64_t heads = h / g + 2;

    for (int64_t i = 0; i < n * g * heads * d; i++)
        if ((i / d % heads >= h / g) == keys)
            qkv[i] =
                (double)gpt_bf16_to_f32(gpt_f32_to_bf16((float)qkv[i]));
}

/* Whether queries of a piece of n tokens are rounded, and their weights. */
static bool rounds_queries(int64_t n)
{
    return narrow && cpu_pairs && n > 8;
}

/* Feeds T tokens in pieces of `step` (the last ones shorter) to two cache
 * rows and compares with attention over the whole. */
static void check_cached(int64_t t, int64_t h, int64_t g, int64_t d,
                         int64_t step)
{
    enum { B = 2, SLOTS = 4 };
    struct attn_case k = {.row = g * (h / g + 2) * d};
    int64_t t_max = t + 3, cache = SLOTS * g * gpt_cache_rows(t_max) * d;
    k.n_out = B * t * h * d;
    k.n_qkv = B * t * k.row;
    float *x = rnd_floats(k.n_qkv, 2), *got = poisoned(k.n_out);
    float *kc = poisoned(cache), *vc = poisoned(cache);
    float *in = poisoned(B * step * k.row), *out = poisoned(B * step * h * d);
    k.op = (struct gpt_attn){
        .b = B, .t = t, .h = h, .g = g, .d = d, .h_global = h, .scale = 0.3f,
        .alibi = alibi, .window = window, .softcap = (float)softcap};
    double *qkv = doubles(x, k.n_qkv), *want = doubles(got, k.n_out);
    double *lse = malloc((size_t)(B * h * t) * sizeof(*lse));
    if (narrow)
        round_heads(qkv, B * t, h, g, d, true);
    int32_t pos[B] = {0, 0}, len[B], slot[B] = {3, 1};
    while (pos[0] < t || pos[1] < t) {
        for (int b = 0; b < B; b++) {
            int64_t left = t - pos[b], n = b == 1 && step > 1 ? step - 1 : step;

            len[b] = (int32_t)(left < n ? left : n);
            memcpy(in + b * step * k.row, x + (b * t + pos[b]) * k.row,
                   (size_t)(len[b] * k.row) * sizeof(*in));
            if (rounds_queries(len[b]))
                round_heads(qkv + (b * t + pos[b]) * k.row, len[b], h, g, d,
                            false);
        }
        struct gpt_attn_cached op = {
            .b = B, .t_new = step, .h = h, .g = g, .d = d, .t_max = t_max,
            .scale = 0.3f, .alibi = alibi, .window = window,
            .softcap = (float)softcap, .act = GPT_F32,
            .narrow_cache = narrow, .qkv = in,
            .out = out, .k_cache = kc, .v_cache = vc, .pos = pos, .len = len,
            .slot = slot};
        be->attn_cached(q, &op);
        for (int b = 0; b < B; b++) {
            memcpy(got + (b * t + pos[b]) * h * d, out + b * step * h * d,
                   (size_t)(len[b] * h * d) * sizeof(*out));
            pos[b] += len[b];
        }
    }
    for (int64_t i = 0; i < B * h; i++)
        ref_head(&k, qkv, i / h, i % h, want, lse, NULL, NULL);
    /* scores grow with the root of D, and so do their errors; weights that are
     * rounded err by 2^-9 of themselves */
    close_to(got, want, k.n_out,
             5e-6 * fmax(1, sqrt((double)d) / 8) +
                 (rounds_queries(step) ? 0x1p-8 : 0),
             "%s: cached%s t%lld h%lld g%lld d%lld by %lld%s w%lld c%g",
             setting, narrow ? " bf16" : "", (long long)t, (long long)h,
             (long long)g, (long long)d, (long long)step,
             alibi_names[alibi], (long long)window, softcap);
    free(x), free(got), free(kc), free(vc), free(in), free(out);
    free(qkv), free(want), free(lse);
}

/* A cache of n numbers. */
static void *rnd_cache(int64_t n)
{
    float *x = rnd_floats(n, 2);
    uint16_t *y = malloc((size_t)n * sizeof(*y));

    if (!narrow) {
        free(y);
        return x;
    }
    gpt_convert(y, GPT_BF16, x, GPT_F32, (size_t)n);
    free(x);
    return y;
}

static void run_cached(void *ctx)
{
    be->attn_cached(q, ctx);
}

/* Caches that are read in spans by several threads: some texts longer than a
 * span, some not. */
static void check_spans(int64_t h, int64_t g, int64_t d, int64_t t_new)
{
    enum { B = 3, T_MAX = 2600 };
    const int64_t row = g * (h / g + 2) * d;
    const int64_t cache = B * g * gpt_cache_rows(T_MAX) * d;
    const int64_t n_out = B * t_new * h * d;
    float *in = rnd_floats(B * t_new * row, 2), *out = poisoned(n_out);
    void *kc = rnd_cache(cache), *vc = rnd_cache(cache);
    const int32_t pos[B] = {2550, 700, 1023}, slot[B] = {1, 0, 2};
    const int32_t len[B] = {(int32_t)t_new, (int32_t)t_new, (int32_t)t_new};
    struct gpt_attn_cached op = {
        .b = B, .t_new = t_new, .h = h, .g = g, .d = d, .t_max = T_MAX,
        .scale = 0.3f, .alibi = alibi, .window = window, .act = GPT_F32,
        .narrow_cache = narrow, .qkv = in, .out = out, .k_cache = kc,
        .v_cache = vc, .pos = pos, .len = len, .slot = slot};
    float *alone = poisoned(t_new * h * d);
    bool same = true;

    ok(same_bytes(run_cached, &op, out, n_out),
       "%s: spans of a long cache equal for 1, 2, 3 threads", setting);
    op.b = 1;
    op.out = alone;
    for (int b = 0; b < B; b++) {
        op.qkv = in + b * t_new * row;
        op.pos = pos + b;
        op.slot = slot + b;
        be->attn_cached(q, &op);
        same = same && memcmp(alone, out + b * t_new * h * d,
                              (size_t)(t_new * h * d) * sizeof(*out)) == 0;
    }
    ok(same, "%s: and each text as alone", setting);
    free(in), free(out), free(kc), free(vc), free(alone);
}

/* A piece of t tokens has the bits that it has in two calls, of `first` tokens
 * and of the others, all of them more than a few; and those of any number of
 * threads. */
static void check_pieces(int64_t t, int64_t h, int64_t g, int64_t d,
                         int64_t first)
{
    const int64_t row = g * (h / g + 2) * d, out_row = h * d;
    const int64_t cache = 2 * g * gpt_cache_rows(t) * d;
    float *in = rnd_floats(t * row, 2), *whole = poisoned(t * out_row);
    float *cut = poisoned(t * out_row);
    void *kc = rnd_cache(cache), *vc = rnd_cache(cache);
    const int32_t begin[2] = {0, (int32_t)first}, slot = 1;
    const int32_t len[2] = {(int32_t)first, (int32_t)(t - first)};
    const int32_t all = (int32_t)t, zero = 0;
    struct gpt_attn_cached op = {
        .b = 1, .t_new = t, .h = h, .g = g, .d = d, .t_max = t, .scale = 0.3f,
        .alibi = alibi, .window = window, .softcap = (float)softcap,
        .act = GPT_F32, .narrow_cache = narrow, .qkv = in, .out = whole,
        .k_cache = kc, .v_cache = vc, .pos = &zero, .len = &all, .slot = &slot};

    ok(same_bytes(run_cached, &op, whole, t * out_row),
       "%s: a piece equal for 1, 2, 3 threads", setting);
    for (int i = 0; i < 2; i++) {
        op.t_new = len[i];
        op.qkv = in + begin[i] * row;
        op.out = cut + begin[i] * out_row;
        op.pos = &begin[i];
        op.len = &len[i];
        be->attn_cached(q, &op);
    }
    ok(memcmp(whole, cut, (size_t)(t * out_row) * sizeof(*cut)) == 0,
       "%s: %lld tokens cut at %lld: the same bits%s w%lld", setting,
       (long long)t, (long long)first, narrow ? " bf16" : "",
       (long long)window);
    free(in), free(whole), free(cut), free(kc), free(vc);
}

static void check_cuts(void)
{
    for (int i = 0; i < 6; i++) {
        const int64_t g = rnd_int(1, 2), t = rnd_int(20, 300);

        alibi = i % 2 ? GPT_ALIBI : GPT_ALIBI_NONE;
        window = i < 3 ? 0 : rnd_int(1, 150);
        softcap = i == 4 ? 0.75 : 0;
        check_pieces(t, 2 * g, g, rnd_int(1, 140), rnd_int(9, (int)t - 10));
    }
    alibi = GPT_ALIBI_NONE;
    window = 0;
    softcap = 0;
}

/* A key that is no number makes all outputs of those who see it none, also in
 * a text of several spans. */
static void check_wrong_key(int64_t end)
{
    enum { D = 8, T_MAX = 2600 };
    const int64_t cache = gpt_cache_rows(T_MAX) * D;
    float *in = rnd_floats(3 * D, 2), out[D];
    void *kc = rnd_cache(cache), *vc = rnd_cache(cache);
    const int64_t at = rnd_int(0, end - 1) * D + rnd_int(0, D - 1);
    const int32_t pos = (int32_t)end, len = 1, slot = 0;
    struct gpt_attn_cached op = {
        .b = 1, .t_new = 1, .h = 1, .g = 1, .d = D, .t_max = T_MAX,
        .scale = 0.3f, .act = GPT_F32, .narrow_cache = narrow, .qkv = in,
        .out = out, .k_cache = kc, .v_cache = vc, .pos = &pos, .len = &len,
        .slot = &slot};
    int wrong = 0;

    if (narrow)
        ((uint16_t *)kc)[at] = gpt_f32_to_bf16(NAN);
    else
        ((float *)kc)[at] = NAN;
    be->attn_cached(q, &op);
    for (int i = 0; i < D; i++)
        wrong += isnan(out[i]) != 0;
    is_int(wrong, D, "%s: NaN among %lld keys is seen%s", setting,
           (long long)end, narrow ? " bf16" : "");
    free(in), free(kc), free(vc);
}

static void check_wrong_keys(void)
{
    check_wrong_key(rnd_int(1, 1000));
    check_wrong_key(rnd_int(1025, 2500));
}

static void check_cache_limit(void)
{
    float x[3 * 4] = {0}, out[4], kc[128] = {0}, vc[128] = {0};
    int32_t pos = 2, len = 1, slot = 0;
    struct gpt_attn_cached op = {
        .b = 1, .t_new = 1, .h = 1, .g = 1, .d = 4, .t_max = 2, .scale = 1,
        .act = GPT_F32, .qkv = x, .out = out, .k_cache = kc, .v_cache = vc,
        .pos = &pos, .len = &len, .slot = &slot};
    struct gpt_queue *other;
    struct gpt_err err = {0};

    if (be->queue_open(be, &other, &err) != GPT_OK)
        return;
    be->attn_cached(other, &op);
    is_int(be->sync(other, &err), GPT_EDEVICE, "a full cache is refused: %s",
           err.text);
    be->queue_close(other);
}

/* ---- rotary positions ---- */

struct rope_case {
    struct gpt_rope op;
    const float *x;
    int64_t count;
};

static void run_rope(void *ctx)
{
    struct rope_case *k = ctx;

    memcpy(k->op.qkv, k->x, (size_t)k->count * sizeof(*k->x));
    be->rope(q, &k->op);
}

/* An element of qkv (N, G, H/G + 2, D) after it, by complex numbers. */
static double ref_rope(const struct rope_case *k, int64_t at)
{
    const struct gpt_rope *op = &k->op;
    int64_t heads = op->h / op->g + 2, half = op->rotary / 2;
    int64_t n = at / (op->g * heads * op->d), e = at % op->d;
    int64_t position = op->positions ? op->positions[n] : n % op->t;

    if (at / op->d % heads == heads - 1 || e >= op->rotary)
        return (double)k->x[at];
    bool upper = e >= half;
    const float *pair = k->x + at - (upper ? half : 0);
    double angle = (double)position * pow(op->base, -2 * (double)(e % half) /
                                                        (double)op->rotary);
    double real = (double)pair[0], imaginary = (double)pair[half];
    return upper ? real * sin(angle) + imaginary * cos(angle)
                 : real * cos(angle) - imaginary * sin(angle);
}

/* from: positions are given, from that one on; 0: they are not. */
static void check_rope(int64_t b, int64_t t, int64_t h, int64_t g, int64_t d,
                       int64_t rotary, int32_t from)
{
    int64_t n = b * t, count = n * (h + 2 * g) * d;
    float *x = rnd_floats(count, 1), *y = poisoned(count);
    double *want = malloc((size_t)count * sizeof(*want));
    int32_t *positions = malloc((size_t)n * sizeof(*positions));
    struct rope_case k = {
        .op = {.n = n, .t = t, .h = h, .g = g, .d = d, .rotary = rotary,
               .base = 10000, .act = GPT_F32, .qkv = y,
               .positions = from ? positions : NULL},
        .x = x, .count = count};

    for (int64_t i = 0; i < n; i++)
        positions[i] = from + (int32_t)(i * 7 % t);
    ok(same_bytes(run_rope, &k, y, count), "%s: rope %lldx%lld equal for 1, 2, "
       "3 threads", setting, (long long)n, (long long)rotary);
    for (int64_t i = 0; i < count; i++)
        want[i] = ref_rope(&k, i);
    close_to(y, want, count, 1e-6 + 1e-7 * from, "%s: rope by %lld", setting,
             (long long)rotary);
    k.op.inverse = true;
    be->rope(q, &k.op);
    for (int64_t i = 0; i < count; i++)
        want[i] = (double)x[i];
    close_to(y, want, count, 1e-6, "%s: and back", setting);
    free(x), free(y), free(want), free(positions);
}

/* Sizes at random, and on both sides of what vectors, groups of keys and of
 * query heads, and columns at a time are. */
static void check_caches(void)
{
    static const struct {
        int64_t t, h, g, d, step;
    } cases[] = {
        {9, 2, 2, 4, 1},     {70, 4, 2, 16, 7},   {37, 3, 1, 33, 37},
        {90, 2, 2, 64, 1},   {40, 6, 2, 128, 5},  {25, 5, 1, 96, 3},
        {1100, 2, 1, 4, 7},  {30, 8, 1, 31, 8},   {130, 3, 1, 33, 100},
        {19, 2, 1, 520, 4},  {40, 2, 2, 192, 5},  {37, 2, 2, 256, 37},
        {50, 3, 3, 24, 1},   {70, 2, 2, 40, 9},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        check_cached(cases[i].t, cases[i].h, cases[i].g, cases[i].d,
                     cases[i].step);
    for (int i = 0; i < 6; i++) {
        const int64_t g = rnd_int(1, 3);

        /* whose slopes ref_slope() has for 2 to 6 heads */
        alibi = i < 3 ? GPT_ALIBI : GPT_ALIBI_NONE;
        window = rnd() > 0.5 ? rnd_int(1, 60) : 0;
        softcap = rnd() > 0.7 ? 0.75 : 0;
        check_cached(rnd_int(5, 140),
                     alibi ? g * rnd_int(2, g > 1 ? 2 : 6) : g * rnd_int(1, 9),
                     g, rnd_int(1, 150), rnd_int(1, 12));
    }
    alibi = GPT_ALIBI_NONE;
    window = 0;
    softcap = 0;
}

static void body(void)
{
    check_caches();
    check_cuts();
    check_wrong_keys();
    narrow = true;
    check_caches();
    check_cuts();
    check_wrong_keys();
    check_spans(4, 2, 16, 1);
    check_spans(6, 1, 8, 5);
    window = 1500;
    check_spans(4, 2, 16, 1);
    window = 0;
    narrow = false;
    check(1, 1, 1, 1, 1, 0, false, 1);
    check(2, 5, 2, 2, 3, 0, false, 1);
    check(2, 17, 4, 2, 8, 0.2f, false, 2);
    check(1, 33, 3, 3, 16, 0.1f, true, 3);
    check(2, 64, 2, 1, 32, 0, false, 1);
    check(1, 65, 4, 1, 64, 0.3f, true, 1);
    check(1, 150, 2, 2, 64, 0.1f, false, 8);
    check(1, 131, 2, 2, 80, 0, true, 1);
    check(1, 40, 1, 1, 256, 0, false, 2);
    check(1, 70, 2, 2, 192, 0.1f, true, 1); /* heads of latent attention */
    check(2, 37, 3, 3, 24, 0, false, 1);
    check(1, 66, 2, 2, 40, 0.1f, true, 1);
    check_cached(300, 2, 2, 64, 130);
    check_spans(4, 2, 16, 1);
    check_spans(6, 1, 8, 5);
    check_cache_limit();
    alibi = GPT_ALIBI;
    check_cached(1100, 2, 1, 4, 8);
    check(2, 17, 4, 2, 8, 0.2f, false, 2);
    check(1, 150, 3, 1, 64, 0, true, 3);
    check(2, 33, 1, 1, 16, 0, false, 1);
    check_cached(9, 2, 2, 4, 1);
    check_cached(70, 4, 2, 16, 7);
    check_cached(130, 3, 1, 33, 100);
    alibi = GPT_ALIBI_BF16;
    check(2, 17, 4, 2, 8, 0.2f, false, 2);
    check(1, 400, 3, 1, 64, 0, true, 3);
    check(1, 700, 1, 1, 16, 0, false, 1);
    check_cached(1100, 2, 1, 4, 8);
    check_cached(70, 4, 2, 16, 7);
    alibi = GPT_ALIBI_NONE;
    window = 1;
    check(2, 17, 4, 2, 8, 0.2f, false, 2);
    check_cached(9, 2, 2, 4, 1);
    window = 1500;
    check_spans(4, 2, 16, 1);
    window = 40;
    check_cached(1100, 2, 1, 4, 8);
    check(1, 150, 3, 1, 64, 0, true, 3);
    check(1, 320, 2, 2, 16, 0.1f, false, 1);
    check_cached(300, 4, 2, 16, 130);
    check_cached(70, 4, 1, 33, 7);
    softcap = 0.75;
    check(1, 150, 3, 3, 24, 0.1f, true, 3);
    check_cached(130, 3, 1, 33, 100);
    window = 0;
    check(2, 33, 4, 2, 8, 0, false, 2);
    alibi = GPT_ALIBI;
    check(2, 17, 4, 2, 8, 0.2f, false, 2);
    check_cached(70, 4, 2, 16, 3);
    alibi = GPT_ALIBI_NONE;
    softcap = 0;
    check_rope(3, 5, 4, 2, 8, 8, 0);
    check_rope(2, 17, 3, 1, 10, 6, 900);
    check_rope(1, 40, 2, 2, 64, 64, 30);
}

int main(void)
{
    check_slope();
    each_setting(body);
    return tap_done();
}
