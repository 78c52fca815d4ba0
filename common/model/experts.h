/* The feed-forward of a layer that has experts, over tensor parallel ranks:
 * each rank has E / tp of them, and gives its parts of the tokens' outputs,
 * which are summed over the ranks as those of any feed-forward. Beside experts
 * there may be a feed-forward of all tokens, which ranks share by columns.
 * layer.h's letters and buffers. */
#ifndef GPT_MODEL_EXPERTS_H
#define GPT_MODEL_EXPERTS_H

#include "model/layer.h"
#include "model/norm_site.h"

static inline bool gpt_layer_has_experts(const struct gpt_layer *layer)
{
    return layer->w.at[GPT_ROUTER_WEIGHT] != NULL;
}

/* Points the tables of a, and the gate where the model has one, into `base`, or
 * at NULL without it, for n tokens; returns the bytes that they take. base: a
 * multiple of GPT_ALIGN. What is act stays as it is. */
int64_t gpt_experts_lay_out(struct gpt_expert_acts *a,
                            const struct gpt_config *c, int64_t n, void *base);

/* From x (N, C), the normed rows of all ranks, up to the activations. */
void gpt_experts_forward(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, const void *x);

/* The rest: work.x (rows, C) is the output. */
void gpt_experts_output(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts);

/* Computes work.dy, the gradient of norm2's rows, from work.x, that of the
 * output, and adds to the gradients of weights. */
void gpt_experts_backward(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_layer_acts *acts,
                          const struct gpt_norm_site *norm2);

#endif
