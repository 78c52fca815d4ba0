/* Tensors of a source into a rank's buffer on the device: the one way from a
 * checkpoint, whatever its format and layout, to memory that is computed
 * with. */
#ifndef GPT_CHECKPOINT_LOAD_H
#define GPT_CHECKPOINT_LOAD_H

#include "backend.h"
#include "checkpoint/ownership.h"
#include "checkpoint/source.h"

/* A buffer on the device that is to be filled. */
struct gpt_load {
    const struct gpt_source *source;
    struct gpt_backend *be;
    struct gpt_queue *q;
    void *buffer;
    enum gpt_dtype dtype; /* of the buffer; tensors are cast */
};

/* Fills `boxes`, the parts of a buffer that a rank holds, with tensors of
 * `kind`. Rows of the vocabulary that the source does not have, which are
 * dummies, keep what is in the buffer. GPT_EDATA when the source lacks a tensor
 * or has another shape. */
int gpt_load_boxes(const struct gpt_load *load, enum gpt_kind kind,
                   const struct gpt_ownership *boxes,
                   struct gpt_err *err) GPT_MUST_USE;

/* Allocates *weights, a flat buffer of flat->elements of `dtype`, gaps zero,
 * and fills it with the parameters. The caller frees it with be->free(). */
int gpt_load_weights(void **weights, const struct gpt_source *source,
                     const struct gpt_flat *flat, enum gpt_dtype dtype,
                     struct gpt_backend *be, struct gpt_err *err) GPT_MUST_USE;

#endif
