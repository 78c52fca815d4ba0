/* A pipeline stage: chunks of consecutive layers (one, or several when the
 * schedule is interleaved), with the embedding in front of the first stage's
 * first chunk and the output layer after the last stage's last chunk (one
 * rank: both). Forward and backward handle one chunk for one microbatch at a
 * time; what a microbatch in flight needs for its backward lives in a slot.
 *
 * Tensor parallel ranks make the same calls; sums over them happen within. With
 * sequence parallelism the residual stream is cut by rows: N rows, flattened
 * over (B, T), of which each rank keeps N / tp consecutive ones; "rows" below
 * are these (geometry.h: kept).
 *
 * Everything is sized by gpt_stage_memory() before anything is allocated, and
 * allocated once in gpt_stage_open(): prediction and allocation are the same
 * code. Start at gpt_stage_forward().
 *
 * Letters as in kernels/backend.h; a microbatch has N = B*T rows. */
#ifndef GPT_MODEL_STAGE_H
#define GPT_MODEL_STAGE_H

#include "backend.h"
#include "model/fp8.h"
#include "model/memory_kinds.h"
#include "model/microbatch.h"
#include "model/params.h"
#include "parallel/lane.h"

/* What a layer's forward does not keep, and backward computes again. */
enum gpt_recompute {
    GPT_RECOMPUTE_NONE,
    GPT_RECOMPUTE_SELECTIVE, /* what is cheap: norms, attention core, GELU */
    GPT_RECOMPUTE_UNIFORM,   /* everything but the input of each group of
                              * recompute_layers layers */
    GPT_RECOMPUTE_BLOCK,     /* everything but the input of each of the first
                              * recompute_layers layers of a chunk */
};

/* A loss of tokens in the place of cross-entropy, of which it is a function
 * (gpt_loss.h has the struct of a call). `check` reports a failure of calls
 * before. */
struct gpt_loss_tokens;
struct gpt_token_loss {
    void *context;
    void (*call)(void *context, const struct gpt_loss_tokens *tokens);
    int (*check)(void *context, struct gpt_err *err);
};

/* How a rank computes its part of the model: decided once, in the plan of a
 * run, and handed down whole to the replica and its stage. */
struct gpt_execution {
    int64_t micro_batch, seq_length; /* B, T */
    enum gpt_dtype act;     /* of weights and activations */
    struct gpt_fp8_layers fp8; /* products of eight bits; all 0: none */
    bool sequence_parallel; /* B * T divides by the tensor parallel size */
    bool overlap_tensor; /* backward computes while its sums and gathers over
                          * tensor parallel ranks are under way */
    enum gpt_recompute recompute;
    int64_t recompute_layers;
    bool record; /* passes that exchange nothing with other ranks are recorded
                  * (backend.h), where the device can */
    bool documents; /* attention stays within documents (doc_start) */
    uint64_t seed;  /* of dropout */
    /* The loss in training; evaluation is plain cross-entropy. */
    float label_smoothing, z_loss;
    const struct gpt_token_loss *token_loss; /* NULL: none; not with record */
};

/* Called while backward goes through the layers, from the last to the first:
 * `before` when gradients of flat->buckets[bucket] are about to be written,
 * `after` when they are complete for this microbatch. Buckets outside the
 * layers are complete after the embedding's backward, or the final norm's when
 * they hold nothing of the embedding; they are added to over the whole step
 * (the output layer's matrix already in forward, see gpt_stage_mode). */
struct gpt_gradient_hooks {
    void *context;
    void (*before)(void *context, int64_t bucket);
    void (*after)(void *context, int64_t bucket);
};

/* Called in forward when the weights of flat->buckets[bucket] are about to be
 * read. Backward reads only weights that a forward before it has read. */
struct gpt_weight_hook {
    void *context;
    void (*before)(void *context, int64_t bucket); /* may be NULL */
};

struct gpt_stage_options {
    const struct gpt_config *config; /* outlives the stage */
    const struct gpt_flat *flat;     /* outlives the stage */
    struct gpt_layout layout;
    struct gpt_execution exec;
    int32_t slots[GPT_MAX_CHUNKS]; /* of each chunk: microbatches in flight,
                                    * 1 without a pipeline */
    struct gpt_comm *tp; /* NULL: alone, or only asking for memory */
    /* Every backward overwrites the gradients of layers instead of adding to
     * them: several layers share their memory (ZeRO-2). */
    bool fresh_gradients;
    struct gpt_gradient_hooks hooks; /* functions may be NULL */
    struct gpt_weight_hook weights;
    bool training; /* false: forward only, no gradient buffers */
};

/* The bytes that gpt_stage_open() will allocate, by kind. GPT_EUSAGE for a
 * microbatch that does not fit the layout, or is too large to be counted. */
int gpt_stage_memory(struct gpt_memory *memory, struct gpt_backend *be,
                     const struct gpt_stage_options *options,
                     struct gpt_err *err) GPT_MUST_USE;

/* How many rows of logits, of `rows`, are held at once on this device. */
int64_t gpt_stage_logits_rows(const struct gpt_backend *be,
                              const struct gpt_config *config,
                              const struct gpt_layout *layout,
                              enum gpt_dtype act, int64_t rows);

struct gpt_stage;

/* weights: flat buffer in `act`; gradients: memory of each bucket of the flat
 * buffer, float, zeroed (may be NULL when !training; the list is copied). All
 * stay the caller's. */
int gpt_stage_open(struct gpt_stage **stage, struct gpt_backend *be,
                   const struct gpt_stage_options *options, void *weights,
                   float *const *gradients, struct gpt_err *err) GPT_MUST_USE;
void gpt_stage_close(struct gpt_stage *stage); /* NULL is fine */
/* The lane that overlaps tensor parallel sums with backward; NULL unless
 * overlap_tensor. */
struct gpt_lane *gpt_stage_lane(const struct gpt_stage *stage);

enum gpt_stage_mode {
    GPT_STAGE_TRAIN,    /* dropout; the last stage also does the output
                         * layer's backward at once, so that logits of only
                         * one chunk of rows exist */
    GPT_STAGE_GRADIENT, /* the same without dropout: tests */
    GPT_STAGE_EVAL,     /* losses only */
};

/* Logits while they exist: rows [first, first + n) of the microbatch, (n,
 * padded V / tp) act, device, of the words held here. */
struct gpt_logit_rows {
    struct gpt_queue *q;
    int64_t first, n;
    const void *logits;
};

/* Where the last stage leaves its results, host memory valid after sync. */
struct gpt_stage_result {
    float *loss;   /* (B, T), unweighted */
    void *logits;  /* (B, T, padded V / tp) act: of the words held here, or
                    * NULL: tests and scoring */
    /* Called for each chunk of rows, in order, on every tensor parallel rank of
     * the last stage, before the softmax; NULL: never. Such a pass is not
     * recorded. */
    void (*rows)(void *context, const struct gpt_logit_rows *rows);
    void *context; /* of rows */
};

/* Begins a step: the next backward overwrites weight gradients, later ones add,
 * so that no pass over the buffer is needed to zero it. */
void gpt_stage_begin(struct gpt_stage *stage, struct gpt_queue *q);

/* Copies the losses of routers of the backwards since gpt_stage_begin() to host
 * memory, valid after sync: struct gpt_router_grad's two, as this rank's layers
 * add them to the loss. Of tensor parallel ranks the first has them, and the
 * others have 0, as has a stage without such losses. */
void gpt_stage_router_losses(struct gpt_stage *stage, struct gpt_queue *q,
                             float losses[2]);

/* The weights of losses are multiplied by this from here on; 1 at first. The
 * queue copies the value when it comes to it: between two calls with different
 * values the queue must be synced. */
void gpt_stage_scale(struct gpt_stage *stage, struct gpt_queue *q, float scale);

/* Bytes that stages hand to each other: gpt_message_bytes() of this stage. */
size_t gpt_stage_bytes(const struct gpt_stage *stage);

/* Where the output of the stage before may be received: giving it to
 * gpt_stage_forward() saves a copy. NULL in front of the embedding. */
void *gpt_stage_input(struct gpt_stage *stage, int64_t chunk, int64_t slot);

/* Forward of microbatch *mb through a chunk, in `slot`. in (rows, C) act,
 * device: output of the chunk before, NULL in front of the embedding. Returns
 * this chunk's output (device, valid until the stage's next forward), NULL
 * after the output layer. */
const void *gpt_stage_forward(struct gpt_stage *stage, struct gpt_queue *q,
                              int64_t chunk, int64_t slot,
                              enum gpt_stage_mode mode,
                              const struct gpt_microbatch *mb, const void *in,
                              const struct gpt_stage_result *result);

/* Backward of the microbatch in `slot`, adding to the gradients. dout (rows, C)
 * act, device: gradient of the output, NULL after the output layer. Returns
 * the gradient of `in` (device, valid until the stage's next backward), NULL in
 * front of the embedding. */
const void *gpt_stage_backward(struct gpt_stage *stage, struct gpt_queue *q,
                               int64_t chunk, int64_t slot, const void *dout);

#endif
