/* What data parallel sums cost beside a device that computes: a step of two
 * ranks against the same step of one. The device is a host that sleeps, so that
 * cores and memory are free for the sums, as they are beside a GPU; gradients
 * are those of a GPT with 16 layers of 3 million parameters each. */
#include "bench.h"
#include "tests/lib/ranks.h"

#include "base/num.h"
#include "train/reduce.h"

#include <sys/mman.h>

enum { LAYERS = 16, MICRO = 2, STEPS = 3, FORWARD_US = 20000 };

struct figures {
    double seconds, exposed, total;
};

struct job {
    int64_t dp;
    enum gpt_zero zero;
    struct figures *figures; /* by rank; shared */
};

struct member {
    const struct job *job;
    struct gpt_world *w;
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_param_table table;
    struct gpt_flat flat;
    struct gpt_reducer *reducer;
};

/* Forward and backward of a microbatch, twice as long; what is outside the
 * layers takes no time. */
static void microbatch(struct member *m, bool last)
{
    const struct gpt_gradient_hooks h = gpt_reducer_hooks(m->reducer);

    gpt_reducer_last(m->reducer, last);
    usleep(LAYERS * FORWARD_US);
    for (int64_t b = m->flat.n_buckets - 1; b >= 0; b--) {
        if (h.before)
            h.before(h.context, b);
        if (m->flat.buckets[b].layer >= 0)
            usleep(2 * FORWARD_US);
        if (h.after)
            h.after(h.context, b);
    }
}

static int steps(struct member *m, struct gpt_err *err)
{
    struct figures *f = &m->job->figures[m->w->launch.rank];
    double seconds[STEPS], exposed, total;

    for (int i = -1; i < STEPS; i++) { /* the first one is to warm up */
        const double begun = bench_now();
        gpt_reducer_begin(m->reducer);
        for (int k = 0; k < MICRO; k++)
            microbatch(m, k == MICRO - 1);
        GPT_TRY(gpt_reducer_finish(m->reducer, err));
        gpt_reducer_times(m->reducer, &exposed, &total);
        if (i < 0)
            continue;
        seconds[i] = bench_now() - begun;
        f->exposed += exposed / STEPS;
        f->total += total / STEPS;
    }
    f->seconds = bench_median(seconds, STEPS);
    return GPT_OK;
}

static int open_all(struct member *m, struct gpt_err *err)
{
    struct gpt_config c = gpt_config_default();
    struct gpt_layout layout;

    c.num_layers = LAYERS;
    c.hidden_size = 512;
    c.num_attention_heads = 8;
    c.vocab_size = 4096;
    c.head_size = c.ffn_hidden_size = c.num_query_groups = 0;
    GPT_TRY(gpt_config_complete(&c, 128, 1, err));
    GPT_TRY(gpt_backend_cpu(&m->be, err));
    GPT_TRY(m->be->queue_open(m->be, &m->q, err));
    GPT_TRY(gpt_world_connect(m->w, m->be, err));
    GPT_TRY(gpt_params_build(&m->table, &c, err));
    GPT_TRY(gpt_layout_init(&layout, &c, &m->w->topology, 0, 0, err));
    if (m->job->zero != GPT_ZERO_OFF) {
        layout.shards = m->job->dp;
        layout.shard = m->w->topology.dp_rank;
    }
    GPT_TRY(gpt_flat_build(&m->flat, &m->table, &layout, err));
    const struct gpt_reducer_options o = {
        .flat = &m->flat, .zero = m->job->zero, .world = m->w, .q = m->q};
    return gpt_reducer_open(&m->reducer, m->be, &o, err);
}

static int be_rank(int64_t rank, void *arg)
{
    const struct gpt_world_options o = {.tp_size = 1,
                                        .pp_size = 1,
                                        .chunks = 1,
                                        .timeout = 30,
                                        .timeout_later = 30};
    struct member m = {.job = arg};
    struct gpt_err err = {0};

    int status = gpt_world_open(&m.w, &o, &err);
    if (status == GPT_OK)
        status = open_all(&m, &err);
    if (status == GPT_OK)
        status = steps(&m, &err);
    gpt_reducer_close(m.reducer);
    status = gpt_world_end(m.w, status, &err);
    gpt_world_close(m.w);
    gpt_flat_free(&m.flat);
    gpt_params_free(&m.table);
    if (status != GPT_OK)
        fprintf(stderr, "rank %lld: %s\n", (long long)rank, err.text);
    return status;
}

int main(void)
{
    static const struct {
        const char *name;
        int64_t dp;
        enum gpt_zero zero;
    } rows[] = {
        {"step beside a device, one rank", 1, GPT_ZERO_OFF},
        {"step beside a device, DP 2", 2, GPT_ZERO_OFF},
        {"step beside a device, DP 2 ZeRO-1", 2, GPT_ZERO_1},
        {"step beside a device, DP 2 ZeRO-2", 2, GPT_ZERO_2},
    };
    struct figures *f = mmap(NULL, 2 * sizeof *f, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double one = 0;

    for (size_t i = 0; i < GPT_COUNT(rows) && f != MAP_FAILED; i++) {
        struct job j = {rows[i].dp, rows[i].zero, f};
        if (rows[i].dp > 1 && !ranks_possible)
            break;
        memset(f, 0, 2 * sizeof *f);
        if (ranks_run(rows[i].dp, 1, 120, be_rank, &j) != 0)
            return 1;
        if (i == 0)
            one = f->seconds;
        bench_row(rows[i].name, f->seconds, "s", one, -1);
        if (rows[i].dp > 1)
            printf("#   sums took %.3f s, of which %.3f s (%.1f %% of a step) "
                   "were waited for\n", f->total, f->exposed,
                   100 * f->exposed / f->seconds);
    }
    return 0;
}
