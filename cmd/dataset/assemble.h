/* New data sets out of pieces of old files: the tokens are copied as they are,
 * only an index is made. Merging, cutting, repairing and converting are this.
 * Start at gpt_assemble(). Internal to data/. */
#ifndef GPT_CMD_DATASET_ASSEMBLE_H
#define GPT_CMD_DATASET_ASSEMBLE_H

#include "base/io.h"
#include "data/idx.h"

/* Sequences in a row in a file, and their documents. Little-endian, any
 * alignment, borrowed. */
struct gpt_set_range {
    const char *path;         /* of the file with the tokens */
    const char *idx_path;     /* its index, or NULL */
    int64_t offset, bytes;    /* where in `path` they are */
    const uint8_t *lengths;   /* int32 (n_sequences), that add up to `bytes` */
    int64_t n_sequences;
    const uint8_t *documents; /* int64 (n_documents + 1), from any first */
    int64_t n_documents;
};

struct gpt_assemble_options {
    const char *prefix;
    enum gpt_dtype dtype;
    unsigned flags;  /* GPT_OUT_* */
    bool index_only; /* prefix.idx alone */
    void (*report)(void *user, int64_t bytes); /* of tokens; may be NULL */
    void *user;
};

/* Writes prefix.bin and prefix.idx, the parts in their order, in constant
 * memory. GPT_EUSAGE when a part is read from the file that would be written:
 * inputs are never modified. */
int gpt_assemble(const struct gpt_assemble_options *options,
                 const struct gpt_set_range *parts, int64_t n,
                 struct gpt_err *err) GPT_MUST_USE;

/* Bytes [offset, offset + n) of `path` to the end of `out`, with report and
 * regard for signals. */
int gpt_assemble_copy(struct gpt_out *out, const char *path, int64_t offset,
                      int64_t n, const struct gpt_assemble_options *options,
                      struct gpt_err *err) GPT_MUST_USE;

/* "prefix" "suffix" as a new string; freed with gpt_free(). */
int gpt_prefixed(char **path, const char *prefix, const char *suffix,
                 struct gpt_err *err) GPT_MUST_USE;

#endif
