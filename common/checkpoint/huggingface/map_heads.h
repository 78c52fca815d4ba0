/* Keys and values of latent attention in tensors of three dimensions, as GGUF
 * files have them: matrices of all heads, of keys alone, each the other way
 * round, or of values alone. Here they are rows of one parameter. */
#ifndef GPT_CHECKPOINT_HF_MAP_HEADS_H
#define GPT_CHECKPOINT_HF_MAP_HEADS_H

#include "checkpoint/huggingface/family.h"
#include "checkpoint/plan.h"

/* shape (3) of the tensor: keys (H, Rkv, D's own of a key), else values
 * (H, values, Rkv). */
void gpt_hf_heads_shape(const struct gpt_config *c, bool keys, int64_t *shape);

/* Appends to `out` what `in` has of linear_kv_up_proj (import), or the
 * reverse. */
int gpt_hf_view_heads(struct gpt_tensor *out, const struct gpt_tensor *in,
                      const struct gpt_config *c, bool keys, bool import,
                      struct gpt_err *err) GPT_MUST_USE;

#endif
