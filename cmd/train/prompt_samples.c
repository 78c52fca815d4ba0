/* Samples from fixed prompts; see prompt_samples.h. Start at
 * gpt_prompt_samples_run(): a pass over all texts adds a token to each.
 *
 * The stage of a training has no cache of keys and values, and its shape is
 * that of a microbatch: a pass computes all positions of all texts again. That
 * is what lets any layout write texts, at the cost of a forward pass a
 * token. */
#include "cmd/train/prompt_samples.h"

#include "cmd/train/read_lines.h"
#include "generate/text.h"

#include <math.h>
#include <string.h>

/* How far a text is, and how it ended. */
enum finish { UNDER_WAY, EOD, TOKENS, POSITIONS, DIVERGED };

/* A prompt and what follows it: (T + 1) tokens, of which n are there. */
struct continued {
    char *prompt;
    int32_t *tokens;
    int64_t n_prompt, n;
    enum finish finish;
};

struct gpt_prompt_samples {
    struct gpt_prompt_options o;
    struct continued *items; /* (n) */
    int64_t n;
    size_t cap;
    struct gpt_given *texts; /* (n) of a pass */
    double (*answers)[GPT_TEXT_ANSWERS];
    struct gpt_sampler *sampler;
    struct gpt_encoder *encoder; /* while prompts are read */
    struct gpt_ids ids;          /* of all prompts */
    struct gpt_arena arena;
    struct gpt_buf text;
};

/* ---- prompts ---- */

/* An empty prompt begins a document, as with gpt-generate. */
static int encode_prompt(struct gpt_prompt_samples *p, const char *text,
                         size_t len, struct gpt_err *err)
{
    if (len > 0)
        return gpt_encode(p->encoder, text, len, &p->ids, err);
    if (p->o.eod < 0)
        return gpt_fail(err, GPT_EDATA,
                        "the prompt is empty, and the vocabulary has no end of "
                        "document to begin with");
    return gpt_ids_add(&p->ids, &p->o.eod, 1, err);
}

/* The last position of a text is not an input any more: a prompt leaves room
 * for one token at least. */
static int check_prompt(const struct gpt_prompt_samples *p,
                        const int32_t *ids, int64_t n, struct gpt_err *err)
{
    if (n == 0)
        return gpt_fail(err, GPT_EDATA, "the prompt has no token");
    if (n > p->o.seq_length)
        return gpt_fail(err, GPT_EDATA,
                        "the prompt has %lld tokens, --seq-length %lld is the "
                        "most",
                        (long long)n, (long long)p->o.seq_length);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= p->o.vocab_size)
            return gpt_fail(err, GPT_EDATA,
                            "token id %d is outside the vocabulary of %lld",
                            ids[i], (long long)p->o.vocab_size);
    return GPT_OK;
}

/* The prompt is copied as text, for the log, and as tokens, in the place where
 * its continuation will be. */
static int add_prompt(struct gpt_prompt_samples *p, const char *text,
                      size_t len, struct gpt_err *err)
{
    const size_t before = p->ids.len;
    struct continued c = {.n = 0};

    GPT_TRY(encode_prompt(p, text, len, err));
    c.n_prompt = (int64_t)(p->ids.len - before);
    GPT_TRY(check_prompt(p, p->ids.data + before, c.n_prompt, err));
    c.prompt = gpt_arena_printf(&p->arena, "%.*s", (int)len, text);
    c.tokens = gpt_arena_alloc(&p->arena, (size_t)p->o.seq_length + 1,
                               sizeof(*c.tokens));
    if (!c.prompt || !c.tokens)
        return gpt_no_memory(err, "prompts");
    memcpy(c.tokens, p->ids.data + before,
           (size_t)c.n_prompt * sizeof(*c.tokens));
    GPT_TRY(gpt_grow(&p->items, &p->cap, (size_t)p->n + 1, sizeof(*p->items),
                     "prompts", err));
    p->items[p->n++] = c;
    return GPT_OK;
}

/* A plain line, or the prompt of an object. */
static int read_text(void *user, const char *text, size_t len,
                     const char *where, struct gpt_err *err)
{
    const int status = add_prompt(user, text, len, err);

    return status == GPT_OK ? GPT_OK : gpt_context(err, "%s", where);
}

/* A plain line cannot hold a newline, nor be empty: an object can. */
static int read_object(void *user, const cJSON *object, const char *where,
                       struct gpt_err *err)
{
    const char *text;

    GPT_TRY(gpt_json_string(object, "prompt", &text, where, err));
    return read_text(user, text, strlen(text), where, err);
}

/* The number of prompts is known when all are read, and with it the room of a
 * pass: none of it is allocated while texts are written. The encoder is not
 * needed after that. */
static int read_prompts(struct gpt_prompt_samples *p, const char *path,
                        struct gpt_err *err)
{
    const struct gpt_line_reader reader = {read_object, read_text, p};

    GPT_TRY(gpt_encoder_open(&p->encoder, p->o.tokenizer, err));
    GPT_TRY(gpt_read_lines(path, &reader, err));
    GPT_TRY(gpt_sampler_open(&p->sampler, p->o.vocab_size, err));
    GPT_TRY(gpt_new(&p->texts, (size_t)p->n, sizeof(*p->texts), "texts", err));
    return gpt_new(&p->answers, (size_t)p->n, sizeof(*p->answers), "texts",
                   err);
}

/* The options are copied, the tokenizer in them is the caller's. */
int gpt_prompt_samples_read(struct gpt_prompt_samples **samples,
                            const char *path,
                            const struct gpt_prompt_options *o,
                            struct gpt_err *err)
{
    struct gpt_prompt_samples *p;

    *samples = NULL;
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "prompts", err));
    p->o = *o;
    int status = read_prompts(p, path, err);
    gpt_encoder_close(p->encoder);
    p->encoder = NULL;
    if (status != GPT_OK)
        gpt_prompt_samples_close(p);
    else
        *samples = p;
    return status;
}

/* Prompts and their tokens are in the arena. */
void gpt_prompt_samples_close(struct gpt_prompt_samples *p)
{
    if (!p)
        return;
    gpt_sampler_close(p->sampler);
    gpt_free(p->items);
    gpt_free(p->texts);
    gpt_free(p->answers);
    gpt_free(p->ids.data);
    gpt_buf_free(&p->text);
    gpt_arena_free(&p->arena);
    gpt_free(p);
}

int64_t gpt_prompt_samples_n(const struct gpt_prompt_samples *p)
{
    return p->n;
}

const struct gpt_ids *gpt_prompt_samples_ids(const struct gpt_prompt_samples *p)
{
    return &p->ids;
}

/* ---- tokens ---- */

/* The random number is a function of prompt and position alone, as it is in
 * gpt-generate. A choice that fails has no number as its answer. */
static void choose_token(void *user, int64_t text, int64_t row,
                         const float *logits, double answer[GPT_TEXT_ANSWERS])
{
    struct gpt_prompt_samples *p = user;
    const struct gpt_rng rng = gpt_sample_rng(p->o.seed, (uint64_t)text, 0);
    struct gpt_err err = {0};
    int32_t token;

    if (gpt_sample(p->sampler, logits, p->o.vocab_size, &p->o.sampling,
                   gpt_sample_uniform(rng, row + 1), &token, &err) == GPT_OK)
        answer[0] = (double)token;
    else
        answer[0] = (double)NAN;
}

/* The end of a document is no part of the text. A text that has as many tokens
 * as a sample ends there: its last token is no input, so that it may have one
 * more than the sequence length. */
static void take_token(const struct gpt_prompt_options *o, struct continued *c,
                       double answer)
{
    if (!isfinite(answer)) {
        c->finish = DIVERGED;
        return;
    }
    if ((int32_t)answer == o->eod) {
        c->finish = EOD;
        return;
    }
    c->tokens[c->n++] = (int32_t)answer;
    if (c->n - c->n_prompt == o->tokens)
        c->finish = TOKENS;
    else if (c->n > o->seq_length)
        c->finish = POSITIONS;
}

/* Texts that have ended go along without being looked at: a text keeps its row
 * of the batch, and its number, which names its random stream. Returns false
 * when all have ended. */
static bool list_texts(struct gpt_prompt_samples *p)
{
    bool any = false;

    for (int64_t i = 0; i < p->n; i++) {
        const struct continued *c = &p->items[i];
        const bool looked_at = c->finish == UNDER_WAY;

        p->texts[i] = (struct gpt_given){
            .tokens = c->tokens,
            .n = c->n,
            .from = looked_at ? c->n - 1 : 0,
            .to = looked_at ? c->n : 0,
        };
        any = any || looked_at;
    }
    return any;
}

/* Every rank adds the same tokens, and so ends after the same number of
 * passes. */
int gpt_prompt_samples_run(struct gpt_prompt_samples *p,
                           struct gpt_texts *texts, struct gpt_err *err)
{
    const struct gpt_given_reader reader = {choose_token, p};

    for (int64_t i = 0; i < p->n; i++) {
        p->items[i].n = p->items[i].n_prompt;
        p->items[i].finish = UNDER_WAY;
    }
    while (list_texts(p)) {
        GPT_TRY(gpt_texts_read(texts, p->texts, p->n, &reader, p->answers,
                               err));
        for (int64_t i = 0; i < p->n; i++)
            if (p->items[i].finish == UNDER_WAY)
                take_token(&p->o, &p->items[i], p->answers[i][0]);
    }
    return GPT_OK;
}

/* Bytes that are no character yet become one when the next token completes
 * them, and a mark when none does, as in gpt-generate's output. */
int gpt_prompt_samples_get(struct gpt_prompt_samples *p, int64_t i,
                           struct gpt_prompt_sample *sample,
                           struct gpt_err *err)
{
    static const char *const finishes[] = {
        [EOD] = "eod", [TOKENS] = "tokens", [POSITIONS] = "positions",
        [DIVERGED] = "diverged", [UNDER_WAY] = "under way"};
    const struct continued *c = &p->items[i];
    const struct gpt_list no_stops = {.n = 0};
    struct gpt_text text = {.begins = *c->prompt == '\0'};
    int status = GPT_OK;

    p->text.len = 0;
    for (int64_t k = c->n_prompt; k < c->n; k++)
        GPT_TRY_GOTO(status,
                     gpt_text_add(&text, p->o.tokenizer, c->tokens[k],
                                  &no_stops, &p->text),
                     out);
    GPT_TRY_GOTO(status, gpt_text_end(&text, &no_stops, &p->text), out);
    status = gpt_buf_add(&p->text, "", 1); /* there may be no byte yet */
out:
    gpt_text_free(&text);
    *sample = (struct gpt_prompt_sample){c->prompt, p->text.data,
                                         c->n - c->n_prompt,
                                         finishes[c->finish]};
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "a text");
}
