/* The operations of a feed-forward of experts, in bf16: products beside the
 * library's plain product of 8192 x 8192 x 8192, passes beside a copy. Logits
 * are random, so that experts have about as many tokens each. Errors are those
 * of sampled elements compared with sums in double. Shapes are those of OLMoE
 * (64 experts of 1024, 8 a token) and of Mixtral (8 of 14336, 2). */
#include "tests/gpu/bench_device.h"

static double product_rate, copy_rate;

struct layer {
    const char *name;
    int64_t n, e, k, c, f;
    struct gpt_router route;
    struct gpt_expert_rows rows;
    void *tokens, *in, *out, *matrices, *gradients, *dweight;
    int32_t *begin; /* on the host */
    struct gpt_expert_matmul product;
};

static void *fill(enum bench_kind kind, int64_t n)
{
    const struct bench_operand numbers = {.kind = kind, .limit = 1};

    return bench_fill(&numbers, n);
}

static void run_route(void *ctx)
{
    const struct layer *l = ctx;

    dev->route(dev_q, &l->route);
}

static void run_pick(void *ctx)
{
    const struct layer *l = ctx;

    dev->expert_pick(dev_q, &l->rows, l->tokens, l->in, l->c);
}

static void run_sum(void *ctx)
{
    const struct layer *l = ctx;

    dev->expert_sum(dev_q, &l->rows, l->in, l->tokens, l->c, false, false);
}

static void run_weigh(void *ctx)
{
    const struct layer *l = ctx;

    dev->expert_weigh(dev_q, &l->rows, l->in, l->out, l->c, l->dweight);
}

static void run_product(void *ctx)
{
    const struct layer *l = ctx;

    dev->expert_matmul(dev_q, &l->product);
}

static double exact(int64_t i) /* as bf16 has it */
{
    return (double)gpt_bf16_to_f32(gpt_f32_to_bf16(bench_number(i)));
}

/* The expert of a row. */
static int64_t expert_of(const struct layer *l, int64_t row)
{
    int64_t e = 0;

    while (row >= l->begin[e + 1])
        e++;
    return e;
}

/* What element j of row i is; with ta i counts rows of all gradients. */
static double element(const struct layer *l, int64_t i, int64_t j)
{
    const struct gpt_expert_matmul *p = &l->product;
    const int64_t e = p->ta ? i / p->m : expert_of(l, i);
    const int64_t from = p->ta ? l->begin[e] : 0;
    const int64_t to = p->ta ? l->begin[e + 1] : p->k;
    double sum = 0;

    for (int64_t k = from; k < to; k++)
        sum += exact(p->ta ? k * p->m + i % p->m : i * p->k + k) *
               exact(p->ta ? k * p->n + j
                           : e * p->n * p->k +
                                 (p->tb ? j * p->k + k : k * p->n + j));
    return sum;
}

static double error_of(const struct layer *l)
{
    const struct gpt_expert_matmul *p = &l->product;
    const int64_t rows = p->ta ? l->e * p->m : l->n * l->k;
    const enum gpt_dtype type = p->ta ? GPT_F32 : GPT_BF16;
    const size_t size = gpt_dtype_bytes(type);
    double apart = 0, length = 0;

    for (int trial = 0; trial < 64; trial++) {
        const int64_t i = trial * 26597 % rows, j = trial * 7919 % p->n;
        const double want = element(l, i, j);
        double got;
        char raw[4];

        dev->copy_out(dev_q, raw, (char *)p->c + (size_t)(i * p->n + j) * size,
                      size);
        bench_finish(dev, dev_q);
        gpt_convert(&got, GPT_F64, raw, type, 1);
        apart += (got - want) * (got - want);
        length += want * want;
    }
    return sqrt(apart / length);
}

static void product(struct layer *l, const char *name,
                    struct gpt_expert_matmul op)
{
    const double work = 2 * (double)(l->n * l->k) * (double)(l->c * l->f);
    char text[64];

    op.rows = &l->rows;
    l->product = op;
    run_product(l);
    const double error = error_of(l);
    const double s = bench_device_time(run_product, l, bench_budget());
    snprintf(text, sizeof(text), "%s %s", l->name, name);
    bench_row(text, work / s * 1e-12, "TFLOP/s", product_rate * 1e-12, error);
}

/* bytes: the fewest that the pass can move. */
static void pass(struct layer *l, const char *name, void (*run)(void *ctx),
                 int64_t bytes)
{
    const double s = bench_device_time(run, l, bench_budget());
    char text[64];

    snprintf(text, sizeof(text), "%s %s", l->name, name);
    bench_row(text, (double)bytes / s * 1e-9, "GB/s", copy_rate * 1e-9, -1);
}

static void open_layer(struct layer *l)
{
    const int64_t pairs = l->n * l->k, wide = l->c > l->f ? l->c : l->f;
    const size_t lists = (size_t)(l->e + 1) * sizeof(*l->begin);
    int32_t *mem = bench_alloc(dev, (4 * pairs + l->e + 1) * 4);

    l->route = (struct gpt_router){
        .n = l->n, .e = l->e, .k = l->k, .scaling = 1, .act = GPT_BF16,
        .logits = fill(F32, l->n * l->e), .weight = (float *)(void *)mem,
        .expert = mem + pairs, .source = mem + 2 * pairs,
        .place = mem + 3 * pairs, .begin = mem + 4 * pairs};
    l->rows = (struct gpt_expert_rows){
        .n = l->n, .k = l->k, .count = l->e, .act = GPT_BF16,
        .begin = l->route.begin,
        .source = l->route.source, .place = l->route.place,
        .weight = l->route.weight};
    l->tokens = fill(ACT, l->n * l->c);
    l->in = fill(ACT, pairs * wide);
    l->out = fill(ACT, pairs * wide);
    l->matrices = fill(ACT, l->e * l->c * l->f);
    l->gradients = bench_alloc(dev, l->e * l->c * l->f * 4);
    l->dweight = bench_alloc(dev, pairs * 4);
    l->begin = malloc(lists);
    run_route(l);
    dev->copy_out(dev_q, l->begin, l->route.begin, lists);
    bench_finish(dev, dev_q);
}

static void close_layer(struct layer *l)
{
    void *const all[] = {(void *)(uintptr_t)l->route.logits, l->route.weight,
                         l->tokens, l->in, l->out, l->matrices, l->gradients,
                         l->dweight};

    for (size_t i = 0; i < GPT_COUNT(all); i++)
        dev->free(dev, all[i]);
    free(l->begin);
}

static void run_layer(struct layer l)
{
    const int64_t tokens = 2 * l.n * l.c, pairs = 2 * l.n * l.k * l.c;

    open_layer(&l);
    product(&l, "fc1", (struct gpt_expert_matmul){
        .n = l.f, .k = l.c, .tb = true, .a = l.in, .b = l.matrices,
        .c = l.out});
    /* what was written is filled again: exact() is to know the inputs */
    dev->free(dev, l.out);
    l.out = fill(ACT, l.n * l.k * (l.c > l.f ? l.c : l.f));
    product(&l, "fc1 dw", (struct gpt_expert_matmul){
        .m = l.f, .n = l.c, .ta = true, .a = l.out, .b = l.in,
        .c = l.gradients});
    product(&l, "fc1 dx", (struct gpt_expert_matmul){
        .n = l.c, .k = l.f, .a = l.out, .b = l.matrices, .c = l.in});
    pass(&l, "router", run_route, 4 * l.n * l.e);
    pass(&l, "pick", run_pick, tokens + pairs);
    pass(&l, "sum", run_sum, tokens + pairs);
    pass(&l, "weigh", run_weigh, 4 * pairs);
    close_layer(&l);
}

int main(void)
{
    bench_open();
    product_rate = bench_product_rate();
    bench_row("plain 8192 x 8192 x 8192", product_rate * 1e-12, "TFLOP/s",
              product_rate * 1e-12, -1);
    copy_rate = bench_copy_rate();
    bench_row("copy", copy_rate * 1e-9, "GB/s", copy_rate * 1e-9, -1);
    if (tiny)
        run_layer((struct layer){.name = "tiny", .n = 24, .e = 4, .k = 2,
                                 .c = 24, .f = 40});
    if (!tiny) {
        run_layer((struct layer){.name = "OLMoE", .n = 16384, .e = 64, .k = 8,
                                 .c = 2048, .f = 1024});
        run_layer((struct layer){.name = "Mixtral", .n = 8192, .e = 8, .k = 2,
                                 .c = 4096, .f = 14336});
    }
    bench_close();
    return 0;
}
