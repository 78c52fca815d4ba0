/* A data set out of documents of others: merging is all of them, slicing a
 * range of one. */
#ifndef GPT_CMD_DATASET_SELECT_H
#define GPT_CMD_DATASET_SELECT_H

#include "cmd/dataset/assemble.h"
#include "data/indexed.h"

struct gpt_selection {
    const struct gpt_indexed *set;
    int64_t begin, end; /* documents */
};

/* Writes options->prefix (its dtype is set here), byte for byte what Megatron's
 * IndexedDatasetBuilder.add_index() gives for whole sets. GPT_EDATA names the
 * set whose tokens have another type than those of the first. */
int gpt_select(const struct gpt_selection *items, int64_t n,
               const struct gpt_assemble_options *options, struct gpt_err *err)
    GPT_MUST_USE;

#endif
