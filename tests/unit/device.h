/* For the tests of a device's kernels: the CPU backend runs an operation in
 * float, the device runs it in each type, with the same numbers (rounded to
 * that type) and poisoned outputs, and the results are compared. The device is
 * cuda-emu, with several orders of threads whose results must be equal bit for
 * bit; or the device of GPT_TEST_DEVICE. Start at compare(). */
#ifndef GPT_TESTS_DEVICE_H
#define GPT_TESTS_DEVICE_H

#include "backend.h"
#include "tests/lib/must.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"

#include <unistd.h>

/* One operand. ACT: of the type of activations; its numbers are given as
 * floats. Poisoned with NaN (integers: -1) before every run unless given. */
enum kind { ACT, F32, I32, F64 };
struct operand {
    const char *name;
    enum kind kind;
    int64_t n;
    const void *given; /* n floats (ACT, F32) or int32 (I32), or NULL */
    bool compared;
    double loose; /* factor on the tolerance; 0 = 1 */
};

enum { MOST_OPERANDS = 15 };

/* A run: where the operands lie, on the backend that runs. */
struct trial {
    struct gpt_backend *be;
    struct gpt_queue *q;
    enum gpt_dtype act;
    void *mem[MOST_OPERANDS];
    const void *params; /* the case */
};

static struct gpt_backend *cpu_be, *dev_be;
static struct gpt_queue *cpu_q, *dev_q;
static bool emulated;

static enum gpt_dtype type_of(enum kind kind, enum gpt_dtype act)
{
    return kind == ACT ? act : kind == F32 ? GPT_F32
                           : kind == I32   ? GPT_I32
                                           : GPT_F64;
}

/* Bytes of an operand, with its contents before a run; the caller calls free().
 * Numbers are rounded to type `round`, whatever the type of the operand. */
static void *image(const struct operand *o, enum gpt_dtype act,
                   enum gpt_dtype round, size_t *bytes)
{
    enum gpt_dtype t = type_of(o->kind, act);
    size_t n = (size_t)o->n;

    *bytes = n * gpt_dtype_bytes(t);
    char *x = malloc(*bytes + 16);
    memset(x, 0xff, *bytes); /* NaN in every format */
    if (!o->given)
        return x;
    if (o->kind != ACT) {
        memcpy(x, o->given, *bytes);
        return x;
    }
    char *narrow = malloc(n * 4 + 16);
    gpt_convert(narrow, round, o->given, GPT_F32, n);
    gpt_convert(x, t, narrow, round, n);
    free(narrow);
    return x;
}

typedef void run_fn(struct trial *t);

/* Runs once and returns the operands as they are afterwards, compared ones as
 * doubles; `raw` (may be NULL) takes a digest of their bytes. */
static void run_once(run_fn *run, struct trial *t, const struct operand *ops,
                     size_t n, enum gpt_dtype round, double **out,
                     uint64_t *raw)
{
    struct gpt_err err;

    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        void *x = image(&ops[i], t->act, round, &bytes);

        must(t->be->alloc(t->be, bytes, ops[i].name, &t->mem[i], &err), &err);
        t->be->copy_in(t->q, t->mem[i], x, bytes);
        must(t->be->sync(t->q, &err), &err);
        free(x);
    }
    run(t);
    if (!ok(t->be->sync(t->q, &err) == GPT_OK, "%s runs", t->be->name)) {
        printf("# %s\n", err.text);
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        enum gpt_dtype type = type_of(ops[i].kind, t->act);
        size_t bytes = (size_t)ops[i].n * gpt_dtype_bytes(type);
        unsigned char *x = malloc(bytes + 1);

        t->be->copy_out(t->q, x, t->mem[i], bytes);
        must(t->be->sync(t->q, &err), &err);
        out[i] = malloc((size_t)(ops[i].n + 1) * sizeof(double));
        if (ops[i].compared && ops[i].kind != I32)
            gpt_convert(out[i], GPT_F64, x, type, (size_t)ops[i].n);
        for (int64_t k = 0; ops[i].kind == I32 && k < ops[i].n; k++)
            out[i][k] = ((int32_t *)(void *)x)[k];
        for (size_t k = 0; raw && ops[i].compared && k < bytes; k++)
            *raw = (*raw ^ x[k]) * 0x100000001b3; /* FNV-1a */
        free(x);
        t->be->free(t->be, t->mem[i]);
    }
}

/* Largest difference, relative to the largest number wanted or 0.1; infinite
 * where only one of the two is NaN. */
static double difference(const double *got, const double *want, int64_t n)
{
    double worst = 0, top = 0.1;

    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))
            continue; /* infinities, too */
        double e = fabs(got[i] - want[i]);
        worst = e < 1e300 ? fmax(worst, e) : (double)INFINITY;
        top = fmax(top, fabs(want[i]));
    }
    return worst / top;
}

/* A type, and the one that given numbers are rounded to first. */
struct precision {
    enum gpt_dtype t, round;
    double tolerance;
};
static const struct precision types[] = {{GPT_F32, GPT_F32, 4e-6},
                                         {GPT_BF16, GPT_BF16, 8e-3},
                                         {GPT_F16, GPT_F16, 1e-3}};

static const char *const orders[] = {"forward", "reverse", "random:7"};
static size_t device_runs = 2; /* of a case, on a device that is not emulated */

static void compare_type(run_fn *run, const void *params,
                         const struct operand *ops, size_t n,
                         const struct precision *type, const char *name)
{
    enum gpt_dtype act = type->t;
    double *want[MOST_OPERANDS], *got[MOST_OPERANDS];
    uint64_t first = 0;
    struct trial cpu = {.be = cpu_be, .q = cpu_q, .act = GPT_F32,
                        .params = params};

    run_once(run, &cpu, ops, n, type->round, want, NULL);
    for (size_t k = 0; k < (emulated ? GPT_COUNT(orders) : device_runs); k++) {
        struct trial dev = {.be = dev_be, .q = dev_q, .act = act,
                            .params = params};
        uint64_t digest = 0xcbf29ce484222325;

        setenv("GPT_CUDA_EMU_ORDER", orders[k % GPT_COUNT(orders)], 1);
        run_once(run, &dev, ops, n, type->round, got, &digest);
        for (size_t i = 0; i < n; i++) {
            double limit = type->tolerance;

            limit *= ops[i].loose > 0 ? ops[i].loose : 1;
            if (ops[i].kind == I32)
                limit = 0;
            if (k == 0 && ops[i].compared) {
                double e = difference(got[i], want[i], ops[i].n);

                ok(e <= limit, "%s %s: %s: error %.2g, limit %.2g", name,
                   gpt_dtype_name(act), ops[i].name, e, limit);
            }
            free(got[i]);
        }
        if (k == 0)
            first = digest;
        else
            ok(digest == first, "%s %s: the same bytes again (%s)", name,
               gpt_dtype_name(act), emulated ? orders[k] : "another run");
    }
    for (size_t i = 0; i < n; i++)
        free(want[i]);
}

/* In every type, against the CPU. */
__attribute__((format(printf, 5, 6), unused)) static void
compare(run_fn *run, const void *params, const struct operand *ops, size_t n,
        const char *fmt, ...)
{
    char name[120];
    va_list args;

    va_start(args, fmt);
    vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    for (size_t type = 0; type < GPT_COUNT(types); type++)
        compare_type(run, params, ops, n, &types[type], name);
}

/* False, with a line of TAP, when the device is not there. */
static bool open_devices(void)
{
    const char *device = getenv("GPT_TEST_DEVICE"), *build = getenv("BUILD");
    struct gpt_err err;
    char text[300];

    device = device ? device : "cuda-emu";
    emulated = strcmp(device, "cuda-emu") == 0;
    setenv("GPT_PLUGIN_DIR", build ? build : "build", 0);
    if (gpt_backend_open(&dev_be, device, &err) != GPT_OK) {
        snprintf(text, sizeof(text), "%s/libgpt-cuda-emu.so",
                 getenv("GPT_PLUGIN_DIR"));
        if (emulated && access(text, F_OK) == 0)
            ok(false, "the emulated device opens: %s", err.text);
        else
            skip("%s", err.text);
        return false;
    }
    dev_be->describe(dev_be, text, sizeof(text));
    printf("# %s\n", text);
    must(gpt_backend_cpu(&cpu_be, &err), &err);
    must(cpu_be->queue_open(cpu_be, &cpu_q, &err), &err);
    must(dev_be->queue_open(dev_be, &dev_q, &err), &err);
    return true;
}

/* Opens the device's queue again, with another setting of the emulation. */
__attribute__((unused)) static void reopen(const char *variable,
                                           const char *value)
{
    struct gpt_err err;

    setenv(variable, value, 1);
    dev_be->queue_close(dev_q);
    must(dev_be->queue_open(dev_be, &dev_q, &err), &err);
}

static void close_devices(void)
{
    dev_be->queue_close(dev_q);
    cpu_be->queue_close(cpu_q);
}

#endif
