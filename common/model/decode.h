/* The forward pass for generation, with a cache of keys and values: what was
 * computed for a token once is never computed again.
 *
 * The cache has slots; a slot holds one text as it grows. gpt_decoder_extend()
 * adds tokens to several texts in one pass, so that the weights are read once
 * for all of them: prompts, the next token of each text, or several tokens that
 * are only guessed. Texts are never padded, and a text's logits do not depend
 * on what is in the other slots, nor on what is added to them beside it.
 *
 * A model with LongRoPE turns the keys of a text otherwise once it is longer
 * than texts of pretraining were: all of it goes through the layers again then,
 * as it does when it is cut to fewer tokens and continued. Callers see nothing
 * of it but the time.
 *
 * Ranks may share a model (decode_ranks.h). The first one then calls what is
 * here; the others follow it, and have no logits.
 *
 * All memory is allocated when the decoder is opened. Letters as in
 * kernels/backend.h; V is config->vocab_size: dummy rows of the word table
 * have no logits. */
#ifndef GPT_MODEL_DECODE_H
#define GPT_MODEL_DECODE_H

#include "backend.h"
#include "model/decode_ranks.h"
#include "model/params.h"
#include "model/quant.h"

/* Prompts are cut at multiples of so many tokens, wherever they are cut: what
 * the cache holds up to such a place does not depend on what comes after it. */
enum { GPT_DECODE_CHUNK = 256 };
/* Tokens that go through the layers at once: enough for matrix products at full
 * speed, and a bound on memory. Where stages pass rows on, so many are cut into
 * chunks, which the stages work on side by side. */
enum { GPT_DECODE_MOST = 512 };

struct gpt_decoder_options {
    const struct gpt_config *config; /* outlives the decoder */
    const struct gpt_flat *flat;     /* of this rank; outlives it */
    const struct gpt_decode_ranks *ranks; /* outlives it; NULL: one rank */
    enum gpt_dtype act;              /* of weights, cache and activations */
    bool narrow_cache;               /* keys and values in bf16, with act
                                      * float: GPT_CAN_NARROW_CACHE */
    int64_t slots;                   /* texts at once */
    int64_t positions;               /* of a slot, <= config->max_positions */
    /* weights in fewer bits, with act float, or NULL; outlives the decoder */
    const struct gpt_quant_store *quant;
};

/* The type of keys and values. */
enum gpt_dtype gpt_decoder_cache_type(const struct gpt_decoder_options *o);

/* The bytes that gpt_decoder_open() will allocate, weights not included. */
int gpt_decoder_memory(int64_t *bytes,
                       const struct gpt_decoder_options *options,
                       struct gpt_err *err) GPT_MUST_USE;

/* What gpt_decoder_open() refuses, before there are weights: GPT_EUSAGE when
 * slots or positions are out of range, GPT_EDEVICE when the device does not
 * compute what is asked for. options->quant is not looked at. */
int gpt_decoder_check(const struct gpt_backend *be,
                      const struct gpt_decoder_options *options,
                      struct gpt_err *err) GPT_MUST_USE;

struct gpt_decoder;

/* weights: flat buffer on the device, in `act`; stays the caller's and is only
 * read, and not even that where there is options->quant. Refuses what
 * gpt_decoder_check() refuses. */
int gpt_decoder_open(struct gpt_decoder **d, struct gpt_backend *be,
                     const struct gpt_decoder_options *options, void *weights,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_decoder_close(struct gpt_decoder *d); /* NULL is fine */

/* What it was opened with. */
const struct gpt_decoder_options *gpt_decoder_shape(
    const struct gpt_decoder *d);

enum gpt_logits {
    GPT_LOGITS_LAST, /* (V) a text: after its last token */
    GPT_LOGITS_ALL,  /* (n, V): after each */
};

/* Tokens (n), n >= 1, that are added to the text in `slot`. Where LongRoPE asks
 * how long the text is, it is as long as with all of them, or at least `whole`
 * tokens; or, one_by_one, as long as with each of them. */
struct gpt_decode_piece {
    int64_t slot, n;
    const int32_t *tokens; /* borrowed */
    int64_t whole;
    bool one_by_one;
};

/* Texts of up to this many new tokens get the bits that they would get token by
 * token, with one_by_one: a guess may be checked with them. */
enum { GPT_DECODE_SAME_BITS = 8 };

/* Adds tokens to n texts, no slot twice, n <= slots. logits: float, host
 * memory, those of the first piece first. GPT_EDATA for an id outside the
 * vocabulary or a text longer than the slot; nothing is added then. A device
 * that fails may leave texts empty that it was to compute again. */
int gpt_decoder_extend(struct gpt_decoder *d,
                       const struct gpt_decode_piece *pieces, int64_t n,
                       enum gpt_logits which, float *logits,
                       struct gpt_err *err) GPT_MUST_USE;

/* The same for one text, and for one token of each of n texts. */
int gpt_decoder_append(struct gpt_decoder *d, int64_t slot,
                       const int32_t *tokens, int64_t n, enum gpt_logits which,
                       float *logits, struct gpt_err *err) GPT_MUST_USE;
int gpt_decoder_step(struct gpt_decoder *d, const int32_t *slots,
                     const int32_t *tokens, int64_t n, float *logits,
                     struct gpt_err *err) GPT_MUST_USE;

/* Tokens in a slot; cuts the text there to `length` tokens (0: empty). */
int64_t gpt_decoder_length(const struct gpt_decoder *d, int64_t slot);
void gpt_decoder_truncate(struct gpt_decoder *d, int64_t slot, int64_t length);

/* Makes slot `to` hold the first n tokens of the text in slot `from`: what is
 * computed for a text that branches is computed once. */
int gpt_decoder_copy(struct gpt_decoder *d, int64_t from, int64_t to,
                     int64_t n, struct gpt_err *err) GPT_MUST_USE;

/* On ranks after the first: does what the first one's calls ask for, until it
 * closes its decoder. Waits for the next call without a limit; it ends when
 * the first rank does. */
int gpt_decoder_follow(struct gpt_decoder *d, struct gpt_err *err) GPT_MUST_USE;

/* Bytes of weights that one step of a text reads on this rank: the tables of
 * the embedding count only where they are the output layer, and experts of a
 * token alone. */
int64_t gpt_decoder_step_bytes(const struct gpt_decoder *d);

#endif
