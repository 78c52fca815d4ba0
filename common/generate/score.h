/* How probable the tokens of a given text are. The passes are those of
 * generation, so that scores of a text that was generated are the
 * log-probabilities it was generated with. */
#ifndef GPT_GENERATE_SCORE_H
#define GPT_GENERATE_SCORE_H

#include "generate/batch.h"

/* Uses slot 0 of the decoder, which stays the caller's. */
struct gpt_scorer;
int gpt_scorer_open(struct gpt_scorer **s, struct gpt_decoder *d,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_scorer_close(struct gpt_scorer *s); /* NULL is fine */

/* The sum over the tokens that were scored. */
struct gpt_score {
    double logprob; /* natural logarithm */
    int64_t tokens;
    bool greedy; /* each of them was the most probable one */
};

/* Scores tokens[first..n) of a text, 1 <= first < n, each after all before it.
 * The last token is not put in: a text may have one token more than a slot has
 * positions. `token`, which may be NULL, gets each of them, with `n_top` of the
 * most probable in its place. A text that begins with the same `first` tokens
 * as the one before costs only the rest, and the scores do not depend on that.
 * GPT_EDATA for a text that is too long; GPT_EDIVERGED for logits that are no
 * numbers. */
int gpt_score_text(struct gpt_scorer *s, const int32_t *tokens, int64_t n,
                   int64_t first, int64_t n_top,
                   int (*token)(void *user, const struct gpt_chosen *chosen,
                                struct gpt_err *err),
                   void *user, struct gpt_score *score,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
