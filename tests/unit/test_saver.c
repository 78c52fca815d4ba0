/* Saving and loading by several ranks: every layout loads the checkpoints of
 * every other, bit for bit. When a rank dies, fails or has a full disk, the
 * last checkpoint does not change, and all ranks name that rank. */
#include "cmd/train/saver.h"

#include "tests/lib/job.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

#include "base/clock.h"
#include "checkpoint/native/native.h"

#include <sys/resource.h>
#include <sys/stat.h>

static char root[256];

/* ---- a replica with values by formula ---- */

struct layout {
    const char *name;
    int64_t tp, pp, dp, chunks;
    bool shards;
    enum gpt_dtype act;
};

static const struct layout layouts[] = {
    {"TP1", 1, 1, 1, 1, false, GPT_F32},
    {"TP2 PP2 DP2 sharded", 2, 2, 2, 1, true, GPT_F32},
    {"TP4", 4, 1, 1, 1, false, GPT_F32},
    {"PP4", 1, 4, 1, 1, false, GPT_F32},
    {"DP4", 1, 1, 4, 1, false, GPT_F32},
    {"DP3 sharded", 1, 1, 3, 1, true, GPT_F32},
    {"PP2 V2 DP2", 1, 2, 2, 2, false, GPT_F32},
    {"TP2 bf16", 2, 1, 1, 1, false, GPT_BF16},
};
enum { N_LAYOUTS = GPT_COUNT(layouts) };

static struct gpt_config tiny(void)
{
    struct gpt_config c = gpt_config_default();
    struct gpt_err err;

    c.num_layers = 4;
    c.hidden_size = 20;
    c.num_attention_heads = 4;
    c.num_query_groups = 4;
    c.max_positions = 12;
    c.vocab_size = 50;
    if (gpt_config_complete(&c, 8, 1, &err) != GPT_OK)
        abort();
    return c;
}

static float value(int kind, int64_t param, int64_t index)
{
    uint32_t x = (uint32_t)(index * 131 + param * 7919 + kind * 104729 + 1);

    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    return (float)(x & 0xffffff) / 16777216.0F - 0.5F;
}

static const struct gpt_lr_schedule schedule = {
    .max_lr = 1, .decay_samples = 100, .wd_incr_samples = 100};

enum { WORLD_SECONDS = 60 };

struct member {
    const struct layout *layout;
    struct gpt_world world;
    struct gpt_replica *replica;
    struct gpt_train_options options;
    struct gpt_train_plan plan;
    struct gpt_state_context context;
};

static int open_member(struct member *m, const struct layout *l,
                       const struct rank *rank, struct gpt_err *err)
{
    struct gpt_replica_options o = {.config = tiny(),
                                    .exec.act = l->act,
                                    .exec.micro_batch = 1,
                                    .micro_batches = 2,
                                    .exec.seq_length = 12,
                                    .exec.seed = 3,
                                    .world = &m->world};
    struct gpt_backend *be;
    void *memory;

    *m = (struct member){.layout = l};
    m->world.store = rank->store;
    m->world.timeout = WORLD_SECONDS;
    GPT_TRY(gpt_topology_init(&m->world.topology, l->tp * l->pp * l->dp,
                              rank->rank,
                              (int64_t[]){[GPT_TP] = l->tp, [GPT_PP] = l->pp},
                              l->chunks, err));
    GPT_TRY(gpt_layout_init(&o.layout, &o.config, &m->world.topology, 0, 0,
                            err));
    o.layout.shards = l->shards ? l->dp : 1;
    o.layout.shard = l->shards ? m->world.topology.at[GPT_DP] : 0;
    GPT_TRY(gpt_backend_cpu(&be, err));
    GPT_TRY(gpt_replica_new(&m->replica, be, &o, err));
    GPT_TRY(be->queue_open(be, &m->replica->q, err));
    GPT_TRY(be->alloc(be, (size_t)m->replica->flat.elements * 4, "parameters",
                      &memory, err));
    m->replica->weights = m->replica->params = memory;
    if (l->act != GPT_F32) {
        GPT_TRY(be->alloc(be, (size_t)m->replica->flat.elements * 4,
                          "parameters", &memory, err));
        m->replica->params = memory;
    }
    m->plan.schedule = schedule;
    m->plan.options = &m->options;
    m->options.tokenizer.type = "GPT2BPETokenizer";
    m->context = (struct gpt_state_context){.options = &m->options,
                                            .plan = &m->plan,
                                            .option_text = "",
                                            .corpus_digest = 99};
    return gpt_optimizer_open(&m->replica->optimizer, be, m->replica->q,
                              &m->replica->flat,
                              m->world.topology.at[GPT_TP], &o.optimizer, err);
}

/* Calls `each` with every element that the rank has, or returns what it
 * returns when that is not 0. */
static int64_t walk(struct member *m, int64_t (*each)(float *x, float want))
{
    struct gpt_replica *r = m->replica;
    float *memory[] = {r->params,
                       gpt_optimizer_buffer(r->optimizer, GPT_KIND_EXP_AVG),
                       gpt_optimizer_buffer(r->optimizer, GPT_KIND_EXP_AVG_SQ)};
    int64_t sum = 0;

    for (int k = 0; k < (int)GPT_COUNT(memory); k++)
        for (int64_t i = 0; i < r->flat.n; i++) {
            const struct gpt_slice *s = &r->flat.slices[i];
            int64_t begin = 0, end = r->flat.elements, shift = 0;

            if (k > 0) {
                gpt_bucket_shard(&r->flat, s->bucket, r->flat.shard, &begin,
                                 &end);
                shift = gpt_bucket_compact(&r->flat, s->bucket) - begin;
            }
            for (int64_t j = 0; j < s->count; j++) {
                int64_t row = s->begin[0] + j / s->shape[1];
                int64_t column = s->begin[1] + j % s->shape[1];
                int64_t at = s->offset + j;

                if (at >= begin && at < end)
                    sum += each(memory[k] + at + shift,
                                value(k, s->param - r->table.rows,
                                      row * s->param->shape[1] + column));
            }
        }
    return sum;
}

static int64_t put(float *x, float want)
{
    *x = want;
    return 0;
}

static int64_t differs(float *x, float want)
{
    return memcmp(x, &want, sizeof(want)) != 0;
}

static void dir_of(char *dir, size_t cap, size_t layout)
{
    snprintf(dir, cap, "%s/%zu", root, layout);
}

static int say(const struct rank *rank, const char *what,
               const struct gpt_err *err)
{
    printf("# rank %lld: %s: %s\n", (long long)rank->rank, what, err->text);
    return 1;
}

/* ---- every layout into every layout ---- */

struct save_job {
    size_t layout;
    bool background;
};

static int save_rank(struct rank *rank, const void *context)
{
    const struct save_job *job = context;
    const struct gpt_train_state state = {.iteration = 7,
                                          .consumed_train = 70,
                                          .consumed_valid = 5};
    struct gpt_err err = {0};
    struct gpt_saver *saver;
    struct member m;
    char dir[300], vocab[300];

    if (open_member(&m, &layouts[job->layout], rank, &err) != GPT_OK)
        return say(rank, "open", &err);
    dir_of(dir, sizeof(dir), job->layout);
    snprintf(vocab, sizeof(vocab), "%s/vocab", root);
    m.options.save = dir;
    m.options.tokenizer.vocab_file = vocab;
    m.options.async_save = job->background;
    *gpt_optimizer_updates(m.replica->optimizer) = 6;
    walk(&m, put);
    if (gpt_saver_open(&saver, m.replica, &m.context, &err) != GPT_OK ||
        gpt_saver_save(saver, &state, &err) != GPT_OK)
        return say(rank, "save", &err);
    if (job->background) /* training goes on */
        memset(m.replica->params, 0, (size_t)m.replica->flat.elements * 4);
    if (gpt_saver_wait(saver, &err) != GPT_OK || gpt_saver_saved(saver) != 7)
        return say(rank, "wait", &err);
    gpt_saver_close(saver);
    gpt_replica_close(m.replica);
    return 0;
}

static int load_rank(struct rank *rank, const void *context)
{
    const struct layout *layout = context;
    int wrong = 0;

    for (size_t i = 0; i < N_LAYOUTS; i++) {
        struct gpt_train_state state = {0};
        struct gpt_err err = {0};
        struct member m;
        char dir[300];

        if (open_member(&m, layout, rank, &err) != GPT_OK)
            return say(rank, "open", &err);
        dir_of(dir, sizeof(dir), i);
        m.options.load = dir;
        if (gpt_state_load(m.replica, &state, &m.context, &m.plan, &err))
            return say(rank, "load", &err);
        int64_t bad = walk(&m, differs);
        if (bad || state.iteration != 7 || state.consumed_train != 70 ||
            state.consumed_valid != 5 ||
            *gpt_optimizer_updates(m.replica->optimizer) != 6) {
            printf("# rank %lld: from %s: %lld elements differ\n",
                   (long long)rank->rank, layouts[i].name, (long long)bad);
            wrong++;
        }
        gpt_replica_close(m.replica);
    }
    return wrong;
}

static bool all_well(int64_t size, const int *statuses)
{
    bool well = true;

    for (int64_t r = 0; r < size; r++)
        well = well && WIFEXITED(statuses[r]) && WEXITSTATUS(statuses[r]) == 0;
    return well;
}

static int64_t ranks_of(const struct layout *l)
{
    return l->tp * l->pp * l->dp;
}

/* All tensors of two checkpoints hold the same bytes. */
static bool same_tensors(size_t a, size_t b)
{
    struct gpt_checkpoint *x, *y;
    struct gpt_err err;
    char dir_a[300], dir_b[300];
    float p[4000], q[4000];
    int64_t n, m;
    bool same = true;

    dir_of(dir_a, sizeof(dir_a), a);
    dir_of(dir_b, sizeof(dir_b), b);
    if (checkpoint_open(&x, dir_a, -1, true, &err) != GPT_OK ||
        checkpoint_open(&y, dir_b, -1, true, &err) != GPT_OK) {
        printf("# %s\n", err.text);
        return false;
    }
    const struct gpt_tensor *t = gpt_checkpoint_tensors(x, &n);
    gpt_checkpoint_tensors(y, &m);
    same = n == m && n == 3 * (4 + 12 * 4);
    for (int64_t i = 0; i < n && same; i++) {
        struct gpt_tensor_slice want = {
            .name = t[i].name, .dtype = GPT_F32, .ndim = t[i].ndim};
        int64_t count = 1;

        for (int d = 0; d < t[i].ndim; d++)
            count *= want.shape[d] = t[i].shape[d];
        same = count <= 4000 &&
               checkpoint_read(x, &want, p, &err) == GPT_OK &&
               checkpoint_read(y, &want, q, &err) == GPT_OK &&
               memcmp(p, q, (size_t)count * 4) == 0;
    }
    gpt_checkpoint_close(x);
    gpt_checkpoint_close(y);
    return same;
}

static void test_layouts(void)
{
    int statuses[MAX_RANKS];

    for (size_t i = 0; i < N_LAYOUTS; i++) {
        const struct save_job job = {i, i % 2 == 1};

        job_run(ranks_of(&layouts[i]), save_rank, &job, statuses);
        ok(all_well(ranks_of(&layouts[i]), statuses), "saved at %s%s",
           layouts[i].name, job.background ? ", in the background" : "");
        ok(same_tensors(0, i), "the same tensors as at %s", layouts[0].name);
    }
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        job_run(ranks_of(&layouts[i]), load_rank, &layouts[i], statuses);
        ok(all_well(ranks_of(&layouts[i]), statuses),
           "%s loads what all of them saved", layouts[i].name);
    }
}

/* Rank 0 says that the others need not wait for it any more. */
static void is_ready(struct rank *rank)
{
    struct gpt_err err = {0};
    int64_t n;

    (void)!gpt_store_add(rank->store, "ready", 1, &n, &err);
}

static void wait_for_first(struct rank *rank)
{
    struct gpt_err err = {0};
    int64_t n = 0;

    while (n == 0 &&
           gpt_store_add(rank->store, "ready", 0, &n, &err) == GPT_OK)
        usleep(20000);
}

/* Rank 1 does not come to a save. Rank 0 waits as long as the world does by
 * then, and not as long as it did when the saver was opened. */
static int save_alone(struct rank *rank, const void *context)
{
    const struct gpt_train_state state = {.iteration = 8};
    struct gpt_err err = {0};
    struct gpt_saver *saver;
    struct member m;
    char dir[300];

    (void)context;
    if (open_member(&m, &layouts[1], rank, &err) != GPT_OK)
        return say(rank, "open", &err);
    snprintf(dir, sizeof(dir), "%s/alone", root);
    m.options.save = dir;
    if (gpt_saver_open(&saver, m.replica, &m.context, &err) != GPT_OK)
        return say(rank, "save", &err);
    m.world.timeout = 1;
    const double begun = gpt_now();
    int status = GPT_OK;
    if (rank->rank == 0)
        status = gpt_saver_save(saver, &state, &err);
    else
        wait_for_first(rank);
    const double seconds = gpt_now() - begun;
    if (rank->rank == 0)
        is_ready(rank);
    gpt_saver_close(saver);
    gpt_replica_close(m.replica);
    if (rank->rank > 0)
        return 0;
    return status == GPT_EFAIL && seconds < WORLD_SECONDS / 2 &&
                   strstr(err.text, "rank 1 has not come to 'save'")
               ? 0
               : say(rank, "not late", &err);
}

static void test_missing_rank(void)
{
    int statuses[MAX_RANKS];

    job_run(ranks_of(&layouts[1]), save_alone, NULL, statuses);
    ok(all_well(ranks_of(&layouts[1]), statuses),
       "a rank that does not come to a save is missed in time");
}

/* A file that several ranks would read: one of them checks its sum, all name
 * it. */
static int load_damaged(struct rank *rank, const void *context)
{
    const struct layout *layout = &layouts[3];
    struct gpt_train_state state = {0};
    struct gpt_err err = {0};
    struct member m;
    char dir[300];

    if (open_member(&m, layout, rank, &err) != GPT_OK)
        return say(rank, "open", &err);
    dir_of(dir, sizeof(dir), 1);
    m.options.load = dir;
    int status =
        gpt_state_load(m.replica, &state, &m.context, &m.plan, &err);
    if (status != GPT_EDATA || !strstr(err.text, context))
        return say(rank, "damaged", &err);
    gpt_replica_close(m.replica);
    return 0;
}

static void test_damage(void)
{
    static const char *const files[] = {
        "model_tp00_pp01_dp00.safetensors", "vocab.json",
        "optimizer_exp_avg_sq_tp01_pp01_dp01.safetensors"};
    char path[400];
    int statuses[MAX_RANKS];

    for (size_t i = 0; i < GPT_COUNT(files); i++) {
        snprintf(path, sizeof(path), "%s/1/iter_0000007/%s", root, files[i]);
        FILE *f = fopen(path, "r+");
        if (!f || fseek(f, -1, SEEK_END) != 0)
            exit(1);
        int c = fgetc(f);
        fseek(f, -1, SEEK_END);
        fputc(c ^ 1, f);
        fclose(f);
        job_run(4, load_damaged, files[i], statuses);
        ok(all_well(4, statuses), "%s damaged: named on all ranks", files[i]);
        f = fopen(path, "r+");
        fseek(f, -1, SEEK_END);
        fputc(c, f);
        fclose(f);
    }
}

/* ---- failures ---- */

enum moment { NEVER, BEFORE, BEGUN, WRITTEN, N_MOMENTS };

struct failure {
    int64_t rank;     /* which fails */
    enum moment dies; /* by SIGKILL */
    bool full;        /* its files may not grow */
    const char *says; /* what the others say */
    int64_t of;       /* which rank the error is of; -1: its text says it */
};

static void die_at(const struct failure *f, const struct rank *rank,
                   enum moment moment)
{
    if (f->dies == moment && rank->rank == f->rank)
        kill(getpid(), SIGKILL);
}

/* Iteration 8 of layout 1, in which one rank fails. */
static int failing_rank(struct rank *rank, const void *context)
{
    const struct failure *f = context;
    struct gpt_agreement peers = {.store = rank->store,
                              .name = "save",
                              .rank = rank->rank,
                              .size = rank->size,
                              .timeout = 2.4};
    const struct gpt_config config = tiny();
    struct gpt_checkpoint_writer *w;
    struct gpt_err err = {0};
    char dir[300], name[40];
    static float x[20000];
    const struct gpt_tensor_slice slice = {
        "w", GPT_F32, 2, {rank->size, 20000}, {rank->rank, 0}, {1, 20000}, x};
    const struct rlimit limit = {40000, 40000};

    dir_of(dir, sizeof(dir), 1);
    die_at(f, rank, BEFORE);
    if (gpt_agreement_begin(&peers, &err) != GPT_OK)
        return say(rank, "begin", &err);
    int status = gpt_checkpoint_create_all(&w, dir, 8, 0, &peers, &err);
    if (status == GPT_OK) {
        die_at(f, rank, BEGUN);
        if (f->full && rank->rank == f->rank) {
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &limit);
        }
        snprintf(name, sizeof(name), "model_%lld.safetensors",
                 (long long)rank->rank);
        status = gpt_checkpoint_write(w, name, &slice, 1, &err);
        die_at(f, rank, WRITTEN);
        status = gpt_checkpoint_commit_all(w, status, &config, 1, 1, NULL,
                                           &err);
    }
    gpt_agreement_end(&peers);
    if (status == GPT_OK || !strstr(err.text, f->says) || err.rank != f->of)
        return say(rank, "no failure, or another one", &err);
    return 0;
}

/* Iteration 7 of layout 1 is whole, and what the tracker names. */
static bool intact(void)
{
    struct gpt_checkpoint *c = NULL;
    struct gpt_err err = {0};
    char dir[300];

    dir_of(dir, sizeof(dir), 1);
    if (checkpoint_open(&c, dir, -1, true, &err) != GPT_OK)
        return false;
    int64_t iteration = gpt_checkpoint_iteration(c);
    gpt_checkpoint_close(c);
    return iteration == 7 && same_tensors(0, 1);
}

static void test_failures(void)
{
    static const struct failure failures[] = {
        {1, BEGUN, false, "rank 1 died or hangs", -1},
        {1, WRITTEN, false, "rank 1 died or hangs", -1},
        {0, BEFORE, false, "rank 0 has not come", -1},
        {0, WRITTEN, false, "rank 0 died or hangs", -1},
        {0, NEVER, true, "model_0.safetensors", 0},
        {2, NEVER, true, "model_2.safetensors", 2},
    };
    static const char *const moments[] = {"never", "before", "begun",
                                          "written"};

    for (size_t i = 0; i < GPT_COUNT(failures); i++) {
        const struct failure *f = &failures[i];
        int statuses[MAX_RANKS];
        bool well = true;

        job_run(3, failing_rank, f, statuses);
        for (int r = 0; r < 3; r++)
            well = well && (f->dies != NEVER && r == f->rank
                                ? WIFSIGNALED(statuses[r])
                                : statuses[r] == 0);
        ok(well && intact(), "rank %lld %s%s: named, the old one intact",
           (long long)f->rank, f->full ? "has a full disk" : "killed, ",
           f->full ? "" : moments[f->dies]);
    }
}

/* In the background: the save begins without an error; its failure is reported
 * later, on all ranks, and the next save may succeed. */
static int fail_later(struct rank *rank, const void *context)
{
    struct gpt_train_state state = {.iteration = 8};
    struct gpt_err err = {0};
    struct gpt_saver *saver;
    struct rlimit limit;
    struct member m;
    char dir[300];

    (void)context;
    if (open_member(&m, &layouts[5], rank, &err) != GPT_OK)
        return say(rank, "open", &err);
    dir_of(dir, sizeof(dir), 1);
    m.options.save = dir;
    m.options.async_save = true;
    walk(&m, put);
    getrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit low = {5000, limit.rlim_max};
    if (rank->rank == 1)
        setrlimit(RLIMIT_FSIZE, &low);
    if (gpt_saver_open(&saver, m.replica, &m.context, &err) != GPT_OK ||
        gpt_saver_save(saver, &state, &err) != GPT_OK)
        return say(rank, "save", &err);
    int status = GPT_OK;
    for (int i = 0; i < 3000 && status == GPT_OK; i++) {
        usleep(20000);
        status = gpt_saver_check(saver, &err);
    }
    if (status != GPT_EIO || err.rank != 1 ||
        gpt_saver_saved(saver) != -1)
        return say(rank, "check", &err);
    setrlimit(RLIMIT_FSIZE, &limit);
    snprintf(dir, sizeof(dir), "%s/later", root);
    if (gpt_saver_save(saver, &state, &err) != GPT_OK ||
        gpt_saver_wait(saver, &err) != GPT_OK || gpt_saver_saved(saver) != 8)
        return say(rank, "save again", &err);
    gpt_saver_close(saver);
    gpt_replica_close(m.replica);
    return 0;
}

static void test_background_failure(void)
{
    int statuses[MAX_RANKS];

    job_run(3, fail_later, NULL, statuses);
    ok(all_well(3, statuses) && intact(),
       "a full disk in the background: told later, the old one intact");
}

/* The machine stops while checkpoints are written: there is the old one or the
 * new one. */
static int save_many(struct rank *rank, const void *context)
{
    const useconds_t *delay = context;
    struct gpt_train_state state = {.iteration = 1};
    struct gpt_err err = {0};
    struct gpt_saver *saver;
    struct member m;
    char dir[300];

    if (open_member(&m, &layouts[4], rank, &err) != GPT_OK)
        return say(rank, "open", &err);
    snprintf(dir, sizeof(dir), "%s/many", root);
    m.options.save = dir;
    m.options.keep_checkpoints = 2;
    walk(&m, put);
    if (gpt_saver_open(&saver, m.replica, &m.context, &err) != GPT_OK)
        return say(rank, "open", &err);
    for (; state.iteration < 1000; state.iteration++) {
        if (gpt_saver_save(saver, &state, &err) != GPT_OK)
            return say(rank, "save", &err);
        if (state.iteration == 1 && fork() == 0) {
            usleep(*delay);
            kill(getppid(), SIGKILL);
            _exit(0);
        }
    }
    return 1;
}

static void test_stops(void)
{
    char dir[300];
    int bad = 0;

    snprintf(dir, sizeof(dir), "%s/many", root);
    for (useconds_t delay = 1000; delay < 60000; delay += 3700) {
        struct gpt_checkpoint *c = NULL;
        struct gpt_err err = {0};
        int statuses[MAX_RANKS];

        job_run(4, save_many, &delay, statuses);
        for (int r = 0; r < 4; r++)
            bad += !WIFSIGNALED(statuses[r]);
        if (checkpoint_open(&c, dir, -1, true, &err) != GPT_OK) {
            printf("# %s\n", err.text);
            bad++;
        }
        gpt_checkpoint_close(c);
    }
    is_int(bad, 0, "all killed at any time: always a whole one");
}

/* ---- a directory that is not shared ---- */

static int lonely_rank(struct rank *rank, const void *context)
{
    struct gpt_agreement peers = {.store = rank->store,
                              .name = "save",
                              .rank = rank->rank,
                              .size = rank->size,
                              .timeout = WORLD_SECONDS};
    struct gpt_checkpoint_writer *w;
    struct gpt_err err = {0};
    char dir[300];

    (void)context; /* each has a directory of its own under one name */
    snprintf(dir, sizeof(dir), "%s/alone%lld", root, (long long)rank->rank);
    if (mkdir(dir, 0777) != 0 || chdir(dir) != 0 ||
        gpt_agreement_begin(&peers, &err) != GPT_OK)
        return 1;
    int status = gpt_checkpoint_create_all(&w, "ckpt", 1, 0, &peers, &err);
    gpt_agreement_end(&peers);
    if (status != GPT_EIO || err.rank != 1 || err.text[0] != '\'' ||
        !strstr(err.text, "is 'ckpt' on a file system that all ranks share?"))
        return say(rank, "alone", &err);
    return 0;
}

static void test_not_shared(void)
{
    int statuses[MAX_RANKS];

    job_run(2, lonely_rank, NULL, statuses);
    ok(all_well(2, statuses), "no shared file system: said so");
}

int main(void)
{
    char path[300];

    snprintf(root, sizeof(root), "%s/gpt-saver.XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    make_tree(root);
    snprintf(path, sizeof(path), "%s/vocab", root);
    FILE *f = fopen(path, "w");
    if (!f || fputs("{}\n", f) < 0 || fclose(f) != 0)
        return 1;
    test_layouts();
    test_missing_rank();
    test_damage();
    test_failures();
    test_background_failure();
    test_stops();
    test_not_shared();
    remove_tree(root);
    return tap_done();
}
