/* JSON as Python's json.dumps() writes it, with its default ensure_ascii: see
 * python_json.h. */
#include "cmd/dataset/python_json.h"

#include "base/json_string.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Six characters have names; the rest of ASCII that can be printed stays; 0x7f
 * and everything above becomes \\uXXXX, in pairs of surrogates beyond the first
 * plane. */
static int add_character(struct gpt_buf *b, uint32_t c)
{
    static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *at = c && c < 0x80 ? strchr(plain, (int)c) : NULL;
    char escape[GPT_JSON_ESCAPE];

    if (at)
        return gpt_buf_printf(b, "\\%c", names[at - plain]);
    if (c >= 0x20 && c < 0x7f)
        return gpt_buf_printf(b, "%c", (int)c);
    gpt_json_escape_code(c, escape);
    return gpt_buf_printf(b, "%s", escape);
}

/* Bytes that are not UTF-8 become lone surrogates, as Python decodes file names
 * (surrogateescape): a prefix may hold any bytes. */
int gpt_python_string(struct gpt_buf *b, const char *s)
{
    size_t left = strlen(s);

    GPT_TRY(gpt_buf_add(b, "\"", 1));
    while (left > 0) {
        const uint8_t *p = (const uint8_t *)s;
        uint32_t code;
        const size_t n = (size_t)gpt_utf8_decode(p, left, &code);

        GPT_TRY(add_character(b, n ? code : 0xdc00u + *p));
        s += n ? n : 1;
        left -= n ? n : 1;
    }
    return gpt_buf_add(b, "\"", 1);
}

/* repr() takes the fewest digits that read back as the same double: tried one
 * after the other, from few. */
int gpt_python_float(struct gpt_buf *b, double v)
{
    char text[40];

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    /* %g turns to exponents at `digits`, repr() at 1e16. */
    if (strchr(text, 'e') && fabs(v) >= 1 && fabs(v) < 1e16)
        snprintf(text, sizeof(text), "%.0f", v);
    bool whole = !strpbrk(text, ".e");
    return gpt_buf_printf(b, "%s%s", text, whole ? ".0" : "");
}

/* cJSON holds all numbers as doubles; an integer prints as one, as it was read
 * from text that a Python int wrote. */
static int add_number(struct gpt_buf *b, double v)
{
    if (v == floor(v) && fabs(v) < 0x1p53)
        return gpt_buf_printf(b, "%.0f", v);
    return gpt_python_float(b, v);
}

static int add_line(struct gpt_buf *b, int level)
{
    return gpt_buf_printf(b, "\n%*s", 4 * level, "");
}

static int add_children(struct gpt_buf *b, const cJSON *item, int level)
{
    const cJSON *child;
    bool object = cJSON_IsObject(item);

    if (!item->child)
        return gpt_buf_add(b, object ? "{}" : "[]", 2);
    GPT_TRY(gpt_buf_add(b, object ? "{" : "[", 1));
    cJSON_ArrayForEach(child, item)
    {
        if (child != item->child)
            GPT_TRY(gpt_buf_add(b, ",", 1));
        GPT_TRY(add_line(b, level + 1));
        if (object) {
            GPT_TRY(gpt_python_string(b, child->string));
            GPT_TRY(gpt_buf_add(b, ": ", 2));
        }
        GPT_TRY(gpt_python_json(b, child, level + 1)); /* depth <= 64 */
    }
    GPT_TRY(add_line(b, level));
    return gpt_buf_add(b, object ? "}" : "]", 1);
}

int gpt_python_json(struct gpt_buf *b, const cJSON *item, int level)
{
    if (cJSON_IsString(item))
        return gpt_python_string(b, item->valuestring);
    if (cJSON_IsNumber(item))
        return add_number(b, item->valuedouble);
    if (cJSON_IsObject(item) || cJSON_IsArray(item))
        return add_children(b, item, level);
    return gpt_buf_printf(b, "%s", cJSON_IsTrue(item)    ? "true"
                                   : cJSON_IsFalse(item) ? "false"
                                                         : "null");
}
