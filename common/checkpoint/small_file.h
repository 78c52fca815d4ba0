/* Small files of a checkpoint, which front ends write in one call; large ones
 * are written by checkpoint/fill.h. */
#ifndef GPT_CHECKPOINT_SMALL_FILE_H
#define GPT_CHECKPOINT_SMALL_FILE_H

#include "base/io.h"

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

#endif
