/* Biases of linear layers in config.json, where a class has a switch for each
 * kind, or for several. */
#ifndef GPT_CHECKPOINT_HF_BIASES_H
#define GPT_CHECKPOINT_HF_BIASES_H

#include "checkpoint/huggingface/family.h"

/* Turns what the switch of that kind is of on or off. */
void gpt_hf_switch_biases(struct gpt_config *c, enum gpt_hf_kind kind, bool on);
/* True where the model has all biases that the switch is of. */
bool gpt_hf_has_biases(const struct gpt_config *c, enum gpt_hf_kind kind);

#endif
