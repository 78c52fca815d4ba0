/* Texts under way: those that share the steps of one decoder. A request begins
 * when it is given a free slot, every step adds a token to each text, and one
 * that ends frees its slot at once, so that every step does useful work for
 * every slot.
 *
 * A request's text depends on its prompt, its numbers and its choice, and on
 * nothing else that is going on. */
#ifndef GPT_GENERATE_BATCH_H
#define GPT_GENERATE_BATCH_H

#include "generate/logprob.h"
#include "generate/prefix.h"
#include "generate/sample.h"
#include "model/decode.h"

/* How the tokens of a request are chosen, and where its text ends. */
struct gpt_choice {
    struct gpt_sampling sampling;
    const int32_t *ends; /* (n_ends): each ends a text and is no part of it */
    int n_ends;
    bool end_twice; /* `twice` after itself ends a text, too */
    int32_t twice;
    bool logprobs; /* report the log-probability of each token ... */
    int64_t n_top; /* ... and this many most probable tokens beside it */
    bool show_end; /* hand out the token that ends a text, too */
};

struct gpt_request {
    const int32_t *prompt;           /* (n_prompt); borrowed */
    int64_t n_prompt;                /* 0: not to be answered */
    int64_t max_tokens;              /* >= 1 */
    uint64_t number;                 /* of the prompt, in messages from 1 */
    uint64_t seed, stream, sample;   /* name its random numbers:
                                      * gpt_sample_rng() */
    const struct gpt_choice *choice; /* borrowed */
    int64_t *cached; /* NULL, or what the prompt's tokens that were copied are
                      * added to */
};

enum gpt_finish {
    GPT_FINISH_EOD,       /* the model said so */
    GPT_FINISH_TOKENS,    /* max_tokens are there */
    GPT_FINISH_POSITIONS, /* the model has no more positions */
    GPT_FINISH_STOP,      /* the receiver wants no more */
    GPT_FINISH_STOPPED,   /* a signal asked to stop */
    GPT_FINISH_REFUSED,   /* there was no prompt to continue */
};
const char *gpt_finish_name(enum gpt_finish finish); /* "eod" */

/* GPT_EDATA when a prompt is longer than a slot of the decoder: to be called
 * before the first of many requests is begun. */
int gpt_requests_check(const struct gpt_decoder *d,
                       const struct gpt_request *requests, int64_t n,
                       struct gpt_err *err) GPT_MUST_USE;

/* A token that was chosen. Pointers hold during the callback. */
struct gpt_chosen {
    int32_t id;
    double logprob;            /* of the choice's logprobs, else 0 */
    const struct gpt_top *top; /* (n_top) */
    int64_t n_top;
    bool end; /* it ends the text, and is no part of it: see show_end */
    const float *logits; /* (V): of the model, before all adjustments */
};

/* Receives tokens and ends. A failure ends everything. */
struct gpt_sink {
    /* Called for each token of a request in order; requests may interleave.
     * *stop is false, and may be set: the text ends with this token. */
    int (*token)(void *user, int64_t request, const struct gpt_chosen *chosen,
                 bool *stop, struct gpt_err *err);
    /* Called once for each request, at its end. */
    int (*finish)(void *user, int64_t request, enum gpt_finish finish,
                  struct gpt_err *err);
    void *user;
};

/* The first token of a text comes from its prompt's pass, every other one from
 * a step. Sampling counts as part of either. */
struct gpt_speed {
    int64_t prompt_tokens, step_tokens, steps;
    int64_t guessed, right; /* tokens that were guessed, and rightly so */
    double prompt_seconds, step_seconds;
};

/* Texts in slots 0..slots-1 of the decoder, which stays the caller's; nothing
 * else uses these slots until the batch is closed. The sink is copied. */
struct gpt_batch;
int gpt_batch_open(struct gpt_batch **batch, struct gpt_decoder *d,
                   int64_t slots, const struct gpt_sink *sink,
                   struct gpt_err *err) GPT_MUST_USE;
void gpt_batch_close(struct gpt_batch *batch); /* NULL is fine */

/* From now on prompts are computed by way of this cache, which stays the
 * caller's and is used in this batch alone; NULL: none. */
void gpt_batch_use_prefixes(struct gpt_batch *batch,
                            struct gpt_prefixes *prefixes);

int64_t gpt_batch_texts(const struct gpt_batch *batch); /* under way */
int64_t gpt_batch_room(const struct gpt_batch *batch);  /* free slots */
const struct gpt_speed *gpt_batch_speed(const struct gpt_batch *batch);

/* From now on a step guesses up to n tokens of each text, 0..GPT_MOST_GUESSES,
 * from what followed the same words earlier in it, and checks them together
 * with the next one. What is guessed rightly saves steps; texts are the same to
 * the bit wherever GPT_DECODE_SAME_BITS holds. */
enum { GPT_MOST_GUESSES = GPT_DECODE_SAME_BITS - 1 };
int gpt_batch_guess(struct gpt_batch *batch, int64_t n,
                    struct gpt_err *err) GPT_MUST_USE;

/* Gives n requests slots, for which there is room: their prompts go through the
 * model together, once where several have the same one (the same address).
 * Their first tokens go to the sink, which knows them by names[i]. Requests are
 * copied. GPT_EDATA for a prompt longer than a slot; none is begun then. */
int gpt_batch_begin(struct gpt_batch *batch, const struct gpt_request *requests,
                    const int64_t *names, int64_t n,
                    struct gpt_err *err) GPT_MUST_USE;

/* Adds a token to every text under way. */
int gpt_batch_step(struct gpt_batch *batch, struct gpt_err *err) GPT_MUST_USE;

/* Ends all texts under way with GPT_FINISH_STOPPED. */
int gpt_batch_stop(struct gpt_batch *batch, struct gpt_err *err) GPT_MUST_USE;

#endif
