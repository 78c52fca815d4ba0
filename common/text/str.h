/* A view of bytes that it does not own, and the few things that readers of text
 * do with one. */
#ifndef GPT_TEXT_STR_H
#define GPT_TEXT_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* len bytes at `data`, borrowed, not ended by a NUL. Where absence differs from
 * emptiness, data == NULL says absent. */
struct gpt_str {
    const char *data;
    size_t len;
};

/* True when s holds just these bytes. */
static inline bool gpt_str_equal(struct gpt_str s, const char *bytes,
                                 size_t len)
{
    return s.len == len && memcmp(s.data, bytes, len) == 0;
}

/* Takes the next line off *rest, without its "\n" or "\r\n"; false when *rest
 * is empty. The last line needs no newline. */
static inline bool gpt_str_next_line(struct gpt_str *rest,
                                     struct gpt_str *line)
{
    if (rest->len == 0)
        return false;
    const char *newline = memchr(rest->data, '\n', rest->len);
    size_t taken = newline ? (size_t)(newline - rest->data) + 1 : rest->len;
    size_t len = taken - (newline != NULL);
    line->data = rest->data;
    line->len = len - (len > 0 && rest->data[len - 1] == '\r');
    rest->data += taken;
    rest->len -= taken;
    return true;
}

/* The first byte from p on that is none of JSON's white space, or `end`. */
static inline const char *gpt_skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* How many of len bytes a message quotes, for "%.*s". */
static inline int gpt_str_shown(size_t len)
{
    return (int)(len < 200 ? len : 200);
}

#endif
