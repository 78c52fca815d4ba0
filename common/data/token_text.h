/* How many bytes of text tokens stand for, so that a loss can be told in bits a
 * byte, which does not depend on the vocabulary. Tokens that stand for no text,
 * as the end of a document, have none: neither their bytes nor their losses
 * count. */
#ifndef GPT_DATA_TOKEN_TEXT_H
#define GPT_DATA_TOKEN_TEXT_H

#include "base/status.h"
#include "tokenizer/tokenizer.h"

struct gpt_token_text; /* read by threads, never written once it is open */

/* The vocabulary's special tokens are no text, nor are others[0..n); ids < 0
 * among them mean nothing. The tokenizer is not needed afterwards. */
int gpt_token_text_open(struct gpt_token_text **text,
                        const struct gpt_tokenizer *tokenizer,
                        const int64_t *others, size_t n,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_token_text_close(struct gpt_token_text *text); /* NULL is fine */

/* Bytes that `token` adds to a text after the token `before`: a document's
 * first token has no space of its own where the vocabulary puts one before each
 * text. 0: it is no text. */
int64_t gpt_token_text_bytes(const struct gpt_token_text *text, int32_t before,
                             int32_t token);

#endif
