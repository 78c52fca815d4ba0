/* The text of a request's tokens, up to the first stop string. What may be the
 * beginning of a stop string is held back until that is certain, so that no
 * part of one is ever given out. All that is given out is valid UTF-8. */
#ifndef GPT_GENERATE_TEXT_H
#define GPT_GENERATE_TEXT_H

#include "base/list.h"
#include "generate/stream.h"
#include "tokenizer/tokenizer.h"

struct gpt_text { /* start with all zero; gpt_text_free() at the end */
    struct gpt_stream stream;
    struct gpt_buf held;
    int64_t n_tokens;
    bool begins;  /* nothing is before the next token: it shows no space that
                   * the family puts before each text */
    bool stopped; /* a stop string is there: nothing more will come */
};

/* Appends to *out what `token` completes. Stop strings are UTF-8; an empty one
 * is ignored. GPT_EFAIL: out of memory. */
int gpt_text_add(struct gpt_text *t, const struct gpt_tokenizer *tok,
                 int32_t token, const struct gpt_list *stops,
                 struct gpt_buf *out) GPT_MUST_USE;

/* The text is over: appends what was held back. */
int gpt_text_end(struct gpt_text *t, const struct gpt_list *stops,
                 struct gpt_buf *out) GPT_MUST_USE;

void gpt_text_free(struct gpt_text *t);

#endif
