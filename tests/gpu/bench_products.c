/* The matrix products of a training step, in bf16, with 16 x 1024 tokens,
 * beside the library's plain product of 8192 x 8192 x 8192; a product with an
 * epilogue is beside the same product without it. Errors are those of sampled
 * elements compared with sums in double.
 *
 *     bench_products [C]...   widths; 768 1600 of GPT-2 124M and 1.5B */
#include "tests/gpu/bench_device.h"

static double product_rate;

/* Sizes: tokens, width, three and four of it, vocabulary. */
enum size { ROWS, C1, C3, C4, VOCABULARY, N_SIZES };

static const struct {
    const char *name;
    enum size m, n, k;
    bool ta, tb;
    enum gpt_epilogue epilogue;
    const char *fused; /* name with its epilogue */
} products[] = {
    {"qkv", ROWS, C3, C1, false, true, GPT_EPI_BIAS, "+ bias"},
    {"proj", ROWS, C1, C1, false, true, GPT_EPI_BIAS, "+ bias"},
    {"fc1", ROWS, C4, C1, false, true, GPT_EPI_BIAS_GELU, "+ bias + gelu"},
    {"fc2", ROWS, C1, C4, false, true, GPT_EPI_BIAS, "+ bias"},
    {"head", ROWS, VOCABULARY, C1, false, true, GPT_EPI_NONE, NULL},
    {"head dx", ROWS, C1, VOCABULARY, false, false, GPT_EPI_NONE, NULL},
    {"fc2 dx", ROWS, C4, C1, false, false, GPT_EPI_DGELU, "+ dgelu"},
    {"fc1 dx", ROWS, C1, C4, false, false, GPT_EPI_NONE, NULL},
    {"proj dx", ROWS, C1, C1, false, false, GPT_EPI_NONE, NULL},
    {"qkv dx", ROWS, C1, C3, false, false, GPT_EPI_NONE, NULL},
    {"head dw", VOCABULARY, C1, ROWS, true, false, GPT_EPI_NONE, NULL},
    {"fc2 dw", C1, C4, ROWS, true, false, GPT_EPI_NONE, NULL},
    {"fc1 dw", C4, C1, ROWS, true, false, GPT_EPI_NONE, NULL},
    {"proj dw", C1, C1, ROWS, true, false, GPT_EPI_NONE, NULL},
    {"qkv dw", C3, C1, ROWS, true, false, GPT_EPI_NONE, NULL},
};

static double exact(int64_t i) /* as bf16 has it */
{
    return (double)gpt_bf16_to_f32(gpt_f32_to_bf16(bench_number(i)));
}

static double element(const struct gpt_matmul *op, int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t k = 0; k < op->k; k++)
        sum += exact(op->ta ? k * op->m + i : i * op->k + k) *
               exact(op->tb ? j * op->k + k : k * op->n + j);
    return sum;
}

/* Of 64 elements; c was written with beta 0 and without epilogue. */
static double error_of(const struct gpt_matmul *op)
{
    double apart = 0, length = 0;
    size_t size = gpt_dtype_bytes(op->c_type);

    for (int trial = 0; trial < 64; trial++) {
        int64_t i = trial * 2657 % op->m, j = trial * 7919 % op->n;
        char raw[4];
        double got, want = element(op, i, j);

        dev->copy_out(dev_q, raw,
                      (char *)op->c + (size_t)(i * op->n + j) * size, size);
        bench_finish(dev, dev_q);
        gpt_convert(&got, GPT_F64, raw, op->c_type, 1);
        apart += (got - want) * (got - want);
        length += want * want;
    }
    return sqrt(apart / length);
}

static double measure(const char *name, struct gpt_matmul *op, double floor,
                      double error)
{
    double rate = bench_flop(op) /
                  bench_device_time(bench_run_product, op, bench_budget());

    bench_row(name, rate * 1e-12, "TFLOP/s", floor * 1e-12, error);
    return rate;
}

static void run_all(int64_t c)
{
    const int64_t sizes[N_SIZES] = {tiny ? 48 : 16384, c, 3 * c, 4 * c,
                                    tiny ? 64 : 50304};
    const struct bench_operand numbers = {.kind = ACT};
    int64_t most = sizes[ROWS] * sizes[VOCABULARY];

    most = most > sizes[VOCABULARY] * c ? most : sizes[VOCABULARY] * c;
    most = most > sizes[ROWS] * 4 * c ? most : sizes[ROWS] * 4 * c;
    most = most > 12 * c * c ? most : 12 * c * c;
    void *a = bench_fill(&numbers, most), *b = bench_fill(&numbers, most);
    void *out = bench_alloc(dev, 4 * most), *bias = bench_fill(&numbers, 4 * c);
    void *aux = bench_fill(&numbers, sizes[ROWS] * 4 * c);
    for (size_t i = 0; i < GPT_COUNT(products); i++) {
        bool gradient = products[i].ta;
        struct gpt_matmul op = {.m = sizes[products[i].m],
                                .n = sizes[products[i].n],
                                .k = sizes[products[i].k],
                                .ta = products[i].ta, .tb = products[i].tb,
                                .a = a, .b = b, .c = out, .act = GPT_BF16,
                                .c_type = gradient ? GPT_F32 : GPT_BF16,
                                .bias = bias, .aux = aux};
        char name[64];

        dev->matmul(dev_q, &op);
        double error = error_of(&op);
        op.beta = gradient ? 1 : 0;
        snprintf(name, sizeof(name), "C%d %s", (int)c, products[i].name);
        double plain = measure(name, &op, product_rate, error);
        op.epilogue = products[i].epilogue;
        snprintf(name, sizeof(name), "C%d %s %s", (int)c, products[i].name,
                 products[i].fused ? products[i].fused : "");
        if (products[i].fused)
            measure(name, &op, plain, -1);
    }
    void *const all[] = {a, b, out, bias, aux};
    for (size_t i = 0; i < GPT_COUNT(all); i++)
        dev->free(dev, all[i]);
}

int main(int argc, char **argv)
{
    bench_open();
    product_rate = bench_product_rate();
    bench_row("plain 8192 x 8192 x 8192", product_rate * 1e-12, "TFLOP/s",
              product_rate * 1e-12, -1);
    for (int i = 1; i < argc; i++)
        run_all(atoll(argv[i]));
    if (argc == 1) {
        run_all(tiny ? 16 : 768);
        run_all(tiny ? 24 : 1600);
    }
    bench_close();
    return 0;
}
