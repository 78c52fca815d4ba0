/* How probable the tokens of a given text are. The passes are those of
 * generation, so that scores of a text that was generated are the
 * log-probabilities it was generated with. */
#ifndef GPT_GENERATE_SCORE_H
#define GPT_GENERATE_SCORE_H

#include "generate/batch.h"

/* Uses slots [slot, slot + slots) of the decoder, which stays the caller's. */
struct gpt_scorer;
int gpt_scorer_open(struct gpt_scorer **s, struct gpt_decoder *d, int64_t slot,
                    int64_t slots, struct gpt_err *err) GPT_MUST_USE;
void gpt_scorer_close(struct gpt_scorer *s); /* NULL is fine */

/* The sum over the tokens that were scored. */
struct gpt_score {
    double logprob; /* natural logarithm */
    int64_t tokens;
    bool greedy; /* each of them was the most probable one */
};

/* What gets each token that is scored, with `n_top` of the most probable in its
 * place. */
typedef int gpt_token_scored(void *user, const struct gpt_chosen *chosen,
                             struct gpt_err *err);

/* tokens[first..n) are to be scored, 1 <= first < n, each after all before
 * it. */
struct gpt_scored_text {
    const int32_t *tokens; /* borrowed */
    int64_t n, first;
    void *user; /* of `token` */
    struct gpt_score score;
};

/* GPT_EDATA for a text that is too long, or has ids that are no tokens. `most`:
 * tokens of a text that can be scored. */
int gpt_score_check(const int32_t *tokens, int64_t n, int64_t most,
                    int64_t vocab, struct gpt_err *err) GPT_MUST_USE;

/* Scores n texts together, at most as many as there are slots; a score does not
 * depend on the others. The last token is not put in: a text may have one token
 * more than a slot has positions. `token` may be NULL; tokens of a text come in
 * their order. A text that begins with the same `first` tokens as the one
 * before, of an earlier call, too, costs only the rest. GPT_EDATA by
 * gpt_score_check(); GPT_EDIVERGED for logits that are no numbers. */
int gpt_score_texts(struct gpt_scorer *s, struct gpt_scored_text *texts,
                    int64_t n, int64_t n_top, gpt_token_scored *token,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
