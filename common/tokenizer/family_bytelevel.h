/* What all families of byte-level BPE are once they are open: a vocabulary, a
 * way to cut text, added tokens, normalization. GPT2BPETokenizer,
 * HuggingFaceTokenizer and TikTokenizer fill in this struct and differ in
 * nothing else. */
#ifndef GPT_TOKENIZER_FAMILY_BYTELEVEL_H
#define GPT_TOKENIZER_FAMILY_BYTELEVEL_H

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe/encoder.h"
#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer_json_steps.h"
#include "tokenizer/family.h"

struct gpt_bytelevel {
    struct gpt_tokenizer base;
    struct gpt_vocab vocab;
    struct gpt_token_map map; /* tokens that text may become; may be empty */
    struct gpt_bpe *bpe;
    struct gpt_bpe_model model;
    struct gpt_added *added;            /* searched for in the text as it is */
    struct gpt_added *added_normalized; /* and in what normalization makes */
    bool parse_special; /* special tokens in the text are these tokens */
    bool nfc;           /* text is brought into form C */
    enum gpt_hf_spaces spaces; /* a vocabulary of characters */
    bool prepend;      /* text gets a space before it */
    bool prefix_space; /* text that begins with no U+0020 gets one */
    bool prefix_first; /* only at the beginning of a document */
};

/* An empty one; gpt_tokenizer_close() frees whatever it holds by then. */
int gpt_bytelevel_new(struct gpt_bytelevel **t,
                      const struct gpt_tokenizer_family *family,
                      struct gpt_err *err) GPT_MUST_USE;
/* The last step of opening: merges and cuts, out of t->vocab. With `whole` a
 * piece that is in t->map is one token. */
int gpt_bytelevel_finish(struct gpt_bytelevel *t, gpt_pretok_fn *cut,
                         bool whole, const char *what, struct gpt_err *err)
    GPT_MUST_USE;
/* Names that end-of-document tokens have, NULL-terminated. */
extern const char *const gpt_eod_names[];

/* The calls of a family's table. */
void gpt_bytelevel_close(struct gpt_tokenizer *tok);
int gpt_bytelevel_encoder_open(struct gpt_encoder **enc,
                               const struct gpt_tokenizer *tok,
                               struct gpt_err *err);
void gpt_bytelevel_encoder_close(struct gpt_encoder *enc);
int gpt_bytelevel_encode_text(struct gpt_encoder *enc, const char *text,
                              size_t len, struct gpt_ids *ids,
                              struct gpt_err *err);
const char *gpt_bytelevel_token(const struct gpt_tokenizer *tok, int32_t id,
                                size_t *len);
bool gpt_bytelevel_is_special(const struct gpt_tokenizer *tok, int32_t id);

#define GPT_BYTELEVEL_FAMILY                                                   \
    .close = gpt_bytelevel_close,                                              \
    .encoder_open = gpt_bytelevel_encoder_open,                                \
    .encoder_close = gpt_bytelevel_encoder_close,                              \
    .encode = gpt_bytelevel_encode_text, .token_bytes = gpt_bytelevel_token,   \
    .is_special = gpt_bytelevel_is_special

#endif
