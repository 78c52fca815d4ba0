/* One rank's part of the model for training: parameter table, flat buffer of
 * parameters, gradients and their reduction, optimizer, stage and pipeline.
 * Everything is allocated in gpt_replica_open(), in the sizes that
 * gpt_replica_memory() gave. */
#ifndef GPT_TRAIN_REPLICA_H
#define GPT_TRAIN_REPLICA_H

#include "train/gather.h"
#include "train/loss_scale.h"
#include "train/noise.h"
#include "train/optimizer.h"
#include "train/pipeline.h"

struct gpt_replica_options {
    struct gpt_config config; /* complete */
    struct gpt_layout layout;
    struct gpt_optimizer_options optimizer;
    struct gpt_execution exec; /* see stage.h */
    struct gpt_loss_scale_options loss_scale; /* initial 0: none */
    int64_t micro_batches; /* of this rank, in the largest step; 0: one */
    enum gpt_zero zero;    /* with layout.shards = data parallel size */
    bool overlap_gather;   /* of weights with the next step's forward */
    bool per_token_loss;   /* as the feed: a mean over tokens, not of means */
    bool noise_scale;      /* measure the gradients' noise (noise.h) */
    bool texts;            /* texts.h reads with it: for predictions alone */
    struct gpt_world *world; /* outlives the replica; NULL: a single rank, or
                              * only gpt_replica_memory() is wanted */
    bool planned;          /* it will have a world: for predictions alone */
};

/* Numbers that ranks add up once a step: see step.c. GPT_REPLICA_TURN ranks at
 * a time add how long they computed; they take turns. */
enum { GPT_REPLICA_TURN = 64, GPT_REPLICA_SUMS = 22 + GPT_REPLICA_TURN };

struct gpt_replica {
    struct gpt_replica_options o;
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_param_table table;
    struct gpt_flat flat;
    int32_t slots[GPT_MAX_CHUNKS]; /* see stage.h */
    void *weights;    /* device, act, flat.elements: computed with */
    /* Device: what the optimizer updates. The weights themselves when act is
     * GPT_F32; else more exact values of this rank's shards alone, compact as
     * the optimizer's moments are. */
    float *params;
    struct gpt_loss_scale scale; /* when options.loss_scale.initial > 0 */
    /* GPT_REPLICA_SUMS each: what ranks add up; device, and pinned memory */
    double *sums, *host_sums;
    int64_t turn; /* steps made: whose times are in the sums follows from it */
    struct gpt_reducer *reducer;
    struct gpt_gatherer *gatherer;
    struct gpt_optimizer *optimizer;
    struct gpt_noise *noise; /* NULL: not measured */
    struct gpt_stage *stage;
    struct gpt_pipeline *pipeline;
};

/* Tables only: enough for gpt_replica_memory(). */
int gpt_replica_new(struct gpt_replica **replica, struct gpt_backend *be,
                    const struct gpt_replica_options *options,
                    struct gpt_err *err) GPT_MUST_USE;
/* True where ranks add up numbers, which takes memory also of one alone. */
bool gpt_replica_sums(const struct gpt_replica *replica);
/* What gpt_replica_open() will allocate. */
int gpt_replica_memory(const struct gpt_replica *replica,
                       struct gpt_memory *memory,
                       struct gpt_err *err) GPT_MUST_USE;
/* Allocates. Parameters are zero; see gpt_replica_init(). */
int gpt_replica_open(struct gpt_replica *replica,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_replica_close(struct gpt_replica *replica);

/* Rows of a microbatch here; bytes of a message between stages. */
struct gpt_rows gpt_replica_rows(const struct gpt_replica *replica);
int64_t gpt_replica_message(const struct gpt_replica *replica);

/* True when `params` is compact, because the weights are of another type. */
bool gpt_replica_compact(const struct gpt_replica *replica);
/* Makes the weights from `params` after it was written, on all ranks. */
int gpt_replica_refresh(struct gpt_replica *replica,
                        struct gpt_err *err) GPT_MUST_USE;

/* Initial values: a function of the seed alone, whatever the layout. */
int gpt_replica_init(struct gpt_replica *replica,
                     struct gpt_err *err) GPT_MUST_USE;
/* `params` alone, without other ranks: gpt_replica_refresh() is to follow. */
int gpt_replica_init_values(struct gpt_replica *replica,
                            struct gpt_err *err) GPT_MUST_USE;

/* The prediction as a table of lines, through gpt_log_line(). */
void gpt_memory_print(const struct gpt_memory *memory);

#endif
