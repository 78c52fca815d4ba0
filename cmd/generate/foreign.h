/* The options of gpt-generate by the names of other programs: transformers,
 * llama.cpp, vLLM, Megatron-LM and others. */
#ifndef GPT_CMD_GENERATE_FOREIGN_H
#define GPT_CMD_GENERATE_FOREIGN_H

#include "base/options.h"

extern const struct gpt_foreign_option gpt_generate_foreign[];
extern const size_t gpt_generate_n_foreign;
/* More names, which are answered alone. */
extern const struct gpt_foreign_option gpt_generate_hints[];
extern const size_t gpt_generate_n_hints;

#endif
