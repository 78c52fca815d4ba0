/* A model spread over ranks, chunks and recomputation against the same model
 * on one rank that keeps everything. Ranks are processes over Gloo, each of
 * which also computes the single rank's answer. Start at main(). */
#include "model/stage.h"

#include "tests/lib/tap.h"

#include "base/memory.h"
#include "base/num.h"
#include "parallel/store.h"

#include <omp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 4, VOCABULARY = 35, MICROBATCHES = 3, MOST_ROWS = 64 };

static struct gpt_backend *be;
static const char *const recompute_names[] = {"none", "selective", "uniform",
                                              "block"};

static void must(int status, const struct gpt_err *err)
{
    if (status == GPT_OK)
        return;
    printf("Bail out! %s\n", err->text);
    fflush(stdout);
    _exit(96);
}

/* ---- a model on a rank ---- */

static struct gpt_config config(bool tied, int64_t groups)
{
    struct gpt_config c = {
        .num_layers = 4,
        .hidden_size = 24,
        .num_attention_heads = 8,
        .num_query_groups = groups,
        .head_size = 4, /* H D > C */
        .ffn_hidden_size = 40,
        .max_positions = 16,
        .vocab_size = VOCABULARY,
        .norm_epsilon = 1e-5,
        .init_std = 0.02,
        .hidden_dropout = 0.1,
        .attention_dropout = 0.1,
        .tied_embeddings = tied,
    };
    struct gpt_err err;
    must(gpt_config_complete(&c, 12, 4, &err), &err); /* 48: one rank of 4
                                                      * holds dummies alone */
    return c;
}

/* Memory of a bucket is a block of its own, or (shared) that of all layers. */
struct rig {
    struct gpt_config c;
    struct gpt_param_table table;
    struct gpt_flat flat;
    void *w;
    float **gradients;
    struct gpt_queue *q;
    struct gpt_stage *stage;
};

/* A function of name and global index. */
static void fill_slice(const struct gpt_slice *s, float *to)
{
    struct gpt_rng rng = gpt_rng_open(3, s->param->name);
    float base = s->param->init == GPT_INIT_ONE ? 1 : 0;

    for (int64_t i = 0; i < s->shape[0]; i++)
        for (int64_t j = 0; j < s->shape[1]; j++) {
            int64_t at = (s->begin[0] + i) * s->param->shape[1] + s->begin[1];
            to[i * s->shape[1] + j] =
                base + 0.3F * gpt_rng_normal(rng, (uint64_t)(at + j));
        }
}

static void fill(struct rig *r, enum gpt_dtype act)
{
    float *w = gpt_alloc((size_t)r->flat.elements, sizeof *w);

    for (int64_t i = 0; i < r->flat.n; i++)
        fill_slice(&r->flat.slices[i], w + r->flat.slices[i].offset);
    be->cast(r->q, r->w, act, w, GPT_F32, r->flat.elements);
    gpt_free(w);
}

static void *device(int64_t elements, size_t size)
{
    struct gpt_err err;
    void *mem;
    must(be->alloc(be, (size_t)elements * size, "a test", &mem, &err), &err);
    return mem;
}

/* o: layout, batch, ranks, recomputation; the rest is filled in. */
static void rig_open(struct rig *r, const struct gpt_config *c,
                     struct gpt_stage_options o, bool shared)
{
    struct gpt_err err;

    *r = (struct rig){.c = *c};
    must(gpt_params_build(&r->table, &r->c, &err), &err);
    must(gpt_flat_build(&r->flat, &r->table, &o.layout, &err), &err);
    must(be->queue_open(be, &r->q, &err), &err);
    r->w = device(r->flat.elements, sizeof(float));
    r->gradients = gpt_alloc((size_t)r->flat.n_buckets, sizeof(float *));
    for (int64_t i = 0; i < r->flat.n_buckets; i++) {
        const struct gpt_bucket *b = &r->flat.buckets[i];
        bool again = shared && b->layer >= 0 && i > 0 && b[-1].layer >= 0;
        r->gradients[i] = again ? r->gradients[i - 1]
                                : device(b->end - b->begin, sizeof(float));
    }
    fill(r, o.act);
    o.config = &r->c;
    o.flat = &r->flat;
    o.training = o.documents = true;
    o.seed = 11;
    for (int64_t i = 0; i < o.layout.chunks; i++)
        o.slots[i] = o.slots[i] ? o.slots[i] : 1;
    o.fresh_gradients = shared;
    must(gpt_stage_open(&r->stage, be, &o, r->w, r->gradients, &err), &err);
}

static void rig_close(struct rig *r)
{
    gpt_stage_close(r->stage);
    for (int64_t i = r->flat.n_buckets - 1; i >= 0; i--)
        if (i == 0 || r->gradients[i] != r->gradients[i - 1])
            be->free(be, r->gradients[i]);
    gpt_free(r->gradients);
    be->free(be, r->w);
    be->queue_close(r->q);
    gpt_flat_free(&r->flat);
    gpt_params_free(&r->table);
}

static float *gradient(const struct rig *r, const struct gpt_slice *s)
{
    return r->gradients[s->bucket] + s->offset -
           r->flat.buckets[s->bucket].begin;
}

/* ---- a batch ---- */

struct batch {
    int64_t b, t;
    int32_t input[MICROBATCHES][MOST_ROWS], target[MICROBATCHES][MOST_ROWS];
    int32_t position[MICROBATCHES][MOST_ROWS], start[MICROBATCHES][MOST_ROWS];
    float weight[MICROBATCHES][MOST_ROWS], loss[MICROBATCHES][MOST_ROWS];
    float *logits; /* (MICROBATCHES, N, V / tp) */
};

static void batch_open(struct batch *x, int64_t b, int64_t t, int64_t columns)
{
    *x = (struct batch){.b = b, .t = t};
    for (int64_t m = 0; m < MICROBATCHES; m++)
        for (int64_t i = 0; i < b * t; i++) {
            int32_t at = (int32_t)(i % t), cut = at >= 5 ? 5 : 0;
            x->input[m][i] = (int32_t)((i * 7 + m * 5) % VOCABULARY);
            x->target[m][i] = (int32_t)((i * 11 + m * 3 + 1) % VOCABULARY);
            x->start[m][i] = cut;
            x->position[m][i] = at - cut;
            x->weight[m][i] = i % 6 == 4 ? 0 : 0.05F;
        }
    x->logits = gpt_alloc((size_t)(MICROBATCHES * b * t * columns),
                          sizeof(float));
}

static struct gpt_microbatch micro(const struct batch *x, int64_t m)
{
    return (struct gpt_microbatch){
        .input = x->input[m],
        .target = x->target[m],
        .position = x->position[m],
        .doc_start = x->start[m],
        .weight = x->weight[m],
        .sample0 = 100 + m * x->b,
    };
}

/* Losses alone, through a stage that is the whole pipeline. */
static void evaluate(struct rig *r, struct batch *x)
{
    struct gpt_err err;

    for (int64_t m = 0; m < MICROBATCHES; m++) {
        struct gpt_microbatch mb = micro(x, m);
        struct gpt_stage_result result = {.loss = x->loss[m]};
        gpt_stage_forward(r->stage, r->q, 0, 0, GPT_STAGE_EVAL, &mb, NULL,
                          &result);
    }
    must(be->sync(r->q, &err), &err);
}

/* The whole batch, forward and backward. */
static void run(struct rig *r, struct batch *x, int64_t columns)
{
    struct gpt_err err;

    gpt_stage_begin(r->stage, r->q);
    for (int64_t m = 0; m < MICROBATCHES; m++) {
        struct gpt_microbatch mb = micro(x, m);
        struct gpt_stage_result result = {
            .loss = x->loss[m],
            .logits = x->logits + m * x->b * x->t * columns,
        };
        gpt_stage_forward(r->stage, r->q, 0, 0, GPT_STAGE_TRAIN, &mb, NULL,
                          &result);
        gpt_stage_backward(r->stage, r->q, 0, 0, NULL);
    }
    must(be->sync(r->q, &err), &err);
}

/* ---- comparison ---- */

/* Largest difference over largest wanted value; NaN is infinitely wrong. */
struct error {
    double worst, largest;
};

static void compare(struct error *e, float got, float want)
{
    double d = fabs((double)got - (double)want);
    e->worst = d <= e->worst ? e->worst : isnan(d) ? (double)INFINITY : d;
    e->largest = fmax(e->largest, fabs((double)want));
}

static double relative(const struct error *e)
{
    return e->worst / (e->largest > 0 ? e->largest : 1);
}

/* A slice against the same part of the single rank's. */
static double slice_error(const struct gpt_slice *s, const float *got,
                          const struct rig *whole)
{
    const float *want = gradient(
        whole, gpt_flat_find(&whole->flat, s->param->role, s->param->layer));
    struct error e = {0, 0};

    for (int64_t i = 0; i < s->shape[0]; i++)
        for (int64_t j = 0; j < s->shape[1]; j++) {
            int64_t at = (s->begin[0] + i) * s->param->shape[1] + s->begin[1];
            compare(&e, got[i * s->shape[1] + j], want[at + j]);
        }
    return relative(&e);
}

static double loss_error(const struct batch *got, const struct batch *want)
{
    struct error e = {0, 0};

    for (int64_t m = 0; m < MICROBATCHES; m++)
        for (int64_t i = 0; i < got->b * got->t; i++)
            compare(&e, got->loss[m][i], want->loss[m][i]);
    return relative(&e);
}

static double logits_error(const struct batch *got, int64_t columns,
                           int64_t begin, const struct batch *want)
{
    int64_t all = config(true, 4).padded_vocab_size;
    struct error e = {0, 0};

    for (int64_t i = 0; i < MICROBATCHES * got->b * got->t; i++)
        for (int64_t j = 0; j < columns; j++)
            compare(&e, got->logits[i * columns + j],
                    want->logits[i * all + begin + j]);
    return relative(&e);
}

static bool same_bits(const struct rig *a, const struct batch *x,
                      const struct rig *b, const struct batch *y)
{
    bool same = memcmp(x->loss, y->loss, sizeof x->loss) == 0;

    for (int64_t i = 0; i < a->flat.n_buckets; i++) {
        const struct gpt_bucket *of = &a->flat.buckets[i];
        same = same && memcmp(a->gradients[i], b->gradients[i],
                              (size_t)(of->end - of->begin) * 4) == 0;
    }
    return same;
}

/* ---- tensor parallel ranks ---- */

struct parallel_case {
    bool sequence, tied;
    int64_t groups, b, t;
    enum gpt_recompute recompute;
    int64_t recompute_layers;
};

static const struct parallel_case parallel_cases[] = {
    {false, true, 8, 2, 12, GPT_RECOMPUTE_NONE, 0},
    {true, true, 8, 2, 12, GPT_RECOMPUTE_NONE, 0},
    {false, false, 4, 1, 13, GPT_RECOMPUTE_NONE, 0},
    {true, false, 4, 1, 16, GPT_RECOMPUTE_NONE, 0},
    {true, true, 4, 4, 7, GPT_RECOMPUTE_NONE, 0}, /* cut within a sample */
    {false, true, 4, 2, 12, GPT_RECOMPUTE_SELECTIVE, 0},
    {true, true, 4, 2, 12, GPT_RECOMPUTE_SELECTIVE, 0},
    /* 2 ranks only, for the sake of time */
    {false, true, 4, 2, 12, GPT_RECOMPUTE_UNIFORM, 3},
    {true, true, 4, 2, 12, GPT_RECOMPUTE_UNIFORM, 1},
    {true, false, 4, 2, 12, GPT_RECOMPUTE_BLOCK, 2},
};

enum { ALL_CASES = GPT_COUNT(parallel_cases), FIRST_CASES = 7 };

/* What a rank found, for the parent. */
struct finding {
    double loss, logits, gradients, eval;
    bool same; /* as without recomputation */
    char worst[GPT_PARAM_NAME];
};

/* Gradients of rows that are cut are summed by who reduces them. */
static double gradients_error(const struct rig *r, const struct rig *whole,
                              struct gpt_comm *tp, bool sequence, char *name)
{
    double worst = 0;

    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];
        if (sequence && s->param->sequence_sum)
            gpt_comm_all_reduce(tp, r->q, gradient(r, s), s->count, GPT_F32,
                                GPT_SUM);
        double e = slice_error(s, gradient(r, s), whole);
        if (!(e <= worst)) {
            worst = e;
            snprintf(name, GPT_PARAM_NAME, "%s", s->param->name);
        }
    }
    return worst;
}

static struct finding find(const struct parallel_case *k, struct gpt_comm *tp)
{
    struct gpt_config c = config(k->tied, k->groups);
    int64_t size = gpt_comm_size(tp), rank = gpt_comm_rank(tp);
    int64_t columns = c.padded_vocab_size / size;
    struct rig r, plain, whole;
    static struct batch x, y, want;
    struct finding f = {.same = true};
    struct gpt_stage_options o = {
        .layout = gpt_layout_even(&c, size, rank, 1, 0),
        .micro_batch = k->b,
        .seq_length = k->t,
        .tp = tp,
        .sequence_parallel = k->sequence,
        .recompute = k->recompute,
        .recompute_layers = k->recompute_layers,
        .act = GPT_F32,
    };

    batch_open(&x, k->b, k->t, columns);
    batch_open(&y, k->b, k->t, columns);
    batch_open(&want, k->b, k->t, c.padded_vocab_size);
    rig_open(&r, &c, o, false);
    run(&r, &x, columns);
    o.recompute = GPT_RECOMPUTE_NONE;
    if (k->recompute != GPT_RECOMPUTE_NONE) {
        rig_open(&plain, &c, o, false);
        run(&plain, &y, columns);
        f.same = same_bits(&r, &x, &plain, &y);
        rig_close(&plain);
    }
    o.layout = GPT_LAYOUT_SINGLE(&c);
    o.tp = NULL;
    o.sequence_parallel = false;
    rig_open(&whole, &c, o, false);
    run(&whole, &want, c.padded_vocab_size);
    f.loss = loss_error(&x, &want);
    f.logits = logits_error(&x, columns, columns * rank, &want);
    f.gradients = gradients_error(&r, &whole, tp, k->sequence, f.worst);
    evaluate(&r, &x);
    evaluate(&whole, &want);
    f.eval = loss_error(&x, &want);
    rig_close(&whole);
    rig_close(&r);
    gpt_free(x.logits);
    gpt_free(y.logits);
    gpt_free(want.logits);
    return f;
}

static int be_rank(int64_t rank, int64_t size, int64_t port, int64_t cases,
                   struct finding *findings)
{
    struct gpt_launch l = {.world_size = size,
                           .rank = rank,
                           .host = "127.0.0.1",
                           .port = port,
                           .agent_store = true,
                           .run_id = "test"};
    int64_t ranks[MOST_RANKS] = {0, 1, 2, 3};
    struct gpt_store *store;
    struct gpt_comm *tp;
    struct gpt_err err = {0};

    omp_set_num_threads(1);
    must(gpt_store_open(&store, &l, 60, &err), &err);
    must(gpt_comm_open(&tp, store, be, "tp", ranks, size, rank, 60, &err),
         &err);
    for (int64_t i = 0; i < cases; i++)
        findings[i] = find(&parallel_cases[i], tp);
    must(gpt_comm_check(tp, &err), &err);
    gpt_comm_close(tp);
    gpt_store_close(store);
    return 0;
}

static void report(const struct finding *findings, int64_t size, int64_t cases)
{
    for (int64_t i = 0; i < cases; i++) {
        const struct parallel_case *k = &parallel_cases[i];
        struct finding worst = {.same = true};
        for (int64_t r = 0; r < size; r++) {
            const struct finding *f = &findings[r * cases + i];
            worst.loss = fmax(worst.loss, f->loss);
            worst.logits = fmax(worst.logits, f->logits);
            worst.gradients = fmax(worst.gradients, f->gradients);
            worst.eval = fmax(worst.eval, f->eval);
            worst.same = worst.same && f->same;
        }
        bool good = worst.loss <= 1e-5 && worst.logits <= 1e-5 &&
                    worst.gradients <= 1e-5 && worst.eval <= 1e-5 &&
                    worst.same;
        if (!ok(good,
                "TP %lld%s, %s, %lld groups, %lldx%lld, recompute %s %lld: "
                "loss %.1e, logits %.1e, gradients %.1e, evaluation %.1e",
                (long long)size, k->sequence ? " SP" : "",
                k->tied ? "tied" : "untied", (long long)k->groups,
                (long long)k->b, (long long)k->t, recompute_names[k->recompute],
                (long long)k->recompute_layers, worst.loss, worst.logits,
                worst.gradients, worst.eval)) {
            printf("# %s bits as without recomputation\n",
                   worst.same ? "the same" : "other");
            for (int64_t r = 0; r < size; r++)
                printf("# rank %lld: worst in %s\n", (long long)r,
                       findings[r * cases + i].worst);
        }
    }
}

/* Processes are made before this one has threads; they read the port of the
 * store from a pipe. */
static void ranks(int64_t size, int64_t cases)
{
    const size_t bytes = sizeof(struct finding) * (size_t)(cases * size);
    struct finding *findings = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct gpt_store_server *v = NULL;
    struct gpt_err err = {0};
    int64_t port = 0;
    pid_t pids[MOST_RANKS];
    int fds[2], status, wrong = 0;

    if (findings == MAP_FAILED || pipe(fds) != 0)
        exit(1);
    fflush(stdout);
    for (int64_t r = 0; r < size; r++) {
        pids[r] = fork();
        if (pids[r] < 0)
            exit(1);
        if (pids[r] == 0) {
            alarm(120);
            if (read(fds[0], &port, sizeof port) != sizeof port)
                _exit(99);
            _exit(be_rank(r, size, port, cases, findings + r * cases));
        }
    }
    must(gpt_store_server_open(&v, "127.0.0.1", 0, &err), &err);
    port = gpt_store_server_port(v);
    for (int64_t r = 0; r < size; r++)
        if (write(fds[1], &port, sizeof port) != sizeof port)
            exit(1);
    for (int64_t r = 0; r < size; r++)
        wrong += waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    gpt_store_server_close(v, 1);
    close(fds[0]);
    close(fds[1]);
    is_int(wrong, 0, "%lld ranks came to their end", (long long)size);
    report(findings, size, cases);
    munmap(findings, bytes);
}

/* ---- recomputation on one rank: the same bits ---- */

static void recomputation(enum gpt_dtype act)
{
    static const struct {
        enum gpt_recompute recompute;
        int64_t layers;
    } modes[] = {
        {GPT_RECOMPUTE_SELECTIVE, 0}, {GPT_RECOMPUTE_UNIFORM, 1},
        {GPT_RECOMPUTE_UNIFORM, 3},   {GPT_RECOMPUTE_UNIFORM, 9},
        {GPT_RECOMPUTE_BLOCK, 1},     {GPT_RECOMPUTE_BLOCK, 9},
    };
    struct gpt_config c = config(true, 4);
    static struct batch x, want;
    struct rig r, whole;
    struct gpt_stage_options o = {
        .layout = GPT_LAYOUT_SINGLE(&c),
        .micro_batch = 2,
        .seq_length = 9,
        .act = act,
    };

    batch_open(&x, 2, 9, c.padded_vocab_size);
    batch_open(&want, 2, 9, c.padded_vocab_size);
    rig_open(&whole, &c, o, false);
    run(&whole, &want, c.padded_vocab_size);
    for (size_t i = 0; i < GPT_COUNT(modes); i++) {
        o.recompute = modes[i].recompute;
        o.recompute_layers = modes[i].layers;
        rig_open(&r, &c, o, false);
        run(&r, &x, c.padded_vocab_size);
        ok(same_bits(&r, &x, &whole, &want), "%s: recompute %s %lld: same bits",
           gpt_dtype_name(act), recompute_names[modes[i].recompute],
           (long long)modes[i].layers);
        rig_close(&r);
    }
    rig_close(&whole);
    gpt_free(x.logits);
    gpt_free(want.logits);
}

/* ---- memory: as predicted, and less of it ---- */

static int64_t allocated;
static struct gpt_backend *real;

static int counting_alloc(struct gpt_backend *b, size_t bytes, const char *what,
                          void **mem, struct gpt_err *err)
{
    (void)b;
    allocated += (int64_t)bytes;
    return real->alloc(real, bytes, what, mem, err);
}

static int64_t activations(struct gpt_stage_options o, struct gpt_comm *tp,
                           const struct gpt_config *c)
{
    struct gpt_backend counting = *be;
    struct gpt_param_table table;
    struct gpt_flat flat;
    struct gpt_memory memory = {.bytes = {0}};
    struct gpt_stage *s;
    struct gpt_err err;
    int64_t predicted = 0;

    o.config = c;
    o.flat = &flat;
    o.training = true;
    real = be;
    counting.alloc = counting_alloc;
    must(gpt_params_build(&table, c, &err), &err);
    must(gpt_flat_build(&flat, &table, &o.layout, &err), &err);
    must(gpt_stage_memory(&memory, &counting, &o, &err), &err);
    for (int i = 0; i < GPT_N_MEMORY_KINDS; i++)
        predicted += memory.bytes[i];
    if (tp || o.layout.tp_size == 1) {
        float w = 0;
        allocated = 0;
        o.tp = tp;
        must(gpt_stage_open(&s, &counting, &o, &w, NULL, &err), &err);
        gpt_stage_close(s);
        is_int(allocated, predicted, "memory as predicted");
    }
    gpt_flat_free(&flat);
    gpt_params_free(&table);
    return memory.bytes[GPT_MEM_ACTIVATIONS];
}

/* Bytes a layer by Korthikanti et al. 2022, table 2, for what is kept here:
 * bf16 sums without masks, which are computed again. */
static void memory(void)
{
    enum { LAYERS = 8, T = 512, C = 256, H = 4 };
    struct gpt_config c = gpt_config_default();
    struct gpt_err err;
    struct gpt_stage_options o = {
        .micro_batch = 2, .seq_length = T, .slots = {3}, .act = GPT_BF16};
    const int64_t n = 2 * T, slots = 3;
    const int64_t stats = 4 * 4 * n; /* mean and rstd of two norms */

    c.num_layers = LAYERS;
    c.hidden_size = C;
    c.num_attention_heads = c.num_query_groups = H;
    c.head_size = C / H;
    c.ffn_hidden_size = 4 * C;
    must(gpt_config_complete(&c, 128, 1, &err), &err);
    o.layout = gpt_layout_even(&c, 1, 0, 3, 1);
    o.layout.chunk[0] = (struct gpt_chunk){0, LAYERS};
    o.layout.has_output = false;
    is_int(activations(o, NULL, &c),
           slots * LAYERS * (16 * 2 * n * C + stats + 4 * n * H),
           "no recomputation: 16 blocks a layer");
    o.recompute = GPT_RECOMPUTE_SELECTIVE;
    is_int(activations(o, NULL, &c),
           slots * LAYERS * (9 * 2 * n * C + stats), "selective: 9");
    o.recompute = GPT_RECOMPUTE_UNIFORM;
    o.recompute_layers = 3;
    is_int(activations(o, NULL, &c), slots * 3 * 2 * n * C,
           "uniform: 1 a group");
    o.recompute = GPT_RECOMPUTE_BLOCK;
    is_int(activations(o, NULL, &c),
           slots * (3 * 2 * n * C +
                    5 * (16 * 2 * n * C + stats + 4 * n * H)),
           "block: 1 for the first layers");
    o.recompute = GPT_RECOMPUTE_NONE;
    o.layout.tp_size = 4;
    o.sequence_parallel = true;
    is_int(activations(o, NULL, &c),
           slots * LAYERS * (16 * 2 * n * C + stats + 4 * n * H) / 4,
           "sequence parallelism: a fourth");
    o.sequence_parallel = false;
    is_int(activations(o, NULL, &c),
           slots * LAYERS * ((4 + 12 / 4) * 2 * n * C + stats + n * H),
           "tensor parallelism alone: what is between norms stays whole");
}

/* A stage that is not for training keeps one layer, and says the same. */
static void evaluation_only(void)
{
    struct gpt_config c = config(true, 4);
    static struct batch x, want;
    struct rig whole;
    struct gpt_stage_options o = {
        .config = &c, .layout = GPT_LAYOUT_SINGLE(&c), .micro_batch = 2,
        .seq_length = 9, .slots = {1}, .documents = true, .act = GPT_F32};
    struct gpt_stage *trains, *s;
    struct gpt_memory more = {.bytes = {0}}, less = {.bytes = {0}};
    struct gpt_err err;

    batch_open(&x, 2, 9, c.padded_vocab_size);
    batch_open(&want, 2, 9, c.padded_vocab_size);
    rig_open(&whole, &c, o, false);
    evaluate(&whole, &want);
    o.flat = &whole.flat;
    must(gpt_stage_open(&s, be, &o, whole.w, NULL, &err), &err);
    must(gpt_stage_memory(&less, be, &o, &err), &err);
    o.training = true;
    must(gpt_stage_memory(&more, be, &o, &err), &err);
    trains = whole.stage;
    whole.stage = s;
    evaluate(&whole, &x);
    whole.stage = trains;
    gpt_stage_close(s);
    ok(memcmp(x.loss, want.loss, sizeof x.loss) == 0 &&
           less.bytes[GPT_MEM_ACTIVATIONS] < more.bytes[GPT_MEM_ACTIVATIONS] / 4,
       "evaluation alone: same losses, less memory");
    rig_close(&whole);
    gpt_free(x.logits);
    gpt_free(want.logits);
}

static void refusals(void)
{
    struct gpt_config c = config(true, 8);
    struct gpt_memory memory_of;
    struct gpt_err err;
    struct gpt_stage_options o = {
        .config = &c, .layout = gpt_layout_even(&c, 4, 0, 1, 0),
        .micro_batch = 1, .seq_length = 10, .slots = {1}, .training = true};

    o.sequence_parallel = true;
    is_int(gpt_stage_memory(&memory_of, be, &o, &err), GPT_EUSAGE, "%s",
           err.text);
    o.sequence_parallel = false;
    o.recompute = GPT_RECOMPUTE_BLOCK;
    is_int(gpt_stage_memory(&memory_of, be, &o, &err), GPT_EUSAGE, "%s",
           err.text);
}

/* ---- chunks and stages by hand against one stage ---- */

enum { STAGES = 2, CHUNKS = 2 };

static struct gpt_stage_options chunk_options(const struct gpt_config *c,
                                              int64_t pp, int64_t rank,
                                              int64_t chunks)
{
    struct gpt_stage_options o = {
        .micro_batch = 2, .seq_length = 9, .slots = {2, 2}, .act = GPT_F32};
    struct gpt_topology t;
    struct gpt_err err;

    if (pp == 1) { /* what no schedule asks for, but a stage can do */
        o.layout = GPT_LAYOUT_SINGLE(c);
        o.layout.chunks = chunks;
        for (int64_t i = 0; i < chunks; i++)
            o.layout.chunk[i] = (struct gpt_chunk){
                i * c->num_layers / chunks, c->num_layers / chunks};
        return o;
    }
    must(gpt_topology_init(&t, pp, rank, 1, pp, chunks, &err), &err);
    must(gpt_layout_init(&o.layout, c, &t, 0, 0, &err), &err);
    return o;
}

/* Virtual stage v is chunk v / stages of stage v % stages. Odd microbatches
 * are received in place. True when nothing stuck out at the pipeline's ends. */
static bool forward_by_hand(struct rig *r, int64_t stages, int64_t chunks,
                            struct batch *x, int64_t m)
{
    struct gpt_microbatch mb = micro(x, m);
    struct gpt_stage_result result = {.loss = x->loss[m]};
    const void *in = NULL;
    bool first_has_place = gpt_stage_input(r[0].stage, 0, 0) != NULL;

    for (int64_t v = 0; v < stages * chunks; v++) {
        struct rig *at = &r[v % stages];
        void *place = gpt_stage_input(at->stage, v / stages, m % 2);
        if (place && m % 2) {
            be->copy(at->q, place, in, gpt_stage_bytes(at->stage));
            in = place;
        }
        in = gpt_stage_forward(at->stage, at->q, v / stages, m % 2,
                               GPT_STAGE_TRAIN, &mb, in, &result);
    }
    return in == NULL && !first_has_place;
}

static bool backward_by_hand(struct rig *r, int64_t stages, int64_t chunks,
                             int64_t m)
{
    const void *dout = NULL;

    for (int64_t v = stages * chunks - 1; v >= 0; v--)
        dout = gpt_stage_backward(r[v % stages].stage, r[v % stages].q,
                                  v / stages, m % 2, dout);
    return dout == NULL;
}

/* The copy of a tied word table is added to the first stage's. */
static void add_copies(struct rig *r, int64_t stages)
{
    const struct rig *last = &r[stages - 1];

    for (int64_t i = 0; i < last->flat.n; i++) {
        const struct gpt_slice *s = &last->flat.slices[i];
        float *to = gradient(r, &r->flat.slices[0]);
        for (int64_t k = 0; s->copy && k < s->count; k++)
            to[k] += gradient(last, s)[k];
    }
}

/* Two microbatches are in flight at once. */
static void chunks_by_hand(int64_t stages, int64_t chunks, bool tied)
{
    struct gpt_config c = config(tied, 8);
    static struct batch x, want;
    struct rig r[STAGES], whole;
    double worst = 0;
    bool ends = true;

    batch_open(&x, 2, 9, c.padded_vocab_size);
    batch_open(&want, 2, 9, c.padded_vocab_size);
    rig_open(&whole, &c, chunk_options(&c, 1, 0, 1), false);
    run(&whole, &want, c.padded_vocab_size);
    for (int64_t i = 0; i < stages; i++) {
        rig_open(&r[i], &c, chunk_options(&c, stages, i, chunks), false);
        gpt_stage_begin(r[i].stage, r[i].q);
    }
    for (int64_t m = 0; m < MICROBATCHES + 1; m++) {
        if (m < MICROBATCHES)
            ends = forward_by_hand(r, stages, chunks, &x, m) && ends;
        if (m > 0)
            ends = backward_by_hand(r, stages, chunks, m - 1) && ends;
    }
    add_copies(r, stages);
    for (int64_t i = 0; i < stages; i++) {
        for (int64_t k = 0; k < r[i].flat.n; k++) {
            const struct gpt_slice *s = &r[i].flat.slices[k];
            if (!s->copy)
                worst = fmax(worst, slice_error(s, gradient(&r[i], s), &whole));
        }
        rig_close(&r[i]);
    }
    ok(memcmp(x.loss, want.loss, sizeof x.loss) == 0 && worst <= 1e-6 && ends,
       "%lld stages of %lld chunks, %s: losses equal, gradients %.1e",
       (long long)stages, (long long)chunks, tied ? "tied" : "untied", worst);
    rig_close(&whole);
    gpt_free(x.logits);
    gpt_free(want.logits);
}

/* ---- hooks, and layers that share the memory of gradients ---- */

struct watch {
    const struct rig *r;
    char seen[400]; /* "+5 -5 +4 ...": before and after */
    float *sum;     /* flat: what was there after each microbatch */
};

static void note(struct watch *w, char what, int64_t bucket)
{
    size_t n = strlen(w->seen);
    snprintf(w->seen + n, sizeof w->seen - n, "%c%d ", what, (int)bucket);
}

static void before(void *context, int64_t bucket)
{
    note(context, '+', bucket);
}

static void after(void *context, int64_t bucket)
{
    struct watch *w = context;
    const struct gpt_bucket *b = &w->r->flat.buckets[bucket];

    note(w, '-', bucket);
    for (int64_t i = b->begin; i < b->end; i++)
        w->sum[i] = w->r->gradients[bucket][i - b->begin] +
                    (b->layer >= 0 ? w->sum[i] : 0);
}

static void hooks(bool tied)
{
    struct gpt_config c = config(tied, 8);
    static struct batch x;
    struct rig r, whole;
    struct watch w = {.r = &r};
    struct gpt_stage_options o = chunk_options(&c, 1, 0, 1);
    double worst = 0;

    batch_open(&x, 2, 9, c.padded_vocab_size);
    rig_open(&whole, &c, o, false);
    run(&whole, &x, c.padded_vocab_size);
    o.hooks = (struct gpt_gradient_hooks){&w, before, after};
    rig_open(&r, &c, o, true);
    w.sum = gpt_alloc((size_t)r.flat.elements, sizeof(float));
    run(&r, &x, c.padded_vocab_size);
    char want[400] = "";
    for (int m = 0; m < MICROBATCHES; m++)
        strcat(want, "+5 -5 +4 -4 +3 -3 +2 -2 +1 -1 +0 -0 ");
    is_str(w.seen, want, "hooks: from the last bucket to the first");
    for (int64_t i = 0; i < r.flat.n; i++)
        worst = fmax(worst,
                     slice_error(&r.flat.slices[i],
                                 w.sum + r.flat.slices[i].offset, &whole));
    ok(worst <= 1e-6, "%s: fresh gradients, summed outside: error %.1e",
       tied ? "tied" : "untied", worst);
    gpt_free(w.sum);
    rig_close(&r);
    rig_close(&whole);
    gpt_free(x.logits);
}

/* A last stage with a copy of the word table: both buckets outside the layers
 * are complete with the final norm. */
static void hooks_of_a_last_stage(void)
{
    struct gpt_config c = config(true, 8);
    static struct batch x;
    struct rig r[STAGES];
    struct watch w[STAGES];

    batch_open(&x, 2, 9, c.padded_vocab_size);
    for (int i = 0; i < STAGES; i++) {
        struct gpt_stage_options o = chunk_options(&c, STAGES, i, 1);
        w[i] = (struct watch){.r = &r[i]};
        o.hooks = (struct gpt_gradient_hooks){&w[i], before, after};
        rig_open(&r[i], &c, o, false);
        w[i].sum = gpt_alloc((size_t)r[i].flat.elements, sizeof(float));
        gpt_stage_begin(r[i].stage, r[i].q);
    }
    ok(forward_by_hand(r, STAGES, 1, &x, 0) &&
           backward_by_hand(r, STAGES, 1, 0), "two stages, one microbatch");
    is_str(w[1].seen, "+0 +3 -0 -3 +2 -2 +1 -1 ", "hooks of the last stage");
    is_str(w[0].seen, "+2 -2 +1 -1 +0 -0 ", "hooks of the first stage");
    for (int i = 0; i < STAGES; i++) {
        gpt_free(w[i].sum);
        rig_close(&r[i]);
    }
    gpt_free(x.logits);
}

#ifdef GPT_HAVE_GLOO
static const bool has_gloo = true;
#else
static const bool has_gloo = false;
#endif

int main(void)
{
    static const struct {
        int64_t size, cases;
    } jobs[] = {{2, ALL_CASES}, {4, FIRST_CASES}};
    struct gpt_err err;

    must(gpt_backend_cpu(&be, &err), &err);
    for (size_t i = 0; i < GPT_COUNT(jobs); i++)
        if (has_gloo)
            ranks(jobs[i].size, jobs[i].cases);
        else
            skip("%lld ranks: built without Gloo", (long long)jobs[i].size);
    recomputation(GPT_F32);
    recomputation(GPT_BF16);
    memory();
    evaluation_only();
    refusals();
    for (int tied = 0; tied < 2; tied++) {
        chunks_by_hand(1, CHUNKS, tied);
        chunks_by_hand(STAGES, 1, tied);
        chunks_by_hand(STAGES, CHUNKS, tied);
        hooks(tied);
    }
    hooks_of_a_last_stage();
    return tap_done();
}
