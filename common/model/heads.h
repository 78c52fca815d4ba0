/* What becomes of queries, keys and values between the product that makes them
 * and the product that takes attention's output; for layer.c. */
#ifndef GPT_MODEL_HEADS_H
#define GPT_MODEL_HEADS_H

#include "model/layer.h"

/* Queries and keys as attention takes them: normed, then turned, or the other
 * way round; from acts->qkv to acts->heads, or in place. Turned first, they are
 * so in acts->qkv, too. */
void gpt_heads_make(const struct gpt_layer *layer, const struct gpt_pass *pass,
                    const struct gpt_layer_acts *acts);
/* acts->heads once more, from what that left in acts->qkv. */
void gpt_heads_make_again(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_layer_acts *acts);
/* work.dwide from the gradient of heads to that of qkv, in place. */
void gpt_heads_backward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts);
/* The rows (N, H values) that the product after attention takes: acts->att, or
 * its columns that are values. */
const void *gpt_heads_values(const struct gpt_pass *pass,
                             const struct gpt_layer_acts *acts);
/* Where the gradient of those rows goes; and work.dy (N, H D) from it. */
void *gpt_heads_dvalues(const struct gpt_pass *pass);
void gpt_heads_spread(const struct gpt_pass *pass);
/* acts->att (N, H D): over the block itself, or over the cache. */
void gpt_heads_attend(const struct gpt_layer *layer,
                      const struct gpt_pass *pass,
                      const struct gpt_layer_acts *acts);

#endif
