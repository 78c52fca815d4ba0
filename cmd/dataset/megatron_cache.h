/* Megatron's caches of a data set's sample order: what its GPTDataset would
 * write before the first step, made ahead. */
#ifndef GPT_CMD_DATASET_MEGATRON_CACHE_H
#define GPT_CMD_DATASET_MEGATRON_CACHE_H

#include "data/indexed.h"

#include <cjson/cJSON.h>

struct gpt_cache_options {
    const char *directory; /* made when it is not there; NULL: Megatron's,
                            * PREFIX/cache/GPTDataset_indices */
    const char *split;     /* "969,30,1" */
    const cJSON *tokenizer; /* its unique_identifiers */
    int64_t seq_length;
    uint32_t seed;
    unsigned flags; /* GPT_OUT_* */
};

/* Writes DIGEST-GPTDataset-SPLIT-{description.txt,document_index.npy,
 * sample_index.npy,shuffle_index.npy} of split 0 (train), 1 or 2 for `wanted`
 * samples (0: one epoch). digest[0] = 0 when the split has no share. Equal to
 * Megatron's with numpy 2, byte for byte. */
int gpt_cache_write(const struct gpt_indexed *set, int split, int64_t wanted,
                    const struct gpt_cache_options *options, char digest[33],
                    struct gpt_err *err) GPT_MUST_USE;

#endif
