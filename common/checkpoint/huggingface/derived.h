/* Keys of config.json whose number is another one of the model by a formula of
 * the class. */
#ifndef GPT_CHECKPOINT_HF_DERIVED_H
#define GPT_CHECKPOINT_HF_DERIVED_H

#include "base/json.h"
#include "checkpoint/huggingface/family.h"

enum gpt_hf_formula {
    GPT_HF_BASE_RATIO, /* rotary_base is so many times 10000 */
    GPT_HF_BOTH_HALVES, /* of gate and up together: 2 ffn_hidden_size */
    GPT_HF_DEPTH, /* residual_multiplier is it over the root of num_layers */
    GPT_HF_BASE_WIDTH, /* logit_multiplier is it over hidden_size */
};

struct gpt_hf_reader;
/* Takes the value of a key of this kind, whose `offset` is a formula, when the
 * numbers of other keys are known. item NULL: the key's default. */
int gpt_hf_read_derived(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                        const cJSON *item, struct gpt_err *err) GPT_MUST_USE;
/* The same of a key that multiplies, or divides: of kinds SCORE_SCALE,
 * MULTIPLIER and DIVISOR. */
int gpt_hf_read_factor(const struct gpt_hf_reader *r,
                       const struct gpt_hf_key *key, const cJSON *item,
                       struct gpt_err *err) GPT_MUST_USE;
/* What is written for one of a formula. */
double gpt_hf_derived_value(const struct gpt_hf_key *key,
                            const struct gpt_config *c);

#endif
