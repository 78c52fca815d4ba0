/* Beam search: of all continuations of a prompt, those that are most probable
 * as a whole, found by keeping the best few at every step. Transformers' search
 * (its generation/utils.py, _beam_search) gives the same texts: scores are
 * sums of log-probabilities divided by length^penalty, where the length counts
 * the tokens of the text and the one that ends it. */
#ifndef GPT_GENERATE_BEAMS_H
#define GPT_GENERATE_BEAMS_H

#include "generate/batch.h"

/* When a search ends before max_tokens, with as many finished texts as beams.
 */
enum gpt_early_stopping {
    GPT_STOP_HEURISTIC, /* when the best open beam, divided by its length now,
                         * is no better than the worst finished text */
    GPT_STOP_FIRST,     /* at once */
    GPT_STOP_NEVER,     /* when no open beam can become better, however long */
};

enum { GPT_MOST_BEAMS = 1024 };

struct gpt_beam_rule {
    int64_t beams; /* >= 1 */
    double length_penalty;
    enum gpt_early_stopping early;
    int64_t n_best; /* texts of each prompt, 1..beams */
};

/* A finished text; pointers hold during the callback. */
struct gpt_beam {
    const int32_t *ids; /* (n), without the token that ends it */
    int64_t n;
    double score;
    enum gpt_finish finish;
};

/* Searches for each request, as many at once as the decoder has slots for; a
 * request without a prompt has no beams. The choice's penalties and biases
 * change the log-probabilities; what else it says of choosing has no effect.
 * found() gets the n-best of a request at once, the best first, and `n` = 0 of
 * one that was refused or stopped by a signal. GPT_EUSAGE when the decoder has
 * fewer slots than beams; else errors as gpt_requests_check(), before the first
 * search. */
int gpt_search_beams(struct gpt_decoder *d, const struct gpt_request *requests,
                     int64_t n_requests, const struct gpt_beam_rule *rule,
                     int (*found)(void *user, int64_t request,
                                  const struct gpt_beam *beams, int64_t n,
                                  struct gpt_err *err),
                     void *user, struct gpt_speed *speed,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
