/* Products with weights in fewer bits (struct gpt_quant), against sums in
 * double of the numbers that the bits stand for: every form of weights, inputs
 * as they are and rounded, few rows and many, edges, biases, sums that are
 * added to. Where sums are those of few rows or of many, parts of a product
 * have the bits that they have in it. */
#include "cpu/few/few.h"
#include "cpu/many/many.h"
#include "tests/unit/kernels.h"

enum { MOST_ROWS = 40 };

/* The matrix (n, k) as the device keeps it, which is freed after use, or NULL:
 * it keeps it as it is. Rows come in two parts, where there are so many. */
static void *arrange(struct gpt_quant *w, int64_t n, int64_t k)
{
    const int64_t row = w->type == GPT_BF16 ? 2 * k : k;
    const int64_t scales = w->group ? (k + 31) / 32 : 1;
    const size_t bytes = be->quant_bytes(w, n, k);
    const int64_t first = n > 64 ? 64 : n;
    struct gpt_quant rest = *w;

    if (bytes == 0)
        return NULL;
    char *to = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(to, 0xee, bytes);
    rest.values = (const char *)w->values + first * row;
    rest.scales += first * scales;
    be->quant_arrange(to, w, 0, first, k);
    be->quant_arrange(to, &rest, first, n - first, k);
    w->values = to;
    w->arranged = true;
    return to;
}

/* A product of rows 0.. and columns 0.. of the memory. */
struct product {
    struct gpt_matmul op;
    struct gpt_quant quant, rows; /* rows: of values that are not arranged */
    float *a, *c0, *c, *bias;
    uint16_t *wide, *scales; /* wide: values of bf16 */
    int8_t *bytes;
    double *weights; /* the numbers that the bits stand for */
    double *inputs;  /* (m, k), the same of a */
};

/* A block of c. */
struct part {
    int64_t row, rows, column, columns;
};

static int64_t scales_a_row(const struct product *p)
{
    return p->quant.group ? (p->op.k + 31) / 32 : 1;
}

static double weight(const struct product *p, int64_t i, int64_t l)
{
    const int64_t k = p->op.k;

    if (p->quant.type == GPT_BF16)
        return (double)gpt_bf16_to_f32(p->wide[i * k + l]);
    return p->bytes[i * k + l] *
           (double)gpt_bf16_to_f32(p->scales[i * scales_a_row(p) +
                                             (p->quant.group ? l / 32 : 0)]);
}

/* What inputs l.. become, n of them that have a unit in common. */
static void round_bytes(double *to, const float *x, int64_t n)
{
    float largest = 0;

    for (int64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    const float unit = cpu_byte_unit(largest), inverse = 1 / unit;
    for (int64_t i = 0; i < n; i++)
        to[i] = rint((double)(x[i] * inverse)) * (double)unit;
}

static void fill_inputs(struct product *p)
{
    const int64_t k = p->op.k, part = p->quant.group ? 32 : k;

    for (int64_t i = 0; i < p->op.m; i++) {
        const float *x = p->a + i * p->op.lda;
        double *to = p->inputs + i * k;

        for (int64_t l = 0; l < k; l++)
            to[l] = p->quant.round_inputs
                        ? (double)gpt_bf16_to_f32(gpt_f32_to_bf16(x[l]))
                        : (double)x[l];
        if (p->quant.round_inputs && p->quant.type == GPT_I8)
            for (int64_t l = 0; l < k; l += part)
                round_bytes(to + l, x + l, k - l < part ? k - l : part);
    }
}

static void run(void *ctx)
{
    struct product *p = ctx;

    memcpy(p->c, p->c0, (size_t)(p->op.m * p->op.n) * sizeof(*p->c));
    be->matmul(q, &p->op);
}

/* Whether rows are summed as each is alone. */
static bool has_few_rows(const struct gpt_matmul *op)
{
    return op->sums == GPT_SUMS_FEW ||
           (op->sums == GPT_SUMS_SHAPE && op->m <= 16);
}

/* How far inputs may be off (backend.h): *part of each, or *whole of the
 * largest of those that have a scale in common. */
static void input_errors(const struct product *p, double *part, double *whole)
{
    const bool few = has_few_rows(&p->op);
    const bool bytes = p->quant.type == GPT_I8;
    const bool tiles = cpu_many && cpu_many->road[CPU_BF16];
    const enum cpu_form form = cpu_form_of(&p->quant);
    /* by AVX2 inputs as they are stay floats; pairs of bytes are packed
     * together */
    const bool floats =
        strcmp(cpu_isa->name, "avx2") == 0 && !p->quant.round_inputs;
    const bool fixed =
        bytes && (few ? cpu_few && cpu_few->road[form] && !floats
                      : cpu_many && cpu_many->road[form] &&
                            (p->quant.arranged || p->op.k % 2 == 0));

    *part = few || fixed || !tiles ? 0 : 0x1p-16;
    /* steps by tiles have four digits of bytes, the others three */
    *whole = !fixed ? 0 : few && tiles ? 0x1p-27 : 0x1p-22;
}

/* What a sum is off by, if each input of row i is by the largest of those that
 * have a scale in common. */
static double most(const struct product *p, int64_t i, const double *w)
{
    const int64_t k = p->op.k, part = p->quant.group ? p->quant.group : k;
    double sum = 0;

    for (int64_t begin = 0; begin < k; begin += part) {
        double largest = 0, weights = 0;

        for (int64_t l = begin; l < k && l < begin + part; l++) {
            largest = fmax(largest, fabs(p->inputs[i * k + l]));
            weights += fabs(w[l]);
        }
        sum += largest * weights;
    }
    return sum;
}

/* Products of inputs with the numbers of weights have one rounding, as have
 * sums. */
static int64_t wrong_elements(const struct product *p)
{
    const struct gpt_matmul *op = &p->op;
    const double u = 0x1p-23 * (double)(op->k + 4);
    double part, whole;
    int64_t wrong = 0;

    input_errors(p, &part, &whole);
    for (int64_t i = 0; i < op->m; i++)
        for (int64_t j = 0; j < op->n; j++) {
            const double c0 =
                op->beta != 0 ? (double)p->c0[i * op->n + j] : 0;
            const double bias = op->bias ? (double)p->bias[j] : 0;
            const double *w = p->weights + j * op->k;
            double sum = 0, size = 0;

            for (int64_t l = 0; l < op->k; l++) {
                const double x = p->inputs[i * op->k + l];

                sum += x * w[l];
                size += fabs(x * w[l]);
            }
            wrong += !(fabs((double)p->c[i * op->n + j] - (sum + c0 + bias)) <=
                       u * (size + fabs(c0) + fabs(bias)) + part * size +
                           (whole > 0 ? whole * most(p, i, w) : 0));
        }
    return wrong;
}

/* Whether a part, computed by itself, differs from what c has there. */
static bool part_differs(const struct product *whole, struct part part)
{
    const int64_t n = whole->op.n, k = whole->op.k;
    const int64_t value = whole->quant.type == GPT_BF16 ? 2 : 1;
    float *c = copied(whole->c0, whole->op.m * n);
    struct gpt_quant quant = whole->rows;
    struct gpt_matmul op = whole->op;
    const int64_t at = part.row * n + part.column;
    bool differs = false;

    quant.values = (const char *)quant.values + part.column * k * value;
    quant.scales += part.column * scales_a_row(whole);
    void *arranged =
        whole->quant.arranged ? arrange(&quant, part.columns, k) : NULL;
    op.quant = &quant;
    op.m = part.rows;
    op.n = part.columns;
    op.ldc = n;
    op.a = whole->a + part.row * op.lda;
    op.c = c + at;
    op.bias = op.bias ? whole->bias + part.column : NULL;
    be->matmul(q, &op);
    for (int64_t i = 0; i < part.rows; i++)
        differs |= memcmp(c + at + i * n, whole->c + at + i * n,
                          (size_t)part.columns * sizeof(*c)) != 0;
    free(c), free(arranged);
    return differs;
}

/* Parts that depend on what is beside them: rows alone of few, and blocks of
 * many, whose rows and columns lie elsewhere in them. */
static int64_t parts_that_depend(const struct product *p)
{
    const int64_t m = p->op.m, n = p->op.n, half = (n + 1) / 2;
    const struct part parts[] = {{0, 17, 0, n},      {m - 17, 17, 0, n},
                                 {m - 32, 32, 0, n}, {m - 33, 33, 0, n},
                                 {0, m, n - 16, 16}, {0, m, 0, 33},
                                 {5, 19, 3, half}};
    int64_t differ = 0;

    if (has_few_rows(&p->op))
        for (int64_t i = 0; i < m; i++)
            differ += part_differs(p, (struct part){i, 1, 0, n});
    else if (p->op.sums == GPT_SUMS_MANY)
        for (size_t i = 0; i < GPT_COUNT(parts); i++)
            differ += part_differs(p, parts[i]);
    return differ;
}

/* All inputs and all weights as far from zero as they can be, rows of weights
 * with either sign: each digit of the inputs (few/) is 127 or -128. */
static void fill_with_largest(struct product *p)
{
    const int64_t k = p->op.k;

    for (int64_t i = 0; i < p->op.m * p->op.lda; i++)
        p->a[i] = 127 - 0x80.8p-8F;
    for (int64_t i = 0; i < p->op.n * k; i++)
        p->bytes[i] = i / k % 2 ? -127 : 127;
}

static bool largest; /* of this kind are the values of check() */

/* Random values. The last row has an input that is larger than all others, and
 * the first column has a weight of zero there: its sum shows what the large
 * input costs the others. */
static void fill(struct product *p)
{
    const int64_t n = p->op.n, k = p->op.k, large = k / 2;

    for (int64_t i = 0; i < n * k; i++) {
        p->wide[i] = gpt_f32_to_bf16((float)rnd());
        p->bytes[i] = (int8_t)rnd_int(-127, 127);
    }
    for (int64_t i = 0; i < n * scales_a_row(p); i++)
        p->scales[i] = gpt_f32_to_bf16((float)(1.5 + rnd()) / 127);
    if (p->op.m > 0 && n > 0 && k > 0) {
        p->a[(p->op.m - 1) * p->op.lda + large] = 0x1p13F;
        p->wide[large] = 0;
        p->bytes[large] = 0;
    }
    if (largest)
        fill_with_largest(p);
    for (int64_t i = 0; i < n * k; i++)
        p->weights[i] = weight(p, i / k, i % k);
    fill_inputs(p);
}

static void check_inputs(enum gpt_dtype type, int64_t group, bool rounded,
                         int64_t m, int64_t n, int64_t k, bool bias, float beta,
                         enum gpt_sums sums)
{
    const int64_t lda = sums == GPT_SUMS_MANY ? k + 3 : k;
    struct product p = {
        .op = {.m = m, .n = n, .k = k, .lda = lda, .tb = true, .act = GPT_F32,
               .c_type = GPT_F32, .beta = beta, .sums = sums,
               .epilogue = bias ? GPT_EPI_BIAS : GPT_EPI_NONE},
        .quant = {.type = type, .group = group, .round_inputs = rounded},
        .a = rnd_floats(m * lda, 1), .c0 = rnd_floats(m * n, 1),
        .c = poisoned(m * n), .bias = rnd_floats(n, 1),
        .wide = malloc((size_t)(n * k + 1) * sizeof(*p.wide)),
        .scales = malloc((size_t)(n * (k + 31)) * sizeof(*p.scales)),
        .bytes = malloc((size_t)(n * k + 1)),
        .weights = malloc((size_t)(n * k + 1) * sizeof(*p.weights)),
        .inputs = malloc((size_t)(m * k + 1) * sizeof(*p.inputs)),
    };

    fill(&p);
    p.quant.values = type == GPT_BF16 ? (void *)p.wide : (void *)p.bytes;
    p.quant.scales = p.scales;
    p.rows = p.quant;
    void *arranged = rnd_int(0, 3) ? arrange(&p.quant, n, k) : NULL;
    p.op.quant = &p.quant;
    p.op.a = p.a;
    p.op.c = p.c;
    p.op.bias = bias ? p.bias : NULL;
    bool same = same_bytes(run, &p, p.c, m * n);
    is_int(wrong_elements(&p), 0,
           "%s: %s-%lld%s%s %lldx%lldx%lld: wrong elements", setting,
           gpt_dtype_name(type), (long long)group, rounded ? " rounded" : "",
           arranged ? " arranged" : "",
           (long long)m, (long long)n, (long long)k);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    if (m >= 32) /* two parts of the rows, each the work of two threads */
        ok(same_by(4, run, &p, p.c, m * n), "%s: and for 4", setting);
    is_int(parts_that_depend(&p), 0, "%s: parts that depend on others",
           setting);
    free(p.a), free(p.c0), free(p.c), free(p.bias);
    free(p.wide), free(p.scales), free(p.bytes), free(p.weights);
    free(p.inputs), free(arranged);
}

/* Inputs as they are, and rounded. */
static void check(enum gpt_dtype type, int64_t group, int64_t m, int64_t n,
                  int64_t k, bool bias, float beta, enum gpt_sums sums)
{
    check_inputs(type, group, false, m, n, k, bias, beta, sums);
    check_inputs(type, group, true, m, n, k, bias, beta, sums);
}

static const struct {
    enum gpt_dtype type;
    int64_t group;
} forms[] = {{GPT_BF16, 0}, {GPT_I8, 0}, {GPT_I8, 32}};

/* Prompts: rows longer than what many/ packs at a time, up to those whose sums
 * of bytes would not fit into 32 bits; and more rows than are packed at once.
 */
static void long_rows(void)
{
    static const int64_t sizes[][3] = {
        {33, 37, 1537}, {65, 37, 3074}, {17, 37, 6200}, {17, 2, 140000},
        {300, 2, 14600}, {601, 70, 300}};

    for (size_t f = 0; f < GPT_COUNT(forms); f++)
        for (size_t i = 0; i < GPT_COUNT(sizes); i++) {
            check_inputs(forms[f].type, forms[f].group, false, sizes[i][0],
                         sizes[i][1], sizes[i][2], true, i % 2, GPT_SUMS_SHAPE);
            if (i < 3) /* rounded inputs take the same ways through the rest */
                check_inputs(forms[f].type, forms[f].group, true, sizes[i][0],
                             sizes[i][1], sizes[i][2], true, i % 2,
                             GPT_SUMS_SHAPE);
        }
    for (size_t f = 0; f < GPT_COUNT(forms); f++) {
        check(forms[f].type, forms[f].group, MOST_ROWS, 52, 3074, true, 1,
              GPT_SUMS_MANY);
        check(forms[f].type, forms[f].group, MOST_ROWS, 70, 200, false, 0,
              GPT_SUMS_MANY);
    }
}

/* The longest rows of bytes whose sums few/ makes of whole numbers. */
static void largest_sums(void)
{
    largest = true;
    check(GPT_I8, 0, 3, 6, FEW_MOST_BYTES, false, 0, GPT_SUMS_FEW);
    largest = false;
}

/* Shapes drawn at random, empty ones among them. */
static void random_shapes(void)
{
    for (int i = 0; i < 60; i++) {
        static const enum gpt_sums sums[] = {GPT_SUMS_SHAPE, GPT_SUMS_FEW,
                                             GPT_SUMS_SHAPE};
        const size_t f = (size_t)i % GPT_COUNT(forms);
        const int64_t m = rnd_int(0, i % 4 ? 20 : 70), n = rnd_int(0, 90);
        const int64_t k = i % 10 ? rnd_int(0, i % 5 ? 150 : 1100) : 0;

        check(forms[f].type, forms[f].group, m, n, k, i % 2, i / 2 % 2,
              sums[i / 4 % 3]);
    }
}

/* A row of inputs with what is no finite number has no finite result, and
 * leaves those of other rows as they are. */
static void wrong_row(enum gpt_dtype type, int64_t group, bool rounded,
                      float wrong, enum gpt_sums sums)
{
    enum { M = 5, N = 37, K = 100 };
    const int64_t row = rnd_int(0, M - 1), at = rnd_int(0, K - 1);
    uint16_t values[N * K], scales[N * K];
    int8_t bytes[N * K];
    struct gpt_quant quant = {
        .type = type, .group = group, .scales = scales, .round_inputs = rounded,
        .values = type == GPT_BF16 ? (void *)values : (void *)bytes};
    float *a = rnd_floats(M * K, 1), c[M * N], right[M * N];
    struct gpt_matmul op = {.m = M, .n = N, .k = K, .a = a, .tb = true,
                            .quant = &quant, .act = GPT_F32, .c = right,
                            .c_type = GPT_F32, .sums = sums};
    int64_t finite = 0;

    for (int64_t i = 0; i < N * K; i++) {
        values[i] = scales[i] = gpt_f32_to_bf16((float)(1.5 + rnd()));
        bytes[i] = (int8_t)rnd_int(-127, 127);
    }
    void *arranged = arrange(&quant, N, K);
    be->matmul(q, &op);
    a[row * K + at] = wrong;
    op.c = c;
    be->matmul(q, &op);
    for (int64_t j = 0; j < N; j++) {
        finite += isfinite(c[row * N + j]) != 0;
        c[row * N + j] = right[row * N + j];
    }
    is_int(finite, 0, "%s: %s-%lld%s of %g is no number", setting,
           gpt_dtype_name(type), (long long)group, rounded ? " rounded" : "",
           (double)wrong);
    ok(memcmp(c, right, sizeof(c)) == 0, "and other rows are the same");
    free(a), free(arranged);
}

static void wrong_rows(void)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};

    for (int i = 0; i < 36; i++)
        wrong_row(forms[i % 3].type, forms[i % 3].group, i / 3 % 2,
                  wrong[i / 6 % 3],
                  i / 18 ? GPT_SUMS_MANY : GPT_SUMS_FEW);
}

/* A product of rounded inputs by the set `isa`; w is in rows. */
static bool multiply_by(const char *isa, struct gpt_matmul op,
                        struct gpt_quant w)
{
    struct gpt_err err;

    if (cpu_choose(isa, "portable", &err) != GPT_OK)
        return false;
    void *arranged = arrange(&w, op.n, op.k);
    op.quant = &w;
    be->matmul(q, &op);
    free(arranged);
    return be->sync(q, &err) == GPT_OK;
}

/* Whole numbers become floats in the same order by AVX2 as by AVX512-VNNI: the
 * same bits. */
static void sets_agree(int64_t group, enum gpt_sums sums)
{
    enum { M = 37, N = 75, K = 1610, GROUPS = (K + 31) / 32 };
    const int64_t k = rnd_int(1, K / 2) * 2, m = rnd_int(1, M);
    int8_t *bytes = malloc(N * K);
    uint16_t *scales = malloc(N * GROUPS * sizeof(*scales));
    float *a = rnd_floats(M * K, 1), *c[2] = {poisoned(M * N), poisoned(M * N)};
    const struct gpt_quant quant = {.type = GPT_I8, .group = group,
                                    .values = bytes, .scales = scales,
                                    .round_inputs = true};
    struct gpt_matmul op = {.m = m, .n = N, .k = k, .a = a, .tb = true,
                            .act = GPT_F32, .c = c[0], .c_type = GPT_F32,
                            .sums = sums};

    for (int i = 0; i < N * K; i++)
        bytes[i] = (int8_t)rnd_int(-127, 127);
    for (int i = 0; i < N * GROUPS; i++)
        scales[i] = gpt_f32_to_bf16((float)(1.5 + rnd()) / 127);
    const bool has = multiply_by("avx512vnni", op, quant);
    op.c = c[1];
    if (has && multiply_by("avx2", op, quant))
        ok(memcmp(c[0], c[1], (size_t)(m * N) * sizeof(float)) == 0,
           "I8-%lld, %lldx%dx%lld: AVX2 and AVX512-VNNI agree",
           (long long)group, (long long)m, N, (long long)k);
    else
        skip("sets that agree: one of them is not there");
    free(bytes), free(scales), free(a), free(c[0]), free(c[1]);
}

static void agreeing_sets(void)
{
    struct gpt_err err;

    if (!ok(be && be->queue_open(be, &q, &err) == GPT_OK, "open a queue"))
        return;
    for (int i = 0; i < 4; i++) {
        sets_agree(0, GPT_SUMS_FEW);
        sets_agree(32, GPT_SUMS_FEW);
        sets_agree(0, GPT_SUMS_MANY);
        sets_agree(32, GPT_SUMS_MANY);
    }
    be->queue_close(q);
}

/* Rows of an embedding are the same numbers whether the matrix is arranged or
 * not: widths that end within four bytes, and ones of several parts. */
static void embeds(enum gpt_dtype type, int64_t group, int64_t c)
{
    enum { WORDS = 45, N = 7 };
    const int64_t row = type == GPT_BF16 ? 2 * c : c;
    const int64_t groups = group ? (c + 31) / 32 : 1;
    uint16_t *values = calloc((size_t)(WORDS * row + 1) / 2 + 1, 2);
    uint16_t *scales = malloc((size_t)(WORDS * groups) * sizeof(*scales));
    float *out[2] = {poisoned(N * c), poisoned(N * c)};
    struct gpt_quant w = {.type = type, .group = group, .values = values,
                          .scales = scales};
    int32_t tokens[N];
    struct gpt_err err;

    for (int64_t i = 0; i < WORDS * row / 2; i++)
        values[i] = gpt_f32_to_bf16((float)rnd_int(-900, 900) / 64);
    for (int64_t i = 0; i < WORDS * groups; i++)
        scales[i] = gpt_f32_to_bf16((float)rnd_int(1, 99) / 512);
    for (int i = 0; i < N; i++)
        tokens[i] = (int32_t)rnd_int(0, WORDS - 1);
    struct gpt_embed op = {.n = N, .c = c, .v_local = WORDS, .act = GPT_F32,
                           .tokens = tokens, .out = out[0], .quant = &w};
    be->embed_fwd(q, &op);
    void *arranged = arrange(&w, WORDS, c);
    op.out = out[1];
    be->embed_fwd(q, &op);
    ok(be->sync(q, &err) == GPT_OK &&
           memcmp(out[0], out[1], (size_t)(N * c) * sizeof(float)) == 0,
       "embedding of %lld columns%s", (long long)c,
       arranged ? ", arranged" : "");
    free(values), free(scales), free(out[0]), free(out[1]), free(arranged);
}

static void embed_all(void)
{
    for (size_t f = 0; f < GPT_COUNT(forms); f++)
        for (int i = 0; i < 6; i++)
            embeds(forms[f].type, forms[f].group, rnd_int(1, 700));
}

static void body(void)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 11, 16, 17, MOST_ROWS};

    /* an emulated instruction takes as long as a thousand others */
    if (!getenv("GPT_TEST_SHORT")) {
        long_rows();
        largest_sums();
    }
    random_shapes();
    embed_all();
    wrong_rows();
    /* more columns than are made floats at once */
    for (size_t f = 0; f < GPT_COUNT(forms); f++)
        check(forms[f].type, forms[f].group, 17, 1600, 33, true, 1,
              GPT_SUMS_SHAPE);
    for (size_t f = 0; f < GPT_COUNT(forms); f++)
        for (size_t i = 0; i < GPT_COUNT(rows); i++) {
            static const int64_t sizes[][2] = {
                {1, 1}, {5, 31}, {37, 100}, {33, 96}, {400, 64}, {3, 776}};
            const int64_t *s = sizes[i % GPT_COUNT(sizes)];
            const int64_t *t = sizes[(i + 3) % GPT_COUNT(sizes)];

            check(forms[f].type, forms[f].group, rows[i], s[0], s[1], i % 2, 0,
                  GPT_SUMS_SHAPE);
            check(forms[f].type, forms[f].group, rows[i], t[0], t[1], false,
                  1, GPT_SUMS_SHAPE);
        }
    /* the next tokens of many texts */
    for (size_t f = 0; f < GPT_COUNT(forms); f++)
        for (int64_t m = 9; m <= MOST_ROWS; m += 7)
            check(forms[f].type, forms[f].group, m, m % 2 ? 70 : 600, 200,
                  true, 0, GPT_SUMS_FEW);
    /* rows that are longer than what the first cache holds of the inputs */
    for (size_t f = 0; f < GPT_COUNT(forms); f++)
        check(forms[f].type, forms[f].group, 19, 21, 1733, false, 1,
              GPT_SUMS_FEW);
}

int main(void)
{
    each_setting(body);
    agreeing_sets();
    return tap_done();
}
