/* Writes the inside of a JSON string from bytes that come in pieces; see
 * json_text.h. */
#include "cmd/dataset/json_text.h"

/* DEL is escaped as well: it is legal, but no terminal shows it. */
static int put_byte(struct gpt_out *out, const char *p, struct gpt_err *err)
{
    unsigned char c = (unsigned char)*p;

    if (c == '"' || c == '\\')
        return gpt_out_printf(out, err, "\\%c", c);
    if (c == '\n')
        return gpt_out_write(out, "\\n", 2, err);
    if (c < 0x20 || c == 0x7f)
        return gpt_out_printf(out, err, "\\u%04x", c);
    return gpt_out_write(out, p, 1, err);
}

/* Writes what the stream has given, and frees it. */
static int put_text(struct gpt_out *out, struct gpt_buf *text, int status,
                    struct gpt_err *err)
{
    if (status != GPT_OK)
        status = gpt_no_memory(err, "a text");
    for (size_t i = 0; status == GPT_OK && i < text->len; i++)
        status = put_byte(out, text->data + i, err);
    gpt_buf_free(text);
    return status;
}

int gpt_json_text_add(struct gpt_stream *t, struct gpt_out *out,
                      const char *bytes, size_t n, struct gpt_err *err)
{
    struct gpt_buf text = {0};

    /* most texts are ASCII, which needs no buffer */
    for (; n > 0 && t->n_held == 0 && (unsigned char)*bytes < 0x80; n--)
        GPT_TRY(put_byte(out, bytes++, err));
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
