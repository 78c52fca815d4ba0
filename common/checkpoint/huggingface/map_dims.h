/* Tensors there that have another number of dimensions than a parameter here: a
 * row alone, a vector as a row, and matrices in a tensor of three. Every
 * function appends to `out`, and fails where a tensor has too many pieces. */
#ifndef GPT_CHECKPOINT_HF_MAP_DIMS_H
#define GPT_CHECKPOINT_HF_MAP_DIMS_H

#include "checkpoint/plan.h"
#include "model/params.h"

/* A vector (n) as a matrix (1, n), and the reverse. */
int gpt_hf_lift_vector(struct gpt_tensor *out, const struct gpt_tensor *vector,
                       struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_lower_row(struct gpt_tensor *out, const struct gpt_tensor *row,
                     struct gpt_err *err) GPT_MUST_USE;
/* A row of the parameter from a vector there, or the reverse. */
int gpt_hf_view_row(struct gpt_tensor *out, const struct gpt_tensor *in,
                    const struct gpt_param *p, int64_t row, bool import,
                    struct gpt_err *err) GPT_MUST_USE;
/* n matrices (n, rows, columns) as (n * rows, columns), and the reverse. */
int gpt_hf_flatten(struct gpt_tensor *out, const struct gpt_tensor *in,
                   struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_stack(struct gpt_tensor *out, const struct gpt_tensor *in,
                 struct gpt_err *err) GPT_MUST_USE;
/* The same of matrices that are transposed there, one by one; here: the shape
 * of one. */
int gpt_hf_turn_matrices(struct gpt_tensor *out, const struct gpt_tensor *in,
                         int64_t n, const int64_t here[2], bool import,
                         struct gpt_err *err) GPT_MUST_USE;

#endif
