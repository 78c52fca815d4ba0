/* Tokenizers: text to ids and back. Opaque; every family is used by the same
 * calls. Start at gpt_tokenizer_open().
 *
 * The folder: a family is a file, family_*.c, with the calls of family.h. The
 * byte-level families (GPT-2, Hugging Face, tiktoken) cut a text into pieces
 * (pretok*) and encode the pieces by byte pairs (bpe/encoder.h), vocabularies
 * of characters after a step from bytes to these (vocab_chars.h); SentencePiece
 * normalizes it (sp_normalize.h) and then searches (sp_encode.h). Files of
 * vocabularies are read by vocab*, tiktoken_file, tokenizer_json* and sp_model.
 */
#ifndef GPT_TOKENIZER_TOKENIZER_H
#define GPT_TOKENIZER_TOKENIZER_H

#include "base/list.h"
#include "tokenizer/ids.h"

struct gpt_tokenizer;

/* The types of tokenizers, NULL-terminated, by Megatron's names. */
extern const char *const gpt_tokenizer_types[];

/* What `special` can be, NULL-terminated: whether "<|endoftext|>" in a text is
 * that text, or the token. */
extern const char *const gpt_special_choices[]; /* plain parse */

/* How a tokenizer is made. Zeros are the defaults, except that `type` must be
 * set. Names and meaning are Megatron's. */
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

/* Reads the files that the options name; the options are borrowed during the
 * call only. GPT_EUSAGE when the type lacks a file or a number that it needs,
 * GPT_EDATA with file:line or file:offset for vocabularies that are malformed
 * or do not match their merges. A tokenizer is shared by threads, and never
 * written once it is open. */
int gpt_tokenizer_open(struct gpt_tokenizer **tok,
                       const struct gpt_tokenizer_options *options,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_tokenizer_close(struct gpt_tokenizer *tok);

int64_t gpt_tokenizer_vocab_size(const struct gpt_tokenizer *tok);
int32_t gpt_tokenizer_eod(const struct gpt_tokenizer *tok); /* -1 = none */
/* The first token that the tokenizer puts before each text; -1 = none. */
int32_t gpt_tokenizer_bos(const struct gpt_tokenizer *tok);
/* How many tokens it puts there. */
size_t gpt_tokenizer_before(const struct gpt_tokenizer *tok);
/* Puts the token of that name before each text from now on, unless the files of
 * the tokenizer put some there; false where neither does. Before encoders are
 * opened. */
bool gpt_tokenizer_begin_with(struct gpt_tokenizer *tok, const char *name);
/* The same after each text. */
bool gpt_tokenizer_end_with(struct gpt_tokenizer *tok, const char *name);

/* A thread's private state: caches and scratch. One thread at a time. */
struct gpt_encoder;
int gpt_encoder_open(struct gpt_encoder **enc,
                     const struct gpt_tokenizer *tok, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_encoder_close(struct gpt_encoder *enc);

/* Appends the ids of text[0..len) to *ids. Any bytes are accepted; invalid
 * UTF-8 is encoded byte by byte where the family can do that, else as U+FFFD.
 * The text is one document: where the tokenizer puts ids around a text, it does
 * so here. */
int gpt_encode(struct gpt_encoder *enc, const char *text, size_t len,
               struct gpt_ids *ids, struct gpt_err *err) GPT_MUST_USE;

/* The same of a text that is a document's beginning, or any part of one: with
 * the ids that are put before a text, or with none. */
enum gpt_around { GPT_AROUND_NONE, GPT_AROUND_BEFORE, GPT_AROUND_BOTH };
int gpt_encode_as(struct gpt_encoder *enc, enum gpt_around around,
                  const char *text, size_t len, struct gpt_ids *ids,
                  struct gpt_err *err) GPT_MUST_USE;

/* The bytes of a token, borrowed; *len = 0 for ids outside the vocabulary.
 * Special tokens give their name ("<|endoftext|>"). */
const char *gpt_token_bytes(const struct gpt_tokenizer *tok, int32_t id,
                            size_t *len);
/* False for an id that no token of the vocabulary has. A token may have no
 * bytes, where its decoder makes nothing of it. */
bool gpt_token_exists(const struct gpt_tokenizer *tok, int32_t id);
/* True for a token that stands for no text, as the end of a document, the
 * beginning of a text or a role of a chat. */
bool gpt_token_is_special(const struct gpt_tokenizer *tok, int32_t id);
/* The special token of which text[0..len) is the name; -1 = none. */
int32_t gpt_special_token(const struct gpt_tokenizer *tok, const char *text,
                          size_t len);
/* The bytes of a token that is the first one of a text: without the space that
 * some families put before each text, or before each word. */
const char *gpt_first_bytes(const struct gpt_tokenizer *tok, int32_t id,
                            size_t *len);
/* The bytes of one token after the other: *begins is true before the first, and
 * becomes false where later ones show their space. A SentencePiece model that
 * removes extra spaces drops those of all tokens before the first text. */
const char *gpt_next_bytes(const struct gpt_tokenizer *tok, int32_t id,
                           bool *begins, size_t *len);

#endif
