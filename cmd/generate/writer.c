/* Generated texts onto a stream; see writer.h. Requests interleave, as a text
 * that ends makes room for the next at once, but the output has their order.
 * Every text collects in a buffer of its own, and advance() moves what may go
 * out to the stream. */
#include "cmd/generate/writer.h"

#include "base/json_string.h"
#include "cmd/generate/json_out.h"
#include "generate/text.h"

#include <string.h>

/* A text that is being collected. What is not yet a character is in the
 * tokens'; what is but may not go out yet, because a text before it is not
 * finished, is in `text`. */
struct entry {
    struct gpt_text tokens;
    struct gpt_buf text;            /* collected and not yet written */
    struct gpt_buf details, logits; /* JSON of each token, with commas */
    bool begun, opened, done;
    bool scored;
    double score; /* of a search */
    enum gpt_finish finish;
};

struct gpt_writer {
    const struct gpt_writer_options *o;
    struct entry *entries; /* (n_requests) */
    int64_t first;         /* the first entry that is not written completely */
    char last;             /* byte written last */
};

/* Entries are small; their buffers grow only while a text waits for one before
 * it. */
int gpt_writer_open(struct gpt_writer **out, const struct gpt_writer_options *o,
                    struct gpt_err *err)
{
    struct gpt_writer *w = NULL;

    GPT_TRY(gpt_new(&w, 1, sizeof(*w), "a writer", err));
    w->o = o;
    int status = gpt_new(&w->entries, (size_t)o->n_requests,
                         sizeof(*w->entries), "texts", err);
    if (status != GPT_OK) {
        gpt_writer_close(w);
        return status;
    }
    *out = w;
    return GPT_OK;
}

/* A text that is written gives its memory back at once: a run of many texts
 * holds those alone that are under way or wait. */
static void free_entry(struct entry *e)
{
    gpt_text_free(&e->tokens);
    gpt_buf_free(&e->text);
    gpt_buf_free(&e->details);
    gpt_buf_free(&e->logits);
}

void gpt_writer_close(struct gpt_writer *w)
{
    if (!w)
        return;
    for (int64_t i = 0; w->entries && i < w->o->n_requests; i++)
        free_entry(&w->entries[i]);
    gpt_free(w->entries);
    gpt_free(w);
}

static int out_of_memory(struct gpt_err *err)
{
    return gpt_no_memory(err, "generated text");
}

/* Flushed at once: a reader sees a token when it is chosen, and a full disk or
 * a closed pipe ends the work with the token that it cost. */
static int put_bytes(struct gpt_writer *w, const char *p, size_t n,
                     struct gpt_err *err)
{
    if (n == 0)
        return GPT_OK;
    if (fwrite(p, 1, n, w->o->file) != n || fflush(w->o->file) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot write standard output");
    w->last = p[n - 1];
    return GPT_OK;
}

/* ---- JSON ---- */

/* One object a text, with what a program needs to tell it from others. */
static int add_object(struct gpt_buf *b, const struct gpt_writer *w, int64_t i)
{
    const struct gpt_request *q = &w->o->requests[i];
    const struct entry *e = &w->entries[i];
    const char *id = w->o->prompts->items[q->number].id;

    if (id)
        GPT_TRY(gpt_buf_printf(b, "{\"id\":%s", id));
    else
        GPT_TRY(gpt_buf_printf(b, "{\"id\":%llu",
                               (unsigned long long)q->number + 1));
    GPT_TRY(gpt_buf_printf(
        b, ",\"sample\":%llu,\"%s\":", (unsigned long long)q->sample + 1,
        e->finish == GPT_FINISH_REFUSED ? "error" : "text"));
    GPT_TRY(gpt_json_add_string(b, e->text.data, e->text.len));
    if (e->finish == GPT_FINISH_REFUSED)
        return gpt_buf_add(b, "}\n", 2);
    GPT_TRY(gpt_buf_printf(b,
                           ",\"prompt_tokens\":%lld,\"tokens\":%lld,"
                           "\"finish\":\"%s\"",
                           (long long)q->n_prompt,
                           (long long)e->tokens.n_tokens,
                           gpt_finish_name(e->finish)));
    if (e->scored)
        GPT_TRY(gpt_json_add_real(b, "score", e->score));
    if (q->choice && q->choice->logprobs)
        GPT_TRY(gpt_json_add_list(b, "logprobs", &e->details));
    if (w->o->logits)
        GPT_TRY(gpt_json_add_list(b, "logits", &e->logits));
    return gpt_buf_add(b, "}\n", 2);
}

/* In one piece, so that an interrupted run ends after a whole line and what is
 * there can be read back. */
static int put_object(struct gpt_writer *w, int64_t i, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status = add_object(&b, w, i);

    status = status == GPT_OK ? put_bytes(w, b.data, b.len, err)
                              : out_of_memory(err);
    gpt_buf_free(&b);
    return status;
}

/* ---- text ---- */

/* Writes what has been collected, after a line that divides it from the text
 * before. A text that does not end in a newline gets one, which is not part of
 * it. */
static int put_text(struct gpt_writer *w, struct entry *e, struct gpt_err *err)
{
    if (!e->opened && w->first > 0)
        GPT_TRY(put_bytes(w, "---\n", 4, err));
    if (!e->opened)
        w->last = 0;
    e->opened = true;
    GPT_TRY(put_bytes(w, e->text.data, e->text.len, err));
    e->text.len = 0;
    if (!e->done)
        return GPT_OK;
    return w->last == '\n' ? GPT_OK : put_bytes(w, "\n", 1, err);
}

/* Writes what may be written now. Of texts in order, only the first unfinished
 * one may grow on the stream; it hands over when it is done. */
static int advance(struct gpt_writer *w, struct gpt_err *err)
{
    for (; w->first < w->o->n_requests; w->first++) {
        struct entry *e = &w->entries[w->first];

        /* A text that has not begun may still come with the next step: texts
         * after it wait. */
        if (!e->begun)
            return GPT_OK;
        if (!w->o->jsonl)
            GPT_TRY(put_text(w, e, err));
        else if (e->done)
            GPT_TRY(put_object(w, w->first, err));
        if (!e->done)
            return GPT_OK;
        free_entry(e);
    }
    return GPT_OK;
}

/* A text begins with its first token or, when it has none, with its end. */
static int begin_text(struct gpt_writer *w, int64_t i, struct gpt_err *err)
{
    struct entry *e = &w->entries[i];
    const struct gpt_prompt *prompt =
        &w->o->prompts->items[w->o->requests[i].number];

    if (e->begun)
        return GPT_OK;
    e->begun = true;
    e->tokens.begins = prompt->len == 0;
    if (w->o->echo &&
        gpt_stream_add(&e->tokens.stream, prompt->text, prompt->len, &e->text))
        return out_of_memory(err);
    return GPT_OK;
}

/* Collected while tokens come, since the logits of a token are gone with the
 * next one; a text without such wishes collects nothing. */
static int add_details(struct gpt_writer *w, int64_t i,
                       const struct gpt_chosen *chosen)
{
    struct entry *e = &w->entries[i];

    if (w->o->requests[i].choice && w->o->requests[i].choice->logprobs)
        GPT_TRY(gpt_json_add_chosen(&e->details, w->o->tokenizer, chosen));
    return w->o->logits
               ? gpt_json_add_logits(&e->logits, chosen->logits, w->o->vocab)
               : GPT_OK;
}

/* A stop string ends the text here, because only its text shows it: the batch
 * knows nothing but ids. */
int gpt_writer_token(void *user, int64_t i, const struct gpt_chosen *chosen,
                     bool *stop, struct gpt_err *err)
{
    struct gpt_writer *w = user;
    struct entry *e = &w->entries[i];

    GPT_TRY(begin_text(w, i, err));
    if (add_details(w, i, chosen) != GPT_OK ||
        gpt_text_add(&e->tokens, w->o->tokenizer, chosen->id, w->o->stops,
                     &e->text) != GPT_OK)
        return out_of_memory(err);
    *stop = e->tokens.stopped;
    return advance(w, err);
}

void gpt_writer_score(struct gpt_writer *w, int64_t i, double score)
{
    w->entries[i].scored = true;
    w->entries[i].score = score;
}

/* A prompt that is not answered has its error in the place of a text, so that
 * the number of an entry is still that of its prompt. As text the word "error"
 * is before it; an object has a member of that name. */
static int put_error(struct gpt_writer *w, int64_t i, struct gpt_err *err)
{
    struct entry *e = &w->entries[i];
    const char *error = w->o->prompts->items[w->o->requests[i].number].error;

    e->begun = true;
    if ((!w->o->jsonl &&
         gpt_stream_add(&e->tokens.stream, "error: ", 7, &e->text)) ||
        gpt_stream_add(&e->tokens.stream, error, strlen(error), &e->text))
        return out_of_memory(err);
    return GPT_OK;
}

/* Bytes that are held back can no longer become a character. The text is then
 * complete, and so may be those after it that waited. */
int gpt_writer_finish(void *user, int64_t i, enum gpt_finish finish,
                      struct gpt_err *err)
{
    struct gpt_writer *w = user;
    struct entry *e = &w->entries[i];

    GPT_TRY(finish == GPT_FINISH_REFUSED ? put_error(w, i, err)
                                         : begin_text(w, i, err));
    if (gpt_text_end(&e->tokens, w->o->stops, &e->text) != GPT_OK)
        return out_of_memory(err);
    e->done = true;
    e->finish = finish;
    return advance(w, err);
}
