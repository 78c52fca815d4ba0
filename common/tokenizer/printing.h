/* What the decoder of a tokenizer.json makes of a token of whole characters. It
 * is done once for each token, so that only steps are known that do the same to
 * it wherever it is, but for the first place of a text. */
#ifndef GPT_TOKENIZER_PRINTING_H
#define GPT_TOKENIZER_PRINTING_H

#include "base/memory.h"
#include "tokenizer/needle.h"

/* How a token is printed. */
struct gpt_hf_printing {
    struct {
        struct gpt_needle pattern;
        struct gpt_str content;
    } replace[4];
    size_t n_replace;
    struct gpt_str space; /* Metaspace: it is a space; data NULL: none */
    bool bytes;           /* <0x0A> is that byte */
    bool strip;           /* a text's first token loses one space */
    bool joined;          /* a space before each token but the first */
    struct gpt_str inside; /* then none before what begins with this, which goes
                            * (WordPiece); data NULL: none */
    bool cleanup;         /* of spaces before marks of English */
};

/* Appends a token as it is printed; `first`: as the first one of a text, where
 * tokens are joined. */
int gpt_hf_print(const struct gpt_hf_printing *p, bool first,
                 struct gpt_str token, struct gpt_buf *out,
                 struct gpt_err *err) GPT_MUST_USE;

#endif
