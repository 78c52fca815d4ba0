/* Compares cross-entropy, AdamW and sums with references in double. */
#include "tests/unit/kernels.h"

struct xent_case {
    struct gpt_xent op;
    const float *logits0;
    float *out; /* logits, then loss */
};

static void run_xent(void *ctx)
{
    struct xent_case *k = ctx;

    memcpy(k->out, k->logits0, (size_t)(k->op.n * k->op.ld) * sizeof(float));
    poison(k->op.loss, k->op.n);
    be->xent(q, &k->op);
}

static void check_xent(int64_t n, int64_t v, int64_t v_real, int64_t pad,
                       double spread, bool grad)
{
    int64_t ld = v + pad;
    float *logits = rnd_floats(n * ld, spread), *weight = rnd_floats(n, 1);
    int32_t *target = malloc((size_t)n * sizeof(*target));

    for (int64_t i = 0; i < n; i++) {
        target[i] = (int32_t)rnd_int(0, v_real - 1);
        weight[i] = i % 4 == 3 ? 0 : weight[i];
        for (int64_t j = v_real; j < v; j++)
            logits[i * ld + j] = j & 1 ? 1e30f : NAN; /* must not matter */
    }
    float *out = poisoned(n * ld + n);
    struct xent_case k = {
        {n, v, v_real, ld, GPT_F32, out, target, weight, out + n * ld, grad,
         0, NULL, 0, 0},
        logits,
        out};
    double *want = malloc((size_t)(n * ld + n) * sizeof(*want));
    for (int64_t i = 0; i < n; i++) {
        const float *x = logits + i * ld;
        double max = -1e300, sum = 0;

        for (int64_t j = 0; j < v_real; j++)
            max = fmax(max, (double)x[j]);
        for (int64_t j = 0; j < v_real; j++)
            sum += exp((double)x[j] - max);
        want[n * ld + i] = max + log(sum) - (double)x[target[i]];
        for (int64_t j = 0; j < ld; j++) {
            double g = j < v_real ? exp((double)x[j] - max) / sum : 0;

            g = (g - (j == target[i])) * (double)weight[i];
            want[i * ld + j] = j >= v ? (double)x[j] : j >= v_real ? 0 : g;
        }
    }
    char name[100];
    snprintf(name, sizeof(name), "%s: xent %lldx%lld of %lld spread %g",
             setting, (long long)n, (long long)v_real, (long long)v, spread);
    int64_t from = grad ? 0 : n * ld;
    ok(same_bytes(run_xent, &k, out, n * ld + n),
       "%s: equal for 1, 2, 3 threads", name);
    close_to(k.op.loss, want + n * ld, n, 1e-6, "%s: loss", name);
    if (grad) {
        close_to(out, want, n * ld, 2e-6, "%s: gradient", name);
        double worst = 0; /* relative to each probability, big ones */
        for (int64_t i = 0; i < n * ld; i++)
            if (fabs(want[i]) > 1e-20 && fabs(want[i]) < 1e6)
                worst = fmax(worst, fabs((double)out[i] - want[i]) /
                                        (fabs(want[i]) + 1e-7));
        ok(worst < 1e-5, "%s: relative error %.2g", name, worst);
    } else {
        ok(memcmp(out, logits, (size_t)from * sizeof(*out)) == 0,
           "%s: logits stay without grad", name);
    }
    free(logits), free(weight), free(target), free(out), free(want);
}

/* Probabilities of a large vocabulary, each by its own size: their sum has
 * small terms, which vectors of few elements must not lose. */
static void check_long_row(void)
{
    enum { V = 262144, TARGET = 7 };
    float *x = rnd_floats(V, 8), weight = 1, loss;
    double *want = malloc(V * sizeof(*want)), sum = 0, worst = 0;
    int32_t target = TARGET;
    const struct gpt_xent op = {1, V, V, V, GPT_F32, x, &target, &weight,
                                &loss, true, 0, NULL, 0, 0};

    for (int64_t i = 0; i < V; i++)
        sum += want[i] = exp((double)x[i]);
    be->xent(q, &op);
    for (int64_t i = 0; i < V; i++)
        if (i != TARGET)
            worst = fmax(worst, fabs((double)x[i] * sum / want[i] - 1));
    ok(worst < 4e-6, "%s: xent of a long row: relative error %.2g", setting,
       worst);
    free(x), free(want);
}

/* A vocabulary that is cut over ranks gives the result of a whole one. */
static void check_xent_ranks(int64_t n, int64_t v, int64_t v_real,
                             int64_t ranks, double spread, bool grad)
{
    int64_t local = v / ranks;
    float *whole = rnd_floats(n * v, spread), *weight = rnd_floats(n, 1);
    float *parts = malloc((size_t)(n * v) * sizeof(*parts));
    float *stats = poisoned(ranks * n * GPT_XENT_STATS);
    float *loss = poisoned(n), *want = poisoned(n);
    int32_t *target = malloc((size_t)n * sizeof(*target));
    double worst = 0;

    for (int64_t i = 0; i < n; i++) {
        target[i] = (int32_t)rnd_int(0, v_real - 1);
        weight[i] = i % 4 == 3 ? 0 : weight[i];
        for (int64_t j = 0; j < v; j++)
            parts[(j / local * n + i) * local + j % local] = whole[i * v + j];
    }
    struct gpt_xent op = {n,     v,      v_real, v,    GPT_F32,
                          whole, target, weight, want, grad, 0, NULL, 0, 0};
    be->xent(q, &op);
    op.v = op.ld = local;
    op.loss = loss;
    for (int64_t r = 0; r < ranks; r++) {
        op.logits = parts + r * n * local;
        op.v_begin = r * local;
        be->xent_partial(q, &op, stats + r * n * GPT_XENT_STATS);
    }
    for (int64_t r = 0; r < ranks; r++) {
        op.logits = parts + r * n * local;
        op.v_begin = r * local;
        be->xent_finish(q, &op, stats, ranks, r);
        for (int64_t i = 0; i < n; i++)
            worst = fmax(worst, fabs((double)loss[i] - (double)want[i]) /
                                    (1 + fabs((double)want[i])));
    }
    ok(worst <= 2e-6, "%s: xent over %lld ranks, %lld of %lld: loss %.2g",
       setting, (long long)ranks, (long long)v_real, (long long)v, worst);
    worst = 0;
    for (int64_t i = 0; i < n * v; i++) {
        int64_t r = i % v / local, j = i % v % local;
        double d = (double)parts[(r * n + i / v) * local + j] -
                   (double)whole[i];

        worst = fabs(d) <= worst ? worst : fabs(d);
    }
    ok(worst <= (grad ? 2e-6 : 0), "and %s %.2g",
       grad ? "gradient" : "logits stay", worst);
    free(whole), free(weight), free(parts), free(stats), free(loss);
    free(want), free(target);
}

struct adamw_case {
    struct gpt_adamw op;
    const float *p0; /* p, m, v as they were */
    float *out;      /* p, m, v, copy of p */
};

static void run_adamw(void *ctx)
{
    struct adamw_case *k = ctx;

    memcpy(k->out, k->p0, (size_t)(3 * k->op.n) * sizeof(float));
    poison(k->out + 3 * k->op.n, k->op.n);
    be->adamw(q, &k->op);
}

static void check_adamw(int64_t n, int64_t step, bool with_copy, bool coupled)
{
    float *p0 = rnd_floats(3 * n, 1), *out = poisoned(4 * n);
    float *g = rnd_floats(n, 3);

    for (int64_t i = 2 * n; i < 3 * n; i++)
        p0[i] = fabsf(p0[i]);
    struct gpt_decay_segment seg[] = {
        {0, true}, {n / 3, false}, {n / 3 + n / 5, true}};
    struct adamw_case k = {{.n = n,
                            .p = out,
                            .m = out + n,
                            .v = out + 2 * n,
                            .g = g,
                            .p_act = with_copy ? out + 3 * n : NULL,
                            .act = GPT_F32,
                            .lr = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .grad_scale = 0.7,
                            .coupled = coupled,
                            .step = step,
                            .segments = seg,
                            .n_segments = 3},
                           p0,
                           out};
    double *want = malloc((size_t)(4 * n) * sizeof(*want));
    for (int64_t i = 0; i < n; i++) {
        bool decay = i < n / 3 || i >= n / 3 + n / 5;
        double p = (double)p0[i];
        double gi = (double)g[i] * 0.7 + (coupled && decay ? 0.1 * p : 0);
        double m = 0.9 * (double)p0[n + i] + 0.1 * gi;
        double v = 0.95 * (double)p0[2 * n + i] + 0.05 * gi * gi;
        double mh = m / (1 - pow(0.9, (double)step));
        double vh = v / (1 - pow(0.95, (double)step));

        want[i] = p - 0.01 * (mh / (sqrt(vh) + 1e-8) +
                              (decay && !coupled ? 0.1 * p : 0));
        want[n + i] = m;
        want[2 * n + i] = v;
        want[3 * n + i] = want[i];
    }
    char name[80];
    snprintf(name, sizeof(name), "%s: %s %lld step %lld", setting,
             coupled ? "adam" : "adamw", (long long)n, (long long)step);
    ok(same_bytes(run_adamw, &k, out, (with_copy ? 4 : 3) * n),
       "%s: equal for 1, 2, 3 threads", name);
    close_to(out, want, n, 5e-7, "%s: p", name);
    close_to(out + n, want + n, 2 * n, 5e-7, "%s: m, v", name);
    if (with_copy)
        ok(memcmp(out, out + 3 * n, (size_t)n * sizeof(*out)) == 0,
           "%s: the copy is p", name);
    free(p0), free(out), free(g), free(want);
}

struct sgd_case {
    struct gpt_sgd op;
    const float *before; /* p, m */
    float *out;          /* p, m */
};

static void run_sgd(void *ctx)
{
    struct sgd_case *k = ctx;

    memcpy(k->out, k->before, (size_t)(2 * k->op.n) * sizeof(float));
    be->sgd(q, &k->op);
}

static void check_sgd(int64_t n, bool momentum)
{
    float *before = rnd_floats(2 * n, 1), *out = poisoned(2 * n);
    float *g = rnd_floats(n, 3);
    const struct gpt_decay_segment seg[] = {{0, false}, {n / 3, true}};
    struct sgd_case k = {{.n = n,
                          .p = out,
                          .m = momentum ? out + n : NULL,
                          .g = g,
                          .lr = 0.1,
                          .momentum = 0.8,
                          .weight_decay = 0.2,
                          .grad_scale = 0.7,
                          .segments = seg,
                          .n_segments = 2},
                         before,
                         out};
    double *want = malloc((size_t)(2 * n) * sizeof(*want));

    for (int64_t i = 0; i < n; i++) {
        const double p = (double)before[i], m = (double)before[n + i];
        const double step =
            (double)g[i] * 0.7 + (i >= n / 3 ? 0.2 * p : 0) +
            (momentum ? 0.8 * m : 0);

        want[i] = p - 0.1 * step;
        want[n + i] = momentum ? step : m;
    }
    ok(same_bytes(run_sgd, &k, out, 2 * n),
       "%s: sgd %lld equal for 1, 2, 3 threads", setting, (long long)n);
    close_to(out, want, 2 * n, 5e-7, "%s: sgd", setting);
    free(before), free(out), free(g), free(want);
}

static void check_mix(int64_t n)
{
    float *x = rnd_floats(n, 1), *y = rnd_floats(n, 1), *out = poisoned(n);
    double *want = malloc((size_t)n * sizeof(*want));
    double squares = 6.25;
    struct gpt_mix op = {.n = n, .out = out, .x = x, .y = y, .a = 2, .b = -0.5};

    for (int64_t i = 0; i < n; i++)
        want[i] = 2 * (double)x[i] - 0.5 * (double)y[i];
    be->mix(q, &op);
    close_to(out, want, n, 2e-7, "%s: mix %lld", setting, (long long)n);
    op.y = NULL;
    op.squares = &squares;
    op.least = 1e-7;
    for (int64_t i = 0; i < n; i++)
        want[i] = 2 * (double)x[i] / 2.5;
    be->mix(q, &op);
    close_to(out, want, n, 2e-7, "%s: mix by a norm", setting);
    squares = 0;
    op.x = out;
    be->zero(q, out, (size_t)n * sizeof(*out));
    be->mix(q, &op);
    ok(out[0] == 0, "%s: a norm of zero divides nothing", setting);
    free(x), free(y), free(out), free(want);
}

/* One row with smoothing and z-loss in double; x becomes its gradient. */
static double regularised_row(double *x, int64_t n, int64_t target,
                              double weight, double e, double z)
{
    double sum = 0, logits = 0;

    for (int64_t j = 0; j < n; j++) {
        sum += exp(x[j]);
        logits += x[j];
    }
    const double lse = log(sum);
    const double loss = (1 - e) * (lse - x[target]) +
                        e * (lse - logits / (double)n) + z * lse * lse;
    for (int64_t j = 0; j < n; j++)
        x[j] = weight * (exp(x[j] - lse) * (1 + 2 * z * lse) - e / (double)n -
                         (j == target ? 1 - e : 0));
    return loss;
}

/* Of a whole vocabulary, or of `ranks` parts of v columns together. */
static void check_regularised(int64_t n, int64_t v, int64_t real, int64_t ranks)
{
    const int64_t all = v * ranks;
    float *logits = rnd_floats(n * all, 4), *weight = rnd_floats(n, 1);
    float *stats = poisoned(ranks * n * GPT_XENT_STATS), *loss = poisoned(n);
    double *want = calloc((size_t)(n * all), sizeof(*want));
    double *losses = malloc((size_t)n * sizeof(*losses));
    int32_t *target = malloc((size_t)n * sizeof(*target));
    struct gpt_xent op = {.n = n, .v = v, .v_real = real * ranks,
                          .act = GPT_F32, .target = target,
                          .weight = weight, .loss = loss,
                          .grad = true, .smoothing = 0.1F, .z_loss = 0.01F};

    if (op.v_real > all)
        op.v_real = all;
    for (int64_t i = 0; i < n; i++) {
        double *row = want + i * all;

        target[i] = (int32_t)rnd_int(0, op.v_real - 1);
        /* column c of part r is the whole row's r * v + c */
        for (int64_t j = 0; j < op.v_real; j++)
            row[j] = (double)logits[j / v * n * v + i * v + j % v];
        losses[i] = regularised_row(row, op.v_real, target[i],
                                    (double)weight[i], (double)0.1F,
                                    (double)0.01F);
    }
    for (int pass = 0; pass < 2; pass++)
        for (int64_t r = 0; r < ranks; r++) {
            op.logits = logits + r * n * v;
            op.v_begin = r * v;
            if (ranks == 1 && pass == 0)
                be->xent(q, &op);
            else if (ranks > 1 && pass == 0)
                be->xent_partial(q, &op, stats + r * n * GPT_XENT_STATS);
            else if (ranks > 1)
                be->xent_finish(q, &op, stats, ranks, r);
        }
    close_to(loss, losses, n, 1e-6, "%s: smoothed losses %lldx%lld of %lld",
             setting, (long long)n, (long long)v, (long long)ranks);
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < all; j++)
            worst = fmax(worst,
                         fabs((double)logits[j / v * n * v + i * v + j % v] -
                              (j < op.v_real ? want[i * all + j] : 0)));
    ok(worst <= 2e-6, "%s: and gradients, %.2g", setting, worst);
    free(logits), free(weight), free(stats), free(loss);
    free(want), free(losses), free(target);
}

struct sum_case {
    const float *x;
    int64_t n;
    double out;
};

static void run_sums(void *ctx)
{
    struct sum_case *k = ctx;

    k->out = (double)NAN;
    be->sumsq(q, &k->out, k->x, k->n);
}

static void check_sums(int64_t n)
{
    float *x = rnd_floats(n, 1);
    struct sum_case k = {x, n, 0};
    double squares = 0;

    for (int64_t i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    ok(same_bytes(run_sums, &k, (float *)(void *)&k.out, 2),
       "%s: sums of %lld equal for 1, 2, 3 threads", setting, (long long)n);
    is_near(k.out, squares, 1e-12, 0, "%s: sum of squares", setting);
    free(x);
}

struct bias_case {
    int64_t m, n;
    const float *dy, *bias;
    float *out; /* dbias (n), x (m, n) */
};

static void run_bias(void *ctx)
{
    struct bias_case *k = ctx;

    for (int64_t j = 0; j < k->n; j++)
        k->out[j] = 2;
    memcpy(k->out + k->n, k->dy, (size_t)(k->m * k->n) * sizeof(float));
    be->bias_grad(q, k->out, k->dy, k->m, k->n, GPT_F32);
    be->bias_add(q, k->out + k->n, k->bias, k->m, k->n, GPT_F32);
}

static void check_bias(int64_t m, int64_t n)
{
    float *dy = rnd_floats(m * n, 1), *bias = rnd_floats(n, 1);
    struct bias_case k = {m, n, dy, bias, poisoned(n + m * n)};
    double *want = malloc((size_t)(n + m * n) * sizeof(*want));

    for (int64_t j = 0; j < n; j++)
        want[j] = 2;
    for (int64_t i = 0; i < m * n; i++) {
        want[i % n] += (double)dy[i];
        want[n + i] = (double)dy[i] + (double)bias[i % n];
    }
    ok(same_bytes(run_bias, &k, k.out, n + m * n),
       "%s: bias %lldx%lld equal for 1, 2, 3 threads", setting, (long long)m,
       (long long)n);
    close_to(k.out, want, n, 1e-5, "%s: bias_grad", setting);
    close_to(k.out + n, want + n, m * n, 2e-7, "%s: bias_add", setting);
    free(dy), free(bias), free(k.out), free(want);
}

/* A target that is a dummy row would read past the real logits. */
static void check_target(void)
{
    struct gpt_queue *other;
    struct gpt_err err = {0};
    float logits[6] = {0}, weight = 1, loss;

    if (be->queue_open(be, &other, &err) != GPT_OK)
        return;
    int32_t target = 4;
    struct gpt_xent op = {1,      6,       4,       6,     GPT_F32,
                          logits, &target, &weight, &loss, true, 0, NULL, 0, 0};
    be->xent(other, &op);
    is_int(be->sync(other, &err), GPT_EDEVICE, "a dummy target is refused: %s",
           err.text);
    be->queue_close(other);
}

static void check_refusals(void)
{
    struct gpt_queue *other;
    struct gpt_err err = {0};
    float x[4] = {1, 2, 3, 4}, keep[4] = {1, 2, 3, 4};

    is_int(be->queue_open(be, &other, &err), GPT_OK, "open a second queue");
    be->bias_add(other, x, x, 1, 4, GPT_F16);
    is_int(be->sync(other, &err), GPT_EDEVICE, "fp16 is refused");
    ok(strstr(err.text, "bias_add") && strstr(err.text, "F16"),
       "the message names operation and type: %s", err.text);
    be->bias_add(other, x, x, 1, 4, GPT_F32);
    ok(memcmp(x, keep, sizeof(x)) == 0, "nothing runs after a failure");
    be->sumsq(other, NULL, x, 4);
    is_int(be->sync(other, &err), GPT_EDEVICE, "the failure sticks");
    be->queue_close(other);
    check_target();
    void *mem = NULL;
    is_int(be->alloc(be, SIZE_MAX - 10, "everything", &mem, &err), GPT_EDEVICE,
           "too much memory is refused");
    ok(strstr(err.text, "everything") != NULL, "and named: %s", err.text);
    is_int(gpt_backend_open(&be, "tpu", &err), GPT_EDEVICE, "unknown device");
    is_int(gpt_backend_open(&be, "cpu", &err), GPT_OK, "device cpu");
}

static void check_memory(void)
{
    struct gpt_err err;
    static const size_t sizes[] = {0, 1, 100, 4096, 3 << 20};

    for (size_t i = 0; i < GPT_COUNT(sizes); i++) {
        void *mem;
        int status = be->alloc(be, sizes[i], "test", &mem, &err);
        bool zero = true;

        for (size_t j = 0; status == GPT_OK && j < sizes[i]; j++)
            zero &= ((char *)mem)[j] == 0;
        ok(status == GPT_OK && (uintptr_t)mem % 64 == 0 && zero,
           "%zu bytes are aligned and zero", sizes[i]);
        be->free(be, mem);
    }
    float x[3] = {1, 2.5f, -3}, y[3], back[3];
    uint16_t half[3];
    be->copy_in(q, y, x, sizeof(x));
    be->cast(q, half, GPT_BF16, y, GPT_F32, 3);
    be->cast(q, back, GPT_F32, half, GPT_BF16, 3);
    be->zero(q, y, sizeof(y));
    be->copy_out(q, x, back, sizeof(x));
    ok(x[0] == 1 && x[1] == 2.5f && x[2] == -3 && y[0] == 0 && y[2] == 0,
       "copy, cast and zero");
}

static void body(void)
{
    check_xent(1, 1, 1, 0, 1, true);
    check_xent(7, 33, 33, 3, 3, true);
    check_xent(9, 64, 57, 0, 80, true);
    check_xent(5, 1000, 993, 0, 10, true);
    check_xent(6, 130, 101, 2, 1000, false);
    check_long_row();
    check_xent_ranks(7, 33, 33, 1, 3, true);
    check_xent_ranks(9, 64, 57, 2, 80, true);
    check_xent_ranks(9, 64, 15, 4, 8, true); /* ranks without words */
    check_xent_ranks(6, 132, 101, 4, 1000, false);
    check_adamw(7, 1, false, false);
    check_adamw(100003, 4, true, false);
    check_adamw(7, 2, true, true);
    check_adamw(100003, 1, false, true);
    check_sgd(7, true);
    check_sgd(100003, false);
    check_mix(1);
    check_mix(100003);
    check_regularised(7, 33, 33, 1);
    check_regularised(5, 1000, 993, 1);
    check_regularised(9, 64, 57, 2);
    check_regularised(9, 16, 9, 4); /* the last columns are dummies */
    check_sums(1);
    check_sums(1000);
    check_sums(100007);
    check_bias(1, 1);
    check_bias(130, 67);
    check_bias(300, 513);
    check_memory();
    check_refusals();
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
