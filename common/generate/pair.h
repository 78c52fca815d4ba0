/* A context and its continuation as tokens, to be scored: as the language model
 * evaluation harness makes them (its api/model.py), so that its tasks have the
 * same results. */
#ifndef GPT_GENERATE_PAIR_H
#define GPT_GENERATE_PAIR_H

#include "base/memory.h"
#include "tokenizer/tokenizer.h"

struct gpt_pair { /* any bytes, borrowed */
    const char *context, *continuation;
    size_t context_len, continuation_len;
};

/* LAMBADA's pair: the last word of a text, with the space before it, and what
 * is before that. GPT_EDATA when there is no such word. */
int gpt_pair_of_text(struct gpt_pair *pair, const char *text, size_t len,
                     struct gpt_err *err) GPT_MUST_USE;

/* What pairs are encoded with. */
struct gpt_pair_encoder {
    struct gpt_encoder *encoder; /* borrowed */
    int32_t begin; /* context in place of one without tokens, < 0: none */
    bool begins;   /* ... and before every other one */
    struct gpt_ids ids, context; /* of the pair encoded last */
    struct gpt_buf text;
};
void gpt_pair_encoder_free(struct gpt_pair_encoder *e);

/* Fills e->ids; the first *first of them are those of the context alone.
 * GPT_EDATA for a continuation that adds no token. */
int gpt_pair_encode(struct gpt_pair_encoder *e, const struct gpt_pair *pair,
                    int64_t *first, struct gpt_err *err) GPT_MUST_USE;

#endif
