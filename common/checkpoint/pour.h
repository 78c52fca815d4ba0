/* Filling a file from a plan. The file is a list of parts, each of them a box
 * of a tensor or bytes in memory; several threads share the tiles of all parts,
 * and each tile is gathered, cast, packed, summed and written where it belongs.
 * The bytes do not depend on the threads. What an interrupted run has written
 * and noted (checkpoint/resume.h) is verified and not written again.
 *
 * Start at gpt_pour(). */
#ifndef GPT_CHECKPOINT_POUR_H
#define GPT_CHECKPOINT_POUR_H

#include "checkpoint/plan.h"

enum {
    GPT_POUR_THREADS = 16, /* most: each holds a tile and scratch */
};

struct gpt_part {
    int64_t offset, bytes; /* in the file */
    /* NULL: `data` is in memory. Else the box of it, as `dtype`. */
    const struct gpt_tensor *tensor;
    int64_t begin[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];
    enum gpt_dtype dtype;
    const struct gpt_packing *packing; /* of floats; NULL: as they are */
    const void *data;

    /* filled by gpt_pour(): CRC-32C of the bytes, and CRC-32 if asked for */
    uint32_t crc, zip_crc;
};

struct gpt_resume;
struct gpt_pour {
    int threads; /* 0: those of OpenMP, at most GPT_POUR_THREADS */
    gpt_bytes_done *done; /* NULL is fine; called by one thread at a time */
    void *context;
    int64_t bytes;             /* of parts so far, over all files */
    int64_t taken;             /* of them, what was there and is whole */
    unsigned flags;            /* GPT_OUT_* of the output */
    struct gpt_resume *resume; /* NULL: nothing is noted */
};

/* Writes all parts into `out`, which is empty or what an earlier run has left;
 * name: the file among those of the checkpoint. Parts do not overlap. After a
 * failure, parts that are whole are noted. */
int gpt_pour(struct gpt_pour *p, struct gpt_out *out, const char *name,
             struct gpt_part *parts, int64_t n, bool zip,
             struct gpt_err *err) GPT_MUST_USE;

/* The same into a file at `path` of its own, of so many bytes, which gets its
 * name at the end. */
int gpt_pour_file(struct gpt_pour *p, const char *path, const char *name,
                  int64_t bytes, struct gpt_part *parts, int64_t n,
                  struct gpt_err *err) GPT_MUST_USE;

/* Most bytes of memory that it takes with so many threads, 0 as above. */
int64_t gpt_pour_memory(int threads);
/* CRC-32C of a whole file, read by several threads. */
int gpt_pour_check(struct gpt_in *in, uint32_t *crc,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
