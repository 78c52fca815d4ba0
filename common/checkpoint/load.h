/* Parameters from a checkpoint into a rank's flat buffer on the device. */
#ifndef GPT_CHECKPOINT_LOAD_H
#define GPT_CHECKPOINT_LOAD_H

#include "backend.h"
#include "checkpoint/native.h"
#include "model/params.h"

/* Allocates *weights, a flat buffer of flat->elements of `act`, and reads
 * every slice of `flat` into it, cast to `act`, gaps zero. The caller frees it
 * with be->free(). GPT_EDATA when the checkpoint lacks a tensor or holds
 * another shape. */
int gpt_load_weights(void **weights, struct gpt_checkpoint *c,
                     const struct gpt_flat *flat, enum gpt_dtype act,
                     struct gpt_backend *be, struct gpt_err *err) GPT_MUST_USE;

#endif
