/* The writer, as native_write.c (files) and native_commit.c (the manifest, and
 * what other ranks wrote) share it. */
#ifndef GPT_CHECKPOINT_NATIVE_INTERNAL_H
#define GPT_CHECKPOINT_NATIVE_INTERNAL_H

#include "base/io.h"
#include "checkpoint/manifest.h"

struct gpt_checkpoint_writer {
    struct gpt_outdir *dir;
    char root[4096], path[4096]; /* path: the final name */
    int64_t iteration;
    unsigned flags;
    struct gpt_manifest_list list; /* what was written */
    struct gpt_peers *peers;
};

#endif
