/* Which data sets the words of --data-path and its like mean. */
#ifndef GPT_CMD_TRAIN_DATA_NAMES_H
#define GPT_CMD_TRAIN_DATA_NAMES_H

#include "base/memory.h"
#include "data/corpus.h"

/* Replaces each name that only one data set continues, as my-gpt2 for
 * my-gpt2_text_document, and reports that when `first` is true. GPT_EUSAGE
 * when a word is a weight where a data set must be; GPT_EDATA when it names
 * something else, or several data sets: the message says what it is. Names that
 * nothing is known of are left to the reader. `file` is where the words of the
 * options are from, for messages, or NULL. Strings live in `arena`. */
int gpt_train_find_data(struct gpt_corpus_options *corpus, const char *file,
                        struct gpt_arena *arena, bool first,
                        struct gpt_err *err) GPT_MUST_USE;

#endif
