/* Statistics of a data set: lengths of documents from the index alone, tokens
 * when they are asked for. Start at gpt_stat(). */
#ifndef GPT_CMD_DATASET_STATISTICS_H
#define GPT_CMD_DATASET_STATISTICS_H

#include "data/indexed.h"
#include "tokenizer/tokenizer.h"

enum { GPT_STAT_BUCKETS = 64, GPT_STAT_IDS = 1 << 20 };

struct gpt_token_count {
    int64_t id, count;
};

struct gpt_stat_options {
    bool tokens;  /* read the .bin */
    int64_t top;  /* most frequent ids wanted */
    const struct gpt_tokenizer *tokenizer; /* NULL: text_bytes is not known */
};

/* Lengths are tokens of documents. Quantiles are those of nearest rank: at
 * least half of the documents are at most as long as the median. */
struct gpt_stat {
    int64_t documents, sequences, tokens;
    int64_t empty_documents, empty_sequences;
    int64_t min, median, p90, p99, max;
    /* documents of no token, of 1, 2-3, 4-7, ... */
    int64_t bucket[GPT_STAT_BUCKETS];
    /* with `tokens`: */
    int64_t distinct;         /* ids below GPT_STAT_IDS that occur */
    int64_t other;            /* tokens of ids that are not */
    int64_t last_id, n_last;  /* last token of the first document that has one,
                               * and of how many it is */
    int64_t filled;           /* documents with a token */
    int64_t text_bytes;       /* without ends of documents; -1: not known */
    struct gpt_token_count *top; /* (n_top), most frequent first */
    int64_t n_top;
};

/* Counts a set: its index, and with options->tokens its .bin, which is read
 * once. gpt_stat_free() frees what *s holds. GPT_EFAIL after a signal. */
int gpt_stat(struct gpt_stat *s, const struct gpt_indexed *set,
             const struct gpt_stat_options *options, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_stat_free(struct gpt_stat *s);

#endif
