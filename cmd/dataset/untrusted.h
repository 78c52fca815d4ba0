/* The two files of a data set, mapped as they are: for commands that look at a
 * set which gpt_indexed_open() may refuse. */
#ifndef GPT_CMD_DATASET_UNTRUSTED_H
#define GPT_CMD_DATASET_UNTRUSTED_H

#include "base/dtype.h"
#include "base/io.h"

/* Nothing in the bytes is believed. */
struct gpt_untrusted {
    struct gpt_in *idx_file, *bin_file;
    const uint8_t *image, *bytes; /* of the .idx and the .bin */
    int64_t image_bytes, bin_bytes;
};

/* GPT_EIO when one of the files is not there. Close it in any case. What
 * another program cuts of the .bin reads as zeros, which gpt_in_whole() tells
 * afterwards. */
int gpt_untrusted_open(struct gpt_untrusted *set, const char *prefix,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_untrusted_close(struct gpt_untrusted *set);

/* Token number i of a .bin, as it is; the caller knows that it is there. */
int64_t gpt_token_at(const uint8_t *bytes, enum gpt_dtype dtype, int64_t i);

#endif
