/* Well-formedness of UTF-8 (Unicode 16, table 3-7). */
#ifndef GPT_BASE_UTF8_H
#define GPT_BASE_UTF8_H

#include "base/status.h"

/* Bytes of the well-formed sequence that p (n bytes left) begins with: 1 to 4;
 * 0 when it is malformed or cut short, or n is 0. */
size_t gpt_utf8_length(const void *p, size_t n);

/* Bytes of the byte order mark that p (n bytes left) begins with: 3, or 0. */
size_t gpt_utf8_mark(const void *p, size_t n);

/* Appends text to b as a terminal may show it. Names of files and words of data
 * come from outside and may hold escape sequences, which a terminal would obey:
 * control characters but those in `keep`, and bytes that are no UTF-8, become
 * \xHH. GPT_EFAIL when out of memory. */
struct gpt_buf;
int gpt_buf_add_shown(struct gpt_buf *b, const char *text, const char *keep)
    GPT_MUST_USE;

#endif
