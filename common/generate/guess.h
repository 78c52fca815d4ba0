/* Guesses of the next tokens of a text: what followed the same tokens when they
 * were last there (prompt lookup, Saxena 2023). Texts that repeat themselves or
 * their prompt, such as code, tables, summaries and quotations, are guessed
 * well; what is guessed is only ever checked, so that a wrong one costs time
 * and changes nothing. */
#ifndef GPT_GENERATE_GUESS_H
#define GPT_GENERATE_GUESS_H

#include "generate/adjust.h"

/* Guesses up to `most` tokens that follow prompt and text; returns how many. */
int64_t gpt_guess(const struct gpt_history *history, int64_t most,
                  int32_t *guesses);

#endif
