/* A data set out of documents of others: merging takes all of them, slicing a
 * range of one. */
#ifndef GPT_CMD_DATASET_WRITE_DOCUMENTS_H
#define GPT_CMD_DATASET_WRITE_DOCUMENTS_H

#include "cmd/dataset/command.h"

struct gpt_document_range {
    const struct gpt_indexed *set; /* borrowed */
    int64_t begin, end;            /* documents, within the set */
};

/* Writes the documents of n ranges as o->output_prefix, with a progress line
 * called `what`, and reports how many there were. Whole sets give, byte for
 * byte, what Megatron's IndexedDatasetBuilder.add_index() gives. GPT_EDATA
 * names the set whose tokens have another type than those of the first;
 * GPT_EUSAGE when there is no range, or the output is an input. */
int gpt_write_documents(const struct gpt_dataset_options *o, const char *what,
                        const struct gpt_document_range *ranges, int64_t n,
                        struct gpt_out **beside, struct gpt_err *err)
    GPT_MUST_USE;

#endif
