/* Logits changed by what the text holds already, before temperature and top-k:
 * in this order
 *   bias         logit + add, of the tokens that are listed
 *   repetition   of every token of prompt and text: logit / r when it is
 *                positive, logit * r when it is not (Keskar et al., CTRL, 2019,
 *                section 4.1; as transformers and vLLM have it)
 *   presence     logit - presence, of every token of the text
 *   frequency    logit - frequency * (times in the text)
 * The last two do not count the prompt: OpenAI's API and vLLM. And Megatron's
 * wish that no line ends after a colon. */
#ifndef GPT_GENERATE_ADJUST_H
#define GPT_GENERATE_ADJUST_H

#include "generate/sample.h"

/* The ids that a text holds. */
struct gpt_history {
    const int32_t *prompt; /* (n_prompt) */
    int64_t n_prompt;
    const int32_t *text; /* (n_text): added to the prompt so far */
    int64_t n_text;
};

/* True when the rule changes any logit. */
bool gpt_adjusts(const struct gpt_sampling *rule);

/* Changes logits (V) in place. `counts` (V) must be zero, and is again zero
 * afterwards. Ids outside the vocabulary are ignored. O(n). */
void gpt_adjust(float *logits, int64_t vocab, const struct gpt_sampling *rule,
                const struct gpt_history *history, int32_t *counts);

#endif
