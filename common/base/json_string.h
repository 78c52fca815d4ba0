/* Strings of JSON that are written without a tree. Escaped are quotes,
 * backslashes, control characters with DEL, and what ends a line in Unicode
 * (base/utf8.h): an object on a line is on one for all readers. Everything else
 * goes out as it is. */
#ifndef GPT_BASE_JSON_STRING_H
#define GPT_BASE_JSON_STRING_H

#include "base/status.h"

struct gpt_buf;

enum { GPT_JSON_ESCAPE = 16 }; /* bytes of the longest escape, with its end */

/* The escape of a character by its number: two of them, a pair of surrogates,
 * past U+FFFF. */
void gpt_json_escape_code(uint32_t code, char escape[GPT_JSON_ESCAPE]);

/* Bytes of the character that p (n > 0 bytes left) begins with if it is
 * escaped, and its escape; else 0. */
size_t gpt_json_escape(const void *p, size_t n, char escape[GPT_JSON_ESCAPE]);

/* Appends text[0..len) to b as a string, with its quotes. Bytes that are no
 * UTF-8 stay. GPT_EFAIL when out of memory. */
int gpt_json_add_string(struct gpt_buf *b, const char *text, size_t len)
    GPT_MUST_USE;

#endif
