/* What a merged data set comes from: the JSONs of its parts become one, and so
 * do their sources. gpt-dataset(5) describes both files. */
#ifndef GPT_CMD_DATASET_MERGE_PROVENANCE_H
#define GPT_CMD_DATASET_MERGE_PROVENANCE_H

#include "cmd/dataset/command.h"

/* For the data set o->output_prefix, which is made of n others, one after the
 * other. A JSON is written when all of them have one, sources when all have
 * these, too. Open before the tokens are copied: an output that exists
 * (GPT_EEXIST), a JSON that is damaged, or sets of different tokenizers unless
 * o->allow_vocab_mismatch (GPT_EDATA) are reported before the work. */
struct gpt_provenance_merge;
int gpt_provenance_merge_open(struct gpt_provenance_merge **merge,
                              const struct gpt_dataset_options *o,
                              const char *const *sets, int64_t n,
                              struct gpt_err *err)
    GPT_MUST_USE;
/* Writes both files and hands them over, NULL where there is none: they are
 * published with the tokens. */
int gpt_provenance_merge_write(struct gpt_provenance_merge *merge,
                               struct gpt_out *files[2], struct gpt_err *err)
    GPT_MUST_USE;
void gpt_provenance_merge_close(struct gpt_provenance_merge *merge);

#endif
