/* The options of gpt-train by the names that other programs give them: those of
 * Megatron-LM that this program has no use for, older ones of Megatron-LM, and
 * those of accelerate, Transformers, DeepSpeed and nanoGPT. The hints are names
 * of GPT-NeoX, LitGPT and others. */
#ifndef GPT_CMD_TRAIN_FOREIGN_H
#define GPT_CMD_TRAIN_FOREIGN_H

#include "base/options.h"

extern const struct gpt_foreign_option gpt_train_foreign[];
extern const size_t gpt_train_n_foreign;
/* More names, which are answered alone. */
extern const struct gpt_foreign_option gpt_train_hints[];
extern const size_t gpt_train_n_hints;

#endif
