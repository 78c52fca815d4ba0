/* Filling files from a plan. A file is a list of parts, each of them a box of a
 * tensor or bytes in memory; several threads share the tiles of all parts, and
 * each tile is gathered, cast, packed, summed and written where it belongs. The
 * bytes do not depend on the threads. What an interrupted run has written and
 * noted (checkpoint/resume.h) is verified and not written again.
 *
 * A checkpoint of several files is filled several files at a time, since the
 * kernel lets one thread at a time write to a file.
 *
 * Start at gpt_fill_files(), or at gpt_fill() for one file. */
#ifndef GPT_CHECKPOINT_FILL_H
#define GPT_CHECKPOINT_FILL_H

#include "checkpoint/plan.h"

#include <stdatomic.h>

enum {
    GPT_FILL_THREADS = 16, /* most: each holds a tile and scratch */
};

struct gpt_part {
    int64_t offset, bytes; /* in the file */
    /* NULL: `data` is in memory. Else the box of it, as `dtype`. */
    const struct gpt_tensor *tensor;
    int64_t begin[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];
    enum gpt_dtype dtype;
    const struct gpt_packing *packing; /* of floats; NULL: as they are */
    const void *data;

    /* filled by gpt_fill(): CRC-32C of the bytes, and CRC-32 if asked for */
    uint32_t crc, zip_crc;
};

struct gpt_resume;
struct gpt_source;
struct gpt_fill {
    int threads; /* 0: those of OpenMP; see gpt_fill_threads() */
    gpt_bytes_done *done; /* NULL is fine; called by one thread at a time */
    void *context;
    int64_t bytes;             /* of parts so far, over all files */
    int64_t taken;             /* of them, what was there and is whole */
    unsigned flags;            /* GPT_OUT_* of the output */
    struct gpt_resume *resume; /* NULL: nothing is noted */
    /* NULL, or what the tensors are of: its files must be whole before a file
     * that is made of them gets its name. */
    const struct gpt_source *source;
    bool spoilt; /* by the functions below: they are not */
    bool stops;  /* fails at a signal that asks to stop */
    /* Elements that became infinite as fp16, over all files, and the name of a
     * tensor that has some, the first of the alphabet. */
    int64_t infinite;
    const char *infinite_in;
    /* Set by gpt_fill_files(). whole: the work that this is a share of; NULL:
     * this is the whole. failed: a share has failed, and all others end. */
    struct gpt_fill *whole;
    atomic_bool failed;
};

/* Writes all parts into `out`, which is empty or what an earlier run has left;
 * name: the file among those of the checkpoint. Parts do not overlap. After a
 * failure, parts that are whole are noted. */
int gpt_fill(struct gpt_fill *p, struct gpt_out *out, const char *name,
             struct gpt_part *parts, int64_t n, bool zip,
             struct gpt_err *err) GPT_MUST_USE;

/* The same into a file at `path` of its own, of so many bytes, which gets its
 * name at the end. */
int gpt_fill_file(struct gpt_fill *p, const char *path, const char *name,
                  int64_t bytes, struct gpt_part *parts, int64_t n,
                  struct gpt_err *err) GPT_MUST_USE;

/* Calls write() for files 0 to n - 1, several at once, each with a share of the
 * threads: what it is given instead of p. The largest come first; bytes NULL:
 * as they are. Returns the first failure; files that were under way then have
 * failed, too. */
typedef int gpt_fill_one(void *context, int64_t file, struct gpt_fill *share,
                         struct gpt_err *err);
int gpt_fill_files(struct gpt_fill *p, const int64_t *bytes, int64_t n,
                   gpt_fill_one *write, void *context,
                   struct gpt_err *err) GPT_MUST_USE;

/* Threads that such a number means: 0 is all, GPT_FILL_THREADS the most. */
int gpt_fill_threads(int asked);
/* Most bytes of memory that it takes with so many threads, 0 as above; merges:
 * of a source with adapters. */
int64_t gpt_fill_memory(int threads, bool merges);
/* Bytes among them that are pages of the input, of all threads together. */
int64_t gpt_fill_seen(int threads, bool merges);

#endif
