/* JSON piece by piece; see json_out.h. */
#include "cmd/generate/json_out.h"

#include "base/json_string.h"
#include "generate/stream.h"

#include <math.h>
#include <string.h>

/* As a string that is valid UTF-8, whatever the bytes are. */
static int add_bytes(struct gpt_buf *b, const char *bytes, size_t len)
{
    struct gpt_stream stream = {0};
    struct gpt_buf text = {0};
    int status;

    GPT_TRY_GOTO(status, gpt_stream_add(&stream, bytes, len, &text), out);
    GPT_TRY_GOTO(status, gpt_stream_end(&stream, &text), out);
    status = gpt_json_add_string(b, text.data, text.len);
out:
    gpt_buf_free(&text);
    return status;
}

/* Readers that need the bytes themselves have the id beside it. */
int gpt_json_add_token(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                       int32_t id)
{
    size_t len = 0;
    const char *bytes = gpt_token_bytes(tok, id, &len);

    return add_bytes(b, bytes, len);
}

/* A message quotes what was given, and is cut where its room ends. */
int gpt_json_add_words(struct gpt_buf *b, const char *text)
{
    return add_bytes(b, text, strlen(text));
}

/* JSON has no infinity, and readers stop at one. */
int gpt_json_add_real(struct gpt_buf *b, const char *name, double x)
{
    return isfinite(x) ? gpt_buf_printf(b, ",\"%s\":%.9g", name, x)
                       : gpt_buf_printf(b, ",\"%s\":null", name);
}

/* Seven digits are what a float's logarithm has; the object stays open for a
 * member after these. */
static int add_probability(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                           int32_t id, double logprob)
{
    GPT_TRY(gpt_buf_printf(b, "{\"id\":%d,\"token\":", id));
    GPT_TRY(gpt_json_add_token(b, tok, id));
    return gpt_buf_printf(b, ",\"logprob\":%.7g", logprob);
}

/* The comma comes first, so that a list grows without a look at what is there;
 * its reader leaves out the first one. */
int gpt_json_add_chosen(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                        const struct gpt_chosen *chosen)
{
    GPT_TRY(gpt_buf_add(b, ",", 1));
    GPT_TRY(add_probability(b, tok, chosen->id, chosen->logprob));
    GPT_TRY(gpt_buf_printf(b, ",\"top\":["));
    for (int64_t i = 0; i < chosen->n_top; i++) {
        if (i > 0)
            GPT_TRY(gpt_buf_add(b, ",", 1));
        GPT_TRY(
            add_probability(b, tok, chosen->top[i].id, chosen->top[i].logprob));
        GPT_TRY(gpt_buf_add(b, "}", 1));
    }
    return gpt_buf_add(b, "]}", 2);
}

/* Nine digits make the same float again. */
int gpt_json_add_logits(struct gpt_buf *b, const float *logits, int64_t vocab)
{
    GPT_TRY(gpt_buf_add(b, ",", 1));
    for (int64_t i = 0; i < vocab; i++)
        GPT_TRY(gpt_buf_printf(b, "%c%.9g", i ? ',' : '[', (double)logits[i]));
    return gpt_buf_add(b, "]", 1);
}

/* An empty list has no comma to leave out. */
int gpt_json_add_list(struct gpt_buf *b, const char *name,
                      const struct gpt_buf *list)
{
    const bool first = b->len > 0 && b->data[b->len - 1] == '{';

    GPT_TRY(gpt_buf_printf(b, "%s\"%s\":[", first ? "" : ",", name));
    if (list->len)
        GPT_TRY(gpt_buf_add(b, list->data + 1, list->len - 1));
    return gpt_buf_add(b, "]", 1);
}
