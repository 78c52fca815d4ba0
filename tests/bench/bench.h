/* For the benchmarks: a clock, medians, and the two floors of the machine,
 * measured in the same run: streaming bandwidth and the speed of oneDNN's sgemm
 * with large shapes. Start at bench_row(), which prints one line:
 *
 *     name <tab> figure <tab> unit <tab> floor <tab> ratio <tab> error
 *
 * ratio is figure / floor: 1 is the limit of the machine. */
#ifndef GPT_TESTS_BENCH_H
#define GPT_TESTS_BENCH_H

#include "backend.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef GPT_HAVE_DNNL
#include <dnnl.h>
#endif

__attribute__((unused)) static double bench_now(void) /* seconds */
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The clock of bench_time(). With GPT_BENCH_CPU set it is the processor time of
 * the process, which with OMP_NUM_THREADS=1 gives figures on a machine that has
 * other work. */
__attribute__((unused)) static double bench_clock(void)
{
    struct timespec t;
    bool cpu = getenv("GPT_BENCH_CPU") != NULL;

    clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int bench_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

__attribute__((unused)) static double bench_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), bench_order);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Median seconds of one run(ctx): a warm-up, then at least 5 runs and until
 * `budget` seconds are spent. Short runs are timed in groups of >= 1 ms. */
__attribute__((unused)) static double bench_time(void (*run)(void *ctx),
                                                 void *ctx, double budget)
{
    enum { MOST = 200 };
    double times[MOST], begin = bench_clock();
    run(ctx);
    double once = bench_clock() - begin;
    int group = once > 1e-3 ? 1 : (int)(1e-3 / (once + 1e-7)) + 1, n = 0;
    begin = bench_clock();
    while (n < MOST && (n < 5 || bench_clock() - begin < budget)) {
        double t = bench_clock();

        for (int i = 0; i < group; i++)
            run(ctx);
        times[n++] = (bench_clock() - t) / group;
    }
    return bench_median(times, n);
}

/* Streaming: 256 MiB, far past the caches, cut over all threads. */
enum { BENCH_STREAM = 1 << 26 }; /* floats */

struct bench_stream {
    float *a, *b;
    double sink;
};

__attribute__((unused)) static void bench_read_all(void *ctx)
{
    typedef float v4 __attribute__((vector_size(16)));
    struct bench_stream *s = ctx;
    double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < BENCH_STREAM; i += 1 << 14) {
        v4 x0 = {0}, x1 = x0, x2 = x0, x3 = x0, x4 = x0, x5 = x0, x6 = x0,
           x7 = x0;

        for (int64_t j = i; j < i + (1 << 14); j += 32) {
            const v4 *p = (const v4 *)(const void *)(s->a + j);

            x0 += p[0], x1 += p[1], x2 += p[2], x3 += p[3];
            x4 += p[4], x5 += p[5], x6 += p[6], x7 += p[7];
        }
        x0 += x1 + x2 + x3 + x4 + x5 + x6 + x7;
        sum += (double)(x0[0] + x0[1] + x0[2] + x0[3]);
    }
    s->sink += sum;
}

__attribute__((unused)) static void bench_copy_all(void *ctx)
{
    struct bench_stream *s = ctx;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < BENCH_STREAM; i += 1 << 18)
        memcpy(s->b + i, s->a + i, sizeof(float) << 18);
}

/* b += a: a pass that changes memory in place. It moves more bytes a second
 * than a copy, which first reads the lines that it is about to overwrite. */
__attribute__((unused)) static void bench_update_all(void *ctx)
{
    typedef float v4 __attribute__((vector_size(16)));
    struct bench_stream *s = ctx;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < BENCH_STREAM; i += 1 << 14) {
        const v4 *a = (const v4 *)(const void *)(s->a + i);
        v4 *b = (v4 *)(void *)(s->b + i);

        for (int64_t j = 0; j < 1 << 12; j += 4) {
            b[j] += a[j], b[j + 1] += a[j + 1];
            b[j + 2] += a[j + 2], b[j + 3] += a[j + 3];
        }
    }
}

/* Bytes a second (read plus written) of a pass over two big arrays. */
__attribute__((unused)) static double bench_stream_rate(void (*pass)(void *ctx),
                                                        double passes)
{
    struct gpt_backend *be;
    struct gpt_err err;
    void *a = NULL, *b = NULL;
    size_t bytes = BENCH_STREAM * sizeof(float);

    enum { APART = 24576 + 448 }; /* so that they use different cache sets */
    if (gpt_backend_cpu(&be, &err) != GPT_OK ||
        be->alloc(be, bytes, "bench", &a, &err) != GPT_OK ||
        be->alloc(be, bytes + APART, "bench", &b, &err) != GPT_OK) {
        fprintf(stderr, "bench: %s\n", err.text);
        exit(1);
    }
    struct bench_stream s = {a, (float *)(void *)((char *)b + APART), 0};
    memset(a, 1, bytes);
    memset(b, 1, bytes + APART);
    double rate = passes * (double)bytes / bench_time(pass, &s, 0.2);
    be->free(be, a);
    be->free(be, b);
    return rate;
}

/* Bytes a second that all threads read, and that they copy. */
__attribute__((unused)) static void bench_bandwidth(double *read, double *copy)
{
    *read = bench_stream_rate(bench_read_all, 1);
    *copy = bench_stream_rate(bench_copy_all, 2);
}

__attribute__((unused)) static double bench_update_rate(void)
{
    return bench_stream_rate(bench_update_all, 3);
}

struct bench_gemm {
    int64_t m, n, k;
    const float *a, *b;
    float *c;
};

__attribute__((unused)) static void bench_library(void *ctx)
{
    struct bench_gemm *g = ctx;
#ifdef GPT_HAVE_DNNL
    dnnl_sgemm('N', 'T', g->m, g->n, g->k, 1, g->a, g->k, g->b, g->k, 0, g->c,
               g->n);
#else
    (void)g;
#endif
}

/* FLOP/s of oneDNN's own sgemm with all threads, x (M, K) times W (N, K)
 * transposed: the best of a few big shapes, each a median; 0 without oneDNN. */
__attribute__((unused)) static double bench_sgemm_ceiling(void)
{
    static const int64_t shapes[][3] = {
        {1024, 3072, 768}, {1024, 768, 3072}, {1024, 4096, 1024}};

    enum { MOST = 4096 * 1024 };
    double best = 0;
#ifndef GPT_HAVE_DNNL
    return 0;
#endif
    float *mem = calloc(3 * (size_t)MOST, sizeof(*mem));
    if (!mem)
        return 0;
    for (int64_t i = 0; i < 2 * (int64_t)MOST; i++)
        mem[i] = (float)(i % 251) / 251 - 0.5f;
    for (size_t i = 0; i < GPT_COUNT(shapes); i++) {
        struct bench_gemm g = {shapes[i][0], shapes[i][1], shapes[i][2],
                               mem,          mem + MOST,   mem + 2 * MOST};
        double s = bench_time(bench_library, &g, 0.3);
        double rate = 2 * (double)(g.m * g.n * g.k) / s;

        best = rate > best ? rate : best;
    }
    free(mem);
    return best;
}

__attribute__((unused)) static void bench_head(void)
{
    printf("%-34s\t%10s\t%-7s\t%10s\t%5s\t%s\n", "name", "figure", "unit",
           "floor", "ratio", "error");
}

/* error: against a double reference; negative = not measured here */
__attribute__((unused)) static void bench_row(const char *name, double figure,
                                              const char *unit, double floor,
                                              double error)
{
    char text[32] = "-";

    if (error >= 0)
        snprintf(text, sizeof(text), "%.1e", error);
    printf("%-34s\t%10.4g\t%-7s\t%10.4g\t%5.2f\t%s\n", name, figure, unit,
           floor, floor > 0 ? figure / floor : 0, text);
    fflush(stdout);
}

#endif
