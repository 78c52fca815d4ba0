/* From prompts to texts: many requests through one decoder, as many at once as
 * it has slots. A request that ends makes room for the next at once, so every
 * step does useful work for every slot.
 *
 * A request's text depends on its prompt, its numbers, the seed and the rule
 * of choice, and on nothing else that is going on.
 *
 * This folder turns a model's logits into texts: the choice of a token
 * (sample.h), many requests at once (here), and the text of ids as they come
 * (stream.h). It knows nothing of checkpoints or of the program's input and
 * output. Start here. */
#ifndef GPT_GENERATE_GENERATE_H
#define GPT_GENERATE_GENERATE_H

#include "generate/sample.h"
#include "model/decode.h"

struct gpt_request {
    const int32_t *prompt; /* (n_prompt); borrowed */
    int64_t n_prompt;        /* 0: not to be answered */
    int64_t max_tokens;      /* >= 1 */
    uint64_t number, sample; /* name its random stream: gpt_sample_rng() */
};

enum gpt_finish {
    GPT_FINISH_EOD,       /* the model said so */
    GPT_FINISH_TOKENS,    /* max_tokens are there */
    GPT_FINISH_POSITIONS, /* the model has no more positions */
    GPT_FINISH_STOPPED,   /* a signal asked to stop */
    GPT_FINISH_REFUSED,   /* there was no prompt to continue */
};
const char *gpt_finish_name(enum gpt_finish finish); /* "eod" */

struct gpt_generation {
    struct gpt_sampling sampling;
    uint64_t seed;
    const int32_t *ends; /* (n_ends): each ends a text and is no part of it */
    int n_ends;
    /* Called for each token of a request in order, and once at its end;
     * requests may interleave. A failure ends everything. */
    int (*token)(void *user, int64_t request, int32_t token,
                 struct gpt_err *err);
    int (*finish)(void *user, int64_t request, enum gpt_finish finish,
                  struct gpt_err *err);
    void *user;
};

/* The first token of a text comes from its prompt's pass, every other one from
 * a step. Sampling counts as part of either. */
struct gpt_speed {
    int64_t prompt_tokens, step_tokens, steps;
    double prompt_seconds, step_seconds;
};

/* Answers all requests. GPT_EDATA when a prompt is longer than a slot, before
 * anything is generated. After SIGINT or its like the texts under way finish
 * as GPT_FINISH_STOPPED, the others are not begun, and the result is GPT_OK:
 * gpt_signals_stop() tells. */
int gpt_generate(struct gpt_decoder *d, const struct gpt_request *requests,
                 int64_t n, const struct gpt_generation *how,
                 struct gpt_speed *speed, struct gpt_err *err) GPT_MUST_USE;

#endif
