/* What the native_*.c files share: the writer, of write.c (files) and commit.c
 * (the manifest, and what other ranks wrote); opening, of open.c (which) and
 * read.c (how). */
#ifndef GPT_CHECKPOINT_NATIVE_INTERNAL_H
#define GPT_CHECKPOINT_NATIVE_INTERNAL_H

#include "base/io.h"
#include "checkpoint/native/manifest.h"

struct gpt_checkpoint_writer {
    struct gpt_outdir *dir;
    char root[GPT_PATH_BYTES], path[GPT_PATH_BYTES]; /* path: the final name */
    int64_t iteration;
    unsigned flags;
    struct gpt_manifest_list list; /* what was written */
    struct gpt_agreement *peers;
};

/* The files that this rank opens, all or those of weights, and whose checksums
 * it checks: every size-th, now or later. */
struct gpt_share {
    bool weights_only, verify, later;
    int64_t rank, size;
};
/* Opens the directory of one checkpoint, for gpt_checkpoint_close() to close.
 * GPT_EDATA names what of its manifest or files does not fit. */
int gpt_checkpoint_open_here(struct gpt_checkpoint **c, const char *dir,
                             const struct gpt_share *share,
                             struct gpt_err *err) GPT_MUST_USE;

#endif
