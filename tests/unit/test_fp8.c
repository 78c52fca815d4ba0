/* Numbers of eight bits: every bfloat16 becomes what PyTorch makes of it, and
 * products of factors that are rounded so equal those in double of the same
 * rounded factors, on the CPU, and on the emulated GPU by the emulated cuBLASLt
 * and by the kernels that stand in for it. */
#include "fp8.h"
#include "tests/unit/device.h"
#include "tests/unit/golden.h"

/* ---- numbers ---- */

static void check_type(FILE *f, const char *name, enum gpt_fp8 type,
                       int infinity)
{
    double values[GOLDEN_MAX], first[GOLDEN_MAX];
    char line[32];
    long wrong = 0;
    int code = 0;

    snprintf(line, sizeof(line), "%s_values", name);
    is_int(golden_array(f, line, values), 128, "%s", line);
    for (int i = 0; i < 256; i++) {
        const double want = i < 128 ? values[i] : -values[i - 128];
        const double got = (double)gpt_fp8_value((uint8_t)i, type);

        wrong += isnan(want) ? !isnan(got) : got != want;
    }
    is_int(wrong, 0, "codes that are not PyTorch's numbers");
    snprintf(line, sizeof(line), "%s_first", name);
    const int n = golden_array(f, line, first);
    for (uint32_t u = 0; u < 0x8000; u++) {
        const float x = gpt_bf16_to_f32((uint16_t)u);

        while (code + 1 < n && u >= first[code + 1])
            code++;
        if (isnan(x)) {
            wrong += !isnan(gpt_fp8_value(gpt_fp8_of(x, type), type));
            wrong += !isnan(gpt_fp8_value(gpt_fp8_of(-x, type), type));
        } else {
            wrong += gpt_fp8_of(x, type) != code;
            wrong += gpt_fp8_of(-x, type) != (code | 0x80);
        }
    }
    is_int(wrong, 0, "bfloat16 numbers of all 65536 that become others");
    is_int(gpt_fp8_of(INFINITY, type), infinity, "infinity is the largest");
}

static void numbers(void)
{
    FILE *f = golden_open("tests/golden/fp8.txt");

    check_type(f, "e4m3", GPT_E4M3, 0x7e);
    check_type(f, "e5m2", GPT_E5M2, 0x7b);
    fclose(f);
    ok(gpt_fp8_scale(2, GPT_E4M3) == 224, "the largest number takes all");
    ok(gpt_fp8_scale(0, GPT_E4M3) == 0x1p126f, "zeros have the largest scale");
    ok(gpt_fp8_scale(INFINITY, GPT_E5M2) == 0, "infinity has none");
    ok(isnan(gpt_fp8_scale(NAN, GPT_E4M3)), "NaN stays NaN");
}

/* ---- products ---- */

struct shape {
    int64_t m, n, k, pad; /* pad: between rows of c and of the factors */
    bool ta, tb;
    enum gpt_fp8 a, b;
    enum gpt_dtype c_type;
    float beta;
    enum gpt_epilogue epilogue;
};

/* Memory of a backend with these numbers in bf16, or float. */
static void *put(struct gpt_backend *be, struct gpt_queue *q, const float *x,
                 int64_t n, enum gpt_dtype type)
{
    struct gpt_err err;
    char *bytes = malloc((size_t)n * 4 + 1);
    void *mem;

    gpt_convert(bytes, type, x, GPT_F32, (size_t)n);
    must(be->alloc(be, (size_t)n * 4, "a matrix", &mem, &err), &err);
    be->copy_in(q, mem, bytes, (size_t)n * gpt_dtype_bytes(type));
    must(be->sync(q, &err), &err);
    free(bytes);
    return mem;
}

/* Random numbers as bfloat16 has them. */
static float *narrow_floats(int64_t n, double scale)
{
    float *x = rnd_floats(n, scale);

    for (int64_t i = 0; i < n; i++)
        x[i] = gpt_bf16_to_f32(gpt_f32_to_bf16(x[i]));
    return x;
}

/* What a product is made of. The factors of s->pad have room between rows,
 * which holds NaN. */
struct numbers {
    float *a, *b, *c, *bias, *aux;
    int64_t lda, ldb, ldc, n_a, n_b, n_c;
};

static struct numbers make_numbers(const struct shape *s)
{
    struct numbers x = {.lda = (s->ta ? s->m : s->k) + s->pad,
                        .ldb = (s->tb ? s->k : s->n) + s->pad,
                        .ldc = s->n + s->pad};

    x.n_a = (s->ta ? s->k : s->m) * x.lda;
    x.n_b = (s->tb ? s->n : s->k) * x.ldb;
    x.n_c = s->m * x.ldc;
    x.a = narrow_floats(x.n_a, 0.02);
    x.b = narrow_floats(x.n_b, 3);
    x.c = narrow_floats(x.n_c, 0.5);
    x.bias = narrow_floats(s->n, 0.3);
    x.aux = narrow_floats(s->m * s->n, 2);
    x.a[3] = 0.5F; /* most others then use a part of the range alone */
    for (int64_t i = 0; i < x.n_a; i++)
        if (i % x.lda >= x.lda - s->pad)
            x.a[i] = NAN;
    return x;
}

static float largest(const float *x, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most; /* NaN is not */
    return most;
}

static double rounded(float x, float scale, enum gpt_fp8 type)
{
    return (double)gpt_fp8_value(gpt_fp8_of(x * scale, type), type);
}

static double gelu(double x)
{
    const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);

    return 0.5 * x * (1 + tanh(u));
}

/* The element (i, j), in double; into *size the sum of terms' sizes, and into
 * *before the sum in front of the epilogue, which may be rounded itself. */
static double element(const struct shape *s, const struct numbers *x,
                      float scale_a, float scale_b, int64_t i, int64_t j,
                      double *size, double *before)
{
    double sum = 0;

    *size = 0;
    for (int64_t k = 0; k < s->k; k++) {
        const double term =
            rounded(x->a[s->ta ? k * x->lda + i : i * x->lda + k], scale_a,
                    s->a) *
            rounded(x->b[s->tb ? j * x->ldb + k : k * x->ldb + j], scale_b,
                    s->b);

        sum += term;
        *size += fabs(term);
    }
    *size /= (double)scale_a * (double)scale_b;
    sum /= (double)scale_a * (double)scale_b;
    if (s->beta != 0) {
        sum += (double)x->c[i * x->ldc + j];
        *size += fabs((double)x->c[i * x->ldc + j]);
    }
    *before = sum;
    if (s->epilogue == GPT_EPI_BIAS || s->epilogue == GPT_EPI_BIAS_GELU)
        sum += (double)x->bias[j];
    if (s->epilogue == GPT_EPI_BIAS_GELU)
        sum = gelu(sum);
    if (s->epilogue == GPT_EPI_DGELU) {
        const double h = 1e-5, at = (double)x->aux[i * s->n + j];

        sum *= (gelu(at + h) - gelu(at - h)) / (2 * h);
    }
    return sum;
}

/* c of a backend, as floats. */
static float *run_on(struct gpt_backend *be, struct gpt_queue *q,
                     const struct shape *s, const struct numbers *x,
                     const float *amax)
{
    struct gpt_err err;
    void *mem[] = {
        put(be, q, x->a, x->n_a, GPT_BF16),
        put(be, q, x->b, x->n_b, GPT_BF16),
        put(be, q, x->c, x->n_c, s->c_type),
        put(be, q, x->bias, s->n, GPT_BF16),
        put(be, q, x->aux, s->m * s->n, GPT_BF16),
        put(be, q, amax, 2, GPT_F32),
        NULL,
    };
    float *c = malloc((size_t)x->n_c * sizeof(*c));

    must(be->alloc(be, be->fp8_scratch(s->m, s->n, s->k), "scratch", &mem[6],
                   &err),
         &err);
    const struct gpt_matmul op = {
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .ta = s->ta,
        .tb = s->tb,
        .a = mem[0],
        .b = mem[1],
        .lda = x->lda,
        .ldb = x->ldb,
        .c = mem[2],
        .ldc = x->ldc,
        .act = GPT_BF16,
        .c_type = s->c_type,
        .beta = s->beta,
        .epilogue = s->epilogue,
        .bias = mem[3],
        .aux = mem[4],
        .fp8 = {s->a, s->b, mem[5], (float *)mem[5] + 1, mem[6], false},
    };
    be->matmul(q, &op);
    const size_t bytes = (size_t)x->n_c * gpt_dtype_bytes(s->c_type);
    void *out = malloc(bytes + 1);
    be->copy_out(q, out, mem[2], bytes);
    must(be->sync(q, &err), &err);
    gpt_convert(c, GPT_F32, out, s->c_type, (size_t)x->n_c);
    free(out);
    for (size_t i = 0; i < GPT_COUNT(mem); i++)
        be->free(be, mem[i]);
    return c;
}

/* The worst error, as a share of what rounding of sums in float and of the
 * result to its type allows. */
static double worst_error(const struct shape *s, const struct numbers *x,
                          const float *amax, const float *c, bool on_gpu)
{
    /* see struct gpt_fp8_factors */
    const double coarse = on_gpu ? 0x1p-12 : 0;
    const float scale_a = gpt_fp8_scale(amax[0], s->a);
    const float scale_b = gpt_fp8_scale(amax[1], s->b);
    const double unit = s->c_type == GPT_F32 ? 0x1p-23 : 0x1p-8;
    double worst = 0;

    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < x->ldc; j++) {
            const double got = (double)c[i * x->ldc + j];
            double size, before;

            if (j >= s->n) { /* between rows nothing is written */
                if (got != (double)x->c[i * x->ldc + j])
                    worst = (double)INFINITY;
                continue;
            }
            const double want =
                element(s, x, scale_a, scale_b, i, j, &size, &before);
            /* GELU and its slope make an error larger by a seventh */
            const double limit =
                (double)(s->k + 4) * 0x1p-23 * (size + 1) + coarse * size +
                unit * (fabs(want) + 1.15 * (fabs(before) + fabs(want)) + 0.01);
            worst = isnan(got) ? (double)INFINITY
                               : fmax(worst, fabs(got - want) / limit);
        }
    return worst;
}

static void check_product(const struct shape *s, bool plugin)
{
    struct numbers x = make_numbers(s);
    const float amax[] = {largest(x.a, x.n_a), largest(x.b, x.n_b)};
    char name[120];
    float *c;

    snprintf(name, sizeof(name), "%lld x %lld x %lld %c%c %d,%d to %s, "
             "beta %g, epilogue %d", (long long)s->m, (long long)s->n,
             (long long)s->k, "NT"[s->ta], "NT"[s->tb], s->a, s->b,
             gpt_dtype_name(s->c_type), (double)s->beta, (int)s->epilogue);
    for (int device = 0; device <= plugin; device++) {
        struct gpt_backend *be = device ? dev_be : cpu_be;

        c = run_on(be, device ? dev_q : cpu_q, s, &x, amax);
        const double worst = worst_error(s, &x, amax, c, device && !emulated);
        ok(worst <= 1, "%s: %s: error %.2g of the limit", be->name, name,
           worst);
        free(c);
    }
    free(x.a), free(x.b), free(x.c), free(x.bias), free(x.aux);
}

static void products(bool plugin)
{
    static const struct shape shapes[] = {
        /* those of a layer: forward, gradients of input and of weight */
        {48, 80, 96, 0, 0, 1, GPT_E4M3, GPT_E4M3, GPT_BF16, 0, GPT_EPI_BIAS},
        {48, 96, 80, 16, 0, 0, GPT_E5M2, GPT_E4M3, GPT_BF16, 0, GPT_EPI_NONE},
        {80, 96, 48, 16, 1, 0, GPT_E5M2, GPT_E4M3, GPT_F32, 1, GPT_EPI_NONE},
        /* and what else they may be */
        {80, 96, 48, 0, 1, 0, GPT_E4M3, GPT_E4M3, GPT_F32, 0, GPT_EPI_NONE},
        {16, 16, 16, 0, 0, 1, GPT_E4M3, GPT_E5M2, GPT_BF16, 1, GPT_EPI_NONE},
        {32, 144, 64, 0, 0, 1, GPT_E4M3, GPT_E4M3, GPT_BF16, 0,
         GPT_EPI_BIAS_GELU},
        {32, 144, 64, 0, 0, 0, GPT_E5M2, GPT_E4M3, GPT_BF16, 0, GPT_EPI_DGELU},
        {304, 400, 32, 0, 1, 1, GPT_E4M3, GPT_E4M3, GPT_BF16, 0, GPT_EPI_NONE},
    };

    for (size_t i = 0; i < GPT_COUNT(shapes); i++)
        check_product(&shapes[i], plugin);
}

/* ---- the largest element, and what is refused ---- */

static void check_amax(struct gpt_backend *be, struct gpt_queue *q)
{
    enum { N = 16 * 1031 };
    float *x = narrow_floats(N, 2), zero = 0, got = 0;
    struct gpt_err err;
    void *amax = put(be, q, &zero, 1, GPT_F32);

    x[N - 1] = -3;
    for (int i = 0; i < 3; i++) {
        static const float largest_of[] = {3, INFINITY, NAN};
        const float want = largest_of[i];

        x[N / 2] = i > 0 ? -want : 1;
        void *mem = put(be, q, x, N, GPT_BF16);
        be->amax(q, amax, mem, N);
        be->amax(q, amax, mem, 16);
        be->copy_out(q, &got, amax, sizeof(got));
        must(be->sync(q, &err), &err);
        ok(got == want || (isnan(got) && isnan(want)),
           "%s: the largest is %g: %g", be->name, (double)want, (double)got);
        be->free(be, mem);
    }
    be->free(be, amax);
    free(x);
}

/* A GPU reads 16 bytes at a time. */
static void check_alignment(void)
{
    struct gpt_queue *q;
    struct gpt_err err;
    void *mem;

    must(dev_be->queue_open(dev_be, &q, &err), &err);
    must(dev_be->alloc(dev_be, 1 << 12, "all", &mem, &err), &err);
    dev_be->amax(q, mem, (char *)mem + 8, 16);
    ok(dev_be->sync(q, &err) != GPT_OK &&
           strstr(err.text, "multiples of 16"),
       "%s refuses an address: %s", dev_be->name, err.text);
    dev_be->queue_close(q);
    dev_be->free(dev_be, mem);
}

static void check_refusal(struct gpt_backend *be)
{
    static const struct {
        int64_t m;
        enum gpt_fp8 a;
        const char *what;
    } cases[] = {{24, GPT_E4M3, "a size of 24"},
                 {16, GPT_E5M2, "E5M2 times E5M2"}};

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        const struct gpt_matmul op = {
            .m = cases[i].m,
            .n = 16,
            .k = 16,
            .tb = true,
            .act = GPT_BF16,
            .c_type = GPT_BF16,
            .fp8 = {.a = cases[i].a, .b = cases[i].a},
        };
        struct gpt_matmul filled = op;
        struct gpt_queue *q;
        struct gpt_err err;
        void *mem;

        must(be->queue_open(be, &q, &err), &err);
        must(be->alloc(be, 1 << 16, "all", &mem, &err), &err);
        filled.a = filled.b = filled.c = filled.fp8.scratch = mem;
        filled.fp8.amax_a = filled.fp8.amax_b = mem;
        be->matmul(q, &filled);
        ok(be->sync(q, &err) != GPT_OK && strstr(err.text, "eight bits"),
           "%s refuses %s", be->name, cases[i].what);
        be->queue_close(q);
        be->free(be, mem);
    }
}

int main(void)
{
    struct gpt_err err;
    bool plugin;

    numbers();
    setenv("GPT_CUDA_EMU_ARCH", "90", 1);
    plugin = open_devices();
    if (!plugin) {
        must(gpt_backend_cpu(&cpu_be, &err), &err);
        must(cpu_be->queue_open(cpu_be, &cpu_q, &err), &err);
    }
    products(plugin);
    check_amax(cpu_be, cpu_q);
    check_refusal(cpu_be);
    if (!plugin)
        return tap_done();
    check_amax(dev_be, dev_q);
    check_refusal(dev_be);
    check_alignment();
    if (emulated) {
        ok(dev_be->abilities & GPT_CAN_FP8, "9.0 has such products");
        setenv("GPT_CUDA_EMU_ORDER", "reverse", 1);
        reopen("GPT_CUDA_EMU_GEMM", "plain"); /* epilogues of our own */
        products(plugin);
        setenv("GPT_CUDA_EMU_ORDER", "random:7", 1);
        reopen("GPT_CUDA_EMU_GEMM", "none"); /* and products */
        products(plugin);
        /* plans that were good, whose scales are not taken */
        reopen("GPT_CUDA_EMU_GEMM", "library");
        products(plugin);
        setenv("GPT_CUDA_EMU_GEMM", "deaf", 1);
        products(plugin);
    }
    close_devices();
    return tap_done();
}
