/* Linear layers of a transformer layer, over tensor parallel ranks: forward,
 * gradients of inputs and of weights, biases. W is (out, in). layer.h's letters
 * and buffers. */
#ifndef GPT_MODEL_LINEAR_H
#define GPT_MODEL_LINEAR_H

#include "model/layer.h"

/* A matrix and its bias, the width of its output, and where that begins in the
 * rows that hold the output: qkv and fc1 are one such part, a gated fc1 may be
 * two side by side. */
struct gpt_linear_part {
    enum gpt_param_role weight, bias;
    int64_t out, at;
};

/* Rows of outputs are `width` elements apart. add: the gradient of the input is
 * added to one that is there. */
struct gpt_linear {
    struct gpt_linear_part part[2];
    int n;
    int64_t width;
    bool add;
};

/* A layer of one weight: `out` outputs, and rows as long. */
static inline struct gpt_linear gpt_linear_one(enum gpt_param_role weight,
                                               enum gpt_param_role bias,
                                               int64_t out)
{
    return (struct gpt_linear){{{weight, bias, out, 0}}, 1, out, false};
}

/* The first product of a feed-forward of `ffn` elements after its activation;
 * gate, bias: what its roles are, where the model is gated, and has biases. */
struct gpt_linear_roles {
    enum gpt_param_role gate, gate_bias, fc1, fc1_bias;
};
struct gpt_linear gpt_linear_before(const struct gpt_pass *pass,
                                    const struct gpt_roles *w,
                                    const struct gpt_linear_roles *roles,
                                    int64_t ffn);

/* What the products of a linear layer read. */
enum gpt_linear_tensor {
    GPT_LINEAR_X,
    GPT_LINEAR_W,
    GPT_LINEAR_DY,
    GPT_N_LINEAR_TENSORS
};

/* Puts the largest |element| of each, over all ranks, into work.amax: before
 * the gradients of a layer whose products are of eight bits, and while no other
 * call of the pass's communicator is under way. x (n_x), dy (n_dy) elements are
 * what this rank has; together the ranks have all. Other layers need nothing.
 */
void gpt_linear_measure(const struct gpt_pass *pass, const struct gpt_roles *w,
                        const struct gpt_linear *parts, int64_t in,
                        const void *x, int64_t n_x, const void *dy,
                        int64_t n_dy);

/* y (N, width) = x (N, in) W^T + bias, part by part. */
void gpt_linear_wide(const struct gpt_pass *pass, const struct gpt_roles *w,
                     const struct gpt_linear *parts, int64_t in, const void *x,
                     void *y);

/* The same of one part, with GELU: pre (N, out) is y before it. */
void gpt_linear_gelu(const struct gpt_pass *pass, const struct gpt_roles *w,
                     const struct gpt_linear *parts, const void *x, void *pre,
                     void *y);

/* This rank's part of x (N, in) W^T, where W's columns are cut over the ranks;
 * add: added to a part that is there. One rank alone adds the bias at once. */
void gpt_linear_partial(const struct gpt_pass *pass, const struct gpt_roles *w,
                        enum gpt_param_role weight, enum gpt_param_role bias,
                        int64_t in, const void *x, bool add);
/* Adds the parts of all ranks into work.x (rows, C), then a bias, where ranks
 * did not. */
void gpt_linear_sum(const struct gpt_pass *pass);
void gpt_linear_add_bias(const struct gpt_pass *pass,
                         const struct gpt_roles *w, enum gpt_param_role bias);

/* After gpt_linear_measure(): dx (N, in) = dy (N, width) W, part by part; pre:
 * dx is multiplied by gelu'(pre). */
void gpt_linear_dx(const struct gpt_pass *pass, const struct gpt_roles *w,
                   const struct gpt_linear *parts, int64_t in, void *dy,
                   void *dx, void *pre);
/* dW (out, in) += dy^T x, dy (N, width), x (N, in). */
void gpt_linear_dw(const struct gpt_pass *pass, const struct gpt_roles *dw,
                   const struct gpt_linear *parts, int64_t in, void *dy,
                   const void *x);
/* db (columns) += column sums of dy (rows, columns), where there is a bias. */
void gpt_linear_bias_grad(const struct gpt_pass *pass, float *db,
                          const void *dy, int64_t rows, int64_t columns);
/* The same for all parts of dy (N, width). */
void gpt_linear_bias_grads(const struct gpt_pass *pass,
                           const struct gpt_roles *dw,
                           const struct gpt_linear *parts, const void *dy);

#endif
