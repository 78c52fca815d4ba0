/* What the two halves of the reader of safetensors share. */
#ifndef GPT_CHECKPOINT_SAFETENSORS_INTERNAL_H
#define GPT_CHECKPOINT_SAFETENSORS_INTERNAL_H

#include "checkpoint/safetensors/safetensors.h"

/* Takes tensors and notes from a header's text as it says, with offsets in the
 * data; GPT_EDATA names the byte of the file that is wrong. */
int gpt_safetensors_scan(struct gpt_safetensors *st, const char *text,
                         size_t len, const char *what, struct gpt_err *err)
    GPT_MUST_USE;

/* Makes the index by name; GPT_EDATA when a tensor or a note comes twice. */
int gpt_safetensors_index(struct gpt_safetensors *st, const char *what,
                          struct gpt_err *err) GPT_MUST_USE;

#endif
