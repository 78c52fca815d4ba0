/* One training step without a data set, for benchmarks: a replica of a model on
 * one rank, and a microbatch of b x t tokens of the whole vocabulary. */
#ifndef GPT_BENCH_TRAIN_STEP_H
#define GPT_BENCH_TRAIN_STEP_H

#include "bench.h"
#include "train/replica.h"

#include <math.h>

enum { B = 4, T = 64, MOST_ROWS = 2048 };

static inline void need(int status, const struct gpt_err *err)
{
    if (status == GPT_OK)
        return;
    fprintf(stderr, "error: %s\n", err->text);
    exit(1);
}

static inline struct gpt_replica *open_replica(struct gpt_backend *be,
                                               const struct gpt_config *c,
                                               enum gpt_dtype act, int64_t b,
                                               int64_t t)
{
    struct gpt_replica *r;
    struct gpt_err err;
    const struct gpt_replica_options o = {
        .config = *c,
        .layout = GPT_LAYOUT_SINGLE(c),
        .exec.act = act,
        .exec.micro_batch = b,
        .exec.seq_length = t,
        .exec.seed = 1234,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_grad = 1},
    };

    need(gpt_replica_new(&r, be, &o, &err), &err);
    need(gpt_replica_open(r, &err), &err);
    need(gpt_replica_init(r, &err), &err);
    return r;
}

/* Forward, backward, gradient norm, AdamW; returns the mean loss before the
 * update. */
static inline double step(struct gpt_replica *r, int vocabulary)
{
    static int32_t input[MOST_ROWS], target[MOST_ROWS], position[MOST_ROWS];
    static int32_t start[MOST_ROWS];
    static float weight[MOST_ROWS], losses[MOST_ROWS];
    const int t = (int)r->o.exec.seq_length;
    const int n = (int)r->o.exec.micro_batch * t;
    struct gpt_microbatch mb = {input, target, position, start, weight, 0,
                                NULL};
    struct gpt_stage_result result = {.loss = losses};
    struct gpt_update update = {
        .params = r->params,
        .compact = gpt_replica_compact(r),
        .weights = gpt_replica_compact(r) ? r->weights : NULL,
        .gradients = gpt_reducer_shards(r->reducer),
        .act = r->o.exec.act,
        .loss_scale = 1,
        .rates = {.lr = 1e-4, .weight_decay = 0.1},
    };
    struct gpt_err err;
    double loss = 0;

    for (int i = 0; i < n; i++) {
        input[i] = (i * 7919 + 13) % vocabulary;
        target[i] = ((i + 1) * 7919 + 13) % vocabulary;
        position[i] = i % t;
        weight[i] = 1.0F / (float)n;
    }
    gpt_stage_begin(r->stage, r->q);
    gpt_stage_forward(r->stage, r->q, 0, 0, GPT_STAGE_TRAIN, &mb, NULL,
                      &result);
    gpt_stage_backward(r->stage, r->q, 0, 0, NULL);
    need(gpt_optimizer_squares(r->optimizer, r->q, update.gradients,
                               &update.norm, &err), &err);
    update.norm = sqrt(update.norm);
    gpt_optimizer_update(r->optimizer, r->q, &update);
    need(r->be->sync(r->q, &err), &err);
    for (int i = 0; i < n; i++)
        loss += (double)losses[i] / n;
    return loss;
}

#endif
