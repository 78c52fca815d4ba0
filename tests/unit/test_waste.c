/* What a training step on a device does besides computing: it allocates
 * nothing, and the host waits for the device once, to read loss and norm; with
 * recorded passes it launches one graph for each pass. Work that runs as late
 * as it may, and recorded work, give the same bits. The emulated device counts
 * calls. */
#include "../lib/dataset.h"
#include "../lib/must.h"
#include "../lib/tap.h"
#include "../lib/tree.h"

#include "train/step.h"

#include <dlfcn.h>

enum { T = 8, B = 2, MICRO = 3, BATCH = B * MICRO, STEPS = 5 };

static struct gpt_backend *cpu, *emu;
static struct gpt_corpus *corpus;
static void (*counts)(long *allocations, long *waits, long *graphs);

/* ---- a run ---- */

struct variant {
    const char *name;
    enum gpt_dtype act;
    bool scaled, documents;
    enum gpt_recompute recompute;
};

struct run {
    struct gpt_replica *replica;
    struct gpt_feed *feed;
    double loss[STEPS];
    long allocations, waits, graphs; /* of the last step */
};

static void open_run(struct run *r, struct gpt_backend *be,
                     const struct variant *v, bool record)
{
    struct gpt_replica_options model = {
        .config = {.num_layers = 2,
                   .hidden_size = 32,
                   .num_attention_heads = 2,
                   .num_query_groups = 2,
                   .vocab_size = 50,
                   .max_positions = T,
                   .norm_epsilon = 1e-5,
                   .init_std = 0.02,
                   .hidden_dropout = 0.1,
                   .attention_dropout = 0.1,
                   .tied_embeddings = true},
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_grad = 1},
        .exec.act = v->act,
        .exec.micro_batch = B,
        .exec.seq_length = T,
        .micro_batches = MICRO,
        .exec.seed = 5,
        .exec.documents = v->documents,
        .exec.recompute = v->recompute,
        .exec.recompute_layers = 1,
        .exec.record = record,
    };
    struct gpt_feed_options feed = {
        .corpus = corpus,
        .masks = {.eod = 0, .reset_attention_mask = v->documents},
        .micro_batch = B,
        .seq_length = T,
        .max_micro_batches = MICRO,
        .be = be,
    };
    struct gpt_err err;

    if (v->scaled)
        model.loss_scale = (struct gpt_loss_scale_options){
            .initial = 1024, .min = 1, .window = 2, .hysteresis = 1};
    must(gpt_config_complete(&model.config, 8, 1, &err), &err);
    model.layout = GPT_LAYOUT_SINGLE(&model.config);
    must(gpt_replica_new(&r->replica, be, &model, &err), &err);
    must(gpt_replica_open(r->replica, &err), &err);
    must(gpt_replica_init(r->replica, &err), &err);
    feed.q = r->replica->q;
    must(gpt_feed_open(&r->feed, &feed, &err), &err);
}

static void close_run(struct run *r)
{
    gpt_feed_close(r->feed);
    gpt_replica_close(r->replica);
}

static void one_step(struct run *r, int i)
{
    struct gpt_step step = {.micro_batches = MICRO, .rates.lr = 0.01};
    struct gpt_err err;

    must(gpt_feed_read(r->feed, GPT_TRAIN, i * BATCH, MICRO, &err), &err);
    gpt_feed_ahead(r->feed, GPT_TRAIN, (i + 1) * BATCH, MICRO);
    must(gpt_step_train(r->replica, r->feed, &step, &err), &err);
    r->loss[i] = step.loss;
}

static void train(struct run *r, struct gpt_backend *be,
                  const struct variant *v, bool record)
{
    long allocations = 0, waits = 0, graphs = 0;

    open_run(r, be, v, record);
    for (int i = 0; i < STEPS; i++) {
        if (be == emu)
            counts(&allocations, &waits, &graphs);
        one_step(r, i);
    }
    if (be == emu)
        counts(&r->allocations, &r->waits, &r->graphs);
    r->allocations -= allocations;
    r->waits -= waits;
    r->graphs -= graphs;
    close_run(r);
}

/* A run with everything as late as it may be. */
static void train_late(struct run *r, const struct variant *v, bool record)
{
    setenv("GPT_CUDA_EMU_STREAMS", "late", 1);
    train(r, emu, v, record);
    unsetenv("GPT_CUDA_EMU_STREAMS");
}

/* ---- what is asked of it ---- */

static bool same_losses(const struct run *a, const struct run *b)
{
    return memcmp(a->loss, b->loss, sizeof(a->loss)) == 0;
}

static double apart(const struct run *a, const struct run *b)
{
    double most = 0;

    for (int i = 0; i < STEPS; i++)
        most = fmax(most, fabs(a->loss[i] - b->loss[i]) / b->loss[i]);
    return most;
}

static void check(const struct variant *v, const struct run *want)
{
    struct run now = {0}, late = {0}, recorded = {0}, both = {0};

    train(&now, emu, v, false);
    train_late(&late, v, false);
    train(&recorded, emu, v, true);
    train_late(&both, v, true);
    is_int(now.allocations, 0, "%s: a step allocates nothing", v->name);
    is_int(now.waits, 1, "%s: a step waits once", v->name);
    ok(same_losses(&now, &late), "%s: the same when all runs late", v->name);
    is_int(recorded.allocations, 0, "%s: nor a recorded one", v->name);
    is_int(recorded.waits, 1, "%s: which waits once, too", v->name);
    is_int(recorded.graphs, 2 * MICRO, "%s: passes are replayed", v->name);
    ok(same_losses(&now, &recorded), "%s: with the same losses", v->name);
    ok(same_losses(&now, &both), "%s: late ones, too", v->name);
    ok(apart(&now, want) < (v->act == GPT_F32 ? 1e-5 : 5e-3),
       "%s: losses follow the CPU's: %.2g", v->name, apart(&now, want));
    ok(now.loss[STEPS - 1] < now.loss[0], "%s: and fall", v->name);
}

static void all_variants(void)
{
    static const struct variant variants[] = {
        {.name = "float", .act = GPT_F32},
        {.name = "documents", .act = GPT_F32, .documents = true},
        {.name = "bf16", .act = GPT_BF16},
        {.name = "recomputed", .act = GPT_BF16,
         .recompute = GPT_RECOMPUTE_UNIFORM},
        {.name = "selective", .act = GPT_BF16,
         .recompute = GPT_RECOMPUTE_SELECTIVE},
        {.name = "fp16, scaled", .act = GPT_F16, .scaled = true},
    };
    struct run want[2] = {0};

    for (int i = 0; i < 2; i++)
        train(&want[i], cpu, &variants[i], true);
    for (size_t i = 0; i < GPT_COUNT(variants); i++)
        check(&variants[i], &want[variants[i].documents]);
}

/* Pinned memory that is changed while it may yet be read. */
static void changed_too_early(void)
{
    struct gpt_queue *q;
    struct gpt_err err;
    void *mem, *host;

    setenv("GPT_CUDA_EMU_STREAMS", "late", 1);
    must(emu->queue_open(emu, &q, &err), &err);
    unsetenv("GPT_CUDA_EMU_STREAMS");
    must(emu->alloc(emu, 64, "a block", &mem, &err), &err);
    must(emu->host_alloc(emu, 64, "its source", &host, &err), &err);
    emu->copy_in(q, mem, host, 64);
    is_int(emu->sync(q, &err), GPT_OK, "a copy from pinned memory");
    emu->copy_in(q, mem, host, 64);
    memset(host, 1, 64);
    is_int(emu->sync(q, &err), GPT_EDEVICE, "its source may not change: %s",
           err.text);
    emu->queue_close(q);
    emu->host_free(emu, host);
    emu->free(emu, mem);
}

static bool open_emulation(void)
{
    const char *build = getenv("BUILD");
    struct gpt_err err;
    char path[4096];

    setenv("GPT_PLUGIN_DIR", build ? build : "build", 0);
    if (gpt_backend_open(&emu, "cuda-emu", &err) != GPT_OK) {
        skip("%s", err.text);
        return false;
    }
    snprintf(path, sizeof(path), "%s/libgpt-cuda-emu.so",
             getenv("GPT_PLUGIN_DIR"));
    void *symbol = dlsym(dlopen(path, RTLD_NOW), "gpt_emu_counts");
    memcpy(&counts, &symbol, sizeof(counts));
    return ok(counts != NULL, "the emulation counts");
}

static void open_data(const char *prefix)
{
    const char *const paths[] = {prefix};
    struct gpt_corpus_options data = {
        .data_path = paths,
        .n_data_path = 1,
        .split = "80,20,0",
        .seq_length = T,
        .seed = 5,
        .vocab_size = 50,
        .n_samples = {[GPT_TRAIN] = BATCH * (STEPS + 1)},
    };
    struct gpt_err err;

    must(gpt_corpus_open(&corpus, &data, &err), &err);
}

int main(void)
{
    char dir[] = "/tmp/test-waste-XXXXXX", path[64];
    struct gpt_err err;

    if (!open_emulation())
        return tap_done();
    must(gpt_backend_cpu(&cpu, &err), &err);
    make_tree(dir);
    snprintf(path, sizeof(path), "%s/data", dir);
    must(make_dataset(path, &err), &err);
    open_data(path);
    all_variants();
    changed_too_early();
    gpt_corpus_close(corpus);
    remove_tree(dir);
    return tap_done();
}
