/* The vocabulary that is among the keys of a GGUF file, as the file that it
 * came from: a tokenizer.json of byte-level BPE, or the model of
 * SentencePiece. Families read it as if that file were there. Start at
 * gpt_gguf_read(). */
#ifndef GPT_TOKENIZER_GGUF_TOKENS_H
#define GPT_TOKENIZER_GGUF_TOKENS_H

#include "base/memory.h"
#include "tokenizer/gguf_file.h"

/* Values of tokenizer.ggml.token_type, which are those of SentencePiece. */
enum gpt_gguf_token {
    GPT_GGUF_NORMAL = 1,
    GPT_GGUF_UNKNOWN,
    GPT_GGUF_CONTROL,
    GPT_GGUF_USER,
    GPT_GGUF_UNUSED,
    GPT_GGUF_BYTE,
};

/* A value of tokenizer.ggml.pre: how llama.cpp cuts a text. In the order in
 * which they are tried for writing; ended by a row without names. */
struct gpt_gguf_pre {
    const char *pre, *pretok; /* pretok: of gpt_pretok_names */
    bool whole; /* a piece that is a token is not merged */
    bool begins; /* a text begins with its token, where no key says so */
};
extern const struct gpt_gguf_pre gpt_gguf_pres[];

/* The type of tokenizer of the vocabulary at `path`; NULL when the file holds
 * none, or one that no family here reads, but not where it cannot be read. */
int gpt_gguf_tokenizer_type(const char **type, const char *path,
                            struct gpt_err *err) GPT_MUST_USE;

/* What a file of the vocabulary at `path` is called: "tokenizer.json",
 * "tokenizer.model"; NULL as above, but not where the file cannot be read. A
 * "tokenizer_config.json" is beside it. */
int gpt_gguf_vocabulary_name(const char **name, const char *path,
                             struct gpt_err *err) GPT_MUST_USE;

/* The contents of such a file where `path` is a GGUF file, else of the file
 * itself, at most `limit` bytes: *len bytes and a NUL, freed with gpt_free().
 * GPT_EDATA names the key, or says that there is no file of the name. */
int gpt_gguf_read(const char *name, char **text, size_t *len, const char *path,
                  int64_t limit, struct gpt_err *err) GPT_MUST_USE;

/* The token that ends a text; -1 = none. */
int gpt_gguf_end_token(const char *path, int32_t *id,
                       struct gpt_err *err) GPT_MUST_USE;

#endif
