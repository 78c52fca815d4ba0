/* From prompts to texts: a list of requests through one decoder, as many at
 * once as it has slots.
 *
 * This folder turns a model's logits into texts: the choice of a token
 * (sample.h, adjust.h), texts that share the steps of a decoder (batch.h), and
 * the text of ids as they come (text.h, stream.h). It knows nothing of
 * checkpoints or of the program's input and output. Start here. */
#ifndef GPT_GENERATE_GENERATE_H
#define GPT_GENERATE_GENERATE_H

#include "generate/batch.h"

/* Answers all requests; the sink knows them by their index. guesses: tokens
 * that each step may guess of a text (gpt_batch_guess()), 0: none. Errors as
 * gpt_requests_check(), before anything is generated. After SIGINT or its like
 * the texts under way finish as GPT_FINISH_STOPPED, the others are not begun,
 * and the result is GPT_OK: gpt_signals_stop() tells. */
int gpt_generate(struct gpt_decoder *d, const struct gpt_request *requests,
                 int64_t n, int64_t guesses, const struct gpt_sink *sink,
                 struct gpt_speed *speed, struct gpt_err *err) GPT_MUST_USE;

#endif
