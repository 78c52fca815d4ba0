/* The reduction of gradients without a model: the test calls hooks as backward
 * does, and every gradient must be the sum that its parameter needs: over data
 * parallel ranks, over tensor parallel ranks and over both copies of the word
 * table. Values are small whole numbers, so sums are exact. */
#include "../lib/ranks.h"
#include "../lib/tap.h"

#include "train/reduce.h"

enum { LAYERS = 5, MICRO = 3, STEPS = 3 };

struct job {
    const char *name;
    int64_t tp, pp, dp;
    enum gpt_zero zero;
    bool sequence_parallel;
};

struct member {
    const struct job *job;
    struct gpt_world *w;
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_config config;
    struct gpt_param_table table;
    struct gpt_layout layout;
    struct gpt_flat flat;
    struct gpt_reducer *reducer;
};

static float value(int64_t rank, int64_t mb, const struct gpt_slice *s,
                   int64_t k)
{
    const struct gpt_param *p = s->param;

    return (float)((rank * 7 + mb * 3 + k + p->layer * 5 + (int64_t)p->role) %
                   13);
}

/* ---- what a backward writes ---- */

/* Adds microbatch mb's gradients to a bucket, or writes them over it. */
static void write_bucket(struct member *m, int64_t b, int64_t mb, bool over)
{
    float *grad = gpt_reducer_buckets(m->reducer)[b];
    const struct gpt_bucket *bucket = &m->flat.buckets[b];

    if (over)
        memset(grad, 0, (size_t)(bucket->end - bucket->begin) * sizeof(*grad));
    for (int64_t i = 0; i < m->flat.n; i++) {
        const struct gpt_slice *s = &m->flat.slices[i];

        if (s->bucket != b)
            continue;
        for (int64_t k = 0; k < s->count; k++)
            grad[s->offset - bucket->begin + k] +=
                value(m->w->launch.rank, mb, s, k);
    }
}

static void backward(struct member *m, int64_t mb)
{
    const struct gpt_gradient_hooks h = gpt_reducer_hooks(m->reducer);
    const bool fresh = m->job->zero == GPT_ZERO_2 && m->job->dp > 1;

    gpt_reducer_begin_backward(m->reducer, mb == MICRO - 1);
    for (int64_t b = m->flat.n_buckets - 1; b >= 0; b--) {
        if (h.before)
            h.before(h.context, b);
        write_bucket(m, b, mb,
                     mb == 0 || (fresh && m->flat.buckets[b].layer >= 0));
        if (h.after)
            h.after(h.context, b);
    }
}

/* ---- what it must become ---- */

/* Which ranks' gradients a parameter's sum takes in: those of the same place
 * in all coordinates that it is not summed over. */
static bool takes_in(const struct member *m, const struct gpt_slice *s,
                     const struct gpt_topology *other)
{
    const struct gpt_topology *t = &m->w->topology;
    const bool ends =
        other->at[GPT_PP] == 0 || other->at[GPT_PP] == t->size[GPT_PP] - 1;
    const bool tp = m->job->sequence_parallel && s->param->sequence_sum;

    return (tp || other->at[GPT_TP] == t->at[GPT_TP]) &&
           (s->param->tied ? ends : other->at[GPT_PP] == t->at[GPT_PP]);
}

static float wanted(const struct member *m, const struct gpt_slice *s,
                    int64_t k)
{
    const struct gpt_topology *t = &m->w->topology;
    struct gpt_topology other;
    struct gpt_err err;
    float sum = 0;

    for (int64_t r = 0; r < t->world_size; r++) {
        if (gpt_topology_init(&other, t->world_size, r, t->size, 1, &err) !=
            GPT_OK)
            exit(1);
        for (int64_t mb = 0; takes_in(m, s, &other) && mb < MICRO; mb++)
            sum += value(r, mb, s, k);
    }
    return sum;
}

/* Compares this rank's shards; returns how many elements were compared, or -1
 * when one is wrong. */
static int64_t compare(const struct member *m)
{
    int64_t compared = 0, begin, end;

    for (int64_t i = 0; i < m->flat.n; i++) {
        const struct gpt_slice *s = &m->flat.slices[i];

        gpt_bucket_shard(&m->flat, s->bucket, m->flat.shard, &begin, &end);
        const float *shard = gpt_reducer_shards(m->reducer)[s->bucket];
        for (int64_t k = 0; k < s->count; k++) {
            const int64_t at = s->offset + k;

            if (at < begin || at >= end)
                continue;
            if (shard[at - begin] != wanted(m, s, k)) {
                printf("# rank %lld: %s[%lld]: got %g, want %g\n",
                       (long long)m->w->launch.rank, s->param->name,
                       (long long)k, (double)shard[at - begin],
                       (double)wanted(m, s, k));
                return -1;
            }
            compared++;
        }
    }
    return compared;
}

/* ---- a rank ---- */

static int open_flat(struct member *m, struct gpt_err *err)
{
    const int64_t layers = m->job->pp > 1 ? m->job->pp : LAYERS;

    m->config = (struct gpt_config){
        .num_layers = layers,
        .hidden_size = 24,
        .num_attention_heads = 2,
        .num_query_groups = 2,
        .max_positions = 5,
        .vocab_size = 30,
        .tied_embeddings = true,
        .norm_epsilon = 1e-5,
        .init_std = 0.02,
    };
    GPT_TRY(gpt_config_complete(&m->config, 8, m->job->tp, err));
    GPT_TRY(gpt_params_build(&m->table, &m->config, err));
    GPT_TRY(gpt_layout_init(&m->layout, &m->config, &m->w->topology, 0, 0,
                            err));
    if (m->job->zero != GPT_ZERO_OFF) {
        m->layout.shards = m->job->dp;
        m->layout.shard = m->w->topology.at[GPT_DP];
    }
    return gpt_flat_build(&m->flat, &m->table, &m->layout, err);
}

static int reduce(struct member *m, struct gpt_err *err)
{
    double exposed, total;

    for (int64_t step = 0; step < STEPS; step++) {
        gpt_reducer_begin(m->reducer);
        for (int64_t mb = 0; mb < MICRO; mb++)
            backward(m, mb);
        GPT_TRY(gpt_reducer_finish(m->reducer, err));
        int64_t compared = compare(m);
        if (compared < m->flat.count / m->flat.shards / 2)
            return gpt_fail(err, GPT_EFAIL, "step %lld: %lld elements right",
                            (long long)step, (long long)compared);
    }
    gpt_reducer_times(m->reducer, &exposed, &total);
    if ((total > 0) != (m->job->dp > 1) || exposed < 0)
        return gpt_fail(err, GPT_EFAIL, "times %g, %g", exposed, total);
    return GPT_OK;
}

static int with_reducer(struct member *m, struct gpt_err *err)
{
    GPT_TRY(gpt_backend_cpu(&m->be, err));
    GPT_TRY(m->be->queue_open(m->be, &m->q, err));
    GPT_TRY(gpt_world_connect(m->w, m->be, err));
    GPT_TRY(open_flat(m, err));
    const struct gpt_reducer_options o = {
        .flat = &m->flat,
        .zero = m->job->zero,
        .sequence_parallel = m->job->sequence_parallel,
        .world = m->w,
        .q = m->q,
    };
    GPT_TRY(gpt_reducer_open(&m->reducer, m->be, &o, err));
    return reduce(m, err);
}

static int be_rank(int64_t rank, void *arg)
{
    struct member m = {.job = arg};
    const struct gpt_world_options o = {
        .size = {[GPT_TP] = m.job->tp, [GPT_PP] = m.job->pp},
        .chunks = 1,
        .timeout = 100,
        .timeout_later = 100,
    };
    struct gpt_err err = {0};

    int status = gpt_world_open(&m.w, &o, &err);
    if (status == GPT_OK)
        status = with_reducer(&m, &err);
    gpt_reducer_close(m.reducer);
    status = gpt_world_end(m.w, status, &err);
    gpt_world_close(m.w);
    if (status != GPT_OK)
        printf("# rank %lld: %s\n", (long long)rank, err.text);
    gpt_flat_free(&m.flat);
    gpt_params_free(&m.table);
    if (m.q)
        m.be->queue_close(m.q);
    return status;
}

/* ---- memory ---- */

/* ZeRO-2 keeps a share of the layers and two of them. */
static void test_memory(void)
{
    const int64_t size[GPT_N_DIMS] = {[GPT_TP] = 1, [GPT_PP] = 1};
    struct gpt_topology t;
    struct gpt_err err;
    struct job job = {"", 1, 1, 4, GPT_ZERO_2, false};
    struct gpt_world w = {.store = NULL};
    struct member m = {.job = &job, .w = &w};

    if (gpt_topology_init(&t, 4, 0, size, 1, &err) != GPT_OK)
        exit(1);
    w.topology = t;
    if (open_flat(&m, &err) != GPT_OK)
        exit(1);
    struct gpt_reducer_options o = {.flat = &m.flat, .zero = GPT_ZERO_1};
    const struct gpt_bucket *layer = &m.flat.buckets[1];
    const int64_t one = layer->end - layer->begin;
    const int64_t saved = (LAYERS - 2) * one - LAYERS * one / 4;
    is_int(gpt_reducer_memory(&o), m.flat.elements * 4, "ZeRO-1: all");
    ok(!gpt_reducer_overwrites(&o), "whose gradients are added to");
    o.zero = GPT_ZERO_2;
    is_int(gpt_reducer_memory(&o), (m.flat.elements - saved) * 4,
           "ZeRO-2: two layers, and the shards of all");
    ok(gpt_reducer_overwrites(&o), "whose gradients are overwritten");
    gpt_flat_free(&m.flat);
    gpt_params_free(&m.table);
}

int main(void)
{
    static struct job jobs[] = {
        {"alone", 1, 1, 1, GPT_ZERO_OFF, false},
        {"alone, ZeRO-2", 1, 1, 1, GPT_ZERO_2, false},
        {"DP 2", 1, 1, 2, GPT_ZERO_OFF, false},
        {"DP 3 ZeRO-1", 1, 1, 3, GPT_ZERO_1, false},
        {"DP 3 ZeRO-2", 1, 1, 3, GPT_ZERO_2, false},
        {"TP 2 SP", 2, 1, 1, GPT_ZERO_OFF, true},
        {"TP 2 SP DP 2", 2, 1, 2, GPT_ZERO_OFF, true},
        {"TP 2 SP DP 2 ZeRO-2", 2, 1, 2, GPT_ZERO_2, true},
        {"PP 3", 1, 3, 1, GPT_ZERO_OFF, false},
        {"PP 2 DP 2 ZeRO-1", 1, 2, 2, GPT_ZERO_1, false},
        {"TP 2 SP PP 2 DP 2 ZeRO-2", 2, 2, 2, GPT_ZERO_2, true},
    };

    for (size_t i = 0; i < GPT_COUNT(jobs); i++) {
        const int64_t size = jobs[i].tp * jobs[i].pp * jobs[i].dp;

        if (ranks_possible || size == 1)
            is_int(ranks_run(size, 1, 300, be_rank, &jobs[i]), 0, "%s",
                   jobs[i].name);
        else
            skip("%s: built without Gloo", jobs[i].name);
    }
    test_memory();
    return tap_done();
}
