/* Writes a data set from parts of old files: the tokens are copied as they are,
 * only an index is made. merge, slice, head, repair and convert all end here.
 * Start at gpt_write_set(). */
#ifndef GPT_CMD_DATASET_WRITE_SET_H
#define GPT_CMD_DATASET_WRITE_SET_H

#include "base/io.h"
#include "data/idx.h"

/* Consecutive sequences of a file, and their documents. Arrays are
 * little-endian, of any alignment, and borrowed. */
struct gpt_set_range {
    const char *path;         /* of the file with the tokens */
    const char *idx_path;     /* its index, or NULL */
    int64_t offset, bytes;    /* where in `path` they are */
    const uint8_t *lengths;   /* int32 (n_sequences), that add up to `bytes` */
    int64_t n_sequences;
    const uint8_t *documents; /* int64 (n_documents + 1), from any first */
    int64_t n_documents;
};

struct gpt_write_set_options {
    const char *prefix;
    enum gpt_dtype dtype;
    unsigned flags;  /* GPT_OUT_* */
    bool index_only; /* prefix.idx alone */
    bool keeps_beside; /* the files beside are of another set, and stay */
    /* prefix.json and prefix.sources, each NULL where there is none: published
     * with the set, which takes them (and sets them to NULL). NULL: none. */
    struct gpt_out **beside;
    void (*report)(void *user, int64_t bytes); /* of tokens; may be NULL */
    void *user;
};

/* Writes prefix.bin and prefix.idx, the parts in their order, in constant
 * memory. */
int gpt_write_set(const struct gpt_write_set_options *options,
                  const struct gpt_set_range *parts, int64_t n,
                  struct gpt_err *err) GPT_MUST_USE;

/* Publishes the files of a set together, and frees them whatever happens; bin
 * or idx may be NULL. A prefix.json or prefix.sources that the set does not
 * have itself was an older set's, and goes. */
int gpt_publish_set(const struct gpt_write_set_options *options,
                    struct gpt_out *bin, struct gpt_out *idx,
                    struct gpt_err *err) GPT_MUST_USE;

/* Copies bytes [offset, offset + n) of `path` to the end of `out`. Calls
 * options->report; GPT_EFAIL when a signal asked to stop. */
int gpt_copy_bytes(struct gpt_out *out, const char *path, int64_t offset,
                   int64_t n, const struct gpt_write_set_options *options,
                   struct gpt_err *err) GPT_MUST_USE;

/* Joins "prefix" and "suffix" to a new string; freed with gpt_free(). */
int gpt_join_name(char **path, const char *prefix, const char *suffix,
                  struct gpt_err *err) GPT_MUST_USE;

#endif
