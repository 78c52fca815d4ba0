/* A tokenizer.json in two: the vocabulary and the merges, megabytes that are
 * read as they are, and all the rest, a small tree. */
#ifndef GPT_TOKENIZER_TOKENIZER_JSON_H
#define GPT_TOKENIZER_TOKENIZER_JSON_H

#include "base/json.h"
#include "text/str.h"

struct gpt_hf_file {
    char *text;
    cJSON *root; /* model.vocab and model.merges are 0 in it */
    struct gpt_str vocab, merges; /* their JSON; empty when not there */
};

/* gpt_hf_file_close() frees, also after a failure. */
int gpt_hf_file_read(struct gpt_hf_file *file, const char *path,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_hf_file_close(struct gpt_hf_file *file);

#endif
