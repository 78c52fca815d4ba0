/* Products of bf16 that are cut in every way that the code knows: sums in parts
 * and in groups of parts, strips and blocks of c, edges of each. Factors are
 * small whole numbers, whose sums floats hold exactly whatever their order is:
 * every element must be equal to the exact sum, on every instruction set and
 * with any number of threads. (test_kernels_bf16 has random factors.) */
#include "tests/unit/kernels.h"

struct cut {
    struct gpt_matmul op;
    float *c0, *c;
};

static void run(void *ctx)
{
    struct cut *p = ctx;

    memcpy(p->c, p->c0, (size_t)(p->op.m * p->op.ldc) * sizeof(*p->c));
    be->matmul(q, &p->op);
}

/* A whole number from -3 to 3. */
static int whole(void)
{
    return (int)rnd_int(-3, 3);
}

static uint16_t *whole_matrix(int64_t n)
{
    uint16_t *x = malloc((size_t)(n + 1) * sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = gpt_f32_to_bf16((float)whole());
    return x;
}

static int64_t wrong_elements(const struct cut *p)
{
    const struct gpt_matmul *op = &p->op;
    const uint16_t *a = op->a, *b = op->b;
    int64_t wrong = 0;

    for (int64_t i = 0; i < op->m; i++)
        for (int64_t j = 0; j < op->ldc; j++) {
            float sum = op->beta != 0 || j >= op->n ? p->c0[i * op->ldc + j]
                                                    : 0;

            for (int64_t l = 0; l < op->k && j < op->n; l++)
                sum += gpt_bf16_to_f32(a[op->ta ? l * op->lda + i
                                                : i * op->lda + l]) *
                       gpt_bf16_to_f32(b[op->tb ? j * op->ldb + l
                                                : l * op->ldb + j]);
            wrong += p->c[i * op->ldc + j] != sum;
        }
    return wrong;
}

/* gap: elements between the rows of all three. */
static void check(int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                  int64_t gap, float beta)
{
    struct cut p = {.op = {.m = m, .n = n, .k = k, .ta = ta, .tb = tb,
                           .lda = (ta ? m : k) + gap,
                           .ldb = (tb ? k : n) + gap, .ldc = n + gap,
                           .act = GPT_BF16, .c_type = GPT_F32, .beta = beta}};
    uint16_t *a = whole_matrix((ta ? k : m) * p.op.lda);
    uint16_t *b = whole_matrix((tb ? n : k) * p.op.ldb);

    p.c0 = rnd_floats(m * p.op.ldc, 1);
    for (int64_t i = 0; i < m * p.op.ldc; i++)
        p.c0[i] = (float)whole();
    p.c = poisoned(m * p.op.ldc);
    p.op.a = a;
    p.op.b = b;
    p.op.c = p.c;
    bool same = same_bytes(run, &p, p.c, m * p.op.ldc);
    is_int(wrong_elements(&p), 0, "%s: %lldx%lldx%lld %c%c: wrong elements",
           setting, (long long)m, (long long)n, (long long)k, "NT"[ta],
           "NT"[tb]);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    free(a), free(b), free(p.c0), free(p.c);
}

/* ---- results that go past the caches ---- */

/* n small whole numbers, as bf16, at the beginning of a cache line. */
static uint16_t *whole_lines(int64_t n)
{
    uint16_t *x = aligned_alloc(64, (size_t)(n + 31) / 32 * 64);

    for (int64_t i = 0; i < n; i++)
        x[i] = gpt_f32_to_bf16((float)whole());
    return x;
}

/* Part `i` of `parts` of a product: rows of c, or columns where a is
 * transposed. */
static struct gpt_matmul part_of(const struct gpt_matmul *whole, int64_t i,
                                 int64_t parts)
{
    struct gpt_matmul op = *whole;
    int64_t size = whole->c_type == GPT_F32 ? 4 : 2;

    if (op.ta) {
        op.n /= parts;
        op.b = (const uint16_t *)op.b + i * op.n;
        op.c = (char *)op.c + i * op.n * size;
        return op;
    }
    op.m /= parts;
    op.a = (const uint16_t *)op.a + i * op.m * op.lda;
    op.c = (char *)op.c + i * op.m * op.ldc * size;
    op.aux = (uint16_t *)op.aux + i * op.m * op.n;
    return op;
}

/* A result that is larger than what caches keep takes another way to memory
 * than its parts do, one after the other. Both must be equal. */
static void check_large(int64_t m, int64_t n, bool ta, enum gpt_epilogue how)
{
    enum { K = 40, PARTS = 4 };
    uint16_t *a = whole_lines(m * K), *b = whole_lines(n * K);
    uint16_t *bias = whole_lines(n), *aux[2], *c[2];
    struct gpt_matmul op = {.m = m, .n = n, .k = K, .ta = ta, .tb = !ta,
                            .a = a, .b = b, .bias = bias,
                            .lda = ta ? m : K, .ldb = ta ? n : K, .ldc = n,
                            .act = GPT_BF16,
                            .c_type = ta ? GPT_F32 : GPT_BF16,
                            .epilogue = how};
    size_t bytes = (size_t)(m * n * (ta ? 4 : 2));

    for (int w = 0; w < 2; w++) {
        c[w] = whole_lines(m * n * 2);
        rnd_state = 1;
        aux[w] = whole_lines(m * n);
        op.c = c[w];
        op.aux = aux[w];
        for (int64_t i = 0; i < (w ? PARTS : 1); i++) {
            struct gpt_matmul part = part_of(&op, i, w ? PARTS : 1);

            be->matmul(q, &part);
        }
    }
    ok(memcmp(c[0], c[1], bytes) == 0 &&
           memcmp(aux[0], aux[1], (size_t)(m * n) * sizeof(**aux)) == 0,
       "%s: %lldx%lld, epilogue %d: parts are equal to the whole", setting,
       (long long)m, (long long)n, (int)how);
    free(a), free(b), free(bias);
    for (int w = 0; w < 2; w++)
        free(c[w]), free(aux[w]);
}

static void body(void)
{
    /* whole lines of c, and lines that begin anywhere */
    for (int64_t n = 2080; n <= 2084; n += 4) {
        check_large(1100, n, false, GPT_EPI_NONE);
        check_large(1100, n, false, GPT_EPI_BIAS);
        check_large(1100, n, false, GPT_EPI_BIAS_GELU);
        check_large(1100, n, false, GPT_EPI_DGELU);
    }
    check_large(1100, 1088, true, GPT_EPI_NONE);
    for (int way = 0; way < 4; way++) {
        bool ta = way & 2, tb = way & 1;

        check(17, 1, 1, ta, tb, 0, 0);
        check(65, 97, 31, ta, tb, 1, 0);
        check(390, 400, 40, ta, tb, 0, 1); /* blocks */
        check(33, 40, 1101, ta, tb, 3, 1); /* parts of a sum */
        check(17, 34, 4097, ta, tb, 0, 0); /* groups of parts */
        check(17, 3077, 33, ta, tb, 0, 0); /* strips across */
        check(3077, 17, 33, ta, tb, 1, 1); /* strips down */
    }
    check(2, 3077, 4100, false, false, 0, 1); /* strips and groups */
    check(3077, 2, 4100, true, false, 0, 1);
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
