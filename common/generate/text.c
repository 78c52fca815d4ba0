/* The text of tokens, up to a stop string; see text.h. Start at release(). */
#include "generate/text.h"

#include <string.h>

/* Where the first stop string begins in held, or -1. When several are there,
 * the one that begins first counts, not the one that is listed first. */
static int64_t find_stop(const struct gpt_buf *held,
                         const struct gpt_list *stops)
{
    int64_t first = -1;

    for (int64_t i = 0; i < stops->n; i++) {
        const size_t n = strlen(stops->items[i]);
        const char *at =
            n ? memmem(held->data, held->len, stops->items[i], n) : NULL;

        if (at && (first < 0 || at - held->data < first))
            first = at - held->data;
    }
    return first;
}

/* The longest end of held that a stop string begins with. */
static size_t possible_beginning(const struct gpt_buf *held,
                                 const struct gpt_list *stops)
{
    size_t longest = 0;

    for (int64_t i = 0; i < stops->n; i++) {
        size_t n = strlen(stops->items[i]);

        n = n > held->len ? held->len : n;
        while (n > longest &&
               memcmp(held->data + held->len - n, stops->items[i], n) != 0)
            n--;
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* Moves from held to *out what cannot be part of a stop string, at the end of
 * the text all of it. */
static int release(struct gpt_text *t, const struct gpt_list *stops, bool end,
                   struct gpt_buf *out)
{
    if (t->held.len == 0)
        return GPT_OK;
    int64_t stop = find_stop(&t->held, stops);
    t->stopped = stop >= 0;
    size_t n = t->held.len;
    if (t->stopped)
        n = (size_t)stop;
    else if (!end)
        n -= possible_beginning(&t->held, stops);
    GPT_TRY(gpt_buf_add(out, t->held.data, n));
    memmove(t->held.data, t->held.data + n, t->held.len - n);
    t->held.len -= n;
    return GPT_OK;
}

int gpt_text_add(struct gpt_text *t, const struct gpt_tokenizer *tok,
                 int32_t token, const struct gpt_list *stops,
                 struct gpt_buf *out)
{
    size_t len;

    if (t->stopped)
        return GPT_OK;
    t->n_tokens++;
    /* A vocabulary of words marks their beginning with a space. The first token
     * of a document would show it. */
    const char *bytes = gpt_next_bytes(tok, token, &t->begins, &len);
    GPT_TRY(gpt_stream_add(&t->stream, bytes, len, &t->held));
    return release(t, stops, false, out);
}

/* What is held back may be half a character, which becomes a mark, and what
 * could have begun a stop string, which now did not. */
int gpt_text_end(struct gpt_text *t, const struct gpt_list *stops,
                 struct gpt_buf *out)
{
    if (t->stopped)
        return GPT_OK;
    GPT_TRY(gpt_stream_end(&t->stream, &t->held));
    return release(t, stops, true, out);
}

void gpt_text_free(struct gpt_text *t)
{
    gpt_buf_free(&t->held);
}
