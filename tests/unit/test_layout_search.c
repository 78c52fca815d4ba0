/* The advice against every layout that there is: on twenty configurations its
 * best is within a tenth of the best of all, found by trying all of them, also
 * those that its rules of thumb leave out. And the model of time: bounds are
 * bounds, and long steps go on as they begin. */
#include "cmd/train/layouts.h"

#include "base/memory.h"
#include "cmd/train/estimate.h"
#include "cmd/train/simulate.h"
#include "tests/lib/tap.h"

static struct gpt_err err;
static struct gpt_arena arena;
static struct gpt_backend *be;

/* A model, ranks, and what they are. */
struct config {
    const char *layers, *hidden, *heads, *length, *batch;
    const char *hardware, *near, *far, *per_node;
    int64_t ranks;
    double memory; /* GB */
};

static const struct config configs[] = {
    {"12", "768", "12", "1024", "64", "a100", "300", "25", "8", 8, 80},
    {"24", "1024", "16", "1024", "64", "a100", "300", "25", "8", 8, 16},
    {"24", "1024", "16", "1024", "64", "a100", "300", "25", "8", 16, 10},
    {"36", "1280", "20", "1024", "48", "a100", "300", "25", "8", 16, 24},
    {"48", "1600", "25", "1024", "64", "a100", "300", "25", "8", 16, 40},
    {"48", "1600", "25", "1024", "64", "h100", "450", "50", "8", 32, 16},
    {"32", "4096", "32", "4096", "32", "h100", "450", "50", "8", 32, 80},
    {"32", "4096", "32", "4096", "64", "h100", "450", "50", "8", 64, 40},
    {"32", "4096", "32", "2048", "32", "h100", "450", "5", "4", 16, 80},
    {"24", "2304", "24", "2048", "64", "a100", "300", "25", "8", 32, 40},
    {"30", "3072", "32", "2048", "64", "a100", "300", "25", "8", 32, 40},
    {"36", "4096", "32", "2048", "64", "a100", "300", "25", "8", 64, 40},
    {"40", "6144", "48", "2048", "64", "a100", "300", "25", "8", 64, 80},
    {"12", "768", "12", "1024", "16", "rtx4090", "20", "3", "4", 8, 24},
    {"24", "1024", "16", "1024", "32", "rtx4090", "20", "1", "2", 8, 12},
    {"24", "2048", "16", "1024", "32", "rtx4090", "10", "1", "8", 8, 24},
    {"16", "1024", "16", "512", "24", "v100", "150", "3", "4", 12, 16},
    {"12", "5120", "40", "1024", "36", "v100", "150", "12", "6", 12, 32},
    {"40", "5120", "40", "2048", "40", "h200", "450", "50", "8", 40, 141},
    {"64", "8192", "64", "2048", "64", "b200", "900", "50", "8", 64, 60},
};

static void open_search(struct gpt_layout_search *s, const struct config *c,
                        struct gpt_train_options *o, struct gpt_args *args,
                        struct gpt_hardware *h)
{
    static struct gpt_program program = {
        .name = "gpt-train",
        .options = gpt_train_option_table,
        .options_bytes = sizeof(struct gpt_train_options),
    };
    static char words[32][64];
    char *argv[32];
    const char *const given[] = {
        "gpt-train", "--num-layers", c->layers, "--hidden-size", c->hidden,
        "--num-attention-heads", c->heads, "--seq-length", c->length,
        "--global-batch-size", c->batch, "--hardware", c->hardware,
        "--intra-node-bandwidth", c->near, "--inter-node-bandwidth", c->far,
        "--gpus-per-node", c->per_node, "--vocab-size", "50257", "--bf16",
        "--distributed-backend", "nccl",
    };

    for (size_t i = 0; i < GPT_COUNT(given); i++) {
        snprintf(words[i], sizeof(words[i]), "%s", given[i]);
        argv[i] = words[i];
    }
    program.n_options = gpt_train_n_options;
    if (gpt_options_parse(&program, (int)GPT_COUNT(given), argv, o, args,
                          &arena, &err) != GPT_OK ||
        gpt_hardware_choose(h, o, args, be, &err) != GPT_OK) {
        printf("# %s\n", err.text);
        exit(1);
    }
    h->memory = 1e9 * c->memory;
    *s = (struct gpt_layout_search){
        .base = o,
        .args = args,
        .be = be,
        .hardware = h,
        .ranks = c->ranks,
        .batch = o->global_batch_size,
    };
    for (int i = 0; i < GPT_N_PARTS; i++)
        s->part[i] = -1;
}

/* What trying all has found. */
struct all {
    double best; /* seconds */
    int64_t part[GPT_N_PARTS];
    int64_t plans, timed, wrong_floors;
};

/* Memory of every stage, of those layouts that would be the best. */
static void try_layout(const struct gpt_layout_search *s, const int64_t *part,
                       struct all *all)
{
    struct gpt_train_options options;
    struct gpt_train_plan plan;
    struct gpt_layout_time t;
    struct gpt_memory memory;
    int64_t parameters = 0, n;
    double most;

    if (gpt_layout_plan(s, part, &options, &plan) != GPT_OK)
        return;
    all->plans++;
    const double floor = gpt_layout_floor(&plan, s->hardware);
    if (floor >= all->best)
        return;
    const int64_t stages = plan.topology.size[GPT_PP];
    for (int64_t p = 0; p < stages; p += stages > 1 ? stages - 1 : 1) {
        if (gpt_estimate_memory(&plan, be, p, &memory, &n, &err) != GPT_OK)
            return;
        parameters = n > parameters ? n : parameters;
    }
    if (gpt_layout_time(&plan, s->hardware, parameters, &t, &err) != GPT_OK)
        return;
    all->timed++;
    all->wrong_floors += t.step < floor;
    if (t.step >= all->best ||
        gpt_estimate_largest(&plan, be, &most, &err) != GPT_OK ||
        most > s->hardware->memory)
        return;
    all->best = t.step;
    memcpy(all->part, part, sizeof(all->part));
}

/* Kinds of a cut: every micro batch, sharing, recomputation, with and without
 * sequence parallelism. */
static void try_kinds(const struct gpt_layout_search *s, int64_t *part,
                      struct all *all)
{
    const int64_t samples =
        s->batch /
        (s->ranks / (part[GPT_PART_TENSOR] * part[GPT_PART_PIPELINE]));

    for (int64_t b = 1; b <= samples; b++) {
        if (samples % b != 0)
            continue;
        part[GPT_PART_MICRO] = b;
        for (int64_t k = 0; k < 18; k++) {
            part[GPT_PART_SHARDING] = k % 3;
            part[GPT_PART_RECOMPUTE] = k / 3 % 3;
            part[GPT_PART_SEQUENCE] = k / 9;
            try_layout(s, part, all);
        }
    }
}

static void try_all(const struct gpt_layout_search *s, struct all *all)
{
    int64_t part[GPT_N_PARTS];
    const int64_t layers = s->base->model.num_layers;

    for (int64_t tp = 1; tp <= s->ranks; tp++)
        for (int64_t pp = 1; pp <= layers; pp++)
            for (int64_t v = 1; v * pp <= layers; v++) {
                if (s->ranks % (tp * pp) != 0 || layers % (pp * v) != 0)
                    continue;
                part[GPT_PART_TENSOR] = tp;
                part[GPT_PART_PIPELINE] = pp;
                part[GPT_PART_CHUNKS] = v;
                try_kinds(s, part, all);
            }
}

static void test_search(void)
{
    int64_t wrong = 0;

    for (size_t i = 0; i < GPT_COUNT(configs); i++) {
        const struct config *c = &configs[i];
        struct all all = {.best = 1e300};
        struct gpt_layout_choice best, least;
        struct gpt_layout_search s;
        struct gpt_train_options o;
        struct gpt_hardware h;
        struct gpt_args args;
        size_t n;

        open_search(&s, c, &o, &args, &h);
        try_all(&s, &all);
        wrong += all.wrong_floors;
        is_int(gpt_layouts_find(&s, &best, 1, &n, &least, &err), GPT_OK,
               "%s layers of %s on %lld %s: searched", c->layers, c->hidden,
               (long long)c->ranks, c->hardware);
        if (all.best > 1e299) {
            is_int((int64_t)n, 0, "nothing fits, as trying all finds");
            continue;
        }
        ok(n == 1 && best.time.step <= 1.1 * all.best,
           "%.4g s, of %lld layouts the best takes %.4g s (TP %lld PP %lld V "
           "%lld b %lld share %lld again %lld seq %lld)",
           n ? best.time.step : 0, (long long)all.plans, all.best,
           (long long)all.part[0], (long long)all.part[1],
           (long long)all.part[2], (long long)all.part[3],
           (long long)all.part[4], (long long)all.part[5],
           (long long)all.part[6]);
        ok(n == 1 && best.memory <= h.memory, "which fits");
    }
    is_int(wrong, 0, "no step is below its bound");
}

/* A step of m microbatches is played whole or in part. */
static void test_long_steps(void)
{
    static const int64_t parts[][3] = {{1, 4, 1}, {1, 4, 2}, {2, 2, 3}};

    for (size_t i = 0; i < GPT_COUNT(parts); i++) {
        const struct gpt_simulate_options times = {
            .forward = 1,
            .backward = 2.25,
            .transfer = 0.125,
            .end_forward = 0.5,
            .end_backward = 1,
        };
        int64_t part[GPT_N_PARTS] = {parts[i][0], parts[i][1], parts[i][2],
                                     1, 0, 0, 0};
        struct gpt_layout_search s;
        struct gpt_train_options o, own;
        struct gpt_train_plan plan;
        struct gpt_hardware h;
        struct gpt_args args;
        double before, at, after;

        open_search(&s, &configs[1], &o, &args, &h);
        if (gpt_layout_plan(&s, part, &own, &plan) != GPT_OK)
            continue;
        const int64_t stages = part[GPT_PART_PIPELINE];
        plan.replica.micro_batches = 8 * stages;
        is_int(gpt_simulate_step(&plan, &times, &before, &err), GPT_OK, "8 P");
        plan.replica.micro_batches = 9 * stages;
        is_int(gpt_simulate_step(&plan, &times, &at, &err), GPT_OK, "9 P");
        plan.replica.micro_batches = 10 * stages;
        is_int(gpt_simulate_step(&plan, &times, &after, &err), GPT_OK, "10 P");
        ok(after - at > 0.9999 * (at - before) &&
               after - at < 1.0001 * (at - before),
           "PP %lld V %lld: what is not played takes as long: %g, %g, %g",
           (long long)stages, (long long)part[GPT_PART_CHUNKS], before, at,
           after);
    }
}

int main(void)
{
    if (gpt_backend_cpu(&be, &err) != GPT_OK)
        return 1;
    test_search();
    test_long_steps();
    gpt_arena_free(&arena);
    return tap_done();
}
