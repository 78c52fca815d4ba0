/* A kernel that works row by row, as a table of operands. It is timed on all
 * rows on the device, and its last rows are compared with those of the CPU
 * backend, which computes with the same numbers as floats. Start at
 * bench_kernel(). */
#ifndef GPT_TESTS_GPU_BENCH_CASE_H
#define GPT_TESTS_GPU_BENCH_CASE_H

#include "tests/gpu/bench_device.h"

enum { BENCH_OPERANDS = 10 };

/* Where a kernel runs: `rows` of them, the first being `first` of all. */
struct bench_place {
    struct gpt_backend *be;
    struct gpt_queue *q;
    enum gpt_dtype act;
    int64_t first, rows;
    void *mem[BENCH_OPERANDS];
    const struct bench_case *of;
};

struct bench_case {
    const char *name, *unit;
    void (*prepare)(const struct bench_place *p); /* once before, or NULL */
    void (*run)(const struct bench_place *p);
    int64_t rows, check; /* rows compared; 0: none */
    struct bench_operand ops[BENCH_OPERANDS];
    double work, floor; /* of all rows: what `unit` counts 1e9 or 1e12 of */
    const void *shape;  /* for run */
};

static int64_t bench_elements(const struct bench_operand *o, int64_t rows)
{
    return o->row * rows + o->whole;
}

static void bench_run_case(void *place)
{
    const struct bench_place *p = place;

    p->of->run(p);
}

/* The last rows (of an operand without rows: all of it) as type `to`; the
 * caller calls free(). */
static void *bench_tail(const struct bench_place *p, int i, int64_t rows,
                        enum gpt_dtype to)
{
    const struct bench_operand *o = &p->of->ops[i];
    enum gpt_dtype type = bench_type(o->kind, p->act);
    size_t size = gpt_dtype_bytes(type);
    int64_t n = bench_elements(o, rows), all = bench_elements(o, p->rows);
    char *raw = malloc((size_t)n * size), *out = malloc((size_t)n * 8);

    dev->copy_out(dev_q, raw, (char *)p->mem[i] + (size_t)(all - n) * size,
                  (size_t)n * size);
    bench_finish(dev, dev_q);
    if (o->kind == ACT || o->kind == F32)
        gpt_convert(out, to, raw, type, (size_t)n);
    else
        memcpy(out, raw, (size_t)n * size);
    free(raw);
    return out;
}

/* The CPU's operands: the device's last rows, in float. */
static void bench_cpu_operands(struct bench_place *c,
                               const struct bench_place *d)
{
    for (int i = 0; i < BENCH_OPERANDS; i++) {
        const struct bench_operand *o = &d->of->ops[i];
        int64_t n = bench_elements(o, c->rows);
        enum gpt_dtype type = bench_type(o->kind, GPT_F32);

        if (n == 0)
            continue;
        void *x = bench_tail(d, i, c->rows, GPT_F32);
        c->mem[i] = bench_alloc(cpu, n * (int64_t)gpt_dtype_bytes(type));
        memcpy(c->mem[i], x, (size_t)n * gpt_dtype_bytes(type));
        free(x);
    }
}

/* |device - CPU| / |CPU| (Euclidean) over all operands that are checked. */
static double bench_distance(const struct bench_place *c,
                             const struct bench_place *d)
{
    double apart = 0, length = 0;

    for (int i = 0; i < BENCH_OPERANDS; i++) {
        const struct bench_operand *o = &d->of->ops[i];
        const float *want = c->mem[i];

        if (!o->checked)
            continue;
        float *got = bench_tail(d, i, c->rows, GPT_F32);
        for (int64_t k = 0; k < bench_elements(o, c->rows); k++) {
            double e = (double)got[k] - (double)want[k];

            apart += e * e;
            length += (double)want[k] * (double)want[k];
        }
        free(got);
    }
    return sqrt(apart / length);
}

static double bench_check(struct bench_place *d)
{
    struct bench_place c = {.be = cpu, .q = cpu_q, .act = GPT_F32,
                            .first = d->rows - d->of->check,
                            .rows = d->of->check, .of = d->of};

    bench_cpu_operands(&c, d);
    if (c.of->prepare)
        c.of->prepare(&c);
    c.of->run(&c);
    bench_finish(cpu, cpu_q);
    d->of->run(d);
    double e = bench_distance(&c, d);
    for (int i = 0; i < BENCH_OPERANDS; i++)
        if (c.mem[i])
            cpu->free(cpu, c.mem[i]);
    return e;
}

static void bench_kernel(const struct bench_case *of)
{
    struct bench_place d = {.be = dev, .q = dev_q, .act = GPT_BF16,
                            .rows = of->rows, .of = of};

    for (int i = 0; i < BENCH_OPERANDS; i++)
        if (bench_elements(&of->ops[i], of->rows) > 0)
            d.mem[i] = bench_fill(&of->ops[i],
                                  bench_elements(&of->ops[i], of->rows));
    if (of->prepare)
        of->prepare(&d);
    double e = of->check > 0 ? bench_check(&d) : -1;
    double s = bench_device_time(bench_run_case, &d, bench_budget());
    double scale = of->unit[0] == 'G' ? 1e-9 : 1e-12;
    bench_row(of->name, of->work / s * scale, of->unit, of->floor * scale, e);
    for (int i = 0; i < BENCH_OPERANDS; i++)
        if (d.mem[i])
            dev->free(dev, d.mem[i]);
}

#endif
