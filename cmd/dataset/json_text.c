/* Writes the inside of a JSON string from bytes that come in pieces; see
 * json_text.h. */
#include "cmd/dataset/json_text.h"

#include "base/json_string.h"

#include <string.h>

/* Writes the character that text (n > 0 bytes left) begins with, or its first
 * byte; returns through *used how many bytes those are. */
static int put_character(struct gpt_out *out, const char *text, size_t n,
                         size_t *used, struct gpt_err *err)
{
    char escape[GPT_JSON_ESCAPE];

    *used = gpt_json_escape(text, n, escape);
    if (*used > 0)
        return gpt_out_write(out, escape, strlen(escape), err);
    *used = 1;
    return gpt_out_write(out, text, 1, err);
}

/* Writes what the stream has given, and frees it. */
static int put_text(struct gpt_out *out, struct gpt_buf *text, int status,
                    struct gpt_err *err)
{
    if (status != GPT_OK)
        status = gpt_no_memory(err, "a text");
    for (size_t i = 0, n; status == GPT_OK && i < text->len; i += n)
        status = put_character(out, text->data + i, text->len - i, &n, err);
    gpt_buf_free(text);
    return status;
}

int gpt_json_text_add(struct gpt_stream *t, struct gpt_out *out,
                      const char *bytes, size_t n, struct gpt_err *err)
{
    struct gpt_buf text = {0};

    /* most texts are ASCII, which needs no buffer */
    for (size_t used; n > 0 && t->n_held == 0 && (unsigned char)*bytes < 0x80;
         n -= used, bytes += used)
        GPT_TRY(put_character(out, bytes, n, &used, err));
    if (n == 0)
        return GPT_OK;
    int status = gpt_stream_add(t, bytes, n, &text);

    return put_text(out, &text, status, err);
}

int gpt_json_text_end(struct gpt_stream *t, struct gpt_out *out,
                      struct gpt_err *err)
{
    struct gpt_buf text = {0};
    int status = gpt_stream_end(t, &text);

    return put_text(out, &text, status, err);
}
