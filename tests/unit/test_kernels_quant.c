/* Products with weights in fewer bits (struct gpt_quant), against sums in
 * double of the numbers that the bits stand for: every form of weights, few
 * rows and many, edges, biases, sums that are added to. Few rows give each row
 * the bits that it has alone. */
#include "tests/unit/kernels.h"

enum { MOST_ROWS = 40 };

struct product {
    struct gpt_matmul op;
    struct gpt_quant quant;
    float *a, *c0, *c, *bias;
    uint16_t *wide, *scales; /* wide: values of bf16 */
    int8_t *bytes;
};

static double weight(const struct product *p, int64_t i, int64_t l)
{
    int64_t k = p->op.k, groups = p->quant.group ? (k + 31) / 32 : 1;

    if (p->quant.type == GPT_BF16)
        return (double)gpt_bf16_to_f32(p->wide[i * k + l]);
    return p->bytes[i * k + l] *
           (double)gpt_bf16_to_f32(
               p->scales[i * groups + (p->quant.group ? l / 32 : 0)]);
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
    return op->m <= 16 || op->sums == GPT_SUMS_FEW;
}

/* Products of inputs with the numbers of weights have one rounding, as have
 * sums; inputs of many rows may be kept to 16 bits (kernels/cpu/quant.c). */
static int64_t wrong_elements(const struct product *p)
{
    const struct gpt_matmul *op = &p->op;
    double u = 0x1p-24 * (double)(op->k + 4) + (has_few_rows(op) ? 0 : 0x1p-16);
    int64_t wrong = 0;

    for (int64_t i = 0; i < op->m; i++)
        for (int64_t j = 0; j < op->n; j++) {
            double sum = op->beta != 0 ? (double)p->c0[i * op->n + j] : 0;
            double size = 0;

            sum += op->bias ? (double)p->bias[j] : 0;
            for (int64_t l = 0; l < op->k; l++) {
                double t = (double)p->a[i * op->k + l] * weight(p, j, l);

                sum += t;
                size += fabs(t);
            }
            /* and each number of the form may be rounded on the way */
            wrong += !(fabs((double)p->c[i * op->n + j] - sum) <=
                       2 * u * (size + fabs(sum) + 2));
        }
    return wrong;
}

/* Rows that differ from what each gives alone. */
static int64_t rows_that_depend(struct product *p)
{
    int64_t n = p->op.n, differ = 0, m = p->op.m;
    float *all = copied(p->c, m * n), *c0 = p->c0;

    if (!has_few_rows(&p->op))
        m = 0;
    p->op.m = 1;
    for (int64_t i = 0; i < m; i++) {
        p->op.a = p->a + i * p->op.k;
        p->c0 = c0 + i * n;
        run(p);
        differ += memcmp(p->c, all + i * n, (size_t)n * sizeof(*all)) != 0;
    }
    p->c0 = c0;
    free(all);
    return differ;
}

static void check(enum gpt_dtype type, int64_t group, int64_t m, int64_t n,
                  int64_t k, bool bias, float beta, enum gpt_sums sums)
{
    int64_t groups = group ? (k + 31) / 32 : 1;
    struct product p = {
        .op = {.m = m, .n = n, .k = k, .tb = true, .act = GPT_F32,
               .c_type = GPT_F32, .beta = beta, .sums = sums,
               .epilogue = bias ? GPT_EPI_BIAS : GPT_EPI_NONE},
        .quant = {.type = type, .group = group},
        .a = rnd_floats(m * k, 1), .c0 = rnd_floats(m * n, 1),
        .c = poisoned(m * n), .bias = rnd_floats(n, 1),
        .wide = malloc((size_t)(n * k + 1) * sizeof(*p.wide)),
        .scales = malloc((size_t)(n * groups) * sizeof(*p.scales)),
        .bytes = malloc((size_t)(n * k + 1)),
    };

    for (int64_t i = 0; i < n * k; i++) {
        p.wide[i] = gpt_f32_to_bf16((float)rnd());
        p.bytes[i] = (int8_t)rnd_int(-127, 127);
    }
    for (int64_t i = 0; i < n * groups; i++)
        p.scales[i] = gpt_f32_to_bf16((float)(1.5 + rnd()) / 127);
    p.quant.values = type == GPT_BF16 ? (void *)p.wide : (void *)p.bytes;
    p.quant.scales = p.scales;
    p.op.quant = &p.quant;
    p.op.a = p.a;
    p.op.c = p.c;
    p.op.bias = bias ? p.bias : NULL;
    bool same = same_bytes(run, &p, p.c, m * n);
    is_int(wrong_elements(&p), 0, "%s: %s-%lld %lldx%lldx%lld: wrong elements",
           setting, gpt_dtype_name(type), (long long)group, (long long)m,
           (long long)n, (long long)k);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    is_int(rows_that_depend(&p), 0, "%s: rows that depend on others", setting);
    free(p.a), free(p.c0), free(p.c), free(p.bias);
    free(p.wide), free(p.scales), free(p.bytes);
}

static void body(void)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 11, 16, 17, MOST_ROWS};
    static const struct {
        enum gpt_dtype type;
        int64_t group;
    } forms[] = {{GPT_BF16, 0}, {GPT_I8, 0}, {GPT_I8, 32}};

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
            check(forms[f].type, forms[f].group, m, 70, 200, true, 0,
                  GPT_SUMS_FEW);
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
