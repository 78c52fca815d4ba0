/* A pipeline stage: some consecutive layers, with the embedding in front when
 * it is the first and the output layer behind when it is the last (one rank:
 * both). Forward and backward of one microbatch at a time; the activations of
 * a microbatch in flight live in a slot until its backward.
 *
 * Everything is sized by gpt_stage_memory() before anything is allocated, and
 * allocated once in gpt_stage_open(): prediction and allocation are the same
 * code. Start at gpt_stage_forward().
 *
 * Letters as in kernels/backend.h; a microbatch has N = B*T rows. */
#ifndef GPT_MODEL_STAGE_H
#define GPT_MODEL_STAGE_H

#include "backend.h"
#include "model/params.h"

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
    GPT_N_MEMORY_KINDS
};
struct gpt_memory {
    int64_t bytes[GPT_N_MEMORY_KINDS];
};
const char *gpt_memory_kind_name(enum gpt_memory_kind kind);

struct gpt_stage_options {
    const struct gpt_config *config; /* outlives the stage */
    const struct gpt_flat *flat;     /* outlives the stage */
    struct gpt_layout layout;
    int64_t micro_batch, seq_length; /* B, T */
    int64_t slots;      /* microbatches in flight, 1 without a pipeline */
    bool documents;     /* attention stays within documents (doc_start) */
    bool training;      /* false: forward only, no gradient buffers */
    uint64_t seed;      /* of dropout */
    enum gpt_dtype act; /* GPT_F32 */
};

/* The bytes that gpt_stage_open() will allocate, by kind. */
int gpt_stage_memory(struct gpt_memory *memory, struct gpt_backend *be,
                     const struct gpt_stage_options *options,
                     struct gpt_err *err) GPT_MUST_USE;

struct gpt_stage;

/* weights: flat buffer in `act`; gradients: flat buffer in float, zeroed (may
 * be NULL when !training). Both stay the caller's. */
int gpt_stage_open(struct gpt_stage **stage, struct gpt_backend *be,
                   const struct gpt_stage_options *options, void *weights,
                   float *gradients, struct gpt_err *err) GPT_MUST_USE;
void gpt_stage_close(struct gpt_stage *stage); /* NULL is fine */

/* One microbatch, in host memory, read during the call's copy_in (keep until
 * sync): input, target, position, doc_start (B, T) int32; weight (B, T) float,
 * what a row's loss contributes to the gradient. Stages read what they need:
 * input and position the first, target and weight the last. */
struct gpt_microbatch {
    const int32_t *input, *target, *position, *doc_start;
    const float *weight;
    int64_t sample0; /* global number of the first sample: keys dropout, so
                      * that masks differ a step and not a layout */
};

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
    float *logits; /* (B, T, padded V), or NULL: tests and scoring */
};

/* A new step: the next backward overwrites weight gradients, later ones add,
 * so that no pass over the buffer is needed to zero it. */
void gpt_stage_begin(struct gpt_stage *stage, struct gpt_queue *q);

/* Forward of microbatch *mb in `slot`. in (B, T, C) act, device: the previous
 * stage's output, NULL on the first. Returns this stage's output (device,
 * valid until the slot's next forward), NULL on the last. */
const void *gpt_stage_forward(struct gpt_stage *stage, struct gpt_queue *q,
                              int64_t slot, enum gpt_stage_mode mode,
                              const struct gpt_microbatch *mb, const void *in,
                              const struct gpt_stage_result *result);

/* Backward of the microbatch in `slot`, adding to the gradients. dout (B, T, C)
 * act, device: gradient of the output, NULL on the last stage. Returns the
 * gradient of `in` (device, valid until the next call), NULL on the first. */
const void *gpt_stage_backward(struct gpt_stage *stage, struct gpt_queue *q,
                               int64_t slot, const void *dout);

#endif
