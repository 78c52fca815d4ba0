/* JSON that is written piece by piece, for output that has no tree; strings are
 * those of base/json_string.h. */
#ifndef GPT_CMD_GENERATE_JSON_OUT_H
#define GPT_CMD_GENERATE_JSON_OUT_H

#include "base/memory.h"
#include "generate/batch.h"
#include "tokenizer/tokenizer.h"

/* Adds a token's bytes as a string; what is no UTF-8 becomes U+FFFD. */
int gpt_json_add_token(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                       int32_t id) GPT_MUST_USE;

/* Adds a message as a string; what is no UTF-8 becomes U+FFFD. */
int gpt_json_add_words(struct gpt_buf *b, const char *text) GPT_MUST_USE;

/* Adds a comma and a member that is a number, or null where x is none that JSON
 * has. */
int gpt_json_add_real(struct gpt_buf *b, const char *name,
                      double x) GPT_MUST_USE;

/* Adds a comma and an object: id, token, logprob, and in "top" the same of the
 * most probable tokens. */
int gpt_json_add_chosen(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                        const struct gpt_chosen *chosen) GPT_MUST_USE;

/* Adds a comma and a list of logits (V). */
int gpt_json_add_logits(struct gpt_buf *b, const float *logits,
                        int64_t vocab) GPT_MUST_USE;

/* Adds a member of an object, after a comma where it is not the first: a list
 * of the elements in `list`, each of which comes after a comma. */
int gpt_json_add_list(struct gpt_buf *b, const char *name,
                      const struct gpt_buf *list) GPT_MUST_USE;

#endif
