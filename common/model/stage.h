/* A pipeline stage: chunks of consecutive layers (one, or several when the
 * schedule is interleaved), with the embedding in front of the first stage's
 * first chunk and the output layer behind the last stage's last chunk (one
 * rank: both). Forward and backward of one chunk for one microbatch at a time;
 * what a microbatch in flight needs for its backward lives in a slot.
 *
 * Tensor parallel ranks run the same calls; sums over them happen within. With
 * sequence parallelism the residual stream is cut by rows: N rows, flattened
 * over (B, T), of which each rank keeps N / tp consecutive ones; "rows" below
 * are these.
 *
 * Everything is sized by gpt_stage_memory() before anything is allocated, and
 * allocated once in gpt_stage_open(): prediction and allocation are the same
 * code. Start at gpt_stage_forward().
 *
 * Letters as in kernels/backend.h; a microbatch has N = B*T rows. */
#ifndef GPT_MODEL_STAGE_H
#define GPT_MODEL_STAGE_H

#include "backend.h"
#include "model/microbatch.h"
#include "model/params.h"
#include "parallel/lane.h"

/* Kinds of memory of a rank. A stage allocates activations to inputs. */
enum gpt_memory_kind {
    GPT_MEM_PARAMETERS,
    GPT_MEM_GRADIENTS,
    GPT_MEM_OPTIMIZER,
    GPT_MEM_ACTIVATIONS, /* kept from forward to backward, every slot */
    GPT_MEM_LOGITS,      /* one chunk of rows of the output layer */
    GPT_MEM_WORKSPACE,   /* used within a layer, shared by all */
    GPT_MEM_INPUTS,      /* tokens, targets, masks, losses */
    GPT_MEM_BATCHES,     /* host: a global batch, and the next one */
    GPT_MEM_EXCHANGE,    /* host: on its way to other ranks and from them */
    GPT_MEM_SAVING,      /* host: what is saved in the background */
    GPT_N_MEMORY_KINDS
};
struct gpt_memory {
    int64_t bytes[GPT_N_MEMORY_KINDS];
};
const char *gpt_memory_kind_name(enum gpt_memory_kind kind);

/* What a layer's forward does not keep, and backward computes again. */
enum gpt_recompute {
    GPT_RECOMPUTE_NONE,
    GPT_RECOMPUTE_SELECTIVE, /* what is cheap: norms, attention core, GELU */
    GPT_RECOMPUTE_UNIFORM,   /* everything but the input of each group of
                              * recompute_layers layers */
    GPT_RECOMPUTE_BLOCK,     /* everything but the input of each of the first
                              * recompute_layers layers of a chunk */
};

/* Told while backward goes through the layers, from the last to the first:
 * gradients of flat->buckets[bucket] are about to be written (before), and are
 * complete for this microbatch (after). Buckets outside the layers are
 * complete after the embedding's backward, or the final norm's when they hold
 * nothing of the embedding; they are added to over the whole step (the output
 * layer's matrix already in forward, see gpt_stage_mode). */
struct gpt_gradient_hooks {
    void *context;
    void (*before)(void *context, int64_t bucket);
    void (*after)(void *context, int64_t bucket);
};

/* Told in forward: the weights of flat->buckets[bucket] are about to be read.
 * Backward reads none that a forward before it did not. */
struct gpt_weight_hook {
    void *context;
    void (*before)(void *context, int64_t bucket); /* may be NULL */
};

struct gpt_stage_options {
    const struct gpt_config *config; /* outlives the stage */
    const struct gpt_flat *flat;     /* outlives the stage */
    struct gpt_layout layout;
    int64_t micro_batch, seq_length; /* B, T */
    int32_t slots[GPT_MAX_CHUNKS]; /* of each chunk: microbatches in flight,
                                    * 1 without a pipeline */
    struct gpt_comm *tp; /* NULL: alone, or only asking for memory */
    bool overlap_tensor; /* backward computes while its sums and gathers over tp
                          * are under way */
    bool sequence_parallel; /* B * T divides by the tensor parallel size */
    enum gpt_recompute recompute;
    int64_t recompute_layers;
    /* Layers' gradients are overwritten by every backward, not added to: their
     * memory is that of other layers, too (ZeRO-2). */
    bool fresh_gradients;
    struct gpt_gradient_hooks hooks; /* functions may be NULL */
    struct gpt_weight_hook weights;
    bool record; /* passes that exchange nothing with other ranks are recorded
                  * (backend.h), where the device can */
    bool documents;     /* attention stays within documents (doc_start) */
    bool training;      /* false: forward only, no gradient buffers */
    uint64_t seed;      /* of dropout */
    enum gpt_dtype act; /* GPT_F32 */
};

/* The bytes that gpt_stage_open() will allocate, by kind. */
int gpt_stage_memory(struct gpt_memory *memory, struct gpt_backend *be,
                     const struct gpt_stage_options *options,
                     struct gpt_err *err) GPT_MUST_USE;

/* Logits of so many rows, of `rows`, exist at a time. */
int64_t gpt_stage_logits_rows(const struct gpt_config *config,
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
/* Of what overlap_tensor lets go on beside backward; NULL without. */
struct gpt_lane *gpt_stage_lane(const struct gpt_stage *stage);

enum gpt_stage_mode {
    GPT_STAGE_TRAIN,    /* dropout; the last stage also does the output
                         * layer's backward at once, so that logits of only
                         * one chunk of rows exist */
    GPT_STAGE_GRADIENT, /* the same without dropout: tests */
    GPT_STAGE_EVAL,     /* losses only */
};

/* Where the last stage leaves its results, host memory valid after sync. */
struct gpt_stage_result {
    float *loss;   /* (B, T), unweighted */
    void *logits;  /* (B, T, padded V / tp) act: of the words held here, or
                    * NULL: tests and scoring */
};

/* A new step: the next backward overwrites weight gradients, later ones add,
 * so that no pass over the buffer is needed to zero it. */
void gpt_stage_begin(struct gpt_stage *stage, struct gpt_queue *q);

/* The weights of losses are multiplied by this from here on; 1 at first. Keep
 * the queue's order: not while an earlier call may not have been run. */
void gpt_stage_scale(struct gpt_stage *stage, struct gpt_queue *q, float scale);

/* Rows and bytes of what stages hand to each other. */
int64_t gpt_stage_rows(const struct gpt_stage *stage);
size_t gpt_stage_bytes(const struct gpt_stage *stage);

/* Where the output of the stage before may be received: giving it to
 * gpt_stage_forward() saves a copy. NULL in front of the embedding. */
void *gpt_stage_input(struct gpt_stage *stage, int64_t chunk, int64_t slot);

/* Forward of microbatch *mb through a chunk, in `slot`. in (rows, C) act,
 * device: output of the chunk before, NULL in front of the embedding. Returns
 * this chunk's output (device, valid until the stage's next forward), NULL
 * behind the output layer. */
const void *gpt_stage_forward(struct gpt_stage *stage, struct gpt_queue *q,
                              int64_t chunk, int64_t slot,
                              enum gpt_stage_mode mode,
                              const struct gpt_microbatch *mb, const void *in,
                              const struct gpt_stage_result *result);

/* Backward of the microbatch in `slot`, adding to the gradients. dout (rows, C)
 * act, device: gradient of the output, NULL behind the output layer. Returns
 * the gradient of `in` (device, valid until the stage's next backward), NULL in
 * front of the embedding. */
const void *gpt_stage_backward(struct gpt_stage *stage, struct gpt_queue *q,
                               int64_t chunk, int64_t slot, const void *dout);

#endif
