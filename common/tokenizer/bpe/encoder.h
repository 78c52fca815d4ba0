/* Text to ids by byte pairs, as the families of GPT-2 do it: the text is cut
 * into pieces, each is looked up among those seen before and merged if it is
 * new. What differs between families is in struct gpt_bpe_model. Start at
 * gpt_bpe_encode(). */
#ifndef GPT_TOKENIZER_BPE_ENCODER_H
#define GPT_TOKENIZER_BPE_ENCODER_H

#include "tokenizer/bpe/bpe.h"
#include "tokenizer/bpe/late.h"
#include "tokenizer/bpe/parts.h"
#include "tokenizer/bpe/wide.h"
#include "tokenizer/pretok.h"

/* Shared by threads, never written. */
struct gpt_bpe_model {
    gpt_pretok_fn *pretok;
    const struct gpt_bpe *bpe;
    /* A piece that is a token is that token, whatever merging would make of
     * it; NULL: pieces are merged always. */
    const struct gpt_token_map *whole;
};

/* A thread's state. */
struct gpt_bpe_encoder {
    const struct gpt_bpe_model *model; /* borrowed */
    gpt_cut_fn *cut; /* a faster form of model->pretok, or NULL */
    gpt_cut_narrow_fn *narrow; /* that form while `wide` is in use, or NULL */
    struct gpt_wide wide;
    const struct gpt_parts_ways *ways;
    struct gpt_cache cache;
    struct gpt_late *late;
    struct gpt_bpe_scratch scratch;
};

/* Each thread opens one of its own; `model` outlives it. */
int gpt_bpe_encoder_open(struct gpt_bpe_encoder *e,
                         const struct gpt_bpe_model *model,
                         struct gpt_err *err) GPT_MUST_USE;
void gpt_bpe_encoder_close(struct gpt_bpe_encoder *e);

/* Appends the ids of text[0..len). */
int gpt_bpe_encode(struct gpt_bpe_encoder *e, const char *text, size_t len,
                   struct gpt_ids *ids, struct gpt_err *err) GPT_MUST_USE;

#endif
