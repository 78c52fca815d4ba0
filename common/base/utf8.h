/* Well-formedness of UTF-8 (Unicode 16, table 3-7). */
#ifndef GPT_BASE_UTF8_H
#define GPT_BASE_UTF8_H

#include "base/status.h"

/* Bytes of the well-formed sequence that p (n bytes left) begins with: 1 to 4;
 * 0 when it is malformed or cut short, or n is 0. */
size_t gpt_utf8_length(const void *p, size_t n);

/* Characters in p (n bytes): bytes that do not continue one. */
size_t gpt_utf8_count(const void *p, size_t n);

/* Bytes of the byte order mark that p (n bytes left) begins with: 3, or 0. */
size_t gpt_utf8_mark(const void *p, size_t n);

/* Bytes of the character that p (n bytes left) begins with if it ends a line in
 * Unicode, as Python's splitlines() and some readers of events take it: U+0085,
 * U+2028 or U+2029; else 0. *code is then its number. Where a value is on a
 * line of its own these are escaped. */
size_t gpt_utf8_line_end(const void *p, size_t n, unsigned *code);

/* Appends text to b as a terminal may show it. Names of files and words of data
 * come from outside and may hold escape sequences, which a terminal would obey:
 * control characters but those in `keep`, and bytes that are no UTF-8, become
 * \xHH. GPT_EFAIL when out of memory. */
struct gpt_buf;
int gpt_buf_add_shown(struct gpt_buf *b, const char *text, const char *keep)
    GPT_MUST_USE;

#endif
