/* Latent attention (DeepSeek-AI 2024, section 2.1), over tensor parallel ranks:
 * keys and values of all heads are made of a row of Rkv numbers of a token, and
 * queries of one of Rq numbers, or of the stream. Each rank makes its heads
 * from whole rows. What turns of a key is made apart, and is the same in all
 * heads. What comes out is queries, keys and values as any attention takes
 * them. layer.h's letters and buffers. */
#ifndef GPT_MODEL_LATENT_H
#define GPT_MODEL_LATENT_H

#include "model/layer.h"

/* From x (N, C), the normed rows of all ranks, to acts->qkv. */
void gpt_latent_forward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts, const void *x);

/* Computes work.dy, the gradient of norm1's rows y (rows, C), from work.dwide,
 * that of acts->qkv, and adds to the gradients of weights. */
void gpt_latent_backward(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, void *y);

/* Point buffers into `base`, or at NULL without it, for n tokens, and return
 * the bytes that they take. base: a multiple of GPT_ALIGN. What products give,
 * which takes long to make again; what norms make of it; what all layers
 * share. A model without latent attention has none of them. */
int64_t gpt_latent_lay_products(struct gpt_latent_acts *a,
                                const struct gpt_widths *w, int64_t n,
                                enum gpt_dtype act, void *base);
int64_t gpt_latent_lay_normed(struct gpt_latent_acts *a,
                              const struct gpt_widths *w, int64_t n,
                              enum gpt_dtype act, void *base);
int64_t gpt_latent_lay_work(struct gpt_latent_work *work,
                            const struct gpt_widths *w, int64_t n,
                            enum gpt_dtype act, bool backward, void *base);

#endif
