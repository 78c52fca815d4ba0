/* What a family of tokenizers implements for tokenizer.h. A family's own
 * structs begin with struct gpt_tokenizer and struct gpt_encoder. A new family
 * is a file family_*.c, a row here and a row in tokenizer.c. */
#ifndef GPT_TOKENIZER_FAMILY_H
#define GPT_TOKENIZER_FAMILY_H

#include "tokenizer/tokenizer.h"

struct gpt_tokenizer_family {
    const char *type; /* Megatron's name */
    /* reads the files; GPT_EUSAGE when the options lack what the type needs */
    int (*open)(struct gpt_tokenizer **tok,
                const struct gpt_tokenizer_options *options,
                struct gpt_err *err);
    void (*close)(struct gpt_tokenizer *tok);
    int (*encoder_open)(struct gpt_encoder **enc,
                        const struct gpt_tokenizer *tok, struct gpt_err *err);
    void (*encoder_close)(struct gpt_encoder *enc);
    /* without the ids around a text */
    int (*encode)(struct gpt_encoder *enc, const char *text, size_t len,
                  struct gpt_ids *ids, struct gpt_err *err);
    /* 0 <= id < vocab_size; NULL where no token has the id */
    const char *(*token_bytes)(const struct gpt_tokenizer *tok, int32_t id,
                               size_t *len);
    /* The same as the first token of a text, where the tokenizer's first_space
     * does not say what is missing there. NULL: it does. */
    const char *(*first_bytes)(const struct gpt_tokenizer *tok, int32_t id,
                               size_t *len);
    /* NULL: the end of document alone */
    bool (*is_special)(const struct gpt_tokenizer *tok, int32_t id);
    /* True for a token whose space at its beginning is never the one that was
     * put before the text. NULL: there is none. */
    bool (*keeps_space)(const struct gpt_tokenizer *tok, int32_t id);
};

struct gpt_tokenizer {
    const struct gpt_tokenizer_family *family;
    int64_t vocab_size;
    int32_t eod;
    bool first_space; /* the first token of a text drops the space before it */
    bool every_space; /* ... and so does each, while no text is there yet */
    int32_t unk;      /* except this one; -1 = none */
    int32_t *before, *after; /* ids around each text, by gpt_encode() */
    size_t n_before, n_after;
    int32_t begin; /* the only one of `before`, by gpt_tokenizer_begin_with() */
    int32_t end;   /* the only one of `after`, by gpt_tokenizer_end_with() */
};

struct gpt_encoder {
    const struct gpt_tokenizer *tok;
};

/* The file that `model` means: itself, or `name` in it where it is a directory.
 */
int gpt_tokenizer_file(const char *model, const char *name, char *path,
                       size_t cap, struct gpt_err *err) GPT_MUST_USE;
/* True when names of special tokens in a text are these tokens. */
bool gpt_tokenizer_parses_special(const struct gpt_tokenizer_options *o);

/* The encoder of a family that keeps nothing between texts. */
int gpt_plain_encoder_open(struct gpt_encoder **enc,
                           const struct gpt_tokenizer *tok,
                           struct gpt_err *err);
void gpt_plain_encoder_close(struct gpt_encoder *enc);

extern const struct gpt_tokenizer_family gpt_family_gpt2;
extern const struct gpt_tokenizer_family gpt_family_hf;
extern const struct gpt_tokenizer_family gpt_family_hf_pieces; /* no row */
/* The type that the file of such a tokenizer gives its model: "Unigram". */
const char *gpt_hf_model_type(const struct gpt_tokenizer *tok);
extern const struct gpt_tokenizer_family gpt_family_tiktoken;
extern const struct gpt_tokenizer_family gpt_family_sp;
extern const struct gpt_tokenizer_family gpt_family_sp_gpt;
extern const struct gpt_tokenizer_family gpt_family_sp_llama2;
extern const struct gpt_tokenizer_family gpt_family_null;
extern const struct gpt_tokenizer_family gpt_family_bytes;

#endif
