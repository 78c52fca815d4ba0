/* Compares matrix products with a reference in double: every transposition, odd
 * sizes and row strides, beta, epilogues. Any number of threads gives equal
 * bytes. */
#include "cpu/product.h"
#include "tests/unit/kernels.h"

#include <signal.h>
#include <sys/time.h>

static double ref_gelu(double x)
{
    double u = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);

    return 0.5 * x * (1 + tanh(u));
}

static double ref_slope(double x)
{
    double h = 1e-5;

    return (ref_gelu(x + h) - ref_gelu(x - h)) / (2 * h);
}

struct setup {
    struct gpt_matmul op;
    float *c0; /* c before the product */
    int64_t ldc;
};

static void run(void *ctx)
{
    struct setup *s = ctx;

    memcpy(s->op.c, s->c0, (size_t)(s->op.m * s->ldc) * sizeof(float));
    be->matmul(q, &s->op);
}

static double ref_element(const struct setup *s, int64_t i, int64_t j)
{
    const struct gpt_matmul *op = &s->op;
    const float *a = op->a, *b = op->b;
    double sum = op->beta == 1 ? (double)s->c0[i * s->ldc + j] : 0;

    for (int64_t k = 0; k < op->k; k++)
        sum += (double)a[op->ta ? k * op->lda + i : i * op->lda + k] *
               (double)b[op->tb ? j * op->ldb + k : k * op->ldb + j];
    return sum;
}

/* One shape; pads leave room between rows, which must stay as it was. */
static void check(int64_t m, int64_t n, int64_t k, bool ta, bool tb, float beta,
                  enum gpt_epilogue epi, int64_t pad)
{
    struct setup s = {.ldc = n + pad};
    int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad;
    float *a = rnd_floats((ta ? k : m) * lda, 1);
    float *b = rnd_floats((tb ? n : k) * ldb, 1);
    float *bias = rnd_floats(n, 1), *aux = rnd_floats(m * n, 2);
    float *aux_in = copied(aux, m * n), *c = poisoned(m * s.ldc);

    s.c0 = beta == 1 ? rnd_floats(m * s.ldc, 1) : poisoned(m * s.ldc);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = n; j < s.ldc; j++)
            s.c0[i * s.ldc + j] = 77;
    s.op = (struct gpt_matmul){
        .m = m,
        .n = n,
        .k = k,
        .ta = ta,
        .tb = tb,
        .a = a,
        .b = b,
        .lda = lda,
        .ldb = ldb,
        .ldc = s.ldc,
        .c = c,
        .act = GPT_F32,
        .c_type = GPT_F32,
        .beta = beta,
        .epilogue = epi,
        .bias = bias,
        .aux = epi == GPT_EPI_NONE || epi == GPT_EPI_BIAS ? NULL : aux};
    bool same = same_bytes(run, &s, c, m * s.ldc);
    double *want = malloc((size_t)(m * s.ldc) * sizeof(*want));
    bool aux_good = true;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < s.ldc; j++) {
            double x = j < n ? ref_element(&s, i, j) : 77;

            if (j < n && (epi == GPT_EPI_BIAS || epi == GPT_EPI_BIAS_GELU))
                x += (double)bias[j];
            if (j < n && epi == GPT_EPI_BIAS_GELU) {
                aux_good &=
                    fabs((double)aux[i * n + j] - x) < 1e-5 * (1 + (double)k);
                x = ref_gelu(x);
            }
            if (j < n && epi == GPT_EPI_DGELU)
                x *= ref_slope((double)aux_in[i * n + j]);
            want[i * s.ldc + j] = x;
        }
    char name[120];
    snprintf(name, sizeof(name),
             "%s: %lldx%lldx%lld %c%c beta %g epi %d pad %d", setting,
             (long long)m, (long long)n, (long long)k, "NT"[ta], "NT"[tb],
             (double)beta, (int)epi, (int)pad);
    double tol = 4e-7 * (1 + sqrt((double)k)) + (pad ? 1e-6 : 0);
    close_to(c, want, m * s.ldc, tol, "%s", name);
    ok(same, "%s: equal for 1, 2, 3 threads", name);
    if (epi == GPT_EPI_BIAS_GELU) {
        ok(aux_good, "%s: aux holds the sum before GELU", name);
        float *again = poisoned(m * n);
        struct gpt_activate op = {.n = 1, .f = m * n, .act = GPT_F32,
                                  .pre = aux, .out = again};
        be->activate(q, &op);
        ok(memcmp(again, c, (size_t)(m * n) * sizeof(*c)) == 0,
           "%s: GELU of it alone has the same bits", name);
        free(again);
    }
    free(a), free(b), free(bias), free(aux), free(aux_in), free(c);
    free(s.c0), free(want);
}

/* Whether rows and columns of a product whose sums are those of many rows have
 * the bits that they have by themselves. */
static bool parts_alike(const struct gpt_matmul *whole)
{
    const int64_t i0 = rnd_int(0, whole->m - 1), m = rnd_int(1, whole->m - i0);
    const int64_t j0 = rnd_int(0, whole->n - 1), n = rnd_int(1, whole->n - j0);
    float *c = poisoned(m * n);
    struct gpt_matmul op = *whole;
    bool alike = true;

    op.m = m;
    op.n = n;
    op.a = (const float *)op.a + (op.ta ? i0 : i0 * op.lda);
    op.b = (const float *)op.b + (op.tb ? j0 * op.ldb : j0);
    op.c = c;
    op.ldc = n;
    be->matmul(q, &op);
    for (int64_t i = 0; i < m; i++)
        alike &= memcmp(c + i * n,
                        (float *)whole->c + (i0 + i) * whole->ldc + j0,
                        (size_t)n * sizeof(*c)) == 0;
    free(c);
    return alike;
}

/* Shapes drawn at random, up to those that are cut by rows and by columns. */
static void random_shapes(void)
{
    for (int i = 0; i < 12; i++) {
        const int64_t m = rnd_int(1, i % 3 ? 90 : 700);
        const int64_t n = rnd_int(1, i % 2 ? 90 : 900), k = rnd_int(0, 300);
        const bool ta = i & 1, tb = i & 2;
        float *a = rnd_floats(m * k, 1), *b = rnd_floats(n * k, 1);
        float *c = poisoned(m * n);
        const struct gpt_matmul op = {
            .m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ta = ta, .tb = tb,
            .lda = ta ? m : k, .ldb = tb ? k : n, .ldc = n, .act = GPT_F32,
            .c_type = GPT_F32, .sums = GPT_SUMS_MANY};
        struct setup s = {.op = op, .c0 = poisoned(m * n), .ldc = n};
        const bool same = same_bytes(run, &s, c, m * n);
        int64_t wrong = 0;

        for (int64_t e = 0; e < m * n; e++)
            wrong += !(fabs((double)c[e] - ref_element(&s, e / n, e % n)) <
                       4e-6 * (1 + sqrt((double)k)));
        is_int(wrong, 0, "%s: %lldx%lldx%lld %c%c, many rows", setting,
               (long long)m, (long long)n, (long long)k, "NT"[ta], "NT"[tb]);
        ok(same, "equal for 1, 2, 3 threads");
        ok(parts_alike(&op), "and where others are beside it");
        free(a), free(b), free(c), free(s.c0);
    }
}

static void body(void)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},     {1, 7, 5},       {3, 5, 2},      {6, 16, 8},
        {7, 17, 9},    {13, 31, 65},    {64, 64, 64},   {65, 129, 33},
        {1, 300, 70},  {2, 129, 257},   {4, 96, 400},   {5, 96, 400},
        {96, 48, 513}, {100, 203, 300}, {37, 1000, 11}, {4, 5, 0},
        {33, 40, 0},   {17, 0, 9},      {0, 9, 5},
    };

    for (size_t i = 0; i < GPT_COUNT(shapes); i++)
        for (int t = 0; t < 4; t++)
            check(shapes[i][0], shapes[i][1], shapes[i][2], t & 2, t & 1,
                  (float)((i + (size_t)t) & 1), GPT_EPI_NONE,
                  i % 3 == 2 ? 3 : 0);
    static const int64_t epi_shapes[][3] = {
        {1, 40, 16}, {3, 33, 20}, {5, 64, 7}, {70, 130, 90}};
    for (size_t i = 0; i < GPT_COUNT(epi_shapes); i++)
        for (int e = GPT_EPI_BIAS; e <= GPT_EPI_DGELU; e++)
            check(epi_shapes[i][0], epi_shapes[i][1], epi_shapes[i][2], false,
                  true, 0, (enum gpt_epilogue)e, e == GPT_EPI_BIAS ? 5 : 0);
    /* gradients of weights: a long sum, cut by some libraries over threads */
    check(64, 48, 4096, true, false, 1, GPT_EPI_NONE, 0);
    check(256, 192, 256, true, false, 1, GPT_EPI_NONE, 0);
    /* more rows than are packed at once */
    check(300, 5, 14600, false, true, 0, GPT_EPI_BIAS_GELU, 0);
    /* several blocks side by side, sums in two parts */
    check(150, 790, 260, false, true, 0, GPT_EPI_BIAS, 0);
    check(150, 790, 260, true, false, 1, GPT_EPI_NONE, 0);
    random_shapes();
}

/* oneDNN's matmul primitive, which multiplies bf16 on processors that can, here
 * for floats: more shapes than a thread keeps, twice. */
static void primitives(void)
{
    int64_t wrong = 0, cases = 0;

    for (int i = 0; i < 2 * 48; i++) {
        int64_t m = 1 + i % 48, n = 70 - i % 48, k = 9 + i % 5;
        bool ta = i & 1, tb = i & 2;
        int64_t lda = (ta ? m : k) + i % 3, ldb = (tb ? k : n) + i % 4;
        float *a = rnd_floats((ta ? k : m) * lda, 1);
        float *b = rnd_floats((tb ? n : k) * ldb, 1);
        float *c = rnd_floats(m * (n + 1), 1), *c0 = copied(c, m * (n + 1));
        struct cpu_product p = {.m = m, .n = n, .k = k, .lda = lda, .ldb = ldb,
                                .ldc = n + 1, .ta = ta, .tb = tb, .a = a,
                                .b = b, .c = c, .beta = (float)(i & 1)};
        struct setup s = {.op = {.k = k, .ta = ta, .tb = tb, .lda = lda,
                                 .ldb = ldb, .a = a, .b = b, .beta = p.beta},
                          .c0 = c0, .ldc = n + 1};

        if (!cpu_library_primitive(&p)) {
            skip("this build has no oneDNN");
            free(a), free(b), free(c), free(c0);
            return;
        }
        for (int64_t y = 0; y < m; y++) {
            for (int64_t x = 0; x < n; x++, cases++)
                wrong += !(fabs((double)c[y * s.ldc + x] -
                                ref_element(&s, y, x)) < 1e-5);
            wrong += c[y * s.ldc + n] != c0[y * s.ldc + n];
        }
        free(a), free(b), free(c), free(c0);
    }
    ok(wrong == 0, "oneDNN's primitives: %lld of %lld elements wrong",
       (long long)wrong, (long long)cases);
}

static void on_alarm(int sig)
{
    (void)sig;
}

/* Signals at any moment of a product change neither its result nor the heap.
 * Where they are not held (library.c), oneDNN destroys the heap, which ends the
 * test by SIGABRT or SIGSEGV in nearly every run. */
static void signals(void)
{
    enum { M = 288, SIDE = 384, TRIES = 800, PERIOD = 100 /* microseconds */ };
    const struct sigaction action = {.sa_handler = on_alarm};
    const struct itimerval often = {{0, PERIOD}, {0, PERIOD}}, never = {0};
    float *a = rnd_floats(M * SIDE, 1), *b = rnd_floats(SIDE * SIDE, 1);
    float *c = poisoned(M * SIDE), *first = poisoned(M * SIDE);
    struct cpu_product p = {.m = M, .n = SIDE, .k = SIDE, .lda = SIDE,
                            .ldb = SIDE, .ldc = SIDE, .a = a, .b = b,
                            .c = first};
    struct sigaction before;
    int64_t wrong = 0;

    if (!cpu_library(&p)) {
        skip("this build has no oneDNN");
    } else {
        p.c = c;
        sigaction(SIGALRM, &action, &before);
        setitimer(ITIMER_REAL, &often, NULL);
        for (int i = 0; i < TRIES; i++) {
            wrong += !cpu_library(&p) ||
                     memcmp(c, first, M * SIDE * sizeof(*c)) != 0;
        }
        setitimer(ITIMER_REAL, &never, NULL);
        sigaction(SIGALRM, &before, NULL);
        ok(wrong == 0, "signals in oneDNN's products: %lld of %d are wrong",
           (long long)wrong, TRIES);
    }
    free(a), free(b), free(c), free(first);
}

int main(void)
{
    each_setting(body);
    primitives();
    signals();
    return tap_done();
}
