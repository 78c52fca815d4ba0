/* Products of each expert's rows with a matrix of its own, against sums in
 * double: forward, backward and gradients, of all experts and of some, with and
 * without weights in fewer bits. Where sums are those of few rows or of many, a
 * row has the bits that it has alone. Start at check_shape(). */
#include "tests/unit/experts.h"

/* ---- products ---- */

struct product {
    struct gpt_expert_matmul op;
    struct gpt_expert_rows rows;
    struct gpt_quant quant;
    const float *c0; /* gradients alone */
    float *c;
    int64_t words;
    const double *weights; /* (count, K, N) or (count, N, K) in double */
};

static void run_product(void *ctx)
{
    struct product *p = ctx;

    spoil(p->c, p->words);
    if (p->op.ta && p->op.beta != 0)
        memcpy(p->c, p->c0, (size_t)p->words * sizeof(*p->c));
    be->expert_matmul(q, &p->op);
}

/* Which expert, of those here, row r is of. */
static int64_t expert_of(const struct gpt_expert_rows *r, int64_t row)
{
    int64_t e = 0;

    while (row >= r->begin[r->first + e + 1] - r->begin[r->first])
        e++;
    return e;
}

static int64_t wrong_products(const struct product *p, double part,
                              double whole)
{
    const struct gpt_expert_matmul *op = &p->op;
    const struct gpt_expert_rows *r = op->rows;
    int64_t wrong = 0;

    for (int64_t i = 0; i < here(r); i++) {
        const double *w =
            p->weights + expert_of(r, i) * op->n * op->k;
        double largest = 0;

        for (int64_t l = 0; l < op->k; l++)
            largest = fmax(largest, fabs(at(op->a, i * op->k + l, r->act)));
        for (int64_t j = 0; j < op->n; j++) {
            double sum = 0, size = 0, weights = 0;

            for (int64_t l = 0; l < op->k; l++) {
                const double b = w[op->tb ? j * op->k + l : l * op->n + j];
                const double x = at(op->a, i * op->k + l, r->act) * b;

                sum += x;
                size += fabs(x);
                weights += fabs(b);
            }
            size += (part * size + whole * largest * weights) * 0x1p23 /
                    (double)(op->k + 4);
            wrong += wrong_by((const char *)p->c +
                                  bytes_of(i * op->n + j, r->act),
                              &sum, &size, 1, op->k, r->act);
        }
    }
    for (int64_t i = here(r) * op->n; i < r->n * r->k * op->n; i++)
        wrong += !isnan(at(p->c, i, r->act));
    return wrong;
}

static int64_t wrong_gradients(const struct product *p)
{
    const struct gpt_expert_matmul *op = &p->op;
    const struct gpt_expert_rows *r = op->rows;
    int64_t wrong = 0;

    for (int64_t e = 0; e < r->count; e++) {
        const int64_t first = r->begin[r->first + e] - r->begin[r->first];
        const int64_t end = r->begin[r->first + e + 1] - r->begin[r->first];

        for (int64_t i = 0; i < op->m * op->n; i++) {
            const int64_t to = e * op->m * op->n + i;
            double sum = op->beta != 0 ? (double)p->c0[to] : 0;
            double size = fabs(sum);

            for (int64_t l = first; l < end; l++) {
                const double x =
                    at(op->a, l * op->m + i / op->n, r->act) *
                    at(op->b, l * op->n + i % op->n, r->act);

                sum += x;
                size += fabs(x);
            }
            wrong += wrong_by(p->c + to, &sum, &size, 1, end - first + 1,
                              GPT_F32);
        }
    }
    return wrong;
}

/* Rows whose bits are not those that they have alone, in a product of one row
 * with their expert's matrix. */
static int64_t rows_that_depend(const struct product *p)
{
    const struct gpt_expert_matmul *op = &p->op;
    const struct gpt_expert_rows *r = op->rows;
    const size_t row = bytes_of(op->n, r->act);
    void *alone = malloc(row + 4);
    int32_t begin[2] = {0, 1}, place[1] = {0};
    const float weight[1] = {1};
    int64_t depend = 0;

    for (int64_t i = 0; i < here(r); i++) {
        const int64_t e = expert_of(r, i);
        struct gpt_expert_rows one = {
            .n = 1, .k = 1, .count = 1, .act = r->act, .begin = begin,
            .source = place, .place = place, .weight = weight};
        struct gpt_expert_matmul product = *op;
        struct gpt_quant quant = p->quant;

        product.rows = &one;
        product.a = (const char *)op->a + bytes_of(i * op->k, r->act);
        product.b = (const char *)op->b + bytes_of(e * op->n * op->k, r->act);
        product.c = alone;
        if (op->quant) { /* rows that are not arranged, or whole panels */
            const int64_t skip = e * op->n;

            quant.values =
                (const char *)quant.values +
                (quant.arranged
                     ? be->quant_bytes(&quant, skip, op->k)
                     : bytes_of(skip * op->k, quant.type));
            if (quant.scales)
                quant.scales += skip * (quant.group ? (op->k + 31) / 32 : 1);
            product.quant = &quant;
        }
        be->expert_matmul(q, &product);
        depend += memcmp(alone, (const char *)p->c + (size_t)i * row, row) != 0;
    }
    free(alone);
    return depend;
}

static void check_product(const struct layer *l, int64_t first, int64_t count,
                          int64_t n, int64_t k, bool tb, enum gpt_sums sums)
{
    const int64_t pairs = l->op.n * l->op.k, size = count * n * k;
    void *a = rnd_rows(pairs * k, 1, l->act), *b = rnd_rows(size, 1, l->act);
    double *weights = malloc((size_t)(size + 1) * sizeof(*weights));
    struct product p = {.rows = rows_of(l, first, count),
                        .words = words_of(pairs * n, l->act),
                        .weights = weights};

    for (int64_t i = 0; i < size; i++)
        weights[i] = at(b, i, l->act);
    p.c = poisoned(p.words);
    p.op = (struct gpt_expert_matmul){.rows = &p.rows, .n = n, .k = k,
                                      .tb = tb, .a = a, .b = b, .c = p.c,
                                      .sums = sums};
    const bool same = same_bytes(run_product, &p, p.c, p.words);
    is_int(wrong_products(&p, 0, 0), 0, "%s: product of %lld experts from %lld "
           "with (%lld, %lld), %s%s: wrong elements", setting,
           (long long)count, (long long)first, (long long)k, (long long)n,
           name_of(l->act), tb ? " tb" : "");
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    if (tb && sums != GPT_SUMS_SHAPE && (be->abilities & GPT_CAN_CHOOSE_SUMS))
        is_int(rows_that_depend(&p), 0, "%s: rows that depend on others, %s",
               setting, sums == GPT_SUMS_FEW ? "few" : "many");
    free(a), free(b), free(weights), free(p.c);
}

static void check_gradient(const struct layer *l, int64_t first, int64_t count,
                           int64_t m, int64_t n, float beta)
{
    const int64_t pairs = l->op.n * l->op.k, size = count * m * n;
    void *a = rnd_rows(pairs * m, 1, l->act);
    void *b = rnd_rows(pairs * n, 1, l->act);
    float *c0 = rnd_floats(size, 1);
    struct product p = {.rows = rows_of(l, first, count), .words = size,
                        .c0 = c0, .c = poisoned(size)};

    p.op = (struct gpt_expert_matmul){.rows = &p.rows, .m = m, .n = n,
                                      .ta = true, .a = a, .b = b, .c = p.c,
                                      .beta = beta};
    const bool same = same_bytes(run_product, &p, p.c, p.words);
    is_int(wrong_gradients(&p), 0, "%s: gradients of %lld experts from %lld "
           "(%lld, %lld), %s, beta %g: wrong elements", setting,
           (long long)count, (long long)first, (long long)m, (long long)n,
           name_of(l->act), (double)beta);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    free(a), free(b), free(c0), free(p.c);
}

/* ---- products with weights in fewer bits ---- */

/* Random values of a form, (rows, k), and what they stand for; free() both
 * parts of it. */
static struct gpt_quant rnd_quant(enum gpt_dtype type, int64_t group,
                                  int64_t rows, int64_t k, double *weights)
{
    const int64_t scales = group ? (k + group - 1) / group : 1;
    struct gpt_quant w = {.type = type, .group = group};
    char *values = malloc(bytes_of(rows * k, type) + 4);
    uint16_t *s = malloc((size_t)(rows * scales + 1) * sizeof(*s));

    for (int64_t i = 0; i < rows * scales; i++)
        s[i] = gpt_f32_to_bf16((float)(1.5 + rnd()) / 127);
    for (int64_t i = 0; i < rows * k; i++) {
        const double x = rnd();

        if (type == GPT_I8)
            values[i] = (char)(int8_t)rnd_int(-127, 127);
        else if (type == GPT_BF16)
            ((uint16_t *)(void *)values)[i] = gpt_f32_to_bf16((float)x);
        else
            ((float *)(void *)values)[i] = (float)x;
        weights[i] = type == GPT_I8
                         ? (int8_t)values[i] *
                               (double)gpt_bf16_to_f32(
                                   s[i / k * scales +
                                     (group ? i % k / group : 0)])
                         : at(values, i, type);
    }
    w.values = values;
    w.scales = s;
    return w;
}

static void check_quant(const struct layer *l, enum gpt_dtype type,
                        int64_t group, int64_t n, int64_t k,
                        enum gpt_sums sums, bool arranged)
{
    const int64_t pairs = l->op.n * l->op.k, e = l->op.e;
    const int64_t first = e / 3, count = e - first;
    float *a = rnd_floats(pairs * k, 1);
    double *weights = malloc((size_t)(count * n * k + 1) * sizeof(*weights));
    struct gpt_quant plain = rnd_quant(type, group, count * n, k, weights);
    const size_t bytes = be->quant_bytes(&plain, count * n, k);
    char *room = NULL;
    struct product p = {.rows = rows_of(l, first, count), .quant = plain,
                        .words = pairs * n, .weights = weights};

    if (arranged && bytes > 0) {
        room = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memset(room, 0xee, bytes);
        be->quant_arrange(room, &plain, 0, count * n, k);
        p.quant.values = room;
        p.quant.arranged = true;
    }
    p.c = poisoned(p.words);
    p.op = (struct gpt_expert_matmul){.rows = &p.rows, .n = n, .k = k,
                                      .tb = true, .a = a, .b = p.quant.values,
                                      .c = p.c, .quant = &p.quant,
                                      .sums = sums};
    if (type != GPT_F32 || p.quant.arranged) {
        const bool same = same_bytes(run_product, &p, p.c, p.words);

        /* how far inputs may be off: struct gpt_quant */
        is_int(wrong_products(&p, type == GPT_F32 ? 0 : 0x1p-16,
                              type == GPT_I8 ? 0x1p-22 : 0), 0,
               "%s: %lld experts of %s-%lld%s (%lld, %lld): wrong elements",
               setting, (long long)count, gpt_dtype_name(type),
               (long long)group, p.quant.arranged ? " arranged" : "",
               (long long)n, (long long)k);
        ok(same, "%s: equal for 1, 2, 3 threads", setting);
        if (sums != GPT_SUMS_SHAPE)
            is_int(rows_that_depend(&p), 0, "%s: rows that depend on others",
                   setting);
    }
    free(a), free(weights), free(p.c), free(room);
    free((void *)(uintptr_t)plain.values);
    free((void *)(uintptr_t)plain.scales);
}

static void check_quants(void)
{
    static const struct {
        enum gpt_dtype type;
        int64_t group;
    } forms[] = {{GPT_BF16, 0}, {GPT_I8, 0}, {GPT_I8, 32}, {GPT_F32, 0}};
    static const enum gpt_sums sums[] = {GPT_SUMS_SHAPE, GPT_SUMS_FEW,
                                         GPT_SUMS_MANY};
    struct layer few = new_layer(5, 7, 2, GPT_F32);
    struct layer many = new_layer(61, 3, 2, GPT_F32);

    run_route(&few);
    run_route(&many);
    for (size_t f = 0; f < GPT_COUNT(forms); f++)
        for (size_t s = 0; s < GPT_COUNT(sums); s++) {
            const struct layer *l = s == 1 ? &few : &many;

            check_quant(l, forms[f].type, forms[f].group, 64, 96, sums[s],
                        true);
            check_quant(l, forms[f].type, forms[f].group, 32, 41, sums[s],
                        true);
            check_quant(l, forms[f].type, forms[f].group, 21, 50, sums[s],
                        false);
        }
    free_layer(&few), free_layer(&many);
}

/* ---- all of it ---- */

static void check_shape(int64_t n, int64_t e, int64_t k, enum gpt_dtype act)
{
    struct layer l = new_layer(n, e, k, act);
    const int64_t first = rnd_int(0, e - 1), count = rnd_int(1, e - first);

    leave_out(&l);
    run_route(&l);
    check_product(&l, 0, e, rnd_int(1, 70), rnd_int(1, 70), true,
                  GPT_SUMS_SHAPE);
    check_product(&l, first, count, rnd_int(1, 40), rnd_int(1, 90), false,
                  GPT_SUMS_SHAPE);
    check_product(&l, first, count, rnd_int(1, 40), rnd_int(1, 90), true,
                  n % 2 ? GPT_SUMS_FEW : GPT_SUMS_MANY);
    check_gradient(&l, 0, e, rnd_int(1, 40), rnd_int(1, 40), 0);
    check_gradient(&l, first, count, rnd_int(1, 40), rnd_int(1, 40), 1);
    free_layer(&l);
}

static void body(void)
{
    for (size_t i = 0; i < GPT_COUNT(experts_shapes); i++)
        for (int t = 0; t < 2; t++)
            check_shape(experts_shapes[i][0], experts_shapes[i][1],
                        experts_shapes[i][2], t ? GPT_BF16 : GPT_F32);
    for (int i = 0; i < 12; i++) {
        const int64_t e = rnd_int(1, 20);

        check_shape(rnd_int(1, 60), e, rnd_int(1, e < 9 ? e : 9),
                    i % 2 ? GPT_BF16 : GPT_F32);
    }
    check_quants();
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
