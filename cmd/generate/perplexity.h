/* The perplexity of texts or of a data set, by a convention that has a name. */
#ifndef GPT_CMD_GENERATE_PERPLEXITY_H
#define GPT_CMD_GENERATE_PERPLEXITY_H

#include "cmd/generate/loaded_model.h"

/* The names of the conventions, NULL-terminated. */
extern const char *const gpt_perplexity_names[];

/* Scores the texts of the command, or its data set, and writes one JSON object.
 * The model is open without a decoder. */
int gpt_measure_perplexity(struct gpt_loaded *m,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
