/* Vocabularies of whole characters, as SentencePiece makes them and Hugging
 * Face writes them down: "\u2581the" for " the", "<0x0A>" for a byte of a
 * character that has no token. Here they become vocabularies that begin with
 * bytes, so that bpe/ serves them, too: a space is written as U+0020, and
 * before all merges of the file those come that make characters of bytes. */
#ifndef GPT_TOKENIZER_VOCAB_CHARS_H
#define GPT_TOKENIZER_VOCAB_CHARS_H

#include "tokenizer/vocab.h"

/* Writes a text with a space for each U+2581 to out; returns its length. */
size_t gpt_chars_spaces(const char *text, size_t len, char *out);
/* The bytes that a token of this text stands for, in out[0..len); returns how
 * many. */
size_t gpt_chars_print(const char *text, size_t len, char *out);

/* Adds to a vocabulary, whose tokens are printed, the merges that make its
 * characters. What they make on the way, beginnings of characters, are
 * v->n_prefixes tokens behind the others, which are not counted in v->n.
 * GPT_EDATA when these are too many; `what` names the file. */
int gpt_chars_join(struct gpt_vocab *v, const char *what, struct gpt_err *err)
    GPT_MUST_USE;

/* Replaces the beginnings of characters among ids from `first` on by the tokens
 * of their bytes. Ids from n_tokens on are beginnings, by the list `tokens`. */
int gpt_chars_expand(struct gpt_ids *ids, size_t first,
                     const struct gpt_vocab *v, int64_t n_tokens,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
