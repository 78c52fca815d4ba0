/* The matrix products of a training step of GPT-2 124M, beside the machine's
 * peak of the instructions that they are made of, and beside oneDNN. All three
 * run in turns, many short rounds each, and the best round of each counts: what
 * else the machine does then falls on all of them, and on none of the best.
 *
 *     build/tests/bench/bench_products [rows [rounds]]
 *
 * A line is a product: GFLOP/s, the peak and the ratio to it, then oneDNN's
 * GFLOP/s and the ratio to those. "all" is all products of a step by the time
 * that they take together: 12 layers, and the output layer. */
#include "cpu/cpu.h"
#include "peak.h"

enum { C = 768, F = 3072, V = 50304, LAYERS = 12, WAYS = 2 };

static const struct shape {
    const char *name;
    int64_t m, n, k; /* 0: rows */
    bool ta, tb, wide;
    enum gpt_epilogue epilogue;
    int times;
} shapes[] = {
    {"qkv", 0, 3 * C, C, false, true, false, GPT_EPI_BIAS, LAYERS},
    {"proj", 0, C, C, false, true, false, GPT_EPI_BIAS, LAYERS},
    {"fc1 + gelu", 0, F, C, false, true, false, GPT_EPI_BIAS_GELU, LAYERS},
    {"fc2", 0, C, F, false, true, false, GPT_EPI_BIAS, LAYERS},
    {"head", 0, V, C, false, true, false, GPT_EPI_NONE, 1},
    {"qkv dx", 0, C, 3 * C, false, false, false, GPT_EPI_NONE, LAYERS},
    {"proj dx", 0, C, C, false, false, false, GPT_EPI_NONE, LAYERS},
    {"fc1 dx", 0, C, F, false, false, false, GPT_EPI_NONE, LAYERS},
    {"fc2 dx + dgelu", 0, F, C, false, false, false, GPT_EPI_DGELU, LAYERS},
    {"head dx", 0, C, V, false, false, false, GPT_EPI_NONE, 1},
    {"qkv dw", 3 * C, C, 0, true, false, true, GPT_EPI_NONE, LAYERS},
    {"proj dw", C, C, 0, true, false, true, GPT_EPI_NONE, LAYERS},
    {"fc1 dw", F, C, 0, true, false, true, GPT_EPI_NONE, LAYERS},
    {"fc2 dw", C, F, 0, true, false, true, GPT_EPI_NONE, LAYERS},
    {"head dw", V, C, 0, true, false, true, GPT_EPI_NONE, 1},
};

static struct gpt_backend *be;
static struct gpt_queue *q;
static int rounds = 15;

static void choose(const char *matmul)
{
    struct gpt_err err;

    if (cpu_choose(getenv("GPT_CPU_ISA"), matmul, &err) != GPT_OK) {
        fprintf(stderr, "bench_products: %s\n", err.text);
        exit(1);
    }
}

static void *filled(size_t bytes)
{
    struct gpt_err err;
    void *mem;
    uint32_t state = 1;

    if (be->alloc(be, bytes, "bench", &mem, &err) != GPT_OK) {
        fprintf(stderr, "bench_products: %s\n", err.text);
        exit(1);
    }
    /* 0x3f80: about 1 as bf16, and as the upper half of a float */
    for (size_t i = 0; i < bytes / 2; i++) {
        state = state * 1664525u + 1013904223u;
        ((uint16_t *)mem)[i] = (uint16_t)(0x3f00 | state >> 25 |
                                          (state >> 9 & 0x8000));
    }
    return mem;
}

/* Seconds of the best round of each way; ways[1] is oneDNN. */
static double measure(const struct gpt_matmul *op, double best[WAYS],
                      enum peak_kind kind)
{
    static const char *const ways[WAYS] = {"portable", "dnnl"};
    int threads = omp_get_max_threads();
    double peak = 0;

    for (int w = 0; w < WAYS; w++)
        best[w] = 1e9;
    for (int r = 0; r < rounds; r++)
        for (int w = 0; w < WAYS; w++) {
            choose(ways[w]);
            peak = fmax(peak, peak_round(kind, threads));
            double begin = bench_clock();
            be->matmul(q, op);
            best[w] = fmin(best[w], bench_clock() - begin);
        }
    return peak;
}

static void bench_step(int64_t rows, enum gpt_dtype act)
{
    bool narrow = act == GPT_BF16, tiles = gpt_cpu_has("amx");
    enum peak_kind kind = !narrow ? PEAK_FMA : tiles ? PEAK_TILES : PEAK_PAIRS;
    int64_t most = (rows > C ? rows : C) * (int64_t)V;
    void *a = filled((size_t)most * 4), *b = filled((size_t)most * 4);
    void *c = filled((size_t)most * 4), *aux = filled((size_t)(rows * F * 4));
    double flops = 0, seconds[WAYS] = {0}, best[WAYS], top = 0;

    printf("# %s, %lld rows\n", gpt_dtype_name(act), (long long)rows);
    for (size_t i = 0; i < GPT_COUNT(shapes); i++) {
        const struct shape *s = &shapes[i];
        struct gpt_matmul op = {.m = s->m ? s->m : rows,
                                .n = s->n,
                                .k = s->k ? s->k : rows,
                                .ta = s->ta,
                                .tb = s->tb,
                                .a = a,
                                .b = b,
                                .c = c,
                                .act = act,
                                .c_type = s->wide ? GPT_F32 : act,
                                .epilogue = s->epilogue,
                                .bias = b,
                                .aux = aux};
        double flop = 2e-9 * (double)op.m * (double)op.n * (double)op.k;
        double peak = 1e-9 * measure(&op, best, kind);

        printf("%-16s %8.1f  peak %8.1f %5.2f  oneDNN %8.1f %5.2f\n", s->name,
               flop / best[0], peak, flop / best[0] / peak, flop / best[1],
               best[1] / best[0]);
        fflush(stdout);
        top = fmax(top, peak);
        flops += s->times * flop;
        for (int w = 0; w < WAYS; w++)
            seconds[w] += s->times * best[w];
    }
    printf("%-16s %8.1f  peak %8.1f %5.2f  oneDNN %8.1f %5.2f\n", "all",
           flops / seconds[0], top, flops / seconds[0] / top,
           flops / seconds[1], seconds[1] / seconds[0]);
    be->free(be, a), be->free(be, b), be->free(be, c), be->free(be, aux);
}

static void print_peaks(void)
{
    static const char *const names[] = {"FMA", "VDPBF16PS", "TDPBF16PS"};
    int all = omp_get_max_threads();

    for (int kind = PEAK_FMA; kind <= PEAK_TILES; kind++) {
        double one = peak_rate((enum peak_kind)kind, 1, 200);
        double many = peak_rate((enum peak_kind)kind, all, 200);

        if (one > 0)
            printf("# %s: one core %.1f GFLOP/s, %d threads %.1f\n",
                   names[kind], one * 1e-9, all, many * 1e-9);
    }
    for (int threads = 1; threads <= all; threads += all > 1 ? all - 1 : 1) {
        omp_set_num_threads(threads);
        printf("# streaming, %d threads: read %.1f GB/s, copy %.1f GB/s\n",
               threads, 1e-9 * bench_stream_rate(bench_read_all, 1),
               1e-9 * bench_stream_rate(bench_copy_all, 2));
    }
}

int main(int argc, char **argv)
{
    int64_t rows = argc > 1 ? atoll(argv[1]) : 2048;
    struct gpt_err err;
    char text[200];

    if (argc > 2)
        rounds = atoi(argv[2]);
    if (gpt_backend_open(&be, "cpu", &err) != GPT_OK ||
        be->queue_open(be, &q, &err) != GPT_OK) {
        fprintf(stderr, "bench_products: %s\n", err.text);
        return 1;
    }
    be->describe(be, text, sizeof(text));
    printf("# %s\n", text);
    print_peaks();
    bench_step(rows, GPT_BF16);
    bench_step(rows, GPT_F32);
    int status = be->sync(q, &err);
    if (status != GPT_OK)
        fprintf(stderr, "bench_products: %s\n", err.text);
    be->queue_close(q);
    return status;
}
