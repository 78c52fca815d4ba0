/* One rank's copy of the model for training: parameter table, flat buffers of
 * parameters and gradients, optimizer and stage. Everything is allocated in
 * gpt_replica_open(), in the sizes that gpt_replica_memory() gave. */
#ifndef GPT_TRAIN_REPLICA_H
#define GPT_TRAIN_REPLICA_H

#include "model/stage.h"
#include "train/optimizer.h"

struct gpt_replica_options {
    struct gpt_config config; /* complete */
    struct gpt_layout layout;
    struct gpt_optimizer_options optimizer;
    int64_t micro_batch, seq_length;
    int32_t slots[GPT_MAX_CHUNKS]; /* see stage.h */
    bool documents;
    uint64_t seed;
};

struct gpt_replica {
    struct gpt_replica_options o;
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_param_table table;
    struct gpt_flat flat;
    float *params, *gradients; /* device, flat.elements each */
    struct gpt_optimizer *optimizer;
    struct gpt_stage *stage;
};

/* Tables only: enough for gpt_replica_memory(). */
int gpt_replica_new(struct gpt_replica **replica, struct gpt_backend *be,
                    const struct gpt_replica_options *options,
                    struct gpt_err *err) GPT_MUST_USE;
/* What gpt_replica_open() will allocate. */
int gpt_replica_memory(const struct gpt_replica *replica,
                       struct gpt_memory *memory,
                       struct gpt_err *err) GPT_MUST_USE;
/* Allocates. Parameters are zero; see gpt_replica_init(). */
int gpt_replica_open(struct gpt_replica *replica,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_replica_close(struct gpt_replica *replica);

/* Initial values: a function of the seed alone, whatever the layout. */
int gpt_replica_init(struct gpt_replica *replica,
                     struct gpt_err *err) GPT_MUST_USE;

/* The prediction as a table of lines, through gpt_log_line(). */
void gpt_memory_print(const struct gpt_memory *memory);

#endif
