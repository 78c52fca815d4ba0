/* Prompts in, texts out: the program as a filter. */
#ifndef GPT_CMD_GENERATE_FILTER_H
#define GPT_CMD_GENERATE_FILTER_H

#include "cmd/generate/loaded_model.h"

/* Reads the prompts of command line, files or standard input, and writes their
 * texts to standard output. The model is open without a decoder. GPT_EDATA
 * when a prompt was refused, after all others are answered. */
int gpt_filter_prompts(struct gpt_loaded *m, struct gpt_err *err) GPT_MUST_USE;

#endif
