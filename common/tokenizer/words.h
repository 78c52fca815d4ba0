/* Models of a tokenizer.json that look pieces of text up in a vocabulary:
 * WordLevel, where a piece is one token, and WordPiece, where it is the longest
 * token that it begins with, then the longest one with a prefix ("##") that the
 * rest begins with, and so on. A piece of which a part is no token is the
 * unknown token as a whole. Source: tokenizers, models/wordpiece/mod.rs. */
#ifndef GPT_TOKENIZER_WORDS_H
#define GPT_TOKENIZER_WORDS_H

#include "base/json.h"
#include "tokenizer/sp_encode.h"
#include "tokenizer/vocab_names.h"

struct gpt_words {
    struct gpt_vocab_names names; /* the tokens; ids may have gaps */
    struct gpt_sp_trie trie;      /* of WordPiece */
    uint32_t inside; /* its node of the prefix; GPT_NO_PATH: no token has it */
    int64_t most;    /* characters of a piece that is not unknown */
    int32_t unk;     /* -1: a text that needs it fails */
};

/* From the members of `model` and from model.vocab, an object of tokens and
 * ids; `what` names the file. GPT_EDATA when there is no token, or one of more
 * than GPT_TOKEN_MAX bytes. gpt_words_close() frees, also after a failure. */
int gpt_words_read(struct gpt_words *w, const cJSON *model,
                   struct gpt_str vocab, const char *what,
                   struct gpt_err *err) GPT_MUST_USE;
int gpt_word_parts_read(struct gpt_words *w, const cJSON *model,
                        struct gpt_str vocab, const char *what,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_words_close(struct gpt_words *w);

/* Append the ids of a piece, which is UTF-8 and not empty: of WordLevel, and of
 * WordPiece. GPT_EDATA for an unknown piece where the model has no token for
 * it. */
int gpt_words_encode(const struct gpt_words *w, struct gpt_str piece,
                     struct gpt_ids *ids, struct gpt_err *err) GPT_MUST_USE;
int gpt_word_parts_encode(const struct gpt_words *w, struct gpt_str piece,
                          struct gpt_ids *ids, struct gpt_err *err)
    GPT_MUST_USE;

#endif
