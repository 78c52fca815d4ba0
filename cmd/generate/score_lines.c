/* Scores of continuations; see score_lines.h. Start at score_prompt(): the pair
 * becomes ids by generate/pair.h. */
#include "cmd/generate/score_lines.h"

#include "base/log.h"
#include "base/num.h"
#include "base/signals.h"
#include "cmd/generate/json_out.h"
#include "cmd/generate/prompts_given.h"
#include "generate/pair.h"
#include "generate/score.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct task {
    struct gpt_loaded *m;
    struct gpt_prompts prompts;
    struct gpt_encoder *encoder;
    struct gpt_scorer *scorer;
    struct gpt_pair_encoder pairs;
    struct gpt_buf details, logits;
    /* of all lines */
    int64_t lines, greedy, tokens;
    double logprob;
};

/* LAMBADA's lines are a text alone: its last word is what is asked for. */
static int find_pair(const struct gpt_prompt *prompt, struct gpt_pair *pair,
                     struct gpt_err *err)
{
    if (prompt->ids)
        return gpt_fail(err, GPT_EDATA,
                        "a context is a text, not a list of "
                        "ids");
    if (!prompt->continuation)
        return gpt_pair_of_text(pair, prompt->text, prompt->len, err);
    *pair = (struct gpt_pair){prompt->text, prompt->continuation, prompt->len,
                              strlen(prompt->continuation)};
    return GPT_OK;
}

/* What is asked for of each token is collected while it is scored. */
static int add_token(void *user, const struct gpt_chosen *chosen,
                     struct gpt_err *err)
{
    struct task *t = user;
    int status = GPT_OK;

    if (t->m->o->logprobs >= 0)
        status = gpt_json_add_chosen(&t->details, t->m->tokenizer, chosen);
    if (status == GPT_OK && t->m->o->return_logits)
        status = gpt_json_add_logits(&t->logits, chosen->logits,
                                     t->m->config->vocab_size);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "scores");
}

/* The context is cut only on demand: a score of half a context is another
 * score, and a user shall know. At least one token of it stays, since the
 * first of the continuation is predicted from something. */
static int score_prompt(struct task *t, const struct gpt_prompt *prompt,
                        struct gpt_score *score, int64_t *context,
                        struct gpt_err *err)
{
    const int64_t most = t->m->positions + 1;
    const struct gpt_ids *ids = &t->pairs.ids;
    struct gpt_pair pair = {0};
    int64_t first = 0, skip = 0;

    t->details.len = t->logits.len = 0;
    GPT_TRY(find_pair(prompt, &pair, err));
    GPT_TRY(gpt_pair_encode(&t->pairs, &pair, &first, err));
    int64_t n = (int64_t)ids->len;
    if (n > most && n - first < most && t->m->o->truncate_context)
        skip = n - most;
    *context = first - skip;
    if (n - skip > most) {
        gpt_fail(err, GPT_EDATA,
                 "%lld tokens, but there are only %lld positions", (long long)n,
                 (long long)most - 1);
        return gpt_hint(err, "--truncate-context drops the first tokens of a "
                             "context");
    }
    return gpt_score_text(t->scorer, ids->data + skip, n - skip, first - skip,
                          gpt_max_i64(t->m->o->logprobs, 0), add_token, t,
                          score, err);
}

/* ---- output ---- */

/* The line's own id, or its number from 1, as of texts. */
static int add_id(struct gpt_buf *b, const struct gpt_prompt *prompt, size_t i)
{
    return prompt->id ? gpt_buf_printf(b, "{\"id\":%s", prompt->id)
                      : gpt_buf_printf(b, "{\"id\":%zu", i + 1);
}

/* Nine digits: a comparison of two answers may hang on the last of a float. */
static int add_score(struct gpt_buf *b, const struct task *t,
                     const struct gpt_score *score, int64_t context)
{
    GPT_TRY(gpt_buf_printf(b,
                           ",\"logprob\":%.9g,\"greedy\":%s,\"tokens\":%lld,"
                           "\"context_tokens\":%lld",
                           score->logprob, score->greedy ? "true" : "false",
                           (long long)score->tokens, (long long)context));
    if (t->m->o->logprobs >= 0)
        GPT_TRY(gpt_json_add_list(b, "logprobs", &t->details));
    if (t->m->o->return_logits)
        GPT_TRY(gpt_json_add_list(b, "logits", &t->logits));
    return gpt_buf_add(b, "}\n", 2);
}

static int add_error(struct gpt_buf *b, const char *text)
{
    GPT_TRY(gpt_buf_add(b, ",\"error\":", 9));
    GPT_TRY(gpt_json_add_words(b, text));
    return gpt_buf_add(b, "}\n", 2);
}

/* A line goes out whole, as soon as it is scored: a reader of the pipe need not
 * wait for the last one. */
static int put_line(struct gpt_buf *b, struct gpt_err *err)
{
    if (fwrite(b->data, 1, b->len, stdout) != b->len || fflush(stdout) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot write standard output");
    return GPT_OK;
}

/* A pair that is wrong is refused, and others are scored; weights that are
 * useless and lack of memory end the work. */
static int score_line(struct task *t, size_t i, struct gpt_err *err)
{
    const struct gpt_prompt *prompt = &t->prompts.items[i];
    struct gpt_buf line = {0};
    struct gpt_err own = {0};
    struct gpt_score score = {0};
    int64_t context = 0;
    int status = GPT_OK;

    if (!prompt->error)
        status = score_prompt(t, prompt, &score, &context, &own);
    if (status != GPT_OK && status != GPT_EDATA) {
        *err = own;
        return status;
    }
    if (status == GPT_EDATA)
        GPT_TRY(gpt_prompts_refuse(&t->prompts, i, own.text, err));
    if (prompt->error)
        gpt_warn("%s%s%s", prompt->error, own.hint[0] ? "; " : "", own.hint);
    bool fits =
        add_id(&line, prompt, i) == GPT_OK &&
        (prompt->error ? add_error(&line, prompt->error)
                       : add_score(&line, t, &score, context)) == GPT_OK;
    status = fits ? put_line(&line, err) : gpt_no_memory(err, "scores");
    gpt_buf_free(&line);
    t->lines += !prompt->error;
    t->greedy += !prompt->error && score.greedy;
    t->tokens += score.tokens;
    t->logprob += score.logprob;
    return status;
}

/* The two figures that are published for LAMBADA: the share of lines whose
 * tokens are all the most probable ones, and the perplexity of a line's
 * continuation. */
static void report(const struct task *t)
{
    if (t->lines > 0)
        gpt_info("%lld continuation%s of %lld token%s: %.4f are greedy, "
                 "log-probability %.4f, perplexity %.4f each",
                 (long long)t->lines, gpt_plural(t->lines),
                 (long long)t->tokens, gpt_plural(t->tokens),
                 (double)t->greedy / (double)t->lines,
                 t->logprob / (double)t->lines,
                 exp(-t->logprob / (double)t->lines));
}

/* All lines are read before the model, which takes longer; the decoder has one
 * slot, because the tokens of one text fill a product by themselves. */
static int score_all(struct task *t, struct gpt_err *err)
{
    GPT_TRY(gpt_prompts_read_given(&t->prompts, t->m->o, GPT_FILES_JSONL, err));
    if (t->prompts.n == 0)
        gpt_warn("the input holds no lines: there is nothing to score");
    if (t->prompts.n == 0 || gpt_signals_stop())
        return GPT_OK;
    GPT_TRY(gpt_encoder_open(&t->encoder, t->m->tokenizer, err));
    t->pairs = (struct gpt_pair_encoder){.encoder = t->encoder,
                                         .begin = gpt_loaded_eod(t->m),
                                         .begins = t->m->o->add_bos};
    GPT_TRY(gpt_loaded_open_decoder(t->m, 1, t->m->positions, err));
    GPT_TRY(gpt_scorer_open(&t->scorer, t->m->decoder, 0, err));
    for (size_t i = 0; i < t->prompts.n && !gpt_signals_stop(); i++)
        GPT_TRY(score_line(t, i, err));
    report(t);
    const size_t refused = gpt_prompts_refused(&t->prompts);
    return refused && !gpt_signals_stop()
               ? gpt_fail(err, GPT_EDATA, "%zu of %zu line%s not scored",
                          refused, t->prompts.n,
                          t->prompts.n == 1 ? " is" : "s are")
               : GPT_OK;
}

/* In the reverse order of opening: the scorer uses the decoder, which the
 * model closes. */
int gpt_score_lines(struct gpt_loaded *m, struct gpt_err *err)
{
    struct task t = {.m = m};
    int status = score_all(&t, err);

    gpt_scorer_close(t.scorer);
    gpt_encoder_close(t.encoder);
    gpt_pair_encoder_free(&t.pairs);
    gpt_buf_free(&t.details);
    gpt_buf_free(&t.logits);
    gpt_prompts_free(&t.prompts);
    return status;
}
