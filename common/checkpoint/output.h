/* What front ends write with: tensors poured into a safetensors file, with
 * progress, and small files in one call. */
#ifndef GPT_CHECKPOINT_OUTPUT_H
#define GPT_CHECKPOINT_OUTPUT_H

#include "checkpoint/plan.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/target.h"

/* A file that tiles go into. `done` (may be NULL) hears `bytes`, which keeps
 * counting when `file` changes. */
struct gpt_pour {
    struct gpt_safetensors_writer *file;
    gpt_bytes_done *done;
    void *context;
    int64_t bytes;
};
/* A gpt_sink with a struct gpt_pour as context. */
int gpt_pour_tile(void *pour, const void *data, size_t bytes,
                  struct gpt_err *err);

/* Writes DIR/NAME whole. flags: GPT_OUT_*. */
int gpt_small_file_write(const char *dir, const char *name, unsigned flags,
                         const void *data, size_t len,
                         struct gpt_err *err) GPT_MUST_USE;
/* The contents of a file that is put beside weights, at most 256 MiB; *text is
 * freed with gpt_free(). */
int gpt_attachment_read(const struct gpt_attachment *a, char **text,
                        size_t *len, struct gpt_err *err) GPT_MUST_USE;

#endif
