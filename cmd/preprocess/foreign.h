/* The options of gpt-preprocess by the names of older versions of Megatron-LM
 * and of its relatives. */
#ifndef GPT_CMD_PREPROCESS_FOREIGN_H
#define GPT_CMD_PREPROCESS_FOREIGN_H

#include "base/options.h"

extern const struct gpt_foreign_option gpt_preprocess_foreign[];
extern const size_t gpt_preprocess_n_foreign;

#endif
