/* The cost of communication beside a device that computes: a step of two ranks
 * beside the same step of one. A host that sleeps stands for the device, so
 * that cores and memory are free for the bytes, as they are with a GPU.
 * Gradients and weights are those of a GPT with 16 layers of 3 million
 * parameters each; tensor parallel ranks sum 2 MB, twice in a layer's forward
 * and twice in its backward, in the order and with the calls of the layers
 * themselves. For each kind of traffic a row has the seconds that it took,
 * waited and hidden. */
#include "bench.h"
#include "tests/lib/ranks.h"

#include "model/layer.h"
#include "train/gather.h"
#include "train/reduce.h"

#include <sys/mman.h>

enum { LAYERS = 16, MICRO = 2, STEPS = 3, PRODUCT_US = 5000, N = 1024 };

/* Kinds of traffic. */
enum { GRADIENTS, WEIGHTS, TENSOR, KINDS };
static const char *const kinds[KINDS] = {"sums of gradients",
                                         "gathering of weights",
                                         "tensor parallel traffic"};

struct figures {
    double seconds;
    struct gpt_lane_times times[KINDS]; /* a step */
};

struct row {
    const char *name;
    int64_t tp, dp;
    enum gpt_zero zero;
    bool sequence, overlap;
};

struct job {
    const struct row *row;
    struct figures *figures; /* by rank; shared */
};

struct member {
    const struct row *row;
    struct figures *f;
    struct gpt_world *w;
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_config config;
    struct gpt_param_table table;
    struct gpt_layout layout;
    struct gpt_flat flat;
    void *weights;
    struct gpt_reducer *reducer;
    struct gpt_gatherer *gatherer;
    struct gpt_lane *lane;
    struct gpt_pass pass;
};

/* ---- a step ---- */

static void product(void)
{
    usleep(PRODUCT_US);
}

/* A layer is twice a pair of products: the first one's input comes from all
 * ranks, the second one's output is their sum. */
static void forward(struct member *m)
{
    const struct gpt_weight_hook h = gpt_gatherer_hook(m->gatherer);
    const struct gpt_pass *pass = &m->pass;
    void *x = pass->work.x;

    for (int64_t b = 0; b < m->flat.n_buckets; b++) {
        if (h.before)
            h.before(h.context, b);
        for (int i = 0; i < 2 && m->flat.buckets[b].layer >= 0; i++) {
            gpt_pass_gather(pass, x);
            product();
            product();
            gpt_pass_sum(pass, gpt_pass_part(pass, x), x);
        }
    }
}

/* Of a pair, the second one first: see layer.c. */
static void backward_pair(const struct gpt_pass *pass)
{
    void *x = pass->work.x, *dy = pass->work.dy;
    int64_t job;

    job = gpt_pass_begin_gather(pass, x);
    gpt_pass_join(pass, job);
    product();
    product();
    job = gpt_pass_begin_gather(pass, x);
    product(); /* of the input's gradient */
    gpt_pass_join(pass, job);
    job = gpt_pass_begin_sum(pass, gpt_pass_part(pass, dy), dy);
    product(); /* of the weights' */
    gpt_pass_join(pass, job);
}

static void backward(struct member *m)
{
    const struct gpt_gradient_hooks h = gpt_reducer_hooks(m->reducer);

    for (int64_t b = m->flat.n_buckets - 1; b >= 0; b--) {
        if (h.before)
            h.before(h.context, b);
        for (int i = 0; i < 2 && m->flat.buckets[b].layer >= 0; i++)
            backward_pair(&m->pass);
        if (h.after)
            h.after(h.context, b);
    }
}

static int step(struct member *m, struct gpt_err *err)
{
    gpt_reducer_begin(m->reducer);
    for (int k = 0; k < MICRO; k++) {
        gpt_reducer_begin_backward(m->reducer, k == MICRO - 1);
        forward(m);
        backward(m);
    }
    return gpt_reducer_finish(m->reducer, err);
}

/* Of the tensor parallel ranks so far. */
static struct gpt_lane_times tensor_times(const struct member *m)
{
    const struct gpt_lane_times lane = gpt_lane_times(m->lane);
    struct gpt_lane_times t = {0};
    int64_t bytes;

    if (m->pass.tp)
        gpt_comm_counters(m->pass.tp, &bytes, &t.total);
    t.waited = t.total - (lane.total - lane.waited);
    return t;
}

static void add(struct gpt_lane_times *sum, struct gpt_lane_times t)
{
    sum->total += t.total / STEPS;
    sum->waited += t.waited / STEPS;
}

static int steps(struct member *m, struct gpt_err *err)
{
    struct gpt_lane_times before = {0}, now;
    double seconds[STEPS];

    gpt_gatherer_begin(m->gatherer); /* memory is touched, and */
    gpt_gatherer_wait(m->gatherer);
    for (int i = -1; i < STEPS; i++) { /* the first one is to warm up */
        const double begun = bench_now();

        GPT_TRY(step(m, err));
        now = tensor_times(m);
        if (i >= 0) {
            struct gpt_lane_times reduce;

            gpt_reducer_times(m->reducer, &reduce.waited, &reduce.total);
            add(&m->f->times[GRADIENTS], reduce);
            add(&m->f->times[WEIGHTS], gpt_gatherer_times(m->gatherer));
            add(&m->f->times[TENSOR],
                (struct gpt_lane_times){now.total - before.total,
                                        now.waited - before.waited});
        }
        gpt_gatherer_begin(m->gatherer);
        if (i >= 0)
            seconds[i] = bench_now() - begun;
        before = now;
    }
    m->f->seconds = bench_median(seconds, STEPS);
    return GPT_OK;
}

/* ---- a rank ---- */

static int open_model(struct member *m, struct gpt_err *err)
{
    struct gpt_config *c = &m->config;

    *c = gpt_config_default();
    c->num_layers = LAYERS;
    c->hidden_size = 512;
    c->num_attention_heads = 8;
    c->vocab_size = 4096;
    c->head_size = c->ffn_hidden_size = c->num_query_groups = 0;
    GPT_TRY(gpt_config_complete(c, 128, m->row->tp, err));
    GPT_TRY(gpt_params_build(&m->table, c, err));
    GPT_TRY(gpt_layout_init(&m->layout, c, &m->w->topology, 0, 0, err));
    if (m->row->zero != GPT_ZERO_OFF) {
        m->layout.shards = m->row->dp;
        m->layout.shard = m->w->topology.at[GPT_DP];
    }
    return gpt_flat_build(&m->flat, &m->table, &m->layout, err);
}

static int open_data(struct member *m, struct gpt_err *err)
{
    const struct gpt_reducer_options reducer = {
        .flat = &m->flat, .zero = m->row->zero, .world = m->w, .q = m->q};
    struct gpt_gatherer_options gatherer = {
        .flat = &m->flat,
        .act = GPT_F32,
        .comm = m->w->comm[GPT_GROUP_DP],
        .q = m->q,
        .overlap = m->row->overlap,
    };

    GPT_TRY(m->be->alloc(m->be, (size_t)m->flat.elements * sizeof(float),
                         "weights", &m->weights, err));
    gatherer.weights = m->weights;
    GPT_TRY(gpt_gatherer_open(&m->gatherer, m->be, &gatherer, err));
    return gpt_reducer_open(&m->reducer, m->be, &reducer, err);
}

static int open_tensor(struct member *m, struct gpt_err *err)
{
    struct gpt_layer_work *work = &m->pass.work;
    void **const blocks[] = {&work->x, &work->dy, &work->all, &work->part};

    m->pass = (struct gpt_pass){
        .be = m->be,
        .q = m->q,
        .config = &m->config,
        .layout = &m->layout,
        .widths = gpt_widths_of(&m->config, m->row->tp),
        .act = GPT_F32,
        .n = N,
        .rows = m->row->sequence ? N / m->row->tp : N,
        .tp = m->w->comm[GPT_GROUP_TP],
        .sequence = m->row->sequence,
    };
    for (size_t i = 0; i < GPT_COUNT(blocks); i++)
        GPT_TRY(m->be->alloc(m->be,
                             (size_t)(N * m->config.hidden_size) *
                                 sizeof(float),
                             "activations", blocks[i], err));
    if (!m->pass.tp || !m->row->overlap)
        return GPT_OK;
    GPT_TRY(gpt_lane_open(&m->lane, m->be, m->pass.tp, 1, err));
    m->pass.lane = m->lane;
    return GPT_OK;
}

static int open_all(struct member *m, struct gpt_err *err)
{
    GPT_TRY(gpt_backend_cpu(&m->be, err));
    GPT_TRY(m->be->queue_open(m->be, &m->q, err));
    GPT_TRY(gpt_world_connect(m->w, m->be, err));
    GPT_TRY(open_model(m, err));
    GPT_TRY(open_data(m, err));
    return open_tensor(m, err);
}

/* The process ends soon: memory is left to it. */
static int be_rank(int64_t rank, void *arg)
{
    const struct job *j = arg;
    const struct gpt_world_options o = {
        .size = {[GPT_TP] = j->row->tp, [GPT_PP] = 1},
        .chunks = 1,
        .timeout = 30,
        .timeout_later = 30,
    };
    struct member m = {.row = j->row, .f = &j->figures[rank]};
    struct gpt_err err = {0};

    int status = gpt_world_open(&m.w, &o, &err);
    if (status == GPT_OK)
        status = open_all(&m, &err);
    if (status == GPT_OK)
        status = steps(&m, &err);
    gpt_lane_close(m.lane);
    gpt_gatherer_close(m.gatherer);
    gpt_reducer_close(m.reducer);
    status = gpt_world_end(m.w, status, &err);
    gpt_world_close(m.w);
    if (status != GPT_OK)
        fprintf(stderr, "rank %lld: %s\n", (long long)rank, err.text);
    return status;
}

int main(void)
{
    static const struct row rows[] = {
        {"step beside a device, one rank", 1, 1, GPT_ZERO_OFF, false, false},
        {"step beside a device, DP 2", 1, 2, GPT_ZERO_OFF, false, false},
        {"step beside a device, DP 2 ZeRO-1", 1, 2, GPT_ZERO_1, false, false},
        {"step beside a device, DP 2 ZeRO-1, weights overlapped", 1, 2,
         GPT_ZERO_1, false, true},
        {"step beside a device, DP 2 ZeRO-2, weights overlapped", 1, 2,
         GPT_ZERO_2, false, true},
        {"step beside a device, TP 2", 2, 1, GPT_ZERO_OFF, false, false},
        {"step beside a device, TP 2, overlapped", 2, 1, GPT_ZERO_OFF, false,
         true},
        {"step beside a device, TP 2 SP", 2, 1, GPT_ZERO_OFF, true, false},
        {"step beside a device, TP 2 SP, overlapped", 2, 1, GPT_ZERO_OFF, true,
         true},
    };
    struct figures *f = mmap(NULL, 2 * sizeof(*f), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double one = 0;

    for (size_t i = 0; i < GPT_COUNT(rows) && f != MAP_FAILED; i++) {
        const struct row *r = &rows[i];
        struct job j = {r, f};

        if (r->tp * r->dp > 1 && !ranks_possible)
            break;
        memset(f, 0, 2 * sizeof(*f));
        if (ranks_run(r->tp * r->dp, 1, 120, be_rank, &j) != 0)
            return 1;
        if (i == 0)
            one = f->seconds;
        bench_row(r->name, f->seconds, "s", one, -1);
        for (int k = 0; k < KINDS; k++) {
            const struct gpt_lane_times t = f->times[k];

            if (t.total > 0)
                printf("#   %s: %.3f s, waited %.3f s (%.1f %% of a step), "
                       "hidden %.3f s\n", kinds[k], t.total, t.waited,
                       100 * t.waited / f->seconds, t.total - t.waited);
        }
        fflush(stdout);
    }
    return 0;
}
