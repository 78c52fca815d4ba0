/* Pre-tokenizers: where a text is cut before byte pairs are merged. Each is a
 * function that says how long the first piece of a text is, so that a faster
 * form can take its place without anything else changing. */
#ifndef GPT_TEXT_PRETOK_H
#define GPT_TEXT_PRETOK_H

#include "base/status.h"

/* Bytes of the first piece of text[0..len), len > 0; between 1 and len. A
 * document is cut by calling it again on what remains: the pieces do not
 * depend on anything before them. Invalid UTF-8 is taken byte by byte, each
 * such byte a character that is neither letter, number nor space. */
typedef size_t gpt_pretok_fn(const char *text, size_t len);

/* GPT-2's pieces, those of the pattern
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * with the classes of Unicode 16.0. Source: Radford et al. 2019, encoder.py. */
gpt_pretok_fn gpt_pretok_gpt2;

#endif
