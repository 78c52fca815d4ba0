/* The steps of a tokenizer.json whose model takes pieces of whole characters:
 * Unigram, WordPiece and WordLevel: normalizer, pre_tokenizer and decoder.
 * Unlike those of byte pairs (tokenizer_json_steps.h), which are known
 * combinations, these are lists of steps in any order. */
#ifndef GPT_TOKENIZER_TOKENIZER_JSON_PIECES_H
#define GPT_TOKENIZER_TOKENIZER_JSON_PIECES_H

#include "tokenizer/piece_steps.h"
#include "tokenizer/printing.h"
#include "tokenizer/text_steps.h"

struct gpt_hf_piece_steps {
    struct gpt_text_step normal[GPT_TEXT_STEPS];
    size_t n_normal;
    struct gpt_piece_steps pieces;
    struct gpt_hf_printing printing;
};

/* From the whole file, which `what` names; what *s refers to is in the arena.
 * Without a decoder the tokens are `joined`, or have Metaspace's spaces.
 * GPT_EDATA names file, field and value of what is not done. */
int gpt_hf_piece_steps_read(struct gpt_hf_piece_steps *s, const cJSON *root,
                            bool joined, struct gpt_arena *arena,
                            const char *what, struct gpt_err *err)
    GPT_MUST_USE;
#endif
