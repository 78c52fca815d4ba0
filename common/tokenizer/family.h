/* What a family of tokenizers implements behind tokenizer.h. A family's own
 * structs begin with struct gpt_tokenizer and struct gpt_encoder. */
#ifndef GPT_TOKENIZER_FAMILY_H
#define GPT_TOKENIZER_FAMILY_H

#include "tokenizer/tokenizer.h"

struct gpt_tokenizer_family {
    const char *type; /* Megatron's name */
    int (*open)(struct gpt_tokenizer **tok,
                const struct gpt_tokenizer_options *options,
                struct gpt_err *err);
    void (*close)(struct gpt_tokenizer *tok);
    int (*encoder_open)(struct gpt_encoder **enc,
                        const struct gpt_tokenizer *tok, struct gpt_err *err);
    void (*encoder_close)(struct gpt_encoder *enc);
    int (*encode)(struct gpt_encoder *enc, const char *text, size_t len,
                  struct gpt_ids *ids, struct gpt_err *err);
    /* 0 <= id < vocab_size */
    const char *(*token_bytes)(const struct gpt_tokenizer *tok, int32_t id,
                               size_t *len);
};

struct gpt_tokenizer {
    const struct gpt_tokenizer_family *family;
    int64_t vocab_size;
    int32_t eod;
    bool first_space; /* the first token of a text drops the space before it */
    int32_t unk;      /* except this one; -1 = none */
};

struct gpt_encoder {
    const struct gpt_tokenizer *tok;
};

/* The path of --tokenizer-model: itself, or `name` in it, a directory. */
int gpt_tokenizer_file(const char *model, const char *name, char *path,
                       size_t cap, struct gpt_err *err) GPT_MUST_USE;
bool gpt_tokenizer_parses_special(const struct gpt_tokenizer_options *o);

extern const struct gpt_tokenizer_family gpt_family_gpt2;
extern const struct gpt_tokenizer_family gpt_family_hf;
extern const struct gpt_tokenizer_family gpt_family_tiktoken;
extern const struct gpt_tokenizer_family gpt_family_sp;
extern const struct gpt_tokenizer_family gpt_family_sp_gpt;
extern const struct gpt_tokenizer_family gpt_family_sp_llama2;
extern const struct gpt_tokenizer_family gpt_family_null;
extern const struct gpt_tokenizer_family gpt_family_bytes;

#endif
