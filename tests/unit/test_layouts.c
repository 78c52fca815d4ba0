/* Training over several ranks: in every layout the losses and gradient norms of
 * ten steps, and an evaluation, are those of a single rank; the same layout
 * twice gives the same bits; what several ranks hold stays the same on all of
 * them. The table that is printed shows the largest relative differences. */
#include "../lib/dataset.h"
#include "../lib/ranks.h"
#include "../lib/tap.h"
#include "../lib/tree.h"

#include "base/hash.h"
#include "base/num.h"
#include "base/progress.h"
#include "train/step.h"

#include <sys/mman.h>

enum { LAYERS = 4, T = 16, B = 2, BATCH = 4, STEPS = 10 };

struct layout {
    const char *name;
    int64_t tp, pp, dp, chunks;
    enum gpt_zero zero;
    bool untied, sequence_parallel, twice;
};

/* What a rank found; in memory that all processes share. */
struct found {
    double loss[STEPS], norm[STEPS], valid;
    uint64_t replicated; /* hash of all parameters */
    uint64_t common;     /* of those that tensor parallel ranks have, too */
    uint64_t words;      /* of the word table, if it is here */
    int64_t tp_rank, pp_rank;
};

struct job {
    const struct layout *layout;
    const char *prefix;
    struct found *found; /* by rank */
};

static struct gpt_config config_of(const struct layout *l)
{
    struct gpt_config c = {
        .num_layers = LAYERS,
        .hidden_size = 32,
        .num_attention_heads = 4,
        .num_query_groups = 4,
        .max_positions = T,
        .vocab_size = 50,
        .init_std = 0.02,
        .norm_epsilon = 1e-5,
        .hidden_dropout = 0.1,
        .attention_dropout = 0.1,
        .tied_embeddings = !l->untied,
    };
    struct gpt_err err;

    if (gpt_config_complete(&c, 16, 4, &err) != GPT_OK)
        exit(1);
    return c;
}

static int open_corpus(struct gpt_corpus **corpus, const char *prefix,
                       struct gpt_err *err)
{
    const char *const paths[] = {prefix};
    const struct gpt_corpus_options o = {
        .data_path = paths,
        .n_data_path = 1,
        .split = "80,20,0",
        .seq_length = T,
        .seed = 5,
        .vocab_size = 50,
        .n_samples = {[GPT_TRAIN] = STEPS * BATCH * B,
                      [GPT_VALID] = BATCH * B},
    };
    return gpt_corpus_open(corpus, &o, err);
}

static int open_replica(struct gpt_replica **r, struct gpt_backend *be,
                        const struct layout *l, struct gpt_world *w,
                        struct gpt_err *err)
{
    struct gpt_replica_options o = {
        .config = config_of(l),
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_grad = 1},
        .act = GPT_F32,
        .micro_batch = B,
        .seq_length = T,
        .micro_batches = BATCH / l->dp,
        .zero = l->zero,
        .sequence_parallel = l->sequence_parallel,
        .seed = 5,
        .world = w,
    };

    GPT_TRY(gpt_layout_init(&o.layout, &o.config, &w->topology, 0, 0, err));
    if (l->zero != GPT_ZERO_OFF) {
        o.layout.shards = l->dp;
        o.layout.shard = w->topology.dp_rank;
    }
    GPT_TRY(gpt_replica_new(r, be, &o, err));
    GPT_TRY(gpt_replica_open(*r, err));
    return gpt_replica_init(*r, err);
}

static int open_feed(struct gpt_feed **feed, const struct gpt_corpus *corpus,
                     const struct layout *l, const struct gpt_world *w,
                     struct gpt_err *err)
{
    const struct gpt_feed_options o = {
        .corpus = corpus,
        .masks = {.eod = 0, .eod_mask_loss = true},
        .micro_batch = B,
        .seq_length = T,
        .max_micro_batches = BATCH / l->dp,
        .dp_size = l->dp,
        .dp_rank = w->topology.dp_rank,
    };
    return gpt_feed_open(feed, &o, err);
}

/* ---- ten steps ---- */

static int train(struct gpt_replica *r, struct gpt_feed *feed,
                 const struct layout *l, struct found *f, struct gpt_err *err)
{
    const int64_t n = BATCH / l->dp;
    int64_t rows = 0;

    for (int64_t i = 0; i < STEPS; i++) {
        struct gpt_step step = {
            .first_sample = i * BATCH * B,
            .micro_batches = n,
            .lr = 2e-3,
            .weight_decay = 0.1,
            .stop = i == 6 && r->o.world->launch.rank == 0,
        };
        GPT_TRY(gpt_feed_read(feed, GPT_TRAIN, step.first_sample, n, err));
        GPT_TRY(gpt_step_train(r, feed, &step, err));
        if (step.stop != (i == 6))
            return gpt_fail(err, GPT_EFAIL, "not all ranks would stop");
        f->loss[i] = step.loss;
        f->norm[i] = step.grad_norm;
    }
    GPT_TRY(gpt_feed_read(feed, GPT_VALID, 0, n, err));
    GPT_TRY(gpt_step_eval(r, feed, n, &f->valid, &rows, err));
    f->valid /= (double)rows;
    return GPT_OK;
}

static void hash_params(const struct gpt_replica *r, struct found *f)
{
    f->tp_rank = r->o.layout.tp_rank;
    f->pp_rank = r->o.layout.pp_rank;
    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];
        const float *p = r->params + s->offset;
        size_t bytes = (size_t)s->count * sizeof *p;
        f->replicated = gpt_hash64(p, bytes, f->replicated);
        if (s->param->split_dim < 0)
            f->common = gpt_hash64(p, bytes, f->common);
        if (s->param->role == GPT_WORD_EMBEDDING)
            f->words = gpt_hash64(p, bytes, 0);
    }
}

static int train_rank(struct gpt_world *w, const struct job *j,
                      struct gpt_err *err)
{
    struct found *f = &j->found[w->launch.rank];
    struct gpt_corpus *corpus = NULL;
    struct gpt_replica *r = NULL;
    struct gpt_feed *feed = NULL;
    struct gpt_backend *be;
    int status;

    *f = (struct found){.tp_rank = -1};
    GPT_TRY_GOTO(status, gpt_backend_cpu(&be, err), out);
    GPT_TRY_GOTO(status, gpt_world_connect(w, be, err), out);
    GPT_TRY_GOTO(status, open_corpus(&corpus, j->prefix, err), out);
    GPT_TRY_GOTO(status, open_replica(&r, be, j->layout, w, err), out);
    GPT_TRY_GOTO(status, open_feed(&feed, corpus, j->layout, w, err), out);
    GPT_TRY_GOTO(status, train(r, feed, j->layout, f, err), out);
    hash_params(r, f);
out:
    gpt_feed_close(feed);
    gpt_replica_close(r);
    gpt_corpus_close(corpus);
    return status;
}

static int be_rank(int64_t rank, void *arg)
{
    const struct job *j = arg;
    const struct gpt_world_options o = {
        .tp_size = j->layout->tp,
        .pp_size = j->layout->pp,
        .chunks = j->layout->chunks,
        .timeout = 20,
        .timeout_later = 20,
    };
    struct gpt_world *w = NULL;
    struct gpt_err err = {0};

    int status = gpt_world_open(&w, &o, &err);
    if (status == GPT_OK)
        status = train_rank(w, j, &err);
    status = gpt_world_end(w, status, &err);
    gpt_world_close(w);
    if (status != GPT_OK)
        printf("# rank %lld: %s\n", (long long)rank, err.text);
    return status;
}

/* ---- comparisons ---- */

static double relative(const double *got, const double *want, int n)
{
    double worst = 0;

    for (int i = 0; i < n; i++) {
        double e = fabs(got[i] - want[i]) / fabs(want[i]);
        worst = e > worst || isnan(e) ? e : worst;
    }
    return worst;
}

/* Do ranks that should hold the same hold the same? */
static bool consistent(const struct found *f, int64_t size, bool tied)
{
    for (int64_t a = 0; a < size; a++)
        for (int64_t b = 0; b < a; b++) {
            const bool stage = f[a].pp_rank == f[b].pp_rank;
            const bool part = f[a].tp_rank == f[b].tp_rank;
            if ((stage && part && f[a].replicated != f[b].replicated) ||
                (stage && f[a].common != f[b].common) ||
                (tied && part && f[a].words && f[b].words &&
                 f[a].words != f[b].words))
                return false;
        }
    return true;
}

static bool same_results(const struct found *f, int64_t size)
{
    for (int64_t a = 1; a < size; a++)
        if (memcmp(f[a].loss, f[0].loss, sizeof f->loss) != 0 ||
            memcmp(f[a].norm, f[0].norm, sizeof f->norm) != 0 ||
            memcmp(&f[a].valid, &f[0].valid, sizeof f->valid) != 0)
            return false;
    return true;
}

static bool run_job(struct job *j, struct found *found, int64_t size)
{
    j->found = found;
    return ranks_run(size, 1, 60, be_rank, j) == 0;
}

static void test_layout(struct job *j, const struct found *want)
{
    const struct layout *l = j->layout;
    const int64_t size = l->tp * l->pp * l->dp;
    const size_t bytes = RANKS_MAX * sizeof(struct found);
    const double begun = gpt_now();
    struct found *f = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (f == MAP_FAILED ||
        !ok(run_job(j, f, size), "%s: %lld ranks", l->name, (long long)size))
        return;
    double loss = relative(f->loss, want->loss, STEPS);
    double norm = relative(f->norm, want->norm, STEPS);
    double valid = relative(&f->valid, &want->valid, 1);
    printf("# %-24s loss %8.1e  norm %8.1e  validation %8.1e  %4.1f s\n",
           l->name, loss, norm, valid, gpt_now() - begun);
    ok(loss <= 1e-6 && valid <= 1e-6, "%s: losses of a single rank", l->name);
    ok(norm <= 1e-5, "%s: gradient norms of a single rank", l->name);
    ok(same_results(f, size), "%s: the same results on all ranks", l->name);
    ok(consistent(f, size, !l->untied), "%s: replicas stay the same", l->name);
    if (l->twice)
        ok(run_job(j, f + RANKS_MAX, size) &&
               memcmp(f, f + RANKS_MAX, (size_t)size * sizeof *f) == 0,
           "%s: the same bits again", l->name);
    munmap(f, 2 * bytes);
}

static void test_all(const char *prefix)
{
    static const struct layout layouts[] = {
        {"DP 2", 1, 1, 2, 1, GPT_ZERO_OFF, false, false, false},
        {"DP 4 ZeRO-1 untied", 1, 1, 4, 1, GPT_ZERO_1, true, false, false},
        {"DP 4 ZeRO-2", 1, 1, 4, 1, GPT_ZERO_2, false, false, true},
        {"PP 2", 1, 2, 1, 1, GPT_ZERO_OFF, false, false, false},
        {"PP 4 untied", 1, 4, 1, 1, GPT_ZERO_OFF, true, false, false},
        {"PP 2 V 2", 1, 2, 1, 2, GPT_ZERO_OFF, false, false, false},
        {"PP 2 DP 2 ZeRO-1", 1, 2, 2, 1, GPT_ZERO_1, false, false, false},
        {"PP 2 V 2 DP 2 ZeRO-2", 1, 2, 2, 2, GPT_ZERO_2, false, false, true},
        {"TP 2 untied", 2, 1, 1, 1, GPT_ZERO_OFF, true, false, false},
        {"TP 2 SP DP 2 ZeRO-2", 2, 1, 2, 1, GPT_ZERO_2, false, true, true},
        {"TP 2 SP PP 2 V 2", 2, 2, 1, 2, GPT_ZERO_OFF, false, true, false},
        {"TP 2 SP PP 2 DP 2 ZeRO-1", 2, 2, 2, 1, GPT_ZERO_1, false, true,
         false},
    };
    struct found *single = mmap(NULL, 2 * sizeof *single,
                                PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    for (int untied = 0; untied < 2; untied++) {
        const struct layout one = {
            "a single rank", 1, 1, 1, 1, GPT_ZERO_OFF, untied,
            false, false};
        struct job j = {.layout = &one, .prefix = prefix};
        if (!ok(run_job(&j, single + untied, 1), "one rank"))
            return;
        ok(single[untied].loss[STEPS - 1] < single[untied].loss[0] - 0.05,
           "its loss falls");
    }
    for (size_t i = 0; i < GPT_COUNT(layouts); i++) {
        struct job j = {.layout = &layouts[i], .prefix = prefix};
        if (ranks_possible)
            test_layout(&j, single + layouts[i].untied);
        else
            skip("%s: built without Gloo", layouts[i].name);
    }
    munmap(single, 2 * sizeof *single);
}

int main(void)
{
    char dir[] = "/tmp/gpt-test-layouts.XXXXXX", path[64];
    struct gpt_err err;

    if (!mkdtemp(dir)) {
        printf("Bail out! no scratch directory\n");
        return 1;
    }
    snprintf(path, sizeof path, "%s/data", dir);
    ok(make_dataset(path, &err) == GPT_OK, "a data set");
    test_all(path);
    remove_tree(dir);
    return tap_done();
}
