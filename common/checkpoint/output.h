/* What front ends write with beside checkpoint/pour.h: small files in one
 * call. */
#ifndef GPT_CHECKPOINT_OUTPUT_H
#define GPT_CHECKPOINT_OUTPUT_H

#include "base/io.h"
#include "checkpoint/target.h"

/* Flags of a small file in a directory that has `flags`: it is written anew by
 * a run that resumes. */
static inline unsigned gpt_small_flags(unsigned flags)
{
    return (flags & ~(unsigned)GPT_OUT_PART) | GPT_OUT_INSIDE;
}

/* Writes DIR/NAME whole. flags: GPT_OUT_*. */
int gpt_small_file_write(const char *dir, const char *name, unsigned flags,
                         const void *data, size_t len,
                         struct gpt_err *err) GPT_MUST_USE;
/* The contents of a file that is put beside weights, at most 256 MiB; *text is
 * freed with gpt_free(). */
int gpt_attachment_read(const struct gpt_attachment *a, char **text,
                        size_t *len, struct gpt_err *err) GPT_MUST_USE;

#endif
