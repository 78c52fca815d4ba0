/* Scores of given texts; see score.h. Start at gpt_score_text(): the context in
 * one pass, of which the last logits stay, then the rest in pieces, since
 * logits of all positions at once would be large. */
#include "generate/score.h"

#include "base/memory.h"
#include "base/num.h"
#include "tokenizer/ids.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { PIECE = 128 }; /* tokens whose logits are held at once */

struct gpt_scorer {
    struct gpt_decoder *d;
    int64_t slot, vocab;
    float *last;            /* (V) logits after the context */
    float *logits;          /* (PIECE, V) */
    struct gpt_ids context; /* what the slot and `last` are of */
    struct gpt_top *top;
    size_t cap_top;
};

/* What a call carries from token to token. */
struct scoring {
    struct gpt_scorer *s;
    int64_t n_top;
    int (*token)(void *user, const struct gpt_chosen *chosen,
                 struct gpt_err *err);
    void *user;
    struct gpt_score *score;
};

/* The context's ids grow with the first text; all else has its size from the
 * model. */
int gpt_scorer_open(struct gpt_scorer **out, struct gpt_decoder *d,
                    int64_t slot, struct gpt_err *err)
{
    const size_t vocab = (size_t)gpt_decoder_shape(d)->config->vocab_size;
    struct gpt_scorer *s = NULL;
    int status;

    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "a scorer", err));
    s->d = d;
    s->slot = slot;
    s->vocab = (int64_t)vocab;
    GPT_TRY_GOTO(status,
                 gpt_new(&s->last, vocab, sizeof(*s->last), "logits", err),
                 fail);
    GPT_TRY_GOTO(
        status,
        gpt_new(&s->logits, vocab * PIECE, sizeof(*s->logits), "logits", err),
        fail);
    *out = s;
    return GPT_OK;
fail:
    gpt_scorer_close(s);
    return status;
}

void gpt_scorer_close(struct gpt_scorer *s)
{
    if (!s)
        return;
    gpt_free(s->last);
    gpt_free(s->logits);
    gpt_free(s->context.data);
    gpt_free(s->top);
    gpt_free(s);
}

/* One token, by the logits before it. */
static int score_token(struct scoring *c, int32_t id, const float *logits,
                       struct gpt_err *err)
{
    struct gpt_scorer *s = c->s;
    const double log_sum = gpt_log_sum(logits, s->vocab);
    struct gpt_chosen chosen = {
        .id = id,
        .logprob = (double)logits[id] - log_sum,
        .logits = logits,
    };

    if (!isfinite(log_sum))
        return gpt_fail(err, GPT_EDIVERGED,
                        "the model's logits are not finite numbers");
    c->score->logprob += chosen.logprob;
    c->score->tokens++;
    c->score->greedy &= gpt_most_probable(logits, s->vocab) == id;
    if (!c->token)
        return GPT_OK;
    GPT_TRY(gpt_grow(&s->top, &s->cap_top, (size_t)c->n_top + 1,
                     sizeof(*s->top), "log-probabilities", err));
    chosen.n_top =
        gpt_top_logprobs(logits, s->vocab, log_sum, s->top, c->n_top);
    chosen.top = s->top;
    return c->token(c->user, &chosen, err);
}

/* Puts the context into the slot, unless it is what the slot begins with. Bits
 * of logits depend on how a text is cut into passes, and the cut behind the
 * context is always there: a context that is found again gives the same
 * scores. */
static int put_context(struct gpt_scorer *s, const int32_t *tokens, int64_t n,
                       struct gpt_err *err)
{
    if ((int64_t)s->context.len == n &&
        memcmp(s->context.data, tokens, (size_t)n * sizeof(*tokens)) == 0) {
        gpt_decoder_truncate(s->d, s->slot, n);
        return GPT_OK;
    }
    s->context.len = 0;
    gpt_decoder_truncate(s->d, s->slot, 0);
    GPT_TRY(gpt_decoder_append(s->d, s->slot, tokens, n, GPT_LOGITS_LAST,
                               s->last, err));
    return gpt_ids_add(&s->context, tokens, (size_t)n, err);
}

/* Before any pass: a text that is refused leaves the slot's context as it is
 * known, for the next text. */
static int check_tokens(const struct gpt_scorer *s, const int32_t *tokens,
                        int64_t n, struct gpt_err *err)
{
    const int64_t most = gpt_decoder_shape(s->d)->positions + 1;

    if (n > most)
        return gpt_fail(err, GPT_EDATA,
                        "%lld tokens, but only %lld can be scored at once",
                        (long long)n, (long long)most);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->vocab)
            return gpt_fail(err, GPT_EDATA,
                            "token id %d is outside the vocabulary of %lld",
                            tokens[i], (long long)s->vocab);
    return GPT_OK;
}

/* The logits after the context score the first token, those of each piece the
 * tokens after it; the last token has nothing to predict, and is not put in. */
int gpt_score_text(struct gpt_scorer *s, const int32_t *tokens, int64_t n,
                   int64_t first, int64_t n_top,
                   int (*token)(void *user, const struct gpt_chosen *chosen,
                                struct gpt_err *err),
                   void *user, struct gpt_score *score, struct gpt_err *err)
{
    struct scoring c = {s, n_top, token, user, score};

    assert(first >= 1 && first < n);
    *score = (struct gpt_score){.greedy = true};
    GPT_TRY(check_tokens(s, tokens, n, err));
    GPT_TRY(put_context(s, tokens, first, err));
    GPT_TRY(score_token(&c, tokens[first], s->last, err));
    for (int64_t at = first; at + 1 < n; at += PIECE) {
        const int64_t rows = gpt_min_i64(PIECE, n - 1 - at);

        GPT_TRY(gpt_decoder_append(s->d, s->slot, tokens + at, rows,
                                   GPT_LOGITS_ALL, s->logits, err));
        for (int64_t i = 0; i < rows; i++)
            GPT_TRY(score_token(&c, tokens[at + i + 1],
                                s->logits + i * s->vocab, err));
    }
    return GPT_OK;
}
