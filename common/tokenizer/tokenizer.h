/* Tokenizers: text to ids and back. Opaque; every family sits behind the same
 * calls. Start at gpt_tokenizer_open(). */
#ifndef GPT_TOKENIZER_TOKENIZER_H
#define GPT_TOKENIZER_TOKENIZER_H

#include "base/options.h"

struct gpt_tokenizer;

/* The types there are, NULL-terminated: choices of --tokenizer-type. */
extern const char *const gpt_tokenizer_types[];

/* What --special can be: whether "<|endoftext|>" in a text is that text, or the
 * token. */
extern const char *const gpt_special_choices[]; /* plain parse */

/* Zeros are the defaults, but for type. Names and meaning are Megatron's. */
struct gpt_tokenizer_options {
    const char *type;
    const char *vocab_file, *merge_file; /* GPT2BPETokenizer */
    const char *model; /* the others' file; a directory of tokenizer.json */
    const char *special; /* NULL = plain */
    bool hf_no_special;  /* HuggingFaceTokenizer: add no BOS and the like */
    const char *tiktoken_pattern;
    int64_t tiktoken_num_special; /* 0 = as the file's format has it */
    struct gpt_list special_tokens; /* TikTokenizer */
    int64_t vocab_size; /* NullTokenizer; TikTokenizer: of the model */
};

/* GPT_EDATA with file:line or file:offset for vocabularies that are malformed
 * or do not match their merges. */
int gpt_tokenizer_open(struct gpt_tokenizer **tok,
                       const struct gpt_tokenizer_options *options,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_tokenizer_close(struct gpt_tokenizer *tok);

int64_t gpt_tokenizer_vocab_size(const struct gpt_tokenizer *tok);
int32_t gpt_tokenizer_eod(const struct gpt_tokenizer *tok); /* -1 = none */

/* A thread's private state: caches and scratch. One thread at a time. */
struct gpt_encoder;
int gpt_encoder_open(struct gpt_encoder **enc,
                     const struct gpt_tokenizer *tok, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_encoder_close(struct gpt_encoder *enc);

struct gpt_ids {
    int32_t *data; /* freed with gpt_free() */
    size_t len, cap;
};

/* Appends the ids of text[0..len) to *ids. Any bytes are accepted; invalid
 * UTF-8 is encoded byte by byte where the family can do that, else as U+FFFD.
 * The text is one document: where the tokenizer puts ids around a text, it does
 * so here. */
int gpt_encode(struct gpt_encoder *enc, const char *text, size_t len,
               struct gpt_ids *ids, struct gpt_err *err) GPT_MUST_USE;

/* The bytes of a token, borrowed; *len = 0 for ids outside the vocabulary.
 * Special tokens give their name ("<|endoftext|>"). */
const char *gpt_token_bytes(const struct gpt_tokenizer *tok, int32_t id,
                            size_t *len);
/* Bytes, 0 or 1, that the first token of a text has and the text has not: the
 * space that some families put before each text. */
size_t gpt_first_space(const struct gpt_tokenizer *tok, int32_t id);

#endif
