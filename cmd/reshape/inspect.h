/* Describing a checkpoint from its headers: a native root or iteration, a
 * Hugging Face directory, or a single file of safetensors or torch.save(). */
#ifndef GPT_CMD_RESHAPE_INSPECT_H
#define GPT_CMD_RESHAPE_INSPECT_H

#include "base/memory.h"

/* Appends a table for people, or one JSON object, to `out`. */
int gpt_inspect(struct gpt_buf *out, const char *path, bool json,
                struct gpt_err *err) GPT_MUST_USE;

/* Appends the names that the pickle of a file of torch.save() refers to, one a
 * line, or a JSON array. */
int gpt_inspect_globals(struct gpt_buf *out, const char *path, bool json,
                        struct gpt_err *err) GPT_MUST_USE;

#endif
