/* Which products of a model have factors of eight bits (kernels/backend.h,
 * struct gpt_fp8_factors): those of the linear layers in a range of the model's
 * layers, three of each - forward, the gradient of the input, that of the
 * weight. Everything else, experts and their routers, the layers outside the
 * range and both ends of the model keep the type of activations. */
#ifndef GPT_MODEL_FP8_H
#define GPT_MODEL_FP8_H

#include "backend.h"
#include "model/geometry.h"

/* forward: of inputs and weights; gradients: of gradients of outputs. */
struct gpt_fp8_types {
    enum gpt_fp8 forward, gradients; /* both or neither GPT_FP8_NONE */
};

/* Layers [first, end), global numbers, have these types. */
struct gpt_fp8_layers {
    struct gpt_fp8_types types;
    int64_t first, end;
};

/* Those of a layer; GPT_FP8_NONE outside the range. */
struct gpt_fp8_types gpt_fp8_of_layer(const struct gpt_fp8_layers *layers,
                                      int64_t layer);

/* The rules of such products for a microbatch of n rows and the widths of one
 * of tp ranks, n, C and all others a multiple of 16, in activations of bf16:
 * GPT_EUSAGE names what breaks them, and its number. */
int gpt_fp8_check(const struct gpt_config *c, int64_t tp, int64_t n,
                  enum gpt_dtype act, struct gpt_err *err) GPT_MUST_USE;

/* Bytes of scratch for any of the products. */
size_t gpt_fp8_scratch(const struct gpt_backend *be,
                       const struct gpt_widths *widths, int64_t n);

#endif
