/* Everything that is wrong with a data set: the rules of gpt-dataset(5), ids
 * and ends of documents. Start at gpt_verify(). */
#ifndef GPT_CMD_DATASET_VERIFY_H
#define GPT_CMD_DATASET_VERIFY_H

#include "base/io.h"
#include "data/idx.h"

/* Both files of a set, mapped, nothing in them believed. */
struct gpt_untrusted {
    struct gpt_in *idx_file, *bin_file;
    const uint8_t *image, *bytes;
    int64_t image_bytes, bin_bytes;
};

/* GPT_EIO when one is not there. Close in any case. */
int gpt_untrusted_open(struct gpt_untrusted *set, const char *prefix,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_untrusted_close(struct gpt_untrusted *set);

/* Token number i of a .bin, as it is. */
int64_t gpt_token_at(const uint8_t *bytes, enum gpt_dtype dtype, int64_t i);

struct gpt_verify_options {
    int64_t vocab_size; /* ids must be below; 0: any that fits 31 bits */
    int64_t eod;        /* that every document must end with; -1: not asked */
};

/* Checks all of both files and tells `all`. GPT_OK when that could be done,
 * whatever was found. */
int gpt_verify(const char *prefix, const struct gpt_verify_options *options,
               struct gpt_damages *all, struct gpt_err *err) GPT_MUST_USE;

#endif
