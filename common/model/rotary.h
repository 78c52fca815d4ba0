/* Rotary positions of a model as the backend takes them: the base, and how
 * rates are scaled for longer texts. Formulas: Chen et al. 2023 (linear),
 * transformers' modeling_rope_utils.py (dynamic, llama3), Peng et al. 2023
 * (YaRN), Ding et al. 2024 (LongRoPE). */
#ifndef GPT_MODEL_ROTARY_H
#define GPT_MODEL_ROTARY_H

#include "backend.h"
#include "model/config.h"

/* Sets rotary, base, interleaved, scaling and the growth of queries of a layer
 * (its global number, from 0) that turns. is_long: of texts as
 * gpt_config_is_long() has it. */
void gpt_rotary_fill(struct gpt_rope *op, const struct gpt_config *c,
                     int64_t layer, bool is_long);

#endif
