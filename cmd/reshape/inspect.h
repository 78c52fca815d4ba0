/* Describing a checkpoint from its headers: a native root or iteration, a
 * Hugging Face directory, or a single safetensors file. */
#ifndef GPT_CMD_RESHAPE_INSPECT_H
#define GPT_CMD_RESHAPE_INSPECT_H

#include "base/memory.h"

/* Appends a table for people, or one JSON object, to `out`. */
int gpt_inspect(struct gpt_buf *out, const char *path, bool json,
                struct gpt_err *err) GPT_MUST_USE;

#endif
