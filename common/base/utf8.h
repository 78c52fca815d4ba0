/* Well-formedness of UTF-8 (Unicode 16, table 3-7). */
#ifndef GPT_BASE_UTF8_H
#define GPT_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed sequence that p (n bytes left) begins with: 1 to 4;
 * 0 when it is malformed or cut short, or n is 0. */
size_t gpt_utf8_length(const void *p, size_t n);

#endif
