/* What stage.c and stage_memory.c share. */
#ifndef GPT_MODEL_STAGE_INTERNAL_H
#define GPT_MODEL_STAGE_INTERNAL_H

#include "model/layer.h"
#include "model/stage.h"

/* A microbatch in flight. */
struct gpt_slot {
    struct gpt_layer_acts *layers; /* n_layers of them */
    struct gpt_norm_acts final;    /* last stage: the final norm */
    int32_t *input, *target, *position, *doc_start; /* (B, T) */
    float *weight, *loss;                           /* (B, T) */
    int64_t sample0;
    bool dropout;
};

struct gpt_stage {
    struct gpt_backend *be;
    struct gpt_stage_options o;
    struct gpt_layer *layers;
    struct gpt_roles w, dw; /* outside layers */
    struct gpt_rng embedding_rng;
    float **gradients; /* of each bucket */
    struct gpt_slot *slots;
    struct gpt_layer_acts *slot_layers; /* slots x n_layers */
    struct gpt_layer_work work;
    void *logits;
    int64_t logits_rows;
    bool fresh_layers, fresh_output; /* nothing added in this step yet */
    void *mem[GPT_N_MEMORY_KINDS];
};

/* What the layers get to know of a pass of the microbatch in `slot`. */
struct gpt_pass gpt_stage_pass(const struct gpt_stage *s, struct gpt_queue *q,
                               const struct gpt_slot *slot);

#endif
