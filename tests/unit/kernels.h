/* For the tests of kernels: random input, poisoned output, comparison with a
 * double reference, and runs under several numbers of threads and every
 * setting of the CPU backend. Start at each_setting(). */
#ifndef GPT_TESTS_KERNELS_H
#define GPT_TESTS_KERNELS_H

#include "cpu/cpu.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"

#include <omp.h>

static struct gpt_backend *be;
static struct gpt_queue *q;
static const char *setting = "default"; /* for the names of checks */

__attribute__((unused)) static void poison(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = NAN;
}

__attribute__((unused)) static float *poisoned(int64_t n)
{
    float *x = malloc((size_t)(n + 1) * sizeof(*x));

    poison(x, n);
    return x;
}

__attribute__((unused)) static float *copied(const float *src, int64_t n)
{
    float *x = malloc((size_t)(n + 1) * sizeof(*x));

    memcpy(x, src, (size_t)n * sizeof(*x));
    return x;
}

/* Largest |got - want|, relative to the largest |want| or 0.1;
 * infinite when anything is not finite. */
__attribute__((unused)) static double error_of(const float *got,
                                               const double *want, int64_t n)
{
    double err = 0, top = 0.1;

    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)got[i] - want[i]);

        err = e < 1e300 ? fmax(err, e) : (double)INFINITY;
        top = fmax(top, fabs(want[i]));
    }
    return err / top;
}

#define close_to(got, want, n, tol, ...)                                 \
    do {                                                                 \
        double e_ = error_of(got, want, n);                              \
        if (!ok(e_ <= (tol), __VA_ARGS__))                               \
            printf("# error %.3g, limit %.3g (%s)\n", e_, (double)(tol), \
                   setting);                                             \
    } while (0)

/* run() writes `out` wholly; true when 1, 2 and 3 threads give equal bytes, and
 * so does one where OpenMP was asked for 3. Leaves the result of the last. */
__attribute__((unused)) static bool same_bytes(void (*run)(void *ctx),
                                               void *ctx, float *out, int64_t n)
{
    const int before = omp_get_max_threads();
    const int levels = omp_get_max_active_levels();
    float *first = NULL;
    bool same = true;

    for (int threads = 1; threads <= 4; threads++) {
        omp_set_num_threads(threads < 4 ? threads : 3);
        if (threads == 4)
            omp_set_max_active_levels(0); /* as OMP_THREAD_LIMIT=1 does */
        run(ctx);
        if (!first)
            first = copied(out, n);
        else if (memcmp(first, out, (size_t)n * sizeof(*out)) != 0)
            same = false;
    }
    free(first);
    omp_set_max_active_levels(levels);
    omp_set_num_threads(before);
    return same;
}

/* True when run() by so many threads writes what `out` has. */
__attribute__((unused)) static bool same_by(int threads, void (*run)(void *ctx),
                                            void *ctx, float *out, int64_t n)
{
    const int before = omp_get_max_threads();
    float *first = copied(out, n);

    omp_set_num_threads(threads);
    run(ctx);
    omp_set_num_threads(before);
    const bool same = memcmp(first, out, (size_t)n * sizeof(*out)) == 0;
    free(first);
    return same;
}

/* Runs the body for every instruction set of this machine, for both ways to
 * multiply matrices, and as the environment says (GPT_CPU_ISA, GPT_CPU_MATMUL).
 * Fails when not even the plainest is there. With GPT_TEST_AS_IS set, only as
 * the environment says. */
__attribute__((unused)) static void each_setting(void (*body)(void))
{
    static const char *const sets[][2] = {{"base", "portable"},
                                          {"avx2", "portable"},
                                          {"avx2vnni", "portable"},
                                          {"avx512", "portable"},
                                          {"avx512vnni", "portable"},
                                          {"avx512bf16", "portable"},
                                          {"amx", "portable"},
                                          {NULL, "dnnl"},
                                          {NULL, NULL}};
    struct gpt_err err;
    int status = gpt_backend_cpu(&be, &err);

    if (status == GPT_OK)
        status = be->queue_open(be, &q, &err);
    if (status != GPT_OK) {
        ok(false, "open the backend: %s", err.text);
        return;
    }
    size_t first = getenv("GPT_TEST_AS_IS") ? GPT_COUNT(sets) - 1 : 0;
    for (size_t i = first; i < GPT_COUNT(sets); i++) {
        char name[40] = "default";

        if (sets[i][1])
            snprintf(name, sizeof(name), "%s %s",
                     sets[i][0] ? sets[i][0] : "best", sets[i][1]);
        setting = name;
        bool named = sets[i][1] != NULL;
        if (cpu_choose(named ? sets[i][0] : getenv("GPT_CPU_ISA"),
                       named ? sets[i][1] : getenv("GPT_CPU_MATMUL"),
                       &err) != GPT_OK) {
            ok(i > 0, "%s # SKIP %s", name, err.text);
            continue;
        }
        body();
        is_int(be->sync(q, &err), GPT_OK, "%s: no failure stuck", name);
    }
    be->queue_close(q);
}

#endif
