/* The table of devices and what replaces its numbers; see hardware.h. Peaks
 * and bandwidths of memory are those of the vendors' data sheets, of dense
 * products. Sizes of memory are not: a driver and error correction take a part
 * of it. They are the totals of cudaMemGetInfo(), which PyTorch repeats where
 * memory is short ("a total capacity of 79.11 GiB": an H100); drivers differ by
 * up to 0.2 GiB. Machines are the vendors' own with eight GPUs and a network
 * interface for each. Links have what NCCL's all-reduce of large messages
 * reaches of them, some three quarters. The share that large products
 * reach is what training reaches under the power limit of a device, not what a
 * single product does: with it published steps of llm.c come out (124M on eight
 * A100, 1.5B on eight H100; tests/bench/RESULTS.md). Start at
 * gpt_hardware_choose(). */
#include "cmd/train/hardware.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define T 1e12
#define G 1e9
#define GIB 1073741824.0
#define US 1e-6

/* What a CUDA context takes of the total, enough for the rows of the table. It
 * grows with the multiprocessors: 555 MiB where there are 188 (RTX PRO 6000),
 * 107 where there are 34 (llama.cpp, pull request 23604). */
#define CONTEXT (0.6 * GIB)

/* What devices have in common that differ in their memory alone. */
#define A100                                                                   \
    .capability = 80, .narrow_peak = 312 * T, .float_peak = 19.5 * T,          \
    .efficiency = 0.8, .units = 108, .launch = 4 * US, .per_node = 8,          \
    .near_bandwidth = 230 * G, .near_latency = 8 * US,                         \
    .far_bandwidth = 22 * G, .far_latency = 15 * US
#define HOPPER                                                                 \
    .capability = 90, .narrow_peak = 989 * T, .float_peak = 67 * T,            \
    .efficiency = 0.65, .units = 132, .launch = 4 * US, .per_node = 8,         \
    .near_bandwidth = 360 * G, .near_latency = 8 * US,                         \
    .far_bandwidth = 44 * G, .far_latency = 15 * US

/* The first row whose words are in a device's name is taken: the longer names
 * are in front. The last row is measured. */
static const struct gpt_hardware rows[] = {
    {.name = "v100", .device = "V100", .capability = 70,
     .narrow_peak = 125 * T, .float_peak = 15.7 * T, .efficiency = 0.75,
     .units = 80, .bandwidth = 900 * G, .total = 31.74 * GIB, .launch = 4 * US,
     .per_node = 8, .near_bandwidth = 120 * G, .near_latency = 8 * US,
     .far_bandwidth = 10 * G, .far_latency = 15 * US},
    {.name = "a100-40g", .device = "A100-SXM4-40GB", A100,
     .bandwidth = 1555 * G, .total = 39.39 * GIB},
    {.name = "a100", .device = "A100", A100, .bandwidth = 2039 * G,
     .total = 79.15 * GIB},
    {.name = "h100", .device = "H100", HOPPER, .bandwidth = 3350 * G,
     .total = 79.11 * GIB},
    {.name = "h200", .device = "H200", HOPPER, .bandwidth = 4800 * G,
     .total = 139.80 * GIB},
    {.name = "b200", .device = "B200", .capability = 100,
     .narrow_peak = 2250 * T, .float_peak = 80 * T, .efficiency = 0.6,
     .units = 148, .bandwidth = 8000 * G, .total = 178.35 * GIB,
     .launch = 4 * US, .per_node = 8,
     .near_bandwidth = 700 * G, .near_latency = 8 * US,
     .far_bandwidth = 44 * G, .far_latency = 15 * US},
    {.name = "rtx4090", .device = "RTX 4090", .capability = 89,
     .narrow_peak = 165.2 * T, .float_peak = 82.6 * T, .efficiency = 0.8,
     .units = 128, .bandwidth = 1008 * G, .total = 23.64 * GIB,
     .launch = 4 * US, .per_node = 8,
     .near_bandwidth = 16 * G, .near_latency = 15 * US,
     .far_bandwidth = 2.5 * G, .far_latency = 30 * US},
    {.name = "cpu", .efficiency = 1, .per_node = 1, .near_bandwidth = 4 * G,
     .near_latency = 30 * US, .far_bandwidth = 1.2 * G,
     .far_latency = 50 * US},
};

/* In the order of the rows: a choice is its place. */
const char *const gpt_hardware_names[] = {
    "v100", "a100-40g", "a100", "h100", "h200", "b200", "rtx4090", "cpu", NULL,
};

void gpt_hardware_plan(struct gpt_backend *be, const struct gpt_hardware *h)
{
    gpt_backend_planned(be, (int64_t)h->total, h->capability);
    be->name = h->name;
}

double gpt_hardware_peak(const struct gpt_hardware *h, enum gpt_dtype act)
{
    return act == GPT_F32 ? h->float_peak : h->narrow_peak;
}

/* ---- measuring ---- */

/* The size of the matrices, whose product takes about half a millisecond; and
 * how many products are made at most. */
enum { SIDE = 384, TRIES = 200 };

/* The best of some short products: what the machine can do when nothing
 * disturbs it, which on a busy machine is rare. So they are made until a few
 * took about as long as the best. The first one may load or compile code, so
 * that it does not count. */
static int time_products(struct gpt_backend *be, enum gpt_dtype act,
                         struct gpt_queue *q, void *mem, double *flops,
                         struct gpt_err *err)
{
    const size_t block = (size_t)(SIDE * SIDE * gpt_dtype_bytes(act));
    const struct gpt_matmul product = {
        .m = SIDE, .n = SIDE, .k = SIDE,
        .a = mem,
        .b = (char *)mem + block,
        .c = (char *)mem + 2 * block,
        .act = act,
        .c_type = act,
    };
    const double start = gpt_now();
    int alike = 0;

    /* The limits are for processors that take long for one: a run of a few
     * steps must not wait for its own figures. */
    for (int i = 0; i < TRIES; i++) {
        const double begun = gpt_now();

        be->matmul(q, &product);
        GPT_TRY(be->sync(q, err));
        const double now = gpt_now();
        const double rate = 2.0 * SIDE * SIDE * SIDE / (now - begun);
        if (i == 0)
            continue;
        alike = rate > 1.1 * *flops ? 1 : alike + (rate > 0.8 * *flops);
        *flops = rate > *flops ? rate : *flops;
        if (now - start > (alike >= 4 ? 0.008 : 0.1) && i >= 2)
            break;
    }
    return GPT_OK;
}

/* FLOP/s of products on this device; 0 where it cannot be measured, which is no
 * error: a run is then without this figure. */
static double measure_products(struct gpt_backend *be, enum gpt_dtype act)
{
    const size_t bytes = 3 * (size_t)(SIDE * SIDE * gpt_dtype_bytes(act));
    struct gpt_queue *q = NULL;
    void *mem = NULL;
    double flops = 0;

    if (be->queue_open(be, &q, NULL) == GPT_OK &&
        be->alloc(be, bytes, "a measurement", &mem, NULL) == GPT_OK &&
        time_products(be, act, q, mem, &flops, NULL) != GPT_OK)
        flops = 0;
    if (mem)
        be->free(be, mem);
    if (q)
        be->queue_close(q);
    return flops;
}

/* Bytes/s of a copy, read and written, in memory that no cache holds. */
static double measure_memory(void)
{
    const size_t n = (size_t)32 << 20;
    char *block = gpt_alloc(2, n);
    double best = 0;

    if (!block)
        return 10 * G;
    memset(block, 1, 2 * n);
    for (int i = 0; i < 3; i++) {
        const double begun = gpt_now();

        memcpy(block, block + n, n);
        const double rate = 2 * (double)n / (gpt_now() - begun);
        best = rate > best ? rate : best;
    }
    gpt_free(block);
    return best;
}

/* All ranks of a machine share its processors and its memory: the row is that
 * of one rank that has them alone. */
static void measure_cpu(struct gpt_hardware *h, struct gpt_backend *be)
{
    int64_t available, total;

    be->memory(be, &available, &total);
    h->float_peak = measure_products(be, GPT_F32);
    h->narrow_peak = be->act_types >> GPT_BF16 & 1
                         ? measure_products(be, GPT_BF16)
                         : h->float_peak;
    h->bandwidth = measure_memory();
    h->memory = h->total = (double)total;
}

double gpt_device_peak(struct gpt_backend *be, enum gpt_dtype act, char *text,
                       size_t cap)
{
    char said[256];

    if (be->host_memory) {
        snprintf(text, cap, "what products of %s reach here",
                 gpt_dtype_name(act));
        return measure_products(be, act);
    }
    /* The device says its name among other words; that of a row is looked for
     * in them. A GPU without a row has no peak, rather than a wrong one. */
    be->describe(be, said, sizeof(said));
    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        if (!rows[i].device || !strstr(said, rows[i].device))
            continue;
        snprintf(text, cap, "the peak of an %s in %s", rows[i].name,
                 gpt_dtype_name(act));
        return gpt_hardware_peak(&rows[i], act);
    }
    snprintf(text, cap, "not known for this device");
    return 0;
}

/* ---- options ---- */

int gpt_hardware_choose(struct gpt_hardware *h,
                        const struct gpt_train_options *o,
                        const struct gpt_args *args, struct gpt_backend *be,
                        struct gpt_err *err)
{
    /* An option, the number that it replaces, and its unit. An option that was
     * not given leaves the row's number, also where a file says 0. */
    const struct {
        const char *option;
        double given, unit, *field;
    } given[] = {
        {"device-peak-tflops", o->device_peak, T, &h->narrow_peak},
        {"device-peak-tflops", o->device_peak, T, &h->float_peak},
        {"memory-bandwidth", o->memory_bandwidth, G, &h->bandwidth},
        {"product-efficiency", o->product_efficiency, 1, &h->efficiency},
        {"intra-node-bandwidth", o->near_bandwidth, G, &h->near_bandwidth},
        {"inter-node-bandwidth", o->far_bandwidth, G, &h->far_bandwidth},
        {"intra-node-latency", o->near_latency, US, &h->near_latency},
        {"inter-node-latency", o->far_latency, US, &h->far_latency},
    };

    /* the option table has checked the name */
    *h = rows[gpt_train_choice(gpt_hardware_names, o->hardware)];
    h->memory = h->total - CONTEXT;
    if (!h->device)
        measure_cpu(h, be);
    for (size_t i = 0; i < GPT_COUNT(given); i++)
        if (gpt_option_given(args, given[i].option))
            *given[i].field = given[i].given * given[i].unit;
    if (o->gpus_per_node > 0)
        h->per_node = o->gpus_per_node;
    if (o->memory_limit > 0)
        h->memory = (double)o->memory_limit;
    if (h->float_peak <= 0 || h->narrow_peak <= 0)
        return gpt_fail(err, GPT_EDEVICE,
                        "the speed of %s cannot be measured", h->name);
    return GPT_OK;
}
