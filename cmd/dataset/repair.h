/* Makes a good data set of a damaged one. */
#ifndef GPT_CMD_DATASET_REPAIR_H
#define GPT_CMD_DATASET_REPAIR_H

#include "cmd/dataset/assemble.h"

/* Writes the repaired set of `prefix` as options->prefix (its dtype is set
 * here); logs what was changed. Rebuilt are pointers, a wrong type, missing or
 * disordered documents (a document a sequence), lengths without the end of
 * documents; what a .bin lacks or has too much is dropped with its document.
 * *damaged = false and nothing is written when nothing is wrong. GPT_EDATA when
 * the damage leaves open what the set was; GPT_EUSAGE when options->index_only
 * does not do, as the .bin must be cut. */
int gpt_repair(const char *prefix, const struct gpt_assemble_options *options,
               bool *damaged, struct gpt_err *err) GPT_MUST_USE;

#endif
