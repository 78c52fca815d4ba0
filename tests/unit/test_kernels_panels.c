/* Products with weights of floats as the device keeps them (panels), against
 * sums in double: shapes drawn at random, edges of panels and of tiles, few
 * rows and many, epilogues, sums that are added to. An element has the same
 * bits in any part of a product, with few rows and with many. And rows of such
 * a matrix come back as they were. */
#include "tests/unit/kernels.h"

static const struct gpt_quant floats = {.type = GPT_F32};

/* The matrix (n, k) as the device keeps it, in *mem, free() it; rows come in
 * two parts, where there are so many. */
static struct gpt_quant arranged(void **mem, const float *rows, int64_t n,
                                 int64_t k)
{
    const size_t bytes = be->quant_bytes(&floats, n, k);
    const int64_t first = n > 64 ? 64 : n;
    struct gpt_quant w = floats;
    char *to = aligned_alloc(64, (bytes + 64) / 64 * 64);

    memset(to, 0xee, bytes);
    w.values = rows;
    be->quant_arrange(to, &w, 0, first, k);
    w.values = rows + first * k;
    be->quant_arrange(to, &w, first, n - first, k);
    w.values = *mem = to;
    w.arranged = true;
    return w;
}

struct product {
    struct gpt_matmul op;
    struct gpt_quant w;
    float *a, *b, *bias, *c0, *c;
};

static void run(void *ctx)
{
    struct product *p = ctx;

    memcpy(p->c, p->c0, (size_t)(p->op.m * p->op.n) * sizeof(*p->c));
    be->matmul(q, &p->op);
}

/* Each product and each sum is rounded once. */
static int64_t wrong_elements(const struct product *p)
{
    const struct gpt_matmul *op = &p->op;
    const double u = 0x1p-24 * (double)(op->k + 3);
    int64_t wrong = 0;

    for (int64_t i = 0; i < op->m; i++)
        for (int64_t j = 0; j < op->n; j++) {
            const double c0 =
                op->beta != 0 ? (double)p->c0[i * op->n + j] : 0;
            const double bias = op->bias ? (double)p->bias[j] : 0;
            double sum = c0 + bias, size = fabs(c0) + fabs(bias);

            for (int64_t l = 0; l < op->k; l++) {
                const double x = (double)p->a[i * op->lda + l] *
                                 (double)p->b[j * op->k + l];

                sum += x;
                size += fabs(x);
            }
            wrong += !(fabs((double)p->c[i * op->n + j] - sum) <=
                       1.01 * u * size);
        }
    return wrong;
}

/* Whether some rows and columns, a product of their own with other sums, have
 * other bits than in the whole. */
static bool part_differs(const struct product *p, int64_t row, int64_t rows,
                         int64_t column, int64_t columns, enum gpt_sums sums)
{
    const int64_t n = p->op.n, k = p->op.k, at = row * n + column;
    void *mem;
    struct gpt_quant w = arranged(&mem, p->b + column * k, columns, k);
    float *c = copied(p->c0, p->op.m * n);
    struct gpt_matmul op = p->op;
    bool differs = false;

    op.quant = &w;
    op.m = rows;
    op.n = columns;
    op.ldc = n;
    op.a = p->a + row * op.lda;
    op.c = c + at;
    op.bias = op.bias ? p->bias + column : NULL;
    op.sums = sums;
    be->matmul(q, &op);
    for (int64_t i = 0; i < rows; i++)
        differs |= memcmp(c + at + i * n, p->c + at + i * n,
                          (size_t)columns * sizeof(*c)) != 0;
    free(c), free(mem);
    return differs;
}

static int64_t parts_that_differ(const struct product *p)
{
    int64_t differ = 0;

    for (int i = 0; i < 6 && p->op.m > 0 && p->op.n > 0; i++) {
        const int64_t row = rnd_int(0, p->op.m - 1);
        const int64_t column = rnd_int(0, p->op.n - 1);

        differ += part_differs(p, row, rnd_int(1, p->op.m - row), column,
                               rnd_int(1, p->op.n - column),
                               i % 2 ? GPT_SUMS_FEW : GPT_SUMS_MANY);
    }
    return differ;
}

/* GELU of sums with their biases: those are left in aux, and have the bits that
 * the product has without it. */
static bool gelu_differs(const struct product *p)
{
    const int64_t n = p->op.m * p->op.n;
    float *aux = poisoned(n), *c = copied(p->c0, n), *want = poisoned(n);
    struct gpt_matmul op = p->op;
    const struct gpt_activate gelu = {.kind = GPT_GELU, .n = p->op.m,
                                      .f = p->op.n, .act = GPT_F32,
                                      .pre = p->c, .out = want};

    op.c = c;
    op.aux = aux;
    op.epilogue = GPT_EPI_BIAS_GELU;
    be->matmul(q, &op);
    be->activate(q, &gelu);
    const bool differs =
        memcmp(aux, p->c, (size_t)n * sizeof(*aux)) != 0 ||
        memcmp(c, want, (size_t)n * sizeof(*c)) != 0;
    free(aux), free(c), free(want);
    return differs;
}

static void check(int64_t m, int64_t n, int64_t k, bool bias, bool add,
                  enum gpt_sums sums)
{
    const int64_t lda = k + rnd_int(0, 1) * 5;
    struct product p = {
        .op = {.m = m, .n = n, .k = k, .lda = lda, .tb = true, .act = GPT_F32,
               .c_type = GPT_F32, .beta = add ? 1 : 0, .sums = sums,
               .epilogue = bias ? GPT_EPI_BIAS : GPT_EPI_NONE},
        .a = rnd_floats(m * lda, 1), .b = rnd_floats(n * k, 1),
        .bias = rnd_floats(n, 1), .c0 = rnd_floats(m * n, 1),
        .c = poisoned(m * n)};

    void *mem;
    p.w = arranged(&mem, p.b, n, k);
    p.op.a = p.a;
    p.op.quant = &p.w;
    p.op.bias = bias ? p.bias : NULL;
    p.op.c = p.c;
    const bool same = same_bytes(run, &p, p.c, m * n);
    is_int(wrong_elements(&p), 0, "%s: %lldx%lldx%lld: wrong elements", setting,
           (long long)m, (long long)n, (long long)k);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    if (m >= 32) /* two parts of the rows, each the work of two threads */
        ok(same_by(4, run, &p, p.c, m * n), "%s: and for 4", setting);
    is_int(parts_that_differ(&p), 0, "%s: parts that differ", setting);
    if (bias)
        ok(!gelu_differs(&p), "%s: GELU of the same sums", setting);
    free(p.a), free(p.b), free(p.bias), free(p.c0), free(p.c);
    free(mem);
}

/* The table of words is such a matrix, too. */
static void check_rows(int64_t n, int64_t c)
{
    enum { TOKENS = 9 };
    float *rows = rnd_floats(n * c, 1), *out = poisoned(TOKENS * c);
    void *mem;
    const struct gpt_quant w = arranged(&mem, rows, n, c);
    int32_t tokens[TOKENS];
    struct gpt_embed op = {.n = TOKENS, .c = c, .v_local = n, .act = GPT_F32,
                           .tokens = tokens, .out = out, .quant = &w};
    int64_t differ = 0;

    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(i == 0 ? n - 1 : rnd_int(0, n - 1));
    be->embed_fwd(q, &op);
    for (int i = 0; i < TOKENS; i++)
        differ += memcmp(out + i * c, rows + tokens[i] * c,
                         (size_t)c * sizeof(*out)) != 0;
    is_int(differ, 0, "%s: rows of %lld words of %lld that differ", setting,
           (long long)n, (long long)c);
    free(rows), free(out), free(mem);
}

static void body(void)
{
    static const enum gpt_sums sums[] = {GPT_SUMS_FEW, GPT_SUMS_MANY,
                                         GPT_SUMS_SHAPE};

    if (be->quant_bytes(&floats, 1, 1) == 0) {
        skip("%s: floats stay in rows", setting);
        return;
    }
    /* all numbers of rows of a tile, and some of several */
    for (int64_t m = 0; m <= 14; m++)
        check(m, rnd_int(1, 100), rnd_int(1, 90), m % 2, m / 2 % 2,
              GPT_SUMS_FEW);
    for (int i = 0; i < 30; i++)
        check(rnd_int(1, 70), rnd_int(0, 90), rnd_int(0, i % 3 ? 100 : 600),
              i % 2, i / 2 % 2, sums[i % 3]);
    /* inputs that do not stay in the second cache, more columns and rows than
     * items have */
    check(45, 37, 3000, true, false, GPT_SUMS_FEW);
    /* rows that threads share, which are not the same number for each */
    check(49, 67, 300, true, false, GPT_SUMS_FEW);
    check(150, 801, 1025, true, true, GPT_SUMS_MANY);
    for (int i = 0; i < 4; i++)
        check_rows(rnd_int(1, 100), rnd_int(1, 600));
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
