/* Biases of linear layers, of which there are three kinds; and switches of
 * config.json, each of which is of a kind or of several. */
#ifndef GPT_CHECKPOINT_HF_BIASES_H
#define GPT_CHECKPOINT_HF_BIASES_H

#include "checkpoint/huggingface/family.h"

/* Which there are: those of queries, keys and values; of attention's output;
 * of the feed-forward. */
struct gpt_hf_biases {
    bool qkv, proj, mlp;
};
struct gpt_hf_biases gpt_hf_biases_of(const struct gpt_config *c);
/* In the one way in which a model that has these is described. */
void gpt_hf_set_biases(struct gpt_config *c, const struct gpt_hf_biases *b);

/* Turns what the switch of that kind is of on or off. */
void gpt_hf_switch_biases(struct gpt_config *c, enum gpt_hf_kind kind, bool on);
/* True where the model has all biases that the switch is of. */
bool gpt_hf_has_biases(const struct gpt_config *c, enum gpt_hf_kind kind);

#endif
