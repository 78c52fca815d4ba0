/* Strings of JSON: see json_string.h. */
#include "base/json_string.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdio.h>

void gpt_json_escape_code(uint32_t code, char escape[GPT_JSON_ESCAPE])
{
    const uint32_t beyond = code - 0x10000;

    if (code < 0x10000)
        snprintf(escape, GPT_JSON_ESCAPE, "\\u%04x", code);
    else
        snprintf(escape, GPT_JSON_ESCAPE, "\\u%04x\\u%04x",
                 0xD800 + (beyond >> 10 & 0x3FF), 0xDC00 + (beyond & 0x3FF));
}

size_t gpt_json_escape(const void *p, size_t n, char escape[GPT_JSON_ESCAPE])
{
    const unsigned char c = *(const unsigned char *)p;
    unsigned code = c;
    const size_t end = gpt_utf8_line_end(p, n, &code);

    if (c == '"' || c == '\\')
        snprintf(escape, GPT_JSON_ESCAPE, "\\%c", c);
    else if (c == '\n')
        snprintf(escape, GPT_JSON_ESCAPE, "\\n");
    else if (c < 0x20 || c == 0x7F || end > 0)
        gpt_json_escape_code(code, escape);
    else
        return 0;
    return end > 0 ? end : 1;
}

int gpt_json_add_string(struct gpt_buf *b, const char *text, size_t len)
{
    char escape[GPT_JSON_ESCAPE];

    GPT_TRY(gpt_buf_add(b, "\"", 1));
    for (size_t i = 0, n; i < len; i += n) {
        n = gpt_json_escape(text + i, len - i, escape);
        if (n > 0)
            GPT_TRY(gpt_buf_printf(b, "%s", escape));
        else
            GPT_TRY(gpt_buf_add(b, &text[i], n = 1));
    }
    return gpt_buf_add(b, "\"", 1);
}
