/* Writes the inside of a JSON string from bytes that come in pieces; see
 * json_text.h. */
#include "cmd/dataset/json_text.h"

#include "base/utf8.h"

#include <assert.h>
#include <string.h>

/* n = 0: the bytes are no character. DEL is escaped as well: it is legal, but
 * no terminal shows it. */
static int put_character(struct gpt_out *out, const char *p, size_t n,
                         struct gpt_err *err)
{
    unsigned char c = (unsigned char)*p;

    if (n == 0)
        return gpt_out_write(out, "\xef\xbf\xbd", 3, err); /* U+FFFD */
    if (c == '"' || c == '\\')
        return gpt_out_printf(out, err, "\\%c", c);
    if (c == '\n')
        return gpt_out_write(out, "\\n", 2, err);
    if (c < 0x20 || c == 0x7f)
        return gpt_out_printf(out, err, "\\u%04x", c);
    return gpt_out_write(out, p, n, err);
}

/* Bytes of a character that begins with p; 1 for what begins none. While fewer
 * than these are there, more may make a character of them. */
static size_t length_by_first(const char *p)
{
    unsigned char c = (unsigned char)*p;

    return c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
}

int gpt_json_text_add(struct gpt_json_text *t, struct gpt_out *out,
                      const char *bytes, size_t n, struct gpt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        assert(t->n < sizeof(t->carry));
        t->carry[t->n++] = bytes[i];
        while (t->n > 0) {
            size_t good = gpt_utf8_length(t->carry, t->n);

            if (good == 0 && t->n < length_by_first(t->carry))
                break;
            GPT_TRY(put_character(out, t->carry, good, err));
            /* Only the first one of bytes that are no character is replaced:
             * a good character may begin right after it. */
            size_t used = good ? good : 1;
            t->n -= used;
            memmove(t->carry, t->carry + used, t->n);
        }
    }
    return GPT_OK;
}

int gpt_json_text_end(struct gpt_json_text *t, struct gpt_out *out,
                      struct gpt_err *err)
{
    for (; t->n > 0; t->n--)
        GPT_TRY(put_character(out, "", 0, err));
    return GPT_OK;
}
