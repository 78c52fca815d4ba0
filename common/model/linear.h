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

/* Rows of outputs are `width` elements apart. */
struct gpt_linear {
    struct gpt_linear_part part[2];
    int n;
    int64_t width;
};

static inline struct gpt_linear gpt_linear_one(enum gpt_param_role weight,
                                               enum gpt_param_role bias,
                                               int64_t out)
{
    return (struct gpt_linear){{{weight, bias, out, 0}}, 1, out};
}

/* The product y (N, out) = x (N, in) W^T + bias, to be changed and run. */
struct gpt_matmul gpt_linear_op(const struct gpt_pass *pass,
                                const struct gpt_roles *w,
                                const struct gpt_linear_part *part, int64_t in,
                                const void *x, void *y);

/* y (N, width) = x (N, C) W^T + bias, part by part. */
void gpt_linear_wide(const struct gpt_pass *pass, const struct gpt_roles *w,
                     const struct gpt_linear *parts, const void *x, void *y);

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

/* dx (N, in) = dy (N, width) W, part by part; pre: dx is multiplied by
 * gelu'(pre). */
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
