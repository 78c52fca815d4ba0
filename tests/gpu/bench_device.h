/* For the benchmarks of GPU kernels: a device, numbers on it, its clock, and
 * the two floors of the machine, measured in the same run. A table of operands
 * describes a kernel that works row by row; bench_kernel() times it on all rows
 * and compares the last ones with the CPU backend.
 *
 * GPT_TEST_DEVICE=cuda-emu rehearses a benchmark: its sizes are then tiny, and
 * its figures mean nothing. bench.h describes the printed rows. */
#ifndef GPT_TESTS_GPU_BENCH_DEVICE_H
#define GPT_TESTS_GPU_BENCH_DEVICE_H

#include "tests/bench/bench.h"

static struct gpt_backend *dev, *cpu;
static struct gpt_queue *dev_q, *cpu_q;
static bool tiny;

static void bench_need(int status, const struct gpt_err *err)
{
    if (status == GPT_OK)
        return;
    fprintf(stderr, "bench-gpu: %s\n", err->text);
    exit(1);
}

static void bench_finish(struct gpt_backend *be, struct gpt_queue *q)
{
    struct gpt_err err;

    bench_need(be->sync(q, &err), &err);
}

static void bench_open(void)
{
    const char *name = getenv("GPT_TEST_DEVICE"), *build = getenv("BUILD");
    struct gpt_err err;
    char text[300];

    name = name ? name : "cuda";
    setenv("GPT_PLUGIN_DIR", build ? build : "build", 0);
    tiny = strcmp(name, "cuda-emu") == 0;
    bench_need(gpt_backend_open(&dev, name, &err), &err);
    bench_need(gpt_backend_cpu(&cpu, &err), &err);
    bench_need(dev->queue_open(dev, &dev_q, &err), &err);
    bench_need(cpu->queue_open(cpu, &cpu_q, &err), &err);
    dev->describe(dev, text, sizeof(text));
    printf("# %s\n", text);
    bench_head();
}

static void bench_close(void)
{
    dev->queue_close(dev_q);
    cpu->queue_close(cpu_q);
}

/* ---- numbers: a block of random numbers, repeated ---- */

enum { BENCH_BLOCK = 1048573 }; /* a prime: rows differ */

static float bench_number(int64_t i) /* in [-1, 1) */
{
    static float *block;

    if (!block) {
        uint32_t s = 12345;

        block = malloc(BENCH_BLOCK * sizeof(*block));
        for (int64_t k = 0; k < BENCH_BLOCK; k++) {
            s = s * 1664525u + 1013904223u;
            block[k] = (float)(s >> 8) / (1 << 23) - 1;
        }
    }
    return block[i % BENCH_BLOCK];
}

enum bench_kind { ACT, F32, I32, RAW };

/* `row` elements for each row, or `whole` in all. Numbers are random: of ACT
 * and F32 in [-1, 1), positive ones in [0, 1); of I32 below `limit`. RAW:
 * bytes, as `given` or zero. `checked`: written, and compared with the CPU's.
 */
struct bench_operand {
    enum bench_kind kind;
    int64_t row, whole, limit;
    bool positive, checked;
    const void *given;
};

static enum gpt_dtype bench_type(enum bench_kind kind, enum gpt_dtype act)
{
    return kind == ACT ? act : kind == F32 ? GPT_F32
                           : kind == I32   ? GPT_I32
                                           : GPT_U8;
}

static void *bench_alloc(struct gpt_backend *be, int64_t bytes)
{
    struct gpt_err err;
    void *mem;

    bench_need(be->alloc(be, (size_t)bytes, "bench", &mem, &err), &err);
    return mem;
}

/* The first n elements of an operand as they are on the device. */
static void *bench_image(const struct bench_operand *o, int64_t n)
{
    enum gpt_dtype type = bench_type(o->kind, GPT_BF16);
    float *x = malloc((size_t)n * sizeof(*x));
    int32_t *whole = (int32_t *)(void *)x;
    void *image = malloc((size_t)n * 4);

    for (int64_t i = 0; i < n; i++)
        if (o->kind == I32)
            whole[i] = (int32_t)((bench_number(i) + 1) / 2 * (float)o->limit);
        else
            x[i] = o->positive ? fabsf(bench_number(i)) : bench_number(i);
    if (o->kind == I32)
        memcpy(image, x, (size_t)n * 4);
    else
        gpt_convert(image, type, x, GPT_F32, (size_t)n);
    free(x);
    return image;
}

/* Device memory of n elements, filled. */
static void *bench_fill(const struct bench_operand *o, int64_t n)
{
    int64_t size = (int64_t)gpt_dtype_bytes(bench_type(o->kind, GPT_BF16));
    int64_t have = n < BENCH_BLOCK ? n : BENCH_BLOCK;
    char *mem = bench_alloc(dev, n * size);

    if (o->kind == RAW) {
        if (o->given)
            dev->copy_in(dev_q, mem, o->given, (size_t)n);
        bench_finish(dev, dev_q);
        return mem;
    }
    void *image = bench_image(o, have);
    dev->copy_in(dev_q, mem, image, (size_t)(have * size));
    bench_finish(dev, dev_q);
    free(image);
    /* whole blocks, but the last */
    for (int64_t more; have < n; have += more) {
        more = have < n - have ? have : n - have;
        dev->copy(dev_q, mem + have * size, mem, (size_t)(more * size));
    }
    return mem;
}

/* ---- time ---- */

/* Median seconds of one run(ctx) on the device. Runs are timed in groups of
 * at least 20 ms, which hide the time to start and to wait, for `budget`
 * seconds. */
static double bench_device_time(void (*run)(void *ctx), void *ctx,
                                double budget)
{
    enum { MOST = 200 };
    double times[MOST], begin;
    int n = 0;
    run(ctx);
    bench_finish(dev, dev_q);
    begin = bench_now();
    run(ctx);
    bench_finish(dev, dev_q);
    int group = tiny ? 1 : (int)(0.02 / (bench_now() - begin)) + 1;
    begin = bench_now();
    while (n < MOST && (n < (tiny ? 1 : 5) || bench_now() - begin < budget)) {
        double t = bench_now();

        for (int i = 0; i < group; i++)
            run(ctx);
        bench_finish(dev, dev_q);
        times[n++] = (bench_now() - t) / group;
    }
    return bench_median(times, n);
}

static double bench_budget(void)
{
    return tiny ? 0 : 0.3;
}

/* ---- floors ---- */

struct bench_copy {
    void *to, *from;
    size_t bytes;
};

__attribute__((unused)) static void bench_run_copy(void *ctx)
{
    struct bench_copy *c = ctx;

    dev->copy(dev_q, c->to, c->from, c->bytes);
}

/* Bytes a second of a copy on the device, those read and those written. */
__attribute__((unused)) static double bench_copy_rate(void)
{
    int64_t n = tiny ? 1 << 12 : (int64_t)1 << 30;
    const struct bench_operand numbers = {.kind = ACT};
    struct bench_copy c = {bench_alloc(dev, 2 * n), bench_fill(&numbers, n),
                           (size_t)(2 * n)};
    double s = bench_device_time(bench_run_copy, &c, 2 * bench_budget());

    dev->free(dev, c.to);
    dev->free(dev, c.from);
    return 4 * (double)n / s;
}

__attribute__((unused)) static void bench_run_product(void *op)
{
    dev->matmul(dev_q, op);
}

__attribute__((unused)) static double bench_flop(const struct gpt_matmul *op)
{
    return 2 * (double)op->m * (double)op->n * (double)op->k;
}

/* FLOP/s of the library's plain bf16 product of 8192 x 8192 x 8192. */
__attribute__((unused)) static double bench_product_rate(void)
{
    int64_t n = tiny ? 64 : 8192;
    const struct bench_operand numbers = {.kind = ACT};
    struct gpt_matmul op = {.m = n, .n = n, .k = n, .tb = true,
                            .a = bench_fill(&numbers, n * n),
                            .b = bench_fill(&numbers, n * n),
                            .c = bench_alloc(dev, 2 * n * n),
                            .act = GPT_BF16, .c_type = GPT_BF16};
    double s = bench_device_time(bench_run_product, &op, 2 * bench_budget());

    dev->free(dev, (void *)(uintptr_t)op.a);
    dev->free(dev, (void *)(uintptr_t)op.b);
    dev->free(dev, op.c);
    return bench_flop(&op) / s;
}

#endif
