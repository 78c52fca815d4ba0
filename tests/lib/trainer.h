/* A rank that trains a small model in some layout, for tests and benchmarks:
 * trainer_run() in a process of ranks.h. */
#ifndef GPT_TESTS_TRAINER_H
#define GPT_TESTS_TRAINER_H

#include "tests/lib/dataset.h"
#include "tests/lib/ranks.h"

#include "train/step.h"

struct layout {
    int64_t tp, pp, dp, chunks;
    enum gpt_zero zero;
    bool sequence_parallel;
    enum gpt_recompute recompute;
    bool untied;
    bool overlap; /* tensor parallel sums, and the gathering of weights */
    bool muon;    /* in place of AdamW, and the noise scale is measured */
};

enum { LAYOUT_NAME = 80 };

/* "TP 2 SP PP 2 V 2 DP 2 ZeRO-1"; "one rank". */
static void layout_name(const struct layout *l, char *name)
{
    static const char *const recompute[] = {
        "", " selective", " full uniform", " full block"};
    const struct {
        const char *word;
        int64_t value; /* 1: left out */
    } sizes[] = {{"TP", l->tp}, {"PP", l->pp}, {"V", l->chunks}, {"DP", l->dp}};
    size_t at = 0;

    name[0] = '\0';
    for (size_t i = 0; i < GPT_COUNT(sizes); i++) {
        if (sizes[i].value > 1)
            at += (size_t)snprintf(name + at, LAYOUT_NAME - at, "%s%s %lld",
                                   at ? " " : "", sizes[i].word,
                                   (long long)sizes[i].value);
        if (i == 0 && l->sequence_parallel)
            at += (size_t)snprintf(name + at, LAYOUT_NAME - at, " SP");
    }
    if (at == 0)
        at += (size_t)snprintf(name, LAYOUT_NAME, "one rank");
    if (l->zero != GPT_ZERO_OFF)
        at += (size_t)snprintf(name + at, LAYOUT_NAME - at, " ZeRO-%d",
                               (int)l->zero);
    snprintf(name + at, LAYOUT_NAME - at, "%s%s%s%s", recompute[l->recompute],
             l->untied ? " untied" : "", l->overlap ? " overlap" : "",
             l->muon ? " Muon" : "");
}

struct trainer {
    /* given */
    const struct layout *layout;
    struct gpt_config config;
    int64_t micro_batch, seq_length; /* B, T */
    int64_t batch;                   /* microbatches of a global batch */
    int64_t steps;
    const char *prefix; /* of the data set */
    bool staged; /* as on a device whose memory is not the host's */
    /* made */
    struct gpt_world *world;
    struct gpt_backend backend, *be; /* the CPU's, with allocations counted */
    struct gpt_corpus *corpus;
    struct gpt_replica *replica;
    struct gpt_feed *feed;
};

static int trainer_corpus(struct trainer *t, struct gpt_err *err)
{
    const char *const paths[] = {t->prefix};
    const struct gpt_corpus_options o = {
        .data_path = paths,
        .n_data_path = 1,
        .split = "80,20,0",
        .seq_length = t->seq_length,
        .seed = 5,
        .vocab_size = t->config.vocab_size,
        .n_samples = {[GPT_TRAIN] = t->steps * t->batch * t->micro_batch,
                      [GPT_VALID] = t->batch * t->micro_batch},
    };

    return gpt_corpus_open(&t->corpus, &o, err);
}

static int trainer_replica(struct trainer *t, struct gpt_err *err)
{
    const struct layout *l = t->layout;
    struct gpt_replica_options o = {
        .config = t->config,
        .optimizer = {.kind = l->muon ? GPT_MUON : GPT_ADAM,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .momentum = 0.9,
                      .clip_grad = 1,
                      .muon = {.nesterov = true,
                               .split_qkv = true,
                               .coefficients = GPT_MUON_QUINTIC,
                               .steps = 5,
                               .extra_scale = 0.2}},
        .noise_scale = l->muon,
        .texts = true,
        .exec.act = GPT_F32,
        .exec.micro_batch = t->micro_batch,
        .exec.seq_length = t->seq_length,
        .micro_batches = t->batch / l->dp,
        .zero = l->zero,
        .overlap_gather = l->overlap,
        .exec.overlap_tensor = l->overlap,
        .exec.sequence_parallel = l->sequence_parallel,
        .exec.recompute = l->recompute,
        .exec.recompute_layers = 1,
        .exec.seed = 5,
        .world = t->world,
    };

    GPT_TRY(gpt_layout_init(&o.layout, &o.config, &t->world->topology, 0, 0,
                            err));
    if (l->zero != GPT_ZERO_OFF) {
        o.layout.shards = l->dp;
        o.layout.shard = t->world->topology.at[GPT_DP];
    }
    GPT_TRY(gpt_replica_new(&t->replica, t->be, &o, err));
    GPT_TRY(gpt_replica_open(t->replica, err));
    return gpt_replica_init(t->replica, err);
}

static struct gpt_feed_options trainer_feed_options(const struct trainer *t)
{
    return (struct gpt_feed_options){
        .corpus = t->corpus,
        .masks = {.eod = 0, .eod_mask_loss = true},
        .micro_batch = t->micro_batch,
        .seq_length = t->seq_length,
        .max_micro_batches = t->batch / t->layout->dp,
        .dp_size = t->layout->dp,
        .dp_rank = t->world->topology.at[GPT_DP],
        .be = t->be,
        .q = t->replica->q,
    };
}

static int64_t trainer_allocated; /* bytes of device memory */

static int trainer_alloc(struct gpt_backend *be, size_t bytes, const char *what,
                         void **mem, struct gpt_err *err)
{
    struct gpt_backend *cpu;

    GPT_TRY(gpt_backend_cpu(&cpu, err));
    trainer_allocated += (int64_t)bytes;
    (void)be;
    return cpu->alloc(cpu, bytes, what, mem, err);
}

static int trainer_open(struct trainer *t, struct gpt_err *err)
{
    GPT_TRY(gpt_backend_cpu(&t->be, err));
    t->backend = *t->be;
    t->backend.alloc = trainer_alloc;
    t->backend.host_memory = !t->staged;
    t->be = &t->backend;
    GPT_TRY(gpt_world_connect(t->world, t->be, err));
    GPT_TRY(trainer_corpus(t, err));
    GPT_TRY(trainer_replica(t, err));
    const struct gpt_feed_options feed = trainer_feed_options(t);
    return gpt_feed_open(&t->feed, &feed, err);
}

/* The device memory that gpt_replica_memory() and the feed predict. */
static int trainer_predicted(const struct trainer *t, int64_t *bytes,
                             struct gpt_err *err)
{
    struct gpt_memory memory;

    const struct gpt_feed_options feed = trainer_feed_options(t);
    GPT_TRY(gpt_replica_memory(t->replica, &memory, err));
    *bytes = gpt_feed_device_memory(&feed);
    for (int kind = 0; kind < GPT_N_MEMORY_KINDS; kind++)
        *bytes += memory.bytes[kind];
    return GPT_OK;
}

/* Runs step i; *step has the settings that are not the default, and receives
 * the results. */
static int trainer_step(struct trainer *t, int64_t i, struct gpt_step *step,
                        struct gpt_err *err)
{
    step->micro_batches = t->batch / t->layout->dp;
    step->rates.lr = 2e-3;
    step->rates.weight_decay = 0.1;
    GPT_TRY(gpt_feed_read(t->feed, GPT_TRAIN, i * t->batch * t->micro_batch,
                          step->micro_batches, err));
    return gpt_step_train(t->replica, t->feed, step, err);
}

/* Opens everything, runs run(t, arg) and closes everything; reports failures on
 * stdout. */
static int trainer_run(struct trainer *t,
                       int (*run)(struct trainer *t, void *arg,
                                  struct gpt_err *err),
                       void *arg)
{
    const struct gpt_world_options o = {
        .size = {[GPT_TP] = t->layout->tp, [GPT_PP] = t->layout->pp},
        .chunks = t->layout->chunks,
        .timeout = 100,
        .timeout_later = 100,
    };
    struct gpt_err err = {0};

    int status = gpt_world_open(&t->world, &o, &err);
    if (status == GPT_OK)
        status = trainer_open(t, &err);
    if (status == GPT_OK)
        status = run(t, arg, &err);
    gpt_feed_close(t->feed);
    gpt_replica_close(t->replica);
    gpt_corpus_close(t->corpus);
    status = gpt_world_end(t->world, status, &err);
    gpt_world_close(t->world);
    if (status != GPT_OK)
        printf("# %s\n", err.text);
    return status;
}

#endif
