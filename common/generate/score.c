/* Scores of given texts; see score.h. Start at gpt_score_texts(): all contexts
 * in one pass, of which the last logits stay, then the rest in pieces, since
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
    int64_t slot, slots, vocab;
    float *last;            /* (slots + 1, V) logits after contexts; the row
                             * behind them is that of `context` */
    float *logits;          /* (PIECE, V) */
    struct gpt_ids context; /* of the last text of the call before, */
    int64_t kept;           /* which is in this slot, */
    bool is_long;           /* ... turned for a long text */
    struct gpt_decode_piece *pieces; /* (slots) */
    int64_t *row;           /* (slots): of `last`, for each text */
    struct gpt_top *top;
    size_t cap_top;
};

/* What a call carries from token to token. */
struct scoring {
    struct gpt_scorer *s;
    int64_t n_top;
    gpt_token_scored *token;
};

/* The context's ids grow with the first text; all else has its size from the
 * model. */
int gpt_scorer_open(struct gpt_scorer **out, struct gpt_decoder *d,
                    int64_t slot, int64_t slots, struct gpt_err *err)
{
    const size_t vocab = (size_t)gpt_decoder_shape(d)->config->vocab_size;
    const size_t n = (size_t)slots;
    struct gpt_scorer *s = NULL;
    int status;

    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "a scorer", err));
    s->d = d;
    s->slot = slot;
    s->slots = slots;
    s->vocab = (int64_t)vocab;
    GPT_TRY_GOTO(status,
                 gpt_new(&s->last, (n + 1) * vocab, sizeof(*s->last), "logits",
                         err),
                 fail);
    GPT_TRY_GOTO(
        status,
        gpt_new(&s->logits, vocab * PIECE, sizeof(*s->logits), "logits", err),
        fail);
    GPT_TRY_GOTO(
        status, gpt_new(&s->pieces, n, sizeof(*s->pieces), "pieces", err),
        fail);
    GPT_TRY_GOTO(status, gpt_new(&s->row, n, sizeof(*s->row), "rows", err),
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
    gpt_free(s->pieces);
    gpt_free(s->row);
    gpt_free(s->top);
    gpt_free(s);
}

/* One token, by the logits before it. */
static int score_token(const struct scoring *c, struct gpt_scored_text *t,
                       int32_t id, const float *logits, struct gpt_err *err)
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
    t->score.logprob += chosen.logprob;
    t->score.tokens++;
    t->score.greedy &= gpt_most_probable(logits, s->vocab) == id;
    if (!c->token)
        return GPT_OK;
    GPT_TRY(gpt_grow(&s->top, &s->cap_top, (size_t)c->n_top + 1,
                     sizeof(*s->top), "log-probabilities", err));
    chosen.n_top =
        gpt_top_logprobs(logits, s->vocab, log_sum, s->top, c->n_top);
    chosen.top = s->top;
    return c->token(t->user, &chosen, err);
}

static bool same_ids(const int32_t *a, int64_t n_a, const int32_t *b,
                     int64_t n_b)
{
    return n_a == n_b && memcmp(a, b, (size_t)n_a * sizeof(*a)) == 0;
}

/* A text is scored as it is when all of it goes through the model at once: with
 * LongRoPE its context is turned as the whole of it is. */
static int64_t whole_of(const struct gpt_scored_text *t)
{
    return t->n - 1;
}

static bool is_long(const struct gpt_scorer *s, const struct gpt_scored_text *t)
{
    return gpt_config_is_long(gpt_decoder_shape(s->d)->config, whole_of(t));
}

/* True where the context of text i is that of the text before. */
static bool is_again(const struct gpt_scorer *s,
                     const struct gpt_scored_text *t, int64_t i)
{
    return i > 0 &&
           same_ids(t[i - 1].tokens, t[i - 1].first, t[i].tokens, t[i].first) &&
           is_long(s, &t[i - 1]) == is_long(s, &t[i]);
}

/* The context of the call before goes on in the first slot. */
static int take_kept(struct gpt_scorer *s, int64_t n, struct gpt_err *err)
{
    gpt_decoder_truncate(s->d, s->slot + s->kept, n);
    if (s->kept > 0)
        GPT_TRY(gpt_decoder_copy(s->d, s->slot + s->kept, s->slot, n, err));
    s->row[0] = s->slots;
    return GPT_OK;
}

/* Puts contexts into the slots, unless the text before has the same. Bits of
 * logits depend on how a text is cut into passes, and the cut behind the
 * context is always there: a context that is found again gives the same
 * scores. */
static int put_contexts(struct gpt_scorer *s, const struct gpt_scored_text *t,
                        int64_t n, struct gpt_err *err)
{
    const bool found = same_ids(s->context.data, (int64_t)s->context.len,
                                t[0].tokens, t[0].first) &&
                       is_long(s, &t[0]) == s->is_long;
    int64_t pieces = 0;

    s->context.len = 0;
    if (found)
        GPT_TRY(take_kept(s, t[0].first, err));
    for (int64_t i = found; i < n; i++) {
        s->row[i] = is_again(s, t, i) ? s->row[i - 1] : pieces;
        if (s->row[i] != pieces)
            continue;
        gpt_decoder_truncate(s->d, s->slot + i, 0);
        s->pieces[pieces++] = (struct gpt_decode_piece){
            .slot = s->slot + i,
            .n = t[i].first,
            .tokens = t[i].tokens,
            .whole = whole_of(&t[i]),
        };
    }
    if (pieces > 0)
        GPT_TRY(gpt_decoder_extend(s->d, s->pieces, pieces, GPT_LOGITS_LAST,
                                   s->last, err));
    for (int64_t i = 1; i < n; i++)
        if (s->row[i] == s->row[i - 1])
            GPT_TRY(gpt_decoder_copy(s->d, s->slot + i - 1, s->slot + i,
                                     t[i].first, err));
    return GPT_OK;
}

/* For the next call. */
static int keep_context(struct gpt_scorer *s, const struct gpt_scored_text *t,
                        int64_t n, struct gpt_err *err)
{
    const float *row = s->last + s->row[n - 1] * s->vocab;

    if (s->row[n - 1] != s->slots)
        memcpy(s->last + s->slots * s->vocab, row,
               (size_t)s->vocab * sizeof(*row));
    s->kept = n - 1;
    s->is_long = is_long(s, &t[n - 1]);
    return gpt_ids_add(&s->context, t[n - 1].tokens, (size_t)t[n - 1].first,
                       err);
}

int gpt_score_check(const int32_t *tokens, int64_t n, int64_t most,
                    int64_t vocab, struct gpt_err *err)
{
    if (n > most)
        return gpt_fail(err, GPT_EDATA,
                        "%lld tokens, but only %lld can be scored at once",
                        (long long)n, (long long)most);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return gpt_fail(err, GPT_EDATA,
                            "token id %d is outside the vocabulary of %lld",
                            tokens[i], (long long)vocab);
    return GPT_OK;
}

/* Rows of a text from token `at` on that go through the model together; its
 * last token has nothing to predict, and is not put in. */
static int64_t piece_rows(const struct gpt_scored_text *t, int64_t at)
{
    return gpt_min_i64(PIECE, t->n - 1 - at);
}

/* Puts in a piece of each of texts [from, to), and scores the tokens after its
 * tokens. */
static int score_pieces(const struct scoring *c, struct gpt_scored_text *t,
                        int64_t from, int64_t to, int64_t done,
                        struct gpt_err *err)
{
    struct gpt_scorer *s = c->s;
    const float *logits = s->logits;
    int64_t pieces = 0, room = PIECE;

    for (int64_t i = from; i < to; i++) {
        const int64_t at = t[i].first + done, rows = piece_rows(&t[i], at);

        if (rows <= 0)
            continue;
        s->pieces[pieces++] = (struct gpt_decode_piece){
            .slot = s->slot + i,
            .n = rows,
            .tokens = t[i].tokens + at,
            .whole = whole_of(&t[i]),
        };
        room -= rows;
    }
    assert(room >= 0);
    if (pieces == 0)
        return GPT_OK;
    GPT_TRY(gpt_decoder_extend(s->d, s->pieces, pieces, GPT_LOGITS_ALL,
                               s->logits, err));
    for (int64_t i = from; i < to; i++) {
        const int64_t at = t[i].first + done, rows = piece_rows(&t[i], at);

        for (int64_t k = 0; k < rows; k++, logits += s->vocab)
            GPT_TRY(score_token(c, &t[i], t[i].tokens[at + k + 1], logits,
                                err));
    }
    return GPT_OK;
}

/* All that follows the first token: short texts together, as many as there is
 * room for logits, a long one in pieces. */
static int score_rest(const struct scoring *c, struct gpt_scored_text *t,
                      int64_t n, struct gpt_err *err)
{
    int64_t from = 0;

    while (from < n) {
        int64_t to = from + 1, rows = t[from].n - 1 - t[from].first;

        while (to < n && rows + t[to].n - 1 - t[to].first <= PIECE) {
            rows += t[to].n - 1 - t[to].first;
            to++;
        }
        for (int64_t done = 0; done < rows; done += PIECE)
            GPT_TRY(score_pieces(c, t, from, to, done, err));
        from = to;
    }
    return GPT_OK;
}

int gpt_score_texts(struct gpt_scorer *s, struct gpt_scored_text *texts,
                    int64_t n, int64_t n_top, gpt_token_scored *token,
                    struct gpt_err *err)
{
    const int64_t most = gpt_decoder_shape(s->d)->positions + 1;
    const struct scoring c = {s, n_top, token};

    assert(n >= 1 && n <= s->slots);
    /* Before any pass: a text that is refused leaves the context as it is
     * known, for the next text. */
    for (int64_t i = 0; i < n; i++) {
        assert(texts[i].first >= 1 && texts[i].first < texts[i].n);
        texts[i].score = (struct gpt_score){.greedy = true};
        GPT_TRY(gpt_score_check(texts[i].tokens, texts[i].n, most, s->vocab,
                                err));
    }
    GPT_TRY(put_contexts(s, texts, n, err));
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(score_token(&c, &texts[i], texts[i].tokens[texts[i].first],
                            s->last + s->row[i] * s->vocab, err));
    GPT_TRY(keep_context(s, texts, n, err));
    return score_rest(&c, texts, n, err);
}
