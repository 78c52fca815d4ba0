/* WikiText as text: the data set is divided into words by spaces, also before
 * punctuation, which no model has learned. */
#ifndef GPT_CMD_GENERATE_DETOKENIZE_H
#define GPT_CMD_GENERATE_DETOKENIZE_H

#include "base/memory.h"

/* Appends the text to *out without the spaces that WikiText adds: the rules
 * that Megatron's task WIKITEXT103 and lm-eval's wikitext share, in their
 * order. GPT_EFAIL: out of memory. */
int gpt_detokenize_wikitext(const char *text, size_t len,
                            struct gpt_buf *out) GPT_MUST_USE;

#endif
