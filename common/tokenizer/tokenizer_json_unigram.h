/* The steps of a tokenizer.json whose model is Unigram: normalizer,
 * pre_tokenizer and decoder. Unlike those of byte pairs
 * (tokenizer_json_steps.h), which are known combinations, these are lists of
 * steps in any order. */
#ifndef GPT_TOKENIZER_TOKENIZER_JSON_UNIGRAM_H
#define GPT_TOKENIZER_TOKENIZER_JSON_UNIGRAM_H

#include "tokenizer/piece_steps.h"
#include "tokenizer/text_steps.h"

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
};

struct gpt_hf_unigram_steps {
    struct gpt_text_step normal[GPT_TEXT_STEPS];
    size_t n_normal;
    struct gpt_piece_steps pieces;
    struct gpt_hf_printing printing;
};

/* From the whole file, which `what` names; what *s refers to is in the arena.
 * GPT_EDATA names file, field and value of what is not done. */
int gpt_hf_unigram_steps_read(struct gpt_hf_unigram_steps *s, const cJSON *root,
                              struct gpt_arena *arena, const char *what,
                              struct gpt_err *err) GPT_MUST_USE;
/* Appends a token as it is printed. */
int gpt_hf_print(const struct gpt_hf_printing *p, struct gpt_str token,
                 struct gpt_buf *out, struct gpt_err *err) GPT_MUST_USE;

#endif
