/* The letters that byte-level vocabularies are written in: each byte is one
 * printable character, so that any bytes make a JSON string. Bytes 21-7E,
 * A1-AC and AE-FF are themselves, the other 68, in order, U+0100 and up (space
 * is U+0120). Source: Radford et al. 2019, encoder.py, bytes_to_unicode(). */
#ifndef GPT_TOKENIZER_BYTELEVEL_H
#define GPT_TOKENIZER_BYTELEVEL_H

#include "base/status.h"

enum { GPT_BYTELEVEL_MAX = 2 }; /* bytes of UTF-8 that a letter takes */

/* The letter of a byte. */
uint32_t gpt_byte_letter(uint8_t byte);
/* The byte of a letter, -1 if the code point is none. */
int gpt_letter_byte(uint32_t cp);
/* The bytes in the order of their letters: GPT-2's ids 0..255 ('!' first). */
uint8_t gpt_byte_of_rank(int rank);

/* bytes[0..len) as letters into out, which has 2 * len bytes; returns the
 * length written. */
size_t gpt_bytelevel_encode(const char *bytes, size_t len, char *out);
/* The inverse, into out of len bytes; false when text is not all letters. */
bool gpt_bytelevel_decode(const char *text, size_t len, char *out,
                          size_t *out_len);

#endif
