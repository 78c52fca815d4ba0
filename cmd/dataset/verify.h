/* The check of gpt-dataset verify: everything that is wrong with a data set, by
 * the rules of gpt-dataset(5), with ids, ends of documents and the
 * tokenizer. */
#ifndef GPT_CMD_DATASET_VERIFY_H
#define GPT_CMD_DATASET_VERIFY_H

#include "cmd/dataset/remedy.h"
#include "data/set_damage.h"
#include "tokenizer/identity.h"

struct gpt_verify_options {
    int64_t vocab_size; /* ids must be below; 0: any that fits 31 bits */
    int64_t eod;        /* that every document must end with; -1: any may */
    /* the one that must have made the set, if the set says; NULL: any */
    const struct gpt_tokenizer_identity *tokenizer;
};

/* Checks all of both files and reports to `all`. GPT_OK when that could be
 * done, whatever was found; GPT_EIO when a file cannot be read. refusal->why is
 * NULL unless gpt-dataset repair would refuse the set. */
int gpt_verify(const char *prefix, const struct gpt_verify_options *options,
               struct gpt_damages *all, struct gpt_refusal *refusal,
               struct gpt_err *err) GPT_MUST_USE;

#endif
