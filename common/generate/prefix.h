/* Beginnings of prompts that were computed before. Requests often begin alike:
 * with the same instructions, the same examples, the same conversation so far.
 * Slots of the decoder that no text uses keep the keys and values of such
 * beginnings, and a prompt that begins with one of them copies it.
 *
 * What is kept ends where a prompt may be cut (GPT_DECODE_CHUNK): what is left
 * is then computed as it is in the whole prompt, and logits are the same, to
 * the bit; where sums follow the shapes of products (GPUs), unless texts that
 * are added beside the prompt change these. */
#ifndef GPT_GENERATE_PREFIX_H
#define GPT_GENERATE_PREFIX_H

#include "model/decode.h"

/* Keeps beginnings in slots first..first+n-1 of the decoder, which stays the
 * caller's; nothing else uses these slots. n >= 1. */
struct gpt_prefixes;
int gpt_prefixes_open(struct gpt_prefixes **p, struct gpt_decoder *d,
                      int64_t first, int64_t n,
                      struct gpt_err *err) GPT_MUST_USE;
void gpt_prefixes_close(struct gpt_prefixes *p); /* NULL is fine */

/* Tokens of a prompt (n >= 1) that it has in common with one before it and that
 * can be copied from there: whole blocks, and never its last token, whose
 * logits are wanted. */
int64_t gpt_prefix_common(const int32_t *before, int64_t n_before,
                          const int32_t *prompt, int64_t n);

/* The tokens of the longest beginning of a prompt (n >= 1) that is kept. p
 * NULL: 0. */
int64_t gpt_prefixes_find(const struct gpt_prefixes *p, const int32_t *prompt,
                          int64_t n);

/* Makes `slot`, which is none of the cache's, hold the longest beginning of a
 * prompt (n >= 1) that is kept: *cached tokens, less than n. p NULL: 0. Errors
 * as gpt_decoder_copy(). */
int gpt_prefixes_copy(struct gpt_prefixes *p, struct gpt_decoder *d,
                      int64_t slot, const int32_t *prompt, int64_t n,
                      int64_t *cached, struct gpt_err *err) GPT_MUST_USE;

/* Keeps the beginning of the prompt that `slot` holds; nothing where it is kept
 * already, or p is NULL. When all places are taken, the beginning that was used
 * least recently makes room. */
int gpt_prefixes_keep(struct gpt_prefixes *p, struct gpt_decoder *d,
                      int64_t slot, const int32_t *prompt, int64_t n,
                      struct gpt_err *err) GPT_MUST_USE;

/* Beginnings that are kept now, and tokens in them. */
void gpt_prefixes_count(const struct gpt_prefixes *p, int64_t *entries,
                        int64_t *tokens);

/* Bytes of keys and values of a slot of `positions`, of type `cache`. */
int64_t gpt_prefix_bytes(const struct gpt_config *config, int64_t positions,
                         enum gpt_dtype cache);

#endif
