/* Training in several layouts with equal work: the same model, the same global
 * batch, and the cores of this machine, which the ranks share. The rows compare
 * samples a second with those of a single rank on all cores, and processor time
 * of all ranks with that of one, which shows the cost of communication also on
 * a busy machine. They also give memory and bytes sent by a rank; the
 * pipeline's bubble, which is idle time by computing time of the busiest stage,
 * beside (P - 1) / (V m); and for sums of gradients, gathered weights and
 * tensor parallel traffic the share of a step that they took, and the share in
 * which a rank only waited for them. */
#include "bench.h"
#include "tests/lib/trainer.h"
#include "tests/lib/tree.h"

#include "base/num.h"

#include <sys/mman.h>

enum { T = 128, B = 2, BATCH = 8, WARMUP = 1, STEPS = 5 };

/* Results of a rank, in memory that all processes share; medians of the
 * steps. */
struct figures {
    double seconds, computing, waiting, bytes, processor;
    struct gpt_lane_times gradients, weights, tensor; /* means */
    int64_t memory;
};

struct job {
    const struct layout *layout;
    const char *prefix;
    struct figures *figures; /* by rank */
};

static struct gpt_config model(void)
{
    struct gpt_config c = {
        .num_layers = 8,
        .hidden_size = 256,
        .num_attention_heads = 8,
        .num_query_groups = 8,
        .max_positions = T,
        .vocab_size = 50, /* so that all stages have the same work */
        .init_std = 0.02,
        .norm_epsilon = 1e-5,
        .hidden_dropout = 0.1,
        .attention_dropout = 0.1,
        .tied_embeddings = true,
    };
    struct gpt_err err;

    if (gpt_config_complete(&c, 16, 4, &err) != GPT_OK)
        exit(1);
    return c;
}

static double bytes_sent(const struct gpt_world *w)
{
    int64_t total = 0, bytes;
    double waited;

    for (int i = 0; i <= GPT_N_GROUPS; i++) {
        const struct gpt_comm *c = i < GPT_N_GROUPS ? w->comm[i] : w->reduce;

        if (!c)
            continue;
        gpt_comm_counters(c, &bytes, &waited);
        total += bytes;
    }
    return (double)total;
}

static double processor_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add(struct gpt_lane_times *mean, struct gpt_lane_times t)
{
    mean->total += t.total / STEPS;
    mean->waited += t.waited / STEPS;
}

static int train(struct trainer *t, void *arg, struct gpt_err *err)
{
    const struct job *j = arg;
    struct figures *f = &j->figures[t->world->launch.rank];
    double seconds[STEPS], computing[STEPS], waiting[STEPS];
    double before = 0, spent = 0;

    for (int64_t i = 0; i < WARMUP + STEPS; i++) {
        struct gpt_step step = {.stop = false};
        const double begun = bench_now();

        GPT_TRY(trainer_step(t, i, &step, err));
        if (i < WARMUP) {
            before = bytes_sent(t->world);
            spent = processor_seconds();
            continue;
        }
        seconds[i - WARMUP] = bench_now() - begun;
        computing[i - WARMUP] = step.times.computing;
        waiting[i - WARMUP] = step.times.waiting;
        add(&f->gradients,
            (struct gpt_lane_times){step.times.reducing, step.times.exposed});
        add(&f->weights, step.times.gathering);
        add(&f->tensor, step.times.tensor);
    }
    f->seconds = bench_median(seconds, STEPS);
    f->computing = bench_median(computing, STEPS);
    f->waiting = bench_median(waiting, STEPS);
    f->processor = (processor_seconds() - spent) / STEPS;
    f->bytes = (bytes_sent(t->world) - before) / STEPS;
    return trainer_predicted(t, &f->memory, err);
}

static int be_rank(int64_t rank, void *arg)
{
    const struct job *j = arg;
    struct trainer t = {
        .layout = j->layout,
        .config = model(),
        .micro_batch = B,
        .seq_length = T,
        .batch = BATCH,
        .steps = WARMUP + STEPS,
        .prefix = j->prefix,
    };

    (void)rank;
    return trainer_run(&t, train, arg);
}

/* " gradients 1.0 % of 7.0 %": shares of this rank's step, waited and total. */
static size_t describe(char *text, size_t cap, const char *what,
                       const struct figures *f, struct gpt_lane_times t)
{
    if (t.total == 0)
        return 0;
    return (size_t)snprintf(text, cap, " %s %.1f %% of %.1f %%", what,
                            100 * t.waited / f->seconds,
                            100 * t.total / f->seconds);
}

static void print_row(const struct layout *l, const struct figures *f,
                      const struct figures *one)
{
    const int64_t size = l->tp * l->pp * l->dp;
    const int64_t m = BATCH / l->dp;
    const struct figures *busiest = f;
    double memory = 0, bytes = 0, processor = 0;
    char name[LAYOUT_NAME], bubble[48] = "-", traffic[160] = "";
    size_t at = 0;

    for (int64_t r = 0; r < size; r++) {
        memory = fmax(memory, (double)f[r].memory);
        processor += f[r].processor;
        bytes = fmax(bytes, f[r].bytes);
        if (f[r].computing > busiest->computing)
            busiest = &f[r];
    }
    layout_name(l, name);
    if (l->pp > 1)
        snprintf(bubble, sizeof(bubble), "%.3f of %.3f",
                 busiest->waiting / busiest->computing,
                 (double)(l->pp - 1) / (double)(l->chunks * m));
    at += describe(traffic + at, sizeof(traffic) - at, "gradients", busiest,
                   busiest->gradients);
    at += describe(traffic + at, sizeof(traffic) - at, "weights", busiest,
                   busiest->weights);
    describe(traffic + at, sizeof(traffic) - at, "tensor", busiest,
             busiest->tensor);
    printf("%-20s %2lld %9.2f %6.2f %6.2f %9.1f %9.2f  %-15s%s\n", name,
           (long long)size, BATCH * B / f->seconds, one->seconds / f->seconds,
           processor / one->processor, memory / 1e6, bytes / 1e6, bubble,
           traffic);
    fflush(stdout);
}

int main(void)
{
    static const struct layout layouts[] = {
        {.tp = 1, .pp = 1, .dp = 1, .chunks = 1},
        {.tp = 2, .pp = 1, .dp = 1, .chunks = 1},
        {.tp = 2, .pp = 1, .dp = 1, .chunks = 1, .overlap = true},
        {.tp = 2, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true},
        {.tp = 2,
         .pp = 1,
         .dp = 1,
         .chunks = 1,
         .sequence_parallel = true,
         .overlap = true},
        {.tp = 1, .pp = 2, .dp = 1, .chunks = 1},
        {.tp = 1, .pp = 2, .dp = 1, .chunks = 2},
        {.tp = 2, .pp = 2, .dp = 1, .chunks = 1},
        {.tp = 1, .pp = 1, .dp = 2, .chunks = 1},
        {.tp = 1, .pp = 1, .dp = 2, .chunks = 1, .zero = GPT_ZERO_1},
        {.tp = 1,
         .pp = 1,
         .dp = 2,
         .chunks = 1,
         .zero = GPT_ZERO_1,
         .overlap = true},
        {.tp = 1, .pp = 1, .dp = 2, .chunks = 1, .zero = GPT_ZERO_2},
    };
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const size_t bytes = RANKS_MAX * sizeof(struct figures);
    char dir[] = "/tmp/gpt-bench-layouts.XXXXXX", prefix[64];
    struct gpt_err err;
    struct figures one = {.seconds = 0};

    make_tree(dir);
    snprintf(prefix, sizeof(prefix), "%s/data", dir);
    if (make_dataset(prefix, &err) != GPT_OK)
        return 1;
    printf("# %d cores; %d samples of %d tokens a step, %d microbatches\n"
           "%-20s %2s %9s %6s %6s %9s %9s  %-15s %s\n",
           cores, BATCH * B, T, BATCH, "layout", "n", "samples/s", "ratio",
           "cpu", "MB a rank", "MB sent", "bubble", "waited of all traffic");
    for (size_t i = 0; i < GPT_COUNT(layouts); i++) {
        const struct layout *l = &layouts[i];
        const int64_t size = l->tp * l->pp * l->dp;
        struct figures *f = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct job j = {l, prefix, f};

        if (size > 1 && !ranks_possible)
            break;
        if (f == MAP_FAILED ||
            ranks_run(size, (int)gpt_max_i64(1, cores / size), 300, be_rank,
                      &j) != 0)
            break;
        if (i == 0)
            one = *f;
        print_row(l, f, &one);
        munmap(f, bytes);
    }
    remove_tree(dir);
    return 0;
}
