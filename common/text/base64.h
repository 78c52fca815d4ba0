/* Bytes that are written in 64 letters: RFC 4648, section 4. */
#ifndef GPT_TEXT_BASE64_H
#define GPT_TEXT_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Decodes text[0..len), with its padding, into out of 3 * len / 4 bytes; *n is
 * how many there are. False for what is none, as for an empty text. */
bool gpt_base64_decode(const char *text, size_t len, char *out, size_t *n);

#endif
