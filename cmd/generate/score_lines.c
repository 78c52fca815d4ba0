/* Scores of continuations; see score_lines.h. Start at score_all(): a line
 * becomes ids by generate/pair.h, and several go through the model together. */
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

/* A line as tokens; none where it was refused. */
struct line {
    struct gpt_ids ids;
    int64_t first; /* of the continuation */
};

/* What is asked for of each token of a line, collected while it is scored. */
struct details {
    struct task *t;
    struct gpt_buf tokens, logits;
};

struct task {
    struct gpt_loaded *m;
    struct gpt_prompts prompts;
    struct gpt_encoder *encoder;
    struct gpt_scorer *scorer;
    struct gpt_pair_encoder pairs;
    struct line *line; /* (prompts.n) */
    int64_t at_once;
    struct gpt_scored_text *text; /* (at_once) */
    struct details *details;      /* (at_once) */
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

static int add_token(void *user, const struct gpt_chosen *chosen,
                     struct gpt_err *err)
{
    struct details *d = user;
    const struct gpt_loaded *m = d->t->m;
    int status = GPT_OK;

    if (m->o->logprobs >= 0)
        status = gpt_json_add_chosen(&d->tokens, m->tokenizer, chosen);
    if (status == GPT_OK && m->o->return_logits)
        status = gpt_json_add_logits(&d->logits, chosen->logits,
                                     m->config->vocab_size);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "scores");
}

/* ---- lines ---- */

/* The context is cut only on demand: a score of half a context is another
 * score, and a user shall know. At least one token of it stays, since the
 * first of the continuation is predicted from something. */
static int encode_line(struct task *t, const struct gpt_prompt *prompt,
                       struct line *line, struct gpt_err *err)
{
    const int64_t most = t->m->positions + 1;
    const struct gpt_ids *ids = &t->pairs.ids;
    struct gpt_pair pair = {0};
    int64_t first = 0, skip = 0;

    GPT_TRY(find_pair(prompt, &pair, err));
    GPT_TRY(gpt_pair_encode(&t->pairs, &pair, &first, err));
    int64_t n = (int64_t)ids->len;
    if (n > most && n - first < most && t->m->o->truncate_context)
        skip = n - most;
    if (n - skip > most) {
        gpt_fail(err, GPT_EDATA,
                 "%lld tokens, but there are only %lld positions", (long long)n,
                 (long long)most - 1);
        return gpt_hint(err, "--truncate-context drops the first tokens of a "
                             "context");
    }
    GPT_TRY(gpt_score_check(ids->data + skip, n - skip, most,
                            t->m->config->vocab_size, err));
    line->first = first - skip;
    return gpt_ids_add(&line->ids, ids->data + skip, (size_t)(n - skip), err);
}

/* A pair that is wrong is refused, and others are scored; lack of memory ends
 * the work. */
static int read_line(struct task *t, size_t i, struct gpt_err *err)
{
    const struct gpt_prompt *prompt = &t->prompts.items[i];
    struct gpt_err own = {0};
    int status = GPT_OK;

    if (!prompt->error)
        status = encode_line(t, prompt, &t->line[i], &own);
    if (status != GPT_OK && status != GPT_EDATA) {
        *err = own;
        return status;
    }
    if (status == GPT_EDATA)
        GPT_TRY(gpt_prompts_refuse(&t->prompts, i, own.text, err));
    if (prompt->error)
        gpt_warn("%s%s%s", prompt->error, own.hint[0] ? "; " : "", own.hint);
    return GPT_OK;
}

/* ---- output ---- */

/* The line's own id, or its number from 1, as of texts. */
static int add_id(struct gpt_buf *b, const struct gpt_prompt *prompt, size_t i)
{
    return prompt->id ? gpt_buf_printf(b, "{\"id\":%s", prompt->id)
                      : gpt_buf_printf(b, "{\"id\":%zu", i + 1);
}

/* Nine digits: a comparison of two answers may hang on the last of a float. */
static int add_score(struct gpt_buf *b, const struct gpt_scored_text *text)
{
    const struct details *d = text->user;
    const struct gpt_score *score = &text->score;

    GPT_TRY(gpt_buf_printf(b,
                           ",\"logprob\":%.9g,\"greedy\":%s,\"tokens\":%lld,"
                           "\"context_tokens\":%lld",
                           score->logprob, score->greedy ? "true" : "false",
                           (long long)score->tokens, (long long)text->first));
    if (d->t->m->o->logprobs >= 0)
        GPT_TRY(gpt_json_add_list(b, "logprobs", &d->tokens));
    if (d->t->m->o->return_logits)
        GPT_TRY(gpt_json_add_list(b, "logits", &d->logits));
    return gpt_buf_add(b, "}\n", 2);
}

static int add_error(struct gpt_buf *b, const char *text)
{
    GPT_TRY(gpt_buf_add(b, ",\"error\":", 9));
    GPT_TRY(gpt_json_add_words(b, text));
    return gpt_buf_add(b, "}\n", 2);
}

/* A line goes out whole, as soon as it is scored: a reader of the pipe need not
 * wait for the last one. text: NULL of a line that was refused. */
static int put_line(struct task *t, size_t i,
                    const struct gpt_scored_text *text, struct gpt_err *err)
{
    const struct gpt_prompt *prompt = &t->prompts.items[i];
    struct gpt_buf line = {0};
    int status = GPT_OK;

    if (add_id(&line, prompt, i) != GPT_OK ||
        (text ? add_score(&line, text) : add_error(&line, prompt->error)) !=
            GPT_OK)
        status = gpt_no_memory(err, "scores");
    else if (fwrite(line.data, 1, line.len, stdout) != line.len ||
             fflush(stdout) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "cannot write standard output");
    gpt_buf_free(&line);
    if (!text)
        return status;
    t->lines++;
    t->greedy += text->score.greedy;
    t->tokens += text->score.tokens;
    t->logprob += text->score.logprob;
    return status;
}

/* ---- the work ---- */

/* Scores as many lines as there is room for, from *at on, which becomes the
 * next one, and puts them out with those that were refused between them. The
 * model reads its weights twice for all of them: for their contexts, and for
 * what follows. */
static int score_some(struct task *t, size_t *at, struct gpt_err *err)
{
    const size_t from = *at;
    int64_t n = 0;
    size_t i = from;

    for (; i < t->prompts.n && n < t->at_once; i++) {
        const struct line *line = &t->line[i];
        struct details *d = &t->details[n];

        if (line->ids.len == 0)
            continue;
        d->t = t;
        d->tokens.len = d->logits.len = 0;
        t->text[n] = (struct gpt_scored_text){
            .tokens = line->ids.data, .n = (int64_t)line->ids.len,
            .first = line->first, .user = d};
        n++;
    }
    if (n > 0)
        GPT_TRY(gpt_score_texts(t->scorer, t->text, n,
                                gpt_max_i64(t->m->o->logprobs, 0), add_token,
                                err));
    *at = i;
    n = 0;
    for (i = from; i < *at; i++)
        GPT_TRY(put_line(t, i, t->line[i].ids.len ? &t->text[n++] : NULL, err));
    return GPT_OK;
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

/* A slot has room for the longest line and no more: there are several. */
static int open_scorer(struct task *t, struct gpt_err *err)
{
    int64_t longest = 2;

    for (size_t i = 0; i < t->prompts.n; i++)
        longest = gpt_max_i64(longest, (int64_t)t->line[i].ids.len);
    t->at_once = gpt_min_i64(t->m->o->batch_size, (int64_t)t->prompts.n);
    GPT_TRY(gpt_new(&t->text, (size_t)t->at_once, sizeof(*t->text), "texts",
                    err));
    GPT_TRY(gpt_new(&t->details, (size_t)t->at_once, sizeof(*t->details),
                    "texts", err));
    GPT_TRY(gpt_loaded_open_decoder(t->m, t->at_once, longest - 1, err));
    return gpt_scorer_open(&t->scorer, t->m->decoder, 0, t->at_once, err);
}

/* All lines are read before the model, which takes longer. */
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
    GPT_TRY(gpt_new(&t->line, t->prompts.n, sizeof(*t->line), "lines", err));
    for (size_t i = 0; i < t->prompts.n && !gpt_signals_stop(); i++)
        GPT_TRY(read_line(t, i, err));
    if (gpt_signals_stop())
        return GPT_OK;
    GPT_TRY(open_scorer(t, err));
    for (size_t i = 0; i < t->prompts.n && !gpt_signals_stop();)
        GPT_TRY(score_some(t, &i, err));
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
    for (int64_t i = 0; t.details && i < t.at_once; i++) {
        gpt_buf_free(&t.details[i].tokens);
        gpt_buf_free(&t.details[i].logits);
    }
    for (size_t i = 0; t.line && i < t.prompts.n; i++)
        gpt_free(t.line[i].ids.data);
    gpt_free(t.details);
    gpt_free(t.text);
    gpt_free(t.line);
    gpt_prompts_free(&t.prompts);
    return status;
}
