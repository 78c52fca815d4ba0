/* Counts the distinct pieces of a corpus, on several threads: the first half of
 * gpt-vocab. */
#ifndef GPT_CMD_VOCAB_CORPUS_COUNT_H
#define GPT_CMD_VOCAB_CORPUS_COUNT_H

#include "cmd/vocab/piece_count.h"
#include "cmd/vocab/text_blocks.h"

struct gpt_count_options {
    struct gpt_blocks_options blocks; /* its threads are set from the below */
    const char *const *keys;          /* fields of JSON Lines that are text */
    int64_t n_keys;
    int64_t threads;      /* that count; >= 1 */
    const char *progress; /* --progress */
};

struct gpt_count_totals {
    int64_t documents; /* lines of JSON Lines, files of text */
    int64_t bytes;     /* of text */
};

/* *counter does not depend on the number of threads, nor does the error: it is
 * the first of the corpus, "FILE:LINE: ..." with GPT_EDATA for a line that is
 * not JSON or lacks a key. GPT_EFAIL when a signal asked to stop. */
int gpt_count_corpus(struct gpt_piece_counter **counter,
                     struct gpt_count_totals *totals,
                     const struct gpt_count_options *options,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
