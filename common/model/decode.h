/* The forward pass for generation, with a cache of keys and values: what was
 * computed for a token once is never computed again.
 *
 * The cache has slots; a slot holds one text as it grows. gpt_decoder_append()
 * adds many tokens to one slot (a prompt) as matrix products over all of them,
 * gpt_decoder_step() adds one token to each of several slots, which reads the
 * weights once for all. Texts are never padded, and a text's logits do not
 * depend on what is in the other slots.
 *
 * All memory is allocated when the decoder is opened. Letters as in
 * kernels/backend.h; V is config->vocab_size: dummy rows of the word table
 * have no logits. */
#ifndef GPT_MODEL_DECODE_H
#define GPT_MODEL_DECODE_H

#include "backend.h"
#include "model/params.h"
#include "model/quant.h"

struct gpt_decoder_options {
    const struct gpt_config *config; /* outlives the decoder */
    const struct gpt_flat *flat;     /* of a single rank; outlives it */
    enum gpt_dtype act;              /* of weights, cache and activations */
    int64_t slots;                   /* texts at once */
    int64_t positions;               /* of a slot, <= config->max_positions */
    /* weights in fewer bits, with act float, or NULL; outlives the decoder */
    const struct gpt_quant_store *quant;
};

/* The bytes that gpt_decoder_open() will allocate, weights not included. */
int gpt_decoder_memory(int64_t *bytes,
                       const struct gpt_decoder_options *options,
                       struct gpt_err *err) GPT_MUST_USE;

struct gpt_decoder;

/* weights: flat buffer on the device, in `act`; stays the caller's and is only
 * read, and not even that where there is options->quant. GPT_EUSAGE when slots
 * or positions are out of range. */
int gpt_decoder_open(struct gpt_decoder **d, struct gpt_backend *be,
                     const struct gpt_decoder_options *options, void *weights,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_decoder_close(struct gpt_decoder *d); /* NULL is fine */

/* What it was opened with. */
const struct gpt_decoder_options *gpt_decoder_shape(
    const struct gpt_decoder *d);

enum gpt_logits {
    GPT_LOGITS_LAST, /* (V): after the last token */
    GPT_LOGITS_ALL,  /* (n, V): after each */
};

/* Adds tokens (n), n >= 1, to the text in `slot`; logits: float, host memory.
 * GPT_EDATA for an id outside the vocabulary or a text longer than the slot;
 * the slot is then as it was. */
int gpt_decoder_append(struct gpt_decoder *d, int64_t slot,
                       const int32_t *tokens, int64_t n, enum gpt_logits which,
                       float *logits, struct gpt_err *err) GPT_MUST_USE;

/* Adds tokens[i] to slots[i], i < n <= slots, no slot twice. logits (n, V)
 * float, host memory. Errors as above. */
int gpt_decoder_step(struct gpt_decoder *d, const int32_t *slots,
                     const int32_t *tokens, int64_t n, float *logits,
                     struct gpt_err *err) GPT_MUST_USE;

/* Tokens in a slot; cuts the text there to `length` tokens (0: empty). */
int64_t gpt_decoder_length(const struct gpt_decoder *d, int64_t slot);
void gpt_decoder_truncate(struct gpt_decoder *d, int64_t slot, int64_t length);

/* Makes slot `to` hold the text of slot `from`: what is computed for a text
 * that branches is computed once. */
int gpt_decoder_copy(struct gpt_decoder *d, int64_t from, int64_t to,
                     struct gpt_err *err) GPT_MUST_USE;

/* Bytes of weights that one step reads: the tables of the embedding count only
 * where they are the output layer. */
int64_t gpt_decoder_step_bytes(const struct gpt_decoder *d);

#endif
