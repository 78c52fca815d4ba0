/* A line in, its text out: for trying a model at a terminal, or for a program
 * at the other end of a pipe that waits for each answer. */
#ifndef GPT_CMD_GENERATE_INTERACTIVE_H
#define GPT_CMD_GENERATE_INTERACTIVE_H

#include "cmd/generate/loaded_model.h"

/* Reads lines of standard input until it ends, and continues each on standard
 * output before it reads the next one. The model is open without a decoder. */
int gpt_interact(struct gpt_loaded *m, struct gpt_err *err) GPT_MUST_USE;

#endif
