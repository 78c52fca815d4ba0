/* The options of gpt-vocab by the names of other trainers of vocabularies. */
#ifndef GPT_CMD_VOCAB_FOREIGN_H
#define GPT_CMD_VOCAB_FOREIGN_H

#include "base/options.h"

extern const struct gpt_foreign_option gpt_vocab_foreign[];
extern const size_t gpt_vocab_n_foreign;

#endif
