/* What gpt-dataset prints about data sets: tables for people, a JSON object a
 * line for scripts. All append to *b. */
#ifndef GPT_CMD_DATASET_SHOW_H
#define GPT_CMD_DATASET_SHOW_H

#include "base/memory.h"
#include "data/idx.h"
#include "cmd/dataset/stat.h"

struct gpt_show {
    struct gpt_buf *b;
    bool json;
    int64_t n, documents, sequences, tokens, bytes; /* sums */
};

/* A line a set, another where its provenance is known, and a last line with
 * sums when there were several. */
int gpt_show_info(struct gpt_show *show, const struct gpt_indexed *set,
                  struct gpt_err *err) GPT_MUST_USE;
int gpt_show_info_end(struct gpt_show *show, struct gpt_err *err) GPT_MUST_USE;

/* `tokenizer` may be NULL; then top ids have no text. */
int gpt_show_stat(struct gpt_show *show, const struct gpt_indexed *set,
                  const struct gpt_stat *stat,
                  const struct gpt_tokenizer *tokenizer, struct gpt_err *err)
    GPT_MUST_USE;

/* The findings of a set, as gpt_damages.found gathers them. */
struct gpt_findings {
    struct gpt_damages damages; /* .user = this */
    struct gpt_finding *items;
    size_t n, cap;
    bool out_of_memory;
};
void gpt_findings_open(struct gpt_findings *f, int64_t most);
void gpt_findings_close(struct gpt_findings *f);
int gpt_show_findings(struct gpt_show *show, const char *prefix,
                      const struct gpt_findings *f, struct gpt_err *err)
    GPT_MUST_USE;

#endif
