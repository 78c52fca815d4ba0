/* What the files of a stage share: stage.c (the passes), stage_ends.c
 * (embedding and output layer), stage_open.c, stage_memory.c. */
#ifndef GPT_MODEL_STAGE_INTERNAL_H
#define GPT_MODEL_STAGE_INTERNAL_H

#include "model/layer.h"
#include "model/recorder.h"
#include "model/stage.h"

/* A microbatch in flight in a chunk. */
struct gpt_slot {
    struct gpt_layer_acts *layers; /* of the chunk */
    struct gpt_norm_acts embedded; /* of the norm after the embedding */
    struct gpt_norm_acts end; /* the final norm; without output layer only r,
                               * the stage's one output buffer */
    void *block; /* a microbatch in device memory */
    struct gpt_microbatch_block in; /* its parts */
    float *loss; /* (B, T) */
    int64_t sample0;
    bool dropout;
};

/* A chunk of layers, its microbatches in flight, and which ends it has. */
struct gpt_stage_chunk {
    struct gpt_layer *layers;
    int64_t n_layers;
    struct gpt_slot *slots;
    int64_t n_slots;
    bool embedding, output;
    int64_t recomputed; /* this many of the first layers keep only the input of
                         * each group of stage->group; the rest is shared */
    bool fresh; /* its layers' gradients of this step are not written yet */
};

/* Passes of a slot that may be recorded: see forward_variant(). */
enum {
    GPT_STAGE_FORWARDS = 6, /* three modes, output's gradient fresh or not */
    /* and backwards: fresh or not, with dropout or not */
    GPT_STAGE_VARIANTS = GPT_STAGE_FORWARDS + 4,
};

/* The kinds of memory that a stage allocates. */
enum {
    GPT_STAGE_FIRST_KIND = GPT_MEM_ACTIVATIONS,
    GPT_STAGE_LAST_KIND = GPT_MEM_INPUTS,
};

struct gpt_stage {
    struct gpt_backend *be;
    struct gpt_stage_options o;
    struct gpt_widths widths; /* held here */
    struct gpt_rows rows;     /* of a microbatch */
    struct gpt_stage_chunk *chunks;
    struct gpt_roles w, dw; /* outside layers */
    struct gpt_rng embedding_rng;
    float **gradients; /* of each bucket */
    struct gpt_layer_work work;
    struct gpt_lane *lane; /* of o.tp, or NULL */
    int64_t group;
    struct gpt_layer_acts *shared; /* group: of recomputed layers, all slots */
    void *out; /* (rows, C) act: of chunks without output layer */
    void *logits;
    void *logit_slopes; /* as logits: of the cap on them, or NULL */
    float *stats; /* (tp, logits_rows, 4): of the softmax of each rank */
    float *token_weights; /* (logits_rows); only with a loss of tokens, as... */
    float *host_tokens;   /* ... (5, logits_rows), pinned: see own_loss() */
    int64_t logits_rows;
    float *scale, *host_scale; /* (1) of losses; the latter is pinned memory,
                                * 0 until a scale is given */
    bool fresh_output; /* the output layer's gradient of this step is not
                        * written yet */
    struct gpt_recorder *recorder; /* of passes; NULL: none is recorded */
    void *mem[GPT_N_MEMORY_KINDS];
    /* the blocks that the chunks' pointers lead into */
    struct gpt_layer *all_layers;
    struct gpt_slot *all_slots;
    struct gpt_layer_acts *all_acts;
};

/* Lays a stage's buffers out, one after the other within each kind. The same
 * walk counts (all base NULL) and places: what is predicted is allocated. */
struct gpt_binder {
    char *base[GPT_N_MEMORY_KINDS]; /* NULL: only count */
    int64_t used[GPT_N_MEMORY_KINDS];
    bool overflow;
};

/* Points everything at its place; GPT_EUSAGE when it cannot be counted. */
int gpt_stage_bind(struct gpt_stage *s, struct gpt_binder *b,
                   struct gpt_err *err) GPT_MUST_USE;

/* True when backward computes again what is cheap, and no whole layer. */
static inline bool gpt_stage_selective(const struct gpt_stage *s)
{
    return s->o.exec.recompute == GPT_RECOMPUTE_SELECTIVE;
}

/* What losses are multiplied by, on the device; NULL: nothing is. A prediction
 * has no memory for it. */
static inline const float *gpt_stage_scale_of(const struct gpt_stage *s)
{
    return s->host_scale && *s->host_scale != 0 ? s->scale : NULL;
}

/* The pass of the microbatch in `slot`, as its layers see it. */
struct gpt_pass gpt_stage_pass(const struct gpt_stage *s, struct gpt_queue *q,
                               const struct gpt_stage_chunk *chunk,
                               const struct gpt_slot *slot);

/* The first layer of the group that layer i of a chunk is in. */
int64_t gpt_stage_group(const struct gpt_stage *s,
                        const struct gpt_stage_chunk *chunk, int64_t i);

/* The residual stream in front of the first layer, and the gradients of the
 * tables from work.dresid. */
void gpt_stage_embed(struct gpt_stage *s, const struct gpt_pass *pass,
                     const struct gpt_slot *slot);
void gpt_stage_embed_backward(struct gpt_stage *s, const struct gpt_pass *pass,
                              const struct gpt_slot *slot);

/* Logits and losses from slot->end.y; with `grad` also the output layer's
 * whole backward: the gradient of end.y then replaces it. */
void gpt_stage_output(struct gpt_stage *s, const struct gpt_pass *pass,
                      const struct gpt_slot *slot, bool grad,
                      const struct gpt_stage_result *result);

#endif
