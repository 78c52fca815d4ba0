/* Operations with activations in bf16, on inputs that bf16 holds exactly.
 * Products are within a derived bound of sums in double, on every instruction
 * set and with any number of threads; the other operations give what they give
 * in float, rounded once. Start at products() and at norms(). */
#include "cpu/attn.h"
#include "tests/unit/kernels.h"

enum { BUFFERS = 8, GUARD = 0x7fc1 };

/* A case's buffers, by the order of its calls of in() and out(): float ones for
 * the reference, bf16 ones beside them. */
struct pair {
    float *wide;
    uint16_t *narrow;
    int64_t n;
};
static struct pair pairs[BUFFERS];
static int n_pairs;

static struct pair *buffer(int64_t n, double scale, bool defined)
{
    struct pair *p = &pairs[n_pairs++];

    p->n = n;
    p->wide = malloc((size_t)(n + 1) * sizeof(*p->wide));
    p->narrow = malloc((size_t)(n + 1) * sizeof(*p->narrow));
    for (int64_t i = 0; i < n; i++) {
        p->narrow[i] = defined ? gpt_f32_to_bf16((float)(rnd() * scale))
                               : GUARD;
        p->wide[i] = gpt_bf16_to_f32(p->narrow[i]);
    }
    p->narrow[n] = GUARD; /* not to be written */
    return p;
}

static struct pair *in(int64_t n)
{
    return buffer(n, 1, true);
}

static struct pair *out(int64_t n)
{
    return buffer(n, 1, false);
}

/* Compares all of them and frees them. */
static void compare(const char *what)
{
    struct gpt_err err = {0};
    int64_t wrong = 0, past = 0, total = 0;

    if (be->sync(q, &err) != GPT_OK)
        ok(false, "%s: %s", what, err.text);
    for (int i = 0; i < n_pairs; i++) {
        struct pair *p = &pairs[i];

        for (int64_t k = 0; k < p->n; k++)
            wrong += p->narrow[k] != gpt_f32_to_bf16(p->wide[k]);
        past += p->narrow[p->n] != GUARD;
        total += p->n;
        free(p->wide);
        free(p->narrow);
    }
    n_pairs = 0;
    ok(wrong == 0 && past == 0, "%s: %lld of %lld elements wrong, %lld written "
       "past the end", what, (long long)wrong, (long long)total,
       (long long)past);
}

static struct gpt_dropout dropout(int64_t t)
{
    return (struct gpt_dropout){.p = 0.3F, .rng = gpt_rng_open(5, "test"),
                                .sample0 = 3, .t_local = t, .t_global = t};
}

/* What float made, as bf16 stores it. */
static void store(struct pair *p)
{
    for (int64_t i = 0; i < p->n; i++)
        p->wide[i] = gpt_bf16_to_f32(gpt_f32_to_bf16(p->wide[i]));
}

/* ---- products ----
 *
 * What a product promises (kernels/backend.h) is held against sums in double.
 *
 * Two factors of bf16 have 8 significant bits each, so that their product has
 * 16 and is a float exactly: only additions round. A sum of t terms, in any
 * order and with any parentheses, sends no term through more than t - 1
 * additions, each of which multiplies it by 1 + d, |d| <= u = 2^-24. Hence
 *
 *     |sum - exact| <= E = g sum |term|,   g = (t - 1) u / (1 - (t - 1) u)
 *
 * (Higham 2002, Accuracy and Stability of Numerical Algorithms, section 4.2).
 * The terms are the k products, the old c where beta is 1, and the bias. Zeros
 * that fill a vector add nothing. Nothing in this depends on the instruction
 * set: tiles, VDPBF16PS and AMX differ in their order and parentheses alone.
 *
 * A c of floats is then within E of the exact sum. A c of bf16 is rounded once
 * more, and since rounding keeps order, it is between the roundings of
 * exact - E and exact + E. That is E and half a unit in the last place of bf16,
 * but sharper: most of these intervals hold one number only, and truncation
 * instead of rounding misses it. Whether the bound is tight enough is itself
 * tested, by results with seeded faults. */

struct product {
    struct gpt_matmul op;
    const float *a, *b;  /* (m, k) and (n, k), which bf16 holds */
    float *image, *mem;  /* c, aux, a guard: before the product, and now */
    int64_t aux_at, end; /* where aux begins and all ends, in floats */
};

/* The exact value of an element before the epilogue's GELU, how far a sum of
 * floats may be from it, and one of its terms. */
struct exact {
    double sum, error, term;
};

static double value(const uint16_t *x, int64_t i)
{
    return (double)gpt_bf16_to_f32(x[i]);
}

static double old_c(const struct product *p, int64_t i, int64_t j)
{
    int64_t at = i * p->op.ldc + j;
    const float *wide = p->image;

    if (p->op.beta == 0)
        return 0;
    return p->op.c_type == GPT_F32 ? (double)wide[at]
                                   : value((const uint16_t *)wide, at);
}

static bool has_bias(const struct gpt_matmul *op)
{
    return op->epilogue == GPT_EPI_BIAS || op->epilogue == GPT_EPI_BIAS_GELU;
}

static struct exact exact_element(const struct product *p, int64_t i, int64_t j)
{
    const struct gpt_matmul *op = &p->op;
    struct exact x = {.sum = old_c(p, i, j)};
    double size = fabs(x.sum);
    int64_t terms = op->k + (op->beta != 0) + has_bias(op);

    for (int64_t l = 0; l < op->k; l++) {
        double t = (double)p->a[i * op->k + l] * (double)p->b[j * op->k + l];

        x.sum += t;
        size += fabs(t);
        if (l == op->k / 2)
            x.term = t;
    }
    if (has_bias(op)) {
        x.sum += value(op->bias, j);
        size += fabs(value(op->bias, j));
    }
    double additions = terms > 1 ? (double)(terms - 1) : 0;
    double g = additions * 0x1p-24 / (1 - additions * 0x1p-24);
    /* the sum in double obeys the same law, with u = 2^-53 */
    x.error = (g + additions * 0x1p-52) * size;
    return x;
}

/* A double as bf16, rounded down or up where a float does not hold it. */
static double narrowed(double x, double towards)
{
    float wide = (float)x;

    if ((double)wide != x)
        wide = nextafterf(wide, (float)towards);
    return (double)gpt_bf16_to_f32(gpt_f32_to_bf16(wide));
}

/* May `got` be stored for a sum of x, floats being off by up to `error`? */
static bool allowed(double got, double x, double error, enum gpt_dtype type)
{
    if (type == GPT_F32)
        return fabs(got - x) <= error;
    return got >= narrowed(x - error, (double)-INFINITY) &&
           got <= narrowed(x + error, (double)INFINITY);
}

/* GELU's derivative in its tanh form. */
static double gelu_slope(double x)
{
    double r = sqrt(2 / 3.14159265358979323846);
    double h = tanh(r * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + h) +
           0.5 * x * (1 - h * h) * r * (1 + 3 * 0.044715 * x * x);
}

/* What DGELU makes of a sum. The slope, of size 1, takes a handful of roundings
 * in float, or, where pairs are multiplied, an estimate of 14 bits. */
static struct exact times_slope(struct exact x, double aux)
{
    double slope = gelu_slope(aux);
    double error = cpu_pairs ? 0x1p-13 : 16 * 0x1p-24;

    return (struct exact){
        x.sum * slope,
        x.error * fabs(slope) + error * (fabs(x.sum) + x.error),
        x.term * slope};
}

/* Elements outside of what is allowed: those computed, and those of results
 * that are wrong in one way. */
struct misses {
    int64_t elements, computed, lost_term, truncated, rounded_twice, away;
};

/* x as bf16 when this is added to its bits before they are cut off: 0 is
 * towards zero, 0x8000 to nearest with halves away from zero. */
static double cut_off(double x, uint32_t add)
{
    float wide = (float)x;
    uint32_t bits;

    memcpy(&bits, &wide, sizeof(bits));
    return (double)gpt_bf16_to_f32((uint16_t)((bits + add) >> 16));
}

static double stored(double x, enum gpt_dtype type)
{
    float wide = (float)x;

    return type == GPT_F32 ? (double)wide
                           : (double)gpt_bf16_to_f32(gpt_f32_to_bf16(wide));
}

static void count_faults(struct misses *m, struct exact x, enum gpt_dtype type)
{
    double half = stored(x.term, GPT_BF16) + stored(x.sum - x.term, GPT_BF16);

    m->elements++;
    m->lost_term += !allowed(stored(x.sum - x.term, type), x.sum, x.error,
                             type);
    m->truncated += !allowed(cut_off(x.sum, 0), x.sum, x.error, type);
    m->away += !allowed(cut_off(x.sum, 0x8000), x.sum, x.error, type);
    m->rounded_twice += !allowed(stored(half, type), x.sum, x.error, type);
}

static double element(const struct product *p, int64_t at, int64_t i,
                      enum gpt_dtype type)
{
    const float *wide = p->mem + at;

    return type == GPT_F32 ? (double)wide[i]
                           : value((const uint16_t *)wide, i);
}

/* Compares c, or with GELU aux: compare_gelu() has c. */
static struct misses compare_sums(const struct product *p)
{
    const struct gpt_matmul *op = &p->op;
    bool gelu = op->epilogue == GPT_EPI_BIAS_GELU;
    enum gpt_dtype type = gelu ? op->act : op->c_type;
    struct misses misses = {0};

    for (int64_t i = 0; i < op->m; i++)
        for (int64_t j = 0; j < op->n; j++) {
            struct exact x = exact_element(p, i, j);
            int64_t aux = i * op->n + j;

            if (op->epilogue == GPT_EPI_DGELU)
                x = times_slope(x, element(p, p->aux_at, aux, op->act));
            double got = gelu ? element(p, p->aux_at, aux, type)
                              : element(p, 0, i * op->ldc + j, type);
            misses.computed += !allowed(got, x.sum, x.error, type);
            count_faults(&misses, x, type);
        }
    return misses;
}

/* Elements of c that are not what a pass of its own makes of aux, by which
 * backward computes them again. */
static int64_t compare_gelu(const struct product *p)
{
    int64_t n = p->op.m * p->op.n, wrong = 0;
    uint16_t *x = malloc((size_t)n * sizeof(*x));
    uint16_t *y = malloc((size_t)n * sizeof(*y));

    for (int64_t i = 0; i < n; i++)
        x[i] = gpt_f32_to_bf16((float)element(p, p->aux_at, i, GPT_BF16));
    be->activate(q, &(struct gpt_activate){.n = 1, .f = n, .act = GPT_BF16,
                                           .pre = x, .out = y});
    for (int64_t i = 0; i < n; i++)
        wrong += element(p, 0, i, GPT_BF16) != value(y, i);
    free(x);
    free(y);
    return wrong;
}

static void run_product(void *ctx)
{
    struct product *p = ctx;

    memcpy(p->mem, p->image, (size_t)p->end * sizeof(*p->mem));
    be->matmul(q, &p->op);
}

/* True when nothing is written between the rows of c, to an aux that is only
 * read, or past the end. */
static bool rest_untouched(const struct product *p)
{
    const struct gpt_matmul *op = &p->op;
    size_t bytes = gpt_dtype_bytes(op->c_type);
    const char *now = (char *)p->mem, *then = (char *)p->image;
    bool same = p->mem[p->end - 1] == p->image[p->end - 1];

    for (int64_t i = 0; i + 1 < op->m; i++) {
        size_t at = (size_t)(i * op->ldc + op->n) * bytes;

        same &= memcmp(now + at, then + at,
                       (size_t)(op->ldc - op->n) * bytes) == 0;
    }
    if (op->epilogue != GPT_EPI_BIAS_GELU)
        same &= memcmp(p->mem + p->aux_at, p->image + p->aux_at,
                       (size_t)(p->end - p->aux_at) * sizeof(*p->mem)) == 0;
    return same;
}

/* A random number that bf16 holds */
static uint16_t narrow_random(void)
{
    return gpt_f32_to_bf16((float)rnd());
}

/* A matrix (rows, columns) of random numbers; *mem is the same in bf16, stored
 * (columns, rows) where `turned`. */
static float *random_matrix(int64_t rows, int64_t columns, bool turned,
                            uint16_t **mem)
{
    float *x = rnd_floats(rows * columns, 1);

    *mem = malloc((size_t)(rows * columns + 1) * sizeof(**mem));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            uint16_t narrow = gpt_f32_to_bf16(x[i * columns + j]);

            x[i * columns + j] = gpt_bf16_to_f32(narrow);
            (*mem)[turned ? j * rows + i : i * columns + j] = narrow;
        }
    return x;
}

static void check_product(struct product *p)
{
    const struct gpt_matmul *op = &p->op;
    char name[120];

    snprintf(name, sizeof(name), "%s: %lldx%lldx%lld %c%c beta %g epi %d",
             setting, (long long)op->m, (long long)op->n, (long long)op->k,
             "NT"[op->ta], "NT"[op->tb], (double)op->beta, (int)op->epilogue);
    ok(same_bytes(run_product, p, p->mem, p->end),
       "%s: equal for 1, 2, 3 threads", name);
    struct misses m = compare_sums(p);
    is_int(m.computed, 0, "%s: elements outside the bound", name);
    ok(rest_untouched(p), "%s: nothing else is written", name);
    if (op->epilogue == GPT_EPI_BIAS_GELU)
        is_int(compare_gelu(p), 0, "%s: GELU is that of its own pass", name);
    if (op->k > 0)
        ok(m.lost_term > m.elements / 2, "%s: a lost term would be seen (%lld "
           "of %lld)", name, (long long)m.lost_term, (long long)m.elements);
    if (op->c_type != GPT_BF16 || m.elements < 200)
        return; /* floats are not rounded, and a share needs a crowd */
    ok(m.truncated > m.elements / 3, "%s: and truncation (%lld)", name,
       (long long)m.truncated);
    if (op->k == 1) /* exact: halves occur */
        ok(m.away > 0, "%s: and halves rounded away from zero (%lld)", name,
           (long long)m.away);
    else
        ok(m.rounded_twice > m.elements / 8, "%s: and a sum rounded on its way "
           "(%lld)", name, (long long)m.rounded_twice);
}

/* One shape; rows of c `gap` elements further apart than they are wide. */
static void product(struct gpt_matmul op, int64_t gap)
{
    uint16_t *a_mem, *b_mem, *bias;
    float *a = random_matrix(op.m, op.k, op.ta, &a_mem);
    float *b = random_matrix(op.n, op.k, !op.tb, &b_mem);
    float *bias_wide = random_matrix(1, op.n, false, &bias);
    struct product p = {.op = op, .a = a, .b = b};

    p.op.ldc = op.n + gap;
    p.aux_at = op.m * p.op.ldc;
    p.end = p.aux_at + op.m * op.n + 1;
    p.image = rnd_floats(p.end, 1);
    if (op.c_type == GPT_BF16)
        for (int64_t i = 0; i < p.end; i++) {
            const uint16_t two[] = {narrow_random(), narrow_random()};

            memcpy(&p.image[i], two, sizeof(two));
        }
    p.mem = copied(p.image, p.end);
    p.op.act = GPT_BF16;
    p.op.a = a_mem;
    p.op.b = b_mem;
    p.op.bias = bias;
    p.op.c = p.mem;
    p.op.aux = p.mem + p.aux_at;
    check_product(&p);
    free(a), free(b), free(bias_wide), free(a_mem), free(b_mem), free(bias);
    free(p.image), free(p.mem);
}

static void products(void)
{
    static const struct {
        int64_t m, n, k, gap;
        bool ta, tb, wide; /* wide: c of floats, as gradients of weights have */
        enum gpt_epilogue epilogue;
        float beta;
    } cases[] = {
        {33, 50, 65, 0, false, true, false, GPT_EPI_BIAS, 0},
        {5, 50, 65, 0, false, true, false, GPT_EPI_BIAS_GELU, 0}, /* few rows */
        {33, 50, 65, 0, false, false, false, GPT_EPI_DGELU, 0},
        {33, 50, 65, 0, true, false, false, GPT_EPI_NONE, 1},
        /* several blocks, sums in parts */
        {300, 400, 270, 0, false, true, false, GPT_EPI_BIAS_GELU, 0},
        {150, 790, 260, 0, true, false, false, GPT_EPI_NONE, 1},
        {290, 385, 30, 0, true, true, false, GPT_EPI_DGELU, 0},
        {3, 40, 0, 0, false, true, false, GPT_EPI_BIAS, 0},
        {40, 50, 1, 0, false, true, false, GPT_EPI_NONE, 0},
        {3, 4, 5, 2, false, false, false, GPT_EPI_NONE, 0},
        {17, 33, 40, 0, true, false, true, GPT_EPI_NONE, 1},
        {64, 48, 2048, 3, true, false, true, GPT_EPI_NONE, 1}, /* a long sum */
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        product((struct gpt_matmul){
                    .m = cases[i].m, .n = cases[i].n, .k = cases[i].k,
                    .ta = cases[i].ta, .tb = cases[i].tb,
                    .c_type = cases[i].wide ? GPT_F32 : GPT_BF16,
                    .epilogue = cases[i].epilogue, .beta = cases[i].beta},
                cases[i].gap);
}

/* Factors too small for a normal number: processors that multiply bf16 take
 * them for zero, and others do not. The backend allows both, and no third. */
static void subnormal_factors(void)
{
    enum { M = 17, N = 16, K = 32 };
    uint16_t a[M * K], b[N * K];
    float c[M * N];
    int64_t zeros = 0, exact = 0;
    struct gpt_matmul op = {.m = M, .n = N, .k = K, .tb = true, .act = GPT_BF16,
                            .c_type = GPT_F32, .a = a, .b = b, .c = c};

    for (int i = 0; i < M * K; i++)
        a[i] = gpt_f32_to_bf16(0x1p-130F);
    for (int i = 0; i < N * K; i++)
        b[i] = gpt_f32_to_bf16(2);
    be->matmul(q, &op);
    for (int i = 0; i < M * N; i++) {
        zeros += c[i] == 0;
        exact += c[i] == 0x1p-129F * K;
    }
    ok(zeros == M * N || exact == M * N, "%s: subnormal factors count as they "
       "are or as zero (%lld are zero)", setting, (long long)zeros);
}

/* ---- the operations that widen, run in float and round ---- */

static void norms(bool x_given)
{
    int64_t n = 13, c = 37;
    float mean[13], rstd[13], mean2[13], rstd2[13], dw[2][37], db[2][37];
    float *scratch = malloc(be->norm_scratch(n, c));
    struct pair *r = in(n * c), *x = in(n * c), *ro = out(n * c);
    struct pair *y = out(n * c), *w = in(c), *b = in(c), *dy = in(n * c);
    struct gpt_norm op = {
        .kind = GPT_LAYERNORM, .n = n, .c = c, .eps = 1e-5F, .act = GPT_F32,
        .resid_in = r->wide, .x = x_given ? x->wide : NULL,
        .resid_out = ro->wide, .y = y->wide, .w = w->wide, .b = b->wide,
        .mean = mean, .rstd = rstd, .dropout = dropout(n),
    };
    struct gpt_norm narrow = op;

    narrow.act = GPT_BF16;
    narrow.resid_in = r->narrow;
    narrow.x = x_given ? x->narrow : NULL;
    narrow.resid_out = ro->narrow;
    narrow.y = y->narrow;
    narrow.w = w->narrow;
    narrow.b = b->narrow;
    narrow.mean = mean2;
    narrow.rstd = rstd2;
    be->norm_fwd(q, &narrow);
    op.y = NULL; /* the sum, which is stored, then its norm */
    be->norm_fwd(q, &op);
    store(ro);
    op.y = y->wide;
    op.resid_in = ro->wide;
    op.x = NULL;
    be->norm_fwd(q, &op);
    ok(memcmp(rstd, rstd2, sizeof(rstd)) == 0, "statistics are those of float");
    struct pair *dr = in(n * c);
    struct gpt_norm_grad grad = {dy->wide, dr->wide, NULL, dw[0], db[0],
                                 scratch};
    memset(dw, 0, sizeof(dw));
    memset(db, 0, sizeof(db));
    be->norm_bwd(q, &op, &grad);
    struct gpt_norm_grad grad2 = {dy->narrow, dr->narrow, NULL, dw[1], db[1],
                                  scratch};
    be->norm_bwd(q, &narrow, &grad2);
    ok(memcmp(dw[0], dw[1], sizeof(dw[0])) == 0 &&
           memcmp(db[0], db[1], sizeof(db[0])) == 0,
       "gradients of norms are those of float");
    compare("norm");
    free(scratch);
}

/* The larger of both distances; infinity where one is not a number. */
static double farther(double most, double a, double b)
{
    double off = fabs(a - b);

    return off < 1e300 ? fmax(most, off) : (double)INFINITY;
}

/* Attention whose products are of bf16 rounds probabilities, and gradients of
 * scores, in the middle: all results are then within a few roundings of the
 * largest, and not the roundings of float's. */
static void compare_attention(void)
{
    double worst = 0;

    if (!cpu_pairs) {
        compare("attention");
        return;
    }
    for (int i = 0; i < n_pairs; i++) {
        struct pair *p = &pairs[i];
        double largest = 0, off = 0;

        for (int64_t k = 0; k < p->n; k++) {
            largest = fmax(largest, fabs((double)p->wide[k]));
            off = farther(off, (double)p->wide[k],
                          (double)gpt_bf16_to_f32(p->narrow[k]));
        }
        worst = farther(worst, off / largest, 0);
        store(p); /* what is left for compare() is the end of each */
        for (int64_t k = 0; k < p->n; k++)
            p->narrow[k] = gpt_f32_to_bf16(p->wide[k]);
    }
    ok(worst < 0.02, "attention: within %.1e of the largest", worst);
    compare("attention");
}

/* start: documents of 23 tokens; window: 0 for none. */
/* Gradients, n numbers that are there, again by 1 and 3 threads: those of a
 * group's heads are summed in one thread or apart. */
static void check_threads(const struct gpt_attn *op,
                          const struct gpt_attn_grad *grad, size_t n)
{
    const int before = omp_get_max_threads();
    uint16_t *want = malloc(n * sizeof(*want));

    memcpy(want, grad->dqkv, n * sizeof(*want));
    for (int threads = 1; threads <= 3; threads += 2) {
        struct gpt_attn_grad again = *grad;

        omp_set_num_threads(threads);
        again.scratch = malloc(be->attn_scratch(op));
        be->attn_bwd(q, op, &again);
        ok(memcmp(want, grad->dqkv, n * sizeof(*want)) == 0,
           "gradients are equal for %d threads", threads);
        free(again.scratch);
    }
    omp_set_num_threads(before);
    free(want);
}

static void attention(int64_t h, int64_t g, int64_t t, int64_t d, bool start,
                      int64_t window, float cap, bool alibi)
{
    int64_t b = 2, width = (h + 2 * g) * d;
    float *lse[2] = {calloc((size_t)(b * h * t), sizeof(float)),
                     calloc((size_t)(b * h * t), sizeof(float))};
    int32_t *first = calloc((size_t)(b * t), sizeof(*first));
    double off = 0;
    struct pair *qkv = in(b * t * width), *o = out(b * t * h * d);
    struct pair *dout = in(b * t * h * d), *dqkv = out(b * t * width);
    struct gpt_attn op = {
        .b = b, .t = t, .h = h, .g = g, .d = d, .h_global = h, .scale = 0.25F,
        .act = GPT_F32, .qkv = qkv->wide, .out = o->wide, .lse = lse[0],
        .dropout = dropout(t), .doc_start = start ? first : NULL,
        .window = window, .softcap = cap, .alibi = alibi,
    };
    struct gpt_attn narrow = op;

    for (int64_t i = 0; i < b * t; i++)
        first[i] = (int32_t)(i % t / 23 * 23);
    narrow.act = GPT_BF16;
    narrow.qkv = qkv->narrow;
    narrow.out = o->narrow;
    narrow.lse = lse[1];
    be->attn_fwd(q, &op);
    be->attn_fwd(q, &narrow);
    for (int64_t i = 0; i < b * h * t; i++)
        off = farther(off, (double)lse[0][i], (double)lse[1][i]);
    ok(off < 1e-4, "log-sum-exp is that of float: %.1e", off);
    /* backward reads what forward stored; nothing was wrong with that so far */
    for (int64_t i = 0; i < b * t * h * d; i++) {
        float stored = gpt_bf16_to_f32(o->narrow[i]);

        off = farther(off, (double)stored, (double)o->wide[i]);
        o->wide[i] = stored;
    }
    ok(off < 0.02, "outputs are near: %.1e", off);
    void *scratch = malloc(be->attn_scratch(&op));
    struct gpt_attn_grad grad = {dout->wide, dqkv->wide, scratch};
    be->attn_bwd(q, &op, &grad);
    struct gpt_attn_grad grad2 = {dout->narrow, dqkv->narrow, scratch};
    be->attn_bwd(q, &narrow, &grad2);
    check_threads(&narrow, &grad2, (size_t)(b * t * width));
    compare_attention();
    free(scratch);
    free(first);
    free(lse[0]);
    free(lse[1]);
}

static void embedding(void)
{
    enum { N = 9, C = 300, V = 20 };
    int32_t tokens[N], positions[N];
    float dwte[2][V * C] = {{0}}, dwpe[2][N * C] = {{0}};
    struct pair *wte = in(V * C), *wpe = in(N * C), *o = out(N * C);
    struct pair *dout = in(N * C);
    for (int i = 0; i < N; i++) {
        tokens[i] = (int32_t)rnd_int(0, V + 3); /* some held elsewhere */
        positions[i] = i;
    }
    struct gpt_embed op = {
        .n = N, .c = C, .v_begin = 2, .v_local = V, .act = GPT_F32,
        .tokens = tokens, .positions = positions, .wte = wte->wide,
        .wpe = wpe->wide, .out = o->wide, .dropout = dropout(N),
    };
    be->embed_fwd(q, &op);
    be->embed_bwd(q, &op,
                  &(struct gpt_embed_grad){.dout = dout->wide, .dwte = dwte[0],
                                           .dwpe = dwpe[0]});
    op.act = GPT_BF16;
    op.wte = wte->narrow;
    op.wpe = wpe->narrow;
    op.out = o->narrow;
    be->embed_fwd(q, &op);
    be->embed_bwd(q, &op,
                  &(struct gpt_embed_grad){.dout = dout->narrow,
                                           .dwte = dwte[1], .dwpe = dwpe[1]});
    ok(memcmp(dwte[0], dwte[1], sizeof(dwte[0])) == 0 &&
           memcmp(dwpe[0], dwpe[1], sizeof(dwpe[0])) == 0,
       "gradients of tables are those of float");
    compare("embedding");
}

static void loss(bool grad)
{
    enum { N = 7, V = 50 };
    int32_t target[N];
    float weight[N], losses[2][N];
    struct pair *logits = in(N * V);
    for (int i = 0; i < N; i++) {
        target[i] = (int32_t)rnd_int(0, V - 3);
        weight[i] = i == 3 ? 0 : 0.25F;
    }
    struct gpt_xent op = {.n = N, .v = V, .v_real = V - 2, .ld = V,
                          .act = GPT_F32, .logits = logits->wide,
                          .target = target, .weight = weight,
                          .loss = losses[0], .grad = grad};
    be->xent(q, &op);
    op.act = GPT_BF16;
    op.logits = logits->narrow;
    op.loss = losses[1];
    be->xent(q, &op);
    ok(memcmp(losses[0], losses[1], sizeof(losses[0])) == 0,
       "losses are those of float");
    compare("cross-entropy");
}

static void small_ones(void)
{
    enum { M = 11, N = 70 };
    float dbias[2][N] = {{0}};
    struct pair *x = in(M * N), *bias = in(N), *y = out(M * N);
    struct gpt_dropout d = dropout(M);
    be->bias_add(q, x->wide, bias->wide, M, N, GPT_F32);
    be->bias_add(q, x->narrow, bias->narrow, M, N, GPT_BF16);
    for (int i = 0; i < M * N; i++)
        x->wide[i] = gpt_bf16_to_f32(x->narrow[i]);
    be->dropout(q, y->wide, x->wide, M, N, GPT_F32, &d);
    be->dropout(q, y->narrow, x->narrow, M, N, GPT_BF16, &d);
    be->bias_grad(q, dbias[0], x->wide, M, N, GPT_F32);
    be->bias_grad(q, dbias[1], x->narrow, M, N, GPT_BF16);
    ok(memcmp(dbias[0], dbias[1], sizeof(dbias[0])) == 0,
       "a bias's gradient is the one of float");
    compare("bias and dropout");
}

/* The optimizer's copy of parameters in bf16. */
static void adamw(void)
{
    enum { N = 1000 };
    struct gpt_decay_segment segment = {0, true};
    float *p = rnd_floats(N, 1), *m = calloc(N, sizeof(*m));
    float *v = calloc(N, sizeof(*v)), *g = rnd_floats(N, 1);
    uint16_t narrow[N];
    int wrong = 0;
    struct gpt_adamw op = {
        .n = N, .p = p, .m = m, .v = v, .g = g, .p_act = narrow,
        .act = GPT_BF16, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
        .weight_decay = 0.1, .grad_scale = 1, .step = 1, .segments = &segment,
        .n_segments = 1,
    };
    be->adamw(q, &op);
    for (int i = 0; i < N; i++)
        wrong += narrow[i] != gpt_f32_to_bf16(p[i]);
    is_int(wrong, 0, "parameters of an update, rounded");
    free(p);
    free(m);
    free(v);
    free(g);
}

static void body(void)
{
    products();
    subnormal_factors();
    norms(true);
    norms(false);
    attention(4, 4, 19, 16, false, 0, 0, false);
    attention(4, 2, 19, 16, false, 0, 0, false);
    attention(2, 2, 203, 40, false, 0, 0, true);
    attention(6, 2, 129, 33, true, 0, 0, false);
    attention(3, 1, 300, 64, false, 70, 0, false);
    attention(2, 1, 65, 96, true, 9, 2, false);
    attention(3, 1, 530, 40, false, 0, 0, false); /* two runs of queries */
    attention(2, 2, 70, 192, true, 0, 0, false);
    attention(2, 2, 37, 256, false, 0, 0, false);
    attention(3, 3, 41, 24, false, 0, 0, false);
    embedding();
    loss(true);
    loss(false);
    small_ones();
    adamw();
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
