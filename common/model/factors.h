/* A factor for each pair of elements that rotary positions turn: the lists of
 * LongRoPE, as a configuration keeps them. */
#ifndef GPT_MODEL_FACTORS_H
#define GPT_MODEL_FACTORS_H

#include "base/memory.h"
#include "base/status.h"

/* Pairs that rotary positions with factors of their own can turn, at most: a
 * list is so many numbers, the factors first and then zeros. */
enum { GPT_ROTARY_PAIRS = 128 };

/* How many numbers a list holds: those before its first 0. */
int64_t gpt_factors_length(const double *factors);

/* From "1,1.05,2.5": at most GPT_ROTARY_PAIRS numbers above 0; what follows
 * them in the list becomes 0. GPT_EUSAGE names the text and the rule. */
int gpt_factors_parse(double *factors, const char *text,
                      struct gpt_err *err) GPT_MUST_USE;

/* Appends the same text: every number as short as it can be. GPT_EFAIL: out of
 * memory. */
int gpt_factors_print(struct gpt_buf *b, const double *factors) GPT_MUST_USE;

#endif
