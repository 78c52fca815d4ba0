/* Strings of JSON: see json_string.h. */
#include "base/json_string.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdio.h>

size_t gpt_json_escape(const void *p, size_t n, char escape[8])
{
    const unsigned char c = *(const unsigned char *)p;
    unsigned code = c;
    const size_t end = gpt_utf8_line_end(p, n, &code);

    if (c == '"' || c == '\\')
        snprintf(escape, 8, "\\%c", c);
    else if (c == '\n')
        snprintf(escape, 8, "\\n");
    else if (c < 0x20 || c == 0x7F || end > 0)
        snprintf(escape, 8, "\\u%04x", code & 0xFFFF);
    else
        return 0;
    return end > 0 ? end : 1;
}

int gpt_json_add_string(struct gpt_buf *b, const char *text, size_t len)
{
    char escape[8];

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
