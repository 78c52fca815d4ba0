/* Training over several ranks. In every layout the losses and gradient norms of
 * ten steps, an evaluation, and the logits of texts are those of a single rank.
 * The same layout gives the same bits with overlapped and with waited
 * communication, and with memory of the host and of a device. Copies on several
 * ranks stay equal. Memory is allocated as predicted. The printed table has the
 * largest relative differences. t54-layouts.sh tests all layouts with
 * gpt-train. */
#include "parallel/comm_internal.h"
#include "tests/lib/tap.h"
#include "tests/lib/trainer.h"
#include "tests/lib/tree.h"

#include "base/clock.h"
#include "base/hash.h"
#include "train/texts.h"
#include "cmd/train/estimate.h"

#include <signal.h>
#include <sys/mman.h>

enum { LAYERS = 4, T = 16, B = 2, BATCH = 4, STEPS = 10, MOST_RANKS = 8,
       TEXTS = 11 };

/* What a rank found; in memory that all processes share. */
struct found {
    double loss[STEPS], norm[STEPS], valid, texts[TEXTS];
    uint64_t replicated; /* hash of all parameters */
    uint64_t common;     /* of those that tensor parallel ranks have, too */
    uint64_t words;      /* of the word table, if it is here */
    int64_t tp_rank, pp_rank;
};

struct job {
    const struct layout *layout;
    const char *prefix;
    bool twice;  /* is it to be run again, the other way round in overlap? */
    bool staged; /* then as on a device whose memory is not the host's */
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

/* ---- ten steps ---- */

static int evaluate(struct trainer *t, struct found *f, struct gpt_err *err)
{
    const int64_t n = BATCH / t->layout->dp;
    struct gpt_evaluation sum = {0};

    GPT_TRY(gpt_feed_read(t->feed, GPT_VALID, 0, n, err));
    GPT_TRY(gpt_step_eval(t->replica, t->feed, n, &sum, err));
    f->valid = sum.loss / (double)sum.rows;
    return GPT_OK;
}

/* Adds up what a row says, and counts rows: all of it must come from the logits
 * that one rank would have. */
static void add_row(void *user, int64_t text, int64_t row, const float *logits,
                    double answer[GPT_TEXT_ANSWERS])
{
    const int64_t vocab = *(const int64_t *)user;
    double sum = 0;

    for (int64_t i = 0; i < vocab; i++)
        sum += (double)(logits[i] * logits[i]) * (double)((i + row + text) % 7);
    answer[0] += sum;
    answer[1]++;
}

/* More texts than a pass of one rank takes, of several lengths. */
static int read_texts(struct trainer *t, struct found *f, int64_t *memory,
                      struct gpt_err *err)
{
    int32_t tokens[TEXTS + 4];
    struct gpt_given texts[TEXTS];
    double answers[TEXTS][GPT_TEXT_ANSWERS];
    const struct gpt_topology *w = &t->world->topology;
    struct gpt_texts *reader;
    int64_t vocab, host;

    for (int32_t i = 0; i < TEXTS + 4; i++)
        tokens[i] = i * i % 47;
    for (int64_t i = 0; i < TEXTS; i++)
        texts[i] = (struct gpt_given){.tokens = tokens + i % 3,
                                      .n = 2 + i,
                                      .from = i % 2,
                                      .to = 1 + i};
    gpt_texts_memory(t->replica, w->size[GPT_DP], memory, &host);
    GPT_TRY(gpt_texts_open(&reader, t->replica, t->feed, w->size[GPT_DP],
                           w->at[GPT_DP], err));
    vocab = gpt_texts_vocab(reader);
    const struct gpt_given_reader rows = {add_row, &vocab};
    int status = gpt_texts_read(reader, texts, TEXTS, &rows, answers, err);
    for (int64_t i = 0; i < TEXTS; i++) {
        f->texts[i] = answers[i][0];
        if (status == GPT_OK &&
            (int64_t)answers[i][1] != texts[i].to - texts[i].from)
            status = gpt_fail(err, GPT_EFAIL, "text %d: %g rows", (int)i,
                              answers[i][1]);
    }
    gpt_texts_close(reader);
    return status;
}

static void hash_params(const struct gpt_replica *r, struct found *f)
{
    f->tp_rank = r->o.layout.at[GPT_TP];
    f->pp_rank = r->o.layout.at[GPT_PP];
    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];
        const float *p = r->params + s->offset;
        size_t bytes = (size_t)s->count * sizeof(*p);

        f->replicated = gpt_hash64(p, bytes, f->replicated);
        if (s->param->split == GPT_SPLIT_NONE)
            f->common = gpt_hash64(p, bytes, f->common);
        if (s->param->role == GPT_WORD_EMBEDDING)
            f->words = gpt_hash64(p, bytes, 0);
    }
}

struct asked {
    int64_t rank, step;
};

/* Rank 0 would stop after step 6. */
static void ask(void *context, struct gpt_step *step)
{
    const struct asked *a = context;

    step->stop = a->step == 6 && a->rank == 0;
    step->signal = step->stop ? SIGUSR2 : 0;
}

/* Host memory that a communicator holds now. */
static int64_t held_by(const struct gpt_comm *c)
{
    return c && c->carrier && c->carrier->held ? c->carrier->held(c) : 0;
}

/* Host memory of all communicators. */
static int64_t held(const struct gpt_world *w)
{
    int64_t sum = 0;

    for (int i = 0; i < GPT_N_GROUPS; i++)
        sum += held_by(w->comm[i]);
    return sum + held_by(w->reduce);
}

static int train(struct trainer *t, void *arg, struct gpt_err *err)
{
    const struct job *j = arg;
    struct found *f = &j->found[t->world->launch.rank];
    int64_t predicted, texts_memory;

    *f = (struct found){.tp_rank = -1};
    for (int64_t i = 0; i < STEPS; i++) {
        struct gpt_step step = {
            .ask = ask,
            .context = &(struct asked){t->world->launch.rank, i},
        };

        GPT_TRY(trainer_step(t, i, &step, err));
        if (step.stop != (i == 6) || step.signal != (i == 6 ? SIGUSR2 : 0))
            return gpt_fail(err, GPT_EFAIL, "not all ranks would stop");
        f->loss[i] = step.loss;
        f->norm[i] = step.grad_norm;
    }
    GPT_TRY(evaluate(t, f, err));
    GPT_TRY(read_texts(t, f, &texts_memory, err));
    GPT_TRY(trainer_predicted(t, &predicted, err));
    predicted += texts_memory;
    if (trainer_allocated != predicted)
        return gpt_fail(err, GPT_EFAIL, "%lld bytes allocated, %lld predicted",
                        (long long)trainer_allocated, (long long)predicted);
    GPT_TRY(gpt_estimate_calls(t->replica, &t->world->topology, &predicted,
                               err));
    if (held(t->world) != predicted)
        return gpt_fail(err, GPT_EFAIL, "communicators hold %lld bytes, not "
                        "%lld", (long long)held(t->world),
                        (long long)predicted);
    hash_params(t->replica, f);
    return GPT_OK;
}

static int be_rank(int64_t rank, void *arg)
{
    const struct job *j = arg;
    struct trainer t = {
        .layout = j->layout,
        .config = config_of(j->layout),
        .micro_batch = B,
        .seq_length = T,
        .batch = BATCH,
        .steps = STEPS,
        .prefix = j->prefix,
        .staged = j->staged,
    };

    (void)rank;
    return trainer_run(&t, train, arg);
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

/* True when ranks that should hold the same values do. */
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
        if (memcmp(f[a].loss, f[0].loss, sizeof(f->loss)) != 0 ||
            memcmp(f[a].norm, f[0].norm, sizeof(f->norm)) != 0 ||
            memcmp(f[a].texts, f[0].texts, sizeof(f->texts)) != 0 ||
            memcmp(&f[a].valid, &f[0].valid, sizeof(f->valid)) != 0)
            return false;
    return true;
}

static bool run_job(struct job *j, struct found *found, int64_t size)
{
    j->found = found;
    return ranks_run(size, 1, 300, be_rank, j) == 0;
}

static void test_layout(struct job *j, const struct found *want)
{
    const struct layout *l = j->layout;
    const int64_t size = l->tp * l->pp * l->dp;
    const size_t bytes = MOST_RANKS * sizeof(struct found);
    const double begun = gpt_now();
    char name[LAYOUT_NAME];
    struct found *f = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    layout_name(l, name);
    if (f == MAP_FAILED ||
        !ok(run_job(j, f, size), "%s: %lld ranks", name, (long long)size))
        return;
    double loss = relative(f->loss, want->loss, STEPS);
    double norm = relative(f->norm, want->norm, STEPS);
    double valid = relative(&f->valid, &want->valid, 1);
    double texts = relative(f->texts, want->texts, TEXTS);
    printf("# %-41s loss %7.1e  norm %7.1e  validation %7.1e  %4.1f s\n", name,
           loss, norm, valid, gpt_now() - begun);
    ok(loss <= 1e-6 && valid <= 1e-6, "%s: losses of a single rank", name);
    ok(texts <= 1e-4, "%s: logits of texts of a single rank: %g", name, texts);
    ok(norm <= 1e-5, "%s: gradient norms of a single rank", name);
    ok(same_results(f, size), "%s: the same results on all ranks", name);
    ok(consistent(f, size, !l->untied), "%s: replicas stay the same", name);
    if (j->twice) {
        struct layout other = *l;

        other.overlap = !l->overlap;
        j->layout = &other;
        j->staged = true;
        ok(run_job(j, f + MOST_RANKS, size) &&
               memcmp(f, f + MOST_RANKS, (size_t)size * sizeof(*f)) == 0,
           "%s: the same bits %s overlap", name,
           l->overlap ? "without" : "with");
    }
    munmap(f, 2 * bytes);
}

#define NONE GPT_RECOMPUTE_NONE
#define SELECTIVE GPT_RECOMPUTE_SELECTIVE
#define UNIFORM GPT_RECOMPUTE_UNIFORM
#define BLOCK GPT_RECOMPUTE_BLOCK

/* A few layouts that have everything in them. */
static void test_some(const char *prefix, const struct found *single)
{
    static const struct {
        struct layout layout;
        bool twice;
    } rows[] = {
        {{1, 1, 2, 1, GPT_ZERO_OFF, false, NONE, false, false, false}, false},
        {{1, 1, 4, 1, GPT_ZERO_1, false, NONE, true, true, false}, false},
        {{1, 1, 4, 1, GPT_ZERO_2, false, NONE, false, false, false}, true},
        {{1, 2, 1, 1, GPT_ZERO_OFF, false, UNIFORM, false, false, false},
         false},
        {{1, 4, 1, 1, GPT_ZERO_OFF, false, NONE, true, false, false}, false},
        {{1, 2, 1, 2, GPT_ZERO_OFF, false, NONE, false, false, false}, false},
        {{1, 2, 2, 1, GPT_ZERO_1, false, NONE, false, false, false}, false},
        {{1, 2, 2, 2, GPT_ZERO_2, false, BLOCK, false, true, false}, true},
        {{2, 1, 1, 1, GPT_ZERO_OFF, false, NONE, true, true, false}, true},
        {{2, 1, 2, 1, GPT_ZERO_2, true, NONE, false, true, false}, true},
        {{2, 2, 1, 2, GPT_ZERO_OFF, true, SELECTIVE, false, true, false},
         false},
        {{2, 2, 2, 1, GPT_ZERO_1, true, NONE, false, true, false}, true},
        {{1, 1, 2, 1, GPT_ZERO_OFF, false, NONE, false, false, true}, false},
        {{2, 2, 1, 1, GPT_ZERO_OFF, true, NONE, false, true, true}, true},
        {{2, 1, 4, 1, GPT_ZERO_2, false, NONE, false, true, true}, true},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct job j = {&rows[i].layout, prefix, rows[i].twice, false, NULL};

        test_layout(&j, single + (rows[i].layout.muon ? 2
                                 : rows[i].layout.untied));
    }
}

static void test_all(const char *prefix)
{
    struct found *single = mmap(NULL, 3 * sizeof(*single),
                                PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    /* tied, untied, tied with Muon */
    for (int i = 0; i < 3; i++) {
        const struct layout one = {.tp = 1, .pp = 1, .dp = 1, .chunks = 1,
                                   .untied = i == 1, .muon = i == 2};
        struct job j = {&one, prefix, false, false, NULL};

        if (!ok(run_job(&j, single + i, 1), "one rank"))
            return;
        ok(single[i].loss[STEPS - 1] < single[i].loss[0] - 0.05,
           "its loss falls");
    }
    if (!ranks_possible)
        skip("several ranks: built without Gloo");
    else
        test_some(prefix, single);
    munmap(single, 3 * sizeof(*single));
}

int main(void)
{
    char dir[] = "/tmp/gpt-test-layouts.XXXXXX", path[64];
    struct gpt_err err;

    make_tree(dir);
    snprintf(path, sizeof(path), "%s/data", dir);
    ok(make_dataset(path, &err) == GPT_OK, "a data set");
    test_all(path);
    remove_tree(dir);
    return tap_done();
}
