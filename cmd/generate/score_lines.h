/* Pairs of a context and a continuation in, their scores out. */
#ifndef GPT_CMD_GENERATE_SCORE_LINES_H
#define GPT_CMD_GENERATE_SCORE_LINES_H

#include "cmd/generate/loaded_model.h"

/* Reads JSON lines with "context" and "continuation", or with a "text" whose
 * last word is the continuation, and writes a line with the log-probability of
 * each continuation. The model is open without a decoder. GPT_EDATA when a line
 * was refused, after all others are answered. */
int gpt_score_lines(struct gpt_loaded *m, struct gpt_err *err) GPT_MUST_USE;

#endif
